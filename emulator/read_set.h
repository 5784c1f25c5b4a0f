// Which memory observed warps have read: a change of other memory cannot wake anybody up
// (stall.cc).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace ops_debug::emulator {

// A hash table of marks: never says no for what was added.
class ReadSet {
 public:
  // Not from two threads at a time; before anything else.
  void Prepare() {
    if (slots_ == nullptr) slots_ = std::make_unique<std::atomic<uint8_t>[]>(kSlots);
  }
  void Add(const std::byte* pointer, uint32_t bytes) {
    for (uint64_t cell = First(pointer); cell <= First(pointer + bytes - 1); ++cell)
      slots_[SlotOf(cell)].store(1, std::memory_order_relaxed);
  }
  bool Contains(const std::byte* pointer, uint32_t bytes) const {
    for (uint64_t cell = First(pointer); cell <= First(pointer + bytes - 1); ++cell) {
      if (slots_[SlotOf(cell)].load(std::memory_order_relaxed) != 0) return true;
    }
    return false;
  }

 private:
  static constexpr size_t kSlots = 1 << 16;
  static uint64_t First(const std::byte* pointer) {
    return reinterpret_cast<uint64_t>(pointer) >> 3;
  }
  static size_t SlotOf(uint64_t cell) {
    return static_cast<size_t>((cell * 0x9e37'79b9'7f4a'7c15ull) >> 48);
  }
  std::unique_ptr<std::atomic<uint8_t>[]> slots_;
};

}  // namespace ops_debug::emulator
