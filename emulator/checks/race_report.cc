// What a race report says: both sides, what kind of race it is, and what is missing between them.
#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "emulator/checks/checks.h"
#include "emulator/checks/race_check.h"
#include "emulator/checks/race_remedy.h"
#include "emulator/machine.h"

namespace ops_debug::emulator {
namespace {

constexpr uint32_t kLongestValueBytes = 16;

// What a wait for an agent's work would have been.
Missing WaitFor(const AccessDescription& description) {
  const std::string_view semantics =
      description.semantics == nullptr ? std::string_view() : description.semantics;
  if (semantics.find("wgmma") != std::string_view::npos) return Missing::kWgmmaWait;
  if (semantics.find("cp.async") != std::string_view::npos) return Missing::kCopyWait;
  return Missing::kMbarrierWait;
}

// How much an explanation explains. A pair of accesses can miss several orders, for different
// threads; the barrier of more threads orders those of fewer, too.
int Rank(uint32_t missing) {
  switch (static_cast<Missing>(missing)) {
    case Missing::kUnspecified:
      return 0;
    case Missing::kWarpBarrier:
      return 1;
    case Missing::kBlockBarrier:
      return 2;
    case Missing::kClusterBarrier:
      return 3;
    case Missing::kGridBarrier:
    case Missing::kEvent:
      return 4;
    default:
      return 5;
  }
}

}  // namespace

// Whether both threads read the bytes with one instruction and write them with one, plainly: an
// update that is no atomic one.
bool RaceCheck::IsReadModifyWrite(const Judge& judge, const Record& record,
                                  bool record_writes) const {
  const AccessDescription& first = memory_[record.descriptor()];
  const AccessDescription& second = *judge.description;
  if (first.by_agent || second.by_agent || first.is_operation) return false;
  // mbarriers: initialised, then used by all.
  if (first.semantics != nullptr || second.semantics != nullptr) return false;
  if (first.kind == AccessKind::kAtomic || second.kind == AccessKind::kAtomic) return false;
  const auto has_read = [&](ActorId actor, uint32_t lanes, DescriptorId descriptor, SiteId store) {
    const auto matches = [&](const Record& read) {
      return read.actor == actor && (read.lanes & lanes) != 0 && read.mask() != 0 &&
             (descriptor == 0 || read.descriptor() == descriptor) &&
             IsUpdate(memory_[read.descriptor()].site, store);
    };
    if (matches(judge.cell->read)) return true;
    if (judge.cell->more == nullptr) return false;
    for (const RecordSet* set : {&judge.cell->more->reads, &judge.cell->more->strong_reads}) {
      for (const Record& read : set->records()) {
        if (matches(read)) return true;
      }
    }
    return false;
  };
  const uint32_t own = 1u << judge.lane;
  if (second.Writes() && record_writes) {
    return first.site == second.site && has_read(judge.now.actor, own, 0, second.site);
  }
  if (second.Writes()) return has_read(judge.now.actor, own, record.descriptor(), second.site);
  // The other has read with this very instruction before it wrote.
  return has_read(record.actor, record.lanes, judge.now.descriptor(), first.site);
}

Missing RaceCheck::WhatIsMissing(const Judge& judge, const Record& record, bool record_writes,
                                 std::string* pattern) const {
  const AccessDescription& first = memory_[record.descriptor()];
  const AccessDescription& second = *judge.description;
  const Origin& origin = memory_.OriginOf(record.actor);
  if (origin.serial != operation_->serial) {
    const bool may_run_beside =
        !judge.has_waited &&
        std::find(not_before_.begin(), not_before_.end(), origin.serial) != not_before_.end();
    if (may_run_beside) return Missing::kGridDependency;
    return origin.is_host ? Missing::kHostSync : Missing::kEvent;
  }
  if (judge.proxy_only) return Missing::kProxyFence;
  if (first.by_agent) return WaitFor(first);
  if (second.by_agent) {
    // What its thread knows, the agent knows: the other side has to come before or wait.
    const Knowledge& known = *judge.known;
    if (record.actor - first_actor_ >= actor_count_ ||
        known.all.Covers(record.actor, record.lanes, record.clock))
      return WaitFor(second);
  }
  if (judge.IsLockStep(record)) return Missing::kWarpBarrier;
  if (first.order.strong && second.order.strong) {
    if (first.kind == AccessKind::kAtomic && second.kind == AccessKind::kAtomic)
      *pattern = "mixed scopes";
    return Missing::kScope;
  }
  if (IsReadModifyWrite(judge, record, record_writes)) {
    *pattern = "read-modify-write without atomics";
    return Missing::kAtomic;
  }
  const MemoryScope distance = Distance(judge.warp, record.actor);
  if (distance > MemoryScope::kBlock) {
    // One side treats the location as a flag.
    if (first.order.strong && first.kind == AccessKind::kStore && !second.Writes())
      return Missing::kAcquire;
    if (second.order.strong && second.kind == AccessKind::kLoad && first.Writes() &&
        !first.order.strong)
      return Missing::kRelease;
  }
  const Thread& thread =
      blocks_.at(judge.warp.block).threads[judge.warp.index * kWarpLanes + judge.lane];
  if (thread.sync != nullptr && record.actor != judge.now.actor) {
    const ThreadSync& sync = *thread.sync;
    const auto covers = [&](const ClockTree& tree) {
      return tree.Covers(record.actor, record.lanes, record.clock);
    };
    if (covers(sync.narrow)) return Missing::kScope;
    for (const Knowledge& seen : sync.seen) {
      if (covers(seen.all)) return Missing::kAcquire;
    }
    for (const SyncWriters& writers : sync.writers) {
      if (writers == nullptr || !sync.acquires) continue;
      for (const SyncWriter& writer : *writers) {
        const bool is_own = writer.actor == record.actor &&
                            (record.lanes & ~(1u << writer.lane)) == 0 &&
                            record.clock <= writer.clock;
        if (is_own || covers(writer.known)) return Missing::kRelease;
      }
    }
  }
  if (first.site == second.site && first.Writes() && second.Writes()) {
    // One instruction that writes one place for several threads: no barrier helps.
    return Missing::kUnspecified;
  }
  if (record.actor == judge.now.actor) return Missing::kWarpBarrier;
  switch (distance) {
    case MemoryScope::kBlock:
      return Missing::kBlockBarrier;
    case MemoryScope::kCluster:
      return Missing::kClusterBarrier;
    default:
      return Missing::kGridBarrier;
  }
}

void RaceCheck::AddRemedy(SiteId first, SiteId second, Missing missing, RaceReport& report) const {
  report.remedy_after = report.remedy_before = SourceLine{};
  if (missing != Missing::kBlockBarrier && missing != Missing::kWarpBarrier) return;
  for (const auto& function : launch_.program->functions) {
    const auto holds = [&](SiteId site) {
      return std::find(function->sites.begin(), function->sites.end(), site) !=
             function->sites.end();
    };
    if (function->source == nullptr || !holds(first) || !holds(second)) continue;
    const Remedy remedy = FindRemedy(launch_.program->Source(*function), checks_.sites()[first],
                                     checks_.sites()[second], missing == Missing::kWarpBarrier);
    report.remedy_after = remedy.after;
    report.remedy_before = remedy.before;
    return;
  }
}

void RaceCheck::Report(Judge& judge, const Record& record, bool record_writes) {
  const AccessDescription& first = memory_[record.descriptor()];
  const AccessDescription& second = *judge.description;
  const Origin& origin = memory_.OriginOf(record.actor);
  const bool same_launch = origin.serial == operation_->serial;
  const bool same_value = record_writes && second.kind == AccessKind::kStore &&
                          judge.now.is_silent() && first.kind == AccessKind::kStore &&
                          !first.order.strong && !first.by_agent && !first.is_operation;
  const DescriptorId now = judge.now.descriptor();
  const ReportKey key{std::min(record.descriptor(), now), std::max(record.descriptor(), now),
                      same_launch ? 0 : origin.first, same_value};
  const auto [found, is_new] = reports_.try_emplace(key);
  RaceReport& report = found->second;
  const uint32_t overlap = record.mask() & judge.now.mask();
  const auto bytes = static_cast<uint32_t>(__builtin_popcount(overlap));
  if (judge.latest == &report) {
    // Another cell of the same two accesses.
    if (report.count == 1 && judge.address == report.address + report.bytes) report.bytes += bytes;
    return;
  }
  judge.latest = &report;
  if (!is_new) ++report.count;
  std::string pattern;
  const Missing missing = WhatIsMissing(judge, record, record_writes, &pattern);
  if (!is_new && Rank(static_cast<uint32_t>(missing)) <= Rank(report.missing)) return;
  report.missing = static_cast<uint32_t>(missing);
  report.pattern = pattern;
  if (!pattern.empty() && !same_value) {
    report.kind = static_cast<uint32_t>(RaceKind::kAtomics);
  } else if (!same_launch) {
    report.kind = static_cast<uint32_t>(missing == Missing::kGridDependency ? RaceKind::kGlobal
                                                                            : RaceKind::kStream);
  } else if (record.actor == judge.now.actor && missing != Missing::kUnspecified &&
             !first.by_agent) {
    report.kind = static_cast<uint32_t>(RaceKind::kWarp);
  } else {
    report.kind = static_cast<uint32_t>(judge.is_shared ? RaceKind::kShared : RaceKind::kGlobal);
  }
  report.same_value = same_value;
  AddRemedy(first.site, second.site, missing, report);

  // The lane of the first side that is not in order.
  Record one = record;
  if (record.actor == judge.now.actor && !judge.by_agent) one.lanes &= ~(1u << judge.lane);
  for (uint32_t m = one.lanes; m != 0; m &= m - 1) {
    const auto lane = static_cast<uint32_t>(__builtin_ctz(m));
    if (judge.known->all.Of(record.actor, lane) >= record.clock) continue;
    one.lanes = 1u << lane;
    break;
  }
  report.first = memory_.ReportOf(one);
  Record own = judge.now;
  own.lanes = 1u << judge.lane;
  report.second = memory_.ReportOf(own);
  const auto shift = static_cast<uint32_t>(__builtin_ctz(overlap));
  report.address = judge.address / kCellBytes * kCellBytes + shift;
  report.bytes = bytes;
  report.first.address = report.address;
  report.first.bytes = bytes;
  report.second.address = judge.access_address;

  const WarpAccess& access = *judge.access;
  const uint64_t offset = report.address - judge.access_address;
  const std::byte* before = access.pointers[judge.lane] + offset;
  if (first.kind == AccessKind::kStore) before = judge.cell->value + shift;
  if (!judge.by_agent && !first.by_agent && !first.is_operation && bytes <= kLongestValueBytes) {
    report.first.value.resize(bytes);
    std::memcpy(report.first.value.data(), before, bytes);
  }
  if (access.values != nullptr && access.bytes <= kLongestValueBytes) {
    report.second.value.resize(access.bytes);
    std::memcpy(report.second.value.data(), access.values[judge.lane], access.bytes);
  }
  if (judge.is_shared) {
    NameSharedVariable(launch_, report.first);
    NameSharedVariable(launch_, report.second);
  }
}

}  // namespace ops_debug::emulator
