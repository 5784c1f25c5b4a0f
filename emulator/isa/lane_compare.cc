// Comparisons (32 results as one mask) and the executor's own lane operations: blend, select,
// splat, address tests.
#include <emmintrin.h>

#include "emulator/isa/lane_entries.h"
#include "emulator/isa/lane_math.h"

namespace ops_debug::emulator::OPS_DEBUG_ISA {
namespace {

// 32 bytes of 0 or 0xff to a mask.
inline uint32_t PackMask(const uint8_t* bytes) {
  const auto* vectors = reinterpret_cast<const __m128i*>(bytes);
  const auto low = static_cast<uint32_t>(_mm_movemask_epi8(_mm_load_si128(vectors)));
  const auto high = static_cast<uint32_t>(_mm_movemask_epi8(_mm_load_si128(vectors + 1)));
  return low | (high << 16);
}

template <class F, class T>
uint32_t CompareLoop(const void* a, const void* b) {
  const T* x = Lanes<T>(a);
  const T* y = Lanes<T>(b);
  alignas(32) uint8_t bytes[32];
  for (int i = 0; i < 32; ++i) bytes[i] = F{}(x[i], y[i]) ? 0xff : 0;
  return PackMask(bytes);
}
template <class T, class F>
constexpr CompareFn Relation(F) {
  return &CompareLoop<F, T>;
}

template <class T>
void RegisterEquality(LaneRegistry& r, const char* type) {
  r.Compare("eq", type, Relation<T>([](T x, T y) { return x == y; }));
  r.Compare("ne", type, Relation<T>([](T x, T y) { return x != y; }));
}
template <class T>
void RegisterOrder(LaneRegistry& r, const char* type) {
  r.Compare("lt", type, Relation<T>([](T x, T y) { return x < y; }));
  r.Compare("le", type, Relation<T>([](T x, T y) { return x <= y; }));
  r.Compare("gt", type, Relation<T>([](T x, T y) { return x > y; }));
  r.Compare("ge", type, Relation<T>([](T x, T y) { return x >= y; }));
}

// The ordered relations are false for NaN, the unordered ones (…u) true.
template <class F>
void RegisterFloat(LaneRegistry& r, const char* type) {
  r.Compare("eq", type, Relation<F>([](F x, F y) { return x == y; }));
  r.Compare("ne", type, Relation<F>([](F x, F y) { return x < y || x > y; }));
  RegisterOrder<F>(r, type);
  r.Compare("equ", type, Relation<F>([](F x, F y) { return !(x < y || x > y); }));
  r.Compare("neu", type, Relation<F>([](F x, F y) { return !(x == y); }));
  r.Compare("ltu", type, Relation<F>([](F x, F y) { return !(x >= y); }));
  r.Compare("leu", type, Relation<F>([](F x, F y) { return !(x > y); }));
  r.Compare("gtu", type, Relation<F>([](F x, F y) { return !(x <= y); }));
  r.Compare("geu", type, Relation<F>([](F x, F y) { return !(x < y); }));
  r.Compare("num", type, Relation<F>([](F x, F y) { return x == x && y == y; }));
  r.Compare("nan", type, Relation<F>([](F x, F y) { return x != x || y != y; }));
}

// testp: the second operand is not used.
template <class F, class U, U Sign, U Infinity, U Smallest>
void RegisterTests(LaneRegistry& r, const char* type) {
  r.Compare("finite", type, Relation<U>([](U x, U) { return (x & ~Sign) < Infinity; }));
  r.Compare("infinite", type, Relation<U>([](U x, U) { return (x & ~Sign) == Infinity; }));
  r.Compare("number", type, Relation<U>([](U x, U) { return (x & ~Sign) <= Infinity; }));
  r.Compare("notanumber", type, Relation<U>([](U x, U) { return (x & ~Sign) > Infinity; }));
  // Zero counts as normal on a GPU: the test is "finite and not subnormal".
  r.Compare("normal", type, Relation<U>([](U x, U) {
              const U magnitude = x & ~Sign;
              return magnitude < Infinity && (magnitude >= Smallest || magnitude == 0);
            }));
  r.Compare("subnormal", type,
            Relation<U>([](U x, U) { return (x & ~Sign) < Smallest && (x & ~Sign) != 0; }));
}

template <class T>
void Select(void* d, const void* a, const void* b, uint32_t mask) {
  T* out = Lanes<T>(d);
  const T* x = Lanes<T>(a);
  const T* y = Lanes<T>(b);
#pragma GCC ivdep
  for (int i = 0; i < 32; ++i) out[i] = ((mask >> i) & 1) != 0 ? x[i] : y[i];
}
template <class T>
void Blend(void* d, const void* s, uint32_t mask) {
  Select<T>(d, s, d, mask);
}
template <class T>
void Splat(void* d, uint64_t value) {
  T* out = Lanes<T>(d);
  for (int i = 0; i < 32; ++i) out[i] = static_cast<T>(value);
}

template <class T>
void AddOffset(uint64_t* d, const void* a, int64_t offset) {
  const T* x = Lanes<T>(a);
  uint64_t* out = Lanes<uint64_t>(d);
  for (int i = 0; i < 32; ++i) out[i] = static_cast<T>(x[i] + static_cast<T>(offset));
}

AddressPattern Classify(const uint64_t* addresses, uint64_t stride) {
  const uint64_t* x = Lanes<uint64_t>(addresses);
  const uint64_t step = x[1] - x[0];
  if (step != 0 && step != stride) return AddressPattern::kScattered;
  uint64_t difference = 0;
  for (int i = 0; i < 32; ++i) difference |= x[i] ^ (x[0] + static_cast<uint64_t>(i) * step);
  if (difference != 0) return AddressPattern::kScattered;
  return step == 0 ? AddressPattern::kUniform : AddressPattern::kConsecutive;
}

bool AllWithin(const uint64_t* addresses, uint64_t limit, uint64_t access_bytes) {
  if (limit < access_bytes) return false;
  const uint64_t last = limit - access_bytes;
  const uint64_t* x = Lanes<uint64_t>(addresses);
  uint64_t bad = 0;
  for (int i = 0; i < 32; ++i) bad |= (x[i] > last ? 1 : 0) | (x[i] & (access_bytes - 1));
  return bad == 0;
}

void Deinterleave32(void* const* registers, const void* memory, uint32_t count) {
  const auto* in = static_cast<const uint32_t*>(memory);
  if (count == 2) {
    auto* x = Lanes<uint32_t>(registers[0]);
    auto* y = Lanes<uint32_t>(registers[1]);
#pragma GCC ivdep
    for (int i = 0; i < 32; ++i) {
      x[i] = in[2 * i];
      y[i] = in[2 * i + 1];
    }
    return;
  }
  auto* x = Lanes<uint32_t>(registers[0]);
  auto* y = Lanes<uint32_t>(registers[1]);
  auto* z = Lanes<uint32_t>(registers[2]);
  auto* w = Lanes<uint32_t>(registers[3]);
#pragma GCC ivdep
  for (int i = 0; i < 32; ++i) {
    x[i] = in[4 * i];
    y[i] = in[4 * i + 1];
    z[i] = in[4 * i + 2];
    w[i] = in[4 * i + 3];
  }
}

void Interleave32(void* memory, void* const* registers, uint32_t count) {
  auto* out = static_cast<uint32_t*>(memory);
  const auto* x = Lanes<uint32_t>(registers[0]);
  const auto* y = Lanes<uint32_t>(registers[1]);
  if (count == 2) {
#pragma GCC ivdep
    for (int i = 0; i < 32; ++i) {
      out[2 * i] = x[i];
      out[2 * i + 1] = y[i];
    }
    return;
  }
  const auto* z = Lanes<uint32_t>(registers[2]);
  const auto* w = Lanes<uint32_t>(registers[3]);
#pragma GCC ivdep
  for (int i = 0; i < 32; ++i) {
    out[4 * i] = x[i];
    out[4 * i + 1] = y[i];
    out[4 * i + 2] = z[i];
    out[4 * i + 3] = w[i];
  }
}

}  // namespace

void RegisterCompareLanes(LaneRegistry& r) {
  RegisterEquality<uint16_t>(r, "b16");
  RegisterEquality<uint32_t>(r, "b32");
  RegisterEquality<uint64_t>(r, "b64");
  RegisterOrder<uint16_t>(r, "u16");
  RegisterOrder<int16_t>(r, "s16");
  RegisterOrder<uint32_t>(r, "u32");
  RegisterOrder<int32_t>(r, "s32");
  RegisterOrder<uint64_t>(r, "u64");
  RegisterOrder<int64_t>(r, "s64");
  RegisterFloat<float>(r, "f32");
  RegisterFloat<double>(r, "f64");
  RegisterTests<float, uint32_t, 0x80000000u, 0x7f800000u, 0x00800000u>(r, "f32");
  RegisterTests<double, uint64_t, 0x8000000000000000ull, 0x7ff0000000000000ull,
                0x0010000000000000ull>(r, "f64");
}

#define OPS_DEBUG_STRING_OF(x) #x
#define OPS_DEBUG_STRING(x) OPS_DEBUG_STRING_OF(x)

const LaneSupport& Support() {
  static constexpr LaneSupport kSupport = {
      {&Blend<uint8_t>, &Blend<uint16_t>, &Blend<uint32_t>, &Blend<uint64_t>},
      {&Select<uint8_t>, &Select<uint16_t>, &Select<uint32_t>, &Select<uint64_t>},
      {&Splat<uint8_t>, &Splat<uint16_t>, &Splat<uint32_t>, &Splat<uint64_t>},
      &AddOffset<uint32_t>,
      &AddOffset<uint64_t>,
      &Classify,
      &AllWithin,
      &Deinterleave32,
      &Interleave32,
      OPS_DEBUG_STRING(OPS_DEBUG_ISA),
  };
  return kSupport;
}

}  // namespace ops_debug::emulator::OPS_DEBUG_ISA
