// Types of PTX as the decoder needs them: width, class and the spelling in lane operation names.
#pragma once

#include <cstdint>
#include <string_view>

#include "ptx/ir.h"

namespace ops_debug::emulator {

enum class Type : uint8_t {
  kNone,
  kPred,
  kB8,
  kU8,
  kS8,
  kB16,
  kU16,
  kS16,
  kB32,
  kU32,
  kS32,
  kB64,
  kU64,
  kS64,
  kF16,
  kBf16,
  kF16x2,
  kBf16x2,
  kU16x2,
  kS16x2,
  kTf32,
  kF32,
  kF32x2,
  kF64,
  kE4m3x2,
  kE5m2x2,
};

Type ParseType(std::string_view modifier);  // ".u32" -> kU32; kNone if it is no type
uint8_t ShiftOf(Type type);                 // log2 of the bytes
std::string_view NameOf(Type type);         // "u32"
std::string_view BitsName(uint8_t shift);   // 2 -> "b32"
Type BitsType(uint8_t shift);               // 2 -> kB32
bool IsSigned(Type type);                   // signed integers
bool IsInteger(Type type);                  // b, u and s types
bool IsFloat(Type type);
bool IsHalf(Type type);  // f16, bf16 and their pairs
bool IsPair(Type type);
// Integer types with b read as u: "u32" for b32.
std::string_view SignedName(Type type);
// f16 for f16x2, bf16 for bf16x2, else the type.
Type ElementOf(Type type);

// The n-th modifier that names a type, kNone if there are fewer.
Type TypeModifier(const ptx::Instruction& instruction, size_t n);
// The last one.
Type LastType(const ptx::Instruction& instruction);

}  // namespace ops_debug::emulator
