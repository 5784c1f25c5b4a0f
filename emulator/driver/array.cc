// CUDA arrays and mipmapped arrays, and the copies between a line of memory and an array.
#include "emulator/driver/array.h"

#include <algorithm>

#include "emulator/driver/capture.h"
#include "emulator/driver/messages.h"

namespace ops_debug::emulator {

bool ToTexelFormat(CUarray_format format, TexelFormat* result) {
  switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
      *result = TexelFormat::kU8;
      return true;
    case CU_AD_FORMAT_UNSIGNED_INT16:
      *result = TexelFormat::kU16;
      return true;
    case CU_AD_FORMAT_UNSIGNED_INT32:
      *result = TexelFormat::kU32;
      return true;
    case CU_AD_FORMAT_SIGNED_INT8:
      *result = TexelFormat::kS8;
      return true;
    case CU_AD_FORMAT_SIGNED_INT16:
      *result = TexelFormat::kS16;
      return true;
    case CU_AD_FORMAT_SIGNED_INT32:
      *result = TexelFormat::kS32;
      return true;
    case CU_AD_FORMAT_HALF:
      *result = TexelFormat::kF16;
      return true;
    case CU_AD_FORMAT_FLOAT:
      *result = TexelFormat::kF32;
      return true;
    default:
      Say("array format " + std::to_string(int(format)) +
          " is not supported by this device: only 8, 16 and 32-bit integers, half and float are");
      return false;
  }
}

namespace {

struct Book {
  HandleTable<CUarray_st> arrays;
  HandleTable<CUmipmappedArray_st> mipmaps;
};

Book& TheBook() {
  static Book& book = *new Book;
  return book;
}

constexpr unsigned kKnownFlags = CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST |
                                 CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_TEXTURE_GATHER |
                                 CUDA_ARRAY3D_COLOR_ATTACHMENT;

CUresult Create(Device& device, CUctx_st& context, const CUDA_ARRAY3D_DESCRIPTOR& descriptor,
                CUarray* result) {
  const bool channels_fit =
      descriptor.NumChannels == 1 || descriptor.NumChannels == 2 || descriptor.NumChannels == 4;
  if (descriptor.Width == 0 || !channels_fit) return CUDA_ERROR_INVALID_VALUE;
  const bool is_layered = (descriptor.Flags & CUDA_ARRAY3D_LAYERED) != 0;
  const bool is_cube = (descriptor.Flags & CUDA_ARRAY3D_CUBEMAP) != 0;
  if (is_layered && descriptor.Depth == 0) return CUDA_ERROR_INVALID_VALUE;
  if (!is_layered && !is_cube && descriptor.Depth != 0 && descriptor.Height == 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (is_cube && (descriptor.Width != descriptor.Height || descriptor.Depth % 6 != 0 ||
                  descriptor.Depth == 0)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if ((descriptor.Flags & ~kKnownFlags) != 0) {
    Say("cuArray3DCreate: flags " + std::to_string(descriptor.Flags & ~kKnownFlags) +
        " (sparse, deferred or depth arrays) are not supported by this device");
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  auto array = std::make_unique<CUarray_st>();
  array->device = &device;
  array->context = &context;
  array->descriptor = descriptor;
  Image& image = array->image;
  if (!ToTexelFormat(descriptor.Format, &image.format)) return CUDA_ERROR_NOT_SUPPORTED;
  image.channels = descriptor.NumChannels;
  constexpr size_t kLargest = 1u << 17;
  if (descriptor.Width > (size_t{1} << 28) || descriptor.Height > kLargest ||
      descriptor.Depth > kLargest) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  image.width = uint32_t(descriptor.Width);
  image.height = uint32_t(descriptor.Height);
  const bool has_layers = is_layered || is_cube;
  image.layers = has_layers ? uint32_t(descriptor.Depth) : 0;
  image.depth = has_layers ? 0 : uint32_t(descriptor.Depth);
  image.pitch_bytes = uint64_t(image.width) * image.texel_bytes();
  image.slice_bytes = image.pitch_bytes * std::max(image.height, 1u);
  const uint64_t slices = std::max<uint64_t>(descriptor.Depth, 1);
  const uint64_t bytes = image.slice_bytes * slices;
  const uint64_t in_use = device.memory.allocated_bytes();
  if (bytes > device.total_memory_bytes || in_use > device.total_memory_bytes - bytes)
    return CUDA_ERROR_OUT_OF_MEMORY;
  image.address = device.memory.Allocate(bytes);
  if (image.address == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  *result = TheBook().arrays.Add(std::move(array));
  return CUDA_SUCCESS;
}

void Destroy(CUarray_st& array) {
  array.device->memory.Free(array.image.address);
  TheBook().arrays.Remove(&array);
}

// body(CUarray_st&) for a live array.
template <class Body>
CUresult WithArray(CUarray handle, Body body) {
  return InDriver([&](Driver&) -> CUresult {
    CUarray_st* array = FindArray(handle);
    return array != nullptr ? body(*array) : CUDA_ERROR_INVALID_HANDLE;
  });
}

// A line of bytes in a one-dimensional array, or in the rows of another one behind each other.
BoxSide Line(CUarray handle, size_t offset, size_t bytes) {
  BoxSide side{.side = Side::kDevice};
  InDriver([&](Driver&) {
    const CUarray_st* array = FindArray(handle);
    if (array == nullptr) return CUDA_SUCCESS;
    const Image& image = array->image;
    const uint64_t slices = std::max({image.depth, image.layers, 1u});
    const uint64_t size = image.slice_bytes * slices;
    if (offset <= size && bytes <= size - offset) side.address = image.address + offset;
    return CUDA_SUCCESS;
  });
  return side;
}

BoxSide Host(const void* pointer) { return {Side::kHost, reinterpret_cast<uint64_t>(pointer)}; }
BoxSide OnTheDevice(CUdeviceptr address) { return {Side::kDevice, address}; }

CUresult Copy(const BoxSide& to, const BoxSide& from, size_t bytes, CUstream stream,
              bool is_async) {
  if (to.address == 0 || from.address == 0) return CUDA_ERROR_INVALID_VALUE;
  return CopyBox(to, from, bytes, 1, 1, stream, is_async);
}

}  // namespace

CUarray_st* FindArray(CUarray handle) { return TheBook().arrays.Find(handle); }
CUmipmappedArray_st* FindMipmaps(CUmipmappedArray handle) { return TheBook().mipmaps.Find(handle); }

void DestroyArraysOf(const CUctx_st& context) {
  Book& book = TheBook();
  std::vector<CUarray> ended;
  book.arrays.ForEach([&](CUarray_st& array) {
    if (array.context == &context) ended.push_back(&array);
  });
  for (CUarray array : ended) Destroy(*array);
  book.mipmaps.RemoveIf(
      [&](const CUmipmappedArray_st& mipmaps) { return mipmaps.context == &context; });
}

BoxSide ArraySide(CUarray handle, uint64_t x_bytes, uint64_t y, uint64_t z, uint64_t width_bytes,
                  uint64_t height, uint64_t depth) {
  BoxSide side{.side = Side::kDevice};
  InDriver([&](Driver&) {
    const CUarray_st* array = FindArray(handle);
    if (array == nullptr) return CUDA_SUCCESS;
    const Image& image = array->image;
    const auto fits = [](uint64_t at, uint64_t count, uint64_t size) {
      return at <= size && count <= size - at;
    };
    if (!fits(x_bytes, width_bytes, image.pitch_bytes) ||
        !fits(y, height, std::max(image.height, 1u)) ||
        !fits(z, depth, std::max({image.depth, image.layers, 1u}))) {
      return CUDA_SUCCESS;
    }
    side.address = image.address;
    side.pitch_bytes = image.pitch_bytes;
    side.slice_bytes = image.slice_bytes;
    return CUDA_SUCCESS;
  });
  return side;
}

}  // namespace ops_debug::emulator

using namespace ops_debug::emulator;  // NOLINT(google-build-using-namespace): entry points only

extern "C" {

CUresult cuArray3DCreate_v2(CUarray* result, const CUDA_ARRAY3D_DESCRIPTOR* descriptor) {
  return InContext([&](Device& device, CUctx_st& context) -> CUresult {
    if (result == nullptr || descriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const CUresult unsafe = RefuseUnsafe();
    if (unsafe != CUDA_SUCCESS) return unsafe;
    return Create(device, context, *descriptor, result);
  });
}

CUresult cuArrayCreate_v2(CUarray* result, const CUDA_ARRAY_DESCRIPTOR* descriptor) {
  if (descriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUDA_ARRAY3D_DESCRIPTOR full{};
  full.Width = descriptor->Width;
  full.Height = descriptor->Height;
  full.Format = descriptor->Format;
  full.NumChannels = descriptor->NumChannels;
  return cuArray3DCreate_v2(result, &full);
}

CUresult cuArrayDestroy(CUarray handle) {
  return WithArray(handle, [](CUarray_st& array) -> CUresult {
    if (array.mipmaps != nullptr) return CUDA_ERROR_INVALID_HANDLE;
    Destroy(array);
    return CUDA_SUCCESS;
  });
}

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR* descriptor, CUarray handle) {
  return WithArray(handle, [&](CUarray_st& array) -> CUresult {
    if (descriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *descriptor = array.descriptor;
    return CUDA_SUCCESS;
  });
}

CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR* descriptor, CUarray handle) {
  return WithArray(handle, [&](CUarray_st& array) -> CUresult {
    if (descriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *descriptor = {array.descriptor.Width, array.descriptor.Height, array.descriptor.Format,
                   array.descriptor.NumChannels};
    return CUDA_SUCCESS;
  });
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray* result, const CUDA_ARRAY3D_DESCRIPTOR* descriptor,
                                unsigned int levels) {
  return InContext([&](Device& device, CUctx_st& context) -> CUresult {
    if (result == nullptr || descriptor == nullptr || levels == 0) return CUDA_ERROR_INVALID_VALUE;
    auto mipmaps = std::make_unique<CUmipmappedArray_st>();
    mipmaps->context = &context;
    const size_t largest =
        std::max({descriptor->Width, descriptor->Height,
                  (descriptor->Flags & CUDA_ARRAY3D_LAYERED) != 0 ? size_t{0} : descriptor->Depth});
    CUDA_ARRAY3D_DESCRIPTOR level = *descriptor;
    const auto halve = [](size_t size) { return size == 0 ? 0 : std::max<size_t>(size / 2, 1); };
    CUresult status = CUDA_SUCCESS;
    for (unsigned i = 0; i < levels && (largest >> i) != 0 && status == CUDA_SUCCESS; ++i) {
      CUarray array = nullptr;
      status = Create(device, context, level, &array);
      if (status != CUDA_SUCCESS) break;
      mipmaps->levels.push_back(array);
      level.Width = halve(level.Width);
      level.Height = halve(level.Height);
      if ((level.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) == 0)
        level.Depth = halve(level.Depth);
    }
    if (status != CUDA_SUCCESS) {
      for (CUarray array : mipmaps->levels) Destroy(*FindArray(array));
      return status;
    }
    *result = TheBook().mipmaps.Add(std::move(mipmaps));
    for (CUarray array : (*result)->levels) FindArray(array)->mipmaps = *result;
    return CUDA_SUCCESS;
  });
}

CUresult cuMipmappedArrayGetLevel(CUarray* result, CUmipmappedArray handle, unsigned int level) {
  return InDriver([&](Driver&) -> CUresult {
    const CUmipmappedArray_st* mipmaps = FindMipmaps(handle);
    if (mipmaps == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (result == nullptr || level >= mipmaps->levels.size()) return CUDA_ERROR_INVALID_VALUE;
    *result = mipmaps->levels[level];
    return CUDA_SUCCESS;
  });
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray handle) {
  return InDriver([&](Driver&) -> CUresult {
    CUmipmappedArray_st* mipmaps = FindMipmaps(handle);
    if (mipmaps == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    for (CUarray array : mipmaps->levels) Destroy(*FindArray(array));
    TheBook().mipmaps.Remove(handle);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemcpyHtoA_v2(CUarray to, size_t offset, const void* from, size_t bytes) {
  return Copy(Line(to, offset, bytes), Host(from), bytes, nullptr, /*is_async=*/false);
}

CUresult cuMemcpyAtoH_v2(void* to, CUarray from, size_t offset, size_t bytes) {
  return Copy(Host(to), Line(from, offset, bytes), bytes, nullptr, /*is_async=*/false);
}

CUresult cuMemcpyDtoA_v2(CUarray to, size_t offset, CUdeviceptr from, size_t bytes) {
  return Copy(Line(to, offset, bytes), OnTheDevice(from), bytes, nullptr, /*is_async=*/false);
}

CUresult cuMemcpyAtoD_v2(CUdeviceptr to, CUarray from, size_t offset, size_t bytes) {
  return Copy(OnTheDevice(to), Line(from, offset, bytes), bytes, nullptr, /*is_async=*/false);
}

CUresult cuMemcpyAtoA_v2(CUarray to, size_t to_offset, CUarray from, size_t from_offset,
                         size_t bytes) {
  return Copy(Line(to, to_offset, bytes), Line(from, from_offset, bytes), bytes, nullptr,
              /*is_async=*/false);
}

CUresult cuMemcpyHtoAAsync_v2(CUarray to, size_t offset, const void* from, size_t bytes,
                              CUstream stream) {
  return Copy(Line(to, offset, bytes), Host(from), bytes, stream, /*is_async=*/true);
}

CUresult cuMemcpyAtoHAsync_v2(void* to, CUarray from, size_t offset, size_t bytes,
                              CUstream stream) {
  return Copy(Host(to), Line(from, offset, bytes), bytes, stream, /*is_async=*/true);
}

}  // extern "C"

OPS_DEBUG_PER_THREAD(cuMemcpyHtoA_v2, ptds, 4)
OPS_DEBUG_PER_THREAD(cuMemcpyAtoH_v2, ptds, 4)
OPS_DEBUG_PER_THREAD(cuMemcpyDtoA_v2, ptds, 4)
OPS_DEBUG_PER_THREAD(cuMemcpyAtoD_v2, ptds, 4)
OPS_DEBUG_PER_THREAD(cuMemcpyAtoA_v2, ptds, 5)
OPS_DEBUG_PER_THREAD(cuMemcpyHtoAAsync_v2, ptsz, 5)
OPS_DEBUG_PER_THREAD(cuMemcpyAtoHAsync_v2, ptsz, 5)
