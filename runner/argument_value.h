// The right side of `--arg name=value` for a buffer: "shape:1024x1024:f32:zeros", "random", "null".
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "runner/element.h"

namespace ops_debug::runner {

enum class Fill : uint8_t {
  kRandom,  // floats in [-1, 1), integers in [0, index_limit)
  kZeros,
  kOnes,
  kIota,  // 0, 1, 2, ...
  kNan,   // floats only
};

// What a buffer is to the operator; else it follows from const.
enum class BufferRole : uint8_t {
  kInput,
  kOutput,
  kInOut,
  kScratch,  // neither: room that the kernel works in
};

struct BufferValue {
  bool null = false;
  std::string shape;  // text for EvaluateList, empty: not given
  std::optional<ScalarType> scalar;
  std::optional<Fill> fill;
  std::optional<BufferRole> role;
};

absl::StatusOr<BufferValue> ParseBufferValue(std::string_view text);

}  // namespace ops_debug::runner
