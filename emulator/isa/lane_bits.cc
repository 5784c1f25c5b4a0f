// Bit operations, moves between widths, packing and selection.
#include "emulator/isa/lane_entries.h"
#include "emulator/isa/lane_loops.h"

namespace ops_debug::emulator::OPS_DEBUG_ISA {
namespace {

template <class T>
constexpr uint32_t kBits = static_cast<uint32_t>(sizeof(T) * 8);

template <class U, class S>
void RegisterShifts(LaneRegistry& r, const char* b, const char* u, const char* s) {
  // Shift amounts beyond the width act as the width.
  r.Alu("shl", b, Binary<U, U, uint32_t>([](U x, uint32_t n) {
          return n >= kBits<U> ? U{0} : static_cast<U>(x << n);
        }));
  r.Alu("shr", u, Binary<U, U, uint32_t>([](U x, uint32_t n) {
          return n >= kBits<U> ? U{0} : static_cast<U>(x >> n);
        }));
  r.Alu("shr", s, Binary<S, S, uint32_t>([](S x, uint32_t n) {
          return static_cast<S>(x >> (n >= kBits<U> ? kBits<U> - 1 : n));
        }));
  r.Alu("and", b, Binary<U>([](U x, U y) { return x & y; }));
  r.Alu("or", b, Binary<U>([](U x, U y) { return x | y; }));
  r.Alu("xor", b, Binary<U>([](U x, U y) { return x ^ y; }));
  r.Alu("not", b, Unary<U>([](U x) { return static_cast<U>(~x); }));
  r.Alu("cnot", b, Unary<U>([](U x) { return x == 0 ? 1 : 0; }));
  r.Alu("mov", b, Unary<U>([](U x) { return x; }));
}

template <class U>
U FieldMask(uint32_t length) {
  return length >= kBits<U> ? static_cast<U>(~U{0}) : static_cast<U>((U{1} << length) - 1);
}

template <class U>
uint32_t Byte(uint32_t x) {
  if constexpr (kBits<U> == 32) return x & 0xff;
  return x > 0xff ? 0xffu : x;
}

template <class U, class S>
U ExtractField(U x, uint32_t position, uint32_t length, bool is_signed) {
  // The 32-bit form takes the low bytes of position and length; the 64-bit one, which hardware
  // composes, all bits.
  const uint32_t pos = Byte<U>(position);
  const uint32_t len = Byte<U>(length);
  const U field = pos >= kBits<U> ? U{0} : static_cast<U>(x >> pos);
  const U mask = FieldMask<U>(len);
  if (!is_signed) return field & mask;
  if (len == 0) return 0;
  // The sign is the field's top bit, or the register's if the field runs past it.
  const uint32_t top = pos + len - 1;
  const bool negative = (x >> (top >= kBits<U> ? kBits<U> - 1 : top)) & 1;
  const uint32_t available = pos >= kBits<U> ? 0 : kBits<U> - pos;
  const uint32_t kept = len < available ? len : available;
  const U low = field & FieldMask<U>(kept);
  return negative ? static_cast<U>(low | ~FieldMask<U>(kept)) : low;
}

// Only 32- and 64-bit forms exist. `zeros` counts leading zeros, `ones` set bits, `reverse`
// mirrors.
template <class U, class S, class CountZeros, class CountOnes, class Reverse>
void RegisterFields(LaneRegistry& r, const char* b, const char* u, const char* s, CountZeros,
                    CountOnes, Reverse) {
  r.Alu("bfe", u, Ternary<U, U, uint32_t>([](U x, uint32_t pos, uint32_t len) {
          return ExtractField<U, S>(x, pos, len, false);
        }));
  r.Alu("bfe", s, Ternary<U, U, uint32_t>([](U x, uint32_t pos, uint32_t len) {
          return ExtractField<U, S>(x, pos, len, true);
        }));
  r.Alu("clz", b, Unary<uint32_t, U>([](U x) { return CountZeros{}(x); }));
  r.Alu("popc", b, Unary<uint32_t, U>([](U x) { return CountOnes{}(x); }));
  r.Alu("brev", b, Unary<U>([](U x) { return Reverse{}(x); }));
  r.Alu("bfind", u, Unary<uint32_t, U>([](U x) {
          return x == 0 ? ~0u : kBits<U> - 1 - static_cast<uint32_t>(CountZeros{}(x));
        }));
  r.Alu("bfind", s, Unary<uint32_t, U>([](U x) {
          const U bits = static_cast<S>(x) < 0 ? static_cast<U>(~x) : x;
          return bits == 0 ? ~0u : kBits<U> - 1 - static_cast<uint32_t>(CountZeros{}(bits));
        }));
  r.Alu("bfind.shiftamt", u, Unary<uint32_t, U>([](U x) {
          return x == 0 ? ~0u : static_cast<uint32_t>(CountZeros{}(x));
        }));
  r.Alu("bfind.shiftamt", s, Unary<uint32_t, U>([](U x) {
          const U bits = static_cast<S>(x) < 0 ? static_cast<U>(~x) : x;
          return bits == 0 ? ~0u : static_cast<uint32_t>(CountZeros{}(bits));
        }));
}

// bfi d, a, b, pos, len: four sources; pos and len come packed as pos | len << 8 in c.
template <class U>
U InsertField(U a, U b, uint32_t packed) {
  const uint32_t pos = packed & 0xff;
  const uint32_t len = (packed >> 8) & 0xff;
  if (pos >= kBits<U> || len == 0) return b;
  const U mask = static_cast<U>(FieldMask<U>(len) << pos);
  return static_cast<U>((b & ~mask) | ((a << pos) & mask));
}

inline uint32_t Reverse32(uint32_t x) {
  x = ((x >> 1) & 0x55555555u) | ((x & 0x55555555u) << 1);
  x = ((x >> 2) & 0x33333333u) | ((x & 0x33333333u) << 2);
  x = ((x >> 4) & 0x0f0f0f0fu) | ((x & 0x0f0f0f0fu) << 4);
  return __builtin_bswap32(x);
}

inline uint32_t Permute(uint32_t a, uint32_t b, uint32_t selector) {
  const uint64_t bytes = (static_cast<uint64_t>(b) << 32) | a;
  uint32_t result = 0;
  for (int k = 0; k < 4; ++k) {
    const uint32_t pick = selector >> (4 * k);
    const uint32_t byte = static_cast<uint32_t>(bytes >> (8 * (pick & 7))) & 0xff;
    const uint32_t sign = (byte & 0x80) != 0 ? 0xffu : 0u;
    result |= ((pick & 8) != 0 ? sign : byte) << (8 * k);
  }
  return result;
}

// The special modes of prmt as selectors of the default mode; index = c & 3. PTX ISA 9.7.9.7, table
// "prmt modes".
inline uint32_t ModeSelector(uint64_t mode, uint32_t c) {
  constexpr uint16_t kTable[6][4] = {
      {0x3210, 0x4321, 0x5432, 0x6543},  // f4e
      {0x5670, 0x6701, 0x7012, 0x0123},  // b4e
      {0x0000, 0x1111, 0x2222, 0x3333},  // rc8
      {0x3210, 0x3211, 0x3222, 0x3333},  // ecl
      {0x0000, 0x1110, 0x2210, 0x3210},  // ecr
      {0x1010, 0x3232, 0x1010, 0x3232},  // rc16
  };
  return kTable[mode - 1][c & 3];
}

void Register32(LaneRegistry& r) {
  r.Alu("lop3", "b32",
        WithImmediate<uint32_t>([](uint32_t a, uint32_t b, uint32_t c, uint64_t lut) {
          uint32_t result = 0;
          for (int k = 0; k < 8; ++k) {
            const uint32_t on = static_cast<uint32_t>(-static_cast<int32_t>((lut >> k) & 1));
            result |=
                on & ((k & 4) != 0 ? a : ~a) & ((k & 2) != 0 ? b : ~b) & ((k & 1) != 0 ? c : ~c);
          }
          return result;
        }));
  r.Alu("prmt", "b32",
        Ternary<uint32_t>([](uint32_t a, uint32_t b, uint32_t c) { return Permute(a, b, c); }));
  r.Alu("prmt.mode", "b32",
        WithImmediate<uint32_t>([](uint32_t a, uint32_t b, uint32_t c, uint64_t mode) {
          return Permute(a, b, ModeSelector(mode, c));
        }));
  // Funnel shifts: the 64-bit value b:a, shifted by min(c, 32) or c mod 32.
  r.Alu("shf.l.clamp", "b32", Ternary<uint32_t>([](uint32_t a, uint32_t b, uint32_t c) {
          const uint32_t n = c > 32 ? 32 : c;
          return (((static_cast<uint64_t>(b) << 32) | a) << n) >> 32;
        }));
  r.Alu("shf.l.wrap", "b32", Ternary<uint32_t>([](uint32_t a, uint32_t b, uint32_t c) {
          return (((static_cast<uint64_t>(b) << 32) | a) << (c & 31)) >> 32;
        }));
  r.Alu("shf.r.clamp", "b32", Ternary<uint32_t>([](uint32_t a, uint32_t b, uint32_t c) {
          const uint32_t n = c > 32 ? 32 : c;
          return ((static_cast<uint64_t>(b) << 32) | a) >> n;
        }));
  r.Alu("shf.r.wrap", "b32", Ternary<uint32_t>([](uint32_t a, uint32_t b, uint32_t c) {
          return ((static_cast<uint64_t>(b) << 32) | a) >> (c & 31);
        }));
  r.Alu("bmsk.clamp", "b32", Binary<uint32_t>([](uint32_t a, uint32_t b) {
          const uint32_t mask = FieldMask<uint32_t>(b);
          return a >= 32 ? 0u : mask << a;
        }));
  r.Alu("bmsk.wrap", "b32", Binary<uint32_t>([](uint32_t a, uint32_t b) {
          return FieldMask<uint32_t>(b & 31) << (a & 31);
        }));
  r.Alu("szext.clamp", "u32", Binary<uint32_t>([](uint32_t a, uint32_t n) {
          return n >= 32 ? a : a & FieldMask<uint32_t>(n);
        }));
  r.Alu("szext.wrap", "u32",
        Binary<uint32_t>([](uint32_t a, uint32_t n) { return a & FieldMask<uint32_t>(n & 31); }));
  r.Alu("szext.clamp", "s32", Binary<uint32_t>([](uint32_t a, uint32_t n) {
          return ExtractField<uint32_t, int32_t>(a, 0, n > 32 ? 32 : n, true);
        }));
  r.Alu("szext.wrap", "s32", Binary<uint32_t>([](uint32_t a, uint32_t n) {
          return ExtractField<uint32_t, int32_t>(a, 0, n & 31, true);
        }));
  // fns: the offset-th set bit of a, counted from bit `base`; packed as base in b, offset in c.
  r.Alu("fns", "b32", Ternary<uint32_t>([](uint32_t a, uint32_t b, uint32_t c) {
          const auto offset = static_cast<int32_t>(c);
          const int step = offset < 0 ? -1 : 1;
          uint32_t remaining = offset < 0 ? 0 - c : c;
          if (offset == 0) return (a >> (b & 31)) & 1 ? b & 31 : ~0u;
          for (int bit = static_cast<int>(b & 31); bit >= 0 && bit < 32; bit += step) {
            if ((a >> bit) & 1 && --remaining == 0) return static_cast<uint32_t>(bit);
          }
          return ~0u;
        }));
}

// Sign or zero extension and truncation: "move.TO.FROM", FROM being s8, u8, s16, u16, s32, u32,
// b64.
template <class From>
void RegisterMovesFrom(LaneRegistry& r, const char* from) {
  r.Alu("move.8", from, Unary<uint8_t, From>([](From x) { return static_cast<uint8_t>(x); }));
  r.Alu("move.16", from, Unary<uint16_t, From>([](From x) { return static_cast<uint16_t>(x); }));
  r.Alu("move.32", from, Unary<uint32_t, From>([](From x) { return static_cast<uint32_t>(x); }));
  r.Alu("move.64", from, Unary<uint64_t, From>([](From x) { return static_cast<uint64_t>(x); }));
}

template <class Wide, class Narrow>
void RegisterPacking(LaneRegistry& r, const char* narrow) {
  r.Alu("pack", narrow, Binary<Wide, Narrow>([](Narrow low, Narrow high) {
          return static_cast<Wide>((static_cast<Wide>(high) << (sizeof(Narrow) * 8)) | low);
        }));
  r.Alu("unpack.low", narrow, Unary<Narrow, Wide>([](Wide x) { return static_cast<Narrow>(x); }));
  r.Alu("unpack.high", narrow,
        Unary<Narrow, Wide>([](Wide x) { return static_cast<Narrow>(x >> (sizeof(Narrow) * 8)); }));
}

template <class U>
void RegisterSlct(LaneRegistry& r, const char* integer_key, const char* float_key) {
  r.Alu("slct", integer_key,
        Ternary<U, U, U, int32_t>([](U x, U y, int32_t z) { return z >= 0 ? x : y; }));
  r.Alu("slct", float_key,
        Ternary<U, U, U, float>([](U x, U y, float z) { return z >= 0 ? x : y; }));
}

}  // namespace

void RegisterBitLanes(LaneRegistry& r) {
  RegisterShifts<uint8_t, int8_t>(r, "b8", "u8", "s8");
  RegisterShifts<uint16_t, int16_t>(r, "b16", "u16", "s16");
  RegisterShifts<uint32_t, int32_t>(r, "b32", "u32", "s32");
  RegisterShifts<uint64_t, int64_t>(r, "b64", "u64", "s64");
  RegisterFields<uint32_t, int32_t>(
      r, "b32", "u32", "s32", [](uint32_t x) { return x == 0 ? 32 : __builtin_clz(x); },
      [](uint32_t x) { return __builtin_popcount(x); }, [](uint32_t x) { return Reverse32(x); });
  RegisterFields<uint64_t, int64_t>(
      r, "b64", "u64", "s64", [](uint64_t x) { return x == 0 ? 64 : __builtin_clzll(x); },
      [](uint64_t x) { return __builtin_popcountll(x); },
      [](uint64_t x) {
        return (static_cast<uint64_t>(Reverse32(static_cast<uint32_t>(x))) << 32) |
               Reverse32(static_cast<uint32_t>(x >> 32));
      });
  r.Alu("bfi", "b32", Ternary<uint32_t>([](uint32_t a, uint32_t b, uint32_t c) {
          return InsertField<uint32_t>(a, b, c);
        }));
  r.Alu("bfi", "b64",
        Ternary<uint64_t, uint64_t, uint64_t, uint32_t>(
            [](uint64_t a, uint64_t b, uint32_t c) { return InsertField<uint64_t>(a, b, c); }));
  r.Alu("pack.field", "b32", Binary<uint32_t>([](uint32_t pos, uint32_t len) {
          return (pos & 0xff) | ((len & 0xff) << 8);
        }));
  r.Alu("pack.field", "b64", Binary<uint32_t>([](uint32_t pos, uint32_t len) {
          return Byte<uint64_t>(pos) | (Byte<uint64_t>(len) << 8);
        }));
  Register32(r);
  RegisterMovesFrom<int8_t>(r, "s8");
  RegisterMovesFrom<uint8_t>(r, "u8");
  RegisterMovesFrom<int16_t>(r, "s16");
  RegisterMovesFrom<uint16_t>(r, "u16");
  RegisterMovesFrom<int32_t>(r, "s32");
  RegisterMovesFrom<uint32_t>(r, "u32");
  RegisterMovesFrom<int64_t>(r, "s64");
  RegisterMovesFrom<uint64_t>(r, "u64");
  RegisterPacking<uint16_t, uint8_t>(r, "b8");
  RegisterPacking<uint32_t, uint16_t>(r, "b16");
  RegisterPacking<uint64_t, uint32_t>(r, "b32");
  RegisterSlct<uint16_t>(r, "b16.s32", "b16.f32");
  RegisterSlct<uint32_t>(r, "b32.s32", "b32.f32");
  RegisterSlct<uint64_t>(r, "b64.s32", "b64.f32");
}

}  // namespace ops_debug::emulator::OPS_DEBUG_ISA
