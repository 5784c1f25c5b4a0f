// Copies. Host and device share addresses, so every copy is a memory move; what remains is to
// refuse, as a driver does, a device range that no live allocation holds, and to wait where a GPU's
// driver waits.
#include "emulator/driver/copy.h"

#include <utility>

#include "emulator/driver/array.h"
#include "emulator/driver/memory.h"
#include "emulator/driver/stream.h"
#include "emulator/driver/work_scheduler.h"

namespace ops_debug::emulator {
namespace {

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

// Bytes from the first to behind the last byte of a box; false if that overflows.
bool Extent(const BoxSide& side, uint64_t width, uint64_t height, uint64_t depth, uint64_t* bytes) {
  uint64_t rows = 0, slices = 0;
  return !__builtin_mul_overflow(side.pitch_bytes, height - 1, &rows) &&
         !__builtin_mul_overflow(side.slice_bytes, depth - 1, &slices) &&
         !__builtin_add_overflow(rows, slices, &rows) &&
         !__builtin_add_overflow(rows, width, bytes);
}

bool IsValidBox(const Device& device, const BoxSide& side, uint64_t width_bytes, uint64_t height,
                uint64_t depth) {
  uint64_t bytes = 0;
  return (height == 1 || side.pitch_bytes >= width_bytes) &&
         Extent(side, width_bytes, height, depth, &bytes) &&
         Valid(device, side.side, side.address, bytes);
}

// What a copy waits for before it returns.
enum class Waiting : uint8_t {
  kNothing,
  kEarlierWork,  // of its stream; the copy itself reads a staged source later
  kCompletion
};

struct Manner {
  Waiting waiting = Waiting::kNothing;
  bool stages_source = false;
};

bool IsHost(MemoryClass memory) {
  return memory == MemoryClass::kPageable || memory == MemoryClass::kPinned;
}

Manner MannerOf(Driver& driver, uint64_t to_address, uint64_t from_address, bool is_async) {
  const MemoryClass to = Classify(driver, to_address), from = Classify(driver, from_address);
  if (IsHost(to) && IsHost(from)) return {Waiting::kCompletion};
  if (to == MemoryClass::kPageable) return {Waiting::kCompletion};
  if (is_async) return {Waiting::kNothing, from == MemoryClass::kPageable};
  if (from == MemoryClass::kPageable) {
    // The copy to the device may still be under way when the call returns. Only a chosen schedule
    // makes use of that: it costs a copy more.
    if (driver.scheduler->is_seeded()) return {Waiting::kEarlierWork, true};
    return {Waiting::kCompletion};
  }
  const bool stays_on_device = to == MemoryClass::kDevice && from == MemoryClass::kDevice;
  const bool may_return =
      stays_on_device && !SyncsMemops(driver, to_address) && !SyncsMemops(driver, from_address);
  return {may_return ? Waiting::kNothing : Waiting::kCompletion};
}

CUresult Copy(const BoxSide& to, const BoxSide& from, size_t bytes, CUstream stream,
              bool is_async) {
  return CopyBox(to, from, bytes, 1, 1, stream, is_async);
}

BoxSide Host(const void* pointer) { return {Side::kHost, reinterpret_cast<uint64_t>(pointer)}; }
BoxSide OnTheDevice(CUdeviceptr address) { return {Side::kDevice, address}; }
BoxSide Unified(CUdeviceptr address) { return {Side::kUnified, address}; }

CUresult CopyNow(const BoxSide& to, const BoxSide& from, size_t bytes) {
  return Copy(to, from, bytes, nullptr, /*is_async=*/false);
}

CUresult CopyLater(const BoxSide& to, const BoxSide& from, size_t bytes, CUstream stream) {
  return Copy(to, from, bytes, stream, /*is_async=*/true);
}

CUresult CheckPeers(CUcontext to, CUcontext from) {
  return InContext([&](Device& device, CUctx_st&) -> CUresult {
    for (const CUcontext context : {to, from}) {
      if (device.driver.contexts.Find(context) == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    }
    return CUDA_SUCCESS;
  });
}

}  // namespace

CUresult CopyBox(const BoxSide& to, const BoxSide& from, uint64_t width_bytes, uint64_t height,
                 uint64_t depth, CUstream stream, bool is_async) {
  Manner manner;
  std::vector<StreamPoint> points;
  CUcontext owner = nullptr;
  const CUresult status = InContext([&](Device& device, CUctx_st& context) -> CUresult {
    // A copy may be issued to another context's stream.
    const CUstream_st* found = FindStream(device.driver, context, stream);
    if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (width_bytes == 0 || height == 0 || depth == 0) return CUDA_SUCCESS;
    if (!IsValidBox(device, to, width_bytes, height, depth) ||
        !IsValidBox(device, from, width_bytes, height, depth)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    owner = found->context;
    manner = MannerOf(device.driver, to.address, from.address, is_async);
    if (manner.waiting == Waiting::kEarlierWork) points = LatestPoints(context, *found);
    StreamPoint behind;
    const CUresult submitted =
        Submit(device, context, stream,
               {.work = CopyOperation{.to = to.address,
                                      .from = from.address,
                                      .width_bytes = width_bytes,
                                      .height = height,
                                      .depth = depth,
                                      .to_pitch_bytes = to.pitch_bytes,
                                      .to_slice_bytes = to.slice_bytes,
                                      .from_pitch_bytes = from.pitch_bytes,
                                      .from_slice_bytes = from.slice_bytes,
                                      .stages_source = manner.stages_source}},
               &behind);
    if (behind.order == nullptr) manner.waiting = Waiting::kNothing;  // captured, or refused
    if (manner.waiting == Waiting::kCompletion) points = {behind};
    return submitted;
  });
  if (status != CUDA_SUCCESS || manner.waiting == Waiting::kNothing) return status;
  WaitForPoints(points);
  return AfterWait(owner);
}

namespace {

// False for arrays (see ArraySide) and what is no memory type.
bool SideOf(CUmemorytype type, const void* host, CUdeviceptr address, BoxSide* side) {
  switch (type) {
    case CU_MEMORYTYPE_HOST:
      side->side = Side::kHost;
      side->address = reinterpret_cast<uint64_t>(host);
      return true;
    case CU_MEMORYTYPE_DEVICE:
      side->side = Side::kDevice;
      side->address = address;
      return true;
    case CU_MEMORYTYPE_UNIFIED:
      side->side = Side::kUnified;
      side->address = address;
      return true;
    default:
      return false;
  }
}

// Moves a box's start by its coordinates.
void Shift(BoxSide* side, uint64_t x_bytes, uint64_t y, uint64_t z) {
  side->address += x_bytes + y * side->pitch_bytes + z * side->slice_bytes;
}

CUresult Copy2D(const CUDA_MEMCPY2D* copy, CUstream stream, bool is_async) {
  if (copy == nullptr) return CUDA_ERROR_INVALID_VALUE;
  BoxSide to{.pitch_bytes = copy->dstPitch}, from{.pitch_bytes = copy->srcPitch};
  if (copy->dstMemoryType == CU_MEMORYTYPE_ARRAY) {
    to = ArraySide(copy->dstArray, copy->dstXInBytes, copy->dstY, 0, copy->WidthInBytes,
                   copy->Height, 1);
  } else if (!SideOf(copy->dstMemoryType, copy->dstHost, copy->dstDevice, &to)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (copy->srcMemoryType == CU_MEMORYTYPE_ARRAY) {
    from = ArraySide(copy->srcArray, copy->srcXInBytes, copy->srcY, 0, copy->WidthInBytes,
                     copy->Height, 1);
  } else if (!SideOf(copy->srcMemoryType, copy->srcHost, copy->srcDevice, &from)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Shift(&to, copy->dstXInBytes, copy->dstY, 0);
  Shift(&from, copy->srcXInBytes, copy->srcY, 0);
  return CopyBox(to, from, copy->WidthInBytes, copy->Height, 1, stream, is_async);
}

CUresult Copy3D(const CUDA_MEMCPY3D* copy, CUstream stream, bool is_async) {
  if (copy == nullptr) return CUDA_ERROR_INVALID_VALUE;
  BoxSide to{.pitch_bytes = copy->dstPitch, .slice_bytes = copy->dstPitch * copy->dstHeight};
  BoxSide from{.pitch_bytes = copy->srcPitch, .slice_bytes = copy->srcPitch * copy->srcHeight};
  if (copy->dstMemoryType == CU_MEMORYTYPE_ARRAY) {
    to = ArraySide(copy->dstArray, copy->dstXInBytes, copy->dstY, copy->dstZ, copy->WidthInBytes,
                   copy->Height, copy->Depth);
  } else if (!SideOf(copy->dstMemoryType, copy->dstHost, copy->dstDevice, &to)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (copy->srcMemoryType == CU_MEMORYTYPE_ARRAY) {
    from = ArraySide(copy->srcArray, copy->srcXInBytes, copy->srcY, copy->srcZ, copy->WidthInBytes,
                     copy->Height, copy->Depth);
  } else if (!SideOf(copy->srcMemoryType, copy->srcHost, copy->srcDevice, &from)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Shift(&to, copy->dstXInBytes, copy->dstY, copy->dstZ);
  Shift(&from, copy->srcXInBytes, copy->srcY, copy->srcZ);
  return CopyBox(to, from, copy->WidthInBytes, copy->Height, copy->Depth, stream, is_async);
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

// Serialised with all work of both contexts, past and future: so it waits.
CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                      CUcontext from_context, size_t bytes) {
  CUresult status = CheckPeers(to_context, from_context);
  if (status != CUDA_SUCCESS) return status;
  for (const CUcontext context : {to_context, from_context}) WaitForContext(*context);
  status = CopyNow(OnTheDevice(to), OnTheDevice(from), bytes);
  return status == CUDA_SUCCESS ? cuStreamSynchronize(CU_STREAM_LEGACY) : status;
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return CopyLater(Unified(to), Unified(from), bytes, stream);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  return CopyLater(OnTheDevice(to), Host(from), bytes, stream);
}

CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return CopyLater(Host(to), OnTheDevice(from), bytes, stream);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return CopyLater(OnTheDevice(to), OnTheDevice(from), bytes, stream);
}

CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                           CUcontext from_context, size_t bytes, CUstream stream) {
  const CUresult status = CheckPeers(to_context, from_context);
  if (status != CUDA_SUCCESS) return status;
  return CopyLater(OnTheDevice(to), OnTheDevice(from), bytes, stream);
}

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D* copy) {
  return Copy2D(copy, nullptr, /*is_async=*/false);
}

CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* copy) {
  return Copy2D(copy, nullptr, /*is_async=*/false);
}

CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* copy, CUstream stream) {
  return Copy2D(copy, stream, /*is_async=*/true);
}

CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D* copy) {
  return Copy3D(copy, nullptr, /*is_async=*/false);
}

CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* copy, CUstream stream) {
  return Copy3D(copy, stream, /*is_async=*/true);
}

}  // extern "C"

OPS_DEBUG_PER_THREAD(cuMemcpy, ptds, 3)
OPS_DEBUG_PER_THREAD(cuMemcpyHtoD_v2, ptds, 3)
OPS_DEBUG_PER_THREAD(cuMemcpyDtoH_v2, ptds, 3)
OPS_DEBUG_PER_THREAD(cuMemcpyDtoD_v2, ptds, 3)
OPS_DEBUG_PER_THREAD(cuMemcpyPeer, ptds, 5)
OPS_DEBUG_PER_THREAD(cuMemcpyAsync, ptsz, 4)
OPS_DEBUG_PER_THREAD(cuMemcpyHtoDAsync_v2, ptsz, 4)
OPS_DEBUG_PER_THREAD(cuMemcpyDtoHAsync_v2, ptsz, 4)
OPS_DEBUG_PER_THREAD(cuMemcpyDtoDAsync_v2, ptsz, 4)
OPS_DEBUG_PER_THREAD(cuMemcpyPeerAsync, ptsz, 6)
OPS_DEBUG_PER_THREAD(cuMemcpy2D_v2, ptds, 1)
OPS_DEBUG_PER_THREAD(cuMemcpy2DUnaligned_v2, ptds, 1)
OPS_DEBUG_PER_THREAD(cuMemcpy2DAsync_v2, ptsz, 2)
OPS_DEBUG_PER_THREAD(cuMemcpy3D_v2, ptds, 1)
OPS_DEBUG_PER_THREAD(cuMemcpy3DAsync_v2, ptsz, 2)
