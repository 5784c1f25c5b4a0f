// A program that uses the driver API only: loads PTX text, launches with kernelParams and with the
// packed form, and prints what it computed. `driver_api overflow` writes one element too many.
//
// Built twice: linked with -lcuda, and with OPS_DEBUG_DLOPEN, where every function comes from
// dlsym.
#include <cuda.h>

#include <cstdio>
#include <cstring>
#include <vector>

#ifdef OPS_DEBUG_DLOPEN
#include <dlfcn.h>
#define STRING_OF_(name) #name
#define STRING_OF(name) STRING_OF_(name)
#define CALL(function, ...) \
  Check(#function,          \
        reinterpret_cast<decltype(&function)>(dlsym(g_driver, STRING_OF(function)))(__VA_ARGS__))
static void* g_driver = nullptr;
#else
#define CALL(function, ...) Check(#function, function(__VA_ARGS__))
#endif

static const char kPtx[] = R"(
.version 7.0
.target sm_70
.address_size 64
.visible .entry fill(.param .u64 out, .param .u32 n)
{
  .reg .pred %p<2>;
  .reg .b32 %r<6>;
  .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [out];
  ld.param.u32 %r1, [n];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.s32 %r5, %r2, %r3, %r4;
  setp.ge.s32 %p1, %r5, %r1;
  @%p1 bra done;
  cvta.to.global.u64 %rd2, %rd1;
  mul.wide.s32 %rd3, %r5, 4;
  add.s64 %rd4, %rd2, %rd3;
  st.global.u32 [%rd4], %r5;
done:
  ret;
}
)";

static void Check(const char* call, CUresult result) {
  if (result != CUDA_SUCCESS) std::printf("%s: error %d\n", call, static_cast<int>(result));
}

int main(int argc, char** argv) {
  const int n = 1000;
  int written = argc > 1 && std::strcmp(argv[1], "overflow") == 0 ? n + 1 : n;
#ifdef OPS_DEBUG_DLOPEN
  g_driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (g_driver == nullptr) {
    std::printf("no driver: %s\n", dlerror());
    return 1;
  }
#endif
  CUdevice device;
  CUcontext context;
  CUmodule module;
  CUfunction function;
  CUdeviceptr out;
  CALL(cuInit, 0);
  CALL(cuDeviceGet, &device, 0);
  CALL(cuDevicePrimaryCtxRetain, &context, device);
  CALL(cuCtxSetCurrent, context);
  CALL(cuModuleLoadData, &module, kPtx);
  CALL(cuModuleGetFunction, &function, module, "fill");
  CALL(cuMemAlloc, &out, n * sizeof(int));
  CALL(cuMemsetD8, out, 0, n * sizeof(int));

  void* parameters[] = {&out, &written};
  CALL(cuLaunchKernel, function, 4, 1, 1, 256, 1, 1, 0, nullptr, parameters, nullptr);
  struct {
    CUdeviceptr out;
    int written;
  } packed = {out, written};
  size_t packed_bytes = sizeof(CUdeviceptr) + sizeof(int);
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE,
                   &packed_bytes, CU_LAUNCH_PARAM_END};
  CALL(cuLaunchKernel, function, 4, 1, 1, 256, 1, 1, 0, nullptr, nullptr, extra);
  CALL(cuCtxSynchronize);

  std::vector<int> result(n);
  CALL(cuMemcpyDtoH, result.data(), out, n * sizeof(int));
  long long sum = 0;
  for (int value : result) sum += value;
  std::printf("sum %lld\n", sum);
  CALL(cuMemFree, out);
  CALL(cuModuleUnload, module);
  return 0;
}
