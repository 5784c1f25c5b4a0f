// atom and red. Lanes go one after the other, each with a host atomic, so that blocks on other host
// threads see what they would see on a GPU. All are sequentially consistent, which is stronger than
// any PTX qualifier asks for.
#include "emulator/atomics.h"

#include <cstring>

#include "emulator/isa/lane_math.h"
#include "emulator/machine.h"

namespace ops_debug::emulator {
namespace {

template <class T>
T Combined(AtomicOp operation, T old, T b, T swap) {
  switch (operation) {
    case AtomicOp::kAdd:
      return static_cast<T>(old + b);
    case AtomicOp::kMin:
      return b < old ? b : old;
    case AtomicOp::kMax:
      return old < b ? b : old;
    case AtomicOp::kExchange:
      return b;
    case AtomicOp::kCompareSwap:
      return old == b ? swap : old;
    case AtomicOp::kIncrement:
      return old >= b ? T{0} : static_cast<T>(old + 1);
    case AtomicOp::kDecrement:
      return old == 0 || old > b ? b : static_cast<T>(old - 1);
    case AtomicOp::kAnd:
      return static_cast<T>(old & b);
    case AtomicOp::kOr:
      return static_cast<T>(old | b);
    case AtomicOp::kXor:
      return static_cast<T>(old ^ b);
  }
  return old;
}

// Any function of the old value, by compare and swap on its bits.
template <class U, class F>
U Update(std::byte* pointer, F function) {
  auto* p = reinterpret_cast<U*>(pointer);
  U old = __atomic_load_n(p, __ATOMIC_SEQ_CST);
  while (!__atomic_compare_exchange_n(p, &old, function(old), false, __ATOMIC_SEQ_CST,
                                      __ATOMIC_SEQ_CST)) {
  }
  return old;
}

template <class U, class T>
U IntegerAtomic(AtomicOp operation, std::byte* pointer, U b, U swap) {
  auto* p = reinterpret_cast<U*>(pointer);
  switch (operation) {
    case AtomicOp::kAdd:
      return __atomic_fetch_add(p, b, __ATOMIC_SEQ_CST);
    case AtomicOp::kAnd:
      return __atomic_fetch_and(p, b, __ATOMIC_SEQ_CST);
    case AtomicOp::kOr:
      return __atomic_fetch_or(p, b, __ATOMIC_SEQ_CST);
    case AtomicOp::kXor:
      return __atomic_fetch_xor(p, b, __ATOMIC_SEQ_CST);
    case AtomicOp::kExchange:
      return __atomic_exchange_n(p, b, __ATOMIC_SEQ_CST);
    case AtomicOp::kCompareSwap: {
      U expected = b;
      __atomic_compare_exchange_n(p, &expected, swap, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
      return expected;
    }
    default:
      return Update<U>(pointer, [&](U old) {
        return static_cast<U>(
            Combined<T>(operation, static_cast<T>(old), static_cast<T>(b), static_cast<T>(swap)));
      });
  }
}

float Sum(float x, float y, bool /*in_shared*/) { return baseline::Canonical(x + y); }

// Global memory returns a NaN operand as it is, that of the instruction before that of memory; in
// shared memory it is an ordinary addition.
double Sum(double x, double y, bool in_shared) {
  if (in_shared) return x != x ? baseline::Quiet(x) : x + y;
  return y != y ? y : x != x ? x : x + y;
}

template <class F, class U>
U FloatAtomic(AtomicOp operation, std::byte* pointer, U b, bool in_shared) {
  return Update<U>(pointer, [&](U old) {
    const F x = __builtin_bit_cast(F, old);
    const F y = __builtin_bit_cast(F, b);
    if (operation == AtomicOp::kExchange) return b;
    const F result = operation == AtomicOp::kMin   ? baseline::Minimum(x, y)
                     : operation == AtomicOp::kMax ? baseline::Maximum(x, y)
                                                   : Sum(x, y, in_shared);
    return __builtin_bit_cast(U, result);
  });
}

// Both in one step; `old` receives what was there.
bool CompareSwapWide(std::byte* pointer, uint64_t* old, const uint64_t* desired) {
  bool swapped = false;
  asm volatile("lock cmpxchg16b %1"
               : "=@ccz"(swapped), "+m"(*reinterpret_cast<unsigned __int128*>(pointer)),
                 "+a"(old[0]), "+d"(old[1])
               : "b"(desired[0]), "c"(desired[1])
               : "memory");
  return swapped;
}

// Exchange (`compare` null) or compare-and-swap of 16 bytes, aligned; `old` receives what was
// there.
void AtomicWide(std::byte* pointer, const uint64_t* compare, const uint64_t* desired,
                uint64_t* old) {
  old[0] = compare == nullptr ? 0 : compare[0];
  old[1] = compare == nullptr ? 0 : compare[1];
  while (!CompareSwapWide(pointer, old, desired) && compare == nullptr) {
  }
}

uint16_t HalfResult(AtomicOp operation, bool is_bfloat, uint16_t old, uint16_t b) {
  const float x = is_bfloat ? baseline::BfloatToFloat(old) : baseline::HalfToFloat(old);
  const float y = is_bfloat ? baseline::BfloatToFloat(b) : baseline::HalfToFloat(b);
  const float result = operation == AtomicOp::kMin   ? baseline::Minimum(x, y)
                       : operation == AtomicOp::kMax ? baseline::Maximum(x, y)
                                                     : x + y;
  return is_bfloat ? baseline::FloatToBfloat(result) : baseline::FloatToHalf(result);
}

}  // namespace

uint64_t ApplyAtomic(AtomicOp operation, ScalarType type, std::byte* p, uint64_t b, uint64_t swap,
                     bool in_shared) {
  const auto b16 = static_cast<uint16_t>(b);
  const auto b32 = static_cast<uint32_t>(b);
  const auto swap16 = static_cast<uint16_t>(swap);
  const auto swap32 = static_cast<uint32_t>(swap);
  switch (type) {
    case ScalarType::kB16:
    case ScalarType::kU16:
      return IntegerAtomic<uint16_t, uint16_t>(operation, p, b16, swap16);
    case ScalarType::kB32:
    case ScalarType::kU32:
      return IntegerAtomic<uint32_t, uint32_t>(operation, p, b32, swap32);
    case ScalarType::kS32:
      return IntegerAtomic<uint32_t, int32_t>(operation, p, b32, swap32);
    case ScalarType::kB64:
    case ScalarType::kU64:
      return IntegerAtomic<uint64_t, uint64_t>(operation, p, b, swap);
    case ScalarType::kS64:
      return IntegerAtomic<uint64_t, int64_t>(operation, p, b, swap);
    case ScalarType::kF32:
      return FloatAtomic<float, uint32_t>(operation, p, b32, in_shared);
    case ScalarType::kF64:
      return FloatAtomic<double, uint64_t>(operation, p, b, in_shared);
    case ScalarType::kF16:
    case ScalarType::kBf16:
      return Update<uint16_t>(p, [&](uint16_t old) {
        return operation == AtomicOp::kExchange
                   ? b16
                   : HalfResult(operation, type == ScalarType::kBf16, old, b16);
      });
    case ScalarType::kF16x2:
    case ScalarType::kBf16x2:
      return Update<uint32_t>(p, [&](uint32_t old) {
        if (operation == AtomicOp::kExchange) return b32;
        const bool is_bfloat = type == ScalarType::kBf16x2;
        const uint32_t low = HalfResult(operation, is_bfloat, static_cast<uint16_t>(old), b16);
        const uint32_t high = HalfResult(operation, is_bfloat, static_cast<uint16_t>(old >> 16),
                                         static_cast<uint16_t>(b32 >> 16));
        return low | (high << 16);
      });
    default:
      return 0;
  }
}

namespace {

uint64_t ReadLane(const std::byte* array, uint32_t lane, uint32_t shift) {
  uint64_t value = 0;
  std::memcpy(&value, array + (static_cast<size_t>(lane) << shift), size_t{1} << shift);
  return value;
}

}  // namespace

bool Machine::Atomic(Warp& warp, Frame& frame, const Instruction& in, uint32_t active) {
  const AtomicAccess& access = *in.fn.atomic;
  const MemoryAccess& memory = access.memory;
  const uint32_t bytes = memory.access_bytes();
  const uint32_t shift = memory.element_shift;
  alignas(kLaneArrayAlignment) uint64_t addresses[kWarpLanes];
  (memory.address_is_32bit ? lanes_.add_offset32 : lanes_.add_offset64)(addresses, At(frame, in.a),
                                                                        memory.offset);
  const Space space = SettleSpace(memory.space, addresses, active);
  std::byte* pointers[kWarpLanes];
  if (!Resolve(warp, space, addresses, active, bytes, true, pointers)) return false;
  if (access.type == ScalarType::kB128) {
    for (uint32_t m = active; m != 0; m &= m - 1) {
      const auto lane = static_cast<uint32_t>(__builtin_ctz(m));
      const auto read = [&](Ref low, Ref high, uint64_t* value) {
        value[0] = ReadLane(At(frame, low), lane, 3);
        value[1] = ReadLane(At(frame, high), lane, 3);
      };
      uint64_t operand[2];
      uint64_t swap[2];
      uint64_t old[2];
      read(access.operand[0], access.operand[1], operand);
      const bool compares = access.operation == AtomicOp::kCompareSwap;
      if (compares) read(access.swap, access.swap_high, swap);
      AtomicWide(pointers[lane], compares ? operand : nullptr, compares ? swap : operand, old);
      for (uint32_t k = 0; k < 2; ++k) {
        if (memory.registers[k] == kNoRef) continue;
        std::memcpy(At(frame, memory.registers[k]) + (static_cast<size_t>(lane) << 3), &old[k], 8);
      }
    }
    synchronising_ = true;
    return true;
  }
  const bool in_shared = space == Space::kShared || space == Space::kSharedCluster;
  bool has_result = false;
  for (uint32_t k = 0; k < memory.count; ++k) {
    const std::byte* const operand = At(frame, access.operand[k]);
    const std::byte* const swap = access.swap == kNoRef ? nullptr : At(frame, access.swap);
    std::byte* const result =
        memory.registers[k] == kNoRef ? nullptr : At(frame, memory.registers[k]);
    has_result = has_result || result != nullptr;
    for (uint32_t m = active; m != 0; m &= m - 1) {
      const auto lane = static_cast<uint32_t>(__builtin_ctz(m));
      const uint64_t old = ApplyAtomic(
          access.operation, access.type, pointers[lane] + (static_cast<size_t>(k) << shift),
          ReadLane(operand, lane, shift), swap == nullptr ? 0 : ReadLane(swap, lane, shift),
          in_shared);
      if (result != nullptr)
        std::memcpy(result + (static_cast<size_t>(lane) << shift), &old, size_t{1} << shift);
    }
  }
  // Loops around compare-and-swap or exchange wait for others; counters and sums do not.
  if (has_result &&
      (access.operation == AtomicOp::kCompareSwap || access.operation == AtomicOp::kExchange ||
       access.operation == AtomicOp::kAdd)) {
    synchronising_ = true;
  }
  return true;
}

}  // namespace ops_debug::emulator
