// Kernel launches: the checks a GPU driver makes before it queues a grid, and the packed parameter
// buffer. The call succeeds even if the kernel faults later; the error then waits in the context
// for the next call, as on a GPU.
#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "emulator/driver/cluster.h"
#include "emulator/driver/function.h"
#include "emulator/driver/limits.h"
#include "emulator/driver/messages.h"
#include "emulator/driver/module.h"
#include "emulator/driver/operation.h"

namespace ops_debug::emulator {
namespace {

struct LaunchRequest {
  CUfunction function = nullptr;
  Dim3 grid, block;
  unsigned shared_bytes = 0;
  CUstream stream = nullptr;
  void** parameters = nullptr;
  void** extra = nullptr;
  bool cooperative = false;
  std::span<const CUlaunchAttribute> attributes;
};

bool Within(const Dim3& value, const Dim3& limit) {
  return value.x >= 1 && value.y >= 1 && value.z >= 1 && value.x <= limit.x && value.y <= limit.y &&
         value.z <= limit.z;
}

CUresult CheckShape(const DeviceModel& model, const CUfunc_st& function,
                    const LaunchRequest& request) {
  const Dim3& grid = request.grid;
  const Dim3& block = request.block;
  if (!Within(grid, {0x7fffffff, 65535, 65535}) || !Within(block, {1024, 1024, 64})) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const uint64_t threads = uint64_t(block.x) * block.y * block.z;
  if (threads > 1024) return CUDA_ERROR_INVALID_VALUE;
  // Launch bounds of the kernel.
  if (threads > Attributes(function).max_threads_per_block) return CUDA_ERROR_INVALID_VALUE;
  if (request.shared_bytes > unsigned(function.max_dynamic_shared_bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const int resident = ResidentBlocks(model, function, int(threads), request.shared_bytes);
  if (resident == 0) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  const uint64_t blocks = uint64_t(grid.x) * grid.y * grid.z;
  if (request.cooperative && blocks > uint64_t(resident) * model.multiprocessors) {
    return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
  }
  return CUDA_SUCCESS;
}

// The buffer that `extra` names; nullopt if the list is malformed.
std::optional<std::span<const std::byte>> BufferOf(void** extra) {
  const std::byte* buffer = nullptr;
  const size_t* size_bytes = nullptr;
  while (*extra != CU_LAUNCH_PARAM_END) {
    if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER) {
      buffer = static_cast<const std::byte*>(extra[1]);
    } else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE) {
      size_bytes = static_cast<const size_t*>(extra[1]);
    } else {
      return std::nullopt;
    }
    extra += 2;
  }
  if (size_bytes == nullptr || (buffer == nullptr && *size_bytes != 0)) return std::nullopt;
  return std::span(buffer, *size_bytes);
}

CUresult PackParameters(const KernelAttributes& attributes, const LaunchRequest& request,
                        std::vector<std::byte>* packed) {
  packed->assign(attributes.parameter_bytes, std::byte{0});
  if (attributes.parameter_bytes == 0) return CUDA_SUCCESS;
  if (request.extra != nullptr && *request.extra != CU_LAUNCH_PARAM_END) {
    if (request.parameters != nullptr) return CUDA_ERROR_INVALID_VALUE;
    const auto buffer = BufferOf(request.extra);
    if (!buffer || buffer->size() < packed->size()) return CUDA_ERROR_INVALID_VALUE;
    std::memcpy(packed->data(), buffer->data(), packed->size());
    return CUDA_SUCCESS;
  }
  if (request.parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < attributes.parameter_offsets.size(); ++i) {
    const uint32_t bytes = attributes.parameter_sizes[i];
    if (bytes == 0) continue;
    if (request.parameters[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::memcpy(packed->data() + attributes.parameter_offsets[i], request.parameters[i], bytes);
  }
  return CUDA_SUCCESS;
}

CUresult Launch(const LaunchRequest& request) {
  return InContext([&](Device& device, CUctx_st& context) -> CUresult {
    CUfunc_st* function = nullptr;
    CUresult status = ResolveFunction(device, context, request.function, &function);
    if (status == CUDA_SUCCESS) status = CheckStream(device, context, request.stream);
    if (status == CUDA_SUCCESS) status = CheckShape(device.model, *function, request);
    std::vector<std::byte> packed;
    if (status == CUDA_SUCCESS) status = PackParameters(Attributes(*function), request, &packed);
    if (status != CUDA_SUCCESS) return status;
    ClusterShape cluster;
    status = ChooseCluster(device.model, *function, request.grid, request.attributes, &cluster);
    if (status != CUDA_SUCCESS) return status;
    KernelOperation kernel{.function = function,
                           .grid = request.grid,
                           .block = request.block,
                           .cluster = cluster.blocks,
                           .explicit_cluster = cluster.is_explicit,
                           .cooperative = request.cooperative,
                           .dynamic_shared_bytes = request.shared_bytes,
                           .parameters = std::move(packed)};
    return Submit(device, context, request.stream, {.work = std::move(kernel)});
  });
}

}  // namespace
}  // namespace ops_debug::emulator

using namespace ops_debug::emulator;  // NOLINT(google-build-using-namespace): entry points only

extern "C" {

CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                        unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                        unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                        void** parameters, void** extra) {
  return Launch({.function = function,
                 .grid = {grid_x, grid_y, grid_z},
                 .block = {block_x, block_y, block_z},
                 .shared_bytes = shared_bytes,
                 .stream = stream,
                 .parameters = parameters,
                 .extra = extra});
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                                   unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                   unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                                   void** parameters) {
  return Launch({.function = function,
                 .grid = {grid_x, grid_y, grid_z},
                 .block = {block_x, block_y, block_z},
                 .shared_bytes = shared_bytes,
                 .stream = stream,
                 .parameters = parameters,
                 .cooperative = true});
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** parameters,
                          void** extra) {
  if (config == nullptr || (config->numAttrs != 0 && config->attrs == nullptr)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  LaunchRequest request{.function = function,
                        .grid = {config->gridDimX, config->gridDimY, config->gridDimZ},
                        .block = {config->blockDimX, config->blockDimY, config->blockDimZ},
                        .shared_bytes = config->sharedMemBytes,
                        .stream = config->hStream,
                        .parameters = parameters,
                        .extra = extra,
                        .attributes = {config->attrs, config->numAttrs}};
  // The other attributes steer scheduling and caches: they change when a kernel runs, not what it
  // computes.
  for (const CUlaunchAttribute& attribute : request.attributes) {
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) {
      request.cooperative = attribute.value.cooperative != 0;
    }
  }
  return Launch(request);
}

}  // extern "C"

OPS_DEBUG_PER_THREAD(cuLaunchKernel, ptsz, 11)
OPS_DEBUG_PER_THREAD(cuLaunchCooperativeKernel, ptsz, 10)
OPS_DEBUG_PER_THREAD(cuLaunchKernelEx, ptsz, 4)
