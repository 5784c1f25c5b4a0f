// Textures and surfaces: what handles lead to, and how a texel is found and filtered.
//
// The driver makes an object (Add...) and gives its handle to the program; tex, tld4, txq, suld,
// sust, sured and suq instructions look it up. Source of the arithmetic: CUDA C++ Programming
// Guide, appendix "Texture Fetching".
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace ops_debug::emulator {

enum class TexelFormat : uint8_t { kU8, kU16, kU32, kS8, kS16, kS32, kF16, kF32 };
uint32_t TexelBytes(TexelFormat format);

// One level of an image in device memory, rows without gaps unless the memory is pitched.
struct Image {
  uint64_t address = 0;
  uint64_t pitch_bytes = 0, slice_bytes = 0;  // slice: of depth, or a layer
  uint32_t width = 0, height = 0, depth = 0;  // in texels; 0: dimension not there
  uint32_t layers = 0;                        // 0: not layered; 6 per cube
  uint32_t channels = 1;
  TexelFormat format = TexelFormat::kF32;
  uint32_t texel_bytes() const { return channels * TexelBytes(format); }
};

enum class AddressMode : uint8_t { kWrap, kClamp, kMirror, kBorder };

struct TextureObject {
  std::vector<Image> levels;
  std::array<AddressMode, 3> address_modes{};
  bool linear = false;         // filter between texels
  bool linear_levels = false;  // filter between levels
  bool normalized_coordinates = false;
  bool reads_float = false;  // integer texels become [0, 1] or [-1, 1]
  bool is_line = false;      // of plain memory: integer coordinates only, zero outside
  float level_bias = 0, lowest_level = 0, highest_level = 0;
  std::array<float, 4> border{};
};

// Handles are small numbers, as NVIDIA's are; 0 is none. Thread-safe.
uint64_t AddTexture(TextureObject object);
uint64_t AddSurface(Image image);
bool RemoveTexture(uint64_t handle);
bool RemoveSurface(uint64_t handle);
// nullptr if `handle` is none; what was found stays readable even if it is removed.
const TextureObject* FindTexture(uint64_t handle);
const Image* FindSurface(uint64_t handle);

enum class Geometry : uint8_t { k1D, k2D, k3D, k1DLayered, k2DLayered, kCube, kCubeLayered };

// What one lane asks of a texture.
struct TextureQuery {
  Geometry geometry = Geometry::k2D;
  bool integer_coordinates = false;
  std::array<float, 3> coordinates{};
  std::array<int32_t, 3> indices{};  // with integer_coordinates
  uint32_t layer = 0;
  float level = 0;
  bool has_level = false;  // from the instruction or its gradients
};

// Four channels as the instruction's 32-bit results: floats, or the integers of textures that are
// read as their elements.
std::array<uint32_t, 4> Sample(const TextureObject& texture, const TextureQuery& query);
// tld4: channel `component` of the four texels that bilinear filtering would use, in the order
// (left, lower), (right, lower), (right, upper), (left, upper).
std::array<uint32_t, 4> Gather(const TextureObject& texture, const TextureQuery& query,
                               uint32_t component);

}  // namespace ops_debug::emulator
