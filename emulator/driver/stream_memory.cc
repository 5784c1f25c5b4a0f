// Stream memory operations: a stream that waits for a value in memory, or writes one. They read and
// write memory that the device may access at the address; another device's, a kernel's or the
// host's writes are seen.
#include <span>

#include "emulator/driver/memory.h"
#include "emulator/driver/operation.h"

namespace ops_debug::emulator {
namespace {

bool IsWord(const Device& device, CUdeviceptr address, uint32_t bytes) {
  return address % bytes == 0 && IsDeviceRange(device, address, bytes);
}

CUresult CheckedWait(const Device& device, CUdeviceptr address, uint64_t value, uint32_t bytes,
                     unsigned flags, Operation* operation) {
  // CU_STREAM_WAIT_VALUE_FLUSH concerns writes of other PCIe devices.
  constexpr unsigned kKnown = 3u | CU_STREAM_WAIT_VALUE_FLUSH;
  if ((flags & ~kKnown) != 0 || !IsWord(device, address, bytes)) return CUDA_ERROR_INVALID_VALUE;
  operation->work =
      MemoryWaitOperation{.address = address, .value = value, .bytes = bytes, .flags = flags};
  return CUDA_SUCCESS;
}

CUresult CheckedWrite(const Device& device, CUdeviceptr address, uint64_t value, uint32_t bytes,
                      unsigned flags, Operation* operation) {
  constexpr unsigned kKnown = CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER;
  if ((flags & ~kKnown) != 0 || !IsWord(device, address, bytes)) return CUDA_ERROR_INVALID_VALUE;
  operation->work = MemoryWriteOperation{.address = address, .value = value, .bytes = bytes};
  return CUDA_SUCCESS;
}

CUresult Wait(CUstream stream, CUdeviceptr address, uint64_t value, uint32_t bytes,
              unsigned flags) {
  return InContext([&](Device& device, CUctx_st& context) -> CUresult {
    Operation operation;
    const CUresult status = CheckedWait(device, address, value, bytes, flags, &operation);
    if (status != CUDA_SUCCESS) return status;
    return Submit(device, context, stream, std::move(operation));
  });
}

CUresult Write(CUstream stream, CUdeviceptr address, uint64_t value, uint32_t bytes,
               unsigned flags) {
  return InContext([&](Device& device, CUctx_st& context) -> CUresult {
    Operation operation;
    const CUresult status = CheckedWrite(device, address, value, bytes, flags, &operation);
    if (status != CUDA_SUCCESS) return status;
    return Submit(device, context, stream, std::move(operation));
  });
}

CUresult Check(const Device& device, const CUstreamBatchMemOpParams& entry, Operation* operation) {
  switch (entry.operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
      return CheckedWait(device, entry.waitValue.address, entry.waitValue.value, 4,
                         entry.waitValue.flags, operation);
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      return CheckedWait(device, entry.waitValue.address, entry.waitValue.value64, 8,
                         entry.waitValue.flags, operation);
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
      return CheckedWrite(device, entry.writeValue.address, entry.writeValue.value, 4,
                          entry.writeValue.flags, operation);
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      return CheckedWrite(device, entry.writeValue.address, entry.writeValue.value64, 8,
                          entry.writeValue.flags, operation);
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
    case CU_STREAM_MEM_OP_BARRIER:
      return CUDA_SUCCESS;  // keeps the order and has nothing to do
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace
}  // namespace ops_debug::emulator

using namespace ops_debug::emulator;  // NOLINT(google-build-using-namespace): entry points only

extern "C" {

CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                unsigned int flags) {
  return Wait(stream, address, value, 4, flags);
}

CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                unsigned int flags) {
  return Wait(stream, address, value, 8, flags);
}

CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                 unsigned int flags) {
  return Write(stream, address, value, 4, flags);
}

CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                 unsigned int flags) {
  return Write(stream, address, value, 8, flags);
}

CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned int count,
                               CUstreamBatchMemOpParams* entries, unsigned int flags) {
  constexpr unsigned kMaxEntries = 256;
  if (flags != 0 || count > kMaxEntries || (count != 0 && entries == nullptr)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return InContext([&](Device& device, CUctx_st& context) -> CUresult {
    std::vector<Operation> operations(count);
    for (unsigned i = 0; i < count; ++i) {
      const CUresult status = Check(device, entries[i], &operations[i]);
      if (status != CUDA_SUCCESS) return status;
    }
    for (Operation& operation : operations) {
      const CUresult status = Submit(device, context, stream, std::move(operation));
      if (status != CUDA_SUCCESS) return status;
    }
    return CUDA_SUCCESS;
  });
}

}  // extern "C"

OPS_DEBUG_PER_THREAD(cuStreamWaitValue32_v2, ptsz, 4)
OPS_DEBUG_PER_THREAD(cuStreamWaitValue64_v2, ptsz, 4)
OPS_DEBUG_PER_THREAD(cuStreamWriteValue32_v2, ptsz, 4)
OPS_DEBUG_PER_THREAD(cuStreamWriteValue64_v2, ptsz, 4)
OPS_DEBUG_PER_THREAD(cuStreamBatchMemOp_v2, ptsz, 4)
OPS_DEBUG_FIRST_ABI(cuStreamWaitValue32, cuStreamWaitValue32_v2)
OPS_DEBUG_FIRST_ABI(cuStreamWaitValue64, cuStreamWaitValue64_v2)
OPS_DEBUG_FIRST_ABI(cuStreamWriteValue32, cuStreamWriteValue32_v2)
OPS_DEBUG_FIRST_ABI(cuStreamWriteValue64, cuStreamWriteValue64_v2)
OPS_DEBUG_FIRST_ABI(cuStreamBatchMemOp, cuStreamBatchMemOp_v2)
OPS_DEBUG_PER_THREAD(cuStreamWaitValue32, ptsz, 4)
OPS_DEBUG_PER_THREAD(cuStreamWaitValue64, ptsz, 4)
OPS_DEBUG_PER_THREAD(cuStreamWriteValue32, ptsz, 4)
OPS_DEBUG_PER_THREAD(cuStreamWriteValue64, ptsz, 4)
OPS_DEBUG_PER_THREAD(cuStreamBatchMemOp, ptsz, 4)
