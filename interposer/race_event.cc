// The device knows numbers only; what they mean is known here.
#include "interposer/race_event.h"

#include <algorithm>
#include <bit>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "interposer/context_state.h"
#include "interposer/fault_event.h"
#include "interposer/launch_record.h"
#include "interposer/race_state.h"
#include "interposer/stream_order.h"

namespace ops_debug::interposer {
namespace {

using shadow::RaceRecord;

// Sites of all modules, in the order of their numbers. Never destroyed.
struct SiteRanges {
  struct Range {
    uint32_t base = 0;
    uint32_t count = 0;
    std::weak_ptr<LoadedModule> module;
  };
  std::mutex mutex;
  std::vector<Range> ranges;
  uint32_t next = 0;
};
SiteRanges& TheSites() {
  static auto* sites = new SiteRanges;
  return *sites;
}

struct FoundSite {
  ModulePointer module;
  const shadow::Site* site = nullptr;
};
// `number` counts from 1.
FoundSite FindSite(uint32_t number) {
  SiteRanges& sites = TheSites();
  std::lock_guard lock(sites.mutex);
  for (const SiteRanges::Range& range : sites.ranges) {
    if (number <= range.base || number - range.base > range.count) continue;
    ModulePointer module = range.module.lock();
    if (!module) return {};
    const shadow::Site* site = &module->code.sites[number - range.base - 1];
    return {std::move(module), site};
  }
  return {};
}

AccessDescription DescribeSide(const RaceRecord& record, bool first, const RacePlace& place,
                               const FoundSite& found) {
  AccessDescription out;
  out.has_site = true;
  if (place.known && !place.is_kernel) {
    out.site.access = (first ? record.first_access : record.second_access) == shadow::kRaceRead
                          ? proto_enums::AccessKind::kLoad
                          : proto_enums::AccessKind::kStore;
    out.site.space = proto_enums::AddressSpace::kGlobal;
    out.address = record.address + static_cast<uint32_t>(std::countr_zero(record.bytes | 16u));
    out.bytes = static_cast<uint32_t>(std::popcount(record.bytes & 15u));
    DescribeOperation(place.launch_id, &out);
    return out;
  }
  if (found.site) out.site = Describe(*found.site);
  const uint32_t access = first ? record.first_access : record.second_access;
  if (!found.site) {
    out.site.space = (record.flags & shadow::kRecordShared) != 0
                         ? proto_enums::AddressSpace::kShared
                         : proto_enums::AddressSpace::kGlobal;
  }
  out.site.access = access == shadow::kRaceRead    ? proto_enums::AccessKind::kLoad
                    : access == shadow::kRaceWrite ? proto_enums::AccessKind::kStore
                                                   : proto_enums::AccessKind::kAtomic;
  out.block = place.block;
  out.thread = place.thread;
  out.thread_unknown =
      !place.known || (first && (record.flags & shadow::kRecordFirstThreadUnknown) != 0);
  LaunchRecord launch;
  if (place.known) {
    out.has_launch = true;
    if (FindLaunch(place.launch_id, &launch)) {
      out.launch = Describe(launch);
    } else {
      out.launch.launch_id = place.launch_id;
    }
  }
  const uint32_t low = static_cast<uint32_t>(std::countr_zero(record.bytes | 16u));
  out.address = record.address + low;
  out.bytes = out.site.access_bytes;
  const uint32_t known = first ? shadow::kRecordFirstValue : shadow::kRecordSecondValue;
  if ((record.flags & known) != 0) {
    const uint32_t value = first ? record.first_value : record.second_value;
    for (uint32_t i = 0; i < 4; i++) {
      if ((record.bytes >> i & 1) != 0) out.value += static_cast<char>(value >> (8 * i) & 0xff);
    }
  }
  if (access == shadow::kRaceAtomic) out.semantics = "relaxed";
  if (record.relation != shadow::kOtherLaunch) return out;
  if (place.graph_token == 0) {
    DescribeOperation(place.launch_id, &out);
  } else if (AccessDescription graph; DescribeOperation(place.graph_token, &graph)) {
    out.stream = graph.stream;
  }
  return out;
}

proto_enums::MissingOrder MissingOf(const RaceRecord& record) {
  using proto_enums::MissingOrder;
  if ((record.flags & shadow::kRecordScope) != 0) return MissingOrder::kScope;
  switch (record.relation) {
    case shadow::kSameWarp:
      return MissingOrder::kWarpBarrier;
    case shadow::kSameBlock:
      return MissingOrder::kBlockBarrier;
    case shadow::kOtherBlock:
      return record.first_access != shadow::kRaceRead && record.second_access != shadow::kRaceRead
                 ? MissingOrder::kAtomic
                 : MissingOrder::kGridBarrier;
    case shadow::kOtherLaunch:
      return MissingOrder::kEvent;
  }
  return MissingOrder::kUnspecified;
}

proto_enums::RaceKind KindOf(const RaceRecord& record) {
  if (record.relation == shadow::kOtherLaunch) return proto_enums::RaceKind::kStream;
  if (record.relation == shadow::kSameWarp) return proto_enums::RaceKind::kWarp;
  return (record.flags & shadow::kRecordShared) != 0 ? proto_enums::RaceKind::kShared
                                                     : proto_enums::RaceKind::kGlobal;
}

void ReportRace(const RaceRecord& record, uint64_t count, const RacePlace& first,
                const RacePlace& second) {
  const FoundSite first_site = FindSite(record.first_site);
  const FoundSite second_site = FindSite(record.second_site);
  RaceEvent event;
  event.kind = KindOf(record);
  event.first = DescribeSide(record, true, first, first_site);
  event.second = DescribeSide(record, false, second, second_site);
  const bool shared = (record.flags & shadow::kRecordShared) != 0;
  event.space = shared ? proto_enums::AddressSpace::kShared : proto_enums::AddressSpace::kGlobal;
  event.address = record.address + static_cast<uint32_t>(std::countr_zero(record.bytes | 16u));
  event.bytes = static_cast<uint32_t>(std::popcount(record.bytes & 15u));
  if (!shared) {
    const auto found = Book().FindInnermost(event.address, record.launch_id);
    event.has_allocation = found.has_value();
    if (found) event.allocation = Describe(*found);
  }
  event.count = count;
  event.same_value = (record.flags & shadow::kRecordSameValue) != 0;
  event.missing = MissingOf(record);
  if ((record.flags & shadow::kRecordUnproven) != 0) {
    event.unproven = true;
    event.reason =
        "fences, flags or atomics of these threads may order the two, which the device does not "
        "follow; the same launch on the CPU device (--device emulator) decides it";
  }
  const ModulePointer& module = second_site.module ? second_site.module : first_site.module;
  if (module) event.module_id = module->id;
  event.engine = "ptx";
  Send(event);
}

void ReportBarrier(const RaceRecord& record, uint64_t count, const RacePlace& first,
                   const RacePlace& second) {
  const FoundSite found =
      FindSite(record.second_site != 0 ? record.second_site : record.first_site);
  const RacePlace& place = second.known ? second : first;
  SyncFaultEvent event;
  event.kind =
      record.kind == shadow::kRecordExitedThreads ? proto_enums::SyncFaultKind::kExitedThreads
      : record.kind == shadow::kRecordWarpMask    ? proto_enums::SyncFaultKind::kWarpMask
                                                  : proto_enums::SyncFaultKind::kDivergentBarrier;
  if (found.site) {
    event.has_site = true;
    event.site = Describe(*found.site);
    event.site.access = proto_enums::AccessKind::kUnspecified;
    event.site.space = proto_enums::AddressSpace::kUnspecified;
  }
  LaunchRecord launch;
  if (FindLaunch(record.launch_id, &launch)) {
    event.launch = Describe(launch);
  } else {
    event.launch.launch_id = record.launch_id;
  }
  event.block = place.block;
  event.thread = place.thread;
  event.count = count;
  if (found.module) event.module_id = found.module->id;
  event.engine = "ptx";
  if (record.missing != 0) {
    WaitersDescription& missing = event.waiters.emplace_back();
    missing.threads = record.missing;
    missing.blocks = 1;
    missing.first_block = event.block;
    missing.first_thread = event.thread;
    missing.what =
        record.kind == shadow::kRecordDivergentBarrier ? "did not reach the barrier" : "returned";
  }
  // The other barrier, if two met.
  if (const FoundSite other = FindSite(record.first_site);
      record.kind == shadow::kRecordDivergentBarrier && other.site && other.site != found.site) {
    WaitersDescription& waiters = event.waiters.emplace_back();
    waiters.has_site = true;
    waiters.site = Describe(*other.site);
    waiters.site.access = proto_enums::AccessKind::kUnspecified;
    waiters.threads = 1;
    waiters.blocks = 1;
    waiters.first_block = first.block;
    waiters.first_thread = first.thread;
    waiters.what = "wait at another barrier";
  }
  Send(event);
}

}  // namespace

void EnterRaceSites(const ModulePointer& module) {
  SiteRanges& sites = TheSites();
  std::lock_guard lock(sites.mutex);
  std::erase_if(sites.ranges,
                [](const SiteRanges::Range& range) { return range.module.expired(); });
  const auto count = static_cast<uint32_t>(module->code.sites.size());
  // Beyond the last number sites have no name.
  if (count > shadow::kLastSite - sites.next) return;
  module->site_base = sites.next;
  sites.ranges.push_back({sites.next, count, module});
  sites.next += count;
}

void ReportRaceRecord(const RaceRecord& record, uint64_t count, const RacePlace& first,
                      const RacePlace& second) {
  switch (record.kind) {
    case shadow::kRecordRace:
      ReportRace(record, count, first, second);
      return;
    case shadow::kRecordDivergentBarrier:
    case shadow::kRecordExitedThreads:
    case shadow::kRecordWarpMask:
      ReportBarrier(record, count, first, second);
      return;
    case shadow::kRecordIncomplete:
      SendOnce(DiagnosticEvent{.severity = proto_enums::Severity::kWarning,
                               .text = "a block passed more barriers than race checks can count; "
                                       "from there on it was not checked",
                               .hint = "the CPU device has no such limit (--device emulator)"});
      return;
  }
}

}  // namespace ops_debug::interposer
