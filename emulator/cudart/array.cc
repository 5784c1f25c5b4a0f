// CUDA arrays, copies to and from them, texture and surface objects.
#include <optional>

#include "emulator/cudart/copy_box.h"
#include "emulator/cudart/forward.h"

namespace ops_debug::emulator::cudart {
namespace {

using OptionalStream = std::optional<cudaStream_t>;

// False for channels of different widths and formats that the driver has not.
bool ToDriver(const cudaChannelFormatDesc& description, CUarray_format* format,
              unsigned* channels) {
  const int widths[] = {description.x, description.y, description.z, description.w};
  *channels = 0;
  for (int width : widths) {
    if (width == 0) break;
    if (width != description.x) return false;
    ++*channels;
  }
  const bool is_signed = description.f == cudaChannelFormatKindSigned;
  const bool is_float = description.f == cudaChannelFormatKindFloat;
  if (!is_signed && !is_float && description.f != cudaChannelFormatKindUnsigned) return false;
  switch (description.x) {
    case 8:
      *format = is_signed ? CU_AD_FORMAT_SIGNED_INT8 : CU_AD_FORMAT_UNSIGNED_INT8;
      return !is_float;
    case 16:
      *format = is_float    ? CU_AD_FORMAT_HALF
                : is_signed ? CU_AD_FORMAT_SIGNED_INT16
                            : CU_AD_FORMAT_UNSIGNED_INT16;
      return true;
    case 32:
      *format = is_float    ? CU_AD_FORMAT_FLOAT
                : is_signed ? CU_AD_FORMAT_SIGNED_INT32
                            : CU_AD_FORMAT_UNSIGNED_INT32;
      return true;
    default:
      return false;
  }
}

cudaChannelFormatDesc FromDriver(CUarray_format format, unsigned channels) {
  cudaChannelFormatDesc result{};
  int bits = 32;
  result.f = cudaChannelFormatKindUnsigned;
  switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
      bits = 8;
      break;
    case CU_AD_FORMAT_SIGNED_INT8:
      bits = 8;
      result.f = cudaChannelFormatKindSigned;
      break;
    case CU_AD_FORMAT_UNSIGNED_INT16:
      bits = 16;
      break;
    case CU_AD_FORMAT_SIGNED_INT16:
      bits = 16;
      result.f = cudaChannelFormatKindSigned;
      break;
    case CU_AD_FORMAT_SIGNED_INT32:
      result.f = cudaChannelFormatKindSigned;
      break;
    case CU_AD_FORMAT_HALF:
      bits = 16;
      result.f = cudaChannelFormatKindFloat;
      break;
    case CU_AD_FORMAT_FLOAT:
      result.f = cudaChannelFormatKindFloat;
      break;
    default:
      break;
  }
  int* const widths[] = {&result.x, &result.y, &result.z, &result.w};
  for (unsigned i = 0; i < channels && i < 4; ++i) *widths[i] = bits;
  return result;
}

CUarray Array(cudaArray_const_t array) {
  return reinterpret_cast<CUarray>(const_cast<cudaArray*>(array));
}

cudaError_t Descriptor(const cudaChannelFormatDesc* description, const cudaExtent& extent,
                       unsigned flags, CUDA_ARRAY3D_DESCRIPTOR* descriptor) {
  if (description == nullptr) return cudaErrorInvalidValue;
  *descriptor = {};
  if (!ToDriver(*description, &descriptor->Format, &descriptor->NumChannels))
    return cudaErrorInvalidChannelDescriptor;
  descriptor->Width = extent.width;
  descriptor->Height = extent.height;
  descriptor->Depth = extent.depth;
  descriptor->Flags = flags;  // the flags have the driver's values
  return cudaSuccess;
}
static_assert(cudaArrayLayered == CUDA_ARRAY3D_LAYERED);
static_assert(cudaArraySurfaceLoadStore == CUDA_ARRAY3D_SURFACE_LDST);
static_assert(cudaArrayCubemap == CUDA_ARRAY3D_CUBEMAP);
static_assert(cudaArrayTextureGather == CUDA_ARRAY3D_TEXTURE_GATHER);

cudaError_t Describe(const DriverCalls& driver, cudaArray_const_t array,
                     CUDA_ARRAY3D_DESCRIPTOR* descriptor) {
  return static_cast<cudaError_t>(driver.cuArray3DGetDescriptor(descriptor, Array(array)));
}

// One side of a copy of rows: an array (offsets and widths in bytes) or memory.
struct Rows {
  cudaArray_const_t array = nullptr;
  size_t x_bytes = 0, y = 0;
  void* pointer = nullptr;
  size_t pitch = 0;
};

cudaError_t CopyRows(const Rows& to, const Rows& from, size_t width_bytes, size_t height,
                     cudaMemcpyKind kind, OptionalStream stream) {
  return WithContext([&](const DriverCalls& driver) -> cudaError_t {
    cudaMemcpy3DParms parameters{};
    // ToDriver finds out the memory types; everything else is in bytes already.
    parameters.dstPtr = {to.pointer, to.pitch, width_bytes, height};
    parameters.srcPtr = {from.pointer, from.pitch, width_bytes, height};
    parameters.extent = {0, height, 1};
    parameters.kind = kind;
    CUDA_MEMCPY3D copy{};
    const cudaError_t error = ToDriver(driver, parameters, &copy);
    if (error != cudaSuccess) return error;
    copy.WidthInBytes = width_bytes;
    if (to.array != nullptr) {
      copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
      copy.dstArray = Array(to.array);
      copy.dstXInBytes = to.x_bytes;
      copy.dstY = to.y;
    }
    if (from.array != nullptr) {
      copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
      copy.srcArray = Array(from.array);
      copy.srcXInBytes = from.x_bytes;
      copy.srcY = from.y;
    }
    return static_cast<cudaError_t>(stream ? driver.cuMemcpy3DAsync(&copy, *stream)
                                           : driver.cuMemcpy3D(&copy));
  });
}

Rows InArray(cudaArray_const_t array, size_t x_bytes, size_t y) {
  return {.array = array, .x_bytes = x_bytes, .y = y};
}
Rows InMemory(const void* pointer, size_t pitch) {
  return {.pointer = const_cast<void*>(pointer), .pitch = pitch};
}

cudaError_t ToDriver(const cudaResourceDesc& from, CUDA_RESOURCE_DESC* to) {
  *to = {};
  to->resType = static_cast<CUresourcetype>(from.resType);
  to->flags = from.flags;
  switch (from.resType) {
    case cudaResourceTypeArray:
      to->res.array.hArray = Array(from.res.array.array);
      return cudaSuccess;
    case cudaResourceTypeMipmappedArray:
      to->res.mipmap.hMipmappedArray = reinterpret_cast<CUmipmappedArray>(from.res.mipmap.mipmap);
      return cudaSuccess;
    case cudaResourceTypeLinear: {
      auto& linear = to->res.linear;
      linear.devPtr = Address(from.res.linear.devPtr);
      linear.sizeInBytes = from.res.linear.sizeInBytes;
      return ToDriver(from.res.linear.desc, &linear.format, &linear.numChannels)
                 ? cudaSuccess
                 : cudaErrorInvalidChannelDescriptor;
    }
    case cudaResourceTypePitch2D: {
      auto& pitch = to->res.pitch2D;
      pitch.devPtr = Address(from.res.pitch2D.devPtr);
      pitch.width = from.res.pitch2D.width;
      pitch.height = from.res.pitch2D.height;
      pitch.pitchInBytes = from.res.pitch2D.pitchInBytes;
      return ToDriver(from.res.pitch2D.desc, &pitch.format, &pitch.numChannels)
                 ? cudaSuccess
                 : cudaErrorInvalidChannelDescriptor;
    }
  }
  return cudaErrorInvalidValue;
}

cudaResourceDesc FromDriver(const CUDA_RESOURCE_DESC& from) {
  cudaResourceDesc to{};
  to.resType = static_cast<cudaResourceType>(from.resType);
  switch (from.resType) {
    case CU_RESOURCE_TYPE_ARRAY:
      to.res.array.array = reinterpret_cast<cudaArray_t>(from.res.array.hArray);
      break;
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
      to.res.mipmap.mipmap =
          reinterpret_cast<cudaMipmappedArray_t>(from.res.mipmap.hMipmappedArray);
      break;
    case CU_RESOURCE_TYPE_LINEAR:
      to.res.linear.devPtr = reinterpret_cast<void*>(from.res.linear.devPtr);
      to.res.linear.desc = FromDriver(from.res.linear.format, from.res.linear.numChannels);
      to.res.linear.sizeInBytes = from.res.linear.sizeInBytes;
      break;
    default:
      to.res.pitch2D.devPtr = reinterpret_cast<void*>(from.res.pitch2D.devPtr);
      to.res.pitch2D.desc = FromDriver(from.res.pitch2D.format, from.res.pitch2D.numChannels);
      to.res.pitch2D.width = from.res.pitch2D.width;
      to.res.pitch2D.height = from.res.pitch2D.height;
      to.res.pitch2D.pitchInBytes = from.res.pitch2D.pitchInBytes;
      break;
  }
  return to;
}

CUDA_TEXTURE_DESC ToDriver(const cudaTextureDesc& from) {
  CUDA_TEXTURE_DESC to{};
  for (int d = 0; d < 3; ++d) to.addressMode[d] = static_cast<CUaddress_mode>(from.addressMode[d]);
  to.filterMode = static_cast<CUfilter_mode>(from.filterMode);
  if (from.readMode == cudaReadModeElementType) to.flags |= CU_TRSF_READ_AS_INTEGER;
  if (from.normalizedCoords != 0) to.flags |= CU_TRSF_NORMALIZED_COORDINATES;
  if (from.sRGB != 0) to.flags |= CU_TRSF_SRGB;
  if (from.disableTrilinearOptimization != 0) to.flags |= CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION;
  if (from.seamlessCubemap != 0) to.flags |= CU_TRSF_SEAMLESS_CUBEMAP;
  to.maxAnisotropy = from.maxAnisotropy;
  to.mipmapFilterMode = static_cast<CUfilter_mode>(from.mipmapFilterMode);
  to.mipmapLevelBias = from.mipmapLevelBias;
  to.minMipmapLevelClamp = from.minMipmapLevelClamp;
  to.maxMipmapLevelClamp = from.maxMipmapLevelClamp;
  for (int c = 0; c < 4; ++c) to.borderColor[c] = from.borderColor[c];
  return to;
}

}  // namespace
}  // namespace ops_debug::emulator::cudart

using namespace ops_debug::emulator::cudart;  // NOLINT(google-build-using-namespace): entry points

extern "C" {

cudaError_t cudaMalloc3DArray(cudaArray_t* array, const cudaChannelFormatDesc* description,
                              cudaExtent extent, unsigned int flags) {
  return WithContext([&](const DriverCalls& driver) -> cudaError_t {
    CUDA_ARRAY3D_DESCRIPTOR descriptor{};
    const cudaError_t error = Descriptor(description, extent, flags, &descriptor);
    if (error != cudaSuccess) return error;
    return static_cast<cudaError_t>(
        driver.cuArray3DCreate(reinterpret_cast<CUarray*>(array), &descriptor));
  });
}

cudaError_t cudaMallocArray(cudaArray_t* array, const cudaChannelFormatDesc* description,
                            size_t width, size_t height, unsigned int flags) {
  return cudaMalloc3DArray(array, description, {width, height, 0}, flags);
}

cudaError_t cudaFreeArray(cudaArray_t array) {
  if (array == nullptr) return cudaSuccess;
  return Forward<&DriverCalls::cuArrayDestroy>(array);
}

cudaError_t cudaMallocMipmappedArray(cudaMipmappedArray_t* array,
                                     const cudaChannelFormatDesc* description, cudaExtent extent,
                                     unsigned int levels, unsigned int flags) {
  return WithContext([&](const DriverCalls& driver) -> cudaError_t {
    CUDA_ARRAY3D_DESCRIPTOR descriptor{};
    const cudaError_t error = Descriptor(description, extent, flags, &descriptor);
    if (error != cudaSuccess) return error;
    return static_cast<cudaError_t>(driver.cuMipmappedArrayCreate(
        reinterpret_cast<CUmipmappedArray*>(array), &descriptor, levels));
  });
}

cudaError_t cudaGetMipmappedArrayLevel(cudaArray_t* level, cudaMipmappedArray_const_t array,
                                       unsigned int index) {
  return Forward<&DriverCalls::cuMipmappedArrayGetLevel>(
      level, const_cast<cudaMipmappedArray_t>(array), index);
}

cudaError_t cudaFreeMipmappedArray(cudaMipmappedArray_t array) {
  if (array == nullptr) return cudaSuccess;
  return Forward<&DriverCalls::cuMipmappedArrayDestroy>(array);
}

cudaError_t cudaArrayGetInfo(cudaChannelFormatDesc* description, cudaExtent* extent,
                             unsigned int* flags, cudaArray_t array) {
  return WithContext([&](const DriverCalls& driver) -> cudaError_t {
    CUDA_ARRAY3D_DESCRIPTOR descriptor{};
    const cudaError_t error = Describe(driver, array, &descriptor);
    if (error != cudaSuccess) return error;
    if (description != nullptr)
      *description = FromDriver(descriptor.Format, descriptor.NumChannels);
    if (extent != nullptr) *extent = {descriptor.Width, descriptor.Height, descriptor.Depth};
    if (flags != nullptr) *flags = descriptor.Flags;
    return cudaSuccess;
  });
}

cudaError_t cudaGetChannelDesc(cudaChannelFormatDesc* description, cudaArray_const_t array) {
  if (description == nullptr) return Report(cudaErrorInvalidValue);
  return cudaArrayGetInfo(description, nullptr, nullptr, const_cast<cudaArray_t>(array));
}

// ---- Copies

cudaError_t cudaMemcpy2DToArray(cudaArray_t to, size_t x, size_t y, const void* from, size_t pitch,
                                size_t width, size_t height, cudaMemcpyKind kind) {
  return CopyRows(InArray(to, x, y), InMemory(from, pitch), width, height, kind, std::nullopt);
}

cudaError_t cudaMemcpy2DToArrayAsync(cudaArray_t to, size_t x, size_t y, const void* from,
                                     size_t pitch, size_t width, size_t height, cudaMemcpyKind kind,
                                     cudaStream_t stream) {
  return CopyRows(InArray(to, x, y), InMemory(from, pitch), width, height, kind, stream);
}

cudaError_t cudaMemcpy2DFromArray(void* to, size_t pitch, cudaArray_const_t from, size_t x,
                                  size_t y, size_t width, size_t height, cudaMemcpyKind kind) {
  return CopyRows(InMemory(to, pitch), InArray(from, x, y), width, height, kind, std::nullopt);
}

cudaError_t cudaMemcpy2DFromArrayAsync(void* to, size_t pitch, cudaArray_const_t from, size_t x,
                                       size_t y, size_t width, size_t height, cudaMemcpyKind kind,
                                       cudaStream_t stream) {
  return CopyRows(InMemory(to, pitch), InArray(from, x, y), width, height, kind, stream);
}

cudaError_t cudaMemcpy2DArrayToArray(cudaArray_t to, size_t to_x, size_t to_y,
                                     cudaArray_const_t from, size_t from_x, size_t from_y,
                                     size_t width, size_t height, cudaMemcpyKind kind) {
  return CopyRows(InArray(to, to_x, to_y), InArray(from, from_x, from_y), width, height, kind,
                  std::nullopt);
}

// ---- Objects

cudaError_t cudaCreateTextureObject(cudaTextureObject_t* result, const cudaResourceDesc* resource,
                                    const cudaTextureDesc* description,
                                    const cudaResourceViewDesc* view) {
  if (result == nullptr || resource == nullptr || description == nullptr)
    return Report(cudaErrorInvalidValue);
  return WithContext([&](const DriverCalls& driver) -> cudaError_t {
    CUDA_RESOURCE_DESC converted{};
    const cudaError_t error = ToDriver(*resource, &converted);
    if (error != cudaSuccess) return error;
    const CUDA_TEXTURE_DESC texture = ToDriver(*description);
    static_assert(sizeof(cudaResourceViewDesc) <= sizeof(CUDA_RESOURCE_VIEW_DESC));
    return static_cast<cudaError_t>(driver.cuTexObjectCreate(
        result, &converted, &texture, reinterpret_cast<const CUDA_RESOURCE_VIEW_DESC*>(view)));
  });
}

cudaError_t cudaDestroyTextureObject(cudaTextureObject_t handle) {
  return Forward<&DriverCalls::cuTexObjectDestroy>(handle);
}

cudaError_t cudaGetTextureObjectResourceDesc(cudaResourceDesc* resource,
                                             cudaTextureObject_t handle) {
  if (resource == nullptr) return Report(cudaErrorInvalidValue);
  return WithContext([&](const DriverCalls& driver) {
    CUDA_RESOURCE_DESC found{};
    const CUresult status = driver.cuTexObjectGetResourceDesc(&found, handle);
    if (status == CUDA_SUCCESS) *resource = FromDriver(found);
    return status;
  });
}

cudaError_t cudaCreateSurfaceObject(cudaSurfaceObject_t* result, const cudaResourceDesc* resource) {
  if (result == nullptr || resource == nullptr) return Report(cudaErrorInvalidValue);
  return WithContext([&](const DriverCalls& driver) -> cudaError_t {
    CUDA_RESOURCE_DESC converted{};
    const cudaError_t error = ToDriver(*resource, &converted);
    if (error != cudaSuccess) return error;
    return static_cast<cudaError_t>(driver.cuSurfObjectCreate(result, &converted));
  });
}

cudaError_t cudaDestroySurfaceObject(cudaSurfaceObject_t handle) {
  return Forward<&DriverCalls::cuSurfObjectDestroy>(handle);
}

cudaError_t cudaGetSurfaceObjectResourceDesc(cudaResourceDesc* resource,
                                             cudaSurfaceObject_t handle) {
  if (resource == nullptr) return Report(cudaErrorInvalidValue);
  return WithContext([&](const DriverCalls& driver) {
    CUDA_RESOURCE_DESC found{};
    const CUresult status = driver.cuSurfObjectGetResourceDesc(&found, handle);
    if (status == CUDA_SUCCESS) *resource = FromDriver(found);
    return status;
  });
}

}  // extern "C"

OPS_DEBUG_PER_THREAD(cudaMemcpy2DToArray, ptds, 8)
OPS_DEBUG_PER_THREAD(cudaMemcpy2DToArrayAsync, ptsz, 9)
OPS_DEBUG_PER_THREAD(cudaMemcpy2DFromArray, ptds, 8)
OPS_DEBUG_PER_THREAD(cudaMemcpy2DFromArrayAsync, ptsz, 9)
OPS_DEBUG_PER_THREAD(cudaMemcpy2DArrayToArray, ptds, 9)
