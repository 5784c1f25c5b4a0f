// Faults of synchronisation in one launch: barriers that not all threads of a warp or block come
// to, numbers and counts that do not fit together, masks that name the wrong lanes, mbarriers that
// are none, deadlocks.
//
// What is a fault follows the PTX ISA (9.0: bar, bar.warp.sync, barrier.cluster, mbarrier) and the
// CUDA programming guide, not what this machine happens to do:
// - An .aligned barrier is executed by all lanes of a warp together. Lanes that come to different
//   instructions in one phase, or lanes that live elsewhere while a counted barrier completes with
//   the others, are divergent.
// - Warps may meet at a barrier with a thread count from different instructions, as producers and
//   consumers do. A barrier of the whole block is __syncthreads(), which all threads must reach at
//   the same place of the program: other lines are divergent. Without line information copies that
//   the compiler made cannot be told from other barriers: then only if the numbers do not come out
//   even (a later phase completes because threads have exited) the first such meeting is reported.
// - Threads that have exited count as arrived, since Volta: reported as exited threads. But lanes
//   that went around the barrier and did further work (control_flow.h) are divergent.
// - A .sync operation between lanes waits for the lanes that have not exited. Lanes that went
//   around it, or that are not in their own mask, are a fault.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "emulator/checks/checks.h"
#include "emulator/checks/control_flow.h"
#include "emulator/checks/launch_checks.h"
#include "emulator/machine.h"
#include "emulator/pending_copies.h"

namespace ops_debug::emulator {

class SyncCheck : public LaunchObserver {
 public:
  SyncCheck(Checks& checks, Launch& launch, std::shared_ptr<const DeviceOperation> operation);
  ~SyncCheck() override;

  // ---- LaunchObserver
  void StartBlock(Block& block) override;
  void EndBlock(Block& block) override;
  void Exit(Warp& warp, uint32_t lanes) override;
  void ArriveAtBarrier(const BarrierArrival& arrival) override;
  void CompleteBarrier(Block& block, uint32_t id) override;
  void ArriveAtWarpOperation(const WarpArrival& arrival) override;
  void CompleteWarpOperation(Warp& warp, Op op, Split* const* splits, uint32_t count,
                             uint32_t lanes) override;
  void ArriveAtClusterBarrier(Warp& warp, uint32_t lanes, bool release) override;
  void CompleteClusterBarrier(Cluster& cluster) override;
  void LeaveClusterBarrier(Warp& warp, uint32_t lanes, bool acquire) override;
  void EndLaunch() override;

  // ---- mbarriers, told by their instructions
  enum class MbarrierUse : uint8_t { kInitialise, kInvalidate, kOther };
  // `instruction`: "mbarrier.arrive".
  void BeforeMbarrier(Warp& warp, uint32_t lane, MbarrierPlace place, MbarrierUse use,
                      const char* instruction);
  // The operation has been performed, by a thread or (warp null) by an asynchronous copy.
  void AfterMbarrier(MbarrierPlace place, MbarrierUse use);
  // It was not possible: `problem` as Mbarrier says it.
  void FailedMbarrier(Warp& warp, uint32_t lane, MbarrierPlace place, const char* instruction,
                      const std::string& problem);

  // ---- deadlocks: who waits, while `blocks` still stand there. Reported at the end of the launch,
  // when it is known how many blocks have not started.
  void CollectWaits(const std::vector<WaitGroup>& waits, const std::vector<Block*>& blocks);

 private:
  // An instruction, and for control flow where in the kernel's own function it is or was called.
  struct Place {
    const Function* function = nullptr;
    uint32_t statement = 0;
    uint32_t kernel_pc = 0;
    bool operator==(const Place&) const = default;
  };
  // Threads that do the same at one place.
  struct Group {
    Place place;
    std::string what;
    uint64_t threads = 0, blocks = 0;
    const Block* last_block = nullptr;
    uint32_t first_block[3] = {}, first_thread[3] = {};
  };
  using Groups = std::vector<Group>;
  // Who arrived in the current phase of a barrier from one instruction.
  struct Arrivals {
    Place place;
    bool aligned = false;
    uint32_t expected_threads = 0;
    std::vector<uint32_t> lanes;  // by warp (of a cluster: by rank and warp)
  };
  struct Phase {
    std::vector<Arrivals> arrivals;
    Groups mixed;  // of the first phase in which warps met from different instructions
    // What was reported before: what follows at the same barrier of the block is its consequence.
    uint32_t reported = 0;
    Place reported_at;
    Arrivals& From(const Place& place, size_t warps);
    uint32_t LanesOf(size_t warp) const;
  };
  struct WarpState {
    Place exits[kWarpLanes];
    Place mixed;  // an operation that lanes executed together from different instructions
    Place mixed_with;
    uint32_t cluster_pending = 0;  // lanes that have arrived at a cluster's barrier and not waited
  };
  struct MbarrierState {
    uint64_t word = 0;
    bool is_live = false;
    bool is_reported = false;
  };
  struct BlockState {
    std::vector<WarpState> warps;
    Phase barriers[Block::kBarriers];
    std::unordered_map<uint32_t, MbarrierState> mbarriers;  // by offset
  };

  bool IsTool(const Place& place) const;
  BlockState& StateOf(const Block& block);
  static Place PlaceOf(const Split& split);
  static Place PlaceOf(const Warp& warp, uint32_t lanes);
  const ControlFlow& Flow();
  bool WentAround(const Place& place, const WarpState& warp, uint32_t lanes);

  static void AddTo(Groups& groups, const Warp& warp, uint32_t lanes, const Place& place,
                    const std::string& what);
  void AddExited(Groups& groups, const Warp& warp, uint32_t lanes, bool splits_warp);
  void AddElsewhere(Groups& groups, const Warp& warp, uint32_t lanes) const;
  void AddArrived(Groups& groups, const Block& block, const Arrivals& arrivals,
                  const std::string& what) const;
  Groups ArrivedGroups(const Block& block, const Phase& phase, uint32_t id) const;
  bool CheckWarpsOf(Block& block, Phase& phase, uint32_t id, bool counted);
  bool AreDifferentLines(const Phase& phase);
  void CheckMissingWarps(Block& block, Phase& phase, uint32_t id);
  void ReportOnce(Phase& phase, uint32_t kind, const Place& place, const Warp& warp, uint32_t lane,
                  const Groups& groups);
  void CheckMasks(const WarpArrival& arrival, const Place& place);

  void ReportDeadlock();
  void Report(uint32_t kind, const Place& place, const Warp& warp, uint32_t lane,
              const Groups& groups, std::string text, uint64_t address = 0);

  Checks& checks_;
  Launch& launch_;
  const std::shared_ptr<const DeviceOperation> operation_;
  std::unordered_map<const Block*, BlockState> blocks_;
  std::unordered_map<const Cluster*, Phase> clusters_;
  std::unique_ptr<ControlFlow> flow_;
  struct Found {
    uint32_t kind = 0;
    Place place;
    SyncFaultReport report;
  };
  std::vector<Found> found_;
  Groups deadlock_;
};

}  // namespace ops_debug::emulator
