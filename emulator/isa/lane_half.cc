// f16 and bf16, alone and in pairs. Each operation is computed in f32 and rounded once more: for
// add, sub, mul, div and sqrt that equals a single rounding, because 24 >= 2 * 11 + 2 (Figueroa,
// "When is double rounding innocuous?", 1995). A fused multiply-add needs the sum rounded to odd
// first.
#include "emulator/isa/lane_entries.h"
#include "emulator/isa/lane_math.h"

namespace ops_debug::emulator::OPS_DEBUG_ISA {
namespace {

struct Half {
  static float Load(uint16_t h) { return HalfToFloat(h); }
  static uint16_t Store(float f) { return FloatToHalf(f); }
  static constexpr uint16_t kNan = 0x7fff;
  static constexpr uint16_t kInfinity = 0x7c00;
};
struct Bfloat {
  static float Load(uint16_t h) { return BfloatToFloat(h); }
  static uint16_t Store(float f) { return FloatToBfloat(f); }
  static constexpr uint16_t kNan = 0x7fff;
  static constexpr uint16_t kInfinity = 0x7f80;
};

// The NaN that a tensor copy fills in for elements outside the tensor, for fma.oob; the sign does
// not matter. All 65,536 patterns were tried (test/golden, "every").
inline bool IsOutOfBounds(uint16_t x) { return (x & 0x7fff) == 0x7ff7; }

inline bool IsNan(float x) { return x != x; }

// min.xorsign.abs: of the magnitudes; the sign is the product's.
template <class H, class F>
uint16_t ByMagnitude(uint16_t x, uint16_t y, F choose) {
  const float chosen = choose(H::Load(x & 0x7fff), H::Load(y & 0x7fff));
  return IsNan(chosen) ? H::kNan : H::Store(chosen) | ((x ^ y) & 0x8000);
}

template <class H>
uint16_t FusedMultiplyAdd(uint16_t x, uint16_t y, uint16_t z) {
  const double sum = MultiplyAddOdd(H::Load(x), H::Load(y), H::Load(z));
  return H::Store(DoubleToFloatOdd(sum));
}

// H: format, N: 32 lanes or 64 halves.
template <class H, int N>
void RegisterFormat(LaneRegistry& r, const char* type) {
  using U = uint16_t;
  r.Alu("add", type,
        Binary<U, U, U, N>([](U x, U y) { return H::Store(H::Load(x) + H::Load(y)); }));
  r.Alu("sub", type,
        Binary<U, U, U, N>([](U x, U y) { return H::Store(H::Load(x) - H::Load(y)); }));
  r.Alu("mul", type,
        Binary<U, U, U, N>([](U x, U y) { return H::Store(H::Load(x) * H::Load(y)); }));
  r.Alu("fma", type,
        Ternary<U, U, U, U, N>([](U x, U y, U z) { return FusedMultiplyAdd<H>(x, y, z); }));
  r.Alu("fma.oob", type, Ternary<U, U, U, U, N>([](U x, U y, U z) {
          return IsOutOfBounds(x) || IsOutOfBounds(y) ? U{0} : FusedMultiplyAdd<H>(x, y, z);
        }));
  // A NaN is replaced, as in any operation.
  r.Alu("neg", type, Unary<U, U, N>([](U x) {
          return (x & 0x7fff) > H::kInfinity ? H::kNan : static_cast<U>(x ^ 0x8000);
        }));
  r.Alu("abs", type, Unary<U, U, N>([](U x) {
          return (x & 0x7fff) > H::kInfinity ? H::kNan : static_cast<U>(x & 0x7fff);
        }));
  r.Alu("min.xorsign", type, Binary<U, U, U, N>([](U x, U y) {
          return ByMagnitude<H>(x, y, [](float a, float b) { return Minimum(a, b); });
        }));
  r.Alu("max.xorsign", type, Binary<U, U, U, N>([](U x, U y) {
          return ByMagnitude<H>(x, y, [](float a, float b) { return Maximum(a, b); });
        }));
  r.Alu("min.NaN.xorsign", type, Binary<U, U, U, N>([](U x, U y) {
          return ByMagnitude<H>(x, y, [](float a, float b) {
            return IsNan(a) ? a : IsNan(b) ? b : Minimum(a, b);
          });
        }));
  r.Alu("max.NaN.xorsign", type, Binary<U, U, U, N>([](U x, U y) {
          return ByMagnitude<H>(x, y, [](float a, float b) {
            return IsNan(a) ? a : IsNan(b) ? b : Maximum(a, b);
          });
        }));
  r.Alu("min", type,
        Binary<U, U, U, N>([](U x, U y) { return H::Store(Minimum(H::Load(x), H::Load(y))); }));
  r.Alu("max", type,
        Binary<U, U, U, N>([](U x, U y) { return H::Store(Maximum(H::Load(x), H::Load(y))); }));
  r.Alu("min.NaN", type, Binary<U, U, U, N>([](U x, U y) {
          const float a = H::Load(x);
          const float b = H::Load(y);
          return IsNan(a) || IsNan(b) ? H::kNan : H::Store(Minimum(a, b));
        }));
  r.Alu("max.NaN", type, Binary<U, U, U, N>([](U x, U y) {
          const float a = H::Load(x);
          const float b = H::Load(y);
          return IsNan(a) || IsNan(b) ? H::kNan : H::Store(Maximum(a, b));
        }));
  r.Alu("ex2", type, Unary<U, U, N>([](U x) { return H::Store(__builtin_exp2f(H::Load(x))); }));
  r.Alu("ex2.ftz", type, Unary<U, U, N>([](U x) {
          const U y = H::Store(__builtin_exp2f(H::Load(x)));
          return (y & H::kInfinity) == 0 ? U{0} : y;
        }));
  r.Alu("tanh", type, Unary<U, U, N>([](U x) { return H::Store(__builtin_tanhf(H::Load(x))); }));
  r.Alu("sat", type, Unary<U, U, N>([](U x) { return H::Store(Saturate(H::Load(x))); }));
  // max(x, 0), NaN becomes the canonical NaN.
  r.Alu("relu", type, Unary<U, U, N>([](U x) {
          const float a = H::Load(x);
          return IsNan(a) ? H::kNan : a > 0 ? x : U{0};
        }));
}

}  // namespace

void RegisterHalfLanes(LaneRegistry& r) {
  RegisterFormat<Half, 32>(r, "f16");
  RegisterFormat<Half, 64>(r, "f16x2");
  RegisterFormat<Bfloat, 32>(r, "bf16");
  RegisterFormat<Bfloat, 64>(r, "bf16x2");
  r.Alu("flush", "f16", Unary<uint16_t>([](uint16_t x) { return FlushHalf(x); }));
  r.Alu("flush", "f16x2", Unary<uint16_t, uint16_t, 64>([](uint16_t x) { return FlushHalf(x); }));
}

}  // namespace ops_debug::emulator::OPS_DEBUG_ISA
