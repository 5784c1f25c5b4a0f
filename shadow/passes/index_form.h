// An address as a sum of what a thread's place in the grid adds to it: plain data that own_index.h
// reads from a kernel's text and own_proof.h (shadow/host) evaluates with the arguments of a
// launch.
//
//   address = base + start + sum(coefficient[d] * place[d]) + any multiple of each step
//
// The places are %tid and %ctaid. Coefficients, start and steps are the same for all threads of a
// launch: sums of products of constants, %ntid, %nctaid and parameters of the kernel.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace ops_debug::shadow {

// What a product is made of: kBlockSizeX + axis, kGridSizeX + axis, or a parameter of the kernel.
constexpr uint32_t kBlockSizeX = 0, kGridSizeX = 3;
constexpr uint32_t kParameter32 = 0x40000000;  // + its byte offset: a signed number of 32 bits
constexpr uint32_t kParameter64 = 0x80000000;  // + its byte offset: one of 64 bits

struct UniformTerm {
  int64_t factor = 0;
  std::vector<uint32_t> of;  // sorted; empty: a constant
  friend bool operator==(const UniformTerm&, const UniformTerm&) = default;
};
// Sorted by `of`, without factors of 0; empty: 0.
using UniformSum = std::vector<UniformTerm>;

UniformSum ConstantSum(int64_t number);
UniformSum AtomSum(uint32_t atom);
UniformSum AddSums(const UniformSum& a, const UniformSum& b);
UniformSum ScaleSum(const UniformSum& sum, int64_t by);
UniformSum MultiplySums(const UniformSum& a, const UniformSum& b);
// The number, if the sum is one.
bool IsConstantSum(const UniformSum& sum, int64_t* number);

// Numbers of a thread, by index.
constexpr uint32_t kThreadX = 0;  // and y, z
constexpr uint32_t kBlockX = 3;   // and y, z
constexpr uint32_t kWarpX = 6;    // %tid.x / 32
constexpr uint32_t kPlaces = 7;
// Bits of `pinned`: the indexes above, and this: %tid.x % 32.
constexpr uint32_t kLaneX = 7;

// A loop's counter that stays below a bound: sum(coefficient * %tid) + start + multiples of steps,
// none of them negative.
struct BoundedCounter {
  std::array<UniformSum, 3> threads;
  UniformSum start;
  std::vector<UniformSum> steps;
  UniformSum below;
  bool is_unsigned =
      false;  // it was compared as such, so it is not negative whatever the rest says
  friend bool operator==(const BoundedCounter&, const BoundedCounter&) = default;
};

struct IndexForm {
  std::array<UniformSum, kPlaces> places;
  UniformSum start;
  std::vector<UniformSum> steps;
  uint32_t bytes = 0;  // that are accessed there
  // Some of it was computed in 32 bits and then multiplied by this at least: what spans more than
  // 2^31 times as much may have wrapped around.
  int64_t narrow = 0;
  // Only threads get there whose number of this bit is pin_values[bit].
  uint32_t pinned = 0;
  std::array<UniformSum, kPlaces + 1> pin_values;
  // One more term, if `counter_factor` is not empty.
  UniformSum counter_factor;
  BoundedCounter counter;

  friend bool operator==(const IndexForm&, const IndexForm&) = default;
};

}  // namespace ops_debug::shadow
