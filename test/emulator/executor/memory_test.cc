// Address spaces, widths, atomics, and what a bad access says.
#include <array>
#include <catch2/catch.hpp>
#include <cstring>

#include "test/emulator/executor/kernel_run.h"

namespace ops_debug::emulator {
namespace {

TEST_CASE("vector loads and stores of every width keep their elements in order") {
  const RunResult result = RunBody(R"(
    mul.wide.u32 %rd4, %r1, 16; add.s64 %rd5, %rd2, %rd4;
    ld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%rd5];
    ld.global.v2.u64 {%rd6, %rd7}, [%rd5];
    ld.global.v4.u8 {%h1, %h2, %h3, %h4}, [%rd5];
    ld.global.v2.s16 {%r8, %r9}, [%rd5];
    add.u32 %r4, %r4, %r5; add.u32 %r4, %r4, %r6; add.u32 %r4, %r4, %r7;
    cvt.u64.u32 %rd10, %r4; add.u64 %rd10, %rd10, %rd7;
    cvt.u64.u16 %rd11, %h3; add.u64 %rd10, %rd10, %rd11; cvt.s64.s32 %rd11, %r9; add.u64 %rd10, %rd10, %rd11;
    st.global.v4.u32 [%rd5], {%r7, %r6, %r5, 5};
    ld.global.u64 %rd12, [%rd5]; add.u64 %rd10, %rd10, %rd12;
    st.global.u64 [%rd3], %rd10;)",
                                   {.in = [] {
                                     std::vector<uint64_t> words;
                                     for (uint64_t i = 0; i < 32; ++i) {
                                       words.push_back(((i + 2) << 32) | (0x80050000u + i));
                                       words.push_back(((i + 4) << 32) | (i + 3));
                                     }
                                     return words;
                                   }()});
  INFO(result.outcome.error.message);
  REQUIRE(result.outcome.ok);
  for (uint64_t i = 0; i < 32; ++i) {
    const uint32_t x = 0x80050000u + static_cast<uint32_t>(i);
    uint64_t expected = x + static_cast<uint32_t>(i + 2) + static_cast<uint32_t>(i + 3) +
                        static_cast<uint32_t>(i + 4);
    expected = static_cast<uint32_t>(expected);
    expected += ((i + 4) << 32) | (i + 3);
    expected += 5;                                        // third byte
    expected += static_cast<uint64_t>(int64_t{-0x7ffb});  // upper half, signed
    expected += ((i + 3) << 32) | (i + 4);
    CHECK(result.out[i] == expected);
  }
}

TEST_CASE("bytes and halves extend into wider registers") {
  const RunResult result = RunBody(R"(
    add.s64 %rd5, %rd2, 3;
    ld.global.s8 %r4, [%rd5]; ld.global.u8 %h1, [%rd5]; ld.global.s16 %rd6, [%rd2+2];
    cvt.u32.u16 %r5, %h1; mov.b64 %rd10, {%r4, %r5}; xor.b64 %rd10, %rd10, %rd6;
    st.global.u64 [%rd3], %rd10;
    mul.wide.u32 %rd7, %r1, 1; add.s64 %rd8, %rd2, %rd7; ld.global.u8 %r6, [%rd8];
    setp.eq.u32 %p1, %r1, 2; cvt.u64.u32 %rd9, %r6; @%p1 st.global.u64 [%rd3], %rd9;)",
                                   {.in = {0x00000000'ff7f1122ull, 0, 0, 0}});
  REQUIRE(result.outcome.ok);
  CHECK(result.out[0] == ((0x000000ffull << 32 | 0xffffffffull) ^
                          static_cast<uint64_t>(int64_t{static_cast<int16_t>(0xff7f)})));
  CHECK(result.out[2] == 0x7f);
}

TEST_CASE("shared memory, static and dynamic, is per block") {
  const RunResult result = RunBody(R"(
    .shared .align 4 .b32 fixed[32];
    mov.u32 %r4, fixed; mad.lo.u32 %r5, %r1, 4, %r4; mov.u32 %r6, %ctaid.x; mad.lo.u32 %r7, %r6, 1000, %r1;
    st.shared.u32 [%r5], %r7;
    mov.u64 %rd5, more; mul.wide.u32 %rd6, %r1, 8; add.s64 %rd7, %rd5, %rd6; st.shared.u64 [%rd7], %rd6;
    bar.sync 0;
    sub.u32 %r8, 31, %r1; mad.lo.u32 %r9, %r8, 4, %r4; ld.shared.u32 %r10, [%r9];
    ld.shared.u64 %rd8, [more+16]; ld.shared.u32 %r11, [fixed+4];
    cvt.u64.u32 %rd10, %r10; add.u64 %rd10, %rd10, %rd8; cvt.u64.u32 %rd9, %r11; mad.lo.u64 %rd10, %rd9, 1000000, %rd10;
    mad.lo.u32 %r12, %r6, 32, %r1; mul.wide.u32 %rd11, %r12, 8; add.s64 %rd12, %rd1, %rd11;
    st.global.u64 [%rd12], %rd10;)",
                                   {.grid = {2, 1, 1},
                                    .dynamic_shared_bytes = 256,
                                    .preamble = ".extern .shared .align 8 .b8 more[];"});
  INFO(result.outcome.error.message);
  REQUIRE(result.outcome.ok);
  CHECK(result.out[0] == 31 + 16 + 1000000);
  CHECK(result.out[32 + 5] == 1026 + 16 + 1001000000);
}

TEST_CASE("generic addresses reach shared, local and global memory") {
  const RunResult result = RunBody(R"(
    .shared .align 8 .b64 s[32]; .local .align 8 .b64 l[4];
    mov.u64 %rd4, s; cvta.shared.u64 %rd5, %rd4; mul.wide.u32 %rd6, %r1, 8; add.s64 %rd7, %rd5, %rd6;
    mov.u64 %rd8, l; cvta.local.u64 %rd9, %rd8;
    st.u64 [%rd7], 3; st.u64 [%rd9+8], %rd6; cvta.to.shared.u64 %rd20, %rd7; ld.shared.u64 %rd21, [%rd20];
    isspacep.shared %p1, %rd7; isspacep.local %p2, %rd9; isspacep.global %p3, %rd3; isspacep.global %p4, %rd7;
    and.b32 %r4, %r1, 1; setp.eq.u32 %p5, %r4, 0; add.s64 %rd22, %rd9, 8; selp.b64 %rd23, %rd7, %rd22, %p5;
    ld.u64 %rd10, [%rd23];
    add.u64 %rd10, %rd10, %rd21;
    selp.b64 %rd11, 1000, 0, %p1; selp.b64 %rd12, 2000, 0, %p2; selp.b64 %rd13, 4000, 0, %p3; selp.b64 %rd14, 8000, 0, %p4;
    add.u64 %rd10, %rd10, %rd11; add.u64 %rd10, %rd10, %rd12; add.u64 %rd10, %rd10, %rd13; add.u64 %rd10, %rd10, %rd14;
    st.u64 [%rd3], %rd10;)");
  INFO(result.outcome.error.message);
  REQUIRE(result.outcome.ok);
  CHECK(result.out[4] == 7000 + 3 + 3);
  CHECK(result.out[5] == 7000 + 3 + 40);
}

TEST_CASE("module variables are initialised, also with addresses") {
  const RunResult result = RunBody(R"(
    ld.const.u32 %r4, [numbers+8]; ld.global.u64 %rd4, [pointer]; ld.u32 %r5, [%rd4];
    ld.global.f32 %f1, [real]; cvt.rzi.u32.f32 %r6, %f1; ld.global.u8 %r7, [text+1]; ld.global.u32 %r8, [grid+12];
    add.u32 %r4, %r4, %r5; add.u32 %r4, %r4, %r6; add.u32 %r4, %r4, %r7; add.u32 %r4, %r4, %r8;
    cvt.u64.u32 %rd10, %r4; st.global.u64 [%rd3], %rd10;)",
                                   {.preamble = R"(
    .const .align 4 .u32 numbers[4] = {1, 2, 30, 4};
    .global .align 8 .u64 pointer = generic(numbers)+4;
    .global .f32 real = 0f42C80000;
    .global .b8 text[4] = {104, 105};
    .global .u32 grid[2][3] = {{1}, {4000, 5}};
)"});
  INFO(result.outcome.error.message);
  REQUIRE(result.outcome.ok);
  CHECK(result.out[0] == 30 + 2 + 100 + 105 + 4000);
}

TEST_CASE("atomics from many blocks add up, whatever the number of host threads") {
  for (uint32_t workers : {1u, 4u}) {
    const RunResult result =
        RunBody(R"(
      atom.global.add.u32 %r4, [%rd1], 1;
      red.global.add.f32 [%rd1+8], 0f3F800000;
      red.global.max.s32 [%rd1+16], %r1;
      atom.global.inc.u32 %r5, [%rd1+24], 9;
      red.global.add.f64 [%rd1+32], 0d3FF0000000000000;
      red.global.add.noftz.f16x2 [%rd1+40], %r6;
      atom.global.min.u64 %rd5, [%rd1+48], %rd3;
      atom.global.or.b32 %r7, [%rd1+56], %r1;)",
                {.grid = {16, 1, 1}, .block = {64, 1, 1}, .workers = workers, .out_words = 8});
    REQUIRE(result.outcome.ok);
    CHECK(result.out[0] == 1024);
    CHECK(result.out[1] == F32(1024.f));
    CHECK(result.out[2] == 63);
    CHECK(result.out[3] == 1024 % 10);
    CHECK(result.out[4] == F64(1024));
    CHECK(result.out[6] == 0);
    CHECK(result.out[7] == 63);
  }
}

TEST_CASE("results do not depend on the number of host threads") {
  const std::string body = R"(
    mov.u32 %r4, %ctaid.x; mad.lo.u32 %r5, %r4, 96, %r1; mul.wide.u32 %rd4, %r5, 8; add.s64 %rd5, %rd1, %rd4;
    mov.b32 %r6, 0; mov.b64 %rd10, 1;
    LOOP: mad.lo.u64 %rd10, %rd10, 6364136223846793005, 1442695040888963407; add.u32 %r6, %r6, 1;
    setp.lt.u32 %p1, %r6, %r5; @%p1 bra LOOP;
    st.global.u64 [%rd5], %rd10;)";
  RunOptions options{.grid = {8, 1, 1}, .block = {96, 1, 1}};
  const RunResult one = RunBody(body, options);
  options.workers = 3;
  const RunResult three = RunBody(body, options);
  REQUIRE(one.outcome.ok);
  CHECK(one.out == three.out);
  CHECK(one.outcome.thread_instructions == three.outcome.thread_instructions);
}

TEST_CASE("cp.async copies and fills with zeros") {
  const RunResult result = RunBody(R"(
    .shared .align 16 .b8 s[512];
    mov.u32 %r4, s; mad.lo.u32 %r5, %r1, 16, %r4; mul.wide.u32 %rd4, %r1, 16; add.s64 %rd5, %rd2, %rd4;
    cp.async.cg.shared.global [%r5], [%rd5], 16, 8;
    cp.async.commit_group; cp.async.wait_group 0; bar.warp.sync -1;
    ld.shared.v2.u64 {%rd6, %rd7}, [%r5]; add.u64 %rd10, %rd6, %rd7; st.global.u64 [%rd3], %rd10;)",
                                   {.in = std::vector<uint64_t>(64, 11)});
  INFO(result.outcome.error.message);
  REQUIRE(result.outcome.ok);
  CHECK(result.out[9] == 11);
}

TEST_CASE("an access outside every allocation names instruction, line, thread and address") {
  const RunResult result = RunBody(R"(
    .loc 1 42 7
    setp.eq.u32 %p1, %r1, 17; mov.b64 %rd4, 4096; @!%p1 mov.b64 %rd4, %rd3;
    st.global.u32 [%rd4+4], %r1;)",
                                   {.grid = {3, 1, 1}, .preamble = ".file 1 \"src/bad.cu\""});
  REQUIRE_FALSE(result.outcome.ok);
  CHECK(result.outcome.error.code == LaunchError::Code::kIllegalAddress);
  CHECK(result.outcome.error.message ==
        "illegal address in kernel kernel at `st.global.u32 [%rd4+4], %r1;` (PTX line 15, "
        "src/bad.cu:42), block (0,0,0), "
        "thread (17,0,0): 4-byte access to global address 0x1004, where no allocation lies");
}

TEST_CASE("freed memory and the page behind an allocation are not accessible") {
  DeviceMemory memory;
  const uint64_t a = memory.Allocate(5000);
  const uint64_t b = memory.Allocate(100);
  CHECK(memory.Accessible(a, 8192));
  CHECK_FALSE(memory.Accessible(a + 8192, 1));
  CHECK(memory.Accessible(b, 100));
  uint64_t base = 0;
  uint64_t size = 0;
  CHECK(memory.Find(a + 4999, &base, &size));
  CHECK(base == a);
  CHECK(size == 5000);
  CHECK_FALSE(memory.Find(a + 5000, &base, &size));
  CHECK(memory.Free(a));
  CHECK_FALSE(memory.Free(a));
  CHECK_FALSE(memory.Accessible(a, 1));
  CHECK(memory.allocated_bytes() == 100);
}

TEST_CASE("adopted blocks lie where the process mapped them and may share a page") {
  DeviceMemory memory(DeviceMemory::Reach::kAnywhere);
  alignas(4096) static std::array<std::byte, 3 * 4096> mapped{};
  const auto start = reinterpret_cast<uint64_t>(mapped.data());
  REQUIRE(memory.Adopt(start + 256, 512));
  REQUIRE(memory.Adopt(start + 1024, 4096));
  CHECK_FALSE(memory.Adopt(start + 5119, 10));
  CHECK(memory.Accessible(start, 8192));
  CHECK_FALSE(memory.Accessible(start + 8192, 1));
  uint64_t base = 0, size = 0;
  CHECK(memory.Find(start + 5119, &base, &size));
  CHECK((base == start + 1024 && size == 4096));
  CHECK(memory.Owns(start + 256));
  CHECK_FALSE(memory.Owns(start));
  CHECK(memory.Free(start + 1024));
  CHECK(memory.Accessible(start, 4096));
  CHECK_FALSE(memory.Accessible(start + 4096, 1));
  CHECK(memory.Free(start + 256));
  CHECK_FALSE(memory.Accessible(start, 1));
  CHECK(memory.allocated_bytes() == 0);
}

TEST_CASE("a device that does not reach everywhere adopts nothing") {
  DeviceMemory memory;
  alignas(4096) static std::array<std::byte, 4096> mapped{};
  CHECK_FALSE(memory.Adopt(reinterpret_cast<uint64_t>(mapped.data()), 4096));
}

TEST_CASE("registered host memory is accessible at its own address") {
  DeviceMemory memory;
  std::vector<uint64_t> host(4);
  const auto address = reinterpret_cast<uint64_t>(host.data());
  CHECK_FALSE(memory.Accessible(address, 8));
  memory.RegisterHostRange(address, 32);
  CHECK(memory.Accessible(address + 24, 8));
  CHECK_FALSE(memory.Accessible(address + 28, 8));
  memory.UnregisterHostRange(address);
  CHECK_FALSE(memory.Accessible(address, 8));
}

TEST_CASE("a misaligned access fails as such") {
  const RunResult result = RunBody("ld.global.u32 %r4, [%rd2+2];", {.in = {0}});
  REQUIRE_FALSE(result.outcome.ok);
  CHECK(result.outcome.error.code == LaunchError::Code::kMisalignedAddress);
  CHECK_THAT(result.outcome.error.message, Catch::Contains("which is not a multiple of 4"));
}

TEST_CASE("accesses outside the block's shared and the thread's local memory fail") {
  const RunResult shared = RunBody(
      ".shared .align 4 .b32 s[32]; mov.u32 %r4, s; mad.lo.u32 %r5, %r1, 4, %r4; st.shared.u32 "
      "[%r5+4], %r1;");
  REQUIRE_FALSE(shared.outcome.ok);
  CHECK_THAT(shared.outcome.error.message,
             Catch::Contains("thread (31,0,0)") && Catch::Contains("128 bytes of shared memory"));
  const RunResult local = RunBody(
      ".local .align 4 .b32 l[8]; mov.u64 %rd4, l; cvta.local.u64 %rd5, %rd4; st.u32 [%rd5+8192], "
      "%r1;");
  REQUIRE_FALSE(local.outcome.ok);
  CHECK_THAT(local.outcome.error.message, Catch::Contains("bytes of local memory"));
  // Hardware does not notice a small overflow of a local array.
  CHECK(RunBody(".local .align 4 .b32 l[8]; mov.u64 %rd4, l; cvta.local.u64 %rd5, %rd4; st.u32 "
                "[%rd5+32], %r1;")
            .outcome.ok);
}

TEST_CASE("the lowest failing block is reported, whatever the number of host threads") {
  for (uint32_t workers : {1u, 4u}) {
    const RunResult result =
        RunBody("mov.u32 %r4, %ctaid.x; setp.ge.u32 %p1, %r4, 5; @%p1 st.global.u32 [64], %r1;",
                {.grid = {64, 1, 1}, .workers = workers});
    REQUIRE_FALSE(result.outcome.ok);
    CHECK_THAT(result.outcome.error.message, Catch::Contains("block (5,0,0), thread (0,0,0)"));
  }
}

TEST_CASE("kernel parameters are read by any width and by address") {
  const RunResult result = RunModule(R"(.version 8.5
.target sm_90
.address_size 64
.visible .entry kernel(.param .u64 out, .param .align 8 .b8 in[8])
{ .reg .b32 %r<8>; .reg .b64 %rd<8>;
  ld.param.u64 %rd1, [out]; ld.param.u64 %rd2, [in]; ld.param.v2.u32 {%r1, %r2}, [in];
  mov.b64 %rd3, in; ld.param.u64 %rd4, [%rd3]; cvta.param.u64 %rd5, %rd3; ld.u64 %rd6, [%rd5];
  mov.b64 %rd7, {%r1, %r2}; add.u64 %rd2, %rd2, %rd4; add.u64 %rd2, %rd2, %rd6; add.u64 %rd2, %rd2, %rd7;
  st.global.u64 [%rd1], %rd2; ret; })",
                                     {.block = {1, 1, 1}});
  INFO(result.outcome.error.message);
  REQUIRE(result.outcome.ok);
  CHECK(result.out[0] % 4 == 0);
  CHECK(result.out[0] != 0);
}

TEST_CASE("attributes tell parameters, shared memory and limits") {
  DeviceMemory memory;
  auto program = Program::Load(R"(.version 8.5
.target sm_90
.address_size 64
.shared .align 4 .b8 everywhere[100];
.shared .align 4 .b8 unused[1000];
.global .align 4 .u32 counter[3];
.func touch() { .reg .b32 %r<2>; ld.shared.u32 %r1, [everywhere]; ret; }
.visible .entry k(.param .u32 a, .param .u64 b, .param .align 4 .b8 c[12]) .maxntid 64, 2, 1
{ .shared .align 16 .b8 own[20]; .local .align 8 .b8 l[40]; call.uni touch, (); ret; })",
                               memory);
  REQUIRE(program.ok());
  const Kernel* kernel = (*program)->FindKernel("k");
  REQUIRE(kernel != nullptr);
  const KernelAttributes& attributes = (*program)->Attributes(*kernel);
  CHECK(attributes.parameter_offsets == std::vector<uint32_t>{0, 8, 16});
  CHECK(attributes.parameter_sizes == std::vector<uint32_t>{4, 8, 12});
  CHECK(attributes.parameter_bytes == 28);
  CHECK(attributes.static_shared_bytes == 132);  // 100, aligned to 16, and 20
  CHECK(attributes.local_bytes == 48);
  CHECK(attributes.max_threads_per_block == 128);
  uint64_t address = 0;
  uint64_t size = 0;
  REQUIRE((*program)->FindVariable("counter", &address, &size));
  CHECK(size == 12);
  CHECK(memory.Accessible(address, 12));
  CHECK((*program)->FindKernel("touch") == nullptr);
}

TEST_CASE("a syntax error is reported with its place") {
  DeviceMemory memory;
  const auto program =
      Program::Load(".version 8.5\n.target sm_90\n.visible .entry k() { add.u32 %r1 }\n", memory);
  REQUIRE_FALSE(program.ok());
  CHECK(program.error().line == 3);
}

}  // namespace
}  // namespace ops_debug::emulator
