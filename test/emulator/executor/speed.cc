// Thread-instructions per second of the executor, by kind of instruction; not a test.
//
//   emulator_speed [SECONDS [KERNEL]]         a table: one host thread, processor time
//   emulator_speed --csv [SECONDS [KERNEL]]   for scripts/bench_emulator.py: with one, two and four
//                                             times the blocks, and on all cores
//
// The loops are those of plain_loops.cc.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <span>
#include <string>
#include <thread>

#include "emulator/executor.h"

namespace ops_debug::emulator {
namespace {

constexpr uint32_t kBlocks = 16, kThreads = 256;
constexpr uint64_t kBufferBytes = uint64_t{64} << 20;

const char kPtx[] = R"(.version 8.5
.target sm_90
.address_size 64
.visible .entry integer(.param .u64 x, .param .u64 y)
{
.reg .pred %p<4>; .reg .b32 %r<16>; .reg .b64 %rd<16>;
ld.param.u64 %rd1, [x]; mov.u32 %r1, %tid.x; mov.u32 %r2, 0; mov.u32 %r3, %r1; mov.u32 %r4, 1; mov.u32 %r5, %r1;
cvt.u64.u32 %rd2, %r1; mov.u64 %rd3, 1;
LOOP:
mad.lo.u32 %r3, %r3, 1664525, 1013904223; shr.u32 %r6, %r3, 7; xor.b32 %r4, %r4, %r6; add.s32 %r3, %r3, %r4;
min.u32 %r5, %r5, %r3; add.s64 %rd3, %rd3, %rd2; xor.b64 %rd2, %rd2, %rd3; and.b32 %r4, %r4, 16777215;
add.s32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 2000; @%p1 bra LOOP;
cvt.u32.u64 %r7, %rd3; add.s32 %r3, %r3, %r4; add.s32 %r3, %r3, %r5; add.s32 %r3, %r3, %r7;
mul.wide.u32 %rd4, %r1, 4; add.s64 %rd4, %rd4, %rd1; st.global.u32 [%rd4], %r3;
ret;
}
.visible .entry fma_f32(.param .u64 x, .param .u64 y)
{
.reg .pred %p<4>; .reg .b32 %r<16>; .reg .f32 %f<16>; .reg .b64 %rd<4>;
ld.param.u64 %rd1, [x]; mov.u32 %r1, %tid.x; mov.u32 %r2, 0; cvt.rn.f32.u32 %f1, %r1; mov.f32 %f2, 0f3F7FFF00;
mov.f32 %f3, %f1; mov.f32 %f4, %f1; mov.f32 %f5, %f1; mov.f32 %f6, %f1;
LOOP:
fma.rn.f32 %f3, %f3, %f2, %f1; fma.rn.f32 %f4, %f4, %f2, %f1; fma.rn.f32 %f5, %f5, %f2, %f1; fma.rn.f32 %f6, %f6, %f2, %f1;
add.s32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 2000; @%p1 bra LOOP;
add.f32 %f3, %f3, %f4; add.f32 %f5, %f5, %f6; add.f32 %f3, %f3, %f5;
mul.wide.u32 %rd2, %r1, 4; add.s64 %rd2, %rd2, %rd1; st.global.f32 [%rd2], %f3;
ret;
}
.visible .entry fma_f64(.param .u64 x, .param .u64 y)
{
.reg .pred %p<4>; .reg .b32 %r<16>; .reg .f64 %d<16>; .reg .b64 %rd<4>;
ld.param.u64 %rd1, [x]; mov.u32 %r1, %tid.x; mov.u32 %r2, 0; cvt.rn.f64.u32 %d1, %r1; mov.f64 %d2, 0d3FEFFFFF00000000;
mov.f64 %d3, %d1; mov.f64 %d4, %d1; mov.f64 %d5, %d1; mov.f64 %d6, %d1;
LOOP:
fma.rn.f64 %d3, %d3, %d2, %d1; fma.rn.f64 %d4, %d4, %d2, %d1; fma.rn.f64 %d5, %d5, %d2, %d1; fma.rn.f64 %d6, %d6, %d2, %d1;
add.s32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 2000; @%p1 bra LOOP;
add.f64 %d3, %d3, %d4; add.f64 %d5, %d5, %d6; add.f64 %d3, %d3, %d5;
mul.wide.u32 %rd2, %r1, 8; add.s64 %rd2, %rd2, %rd1; st.global.f64 [%rd2], %d3;
ret;
}
.visible .entry copy_cached(.param .u64 x, .param .u64 y)
{
.reg .pred %p<4>; .reg .b32 %r<16>; .reg .b64 %rd<16>; .reg .f32 %f<4>;
ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y];
mov.u32 %r1, %tid.x; mov.u32 %r2, 0; mul.wide.u32 %rd3, %r1, 4; add.s64 %rd4, %rd1, %rd3; add.s64 %rd5, %rd2, %rd3;
LOOP:
ld.global.f32 %f1, [%rd4]; st.global.f32 [%rd5], %f1;
add.s32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 1000; @%p1 bra LOOP;
ret;
}
.visible .entry add_streaming(.param .u64 x, .param .u64 y)
{
.reg .pred %p<4>; .reg .b32 %r<16>; .reg .b64 %rd<16>; .reg .f32 %f<4>;
ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y];
mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mad.lo.s32 %r3, %r2, 65536, %r1; mov.u32 %r4, 0;
mul.wide.u32 %rd3, %r3, 4; add.s64 %rd4, %rd1, %rd3; add.s64 %rd5, %rd2, %rd3;
LOOP:
ld.global.f32 %f1, [%rd4]; ld.global.f32 %f2, [%rd5]; add.f32 %f3, %f1, %f2; st.global.f32 [%rd5], %f3;
add.s64 %rd4, %rd4, 1024; add.s64 %rd5, %rd5, 1024;
add.s32 %r4, %r4, 1; setp.lt.u32 %p1, %r4, 256; @%p1 bra LOOP;
ret;
}
.visible .entry shared(.param .u64 x, .param .u64 y)
{
.reg .pred %p<4>; .reg .b32 %r<16>; .reg .b64 %rd<4>;
.shared .align 4 .b8 tile[1024];
ld.param.u64 %rd1, [x]; mov.u32 %r1, %tid.x; mov.u32 %r2, 0; mov.u32 %r3, tile; shl.b32 %r4, %r1, 2; add.s32 %r5, %r3, %r4;
xor.b32 %r6, %r4, 4; add.s32 %r7, %r3, %r6; st.shared.u32 [%r5], %r1; bar.sync 0;
LOOP:
ld.shared.u32 %r8, [%r7]; add.s32 %r8, %r8, 3; st.shared.u32 [%r5], %r8;
add.s32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 1000; @%p1 bra LOOP;
ret;
}
.visible .entry divergent(.param .u64 x, .param .u64 y)
{
.reg .pred %p<4>; .reg .b32 %r<16>; .reg .b64 %rd<4>;
ld.param.u64 %rd1, [x]; mov.u32 %r1, %tid.x; mov.u32 %r2, 0; mov.u32 %r3, %r1;
LOOP:
and.b32 %r4, %r3, 1; setp.ne.u32 %p1, %r4, 0; @%p1 bra ODD;
shr.u32 %r3, %r3, 1; add.s32 %r3, %r3, %r1; xor.b32 %r3, %r3, 85; bra NEXT;
ODD:
mul.lo.u32 %r3, %r3, 3; add.s32 %r3, %r3, 1; shr.u32 %r3, %r3, 1;
NEXT:
add.s32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, 1000; @%p2 bra LOOP;
mul.wide.u32 %rd2, %r1, 4; add.s64 %rd2, %rd2, %rd1; st.global.u32 [%rd2], %r3;
ret;
}
.visible .entry atomics(.param .u64 x, .param .u64 y)
{
.reg .pred %p<4>; .reg .b32 %r<16>; .reg .b64 %rd<8>;
ld.param.u64 %rd1, [x]; mov.u32 %r1, %tid.x; mov.u32 %r2, 0; and.b32 %r3, %r1, 63; mul.wide.u32 %rd2, %r3, 4; add.s64 %rd3, %rd1, %rd2;
LOOP:
red.global.add.u32 [%rd3], %r1; atom.global.add.u32 %r4, [%rd3], 1;
add.s32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 200; @%p1 bra LOOP;
ret;
}
.visible .entry mma(.param .u64 x, .param .u64 y)
{
.reg .pred %p<4>; .reg .b32 %r<16>; .reg .f32 %f<8>; .reg .b64 %rd<8>;
ld.param.u64 %rd1, [x]; mov.u32 %r1, %tid.x; mov.u32 %r2, 0; mov.u32 %r3, 0x3c003800; mov.u32 %r4, 0x38003c00;
mov.f32 %f1, 0f00000000; mov.f32 %f2, 0f00000000; mov.f32 %f3, 0f00000000; mov.f32 %f4, 0f00000000;
LOOP:
mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1, %f2, %f3, %f4}, {%r3, %r4, %r4, %r3}, {%r3, %r4}, {%f1, %f2, %f3, %f4};
add.s32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 100; @%p1 bra LOOP;
add.f32 %f1, %f1, %f2; add.f32 %f1, %f1, %f3; add.f32 %f1, %f1, %f4;
mul.wide.u32 %rd2, %r1, 4; add.s64 %rd2, %rd2, %rd1; st.global.f32 [%rd2], %f1;
ret;
}
.visible .entry checked_copy(.param .u64 x, .param .u64 y)
{
.reg .pred %p<4>; .reg .b32 %r<16>; .reg .b64 %rd<16>; .reg .f32 %f<4>;
ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y];
mov.u32 %r1, %tid.x; mov.u32 %r2, 0; mul.wide.u32 %rd3, %r1, 4; add.s64 %rd4, %rd1, %rd3; add.s64 %rd5, %rd2, %rd3;
LOOP:
ld.param.u64 %rd6, [x]; sub.s64 %rd7, %rd4, %rd6; setp.gt.u64 %p2, %rd7, 4000; @%p2 bra SLOW;
ld.global.f32 %f1, [%rd4];
ld.param.u64 %rd8, [y]; sub.s64 %rd9, %rd5, %rd8; setp.gt.u64 %p3, %rd9, 4000; @%p3 bra SLOW;
st.global.f32 [%rd5], %f1;
add.s32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 1000; @%p1 bra LOOP;
SLOW:
ret;
}
.visible .entry short_threads(.param .u64 x, .param .u64 y)
{
.reg .pred %p<4>; .reg .b32 %r<16>; .reg .b64 %rd<16>; .reg .f32 %f<8>;
ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y];
mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mad.lo.s32 %r4, %r2, %r3, %r1;
setp.ge.s32 %p1, %r4, 65536; @%p1 bra DONE;
mul.wide.s32 %rd3, %r4, 4; add.s64 %rd4, %rd1, %rd3; add.s64 %rd5, %rd2, %rd3;
ld.global.f32 %f1, [%rd4]; ld.global.f32 %f2, [%rd5]; fma.rn.f32 %f3, %f1, 0f40000000, %f2; st.global.f32 [%rd5], %f3;
DONE: ret;
}
)";

struct Measurement {
  double wall_s = 0, processor_s = 0;
  uint64_t thread_instructions = 0;
  uint64_t launches = 0;
  bool ok = true;
};

// Launches again and again until `seconds` of wall time have gone by.
Measurement Measure(const Program& program, const Kernel& kernel, DeviceMemory& memory,
                    const uint64_t (&parameters)[2], uint32_t blocks, uint32_t workers,
                    double seconds) {
  using Clock = std::chrono::steady_clock;
  LaunchConfig config;
  config.grid = {blocks, 1, 1};
  config.block = {kThreads, 1, 1};
  config.parameters = std::as_bytes(std::span(parameters));
  Measurement result;
  const std::clock_t processor_start = std::clock();
  const auto start = Clock::now();
  do {
    const LaunchOutcome outcome = Run(program, kernel, config, DeviceModel{}, memory, workers);
    if (!outcome.ok) {
      std::fprintf(stderr, "%s\n", outcome.error.message.c_str());
      result.ok = false;
      return result;
    }
    result.thread_instructions += outcome.thread_instructions;
    ++result.launches;
    result.wall_s = std::chrono::duration<double>(Clock::now() - start).count();
  } while (result.wall_s < seconds);
  result.processor_s = static_cast<double>(std::clock() - processor_start) / CLOCKS_PER_SEC;
  return result;
}

void PrintCsv(const std::string& name, uint32_t blocks, uint32_t workers,
              const Measurement& result) {
  if (!result.ok) return;
  std::printf("%s,%u,%u,%.6f,%.6f,%llu,%llu\n", name.c_str(), blocks, workers, result.wall_s,
              result.processor_s, static_cast<unsigned long long>(result.thread_instructions),
              static_cast<unsigned long long>(result.launches));
}

}  // namespace

int MeasureAll(bool csv, double seconds, const std::string& only) {
  DeviceMemory memory;
  auto program = Program::Load(kPtx, memory);
  if (!program.ok()) {
    std::printf("%s\n", program.error().ToString().c_str());
    return 1;
  }
  const uint64_t parameters[2] = {memory.Allocate(kBufferBytes), memory.Allocate(kBufferBytes)};
  for (const uint64_t buffer : parameters)
    std::memset(reinterpret_cast<void*>(buffer), 0, kBufferBytes);
  if (csv) std::printf("kernel,blocks,workers,wall_s,processor_s,thread_instructions,launches\n");
  for (const std::string& name : (*program)->KernelNames()) {
    if (!only.empty() && name != only) continue;
    const Kernel& kernel = *(*program)->FindKernel(name);
    const auto measure = [&](uint32_t blocks, uint32_t workers) {
      return Measure(**program, kernel, memory, parameters, blocks, workers, seconds);
    };
    if (!csv) {
      const Measurement result = measure(kBlocks, 1);
      // Processor time: other programs on the machine do not count.
      if (result.ok)
        std::printf("%-14s %8.0f M thread-instructions/s\n", name.c_str(),
                    static_cast<double>(result.thread_instructions) / result.processor_s / 1e6);
      continue;
    }
    for (const uint32_t factor : {1u, 2u, 4u})
      PrintCsv(name, kBlocks * factor, 1, measure(kBlocks * factor, 1));
    const uint32_t cores = std::max(1u, std::thread::hardware_concurrency());
    PrintCsv(name, kBlocks * 4, cores, measure(kBlocks * 4, cores));
  }
  return 0;
}

}  // namespace ops_debug::emulator

int main(int argc, char** argv) {
  const bool csv = argc > 1 && std::string(argv[1]) == "--csv";
  const char* seconds = argc > 1 + csv ? argv[1 + csv] : "0.5";
  return ops_debug::emulator::MeasureAll(csv, std::atof(seconds),
                                         argc > 2 + csv ? argv[2 + csv] : "");
}
