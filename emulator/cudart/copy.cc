// Copies: by direction, to and from symbols, and boxes of two and three dimensions.
#include <optional>

#include "emulator/cudart/copy_box.h"
#include "emulator/cudart/registry.h"
#include "emulator/cudart/runtime.h"

namespace ops_debug::emulator::cudart {
namespace {

// A stream to copy in, or none for the variants that wait.
using OptionalStream = std::optional<cudaStream_t>;

cudaError_t Copy(const DriverCalls& driver, void* to, const void* from, size_t bytes,
                 cudaMemcpyKind kind, OptionalStream stream) {
  const bool async = stream.has_value();
  CUstream s = stream.value_or(nullptr);
  CUresult result = CUDA_SUCCESS;
  switch (kind) {
    case cudaMemcpyHostToDevice:
      result = async ? driver.cuMemcpyHtoDAsync(Address(to), from, bytes, s)
                     : driver.cuMemcpyHtoD(Address(to), from, bytes);
      break;
    case cudaMemcpyDeviceToHost:
      result = async ? driver.cuMemcpyDtoHAsync(to, Address(from), bytes, s)
                     : driver.cuMemcpyDtoH(to, Address(from), bytes);
      break;
    case cudaMemcpyDeviceToDevice:
      result = async ? driver.cuMemcpyDtoDAsync(Address(to), Address(from), bytes, s)
                     : driver.cuMemcpyDtoD(Address(to), Address(from), bytes);
      break;
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault:
      result = async ? driver.cuMemcpyAsync(Address(to), Address(from), bytes, s)
                     : driver.cuMemcpy(Address(to), Address(from), bytes);
      break;
    default:
      return cudaErrorInvalidMemcpyDirection;
  }
  return static_cast<cudaError_t>(result);
}

cudaError_t CopyLine(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                     OptionalStream stream) {
  return WithContext([&](const DriverCalls& driver) {
    if (bytes == 0) return cudaSuccess;
    return Copy(driver, to, from, bytes, kind, stream);
  });
}

// Copies between `host_side` and `count` bytes at `offset` of a variable.
cudaError_t CopySymbol(const void* symbol, void* to, const void* from, size_t bytes, size_t offset,
                       cudaMemcpyKind kind, OptionalStream stream) {
  return WithContext([&](const DriverCalls& driver) -> cudaError_t {
    CUdeviceptr address = 0;
    size_t size = 0;
    const cudaError_t error = FindSymbol(driver, symbol, &address, &size);
    if (error != cudaSuccess) return error;
    if (offset > size || bytes > size - offset) return cudaErrorInvalidValue;
    if (bytes == 0) return cudaSuccess;
    void* variable = reinterpret_cast<void*>(address + offset);
    return to == nullptr ? Copy(driver, variable, from, bytes, kind, stream)
                         : Copy(driver, to, variable, bytes, kind, stream);
  });
}

cudaError_t CopyBox(const cudaMemcpy3DParms* parameters, OptionalStream stream) {
  if (parameters == nullptr) return Report(cudaErrorInvalidValue);
  return WithContext([&](const DriverCalls& driver) -> cudaError_t {
    CUDA_MEMCPY3D copy{};
    const cudaError_t error = ToDriver(driver, *parameters, &copy);
    if (error != cudaSuccess) return error;
    return static_cast<cudaError_t>(stream ? driver.cuMemcpy3DAsync(&copy, *stream)
                                           : driver.cuMemcpy3D(&copy));
  });
}

cudaError_t CopyRows(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                     size_t height, cudaMemcpyKind kind, OptionalStream stream) {
  cudaMemcpy3DParms parameters{};
  parameters.dstPtr = {to, to_pitch, width, height};
  parameters.srcPtr = {const_cast<void*>(from), from_pitch, width, height};
  parameters.extent = {width, height, 1};
  parameters.kind = kind;
  return CopyBox(&parameters, stream);
}

cudaError_t SetRows(void* to, size_t pitch, int value, size_t width, size_t height,
                    OptionalStream stream) {
  return WithContext([&](const DriverCalls& driver) {
    const auto byte = static_cast<unsigned char>(value);
    return stream ? driver.cuMemsetD2D8Async(Address(to), pitch, byte, width, height, *stream)
                  : driver.cuMemsetD2D8(Address(to), pitch, byte, width, height);
  });
}

cudaError_t SetBox(const cudaPitchedPtr& to, int value, const cudaExtent& extent,
                   OptionalStream stream) {
  for (size_t z = 0; z < extent.depth; ++z) {
    void* slice = static_cast<char*>(to.ptr) + z * to.pitch * to.ysize;
    const cudaError_t error = SetRows(slice, to.pitch, value, extent.width, extent.height, stream);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace
}  // namespace ops_debug::emulator::cudart

using namespace ops_debug::emulator::cudart;  // NOLINT(google-build-using-namespace): entry points

namespace {

// body(const DriverCalls&, CUcontext to, CUcontext from) with the devices' primary contexts.
template <class Body>
cudaError_t WithPeers(int to_ordinal, int from_ordinal, Body body) {
  return WithContext([&](const DriverCalls& driver) -> cudaError_t {
    CUcontext to = nullptr, from = nullptr;
    cudaError_t error = RetainPrimary(driver, to_ordinal, &to);
    if (error == cudaSuccess) error = RetainPrimary(driver, from_ordinal, &from);
    return error != cudaSuccess ? error : static_cast<cudaError_t>(body(driver, to, from));
  });
}

}  // namespace

extern "C" {

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return CopyLine(to, from, bytes, kind, std::nullopt);
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return CopyLine(to, from, bytes, kind, stream);
}

cudaError_t cudaMemcpyPeer(void* to, int to_ordinal, const void* from, int from_ordinal,
                           size_t bytes) {
  return WithPeers(to_ordinal, from_ordinal,
                   [&](const DriverCalls& driver, CUcontext to_context, CUcontext from_context) {
                     return driver.cuMemcpyPeer(Address(to), to_context, Address(from),
                                                from_context, bytes);
                   });
}

cudaError_t cudaMemcpyPeerAsync(void* to, int to_ordinal, const void* from, int from_ordinal,
                                size_t bytes, cudaStream_t stream) {
  return WithPeers(to_ordinal, from_ordinal,
                   [&](const DriverCalls& driver, CUcontext to_context, CUcontext from_context) {
                     return driver.cuMemcpyPeerAsync(Address(to), to_context, Address(from),
                                                     from_context, bytes, stream);
                   });
}

cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from, size_t bytes, size_t offset,
                               cudaMemcpyKind kind) {
  return CopySymbol(symbol, nullptr, from, bytes, offset, kind, std::nullopt);
}

cudaError_t cudaMemcpyToSymbolAsync(const void* symbol, const void* from, size_t bytes,
                                    size_t offset, cudaMemcpyKind kind, cudaStream_t stream) {
  return CopySymbol(symbol, nullptr, from, bytes, offset, kind, stream);
}

cudaError_t cudaMemcpyFromSymbol(void* to, const void* symbol, size_t bytes, size_t offset,
                                 cudaMemcpyKind kind) {
  if (to == nullptr) return Report(cudaErrorInvalidValue);
  return CopySymbol(symbol, to, nullptr, bytes, offset, kind, std::nullopt);
}

cudaError_t cudaMemcpyFromSymbolAsync(void* to, const void* symbol, size_t bytes, size_t offset,
                                      cudaMemcpyKind kind, cudaStream_t stream) {
  if (to == nullptr) return Report(cudaErrorInvalidValue);
  return CopySymbol(symbol, to, nullptr, bytes, offset, kind, stream);
}

cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                         size_t width, size_t height, cudaMemcpyKind kind) {
  return CopyRows(to, to_pitch, from, from_pitch, width, height, kind, std::nullopt);
}

cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind,
                              cudaStream_t stream) {
  return CopyRows(to, to_pitch, from, from_pitch, width, height, kind, stream);
}

cudaError_t cudaMemcpy3D(const cudaMemcpy3DParms* parameters) {
  return CopyBox(parameters, std::nullopt);
}

cudaError_t cudaMemcpy3DAsync(const cudaMemcpy3DParms* parameters, cudaStream_t stream) {
  return CopyBox(parameters, stream);
}

cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  return WithContext([&](const DriverCalls& driver) {
    return driver.cuMemsetD8(Address(to), static_cast<unsigned char>(value), bytes);
  });
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  return WithContext([&](const DriverCalls& driver) {
    return driver.cuMemsetD8Async(Address(to), static_cast<unsigned char>(value), bytes, stream);
  });
}

cudaError_t cudaMemset2D(void* to, size_t pitch, int value, size_t width, size_t height) {
  return SetRows(to, pitch, value, width, height, std::nullopt);
}

cudaError_t cudaMemset2DAsync(void* to, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream) {
  return SetRows(to, pitch, value, width, height, stream);
}

cudaError_t cudaMemset3D(cudaPitchedPtr to, int value, cudaExtent extent) {
  return SetBox(to, value, extent, std::nullopt);
}

cudaError_t cudaMemset3DAsync(cudaPitchedPtr to, int value, cudaExtent extent,
                              cudaStream_t stream) {
  return SetBox(to, value, extent, stream);
}

}  // extern "C"

OPS_DEBUG_PER_THREAD(cudaMemcpy, ptds, 4)
OPS_DEBUG_PER_THREAD(cudaMemcpyAsync, ptsz, 5)
OPS_DEBUG_PER_THREAD(cudaMemcpyToSymbol, ptds, 5)
OPS_DEBUG_PER_THREAD(cudaMemcpyToSymbolAsync, ptsz, 6)
OPS_DEBUG_PER_THREAD(cudaMemcpyFromSymbol, ptds, 5)
OPS_DEBUG_PER_THREAD(cudaMemcpyFromSymbolAsync, ptsz, 6)
OPS_DEBUG_PER_THREAD(cudaMemcpy2D, ptds, 7)
OPS_DEBUG_PER_THREAD(cudaMemcpy2DAsync, ptsz, 8)
OPS_DEBUG_PER_THREAD(cudaMemcpy3D, ptds, 1)
OPS_DEBUG_PER_THREAD(cudaMemcpy3DAsync, ptsz, 2)
OPS_DEBUG_PER_THREAD(cudaMemset, ptds, 3)
OPS_DEBUG_PER_THREAD(cudaMemsetAsync, ptsz, 4)
OPS_DEBUG_PER_THREAD(cudaMemset2D, ptds, 5)
OPS_DEBUG_PER_THREAD(cudaMemset2DAsync, ptsz, 6)
OPS_DEBUG_PER_THREAD(cudaMemset3D, ptds, 3)
OPS_DEBUG_PER_THREAD(cudaMemset3DAsync, ptsz, 4)
