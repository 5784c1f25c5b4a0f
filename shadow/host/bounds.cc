// Reads pointers out of launch parameters and looks up the bounds that the twin compares with.
#include "shadow/host/bounds.h"

#include <cstring>

#include "shadow/abi/device_abi.h"

namespace ops_debug::shadow {
namespace {

BoundsEntry Bounds(const BoundsSlot& slot, const LaunchParameters& parameters,
                   const AllocationBook& book) {
  constexpr BoundsEntry kAskShadow{kBoundsUseShadow, 0};
  uint64_t pointer = 0;
  if (!parameters.ReadPointer(slot.parameter_offset, &pointer)) return kAskShadow;
  if (slot.alignment_bytes > 1 && pointer % slot.alignment_bytes != 0) return kAskShadow;
  AllocationRange range;
  if (!book.FindLive(pointer, &range) || range.size_bytes < slot.access_bytes) return kAskShadow;
  return {range.base, range.size_bytes - slot.access_bytes};
}

}  // namespace

bool LaunchParameters::Read(uint32_t offset, uint32_t size_bytes, uint64_t* bits) const {
  *bits = 0;
  if (!plan_) {
    if (offset > packed_.size() || packed_.size() - offset < size_bytes) return false;
    std::memcpy(bits, packed_.data() + offset, size_bytes);
    return true;
  }
  for (size_t i = 0; i < plan_->parameters.size(); i++) {
    const ptx::ParameterLayout& parameter = plan_->parameters[i];
    if (offset < parameter.offset_bytes || offset - parameter.offset_bytes >= parameter.size_bytes)
      continue;
    const uint32_t inside = offset - parameter.offset_bytes;
    if (parameter.size_bytes - inside < size_bytes || !values_ || !values_[i]) return false;
    std::memcpy(bits, static_cast<const std::byte*>(values_[i]) + inside, size_bytes);
    return true;
  }
  return false;
}

void FillLaunchParameter(const KernelPlan& plan, const LaunchParameters& parameters,
                         const AllocationBook& book, BoundsSource source, uint64_t launch_id,
                         std::byte* out) {
  const LaunchHeader header{launch_id};
  std::memcpy(out, &header, sizeof header);
  out += sizeof header;
  for (const BoundsSlot& slot : plan.slots) {
    const BoundsEntry entry = source == BoundsSource::kShadowOnly ? BoundsEntry{kBoundsUseShadow, 0}
                                                                  : Bounds(slot, parameters, book);
    std::memcpy(out, &entry, sizeof entry);
    out += sizeof entry;
  }
}

}  // namespace ops_debug::shadow
