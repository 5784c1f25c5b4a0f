// The GPUs that the CPU device can stand for.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "emulator/executor.h"

namespace ops_debug::emulator {

// The models that `names` lists, separated by commas: architectures ("sm_80") or products ("a100"),
// in either case; one model of sm_90 if it is empty. On an unknown name none, and `*why` lists the
// known ones.
std::vector<DeviceModel> ChooseModels(std::string_view names, std::string* why);

// Bytes of shared memory that the multiprocessor's memory can be split off as, ascending; the rest
// is L1 cache.
std::vector<uint32_t> SharedCarveouts(const DeviceModel& model);

// Whether PTX for `target` ("sm_90", "sm_90a") runs on the model; if not, `*why` says so. Code for
// an older architecture does, unless it is bound to that one by a suffix.
bool RunsOn(std::string_view target, const DeviceModel& model, std::string* why);

// "90": the number in "sm_90".
inline uint32_t ArchitectureNumber(const DeviceModel& model) {
  return model.compute_major * 10 + model.compute_minor;
}

}  // namespace ops_debug::emulator
