// Every call that launches a kernel (launch_path.h does the work).
#include <vector>

#include "interposer/hooks.h"
#include "interposer/launch_graph.h"
#include "interposer/launch_path.h"
#include "interposer/session.h"

namespace ops_debug::interposer {
namespace {

// Only what becomes a node of a graph can be updated from the device.
bool IsDeviceUpdatable(const CUlaunchConfig& config) {
  for (unsigned int i = 0; config.attrs && i < config.numAttrs; i++) {
    const CUlaunchAttribute& attribute = config.attrs[i];
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE &&
        attribute.value.deviceUpdatableKernelNode.deviceUpdatable != 0) {
      return true;
    }
  }
  return false;
}

}  // namespace

OPS_DEBUG_HOOK(cuLaunchKernel, CUfunction function, unsigned int grid_x, unsigned int grid_y,
               unsigned int grid_z, unsigned int block_x, unsigned int block_y,
               unsigned int block_z, unsigned int shared_bytes, CUstream stream, void** parameters,
               void** extra) {
  const LaunchRequest request{.api = "cuLaunchKernel",
                              .handle = function,
                              .grid = {grid_x, grid_y, grid_z},
                              .block = {block_x, block_y, block_z},
                              .dynamic_shared_bytes = shared_bytes,
                              .stream = stream,
                              .default_stream = real.default_stream(),
                              .parameters = parameters,
                              .extra = extra};
  return Launch(request, [&](CUfunction f, void** p, void** e) {
    return real(f, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, p, e);
  });
}
OPS_DEBUG_HOOK_AS(cuLaunchKernel_ptsz, cuLaunchKernel)

OPS_DEBUG_HOOK(cuLaunchKernelEx, const CUlaunchConfig* config, CUfunction function,
               void** parameters, void** extra) {
  if (!config) return real(config, function, parameters, extra);
  const LaunchRequest request{.api = "cuLaunchKernelEx",
                              .handle = function,
                              .grid = {config->gridDimX, config->gridDimY, config->gridDimZ},
                              .block = {config->blockDimX, config->blockDimY, config->blockDimZ},
                              .dynamic_shared_bytes = config->sharedMemBytes,
                              .stream = config->hStream,
                              .default_stream = real.default_stream(),
                              .obstacle = IsDeviceUpdatable(*config) ? kDeviceUpdatable : "",
                              .config = config,
                              .parameters = parameters,
                              .extra = extra};
  return Launch(request, [&](CUfunction f, void** p, void** e) { return real(config, f, p, e); });
}
OPS_DEBUG_HOOK_AS(cuLaunchKernelEx_ptsz, cuLaunchKernelEx)

OPS_DEBUG_HOOK(cuLaunchCooperativeKernel, CUfunction function, unsigned int grid_x,
               unsigned int grid_y, unsigned int grid_z, unsigned int block_x, unsigned int block_y,
               unsigned int block_z, unsigned int shared_bytes, CUstream stream,
               void** parameters) {
  const LaunchRequest request{.api = "cuLaunchCooperativeKernel",
                              .handle = function,
                              .grid = {grid_x, grid_y, grid_z},
                              .block = {block_x, block_y, block_z},
                              .dynamic_shared_bytes = shared_bytes,
                              .stream = stream,
                              .default_stream = real.default_stream(),
                              .parameters = parameters};
  return Launch(request, [&](CUfunction f, void** p, void**) {
    return real(f, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, p);
  });
}
OPS_DEBUG_HOOK_AS(cuLaunchCooperativeKernel_ptsz, cuLaunchCooperativeKernel)

// One kernel on several devices, whose grids wait for each other: all run twins, or none does.
OPS_DEBUG_HOOK(cuLaunchCooperativeKernelMultiDevice, CUDA_LAUNCH_PARAMS* launches,
               unsigned int count, unsigned int flags) {
  if (!ChecksAnything() || !launches) return real(launches, count, flags);
  std::vector<LaunchRequest> requests(count);
  std::vector<std::unique_ptr<LaunchPath>> paths(count);
  std::vector<CUDA_LAUNCH_PARAMS> twins(launches, launches + count);
  bool all = true;
  for (unsigned int i = 0; i < count; i++) {
    const CUDA_LAUNCH_PARAMS& launch = launches[i];
    if (!launch.function) return real(launches, count, flags);
    requests[i] = {.api = "cuLaunchCooperativeKernelMultiDevice",
                   .handle = launch.function,
                   .grid = {launch.gridDimX, launch.gridDimY, launch.gridDimZ},
                   .block = {launch.blockDimX, launch.blockDimY, launch.blockDimZ},
                   .dynamic_shared_bytes = launch.sharedMemBytes,
                   .stream = launch.hStream,
                   .default_stream = real.default_stream(),
                   .parameters = launch.kernelParams};
    paths[i] = std::make_unique<LaunchPath>(requests[i]);
    all = all && paths[i]->twin();
    twins[i].function = paths[i]->twin();
    twins[i].kernelParams = paths[i]->parameters();
  }
  if (all) {
    const CUresult result = real(twins.data(), count, flags);
    bool launched = true;
    for (const auto& path : paths) launched = path->TwinLaunched(result) && launched;
    if (launched) return result;
  } else {
    for (const auto& path : paths) path->GiveUpTwin("another device's part of the launch has none");
  }
  const CUresult result = real(launches, count, flags);
  for (const auto& path : paths) path->OriginalLaunched(result);
  return result;
}

// CUDA 3 and earlier: geometry and parameters are set on the function beforehand, one by one, into
// memory that only the driver sees.
namespace {

template <class Go>
CUresult LaunchOld(const char* api, CUfunction function, Dim3 grid, CUstream stream,
                   DefaultStream default_stream, Go go) {
  const LaunchRequest request{.api = api,
                              .handle = function,
                              .grid = grid,
                              .stream = stream,
                              .default_stream = default_stream,
                              .obstacle =
                                  "launched through an API of CUDA 3, whose parameters "
                                  "cannot be extended"};
  return Launch(request, [&](CUfunction, void**, void**) { return go(); });
}

}  // namespace

OPS_DEBUG_HOOK(cuLaunch, CUfunction function) {
  return LaunchOld("cuLaunch", function, {1, 1, 1}, nullptr, real.default_stream(),
                   [&] { return real(function); });
}
OPS_DEBUG_HOOK(cuLaunchGrid, CUfunction function, int width, int height) {
  return LaunchOld("cuLaunchGrid", function,
                   {static_cast<uint32_t>(width), static_cast<uint32_t>(height), 1}, nullptr,
                   real.default_stream(), [&] { return real(function, width, height); });
}
OPS_DEBUG_HOOK(cuLaunchGridAsync, CUfunction function, int width, int height, CUstream stream) {
  return LaunchOld("cuLaunchGridAsync", function,
                   {static_cast<uint32_t>(width), static_cast<uint32_t>(height), 1}, stream,
                   real.default_stream(), [&] { return real(function, width, height, stream); });
}

}  // namespace ops_debug::interposer
