// How undefined bits pass through an instruction that computes on registers: the definedness of
// Valgrind's memcheck (Seward & Nethercote, "Using Valgrind to detect undefined value errors with
// bit-precision", USENIX ATC 2005), for PTX. A bit of a result is undefined if an undefined bit of
// a source could change it. Moves, bit operations, shifts, fields, additions and comparisons of
// integers are exact or nearly so; everything else follows the rule that any undefined bit of a
// source makes the whole result (element) undefined.
#pragma once

#include <cstdint>
#include <string_view>

namespace ops_debug::emulator {

enum class Flow : uint8_t {
  kAny,      // of the whole result
  kAnyHalf,  // of each 16 bits on their own (f16x2, s16x2...)
  kAnyWord,  // of each 32 bits (f32x2)
  // Bits that only change their places: the operation itself, applied to the undefined bits of its
  // data operands, says where they go. Undefined bits of a control operand make all undefined.
  kMove,
  kMoveByB,
  kMoveByC,
  kMoveByBC,
  kUnion,  // xor, not
  kAnd,
  kOr,
  kTable,  // lop3
  kLeft,   // everything from the lowest undefined bit on (neg)
  kAdd,
  kSubtract,
  kMultiply,       // low bits or all of a product
  kMultiplyAdd,    // mad.lo, mad.wide
  kChoose,         // slct by an integer's sign
  kBytesOfHalves,  // cvt.e4m3x2.f16x2: byte i from half i
  kHalvesOfBytes,  // cvt.f16x2.e4m3x2
  kBytesOfWords,   // cvt.e4m3x2.f32: high byte from a, low byte from b
  // Comparisons.
  kEqual,
  kUnsignedOrder,
  kSignedOrder,
  // With carry.
  kCarryAdd,
  kCarrySubtract,
};

// Of the lane operation with this key (isa/lane_ops.h).
Flow FlowOf(std::string_view key);

// Undefined bits of a two-operand integer operation; `u` are undefined bits, `v` values; only the
// low `bits` bits count.
uint64_t UndefinedSum(uint64_t va, uint64_t ua, uint64_t vb, uint64_t ub);
uint64_t UndefinedDifference(uint64_t va, uint64_t ua, uint64_t vb, uint64_t ub);
uint64_t UndefinedProduct(uint64_t va, uint64_t ua, uint64_t vb, uint64_t ub);
uint64_t UndefinedAnd(uint64_t va, uint64_t ua, uint64_t vb, uint64_t ub);
uint64_t UndefinedOr(uint64_t va, uint64_t ua, uint64_t vb, uint64_t ub);
// lop3 with `table`.
uint64_t UndefinedTable(const uint64_t v[3], const uint64_t u[3], uint64_t table);

}  // namespace ops_debug::emulator
