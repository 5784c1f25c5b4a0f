// The tensor map: 128 bytes that describe a tensor in global memory to the tensor copy
// instructions. cuTensorMapEncode* writes it (driver/tensor_map.cc), tensormap.replace changes
// fields of it in memory, and the copies read it. The layout is this device's own: PTX calls it
// opaque.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace ops_debug::emulator {

struct TensorMap {
  static constexpr uint32_t kMagic = 0x70614d54;  // "TMap"
  static constexpr uint32_t kMaxRank = 5;
  static constexpr uint64_t kBoxLimitBytes = 228 * 1024;  // shared memory of a multiprocessor

  enum class Mode : uint8_t { kTiled, kIm2col, kIm2colWide };
  // Values as in CUtensorMapDataType and in tensormap.replace .elemtype, but for the order of the
  // last floating-point types (see ReplacedType in decode_tensor.cc).
  enum class Type : uint8_t {
    kU8,
    kU16,
    kU32,
    kS32,
    kU64,
    kS64,
    kF16,
    kF32,
    kF64,
    kBf16,
    kF32Ftz,
    kTf32,
    kTf32Ftz,
  };
  enum class Interleave : uint8_t { kNone, k16B, k32B };
  enum class Swizzle : uint8_t { kNone, k32B, k64B, k128B };
  enum class Fill : uint8_t { kZero, kNan };

  uint32_t magic = kMagic;
  Mode mode = Mode::kTiled;
  uint8_t rank = 1;
  Type type = Type::kU8;
  Interleave interleave = Interleave::kNone;
  Swizzle swizzle = Swizzle::kNone;
  Fill fill = Fill::kZero;
  uint16_t box[kMaxRank] = {};  // elements to traverse; tiled
  uint64_t address = 0;
  uint64_t stride_bytes[kMaxRank - 1] = {};  // of dimension 1 and up
  uint32_t last_index[kMaxRank] = {};        // size - 1: sizes reach 2^32
  uint8_t element_stride[kMaxRank] = {1, 1, 1, 1, 1};
  uint8_t unused = 0;
  // im2col: spatial dimensions W, H, D.
  int16_t lower_corner[3] = {}, upper_corner[3] = {};
  uint16_t channels_per_pixel = 0, pixels_per_column = 0;
  uint8_t padding[22] = {};

  uint32_t ElementBytes() const {
    constexpr uint8_t kBytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
    return kBytes[static_cast<uint8_t>(type)];
  }
  bool IsFloat() const { return type >= Type::kF16; }
};
static_assert(sizeof(TensorMap) == 128 && std::is_trivially_copyable_v<TensorMap>);

}  // namespace ops_debug::emulator
