// The order in which people count: "layer2" before "layer10".
#pragma once

#include <string_view>

namespace ops_debug::proto {

// A strict order over all strings: runs of digits compare by value, the rest byte by byte; "01" and
// "1" by the bytes in the end.
bool NaturallyBefore(std::string_view a, std::string_view b);

}  // namespace ops_debug::proto
