// cvt between integer and floating-point formats. Names: "cvt[.rz|.rm|.rp].TO.FROM". The decoder
// composes: 8- and 16-bit integers are extended first, rounding to an integral value comes before
// the conversion to an integer, saturation to a narrower integer after it.
#include "emulator/isa/lane_entries.h"
#include "emulator/isa/lane_math.h"

namespace ops_debug::emulator::OPS_DEBUG_ISA {
namespace {

template <Rounding Mode, AluFn Loop>
void Directed(void* d, const void* a, const void* b, const void* c, uint64_t immediate) {
  const RoundingScope scope(Mode);
  Loop(d, a, b, c, immediate);
}

template <AluFn Loop>
void RegisterModes(LaneRegistry& r, const char* const names[4], const char* from) {
  r.Alu(names[0], from, Loop);
  r.Alu(names[1], from, &Directed<Rounding::kZero, Loop>);
  r.Alu(names[2], from, &Directed<Rounding::kDown, Loop>);
  r.Alu(names[3], from, &Directed<Rounding::kUp, Loop>);
}

template <class F, class I>
void RegisterFromInteger(LaneRegistry& r, const char* const names[4], const char* from) {
  using Cast = decltype([](I x) { return static_cast<F>(x); });
  RegisterModes<&UnaryLoop<Cast, F, I, 32>>(r, names, from);
}

// Truncates with saturation. NaN gives 0, but the sign bit alone when either side is 64 bits wide
// (PTX ISA, cvt).
template <class I, class F>
inline I ToInteger(F x) {
  constexpr bool kSigned = static_cast<I>(-1) < 0;
  constexpr int kBits = static_cast<int>(sizeof(I) * 8);
  constexpr F kAbove =
      static_cast<F>(1ull << (kBits - 1)) * (kSigned ? 1 : 2);  // first value too large
  constexpr I kMax = kSigned ? static_cast<I>((1ull << (kBits - 1)) - 1) : static_cast<I>(-1);
  constexpr I kMin = kSigned ? static_cast<I>(1ull << (kBits - 1)) : I{0};
  constexpr I kNan = sizeof(F) == 8 || sizeof(I) == 8 ? static_cast<I>(1ull << (kBits - 1)) : I{0};
  if (x != x) return kNan;
  if (x >= kAbove) return kMax;
  if (x <= static_cast<F>(kMin)) return kMin;
  return static_cast<I>(x);
}

template <class I>
void RegisterToInteger(LaneRegistry& r, const char* name) {
  r.Alu(name, "f32", Unary<I, float>([](float x) { return ToInteger<I>(x); }));
  r.Alu(name, "f64", Unary<I, double>([](double x) { return ToInteger<I>(x); }));
}

// "clamp.TO.s64|u64": the nearest value of a narrower integer type.
template <class I>
void RegisterClamp(LaneRegistry& r, const char* name) {
  constexpr bool kSigned = static_cast<I>(-1) < 0;
  constexpr int kBits = static_cast<int>(sizeof(I) * 8);
  r.Alu(name, "s64", Unary<I, int64_t>([](int64_t x) {
          constexpr int64_t kMax = kBits == 64 ? INT64_MAX
                                   : kSigned   ? (1ll << (kBits - 1)) - 1
                                               : static_cast<int64_t>(~0ull >> (64 - kBits));
          constexpr int64_t kMin = kSigned ? -kMax - 1 : 0;
          return static_cast<I>(x > kMax ? kMax : x < kMin ? kMin : x);
        }));
  r.Alu(name, "u64", Unary<I, uint64_t>([](uint64_t x) {
          constexpr uint64_t kMax = ~0ull >> (64 - kBits + (kSigned ? 1 : 0));
          return static_cast<I>(x > kMax ? kMax : x);
        }));
}

void RegisterFloatFormats(LaneRegistry& r) {
  r.Alu("cvt.f64", "f32", Unary<double, float>([](float x) { return static_cast<double>(x); }));
  static const char* const kToFloat[4] = {"cvt.f32", "cvt.rz.f32", "cvt.rm.f32", "cvt.rp.f32"};
  // A NaN keeps the upper bits of its payload.
  using Narrow = decltype([](double x) { return static_cast<float>(x); });
  RegisterModes<&UnaryLoop<Narrow, float, double, 32>>(r, kToFloat, "f64");
  r.Alu("cvt.f32", "f16", Unary<float, uint16_t>([](uint16_t x) { return HalfToFloat(x); }));
  r.Alu("cvt.canonical.f32", "f16",
        Unary<float, uint16_t>([](uint16_t x) { return Canonical(HalfToFloat(x)); }));
  r.Alu("cvt.f32", "bf16", Unary<float, uint16_t>([](uint16_t x) { return BfloatToFloat(x); }));
  r.Alu("cvt.f16", "f32", Unary<uint16_t, float>([](float x) { return FloatToHalf(x); }));
  r.Alu("cvt.bf16", "f32", Unary<uint16_t, float>([](float x) { return FloatToBfloat(x); }));
}

}  // namespace

void RegisterConvertLanes(LaneRegistry& r) {
  static const char* const kToFloat[4] = {"cvt.f32", "cvt.rz.f32", "cvt.rm.f32", "cvt.rp.f32"};
  static const char* const kToDouble[4] = {"cvt.f64", "cvt.rz.f64", "cvt.rm.f64", "cvt.rp.f64"};
  RegisterFromInteger<float, int32_t>(r, kToFloat, "s32");
  RegisterFromInteger<float, uint32_t>(r, kToFloat, "u32");
  RegisterFromInteger<float, int64_t>(r, kToFloat, "s64");
  RegisterFromInteger<float, uint64_t>(r, kToFloat, "u64");
  RegisterFromInteger<double, int32_t>(r, kToDouble, "s32");
  RegisterFromInteger<double, uint32_t>(r, kToDouble, "u32");
  RegisterFromInteger<double, int64_t>(r, kToDouble, "s64");
  RegisterFromInteger<double, uint64_t>(r, kToDouble, "u64");
  RegisterToInteger<int8_t>(r, "cvt.s8");
  RegisterToInteger<uint8_t>(r, "cvt.u8");
  RegisterToInteger<int16_t>(r, "cvt.s16");
  RegisterToInteger<uint16_t>(r, "cvt.u16");
  RegisterToInteger<int32_t>(r, "cvt.s32");
  RegisterToInteger<uint32_t>(r, "cvt.u32");
  RegisterToInteger<int64_t>(r, "cvt.s64");
  RegisterToInteger<uint64_t>(r, "cvt.u64");
  RegisterClamp<int8_t>(r, "clamp.s8");
  RegisterClamp<uint8_t>(r, "clamp.u8");
  RegisterClamp<int16_t>(r, "clamp.s16");
  RegisterClamp<uint16_t>(r, "clamp.u16");
  RegisterClamp<int32_t>(r, "clamp.s32");
  RegisterClamp<uint32_t>(r, "clamp.u32");
  RegisterClamp<int64_t>(r, "clamp.s64");
  RegisterClamp<uint64_t>(r, "clamp.u64");
  RegisterFloatFormats(r);
}

}  // namespace ops_debug::emulator::OPS_DEBUG_ISA
