// The filter of textures: texels with weights become one.
#pragma once

#include <array>
#include <cstdint>

#include "emulator/texture.h"

namespace ops_debug::emulator {

float HalfToFloat(uint16_t bits);

// The texel that a border colour stands for, one channel, as it would lie in memory (integers
// extended to 32 bits).
uint32_t ToFormat(const TextureObject& texture, float value);

// The weighted sum of texels as an H200 computes it, four channels of one format.
class Blend {
 public:
  explicit Blend(TexelFormat format) : format_(format) {}
  // `weight` is not 0; all together make 256.
  void Add(const std::array<uint32_t, 4>& texel, uint32_t weight);
  std::array<uint32_t, 4> Result() const;

 private:
  uint32_t FloatResult(uint32_t channel) const;
  uint32_t IntegerResult(uint32_t channel) const;

  static constexpr uint32_t kMost = 16;  // corners of a box on two levels
  TexelFormat format_;
  uint32_t count_ = 0;
  std::array<std::array<uint32_t, 4>, kMost> texels_{};
  std::array<uint32_t, kMost> weights_{};
};

}  // namespace ops_debug::emulator
