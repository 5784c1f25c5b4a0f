// Operands of extended operations, read lane by lane.
#pragma once

#include <cstdint>
#include <cstring>

#include "emulator/code.h"
#include "emulator/machine.h"

namespace ops_debug::emulator {

// [base + offset] in a state space.
struct AddressOperand {
  Space space = Space::kGeneric;
  Ref base = kNoRef;
  bool is_32bit = false;
  int64_t offset = 0;

  bool Present() const { return base != kNoRef; }
  uint64_t Of(Frame& frame, uint32_t lane) const {
    const std::byte* const array = Machine::At(frame, base);
    uint64_t address = 0;
    if (is_32bit) {
      uint32_t narrow = 0;
      std::memcpy(&narrow, array + lane * sizeof(narrow), sizeof(narrow));
      return static_cast<uint32_t>(narrow + static_cast<uint32_t>(offset));
    }
    std::memcpy(&address, array + lane * sizeof(address), sizeof(address));
    return address + static_cast<uint64_t>(offset);
  }
};

template <class T>
T LaneValue(Frame& frame, Ref ref, uint32_t lane) {
  T value;
  std::memcpy(&value, Machine::At(frame, ref) + lane * sizeof(T), sizeof(T));
  return value;
}
template <class T>
void SetLaneValue(Frame& frame, Ref ref, uint32_t lane, T value) {
  std::memcpy(Machine::At(frame, ref) + lane * sizeof(T), &value, sizeof(T));
}

// Calls body(lane) for the lanes of `lanes` in order; stops with false when it returns false.
template <class Body>
bool ForEachLane(uint32_t lanes, Body body) {
  for (; lanes != 0; lanes &= lanes - 1) {
    if (!body(static_cast<uint32_t>(__builtin_ctz(lanes)))) return false;
  }
  return true;
}

}  // namespace ops_debug::emulator
