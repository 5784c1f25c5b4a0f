// The library that the profiler's function lives in.
#include "torch_like.h"

namespace c10 {
namespace {
int64_t reported = 0;
}

void reportMemoryUsageToProfiler(void*, int64_t change, size_t, size_t, Device) {
  reported += change;
}
int64_t ReportedBytes() { return reported; }

}  // namespace c10
