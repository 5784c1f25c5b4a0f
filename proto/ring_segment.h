// A mapped ring segment whose geometry has been checked once against the size of the mapping. All
// later arithmetic uses the private copy, so nothing that a peer writes into the header afterwards
// can lead outside the mapping.
#pragma once

#include <boost/interprocess/mapped_region.hpp>
#include <cstring>

#include "proto/ring_layout.h"

namespace ops_debug::proto {

struct RingSegment {
  boost::interprocess::mapped_region region;
  RingHeader* header = nullptr;
  RingSlot* slots = nullptr;
  std::byte* payload = nullptr;
  uint64_t capacity_bytes = 0;
  uint32_t slot_count = 0;

  uint32_t capacity_units() const { return static_cast<uint32_t>(capacity_bytes / kRingUnitBytes); }
  uint32_t max_units() const {
    return static_cast<uint32_t>(RingMaxMessageBytes(capacity_bytes) / kRingUnitBytes);
  }
  RingSlot& SlotOf(uint32_t record) const { return slots[record & (slot_count - 1)]; }

  void CopyIn(uint32_t unit, const std::byte* data, size_t size_bytes) const {
    const size_t begin = OffsetOf(unit);
    const size_t first = FirstPart(begin, size_bytes);
    std::memcpy(payload + begin, data, first);
    std::memcpy(payload, data + first, size_bytes - first);
  }
  void CopyOut(uint32_t unit, std::byte* data, size_t size_bytes) const {
    const size_t begin = OffsetOf(unit);
    const size_t first = FirstPart(begin, size_bytes);
    std::memcpy(data, payload + begin, first);
    std::memcpy(data + first, payload, size_bytes - first);
  }

  // Points into `region`; the geometry must have been checked.
  void Place(uint64_t capacity, uint32_t count) {
    capacity_bytes = capacity;
    slot_count = count;
    auto* base = static_cast<std::byte*>(region.get_address());
    header = reinterpret_cast<RingHeader*>(base);
    slots = reinterpret_cast<RingSlot*>(base + sizeof(RingHeader));
    payload = base + sizeof(RingHeader) + size_t{count} * sizeof(RingSlot);
  }

 private:
  size_t OffsetOf(uint32_t unit) const {
    return static_cast<size_t>(unit) * kRingUnitBytes & (capacity_bytes - 1);
  }
  size_t FirstPart(size_t begin, size_t size_bytes) const {
    const size_t room = capacity_bytes - begin;
    return size_bytes < room ? size_bytes : room;
  }
};

}  // namespace ops_debug::proto
