// Batches of copies and copies between devices: one call that stands for several plain copies, or
// names contexts beside addresses (which tell the device anyway).
#include <algorithm>

#include "emulator/driver/array.h"

namespace ops_debug::emulator {
namespace {

// Notes which copy failed, for the versions that tell.
CUresult FailAt(size_t* fail_index, size_t index, CUresult status) {
  if (fail_index != nullptr) *fail_index = index;
  return status;
}

bool IsOrder(CUmemcpySrcAccessOrder order) {
  return order >= CU_MEMCPY_SRC_ACCESS_ORDER_STREAM && order <= CU_MEMCPY_SRC_ACCESS_ORDER_ANY;
}

CUresult CopyLines(const CUdeviceptr* to, const CUdeviceptr* from, const size_t* bytes,
                   size_t count, const CUmemcpyAttributes* attributes, const size_t* first_copies,
                   size_t attribute_count, size_t* fail_index, CUstream stream) {
  if (fail_index != nullptr) *fail_index = SIZE_MAX;
  if (to == nullptr || from == nullptr || bytes == nullptr || count == 0 || attributes == nullptr ||
      first_copies == nullptr || attribute_count == 0 || attribute_count > count ||
      first_copies[0] != 0 || stream == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (size_t i = 0; i < attribute_count; ++i) {
    const bool rises = i == 0 || first_copies[i] > first_copies[i - 1];
    if (!rises || first_copies[i] >= count || !IsOrder(attributes[i].srcAccessOrder))
      return CUDA_ERROR_INVALID_VALUE;
  }
  for (size_t i = 0; i < count; ++i) {
    const CUresult status = cuMemcpyAsync(to[i], from[i], bytes[i], stream);
    if (status != CUDA_SUCCESS) return FailAt(fail_index, i, status);
  }
  return CUDA_SUCCESS;
}

// 1 for plain memory on both sides, where elements are bytes.
size_t ElementBytes(const CUDA_MEMCPY3D_BATCH_OP& operation) {
  size_t bytes = 1;
  OnDevice([&](Device&) {
    for (const CUmemcpy3DOperand* side : {&operation.src, &operation.dst}) {
      if (side->type != CU_MEMCPY_OPERAND_TYPE_ARRAY) continue;
      const CUarray_st* array = FindArray(side->op.array.array);
      if (array != nullptr) bytes = array->image.texel_bytes();
    }
    return CUDA_SUCCESS;
  });
  return bytes;
}

CUresult CopyBoxOf(const CUDA_MEMCPY3D_BATCH_OP& operation, CUstream stream) {
  const CUextent3D& extent = operation.extent;
  if (extent.width == 0 || extent.height == 0 || extent.depth == 0 ||
      !IsOrder(operation.srcAccessOrder)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const size_t element = ElementBytes(operation);
  CUDA_MEMCPY3D copy{};
  const auto pitch_of = [&](const CUmemcpy3DOperand& side) {
    return (side.op.ptr.rowLength != 0 ? side.op.ptr.rowLength : extent.width) * element;
  };
  const auto rows_of = [&](const CUmemcpy3DOperand& side) {
    return side.op.ptr.layerHeight != 0 ? side.op.ptr.layerHeight : extent.height;
  };
  if (operation.src.type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
    copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.srcArray = operation.src.op.array.array;
    copy.srcXInBytes = operation.src.op.array.offset.x * element;
    copy.srcY = operation.src.op.array.offset.y;
    copy.srcZ = operation.src.op.array.offset.z;
  } else {
    copy.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
    copy.srcDevice = operation.src.op.ptr.ptr;
    copy.srcPitch = pitch_of(operation.src);
    copy.srcHeight = rows_of(operation.src);
  }
  if (operation.dst.type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
    copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.dstArray = operation.dst.op.array.array;
    copy.dstXInBytes = operation.dst.op.array.offset.x * element;
    copy.dstY = operation.dst.op.array.offset.y;
    copy.dstZ = operation.dst.op.array.offset.z;
  } else {
    copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
    copy.dstDevice = operation.dst.op.ptr.ptr;
    copy.dstPitch = pitch_of(operation.dst);
    copy.dstHeight = rows_of(operation.dst);
  }
  copy.WidthInBytes = extent.width * element;
  copy.Height = extent.height;
  copy.Depth = extent.depth;
  return cuMemcpy3DAsync_v2(&copy, stream);
}

CUresult CopyBoxes(size_t count, const CUDA_MEMCPY3D_BATCH_OP* operations, size_t* fail_index,
                   unsigned long long flags, CUstream stream) {  // NOLINT(google-runtime-int)
  if (fail_index != nullptr) *fail_index = SIZE_MAX;
  if (count == 0 || operations == nullptr || flags != 0 || stream == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    const CUresult status = CopyBoxOf(operations[i], stream);
    if (status != CUDA_SUCCESS) return FailAt(fail_index, i, status);
  }
  return CUDA_SUCCESS;
}

CUDA_MEMCPY3D WithoutContexts(const CUDA_MEMCPY3D_PEER& peer) {
  CUDA_MEMCPY3D copy{};
  copy.srcXInBytes = peer.srcXInBytes;
  copy.srcY = peer.srcY;
  copy.srcZ = peer.srcZ;
  copy.srcMemoryType = peer.srcMemoryType;
  copy.srcHost = peer.srcHost;
  copy.srcDevice = peer.srcDevice;
  copy.srcArray = peer.srcArray;
  copy.srcPitch = peer.srcPitch;
  copy.srcHeight = peer.srcHeight;
  copy.dstXInBytes = peer.dstXInBytes;
  copy.dstY = peer.dstY;
  copy.dstZ = peer.dstZ;
  copy.dstMemoryType = peer.dstMemoryType;
  copy.dstHost = peer.dstHost;
  copy.dstDevice = peer.dstDevice;
  copy.dstArray = peer.dstArray;
  copy.dstPitch = peer.dstPitch;
  copy.dstHeight = peer.dstHeight;
  copy.WidthInBytes = peer.WidthInBytes;
  copy.Height = peer.Height;
  copy.Depth = peer.Depth;
  return copy;
}

}  // namespace
}  // namespace ops_debug::emulator

using namespace ops_debug::emulator;  // NOLINT(google-build-using-namespace): entry points only

extern "C" {

CUresult cuMemcpyBatchAsync_v2(CUdeviceptr* to, CUdeviceptr* from, size_t* bytes, size_t count,
                               CUmemcpyAttributes* attributes, size_t* first_copies,
                               size_t attribute_count, CUstream stream) {
  return CopyLines(to, from, bytes, count, attributes, first_copies, attribute_count, nullptr,
                   stream);
}

CUresult cuMemcpyBatchAsync(CUdeviceptr* to, CUdeviceptr* from, size_t* bytes, size_t count,
                            CUmemcpyAttributes* attributes, size_t* first_copies,
                            size_t attribute_count, size_t* fail_index, CUstream stream) {
  return CopyLines(to, from, bytes, count, attributes, first_copies, attribute_count, fail_index,
                   stream);
}

CUresult cuMemcpy3DBatchAsync_v2(size_t count, CUDA_MEMCPY3D_BATCH_OP* operations,
                                 unsigned long long flags,  // NOLINT(google-runtime-int): ABI
                                 CUstream stream) {
  return CopyBoxes(count, operations, nullptr, flags, stream);
}

CUresult cuMemcpy3DBatchAsync(size_t count, CUDA_MEMCPY3D_BATCH_OP* operations, size_t* fail_index,
                              unsigned long long flags,  // NOLINT(google-runtime-int): ABI
                              CUstream stream) {
  return CopyBoxes(count, operations, fail_index, flags, stream);
}

CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER* peer) {
  if (peer == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_MEMCPY3D copy = WithoutContexts(*peer);
  return cuMemcpy3D_v2(&copy);
}

CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER* peer, CUstream stream) {
  if (peer == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_MEMCPY3D copy = WithoutContexts(*peer);
  return cuMemcpy3DAsync_v2(&copy, stream);
}

}  // extern "C"

OPS_DEBUG_PER_THREAD(cuMemcpyBatchAsync_v2, ptsz, 8)
OPS_DEBUG_PER_THREAD(cuMemcpyBatchAsync, ptsz, 9)
OPS_DEBUG_PER_THREAD(cuMemcpy3DBatchAsync_v2, ptsz, 4)
OPS_DEBUG_PER_THREAD(cuMemcpy3DBatchAsync, ptsz, 5)
OPS_DEBUG_PER_THREAD(cuMemcpy3DPeer, ptds, 1)
OPS_DEBUG_PER_THREAD(cuMemcpy3DPeerAsync, ptsz, 2)
