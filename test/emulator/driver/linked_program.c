/* A plain C program linked with -lcuda against the toolkit's stub library, as driver-API programs
 * are. */
#include <cuda.h>
#include <stdio.h>

static const char kernels[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry answer(.param .u64 out)\n"
    "{\n  .reg .b32 %r<2>;\n  .reg .b64 %rd<2>;\n"
    "  ld.param.u64 %rd1, [out];\n  mov.u32 %r1, 42;\n  st.global.u32 [%rd1], %r1;\n  ret;\n}\n";

int main(void) {
  CUdevice device;
  CUcontext context;
  CUmodule module;
  CUfunction function;
  CUdeviceptr out;
  int value = 0;
  void* parameters[] = {&out};
  if (cuInit(0) || cuDeviceGet(&device, 0) || cuDevicePrimaryCtxRetain(&context, device) ||
      cuCtxSetCurrent(context) || cuModuleLoadData(&module, kernels) ||
      cuModuleGetFunction(&function, module, "answer") || cuMemAlloc(&out, 4) ||
      cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, 0, parameters, 0) ||
      cuMemcpyDtoH(&value, out, 4)) {
    printf("failed\n");
    return 1;
  }
  printf("%d\n", value);
  return 0;
}
