// A program that keeps the event ring busy for as long as it is told to: it loads and unloads
// modules whose kernels write out of bounds, so that each round makes a module, faults and launch
// counts. A child, forked before the driver starts, does the same.
//
//   many_events MILLISECONDS [ROUNDS]   at least so many; prints "rounds N"; exits with 0 whatever
//                                       becomes of the child
//
// Its events: 6 in each round (a module, 4 faults, a launch count) and 3 more in each process.
#include <cuda.h>
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

constexpr char kPtx[] = R"(
.version 7.0
.target sm_70
.address_size 64
.visible .entry fill_NUMBER(.param .u64 out, .param .u32 n)
{
  .reg .pred %p<2>;
  .reg .b32 %r<6>;
  .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [out];
  ld.param.u32 %r1, [n];
  mov.u32 %r4, %tid.x;
  setp.ge.s32 %p1, %r4, %r1;
  @%p1 bra done;
  cvta.to.global.u64 %rd2, %rd1;
  mul.wide.s32 %rd3, %r4, 4;
  add.s64 %rd4, %rd2, %rd3;
  st.global.u32 [%rd4], %r4;
done:
  ret;
}
)";

void* g_driver = nullptr;

template <class Function>
Function Symbol(const char* name) {
  return reinterpret_cast<Function>(dlsym(g_driver, name));
}

#define CALL(function, ...)                                             \
  do {                                                                  \
    static const auto address = Symbol<decltype(&function)>(#function); \
    const CUresult result = address(__VA_ARGS__);                       \
    if (result != CUDA_SUCCESS) {                                       \
      std::printf(#function ": error %d\n", static_cast<int>(result));  \
      std::exit(1);                                                     \
    }                                                                   \
  } while (false)

std::string PtxOf(int number) {
  std::string text = kPtx;
  const std::string placeholder = "NUMBER";
  return text.replace(text.find(placeholder), placeholder.size(), std::to_string(number));
}

int Run(int milliseconds, int least_rounds) {
  g_driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (g_driver == nullptr) {
    std::printf("no driver: %s\n", dlerror());
    return 1;
  }
  CUdevice device;
  CUcontext context;
  CUdeviceptr out;
  const int n = 64;
  int written = n + 4;
  CALL(cuInit, 0);
  CALL(cuDeviceGet, &device, 0);
  CALL(cuDevicePrimaryCtxRetain, &context, device);
  CALL(cuCtxSetCurrent, context);
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
  int rounds = 0;
  while (rounds < least_rounds || std::chrono::steady_clock::now() < end) {
    CUmodule module;
    CUfunction function;
    const std::string name = "fill_" + std::to_string(rounds % 16);
    CALL(cuModuleLoadData, &module, PtxOf(rounds % 16).c_str());
    CALL(cuModuleGetFunction, &function, module, name.c_str());
    CALL(cuMemAlloc_v2, &out, n * sizeof(int));
    void* parameters[] = {&out, &written};
    for (int i = 0; i < 4; ++i) {
      CALL(cuLaunchKernel, function, 1, 1, 1, 128, 1, 1, 0, nullptr, parameters, nullptr);
      CALL(cuCtxSynchronize, );
    }
    CALL(cuMemFree_v2, out);
    CALL(cuModuleUnload, module);
    ++rounds;
  }
  std::printf("rounds %d\n", rounds);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const int milliseconds = argc > 1 ? std::atoi(argv[1]) : 500;
  const int least_rounds = argc > 2 ? std::atoi(argv[2]) : 0;
  const pid_t child = fork();
  const int code = Run(milliseconds, least_rounds);
  std::fflush(stdout);
  if (child > 0) waitpid(child, nullptr, 0);
  return code;
}
