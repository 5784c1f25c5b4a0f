// The running state of blocks, warps and lanes, and the machine that one host thread drives.
//
// A warp's lanes can stand at different places: each group that stands together is a Split (program
// counter, frame, lanes). Splits that meet merge again. Which split runs is the scheduler's
// decision (scheduler.cc); what an instruction does is the interpreter's (interpreter.cc).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "emulator/code.h"
#include "emulator/executor.h"
#include "emulator/extended_operation.h"
#include "emulator/program.h"

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
  uint32_t local_base = 0;  // of its variables in each lane's local memory
};

struct Split {
  // kWaiting: at an extended operation that is not Ready yet.
  enum class State : uint8_t { kReady, kBarrier, kWarpSync, kWaiting };
  Frame* frame = nullptr;
  uint32_t pc = 0;
  uint32_t lanes = 0;
  State state = State::kReady;
  uint8_t barrier = 0;
  uint32_t members = 0;  // kWarpSync: lanes it waits for
  uint64_t last_run = 0;
};

struct Block;

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

struct Block {
  static constexpr uint32_t kBarriers = 16;
  Block(const Launch& launch, uint32_t warp_count);
  Launch const* launch = nullptr;
  uint64_t number = 0;
  uint32_t index[3] = {};
  std::vector<std::unique_ptr<Warp>> warps;
  LaneBuffer shared;
  LaneBuffer local;
  Barrier barriers[kBarriers];
  std::string output;  // of printf
  uint32_t idle_yields = 0;
};

// What all host threads of one launch share.
struct Launch {
  const Program::Impl* program = nullptr;
  const Kernel* kernel = nullptr;
  Dim3 grid, block;
  uint64_t block_count = 0;
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
  uint64_t arena_base = 0;
  const uint8_t* page_map = nullptr;
  const LaneSupport* lanes = nullptr;
  uint64_t grid_id = 0;
  uint64_t grid_workspace = 0;  // cooperative launches: two zero words in device memory
  bool cooperative = false;

  std::atomic<uint64_t> next_block{0};
  std::atomic<uint64_t> failed_block{~0ull};  // lowest block that failed; later ones need not go on
  std::atomic<uint64_t> instructions{0};
  std::mutex mutex;
  LaunchError error;                                      // of failed_block
  std::vector<std::pair<uint64_t, std::string>> outputs;  // printf text by block
};

class Machine {
 public:
  explicit Machine(Launch& launch);
  // Takes blocks from the launch until there are none.
  void Work();

  // ---- for extended operations as well
  const Launch& launch() const { return launch_; }
  const LaneSupport& lanes() const { return lanes_; }
  // What the running lanes just saw can change only through other threads (a failed test_wait): the
  // next backward jump counts as spinning.
  void MarkSynchronising() { synchronising_ = true; }
  bool Resolve(Warp& warp, Space space, const uint64_t* addresses, uint32_t active, uint32_t bytes,
               bool is_write, std::byte** pointers);
  std::byte* ResolveLane(Warp& warp, Space space, uint64_t address, uint32_t lane, uint32_t bytes,
                         bool is_write);
  bool FailAccess(Warp& warp, Space space, uint64_t address, uint32_t lane, uint32_t bytes);
  bool Fail(LaunchError::Code code, Warp& warp, uint32_t lane, std::string text);

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
  enum class Stop : uint8_t { kReschedule, kYield, kFault, kBlocked, kFinished };

  // ---- scheduler.cc
  std::unique_ptr<Block> StartBlock(uint64_t number);
  Stop RunBlock(Block& block);
  Stop RunWarp(Warp& warp);
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
  void Report(Block& block);

  // ---- interpreter.cc
  Stop Execute(Warp& warp, Split& split);
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
  std::vector<std::unique_ptr<Frame>> frames_;  // all of them
  std::vector<std::unique_ptr<Block>> free_blocks_;
  LaneBuffer scratch_;
  Fault fault_;
  uint64_t clock_ = 0;  // counts scheduling decisions
  int64_t credit_ = 0;  // backward jumps until the running split must yield
  bool synchronising_ =
      false;  // an access that can wait for other threads happened since the last backward jump
  bool spinning_ = false;  // the last yield came from such a loop
};

}  // namespace ops_debug::emulator
