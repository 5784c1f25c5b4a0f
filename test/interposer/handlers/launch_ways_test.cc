// Less common ways to launch, nodes of graphs, and what becomes of calls that fail.
#include <catch2/catch.hpp>

#include "interposer/call_failure.h"
#include "interposer/launch_record.h"
#include "interposer/leak_check.h"
#include "interposer/stack_cache.h"
#include "test/interposer/handlers/fake_driver.h"
#include "test/interposer/handlers/session.h"

namespace ops_debug::interposer::handlers_test {
namespace {

using fake::TheDriver;

struct Loaded {
  CUmodule module = nullptr;
  CUfunction scale = nullptr;
  Loaded() {
    REQUIRE(cuModuleLoadData(&module, ScaleText()) == CUDA_SUCCESS);
    REQUIRE(cuModuleGetFunction(&scale, module, "scale") == CUDA_SUCCESS);
  }
  ~Loaded() { cuModuleUnload(module); }
};

std::vector<proto::LaunchSummary> Summaries() {
  SendLaunchSummaries();
  return Pick<proto::LaunchSummary>(TakeEvents(), &proto::Event::has_launch_summary,
                                    &proto::Event::launch_summary);
}

}  // namespace

TEST_CASE("a cooperative launch over several devices runs twins on all of them") {
  StartTest();
  Loaded loaded;
  CUdeviceptr p = 0;
  int n = 0;
  void* parameters[] = {&p, &n};
  CUDA_LAUNCH_PARAMS launch{};
  launch.function = loaded.scale;
  launch.gridDimX = launch.gridDimY = launch.gridDimZ = 1;
  launch.blockDimX = 32;
  launch.blockDimY = launch.blockDimZ = 1;
  launch.kernelParams = parameters;
  CUDA_LAUNCH_PARAMS launches[] = {launch, launch};
  REQUIRE(cuLaunchCooperativeKernelMultiDevice(launches, 2, 0) == CUDA_SUCCESS);
  REQUIRE(TheDriver().launches.size() == 2);
  CHECK(TheDriver().launches[0].kernel == "scale$ops_debug");
  CHECK(TheDriver().launches[1].kernel == "scale$ops_debug");
  CHECK(launches[0].function == loaded.scale);  // the program's own array stays as it is
  const auto summaries = Summaries();
  REQUIRE(summaries.size() == 1);
  CHECK(summaries[0].checked_launches() == 2);
  CHECK(summaries[0].engine() == "ptx");
}

TEST_CASE("if one device cannot run the twin, all run the original") {
  StartTest();
  Loaded loaded;
  TheDriver().twin_result = CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  CUdeviceptr p = 0;
  int n = 0;
  void* parameters[] = {&p, &n};
  CUDA_LAUNCH_PARAMS launches[2] = {};
  for (CUDA_LAUNCH_PARAMS& launch : launches) {
    launch.function = loaded.scale;
    launch.kernelParams = parameters;
  }
  REQUIRE(cuLaunchCooperativeKernelMultiDevice(launches, 2, 0) == CUDA_SUCCESS);
  REQUIRE(TheDriver().launches.size() == 2);
  CHECK(TheDriver().launches[0].kernel == "scale");
  const auto summaries = Summaries();
  REQUIRE(summaries.size() == 1);
  CHECK(summaries[0].launches() == 2);
  CHECK(summaries[0].checked_launches() == 0);
}

TEST_CASE("a launch whose parameters were set one by one runs the original, with the reason") {
  StartTest();
  Loaded loaded;
  REQUIRE(cuLaunchGrid(loaded.scale, 1, 1) == CUDA_SUCCESS);
  REQUIRE(TheDriver().launches.size() == 1);
  CHECK(TheDriver().launches[0].kernel == "scale");
  const auto summaries = Summaries();
  REQUIRE(summaries.size() == 1);
  CHECK(summaries[0].launches() == 1);
  CHECK(summaries[0].checked_launches() == 0);
  CHECK(summaries[0].not_checked_reason().find("CUDA 3") != std::string::npos);
}

TEST_CASE("an added node holds the twin, with bounds left to shadow memory") {
  StartTest();
  Loaded loaded;
  CUdeviceptr p = 0;
  REQUIRE(cuMemAlloc_v2(&p, 4000) == CUDA_SUCCESS);
  int n = 7;
  void* values[] = {&p, &n};
  CUDA_KERNEL_NODE_PARAMS_v2 parameters{};
  parameters.func = loaded.scale;
  parameters.gridDimX = parameters.gridDimY = parameters.gridDimZ = 1;
  parameters.blockDimX = 32;
  parameters.blockDimY = parameters.blockDimZ = 1;
  parameters.kernelParams = values;
  uint64_t launch_id = 0, bounds = 0;
  TheDriver().on_launch = [&](const fake::Launch& launch) {
    CHECK(launch.kernel == "scale$ops_debug");
    CHECK(*static_cast<CUdeviceptr*>(launch.parameters[0]) == p);
    const auto* extra = static_cast<const uint64_t*>(launch.parameters[2]);
    launch_id = extra[0];
    bounds = extra[1];
  };
  CUgraphNode node = nullptr;
  REQUIRE(cuGraphAddKernelNode_v2(&node, nullptr, nullptr, 0, &parameters) == CUDA_SUCCESS);
  CHECK(bounds == shadow::kBoundsUseShadow);
  CHECK(parameters.func == loaded.scale);
  LaunchRecord record;
  REQUIRE(FindLaunch(launch_id, &record));
  CHECK(Describe(record).graph_node);
  CHECK(Describe(record).stack.size() > 0);
  CHECK(Summaries().empty());  // nothing was launched yet
  cuMemFree_v2(p);
}

TEST_CASE("records of graph nodes outlive any number of launches") {
  StartTest();
  Loaded loaded;
  LaunchRecord node;
  node.id = NextLaunchId();
  node.graph_node = true;
  RememberLaunch(node);
  LaunchRecord launch;
  launch.id = NextLaunchId();
  RememberLaunch(launch);
  for (uint64_t i = 0; i < kRememberedLaunches; i++) {
    LaunchRecord other;
    other.id = NextLaunchId();
    RememberLaunch(other);
  }
  LaunchRecord found;
  CHECK(FindLaunch(node.id, &found));
  CHECK_FALSE(FindLaunch(launch.id, &found));
}

TEST_CASE("a node that names its kernel by another handle is recognised by name and module") {
  StartTest();
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  REQUIRE(cuLibraryLoadData(&library, ScaleText(), nullptr, nullptr, 0, nullptr, nullptr, 0) ==
          CUDA_SUCCESS);
  REQUIRE(cuLibraryGetKernel(&kernel, library, "scale") == CUDA_SUCCESS);
  CUdeviceptr p = 0;
  int n = 0;
  void* values[] = {&p, &n};
  REQUIRE(cuLaunchKernel(reinterpret_cast<CUfunction>(kernel), 1, 1, 1, 32, 1, 1, 0, nullptr,
                         values, nullptr) == CUDA_SUCCESS);
  REQUIRE(TheDriver().launches.back().kernel == "scale$ops_debug");
  TheDriver().nodes_have_other_handles = true;
  CUDA_KERNEL_NODE_PARAMS_v2 parameters{};
  REQUIRE(cuGraphKernelNodeGetParams_v2(nullptr, &parameters) == CUDA_SUCCESS);
  const char* name = nullptr;
  REQUIRE(cuFuncGetName(&name, parameters.func) == CUDA_SUCCESS);
  CHECK(std::string(name) == "scale");
  cuLibraryUnload(library);
}

TEST_CASE("which failures are findings, notes and answers") {
  using F = DriverFunction;
  CHECK(SortOf(F::cuMemcpyHtoD_v2, CUDA_ERROR_INVALID_VALUE) == FailureSort::kFinding);
  CHECK(SortOf(F::cuMemcpyHtoDAsync_v2_ptsz, CUDA_ERROR_INVALID_VALUE) == FailureSort::kFinding);
  CHECK(SortOf(F::cuMemFree_v2, CUDA_ERROR_INVALID_VALUE) == FailureSort::kFinding);
  CHECK(SortOf(F::cuEventRecord, CUDA_ERROR_INVALID_HANDLE) == FailureSort::kFinding);
  CHECK(SortOf(F::cuMemAlloc_v2, CUDA_ERROR_OUT_OF_MEMORY) == FailureSort::kNote);
  CHECK(SortOf(F::cuLibraryLoadData, CUDA_ERROR_NO_BINARY_FOR_GPU) == FailureSort::kNote);
  CHECK(SortOf(F::cuStreamQuery, CUDA_ERROR_NOT_READY) == FailureSort::kExpected);
  CHECK(SortOf(F::cuEventElapsedTime, CUDA_ERROR_NOT_READY) == FailureSort::kExpected);
  CHECK(SortOf(F::cuPointerGetAttribute, CUDA_ERROR_INVALID_VALUE) == FailureSort::kExpected);
  CHECK(SortOf(F::cuModuleGetGlobal_v2, CUDA_ERROR_NOT_FOUND) == FailureSort::kExpected);
  CHECK(SortOf(F::cuModuleGetFunction, CUDA_ERROR_NOT_FOUND) == FailureSort::kExpected);
  CHECK(SortOf(F::cuGetProcAddress_v2, CUDA_ERROR_NOT_FOUND) == FailureSort::kExpected);
  CHECK(SortOf(F::cuCtxEnablePeerAccess, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) ==
        FailureSort::kExpected);
  CHECK(SortOf(F::cuMemHostRegister_v2, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED) ==
        FailureSort::kExpected);
  CHECK(SortOf(F::cuGraphExecUpdate_v2, CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE) ==
        FailureSort::kExpected);
  CHECK(SortOf(F::cuMemFree_v2, CUDA_ERROR_DEINITIALIZED) == FailureSort::kExpected);
  CHECK(SortOf(F::cuLaunchKernel, CUDA_ERROR_INVALID_VALUE) ==
        FailureSort::kExpected);  // own event
}

TEST_CASE("a failed call is told once per place, with the reason from its arguments") {
  StartTest();
  Loaded loaded;
  TheDriver().attribute_result = CUDA_ERROR_INVALID_VALUE;
  for (int i = 0; i < 3; i++) {
    CHECK(cuFuncSetAttribute(loaded.scale, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                             1 << 20) == CUDA_ERROR_INVALID_VALUE);
  }
  const auto failed = Pick<proto::CallFailed>(TakeEvents(), &proto::Event::has_call_failed,
                                              &proto::Event::call_failed);
  REQUIRE(failed.size() == 1);
  CHECK(failed[0].api() == "cuFuncSetAttribute");
  CHECK(failed[0].error() == "CUDA_ERROR_INVALID_VALUE");
  CHECK(failed[0].reason().find("1048576 bytes of dynamic shared memory") != std::string::npos);
  CHECK(failed[0].reason().find("232448") != std::string::npos);
  CHECK(failed[0].stack().frames_size() > 0);
  CHECK(failed[0].count() == 1);
}

TEST_CASE("a pool's segments are one note that lists what is alive, other memory is a leak each") {
  StartTest();
  CUdeviceptr plain = 0, segment = 0;
  REQUIRE(cuMemAlloc_v2(&plain, 3000) == CUDA_SUCCESS);
  REQUIRE(cuMemAlloc_v2(&segment, 1 << 20) == CUDA_SUCCESS);
  shadow::PoolBlock block;
  block.base = segment + 512;
  block.size_bytes = 4096;
  block.reserved_bytes = 4096;
  block.api = "PyTorch caching allocator";
  block.tensor.framework = "PyTorch";
  block.tensor.dtype = "float32";
  block.tensor.has_shape = true;
  block.tensor.rank = 2;
  block.tensor.shape = {32, 32};
  REQUIRE(Book().HandOut(block));
  TakeEvents();
  ReportLeaks(nullptr);
  const auto events = TakeEvents();
  const auto leaks = Pick<proto::Leak>(events, &proto::Event::has_leak, &proto::Event::leak);
  size_t of_plain = 0, of_segment = 0;
  for (const proto::Leak& leak : leaks) {
    of_plain += leak.allocation().address() == plain;
    of_segment += leak.allocation().address() == segment;
  }
  CHECK(of_plain == 1);
  CHECK(of_segment == 0);
  const auto notes =
      Pick<proto::Diagnostic>(events, &proto::Event::has_diagnostic, &proto::Event::diagnostic);
  REQUIRE(notes.size() == 1);
  CHECK(notes[0].severity() == proto::Diagnostic::SEVERITY_NOTE);
  CHECK(notes[0].text() ==
        "PyTorch caching allocator still holds 1048576 bytes in 1 segment, 1 block in use "
        "(4096 bytes): float32 [32, 32], 4096 bytes");
  cuMemFree_v2(segment);
  cuMemFree_v2(plain);
}

namespace {

__attribute__((noinline)) SharedHostStack FromOnePlace(int depth) {
  SharedHostStack stack = depth > 0 ? FromOnePlace(depth - 1) : CachedHostStack();
  __asm__ volatile("");  // no tail call
  return stack;
}
__attribute__((noinline)) SharedHostStack FromAnotherPlace(int depth) {
  SharedHostStack stack = depth > 0 ? FromAnotherPlace(depth - 1) : CachedHostStack();
  __asm__ volatile("");
  return stack;
}

}  // namespace

TEST_CASE("stacks from one place are walked once, and those of other places are not mixed up") {
  SharedHostStack same[3], deeper, other;
  for (SharedHostStack& each : same) each = FromOnePlace(4);
  deeper = FromOnePlace(5);
  other = FromAnotherPlace(4);
  CHECK(same[0] == same[1]);  // the very same object
  CHECK(same[1] == same[2]);
  CHECK(deeper != same[0]);
  CHECK(other != same[0]);
}

}  // namespace ops_debug::interposer::handlers_test
