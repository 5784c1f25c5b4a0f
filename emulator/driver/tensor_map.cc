// Tensor maps: cuTensorMapEncodeTiled, Im2col and Im2colWide check what cuda.h asks for and write
// the description that tensor copies read (emulator/tensor_map.h). What is an error was tried on an
// H200: some requirements of the documentation are not checked there either.
#include "emulator/tensor_map.h"

#include <cstring>
#include <span>

#include "emulator/driver/state.h"

namespace ops_debug::emulator {
namespace {

constexpr uint64_t kMaxSize = 1ull << 32;
constexpr uint64_t kStrideLimitBytes = 1ull << 40;
constexpr uint32_t kMaxBox = 256;
constexpr uint32_t kMaxElementStride = 8;
constexpr uint32_t kMaxPixels = 1024;
constexpr uint32_t kUnitBytes = 16;

// What all kinds of tensor maps have in common.
struct TensorShape {
  CUtensorMapDataType type;
  uint32_t rank;
  const void* address;
  const cuuint64_t* sizes;
  const cuuint64_t* strides;
  const cuuint32_t* element_strides;
  CUtensorMapInterleave interleave;
  CUtensorMapSwizzle swizzle;
  CUtensorMapL2promotion l2_promotion;
  CUtensorMapFloatOOBfill fill;
};

// Dimension 0 of the box in bytes must suit the 16-byte units of shared memory and the swizzle.
bool IsInnerValid(const TensorMap& map, uint32_t elements) {
  const uint32_t bytes = elements * map.ElementBytes();
  if (bytes % kUnitBytes != 0) return false;
  if (map.interleave != TensorMap::Interleave::kNone || map.swizzle == TensorMap::Swizzle::kNone)
    return true;
  return bytes <= kUnitBytes << static_cast<uint32_t>(map.swizzle);
}

bool DescribeShape(const TensorShape& shape, TensorMap* map) {
  if (shape.sizes == nullptr || shape.element_strides == nullptr ||
      (shape.strides == nullptr && shape.rank > 1) || shape.rank == 0 ||
      shape.rank > TensorMap::kMaxRank)
    return false;
  // Packed types of 4 and 6 bits and the other swizzles are of later devices.
  if (unsigned(shape.type) > CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ ||
      unsigned(shape.interleave) > CU_TENSOR_MAP_INTERLEAVE_32B ||
      unsigned(shape.swizzle) > CU_TENSOR_MAP_SWIZZLE_128B ||
      unsigned(shape.l2_promotion) > CU_TENSOR_MAP_L2_PROMOTION_L2_256B ||
      unsigned(shape.fill) > CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA)
    return false;
  map->rank = uint8_t(shape.rank);
  map->type = static_cast<TensorMap::Type>(shape.type);
  map->interleave = static_cast<TensorMap::Interleave>(shape.interleave);
  map->swizzle = static_cast<TensorMap::Swizzle>(shape.swizzle);
  map->fill = static_cast<TensorMap::Fill>(shape.fill);
  map->address = reinterpret_cast<uint64_t>(shape.address);
  if (map->fill == TensorMap::Fill::kNan && !map->IsFloat()) return false;
  const bool interleaved = map->interleave != TensorMap::Interleave::kNone;
  if (interleaved && shape.rank < 3) return false;
  const uint32_t alignment = map->interleave == TensorMap::Interleave::k32B ? 32 : kUnitBytes;
  if (map->address % alignment != 0) return false;
  for (uint32_t d = 0; d < shape.rank; ++d) {
    if (shape.sizes[d] == 0 || shape.sizes[d] > kMaxSize) return false;
    map->last_index[d] = uint32_t(shape.sizes[d] - 1);
    if (shape.element_strides[d] == 0 || shape.element_strides[d] > kMaxElementStride) return false;
    map->element_stride[d] = uint8_t(shape.element_strides[d]);
    if (d == 0) continue;
    const uint64_t stride = shape.strides[d - 1];
    if (stride % alignment != 0 || stride >= kStrideLimitBytes) return false;
    map->stride_bytes[d - 1] = stride;
  }
  return true;
}

CUresult Finish(CUtensorMap* out, const TensorMap& map) {
  static_assert(sizeof(CUtensorMap) == sizeof(TensorMap));
  std::memcpy(out->opaque, &map, sizeof(map));
  return CUDA_SUCCESS;
}

// body(TensorMap&), which says whether the arguments are valid.
template <class Body>
CUresult Encode(CUtensorMap* out, const TensorShape& shape, Body body) {
  return InContext([&](Device& device, CUctx_st&) -> CUresult {
    if (device.model.compute_major < 9) return CUDA_ERROR_NOT_SUPPORTED;
    TensorMap map;
    if (out == nullptr || !DescribeShape(shape, &map) || !body(map))
      return CUDA_ERROR_INVALID_VALUE;
    return Finish(out, map);
  });
}

// Channels and pixels of the im2col modes.
bool DescribePixels(uint32_t channels, uint32_t pixels, TensorMap* map) {
  if (map->rank < 3 || channels == 0 || channels > kMaxBox || pixels == 0 || pixels > kMaxPixels)
    return false;
  map->channels_per_pixel = uint16_t(channels);
  map->pixels_per_column = uint16_t(pixels);
  return IsInnerValid(*map, channels);
}

// The corners of the bounding box along spatial dimensions W, H, D; the more of them, the fewer
// bits each has.
bool DescribeCorners(std::span<const int> lower, std::span<const int> upper, TensorMap* map) {
  constexpr int kLimits[] = {32768, 128, 16};
  const int limit = kLimits[map->rank - 3u];
  for (size_t i = 0; i < lower.size(); ++i) {
    if (lower[i] < -limit || lower[i] >= limit || upper[i] < -limit || upper[i] >= limit)
      return false;
    if (int64_t{map->last_index[i + 1]} + upper[i] < lower[i]) return false;
    map->lower_corner[i] = int16_t(lower[i]);
    map->upper_corner[i] = int16_t(upper[i]);
  }
  return true;
}

}  // namespace
}  // namespace ops_debug::emulator

using namespace ops_debug::emulator;  // NOLINT(google-build-using-namespace): entry points only

extern "C" {

CUresult cuTensorMapEncodeTiled(CUtensorMap* out, CUtensorMapDataType type, cuuint32_t rank,
                                void* address, const cuuint64_t* sizes, const cuuint64_t* strides,
                                const cuuint32_t* box, const cuuint32_t* element_strides,
                                CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion l2_promotion, CUtensorMapFloatOOBfill fill) {
  const TensorShape shape{type,       rank,    address,      sizes, strides, element_strides,
                          interleave, swizzle, l2_promotion, fill};
  return Encode(out, shape, [&](TensorMap& map) {
    map.mode = TensorMap::Mode::kTiled;
    if (box == nullptr) return false;
    uint64_t bytes = map.ElementBytes();
    for (uint32_t d = 0; d < rank; ++d) {
      if (box[d] == 0 || box[d] > kMaxBox) return false;
      map.box[d] = uint16_t(box[d]);
      bytes *= box[d];
    }
    return IsInnerValid(map, box[0]) && bytes <= TensorMap::kBoxLimitBytes;
  });
}

CUresult cuTensorMapEncodeIm2col(CUtensorMap* out, CUtensorMapDataType type, cuuint32_t rank,
                                 void* address, const cuuint64_t* sizes, const cuuint64_t* strides,
                                 const int* lower, const int* upper, cuuint32_t channels,
                                 cuuint32_t pixels, const cuuint32_t* element_strides,
                                 CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                 CUtensorMapL2promotion l2_promotion,
                                 CUtensorMapFloatOOBfill fill) {
  const TensorShape shape{type,       rank,    address,      sizes, strides, element_strides,
                          interleave, swizzle, l2_promotion, fill};
  return Encode(out, shape, [&](TensorMap& map) {
    map.mode = TensorMap::Mode::kIm2col;
    if (lower == nullptr || upper == nullptr || rank < 3) return false;
    const size_t spatial = rank - 2;
    return DescribePixels(channels, pixels, &map) &&
           DescribeCorners({lower, spatial}, {upper, spatial}, &map);
  });
}

CUresult cuTensorMapEncodeIm2colWide(
    CUtensorMap* out, CUtensorMapDataType type, cuuint32_t rank, void* address,
    const cuuint64_t* sizes, const cuuint64_t* strides, int lower, int upper, cuuint32_t channels,
    cuuint32_t pixels, const cuuint32_t* element_strides, CUtensorMapInterleave interleave,
    CUtensorMapIm2ColWideMode mode, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2_promotion,
    CUtensorMapFloatOOBfill fill) {
  const TensorShape shape{type,       rank,    address,      sizes, strides, element_strides,
                          interleave, swizzle, l2_promotion, fill};
  // The instructions that use such maps are of later devices; encoding one is possible here too.
  return Encode(out, shape, [&](TensorMap& map) {
    map.mode = TensorMap::Mode::kIm2colWide;
    if (unsigned(mode) > CU_TENSOR_MAP_IM2COL_WIDE_MODE_W128) return false;
    if (map.swizzle < TensorMap::Swizzle::k64B) return false;
    map.lower_corner[0] = int16_t(lower);
    map.upper_corner[0] = int16_t(upper);
    return lower == map.lower_corner[0] && upper == map.upper_corner[0] &&
           int64_t{map.last_index[1]} + upper >= lower && DescribePixels(channels, pixels, &map);
  });
}

CUresult cuTensorMapReplaceAddress(CUtensorMap* out, void* address) {
  return InContext([&](Device&, CUctx_st&) -> CUresult {
    TensorMap map;
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::memcpy(&map, out->opaque, sizeof(map));
    map.address = reinterpret_cast<uint64_t>(address);
    const uint32_t alignment = map.interleave == TensorMap::Interleave::k32B ? 32 : kUnitBytes;
    if (map.magic != TensorMap::kMagic || address == nullptr || map.address % alignment != 0)
      return CUDA_ERROR_INVALID_VALUE;
    return Finish(out, map);
  });
}

}  // extern "C"
