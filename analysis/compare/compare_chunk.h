// What the kernels of Compare work on: a chunk of consecutive elements (row-major order) of two
// tensors, the sums over it, and the sums per column that chunks above each other share. Plain data
// only: compare_kernel.inc is compiled for several instruction sets, and an inline function here
// would be merged across them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ops_debug::analysis {

constexpr int64_t kChunk = 1024;  // elements; two chunks and the column sums fit the first cache

// One table counts both histograms: its key is ULP bucket * kDecadeKeys + decade bucket. Four
// tables, used in turn, so that equal keys in a row do not wait for each other.
constexpr int kDecadeKeys = 32;
constexpr int kUlpKeys = 34;
constexpr int kKeys = kDecadeKeys * kUlpKeys;
constexpr int kKeyTables = 4;

struct ChunkLimits {
  double rtol = 0, atol = 0;
  // An element whose reference is below small_value fails in earnest above small_limit only.
  double small_value = 0, small_limit = 0;
};

// What an element must exceed to be looked at one by one (compare_worst.h).
struct ChunkFilters {
  double abs_error = 0;  // the last of the worst lists so far
  float rel_error = 0;
  double rtol = 0;  // the smallest that passes so far
};

// Of finite elements, `d` = candidate - reference.
struct ChunkSums {
  double d = 0, abs_d = 0, dd = 0, r = 0, rr = 0, dr = 0, c = 0, cc = 0;
  double max_abs = 0;
  double min_candidate = 0, max_candidate = 0, min_reference = 0, max_reference = 0;
  double over = 0;            // max of |d| - rtol |r|, not below 0: the smallest atol that passes
  double zero_reference = 0;  // max of |d| where r = 0
  int64_t finite = 0;
  int64_t failed = 0;    // not finite ones too
  int64_t excused = 0;   // of them, by the small-value rule
  int64_t equal = 0;     // exact kernel only; the fast ones leave it in the histogram
  int64_t mismatch = 0;  // fail whatever the tolerance: not finite on one side, or differently
  int64_t nan_candidate = 0, nan_reference = 0, nan_both = 0;
  int64_t inf_candidate = 0, inf_reference = 0, inf_both = 0;
};

// One entry per element of the chunk, added to; null pointers: not wanted.
struct ColumnSums {
  double* squared_error = nullptr;
  double* squared_reference = nullptr;
  double* max_abs = nullptr;
  uint32_t* failed = nullptr;
};

struct ChunkTask {
  const std::byte* candidate = nullptr;
  const std::byte* reference = nullptr;
  int64_t count = 0;           // at most kChunk
  int64_t prefetch_bytes = 0;  // where the next chunk begins, from here; 0: unknown
  float* wide[2] = {};         // kChunk floats each: elements of 16-bit types as float32
  uint32_t* keys = nullptr;    // kKeyTables tables of kKeys counters, added to
  bool look = false;           // out: some element exceeds a filter
};

// False, and nothing added: some element is not finite or nearly overflows; the exact kernel must
// take the chunk. Else `sums` (all 0 before) is filled, task->look set.
using ChunkKernel = bool (*)(const ChunkLimits&, const ChunkFilters&, ChunkTask*, const ColumnSums&,
                             ChunkSums*);

struct ChunkKernels {
  ChunkKernel float32 = nullptr, tf32 = nullptr, float16 = nullptr, bfloat16 = nullptr;
};
// For the instruction sets named; the last runs everywhere. Empty members: not built.
extern const ChunkKernels kChunkKernelsAvx512, kChunkKernelsAvx2, kChunkKernelsPortable;

}  // namespace ops_debug::analysis
