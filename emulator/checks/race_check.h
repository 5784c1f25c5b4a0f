// Data races of one launch, exactly: accesses of the same bytes, at least one a write, that
// happens-before does not order (FastTrack: Flanagan, Freund, PLDI 2009, over the causality order
// of the PTX memory model, PTX ISA 9.0, chapter 8).
//
// This class sees accesses, fences and the barriers of a block and a warp by itself. Whoever knows
// of other synchronisation adds it with the functions under "for other synchronisation": what a
// thread knows is a Knowledge, taken at the side that releases and given at the side that acquires.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "emulator/checks/agent_work.h"
#include "emulator/checks/launch_checks.h"
#include "emulator/checks/race_memory.h"
#include "emulator/checks/race_sync.h"
#include "emulator/checks/thread_clock.h"

namespace ops_debug::emulator {

class RaceCheck : public LaunchObserver {
 public:
  RaceCheck(Checks& checks, Launch& launch, std::shared_ptr<const DeviceOperation> operation);
  ~RaceCheck() override;

  // ---- for other synchronisation (locked, as hooks are)
  // What the thread has done and knows so far. Later work of the thread is not part of it.
  Knowledge Release(const Warp& warp, uint32_t lane);
  void Acquire(const Warp& warp, uint32_t lane, const Knowledge& knowledge);
  // Whether the thread is behind something that a thread of `block` has done.
  bool KnowsOf(const Warp& warp, uint32_t lane, const Block& block);

  // Work of an agent, from the moment at which the thread issues it. AccessBy may be called then or
  // later: the access is ordered behind what the thread knew when it issued, and before those who
  // acquire Done. That is cumulative: it covers what this agent of the lane has done before.
  using AgentWork = emulator::AgentWork;
  AgentWork StartAgent(const Warp& warp, uint32_t lane, Agent agent);
  // One access of `access.bytes` at pointers[work.lane], any size; `access.lanes` does not matter.
  // An agent from kAsyncProxy on sees what threads of the launch wrote only if a proxy fence stands
  // between.
  void AccessBy(const AgentWork& work, const WarpAccess& access);
  Knowledge Done(const AgentWork& work) const;

  // ---- LaunchObserver
  void StartBlock(Block& block) override;
  void EndBlock(Block& block) override;
  void Exit(Warp& warp, uint32_t lanes) override;
  void Access(const WarpAccess& access) override;
  void AfterAtomic(const WarpAccess& access) override;
  void Fence(Warp& warp, uint32_t lanes, const FenceUse& fence) override;
  void ArriveAtBarrier(const BarrierArrival& arrival) override;
  void CompleteBarrier(Block& block, uint32_t id) override;
  void CompleteWarpOperation(Warp& warp, Op op, Split* const* splits, uint32_t count,
                             uint32_t lanes) override;
  void WaitForGrid(Warp& warp, uint32_t lanes) override;
  void LaunchDependents(Warp& warp, uint32_t lanes) override;
  void EndLaunch() override;

 private:
  struct Thread {
    uint32_t clock = 1;
    bool has_waited = false;  // griddepcontrol.wait
    Knowledge known;
    std::unique_ptr<ThreadSync> sync;
    std::unique_ptr<uint32_t[]> agent_clocks;

    ThreadSync& EnsureSync() {
      if (sync == nullptr) sync = std::make_unique<ThreadSync>();
      return *sync;
    }
  };
  // What those who have arrived at a barrier bring along.
  struct Gathering {
    bool any = false;
    Knowledge known;
    bool has_sync = false;
    Knowledge passed[kScopes], seen[kScopes];
    bool acquires = false;
    ClockTree narrow;
    SyncWriters writers[kKeptFlags];
  };
  struct BlockState {
    std::vector<Thread> threads;  // 32 per warp
    CellPages cells;              // of shared memory, by offset
    SyncCells sync_cells;
    Gathering barriers[16];
    Gathering exited;
  };
  // Where a byte of an access lies.
  struct Target {
    CellPages* cells = nullptr;
    SyncCells* sync_cells = nullptr;
    uint64_t address = 0;
    bool is_shared = false;
  };
  struct Judge;
  using ReportKey = std::tuple<DescriptorId, DescriptorId, ActorId, bool>;

  ActorId NewActors(bool of_agents);
  BlockState& StateOf(const Block& block);
  Thread& ThreadOf(const Warp& warp, uint32_t lane);
  ActorId ActorOf(const Warp& warp) const;
  ActorId AgentActor(const Warp& warp, Agent agent) const;
  bool Find(const WarpAccess& access, const std::byte* pointer, Target* target);
  DescriptorId Describe(const WarpAccess& access, bool is_shared, bool by_agent);
  void Touch(const Target& target, const WarpAccess& access, uint32_t lane, Record now,
             Judge& judge);
  static bool IsSilent(const Cell& cell, const WarpAccess& access, uint32_t lane,
                       const Target& target, uint64_t cell_begin, const Record& now);
  static bool HasJustRead(const Cell& cell, const Record& now);
  // Distance of two threads: the smallest scope that holds both.
  MemoryScope Distance(const Warp& warp, ActorId other) const;

  // race_sync.cc
  void ReadFlag(const Target& target, uint32_t bytes, const AccessOrder& order, const Warp& warp,
                uint32_t lane);
  void WriteFlag(const Target& target, uint32_t bytes, const AccessOrder& order, bool is_update,
                 const Warp& warp, uint32_t lane);
  void Leave(SyncCell& cell, SyncMessage message);
  Knowledge ReleasedBy(const Thread& thread, uint32_t scope, ActorId actor, uint32_t lane) const;
  void Gather(Gathering& gathering, Warp& warp, uint32_t lanes);
  void Scatter(const Gathering& gathering, Warp& warp, uint32_t lanes);
  static void Join(Gathering& into, const Gathering& other);

  // race_atomics.cc
  bool ComparesFloats(const WarpAccess& access);
  const Record* FloatAccess(const Cell& cell) const;
  void CheckFloatOrder(const WarpAccess& access, const Target& target, uint32_t lane, ActorId actor,
                       DescriptorId descriptor);

  // race_report.cc
  void AddRemedy(SiteId first, SiteId second, Missing missing, RaceReport& report) const;
  void Report(Judge& judge, const Record& record, bool record_writes);
  Missing WhatIsMissing(const Judge& judge, const Record& record, bool record_writes,
                        std::string* pattern) const;
  // Whether `store` writes back what comes of the value that `load` reads at the same address.
  bool IsUpdate(SiteId load, SiteId store) const;
  bool IsReadModifyWrite(const Judge& judge, const Record& record, bool record_writes) const;

  Checks& checks_;
  Launch& launch_;
  RaceMemory& memory_;
  const std::shared_ptr<const DeviceOperation> operation_;
  std::shared_ptr<const std::string> kernel_;
  uint64_t warps_per_block_;
  uint64_t actor_count_;
  ActorId first_actor_ = 0;
  ActorId first_agents_[kAgents] = {};  // 0: none yet
  std::vector<uint64_t> not_before_;    // RaceMemory::LatestInSlot, of this launch
  bool all_wait_ = true;                // nobody has let dependents start before waiting himself
  std::unordered_map<const Block*, BlockState> blocks_;
  const Block* last_block_ = nullptr;
  BlockState* last_state_ = nullptr;
  std::byte compared_[kWarpLanes][8] = {};  // operands of the compare-and-swap in hand
  std::map<ReportKey, RaceReport> reports_;
  std::unordered_map<const Instruction*, bool> compares_floats_;
  mutable std::map<std::pair<SiteId, SiteId>, bool> updates_;  // IsUpdate
};

// The access that is being judged.
struct RaceCheck::Judge {
  RaceCheck& check;
  const Warp& warp;
  uint32_t lane = 0;
  const Knowledge* known = nullptr;
  Record now;
  const AccessDescription* description = nullptr;
  const WarpAccess* access = nullptr;
  bool by_agent = false, by_proxy = false;
  bool has_waited = true;
  // Where: set for each cell.
  const Cell* cell = nullptr;
  const CellPages::Page* page = nullptr;
  uint64_t address = 0;         // of the part of the access that lies in the cell
  uint64_t access_address = 0;  // of the access
  bool is_shared = false;
  // The race that was found last for this lane: another cell of the same accesses is not counted.
  RaceReport* latest = nullptr;
  bool proxy_only = false;  // set by IsBefore: known, but not to the async proxy

  ActorId row_actor = 0;
  const uint32_t* row = nullptr;

  bool IsBefore(const Record& record);
  bool IsLockStep(const Record& record) const;
  bool AreStrongTogether(const Record& record) const;
  void Race(const Record& record, bool record_writes) {
    check.Report(*this, record, record_writes);
  }
};

}  // namespace ops_debug::emulator
