// Starting, grouping and performing of asynchronous copies; pending_copies.h says when and why.
#include "emulator/pending_copies.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "emulator/checks/async_order.h"
#include "emulator/checks/sync_check.h"
#include "emulator/machine.h"
#include "emulator/mbarrier.h"

namespace ops_debug::emulator {
namespace {

std::string Explain(MbarrierPlace place, const std::string& problem) {
  return "an asynchronous copy completed on the mbarrier at shared address " +
         std::to_string(place.offset) + " of the block of cluster rank " +
         std::to_string(place.block->cluster_rank) + ", " + problem;
}

AsyncOrder* OrderOf(const Warp& warp) {
  const LaunchChecks* const checks = warp.block->launch->checks;
  return checks == nullptr ? nullptr : checks->async();
}

// Tells the checks that an asynchronous copy has changed the mbarrier.
void NoteChange(MbarrierPlace place, uint32_t parity_before, const std::string& problem) {
  const LaunchChecks* const checks = place.block->launch->checks;
  if (checks == nullptr || !problem.empty()) return;
  if (checks->async() != nullptr) checks->async()->SettleMbarrier(place, parity_before);
  if (checks->sync() == nullptr) return;
  const std::lock_guard lock(checks->mutex());
  checks->sync()->AfterMbarrier(place, SyncCheck::MbarrierUse::kOther);
}

}  // namespace

std::byte* MbarrierPlace::word() const { return block->shared.data() + offset; }

PendingCopies::PendingCopies(uint32_t blocks, uint32_t warps_per_block)
    : warps_per_block_(warps_per_block), warps_(size_t{blocks} * warps_per_block) {}
PendingCopies::~PendingCopies() = default;

PendingCopies::WarpCopies& PendingCopies::Of(const Warp& warp) {
  return warps_[size_t{warp.block->cluster_rank} * warps_per_block_ + warp.index];
}

void PendingCopies::Reset() {
  for (WarpCopies& warp : warps_) warp = WarpCopies{};
  bulk_.clear();
  arrivals_.clear();
}

CopyOrigin PendingCopies::OriginOf(Warp& warp, uint32_t lane, const Transfer& transfer,
                                   const MbarrierPlace* mbarrier) {
  CopyOrigin origin;
  const LaunchChecks* const checks = warp.block->launch->checks;
  if (checks == nullptr) return origin;
  origin.lane = lane;
  origin.statement = InstructionOf(warp, lane, &origin.function).statement;
  if (AsyncOrder* const order = checks->async()) {
    if (mbarrier != nullptr) {
      origin.work = order->StartTransfer(warp, lane, transfer, mbarrier->offset);
    } else {
      order->StartInGroup(warp, lane, transfer, &origin.reads, &origin.work);
    }
  }
  return origin;
}

void PendingCopies::Start(Warp& warp, uint32_t lane, std::unique_ptr<Transfer> transfer,
                          MbarrierPlace mbarrier, uint32_t bytes) {
  Bulk bulk;
  bulk.origin = OriginOf(warp, lane, *transfer, &mbarrier);
  bulk.transfer = std::move(transfer);
  bulk.mbarrier = mbarrier;
  bulk.bytes = bytes;
  bulk.warp = &warp;
  bulk.lane = lane;
  bulk_.push_back(std::move(bulk));
}

void PendingCopies::StartInGroup(Warp& warp, uint32_t lane, std::unique_ptr<Transfer> transfer) {
  Bulk bulk;
  bulk.origin = OriginOf(warp, lane, *transfer, nullptr);
  bulk.transfer = std::move(transfer);
  bulk.warp = &warp;
  bulk.lane = lane;
  bulk.group = Of(warp).bulk_committed[lane];
  bulk.awaits_wait = OrderOf(warp) != nullptr;
  bulk_.push_back(std::move(bulk));
}

void PendingCopies::CommitBulkGroup(const Warp& warp, uint32_t lanes) {
  WarpCopies& copies = Of(warp);
  for (; lanes != 0; lanes &= lanes - 1) ++copies.bulk_committed[__builtin_ctz(lanes)];
}

void PendingCopies::WaitForBulkGroups(const Warp& warp, uint32_t lanes, uint32_t groups,
                                      bool read_only) {
  const WarpCopies& copies = Of(warp);
  for (Bulk& bulk : bulk_) {
    if (bulk.warp != &warp || bulk.mbarrier.block != nullptr || ((lanes >> bulk.lane) & 1) == 0)
      continue;
    if (bulk.group + groups >= copies.bulk_committed[bulk.lane]) continue;
    if (AsyncOrder* const order = OrderOf(warp)) {
      order->Finish(bulk.origin.reads, warp, bulk.lane);
      if (!read_only) order->Finish(bulk.origin.work, warp, bulk.lane);
    }
    if (!read_only) bulk.awaits_wait = false;
    if (bulk.IsDone()) continue;
    if (!read_only) {
      Finish(bulk);
    } else if (!bulk.is_read) {
      bulk.transfer->Read();
      bulk.is_read = true;
    }
  }
  ForgetDone();
}

void PendingCopies::ForgetDone() {
  std::erase_if(bulk_, [](const Bulk& bulk) { return bulk.IsDone() && !bulk.awaits_wait; });
}

void PendingCopies::Start(const Warp& warp, const CopyRow& row) {
  WarpCopies& copies = Of(warp);
  // Lanes that have committed differently often belong to different groups.
  for (uint32_t rest = row.lanes; rest != 0;) {
    const uint64_t group = copies.committed[__builtin_ctz(rest)];
    uint32_t same = 0;
    for (uint32_t m = rest; m != 0; m &= m - 1) {
      const auto lane = static_cast<uint32_t>(__builtin_ctz(m));
      if (copies.committed[lane] == group) same |= 1u << lane;
    }
    Row& added = copies.rows.emplace_back();
    added.copy = row;
    added.copy.lanes = same;
    added.group = group;
    added.serial = next_serial_++;
    rest &= ~same;
  }
}

void PendingCopies::CommitGroup(const Warp& warp, uint32_t lanes) {
  WarpCopies& copies = Of(warp);
  for (; lanes != 0; lanes &= lanes - 1) ++copies.committed[__builtin_ctz(lanes)];
}

void PendingCopies::Perform(const Warp& warp, const CopyRow& copy, uint32_t lanes) {
  LaunchChecks* const checks = warp.block->launch->checks;
  for (; lanes != 0; lanes &= lanes - 1) {
    const auto lane = static_cast<uint32_t>(__builtin_ctz(lanes));
    const uint32_t copied = copy.copied[lane];
    if (checks != nullptr) {
      auto& thread = const_cast<Warp&>(warp);
      std::byte* const target = copy.target[lane];
      if (copied != 0) {
        checks->AsyncCopy(thread, lane, copy.function, copy.statement, target, copy.source[lane],
                          copied);
      }
      if (copied != copy.bytes) {
        checks->AsyncCopy(thread, lane, copy.function, copy.statement, target + copied, nullptr,
                          copy.bytes - copied);
      }
    }
    if (copied == 16) {
      std::memcpy(copy.target[lane], copy.source[lane], 16);
    } else {
      if (copied != 0) std::memcpy(copy.target[lane], copy.source[lane], copied);
      std::memset(copy.target[lane] + copied, 0, copy.bytes - copied);
    }
  }
}

void PendingCopies::PerformRows(const Warp& warp, WarpCopies& copies, uint32_t lanes,
                                const uint64_t* limit, uint64_t serial,
                                const MbarrierPlace* mbarrier) {
  bool emptied = false;
  const AgentWork* latest[kWarpLanes] = {};  // tells of all before it
  for (Row& row : copies.rows) {
    if (row.serial >= serial) break;
    uint32_t due = 0;
    for (uint32_t m = row.copy.lanes & lanes; m != 0; m &= m - 1) {
      const auto lane = static_cast<uint32_t>(__builtin_ctz(m));
      if (row.group < limit[lane]) due |= 1u << lane;
    }
    if (due == 0) continue;
    if (!row.is_performed) Perform(warp, row.copy, due);
    row.copy.lanes &= ~due;
    emptied = emptied || row.copy.lanes == 0;
    for (uint32_t m = row.copy.works.empty() ? 0 : due; m != 0; m &= m - 1) {
      const auto lane = static_cast<size_t>(__builtin_ctz(m));
      latest[lane] = &row.copy.works[lane];
    }
  }
  if (AsyncOrder* const order = OrderOf(warp))
    TellDone(*order, warp, copies, lanes, latest, mbarrier);
  if (emptied) std::erase_if(copies.rows, [](const Row& row) { return row.copy.lanes == 0; });
}

// Gives knowledge of the copies to the lanes that have waited, or to the mbarrier.
void PendingCopies::TellDone(AsyncOrder& order, const Warp& warp, WarpCopies& copies,
                             uint32_t lanes, const AgentWork* const* latest,
                             const MbarrierPlace* mbarrier) {
  if (copies.arrived.empty()) copies.arrived.resize(kWarpLanes);
  for (uint32_t m = lanes; m != 0; m &= m - 1) {
    const auto lane = static_cast<uint32_t>(__builtin_ctz(m));
    const bool arrived_before = copies.arrived[lane].warp != nullptr;
    const AgentWork* const work =
        latest[lane] != nullptr ? latest[lane] : (arrived_before ? &copies.arrived[lane] : nullptr);
    if (work == nullptr) continue;
    if (mbarrier == nullptr) {
      order.Finish(*work, warp, lane);
    } else {
      order.Finish(*work, *mbarrier);
      copies.arrived[lane] = *work;
    }
  }
}

void PendingCopies::WaitForGroups(const Warp& warp, uint32_t lanes, uint32_t groups) {
  WarpCopies& copies = Of(warp);
  if (copies.rows.empty()) return;
  uint64_t limit[kWarpLanes];
  for (uint32_t lane = 0; lane < kWarpLanes; ++lane) {
    const uint64_t committed = copies.committed[lane];
    limit[lane] = committed > groups ? committed - groups : 0;
  }
  PerformRows(warp, copies, lanes, limit, ~0ull);
}

void PendingCopies::WaitForAll(const Warp& warp, uint32_t lanes) {
  CommitGroup(warp, lanes);
  WaitForGroups(warp, lanes, 0);
}

void PendingCopies::ArriveLater(const Warp& warp, uint32_t lane, MbarrierPlace mbarrier) {
  arrivals_.push_back({mbarrier, &warp, lane, next_serial_++});
}

bool PendingCopies::HasFor(MbarrierPlace mbarrier) const {
  return std::any_of(bulk_.begin(), bulk_.end(),
                     [&](const Bulk& bulk) { return bulk.mbarrier == mbarrier; }) ||
         std::any_of(arrivals_.begin(), arrivals_.end(),
                     [&](const Arrival& arrival) { return arrival.mbarrier == mbarrier; });
}

std::string PendingCopies::Finish(Bulk& bulk) {
  if (LaunchChecks* const checks = bulk.warp->block->launch->checks) {
    bulk.transfer->ForEachPiece([&](std::byte* to, const std::byte* from, uint64_t bytes) {
      checks->AsyncCopy(*bulk.warp, bulk.lane, bulk.origin.function, bulk.origin.statement, to,
                        from, bytes);
    });
  }
  if (!bulk.is_read) bulk.transfer->Read();
  bulk.transfer->Write();
  bulk.transfer.reset();
  if (bulk.mbarrier.block == nullptr) return {};
  if (AsyncOrder* const order = OrderOf(*bulk.warp)) order->Finish(bulk.origin.work, bulk.mbarrier);
  Mbarrier mbarrier(bulk.mbarrier.word());
  const uint32_t parity = mbarrier.parity();
  const std::string problem = mbarrier.CompleteBytes(bulk.bytes);
  NoteChange(bulk.mbarrier, parity, problem);
  return problem.empty() ? problem : Explain(bulk.mbarrier, problem);
}

std::string PendingCopies::Finish(const Arrival& arrival) {
  uint64_t limit[kWarpLanes];
  std::fill(std::begin(limit), std::end(limit), ~0ull);
  PerformRows(*arrival.warp, Of(*arrival.warp), 1u << arrival.lane, limit, arrival.serial,
              &arrival.mbarrier);
  Mbarrier mbarrier(arrival.mbarrier.word());
  const uint32_t parity = mbarrier.parity();
  const std::string problem = mbarrier.Arrive(1, false);
  NoteChange(arrival.mbarrier, parity, problem);
  return problem.empty() ? problem : Explain(arrival.mbarrier, problem);
}

std::string PendingCopies::CompleteFor(MbarrierPlace mbarrier) {
  std::string problem;
  for (Bulk& bulk : bulk_) {
    if (bulk.mbarrier != mbarrier || bulk.IsDone()) continue;
    std::string found = Finish(bulk);
    if (problem.empty()) problem = std::move(found);
  }
  ForgetDone();
  for (const Arrival& arrival : arrivals_) {
    if (arrival.mbarrier != mbarrier) continue;
    std::string found = Finish(arrival);
    if (problem.empty()) problem = std::move(found);
  }
  std::erase_if(arrivals_, [&](const Arrival& arrival) { return arrival.mbarrier == mbarrier; });
  return problem;
}

bool PendingCopies::PerformAllOf(const Block& block) {
  bool any = false;
  for (Bulk& bulk : bulk_) {
    if (bulk.warp->block != &block || bulk.IsDone()) continue;
    Finish(bulk);
    any = true;
  }
  ForgetDone();
  for (const Arrival& arrival : arrivals_) {
    if (arrival.warp->block != &block) continue;
    Finish(arrival);
    any = true;
  }
  std::erase_if(arrivals_, [&](const Arrival& arrival) { return arrival.warp->block == &block; });
  for (const auto& warp : block.warps) {
    WarpCopies& copies = Of(*warp);
    for (Row& row : copies.rows) {
      if (row.is_performed) continue;
      Perform(*warp, row.copy, row.copy.lanes);
      row.is_performed = any = true;
    }
    std::erase_if(copies.rows, [](const Row& row) { return row.copy.works.empty(); });
  }
  return any;
}

PendingCopies& Machine::Copies(const Warp& warp) {
  Cluster& cluster = *warp.block->cluster;
  if (cluster.copies == nullptr) {
    cluster.copies = std::make_shared<PendingCopies>(static_cast<uint32_t>(cluster.blocks.size()),
                                                     launch_.warps_per_block);
  }
  return *cluster.copies;
}

bool Machine::PerformCopies(Block& block) {
  PendingCopies* const copies = block.cluster->copies.get();
  return copies != nullptr && copies->PerformAllOf(block);
}

}  // namespace ops_debug::emulator
