// Cluster shapes: where they come from, what a device allows (tried on an H200), and how many
// clusters are resident at a time.
#include "emulator/driver/cluster.h"

#include <algorithm>

#include "emulator/driver/function.h"
#include "emulator/driver/limits.h"
#include "emulator/driver/messages.h"
#include "emulator/driver/module.h"

namespace ops_debug::emulator {
namespace {

constexpr uint64_t kPortableBlocks = 8;
constexpr uint64_t kMostBlocks = 16;
// The blocks of a cluster lie in one GPU processing cluster. An H200 answered as if these many of
// its 132 multiprocessors could hold clusters of more than two blocks, and each at most eight
// blocks.
constexpr int kProcessingClusters[] = {18, 16, 16, 16, 16, 16, 16, 10};
constexpr int kMostBlocksPerMultiprocessor = 8;

uint64_t Volume(const Dim3& size) { return uint64_t(size.x) * size.y * size.z; }
bool IsNone(const Dim3& size) { return size.x == 0 && size.y == 0 && size.z == 0; }
bool IsSame(const Dim3& a, const Dim3& b) { return a.x == b.x && a.y == b.y && a.z == b.z; }

// What the kernel's own directives or cuFuncSetAttribute require; zeros if nothing.
Dim3 RequiredCluster(const CUfunc_st& function) {
  const Dim3& fixed = Attributes(function).required_cluster;
  return IsNone(fixed) ? function.required_cluster : fixed;
}

uint64_t MostBlocks(const CUfunc_st& function) {
  const uint32_t rank = Attributes(function).max_cluster_rank;
  const uint64_t most = function.non_portable_clusters ? kMostBlocks : kPortableBlocks;
  return rank == 0 ? most : std::min<uint64_t>(most, rank);
}

// Clusters of `size` blocks with `resident` blocks per multiprocessor.
int ActiveClusters(const DeviceModel& model, int size, int resident) {
  const int layers = std::min(resident, kMostBlocksPerMultiprocessor);
  if (size <= 2) return int(model.multiprocessors) * layers / size;
  int clusters = 0;
  for (const int multiprocessors : kProcessingClusters) clusters += multiprocessors * layers / size;
  return clusters;
}

// body(device, function, threads of a block, blocks that a multiprocessor holds)
template <class Body>
CUresult WithConfig(CUfunction handle, const CUlaunchConfig* config, Body body) {
  return InContext([&](Device& device, CUctx_st& context) -> CUresult {
    CUfunc_st* function = nullptr;
    const CUresult status = ResolveFunction(device, context, handle, &function);
    if (status != CUDA_SUCCESS) return status;
    if (config == nullptr || (config->numAttrs != 0 && config->attrs == nullptr))
      return CUDA_ERROR_INVALID_VALUE;
    ClusterShape shape;
    const CUresult chosen = ChooseCluster(device.model, *function,
                                          {config->gridDimX, config->gridDimY, config->gridDimZ},
                                          {config->attrs, config->numAttrs}, &shape);
    if (chosen != CUDA_SUCCESS) return chosen;
    const uint64_t threads = uint64_t(config->blockDimX) * config->blockDimY * config->blockDimZ;
    const bool fits = threads != 0 && threads <= Attributes(*function).max_threads_per_block &&
                      config->sharedMemBytes <= unsigned(function->max_dynamic_shared_bytes);
    const int resident =
        fits ? ResidentBlocks(device.model, *function, int(threads), config->sharedMemBytes) : 0;
    return body(device, *function, shape, resident);
  });
}

}  // namespace

CUresult ChooseCluster(const DeviceModel& model, const CUfunc_st& function, const Dim3& grid,
                       std::span<const CUlaunchAttribute> attributes, ClusterShape* shape) {
  Dim3 asked{0, 0, 0};
  bool prefers = false;
  for (const CUlaunchAttribute& attribute : attributes) {
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
      const auto& dim = attribute.value.clusterDim;
      asked = {dim.x, dim.y, dim.z};
    } else if (attribute.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE) {
      if (unsigned(attribute.value.clusterSchedulingPolicyPreference) >
          CU_CLUSTER_SCHEDULING_POLICY_LOAD_BALANCING)
        return CUDA_ERROR_INVALID_VALUE;
    } else if (attribute.id == CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION) {
      prefers = true;  // a wish that need not be granted, but only beside a cluster dimension
    }
  }
  const Dim3 required = RequiredCluster(function);
  *shape = {};
  if (IsNone(asked) && IsNone(required)) {
    if (!prefers && !Attributes(function).cluster_must_be_set) return CUDA_SUCCESS;
    Say("kernel " + function.name + " needs a launch that gives its cluster dimensions");
    return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  }
  if (!IsNone(asked) && !IsNone(required) && !IsSame(asked, required))
    return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  const Dim3 size = IsNone(asked) ? required : asked;
  if (Volume(size) == 0 || Volume(size) > MostBlocks(function) || grid.x % size.x != 0 ||
      grid.y % size.y != 0 || grid.z % size.z != 0)
    return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  if (model.compute_major < 9 && Volume(size) > 1) {
    Say("kernel " + function.name + ": " + model.name + " has no thread block clusters");
    return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  }
  *shape = {.blocks = size, .is_explicit = true};
  return CUDA_SUCCESS;
}

}  // namespace ops_debug::emulator

using namespace ops_debug::emulator;  // NOLINT(google-build-using-namespace): entry points only

extern "C" {

CUresult cuOccupancyMaxPotentialClusterSize(int* blocks, CUfunction handle,
                                            const CUlaunchConfig* config) {
  return WithConfig(
      handle, config,
      [&](Device& device, CUfunc_st& function, const ClusterShape&, int resident) -> CUresult {
        if (blocks == nullptr) return CUDA_ERROR_INVALID_VALUE;
        const int most = function.non_portable_clusters ? int(kMostBlocks) : int(kPortableBlocks);
        *blocks = resident == 0 || device.model.compute_major < 9 ? 0 : most;
        return CUDA_SUCCESS;
      });
}

CUresult cuOccupancyMaxActiveClusters(int* clusters, CUfunction handle,
                                      const CUlaunchConfig* config) {
  return WithConfig(
      handle, config,
      [&](Device& device, CUfunc_st&, const ClusterShape& shape, int resident) -> CUresult {
        if (clusters == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *clusters = shape.is_explicit && resident != 0
                        ? ActiveClusters(device.model, int(Volume(shape.blocks)), resident)
                        : 0;
        return CUDA_SUCCESS;
      });
}

}  // extern "C"
