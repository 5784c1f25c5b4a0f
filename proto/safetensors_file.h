// The .safetensors container (huggingface/safetensors, README "Format"): the header's length in 8
// bytes, a JSON header with type, shape and place of each tensor, then the bytes of all.
#pragma once

#include "absl/status/statusor.h"
#include "proto/byte_range.h"
#include "proto/tensor_file.h"

namespace ops_debug::proto {

// Tensors point into `file` and come in the header's order. Beyond the format: type "C128", and
// metadata "dtype.NAME" = "tf32" for an F32 tensor; so WriteSafetensors keeps both.
absl::StatusOr<TensorSet> ReadSafetensors(const ByteRange& file);

}  // namespace ops_debug::proto
