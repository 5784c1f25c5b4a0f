#include "test/emulator/executor/kernel_run.h"

#include <catch2/catch.hpp>
#include <cstring>

namespace ops_debug::emulator {

RunResult RunModule(const std::string& ptx, const RunOptions& options) {
  DeviceMemory memory;
  auto loaded = Program::Load(ptx, memory);
  if (!loaded.ok()) FAIL(loaded.error().ToString() << "\n" << ptx);
  const Program& program = **loaded;
  const Kernel* kernel = program.FindKernel("kernel");
  REQUIRE(kernel != nullptr);
  RunResult result;
  const uint64_t threads = static_cast<uint64_t>(options.grid.x) * options.grid.y * options.grid.z *
                           options.block.x * options.block.y * options.block.z;
  result.out.assign(options.out_words == 0 ? threads : options.out_words, 0);
  const uint64_t out = memory.Allocate(result.out.size() * 8);
  const uint64_t in = memory.Allocate(options.in.size() * 8 + 8);
  std::memset(reinterpret_cast<void*>(out), 0, result.out.size() * 8);
  if (!options.in.empty())
    std::memcpy(reinterpret_cast<void*>(in), options.in.data(), options.in.size() * 8);
  const uint64_t parameters[2] = {out, in};
  LaunchConfig config;
  config.grid = options.grid;
  config.block = options.block;
  config.dynamic_shared_bytes = options.dynamic_shared_bytes;
  config.cooperative = options.cooperative;
  config.schedule_seed = options.schedule_seed;
  config.resident_blocks = options.resident_blocks;
  config.checks = options.checks;
  config.cluster = options.cluster;
  config.explicit_cluster = options.cluster.x > 1 || options.cluster.y > 1 || options.cluster.z > 1;
  config.parameters = std::as_bytes(std::span(parameters));
  result.outcome = Run(program, *kernel, config, DeviceModel{}, memory, options.workers);
  std::memcpy(result.out.data(), reinterpret_cast<const void*>(out), result.out.size() * 8);
  return result;
}

RunResult RunBody(const std::string& body, const RunOptions& options) {
  return RunModule(R"(.version 8.5
.target sm_90
.address_size 64
)" + options.preamble + R"(
.visible .entry kernel(.param .u64 out, .param .u64 in)
{
.reg .pred %p<64>; .reg .b16 %h<64>; .reg .b32 %r<64>; .reg .b64 %rd<64>; .reg .f32 %f<64>; .reg .f64 %fd<64>;
ld.param.u64 %rd1, [out];
ld.param.u64 %rd2, [in];
mov.u32 %r1, %tid.x;
mad.wide.u32 %rd3, %r1, 8, %rd1;
)" + body + "\nret;\n}\n",
                   options);
}

void CheckInstructions(std::span<const InstructionCase> cases) {
  std::string body;
  RunOptions options;
  options.block.x = 1;
  options.out_words = cases.size();
  for (size_t i = 0; i < cases.size(); ++i) {
    const InstructionCase& test = cases[i];
    for (uint64_t value : {test.a, test.b, test.c}) options.in.push_back(value);
    for (int k = 0; k < 3; ++k) {
      const std::string n = std::to_string(11 + k);
      body += "ld.global.u64 %rd" + n + ", [%rd2+" + std::to_string((i * 3 + k) * 8) + "];\n";
      body += "cvt.u32.u64 %r" + n + ", %rd" + n + "; cvt.u16.u64 %h" + n + ", %rd" + n + ";\n";
      body += "mov.b32 %f" + n + ", %r" + n + "; mov.b64 %fd" + n + ", %rd" + n + ";\n";
    }
    const std::string text = test.text;
    body += text + "\n";
    // The result's register class decides how it becomes 64 bits.
    const auto names = [&text](const char* name) { return text.find(name) != std::string::npos; };
    if (names("%r10")) body += "cvt.u64.u32 %rd10, %r10;\n";
    if (names("%h10")) body += "cvt.u64.u16 %rd10, %h10;\n";
    if (names("%f10")) body += "mov.b32 %r10, %f10; cvt.u64.u32 %rd10, %r10;\n";
    if (names("%fd10")) body += "mov.b64 %rd10, %fd10;\n";
    if (names("%p10")) body += "selp.b64 %rd10, 1, 0, %p10;\n";
    body += "st.global.u64 [%rd1+" + std::to_string(i * 8) + "], %rd10;\n";
  }
  const RunResult result = RunBody(body, options);
  INFO(result.outcome.error.message);
  REQUIRE(result.outcome.ok);
  for (size_t i = 0; i < cases.size(); ++i) {
    INFO(cases[i].text << std::hex << " a=" << cases[i].a << " b=" << cases[i].b
                       << " c=" << cases[i].c);
    CHECK(result.out[i] == cases[i].expected);
  }
}

uint64_t F32(float value) { return __builtin_bit_cast(uint32_t, value); }
uint64_t F64(double value) { return __builtin_bit_cast(uint64_t, value); }

}  // namespace ops_debug::emulator
