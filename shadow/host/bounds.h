// The extra launch parameter of a twin (device_abi.h: LaunchHeader, then one BoundsEntry per slot),
// filled from the pointers that a launch passes and the allocations they point into.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "shadow/host/allocation_book.h"
#include "shadow/passes/instrument.h"

namespace ops_debug::shadow {

// The parameters of one launch, in either of the forms that the driver API knows. Views only.
class LaunchParameters {
 public:
  // `kernelParams`: one pointer per parameter of `plan`.
  LaunchParameters(const KernelPlan& plan, void* const* values) : plan_(&plan), values_(values) {}
  // `extra`: the packed buffer.
  explicit LaunchParameters(std::span<const std::byte> packed) : packed_(packed) {}

  // The 8 bytes at `offset` of the parameter buffer; false if no parameter holds them.
  bool ReadPointer(uint32_t offset, uint64_t* pointer) const { return Read(offset, 8, pointer); }
  // The same for a number of up to 8 bytes, without sign.
  bool Read(uint32_t offset, uint32_t size_bytes, uint64_t* bits) const;

 private:
  const KernelPlan* plan_ = nullptr;
  void* const* values_ = nullptr;
  std::span<const std::byte> packed_;
};

enum class BoundsSource : uint8_t {
  kAllocations,
  kShadowOnly,  // every access asks shadow memory: launches under stream capture, whose bounds
                // would go stale
};

// Writes plan.launch_parameter_bytes bytes to `out`, which is 8-byte aligned and has room for them.
void FillLaunchParameter(const KernelPlan& plan, const LaunchParameters& parameters,
                         const AllocationBook& book, BoundsSource source, uint64_t launch_id,
                         std::byte* out);

}  // namespace ops_debug::shadow
