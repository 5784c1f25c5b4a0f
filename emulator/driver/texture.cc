// Texture and surface objects: descriptions in the driver's terms become objects of the executor.
#include "emulator/texture.h"

#include <map>

#include "emulator/driver/array.h"
#include "emulator/driver/memory.h"
#include "emulator/driver/messages.h"

namespace ops_debug::emulator {
namespace {

struct TextureRecord {
  CUDA_RESOURCE_DESC resource{};
  CUDA_TEXTURE_DESC texture{};
  CUDA_RESOURCE_VIEW_DESC view{};
  bool has_view = false;
};

// What queries give back; guarded by the driver's lock.
struct Book {
  std::map<CUtexObject, TextureRecord> textures;
  std::map<CUsurfObject, CUDA_RESOURCE_DESC> surfaces;
};

Book& TheBook() {
  static Book& book = *new Book;
  return book;
}

CUresult ImagesOf(const Device& device, const CUDA_RESOURCE_DESC& resource,
                  TextureObject* texture) {
  Image image;
  switch (resource.resType) {
    case CU_RESOURCE_TYPE_ARRAY: {
      const CUarray_st* array = FindArray(resource.res.array.hArray);
      if (array == nullptr) return CUDA_ERROR_INVALID_VALUE;
      texture->levels = {array->image};
      return CUDA_SUCCESS;
    }
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY: {
      const CUmipmappedArray_st* mipmaps = FindMipmaps(resource.res.mipmap.hMipmappedArray);
      if (mipmaps == nullptr) return CUDA_ERROR_INVALID_VALUE;
      for (CUarray level : mipmaps->levels) texture->levels.push_back(FindArray(level)->image);
      return CUDA_SUCCESS;
    }
    case CU_RESOURCE_TYPE_LINEAR: {
      const auto& linear = resource.res.linear;
      if (!ToTexelFormat(linear.format, &image.format)) return CUDA_ERROR_NOT_SUPPORTED;
      image.channels = linear.numChannels;
      if (image.channels == 0 || image.channels > 4 ||
          !IsDeviceRange(device, linear.devPtr, linear.sizeInBytes)) {
        return CUDA_ERROR_INVALID_VALUE;
      }
      image.address = linear.devPtr;
      image.width = uint32_t(linear.sizeInBytes / image.texel_bytes());
      image.pitch_bytes = linear.sizeInBytes;
      texture->is_line = true;
      break;
    }
    case CU_RESOURCE_TYPE_PITCH2D: {
      const auto& pitch = resource.res.pitch2D;
      if (!ToTexelFormat(pitch.format, &image.format)) return CUDA_ERROR_NOT_SUPPORTED;
      image.channels = pitch.numChannels;
      image.address = pitch.devPtr;
      image.width = uint32_t(pitch.width);
      image.height = uint32_t(pitch.height);
      image.pitch_bytes = pitch.pitchInBytes;
      if (image.channels == 0 || image.channels > 4 || image.width == 0 || image.height == 0 ||
          pitch.pitchInBytes < uint64_t(image.width) * image.texel_bytes() ||
          !IsDeviceRange(device, image.address,
                         image.pitch_bytes * (image.height - 1) +
                             uint64_t(image.width) * image.texel_bytes())) {
        return CUDA_ERROR_INVALID_VALUE;
      }
      break;
    }
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  texture->levels = {image};
  return CUDA_SUCCESS;
}

AddressMode ModeOf(CUaddress_mode mode) {
  switch (mode) {
    case CU_TR_ADDRESS_MODE_WRAP:
      return AddressMode::kWrap;
    case CU_TR_ADDRESS_MODE_MIRROR:
      return AddressMode::kMirror;
    case CU_TR_ADDRESS_MODE_BORDER:
      return AddressMode::kBorder;
    default:
      return AddressMode::kClamp;
  }
}

CUresult MakeTexture(const Device& device, const CUDA_RESOURCE_DESC& resource,
                     const CUDA_TEXTURE_DESC& description, TextureObject* texture) {
  const CUresult status = ImagesOf(device, resource, texture);
  if (status != CUDA_SUCCESS) return status;
  constexpr unsigned kKnown = CU_TRSF_READ_AS_INTEGER | CU_TRSF_NORMALIZED_COORDINATES |
                              CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION;
  if ((description.flags & ~kKnown) != 0) {
    Say((description.flags & CU_TRSF_SRGB) != 0
            ? "cuTexObjectCreate: sRGB conversion is not supported by this device"
            : "cuTexObjectCreate: seamless cube maps are not supported by this device");
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  const TexelFormat format = texture->levels[0].format;
  const bool is_float = format == TexelFormat::kF16 || format == TexelFormat::kF32;
  const bool is_wide = format == TexelFormat::kU32 || format == TexelFormat::kS32;
  for (size_t d = 0; d < 3; ++d) texture->address_modes[d] = ModeOf(description.addressMode[d]);
  texture->normalized_coordinates = (description.flags & CU_TRSF_NORMALIZED_COORDINATES) != 0;
  texture->reads_float =
      !is_float && !is_wide && (description.flags & CU_TRSF_READ_AS_INTEGER) == 0;
  texture->linear = description.filterMode == CU_TR_FILTER_MODE_LINEAR;
  // Only floating-point results can be filtered.
  if (texture->linear && !is_float && !texture->reads_float) return CUDA_ERROR_INVALID_VALUE;
  texture->linear_levels = description.mipmapFilterMode == CU_TR_FILTER_MODE_LINEAR;
  texture->level_bias = description.mipmapLevelBias;
  texture->lowest_level = description.minMipmapLevelClamp;
  texture->highest_level = description.maxMipmapLevelClamp;
  std::copy(description.borderColor, description.borderColor + 4, texture->border.begin());
  return CUDA_SUCCESS;
}

template <class Body>
CUresult WithTexture(CUtexObject handle, Body body) {
  return InDriver([&](Driver&) -> CUresult {
    const auto found = TheBook().textures.find(handle);
    return found != TheBook().textures.end() ? body(found->second) : CUDA_ERROR_INVALID_VALUE;
  });
}

}  // namespace
}  // namespace ops_debug::emulator

using namespace ops_debug::emulator;  // NOLINT(google-build-using-namespace): entry points only

extern "C" {

CUresult cuTexObjectCreate(CUtexObject* result, const CUDA_RESOURCE_DESC* resource,
                           const CUDA_TEXTURE_DESC* description,
                           const CUDA_RESOURCE_VIEW_DESC* view) {
  return InContext([&](Device& device, CUctx_st&) -> CUresult {
    if (result == nullptr || resource == nullptr || description == nullptr)
      return CUDA_ERROR_INVALID_VALUE;
    if (view != nullptr && view->format != CU_RES_VIEW_FORMAT_NONE) {
      Say("cuTexObjectCreate: resource views are not supported by this device");
      return CUDA_ERROR_NOT_SUPPORTED;
    }
    TextureObject texture;
    const CUresult status = MakeTexture(device, *resource, *description, &texture);
    if (status != CUDA_SUCCESS) return status;
    *result = AddTexture(std::move(texture));
    TextureRecord& record = TheBook().textures[*result];
    record = {.resource = *resource, .texture = *description, .has_view = view != nullptr};
    if (view != nullptr) record.view = *view;
    return CUDA_SUCCESS;
  });
}

CUresult cuTexObjectDestroy(CUtexObject handle) {
  return InDriver([&](Driver&) -> CUresult {
    if (TheBook().textures.erase(handle) == 0) return CUDA_ERROR_INVALID_VALUE;
    RemoveTexture(handle);
    return CUDA_SUCCESS;
  });
}

CUresult cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC* out, CUtexObject handle) {
  return WithTexture(handle, [&](const TextureRecord& record) -> CUresult {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *out = record.resource;
    return CUDA_SUCCESS;
  });
}

CUresult cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC* out, CUtexObject handle) {
  return WithTexture(handle, [&](const TextureRecord& record) -> CUresult {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *out = record.texture;
    return CUDA_SUCCESS;
  });
}

CUresult cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC* out, CUtexObject handle) {
  return WithTexture(handle, [&](const TextureRecord& record) -> CUresult {
    if (out == nullptr || !record.has_view) return CUDA_ERROR_INVALID_VALUE;
    *out = record.view;
    return CUDA_SUCCESS;
  });
}

CUresult cuSurfObjectCreate(CUsurfObject* result, const CUDA_RESOURCE_DESC* resource) {
  return InContext([&](Device&, CUctx_st&) -> CUresult {
    if (result == nullptr || resource == nullptr || resource->resType != CU_RESOURCE_TYPE_ARRAY)
      return CUDA_ERROR_INVALID_VALUE;
    const CUarray_st* array = FindArray(resource->res.array.hArray);
    // An array must have been made for surfaces.
    if (array == nullptr || (array->descriptor.Flags & CUDA_ARRAY3D_SURFACE_LDST) == 0)
      return CUDA_ERROR_INVALID_VALUE;
    *result = AddSurface(array->image);
    TheBook().surfaces[*result] = *resource;
    return CUDA_SUCCESS;
  });
}

CUresult cuSurfObjectDestroy(CUsurfObject handle) {
  return InDriver([&](Driver&) -> CUresult {
    if (TheBook().surfaces.erase(handle) == 0) return CUDA_ERROR_INVALID_VALUE;
    RemoveSurface(handle);
    return CUDA_SUCCESS;
  });
}

CUresult cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC* out, CUsurfObject handle) {
  return InDriver([&](Driver&) -> CUresult {
    const auto found = TheBook().surfaces.find(handle);
    if (out == nullptr || found == TheBook().surfaces.end()) return CUDA_ERROR_INVALID_VALUE;
    *out = found->second;
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
