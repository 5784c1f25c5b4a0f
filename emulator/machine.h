// The running state of blocks, warps and lanes, and the machine that one host thread drives.
//
// A warp's lanes can stand at different places: each group that stands together is a Split (program
// counter, frame, lanes). Splits that meet merge again. Which split runs is the scheduler's
// decision (scheduler.cc); what an instruction does is the interpreter's (interpreter.cc).
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "emulator/checks/agent_work.h"
#include "emulator/checks/launch_checks.h"
#include "emulator/code.h"
#include "emulator/executor.h"
#include "emulator/extended_operation.h"
#include "emulator/program.h"
#include "emulator/read_set.h"
#include "emulator/schedule.h"

namespace ops_debug::emulator {

// Memory for lane arrays, aligned and kept at its size.
class LaneBuffer {
 public:
  explicit LaneBuffer(size_t size_bytes);
  ~LaneBuffer();
  LaneBuffer(LaneBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_bytes_(other.size_bytes_) {}
  LaneBuffer& operator=(LaneBuffer&&) = delete;
  std::byte* data() const { return data_; }
  size_t size_bytes() const { return size_bytes_; }

 private:
  std::byte* data_ = nullptr;
  size_t size_bytes_ = 0;
};

class RegisterDefinedness;

// One activation of a function by the lanes that called it together.
struct Frame {
  explicit Frame(const Function& f) : function(&f), registers(f.frame_bytes) {}
  const Function* function;
  LaneBuffer registers;
  Frame* parent = nullptr;
  const CallSite* site = nullptr;
  uint32_t return_pc = 0;
  uint32_t live = 0;  // lanes that have not returned
  uint32_t depth = 0;
  uint32_t local_base = 0;                           // of its variables in each lane's local memory
  std::shared_ptr<RegisterDefinedness> definedness;  // belongs to checks/init_check.cc
};

struct Split {
  // kWaiting: at an extended operation that is not Ready yet.
  enum class State : uint8_t { kReady, kBarrier, kWarpSync, kWaiting };
  Frame* frame = nullptr;
  uint32_t pc = 0;
  uint32_t lanes = 0;
  State state = State::kReady;
  uint8_t barrier = 0;
  uint32_t members = 0;    // kWarpSync: lanes it waits for
  bool timed_out = false;  // kWaiting before: woken by the scheduler although not Ready (GivesUp)
  uint64_t last_run = 0;
};

struct Block;

// How far a warp is with its wgmma instructions (matrix_warpgroup.h).
struct WarpgroupProgress {
  uint64_t issued = 0;              // wgmma.mma_async that this warp has executed
  std::vector<uint64_t> committed;  // value of `issued` at each open wgmma.commit_group
  // For checks: the reads of operands that nobody has waited for, by value of `issued` behind them.
  std::vector<std::pair<uint64_t, AgentWork>> reads;
};

// Recognises a warp that goes round in circles (stall.cc).
struct StallWatch {
  uint64_t hash = 0;     // of its state when it was saved
  uint64_t clock = 0;    // Machine::clock_ then
  uint64_t changes = 0;  // Launch::changes then
  uint64_t samples = 0, limit = 1;
  uint64_t latest_hash = 0;
  uint64_t stuck_at = 0;  // Launch::changes + 1 while it cannot go on unless memory changes
};

// The last access that could have waited for another thread.
struct SpinAccess {
  const Function* function = nullptr;
  uint32_t statement = 0;
  uint32_t bytes = 0;
  const std::byte* pointer = nullptr;
  bool is_shared = false;
};

struct Warp {
  Block* block = nullptr;
  uint32_t index = 0;
  uint32_t exists = 0;  // lanes that the launch has
  uint32_t exited = 0;
  uint32_t split_count = 0;
  Split splits[kWarpLanes];
  alignas(kLaneArrayAlignment) uint32_t thread_index[3][kWarpLanes];
  std::byte* local = nullptr;
  uint64_t instructions = 0;  // lanes times instructions
  StallWatch watch;
  SpinAccess spin;
  uint64_t local_changes = 0;             // counted while observed
  uint64_t priority = 0;                  // in a chosen schedule
  uint64_t stack_bytes[kWarpLanes] = {};  // that alloca took of each lane's local memory
  WarpgroupProgress warpgroup;

  uint32_t gone() const { return exited | ~exists; }
};

// Named barrier of a block (PTX ISA 9.0, bar). Arrival is per thread, as on Volta and later.
struct Barrier {
  std::vector<uint32_t> arrived;  // lanes, per warp
  uint32_t expected_threads = 0;  // 0: all of the block
  uint32_t predicate_count = 0;
  uint32_t reduced_threads = 0;
  bool in_use = false;
};

struct Fault {
  LaunchError::Code code = LaunchError::Code::kIllegalAddress;
  std::string text;  // what happened, without place
  const Function* function = nullptr;
  uint32_t statement = 0;
  uint32_t warp = 0, lane = 0;
  bool has_place = true;
};

struct Launch;
struct Cluster;
struct BlockView;
class LaunchChecks;
class ClusterOrder;
class Machine;
class PendingCopies;

struct Block {
  static constexpr uint32_t kBarriers = 16;
  Block(const Launch& launch, uint32_t warp_count);
  Launch const* launch = nullptr;
  Cluster* cluster = nullptr;  // never null: a launch without clusters has clusters of one block
  uint32_t cluster_rank = 0;   // %cluster_ctarank
  uint64_t number = 0;         // in the order in which blocks start: cluster by cluster, by rank
  uint32_t index[3] = {};
  std::vector<std::unique_ptr<Warp>> warps;
  LaneBuffer shared;
  LaneBuffer local;
  Barrier barriers[kBarriers];
  std::string output;  // of printf
  uint32_t idle_yields = 0;
  BlockView* view = nullptr;  // owned by the WeakMemory of a chosen schedule
  bool ended = false;         // its shared memory can no longer be reached from other blocks
};

// Blocks that are resident together, on one host thread. All of them keep their shared memory until
// the last one has ended.
struct Cluster {
  uint64_t number = 0;
  uint32_t index[3] = {};      // %clusterid
  std::vector<Block*> blocks;  // by rank; also those that have ended
  uint32_t unfinished = 0;     // blocks
  // barrier.cluster: lanes that have arrived in the phase that is not complete, by rank and warp.
  std::vector<uint32_t> arrived;
  // Asynchronous copies that have been started but not performed (pending_copies.h); null until the
  // first one.
  std::shared_ptr<PendingCopies> copies;

  uint32_t& ArrivedLanes(const Warp& warp) {
    const Block& block = *warp.block;
    return arrived[block.cluster_rank * block.warps.size() + warp.index];
  }
};

// Threads that wait at one place for the same thing, for the explanation of a deadlock.
struct WaitGroup {
  const Function* function = nullptr;
  uint32_t statement = 0;
  Split::State state = Split::State::kReady;
  uint8_t barrier = 0;
  uint64_t threads = 0, blocks = 0;
  uint64_t last_block = ~0ull;
  uint32_t first_block[3] = {}, first_thread[3] = {};
  std::string first;   // "block (0,0,0), thread (1,0,0)"
  std::string reason;  // of the first
};

// What all host threads of one launch share.
struct Launch {
  const Program::Impl* program = nullptr;
  const Kernel* kernel = nullptr;
  Dim3 grid, block;
  Dim3 cluster;                 // blocks per cluster
  uint32_t cluster_blocks = 1;  // product of cluster
  uint64_t block_count = 0;
  uint64_t cluster_count = 0;
  uint32_t threads_per_block = 0;
  uint32_t warps_per_block = 0;
  uint32_t dynamic_shared_bytes = 0;
  uint32_t total_shared_bytes = 0;
  uint64_t shared_limit_bytes = 0;  // accessible, rounded as hardware does
  uint64_t local_limit_bytes = 0;
  uint64_t local_stride_bytes = 0;
  std::vector<std::byte> parameters;
  uint64_t parameter_bytes = 0;
  const DeviceModel* model = nullptr;
  DeviceMemory* memory = nullptr;
  uint64_t map_base = 0, map_bytes = 0;  // what page_map covers
  const uint8_t* page_map = nullptr;
  const LaneSupport* lanes = nullptr;
  uint64_t grid_id = 0;
  uint64_t grid_workspace = 0;  // cooperative launches: two zero words in device memory
  bool cooperative = false;
  uint64_t instruction_limit = 0;
  bool explicit_cluster = false;  // %is_explicit_cluster

  std::atomic<uint64_t> next_cluster{0};
  std::atomic<uint64_t> failed_block{~0ull};  // lowest block that failed; later ones need not go on
  std::atomic<uint64_t> instructions{0};
  uint64_t resident_limit = 0;  // blocks on the device at a time
  std::function<bool(uint64_t)> host_accessible;
  bool is_alone = false;
  std::atomic<bool> waits_for_host{false};  // is_alone: no deadlock, but nobody ends it here
  std::atomic<bool> spins_globally{false};  // a thread of the deadlock does
  uint64_t schedule_seed = 0;
  LaunchChecks* checks = nullptr;  // checks/launch_checks.h; null: nothing is checked
  std::atomic<uint64_t> resident_blocks{0};
  // Grows with every event after which threads that wait could go on; memory counts only while
  // observed, and where somebody has read it.
  std::atomic<uint64_t> changes{0};
  std::atomic<bool> is_deadlocked{false};
  ReadSet reads;  // by observed warps
  // Guarded by mutex: the value of `changes` at which every block of a machine was stuck.
  std::unordered_map<const Machine*, uint64_t> stuck;
  uint64_t machines = 0;  // that have blocks; guarded by mutex
  uint64_t all_stuck_at = ~0ull;
  std::chrono::steady_clock::time_point all_stuck_since;
  std::vector<WaitGroup> waits;    // of a deadlock; guarded by mutex
  uint64_t deadlocked_blocks = 0;  // guarded by mutex
  uint64_t unstarted = 0;          // clusters, when it deadlocked
  std::mutex mutex;
  LaunchError error;                                      // of failed_block
  std::vector<std::pair<uint64_t, std::string>> outputs;  // printf text by block
};

class Machine {
 public:
  explicit Machine(Launch& launch);
  // Takes blocks from the launch until there are none.
  void Work();
  // The same in the schedule that Launch::schedule_seed chooses; the launch's only machine.
  void Explore();

  // ---- for extended operations as well
  const Launch& launch() const { return launch_; }
  const LaneSupport& lanes() const { return lanes_; }
  // The checks that are to hear of `in`; null if there are none or it is the tool's own code.
  LaunchChecks* ChecksOf(const Frame& frame, const Instruction& in) const {
    if (launch_.checks == nullptr || frame.function->statements[in.statement].is_tool)
      return nullptr;
    return launch_.checks;
  }
  // What the running lanes just saw can change only through other threads (a failed test_wait): the
  // next backward jump counts as spinning.
  void MarkSynchronising() { synchronising_ = true; }
  // barrier.cluster.arrive of lanes that have not yet arrived in this phase.
  void ArriveAtClusterBarrier(Warp& warp, uint32_t lanes);
  bool Resolve(Warp& warp, Space space, const uint64_t* addresses, uint32_t active, uint32_t bytes,
               bool is_write, std::byte** pointers);
  std::byte* ResolveLane(Warp& warp, Space space, uint64_t address, uint32_t lane, uint32_t bytes,
                         bool is_write);
  bool FailAccess(Warp& warp, Space space, uint64_t address, uint32_t lane, uint32_t bytes);
  bool Fail(LaunchError::Code code, Warp& warp, uint32_t lane, std::string text);
  // The block that a shared address (kShared, kSharedCluster) or the shared part of a generic one
  // names, null if there is none or it has ended; `offset` is the address in its shared memory.
  static Block* SharedBlock(const Warp& warp, Space space, uint64_t address, uint64_t* offset);
  // ", which is in the shared memory of ...": why such an address cannot be accessed.
  std::string DescribeSharedAddress(const Warp& warp, Space space, uint64_t address,
                                    LaunchError::Code* code) const;
  PendingCopies& Copies(const Warp& warp);
  // Performs all copies that blocks of `block`'s cluster have started (pending_copies.cc); false if
  // there were none.
  static bool PerformCopies(Block& block);

  static std::byte* At(Frame& frame, Ref ref) {
    return (ref & kConstantBit) != 0
               ? const_cast<std::byte*>(frame.function->constant_base) + (ref & ~kConstantBit)
               : frame.registers.data() + ref;
  }
  std::byte* LocalRow(const Warp& warp, uint32_t lane) const {
    return warp.local + lane * launch_.local_stride_bytes;
  }
  static uint32_t& PredicateAt(Frame& frame, Ref ref) {
    return *reinterpret_cast<uint32_t*>(At(frame, ref));
  }
  static void SetPredicate(Frame& frame, Ref ref, uint32_t value, uint32_t lanes) {
    uint32_t& predicate = PredicateAt(frame, ref);
    predicate = (predicate & ~lanes) | (value & lanes);
  }
  // Writes 32 lanes of 32 bits, those of `lanes` only.
  void StoreLanes32(Frame& frame, Ref ref, const uint32_t* values, uint32_t lanes) {
    if (ref != kNoRef) launch_.lanes->blend[2](At(frame, ref), values, lanes);
  }

 private:
  enum class Stop : uint8_t {
    kReschedule,
    kYield,
    kPreempted,  // the slice of a chosen schedule is over
    kFault,
    kBlocked,
    kFinished,
  };

  // ---- scheduler.cc
  Cluster* StartCluster(uint64_t number);
  void StartBlock(Block& block);
  void EndBlock(Block& block);
  Stop RunBlock(Block& block);
  Stop RunWarp(Warp& warp);
  // `stop`, or kFault if the instructions since `before` are more than the launch may have.
  Stop CountTowardsLimit(Warp& warp, uint64_t before, Stop stop);
  static void MergeSplits(Warp& warp);
  static int PickByPlace(const Warp& warp);
  static int PickByAge(const Warp& warp);
  static uint32_t NextMeeting(const Warp& warp, const Split& split);
  static bool HasReady(const Warp& warp);
  // Makes sleeping splits ready whose extended operation can go on; true if others sleep on.
  bool Wake(Warp& warp);
  static Split& AddSplit(Warp& warp, const Split& like, uint32_t lanes, uint32_t pc);
  static void RemoveSplit(Warp& warp, Split& split);
  // Leaves the other lanes of `split` behind the instruction at `pc`, so that all its lanes execute
  // it.
  static void KeepLanes(Warp& warp, Split& split, uint32_t lanes, uint32_t pc);
  Frame* TakeFrame(const Function& function);
  void DropLanes(Frame* frame, uint32_t lanes);  // of a frame and its callers
  void ReleaseLanes(Frame* frame, uint32_t lanes);
  void FailDeadlock(Block& block);
  // Takes the next cluster of the launch if the device has room for it; null if not.
  Cluster* StartNext();

  // ---- stall.cc: deadlocks
  Stop ObserveBlock(Block& block);
  void Sample(Warp& warp);
  bool IsStuck(const std::vector<Block*>& resident) const;
  // Lanes that give up waiting after some time do so now; false if there are none for which that
  // is new.
  bool GiveUpWaiting(const std::vector<Block*>& resident);
  // How long what they spin on gets to change from outside of the launch.
  std::chrono::milliseconds Patience(const std::vector<Block*>& resident) const;
  // After a round in which only spinning blocks ran. True: the launch is deadlocked.
  bool LookForDeadlock(const std::vector<Block*>& resident);
  void DeclareDeadlock(const std::vector<Block*>& resident);
  void StopObserving();
  void CollectWaits(const std::vector<Block*>& resident);
  void TellDeadlock(const std::vector<WaitGroup>& waits, const std::vector<Block*>& blocks);

  // ---- explore.cc: chosen schedules
  struct Residents {
    std::vector<Block*> blocks;
    std::vector<Warp*> warps;
  };
  bool StartChosen(ClusterOrder& order, Residents& residents);
  void Sweep(Residents& residents);
  Warp* ChooseWarp(const std::vector<Warp*>& warps);
  Stop RunSlice(Warp& warp);
  Stop CalmDown(ClusterOrder& order, Residents& residents);
  uint32_t ChooseLanes(uint32_t lanes);  // that make a memory access first

  // ---- observed_access.cc: accesses of observed warps
  bool LoadObserved(Warp& warp, Frame& frame, const Instruction& in, uint32_t active);
  void LoadUniformObserved(Warp& warp, Frame& frame, const Instruction& in, uint32_t active);
  bool StoreObserved(Warp& warp, Frame& frame, const Instruction& in, uint32_t active);
  bool AtomicObserved(Warp& warp, Frame& frame, const Instruction& in, uint32_t active);
  // False if no instruction of the function uses what the atomic `in` returns.
  bool ResultIsUsed(const Function& function, const Instruction& in);
  static void ForgetResult(Frame& frame, const Instruction& in);
  void NoteSpin(Warp& warp, const Frame& frame, const Instruction& in, const std::byte* pointer,
                uint32_t bytes);
  // Tells the checks, if there are any, of accesses that are not the tool's own.
  void Tell(Warp& warp, Frame& frame, const Instruction& in, uint32_t lanes, AccessKind kind,
            const MemoryAccess& access, Space space, const std::byte* const* pointers,
            const std::byte* const* values);
  void TellAfterAtomic(Warp& warp, Frame& frame, const Instruction& in, uint32_t lanes, Space space,
                       const std::byte* const* pointers);
  void TellArrival(Warp& warp, Frame& frame, const Instruction& in, uint32_t lanes);
  bool IsLocal(const Warp& warp, const std::byte* pointer) const {
    return static_cast<size_t>(pointer - warp.block->local.data()) < warp.block->local.size_bytes();
  }
  void Report(Block& block);

  // ---- interpreter.cc
  // kObserved: accesses go through observed_access.cc, and slices end. The rest is the same code.
  template <bool kObserved>
  Stop Execute(Warp& warp, Split& split);
  uint64_t ReadClock();
  void ReadSpecial(const Warp& warp, const Instruction& in, void* out);
  void LoadParameter(const Instruction& in, Frame& frame, uint32_t active);
  void LoadUniform(const Instruction& in, Frame& frame, uint32_t active, const std::byte* source);
  bool SplitByTable(Warp& warp, Split& split, const Instruction& in, uint32_t active);
  bool Call(Warp& warp, Split& split, const Instruction& in);
  void Return(Warp& warp, Split& split);
  void Exit(Warp& warp, Split& split, uint32_t lanes);
  bool IsInSpace(uint64_t address, Space space) const;

  // ---- lane_access.cc: false = fault
  bool Load(Warp& warp, Frame& frame, const Instruction& in, uint32_t active);
  bool Store(Warp& warp, Frame& frame, const Instruction& in, uint32_t active);
  bool Atomic(Warp& warp, Frame& frame, const Instruction& in, uint32_t active);
  bool CopyAsync(Warp& warp, Frame& frame, const Instruction& in, uint32_t active);
  void LoadFrame(Warp& warp, Frame& frame, const Instruction& in, uint32_t active);
  void StoreFrame(Warp& warp, Frame& frame, const Instruction& in, uint32_t active);
  Space SettleSpace(Space space, uint64_t* addresses, uint32_t active) const;
  std::byte* Contiguous(Warp& warp, Space space, uint64_t address, uint64_t bytes,
                        uint32_t alignment);
  void FramePointers(Warp& warp, Frame& frame, int64_t offset, std::byte** pointers);

  // ---- warp_operations.cc
  // True if the operation was performed and the split can go on behind it.
  bool WarpOperate(Warp& warp, Split& split, const Instruction& in);
  void CompleteWarpSync(Warp& warp);
  void Perform(Warp& warp, Split* const* participants, uint32_t count, uint32_t lanes);

  // ---- barriers.cc
  bool ArriveAtBarrier(Warp& warp, Split& split, const Instruction& in);
  void CheckBarrier(Block& block, uint32_t id);
  void CheckAllBarriers(Block& block);
  void CheckClusterBarrier(Cluster& cluster);

  // ---- device_calls.cc
  bool CallBuiltin(Warp& warp, Split& split, const Function& callee, const CallSite& site);
  bool Print(Warp& warp, Frame& frame, uint32_t lane, uint64_t format, uint64_t arguments);
  bool AssertFail(Warp& warp, Frame& frame, uint32_t lanes, const CallSite& site);
  bool ReadString(uint64_t address, std::string* out) const;
  uint64_t ReadSlot(Warp& warp, Frame& frame, uint32_t lane, const Slot& slot) const;
  void WriteSlot(Warp& warp, Frame& frame, uint32_t lane, const Slot& slot, uint64_t value);

  Launch& launch_;
  const LaneSupport& lanes_;
  std::unordered_map<const Function*, std::vector<Frame*>> free_frames_;
  std::vector<std::unique_ptr<Frame>> frames_;      // all of them
  std::vector<std::unique_ptr<Block>> blocks_;      // all of them
  std::vector<std::unique_ptr<Cluster>> clusters_;  // all of them
  std::vector<Cluster*> free_clusters_;
  LaneBuffer scratch_;
  Fault fault_;
  uint64_t instructions_ = 0;  // of blocks that have ended
  uint64_t clock_ = 0;         // counts scheduling decisions
  uint64_t executed_ = 0;      // instructions, if there is a limit
  int64_t credit_ = 0;         // backward jumps until the running split must yield
  bool synchronising_ =
      false;  // an access that can wait for other threads happened since the last backward jump
  bool spinning_ = false;  // the last yield came from such a loop

  bool observing_ = false;  // warps are executed observed
  int64_t slice_ = 0;       // observed: scheduling points until the warp must give way
  bool reads_clock_ = false;
  std::unordered_map<const Instruction*, bool> used_results_;
  uint64_t gave_up_at_ = ~0ull;
  std::chrono::steady_clock::time_point last_event_;
  std::chrono::milliseconds suspicion_{100};  // how long all spin before they are observed

  // Of a chosen schedule.
  std::unique_ptr<Schedule> schedule_;
  std::unique_ptr<WeakMemory> weak_;
  bool lanes_may_part_ = true;  // a warp's accesses may be made by some of its lanes first
  uint64_t virtual_ns_ = 0;     // what the clocks show
  uint64_t clock_step_ns_ = 40;
};

}  // namespace ops_debug::emulator
