// Arithmetic of launch shapes: "ceil(N/64),ceil(M/64)", "16x16", "rows*cols". Exact: '/' yields a
// fraction, and a result that is not a whole number is an error instead of a silent rounding.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace ops_debug::runner {

// Value of a name ("N", "A.size"), nullopt if there is none.
using NameLookup = std::function<std::optional<int64_t>(std::string_view)>;

// + - * / % ( ) whole numbers, names, ceil(x), floor(x), min(x,y), max(x,y). Error: what is wrong
// and where.
absl::StatusOr<int64_t> Evaluate(std::string_view text, const NameLookup& lookup);

// Numbers joined by 'x' ("16x16x1"), or expressions joined by commas. At least one item.
absl::StatusOr<std::vector<int64_t>> EvaluateList(std::string_view text, const NameLookup& lookup);

}  // namespace ops_debug::runner
