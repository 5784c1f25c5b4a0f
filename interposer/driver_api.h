// cuda.h with every function under the name that libcuda.so.1 exports.
//
// An ordinary program that calls cuMemAlloc is compiled to call cuMemAlloc_v2, because cuda.h
// renames it by a macro. An interposer needs all variants side by side, and the header has a mode
// for that (it is how the driver itself is built): the first ABI is `cuMemAlloc`, the current one
// `cuMemAlloc_v2`, the per-thread-stream variants end in _ptds and _ptsz. So in this folder a cu*
// name always means exactly one exported symbol. Include this header and never <cuda.h>.
#pragma once

#ifdef __cuda_cuda_h__
#error "include interposer/driver_api.h instead of cuda.h: the names would mean other ABI versions"
#endif
#ifndef __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_VERSION_INTERNAL 1  // NOLINT(bugprone-reserved-identifier): NVIDIA's switch
#endif
#include <cuda.h>  // IWYU pragma: export
