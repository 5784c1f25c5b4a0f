// Copies and memsets in the order of stream work: what they touch, and what the host knows when the
// call returns (CUDA Driver API, "API synchronization behavior"):
//
//   synchronous   pageable host -> device   the stream's earlier work is done and the source read;
//                                           the copy to the device may still be under way
//                 pinned host -> device     the copy is done
//                 device -> host            the copy is done
//                 device -> device          nothing
//                 host -> host              the copy is done
//   asynchronous  device -> pageable host   may be done (it is; but nobody promises it)
//                 host -> host              the copy is done
//                 else                      nothing; a pageable source has been read
//   memset        synchronous, of pinned or managed memory: it is done; else nothing
#pragma once

#include <optional>

#include "interposer/stream_order.h"

namespace ops_debug::interposer {

enum class MemoryClass : uint8_t { kPageable, kPinned, kManaged, kDevice, kArray };
MemoryClass ClassOf(uint64_t address);

// One side of a copy; an array has no address.
struct CopySide {
  uint64_t address = 0;
  uint64_t width_bytes = 0;
  uint64_t height = 1;
  uint64_t pitch_bytes = 0;
  MemoryClass memory = MemoryClass::kArray;
};
CopySide LinearSide(uint64_t address, uint64_t bytes);
CopySide ArraySide();

class OrderedCopy {
 public:
  OrderedCopy(const char* api, CUstream explicit_stream, bool is_async, const CopySide& to,
              const CopySide& from, std::vector<CUcontext> serialised_with = {});
  void Done(CUresult result);

 private:
  bool joins_copy_ = false, promised_ = true;
  BlockingCall blocking_;
  std::optional<HostWait> earlier_;
  std::optional<OrderedWork> work_;
};

// Of a copy in two dimensions, for both kinds of call.
void BoxSides(const CUDA_MEMCPY2D& copy, CopySide* to, CopySide* from);
void BoxSides(const CUDA_MEMCPY3D& copy, CopySide* to, CopySide* from);

class OrderedFill {
 public:
  OrderedFill(const char* api, CUstream explicit_stream, bool is_async, const CopySide& target);
  void Done(CUresult result);

 private:
  bool joins_ = false;
  std::optional<OrderedWork> work_;
};

}  // namespace ops_debug::interposer
