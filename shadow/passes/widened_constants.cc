// Found in the text, not at run time: every execution has the same constant.
#include "shadow/passes/widened_constants.h"

#include <bit>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <string>
#include <string_view>
#include <variant>

#include "shadow/passes/numeric_instruction.h"
#include "shadow/passes/numeric_site.h"

namespace ops_debug::shadow {
namespace {

constexpr size_t kMostDigits = 6;  // of a constant that a person wrote

size_t SignificantDigits(std::string_view text) {
  size_t digits = 0, zeros = 0;
  for (const char c : text) {
    if (c == 'e') break;
    if (c < '0' || c > '9') continue;
    if (c == '0') {
      if (digits != 0) zeros++;
    } else {
      digits += 1 + zeros;
      zeros = 0;
    }
  }
  return digits;
}

// Where a double of this function comes from a literal, its value.
const ptx::Operand* LiteralOf(const ptx::Instruction& instruction) {
  if (instruction.operands.size() < 2) return nullptr;
  for (const ptx::Operand& operand : instruction.operands.subspan(1)) {
    if (operand.kind == ptx::Operand::Kind::kImmediate && !operand.is_integer) return &operand;
  }
  return nullptr;
}

}  // namespace

bool IsWidenedFloat(double value) {
  const auto narrow = static_cast<float>(value);
  if (!std::isfinite(narrow) || value == 0 || static_cast<double>(narrow) != value) return false;
  char text[64];
  const auto written = std::to_chars(text, text + sizeof text - 1, narrow);
  if (written.ec != std::errc()) return false;
  *written.ptr = '\0';
  if (SignificantDigits({text, static_cast<size_t>(written.ptr - text)}) > kMostDigits)
    return false;
  return std::strtod(text, nullptr) != value;
}

std::vector<NumericSite> FindWidenedConstants(const ptx::Function& function,
                                              const SourceFrames& frames) {
  std::vector<NumericSite> sites;
  for (const ptx::Statement& statement : function.body) {
    const auto* instruction = std::get_if<ptx::Instruction>(&statement);
    if (instruction == nullptr || instruction->modifiers.empty()) continue;
    const bool converts = instruction->Is("cvt") && instruction->Has(".f64") &&
                          instruction->modifiers.back() == ".f32";
    if (!converts && (instruction->modifiers.back() != ".f64" || instruction->Is("cvt"))) continue;
    const ptx::Operand* literal = LiteralOf(*instruction);
    if (literal == nullptr) continue;
    const auto bits = LiteralBits(*literal, kTypeF64);
    if (!bits || !IsWidenedFloat(std::bit_cast<double>(*bits))) continue;
    NumericSite site = MakeNumericSite(function, *instruction, frames);
    site.operand_types = {"f32"};
    site.result_type = "f64";
    site.widened_bits = *bits;
    site.constant_bits = std::bit_cast<uint32_t>(static_cast<float>(std::bit_cast<double>(*bits)));
    sites.push_back(std::move(site));
  }
  return sites;
}

}  // namespace ops_debug::shadow
