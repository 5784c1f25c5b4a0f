// Integer arithmetic: add, sub, mul, mad, div, rem, min, max, abs, neg, sad, dp4a and the carry
// chain. Undefined cases of C++ that PTX defines (overflow, INT_MIN / -1, division by zero) are
// spelled out.
#include "emulator/isa/lane_entries.h"
#include "emulator/isa/lane_loops.h"

namespace ops_debug::emulator::OPS_DEBUG_ISA {
namespace {

template <class T>
constexpr int kBits = static_cast<int>(sizeof(T) * 8);

template <class U, class S, class WideU, class WideS>
void RegisterWidth(LaneRegistry& r, const char* b, const char* u, const char* s) {
  r.Alu("add", b, Binary<U>([](U x, U y) { return x + y; }));
  r.Alu("sub", b, Binary<U>([](U x, U y) { return x - y; }));
  r.Alu("mul.lo", b, Binary<U>([](U x, U y) { return static_cast<WideU>(x) * y; }));
  r.Alu("mad.lo", b, Ternary<U>([](U x, U y, U z) { return static_cast<WideU>(x) * y + z; }));
  r.Alu("mul.hi", u, Binary<U>([](U x, U y) { return (static_cast<WideU>(x) * y) >> kBits<U>; }));
  r.Alu("mul.hi", s, Binary<S>([](S x, S y) { return (static_cast<WideS>(x) * y) >> kBits<U>; }));
  r.Alu("mad.hi", u, Ternary<U>([](U x, U y, U z) {
          return static_cast<U>((static_cast<WideU>(x) * y) >> kBits<U>) + z;
        }));
  r.Alu("mad.hi", s, Ternary<U>([](U x, U y, U z) {
          return static_cast<U>((static_cast<WideS>(static_cast<S>(x)) * static_cast<S>(y)) >>
                                kBits<U>) +
                 z;
        }));
  // Division by zero: quotient and remainder are all ones on a GPU.
  r.Alu("div", u,
        Binary<U>([](U x, U y) { return y == 0 ? static_cast<U>(~U{0}) : static_cast<U>(x / y); }));
  r.Alu("rem", u,
        Binary<U>([](U x, U y) { return y == 0 ? static_cast<U>(~U{0}) : static_cast<U>(x % y); }));
  r.Alu("div", s, Binary<S>([](S x, S y) {
          if (y == 0) return static_cast<S>(-1);
          if (y == -1) return static_cast<S>(U{0} - static_cast<U>(x));
          return static_cast<S>(x / y);
        }));
  r.Alu("rem", s, Binary<S>([](S x, S y) {
          if (y == 0) return static_cast<S>(-1);
          if (y == -1) return S{0};
          return static_cast<S>(x % y);
        }));
  r.Alu("min", u, Binary<U>([](U x, U y) { return x < y ? x : y; }));
  r.Alu("max", u, Binary<U>([](U x, U y) { return x < y ? y : x; }));
  r.Alu("min", s, Binary<S>([](S x, S y) { return x < y ? x : y; }));
  r.Alu("max", s, Binary<S>([](S x, S y) { return x < y ? y : x; }));
  r.Alu("neg", s, Unary<U>([](U x) { return U{0} - x; }));
  r.Alu("abs", s,
        Unary<U>([](U x) { return static_cast<S>(x) < 0 ? static_cast<U>(U{0} - x) : x; }));
  r.Alu("sad", u, Ternary<U>([](U x, U y, U z) { return z + (x < y ? y - x : x - y); }));
  r.Alu("sad", s, Ternary<U>([](U x, U y, U z) {
          return z + (static_cast<S>(x) < static_cast<S>(y) ? y - x : x - y);
        }));
}

// Products that are twice as wide as their factors.
template <class U, class S, class WideU, class WideS>
void RegisterWide(LaneRegistry& r, const char* u, const char* s) {
  r.Alu("mul.wide", u, Binary<WideU, U>([](U x, U y) { return static_cast<WideU>(x) * y; }));
  r.Alu("mul.wide", s, Binary<WideS, S>([](S x, S y) { return static_cast<WideS>(x) * y; }));
  r.Alu("mad.wide", u, Ternary<WideU, U, U, WideU>([](U x, U y, WideU z) {
          return static_cast<WideU>(x) * y + z;
        }));
  r.Alu("mad.wide", s, Ternary<WideU, S, S, WideU>([](S x, S y, WideU z) {
          return static_cast<WideU>(static_cast<WideS>(x) * y) + z;
        }));
}

inline int32_t SaturateToS32(int64_t value) {
  const int64_t upper = value > INT32_MAX ? INT32_MAX : value;
  return static_cast<int32_t>(upper < INT32_MIN ? INT32_MIN : upper);
}

inline uint32_t Low24(uint32_t x) { return x & 0xffffff; }
inline int32_t Signed24(uint32_t x) { return static_cast<int32_t>(x << 8) >> 8; }
inline uint64_t Product24(uint32_t x, uint32_t y) {
  return static_cast<uint64_t>(Low24(x)) * Low24(y);
}
inline int64_t SignedProduct24(uint32_t x, uint32_t y) {
  return static_cast<int64_t>(Signed24(x)) * Signed24(y);
}

// Four byte products: AType and BType are uint8_t or int8_t.
template <class AType, class BType>
uint32_t Dp4a(uint32_t a, uint32_t b, uint32_t c) {
  for (int k = 0; k < 4; ++k) {
    c += static_cast<uint32_t>(static_cast<int32_t>(static_cast<AType>(a >> (8 * k))) *
                               static_cast<int32_t>(static_cast<BType>(b >> (8 * k))));
  }
  return c;
}

// Two products of a 16-bit half of a and a byte of b; `high` picks bytes 2 and 3 of b.
template <class AHalf, class BByte, int Base>
uint32_t Dp2a(uint32_t a, uint32_t b, uint32_t c) {
  for (int k = 0; k < 2; ++k) {
    c += static_cast<uint32_t>(static_cast<int32_t>(static_cast<AHalf>(a >> (16 * k))) *
                               static_cast<int32_t>(static_cast<BByte>(b >> (8 * (k + Base)))));
  }
  return c;
}

void RegisterSpecial32(LaneRegistry& r) {
  r.Alu("add.sat", "s32", Binary<int32_t>([](int32_t x, int32_t y) {
          return SaturateToS32(static_cast<int64_t>(x) + y);
        }));
  r.Alu("sub.sat", "s32", Binary<int32_t>([](int32_t x, int32_t y) {
          return SaturateToS32(static_cast<int64_t>(x) - y);
        }));
  r.Alu("mad.hi.sat", "s32", Ternary<int32_t>([](int32_t x, int32_t y, int32_t z) {
          return SaturateToS32(((static_cast<int64_t>(x) * y) >> 32) + z);
        }));
  // Products of 24-bit factors: .lo is bits 0 to 31 of the 48, .hi bits 16 to 47.
  r.Alu("mul24.lo", "u32",
        Binary<uint32_t>([](uint32_t x, uint32_t y) { return Product24(x, y); }));
  r.Alu("mul24.lo", "s32",
        Binary<uint32_t>([](uint32_t x, uint32_t y) { return SignedProduct24(x, y); }));
  r.Alu("mul24.hi", "u32",
        Binary<uint32_t>([](uint32_t x, uint32_t y) { return Product24(x, y) >> 16; }));
  r.Alu("mul24.hi", "s32",
        Binary<uint32_t>([](uint32_t x, uint32_t y) { return SignedProduct24(x, y) >> 16; }));
  r.Alu("mad24.lo", "u32",
        Ternary<uint32_t>([](uint32_t x, uint32_t y, uint32_t z) { return Product24(x, y) + z; }));
  r.Alu("mad24.lo", "s32", Ternary<uint32_t>([](uint32_t x, uint32_t y, uint32_t z) {
          return static_cast<uint32_t>(SignedProduct24(x, y)) + z;
        }));
  r.Alu("mad24.hi", "u32", Ternary<uint32_t>([](uint32_t x, uint32_t y, uint32_t z) {
          return (Product24(x, y) >> 16) + z;
        }));
  r.Alu("mad24.hi", "s32", Ternary<uint32_t>([](uint32_t x, uint32_t y, uint32_t z) {
          return static_cast<uint32_t>(SignedProduct24(x, y) >> 16) + z;
        }));
  r.Alu("mad24.hi.sat", "s32", Ternary<uint32_t>([](uint32_t x, uint32_t y, uint32_t z) {
          return SaturateToS32((SignedProduct24(x, y) >> 16) + static_cast<int32_t>(z));
        }));
  r.Alu("dp4a", "u32.u32", Ternary<uint32_t>([](uint32_t a, uint32_t b, uint32_t c) {
          return Dp4a<uint8_t, uint8_t>(a, b, c);
        }));
  r.Alu("dp4a", "u32.s32", Ternary<uint32_t>([](uint32_t a, uint32_t b, uint32_t c) {
          return Dp4a<uint8_t, int8_t>(a, b, c);
        }));
  r.Alu("dp4a", "s32.u32", Ternary<uint32_t>([](uint32_t a, uint32_t b, uint32_t c) {
          return Dp4a<int8_t, uint8_t>(a, b, c);
        }));
  r.Alu("dp4a", "s32.s32", Ternary<uint32_t>([](uint32_t a, uint32_t b, uint32_t c) {
          return Dp4a<int8_t, int8_t>(a, b, c);
        }));
}

template <int Base>
void RegisterDp2a(LaneRegistry& r, const char* name) {
  r.Alu(name, "u32.u32", Ternary<uint32_t>([](uint32_t a, uint32_t b, uint32_t c) {
          return Dp2a<uint16_t, uint8_t, Base>(a, b, c);
        }));
  r.Alu(name, "u32.s32", Ternary<uint32_t>([](uint32_t a, uint32_t b, uint32_t c) {
          return Dp2a<uint16_t, int8_t, Base>(a, b, c);
        }));
  r.Alu(name, "s32.u32", Ternary<uint32_t>([](uint32_t a, uint32_t b, uint32_t c) {
          return Dp2a<int16_t, uint8_t, Base>(a, b, c);
        }));
  r.Alu(name, "s32.s32", Ternary<uint32_t>([](uint32_t a, uint32_t b, uint32_t c) {
          return Dp2a<int16_t, int8_t, Base>(a, b, c);
        }));
}

// Pairs of 16-bit integers in one 32-bit register.
void RegisterPairs(LaneRegistry& r) {
  using U = uint16_t;
  using S = int16_t;
  r.Alu("add", "b16x2", Binary<U, U, U, 64>([](U x, U y) { return x + y; }));
  r.Alu("sub", "b16x2", Binary<U, U, U, 64>([](U x, U y) { return x - y; }));
  r.Alu("relu", "s16x2", Unary<S, S, 64>([](S x) { return x < 0 ? S{0} : x; }));
  r.Alu("min", "u16x2", Binary<U, U, U, 64>([](U x, U y) { return x < y ? x : y; }));
  r.Alu("max", "u16x2", Binary<U, U, U, 64>([](U x, U y) { return x < y ? y : x; }));
  r.Alu("min", "s16x2", Binary<S, S, S, 64>([](S x, S y) { return x < y ? x : y; }));
  r.Alu("max", "s16x2", Binary<S, S, S, 64>([](S x, S y) { return x < y ? y : x; }));
}

template <class F, class T>
uint32_t CarryLoop(void* d, const void* a, const void* b, const void* c, uint32_t carry_in) {
  T* out = Lanes<T>(d);
  const T* x = Lanes<T>(a);
  const T* y = Lanes<T>(b);
  const T* z = Lanes<T>(c);
  uint32_t carry_out = 0;
  for (int i = 0; i < 32; ++i) {
    bool carry = (carry_in >> i) & 1;
    out[i] = F{}(x[i], y[i], z == nullptr ? T{0} : z[i], carry);
    carry_out |= static_cast<uint32_t>(carry) << i;
  }
  return carry_out;
}
template <class T, class F>
constexpr CarryFn WithCarry(F) {
  return &CarryLoop<F, T>;
}

template <class U, class S, class WideU, class WideS>
void RegisterCarry(LaneRegistry& r, const char* b, const char* u, const char* s) {
  r.Carry("addc", b, WithCarry<U>([](U x, U y, U, bool& carry) {
            const WideU sum = static_cast<WideU>(x) + y + carry;
            carry = (sum >> kBits<U>) != 0;
            return static_cast<U>(sum);
          }));
  // The carry flag of a subtraction is its borrow.
  r.Carry("subc", b, WithCarry<U>([](U x, U y, U, bool& borrow) {
            const WideU difference = static_cast<WideU>(x) - y - borrow;
            borrow = (difference >> kBits<U>) != 0;
            return static_cast<U>(difference);
          }));
  r.Carry("madc.lo", b, WithCarry<U>([](U x, U y, U z, bool& carry) {
            const U product = static_cast<U>(static_cast<WideU>(x) * y);
            const WideU sum = static_cast<WideU>(product) + z + carry;
            carry = (sum >> kBits<U>) != 0;
            return static_cast<U>(sum);
          }));
  r.Carry("madc.hi", u, WithCarry<U>([](U x, U y, U z, bool& carry) {
            const U product = static_cast<U>((static_cast<WideU>(x) * y) >> kBits<U>);
            const WideU sum = static_cast<WideU>(product) + z + carry;
            carry = (sum >> kBits<U>) != 0;
            return static_cast<U>(sum);
          }));
  r.Carry("madc.hi", s, WithCarry<U>([](U x, U y, U z, bool& carry) {
            const WideS wide = static_cast<WideS>(static_cast<S>(x)) * static_cast<S>(y);
            const WideU sum = static_cast<WideU>(static_cast<U>(wide >> kBits<U>)) + z + carry;
            carry = (sum >> kBits<U>) != 0;
            return static_cast<U>(sum);
          }));
}

}  // namespace

void RegisterIntegerLanes(LaneRegistry& r) {
  RegisterWidth<uint16_t, int16_t, uint32_t, int32_t>(r, "b16", "u16", "s16");
  RegisterWidth<uint32_t, int32_t, uint64_t, int64_t>(r, "b32", "u32", "s32");
  RegisterWidth<uint64_t, int64_t, unsigned __int128, __int128>(r, "b64", "u64", "s64");
  RegisterWide<uint16_t, int16_t, uint32_t, int32_t>(r, "u16", "s16");
  RegisterWide<uint32_t, int32_t, uint64_t, int64_t>(r, "u32", "s32");
  RegisterSpecial32(r);
  RegisterDp2a<0>(r, "dp2a.lo");
  RegisterDp2a<2>(r, "dp2a.hi");
  RegisterPairs(r);
  RegisterCarry<uint32_t, int32_t, uint64_t, int64_t>(r, "b32", "u32", "s32");
  RegisterCarry<uint64_t, int64_t, unsigned __int128, __int128>(r, "b64", "u64", "s64");
}

}  // namespace ops_debug::emulator::OPS_DEBUG_ISA
