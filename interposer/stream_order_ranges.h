// Work whose ranges of memory the host knows when it submits it (copies, memsets, releases in
// stream order), compared with such work before it: a pair that touches the same bytes, of which
// one writes, and that no stream, event or wait orders, is a race, whenever the two really run. So
// neither of them needs the cells of the device's race checks for that (race_state.h), which see
// only what meets there, and not what a release and a new allocation have wiped out between.
#pragma once

#include <cstdint>
#include <span>

#include "interposer/stream_order.h"

namespace ops_debug::interposer {

// Reports what races with `operation` (whose record DescribeOperation finds under `token`). Does
// nothing unless instrumented kernels check races. Thread-safe.
void CompareRanges(std::span<const RangeAccess> accesses,
                   const shadow::SubmittedOperation& operation, uint64_t token);

// Bytes that both touch: the first of them and how many lie there in one piece. False: none.
bool FirstOverlap(const RangeAccess& a, const RangeAccess& b, uint64_t* address, uint64_t* bytes);

}  // namespace ops_debug::interposer
