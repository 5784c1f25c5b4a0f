// Items separated by ':' in any order; "shape" makes the item behind it a shape, and an item that
// starts with a digit is one without being told.
#include "runner/argument_value.h"

#include <cctype>
#include <vector>

#include "absl/status/status.h"
#include "runner/text.h"

namespace ops_debug::runner {
namespace {

std::optional<Fill> FillFromName(std::string_view name) {
  if (name == "random") return Fill::kRandom;
  if (name == "zeros") return Fill::kZeros;
  if (name == "ones") return Fill::kOnes;
  if (name == "iota") return Fill::kIota;
  if (name == "nan") return Fill::kNan;
  return std::nullopt;
}

std::optional<BufferRole> RoleFromName(std::string_view name) {
  if (name == "input") return BufferRole::kInput;
  if (name == "output") return BufferRole::kOutput;
  if (name == "inout") return BufferRole::kInOut;
  if (name == "scratch") return BufferRole::kScratch;
  return std::nullopt;
}

}  // namespace

absl::StatusOr<BufferValue> ParseBufferValue(std::string_view text) {
  BufferValue value;
  bool shape_next = false;
  for (std::string_view item : StrSplit(text, ":")) {
    if (shape_next) {
      value.shape = std::string(item);
      shape_next = false;
    } else if (item == "shape") {
      shape_next = true;
    } else if (item == "null") {
      value.null = true;
    } else if (std::optional<Fill> fill = FillFromName(item)) {
      value.fill = fill;
    } else if (std::optional<BufferRole> role = RoleFromName(item)) {
      value.role = role;
    } else if (std::optional<ScalarType> scalar = ScalarTypeFromName(item)) {
      value.scalar = scalar;
    } else if (!item.empty() && std::isdigit(static_cast<unsigned char>(item[0]))) {
      value.shape = std::string(item);
    } else {
      return absl::InvalidArgumentError(
          StrCat("'", item, "' is no shape (shape:64x64), element type (f32, bf16, s32, u8, ...), ",
                 "content (random, zeros, ones, iota, nan), role (input, output, inout, scratch) "
                 "or null"));
    }
  }
  if (shape_next || (value.shape.empty() && text.find("shape:") != std::string_view::npos)) {
    return absl::InvalidArgumentError("'shape:' needs a shape behind it, for example shape:64x64");
  }
  return value;
}

}  // namespace ops_debug::runner
