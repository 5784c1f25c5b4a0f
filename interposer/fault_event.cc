// Joins what the device knows of a fault (site, operands) with what the host knows (launch,
// allocation, names) into one event.
#include "interposer/fault_event.h"

#include <algorithm>
#include <optional>

#include "interposer/allocation_tracking.h"
#include "interposer/launch_record.h"
#include "interposer/python_stack.h"

namespace ops_debug::interposer {
namespace {

using shadow::Allocation;
using shadow::PublishedFault;
using shadow::Site;

// Farther away than this, an allocation explains nothing (and a generic address
// of shared memory is no neighbour).
constexpr uint64_t kMaxDistanceBytes = 1ull << 36;

// The launch that a fault belongs to; ~0 is a launch that the device does not know.
uint64_t TimeOf(const PublishedFault& published) { return published.launch_id; }

// A block that was given back between the launch and this report was live when it was accessed.
std::optional<Allocation> AsItWas(std::optional<Allocation> allocation, uint64_t launch_id,
                                  proto_enums::FaultClass fault_class) {
  if (allocation && allocation->freed && allocation->died >= launch_id &&
      fault_class != proto_enums::FaultClass::kUseAfterFree) {
    allocation->freed = false;
    allocation->free_api = "";
    allocation->free_stack.clear();
  }
  return allocation;
}

// Bounds name the allocation that the pointer belongs to, wherever the address
// went; else the nearest one counts.
std::optional<Allocation> Concerned(const Site& site, const PublishedFault& published,
                                    const FaultEvent& event) {
  if (site.space == shadow::AccessSpace::kShared || site.space == shadow::AccessSpace::kLocal)
    return std::nullopt;
  if (event.provenance) {
    auto found = Book().FindInnermostStart(
        published.bounds_base, published.bounds_last + site.access_bytes, TimeOf(published));
    return AsItWas(std::move(found), TimeOf(published), event.fault_class);
  }
  return AllocationNear(published.address, TimeOf(published), event.fault_class);
}

PythonStackHandle ToPythonStack(const shadow::CodeLines& lines) {
  PythonStackHandle stack;
  stack.count = std::min<uint32_t>(lines.count, PythonStackHandle::kMaxFrames);
  stack.lines = lines.numbers;
  return stack;
}

TensorDescription Describe(const shadow::TensorInfo& tensor, const Allocation& block) {
  TensorDescription out;
  out.framework = tensor.framework;
  out.dtype = tensor.dtype;
  if (tensor.has_shape) {
    out.shape.assign(tensor.shape.begin(), tensor.shape.begin() + tensor.rank);
  }
  out.allocation_stack = ResolvePythonStack(ToPythonStack(tensor.allocation_lines));
  if (block.freed) out.free_stack = ResolvePythonStack(ToPythonStack(tensor.free_lines));
  out.segment_address = block.segment_base != 0 ? block.segment_base : block.base;
  out.segment_bytes = block.segment_base != 0 ? block.segment_bytes : block.size_bytes;
  return out;
}

}  // namespace

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

proto_enums::FaultClass EventClassOf(shadow::FaultClass fault_class) {
  switch (fault_class) {
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

std::optional<Allocation> AllocationNear(uint64_t address, uint64_t time,
                                         proto_enums::FaultClass fault_class) {
  auto nearest = Book().FindNearest(address, time);
  if (!nearest) return std::nullopt;
  if (nearest->place != shadow::NearestAllocation::Place::kInside &&
      nearest->distance_bytes > kMaxDistanceBytes) {
    return std::nullopt;
  }
  return AsItWas(std::move(nearest->allocation), time, fault_class);
}

AllocationDescription Describe(const shadow::Allocation& allocation) {
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
  if (allocation.tensor) {
    out.has_tensor = true;
    out.tensor = Describe(*allocation.tensor, allocation);
  }
  return out;
}

namespace {

LaunchDescription LaunchOf(const PublishedFault& published) {
  LaunchDescription launch;
  LaunchRecord record;
  if (FindLaunch(published.launch_id, &record)) {
    launch = interposer::Describe(record);
  } else if (published.launch_id != ~0ull) {
    launch.launch_id = published.launch_id;
  }
  return launch;
}

UninitialisedReadEvent MakeReadEvent(const LoadedModule& module, const Site& site,
                                     const PublishedFault& published, uint64_t count) {
  UninitialisedReadEvent event;
  event.site = interposer::Describe(site);
  event.launch = LaunchOf(published);
  event.block = {published.block[0], published.block[1], published.block[2]};
  event.thread = {published.thread[0], published.thread[1], published.thread[2]};
  event.address = published.address;
  event.bytes = published.shadow_value;  // of the element
  if (const auto found = site.space == shadow::AccessSpace::kShared
                             ? std::nullopt
                             : Book().FindInnermost(published.address, TimeOf(published))) {
    event.has_allocation = true;
    event.allocation = interposer::Describe(*found);
  }
  event.count = count;
  event.use = site.use;
  if (site.use_ptx_line != 0 && site.use_ptx_line != site.ptx_line) {
    event.has_use_site = true;
    event.use_site.function = site.function;
    event.use_site.ptx_line = site.use_ptx_line;
    for (const shadow::SourceFrame& frame : site.use_frames)
      event.use_site.frames.push_back({frame.function, frame.file, frame.line, frame.column});
  }
  event.module_id = module.id;
  event.engine = "ptx";
  return event;
}

FaultEvent MakeFaultEvent(const LoadedModule& module, uint64_t entry,
                          const PublishedFault& published, uint64_t count) {
  const Site& site = module.code.sites[entry / shadow::kFaultClasses];
  FaultEvent event;
  event.fault_class = EventClassOf(static_cast<shadow::FaultClass>(entry % shadow::kFaultClasses));
  event.site = interposer::Describe(site);
  event.launch = LaunchOf(published);
  event.block = {published.block[0], published.block[1], published.block[2]};
  event.thread = {published.thread[0], published.thread[1], published.thread[2]};
  event.address = published.address;
  event.count = count;
  event.provenance = published.bounds_base != shadow::kBoundsUseShadow;
  if (const auto allocation = Concerned(site, published, event)) {
    event.has_allocation = true;
    event.allocation = interposer::Describe(*allocation);
    // Bounds catch what shadow memory cannot: a jump into memory of another allocation.
    const auto target = event.provenance
                            ? Book().FindInnermost(published.address, TimeOf(published))
                            : std::nullopt;
    // Memory of the same pool that no block holds is no other allocation.
    const bool gap = target && target->pool && target->base == allocation->segment_base;
    if (target && target->id != allocation->id && !gap) {
      event.has_target_allocation = true;
      event.target_allocation = interposer::Describe(*target);
    }
  }
  event.parameter_index = site.parameter_index;
  event.parameter_offset =
      site.parameter_offset < 0 ? 0 : static_cast<uint32_t>(site.parameter_offset);
  event.shadow_value = published.shadow_value;
  event.module_id = module.id;
  return event;
}

}  // namespace

void ReportFault(const LoadedModule& module, uint64_t entry, const PublishedFault& published,
                 uint64_t count) {
  const Site& site = module.code.sites[entry / shadow::kFaultClasses];
  if (site.init) {
    Send(MakeReadEvent(module, site, published, count));
  } else {
    Send(MakeFaultEvent(module, entry, published, count));
  }
}

}  // namespace ops_debug::interposer
