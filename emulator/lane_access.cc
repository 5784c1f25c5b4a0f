// Loads, stores and asynchronous copies. Three ways, fastest first: all lanes side by side in
// memory (one check, one vector copy), all lanes at one address, and lane by lane.
#include <cstdio>
#include <cstring>

#include "emulator/checks/async_order.h"
#include "emulator/lane_elements.h"
#include "emulator/machine.h"
#include "emulator/pending_copies.h"

namespace ops_debug::emulator {
namespace {

// Element of type E from each lane's pointer into a register of type R.
template <class E, class R>
R LoadElement(const std::byte* pointer) {
  const E element = __atomic_load_n(reinterpret_cast<const E*>(pointer), __ATOMIC_RELAXED);
  return static_cast<R>(element);  // NOLINT(bugprone-signed-char-misuse): meant to extend the sign
}

template <class E, class R>
void Gather(std::byte* const* pointers, size_t offset, void* out, uint32_t lanes) {
  auto* d = static_cast<R*>(out);
  if (lanes == kAllLanes) {
    for (uint32_t i = 0; i < kWarpLanes; ++i) d[i] = LoadElement<E, R>(pointers[i] + offset);
    return;
  }
  for (; lanes != 0; lanes &= lanes - 1) {
    const auto i = static_cast<uint32_t>(__builtin_ctz(lanes));
    d[i] = LoadElement<E, R>(pointers[i] + offset);
  }
}

template <class E>
void GatherInto(uint32_t register_shift, std::byte* const* pointers, size_t offset, void* out,
                uint32_t lanes) {
  switch (register_shift) {
    case 0:
      return Gather<E, uint8_t>(pointers, offset, out, lanes);
    case 1:
      return Gather<E, uint16_t>(pointers, offset, out, lanes);
    case 2:
      return Gather<E, uint32_t>(pointers, offset, out, lanes);
    default:
      return Gather<E, uint64_t>(pointers, offset, out, lanes);
  }
}

}  // namespace

void GatherElement(const MemoryAccess& access, std::byte* const* pointers, size_t offset, void* out,
                   uint32_t lanes) {
  const uint32_t shift = access.register_shift;
  switch (access.element_shift) {
    case 0:
      return access.sign_extend ? GatherInto<int8_t>(shift, pointers, offset, out, lanes)
                                : GatherInto<uint8_t>(shift, pointers, offset, out, lanes);
    case 1:
      return access.sign_extend ? GatherInto<int16_t>(shift, pointers, offset, out, lanes)
                                : GatherInto<uint16_t>(shift, pointers, offset, out, lanes);
    case 2:
      return access.sign_extend ? GatherInto<int32_t>(shift, pointers, offset, out, lanes)
                                : GatherInto<uint32_t>(shift, pointers, offset, out, lanes);
    default:
      return GatherInto<uint64_t>(shift, pointers, offset, out, lanes);
  }
}

namespace {

template <class E, class R>
void Scatter(std::byte* const* pointers, size_t offset, const void* in, uint32_t lanes) {
  const auto* s = static_cast<const R*>(in);
  for (; lanes != 0; lanes &= lanes - 1) {
    const auto i = static_cast<uint32_t>(__builtin_ctz(lanes));
    __atomic_store_n(reinterpret_cast<E*>(pointers[i] + offset), static_cast<E>(s[i]),
                     __ATOMIC_RELAXED);
  }
}

template <class E>
void ScatterFrom(uint32_t register_shift, std::byte* const* pointers, size_t offset, const void* in,
                 uint32_t lanes) {
  switch (register_shift) {
    case 0:
      return Scatter<E, uint8_t>(pointers, offset, in, lanes);
    case 1:
      return Scatter<E, uint16_t>(pointers, offset, in, lanes);
    case 2:
      return Scatter<E, uint32_t>(pointers, offset, in, lanes);
    default:
      return Scatter<E, uint64_t>(pointers, offset, in, lanes);
  }
}

}  // namespace

void ScatterElement(const MemoryAccess& access, std::byte* const* pointers, size_t offset,
                    const void* in, uint32_t lanes) {
  switch (access.element_shift) {
    case 0:
      return ScatterFrom<uint8_t>(access.register_shift, pointers, offset, in, lanes);
    case 1:
      return ScatterFrom<uint16_t>(access.register_shift, pointers, offset, in, lanes);
    case 2:
      return ScatterFrom<uint32_t>(access.register_shift, pointers, offset, in, lanes);
    default:
      return ScatterFrom<uint64_t>(access.register_shift, pointers, offset, in, lanes);
  }
}

namespace {

std::string_view SpaceName(Space space) {
  switch (space) {
    case Space::kShared:
    case Space::kSharedCluster:
      return "shared";
    case Space::kLocal:
      return "local";
    case Space::kParameter:
      return "parameter";
    default:
      return "global";
  }
}

std::string Hex(uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof(text), "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

// Copies between registers and 32 packed vectors, when the widths allow it. False: take the lane
// loop.
bool LoadPacked(const LaneSupport& lanes, const MemoryAccess& access, std::byte* const* registers,
                const std::byte* source, std::byte* scratch) {
  const uint32_t element = access.element_shift;
  if (access.count == 1) {
    if (access.resize == nullptr) {
      std::memcpy(registers[0], source, kWarpLanes << element);
    } else {
      std::memcpy(scratch, source, kWarpLanes << element);
      access.resize(registers[0], scratch, nullptr, nullptr, 0);
    }
    return true;
  }
  if (element != 2 || access.resize != nullptr || (access.count != 2 && access.count != 4))
    return false;
  lanes.deinterleave32(reinterpret_cast<void* const*>(registers), source, access.count);
  return true;
}

bool StorePacked(const LaneSupport& lanes, const MemoryAccess& access, std::byte* const* registers,
                 std::byte* target, std::byte* scratch) {
  const uint32_t element = access.element_shift;
  if (access.count == 1) {
    if (access.resize == nullptr) {
      std::memcpy(target, registers[0], kWarpLanes << element);
    } else {
      access.resize(scratch, registers[0], nullptr, nullptr, 0);
      std::memcpy(target, scratch, kWarpLanes << element);
    }
    return true;
  }
  if (element != 2 || access.resize != nullptr || (access.count != 2 && access.count != 4))
    return false;
  lanes.interleave32(target, reinterpret_cast<void* const*>(registers), access.count);
  return true;
}

}  // namespace

bool Machine::FailAccess(Warp& warp, Space space, uint64_t address, uint32_t lane, uint32_t bytes) {
  if (space == Space::kGeneric) {
    if (IsSharedGeneric(address)) space = Space::kSharedCluster;
    if (InWindow(address, kLocalWindow)) space = Space::kLocal;
    if (InWindow(address, kParameterWindow)) space = Space::kParameter;
    if (space == Space::kSharedCluster) address -= kSharedWindow;
    if (space != Space::kGeneric && space != Space::kSharedCluster) address &= kWindowMask;
  }
  std::string text = std::to_string(bytes) + "-byte access to " + std::string(SpaceName(space)) +
                     " address " + Hex(address);
  if (address % bytes != 0) {
    return Fail(LaunchError::Code::kMisalignedAddress, warp, lane,
                text + ", which is not a multiple of " + std::to_string(bytes));
  }
  switch (space) {
    case Space::kShared:
    case Space::kSharedCluster:
      if (address >> kWindowShift != 0) {
        LaunchError::Code code;
        text += DescribeSharedAddress(warp, space, address, &code);
        return Fail(code, warp, lane, std::move(text));
      }
      text += ", outside the block's " + std::to_string(launch_.shared_limit_bytes) +
              " bytes of shared memory";
      break;
    case Space::kLocal:
      text += ", outside the thread's " + std::to_string(launch_.local_limit_bytes) +
              " bytes of local memory";
      break;
    case Space::kParameter:
      text += ", outside the " + std::to_string(launch_.parameter_bytes) +
              " bytes of kernel parameters, or a store to them";
      break;
    default:
      text += ", where no allocation lies";
  }
  return Fail(LaunchError::Code::kIllegalAddress, warp, lane, std::move(text));
}

// Host pointer of one lane's access, null if it must fail.
std::byte* Machine::ResolveLane(Warp& warp, Space space, uint64_t address, uint32_t lane,
                                uint32_t bytes, bool is_write) {
  if ((address & (bytes - 1)) != 0) return nullptr;
  if (space == Space::kGeneric) {
    if (address - kSharedWindow >= kWindowsEnd - kSharedWindow) {
      space = Space::kGlobal;
    } else if (IsSharedGeneric(address)) {
      space = Space::kSharedCluster;
      address -= kSharedWindow;
    } else {
      space = InWindow(address, kLocalWindow)       ? Space::kLocal
              : InWindow(address, kParameterWindow) ? Space::kParameter
                                                    : Space::kGlobal;
      if (space != Space::kGlobal) address &= kWindowMask;
    }
  }
  const auto within = [&](uint64_t limit) { return bytes <= limit && address <= limit - bytes; };
  switch (space) {
    case Space::kShared:
    case Space::kSharedCluster: {
      if (within(launch_.shared_limit_bytes)) return warp.block->shared.data() + address;
      uint64_t offset = 0;
      Block* const block = SharedBlock(warp, space, address, &offset);
      address = offset;
      return block != nullptr && within(launch_.shared_limit_bytes) ? block->shared.data() + offset
                                                                    : nullptr;
    }
    case Space::kLocal:
      return within(launch_.local_limit_bytes) ? LocalRow(warp, lane) + address : nullptr;
    case Space::kParameter:
      if (is_write || !within(launch_.parameter_bytes)) return nullptr;
      return launch_.parameters.data() + address;
    default: {
      const uint64_t offset = address - launch_.map_base;
      const bool mapped =
          offset < launch_.map_bytes && launch_.page_map[offset / DeviceMemory::kPageBytes] != 0;
      if (!mapped && !launch_.memory->Accessible(address, bytes)) return nullptr;
      return reinterpret_cast<std::byte*>(address);
    }
  }
}

bool Machine::Resolve(Warp& warp, Space space, const uint64_t* addresses, uint32_t active,
                      uint32_t bytes, bool is_write, std::byte** pointers) {
  if (active == kAllLanes && space == Space::kShared &&
      lanes_.all_within(addresses, launch_.shared_limit_bytes, bytes)) {
    std::byte* const base = warp.block->shared.data();
    for (uint32_t i = 0; i < kWarpLanes; ++i) pointers[i] = base + addresses[i];
    return true;
  }
  for (uint32_t m = active; m != 0; m &= m - 1) {
    const auto lane = static_cast<uint32_t>(__builtin_ctz(m));
    pointers[lane] = ResolveLane(warp, space, addresses[lane], lane, bytes, is_write);
    if (pointers[lane] == nullptr) return FailAccess(warp, space, addresses[lane], lane, bytes);
  }
  return true;
}

// Generic addresses that all lie in one window or all in global memory are accessed as such.
Space Machine::SettleSpace(Space space, uint64_t* addresses, uint32_t active) const {
  if (space == Space::kConst) return Space::kGlobal;
  if (space == Space::kSharedCluster) {
    uint64_t others = 0;
    for (uint32_t i = 0; i < kWarpLanes; ++i)
      others |= ((active >> i) & 1) != 0 ? addresses[i] >> kWindowShift : 0;
    return others == 0 ? Space::kShared : space;
  }
  if (space != Space::kGeneric) return space;
  const uint64_t first = addresses[__builtin_ctz(active)];
  if (first - kSharedWindow >= kWindowsEnd - kSharedWindow) {
    bool any_window = false;
    for (uint32_t i = 0; i < kWarpLanes; ++i) {
      any_window |=
          ((active >> i) & 1) != 0 && addresses[i] - kSharedWindow < kWindowsEnd - kSharedWindow;
    }
    return any_window ? Space::kGeneric : Space::kGlobal;
  }
  uint64_t differs = 0;
  for (uint32_t i = 0; i < kWarpLanes; ++i) {
    differs |= ((active >> i) & 1) != 0 ? (addresses[i] ^ first) >> kWindowShift : 0;
  }
  if (differs != 0) return Space::kGeneric;
  Space settled = Space::kGeneric;
  if (InWindow(first, kSharedWindow)) settled = Space::kShared;
  if (InWindow(first, kLocalWindow)) settled = Space::kLocal;
  if (settled == Space::kGeneric) return settled;
  for (uint32_t i = 0; i < kWarpLanes; ++i) addresses[i] &= kWindowMask;
  return settled;
}

// Host pointer of `bytes` consecutive bytes (at most a page), null if they are not all accessible
// or not aligned.
std::byte* Machine::Contiguous(Warp& warp, Space space, uint64_t address, uint64_t bytes,
                               uint32_t alignment) {
  if ((address & (alignment - 1)) != 0) return nullptr;
  if (space == Space::kShared) {
    const uint64_t limit = launch_.shared_limit_bytes;
    return bytes <= limit && address <= limit - bytes ? warp.block->shared.data() + address
                                                      : nullptr;
  }
  if (space != Space::kGlobal) return nullptr;
  const uint64_t first = address - launch_.map_base;
  const uint64_t last = first + bytes - 1;
  if (first >= launch_.map_bytes || last >= launch_.map_bytes) return nullptr;
  const bool mapped = launch_.page_map[first / DeviceMemory::kPageBytes] != 0 &&
                      launch_.page_map[last / DeviceMemory::kPageBytes] != 0;
  return mapped ? reinterpret_cast<std::byte*>(address) : nullptr;
}

bool Machine::Load(Warp& warp, Frame& frame, const Instruction& in, uint32_t active) {
  const MemoryAccess& access = *in.fn.access;
  const uint32_t bytes = access.access_bytes();
  alignas(kLaneArrayAlignment) uint64_t addresses[kWarpLanes];
  (access.address_is_32bit ? lanes_.add_offset32 : lanes_.add_offset64)(addresses, At(frame, in.a),
                                                                        access.offset);
  const Space space = SettleSpace(access.space, addresses, active);
  if (access.strong) {
    synchronising_ = true;
  } else if (active == kAllLanes) {
    const AddressPattern pattern = lanes_.classify(addresses, bytes);
    if (pattern == AddressPattern::kConsecutive) {
      std::byte* const source =
          Contiguous(warp, space, addresses[0], static_cast<uint64_t>(bytes) * kWarpLanes, bytes);
      std::byte* registers[8];
      bool all = source != nullptr;
      for (uint32_t k = 0; k < access.count; ++k) {
        all = all && access.registers[k] != kNoRef;
        registers[k] = At(frame, access.registers[k]);
      }
      if (all && LoadPacked(lanes_, access, registers, source, scratch_.data())) return true;
    } else if (pattern == AddressPattern::kUniform) {
      const std::byte* source = Contiguous(warp, space, addresses[0], bytes, bytes);
      if (source != nullptr) {
        LoadUniform(in, frame, active, source);
        return true;
      }
    }
  }
  std::byte* pointers[kWarpLanes];
  if (!Resolve(warp, space, addresses, active, bytes, false, pointers)) return false;
  for (uint32_t k = 0; k < access.count; ++k) {
    if (access.registers[k] == kNoRef) continue;
    GatherElement(access, pointers, static_cast<size_t>(k) << access.element_shift,
                  At(frame, access.registers[k]), active);
  }
  if (access.acquire) std::atomic_thread_fence(std::memory_order_acquire);
  return true;
}

bool Machine::Store(Warp& warp, Frame& frame, const Instruction& in, uint32_t active) {
  const MemoryAccess& access = *in.fn.access;
  const uint32_t bytes = access.access_bytes();
  alignas(kLaneArrayAlignment) uint64_t addresses[kWarpLanes];
  (access.address_is_32bit ? lanes_.add_offset32 : lanes_.add_offset64)(addresses, At(frame, in.a),
                                                                        access.offset);
  const Space space = SettleSpace(access.space, addresses, active);
  if (!access.strong && active == kAllLanes &&
      lanes_.classify(addresses, bytes) == AddressPattern::kConsecutive) {
    std::byte* const target =
        Contiguous(warp, space, addresses[0], static_cast<uint64_t>(bytes) * kWarpLanes, bytes);
    if (target != nullptr) {
      std::byte* registers[8];
      for (uint32_t k = 0; k < access.count; ++k) registers[k] = At(frame, access.registers[k]);
      if (StorePacked(lanes_, access, registers, target, scratch_.data())) return true;
    }
  }
  std::byte* pointers[kWarpLanes];
  if (!Resolve(warp, space, addresses, active, bytes, true, pointers)) return false;
  if (access.release) std::atomic_thread_fence(std::memory_order_release);
  for (uint32_t k = 0; k < access.count; ++k) {
    ScatterElement(access, pointers, static_cast<size_t>(k) << access.element_shift,
                   At(frame, access.registers[k]), active);
  }
  return true;
}

void Machine::FramePointers(Warp& warp, Frame& frame, int64_t offset, std::byte** pointers) {
  std::byte* row = warp.local + frame.local_base + offset;
  for (uint32_t i = 0; i < kWarpLanes; ++i, row += launch_.local_stride_bytes) pointers[i] = row;
}

void Machine::LoadFrame(Warp& warp, Frame& frame, const Instruction& in, uint32_t active) {
  const MemoryAccess& access = *in.fn.access;
  std::byte* pointers[kWarpLanes];
  FramePointers(warp, frame, access.offset, pointers);
  for (uint32_t k = 0; k < access.count; ++k) {
    if (access.registers[k] == kNoRef) continue;
    GatherElement(access, pointers, static_cast<size_t>(k) << access.element_shift,
                  At(frame, access.registers[k]), active);
  }
}

void Machine::StoreFrame(Warp& warp, Frame& frame, const Instruction& in, uint32_t active) {
  const MemoryAccess& access = *in.fn.access;
  std::byte* pointers[kWarpLanes];
  FramePointers(warp, frame, access.offset, pointers);
  for (uint32_t k = 0; k < access.count; ++k) {
    ScatterElement(access, pointers, static_cast<size_t>(k) << access.element_shift,
                   At(frame, access.registers[k]), active);
  }
}

// cp.async: checks the addresses; the bytes move when the thread waits (pending_copies.h).
bool Machine::CopyAsync(Warp& warp, Frame& frame, const Instruction& in, uint32_t active) {
  const AsyncCopy& copy = *in.fn.copy;
  const uint32_t bytes = copy.source.access_bytes();
  alignas(kLaneArrayAlignment) uint64_t sources[kWarpLanes];
  alignas(kLaneArrayAlignment) uint64_t targets[kWarpLanes];
  (copy.source.address_is_32bit ? lanes_.add_offset32 : lanes_.add_offset64)(
      sources, At(frame, in.a), copy.source.offset);
  (copy.shared_is_32bit ? lanes_.add_offset32 : lanes_.add_offset64)(
      targets, At(frame, copy.shared_address), copy.shared_offset);
  const uint32_t ignored =
      copy.ignore_source == kNoRef ? 0 : PredicateAt(frame, copy.ignore_source);
  const auto* source_bytes = copy.source_bytes == kNoRef
                                 ? nullptr
                                 : reinterpret_cast<const uint32_t*>(At(frame, copy.source_bytes));
  CopyRow row;
  row.lanes = active;
  row.bytes = bytes;
  for (uint32_t m = active; m != 0; m &= m - 1) {
    const auto lane = static_cast<uint32_t>(__builtin_ctz(m));
    std::byte* const target = ResolveLane(warp, Space::kShared, targets[lane], lane, bytes, true);
    if (target == nullptr) return FailAccess(warp, Space::kShared, targets[lane], lane, bytes);
    uint32_t copied = source_bytes == nullptr ? bytes : source_bytes[lane];
    if (((ignored >> lane) & 1) != 0) copied = 0;
    if (copied > bytes) copied = bytes;
    if (copied > 0) {
      const std::byte* const source =
          ResolveLane(warp, Space::kGlobal, sources[lane], lane, bytes, false);
      if (source == nullptr) return FailAccess(warp, Space::kGlobal, sources[lane], lane, bytes);
      row.source[lane] = source;
    }
    row.target[lane] = target;
    row.copied[lane] = static_cast<uint8_t>(copied);
  }
  if (LaunchChecks* const checks = ChecksOf(frame, in)) {
    row.function = frame.function;
    row.statement = in.statement;
    if (checks->async() != nullptr) row.works = checks->async()->StartRow(warp, row);
  }
  Copies(warp).Start(warp, row);
  return true;
}

}  // namespace ops_debug::emulator
