// Prints thread-instructions per second of processor time, on one host thread:
//   emulator_speed [seconds per kernel, default 0.5]
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <span>
#include <string>

#include "emulator/executor.h"

namespace ops_debug::emulator {
namespace {

const char kPtx[] = R"(.version 8.5
.target sm_90
.address_size 64
.visible .entry integer(.param .u64 x, .param .u64 y)
{
.reg .pred %p<4>; .reg .b32 %r<16>; .reg .b64 %rd<16>;
ld.param.u64 %rd1, [x];
mov.u32 %r1, %tid.x; mov.u32 %r2, 0; mov.u32 %r3, 7; cvt.u64.u32 %rd2, %r1;
LOOP:
add.s32 %r3, %r3, %r1; mul.lo.s32 %r4, %r3, 3; shl.b32 %r5, %r4, 2; and.b32 %r6, %r5, 255;
add.s64 %rd3, %rd2, 8; shl.b64 %rd4, %rd3, 2; add.s64 %rd5, %rd4, %rd1; sub.s64 %rd6, %rd5, %rd1;
add.s32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 2000; @%p1 bra LOOP;
ret;
}
.visible .entry floating(.param .u64 x, .param .u64 y)
{
.reg .pred %p<4>; .reg .b32 %r<16>; .reg .f32 %f<16>;
mov.u32 %r2, 0; mov.f32 %f1, 0f3F800000; mov.f32 %f2, 0f3F000000; mov.f32 %f3, 0f00000000;
LOOP:
fma.rn.f32 %f3, %f1, %f2, %f3; add.f32 %f4, %f3, %f1; mul.f32 %f5, %f4, %f2; fma.rn.f32 %f6, %f5, %f4, %f3;
add.s32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 2000; @%p1 bra LOOP;
ret;
}
.visible .entry copy(.param .u64 x, .param .u64 y)
{
.reg .pred %p<4>; .reg .b32 %r<16>; .reg .b64 %rd<16>; .reg .f32 %f<4>;
ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y];
mov.u32 %r1, %tid.x; mov.u32 %r2, 0; mul.wide.u32 %rd3, %r1, 4; add.s64 %rd4, %rd1, %rd3; add.s64 %rd5, %rd2, %rd3;
LOOP:
ld.global.f32 %f1, [%rd4]; st.global.f32 [%rd5], %f1;
add.s32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 1000; @%p1 bra LOOP;
ret;
}
.visible .entry checked(.param .u64 x, .param .u64 y)
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
setp.ge.s32 %p1, %r4, 4096; @%p1 bra DONE;
mul.wide.s32 %rd3, %r4, 4; add.s64 %rd4, %rd1, %rd3; add.s64 %rd5, %rd2, %rd3;
ld.global.f32 %f1, [%rd4]; ld.global.f32 %f2, [%rd5]; fma.rn.f32 %f3, %f1, 0f40000000, %f2; st.global.f32 [%rd5], %f3;
DONE: ret;
}
)";

void Measure(const Program& program, DeviceMemory& memory, const char* name, double seconds) {
  const Kernel* kernel = program.FindKernel(name);
  const uint64_t parameters[2] = {memory.Allocate(1 << 16), memory.Allocate(1 << 16)};
  LaunchConfig config;
  config.grid = {16, 1, 1};
  config.block = {256, 1, 1};
  config.parameters = std::as_bytes(std::span(parameters));
  uint64_t instructions = 0;
  // Processor time: other programs on the machine do not count.
  const std::clock_t start = std::clock();
  double elapsed = 0;
  do {
    const LaunchOutcome outcome = Run(program, *kernel, config, DeviceModel{}, memory, 1);
    if (!outcome.ok) {
      std::printf("%s: %s\n", name, outcome.error.message.c_str());
      return;
    }
    instructions += outcome.thread_instructions;
    elapsed = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  } while (elapsed < seconds);
  std::printf("%-14s %8.0f M thread-instructions/s\n", name,
              static_cast<double>(instructions) / elapsed / 1e6);
}

}  // namespace

int MeasureAll(double seconds) {
  DeviceMemory memory;
  auto program = Program::Load(kPtx, memory);
  if (!program.ok()) {
    std::printf("%s\n", program.error().ToString().c_str());
    return 1;
  }
  for (const std::string& name : (*program)->KernelNames()) {
    Measure(**program, memory, name.c_str(), seconds);
  }
  return 0;
}

}  // namespace ops_debug::emulator

int main(int argc, char** argv) {
  return ops_debug::emulator::MeasureAll(argc > 1 ? std::atof(argv[1]) : 0.5);
}
