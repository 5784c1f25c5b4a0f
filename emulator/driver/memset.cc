// Memsets: one pattern of 1, 2 or 4 bytes over a line or over rows with a pitch.
#include <algorithm>
#include <type_traits>

#include "emulator/driver/memory.h"

namespace ops_debug::emulator {
namespace {

template <class Element>
CUresult Fill(CUdeviceptr address, size_t pitch_bytes, Element value, size_t width, size_t height,
              CUstream stream) {
  return InContext([&](Device& device, CUctx_st& context) -> CUresult {
    const CUresult status = CheckStream(device, context, stream);
    if (status != CUDA_SUCCESS || width == 0 || height == 0) return status;
    size_t row_bytes = 0, bytes = 0;
    if (address % sizeof(Element) != 0 || pitch_bytes % sizeof(Element) != 0 ||
        __builtin_mul_overflow(width, sizeof(Element), &row_bytes) ||
        (height > 1 && pitch_bytes < row_bytes) ||
        __builtin_mul_overflow(pitch_bytes, height - 1, &bytes) ||
        __builtin_add_overflow(bytes, row_bytes, &bytes) ||
        !IsDeviceRange(device, address, bytes)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t y = 0; y < height; ++y) {
      std::fill_n(reinterpret_cast<Element*>(address + y * pitch_bytes), width, value);
    }
    return CUDA_SUCCESS;
  });
}

}  // namespace
}  // namespace ops_debug::emulator

using ops_debug::emulator::Fill;

extern "C" {

CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count) {
  return Fill<uint8_t>(to, 0, value, count, 1, nullptr);
}

CUresult cuMemsetD16_v2(CUdeviceptr to, unsigned short value,  // NOLINT(google-runtime-int): ABI
                        size_t count) {
  return Fill<uint16_t>(to, 0, value, count, 1, nullptr);
}

CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned int value, size_t count) {
  return Fill<uint32_t>(to, 0, value, count, 1, nullptr);
}

CUresult cuMemsetD2D8_v2(CUdeviceptr to, size_t pitch, unsigned char value, size_t width,
                         size_t height) {
  return Fill<uint8_t>(to, pitch, value, width, height, nullptr);
}

CUresult cuMemsetD2D16_v2(CUdeviceptr to, size_t pitch,
                          unsigned short value,  // NOLINT(google-runtime-int): ABI
                          size_t width, size_t height) {
  return Fill<uint16_t>(to, pitch, value, width, height, nullptr);
}

CUresult cuMemsetD2D32_v2(CUdeviceptr to, size_t pitch, unsigned int value, size_t width,
                          size_t height) {
  return Fill<uint32_t>(to, pitch, value, width, height, nullptr);
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {
  return Fill<uint8_t>(to, 0, value, count, 1, stream);
}

CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value,  // NOLINT(google-runtime-int): ABI
                          size_t count, CUstream stream) {
  return Fill<uint16_t>(to, 0, value, count, 1, stream);
}

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned int value, size_t count, CUstream stream) {
  return Fill<uint32_t>(to, 0, value, count, 1, stream);
}

CUresult cuMemsetD2D8Async(CUdeviceptr to, size_t pitch, unsigned char value, size_t width,
                           size_t height, CUstream stream) {
  return Fill<uint8_t>(to, pitch, value, width, height, stream);
}

CUresult cuMemsetD2D16Async(CUdeviceptr to, size_t pitch,
                            unsigned short value,  // NOLINT(google-runtime-int): ABI
                            size_t width, size_t height, CUstream stream) {
  return Fill<uint16_t>(to, pitch, value, width, height, stream);
}

CUresult cuMemsetD2D32Async(CUdeviceptr to, size_t pitch, unsigned int value, size_t width,
                            size_t height, CUstream stream) {
  return Fill<uint32_t>(to, pitch, value, width, height, stream);
}

}  // extern "C"

OPS_DEBUG_PER_THREAD(cuMemsetD8_v2, ptds)
OPS_DEBUG_PER_THREAD(cuMemsetD16_v2, ptds)
OPS_DEBUG_PER_THREAD(cuMemsetD32_v2, ptds)
OPS_DEBUG_PER_THREAD(cuMemsetD2D8_v2, ptds)
OPS_DEBUG_PER_THREAD(cuMemsetD2D16_v2, ptds)
OPS_DEBUG_PER_THREAD(cuMemsetD2D32_v2, ptds)
OPS_DEBUG_PER_THREAD(cuMemsetD8Async, ptsz)
OPS_DEBUG_PER_THREAD(cuMemsetD16Async, ptsz)
OPS_DEBUG_PER_THREAD(cuMemsetD32Async, ptsz)
OPS_DEBUG_PER_THREAD(cuMemsetD2D8Async, ptsz)
OPS_DEBUG_PER_THREAD(cuMemsetD2D16Async, ptsz)
OPS_DEBUG_PER_THREAD(cuMemsetD2D32Async, ptsz)
