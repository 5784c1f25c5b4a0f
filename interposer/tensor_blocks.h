// Blocks that frameworks hand out of their memory pools. Whoever sees a pool at work (the hooks of
// PyTorch's allocator in torch_hooks.cc, the Python adapters of python/ops_debug through
// block_exports.cc) reports here; book and shadow memory follow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "shadow/host/allocation_book.h"

namespace ops_debug::interposer {

// True if blocks are to be reported at all.
bool TracksTensors() noexcept;

struct BlockReport {
  uint64_t address = 0;
  uint64_t size_bytes = 0;      // that the framework uses; 0: not known, all of it
  uint64_t reserved_bytes = 0;  // that the pool set aside
  const char* pool = "";        // "PyTorch caching allocator"; lives as long as the process
  shadow::TensorInfo tensor;    // without stacks
  // Every block of this pool is reported, so memory of it that no block holds is nobody's.
  bool reports_all = true;
  // The stream that the block belongs to is being captured: a graph will use the block at any time.
  bool for_graph = false;
};

// Neither throws. Blocks of memory that we did not see allocated are ignored.
void BlockHandedOut(const BlockReport& report) noexcept;
// `under_capture`: the stream that the block belongs to is being captured, so the graph may use the
// block whenever it is replayed.
void BlockGivenBack(uint64_t address, bool under_capture = false) noexcept;

// What the calling thread's framework is allocating memory for right now, if that is a tensor of
// `size_bytes` bytes: for frameworks that go to the driver for each tensor. Null: not known.
std::shared_ptr<const shadow::TensorInfo> TensorBeingAllocated(uint64_t size_bytes) noexcept;
// Set by torch_hooks.cc.
using TensorQuestion = bool (*)(uint64_t size_bytes, shadow::TensorInfo* tensor) noexcept;
void AnswerTensorBeingAllocated(TensorQuestion question) noexcept;

shadow::CodeLines CapturePythonLines() noexcept;

}  // namespace ops_debug::interposer
