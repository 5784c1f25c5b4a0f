// Copies and memsets: every call of the current ABI, with both meanings of the default stream. The
// ABI of CUDA 3 (addresses of 32 bits) is not followed; its work counts as ordered.
#include "interposer/order_hook.h"
#include "interposer/stream_order_copies.h"

namespace ops_debug::interposer {
namespace {

uint64_t AddressOf(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

// `call()` with its place in the order.
template <class Real, class Call>
CUresult Copied(const Real& real, CUstream stream, bool is_async, const CopySide& to,
                const CopySide& from, Call call) {
  OrderedCopy copy(ApiName(real), StreamOf(real, stream), is_async, to, from);
  const CUresult result = call();
  copy.Done(result);
  return result;
}

template <class Real, class Call>
CUresult Filled(const Real& real, CUstream stream, bool is_async, CUdeviceptr address,
                uint64_t width_bytes, uint64_t height, uint64_t pitch_bytes, Call call) {
  CopySide target = LinearSide(address, width_bytes);
  target.height = height;
  target.pitch_bytes = pitch_bytes;
  OrderedFill fill(ApiName(real), StreamOf(real, stream), is_async, target);
  const CUresult result = call();
  fill.Done(result);
  return result;
}

template <class Real, class Box, class Call>
CUresult BoxCopied(const Real& real, CUstream stream, bool is_async, const Box* box, Call call) {
  if (!box) return call();
  CopySide to, from;
  BoxSides(*box, &to, &from);
  return Copied(real, stream, is_async, to, from, call);
}

}  // namespace

OPS_DEBUG_ORDER_HOOK(cuMemcpyHtoD_v2, CUdeviceptr to, const void* from, size_t bytes) {
  return Copied(real, nullptr, false, LinearSide(to, bytes), LinearSide(AddressOf(from), bytes),
                [&] { return real(to, from, bytes); });
}
OPS_DEBUG_ORDER_HOOK_AS(cuMemcpyHtoD_v2_ptds, cuMemcpyHtoD_v2)

OPS_DEBUG_ORDER_HOOK(cuMemcpyHtoDAsync_v2, CUdeviceptr to, const void* from, size_t bytes,
                     CUstream stream) {
  return Copied(real, stream, true, LinearSide(to, bytes), LinearSide(AddressOf(from), bytes),
                [&] { return real(to, from, bytes, stream); });
}
OPS_DEBUG_ORDER_HOOK_AS(cuMemcpyHtoDAsync_v2_ptsz, cuMemcpyHtoDAsync_v2)

OPS_DEBUG_ORDER_HOOK(cuMemcpyDtoHAsync_v2, void* to, CUdeviceptr from, size_t bytes,
                     CUstream stream) {
  return Copied(real, stream, true, LinearSide(AddressOf(to), bytes), LinearSide(from, bytes),
                [&] { return real(to, from, bytes, stream); });
}
OPS_DEBUG_ORDER_HOOK_AS(cuMemcpyDtoHAsync_v2_ptsz, cuMemcpyDtoHAsync_v2)

OPS_DEBUG_ORDER_HOOK(cuMemcpyDtoD_v2, CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return Copied(real, nullptr, false, LinearSide(to, bytes), LinearSide(from, bytes),
                [&] { return real(to, from, bytes); });
}
OPS_DEBUG_ORDER_HOOK_AS(cuMemcpyDtoD_v2_ptds, cuMemcpyDtoD_v2)

OPS_DEBUG_ORDER_HOOK(cuMemcpyDtoDAsync_v2, CUdeviceptr to, CUdeviceptr from, size_t bytes,
                     CUstream stream) {
  return Copied(real, stream, true, LinearSide(to, bytes), LinearSide(from, bytes),
                [&] { return real(to, from, bytes, stream); });
}
OPS_DEBUG_ORDER_HOOK_AS(cuMemcpyDtoDAsync_v2_ptsz, cuMemcpyDtoDAsync_v2)

OPS_DEBUG_ORDER_HOOK(cuMemcpyAsync, CUdeviceptr to, CUdeviceptr from, size_t bytes,
                     CUstream stream) {
  return Copied(real, stream, true, LinearSide(to, bytes), LinearSide(from, bytes),
                [&] { return real(to, from, bytes, stream); });
}
OPS_DEBUG_ORDER_HOOK_AS(cuMemcpyAsync_ptsz, cuMemcpyAsync)

OPS_DEBUG_ORDER_HOOK(cuMemcpyDtoA_v2, CUarray to, size_t offset, CUdeviceptr from, size_t bytes) {
  return Copied(real, nullptr, false, ArraySide(), LinearSide(from, bytes),
                [&] { return real(to, offset, from, bytes); });
}
OPS_DEBUG_ORDER_HOOK_AS(cuMemcpyDtoA_v2_ptds, cuMemcpyDtoA_v2)

OPS_DEBUG_ORDER_HOOK(cuMemcpyAtoD_v2, CUdeviceptr to, CUarray from, size_t offset, size_t bytes) {
  return Copied(real, nullptr, false, LinearSide(to, bytes), ArraySide(),
                [&] { return real(to, from, offset, bytes); });
}
OPS_DEBUG_ORDER_HOOK_AS(cuMemcpyAtoD_v2_ptds, cuMemcpyAtoD_v2)

OPS_DEBUG_ORDER_HOOK(cuMemcpyHtoA_v2, CUarray to, size_t offset, const void* from, size_t bytes) {
  return Copied(real, nullptr, false, ArraySide(), LinearSide(AddressOf(from), bytes),
                [&] { return real(to, offset, from, bytes); });
}
OPS_DEBUG_ORDER_HOOK_AS(cuMemcpyHtoA_v2_ptds, cuMemcpyHtoA_v2)

OPS_DEBUG_ORDER_HOOK(cuMemcpyHtoAAsync_v2, CUarray to, size_t offset, const void* from,
                     size_t bytes, CUstream stream) {
  return Copied(real, stream, true, ArraySide(), LinearSide(AddressOf(from), bytes),
                [&] { return real(to, offset, from, bytes, stream); });
}
OPS_DEBUG_ORDER_HOOK_AS(cuMemcpyHtoAAsync_v2_ptsz, cuMemcpyHtoAAsync_v2)

OPS_DEBUG_ORDER_HOOK(cuMemcpyAtoH_v2, void* to, CUarray from, size_t offset, size_t bytes) {
  return Copied(real, nullptr, false, LinearSide(AddressOf(to), bytes), ArraySide(),
                [&] { return real(to, from, offset, bytes); });
}
OPS_DEBUG_ORDER_HOOK_AS(cuMemcpyAtoH_v2_ptds, cuMemcpyAtoH_v2)

OPS_DEBUG_ORDER_HOOK(cuMemcpyAtoHAsync_v2, void* to, CUarray from, size_t offset, size_t bytes,
                     CUstream stream) {
  return Copied(real, stream, true, LinearSide(AddressOf(to), bytes), ArraySide(),
                [&] { return real(to, from, offset, bytes, stream); });
}
OPS_DEBUG_ORDER_HOOK_AS(cuMemcpyAtoHAsync_v2_ptsz, cuMemcpyAtoHAsync_v2)

OPS_DEBUG_ORDER_HOOK(cuMemcpyAtoA_v2, CUarray to, size_t to_offset, CUarray from,
                     size_t from_offset, size_t bytes) {
  return Copied(real, nullptr, false, ArraySide(), ArraySide(),
                [&] { return real(to, to_offset, from, from_offset, bytes); });
}
OPS_DEBUG_ORDER_HOOK_AS(cuMemcpyAtoA_v2_ptds, cuMemcpyAtoA_v2)

OPS_DEBUG_ORDER_HOOK(cuMemcpy2DUnaligned_v2, const CUDA_MEMCPY2D* box) {
  return BoxCopied(real, nullptr, false, box, [&] { return real(box); });
}
OPS_DEBUG_ORDER_HOOK_AS(cuMemcpy2DUnaligned_v2_ptds, cuMemcpy2DUnaligned_v2)

OPS_DEBUG_ORDER_HOOK(cuMemcpy2DAsync_v2, const CUDA_MEMCPY2D* box, CUstream stream) {
  return BoxCopied(real, stream, true, box, [&] { return real(box, stream); });
}
OPS_DEBUG_ORDER_HOOK_AS(cuMemcpy2DAsync_v2_ptsz, cuMemcpy2DAsync_v2)

OPS_DEBUG_ORDER_HOOK(cuMemcpy3D_v2, const CUDA_MEMCPY3D* box) {
  return BoxCopied(real, nullptr, false, box, [&] { return real(box); });
}
OPS_DEBUG_ORDER_HOOK_AS(cuMemcpy3D_v2_ptds, cuMemcpy3D_v2)

OPS_DEBUG_ORDER_HOOK(cuMemcpy3DAsync_v2, const CUDA_MEMCPY3D* box, CUstream stream) {
  return BoxCopied(real, stream, true, box, [&] { return real(box, stream); });
}
OPS_DEBUG_ORDER_HOOK_AS(cuMemcpy3DAsync_v2_ptsz, cuMemcpy3DAsync_v2)

// Between two contexts. The call without a stream does not wait for the copy, but no other work of
// the contexts runs beside it (CUDA Driver API, cuMemcpyPeer).
namespace {

std::vector<CUcontext> WithCurrent(CUcontext to, CUcontext from) {
  CUcontext current = nullptr;
  OPS_DEBUG_REAL(cuCtxGetCurrent)(&current);
  return {current, to, from};
}

template <class Call>
CUresult PeerCopied(const char* api, CUstream stream, bool is_async, const CopySide& to,
                    const CopySide& from, std::vector<CUcontext> contexts, Call call) {
  OrderedCopy copy(api, stream, is_async, to, from, std::move(contexts));
  const CUresult result = call();
  copy.Done(result);
  return result;
}

CUDA_MEMCPY3D WithoutContexts(const CUDA_MEMCPY3D_PEER& box) {
  CUDA_MEMCPY3D plain{};
  plain.srcXInBytes = box.srcXInBytes;
  plain.srcY = box.srcY;
  plain.srcZ = box.srcZ;
  plain.srcMemoryType = box.srcMemoryType;
  plain.srcHost = box.srcHost;
  plain.srcDevice = box.srcDevice;
  plain.srcPitch = box.srcPitch;
  plain.srcHeight = box.srcHeight;
  plain.dstXInBytes = box.dstXInBytes;
  plain.dstY = box.dstY;
  plain.dstZ = box.dstZ;
  plain.dstMemoryType = box.dstMemoryType;
  plain.dstHost = box.dstHost;
  plain.dstDevice = box.dstDevice;
  plain.dstPitch = box.dstPitch;
  plain.dstHeight = box.dstHeight;
  plain.WidthInBytes = box.WidthInBytes;
  plain.Height = box.Height;
  plain.Depth = box.Depth;
  return plain;
}

}  // namespace

OPS_DEBUG_ORDER_HOOK(cuMemcpyPeer, CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                     CUcontext from_context, size_t bytes) {
  return PeerCopied(ApiName(real), StreamOf(real, nullptr), false, LinearSide(to, bytes),
                    LinearSide(from, bytes), WithCurrent(to_context, from_context),
                    [&] { return real(to, to_context, from, from_context, bytes); });
}
OPS_DEBUG_ORDER_HOOK_AS(cuMemcpyPeer_ptds, cuMemcpyPeer)
OPS_DEBUG_ORDER_HOOK(cuMemcpyPeerAsync, CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                     CUcontext from_context, size_t bytes, CUstream stream) {
  return Copied(real, stream, true, LinearSide(to, bytes), LinearSide(from, bytes),
                [&] { return real(to, to_context, from, from_context, bytes, stream); });
}
OPS_DEBUG_ORDER_HOOK_AS(cuMemcpyPeerAsync_ptsz, cuMemcpyPeerAsync)
OPS_DEBUG_ORDER_HOOK(cuMemcpy3DPeer, const CUDA_MEMCPY3D_PEER* box) {
  if (!box) return real(box);
  CopySide to, from;
  BoxSides(WithoutContexts(*box), &to, &from);
  return PeerCopied(ApiName(real), StreamOf(real, nullptr), false, to, from,
                    WithCurrent(box->dstContext, box->srcContext), [&] { return real(box); });
}
OPS_DEBUG_ORDER_HOOK_AS(cuMemcpy3DPeer_ptds, cuMemcpy3DPeer)
OPS_DEBUG_ORDER_HOOK(cuMemcpy3DPeerAsync, const CUDA_MEMCPY3D_PEER* box, CUstream stream) {
  if (!box) return real(box, stream);
  const CUDA_MEMCPY3D plain = WithoutContexts(*box);
  return BoxCopied(real, stream, true, &plain, [&] { return real(box, stream); });
}
OPS_DEBUG_ORDER_HOOK_AS(cuMemcpy3DPeerAsync_ptsz, cuMemcpy3DPeerAsync)

// Memsets.
OPS_DEBUG_ORDER_HOOK(cuMemsetD8_v2, CUdeviceptr to, unsigned char value, size_t count) {
  return Filled(real, nullptr, false, to, count, 1, 0, [&] { return real(to, value, count); });
}
OPS_DEBUG_ORDER_HOOK_AS(cuMemsetD8_v2_ptds, cuMemsetD8_v2)

OPS_DEBUG_ORDER_HOOK(cuMemsetD2D8_v2, CUdeviceptr to, size_t pitch, unsigned char value,
                     size_t width, size_t height) {
  return Filled(real, nullptr, false, to, width, height, pitch,
                [&] { return real(to, pitch, value, width, height); });
}
OPS_DEBUG_ORDER_HOOK_AS(cuMemsetD2D8_v2_ptds, cuMemsetD2D8_v2)

OPS_DEBUG_ORDER_HOOK(cuMemsetD8Async, CUdeviceptr to, unsigned char value, size_t count,
                     CUstream stream) {
  return Filled(real, stream, true, to, count, 1, 0,
                [&] { return real(to, value, count, stream); });
}
OPS_DEBUG_ORDER_HOOK_AS(cuMemsetD8Async_ptsz, cuMemsetD8Async)

OPS_DEBUG_ORDER_HOOK(cuMemsetD2D8Async, CUdeviceptr to, size_t pitch, unsigned char value,
                     size_t width, size_t height, CUstream stream) {
  return Filled(real, stream, true, to, width, height, pitch,
                [&] { return real(to, pitch, value, width, height, stream); });
}
OPS_DEBUG_ORDER_HOOK_AS(cuMemsetD2D8Async_ptsz, cuMemsetD2D8Async)

OPS_DEBUG_ORDER_HOOK(cuMemsetD16_v2, CUdeviceptr to, unsigned short value, size_t count) {
  return Filled(real, nullptr, false, to, count * 2, 1, 0, [&] { return real(to, value, count); });
}
OPS_DEBUG_ORDER_HOOK_AS(cuMemsetD16_v2_ptds, cuMemsetD16_v2)

OPS_DEBUG_ORDER_HOOK(cuMemsetD2D16_v2, CUdeviceptr to, size_t pitch, unsigned short value,
                     size_t width, size_t height) {
  return Filled(real, nullptr, false, to, width * 2, height, pitch,
                [&] { return real(to, pitch, value, width, height); });
}
OPS_DEBUG_ORDER_HOOK_AS(cuMemsetD2D16_v2_ptds, cuMemsetD2D16_v2)

OPS_DEBUG_ORDER_HOOK(cuMemsetD16Async, CUdeviceptr to, unsigned short value, size_t count,
                     CUstream stream) {
  return Filled(real, stream, true, to, count * 2, 1, 0,
                [&] { return real(to, value, count, stream); });
}
OPS_DEBUG_ORDER_HOOK_AS(cuMemsetD16Async_ptsz, cuMemsetD16Async)

OPS_DEBUG_ORDER_HOOK(cuMemsetD2D16Async, CUdeviceptr to, size_t pitch, unsigned short value,
                     size_t width, size_t height, CUstream stream) {
  return Filled(real, stream, true, to, width * 2, height, pitch,
                [&] { return real(to, pitch, value, width, height, stream); });
}
OPS_DEBUG_ORDER_HOOK_AS(cuMemsetD2D16Async_ptsz, cuMemsetD2D16Async)

OPS_DEBUG_ORDER_HOOK(cuMemsetD32_v2, CUdeviceptr to, unsigned int value, size_t count) {
  return Filled(real, nullptr, false, to, count * 4, 1, 0, [&] { return real(to, value, count); });
}
OPS_DEBUG_ORDER_HOOK_AS(cuMemsetD32_v2_ptds, cuMemsetD32_v2)

OPS_DEBUG_ORDER_HOOK(cuMemsetD2D32_v2, CUdeviceptr to, size_t pitch, unsigned int value,
                     size_t width, size_t height) {
  return Filled(real, nullptr, false, to, width * 4, height, pitch,
                [&] { return real(to, pitch, value, width, height); });
}
OPS_DEBUG_ORDER_HOOK_AS(cuMemsetD2D32_v2_ptds, cuMemsetD2D32_v2)

OPS_DEBUG_ORDER_HOOK(cuMemsetD32Async, CUdeviceptr to, unsigned int value, size_t count,
                     CUstream stream) {
  return Filled(real, stream, true, to, count * 4, 1, 0,
                [&] { return real(to, value, count, stream); });
}
OPS_DEBUG_ORDER_HOOK_AS(cuMemsetD32Async_ptsz, cuMemsetD32Async)

OPS_DEBUG_ORDER_HOOK(cuMemsetD2D32Async, CUdeviceptr to, size_t pitch, unsigned int value,
                     size_t width, size_t height, CUstream stream) {
  return Filled(real, stream, true, to, width * 4, height, pitch,
                [&] { return real(to, pitch, value, width, height, stream); });
}
OPS_DEBUG_ORDER_HOOK_AS(cuMemsetD2D32Async_ptsz, cuMemsetD2D32Async)

}  // namespace ops_debug::interposer
