// Allocation of device, managed, pinned and registered memory, and what pointers are.
#include "emulator/cudart/runtime.h"

using namespace ops_debug::emulator::cudart;  // NOLINT(google-build-using-namespace): entry points

extern "C" {

cudaError_t cudaMalloc(void** result, size_t bytes) {
  return AllocateInto(result, bytes, [&](const DriverCalls& driver, CUdeviceptr* address) {
    return driver.cuMemAlloc(address, bytes);
  });
}

cudaError_t cudaMallocManaged(void** result, size_t bytes, unsigned int flags) {
  if (bytes == 0) return Report(cudaErrorInvalidValue);
  return AllocateInto(result, bytes, [&](const DriverCalls& driver, CUdeviceptr* address) {
    return driver.cuMemAllocManaged(address, bytes, flags);
  });
}

cudaError_t cudaMallocPitch(void** result, size_t* pitch, size_t width_bytes, size_t height) {
  if (pitch == nullptr) return Report(cudaErrorInvalidValue);
  return AllocateInto(result, width_bytes * height,
                      [&](const DriverCalls& driver, CUdeviceptr* address) {
                        return driver.cuMemAllocPitch(address, pitch, width_bytes, height, 4);
                      });
}

cudaError_t cudaMalloc3D(cudaPitchedPtr* result, cudaExtent extent) {
  if (result == nullptr) return Report(cudaErrorInvalidValue);
  result->xsize = extent.width;
  result->ysize = extent.height;
  return cudaMallocPitch(&result->ptr, &result->pitch, extent.width, extent.height * extent.depth);
}

cudaError_t cudaFree(void* pointer) {
  return WithContext([&](const DriverCalls& driver) { return driver.cuMemFree(Address(pointer)); });
}

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  return WithContext(
      [&](const DriverCalls& driver) { return driver.cuMemGetInfo(free_bytes, total_bytes); });
}

cudaError_t cudaHostAlloc(void** result, size_t bytes, unsigned int flags) {
  return AllocateInto(result, bytes, [&](const DriverCalls& driver, CUdeviceptr* address) {
    return driver.cuMemHostAlloc(reinterpret_cast<void**>(address), bytes, flags);
  });
}

cudaError_t cudaMallocHost(void** result, size_t bytes) {
  return cudaHostAlloc(result, bytes, cudaHostAllocDefault);
}

cudaError_t cudaFreeHost(void* pointer) {
  return WithContext([&](const DriverCalls& driver) { return driver.cuMemFreeHost(pointer); });
}

cudaError_t cudaHostRegister(void* pointer, size_t bytes, unsigned int flags) {
  return WithContext(
      [&](const DriverCalls& driver) { return driver.cuMemHostRegister(pointer, bytes, flags); });
}

cudaError_t cudaHostUnregister(void* pointer) {
  return WithContext(
      [&](const DriverCalls& driver) { return driver.cuMemHostUnregister(pointer); });
}

cudaError_t cudaHostGetDevicePointer(void** result, void* pointer, unsigned int flags) {
  if (result == nullptr) return Report(cudaErrorInvalidValue);
  return WithContext([&](const DriverCalls& driver) {
    CUdeviceptr address = 0;
    const CUresult status = driver.cuMemHostGetDevicePointer(&address, pointer, flags);
    if (status == CUDA_SUCCESS) *result = reinterpret_cast<void*>(address);
    return status;
  });
}

cudaError_t cudaHostGetFlags(unsigned int* flags, void* pointer) {
  return WithContext(
      [&](const DriverCalls& driver) { return driver.cuMemHostGetFlags(flags, pointer); });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* result, const void* pointer) {
  if (result == nullptr) return Report(cudaErrorInvalidValue);
  return WithContext([&](const DriverCalls& driver) {
    unsigned type = 0, managed = 0;
    int ordinal = 0;
    CUdeviceptr device_pointer = 0;
    void* host_pointer = nullptr;
    CUpointer_attribute attributes[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
        CU_POINTER_ATTRIBUTE_HOST_POINTER};
    void* values[] = {&type, &managed, &ordinal, &device_pointer, &host_pointer};
    const CUresult status = driver.cuPointerGetAttributes(5, attributes, values, Address(pointer));
    *result = {};
    result->device = ordinal;
    result->devicePointer = reinterpret_cast<void*>(device_pointer);
    result->hostPointer = host_pointer;
    if (managed != 0) {
      result->type = cudaMemoryTypeManaged;
    } else if (type == CU_MEMORYTYPE_HOST) {
      result->type = cudaMemoryTypeHost;
    } else if (type == CU_MEMORYTYPE_DEVICE) {
      result->type = cudaMemoryTypeDevice;
    } else {
      result->type = cudaMemoryTypeUnregistered;
      result->hostPointer = const_cast<void*>(pointer);
    }
    return status;
  });
}

cudaError_t cudaMemRangeGetAttributes(void** values, size_t* sizes,
                                      cudaMemRangeAttribute* attributes, size_t count,
                                      const void* pointer, size_t bytes) {
  return WithContext([&](const DriverCalls& driver) {
    return driver.cuMemRangeGetAttributes(values, sizes,
                                          reinterpret_cast<CUmem_range_attribute*>(attributes),
                                          count, Address(pointer), bytes);
  });
}

cudaError_t cudaMemRangeGetAttribute(void* value, size_t size, cudaMemRangeAttribute attribute,
                                     const void* pointer, size_t bytes) {
  return cudaMemRangeGetAttributes(&value, &size, &attribute, 1, pointer, bytes);
}

}  // extern "C"
