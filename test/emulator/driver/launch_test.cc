// Launches: parameters both ways, attributes, and the shapes a GPU refuses.
#include <vector>

#include "test/emulator/driver/driver_fixture.h"

using namespace ops_debug::emulator::test;  // NOLINT(google-build-using-namespace): test helpers

namespace {

std::vector<int> Read(CUdeviceptr address, size_t count) {
  std::vector<int> values(count);
  REQUIRE(cuMemcpyDtoH(values.data(), address, count * sizeof(int)) == CUDA_SUCCESS);
  return values;
}

CUdeviceptr Zeros(size_t count) {
  const CUdeviceptr address = Allocate(count * sizeof(int));
  REQUIRE(cuMemsetD32(address, 0, count) == CUDA_SUCCESS);
  return address;
}

}  // namespace

TEST_CASE("kernelParams reach the kernel") {
  Context context;
  Module module;
  CUdeviceptr values = Zeros(100);
  int count = 50, amount = 3;
  void* parameters[] = {&values, &count, &amount};
  CHECK(Launch(module.Function("add"), 4, 32, parameters) == CUDA_SUCCESS);
  const std::vector<int> out = Read(values, 100);
  CHECK(out[49] == 3);
  CHECK(out[50] == 0);
}

TEST_CASE("a packed parameter buffer reaches the kernel") {
  Context context;
  Module module;
  struct {
    CUdeviceptr values;
    int count, amount;
  } packed{Zeros(100), 100, 5};
  size_t bytes = sizeof(packed);
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                   CU_LAUNCH_PARAM_END};
  CUfunction add = module.Function("add");
  CHECK(cuLaunchKernel(add, 4, 1, 1, 32, 1, 1, 0, nullptr, nullptr, extra) == CUDA_SUCCESS);
  CHECK(Read(packed.values, 100)[99] == 5);
  bytes = 8;  // too small for the kernel
  CHECK(cuLaunchKernel(add, 4, 1, 1, 32, 1, 1, 0, nullptr, nullptr, extra) ==
        CUDA_ERROR_INVALID_VALUE);
  void* parameters[] = {&packed.values, &packed.count, &packed.amount};
  CHECK(cuLaunchKernel(add, 4, 1, 1, 32, 1, 1, 0, nullptr, parameters, extra) ==
        CUDA_ERROR_INVALID_VALUE);
  CHECK(Launch(add, 1, 32, nullptr) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("cuLaunchKernelEx runs a cooperative launch that fits and refuses one that does not") {
  Context context;
  Module module;
  CUdeviceptr values = Zeros(64);
  int count = 64, amount = 1;
  void* parameters[] = {&values, &count, &amount};
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
  attribute.value.cooperative = 1;
  CUlaunchConfig config{};
  config.gridDimX = 2;
  config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = 32;
  config.blockDimY = config.blockDimZ = 1;
  config.attrs = &attribute;
  config.numAttrs = 1;
  CHECK(cuLaunchKernelEx(&config, module.Function("add"), parameters, nullptr) == CUDA_SUCCESS);
  CHECK(Read(values, 64)[63] == 1);
  config.gridDimX = 1000000;
  CHECK(cuLaunchKernelEx(&config, module.Function("add"), parameters, nullptr) ==
        CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
}

TEST_CASE("impossible shapes are refused and leave the context healthy") {
  Context context;
  Module module;
  CUdeviceptr values = Zeros(32);
  int count = 0, amount = 0;
  void* parameters[] = {&values, &count, &amount};
  CUfunction add = module.Function("add");
  struct Shape {
    unsigned grid[3], block[3], shared_bytes;
  };
  const Shape shapes[] = {
      {{0, 1, 1}, {32, 1, 1}, 0},     {{1, 1, 1}, {0, 1, 1}, 0},  {{1, 1, 1}, {1025, 1, 1}, 0},
      {{1, 1, 1}, {32, 32, 2}, 0},    {{1, 1, 1}, {1, 1, 65}, 0}, {{1, 65536, 1}, {1, 1, 1}, 0},
      {{1, 1, 1}, {32, 1, 1}, 49153},
  };
  for (const Shape& s : shapes) {
    CHECK(cuLaunchKernel(add, s.grid[0], s.grid[1], s.grid[2], s.block[0], s.block[1], s.block[2],
                         s.shared_bytes, nullptr, parameters, nullptr) == CUDA_ERROR_INVALID_VALUE);
  }
  CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
}

TEST_CASE("launch bounds limit the block") {
  Context context;
  Module module;
  CHECK(Launch(module.Function("bounded"), 1, 64, nullptr) == CUDA_SUCCESS);
  CHECK(Launch(module.Function("bounded"), 1, 65, nullptr) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("more than 48 KiB of shared memory needs the attribute") {
  Context context;
  Module module;
  CUfunction function = module.Function("dynamic_shared");
  CUdeviceptr out = Zeros(1);
  void* parameters[] = {&out};
  const unsigned bytes = 96 * 1024;
  CHECK(Launch(function, 1, 1, parameters, bytes) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1 << 20) ==
        CUDA_ERROR_INVALID_VALUE);
  CHECK(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, int(bytes)) ==
        CUDA_SUCCESS);
  CHECK(Launch(function, 1, 1, parameters, bytes) == CUDA_SUCCESS);
  CHECK(Read(out, 1)[0] == 42);
}

TEST_CASE("a function tells its name, parameters and module") {
  Context context;
  Module module;
  CUfunction add = module.Function("add");
  const char* name = nullptr;
  CHECK(cuFuncGetName(&name, add) == CUDA_SUCCESS);
  CHECK(std::string(name) == "add");
  size_t offset = 0, bytes = 0;
  CHECK(cuFuncGetParamInfo(add, 2, &offset, &bytes) == CUDA_SUCCESS);
  CHECK(offset == 12);
  CHECK(bytes == 4);
  CHECK(cuFuncGetParamInfo(add, 3, &offset, &bytes) == CUDA_ERROR_INVALID_VALUE);
  CUmodule owner = nullptr;
  CHECK(cuFuncGetModule(&owner, add) == CUDA_SUCCESS);
  CHECK(owner == module.handle());
  int threads = 0;
  CHECK(cuFuncGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
                           module.Function("bounded")) == CUDA_SUCCESS);
  CHECK(threads == 64);
}

TEST_CASE("occupancy follows threads and shared memory") {
  Context context;
  Module module;
  CUfunction add = module.Function("add");
  int blocks = 0;
  CHECK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, add, 1024, 0) == CUDA_SUCCESS);
  CHECK(blocks == 2);
  CHECK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, add, 32, 0) == CUDA_SUCCESS);
  CHECK(blocks == 32);
  CHECK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, add, 32, 100 * 1024) == CUDA_SUCCESS);
  CHECK(blocks == 2);
  int grid = 0, block = 0;
  CHECK(cuOccupancyMaxPotentialBlockSize(&grid, &block, add, nullptr, 0, 0) == CUDA_SUCCESS);
  CHECK(block == 1024);
  CHECK(grid == 2 * 132);
}

TEST_CASE("stale and foreign handles are refused") {
  Context context;
  CUfunction stale = nullptr;
  {
    Module module;
    stale = module.Function("bounded");
  }
  CHECK(Launch(stale, 1, 32, nullptr) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(Launch(nullptr, 1, 32, nullptr) == CUDA_ERROR_INVALID_HANDLE);
  int not_a_handle = 0;
  CHECK(Launch(reinterpret_cast<CUfunction>(&not_a_handle), 1, 32, nullptr) ==
        CUDA_ERROR_INVALID_HANDLE);
}
