// How undefined values come out of memory and get into it: loads, stores, atomics, the operands of
// cp.async. Called before the access is made; addresses that will fault are left alone.
#include <cstring>

#include "emulator/checks/definedness_flow.h"
#include "emulator/checks/init_check.h"
#include "emulator/machine.h"

namespace ops_debug::emulator {
namespace {

constexpr uint32_t kLoadAccess = 1, kAtomicAccess = 3;  // proto AccessKind
constexpr uint32_t kGlobalSpace = 1;                    // proto AddressSpace

uint64_t Element(const uint8_t* bytes, uint32_t size) {
  uint64_t value = 0;
  std::memcpy(&value, bytes, size);
  return value;
}

uint64_t ValueOf(Frame& frame, Ref ref, uint8_t shift, uint32_t lane) {
  return ref == kNoRef ? 0
                       : Element(reinterpret_cast<const uint8_t*>(Machine::At(frame, ref)) +
                                     (size_t{lane} << shift),
                                 1u << shift);
}

struct Addresses {
  alignas(kLaneArrayAlignment) uint64_t of[kWarpLanes] = {};
  // kNoRef: no register holds addresses, as with a function's parameters.
  Addresses(const Launch& launch, Frame& frame, Ref base, bool is_32bit, int64_t offset) {
    if (base == kNoRef) return;
    (is_32bit ? launch.lanes->add_offset32 : launch.lanes->add_offset64)(
        of, Machine::At(frame, base), offset);
  }
};

}  // namespace

void InitCheck::LoadLane(const Place& place, const MemoryAccess& access, const Bytes& from,
                         uint32_t lane) {
  const uint32_t bytes = access.access_bytes();
  const uint32_t size = 1u << access.element_shift;
  uint8_t undefined[64];
  if (!Load(from, bytes, undefined)) return;
  RegisterDefinedness& registers = Registers(place.frame);
  ReadOrigin own = 0;
  for (uint32_t k = 0; k < access.count; ++k) {
    uint64_t u = Element(undefined + size_t{k} * size, size);
    if (u == 0 || access.registers[k] == kNoRef) continue;
    if (access.sign_extend && (u >> (8 * size - 1) & 1) != 0) u |= ~WidthMask(access.element_shift);
    Bytes element = from;
    element.at += size_t{k} * size;
    ReadOrigin origin = OriginAt(element);
    if (origin == 0) {
      if (own == 0) {
        const bool is_carried = LooksCarried(from, bytes, undefined);
        own = NewOrigin(place, from, lane, bytes, undefined, kLoadAccess,
                        is_carried ? kCarriedPerSite : kOriginsPerSite);
        if (is_carried && own != 0) own |= kCarried;
      }
      origin = own;
    }
    registers.SetLane(access.registers[k], access.register_shift, lane,
                      u & WidthMask(access.register_shift), origin);
  }
}

// kLoad, kLoadFrame.
void InitCheck::PassLoad(const Place& place, uint32_t lanes) {
  const MemoryAccess& access = *place.in.fn.access;
  const bool is_frame = place.in.op == Op::kLoadFrame;
  if (!is_frame) UseRegister(place, place.in.a, lanes, "address");
  const Addresses addresses(launch_, place.frame, is_frame ? kNoRef : place.in.a,
                            access.address_is_32bit, access.offset);
  for (uint32_t k = 0; k < access.count; ++k)
    Registers(place.frame).Define(access.registers[k], access.register_shift, lanes);
  if (IsTool(place)) return;
  ForLanes(lanes, [&](uint32_t lane) {
    const Bytes from =
        is_frame ? Find(place, Space::kLocal,
                        place.frame.local_base + static_cast<uint64_t>(access.offset), lane,
                        1u << access.element_shift)
                 : Find(place, access.space, addresses.of[lane], lane, access.access_bytes());
    if (from.space != 0) LoadLane(place, access, from, lane);
  });
}

void InitCheck::StoreValue(const Place& place, const Bytes& to, uint32_t bytes, uint64_t undefined,
                           ReadOrigin origin) {
  if (undefined == 0) return Store(to, bytes, nullptr, 0);
  const uint64_t mask = bytes >= 8 ? ~0ull : (1ull << (8 * bytes)) - 1;
  if (undefined == mask && to.space == kGlobalSpace && (origin & kCarried) == 0) {
    Use(place, origin, "stored");
    return Store(to, bytes, nullptr, 0);
  }
  uint8_t parts[8];
  std::memcpy(parts, &undefined, sizeof(parts));
  Store(to, bytes, parts, origin);
}

void InitCheck::StoreElement(const Place& place, Space space, uint64_t address, uint32_t lane,
                             uint32_t bytes, uint64_t undefined, ReadOrigin origin) {
  const Bytes to = Find(place, space, address, lane, bytes);
  if (to.space != 0) StoreValue(place, to, bytes, undefined, origin);
}

void InitCheck::StoreLane(const Place& place, const MemoryAccess& access, const Bytes& to,
                          uint32_t lane) {
  const RegisterDefinedness& registers = Registers(place.frame);
  const uint32_t size = 1u << access.element_shift;
  const uint64_t mask = WidthMask(access.element_shift);
  for (uint32_t k = 0; k < access.count; ++k) {
    Bytes element = to;
    element.at += size_t{k} * size;
    const Ref ref = access.registers[k];
    const uint64_t u = registers.BitsOf(ref, access.register_shift, lane) & mask;
    StoreValue(place, element, size, u, u != 0 ? registers.OriginOf(ref, lane) : 0);
  }
}

// kStore, kStoreFrame.
void InitCheck::PassStore(const Place& place, uint32_t lanes) {
  const MemoryAccess& access = *place.in.fn.access;
  const bool is_frame = place.in.op == Op::kStoreFrame;
  if (!is_frame) UseRegister(place, place.in.a, lanes, "address");
  const Addresses addresses(launch_, place.frame, is_frame ? kNoRef : place.in.a,
                            access.address_is_32bit, access.offset);
  ForLanes(lanes, [&](uint32_t lane) {
    const Bytes to =
        is_frame ? Find(place, Space::kLocal,
                        place.frame.local_base + static_cast<uint64_t>(access.offset), lane,
                        1u << access.element_shift)
                 : Find(place, access.space, addresses.of[lane], lane, access.access_bytes());
    if (to.space != 0) StoreLane(place, access, to, lane);
  });
}

// A read-modify-write of undefined memory makes its result undefined and stores it: that is the
// use. Bit operations may yet define every bit.
void InitCheck::PassAtomicLane(const Place& place, const Bytes& bytes, uint32_t lane,
                               uint32_t element) {
  const AtomicAccess& atomic = *place.in.fn.atomic;
  const MemoryAccess& access = atomic.memory;
  RegisterDefinedness& registers = Registers(place.frame);
  const uint32_t size = 1u << access.element_shift;
  const uint64_t mask = WidthMask(access.element_shift);
  const Ref operand = atomic.operand[element];
  const bool is_wide = atomic.type == ScalarType::kB128;
  const Ref swap = is_wide && element == 1 ? atomic.swap_high : atomic.swap;
  uint8_t loaded[8] = {};
  uint64_t old = 0;
  ReadOrigin old_origin = 0;
  if (Load(bytes, size, loaded)) {
    old = Element(loaded, size);
    old_origin = OriginAt(bytes);
    if (old_origin == 0) old_origin = NewOrigin(place, bytes, lane, size, loaded, kAtomicAccess);
  }
  const uint64_t given = registers.BitsOf(operand, access.register_shift, lane) & mask;
  const ReadOrigin given_origin = given != 0 ? registers.OriginOf(operand, lane) : 0;
  const Ref result = access.registers[element];
  const auto set_result = [&](uint64_t u, ReadOrigin origin) {
    registers.SetLane(result, access.register_shift, lane, u, origin);
  };
  const auto store = [&](uint64_t u, ReadOrigin origin) {
    StoreValue(place, bytes, size, u, origin);
  };
  switch (atomic.operation) {
    case AtomicOp::kExchange:
      store(given, given_origin);
      set_result(old, old_origin);
      return;
    case AtomicOp::kCompareSwap: {
      if ((old | given) != 0) Use(place, old != 0 ? old_origin : given_origin, "compared");
      const uint64_t u = registers.BitsOf(swap, access.register_shift, lane) & mask;
      store(u, u != 0 ? registers.OriginOf(swap, lane) : 0);
      set_result(0, 0);
      return;
    }
    default:
      break;
  }
  if ((old | given) == 0) {
    store(0, 0);
    set_result(0, 0);
    return;
  }
  // The value in memory may change before the atomic is performed only if threads of other launches
  // change it; then it is defined.
  const uint64_t value = ValueOf(place.frame, operand, access.register_shift, lane);
  uint64_t u = mask;
  if (atomic.operation == AtomicOp::kXor) u = old | given;
  if (atomic.operation == AtomicOp::kAnd) u = (old | given) & (value | given);
  if (atomic.operation == AtomicOp::kOr) u = (old | given) & (~value | given);
  u &= mask;
  const ReadOrigin origin = (old != 0 ? old_origin : given_origin) & ~kCarried;
  if (old != 0 && u == mask) {
    Use(place, origin, "stored");
    u = 0;
  }
  store(u, origin);
  set_result(old != 0 && u == 0 ? 0 : old, old_origin);
}

void InitCheck::PassAtomic(const Place& place, uint32_t lanes) {
  const MemoryAccess& access = place.in.fn.atomic->memory;
  UseRegister(place, place.in.a, lanes, "address");
  const Addresses addresses(launch_, place.frame, place.in.a, access.address_is_32bit,
                            access.offset);
  if (IsTool(place)) {
    for (uint32_t k = 0; k < access.count; ++k)
      Registers(place.frame).Define(access.registers[k], access.register_shift, lanes);
    return;
  }
  ForLanes(lanes, [&](uint32_t lane) {
    Bytes bytes = Find(place, access.space, addresses.of[lane], lane, access.access_bytes());
    for (uint32_t k = 0; k < access.count && bytes.space != 0; ++k) {
      PassAtomicLane(place, bytes, lane, k);
      bytes.at += 1u << access.element_shift;
      bytes.reported += 1u << access.element_shift;
    }
  });
}

// cp.async: what is copied is looked at when it is (pending_copies.cc).
void InitCheck::UseCopyOperands(const Place& place, uint32_t lanes) {
  const auto& copy = *place.in.fn.copy;
  UseRegister(place, place.in.a, lanes, "address");
  UseRegister(place, copy.shared_address, lanes, "address");
  UseRegister(place, copy.source_bytes, lanes, "size of a copy");
  UsePredicate(place, copy.ignore_source, lanes, "predicate");
}

}  // namespace ops_debug::emulator
