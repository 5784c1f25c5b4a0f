// Memsets: one pattern of 1, 2 or 4 bytes over a line or over rows with a pitch.
#include <cstdint>

#include "emulator/driver/memory.h"
#include "emulator/driver/stream.h"

namespace ops_debug::emulator {
namespace {

// `is_async`: one of the calls that never wait. The others wait for memory that the host sees.
template <class Element>
CUresult Fill(CUdeviceptr address, size_t pitch_bytes, Element value, size_t width, size_t height,
              CUstream stream, bool is_async) {
  bool waits = false;
  CUcontext owner = nullptr;
  StreamPoint behind;
  const CUresult status = InContext([&](Device& device, CUctx_st& context) -> CUresult {
    const CUstream_st* found = FindStream(device.driver, context, stream);
    if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (width == 0 || height == 0) return CUDA_SUCCESS;
    size_t row_bytes = 0, bytes = 0;
    if (address % sizeof(Element) != 0 || pitch_bytes % sizeof(Element) != 0 ||
        __builtin_mul_overflow(width, sizeof(Element), &row_bytes) ||
        (height > 1 && pitch_bytes < row_bytes) ||
        __builtin_mul_overflow(pitch_bytes, height - 1, &bytes) ||
        __builtin_add_overflow(bytes, row_bytes, &bytes) ||
        !IsDeviceRange(device, address, bytes)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    owner = found->context;
    waits = !is_async && (Classify(device.driver, address) != MemoryClass::kDevice ||
                          SyncsMemops(device.driver, address));
    return Submit(device, context, stream,
                  {.work = FillOperation{.address = address,
                                         .pitch_bytes = pitch_bytes,
                                         .value = value,
                                         .element_bytes = sizeof(Element),
                                         .width = width,
                                         .height = height}},
                  &behind);
  });
  if (status != CUDA_SUCCESS || !waits || behind.order == nullptr) return status;
  WaitForPoints({behind});
  return AfterWait(owner);
}

}  // namespace
}  // namespace ops_debug::emulator

using ops_debug::emulator::Fill;

extern "C" {

CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count) {
  return Fill<uint8_t>(to, 0, value, count, 1, nullptr, /*is_async=*/false);
}

CUresult cuMemsetD16_v2(CUdeviceptr to, unsigned short value,  // NOLINT(google-runtime-int): ABI
                        size_t count) {
  return Fill<uint16_t>(to, 0, value, count, 1, nullptr, /*is_async=*/false);
}

CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned int value, size_t count) {
  return Fill<uint32_t>(to, 0, value, count, 1, nullptr, /*is_async=*/false);
}

CUresult cuMemsetD2D8_v2(CUdeviceptr to, size_t pitch, unsigned char value, size_t width,
                         size_t height) {
  return Fill<uint8_t>(to, pitch, value, width, height, nullptr, /*is_async=*/false);
}

CUresult cuMemsetD2D16_v2(CUdeviceptr to, size_t pitch,
                          unsigned short value,  // NOLINT(google-runtime-int): ABI
                          size_t width, size_t height) {
  return Fill<uint16_t>(to, pitch, value, width, height, nullptr, /*is_async=*/false);
}

CUresult cuMemsetD2D32_v2(CUdeviceptr to, size_t pitch, unsigned int value, size_t width,
                          size_t height) {
  return Fill<uint32_t>(to, pitch, value, width, height, nullptr, /*is_async=*/false);
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {
  return Fill<uint8_t>(to, 0, value, count, 1, stream, /*is_async=*/true);
}

CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value,  // NOLINT(google-runtime-int): ABI
                          size_t count, CUstream stream) {
  return Fill<uint16_t>(to, 0, value, count, 1, stream, /*is_async=*/true);
}

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned int value, size_t count, CUstream stream) {
  return Fill<uint32_t>(to, 0, value, count, 1, stream, /*is_async=*/true);
}

CUresult cuMemsetD2D8Async(CUdeviceptr to, size_t pitch, unsigned char value, size_t width,
                           size_t height, CUstream stream) {
  return Fill<uint8_t>(to, pitch, value, width, height, stream, /*is_async=*/true);
}

CUresult cuMemsetD2D16Async(CUdeviceptr to, size_t pitch,
                            unsigned short value,  // NOLINT(google-runtime-int): ABI
                            size_t width, size_t height, CUstream stream) {
  return Fill<uint16_t>(to, pitch, value, width, height, stream, /*is_async=*/true);
}

CUresult cuMemsetD2D32Async(CUdeviceptr to, size_t pitch, unsigned int value, size_t width,
                            size_t height, CUstream stream) {
  return Fill<uint32_t>(to, pitch, value, width, height, stream, /*is_async=*/true);
}

}  // extern "C"

OPS_DEBUG_PER_THREAD(cuMemsetD8_v2, ptds, 3)
OPS_DEBUG_PER_THREAD(cuMemsetD16_v2, ptds, 3)
OPS_DEBUG_PER_THREAD(cuMemsetD32_v2, ptds, 3)
OPS_DEBUG_PER_THREAD(cuMemsetD2D8_v2, ptds, 5)
OPS_DEBUG_PER_THREAD(cuMemsetD2D16_v2, ptds, 5)
OPS_DEBUG_PER_THREAD(cuMemsetD2D32_v2, ptds, 5)
OPS_DEBUG_PER_THREAD(cuMemsetD8Async, ptsz, 4)
OPS_DEBUG_PER_THREAD(cuMemsetD16Async, ptsz, 4)
OPS_DEBUG_PER_THREAD(cuMemsetD32Async, ptsz, 4)
OPS_DEBUG_PER_THREAD(cuMemsetD2D8Async, ptsz, 6)
OPS_DEBUG_PER_THREAD(cuMemsetD2D16Async, ptsz, 6)
OPS_DEBUG_PER_THREAD(cuMemsetD2D32Async, ptsz, 6)
