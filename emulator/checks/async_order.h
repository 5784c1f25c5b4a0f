// Happens-before through asynchronous instructions (PTX ISA 9.0, 8.10 and 9.7.9.25): what a copy
// touches, and who knows when it is done.
//
// - An asynchronous operation is work of an agent of the thread that starts it (race_check.h): it
//   knows what the thread knew then, and nobody knows of it until he has waited for it.
// - cp.async: cp.async.wait_group and wait_all give the thread the knowledge of its own copies;
//   cp.async.mbarrier.arrive hands it to an mbarrier. A barrier alone does not.
// - An mbarrier gathers the knowledge of those who arrive with release and of the copies that
//   complete on it; when its phase completes, a wait with acquire gives it on. Phases are kept
//   apart: what the next phase gathers is not part of it.
// - barrier.cluster works the same way, for all threads of a cluster. With .relaxed only what an
//   earlier fence released counts (fence.mbarrier_init and a relaxed arrival are common).
// - wgmma reads its operands in shared memory until wgmma.wait_group has waited for it.
// - The shared memory of another block of the cluster exists once that block has started, which
//   only a cluster barrier (or whatever else is ordered behind one of its threads) tells.
// Bulk and tensor copies and wgmma work through the async proxy, which sees what threads wrote only
// behind fence.proxy.async: their agents are those from Agent::kAsyncProxy on.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "emulator/checks/launch_checks.h"
#include "emulator/checks/race_check.h"
#include "emulator/checks/reports.h"
#include "emulator/pending_copies.h"

namespace ops_debug::emulator {

// The instruction at which a lane stands.
const Instruction& InstructionOf(const Warp& warp, uint32_t lane, const Function** function);

class AsyncOrder : public LaunchObserver {
 public:
  using Work = RaceCheck::AgentWork;
  AsyncOrder(LaunchChecks& checks, RaceCheck& races, const Launch& launch,
             std::shared_ptr<const DeviceOperation> operation)
      : checks_(checks), races_(races), launch_(launch), operation_(std::move(operation)) {}

  // ---- mbarriers. Before the operation: `writes` for init, which is a plain store. inval is not
  // told: libcu++ orders it behind the other threads' operations by votes and matches of their
  // warps, which order execution, not memory.
  void UpdateMbarrier(Warp& warp, uint32_t lane, MbarrierPlace place, bool writes, bool arrives,
                      bool release);
  // After it: a phase that has completed passes on what it gathered.
  void SettleMbarrier(MbarrierPlace place, uint32_t parity_before);
  // A wait that has found its phase complete.
  void WaitedForMbarrier(Warp& warp, uint32_t lane, MbarrierPlace place, bool acquire);

  // ---- copies. Told when they start; the work of each lane, for Finish.
  std::vector<Work> StartRow(Warp& warp, const CopyRow& row);
  Work StartTransfer(Warp& warp, uint32_t lane, const Transfer& transfer, uint32_t mbarrier_offset);
  void StartInGroup(Warp& warp, uint32_t lane, const Transfer& transfer, Work* reads, Work* writes);
  // It has been waited for by the lane, or completes on an mbarrier.
  void Finish(const Work& work, const Warp& warp, uint32_t lane);
  void Finish(const Work& work, MbarrierPlace place);

  // ---- wgmma: operands that the warp reads; then the wait by a warp of the group.
  Work StartOperands(Warp& warp, uint32_t lanes);
  void ReadOperand(const Work& work, const std::byte* pointer, uint32_t bytes);
  void FinishOperands(const Work& work, const Warp& warp, uint32_t lanes);

  // ---- LaunchObserver
  void StartBlock(Block& block) override;
  // Finds accesses to the shared memory of a block that may not have started.
  void Access(const WarpAccess& access) override;
  void EndLaunch() override;
  void Fence(Warp& warp, uint32_t lanes, const FenceUse& fence) override;
  void ArriveAtClusterBarrier(Warp& warp, uint32_t lanes, bool release) override;
  void CompleteClusterBarrier(Cluster& cluster) override;
  void LeaveClusterBarrier(Warp& warp, uint32_t lanes, bool acquire) override;

 private:
  struct Phase {
    Knowledge gathering, complete;
  };
  struct Fenced {
    Knowledge lanes[kWarpLanes];
  };
  void Tell(const Work& work, std::byte* to, const std::byte* from, uint64_t bytes, bool reduces,
            const Function* function, uint32_t statement, const char* semantics);
  Knowledge KnowledgeToRelease(const Warp& warp, uint32_t lane, bool release);

  LaunchChecks& checks_;
  RaceCheck& races_;
  const Launch& launch_;
  const std::shared_ptr<const DeviceOperation> operation_;
  std::unordered_map<const Block*, std::unordered_map<uint32_t, Phase>> mbarriers_;
  std::unordered_map<const Cluster*, Phase> clusters_;
  std::unordered_map<const Warp*, Fenced> fenced_;  // by an earlier fence of the lane
  // Ranks whose blocks each lane of a warp knows to have started.
  std::unordered_map<const Warp*, std::vector<uint32_t>> started_;
  std::map<std::pair<const Function*, uint32_t>, RaceReport> early_;  // by statement
};

}  // namespace ops_debug::emulator
