// Devices: queries, selection, synchronisation, limits.
#include <span>
#include <utility>

#include "emulator/cudart/runtime.h"

namespace ops_debug::emulator::cudart {
namespace {

// Flags that cudaSetDeviceFlags knows; cudaDeviceMapHost is always on.
constexpr unsigned kContextFlags = cudaDeviceMask & ~unsigned(cudaDeviceMapHost);

}  // namespace
}  // namespace ops_debug::emulator::cudart

using namespace ops_debug::emulator::cudart;  // NOLINT(google-build-using-namespace): entry points

extern "C" {

cudaError_t cudaDriverGetVersion(int* version) {
  return WithDriver([&](const DriverCalls& driver) { return driver.cuDriverGetVersion(version); });
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  if (version == nullptr) return Report(cudaErrorInvalidValue);
  *version = OPS_DEBUG_RUNTIME_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  return WithDriver([&](const DriverCalls& driver) { return driver.cuDeviceGetCount(count); });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int ordinal) {
  return WithDriver([&](const DriverCalls& driver) {
    return driver.cuDeviceGetAttribute(value, static_cast<CUdevice_attribute>(attribute), ordinal);
  });
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int ordinal) {
  return WithDriver(
      [&](const DriverCalls& driver) { return driver.cuDeviceGetPCIBusId(id, length, ordinal); });
}

cudaError_t cudaDeviceGetByPCIBusId(int* ordinal, const char* id) {
  return WithDriver(
      [&](const DriverCalls& driver) { return driver.cuDeviceGetByPCIBusId(ordinal, id); });
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int ordinal, int peer) {
  return WithDriver(
      [&](const DriverCalls& driver) { return driver.cuDeviceCanAccessPeer(can, ordinal, peer); });
}

cudaError_t cudaDeviceGetP2PAttribute(int* value, cudaDeviceP2PAttr attribute, int ordinal,
                                      int peer) {
  return WithDriver([&](const DriverCalls& driver) {
    return driver.cuDeviceGetP2PAttribute(value, static_cast<CUdevice_P2PAttribute>(attribute),
                                          ordinal, peer);
  });
}

cudaError_t cudaGetDevice(int* ordinal) {
  if (ordinal == nullptr) return Report(cudaErrorInvalidValue);
  return WithDriver([&](const DriverCalls& driver) { return CurrentDevice(driver, ordinal); });
}

cudaError_t cudaSetDevice(int ordinal) {
  return WithDriver([&](const DriverCalls& driver) -> cudaError_t {
    CUcontext primary = nullptr;
    const cudaError_t error = RetainPrimary(driver, ordinal, &primary);
    if (error != cudaSuccess) return error;
    ThreadDevice() = ordinal;
    return static_cast<cudaError_t>(driver.cuCtxSetCurrent(primary));
  });
}

cudaError_t cudaInitDevice(int ordinal, unsigned int, unsigned int) {
  return WithDriver([&](const DriverCalls& driver) {
    CUcontext primary = nullptr;
    return RetainPrimary(driver, ordinal, &primary);
  });
}

cudaError_t cudaSetValidDevices(int* ordinals, int count) {
  if (count < 0 || (count > 0 && ordinals == nullptr)) return Report(cudaErrorInvalidValue);
  return WithDriver([&](const DriverCalls& driver) -> cudaError_t {
    int devices = 0;
    const CUresult result = driver.cuDeviceGetCount(&devices);
    if (result != CUDA_SUCCESS) return static_cast<cudaError_t>(result);
    for (const int ordinal : std::span(ordinals, size_t(count))) {
      if (ordinal < 0 || ordinal >= devices) return cudaErrorInvalidDevice;
    }
    return cudaSuccess;
  });
}

// The first of the devices with the highest compute capability that is not below the wanted one.
cudaError_t cudaChooseDevice(int* ordinal, const cudaDeviceProp* wanted) {
  if (ordinal == nullptr || wanted == nullptr) return Report(cudaErrorInvalidValue);
  return WithDriver([&](const DriverCalls& driver) {
    int count = 0;
    CUresult result = driver.cuDeviceGetCount(&count);
    std::pair<int, int> best{-1, -1};
    for (int i = 0; i < count && result == CUDA_SUCCESS; ++i) {
      std::pair<int, int> own;
      result =
          driver.cuDeviceGetAttribute(&own.first, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, i);
      if (result != CUDA_SUCCESS) break;
      result =
          driver.cuDeviceGetAttribute(&own.second, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, i);
      if (own <= best) continue;
      best = own;
      *ordinal = i;
    }
    return result;
  });
}

cudaError_t cudaSetDeviceFlags(unsigned int flags) {
  if ((flags & ~unsigned(cudaDeviceMask)) != 0) return Report(cudaErrorInvalidValue);
  return WithDriver([&](const DriverCalls& driver) -> cudaError_t {
    int ordinal = 0;
    const cudaError_t error = CurrentDevice(driver, &ordinal);
    if (error != cudaSuccess) return error;
    return static_cast<cudaError_t>(
        driver.cuDevicePrimaryCtxSetFlags(ordinal, flags & kContextFlags));
  });
}

cudaError_t cudaGetDeviceFlags(unsigned int* flags) {
  if (flags == nullptr) return Report(cudaErrorInvalidValue);
  return WithDriver([&](const DriverCalls& driver) -> cudaError_t {
    int ordinal = 0, active = 0;
    const cudaError_t error = CurrentDevice(driver, &ordinal);
    if (error != cudaSuccess) return error;
    const CUresult result = driver.cuDevicePrimaryCtxGetState(ordinal, flags, &active);
    *flags |= cudaDeviceMapHost;
    return static_cast<cudaError_t>(result);
  });
}

cudaError_t cudaDeviceSynchronize(void) {
  return WithContext([](const DriverCalls& driver) { return driver.cuCtxSynchronize(); });
}

cudaError_t cudaDeviceReset(void) {
  ForgetLastError();
  return WithDriver([](const DriverCalls& driver) -> cudaError_t {
    int ordinal = 0;
    const cudaError_t error = CurrentDevice(driver, &ordinal);
    if (error != cudaSuccess) return error;
    return static_cast<cudaError_t>(driver.cuDevicePrimaryCtxReset(ordinal));
  });
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned int flags) {
  return WithContext([&](const DriverCalls& driver) -> cudaError_t {
    CUcontext context = nullptr;
    int ordinal = 0;
    cudaError_t error = CurrentDevice(driver, &ordinal);
    if (error == cudaSuccess && ordinal == peer) error = cudaErrorInvalidDevice;
    if (error == cudaSuccess) error = RetainPrimary(driver, peer, &context);
    if (error != cudaSuccess) return error;
    return static_cast<cudaError_t>(driver.cuCtxEnablePeerAccess(context, flags));
  });
}

cudaError_t cudaDeviceDisablePeerAccess(int peer) {
  return WithContext([&](const DriverCalls& driver) -> cudaError_t {
    CUcontext context = nullptr;
    const cudaError_t error = RetainPrimary(driver, peer, &context);
    if (error != cudaSuccess) return error;
    return static_cast<cudaError_t>(driver.cuCtxDisablePeerAccess(context));
  });
}

cudaError_t cudaDeviceFlushGPUDirectRDMAWrites(cudaFlushGPUDirectRDMAWritesTarget target,
                                               cudaFlushGPUDirectRDMAWritesScope scope) {
  return WithContext([&](const DriverCalls& driver) {
    return driver.cuFlushGPUDirectRDMAWrites(static_cast<CUflushGPUDirectRDMAWritesTarget>(target),
                                             static_cast<CUflushGPUDirectRDMAWritesScope>(scope));
  });
}

cudaError_t cudaDeviceGetTexture1DLinearMaxWidth(size_t* width, const cudaChannelFormatDesc* format,
                                                 int ordinal) {
  if (format == nullptr) return Report(cudaErrorInvalidValue);
  const unsigned channels = unsigned(format->x != 0) + unsigned(format->y != 0) +
                            unsigned(format->z != 0) + unsigned(format->w != 0);
  return WithDriver([&](const DriverCalls& driver) {
    return driver.cuDeviceGetTexture1DLinearMaxWidth(width, CU_AD_FORMAT_FLOAT, channels, ordinal);
  });
}

cudaError_t cudaDeviceGetLimit(size_t* value, cudaLimit limit) {
  return WithContext([&](const DriverCalls& driver) {
    return driver.cuCtxGetLimit(value, static_cast<CUlimit>(limit));
  });
}

cudaError_t cudaDeviceSetLimit(cudaLimit limit, size_t value) {
  return WithContext([&](const DriverCalls& driver) {
    return driver.cuCtxSetLimit(static_cast<CUlimit>(limit), value);
  });
}

cudaError_t cudaDeviceGetCacheConfig(cudaFuncCache* config) {
  return WithContext([&](const DriverCalls& driver) {
    CUfunc_cache found = CU_FUNC_CACHE_PREFER_NONE;
    const CUresult result = driver.cuCtxGetCacheConfig(&found);
    if (config != nullptr) *config = static_cast<cudaFuncCache>(found);
    return result;
  });
}

cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache config) {
  return WithContext([&](const DriverCalls& driver) {
    return driver.cuCtxSetCacheConfig(static_cast<CUfunc_cache>(config));
  });
}

cudaError_t cudaDeviceGetSharedMemConfig(cudaSharedMemConfig* config) {
  return WithContext([&](const DriverCalls& driver) {
    CUsharedconfig found = CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE;
    const CUresult result = driver.cuCtxGetSharedMemConfig(&found);
    if (config != nullptr) *config = static_cast<cudaSharedMemConfig>(found);
    return result;
  });
}

cudaError_t cudaDeviceSetSharedMemConfig(cudaSharedMemConfig config) {
  return WithContext([&](const DriverCalls& driver) {
    return driver.cuCtxSetSharedMemConfig(static_cast<CUsharedconfig>(config));
  });
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return WithContext([&](const DriverCalls& driver) {
    return driver.cuCtxGetStreamPriorityRange(least, greatest);
  });
}

cudaError_t cudaCtxResetPersistingL2Cache(void) {
  return WithContext(
      [](const DriverCalls& driver) { return driver.cuCtxResetPersistingL2Cache(); });
}

// Describing a texel needs no texture, which this device does not have.
cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w,
                                            cudaChannelFormatKind kind) {
  return {x, y, z, w, kind};
}

cudaError_t cudaProfilerStart(void) {
  return WithContext([](const DriverCalls& driver) { return driver.cuProfilerStart(); });
}

cudaError_t cudaProfilerStop(void) {
  return WithContext([](const DriverCalls& driver) { return driver.cuProfilerStop(); });
}

}  // extern "C"
