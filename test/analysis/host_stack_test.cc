// Frames of this very program are looked up in its file, as the analyzer looks up those of a
// target.
#include "analysis/host_stack.h"

#include <dlfcn.h>
#include <execinfo.h>

#include <algorithm>

#include "test/analysis/event_builder.h"

namespace ops_debug::analysis {
namespace {

proto::StackTrace Capture() {
  void* addresses[16];
  const int count = backtrace(addresses, 16);
  proto::StackTrace stack;
  for (int i = 0; i < count; ++i) {
    Dl_info info{};
    proto::StackFrame* frame = stack.add_frames();
    if (dladdr(addresses[i], &info) == 0) continue;
    frame->set_module(info.dli_fname[0] == '/' ? info.dli_fname : "/proc/self/exe");
    frame->set_offset(reinterpret_cast<uintptr_t>(addresses[i]) -
                      reinterpret_cast<uintptr_t>(info.dli_fbase));
  }
  return stack;
}

[[gnu::noinline]] proto::StackTrace allocate_buffers(uint32_t* line) {
  *line = __LINE__ + 1;
  proto::StackTrace stack = Capture();
  return stack;
}

TEST_CASE("function, file and line of a host frame come from the debug information") {
  uint32_t line = 0;
  const proto::StackTrace stack = allocate_buffers(&line);
  HostSymbolizer symbolizer;
  const auto frames = symbolizer.Resolve(stack);
  // A sanitizer's own frame may stand in front.
  const auto frame = std::find_if(frames.begin(), frames.end(), [](const HostFrame& candidate) {
    return candidate.function.find("allocate_buffers(unsigned int*)") != std::string::npos;
  });
  REQUIRE(frame != frames.end());
  REQUIRE(frame != frames.begin());
  REQUIRE((frame - 1)->function.find("Capture()") != std::string::npos);
  REQUIRE(frame->file.find("host_stack_test.cc") != std::string::npos);
  REQUIRE(frame->line == line);
}

[[gnu::always_inline]] inline proto::StackTrace inlined_helper(uint32_t* line) {
  *line = __LINE__ + 1;
  proto::StackTrace stack = Capture();
  return stack;
}

[[gnu::noinline]] proto::StackTrace calls_inlined(uint32_t* inner, uint32_t* outer) {
  *outer = __LINE__ + 1;
  proto::StackTrace stack = inlined_helper(inner);
  return stack;
}

TEST_CASE("a function that was inlined is a frame, and its caller has the line of the call") {
  uint32_t inner = 0, outer = 0;
  HostSymbolizer symbolizer;
  const auto frames = symbolizer.Resolve(calls_inlined(&inner, &outer));
  const auto frame = std::find_if(frames.begin(), frames.end(), [](const HostFrame& candidate) {
    return candidate.function.find("inlined_helper") != std::string::npos;
  });
  REQUIRE(frame != frames.end());
  REQUIRE(frame->line == inner);
  REQUIRE(frame + 1 != frames.end());
  REQUIRE((frame + 1)->function.find("calls_inlined(") != std::string::npos);
  REQUIRE((frame + 1)->file.find("host_stack_test.cc") != std::string::npos);
  REQUIRE((frame + 1)->line == outer);
}

TEST_CASE("start code of the C library is left out, main stays") {
  uint32_t line = 0;
  HostSymbolizer symbolizer;
  const auto frames = symbolizer.Resolve(allocate_buffers(&line));
  REQUIRE(frames.back().function == "main");
}

proto::StackTrace Stack(const std::vector<std::pair<std::string, std::string>>& frames) {
  proto::StackTrace stack;
  for (const auto& [module, symbol] : frames) {
    proto::StackFrame* frame = stack.add_frames();
    frame->set_module(module);
    frame->set_symbol(symbol);
    frame->set_offset(0x1234);
    frame->set_symbol_offset(16);
  }
  return stack;
}

std::string Functions(const std::vector<HostFrame>& frames) {
  std::string text;
  for (const HostFrame& frame : frames) text += (text.empty() ? "" : " < ") + frame.function;
  return text;
}

TEST_CASE("frames between the program's call and the driver are left out") {
  HostSymbolizer symbolizer;
  const auto stack = Stack({{"/x/lib/libops_debug_interposer.so", ""},
                            {"/x/libcudart.so.13", "cudaLaunchKernel"},
                            {"/x/app", "_Z32__device_stub__Z15overflow_by_onePfiPfi"},
                            {"/x/app", "_Z15overflow_by_onePfi"},
                            {"/x/app", "_Z6launchv"},
                            {"/x/app", "main"},
                            {"/x/libc.so.6", "__libc_start_main"},
                            {"/x/app", "_start"}});
  REQUIRE(Functions(symbolizer.Resolve(stack, "overflow_by_one(float*, int)")) ==
          "launch() < main");
}

TEST_CASE("a statically linked run-time library is left out by its names") {
  HostSymbolizer symbolizer;
  const auto stack = Stack({{"/x/app", "__cudart808"},
                            {"/x/app", "libcudart_static_5382377d5c772c9d197c0cda9fd9742ee6ad893c"},
                            {"/x/app", "cudaMalloc"},
                            {"/x/app", "main"}});
  REQUIRE(Functions(symbolizer.Resolve(stack)) == "main");
}

TEST_CASE("the C library in the middle of a stack stays") {
  HostSymbolizer symbolizer;
  const auto stack = Stack({{"/x/app", "compare"}, {"/x/libc.so.6", "qsort"}, {"/x/app", "main"}});
  REQUIRE(Functions(symbolizer.Resolve(stack)) == "compare < qsort < main");
}

TEST_CASE("a stack of nothing but tool frames is shown whole") {
  HostSymbolizer symbolizer;
  const auto stack = Stack({{"/x/libcuda.so.1", "cuMemAlloc_v2"}, {"/x/libc.so.6", "clone"}});
  REQUIRE(Functions(symbolizer.Resolve(stack)) == "cuMemAlloc_v2 < clone");
}

TEST_CASE("the stack of a kernel file's run is empty: its host side is the runner") {
  HostSymbolizer symbolizer;
  const auto stack = Stack({{"/x/libcuda.so.1", "cuMemAlloc_v2"}, {"/x/ops-debug-runner", "main"}});
  REQUIRE(symbolizer.Resolve(stack).empty());
}

TEST_CASE("without a readable file the exported symbol stands, else module and offset") {
  HostSymbolizer symbolizer;
  const auto frames = symbolizer.Resolve(Stack({{"/gone/app", "_Z3runv"}, {"/gone/app", ""}}));
  REQUIRE(frames[0].function == "run()");
  REQUIRE(frames[0].function_offset == 16);
  REQUIRE(frames[0].line == 0);
  REQUIRE(frames[1].function == "");
  REQUIRE(frames[1].module == "/gone/app");
  REQUIRE(frames[1].module_offset == 0x1234);
}

TEST_CASE("modules that are no ELF files, and offsets that lie outside, are no harm") {
  HostSymbolizer symbolizer;
  proto::StackTrace stack;
  for (const auto& [module, offset] : {std::pair<const char*, uint64_t>{"/etc/passwd", 16},
                                       {"[vdso]", 1},
                                       {"", 0},
                                       {"/proc/self/exe", ~0ull},
                                       {"/proc/self/exe", 1ull << 60},
                                       {"/dev/null", 5},
                                       {"/", 5}}) {
    proto::StackFrame* frame = stack.add_frames();
    frame->set_module(module);
    frame->set_offset(offset);
  }
  REQUIRE(symbolizer.Resolve(stack).size() == 7);
}

}  // namespace
}  // namespace ops_debug::analysis
