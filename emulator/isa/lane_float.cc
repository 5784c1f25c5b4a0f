// f32 and f64 arithmetic. Names: operation [.rz|.rm|.rp] [.ftz]; no rounding suffix means nearest
// even. `.sat` is a separate operation that the decoder appends. The approximate functions of PTX
// are computed to full precision, which every bound of the manual allows.
#include <cmath>

#include "emulator/isa/lane_entries.h"
#include "emulator/isa/lane_math.h"

namespace ops_debug::emulator::OPS_DEBUG_ISA {
namespace {

inline float FusedMultiplyAdd(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
inline double FusedMultiplyAdd(double x, double y, double z) { return __builtin_fma(x, y, z); }
inline float SquareRoot(float x) { return __builtin_sqrtf(x); }
inline double SquareRoot(double x) { return __builtin_sqrt(x); }

struct Add {
  template <class F>
  F operator()(F x, F y) const {
    return x + y;
  }
};
struct Subtract {
  template <class F>
  F operator()(F x, F y) const {
    return x - y;
  }
};
struct Multiply {
  template <class F>
  F operator()(F x, F y) const {
    return x * y;
  }
};
struct Divide {
  template <class F>
  F operator()(F x, F y) const {
    return x / y;
  }
};
struct MultiplyAdd {
  template <class F>
  F operator()(F x, F y, F z) const {
    return FusedMultiplyAdd(x, y, z);
  }
};
struct Reciprocal {
  template <class F>
  F operator()(F x) const {
    return F{1} / x;
  }
};
struct Root {
  template <class F>
  F operator()(F x) const {
    return SquareRoot(x);
  }
};

inline double Finish(double x) { return x; }
inline float Finish(float x) { return Canonical(x); }

// Which NaN an f64 operation of several NaN operands returns: the second one; a fused
// multiply-add's third comes next.
template <class Op>
inline double Settle(Op, double result, double x, double y) {
  return x != x && y != y ? Quiet(y) : result;
}
inline double Settle(Divide, double result, double x, double y) {
  return x != x && y != y ? Quiet(x) : result;
}
template <class Op>
inline double Settle(Op, double result, double x, double y, double z) {
  result = x != x ? Quiet(x) : result;
  result = z != z ? Quiet(z) : result;
  return y != y ? Quiet(y) : result;
}
template <class Op>
inline double Settle(Op, double result, double) {
  return result;
}
template <class Op, class... F>
inline float Settle(Op, float result, F...) {
  return Canonical(result);
}

// Applies Op with operands and result flushed if Ftz.
template <class Op, bool Ftz>
struct Rounded {
  template <class... F>
  auto operator()(F... x) const {
    if constexpr (Ftz) {
      return Flush(Finish(Op{}(Flush(x)...)));
    } else {
      return Settle(Op{}, Op{}(x...), x...);
    }
  }
};

// N: 32 lanes, or 64 halves of pairs.
template <class F, class Op, int Sources, int N>
constexpr AluFn LoopOf() {
  if constexpr (Sources == 1) return &UnaryLoop<Op, F, F, N>;
  if constexpr (Sources == 2) return &BinaryLoop<Op, F, F, F, N>;
  if constexpr (Sources == 3) return &TernaryLoop<Op, F, F, F, F, N>;
}

template <Rounding Mode, class F, class Op, int Sources, int N>
void DirectedLoop(void* d, const void* a, const void* b, const void* c, uint64_t immediate) {
  const RoundingScope scope(Mode);
  constexpr AluFn kLoop = LoopOf<F, Op, Sources, N>();
  kLoop(d, a, b, c, immediate);
}

template <class F, class Op, int Sources, int N = 32>
void RegisterModes(LaneRegistry& r, const char* const names[4], const char* type) {
  r.Alu(names[0], type, LoopOf<F, Op, Sources, N>());
  r.Alu(names[1], type, &DirectedLoop<Rounding::kZero, F, Op, Sources, N>);
  r.Alu(names[2], type, &DirectedLoop<Rounding::kDown, F, Op, Sources, N>);
  r.Alu(names[3], type, &DirectedLoop<Rounding::kUp, F, Op, Sources, N>);
}

#define OPS_DEBUG_MODES(name) \
  { name, name ".rz", name ".rm", name ".rp" }
#define OPS_DEBUG_FTZ_MODES(name) \
  { name ".ftz", name ".rz.ftz", name ".rm.ftz", name ".rp.ftz" }

template <class Op, int Sources>
void RegisterRounded(LaneRegistry& r, const char* const names[4], const char* const ftz_names[4]) {
  RegisterModes<float, Rounded<Op, false>, Sources>(r, names, "f32");
  RegisterModes<float, Rounded<Op, true>, Sources>(r, ftz_names, "f32");
  RegisterModes<double, Rounded<Op, false>, Sources>(r, names, "f64");
}

template <class Op, int Sources>
void RegisterAll(LaneRegistry& r, const char* const (&names)[2][4]) {
  RegisterRounded<Op, Sources>(r, names[0], names[1]);
}

// add, sub, mul and fma of pairs of f32 in 64-bit registers (sm_100).
template <class Op, int Sources>
void RegisterPairs(LaneRegistry& r, const char* const (&names)[2][4]) {
  RegisterModes<float, Rounded<Op, false>, Sources, 64>(r, names[0], "f32x2");
  RegisterModes<float, Rounded<Op, true>, Sources, 64>(r, names[1], "f32x2");
}

#define OPS_DEBUG_REGISTER_PAIRS(op, sources, name)                                             \
  do {                                                                                          \
    static const char* const kNames[2][4] = {OPS_DEBUG_MODES(name), OPS_DEBUG_FTZ_MODES(name)}; \
    RegisterPairs<op, sources>(r, kNames);                                                      \
  } while (false)

#define OPS_DEBUG_REGISTER(op, sources, name)                                                   \
  do {                                                                                          \
    static const char* const kNames[2][4] = {OPS_DEBUG_MODES(name), OPS_DEBUG_FTZ_MODES(name)}; \
    RegisterAll<op, sources>(r, kNames);                                                        \
  } while (false)

// A function of one f32, plain and flushing.
template <class F>
void RegisterFunction(LaneRegistry& r, const char* name, const char* ftz_name, F) {
  r.Alu(name, "f32", Unary<float>([](float x) { return Canonical(F{}(x)); }));
  r.Alu(ftz_name, "f32", Unary<float>([](float x) { return Flush(Canonical(F{}(Flush(x)))); }));
}

inline float Magnitude(float x) { return __builtin_fabsf(x); }
inline double Magnitude(double x) { return __builtin_fabs(x); }

// The operand's lower word counts as 0, as does the result's; subnormal numbers become zeros, every
// NaN the same one.
template <class F>
inline uint64_t UpperWord(uint64_t x, F function) {
  constexpr uint64_t kUpper = 0xffffffff00000000ull;
  constexpr uint64_t kExponent = 0x7ff0000000000000ull;
  constexpr uint64_t kSign = 0x8000000000000000ull;
  const auto flush = [](uint64_t bits) { return (bits & kExponent) == 0 ? bits & kSign : bits; };
  const double exact = function(BitCast<double>(flush(x & kUpper)));
  if (exact != exact) return 0x7fffffff00000000ull;
  const uint64_t bits = flush(BitCast<uint64_t>(exact));
  // Nearest, by hand: infinities stay what they are.
  return (bits & kExponent) == kExponent ? bits : (bits + 0x80000000ull) & kUpper;
}

// div.approx multiplies by the reciprocal, which is flushed to 0 for divisors above 2^126.
inline float DivideApproximately(float x, float y) {
  const auto divisor = BitCast<uint32_t>(Magnitude(y));
  const bool flushed = divisor > 0x7e800000u && divisor <= 0x7f800000u;
  return Canonical(flushed ? x * __builtin_copysignf(0.0f, y) : x / y);
}

void RegisterFunctions(LaneRegistry& r) {
  r.Alu("div.approx", "f32",
        Binary<float>([](float x, float y) { return DivideApproximately(x, y); }));
  r.Alu("div.approx.ftz", "f32", Binary<float>([](float x, float y) {
          return Flush(DivideApproximately(Flush(x), Flush(y)));
        }));
  RegisterFunction(r, "rsqrt", "rsqrt.ftz", [](float x) {
    return static_cast<float>(1.0 / __builtin_sqrt(static_cast<double>(x)));
  });
  RegisterFunction(r, "ex2", "ex2.ftz", [](float x) { return __builtin_exp2f(x); });
  RegisterFunction(r, "lg2", "lg2.ftz", [](float x) { return __builtin_log2f(x); });
  RegisterFunction(r, "sin", "sin.ftz", [](float x) { return __builtin_sinf(x); });
  RegisterFunction(r, "cos", "cos.ftz", [](float x) { return __builtin_cosf(x); });
  RegisterFunction(r, "tanh", "tanh.ftz", [](float x) { return __builtin_tanhf(x); });
  r.Alu("rsqrt", "f64", Unary<double>([](double x) { return 1.0 / __builtin_sqrt(x); }));
  r.Alu("rcp.approx.ftz", "f64",
        Unary<uint64_t>([](uint64_t x) { return UpperWord(x, [](double v) { return 1.0 / v; }); }));
  r.Alu("rsqrt.approx.ftz", "f64", Unary<uint64_t>([](uint64_t x) {
          return UpperWord(x, [](double v) { return 1.0 / __builtin_sqrt(v); });
        }));
  // The round functions of cvt: to an integral value in the same format.
  RegisterFunction(r, "round.rni", "round.rni.ftz",
                   [](float x) { return __builtin_nearbyintf(x); });
  RegisterFunction(r, "round.rzi", "round.rzi.ftz", [](float x) { return __builtin_truncf(x); });
  RegisterFunction(r, "round.rmi", "round.rmi.ftz", [](float x) { return __builtin_floorf(x); });
  RegisterFunction(r, "round.rpi", "round.rpi.ftz", [](float x) { return __builtin_ceilf(x); });
  r.Alu("round.rni", "f64",
        Unary<double>([](double x) { return x != x ? Quiet(x) : __builtin_nearbyint(x); }));
  r.Alu("round.rzi", "f64",
        Unary<double>([](double x) { return x != x ? Quiet(x) : __builtin_trunc(x); }));
  r.Alu("round.rmi", "f64",
        Unary<double>([](double x) { return x != x ? Quiet(x) : __builtin_floor(x); }));
  r.Alu("round.rpi", "f64",
        Unary<double>([](double x) { return x != x ? Quiet(x) : __builtin_ceil(x); }));
  RegisterFunction(r, "identity", "identity.ftz", [](float x) { return x; });
}

inline float NanOf(float) { return BitCast<float>(0x7fffffffu); }
inline double NanOf(double x) { return Quiet(x); }
inline float LesserOf(float x, float y) { return Canonical(Minimum(x, y)); }
inline float GreaterOf(float x, float y) { return Canonical(Maximum(x, y)); }
inline double LesserOf(double x, double y) { return x != x && y != y ? Quiet(y) : Minimum(x, y); }
inline double GreaterOf(double x, double y) { return x != x && y != y ? Quiet(y) : Maximum(x, y); }

// min.xorsign.abs: of the magnitudes; the sign is the product's.
inline float WithProductSign(float magnitude, float x, float y) {
  if (magnitude != magnitude) return NanOf(magnitude);
  const uint32_t sign = (BitCast<uint32_t>(x) ^ BitCast<uint32_t>(y)) & 0x80000000u;
  return BitCast<float>(BitCast<uint32_t>(magnitude) | sign);
}

template <class F>
void RegisterSigns(LaneRegistry& r, const char* type) {
  using U = typename FloatBits<F>::U;
  constexpr U kSign = FloatBits<F>::kSign;
  // Both are additions on a GPU: a NaN does not change its sign.
  r.Alu("neg", type, Unary<F>([](F x) { return x != x ? NanOf(x) : -x; }));
  r.Alu("abs", type, Unary<F>([](F x) { return x != x ? NanOf(x) : Magnitude(x); }));
  r.Alu("copysign", type,
        Binary<U>([](U sign, U value) { return (value & ~kSign) | (sign & kSign); }));
  r.Alu("sat", type, Unary<F>([](F x) { return Saturate(x); }));
  r.Alu("min", type, Binary<F>([](F x, F y) { return LesserOf(x, y); }));
  r.Alu("max", type, Binary<F>([](F x, F y) { return GreaterOf(x, y); }));
}

void RegisterMinMax32(LaneRegistry& r) {
  r.Alu("min.NaN", "f32", Binary<float>([](float x, float y) {
          return x != x || y != y ? BitCast<float>(0x7fffffffu) : Minimum(x, y);
        }));
  r.Alu("max.NaN", "f32", Binary<float>([](float x, float y) {
          return x != x || y != y ? BitCast<float>(0x7fffffffu) : Maximum(x, y);
        }));
  r.Alu("min.xorsign", "f32", Binary<float>([](float x, float y) {
          return WithProductSign(Minimum(Magnitude(x), Magnitude(y)), x, y);
        }));
  r.Alu("max.xorsign", "f32", Binary<float>([](float x, float y) {
          return WithProductSign(Maximum(Magnitude(x), Magnitude(y)), x, y);
        }));
  r.Alu("min.NaN.xorsign", "f32", Binary<float>([](float x, float y) {
          return x != x || y != y ? NanOf(x)
                                  : WithProductSign(Minimum(Magnitude(x), Magnitude(y)), x, y);
        }));
  r.Alu("max.NaN.xorsign", "f32", Binary<float>([](float x, float y) {
          return x != x || y != y ? NanOf(x)
                                  : WithProductSign(Maximum(Magnitude(x), Magnitude(y)), x, y);
        }));
  r.Alu("neg.ftz", "f32", Unary<float>([](float x) { return x != x ? NanOf(x) : -Flush(x); }));
  r.Alu("abs.ftz", "f32",
        Unary<float>([](float x) { return x != x ? NanOf(x) : Magnitude(Flush(x)); }));
  // The operand flush of comparisons and conversions with .ftz.
  r.Alu("flush", "f32", Unary<float>([](float x) { return Flush(x); }));
}

}  // namespace

void RegisterFloatLanes(LaneRegistry& r) {
  OPS_DEBUG_REGISTER(Add, 2, "add");
  OPS_DEBUG_REGISTER(Subtract, 2, "sub");
  OPS_DEBUG_REGISTER(Multiply, 2, "mul");
  OPS_DEBUG_REGISTER(Divide, 2, "div");
  OPS_DEBUG_REGISTER(MultiplyAdd, 3, "fma");
  OPS_DEBUG_REGISTER_PAIRS(Add, 2, "add");
  OPS_DEBUG_REGISTER_PAIRS(Subtract, 2, "sub");
  OPS_DEBUG_REGISTER_PAIRS(Multiply, 2, "mul");
  OPS_DEBUG_REGISTER_PAIRS(MultiplyAdd, 3, "fma");
  OPS_DEBUG_REGISTER(Reciprocal, 1, "rcp");
  OPS_DEBUG_REGISTER(Root, 1, "sqrt");
  RegisterFunctions(r);
  RegisterSigns<float>(r, "f32");
  RegisterSigns<double>(r, "f64");
  RegisterMinMax32(r);
}

}  // namespace ops_debug::emulator::OPS_DEBUG_ISA
