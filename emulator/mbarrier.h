// The mbarrier object (PTX ISA 9.0, 9.7.13.15): one 64-bit word of shared memory that counts
// arrivals and transaction bytes of a phase. The layout is this device's own (the ISA calls it
// opaque); it lives in the kernel's shared memory and nowhere else, so a program may end it, use
// its bytes for something else and initialise it again.
//
// A phase completes when no arrival and no transaction byte is pending; then the next one begins
// with the expected count of arrivals. All blocks of a cluster run on one host thread, so plain
// loads and stores serve.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace ops_debug::emulator {

class Mbarrier {
 public:
  static constexpr uint32_t kBytes = 8;
  static constexpr uint32_t kMaxCount = (1u << 20) - 1;

  // `word`: 8-byte aligned shared memory.
  explicit Mbarrier(std::byte* word);

  // Why an operation is not possible; empty: it has been performed.
  using Problem = std::string;

  Problem Initialise(uint32_t count);
  Problem Invalidate();
  // Arrivals; with `drop` also of all later phases.
  Problem Arrive(uint32_t count, bool drop);
  Problem ExpectBytes(uint32_t bytes);
  Problem CompleteBytes(uint32_t bytes);
  // Makes room for an arrival that cp.async.mbarrier.arrive announces.
  Problem AddPending(uint32_t count);

  bool valid() const { return IsState(bits_); }
  uint64_t state() const { return bits_; }  // what mbarrier.arrive returns
  uint32_t parity() const { return ParityOf(bits_); }
  uint32_t pending() const { return PendingOf(bits_); }
  int32_t pending_bytes() const { return BytesOf(bits_); }

  static bool IsState(uint64_t bits) { return bits >> kMarkShift == kMark; }
  static uint32_t ParityOf(uint64_t bits) {
    return static_cast<uint32_t>(bits >> kParityShift) & 1;
  }
  static uint32_t PendingOf(uint64_t bits) {
    return static_cast<uint32_t>(bits >> kPendingShift) & kMaxCount;
  }

  // "which still expects 2 arrivals and 4096 bytes of asynchronous copies".
  std::string Describe() const;

 private:
  static constexpr uint32_t kPendingShift = 20;
  static constexpr uint32_t kBytesShift = 40;
  static constexpr uint32_t kBytesBits =
      21;  // signed: copies may complete before they are expected
  static constexpr uint32_t kParityShift = 61;
  static constexpr uint32_t kMarkShift = 62;
  static constexpr uint64_t kMark = 2;  // neither zeroed memory nor most numbers are mbarriers

  static uint32_t ExpectedOf(uint64_t bits) { return static_cast<uint32_t>(bits) & kMaxCount; }
  static int32_t BytesOf(uint64_t bits);
  void Set(uint32_t expected, uint32_t pending, int32_t bytes, uint32_t parity);
  // Ends the phase if nothing is pending.
  void Settle(uint32_t expected, uint32_t pending, int32_t bytes);

  std::byte* word_;
  uint64_t bits_ = 0;
};

}  // namespace ops_debug::emulator
