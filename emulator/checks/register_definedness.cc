// Storage of registers' undefined bits.
#include "emulator/checks/register_definedness.h"

#include <algorithm>
#include <cstring>

namespace ops_debug::emulator {
namespace {

alignas(kLaneArrayAlignment) constexpr std::byte kNothing[kWarpLanes * sizeof(uint64_t)] = {};

uint64_t Read(const std::byte* array, uint8_t shift, uint32_t lane) {
  uint64_t value = 0;
  std::memcpy(&value, array + (size_t{lane} << shift), size_t{1} << shift);
  return value;
}

void Write(std::byte* array, uint8_t shift, uint32_t lane, uint64_t value) {
  std::memcpy(array + (size_t{lane} << shift), &value, size_t{1} << shift);
}

}  // namespace

void UndefinedLanes::Clear() {
  std::memset(bits, 0, sizeof(bits));
  std::memset(origins, 0, sizeof(origins));
}
uint64_t UndefinedLanes::Get(uint8_t shift, uint32_t lane) const { return Read(bits, shift, lane); }
void UndefinedLanes::Put(uint8_t shift, uint32_t lane, uint64_t value) {
  Write(bits, shift, lane, value);
}

RegisterDefinedness::RegisterDefinedness(uint32_t frame_bytes)
    : frame_bytes_(frame_bytes), flags_(frame_bytes / 4 + 1) {}

void RegisterDefinedness::Reset() {
  if (is_clean_) return;
  std::fill(flags_.begin(), flags_.end(), uint8_t{0});
  is_clean_ = true;
}

const std::byte* RegisterDefinedness::Bits(Ref ref) const {
  return IsUndefined(ref) ? bits_ + ref : kNothing;
}

uint64_t RegisterDefinedness::BitsOf(Ref ref, uint8_t shift, uint32_t lane) const {
  return IsUndefined(ref) ? Read(bits_ + ref, shift, lane) : 0;
}

void RegisterDefinedness::Prepare(Ref ref, size_t bytes) {
  if (bits_ == nullptr) {
    storage_ = std::make_unique<std::byte[]>(size_t{frame_bytes_} + 2 * kLaneArrayAlignment);
    const auto address = reinterpret_cast<uintptr_t>(storage_.get());
    bits_ = storage_.get() + (kLaneArrayAlignment - address % kLaneArrayAlignment);
    origins_.assign(size_t{frame_bytes_} + kWarpLanes, 0);
  }
  if (flags_[ref >> 2] != 0) return;
  std::memset(bits_ + ref, 0, bytes);
  is_clean_ = false;
}

void RegisterDefinedness::UpdateFlag(Ref ref, uint8_t shift) {
  const std::byte* const bits = bits_ + ref;
  uint64_t any = 0;
  for (size_t i = 0; i < (size_t{kWarpLanes} << shift); i += sizeof(uint64_t)) {
    uint64_t word;
    std::memcpy(&word, bits + i, sizeof(word));
    any |= word;
  }
  flags_[ref >> 2] = any != 0 ? 1 : 0;
}

void RegisterDefinedness::Set(Ref ref, uint8_t shift, const UndefinedLanes& lanes,
                              uint32_t active) {
  if (ref >= kNoRef) return;
  if (flags_[ref >> 2] == 0) {
    bool any = false;
    for (uint32_t m = active; m != 0 && !any; m &= m - 1)
      any = lanes.Get(shift, static_cast<uint32_t>(__builtin_ctz(m))) != 0;
    if (!any) return;
  }
  Prepare(ref, size_t{kWarpLanes} << shift);
  for (uint32_t m = active; m != 0; m &= m - 1) {
    const auto lane = static_cast<uint32_t>(__builtin_ctz(m));
    const uint64_t value = lanes.Get(shift, lane);
    Write(bits_ + ref, shift, lane, value);
    if (value != 0) origins_[ref + lane] = lanes.origins[lane];
  }
  UpdateFlag(ref, shift);
}

void RegisterDefinedness::SetLane(Ref ref, uint8_t shift, uint32_t lane, uint64_t bits,
                                  ReadOrigin origin) {
  if (ref >= kNoRef || (bits == 0 && flags_[ref >> 2] == 0)) return;
  Prepare(ref, size_t{kWarpLanes} << shift);
  Write(bits_ + ref, shift, lane, bits);
  if (bits != 0) {
    origins_[ref + lane] = origin;
    flags_[ref >> 2] = 1;
  } else {
    UpdateFlag(ref, shift);
  }
}

void RegisterDefinedness::Define(Ref ref, uint8_t shift, uint32_t active) {
  if (!IsUndefined(ref)) return;
  for (uint32_t m = active; m != 0; m &= m - 1)
    Write(bits_ + ref, shift, static_cast<uint32_t>(__builtin_ctz(m)), 0);
  UpdateFlag(ref, shift);
}

uint32_t RegisterDefinedness::Predicate(Ref ref) const {
  if (!IsUndefined(ref)) return 0;
  uint32_t mask;
  std::memcpy(&mask, bits_ + ref, sizeof(mask));
  return mask;
}

void RegisterDefinedness::SetPredicate(Ref ref, uint32_t undefined, ReadOrigin origin,
                                       uint32_t active) {
  if (ref >= kNoRef) return;
  undefined &= active;
  if (flags_[ref >> 2] == 0) {
    if (undefined == 0) return;
    Prepare(ref, sizeof(uint32_t));
  }
  uint32_t mask;
  std::memcpy(&mask, bits_ + ref, sizeof(mask));
  mask = (mask & ~active) | undefined;
  std::memcpy(bits_ + ref, &mask, sizeof(mask));
  if (undefined != 0) origins_[ref] = origin;
  flags_[ref >> 2] = mask != 0 ? 1 : 0;
}

}  // namespace ops_debug::emulator
