// What the machine tells the checks of a launch (races, barriers, uninitialised reads), and in
// which order: the hook interface. With a LaunchChecks in the launch, warps are executed observed
// (Machine::Execute<true>), by one host thread, and every hook is called on that thread. Hooks are
// called under Checks::mutex (checks.h), so that launches which run side by side may share state.
//
// Code that instrumentation added (SourcePlace::is_tool) is not reported.
//
// To add a check: derive from LaunchObserver, override what you need, and create it in
// Checks::StartLaunch. Memory that is not the kernel's own is seen by the DeviceObserver.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "emulator/code.h"

namespace ops_debug::emulator {

struct Block;
struct Cluster;
struct CopyRow;
struct Frame;
struct Launch;
struct Split;
struct Warp;
struct MbarrierPlace;

enum class AccessKind : uint8_t { kLoad, kStore, kAtomic };

// How an access takes part in synchronisation (PTX ISA 9.0, 8.4 and 8.5).
struct AccessOrder {
  bool strong = false;  // relaxed, volatile, acquire, release, or an atomic operation
  bool acquire = false;
  bool release = false;
  bool is_volatile = false;
  MemoryScope scope = MemoryScope::kSystem;
};

// One memory access of some lanes of a warp. Loads are told when the values are known, stores and
// atomics before memory changes (afterwards, atomics once more: AfterAtomic).
struct WarpAccess {
  Warp* warp = nullptr;
  const Function* function = nullptr;
  Frame* frame = nullptr;  // null: not an access by an instruction that runs at the moment
  const Instruction* in = nullptr;
  uint32_t statement = 0;  // in `function`
  uint32_t lanes = 0;
  AccessKind kind = AccessKind::kLoad;
  // As far as the instruction says; kGeneric: lanes may differ (PlaceOf knows).
  Space space = Space::kGlobal;
  uint32_t bytes = 0;                          // per lane
  const std::byte* const* pointers = nullptr;  // by lane, host memory; device address in global
  const std::byte* const* values = nullptr;    // by lane: loaded or about to be stored; or null
  AccessOrder order;
  const char* semantics = nullptr;  // for reports, of accesses other than loads, stores, atomics
};

// Where a host pointer of an access leads.
struct MemoryPlace {
  enum class Kind : uint8_t { kGlobal, kShared, kLocal, kParameter };
  Kind kind = Kind::kGlobal;
  Block* block = nullptr;  // kShared: whose
  uint64_t address = 0;    // device address, or offset in the shared memory
};
MemoryPlace PlaceOf(const Warp& warp, const std::byte* pointer);

enum class FenceOrder : uint8_t { kSequential, kAcquireRelease, kAcquire, kRelease };
enum class FenceProxy : uint8_t {
  kNone,          // membar, fence.sc, fence.acq_rel, fence.acquire, fence.release
  kAsync,         // fence.proxy.async
  kOther,         // fence.proxy.alias, .tensormap
  kMbarrierInit,  // fence.mbarrier_init
};
// Of Op::kFence: Instruction::immediate.
struct FenceUse {
  FenceOrder order = FenceOrder::kSequential;
  MemoryScope scope = MemoryScope::kSystem;
  FenceProxy proxy = FenceProxy::kNone;
  uint64_t Pack() const {
    return static_cast<uint64_t>(order) | static_cast<uint64_t>(scope) << 8 |
           static_cast<uint64_t>(proxy) << 16;
  }
  static FenceUse Unpack(uint64_t bits) {
    return {static_cast<FenceOrder>(bits & 255), static_cast<MemoryScope>(bits >> 8 & 255),
            static_cast<FenceProxy>(bits >> 16 & 255)};
  }
};

// One bar or barrier instruction, when lanes of a warp come to it.
struct BarrierArrival {
  Warp* warp = nullptr;
  const Function* function = nullptr;
  uint32_t statement = 0;
  uint32_t lanes = 0;
  uint32_t id = 0;
  uint32_t expected_threads = 0;  // 0: not given, all threads of the block
  BarrierKind kind = BarrierKind::kSync;
};

// Lanes that come to, or complete, an operation between lanes (bar.warp.sync, shfl, vote, ...).
struct WarpArrival {
  Warp* warp = nullptr;
  const Function* function = nullptr;
  const Instruction* in = nullptr;
  uint32_t statement = 0;
  uint32_t lanes = 0;
  const uint32_t* members = nullptr;  // the mask that each lane names, by lane; null: form without
};

class LaunchObserver {
 public:
  LaunchObserver() = default;
  virtual ~LaunchObserver() = default;
  LaunchObserver(const LaunchObserver&) = delete;
  LaunchObserver& operator=(const LaunchObserver&) = delete;

  // ---- blocks and threads
  virtual void StartBlock(Block& /*block*/) {}
  virtual void EndBlock(Block& /*block*/) {}  // its threads have exited, or the launch has failed
  virtual void Exit(Warp& /*warp*/, uint32_t /*lanes*/) {}

  // ---- instructions, in the order of execution. Before each one, with the lanes that execute it;
  // called only if WantsInstructions().
  virtual bool WantsInstructions() const { return false; }
  virtual void BeforeInstruction(Warp& /*warp*/, Split& /*split*/, const Instruction& /*in*/,
                                 uint32_t /*lanes*/) {}
  // Before that, if it has a guard, with all lanes that come to it.
  virtual void BeforeGuard(Warp& /*warp*/, Split& /*split*/, const Instruction& /*in*/,
                           uint32_t /*lanes*/) {}
  // Lanes have entered a function, with its arguments in place; they are about to leave it, before
  // its results are copied. Not of functions without a body.
  virtual void Call(Warp& /*warp*/, Frame& /*caller*/, Frame& /*callee*/, uint32_t /*lanes*/) {}
  virtual void Return(Warp& /*warp*/, Frame& /*callee*/, uint32_t /*lanes*/) {}

  // ---- memory
  virtual void Access(const WarpAccess& /*access*/) {}
  virtual void AfterAtomic(const WarpAccess& /*access*/) {}
  virtual void Fence(Warp& /*warp*/, uint32_t /*lanes*/, const FenceUse& /*fence*/) {}
  // Bytes that an asynchronous instruction of the thread moves, now. `from` null: zeros, or a value
  // from registers; `to` null: only read (wgmma). Their order: async_order.h.
  virtual void AsyncCopy(Warp& /*warp*/, uint32_t /*lane*/, const Function* /*function*/,
                         uint32_t /*statement*/, std::byte* /*to*/, const std::byte* /*from*/,
                         uint64_t /*bytes*/) {}

  // ---- barriers of a block. Complete is told while Barrier::arrived still names the lanes, and
  // the waiting splits still wait.
  virtual void ArriveAtBarrier(const BarrierArrival& /*arrival*/) {}
  virtual void CompleteBarrier(Block& /*block*/, uint32_t /*id*/) {}

  // ---- operations between the lanes of a warp. `lanes` of Complete: all that took part, from
  // `count` splits that still stand at the instruction.
  virtual void ArriveAtWarpOperation(const WarpArrival& /*arrival*/) {}
  virtual void CompleteWarpOperation(Warp& /*warp*/, Op /*op*/, Split* const* /*splits*/,
                                     uint32_t /*count*/, uint32_t /*lanes*/) {}

  // ---- clusters: barrier.cluster
  virtual void ArriveAtClusterBarrier(Warp& /*warp*/, uint32_t /*lanes*/, bool /*release*/) {}
  virtual void CompleteClusterBarrier(Cluster& /*cluster*/) {}
  virtual void LeaveClusterBarrier(Warp& /*warp*/, uint32_t /*lanes*/, bool /*acquire*/) {}

  // ---- griddepcontrol: .wait, or .launch_dependents
  virtual void WaitForGrid(Warp& /*warp*/, uint32_t /*lanes*/) {}
  virtual void LaunchDependents(Warp& /*warp*/, uint32_t /*lanes*/) {}

  // ---- the end: `is_deadlocked` while the blocks still stand where they wait.
  virtual void Deadlock(const std::vector<Block*>& /*resident*/) {}
  virtual void EndLaunch() {}
};

// The observers of one launch. The machine calls it; it passes everything on, in order, with the
// lock held.
class Checks;
class RaceCheck;
class AsyncOrder;
class SyncCheck;
class LaunchChecks {
 public:
  explicit LaunchChecks(Checks& checks) : checks_(checks) {}
  void Add(std::unique_ptr<LaunchObserver> observer);

  // Of this launch; null if races are not checked.
  RaceCheck* races() const { return races_; }
  void set_races(RaceCheck* races) { races_ = races; }
  // Null if barriers are not checked. Lock mutex() around calls of its own functions.
  SyncCheck* sync() const { return sync_; }
  void set_sync(SyncCheck* sync) { sync_ = sync; }
  // Null if races are not checked. Its own functions lock mutex() themselves.
  AsyncOrder* async() const { return async_; }
  void set_async(AsyncOrder* async) { async_ = async; }
  bool wants_instructions() const { return wants_instructions_; }
  Checks& checks() const { return checks_; }

  // For events of instructions that only one observer knows: call it under this lock.
  std::mutex& mutex() const;

  void StartBlock(Block& block);
  void EndBlock(Block& block);
  void Exit(Warp& warp, uint32_t lanes);
  void BeforeInstruction(Warp& warp, Split& split, const Instruction& in, uint32_t lanes);
  void BeforeGuard(Warp& warp, Split& split, const Instruction& in, uint32_t lanes);
  void Call(Warp& warp, Frame& caller, Frame& callee, uint32_t lanes);
  void Return(Warp& warp, Frame& callee, uint32_t lanes);
  void Access(const WarpAccess& access);
  void AfterAtomic(const WarpAccess& access);
  void Fence(Warp& warp, uint32_t lanes, const FenceUse& fence);
  void AsyncCopy(Warp& warp, uint32_t lane, const Function* function, uint32_t statement,
                 std::byte* to, const std::byte* from, uint64_t bytes);
  void ArriveAtBarrier(const BarrierArrival& arrival);
  void CompleteBarrier(Block& block, uint32_t id);
  void ArriveAtWarpOperation(const WarpArrival& arrival);
  void CompleteWarpOperation(Warp& warp, Op op, Split* const* splits, uint32_t count,
                             uint32_t lanes);
  void ArriveAtClusterBarrier(Warp& warp, uint32_t lanes, bool release);
  void CompleteClusterBarrier(Cluster& cluster);
  void LeaveClusterBarrier(Warp& warp, uint32_t lanes, bool acquire);
  void WaitForGrid(Warp& warp, uint32_t lanes);
  void LaunchDependents(Warp& warp, uint32_t lanes);
  void Deadlock(const std::vector<Block*>& resident);
  void EndLaunch();

 private:
  template <class F>
  void ForEach(F function);

  Checks& checks_;
  RaceCheck* races_ = nullptr;
  SyncCheck* sync_ = nullptr;
  AsyncOrder* async_ = nullptr;
  bool wants_instructions_ = false;
  std::vector<std::unique_ptr<LaunchObserver>> observers_;
};

// Operations on memory that no kernel makes: copies, fills, the host, allocations.
struct DeviceOperation;  // checks.h
class DeviceObserver {
 public:
  DeviceObserver() = default;
  virtual ~DeviceObserver() = default;
  DeviceObserver(const DeviceObserver&) = delete;
  DeviceObserver& operator=(const DeviceObserver&) = delete;
  // `address` may be host memory that the device can reach, or pageable memory (ignore it then).
  virtual void Read(const DeviceOperation& /*operation*/, uint64_t /*address*/,
                    uint64_t /*bytes*/) {}
  // Told before memory changes.
  virtual void Write(const DeviceOperation& /*operation*/, uint64_t /*address*/,
                     uint64_t /*bytes*/) {}
  // Bytes travel, with what is known of them: `to` and `from` have been told of by Write and Read.
  virtual void Copy(uint64_t /*to*/, uint64_t /*from*/, uint64_t /*bytes*/) {}
  // New contents (Checks::Renew), or memory given back: nothing is known of it any more.
  virtual void Renew(uint64_t /*address*/, uint64_t /*bytes*/) {}
  virtual void Forget(uint64_t /*address*/, uint64_t /*bytes*/) {}
};

}  // namespace ops_debug::emulator
