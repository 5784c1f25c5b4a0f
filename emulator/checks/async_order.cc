// Knowledge that travels through mbarriers, cluster barriers and asynchronous copies. See
// async_order.h.
#include "emulator/checks/async_order.h"

#include <utility>

#include "emulator/checks/checks.h"
#include "emulator/machine.h"
#include "emulator/mbarrier.h"

namespace ops_debug::emulator {
namespace {

// proto Race.Kind, MissingOrder, AccessKind, AddressSpace.
constexpr uint32_t kRaceShared = 1, kMissingClusterBarrier = 3;
constexpr uint32_t kLoad = 1, kStore = 2, kAtomic = 3, kSharedSpace = 2;

uint32_t FirstOf(uint32_t lanes) { return static_cast<uint32_t>(__builtin_ctz(lanes)); }

// Copies that complete on different mbarriers are different actors, as far as there are any, so
// that waiting for one says nothing of the others. So are the reads and the writes of bulk groups,
// because cp.async.bulk.wait_group.read waits for the reads only.
constexpr auto kFirstProxy = static_cast<uint32_t>(Agent::kAsyncProxy);
constexpr Agent kGroupReads{kAgents - 1};
constexpr Agent kGroupWrites{kAgents - 2};
constexpr Agent kOperands{kAgents - 3};
constexpr uint32_t kMbarrierAgents = kAgents - 3 - kFirstProxy;
Agent ProxyAgent(uint32_t mbarrier_offset) {
  return static_cast<Agent>(kFirstProxy + mbarrier_offset / Mbarrier::kBytes % kMbarrierAgents);
}

}  // namespace

const Instruction& InstructionOf(const Warp& warp, uint32_t lane, const Function** function) {
  const Split* at = &warp.splits[0];
  for (uint32_t i = 0; i < warp.split_count; ++i) {
    if (((warp.splits[i].lanes >> lane) & 1) != 0) at = &warp.splits[i];
  }
  *function = at->frame->function;
  return at->frame->function->code[at->pc];
}

void AsyncOrder::StartBlock(Block& block) {
  mbarriers_.erase(&block);
  for (const auto& warp : block.warps) {
    fenced_.erase(warp.get());
    started_.erase(warp.get());
  }
  if (block.cluster_rank == 0) clusters_.erase(block.cluster);
}

void AsyncOrder::Access(const WarpAccess& access) {
  if (launch_.cluster_blocks == 1 ||
      (access.space != Space::kSharedCluster && access.space != Space::kGeneric))
    return;
  const Warp& warp = *access.warp;
  for (uint32_t m = access.lanes; m != 0; m &= m - 1) {
    const uint32_t lane = FirstOf(m);
    const MemoryPlace place = PlaceOf(warp, access.pointers[lane]);
    if (place.kind != MemoryPlace::Kind::kShared || place.block == warp.block) continue;
    std::vector<uint32_t>& started = started_[&warp];
    if (started.empty()) started.resize(kWarpLanes);
    const uint32_t rank = 1u << place.block->cluster_rank;
    if ((started[lane] & rank) != 0) continue;
    if (races_.KnowsOf(warp, lane, *place.block)) {
      started[lane] |= rank;
      continue;
    }
    RaceReport& report = early_[{access.function, access.statement}];
    if (report.kind != 0) {
      ++report.count;
      continue;
    }
    Sites& sites = checks_.checks().sites();
    report.kind = kRaceShared;
    report.missing = kMissingClusterBarrier;
    report.address = place.address;
    report.bytes = access.bytes;
    report.first = ReportOfThread(launch_, *operation_, *place.block->warps[0], 0);
    // No instruction of it does that.
    report.first.access = kStore;
    report.first.semantics = "start of the block";
    report.second = ReportOfThread(launch_, *operation_, warp, lane);
    report.second.site = sites.Of(*launch_.program, *access.function, access.statement);
    report.second.access = access.kind == AccessKind::kLoad    ? kLoad
                           : access.kind == AccessKind::kStore ? kStore
                                                               : kAtomic;
    for (AccessReport* const side : {&report.first, &report.second}) {
      side->space = kSharedSpace;
      side->address = place.address;
      side->bytes = access.bytes;
    }
  }
}

void AsyncOrder::EndLaunch() {
  for (auto& [place, report] : early_) checks_.checks().Add(std::move(report));
  early_.clear();
}

void AsyncOrder::Fence(Warp& warp, uint32_t lanes, const FenceUse& fence) {
  if (fence.order == FenceOrder::kAcquire && fence.proxy == FenceProxy::kNone) return;
  if (fence.proxy == FenceProxy::kAsync || fence.proxy == FenceProxy::kOther) return;
  Fenced& fenced = fenced_[&warp];
  for (uint32_t m = lanes; m != 0; m &= m - 1)
    fenced.lanes[FirstOf(m)] = races_.Release(warp, FirstOf(m));
}

Knowledge AsyncOrder::KnowledgeToRelease(const Warp& warp, uint32_t lane, bool release) {
  if (release) return races_.Release(warp, lane);
  const auto found = fenced_.find(&warp);
  return found == fenced_.end() ? Knowledge() : found->second.lanes[lane];
}

// ---- barrier.cluster

void AsyncOrder::ArriveAtClusterBarrier(Warp& warp, uint32_t lanes, bool release) {
  Phase& phase = clusters_[warp.block->cluster];
  for (uint32_t m = lanes; m != 0; m &= m - 1)
    phase.gathering.Join(KnowledgeToRelease(warp, FirstOf(m), release));
}

void AsyncOrder::CompleteClusterBarrier(Cluster& cluster) {
  Phase& phase = clusters_[&cluster];
  phase.complete = std::exchange(phase.gathering, Knowledge());
}

void AsyncOrder::LeaveClusterBarrier(Warp& warp, uint32_t lanes, bool acquire) {
  // Also a relaxed one: somebody of each block has been there.
  std::vector<uint32_t>& started = started_[&warp];
  if (started.empty()) started.resize(kWarpLanes);
  for (uint32_t m = lanes; m != 0; m &= m - 1) started[FirstOf(m)] = kAllLanes;
  if (!acquire) return;
  const Phase& phase = clusters_[warp.block->cluster];
  for (uint32_t m = lanes; m != 0; m &= m - 1) races_.Acquire(warp, FirstOf(m), phase.complete);
}

// ---- mbarriers

void AsyncOrder::UpdateMbarrier(Warp& warp, uint32_t lane, MbarrierPlace place, bool writes,
                                bool arrives, bool release) {
  const Function* function = nullptr;
  const Instruction& in = InstructionOf(warp, lane, &function);
  const std::byte* pointers[kWarpLanes] = {};
  pointers[lane] = place.word();
  WarpAccess access;
  access.warp = &warp;
  access.function = function;
  access.in = &in;
  access.statement = in.statement;
  access.lanes = 1u << lane;
  access.kind = writes ? AccessKind::kStore : AccessKind::kLoad;
  access.space = place.block == warp.block ? Space::kShared : Space::kSharedCluster;
  access.bytes = Mbarrier::kBytes;
  access.pointers = pointers;
  // Not marked as strong: it is no flag whose readers and writers would be ordered by it.
  access.semantics = "mbarrier";
  checks_.Access(access);
  const std::lock_guard lock(checks_.mutex());
  Phase& phase = mbarriers_[place.block][place.offset];
  if (writes) phase = Phase{};
  if (arrives) phase.gathering.Join(KnowledgeToRelease(warp, lane, release));
}

void AsyncOrder::SettleMbarrier(MbarrierPlace place, uint32_t parity_before) {
  if (Mbarrier(place.word()).parity() == parity_before) return;
  const std::lock_guard lock(checks_.mutex());
  Phase& phase = mbarriers_[place.block][place.offset];
  phase.complete = std::exchange(phase.gathering, Knowledge());
}

void AsyncOrder::WaitedForMbarrier(Warp& warp, uint32_t lane, MbarrierPlace place, bool acquire) {
  UpdateMbarrier(warp, lane, place, false, false, false);
  if (!acquire) return;
  const std::lock_guard lock(checks_.mutex());
  races_.Acquire(warp, lane, mbarriers_[place.block][place.offset].complete);
}

// ---- copies

void AsyncOrder::Tell(const Work& work, std::byte* to, const std::byte* from, uint64_t bytes,
                      bool reduces, const Function* function, uint32_t statement,
                      const char* semantics) {
  const std::byte* pointers[kWarpLanes] = {};
  WarpAccess access;
  access.warp = const_cast<Warp*>(work.warp);
  access.function = function;
  access.statement = statement;
  access.lanes = 1u << work.lane;
  access.bytes = static_cast<uint32_t>(bytes);
  access.pointers = pointers;
  access.semantics = semantics;
  access.space = Space::kGeneric;
  if (from != nullptr) {
    pointers[work.lane] = from;
    access.kind = AccessKind::kLoad;
    races_.AccessBy(work, access);
  }
  if (to != nullptr) {
    pointers[work.lane] = to;
    access.kind = reduces ? AccessKind::kAtomic : AccessKind::kStore;
    access.order.strong = reduces;
    access.order.scope = MemoryScope::kDevice;
    races_.AccessBy(work, access);
  }
}

std::vector<AsyncOrder::Work> AsyncOrder::StartRow(Warp& warp, const CopyRow& row) {
  const std::lock_guard lock(checks_.mutex());
  std::vector<Work> works(kWarpLanes);
  for (uint32_t m = row.lanes; m != 0; m &= m - 1) {
    const uint32_t lane = FirstOf(m);
    works[lane] = races_.StartAgent(warp, lane, Agent::kAsyncCopy);
    if (row.copied[lane] != 0) {
      Tell(works[lane], nullptr, row.source[lane], row.copied[lane], false, row.function,
           row.statement, "cp.async");
    }
    Tell(works[lane], row.target[lane], nullptr, row.bytes, false, row.function, row.statement,
         "cp.async");
  }
  return works;
}

AsyncOrder::Work AsyncOrder::StartTransfer(Warp& warp, uint32_t lane, const Transfer& transfer,
                                           uint32_t mbarrier_offset) {
  const Function* function = nullptr;
  const uint32_t statement = InstructionOf(warp, lane, &function).statement;
  const std::lock_guard lock(checks_.mutex());
  const Work work = races_.StartAgent(
      warp, lane, transfer.by_proxy() ? ProxyAgent(mbarrier_offset) : Agent::kAsyncCopy);
  const char* const semantics = transfer.by_proxy() ? "async proxy" : "asynchronous store";
  transfer.ForEachPiece([&](std::byte* to, const std::byte* from, uint64_t bytes) {
    Tell(work, to, from, bytes, transfer.reduces(), function, statement, semantics);
  });
  return work;
}

void AsyncOrder::StartInGroup(Warp& warp, uint32_t lane, const Transfer& transfer, Work* reads,
                              Work* writes) {
  const Function* function = nullptr;
  const uint32_t statement = InstructionOf(warp, lane, &function).statement;
  const std::lock_guard lock(checks_.mutex());
  *reads = races_.StartAgent(warp, lane, kGroupReads);
  *writes = races_.StartAgent(warp, lane, kGroupWrites);
  transfer.ForEachPiece([&](std::byte* to, const std::byte* from, uint64_t bytes) {
    Tell(*reads, nullptr, from, bytes, false, function, statement, "async proxy");
    Tell(*writes, to, nullptr, bytes, transfer.reduces(), function, statement, "async proxy");
  });
}

void AsyncOrder::Finish(const Work& work, const Warp& warp, uint32_t lane) {
  const std::lock_guard lock(checks_.mutex());
  races_.Acquire(warp, lane, races_.Done(work));
}

void AsyncOrder::Finish(const Work& work, MbarrierPlace place) {
  const std::lock_guard lock(checks_.mutex());
  mbarriers_[place.block][place.offset].gathering.Join(races_.Done(work));
}

// ---- wgmma

AsyncOrder::Work AsyncOrder::StartOperands(Warp& warp, uint32_t lanes) {
  const std::lock_guard lock(checks_.mutex());
  Work work = races_.StartAgent(warp, FirstOf(lanes), kOperands);
  // All lanes issue it together, each behind its own stores and fences.
  for (uint32_t m = lanes & (lanes - 1); m != 0; m &= m - 1)
    work.known.Join(races_.Release(warp, FirstOf(m)));
  return work;
}

void AsyncOrder::ReadOperand(const Work& work, const std::byte* pointer, uint32_t bytes) {
  const Function* function = nullptr;
  const uint32_t statement = InstructionOf(*work.warp, work.lane, &function).statement;
  checks_.AsyncCopy(const_cast<Warp&>(*work.warp), work.lane, function, statement, nullptr, pointer,
                    bytes);
  const std::lock_guard lock(checks_.mutex());
  Tell(work, nullptr, pointer, bytes, false, function, statement, "wgmma");
}

void AsyncOrder::FinishOperands(const Work& work, const Warp& warp, uint32_t lanes) {
  const std::lock_guard lock(checks_.mutex());
  const Knowledge done = races_.Done(work);
  for (uint32_t m = lanes; m != 0; m &= m - 1) races_.Acquire(warp, FirstOf(m), done);
}

}  // namespace ops_debug::emulator
