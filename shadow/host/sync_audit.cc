#include "shadow/host/sync_audit.h"

#include <algorithm>

namespace ops_debug::shadow {
namespace {

constexpr size_t kMostPending = 4096;
constexpr size_t kMostPlaces = 4096;

bool IsDone(const OperationId& id, const VectorClock& clock) {
  return id.slot < clock.size() && id.number <= clock[id.slot];
}

}  // namespace

void SyncAudit::Submitted(const SubmittedOperation& operation, WorkEffect effect) {
  if (pending_.size() < kMostPending) {
    pending_.push_back({operation.id, effect});
  } else {
    overflowed_ = true;
  }
  latest_[operation.id.slot] = operation.clock;
  if (candidate_.place == 0) return;
  // In another stream it may rely on the wait; behind another kernel, the host may have needed it.
  const bool follows =
      operation.id.slot == candidate_.slot && effect != WorkEffect::kOther &&
      (candidate_.reason != RedundantBecause::kCopyBehind || effect == WorkEffect::kCopyToHost);
  if (!follows) candidate_ = {};
  if (follows && candidate_.follower == 0) candidate_.follower = operation.id.number;
}

void SyncAudit::Waited(uint64_t place, const OrderPoint& point,
                       const std::function<bool()>& host_memory_written, uint64_t duration_ns) {
  // The earlier wait: would this one have done?
  if (candidate_.place != 0) {
    const Candidate earlier = std::move(candidate_);
    candidate_ = {};
    const bool by_call = place != 0 || earlier.reason != RedundantBecause::kCopyBehind;
    // What it waited for comes before its follower, in the same stream.
    if (!point.open && by_call && earlier.follower != 0 &&
        IsDone({.slot = earlier.slot, .reserved = 0, .number = earlier.follower}, point.clock)) {
      Confirm(earlier.place, earlier.reason, earlier.duration_ns);
    }
  }
  const bool is_call = place != 0 && (places_.contains(place) || places_.size() < kMostPlaces);
  if (is_call) {
    places_[place].waits++;
    if (!point.open) Judge(place, point, host_memory_written, duration_ns);
  }
  Join(done_, point.clock);
  std::erase_if(pending_, [&](const Pending& work) { return IsDone(work.id, done_); });
  if (pending_.empty()) overflowed_ = false;
}

void SyncAudit::Judge(uint64_t place, const OrderPoint& point,
                      const std::function<bool()>& host_memory_written, uint64_t duration_ns) {
  const bool waits_for_something =
      std::any_of(point.clock.begin(), point.clock.end(), [](uint64_t n) { return n != 0; });
  if (!waits_for_something || overflowed_) return;
  if (IsCovered(point.clock, done_)) {
    Confirm(place, RedundantBecause::kNothingNew, duration_ns);
    return;
  }
  bool any = false, staged_only = true, kernels = false, host_sees = false;
  uint32_t slot = 0;
  for (const Pending& work : pending_) {
    if (!IsDone(work.id, point.clock)) continue;
    any = true;
    slot = work.id.slot;
    staged_only &= work.effect == WorkEffect::kStagedCopy;
    kernels |= work.effect == WorkEffect::kKernel;
    host_sees |= work.effect == WorkEffect::kOther || work.effect == WorkEffect::kCopyToHost;
  }
  if (!any || host_sees) return;
  // What comes next in the stream of the latest work comes after all of it.
  const VectorClock& latest = latest_[slot];
  if (!IsDone({.slot = slot, .reserved = 0, .number = latest[slot]}, point.clock)) return;
  for (const Pending& work : pending_) {
    if (IsDone(work.id, point.clock) && !IsDone(work.id, latest)) return;
  }
  if (kernels && host_memory_written()) return;
  candidate_.place = place;
  candidate_.reason = staged_only ? RedundantBecause::kStagedCopy : RedundantBecause::kCopyBehind;
  candidate_.slot = slot;
  candidate_.follower = 0;
  candidate_.duration_ns = duration_ns;
}

void SyncAudit::Confirm(uint64_t place, RedundantBecause reason, uint64_t duration_ns) {
  Counts& counts = places_[place];
  counts.redundant++;
  counts.duration_ns += duration_ns;
  counts.reason = reason;
}

std::vector<SyncAudit::Place> SyncAudit::Redundant() const {
  std::vector<Place> found;
  for (const auto& [place, counts] : places_) {
    if (counts.waits < kFewestWaits || counts.redundant != counts.waits) continue;
    found.push_back({place, counts.redundant, counts.duration_ns, counts.reason});
  }
  std::sort(found.begin(), found.end(),
            [](const Place& a, const Place& b) { return a.place < b.place; });
  return found;
}

}  // namespace ops_debug::shadow
