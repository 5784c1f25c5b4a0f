// Loads the file that it is given as a code image and says how that went.
#include <cuda.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  std::ifstream in(argv[1], std::ios::binary);
  const std::string image((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  CUdevice device;
  CUcontext context;
  CUmodule module;
  cuInit(0);
  cuDeviceGet(&device, 0);
  cuDevicePrimaryCtxRetain(&context, device);
  cuCtxSetCurrent(context);
  const CUresult result = cuModuleLoadData(&module, image.data());
  if (result == CUDA_SUCCESS) {
    std::printf("loaded\n");
  } else {
    std::printf("load error %d\n", static_cast<int>(result));
  }
  return 0;
}
