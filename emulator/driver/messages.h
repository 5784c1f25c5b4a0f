// The one voice of the CPU device: a line on stderr, prefixed "ops-debug emulator: ", at most once
// per text.
//
// A GPU driver stays silent and returns a number; here the number alone would hide what the
// emulator lacks, so an unsupported call, a refused image and a faulting kernel are named.
#pragma once

#include <string_view>

namespace ops_debug::emulator {

// Never throws. Lines that were said before in this process are dropped.
void Say(std::string_view message) noexcept;

}  // namespace ops_debug::emulator
