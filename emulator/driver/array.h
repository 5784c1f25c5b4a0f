// CUDA arrays as the files of this folder share them. An array's texels lie in device memory row
// behind row, without gaps.
#pragma once

#include "emulator/driver/copy.h"
#include "emulator/driver/state.h"
#include "emulator/texture.h"

struct CUarray_st {
  ops_debug::emulator::Device* device = nullptr;
  CUctx_st* context = nullptr;
  CUDA_ARRAY3D_DESCRIPTOR descriptor{};
  ops_debug::emulator::Image image;
  CUmipmappedArray mipmaps = nullptr;  // that owns it
};

struct CUmipmappedArray_st {
  CUctx_st* context = nullptr;
  std::vector<CUarray> levels;
};

namespace ops_debug::emulator {

// nullptr if the handle is none. With the driver's lock held.
CUarray_st* FindArray(CUarray handle);
CUmipmappedArray_st* FindMipmaps(CUmipmappedArray handle);

// The side of a copy that a box of the array is; an empty address if the box leaves the array.
// Takes the driver's lock itself.
BoxSide ArraySide(CUarray handle, uint64_t x_bytes, uint64_t y, uint64_t z, uint64_t width_bytes,
                  uint64_t height, uint64_t depth);

// Frees the arrays of a context that ends. With the driver's lock held.
void DestroyArraysOf(const CUctx_st& context);

// The format as the executor has it; false, and says so, for formats that it lacks.
bool ToTexelFormat(CUarray_format format, TexelFormat* result);

}  // namespace ops_debug::emulator
