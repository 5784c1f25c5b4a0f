// State changes of the mbarrier object; mbarrier.h says what they mean.
#include "emulator/mbarrier.h"

#include <cstring>

namespace ops_debug::emulator {
namespace {

constexpr char kNoMbarrier[] =
    "which holds no mbarrier: mbarrier.init has not run here, or the bytes were overwritten or "
    "invalidated since";

}  // namespace

Mbarrier::Mbarrier(std::byte* word) : word_(word) { std::memcpy(&bits_, word, kBytes); }

int32_t Mbarrier::BytesOf(uint64_t bits) {
  // Moves the field to the top and back, which extends its sign.
  const auto top = static_cast<int64_t>(bits << (64 - kBytesShift - kBytesBits));
  return static_cast<int32_t>(top >> (64 - kBytesBits));
}

void Mbarrier::Set(uint32_t expected, uint32_t pending, int32_t bytes, uint32_t parity) {
  const uint64_t field = static_cast<uint64_t>(bytes) & ((1ull << kBytesBits) - 1);
  bits_ = uint64_t{expected} | uint64_t{pending} << kPendingShift | field << kBytesShift |
          uint64_t{parity} << kParityShift | kMark << kMarkShift;
  std::memcpy(word_, &bits_, kBytes);
}

void Mbarrier::Settle(uint32_t expected, uint32_t pending, int32_t bytes) {
  if (pending == 0 && bytes == 0) {
    Set(expected, expected, 0, parity() ^ 1);
  } else {
    Set(expected, pending, bytes, parity());
  }
}

Mbarrier::Problem Mbarrier::Initialise(uint32_t count) {
  if (count == 0 || count > kMaxCount)
    return "with a count of " + std::to_string(count) + "; it must be 1 to 1048575";
  Set(count, count, 0, 0);
  return {};
}

Mbarrier::Problem Mbarrier::Invalidate() {
  if (!valid()) return kNoMbarrier;
  bits_ = 0;
  std::memcpy(word_, &bits_, kBytes);
  return {};
}

Mbarrier::Problem Mbarrier::Arrive(uint32_t count, bool drop) {
  if (!valid()) return kNoMbarrier;
  if (count == 0 || count > kMaxCount)
    return "with a count of " + std::to_string(count) + "; it must be 1 to 1048575";
  if (count > pending()) {
    return "which expects " + std::to_string(pending()) + " more arrival(s) in this phase, but " +
           std::to_string(count) +
           " came: more threads arrive than mbarrier.init announced, or one arrives again before "
           "the phase has ended";
  }
  const uint32_t dropped = drop ? count : 0;
  if (dropped > ExpectedOf(bits_))
    return "whose later phases expect fewer arrivals than are dropped";
  const uint32_t expected = ExpectedOf(bits_) - dropped;
  Settle(expected, pending() - count, pending_bytes());
  return {};
}

Mbarrier::Problem Mbarrier::ExpectBytes(uint32_t bytes) {
  if (!valid()) return kNoMbarrier;
  const int64_t sum = int64_t{pending_bytes()} + bytes;
  if (bytes > kMaxCount || sum > int64_t{kMaxCount}) {
    return "whose transaction count would become " + std::to_string(sum) +
           "; it must stay below 1048576 bytes";
  }
  Settle(ExpectedOf(bits_), pending(), static_cast<int32_t>(sum));
  return {};
}

Mbarrier::Problem Mbarrier::CompleteBytes(uint32_t bytes) {
  if (!valid()) return kNoMbarrier;
  const int64_t rest = int64_t{pending_bytes()} - bytes;
  if (rest < -int64_t{kMaxCount}) {
    return "whose transaction count would become " + std::to_string(rest) +
           "; more bytes were copied than expect_tx announced";
  }
  Settle(ExpectedOf(bits_), pending(), static_cast<int32_t>(rest));
  return {};
}

Mbarrier::Problem Mbarrier::AddPending(uint32_t count) {
  if (!valid()) return kNoMbarrier;
  if (count > kMaxCount - pending())
    return "whose count of pending arrivals would leave its range of 1048575";
  Set(ExpectedOf(bits_), pending() + count, pending_bytes(), parity());
  return {};
}

std::string Mbarrier::Describe() const {
  if (!valid()) return "which holds no mbarrier any more";
  std::string text = "which still expects " + std::to_string(pending()) + " arrival(s)";
  if (pending_bytes() > 0)
    text += " and " + std::to_string(pending_bytes()) + " bytes of asynchronous copies";
  if (pending_bytes() < 0) {
    text += ", and got " + std::to_string(-pending_bytes()) +
            " bytes of asynchronous copies more than expect_tx announced";
  }
  return text;
}

}  // namespace ops_debug::emulator
