// What a program hands to the driver as code, turned into PTX text.
#pragma once

#include <cuda.h>

#include <string>
#include <string_view>

#include "emulator/executor.h"

namespace ops_debug::emulator {

// `image` is a pointer as cuModuleLoadData takes it: PTX text with a final NUL, a fat binary
// (wrapper or container) or a cubin. On failure the CUresult a GPU driver would give, and `*why`:
// one line that says what to do about it.
CUresult ReadImage(const void* image, const DeviceModel& model, std::string* ptx, std::string* why);

// The same for the bytes of a file.
CUresult ReadImageFile(const char* path, const DeviceModel& model, std::string* ptx,
                       std::string* why);

}  // namespace ops_debug::emulator
