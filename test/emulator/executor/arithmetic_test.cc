// One instruction at a time: operands beside the result that the PTX manual asks for.
#include <catch2/catch.hpp>

#include "test/emulator/executor/kernel_run.h"

namespace ops_debug::emulator {
namespace {

constexpr uint64_t kNan32 = 0x7fffffff;
constexpr uint64_t kInfinity32 = 0x7f800000;

TEST_CASE("integer add, subtract and multiply wrap around") {
  const InstructionCase cases[] = {
      {"add.s32 %r10, %r11, %r12;", 0x7fffffff, 1, 0, 0x80000000},
      {"add.u64 %rd10, %rd11, %rd12;", ~0ull, 2, 0, 1},
      {"add.s16 %h10, %h11, %h12;", 0xffff, 2, 0, 1},
      {"add.sat.s32 %r10, %r11, %r12;", 0x7fffffff, 1, 0, 0x7fffffff},
      {"sub.sat.s32 %r10, %r11, %r12;", 0x80000000, 1, 0, 0x80000000},
      {"sub.s32 %r10, %r11, %r12;", 3, 5, 0, 0xfffffffe},
      {"mul.lo.s32 %r10, %r11, %r12;", 0x10001, 0x10001, 0, 0x20001},
      {"mul.hi.u32 %r10, %r11, %r12;", 0xffffffff, 0xffffffff, 0, 0xfffffffe},
      {"mul.hi.s32 %r10, %r11, %r12;", 0xffffffff, 7, 0, 0xffffffff},
      {"mul.hi.u64 %rd10, %rd11, %rd12;", ~0ull, ~0ull, 0, ~0ull - 1},
      {"mul.hi.s64 %rd10, %rd11, %rd12;", ~0ull, 2, 0, ~0ull},
      {"mul.lo.s64 %rd10, %rd11, %rd12;", 1ull << 33, 3, 0, 3ull << 33},
      {"mul.wide.s32 %rd10, %r11, %r12;", 0xffffffff, 2, 0, ~1ull},
      {"mul.wide.u32 %rd10, %r11, %r12;", 0xffffffff, 2, 0, 0x1fffffffe},
      {"mul.wide.s16 %r10, %h11, %h12;", 0xffff, 2, 0, 0xfffffffe},
      {"mad.lo.s32 %r10, %r11, %r12, %r13;", 3, 4, 5, 17},
      {"mad.hi.u32 %r10, %r11, %r12, %r13;", 0x80000000, 4, 5, 7},
      {"mad.wide.s32 %rd10, %r11, %r12, %rd13;", 0xffffffff, 3, 10, 7},
      {"mad.wide.u16 %r10, %h11, %h12, %r13;", 0xffff, 2, 1, 0x1ffff},
      {"mul24.lo.u32 %r10, %r11, %r12;", 0xff000002, 3, 0, 6},
      {"neg.s32 %r10, %r11;", 0x80000000, 0, 0, 0x80000000},
      {"abs.s64 %rd10, %rd11;", ~4ull, 0, 0, 5},
      {"sad.u32 %r10, %r11, %r12, %r13;", 3, 10, 1, 8},
      {"sad.s32 %r10, %r11, %r12, %r13;", 0xffffffff, 1, 1, 3},
      {"min.s32 %r10, %r11, %r12;", 0xffffffff, 1, 0, 0xffffffff},
      {"min.u32 %r10, %r11, %r12;", 0xffffffff, 1, 0, 1},
      {"max.u64 %rd10, %rd11, %rd12;", ~0ull, 1, 0, ~0ull},
      {"max.s64 %rd10, %rd11, %rd12;", ~0ull, 1, 0, 1},
      {"add.u16x2 %r10, %r11, %r12;", 0xffff0001, 0x00010002, 0, 0x00000003},
      {"max.s16x2 %r10, %r11, %r12;", 0xffff0001, 0x00010000, 0, 0x00010001},
      {"dp4a.u32.u32 %r10, %r11, %r12, %r13;", 0x01020304, 0x01010101, 5, 15},
      {"dp4a.s32.s32 %r10, %r11, %r12, %r13;", 0xff000000, 0x02000000, 0, 0xfffffffe},
      {"dp2a.lo.u32.u32 %r10, %r11, %r12, %r13;", 0x00020003, 0x0405, 1, 24},
  };
  CheckInstructions(cases);
}

TEST_CASE("integer division follows the GPU at its edges") {
  const InstructionCase cases[] = {
      {"div.s32 %r10, %r11, %r12;", 0xfffffff9, 2, 0, 0xfffffffd},
      {"rem.s32 %r10, %r11, %r12;", 0xfffffff9, 2, 0, 0xffffffff},
      {"div.u32 %r10, %r11, %r12;", 7, 0, 0, 0xffffffff},
      {"rem.u32 %r10, %r11, %r12;", 7, 0, 0, 0xffffffff},
      {"div.s32 %r10, %r11, %r12;", 0x80000000, 0xffffffff, 0, 0x80000000},
      {"rem.s32 %r10, %r11, %r12;", 0x80000000, 0xffffffff, 0, 0},
      {"div.s64 %rd10, %rd11, %rd12;", 1ull << 63, ~0ull, 0, 1ull << 63},
      {"div.u64 %rd10, %rd11, %rd12;", 1000000000000ull, 7, 0, 142857142857ull},
      {"div.u16 %h10, %h11, %h12;", 100, 7, 0, 14},
  };
  CheckInstructions(cases);
}

TEST_CASE("carries pass from instruction to instruction") {
  const InstructionCase cases[] = {
      {"add.cc.u32 %r10, %r11, %r12; addc.u32 %r10, %r13, 0;", 0xffffffff, 1, 7, 8},
      {"sub.cc.u32 %r10, %r11, %r12; subc.u32 %r10, %r13, 0;", 0, 1, 7, 6},
      {"mad.lo.cc.u32 %r10, %r11, %r12, %r13; addc.u32 %r10, 0, 0;", 0xffffffff, 1, 1, 1},
      {"mad.lo.cc.u32 %r10, %r11, %r12, %r13; madc.hi.u32 %r10, %r11, %r12, 5;", 0xffffffff, 2, 2,
       7},
      {"add.cc.u64 %rd10, %rd11, %rd12; addc.u64 %rd10, %rd13, 0;", ~0ull, 1, 7, 8},
  };
  CheckInstructions(cases);
}

TEST_CASE("bit operations") {
  const InstructionCase cases[] = {
      {"and.b32 %r10, %r11, %r12;", 0xff00ff00, 0x0ff00ff0, 0, 0x0f000f00},
      {"or.b64 %rd10, %rd11, %rd12;", 1, 1ull << 40, 0, (1ull << 40) | 1},
      {"xor.b16 %h10, %h11, %h12;", 0xffff, 0x00ff, 0, 0xff00},
      {"not.b32 %r10, %r11;", 0x0000ffff, 0, 0, 0xffff0000},
      {"cnot.b32 %r10, %r11;", 0, 0, 0, 1},
      {"shl.b32 %r10, %r11, %r12;", 1, 31, 0, 0x80000000},
      {"shl.b32 %r10, %r11, %r12;", 1, 32, 0, 0},
      {"shl.b64 %rd10, %rd11, %r12;", 3, 62, 0, 3ull << 62},
      {"shr.u32 %r10, %r11, %r12;", 0x80000000, 40, 0, 0},
      {"shr.s32 %r10, %r11, %r12;", 0x80000000, 40, 0, 0xffffffff},
      {"shr.s64 %rd10, %rd11, %r12;", 1ull << 63, 63, 0, ~0ull},
      {"shr.u16 %h10, %h11, %r12;", 0x8000, 15, 0, 1},
      {"shf.l.wrap.b32 %r10, %r11, %r12, %r13;", 0x80000000, 1, 33, 3},
      {"shf.l.clamp.b32 %r10, %r11, %r12, %r13;", 5, 1, 40, 5},
      {"shf.r.wrap.b32 %r10, %r11, %r12, %r13;", 2, 1, 1, 0x80000001},
      {"bfe.u32 %r10, %r11, %r12, %r13;", 0x00abc000, 14, 12, 0x2af},
      {"bfe.s32 %r10, %r11, %r12, %r13;", 0x80, 4, 4, 0xfffffff8},
      {"bfe.s32 %r10, %r11, %r12, %r13;", 0x80000000, 30, 10, 0xfffffffe},
      {"bfe.u64 %rd10, %rd11, %r12, %r13;", 1ull << 40, 40, 64, 1},
      {"bfi.b32 %r10, %r11, %r12, 8, 4;", 0xf, 0, 0, 0xf00},
      {"bfi.b64 %rd10, %rd11, %rd12, 60, 8;", 0xff, 1, 0, (0xfull << 60) | 1},
      {"bfind.u32 %r10, %r11;", 0x00010000, 0, 0, 16},
      {"bfind.s32 %r10, %r11;", 0xfffffffe, 0, 0, 0},
      {"bfind.u32 %r10, %r11;", 0, 0, 0, 0xffffffff},
      {"bfind.shiftamt.u32 %r10, %r11;", 0x00010000, 0, 0, 15},
      {"clz.b32 %r10, %r11;", 0, 0, 0, 32},
      {"clz.b64 %r10, %rd11;", 1, 0, 0, 63},
      {"popc.b64 %r10, %rd11;", 0xff00000000000001ull, 0, 0, 9},
      {"brev.b32 %r10, %r11;", 0x00000001, 0, 0, 0x80000000},
      {"brev.b64 %rd10, %rd11;", 2, 0, 0, 1ull << 62},
      {"prmt.b32 %r10, %r11, %r12, %r13;", 0x33221100, 0x77665544, 0x7531, 0x77553311},
      {"prmt.b32 %r10, %r11, %r12, %r13;", 0x00008000, 0, 0x9999, 0xffffffff},
      {"prmt.b32.b4e %r10, %r11, %r12, %r13;", 0x33221100, 0x77665544, 0, 0x55667700},
      {"lop3.b32 %r10, %r11, %r12, %r13, 0x96;", 0xf0f0f0f0, 0xcccccccc, 0xaaaaaaaa, 0x96969696},
      {"lop3.b32 %r10, %r11, %r12, %r13, 0xe8;", 0xf0f0f0f0, 0xcccccccc, 0xaaaaaaaa, 0xe8e8e8e8},
      {"bmsk.clamp.b32 %r10, %r11, %r12;", 4, 8, 0, 0xff0},
      {"szext.wrap.s32 %r10, %r11, %r12;", 0x80, 8, 0, 0xffffff80},
      {"fns.b32 %r10, %r11, %r12, %r13;", 0b101100, 0, 2, 3},
  };
  CheckInstructions(cases);
}

TEST_CASE("f32 arithmetic rounds once and knows infinities, NaN and denormals") {
  const uint64_t tiny = 1;  // smallest denormal
  const InstructionCase cases[] = {
      {"add.f32 %f10, %f11, %f12;", F32(1.f), F32(0x1p-24f), 0, F32(1.f)},
      {"add.rp.f32 %f10, %f11, %f12;", F32(1.f), F32(0x1p-30f), 0, F32(1.f) + 1},
      {"add.rm.f32 %f10, %f11, %f12;", F32(-1.f), F32(-0x1p-30f), 0, F32(-1.f) + 1},
      {"add.rz.f32 %f10, %f11, %f12;", F32(-1.f), F32(-0x1p-30f), 0, F32(-1.f)},
      {"sub.f32 %f10, %f11, %f12;", kInfinity32, kInfinity32, 0, kNan32},
      {"mul.f32 %f10, %f11, %f12;", tiny, F32(2.f), 0, 2},
      {"mul.ftz.f32 %f10, %f11, %f12;", tiny, F32(2.f), 0, 0},
      {"mul.ftz.f32 %f10, %f11, %f12;", F32(-0x1p-126f), F32(0.5f), 0, 0x80000000},
      {"add.sat.f32 %f10, %f11, %f12;", F32(0.75f), F32(0.75f), 0, F32(1.f)},
      {"add.sat.f32 %f10, %f11, %f12;", kNan32, F32(0.75f), 0, 0},
      {"fma.rn.f32 %f10, %f11, %f12, %f13;", F32(1.f + 0x1p-23f), F32(1.f - 0x1p-23f), F32(-1.f),
       F32(-0x1p-46f)},
      {"fma.rm.f32 %f10, %f11, %f12, %f13;", F32(1.f), F32(1.f), F32(0x1p-40f), F32(1.f)},
      {"mad.rn.f32 %f10, %f11, %f12, %f13;", F32(3.f), F32(4.f), F32(5.f), F32(17.f)},
      {"div.rn.f32 %f10, %f11, %f12;", F32(1.f), F32(3.f), 0, F32(1.f / 3.f)},
      {"div.full.f32 %f10, %f11, %f12;", F32(1.f), F32(0.f), 0, kInfinity32},
      {"rcp.rn.f32 %f10, %f11;", F32(-0.f), 0, 0, F32(-__builtin_inff())},
      {"sqrt.rn.f32 %f10, %f11;", F32(2.f), 0, 0, 0x3fb504f3},
      {"sqrt.rn.f32 %f10, %f11;", F32(-1.f), 0, 0, kNan32},
      {"rsqrt.approx.f32 %f10, %f11;", F32(16.f), 0, 0, F32(0.25f)},
      {"ex2.approx.f32 %f10, %f11;", F32(-3.f), 0, 0, F32(0.125f)},
      {"lg2.approx.f32 %f10, %f11;", F32(32.f), 0, 0, F32(5.f)},
      {"sin.approx.f32 %f10, %f11;", F32(0.f), 0, 0, F32(0.f)},
      {"cos.approx.f32 %f10, %f11;", F32(0.f), 0, 0, F32(1.f)},
      {"tanh.approx.f32 %f10, %f11;", F32(100.f), 0, 0, F32(1.f)},
      {"min.f32 %f10, %f11, %f12;", kNan32, F32(3.f), 0, F32(3.f)},
      {"max.NaN.f32 %f10, %f11, %f12;", kNan32, F32(3.f), 0, kNan32},
      {"min.f32 %f10, %f11, %f12;", F32(0.f), F32(-0.f), 0, F32(-0.f)},
      {"max.f32 %f10, %f11, %f12;", F32(-0.f), F32(0.f), 0, F32(0.f)},
      {"abs.f32 %f10, %f11;", F32(-2.f), 0, 0, F32(2.f)},
      {"neg.f32 %f10, %f11;", F32(0.f), 0, 0, F32(-0.f)},
      {"copysign.f32 %f10, %f11, %f12;", F32(-1.f), F32(5.f), 0, F32(-5.f)},
      {"add.f32 %f10, %f11, 0f3F800000;", F32(2.f), 0, 0, F32(3.f)},
      {"add.f32 %f10, %f11, 1.5;", F32(2.f), 0, 0, F32(3.5f)},
  };
  CheckInstructions(cases);
}

TEST_CASE("f64 arithmetic") {
  const InstructionCase cases[] = {
      {"add.f64 %fd10, %fd11, %fd12;", F64(1), F64(2), 0, F64(3)},
      {"mul.rz.f64 %fd10, %fd11, %fd12;", F64(1 + 0x1p-52), F64(1 + 0x1p-52), 0, F64(1 + 0x1p-51)},
      {"fma.rn.f64 %fd10, %fd11, %fd12, %fd13;", F64(1 + 0x1p-52), F64(1 - 0x1p-52), F64(-1),
       F64(-0x1p-104)},
      {"div.rn.f64 %fd10, %fd11, %fd12;", F64(1), F64(10), 0, F64(0.1)},
      {"sqrt.rn.f64 %fd10, %fd11;", F64(2), 0, 0, F64(1.4142135623730951)},
      {"rcp.rn.f64 %fd10, %fd11;", F64(4), 0, 0, F64(0.25)},
      {"max.f64 %fd10, %fd11, %fd12;", F64(-1), F64(2), 0, F64(2)},
      {"neg.f64 %fd10, %fd11;", F64(2), 0, 0, F64(-2)},
  };
  CheckInstructions(cases);
}

TEST_CASE("half and bfloat arithmetic round to their own precision") {
  const InstructionCase cases[] = {
      {"add.f16 %h10, %h11, %h12;", 0x3c00, 0x3c00, 0, 0x4000},  // 1 + 1
      {"mul.f16 %h10, %h11, %h12;", 0x7bff, 0x4000, 0, 0x7c00},  // overflow to infinity
      {"fma.rn.f16 %h10, %h11, %h12, %h13;", 0x3c01, 0x3c01, 0x0001, 0x3c02},
      {"sub.f16 %h10, %h11, %h12;", 0x7c00, 0x7c00, 0, 0x7fff},  // NaN
      {"add.f16x2 %r10, %r11, %r12;", 0x3c004000, 0x3c003c00, 0, 0x40004200},
      {"mul.bf16 %h10, %h11, %h12;", 0x3f80, 0x4049, 0, 0x4049},
      {"fma.rn.bf16x2 %r10, %r11, %r12, %r13;", 0x3f803f80, 0x40004000, 0x3f803f80, 0x40404040},
      {"max.f16 %h10, %h11, %h12;", 0x7fff, 0x3c00, 0, 0x3c00},
      {"neg.f16x2 %r10, %r11;", 0x3c00bc00, 0, 0, 0xbc003c00},
      {"fma.rn.relu.f16 %h10, %h11, %h12, %h13;", 0x3c00, 0xbc00, 0x0000, 0x0000},
  };
  CheckInstructions(cases);
}

TEST_CASE("comparisons and selections") {
  const InstructionCase cases[] = {
      {"setp.lt.s32 %p10, %r11, %r12;", 0xffffffff, 0, 0, 1},
      {"setp.lt.u32 %p10, %r11, %r12;", 0xffffffff, 0, 0, 0},
      {"setp.hi.u64 %p10, %rd11, %rd12;", ~0ull, 1, 0, 1},
      {"setp.ge.s64 %p10, %rd11, %rd12;", ~0ull, 1, 0, 0},
      {"setp.eq.s16 %p10, %h11, %h12;", 0x1ffff, 0xffff, 0, 1},
      {"setp.gt.f32 %p10, %f11, %f12;", kNan32, F32(1.f), 0, 0},
      {"setp.gtu.f32 %p10, %f11, %f12;", kNan32, F32(1.f), 0, 1},
      {"setp.ne.f32 %p10, %f11, %f12;", kNan32, F32(1.f), 0, 0},
      {"setp.neu.f32 %p10, %f11, %f12;", kNan32, F32(1.f), 0, 1},
      {"setp.num.f32 %p10, %f11, %f12;", F32(2.f), F32(1.f), 0, 1},
      {"setp.nan.f32 %p10, %f11, %f12;", F32(2.f), kNan32, 0, 1},
      {"setp.eq.ftz.f32 %p10, %f11, %f12;", 1, 0, 0, 1},
      {"setp.eq.f32 %p10, %f11, %f12;", 1, 0, 0, 0},
      {"setp.lt.f16 %p10, %h11, %h12;", 0x3c00, 0x4000, 0, 1},
      {"setp.lt.f64 %p10, %fd11, %fd12;", F64(1), F64(2), 0, 1},
      {"setp.eq.s32 %p11, %r11, %r12; setp.lt.and.s32 %p10, %r11, %r13, !%p11;", 1, 2, 3, 1},
      {"setp.lt.s32 %p11|%p10, %r11, %r12;", 1, 2, 0, 0},
      {"set.lt.u32.s32 %r10, %r11, %r12;", 1, 2, 0, 0xffffffff},
      {"set.gt.f32.s32 %f10, %r11, %r12;", 3, 2, 0, F32(1.f)},
      {"set.eq.f16x2.f16x2 %r10, %r11, %r12;", 0x3c004000, 0x3c003c00, 0, 0x3c000000},
      {"setp.ne.s32 %p11, %r13, 0; selp.b32 %r10, %r11, %r12, %p11;", 5, 6, 1, 5},
      {"setp.ne.s32 %p11, %r13, 0; selp.f64 %fd10, %fd11, %fd12, %p11;", F64(5), F64(6), 0, F64(6)},
      {"slct.s32.s32 %r10, %r11, %r12, %r13;", 5, 6, 0xffffffff, 6},
      {"slct.b64.f32 %rd10, %rd11, %rd12, %f13;", 5, 6, F32(1.f), 5},
      {"testp.subnormal.f32 %p10, %f11;", 1, 0, 0, 1},
      {"testp.infinite.f64 %p10, %fd11;", F64(__builtin_inf()), 0, 0, 1},
  };
  CheckInstructions(cases);
}

TEST_CASE("conversions") {
  const InstructionCase cases[] = {
      {"cvt.s64.s32 %rd10, %r11;", 0xffffffff, 0, 0, ~0ull},
      {"cvt.u64.u32 %rd10, %r11;", 0xffffffff, 0, 0, 0xffffffff},
      {"cvt.s32.s8 %r10, %r11;", 0x180, 0, 0, 0xffffff80},
      {"cvt.u32.u8 %r10, %r11;", 0x180, 0, 0, 0x80},
      {"cvt.u16.u32 %h10, %r11;", 0x12345, 0, 0, 0x2345},
      {"cvt.s8.s32 %r10, %r11;", 0x80, 0, 0, 0xffffff80},
      {"cvt.sat.u8.s32 %r10, %r11;", 0xffffffff, 0, 0, 0},
      {"cvt.sat.s8.s32 %r10, %r11;", 1000, 0, 0, 127},
      {"cvt.sat.u32.s64 %r10, %rd11;", 1ull << 40, 0, 0, 0xffffffff},
      {"cvt.rzi.s32.f32 %r10, %f11;", F32(-2.7f), 0, 0, 0xfffffffe},
      {"cvt.rni.s32.f32 %r10, %f11;", F32(2.5f), 0, 0, 2},
      {"cvt.rmi.s32.f32 %r10, %f11;", F32(-2.1f), 0, 0, 0xfffffffd},
      {"cvt.rpi.u32.f32 %r10, %f11;", F32(2.1f), 0, 0, 3},
      {"cvt.rzi.s32.f32 %r10, %f11;", F32(3e9f), 0, 0, 0x7fffffff},
      {"cvt.rzi.u32.f32 %r10, %f11;", F32(-5.f), 0, 0, 0},
      {"cvt.rzi.s32.f32 %r10, %f11;", kNan32, 0, 0, 0},
      {"cvt.rzi.u64.f32 %rd10, %f11;", kNan32, 0, 0, 1ull << 63},
      {"cvt.rzi.u64.f64 %rd10, %fd11;", F64(1e19), 0, 0, 10000000000000000000ull},
      {"cvt.rzi.s8.f32 %r10, %f11;", F32(300.f), 0, 0, 127},
      {"cvt.rn.f32.s32 %f10, %r11;", 0x01000001, 0, 0, F32(16777216.f)},
      {"cvt.rp.f32.s32 %f10, %r11;", 0x01000001, 0, 0, F32(16777218.f)},
      {"cvt.rn.f32.u64 %f10, %rd11;", ~0ull, 0, 0, F32(0x1p64f)},
      {"cvt.rn.f64.s64 %fd10, %rd11;", ~0ull, 0, 0, F64(-1)},
      {"cvt.rn.f32.u8 %f10, %r11;", 0x1ff, 0, 0, F32(255.f)},
      {"cvt.f64.f32 %fd10, %f11;", F32(0.1f), 0, 0, F64(static_cast<double>(0.1f))},
      {"cvt.rn.f32.f64 %f10, %fd11;", F64(0.1), 0, 0, F32(0.1f)},
      {"cvt.rz.f32.f64 %f10, %fd11;", F64(1 - 0x1p-40), 0, 0, F32(1.f) - 1},
      {"cvt.rni.f32.f32 %f10, %f11;", F32(3.5f), 0, 0, F32(4.f)},
      {"cvt.ftz.sat.f32.f32 %f10, %f11;", F32(1.5f), 0, 0, F32(1.f)},
      {"cvt.rn.f16.f32 %h10, %f11;", F32(65520.f), 0, 0, 0x7c00},
      {"cvt.rn.f16.f32 %h10, %f11;", F32(65519.f), 0, 0, 0x7bff},
      {"cvt.rz.f16.f32 %h10, %f11;", F32(65535.f), 0, 0, 0x7bff},
      {"cvt.rn.f16.f32 %h10, %f11;", F32(0x1p-25f), 0, 0, 0},
      {"cvt.rn.f16.f32 %h10, %f11;", F32(0x1.8p-25f), 0, 0, 1},
      {"cvt.f32.f16 %f10, %h11;", 0x0001, 0, 0, F32(0x1p-24f)},
      {"cvt.f32.f16 %f10, %h11;", 0xfc00, 0, 0, F32(-__builtin_inff())},
      {"cvt.rn.bf16.f32 %h10, %f11;", F32(1.00390625f), 0, 0, 0x3f80},
      {"cvt.f32.bf16 %f10, %h11;", 0x4049, 0, 0, 0x40490000},
      {"cvt.rn.f16x2.f32 %r10, %f11, %f12;", F32(1.f), F32(2.f), 0, 0x3c004000},
      {"cvt.rn.bf16x2.f32 %r10, %f11, %f12;", F32(1.f), F32(2.f), 0, 0x3f804000},
      {"cvt.rn.relu.bf16x2.f32 %r10, %f11, %f12;", F32(-1.f), F32(2.f), 0, 0x00004000},
      {"cvt.rna.tf32.f32 %r10, %f11;", 0x3f801000, 0, 0, 0x3f802000},
      {"cvt.rzi.s32.f16 %r10, %h11;", 0xc500, 0, 0, 0xfffffffb},
      {"cvt.rn.f16.s32 %h10, %r11;", 2049, 0, 0, 0x6800},
  };
  CheckInstructions(cases);
}

TEST_CASE("moves pack and unpack vectors") {
  const InstructionCase cases[] = {
      {"mov.b64 %rd10, {%r11, %r12};", 1, 2, 0, (2ull << 32) | 1},
      {"mov.b32 %r10, {%h11, %h12};", 0x1111, 0x2222, 0, 0x22221111},
      {"mov.b64 %rd10, {%h11, %h12, %h13, %h11};", 1, 2, 3, 0x0001000300020001ull},
  };

  CheckInstructions(cases);
  const RunResult result = RunBody(
      "mov.b64 %rd5, 0x1122334455667788; mov.b64 {%r5, %r6}, %rd5; mov.b64 %rd6, {%r6, %r5};"
      "st.global.u64 [%rd3], %rd6;");
  REQUIRE(result.outcome.ok);
  CHECK(result.out[0] == 0x5566778811223344ull);
}

// Found by fuzz_executor.
TEST_CASE("an instruction with an operand too few or too many is unsupported") {
  for (const char* text : {"mad24.hi.s32 %r10, %r11, %r12;", "mul24.lo.u32 %r10, %r11, %r12, %r13;",
                           "sad.u32 %r10, %r11, %r12;", "rem.u32 %r10, %r11, %r12, %r13;",
                           "dp4a.u32.u32 %r10, %r11, %r12;"}) {
    INFO(text);
    const RunResult result = RunBody(text);
    CHECK(!result.outcome.ok);
    CHECK(result.outcome.error.code == LaunchError::Code::kUnsupportedInstruction);
  }
}

}  // namespace
}  // namespace ops_debug::emulator
