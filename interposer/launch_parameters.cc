// Appends the twin's launch header to either form of kernel parameters without touching the
// program's own arrays.
#include "interposer/launch_parameters.h"

#include <cstring>

#include "interposer/driver_api.h"

namespace ops_debug::interposer {

bool ReadExtra(void* const* extra, std::span<const std::byte>* buffer) {
  if (!extra) return false;
  const std::byte* bytes = nullptr;
  const size_t* size = nullptr;
  for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
    if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER) {
      bytes = static_cast<const std::byte*>(extra[1]);
    } else if (extra[0] == CU_LAUNCH_PARAM_BUFFER_SIZE) {
      size = static_cast<const size_t*>(extra[1]);
    } else {
      return false;
    }
  }
  if (!bytes || !size) return false;
  *buffer = {bytes, *size};
  return true;
}

bool TwinParameters::Build(const shadow::KernelPlan& plan, void** parameters, void** extra,
                           const shadow::AllocationBook& book, shadow::BoundsSource source,
                           uint64_t launch_id) {
  auto* const launch_parameter =
      reinterpret_cast<std::byte*>(launch_parameter_.Make((plan.launch_parameter_bytes + 7) / 8));
  std::span<const std::byte> buffer;
  if (!parameters && ReadExtra(extra, &buffer)) {
    if (buffer.size() > plan.launch_parameter_offset)
      buffer = buffer.first(plan.launch_parameter_offset);
    FillLaunchParameter(plan, shadow::LaunchParameters(buffer), book, source, launch_id,
                        launch_parameter);
    packed_bytes_ = plan.launch_parameter_offset + plan.launch_parameter_bytes;
    auto* const packed = reinterpret_cast<std::byte*>(packed_.Make((packed_bytes_ + 7) / 8));
    std::memcpy(packed, buffer.data(), buffer.size());
    std::memcpy(packed + plan.launch_parameter_offset, launch_parameter,
                plan.launch_parameter_bytes);
    launch_parameter_bytes_ = packed + plan.launch_parameter_offset;
    extra_[0] = CU_LAUNCH_PARAM_BUFFER_POINTER;
    extra_[1] = packed;
    extra_[2] = CU_LAUNCH_PARAM_BUFFER_SIZE;
    extra_[3] = &packed_bytes_;
    extra_[4] = CU_LAUNCH_PARAM_END;
    return buffer.size() >= plan.parameter_bytes;
  }
  if (!parameters && !plan.parameters.empty()) return false;
  FillLaunchParameter(plan, shadow::LaunchParameters(plan, parameters), book, source, launch_id,
                      launch_parameter);
  launch_parameter_bytes_ = launch_parameter;
  pointers_ = pointer_memory_.Make(plan.parameters.size() + 1);
  std::copy_n(parameters, plan.parameters.size(), pointers_);
  pointers_[plan.parameters.size()] = launch_parameter;
  return true;
}

}  // namespace ops_debug::interposer
