// The kernel of Compare for AVX2. CMakeLists.txt has the compiler options of this file; processors
// without these instructions never come here (compare_pass.cc).
#if defined(__AVX2__)
#define OPS_DEBUG_KERNELS kChunkKernelsAvx2
#include "analysis/compare/compare_kernel.inc"
#else
#include "analysis/compare/compare_chunk.h"

namespace ops_debug::analysis {
const ChunkKernels kChunkKernelsAvx2 = {};
}  // namespace ops_debug::analysis
#endif
