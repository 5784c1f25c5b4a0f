#include "interposer/stream_order_copies.h"

namespace ops_debug::interposer {
namespace {

using shadow::WorkEffect;

bool IsHost(MemoryClass memory) {
  return memory == MemoryClass::kPageable || memory == MemoryClass::kPinned;
}
bool IsDevice(MemoryClass memory) {
  return memory == MemoryClass::kDevice || memory == MemoryClass::kArray;
}

// Memory whose synchronous operations always wait (GPUDirect).
bool SynchronisesAlways(const CopySide& side) {
  unsigned int value = 0;
  return side.memory == MemoryClass::kDevice &&
         OPS_DEBUG_REAL(cuPointerGetAttribute)(&value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
                                               side.address) == CUDA_SUCCESS &&
         value != 0;
}

RangeAccess Range(const CopySide& side, bool is_write) {
  return {.address = side.address,
          .width_bytes = side.width_bytes,
          .height = side.height,
          .pitch_bytes = side.pitch_bytes,
          .is_write = is_write};
}

// What devices can reach; the host's own memory is its own affair.
void AddAccess(const CopySide& side, bool is_write, WorkDescription* description) {
  if (side.memory == MemoryClass::kPageable || side.memory == MemoryClass::kArray) return;
  description->accesses.push_back(Range(side, is_write));
}

CopySide Side(CUmemorytype type, const void* host, CUdeviceptr device, uint64_t pitch_bytes,
              uint64_t skipped_bytes, uint64_t width_bytes, uint64_t height) {
  uint64_t address = 0;
  switch (type) {
    case CU_MEMORYTYPE_HOST:
      address = reinterpret_cast<uintptr_t>(host);
      break;
    case CU_MEMORYTYPE_DEVICE:
    case CU_MEMORYTYPE_UNIFIED:
      address = device;
      break;
    default:
      return ArraySide();
  }
  CopySide side = LinearSide(address + skipped_bytes, width_bytes);
  side.height = height;
  side.pitch_bytes = pitch_bytes;
  return side;
}

}  // namespace

MemoryClass ClassOf(uint64_t address) {
  unsigned int type = 0, managed = 0;
  if (address == 0 || OPS_DEBUG_REAL(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                                            address) != CUDA_SUCCESS) {
    return MemoryClass::kPageable;
  }
  if (OPS_DEBUG_REAL(cuPointerGetAttribute)(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address) ==
          CUDA_SUCCESS &&
      managed != 0) {
    return MemoryClass::kManaged;
  }
  return type == CU_MEMORYTYPE_HOST ? MemoryClass::kPinned : MemoryClass::kDevice;
}

CopySide LinearSide(uint64_t address, uint64_t bytes) {
  CopySide side{.address = address, .width_bytes = bytes};
  // The question costs two calls of the driver.
  if (ChecksStreamOrder()) side.memory = ClassOf(address);
  return side;
}

CopySide ArraySide() { return {}; }

void BoxSides(const CUDA_MEMCPY2D& copy, CopySide* to, CopySide* from) {
  *to = Side(copy.dstMemoryType, copy.dstHost, copy.dstDevice, copy.dstPitch,
             copy.dstXInBytes + copy.dstY * copy.dstPitch, copy.WidthInBytes, copy.Height);
  *from = Side(copy.srcMemoryType, copy.srcHost, copy.srcDevice, copy.srcPitch,
               copy.srcXInBytes + copy.srcY * copy.srcPitch, copy.WidthInBytes, copy.Height);
}

// Slices follow each other at pitch * height: as rows they are one box if it is copied in full
// height, else the rows between are counted in, which only a description sees.
void BoxSides(const CUDA_MEMCPY3D& copy, CopySide* to, CopySide* from) {
  const auto rows = [&](uint64_t slice_height) {
    return copy.Depth <= 1 ? copy.Height : slice_height * (copy.Depth - 1) + copy.Height;
  };
  *to = Side(copy.dstMemoryType, copy.dstHost, copy.dstDevice, copy.dstPitch,
             copy.dstXInBytes + (copy.dstY + copy.dstZ * copy.dstHeight) * copy.dstPitch,
             copy.WidthInBytes, rows(copy.dstHeight));
  *from = Side(copy.srcMemoryType, copy.srcHost, copy.srcDevice, copy.srcPitch,
               copy.srcXInBytes + (copy.srcY + copy.srcZ * copy.srcHeight) * copy.srcPitch,
               copy.WidthInBytes, rows(copy.srcHeight));
}

OrderedCopy::OrderedCopy(const char* api, CUstream explicit_stream, bool is_async,
                         const CopySide& to, const CopySide& from,
                         std::vector<CUcontext> serialised_with) {
  if (!ChecksStreamOrder()) return;
  WorkDescription description{.api = api, .serialised_with = std::move(serialised_with)};
  AddAccess(to, /*is_write=*/true, &description);
  AddAccess(from, /*is_write=*/false, &description);
  const bool on_device = IsDevice(to.memory) && IsDevice(from.memory);
  const bool staged = from.memory == MemoryClass::kPageable && !IsHost(to.memory);
  if (IsHost(to.memory) && IsHost(from.memory)) {
    joins_copy_ = true;
  } else if (is_async) {
    joins_copy_ = to.memory == MemoryClass::kPageable;
    promised_ = false;
  } else {
    joins_copy_ = !staged && !(on_device && !SynchronisesAlways(to) && !SynchronisesAlways(from));
  }
  if (!description.serialised_with.empty()) joins_copy_ = false;
  if (on_device) {
    description.effect = WorkEffect::kDeviceOnly;
  } else if (staged && IsDevice(to.memory)) {
    description.effect = is_async ? WorkEffect::kDeviceOnly : WorkEffect::kStagedCopy;
  } else if (IsHost(to.memory) && IsDevice(from.memory)) {
    description.effect = WorkEffect::kCopyToHost;
  }
  if (is_async && from.memory == MemoryClass::kPinned && !IsHost(to.memory))
    description.pinned = Range(from, /*is_write=*/false);
  if (is_async && to.memory == MemoryClass::kPinned && !IsHost(from.memory))
    description.pinned = Range(to, /*is_write=*/true);
  if (!is_async && staged) earlier_.emplace(HostWait::ForStream(nullptr, explicit_stream));
  work_.emplace(std::move(description), explicit_stream);
  if (!is_async) blocking_ = BlockingCall::Begin();
}

void OrderedCopy::Done(CUresult result) {
  blocking_.End();
  if (!work_) return;
  work_->Submitted(result);
  if (earlier_) earlier_->Done(result);
  if (joins_copy_) HostWait::ForWork(*work_, promised_).Done(result);
}

OrderedFill::OrderedFill(const char* api, CUstream explicit_stream, bool is_async,
                         const CopySide& target) {
  if (!ChecksStreamOrder()) return;
  WorkDescription description{.api = api};
  AddAccess(target, /*is_write=*/true, &description);
  if (IsDevice(target.memory)) description.effect = WorkEffect::kDeviceOnly;
  joins_ = !is_async && !IsDevice(target.memory);
  work_.emplace(std::move(description), explicit_stream);
}

void OrderedFill::Done(CUresult result) {
  if (!work_) return;
  work_->Submitted(result);
  if (joins_) HostWait::ForWork(*work_, /*promised=*/true).Done(result);
}

}  // namespace ops_debug::interposer
