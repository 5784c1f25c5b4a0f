// One comparison as JSON; the fields are listed in README.md.
#pragma once

#include <nlohmann/json.hpp>

#include "analysis/compare/comparison.h"

namespace ops_debug::analysis {

// Infinities and NaN are the strings "inf", "-inf", "nan", since JSON has no word for them. At most
// kMostChannelsInJson entries per axis: neighbours are added up (max_abs: the largest). Bytes of
// names that are not UTF-8 become U+FFFD where it is written (error_handler_t::replace).
nlohmann::ordered_json ComparisonJson(const Comparison& comparison);
constexpr size_t kMostChannelsInJson = 512;

// "pass", "fail", "shape-mismatch", "dtype-mismatch", "nothing-compared".
const char* OutcomeName(Outcome outcome);

}  // namespace ops_debug::analysis
