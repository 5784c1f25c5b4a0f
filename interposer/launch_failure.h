// Why the driver refused a launch, in words: the launch is compared with what the kernel and the
// device allow (CUDA C++ Programming Guide, "Compute Capabilities"; CUDA Driver API,
// cuLaunchKernelEx). Asked only after a launch has failed.
#pragma once

#include <string>

#include "interposer/launch_path.h"

namespace ops_debug::interposer {

// "CUDA_ERROR_INVALID_VALUE".
std::string ErrorName(CUresult result);

// One sentence per reason that is found; what the error means in general if there is none.
std::string LaunchFailureReason(CUresult result, const LaunchRequest& request);

}  // namespace ops_debug::interposer
