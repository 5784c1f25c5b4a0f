// Stream-ordered allocation and memory pools.
#include "emulator/cudart/runtime.h"

using namespace ops_debug::emulator::cudart;  // NOLINT(google-build-using-namespace): entry points

namespace {

// The driver's structs of the same shape.
static_assert(sizeof(CUmemPoolProps) == sizeof(cudaMemPoolProps));
static_assert(sizeof(CUmemAccessDesc) == sizeof(cudaMemAccessDesc));
static_assert(sizeof(CUmemLocation) == sizeof(cudaMemLocation));

}  // namespace

extern "C" {

cudaError_t cudaMallocAsync(void** result, size_t bytes, cudaStream_t stream) {
  return AllocateInto(result, bytes, [&](const DriverCalls& driver, CUdeviceptr* address) {
    return driver.cuMemAllocAsync(address, bytes, stream);
  });
}

cudaError_t cudaMallocFromPoolAsync(void** result, size_t bytes, cudaMemPool_t pool,
                                    cudaStream_t stream) {
  return AllocateInto(result, bytes, [&](const DriverCalls& driver, CUdeviceptr* address) {
    return driver.cuMemAllocFromPoolAsync(address, bytes, pool, stream);
  });
}

cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream) {
  return WithContext(
      [&](const DriverCalls& driver) { return driver.cuMemFreeAsync(Address(pointer), stream); });
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int ordinal) {
  return WithContext(
      [&](const DriverCalls& driver) { return driver.cuDeviceGetDefaultMemPool(pool, ordinal); });
}

cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* pool, int ordinal) {
  return WithContext(
      [&](const DriverCalls& driver) { return driver.cuDeviceGetMemPool(pool, ordinal); });
}

cudaError_t cudaDeviceSetMemPool(int ordinal, cudaMemPool_t pool) {
  return WithContext(
      [&](const DriverCalls& driver) { return driver.cuDeviceSetMemPool(ordinal, pool); });
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* properties) {
  return WithContext([&](const DriverCalls& driver) {
    return driver.cuMemPoolCreate(pool, reinterpret_cast<const CUmemPoolProps*>(properties));
  });
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  return WithContext([&](const DriverCalls& driver) { return driver.cuMemPoolDestroy(pool); });
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t keep_bytes) {
  return WithContext(
      [&](const DriverCalls& driver) { return driver.cuMemPoolTrimTo(pool, keep_bytes); });
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  return WithContext([&](const DriverCalls& driver) {
    return driver.cuMemPoolGetAttribute(pool, static_cast<CUmemPool_attribute>(attribute), value);
  });
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  return WithContext([&](const DriverCalls& driver) {
    return driver.cuMemPoolSetAttribute(pool, static_cast<CUmemPool_attribute>(attribute), value);
  });
}

cudaError_t cudaMemPoolGetAccess(cudaMemAccessFlags* flags, cudaMemPool_t pool,
                                 cudaMemLocation* location) {
  return WithContext([&](const DriverCalls& driver) {
    return driver.cuMemPoolGetAccess(reinterpret_cast<CUmemAccess_flags*>(flags), pool,
                                     reinterpret_cast<CUmemLocation*>(location));
  });
}

cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const cudaMemAccessDesc* list, size_t count) {
  return WithContext([&](const DriverCalls& driver) {
    return driver.cuMemPoolSetAccess(pool, reinterpret_cast<const CUmemAccessDesc*>(list), count);
  });
}

}  // extern "C"

OPS_DEBUG_PER_THREAD(cudaMallocAsync, ptsz, 3)
OPS_DEBUG_PER_THREAD(cudaMallocFromPoolAsync, ptsz, 4)
OPS_DEBUG_PER_THREAD(cudaFreeAsync, ptsz, 2)
