// alloca, stacksave and stackrestore, vector registers, and what the golden data cannot show:
// faults and the names of what is not supported.
#include <catch2/catch.hpp>

#include "test/emulator/executor/kernel_run.h"

namespace ops_debug::emulator {
namespace {

TEST_CASE("alloca gives each lane memory of its own size") {
  const RunResult result = RunBody(R"(
    mul.wide.u32 %rd4, %r1, 32;
    add.u64 %rd4, %rd4, 16;
    alloca.u64 %rd5, %rd4, 32;
    st.local.u32 [%rd5], %r1;
    alloca.u64 %rd6, 64, 32;
    st.local.u32 [%rd6+60], 99;
    ld.local.u32 %r2, [%rd5];
    and.b64 %rd7, %rd5, 31;
    cvt.u64.u32 %rd8, %r2;
    add.u64 %rd8, %rd8, %rd7;
    st.global.u64 [%rd3], %rd8;)");
  INFO(result.outcome.error.message);
  REQUIRE(result.outcome.ok);
  for (uint64_t i = 0; i < 32; ++i) CHECK(result.out[i] == i);
}

TEST_CASE("a function gives back at its return what alloca took") {
  RunOptions options;
  options.preamble = R"(
.func (.reg .b32 %sum) take(.reg .b32 %x)
{ .reg .b64 %p; .reg .pred %q;
  alloca.u64 %p, 4096, 16;
  st.local.u32 [%p], %x;
  ld.local.u32 %sum, [%p];
  setp.gt.u32 %q, %x, 500;
  @%q ret;
  add.u32 %sum, %sum, 1;
  ret; })";
  const RunResult result = RunBody(R"(
    mov.u32 %r2, 0;
    mov.u32 %r3, 0;
LOOP:
    call (%r4), take, (%r2);
    add.u32 %r3, %r3, %r4;
    add.u32 %r2, %r2, 1;
    setp.lt.u32 %p1, %r2, 1000;
    @%p1 bra LOOP;
    cvt.u64.u32 %rd4, %r3;
    st.global.u64 [%rd3], %rd4;)",
                                   options);
  INFO(result.outcome.error.message);
  REQUIRE(result.outcome.ok);
  CHECK(result.out[31] == 999 * 1000 / 2 + 501);
}

TEST_CASE("stackrestore frees what was taken since stacksave") {
  const RunResult result = RunBody(R"(
    mov.u32 %r2, 0;
LOOP:
    stacksave.u64 %rd4;
    alloca.u64 %rd5, 8192;
    st.local.u32 [%rd5], %r2;
    stackrestore.u64 %rd4;
    add.u32 %r2, %r2, 1;
    setp.lt.u32 %p1, %r2, 100;
    @%p1 bra LOOP;
    st.global.u64 [%rd3], 1;)");
  INFO(result.outcome.error.message);
  REQUIRE(result.outcome.ok);
  CHECK(result.out[0] == 1);
}

TEST_CASE("alloca of more than there is names the sizes") {
  const RunResult result = RunBody("alloca.u64 %rd4, 1000000;");
  CHECK(result.outcome.error.code == LaunchError::Code::kIllegalAddress);
  CHECK_THAT(result.outcome.error.message,
             Catch::Contains("stack overflow: alloca of 1000000 bytes") &&
                 Catch::Contains("bytes of the thread's local memory left"));
}

TEST_CASE("a call does not run into what alloca took") {
  RunOptions options;
  options.preamble = R"(
.func grow(.reg .b32 %x)
{ .local .align 8 .b8 array[16384]; .reg .b64 %p;
  alloca.u64 %p, 16384;
  call grow, (%x);
  ret; })";
  const RunResult result = RunBody("call grow, (%r1);", options);
  CHECK_THAT(result.outcome.error.message, Catch::Contains("stack overflow"));
}

TEST_CASE("stackrestore wants a pointer of stacksave") {
  const RunResult result = RunBody("mov.u64 %rd4, 16; stackrestore.u64 %rd4;");
  CHECK_THAT(result.outcome.error.message,
             Catch::Contains("stackrestore of 16, which is not a stack pointer"));
}

TEST_CASE("elements of vector registers serve as operands anywhere") {
  const RunResult result = RunBody(R"(
    .reg .v4 .b32 %v;
    .reg .v2 .f64 %w;
    mov.v4.b32 %v, {5, 6, 7, 8};
    mad.lo.u32 %v.x, %v.y, %v.z, %v.w;
    setp.gt.u32 %p1, %v.x, %v.y;
    @%p1 add.u32 %v.b, %v.r, %r1;
    mov.f64 %w.x, 0d3ff0000000000000;
    add.f64 %w.y, %w.x, %w.x;
    cvt.rzi.u32.f64 %r2, %w.y;
    add.u32 %r2, %r2, %v.z;
    cvt.u64.u32 %rd4, %r2;
    st.global.u64 [%rd3], %rd4;)");
  INFO(result.outcome.error.message);
  REQUIRE(result.outcome.ok);
  for (uint64_t i = 0; i < 32; ++i) CHECK(result.out[i] == 50 + i + 2);
}

TEST_CASE("128-bit registers keep both halves under a guard") {
  const RunResult result = RunBody(R"(
    .reg .b128 %q, %u;
    mov.b64 %rd4, 11; mov.b64 %rd5, 22;
    mov.b128 %q, {%rd4, %rd5};
    mov.b128 %u, {%rd5, %rd4};
    and.b32 %r2, %r1, 1;
    setp.eq.u32 %p1, %r2, 0;
    @%p1 mov.b128 %u, %q;
    mov.b128 {%rd6, %rd7}, %u;
    mad.lo.u64 %rd6, %rd7, 100, %rd6;
    st.global.u64 [%rd3], %rd6;)");
  INFO(result.outcome.error.message);
  REQUIRE(result.outcome.ok);
  CHECK(result.out[0] == 2211);
  CHECK(result.out[1] == 1122);
}

TEST_CASE("the system's shared memory exists for kernels that ask for it") {
  const RunResult result = RunBody(R"(
    .shared .align 4 .b32 own;
    mov.u32 %r2, %reserved_smem_offset_1;
    mov.u32 %r3, %reserved_smem_offset_end;
    setp.eq.u32 %p1, %r1, 0;
    @%p1 st.shared.u32 [%r2], 7;
    bar.sync 0;
    ld.shared.u32 %r4, [%r2];
    sub.u32 %r5, %r3, %r2;
    setp.ge.u32 %p2, %r5, 288;
    selp.u32 %r5, 1, 0, %p2;
    st.shared.u32 [own], %r5;
    mad.lo.u32 %r4, %r4, 10, %r5;
    cvt.u64.u32 %rd4, %r4;
    st.global.u64 [%rd3], %rd4;)");
  INFO(result.outcome.error.message);
  REQUIRE(result.outcome.ok);
  CHECK(result.out[31] == 71);
}

TEST_CASE("instructions of later GPUs are named when they are reached") {
  for (const char* text :
       {"multimem.red.relaxed.sys.global.add.u32 [%rd1], %r1;", "vadd.u32.u32.u32 %r2, %r1, %r1;",
        "cvt.rs.satfinite.e4m3x4.f32 %r2, {%f1, %f2, %f3, %f4}, %r1;",
        "redux.sync.min.f32 %f1, %f2, 0xffffffff;"}) {
    const RunResult result = RunBody(text);
    CHECK(result.outcome.error.code == LaunchError::Code::kUnsupportedInstruction);
    CHECK_THAT(result.outcome.error.message, Catch::Contains(text));
  }
}

TEST_CASE("forms of sm_100 that are compositions of supported ones") {
  const uint64_t pair = F32(1.5F) | F32(-2.0F) << 32;
  const InstructionCase cases[] = {
      {"add.rn.f32x2 %rd10, %rd11, %rd12;", pair, pair, 0, F32(3.0F) | F32(-4.0F) << 32},
      {"fma.rn.f32x2 %rd10, %rd11, %rd12, %rd13;", pair, pair, pair, F32(3.75F) | F32(2.0F) << 32},
      {"min.f32 %f10, %f11, %f12, %f13;", F32(3), F32(1), F32(2), F32(1)},
      {"max.NaN.f32 %f10, %f11, %f12, %f13;", F32(3), 0x7fc00000, F32(2), 0x7fffffff},
      {"add.f32.bf16 %f10, %h11, %f12;", 0x3fc0, F32(0.25F), 0, F32(1.75F)},
      {"fma.rn.f32.f16 %f10, %h11, %h12, %f13;", 0x4000, 0x4200, F32(0.5F), F32(6.5F)},
  };
  CheckInstructions(cases);
}

// What holds the f32x2 operations, which golden data of an H200 cannot: those of f32 are in it.
TEST_CASE("f32x2 arithmetic is f32 arithmetic of both halves") {
  RunOptions options;
  uint64_t state = 1;
  for (int i = 0; i < 96; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    // Every fourth word as it comes; the others near 1, with halves that cancel or round.
    options.in.push_back(i % 4 == 0 ? state : (state & 0x80ffffff80ffffffu) | 0x3f0000003f000000u);
  }
  options.in[5] = 0x0000000180000001;  // denormals
  for (const std::string operation : {"add", "sub", "mul", "fma"}) {
    for (const std::string rounding : {".rn", ".rz", ".rm", ".rp"}) {
      for (const std::string flush : {"", ".ftz"}) {
        const std::string name = operation + rounding + flush;
        const bool three = operation == "fma";
        const RunResult result =
            RunBody(R"(
          mul.wide.u32 %rd4, %r1, 8; add.u64 %rd4, %rd2, %rd4;
          ld.global.u64 %rd11, [%rd4]; ld.global.u64 %rd12, [%rd4+256]; ld.global.u64 %rd13, [%rd4+512];
          mov.b64 {%f1, %f2}, %rd11; mov.b64 {%f3, %f4}, %rd12; mov.b64 {%f5, %f6}, %rd13;
          )" + name + ".f32x2 %rd10, %rd11, %rd12" +
                        (three ? ", %rd13;" : ";") + name + ".f32 %f7, %f1, %f3" +
                        (three ? ", %f5;" : ";") + name + ".f32 %f8, %f2, %f4" +
                        (three ? ", %f6;" : ";") + R"(
          mov.b64 %rd14, {%f7, %f8}; xor.b64 %rd10, %rd10, %rd14; not.b64 %rd10, %rd10;
          st.global.u64 [%rd3], %rd10;)",
                    options);
        INFO(name << ": " << result.outcome.error.message);
        CHECK(result.out == std::vector<uint64_t>(32, ~uint64_t{0}));
      }
    }
  }
}

}  // namespace
}  // namespace ops_debug::emulator
