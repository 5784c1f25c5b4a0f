// Cluster shapes of launches.
#pragma once

#include <cuda.h>

#include <span>

#include "emulator/driver/state.h"

namespace ops_debug::emulator {

struct ClusterShape {
  Dim3 blocks;               // per cluster
  bool is_explicit = false;  // the launch or the kernel names it
};

// The shape for a launch of `function` with these attributes; CUDA_ERROR_INVALID_CLUSTER_SIZE if
// the kernel, the grid or the device do not allow it.
CUresult ChooseCluster(const DeviceModel& model, const CUfunc_st& function, const Dim3& grid,
                       std::span<const CUlaunchAttribute> attributes, ClusterShape* shape);

}  // namespace ops_debug::emulator
