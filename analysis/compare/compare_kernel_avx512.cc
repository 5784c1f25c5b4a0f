// The kernel of Compare for AVX512. CMakeLists.txt has the compiler options of this file;
// processors without these instructions never come here (compare_pass.cc).
#if defined(__AVX512CD__)
#define OPS_DEBUG_KERNELS kChunkKernelsAvx512
#include "analysis/compare/compare_kernel.inc"
#else
#include "analysis/compare/compare_chunk.h"

namespace ops_debug::analysis {
const ChunkKernels kChunkKernelsAvx512 = {};
}  // namespace ops_debug::analysis
#endif
