// Devices, contexts and what a fault leaves behind.
#include <cstring>

#include "test/emulator/driver/driver_fixture.h"

using namespace ops_debug::emulator::test;  // NOLINT(google-build-using-namespace): test helpers

TEST_CASE("there is one device and it says what it is") {
  REQUIRE(cuInit(0) == CUDA_SUCCESS);
  int count = 0, version = 0, major = 0, warp = 0;
  CHECK(cuDeviceGetCount(&count) == CUDA_SUCCESS);
  CHECK(count == 1);
  CHECK(cuDriverGetVersion(&version) == CUDA_SUCCESS);
  CHECK(version == 13000);
  CUdevice device = -1;
  CHECK(cuDeviceGet(&device, 0) == CUDA_SUCCESS);
  CHECK(cuDeviceGet(&device, 1) == CUDA_ERROR_INVALID_DEVICE);
  char name[100] = {};
  CHECK(cuDeviceGetName(name, sizeof(name), 0) == CUDA_SUCCESS);
  CHECK(std::string(name).find("ops-debug") != std::string::npos);
  CHECK(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0) ==
        CUDA_SUCCESS);
  CHECK(major == 9);
  CHECK(cuDeviceGetAttribute(&warp, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0) == CUDA_SUCCESS);
  CHECK(warp == 32);
}

TEST_CASE("a thread without a context gets an error") {
  REQUIRE(cuInit(0) == CUDA_SUCCESS);
  CUcontext before = nullptr;
  cuCtxGetCurrent(&before);
  REQUIRE(before == nullptr);
  CUdeviceptr address = 0;
  CHECK(cuMemAlloc(&address, 16) == CUDA_ERROR_INVALID_CONTEXT);
}

TEST_CASE("contexts are a stack per thread") {
  Context outer;
  {
    Context inner;
    CUcontext current = nullptr;
    CHECK(cuCtxGetCurrent(&current) == CUDA_SUCCESS);
    CHECK(current == inner.handle());
    CUcontext popped = nullptr;
    CHECK(cuCtxPopCurrent(&popped) == CUDA_SUCCESS);
    CHECK(popped == inner.handle());
    cuCtxGetCurrent(&current);
    CHECK(current == outer.handle());
    CHECK(cuCtxPushCurrent(inner.handle()) == CUDA_SUCCESS);
  }
  CUcontext current = nullptr;
  cuCtxGetCurrent(&current);
  CHECK(current == outer.handle());
}

TEST_CASE("a destroyed context is no longer a handle, and its memory is gone") {
  REQUIRE(cuInit(0) == CUDA_SUCCESS);
  CUcontext context = nullptr;
  REQUIRE(cuCtxCreate(&context, nullptr, 0, 0) == CUDA_SUCCESS);
  const CUdeviceptr address = Allocate(1024);
  CHECK(cuCtxDestroy(context) == CUDA_SUCCESS);
  CHECK(cuCtxSetCurrent(context) == CUDA_ERROR_INVALID_CONTEXT);
  Context other;
  CUdeviceptr base = 0;
  size_t bytes = 0;
  CHECK(cuMemGetAddressRange(&base, &bytes, address) == CUDA_ERROR_NOT_FOUND);
}

TEST_CASE("the primary context is retained, reset and released") {
  REQUIRE(cuInit(0) == CUDA_SUCCESS);
  unsigned flags = 0;
  int active = -1;
  CHECK(cuDevicePrimaryCtxGetState(0, &flags, &active) == CUDA_SUCCESS);
  CHECK(active == 0);
  CUcontext context = nullptr;
  REQUIRE(cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
  CHECK(cuDevicePrimaryCtxGetState(0, &flags, &active) == CUDA_SUCCESS);
  CHECK(active == 1);
  REQUIRE(cuCtxSetCurrent(context) == CUDA_SUCCESS);
  const CUdeviceptr address = Allocate(64);
  CHECK(cuDevicePrimaryCtxReset(0) == CUDA_SUCCESS);
  CHECK(cuMemFree(address) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuDevicePrimaryCtxRelease(0) == CUDA_SUCCESS);
  CHECK(cuDevicePrimaryCtxRelease(0) == CUDA_ERROR_INVALID_CONTEXT);
  CHECK(cuCtxSetCurrent(nullptr) == CUDA_SUCCESS);
}

TEST_CASE("an illegal address lets the launch succeed and fails every later call") {
  Context context;
  Module module;
  CUdeviceptr values = Allocate(4096);
  long long index = 1ll << 30;  // NOLINT(google-runtime-int): kernel parameter
  void* parameters[] = {&values, &index};
  CHECK(Launch(module.Function("store"), 1, 1, parameters) == CUDA_SUCCESS);
  CHECK(cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS);
  int value = 0;
  CHECK(cuMemcpyDtoH(&value, values, sizeof(value)) == CUDA_ERROR_ILLEGAL_ADDRESS);
  CUdeviceptr more = 0;
  CHECK(cuMemAlloc(&more, 16) == CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(cuStreamSynchronize(nullptr) == CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_CASE("a fault stays in its context") {
  Context healthy;
  {
    Context broken;
    Module module;
    CHECK(Launch(module.Function("stop"), 1, 1, nullptr) == CUDA_SUCCESS);
    CHECK(cuCtxSynchronize() == CUDA_ERROR_LAUNCH_FAILED);
  }
  CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
}

TEST_CASE("a misaligned store is reported as such") {
  Context context;
  Module module;
  CUdeviceptr values = Allocate(4096);
  long long offset = 1;  // NOLINT(google-runtime-int): kernel parameter
  void* parameters[] = {&values, &offset};
  CHECK(Launch(module.Function("store_byte_offset"), 1, 1, parameters) == CUDA_SUCCESS);
  CHECK(cuCtxSynchronize() == CUDA_ERROR_MISALIGNED_ADDRESS);
}

TEST_CASE("an instruction that the device lacks fails the launch, not the module") {
  Context context;
  Module module(
      ".version 7.0\n.target sm_70\n.address_size 64\n"
      ".visible .entry sample(.param .u64 texture)\n{\n"
      "  .reg .f32 %f<5>;\n  .reg .b32 %r<2>;\n  .reg .b64 %rd<3>;\n"
      "  ld.param.u64 %rd1, [texture];\n  mov.u32 %r1, 0;\n  mov.u64 %rd2, 0;\n"
      "  tex.1d.v4.f32.s32 {%f1, %f2, %f3, %f4}, [%rd1, %rd2, {%r1}];\n  ret;\n}\n"
      ".visible .entry plain()\n{\n  ret;\n}\n");
  CHECK(Launch(module.Function("plain"), 1, 32, nullptr) == CUDA_SUCCESS);
  CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
  CUdeviceptr texture = 0;
  void* parameters[] = {&texture};
  CHECK(Launch(module.Function("sample"), 1, 32, parameters) == CUDA_SUCCESS);
  CHECK(cuCtxSynchronize() == CUDA_ERROR_NOT_SUPPORTED);
}

TEST_CASE("errors have names and texts") {
  const char* text = nullptr;
  CHECK(cuGetErrorName(CUDA_ERROR_ILLEGAL_ADDRESS, &text) == CUDA_SUCCESS);
  CHECK(std::string(text) == "CUDA_ERROR_ILLEGAL_ADDRESS");
  CHECK(cuGetErrorString(CUDA_ERROR_ILLEGAL_ADDRESS, &text) == CUDA_SUCCESS);
  CHECK(std::string(text) == "an illegal memory access was encountered");
  CHECK(cuGetErrorName(static_cast<CUresult>(12345), &text) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("NVIDIA's private tables are refused") {
  const void* table = &table;
  const CUuuid id{};
  CHECK(cuGetExportTable(&table, &id) == CUDA_ERROR_NOT_SUPPORTED);
  CHECK(table == nullptr);
}
