// The kernel of Compare for processors of which nothing more is known.
#define OPS_DEBUG_KERNELS kChunkKernelsPortable
#include "analysis/compare/compare_kernel.inc"
