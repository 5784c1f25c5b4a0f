// What linear bulk copies, bulk reductions and asynchronous stores do when they are performed.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "emulator/code.h"
#include "emulator/pending_copies.h"

namespace ops_debug::emulator {

// How the elements of a source meet those of the destination.
struct Reduction {
  AtomicOp operation = AtomicOp::kAdd;
  ScalarType type = ScalarType::kU32;
  uint32_t element_bytes = 4;
};

// Combines `bytes` bytes of elements into `target`, each atomically.
void ReduceInto(std::byte* target, const std::byte* source, uint64_t bytes,
                const Reduction& reduction);

class LinearCopy : public Transfer {
 public:
  LinearCopy(std::byte* target, const std::byte* source, uint64_t bytes)
      : target_(target), source_(source), bytes_(bytes) {}
  // Of a value that is in registers.
  LinearCopy(std::byte* target, std::vector<std::byte> value)
      : target_(target), bytes_(value.size()), buffer_(std::move(value)) {}
  void Reduce(const Reduction& reduction) {
    reduces_ = true;
    reduction_ = reduction;
  }
  void Read() override;
  void Write() override;
  void ForEachPiece(const Piece& piece) const override { piece(target_, source_, bytes_); }
  bool reduces() const override { return reduces_; }

 private:
  std::byte* target_;
  const std::byte* source_ = nullptr;
  uint64_t bytes_;
  bool reduces_ = false;
  Reduction reduction_;
  std::vector<std::byte> buffer_;
};

}  // namespace ops_debug::emulator
