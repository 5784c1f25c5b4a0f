// The shared layout of the event ring: what producers and the consumer see in the segment.
//
//   RingHeader | RingSlot[slot_count] | payload[capacity_bytes]
//
// Two rings run side by side. A slot describes one record; payload bytes are handed out in units
// of 16. The k-th record takes slot k and the payload units that follow those of record k-1. `head`
// and `tail` hold both counters in one 64-bit word: record number above, payload position in units
// below; both wrap.
//
// A producer claims a record with one compare-and-swap on the *slot*, not on the head: the word it
// stores tells owner and length. So there is no moment at which space is taken but nobody knows by
// whom, however the owner dies. Whoever finds the slot at the head claimed advances the head from
// the claimed length (the helping of Michael and Scott's queue, PODC 1996). Slots never hold
// payload, and every slot word carries its lap around the ring, so a producer that slept while the
// ring wrapped fails its compare-and-swap (the turn numbers of Vyukov's bounded queue).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace ops_debug::proto {

inline constexpr uint64_t kRingMagic = 0x676e6972'67626473;  // "sdbgring", little endian
inline constexpr uint32_t kRingVersion = 2;
inline constexpr uint32_t kRingUnitBytes = 16;
inline constexpr size_t kRingMinCapacityBytes = 4096;
inline constexpr size_t kRingMaxCapacityBytes = size_t{1} << 30;
// One slot per so many payload bytes: events of about 100 bytes fill both rings at the same time.
inline constexpr size_t kRingBytesPerSlot = 64;

enum RingState : uint32_t {
  kRingOpen = 1,
  kRingClosed = 2,  // the consumer is gone; producers drop at once
};

struct RingHeader {
  std::atomic<uint64_t> magic;  // stored last, so a peer that sees it sees the rest
  uint32_t version;
  uint32_t header_bytes;
  uint64_t capacity_bytes;  // power of two
  uint32_t slot_count;      // power of two
  uint32_t consumer_process_id;
  uint64_t consumer_start_ticks;
  uint64_t pid_namespace;  // process ids below mean something only inside it
  std::atomic<uint32_t> state;
  std::atomic<uint32_t> unmapped_producers;
  alignas(64) std::atomic<uint64_t> head;
  alignas(64) std::atomic<uint64_t> tail;
  alignas(64) std::atomic<uint64_t> lost_messages;
};

struct RingSlot {
  std::atomic<uint64_t> word;  // SlotWord
  uint32_t size_bytes;  // of the message; written between claim and commit, as is the checksum
  uint32_t checksum;
};

static_assert(std::atomic<uint64_t>::is_always_lock_free &&
              std::atomic<uint32_t>::is_always_lock_free);
static_assert(sizeof(std::atomic<uint64_t>) == 8 && sizeof(std::atomic<uint32_t>) == 4);
static_assert(offsetof(RingHeader, version) == 8 && offsetof(RingHeader, capacity_bytes) == 16);
static_assert(offsetof(RingHeader, consumer_start_ticks) == 32 &&
              offsetof(RingHeader, state) == 48 && offsetof(RingHeader, unmapped_producers) == 52);
static_assert(offsetof(RingHeader, head) == 64 && offsetof(RingHeader, tail) == 128);
static_assert(offsetof(RingHeader, lost_messages) == 192 && sizeof(RingHeader) == 256);
static_assert(sizeof(RingSlot) == 16 && offsetof(RingSlot, size_bytes) == 8);

enum SlotState : uint32_t {
  kSlotFree = 0,
  kSlotClaimed = 1,
  kSlotCommitted = 2,
};

// The fields of RingSlot::word, lowest bits first: state 2, units 18, process id 22 (the kernel's
// limit), low bits of the owner's start time 10, lap 12.
struct SlotWord {
  uint32_t state = kSlotFree;
  uint32_t units = 0;
  uint32_t process_id = 0;
  uint32_t start_ticks = 0;
  uint32_t lap = 0;

  static constexpr uint32_t kStateBits = 2, kUnitBits = 18, kProcessBits = 22, kStartBits = 10;
  static constexpr uint32_t kLapBits = 12;
  static constexpr uint32_t kMaxUnits = (1u << kUnitBits) - 1;
  static constexpr uint32_t kStartMask = (1u << kStartBits) - 1;
  static constexpr uint32_t kLapMask = (1u << kLapBits) - 1;
  static_assert(kStateBits + kUnitBits + kProcessBits + kStartBits + kLapBits == 64);

  constexpr uint64_t Pack() const {
    return uint64_t{state} | uint64_t{units} << kStateBits |
           uint64_t{process_id} << (kStateBits + kUnitBits) |
           uint64_t{start_ticks} << (kStateBits + kUnitBits + kProcessBits) |
           uint64_t{lap} << (64 - kLapBits);
  }
  static constexpr SlotWord Unpack(uint64_t word) {
    constexpr auto take = [](uint64_t bits, uint32_t shift, uint32_t count) {
      return static_cast<uint32_t>(bits >> shift & ((uint64_t{1} << count) - 1));
    };
    return {take(word, 0, kStateBits), take(word, kStateBits, kUnitBits),
            take(word, kStateBits + kUnitBits, kProcessBits),
            take(word, kStateBits + kUnitBits + kProcessBits, kStartBits),
            take(word, 64 - kLapBits, kLapBits)};
  }
};

// `head` or `tail`.
struct RingPlace {
  uint32_t record = 0;
  uint32_t unit = 0;

  constexpr uint64_t Pack() const { return uint64_t{record} << 32 | unit; }
  static constexpr RingPlace Unpack(uint64_t word) {
    return {static_cast<uint32_t>(word >> 32), static_cast<uint32_t>(word)};
  }
  constexpr RingPlace After(uint32_t units) const { return {record + 1, unit + units}; }
  bool operator==(const RingPlace&) const = default;
};

constexpr uint32_t SlotLap(uint32_t record, uint32_t slot_count) {
  return record / slot_count &
         SlotWord::kLapMask;  // slot_count is a power of two: the division wraps with `record`
}

constexpr size_t RingSegmentBytes(uint64_t capacity_bytes, uint32_t slot_count) {
  return sizeof(RingHeader) + size_t{slot_count} * sizeof(RingSlot) + capacity_bytes;
}

// Largest message: a quarter of the ring, or what a slot word can name.
constexpr size_t RingMaxMessageBytes(uint64_t capacity_bytes) {
  const uint64_t quarter = capacity_bytes / 4;
  const uint64_t nameable = uint64_t{SlotWord::kMaxUnits} * kRingUnitBytes;
  return static_cast<size_t>(quarter < nameable ? quarter : nameable);
}

// Finds records whose owner was taken for dead too early, or that a stray write of the target hit.
// FNV-1a over 64-bit words, folded; not meant against forgery.
uint32_t RingChecksum(const std::byte* data, size_t size_bytes);

}  // namespace ops_debug::proto
