// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014): the
// sequence that a seed stands for is the same on every machine.
#pragma once

#include <cstdint>

namespace ops_debug::emulator {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    uint64_t z = (state_ += 0x9e37'79b9'7f4a'7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58'476d'1ce4'e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d0'49bb'1331'11ebull;
    return z ^ (z >> 31);
  }
  // 0 <= result < bound; bound > 0.
  uint64_t Below(uint64_t bound) {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(Next()) * bound) >> 64);
  }
  // True in `numerator` of 256 cases.
  bool Chance(uint32_t numerator) { return (Next() & 255) < numerator; }
  // How often something of probability 1 / mean is tried until it happens: 1 and more.
  uint64_t Geometric(uint32_t mean) {
    uint64_t count = 1;
    while (count < 64ull * mean && Below(mean) != 0) ++count;
    return count;
  }

 private:
  uint64_t state_;
};

}  // namespace ops_debug::emulator
