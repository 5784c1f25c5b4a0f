// Freed blocks that the driver does not get back yet, so that accesses through stale pointers are
// caught: first in, first out, with a budget of bytes. A passive queue: the caller frees what comes
// out. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

namespace ops_debug::shadow {

struct QuarantinedBlock {
  uint64_t base = 0;
  uint64_t reserved_bytes = 0;
  bool stream_ordered = false;  // came from a memory pool: to be freed with cuMemFreeAsync
  void* event =
      nullptr;  // recorded behind the free in its stream; null if the free was synchronous
};

class Quarantine {
 public:
  explicit Quarantine(uint64_t budget_bytes) : budget_bytes_(budget_bytes) {}

  // Takes `block` and returns what must go to stay within the budget, oldest first; a block larger
  // than the budget comes straight back.
  std::vector<QuarantinedBlock> Push(const QuarantinedBlock& block) {
    blocks_.push_back(block);
    bytes_ += block.reserved_bytes;
    std::vector<QuarantinedBlock> evicted;
    while (bytes_ > budget_bytes_) evicted.push_back(Pop());
    return evicted;
  }

  std::vector<QuarantinedBlock> Flush() {
    std::vector<QuarantinedBlock> all(blocks_.begin(), blocks_.end());
    blocks_.clear();
    bytes_ = 0;
    return all;
  }

  uint64_t bytes() const { return bytes_; }
  size_t size() const { return blocks_.size(); }

 private:
  QuarantinedBlock Pop() {
    const QuarantinedBlock block = blocks_.front();
    blocks_.pop_front();
    bytes_ -= block.reserved_bytes;
    return block;
  }

  uint64_t budget_bytes_;
  uint64_t bytes_ = 0;
  std::deque<QuarantinedBlock> blocks_;
};

}  // namespace ops_debug::shadow
