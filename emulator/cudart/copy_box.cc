// cudaMemcpy3DParms to CUDA_MEMCPY3D and back.
#include "emulator/cudart/copy_box.h"

namespace ops_debug::emulator::cudart {
namespace {

// False for a direction that does not exist.
bool MemoryTypes(cudaMemcpyKind kind, CUmemorytype* to, CUmemorytype* from) {
  switch (kind) {
    case cudaMemcpyHostToHost:
      *to = *from = CU_MEMORYTYPE_HOST;
      return true;
    case cudaMemcpyHostToDevice:
      *to = CU_MEMORYTYPE_DEVICE;
      *from = CU_MEMORYTYPE_HOST;
      return true;
    case cudaMemcpyDeviceToHost:
      *to = CU_MEMORYTYPE_HOST;
      *from = CU_MEMORYTYPE_DEVICE;
      return true;
    case cudaMemcpyDeviceToDevice:
      *to = *from = CU_MEMORYTYPE_DEVICE;
      return true;
    case cudaMemcpyDefault:
      *to = *from = CU_MEMORYTYPE_UNIFIED;
      return true;
    default:
      return false;
  }
}

// 0 if `array` is none.
size_t ElementBytes(const DriverCalls& driver, CUarray array) {
  CUDA_ARRAY3D_DESCRIPTOR descriptor{};
  if (driver.cuArray3DGetDescriptor(&descriptor, array) != CUDA_SUCCESS) return 0;
  size_t bytes = 0;
  switch (descriptor.Format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
      bytes = 1;
      break;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
      bytes = 2;
      break;
    default:
      bytes = 4;
      break;
  }
  return bytes * descriptor.NumChannels;
}

CUarray Array(cudaArray_const_t array) {
  return reinterpret_cast<CUarray>(const_cast<cudaArray*>(array));
}

cudaMemcpyKind KindOf(CUmemorytype to, CUmemorytype from) {
  if (to == CU_MEMORYTYPE_UNIFIED || from == CU_MEMORYTYPE_UNIFIED) return cudaMemcpyDefault;
  const bool to_host = to == CU_MEMORYTYPE_HOST, from_host = from == CU_MEMORYTYPE_HOST;
  if (to_host) return from_host ? cudaMemcpyHostToHost : cudaMemcpyDeviceToHost;
  return from_host ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToDevice;
}

}  // namespace

cudaError_t ToDriver(const DriverCalls& driver, const cudaMemcpy3DParms& p, CUDA_MEMCPY3D* copy) {
  *copy = {};
  if (!MemoryTypes(p.kind, &copy->dstMemoryType, &copy->srcMemoryType))
    return cudaErrorInvalidMemcpyDirection;
  size_t element_bytes = 1, to_element = 1, from_element = 1;
  if (p.srcArray != nullptr) {
    copy->srcMemoryType = CU_MEMORYTYPE_ARRAY;
    copy->srcArray = Array(p.srcArray);
    element_bytes = from_element = ElementBytes(driver, copy->srcArray);
  }
  if (p.dstArray != nullptr) {
    copy->dstMemoryType = CU_MEMORYTYPE_ARRAY;
    copy->dstArray = Array(p.dstArray);
    element_bytes = to_element = ElementBytes(driver, copy->dstArray);
  }
  if (element_bytes == 0) return cudaErrorInvalidValue;
  const size_t width_bytes = p.extent.width * element_bytes;
  if ((p.srcArray == nullptr && p.srcPtr.pitch < width_bytes) ||
      (p.dstArray == nullptr && p.dstPtr.pitch < width_bytes)) {
    return cudaErrorInvalidPitchValue;
  }
  // Which of the two pointers is read depends on the memory type.
  copy->srcHost = p.srcPtr.ptr;
  copy->srcDevice = Address(p.srcPtr.ptr);
  copy->srcPitch = p.srcPtr.pitch;
  copy->srcHeight = p.srcPtr.ysize;
  copy->srcXInBytes = p.srcPos.x * from_element;
  copy->srcY = p.srcPos.y;
  copy->srcZ = p.srcPos.z;
  copy->dstHost = p.dstPtr.ptr;
  copy->dstDevice = Address(p.dstPtr.ptr);
  copy->dstPitch = p.dstPtr.pitch;
  copy->dstHeight = p.dstPtr.ysize;
  copy->dstXInBytes = p.dstPos.x * to_element;
  copy->dstY = p.dstPos.y;
  copy->dstZ = p.dstPos.z;
  copy->WidthInBytes = width_bytes;
  copy->Height = p.extent.height;
  copy->Depth = p.extent.depth;
  return cudaSuccess;
}

cudaMemcpy3DParms FromDriver(const DriverCalls& driver, const CUDA_MEMCPY3D& copy) {
  cudaMemcpy3DParms p{};
  size_t element_bytes = 1, to_element = 1, from_element = 1;
  if (copy.srcMemoryType == CU_MEMORYTYPE_ARRAY) {
    p.srcArray = reinterpret_cast<cudaArray_t>(copy.srcArray);
    element_bytes = from_element = ElementBytes(driver, copy.srcArray);
  } else {
    void* pointer = copy.srcMemoryType == CU_MEMORYTYPE_HOST
                        ? const_cast<void*>(copy.srcHost)
                        : reinterpret_cast<void*>(copy.srcDevice);
    p.srcPtr = {pointer, copy.srcPitch, copy.WidthInBytes, copy.srcHeight};
  }
  if (copy.dstMemoryType == CU_MEMORYTYPE_ARRAY) {
    p.dstArray = reinterpret_cast<cudaArray_t>(copy.dstArray);
    element_bytes = to_element = ElementBytes(driver, copy.dstArray);
  } else {
    void* pointer = copy.dstMemoryType == CU_MEMORYTYPE_HOST
                        ? copy.dstHost
                        : reinterpret_cast<void*>(copy.dstDevice);
    p.dstPtr = {pointer, copy.dstPitch, copy.WidthInBytes, copy.dstHeight};
  }
  if (element_bytes == 0) element_bytes = to_element = from_element = 1;
  p.srcPos = {copy.srcXInBytes / from_element, copy.srcY, copy.srcZ};
  p.dstPos = {copy.dstXInBytes / to_element, copy.dstY, copy.dstZ};
  p.extent = {copy.WidthInBytes / element_bytes, copy.Height, copy.Depth};
  p.kind = KindOf(copy.dstMemoryType, copy.srcMemoryType);
  return p;
}

}  // namespace ops_debug::emulator::cudart
