// Room for the captured memory at its own addresses, in a process whose libraries, stack and heap
// lie somewhere already.
#pragma once

#include <string>
#include <vector>

#include "replayer/capture.h"

namespace ops_debug::replayer {

// Maps fresh zero pages at `ranges` (whole pages, disjoint). False with a reason, and nothing is
// mapped, if one of them is taken.
bool MapPages(const std::vector<AddressRange>& ranges, std::string* reason);

// Starts this program again, with the same arguments, in another layout of its address space; each
// time in the next one of a short list. Returns only if the list is at its end.
void TryAnotherLayout(char** arguments);

}  // namespace ops_debug::replayer
