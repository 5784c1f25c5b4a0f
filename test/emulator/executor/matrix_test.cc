// Matrix instructions: fragment layouts, copies, descriptors and faults. What the arithmetic gives
// for every type and shape is compared with an H200 in test/golden (families mma, wmma, wgmma,
// ldmatrix).
#include <catch2/catch.hpp>
#include <cstring>
#include <string>

#include "test/emulator/executor/kernel_run.h"

namespace ops_debug::emulator {
namespace {

using Catch::Matchers::Contains;

// Words of shared memory `s` become i, i + 1 as two 16-bit elements: element i has value i.
constexpr const char* kCountingRows = R"(
    .shared .align 128 .b8 s[1024];
    mov.u32 %r2, s;
    mad.lo.u32 %r3, %r1, 32, %r2;          // 8 words per lane
    shl.b32 %r4, %r1, 4;                   // first element of the lane
    mov.u32 %r5, 0;
  FILL: add.u32 %r6, %r4, 1; shl.b32 %r6, %r6, 16; or.b32 %r6, %r6, %r4;
    st.shared.u32 [%r3], %r6;
    add.u32 %r3, %r3, 4; add.u32 %r4, %r4, 2; add.u32 %r5, %r5, 1;
    setp.lt.u32 %p1, %r5, 8; @%p1 bra FILL;
    bar.warp.sync -1;
    mad.lo.u32 %r7, %r1, 16, %r2;          // row i of lane i
)";

uint32_t Low(uint64_t word) { return static_cast<uint32_t>(word); }
uint32_t High(uint64_t word) { return static_cast<uint32_t>(word >> 32); }

TEST_CASE("ldmatrix gives lane l two elements of row l / 4 of each matrix") {
  const RunResult result = RunBody(std::string(kCountingRows) + R"(
    ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r10, %r11, %r12, %r13}, [%r7];
    mov.b64 %rd10, {%r10, %r13}; st.global.u64 [%rd3], %rd10;)");
  REQUIRE(result.outcome.ok);
  for (uint32_t lane = 0; lane < 32; ++lane) {
    const uint32_t first = lane / 4 * 8 + lane % 4 * 2;
    CHECK(Low(result.out[lane]) == (first | (first + 1) << 16));
    CHECK(High(result.out[lane]) == (first + 192 | (first + 193) << 16));
  }
}

TEST_CASE("ldmatrix.trans gives columns, movmatrix.trans undoes it") {
  const RunResult result = RunBody(std::string(kCountingRows) + R"(
    ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%r10}, [%r7];
    movmatrix.sync.aligned.m8n8.trans.b16 %r11, %r10;
    mov.b64 %rd10, {%r10, %r11}; st.global.u64 [%rd3], %rd10;)");
  REQUIRE(result.outcome.ok);
  for (uint32_t lane = 0; lane < 32; ++lane) {
    const uint32_t column = lane / 4;
    const uint32_t row = lane % 4 * 2;
    CHECK(Low(result.out[lane]) == (row * 8 + column | ((row + 1) * 8 + column) << 16));
    const uint32_t first = lane / 4 * 8 + lane % 4 * 2;
    CHECK(High(result.out[lane]) == (first | (first + 1) << 16));
  }
}

TEST_CASE("stmatrix writes what ldmatrix reads") {
  const RunResult result = RunBody(std::string(kCountingRows) + R"(
    ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%r10, %r11}, [%r7];
    bar.warp.sync -1;
    add.u32 %r8, %r7, 512;
    stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%r8], {%r10, %r11};
    bar.warp.sync -1;
    shl.b32 %r9, %r1, 3; add.u32 %r9, %r9, %r2;
    ld.shared.u64 %rd10, [%r9+512]; st.global.u64 [%rd3], %rd10;)");
  REQUIRE(result.outcome.ok);
  for (uint64_t lane = 0; lane < 32; ++lane) {
    const uint64_t i = lane * 4;
    CHECK(result.out[lane] == (i | (i + 1) << 16 | (i + 2) << 32 | (i + 3) << 48));
  }
}

TEST_CASE("a product with the identity shows where mma has its elements") {
  // a = identity (16x16), b[k][n] = 1 + k + 16 n; d = b in the upper eight rows.
  const RunResult result = RunBody(R"(
    shr.u32 %r2, %r1, 2; and.b32 %r3, %r1, 3; shl.b32 %r4, %r3, 1;   // group, place, first k
    sub.u32 %r5, %r2, %r4;                                          // 0 or 1 on the diagonal
    mov.u32 %r6, 0;
    setp.eq.u32 %p1, %r5, 0; @%p1 mov.u32 %r6, 0x3c00;
    setp.eq.u32 %p1, %r5, 1; @%p1 mov.u32 %r6, 0x3c000000;
    mov.u32 %r7, 0;
    mad.lo.u32 %r8, %r2, 16, %r4; add.u32 %r8, %r8, 1;
    cvt.rn.f16.u32 %h1, %r8; add.u32 %r8, %r8, 1; cvt.rn.f16.u32 %h2, %r8; mov.b32 %r9, {%h1, %h2};
    add.u32 %r8, %r8, 7; cvt.rn.f16.u32 %h1, %r8; add.u32 %r8, %r8, 1; cvt.rn.f16.u32 %h2, %r8;
    mov.b32 %r10, {%h1, %h2};
    mov.f32 %f1, 0f00000000;
    mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f2, %f3, %f4, %f5}, {%r6, %r7, %r7, %r6},
      {%r9, %r10}, {%f1, %f1, %f1, %f1};
    cvt.rni.u32.f32 %r20, %f2; cvt.rni.u32.f32 %r21, %f3; cvt.rni.u32.f32 %r22, %f4;
    shl.b32 %r21, %r21, 16; or.b32 %r20, %r20, %r21;
    mov.b64 %rd10, {%r20, %r22}; st.global.u64 [%rd3], %rd10;)");
  REQUIRE(result.outcome.ok);
  for (uint32_t lane = 0; lane < 32; ++lane) {
    const uint32_t row = lane / 4;
    const uint32_t column = lane % 4 * 2;
    CHECK(Low(result.out[lane]) == (1 + row + 16 * column | (1 + row + 16 * (column + 1)) << 16));
    CHECK(High(result.out[lane]) == 1 + row + 8 + 16 * column);
  }
}

TEST_CASE("the tensor core cuts each term 25 bits below the largest, and the sum toward zero") {
  // c = 1 beside eight equal products: 2^-26 vanish one by one, 2^-25 add up; then one product of
  // 1.5 * 2^-24 that rounding to nearest would not lose.
  const RunResult result = RunBody(R"(
    mov.u32 %r4, 0x08000800; mov.u32 %r5, 0x0c000c00; mov.u32 %r6, 0; mov.u32 %r7, 0;
    and.b32 %r3, %r1, 3; setp.eq.u32 %p1, %r3, 0;
    @%p1 mov.u32 %r6, 0x0c00; @%p1 mov.u32 %r7, 0x0e00;
    mov.f32 %f1, 0f3f800000;
    mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f2, %f3, %f4, %f5}, {%r4, %r4}, {%r4},
      {%f1, %f1, %f1, %f1};
    mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f6, %f7, %f8, %f9}, {%r4, %r4}, {%r5},
      {%f1, %f1, %f1, %f1};
    mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f10, %f11, %f12, %f13}, {%r6, %r6}, {%r7},
      {%f1, %f1, %f1, %f1};
    sub.f32 %f6, %f6, %f1; sub.f32 %f2, %f2, %f1; sub.f32 %f10, %f10, %f1; add.f32 %f2, %f2, %f10;
    mov.b32 %r20, %f2; mov.b32 %r21, %f6; mov.b64 %rd10, {%r20, %r21}; st.global.u64 [%rd3], %rd10;)");
  REQUIRE(result.outcome.ok);
  for (const uint64_t word : result.out) {
    CHECK(Low(word) == 0);
    CHECK(High(word) == F32(0x1p-22f));
  }
}

TEST_CASE("accumulators may share registers with the operands") {
  const RunResult result = RunBody(R"(
    mov.u32 %r4, 0x01010101; mov.u32 %r5, 0x02020202; mov.u32 %r6, 5; mov.u32 %r7, 6;
    mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%r4, %r5}, {%r4}, {%r5}, {%r6, %r7};
    mov.b64 %rd10, {%r4, %r5}; st.global.u64 [%rd3], %rd10;)");
  REQUIRE(result.outcome.ok);
  for (const uint64_t word : result.out) CHECK(word == (37ull | 38ull << 32));
}

TEST_CASE("wmma moves a matrix with its stride through shared memory") {
  // A 16x16 matrix of positions goes through a fragment of a and one of c (as its product with 1).
  const RunResult result = RunBody(std::string(kCountingRows) + R"(
    wmma.load.c.sync.aligned.row.m16n16k16.shared.f16 {%r10, %r11, %r12, %r13}, [%r2], 16;
    wmma.store.d.sync.aligned.col.m16n16k16.shared.f16 [%r2+512], {%r10, %r11, %r12, %r13}, 16;
    bar.warp.sync -1;
    shl.b32 %r9, %r1, 3; add.u32 %r9, %r9, %r2;
    ld.shared.u64 %rd10, [%r9+512]; st.global.u64 [%rd3], %rd10;)");
  REQUIRE(result.outcome.ok);
  for (uint64_t lane = 0; lane < 32; ++lane) {
    for (uint64_t e = 0; e < 4; ++e) {
      const uint64_t place = lane * 4 + e;  // of the transpose
      CHECK(((result.out[lane] >> (16 * e)) & 0xffff) == place % 16 * 16 + place / 16);
    }
  }
}

// One warpgroup: a (64x16, K-major without swizzle at 0) is all ones, b is at 4096. `kB` stores b;
// element (k, n) is n + 1 for the first eight columns.
std::string Wgmma(const std::string& store_b, uint64_t b_descriptor, const std::string& tail) {
  return R"(
    .shared .align 1024 .b8 s[8192];
    mov.u32 %r2, s; mad.lo.u32 %r3, %r1, 16, %r2;
    mov.u32 %r4, 0x3c003c00;
    st.shared.v4.u32 [%r3], {%r4, %r4, %r4, %r4};
  )" + store_b +
         R"(
    fence.proxy.async; bar.sync 0;
    cvt.u64.u32 %rd4, %r2; shr.u64 %rd4, %rd4, 4;
    add.s64 %rd5, %rd4, )" +
         std::to_string(uint64_t{128 / 16} << 16 | uint64_t{256 / 16} << 32) + R"(;
    add.s64 %rd6, %rd4, )" +
         std::to_string(static_cast<int64_t>(b_descriptor + 4096 / 16)) + R"(;
    mov.f32 %f1, 0f00000000; mov.f32 %f2, 0f00000000; mov.f32 %f3, 0f00000000; mov.f32 %f4, 0f00000000;
    setp.eq.u32 %p1, 0, 0;
  )" + tail;
}

constexpr const char* kMultiply = R"(
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1, %f2, %f3, %f4}, %rd5, %rd6, %p1, 1, 1, 0, 0;
    wgmma.commit_group.sync.aligned;
)";
constexpr const char* kWait = "wgmma.wait_group.sync.aligned 0;\n";
constexpr const char* kKeep = R"(
    mov.b32 %r20, %f1; mov.b32 %r21, %f4; mov.b64 %rd10, {%r20, %r21}; st.global.u64 [%rd3], %rd10;)";

// Sixteen bytes (eight depths) of column n for thread n + 8 chunk, at `address`(%r6).
std::string StoreB(const std::string& address) {
  return R"(
    setp.lt.u32 %p2, %r1, 16; @!%p2 bra STORED;
    and.b32 %r7, %r1, 7; shr.u32 %r8, %r1, 3;        // column, chunk
    add.u32 %r9, %r7, 1; cvt.rn.f16.u32 %h1, %r9; mov.b32 %r10, {%h1, %h1};
  )" + address +
         R"(
    st.shared.v4.u32 [%r6+4096], {%r10, %r10, %r10, %r10};
  STORED:)";
}

const std::string kPlainB = StoreB("mad.lo.u32 %r6, %r1, 16, %r2;");
constexpr uint64_t kPlainDescriptor = uint64_t{128 / 16} << 16 | uint64_t{256 / 16} << 32;

TEST_CASE("wgmma multiplies matrices in shared memory") {
  const RunResult result =
      RunBody(Wgmma(kPlainB, kPlainDescriptor, std::string(kMultiply) + kWait + kKeep),
              {.block = {128, 1, 1}});
  REQUIRE(result.outcome.ok);
  for (uint32_t thread = 0; thread < 128; ++thread) {
    const auto column = static_cast<float>(thread % 4 * 2);
    CHECK(Low(result.out[thread]) == F32(16 * (column + 1)));
    CHECK(High(result.out[thread]) == F32(16 * (column + 2)));
  }
}

TEST_CASE("wgmma follows the 128-byte swizzle of a descriptor") {
  // Row n has 128 bytes; chunk c lies at c xor n.
  const std::string swizzled = StoreB(
      "xor.b32 %r6, %r8, %r7; shl.b32 %r6, %r6, 4; mad.lo.u32 %r6, %r7, 128, %r6; "
      "add.u32 %r6, %r6, %r2;");
  const uint64_t descriptor = uint64_t{1} << 62 | uint64_t{1024 / 16} << 32;
  const RunResult result = RunBody(
      Wgmma(swizzled, descriptor, std::string(kMultiply) + kWait + kKeep), {.block = {128, 1, 1}});
  REQUIRE(result.outcome.ok);
  for (uint32_t thread = 0; thread < 128; ++thread) {
    CHECK(Low(result.out[thread]) == F32(16 * static_cast<float>(thread % 4 * 2 + 1)));
  }
}

TEST_CASE("wgmma.wait_group holds a warp until its warpgroup has read the operands") {
  // The first warp overwrites b behind its wait; the last one multiplies long after.
  const std::string tail = std::string(R"(
    setp.lt.u32 %p3, %r1, 96; @%p3 bra GO;
    mov.u32 %r11, 0;
  LATE: add.u32 %r11, %r11, 1; nanosleep.u32 20; setp.lt.u32 %p4, %r11, 3000; @%p4 bra LATE;
  GO:)") + kMultiply + kWait +
                           R"(
    setp.ge.u32 %p5, %r1, 32; @%p5 bra DONE;
    mov.u32 %r12, 0; mad.lo.u32 %r13, %r1, 8, %r2;
    st.shared.u32 [%r13+4096], %r12; st.shared.u32 [%r13+4100], %r12;
  DONE:)" + kKeep;
  const RunResult result = RunBody(Wgmma(kPlainB, kPlainDescriptor, tail), {.block = {128, 1, 1}});
  REQUIRE(result.outcome.ok);
  for (uint32_t thread = 0; thread < 128; ++thread) {
    CHECK(Low(result.out[thread]) == F32(16 * static_cast<float>(thread % 4 * 2 + 1)));
  }
}

TEST_CASE("a warpgroup whose last warp does not multiply is a deadlock") {
  const std::string tail = std::string("setp.ge.u32 %p3, %r1, 96; @%p3 bra BARRIER;\n") +
                           kMultiply + kWait + "BARRIER: bar.sync 0;\n" + kKeep;
  const RunResult result = RunBody(Wgmma(kPlainB, kPlainDescriptor, tail), {.block = {128, 1, 1}});
  REQUIRE_FALSE(result.outcome.ok);
  CHECK(result.outcome.error.code == LaunchError::Code::kDeadlock);
  CHECK_THAT(result.outcome.error.message, Contains("warp 3 of its warpgroup"));
}

TEST_CASE("a descriptor that leads out of shared memory faults") {
  const uint64_t far = uint64_t{128 / 16} << 16 | uint64_t{256 / 16} << 32 | 229376 / 16;
  const RunResult result =
      RunBody(Wgmma(kPlainB, far, std::string(kMultiply) + kWait + kKeep), {.block = {128, 1, 1}});
  REQUIRE_FALSE(result.outcome.ok);
  CHECK(result.outcome.error.code == LaunchError::Code::kIllegalAddress);
  CHECK_THAT(result.outcome.error.message, Contains("wgmma.mma_async"));
}

struct FaultCase {
  const char* body;
  LaunchError::Code code;
  const char* text;
};

TEST_CASE("matrix copies fault where an H200 does") {
  // Codes as measured by launching the same instructions there.
  const FaultCase kCases[] = {
      {"add.u32 %r7, %r7, 8; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r10}, [%r7];",
       LaunchError::Code::kMisalignedAddress, "16-byte access to shared address"},
      {"add.u32 %r7, %r7, 300000; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r10}, [%r7];",
       LaunchError::Code::kIllegalAddress, "shared memory"},
      {"ldmatrix.sync.aligned.m8n8.x1.b16 {%r10}, [%rd1];", LaunchError::Code::kIllegalInstruction,
       "not in shared memory"},
      {"add.u32 %r7, %r7, 4; stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r7], {%r10};",
       LaunchError::Code::kMisalignedAddress, "multiple of 16"},
      {"wmma.load.a.sync.aligned.row.m16n16k16.shared.bf16 {%r10, %r11, %r12, %r13}, [%r2+8], 16;",
       LaunchError::Code::kMisalignedAddress, "multiple of 16"},
      {"wmma.load.a.sync.aligned.col.m16n16k16.global.bf16 {%r10, %r11, %r12, %r13}, [%rd1+2], 16;",
       LaunchError::Code::kMisalignedAddress, "multiple of 4"},
      {"wmma.store.d.sync.aligned.row.m16n16k16.global.s32 [%rd1+4], {%r10, %r11, %r12, %r13, "
       "%r14, "
       "%r15, %r16, %r17}, 16;",
       LaunchError::Code::kMisalignedAddress, "multiple of 8"},
  };
  for (const FaultCase& fault : kCases) {
    INFO(fault.body);
    const RunResult result = RunBody(std::string(kCountingRows) + fault.body);
    REQUIRE_FALSE(result.outcome.ok);
    CHECK(result.outcome.error.code == fault.code);
    CHECK_THAT(result.outcome.error.message, Contains(fault.text));
  }
}

TEST_CASE("lanes whose address ldmatrix does not use may have any") {
  const RunResult result = RunBody(std::string(kCountingRows) + R"(
    setp.gt.u32 %p2, %r1, 7; @%p2 mov.u32 %r7, 0x7ffffff3;
    ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r10}, [%r7];
    cvt.u64.u32 %rd10, %r10; st.global.u64 [%rd3], %rd10;)");
  REQUIRE(result.outcome.ok);
  CHECK(result.out[31] == (62 | 63 << 16));
}

TEST_CASE("matrix forms of later architectures are unsupported by name") {
  const RunResult result = RunBody(R"(
    mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e4m3.e4m3.f32 {%f1, %f2, %f3, %f4},
      {%r1, %r2, %r3, %r4}, {%r5, %r6}, {%f1, %f2, %f3, %f4};)");
  REQUIRE_FALSE(result.outcome.ok);
  CHECK(result.outcome.error.code == LaunchError::Code::kUnsupportedInstruction);
  CHECK_THAT(result.outcome.error.message, Contains("kind::f8f6f4"));
}

}  // namespace
}  // namespace ops_debug::emulator
