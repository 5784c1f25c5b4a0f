// The list of element types, once.
#include "emulator/matrix_format.h"

#include <charconv>

namespace ops_debug::emulator {
namespace {

struct Row {
  MatrixType type;
  std::string_view name;
  uint32_t bits;
};
constexpr Row kRows[] = {
    {MatrixType::kNone, "", 32},      {MatrixType::kF16, ".f16", 16},
    {MatrixType::kBf16, ".bf16", 16}, {MatrixType::kTf32, ".tf32", 32},
    {MatrixType::kE4m3, ".e4m3", 8},  {MatrixType::kE5m2, ".e5m2", 8},
    {MatrixType::kF32, ".f32", 32},   {MatrixType::kF64, ".f64", 64},
    {MatrixType::kS8, ".s8", 8},      {MatrixType::kU8, ".u8", 8},
    {MatrixType::kS4, ".s4", 4},      {MatrixType::kU4, ".u4", 4},
    {MatrixType::kB1, ".b1", 1},      {MatrixType::kS32, ".s32", 32},
};

DecodeFn DecoderOf(MatrixType type) {
  const MatrixKernels& kernels = SelectMatrixKernels();
  switch (type) {
    case MatrixType::kF16:
      return kernels.decode_f16;
    case MatrixType::kBf16:
      return kernels.decode_bf16;
    case MatrixType::kTf32:
      return kernels.decode_tf32;
    case MatrixType::kE4m3:
      return kernels.decode_e4m3;
    case MatrixType::kE5m2:
      return kernels.decode_e5m2;
    default:
      return kernels.decode_f32;
  }
}

}  // namespace

MatrixType ParseMatrixType(std::string_view modifier) {
  for (const Row& row : kRows) {
    if (row.type != MatrixType::kNone && row.name == modifier) return row.type;
  }
  return MatrixType::kNone;
}

uint32_t BitsOf(MatrixType type) { return kRows[static_cast<size_t>(type)].bits; }

std::vector<MatrixType> MatrixTypes(const ptx::Instruction& in) {
  std::vector<MatrixType> types;
  for (std::string_view modifier : in.modifiers) {
    const MatrixType type = ParseMatrixType(modifier);
    if (type != MatrixType::kNone) types.push_back(type);
  }
  return types;
}

bool IsNarrowFloat(MatrixType type) {
  return type == MatrixType::kF16 || type == MatrixType::kBf16 || type == MatrixType::kTf32 ||
         type == MatrixType::kE4m3 || type == MatrixType::kE5m2;
}
bool IsNarrowInteger(MatrixType type) {
  return type == MatrixType::kS8 || type == MatrixType::kU8 || type == MatrixType::kS4 ||
         type == MatrixType::kU4;
}

bool ParseMatrixShape(std::string_view modifier, MatrixShape* shape) {
  const char* at = modifier.data();
  const char* const end = at + modifier.size();
  if (at == end || *at != '.') return false;
  ++at;
  const auto field = [&](char letter, uint32_t* out) {
    if (at == end || *at != letter) return false;
    const auto [next, error] = std::from_chars(at + 1, end, *out);
    at = next;
    return error == std::errc() && *out != 0;
  };
  MatrixShape parsed;
  if (!field('m', &parsed.m) || !field('n', &parsed.n) || !field('k', &parsed.k) || at != end)
    return false;
  *shape = parsed;
  return true;
}

MatrixShape ShapeOf(const ptx::Instruction& in) {
  MatrixShape shape;
  for (std::string_view modifier : in.modifiers) {
    if (ParseMatrixShape(modifier, &shape)) break;
  }
  return shape;
}

void FloatMatrix::Decode(MatrixType type, const std::vector<uint32_t>& bits) {
  value.resize(bits.size());
  exponent.resize(bits.size());
  special = DecoderOf(type)(bits.data(), value.data(), exponent.data(), bits.size());
}

void FloatMatrix::SetZero(size_t count) {
  value.assign(count, 0.0);
  exponent.assign(count, kNoExponent);
  special = false;
}

void FloatMatrix::Negate() {
  for (double& x : value) x = -x;
}

void DecodeIntegers(MatrixType type, const std::vector<uint32_t>& bits, std::vector<int32_t>* out) {
  out->resize(bits.size());
  const uint32_t unused = 32 - BitsOf(type);
  const bool is_signed = type == MatrixType::kS8 || type == MatrixType::kS4;
  for (size_t i = 0; i < bits.size(); ++i) {
    (*out)[i] = is_signed ? static_cast<int32_t>(bits[i] << unused) >> unused
                          : static_cast<int32_t>(bits[i]);
  }
}

}  // namespace ops_debug::emulator
