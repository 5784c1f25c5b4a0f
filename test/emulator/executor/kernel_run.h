// Runs small PTX kernels on the executor. A kernel gets two pointers: `out`, one 64-bit word per
// thread (zero at start), and `in`, the words that the test passes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "emulator/executor.h"

namespace ops_debug::emulator {

struct RunOptions {
  Dim3 grid{1, 1, 1}, block{32, 1, 1};
  uint32_t dynamic_shared_bytes = 0;
  uint32_t workers = 1;
  std::vector<uint64_t> in;
  uint64_t out_words = 0;  // 0: one per thread
  std::string preamble;    // module scope: functions and variables in front of the kernel
  bool cooperative = false;
  Dim3 cluster;
  uint64_t schedule_seed = 0;
  uint64_t resident_blocks = 0;
  Checks* checks = nullptr;
};

struct RunResult {
  LaunchOutcome outcome;
  std::vector<uint64_t> out;
};

// The registers %p %h %r %rd %f %fd <64 each> exist; %rd1 = out, %rd2 = in, %r1 = %tid.x, %rd3 =
// address of this thread's word. `body` may use them as it likes.
RunResult RunBody(const std::string& body, const RunOptions& options = {});

// As RunBody, for a whole module whose kernel is called `kernel` and has the parameters out and in.
RunResult RunModule(const std::string& ptx, const RunOptions& options = {});

// The result of one instruction in one lane: register operands a, b, c are named %r11 %r12 %r13
// (%h.. %rd.. %f.. %fd..), the result %r10 (%h10 %rd10 %f10 %fd10).
struct InstructionCase {
  const char* text;
  uint64_t a, b, c;
  uint64_t expected;
};
void CheckInstructions(std::span<const InstructionCase> cases);

// Float and half literals as register contents.
uint64_t F32(float value);
uint64_t F64(double value);

}  // namespace ops_debug::emulator
