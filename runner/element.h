// Element types of kernel parameters: what a pointer points to or what a scalar is, read from the
// spelling in a demangled name ("float const*") or in the source ("const float* __restrict__").
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ops_debug::runner {

enum class ScalarType : uint8_t {
  kBool,
  kS8,
  kU8,
  kS16,
  kU16,
  kS32,
  kU32,
  kS64,
  kU64,
  kF16,
  kBf16,
  kF32,
  kF64,
};

uint32_t SizeBytes(ScalarType type);
bool IsFloating(ScalarType type);
std::string_view Name(ScalarType type);                               // "f32"
std::optional<ScalarType> ScalarTypeFromName(std::string_view name);  // "f32", "bf16", "u8"

// float4 is {kF32, 4 lanes, 16 bytes}; float3 has 3 lanes and 12 bytes.
struct Element {
  ScalarType scalar = ScalarType::kF32;
  uint32_t lanes = 1;
  uint32_t SizeBytes() const { return runner::SizeBytes(scalar) * lanes; }
  std::string ToString() const;  // "f32x4"
};

struct ParameterType {
  enum class Kind : uint8_t {
    kScalar,          // `element`
    kPointer,         // to `element`
    kUntypedPointer,  // void*, pointer to a struct or to a pointer: somebody must say what is
                      // behind it
    kOpaque,          // a struct by value or a type that we do not know
  };
  Kind kind = Kind::kOpaque;
  bool pointee_const = false;
  Element element;
  std::string text;  // as it was spelled

  bool IsPointer() const { return kind == Kind::kPointer || kind == Kind::kUntypedPointer; }
};

// `text` without a parameter name: "float const*", "const float *__restrict__", "unsigned",
// "ns::Params".
ParameterType ParseType(std::string_view text);

}  // namespace ops_debug::runner
