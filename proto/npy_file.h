// One array in NumPy's .npy format, versions 1 to 3 (numpy.lib.format): a magic, a Python dict as
// text, the elements.
#pragma once

#include "absl/status/statusor.h"
#include "proto/byte_range.h"
#include "proto/tensor.h"

namespace ops_debug::proto {

bool LooksLikeNpy(const ByteRange& file);

// The tensor points into `file`, but for arrays of the other byte order, which are copied. Its name
// is empty.
absl::StatusOr<Tensor> ReadNpy(const ByteRange& file);

}  // namespace ops_debug::proto
