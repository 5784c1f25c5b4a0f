// Several devices of different models in one process: an A100, two H100s and an A10.
#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <string_view>

#include "emulator/driver/environment.h"
#include "proto/session.h"
#include "test/emulator/driver/driver_fixture.h"
#include "test/emulator/driver/gate.h"

using namespace ops_debug::emulator::test;  // NOLINT(google-build-using-namespace): test helpers

namespace {

constexpr CUdevice kA100 = 0, kH100 = 1, kSecondH100 = 2, kA10 = 3;

// Before anything initialises the driver.
const int kEmulating = setenv(ops_debug::proto::kEnvEmulate, "a100,H100, h100,sm_86", 1);

// A context on one device, current for its lifetime.
class On {
 public:
  explicit On(CUdevice device) {
    REQUIRE(kEmulating == 0);
    REQUIRE(cuInit(0) == CUDA_SUCCESS);
    REQUIRE(cuCtxCreate(&handle_, nullptr, 0, device) == CUDA_SUCCESS);
  }
  ~On() { cuCtxDestroy(handle_); }
  On(const On&) = delete;
  On& operator=(const On&) = delete;
  CUcontext handle() const { return handle_; }
  void MakeCurrent() const { REQUIRE(cuCtxSetCurrent(handle_) == CUDA_SUCCESS); }

 private:
  CUcontext handle_ = nullptr;
};

int Attribute(CUdevice device, CUdevice_attribute attribute) {
  int value = -1;
  REQUIRE(cuInit(0) == CUDA_SUCCESS);
  CHECK(cuDeviceGetAttribute(&value, attribute, device) == CUDA_SUCCESS);
  return value;
}

int BlocksPerMultiprocessor(const char* kernel, int threads, size_t shared_bytes) {
  const Module module;
  const CUfunction function = module.Function(kernel);
  int blocks = -1;
  CHECK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, threads, shared_bytes) ==
        CUDA_SUCCESS);
  return blocks;
}

CUresult StoreSeven(CUdeviceptr where) {
  const Module module;
  long long index = 0;  // NOLINT(google-runtime-int): the kernel's
  void* parameters[] = {&where, &index};
  CHECK(Launch(module.Function("store"), 1, 1, parameters) == CUDA_SUCCESS);
  return cuCtxSynchronize();
}

unsigned Read(CUdeviceptr address) {
  unsigned value = 0;
  CHECK(cuMemcpyDtoH(&value, address, 4) == CUDA_SUCCESS);
  return value;
}

std::string Empty(const std::string& target) {
  return ".version 8.7\n.target " + target +
         "\n.address_size 64\n.visible .entry empty() { ret; }\n";
}

CUresult LoadFor(const std::string& target) {
  CUmodule module = nullptr;
  const CUresult result = cuModuleLoadData(&module, Empty(target).c_str());
  if (result == CUDA_SUCCESS) cuModuleUnload(module);
  return result;
}

}  // namespace

TEST_CASE("launcher and emulator agree on their environment variables") {
  CHECK(std::string_view(ops_debug::proto::kEnvEmulate) == ops_debug::emulator::kEnvEmulate);
  CHECK(std::string_view(ops_debug::proto::kEnvScheduleSeed) ==
        ops_debug::emulator::kEnvScheduleSeed);
}

TEST_CASE("there are as many devices as models were named") {
  int count = 0;
  REQUIRE(cuInit(0) == CUDA_SUCCESS);
  CHECK(cuDeviceGetCount(&count) == CUDA_SUCCESS);
  CHECK(count == 4);
  CUdevice device = -1;
  CHECK(cuDeviceGet(&device, 3) == CUDA_SUCCESS);
  CHECK(cuDeviceGet(&device, 4) == CUDA_ERROR_INVALID_DEVICE);
  char name[100] = "";
  CHECK(cuDeviceGetName(name, sizeof(name), kA100) == CUDA_SUCCESS);
  CHECK_THAT(name, Catch::Contains("A100"));
  CHECK(cuDeviceGetName(name, sizeof(name), kA10) == CUDA_SUCCESS);
  CHECK_THAT(name, Catch::Contains("sm_86"));
}

TEST_CASE("devices can be told apart") {
  REQUIRE(cuInit(0) == CUDA_SUCCESS);
  CUuuid first, second;
  CHECK(cuDeviceGetUuid(&first, kH100) == CUDA_SUCCESS);
  CHECK(cuDeviceGetUuid(&second, kSecondH100) == CUDA_SUCCESS);
  CHECK(std::memcmp(&first, &second, sizeof(first)) != 0);
  char id[32] = "";
  CUdevice device = -1;
  CHECK(cuDeviceGetPCIBusId(id, sizeof(id), kSecondH100) == CUDA_SUCCESS);
  CHECK(cuDeviceGetByPCIBusId(&device, id) == CUDA_SUCCESS);
  CHECK(device == kSecondH100);
}

// NVIDIA A100 and H100 whitepapers; CUDA C++ Programming Guide, technical specifications.
TEST_CASE("a model has its product's attributes") {
  struct Expected {
    CUdevice_attribute attribute;
    int a100, h100, a10;
  };
  const Expected rows[] = {
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 8, 9, 8},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0, 0, 6},
      {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 108, 132, 72},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 164 * 1024, 228 * 1024,
       100 * 1024},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 163 * 1024, 227 * 1024, 99 * 1024},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 48 * 1024, 48 * 1024, 48 * 1024},
      {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048, 2048, 1536},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 32, 32, 16},
      {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536, 65536, 65536},
      {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 40 << 20, 50 << 20, 6 << 20},
      {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 5120, 5120, 384},
      {CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, 0, 1, 0},
      {CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED, 0, 1, 0},
  };
  for (const Expected& row : rows) {
    CAPTURE(row.attribute);
    CHECK(Attribute(kA100, row.attribute) == row.a100);
    CHECK(Attribute(kH100, row.attribute) == row.h100);
    CHECK(Attribute(kA10, row.attribute) == row.a10);
  }
}

// CUDA occupancy calculator: `bounded` and `add` use 32 registers per thread.
TEST_CASE("occupancy follows the model") {
  struct Expected {
    int threads;
    size_t shared_bytes;
    int a100, h100, a10;
  };
  const Expected rows[] = {
      {256, 0, 8, 8, 6},          // threads: 2048 / 256; 1536 / 256
      {1024, 0, 2, 2, 1},         // threads
      {64, 0, 32, 32, 16},        // blocks
      {96, 0, 21, 21, 16},        // warps: 64 / 3; blocks
      {128, 48 * 1024, 3, 4, 2},  // shared memory: 164 / 49; 228 / 49; 100 / 49
      {128, 100, 16, 16, 12},     // threads
  };
  for (const Expected& row : rows) {
    CAPTURE(row.threads, row.shared_bytes);
    {
      const On context(kA100);
      CHECK(BlocksPerMultiprocessor("add", row.threads, row.shared_bytes) == row.a100);
    }
    {
      const On context(kH100);
      CHECK(BlocksPerMultiprocessor("add", row.threads, row.shared_bytes) == row.h100);
    }
    const On context(kA10);
    CHECK(BlocksPerMultiprocessor("add", row.threads, row.shared_bytes) == row.a10);
  }
}

TEST_CASE("a preferred share of shared memory limits occupancy to the split that grants it") {
  const On context(kA100);
  const Module module;
  const CUfunction function = module.Function("add");
  // 25 % of 164 KiB is granted by the split of 64 KiB: 64 / (16 + 1) = 3 blocks.
  CHECK(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 25) ==
        CUDA_SUCCESS);
  int blocks = 0;
  CHECK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, 128, 16 * 1024) ==
        CUDA_SUCCESS);
  CHECK(blocks == 3);
}

TEST_CASE("dynamic shared memory ends at the model's limit") {
  const auto allows = [](CUdevice device, int bytes) {
    const On context(device);
    const Module module;
    return cuFuncSetAttribute(module.Function("dynamic_shared"),
                              CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                              bytes) == CUDA_SUCCESS;
  };
  CHECK(allows(kA100, 163 * 1024));
  CHECK_FALSE(allows(kA100, 163 * 1024 + 1));
  CHECK(allows(kH100, 227 * 1024));
  CHECK_FALSE(allows(kA10, 100 * 1024));
}

TEST_CASE("a model refuses code for a newer or another architecture") {
  {
    const On context(kA100);
    CHECK(LoadFor("sm_70") == CUDA_SUCCESS);
    CHECK(LoadFor("sm_80") == CUDA_SUCCESS);
    CHECK(LoadFor("sm_86") == CUDA_ERROR_NO_BINARY_FOR_GPU);
    CHECK(LoadFor("sm_90") == CUDA_ERROR_NO_BINARY_FOR_GPU);
    CHECK(LoadFor("sm_90a") == CUDA_ERROR_NO_BINARY_FOR_GPU);
  }
  const On context(kH100);
  CHECK(LoadFor("sm_80") == CUDA_SUCCESS);
  CHECK(LoadFor("sm_90a") == CUDA_SUCCESS);
  CHECK(LoadFor("sm_100") == CUDA_ERROR_NO_BINARY_FOR_GPU);
  CHECK(LoadFor("sm_100a") == CUDA_ERROR_NO_BINARY_FOR_GPU);
}

TEST_CASE("a context belongs to one device") {
  const On first(kA100), second(kSecondH100);
  CUdevice device = -1;
  CHECK(cuCtxGetDevice(&device) == CUDA_SUCCESS);
  CHECK(device == kSecondH100);
  first.MakeCurrent();
  CHECK(cuCtxGetDevice(&device) == CUDA_SUCCESS);
  CHECK(device == kA100);
  CUcontext primary = nullptr, other = nullptr;
  CHECK(cuDevicePrimaryCtxRetain(&primary, kA100) == CUDA_SUCCESS);
  CHECK(cuDevicePrimaryCtxRetain(&other, kA10) == CUDA_SUCCESS);
  CHECK(primary != other);
  CHECK(cuDevicePrimaryCtxRelease(kA100) == CUDA_SUCCESS);
  CHECK(cuDevicePrimaryCtxRelease(kA10) == CUDA_SUCCESS);
}

TEST_CASE("memory knows its device") {
  const On first(kA100);
  const CUdeviceptr on_a100 = Allocate(4);
  const On second(kH100);
  const CUdeviceptr on_h100 = Allocate(4);
  const auto ordinal = [](CUdeviceptr address) {
    int value = -1;
    CHECK(cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address) ==
          CUDA_SUCCESS);
    return value;
  };
  CHECK(ordinal(on_a100) == kA100);
  CHECK(ordinal(on_h100) == kH100);
  CHECK(cuMemFree(on_a100) == CUDA_SUCCESS);  // whatever context is current
}

TEST_CASE("a kernel faults on another device's memory unless peer access is on") {
  const On owner(kSecondH100);
  const CUdeviceptr memory = Allocate(4);
  CHECK(cuMemsetD32(memory, 1, 1) == CUDA_SUCCESS);
  CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
  int can = 0;
  CHECK(cuDeviceCanAccessPeer(&can, kH100, kSecondH100) == CUDA_SUCCESS);
  CHECK(can == 1);
  {
    const On user(kH100);
    CHECK(StoreSeven(memory) == CUDA_ERROR_ILLEGAL_ADDRESS);
  }
  {
    const On user(kH100);
    CHECK(cuCtxEnablePeerAccess(owner.handle(), 0) == CUDA_SUCCESS);
    CHECK(cuCtxEnablePeerAccess(owner.handle(), 0) == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    CHECK(StoreSeven(memory) == CUDA_SUCCESS);
    CHECK(Read(memory) == 7);
    CHECK(cuCtxDisablePeerAccess(owner.handle()) == CUDA_SUCCESS);
    CHECK(cuCtxDisablePeerAccess(owner.handle()) == CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    CHECK(StoreSeven(memory) == CUDA_ERROR_ILLEGAL_ADDRESS);
  }
}

TEST_CASE("pinned and managed memory is every device's") {
  const On owner(kA100);
  void* pinned = nullptr;
  CUdeviceptr managed = 0;
  REQUIRE(cuMemHostAlloc(&pinned, 4, 0) == CUDA_SUCCESS);
  REQUIRE(cuMemAllocManaged(&managed, 4, CU_MEM_ATTACH_GLOBAL) == CUDA_SUCCESS);
  const On user(kH100);
  CHECK(StoreSeven(reinterpret_cast<CUdeviceptr>(pinned)) == CUDA_SUCCESS);
  CHECK(StoreSeven(managed) == CUDA_SUCCESS);
  CHECK(*static_cast<int*>(pinned) == 7);
  CHECK(*reinterpret_cast<int*>(managed) == 7);
}

TEST_CASE("copies between devices need no peer access") {
  const On first(kA100);
  const CUdeviceptr from = Allocate(4);
  CHECK(cuMemsetD32(from, 5, 1) == CUDA_SUCCESS);
  CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
  const On second(kH100);
  const CUdeviceptr to = Allocate(8);
  CHECK(cuMemcpyPeer(to, second.handle(), from, first.handle(), 4) == CUDA_SUCCESS);
  CHECK(Read(to) == 5);
  CUstream stream = nullptr;
  REQUIRE(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  CHECK(cuMemcpyPeerAsync(to + 4, second.handle(), from, first.handle(), 4, stream) ==
        CUDA_SUCCESS);
  CHECK(cuStreamSynchronize(stream) == CUDA_SUCCESS);
  CHECK(Read(to + 4) == 5);
}

TEST_CASE("a stream of one device waits for an event of another") {
  const On first(kA100);
  Gate gate;
  CUstream producer = nullptr, consumer = nullptr;
  CUevent event = nullptr;
  const CUdeviceptr value = Allocate(4);
  REQUIRE(cuStreamCreate(&producer, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  REQUIRE(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
  gate.Hold(producer);
  CHECK(cuMemsetD32Async(value, 3, 1, producer) == CUDA_SUCCESS);
  CHECK(cuEventRecord(event, producer) == CUDA_SUCCESS);
  const On second(kH100);
  const CUdeviceptr copy = Allocate(4);
  REQUIRE(cuStreamCreate(&consumer, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  CHECK(cuStreamWaitEvent(consumer, event, 0) == CUDA_SUCCESS);
  CHECK(cuMemcpyPeerAsync(copy, second.handle(), value, first.handle(), 4, consumer) ==
        CUDA_SUCCESS);
  CHECK(cuStreamQuery(consumer) == CUDA_ERROR_NOT_READY);
  gate.Open();
  CHECK(cuStreamSynchronize(consumer) == CUDA_SUCCESS);
  CHECK(Read(copy) == 3);
}

TEST_CASE("a library serves several devices, each with its own variables") {
  const On first(kA100);
  CUlibrary library = nullptr;
  REQUIRE(cuLibraryLoadData(&library, kKernels, nullptr, nullptr, 0, nullptr, nullptr, 0) ==
          CUDA_SUCCESS);
  CUdeviceptr here = 0, there = 0;
  CHECK(cuLibraryGetGlobal(&here, nullptr, library, "counters") == CUDA_SUCCESS);
  const On second(kH100);
  CHECK(cuLibraryGetGlobal(&there, nullptr, library, "counters") == CUDA_SUCCESS);
  CHECK(here != there);
  CHECK(Read(there) == 1);
  CUkernel kernel = nullptr;
  CHECK(cuLibraryGetKernel(&kernel, library, "store") == CUDA_SUCCESS);
  long long index = 0;  // NOLINT(google-runtime-int): the kernel's
  void* parameters[] = {&there, &index};
  CHECK(Launch(reinterpret_cast<CUfunction>(kernel), 1, 1, parameters) == CUDA_SUCCESS);
  CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
  CHECK(Read(there) == 7);
  CHECK(cuLibraryUnload(library) == CUDA_SUCCESS);
}

TEST_CASE("a pool lets other devices in when told to") {
  const On owner(kA100);
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, kA100};
  CUmemoryPool pool = nullptr;
  REQUIRE(cuMemPoolCreate(&pool, &properties) == CUDA_SUCCESS);
  CUdeviceptr memory = 0;
  REQUIRE(cuMemAllocFromPoolAsync(&memory, 4096, pool, nullptr) == CUDA_SUCCESS);
  CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
  CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
  CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, kH100};
  CHECK(cuMemPoolGetAccess(&flags, pool, &location) == CUDA_SUCCESS);
  CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_NONE);
  const CUmemAccessDesc access = {location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CHECK(cuMemPoolSetAccess(pool, &access, 1) == CUDA_SUCCESS);
  const On user(kH100);
  CHECK(StoreSeven(memory) == CUDA_SUCCESS);
  CHECK(cuMemPoolDestroy(pool) == CUDA_SUCCESS);
}

namespace {

template <class Function>
Function Runtime(const char* name) {
  static void* const library = dlopen(OPS_DEBUG_EMULATOR "/libcudart.so.13", RTLD_NOW | RTLD_LOCAL);
  REQUIRE(library != nullptr);
  INFO(name);
  void* found = dlsym(library, name);
  REQUIRE(found != nullptr);
  return reinterpret_cast<Function>(found);
}

}  // namespace

TEST_CASE("the run-time works on the device that a thread has chosen") {
  REQUIRE(cuInit(0) == CUDA_SUCCESS);
  REQUIRE(cuCtxSetCurrent(nullptr) == CUDA_SUCCESS);
  const auto set = Runtime<int (*)(int)>("cudaSetDevice");
  const auto get = Runtime<int (*)(int*)>("cudaGetDevice");
  int device = -1;
  CHECK(get(&device) == 0);
  CHECK(device == 0);
  CHECK(set(kSecondH100) == 0);
  CHECK(get(&device) == 0);
  CHECK(device == kSecondH100);
  CHECK(set(4) == 101);  // cudaErrorInvalidDevice
  void* memory = nullptr;
  CHECK(Runtime<int (*)(void**, size_t)>("cudaMalloc")(&memory, 8) == 0);
  int ordinal = -1;
  CHECK(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CUdeviceptr(memory)) ==
        CUDA_SUCCESS);
  CHECK(ordinal == kSecondH100);
  CHECK(set(kH100) == 0);
  const auto enable = Runtime<int (*)(int, unsigned)>("cudaDeviceEnablePeerAccess");
  CHECK(enable(kSecondH100, 0) == 0);
  CHECK(enable(kSecondH100, 0) == 704);  // cudaErrorPeerAccessAlreadyEnabled
  CHECK(StoreSeven(CUdeviceptr(memory)) == CUDA_SUCCESS);
  void* copy = nullptr;
  CHECK(Runtime<int (*)(void**, size_t)>("cudaMalloc")(&copy, 8) == 0);
  CHECK(Runtime<int (*)(void*, int, const void*, int, size_t)>("cudaMemcpyPeer")(
            copy, kH100, memory, kSecondH100, 4) == 0);
  CHECK(Read(CUdeviceptr(copy)) == 7);
  CHECK(Runtime<int (*)(int)>("cudaDeviceDisablePeerAccess")(kSecondH100) == 0);
  CHECK(Runtime<int (*)(void*)>("cudaFree")(memory) == 0);
  CHECK(cuCtxSetCurrent(nullptr) == CUDA_SUCCESS);
}
