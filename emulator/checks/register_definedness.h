// Which bits of a frame's registers are undefined, lane by lane, and where the undefined value
// comes from. Laid out like the frame: the same reference names a register and its undefined bits.
// While nothing is undefined there are only flags, all of them zero.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "emulator/code.h"

namespace ops_debug::emulator {

// Names a load of undefined memory by one lane (uninitialised_report.h). 0: nothing.
using ReadOrigin = uint32_t;
// The value is as it was loaded, together with defined bytes, or in padding: a copy of it is no
// use.
inline constexpr ReadOrigin kCarried = 0x8000'0000u;

inline uint64_t WidthMask(uint8_t shift) {
  return shift >= 3 ? ~0ull : (1ull << (8u << shift)) - 1;
}

template <class Body>
void ForLanes(uint32_t lanes, Body body) {
  for (; lanes != 0; lanes &= lanes - 1) body(static_cast<uint32_t>(__builtin_ctz(lanes)));
}

// One register's undefined bits on their way: a lane array, and the origin of each lane.
struct UndefinedLanes {
  alignas(kLaneArrayAlignment) std::byte bits[kWarpLanes * sizeof(uint64_t)];
  ReadOrigin origins[kWarpLanes];

  void Clear();
  uint64_t Get(uint8_t shift, uint32_t lane) const;
  void Put(uint8_t shift, uint32_t lane, uint64_t value);
};

class RegisterDefinedness {
 public:
  explicit RegisterDefinedness(uint32_t frame_bytes);

  // Everything is defined.
  void Reset();
  // True if nothing has become undefined since the last Reset.
  bool IsClean() const { return is_clean_; }
  // Whether any lane's value has an undefined bit. False for constants and kNoRef.
  bool IsUndefined(Ref ref) const { return ref < kNoRef && flags_[ref >> 2] != 0; }

  // Lane array of undefined bits; of zeros if there are none.
  const std::byte* Bits(Ref ref) const;
  uint64_t BitsOf(Ref ref, uint8_t shift, uint32_t lane) const;
  ReadOrigin OriginOf(Ref ref, uint32_t lane) const { return origins_[ref + lane]; }

  void Set(Ref ref, uint8_t shift, const UndefinedLanes& lanes, uint32_t active);
  void SetLane(Ref ref, uint8_t shift, uint32_t lane, uint64_t bits, ReadOrigin origin);
  void Define(Ref ref, uint8_t shift, uint32_t active);

  // Predicates: a mask of lanes whose predicate is undefined, and one origin for all of them.
  uint32_t Predicate(Ref ref) const;
  ReadOrigin PredicateOrigin(Ref ref) const { return origins_[ref]; }
  void SetPredicate(Ref ref, uint32_t undefined, ReadOrigin origin, uint32_t active);

 private:
  void Prepare(Ref ref, size_t bytes);  // for a write to a register that may have been defined
  void UpdateFlag(Ref ref, uint8_t shift);

  uint32_t frame_bytes_;
  bool is_clean_ = true;
  std::vector<uint8_t> flags_;  // by reference / 4
  std::unique_ptr<std::byte[]> storage_;
  std::byte* bits_ = nullptr;        // aligned, in storage_
  std::vector<ReadOrigin> origins_;  // by reference (+ lane)
};

}  // namespace ops_debug::emulator
