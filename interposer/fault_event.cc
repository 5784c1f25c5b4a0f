// Joins what the device knows of a fault (site, operands) with what the host knows (launch,
// allocation, names) into one event.
#include "interposer/fault_event.h"

#include <optional>

#include "interposer/allocation_tracking.h"
#include "interposer/launch_record.h"

namespace ops_debug::interposer {
namespace {

using shadow::Allocation;
using shadow::PublishedFault;
using shadow::Site;

// Farther away than this, an allocation explains nothing (and a generic address
// of shared memory is no neighbour).
constexpr uint64_t kMaxDistanceBytes = 1ull << 36;

FaultSite Describe(const Site& site) {
  FaultSite out;
  out.function = site.function;
  switch (site.kind) {
    case shadow::AccessKind::kLoad:
      out.access = proto_enums::AccessKind::kLoad;
      break;
    case shadow::AccessKind::kStore:
      out.access = proto_enums::AccessKind::kStore;
      break;
    case shadow::AccessKind::kAtomic:
      out.access = proto_enums::AccessKind::kAtomic;
      break;
  }
  switch (site.space) {
    case shadow::AccessSpace::kGlobal:
      out.space = proto_enums::AddressSpace::kGlobal;
      break;
    case shadow::AccessSpace::kShared:
      out.space = proto_enums::AddressSpace::kShared;
      break;
    case shadow::AccessSpace::kLocal:
      out.space = proto_enums::AddressSpace::kLocal;
      break;
    case shadow::AccessSpace::kGeneric:
      out.space = proto_enums::AddressSpace::kGeneric;
      break;
  }
  out.access_bytes = site.access_bytes;
  out.ptx_line = site.ptx_line;
  out.instruction = site.instruction;
  for (const shadow::SourceFrame& frame : site.frames) {
    out.frames.push_back({frame.function, frame.file, frame.line, frame.column});
  }
  out.variable = site.variable;
  out.variable_bytes = site.variable_bytes;
  return out;
}

proto_enums::FaultClass ClassOf(uint64_t entry) {
  switch (static_cast<shadow::FaultClass>(entry % shadow::kFaultClasses)) {
    case shadow::kFaultOutOfBounds:
      return proto_enums::FaultClass::kOutOfBounds;
    case shadow::kFaultUseAfterFree:
      return proto_enums::FaultClass::kUseAfterFree;
    case shadow::kFaultMisaligned:
      return proto_enums::FaultClass::kMisaligned;
    case shadow::kFaultWildAddress:
      return proto_enums::FaultClass::kWildAddress;
  }
  return proto_enums::FaultClass::kUnspecified;
}

// Bounds name the allocation that the pointer belongs to, wherever the address
// went; else the nearest one counts.
std::optional<Allocation> Concerned(const Site& site, const PublishedFault& published,
                                    bool by_bounds) {
  if (site.space == shadow::AccessSpace::kShared || site.space == shadow::AccessSpace::kLocal)
    return std::nullopt;
  if (by_bounds) return Book().FindStart(published.bounds_base);
  auto nearest = Book().FindNearest(published.address);
  if (!nearest) return std::nullopt;
  if (nearest->place != shadow::NearestAllocation::Place::kInside &&
      nearest->distance_bytes > kMaxDistanceBytes) {
    return std::nullopt;
  }
  return std::move(nearest->allocation);
}

AllocationDescription Describe(const Allocation& allocation) {
  AllocationDescription out;
  out.id = allocation.id;
  out.address = allocation.base;
  out.size_bytes = allocation.size_bytes;
  out.api = allocation.api;
  out.name = allocation.name;
  out.freed = allocation.freed;
  out.allocation_stack = ResolveHostStack(ToHostStack(allocation.allocation_stack));
  out.free_stack = ResolveHostStack(ToHostStack(allocation.free_stack));
  out.free_api = allocation.free_api;
  return out;
}

}  // namespace

FaultEvent MakeFaultEvent(const LoadedModule& module, uint64_t entry,
                          const PublishedFault& published, uint64_t count) {
  const Site& site = module.code.sites[entry / shadow::kFaultClasses];
  FaultEvent event;
  event.fault_class = ClassOf(entry);
  event.site = Describe(site);
  LaunchRecord launch;
  if (FindLaunch(published.launch_id, &launch)) {
    event.launch = Describe(launch);
  } else if (published.launch_id != ~0ull) {
    event.launch.launch_id = published.launch_id;
  }
  event.block = {published.block[0], published.block[1], published.block[2]};
  event.thread = {published.thread[0], published.thread[1], published.thread[2]};
  event.address = published.address;
  event.count = count;
  event.provenance = published.bounds_base != shadow::kBoundsUseShadow;
  if (const auto allocation = Concerned(site, published, event.provenance)) {
    event.has_allocation = true;
    event.allocation = Describe(*allocation);
    // Bounds catch what shadow memory cannot: a jump into memory of another allocation.
    const auto target = event.provenance ? Book().FindContaining(published.address) : std::nullopt;
    if (target && target->id != allocation->id) {
      event.has_target_allocation = true;
      event.target_allocation = Describe(*target);
    }
  }
  event.parameter_index = site.parameter_index;
  event.parameter_offset =
      site.parameter_offset < 0 ? 0 : static_cast<uint32_t>(site.parameter_offset);
  event.shadow_value = published.shadow_value;
  event.module_id = module.id;
  return event;
}

}  // namespace ops_debug::interposer
