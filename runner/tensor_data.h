// Contents of buffers, made and saved.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "runner/launch_plan.h"

namespace ops_debug::runner {

// The same bytes for the same seed, buffer number and shape on every machine. Random floats lie in
// [-1, 1), random integers in [0, index_limit), so that an integer input may serve as an index into
// any buffer of the launch; random bytes are data and take any value that is not negative.
std::vector<std::byte> MakeContents(const ArgumentPlan& buffer, uint64_t buffer_number,
                                    uint64_t seed, uint64_t index_limit);

// The smallest element count of the plan's buffers, at most 256.
uint64_t IndexLimit(const LaunchPlan& plan);

// NumPy's format 1.0. bf16 has no NumPy type and is saved as uint16; vector types get a last
// dimension of their lanes.
absl::Status SaveNpy(const std::string& path, const ArgumentPlan& buffer,
                     const std::vector<std::byte>& contents);

}  // namespace ops_debug::runner
