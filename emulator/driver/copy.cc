// Copies. Host and device share addresses, so every copy is a memory move; what remains is to
// refuse, as a driver does, a device range that no live allocation holds.
#include <cstring>
#include <limits>

#include "emulator/driver/memory.h"

namespace ops_debug::emulator {
namespace {

enum class Side : uint8_t { kHost, kDevice, kUnified };

bool Valid(const Device& device, Side side, uint64_t address, uint64_t size_bytes) {
  switch (side) {
    case Side::kHost:
      return address != 0;
    case Side::kDevice:
      return IsDeviceRange(device, address, size_bytes);
    case Side::kUnified:
      return address != 0 && IsUnifiedRange(device, address, size_bytes);
  }
  return false;
}

struct Place {
  Side side;
  uint64_t address;
};

Place Host(const void* pointer) { return {Side::kHost, reinterpret_cast<uint64_t>(pointer)}; }
Place OnTheDevice(CUdeviceptr address) { return {Side::kDevice, address}; }
Place Unified(CUdeviceptr address) { return {Side::kUnified, address}; }

CUresult Copy(Place to, Place from, size_t bytes, CUstream stream, bool waits) {
  return InContext([&](Device& device, CUctx_st& context) -> CUresult {
    const CUresult status = CheckStream(device, context, stream);
    if (status != CUDA_SUCCESS || bytes == 0) return status;
    if (!Valid(device, to.side, to.address, bytes) ||
        !Valid(device, from.side, from.address, bytes)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    std::memmove(reinterpret_cast<void*>(to.address), reinterpret_cast<const void*>(from.address),
                 bytes);
    if (waits) FinishWait(device);
    return CUDA_SUCCESS;
  });
}

CUresult CopyNow(Place to, Place from, size_t bytes) {
  return Copy(to, from, bytes, nullptr, /*waits=*/true);
}

// One side of a 2-D or 3-D copy: where the box starts and the distance of its rows and slices.
struct BoxSide {
  Place place;
  uint64_t pitch_bytes;
  uint64_t slice_bytes;
};

// Bytes from the first to behind the last byte of a box; false if that overflows.
bool Extent(const BoxSide& side, uint64_t width, uint64_t height, uint64_t depth, uint64_t* bytes) {
  uint64_t rows = 0, slices = 0;
  return !__builtin_mul_overflow(side.pitch_bytes, height - 1, &rows) &&
         !__builtin_mul_overflow(side.slice_bytes, depth - 1, &slices) &&
         !__builtin_add_overflow(rows, slices, &rows) &&
         !__builtin_add_overflow(rows, width, bytes);
}

CUresult CopyBox(const BoxSide& to, const BoxSide& from, uint64_t width_bytes, uint64_t height,
                 uint64_t depth, CUstream stream) {
  return InContext([&](Device& device, CUctx_st& context) -> CUresult {
    const CUresult status = CheckStream(device, context, stream);
    if (status != CUDA_SUCCESS) return status;
    if (width_bytes == 0 || height == 0 || depth == 0) return CUDA_SUCCESS;
    for (const BoxSide* side : {&to, &from}) {
      uint64_t bytes = 0;
      if ((height > 1 && side->pitch_bytes < width_bytes) ||
          !Extent(*side, width_bytes, height, depth, &bytes) ||
          !Valid(device, side->place.side, side->place.address, bytes)) {
        return CUDA_ERROR_INVALID_VALUE;
      }
    }
    for (uint64_t z = 0; z < depth; ++z) {
      for (uint64_t y = 0; y < height; ++y) {
        const uint64_t target = to.place.address + z * to.slice_bytes + y * to.pitch_bytes;
        const uint64_t source = from.place.address + z * from.slice_bytes + y * from.pitch_bytes;
        std::memmove(reinterpret_cast<void*>(target), reinterpret_cast<const void*>(source),
                     width_bytes);
      }
    }
    return CUDA_SUCCESS;
  });
}

// False for arrays, which this device does not have.
bool SideOf(CUmemorytype type, const void* host, CUdeviceptr address, Place* place) {
  switch (type) {
    case CU_MEMORYTYPE_HOST:
      *place = Host(host);
      return true;
    case CU_MEMORYTYPE_DEVICE:
      *place = OnTheDevice(address);
      return true;
    case CU_MEMORYTYPE_UNIFIED:
      *place = Unified(address);
      return true;
    default:
      return false;
  }
}

// Moves a box's start by its coordinates.
void Shift(BoxSide* side, uint64_t x_bytes, uint64_t y, uint64_t z) {
  side->place.address += x_bytes + y * side->pitch_bytes + z * side->slice_bytes;
}

CUresult Copy2D(const CUDA_MEMCPY2D* copy, CUstream stream) {
  if (copy == nullptr) return CUDA_ERROR_INVALID_VALUE;
  BoxSide to{.pitch_bytes = copy->dstPitch}, from{.pitch_bytes = copy->srcPitch};
  if (!SideOf(copy->dstMemoryType, copy->dstHost, copy->dstDevice, &to.place) ||
      !SideOf(copy->srcMemoryType, copy->srcHost, copy->srcDevice, &from.place)) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  Shift(&to, copy->dstXInBytes, copy->dstY, 0);
  Shift(&from, copy->srcXInBytes, copy->srcY, 0);
  return CopyBox(to, from, copy->WidthInBytes, copy->Height, 1, stream);
}

CUresult Copy3D(const CUDA_MEMCPY3D* copy, CUstream stream) {
  if (copy == nullptr) return CUDA_ERROR_INVALID_VALUE;
  BoxSide to{.pitch_bytes = copy->dstPitch, .slice_bytes = copy->dstPitch * copy->dstHeight};
  BoxSide from{.pitch_bytes = copy->srcPitch, .slice_bytes = copy->srcPitch * copy->srcHeight};
  if (!SideOf(copy->dstMemoryType, copy->dstHost, copy->dstDevice, &to.place) ||
      !SideOf(copy->srcMemoryType, copy->srcHost, copy->srcDevice, &from.place)) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  Shift(&to, copy->dstXInBytes, copy->dstY, copy->dstZ);
  Shift(&from, copy->srcXInBytes, copy->srcY, copy->srcZ);
  return CopyBox(to, from, copy->WidthInBytes, copy->Height, copy->Depth, stream);
}

}  // namespace
}  // namespace ops_debug::emulator

using namespace ops_debug::emulator;  // NOLINT(google-build-using-namespace): entry points only

extern "C" {

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return CopyNow(Unified(to), Unified(from), bytes);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes) {
  return CopyNow(OnTheDevice(to), Host(from), bytes);
}

CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes) {
  return CopyNow(Host(to), OnTheDevice(from), bytes);
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return CopyNow(OnTheDevice(to), OnTheDevice(from), bytes);
}

CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, size_t bytes) {
  return CopyNow(OnTheDevice(to), OnTheDevice(from), bytes);
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return Copy(Unified(to), Unified(from), bytes, stream, /*waits=*/false);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  return Copy(OnTheDevice(to), Host(from), bytes, stream, /*waits=*/false);
}

CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return Copy(Host(to), OnTheDevice(from), bytes, stream, /*waits=*/false);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return Copy(OnTheDevice(to), OnTheDevice(from), bytes, stream, /*waits=*/false);
}

CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, size_t bytes,
                           CUstream stream) {
  return Copy(OnTheDevice(to), OnTheDevice(from), bytes, stream, /*waits=*/false);
}

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D* copy) { return Copy2D(copy, nullptr); }

CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* copy) { return Copy2D(copy, nullptr); }

CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* copy, CUstream stream) {
  return Copy2D(copy, stream);
}

CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D* copy) { return Copy3D(copy, nullptr); }

CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* copy, CUstream stream) {
  return Copy3D(copy, stream);
}

}  // extern "C"

OPS_DEBUG_PER_THREAD(cuMemcpy, ptds)
OPS_DEBUG_PER_THREAD(cuMemcpyHtoD_v2, ptds)
OPS_DEBUG_PER_THREAD(cuMemcpyDtoH_v2, ptds)
OPS_DEBUG_PER_THREAD(cuMemcpyDtoD_v2, ptds)
OPS_DEBUG_PER_THREAD(cuMemcpyPeer, ptds)
OPS_DEBUG_PER_THREAD(cuMemcpyAsync, ptsz)
OPS_DEBUG_PER_THREAD(cuMemcpyHtoDAsync_v2, ptsz)
OPS_DEBUG_PER_THREAD(cuMemcpyDtoHAsync_v2, ptsz)
OPS_DEBUG_PER_THREAD(cuMemcpyDtoDAsync_v2, ptsz)
OPS_DEBUG_PER_THREAD(cuMemcpyPeerAsync, ptsz)
OPS_DEBUG_PER_THREAD(cuMemcpy2D_v2, ptds)
OPS_DEBUG_PER_THREAD(cuMemcpy2DUnaligned_v2, ptds)
OPS_DEBUG_PER_THREAD(cuMemcpy2DAsync_v2, ptsz)
OPS_DEBUG_PER_THREAD(cuMemcpy3D_v2, ptds)
OPS_DEBUG_PER_THREAD(cuMemcpy3DAsync_v2, ptsz)
