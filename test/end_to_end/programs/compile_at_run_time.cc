// Compiles or assembles a kernel while it runs, as frameworks do, loads the cubin and launches it.
// The kernel writes one element past its buffer.
//
//   nvrtc LIBRARY...            NVRTC by dlopen, once with each of these copies
//   nvjitlink NVRTC LIBRARY     PTX by NVRTC, cubin by nvJitLink
//   lto NVRTC LIBRARY           LTO-IR by NVRTC, cubin by nvJitLink
//   ptxas PROGRAM PTX CUBIN OPTION...  a child process assembles the file
//   file CUBIN                  cuModuleLoad
//   data FILE                   cuModuleLoadData
// With COMPILER_LINKED the program is linked with NVRTC and knows only: linked
#include <cuda.h>
#include <dlfcn.h>
#include <nvJitLink.h>
#include <nvrtc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace {

constexpr int kElements = 64;
constexpr char kSource[] =
    "extern \"C\" __global__ void scale(float* data, int n) {\n"
    "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
    "  if (i <= n) data[i] = data[i] * 2.0f + 1.0f;\n"
    "}\n";

[[noreturn]] void Fail(const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  std::exit(9);
}
void Check(bool good, const char* what) {
  if (!good) Fail(what);
}

struct Nvrtc {
  decltype(&::nvrtcCreateProgram) create = nullptr;
  decltype(&::nvrtcCompileProgram) compile = nullptr;
  decltype(&::nvrtcGetCUBINSize) cubin_size = nullptr;
  decltype(&::nvrtcGetCUBIN) cubin = nullptr;
  decltype(&::nvrtcGetPTXSize) ptx_size = nullptr;
  decltype(&::nvrtcGetPTX) ptx = nullptr;
  decltype(&::nvrtcGetLTOIRSize) lto_size = nullptr;
  decltype(&::nvrtcGetLTOIR) lto = nullptr;
  decltype(&::nvrtcDestroyProgram) destroy = nullptr;
};

std::string Compile(const Nvrtc& nvrtc, std::vector<const char*> options,
                    decltype(&::nvrtcGetCUBINSize) size, decltype(&::nvrtcGetCUBIN) get) {
  nvrtcProgram program = nullptr;
  Check(nvrtc.create(&program, kSource, "scale.cu", 0, nullptr, nullptr) == NVRTC_SUCCESS,
        "nvrtcCreateProgram");
  Check(nvrtc.compile(program, static_cast<int>(options.size()), options.data()) == NVRTC_SUCCESS,
        "nvrtcCompileProgram");
  size_t bytes = 0;
  Check(size(program, &bytes) == NVRTC_SUCCESS, "size");
  std::string image(bytes, '\0');
  Check(get(program, image.data()) == NVRTC_SUCCESS, "get");
  Check(nvrtc.destroy(&program) == NVRTC_SUCCESS, "nvrtcDestroyProgram");
  return image;
}

CUmodule LoadData(const std::string& image) {
  CUmodule module = nullptr;
  const CUresult result = cuModuleLoadData(&module, image.data());
  if (result != CUDA_SUCCESS) Fail("load error " + std::to_string(result));
  return module;
}

void Launch(CUmodule module) {
  CUfunction kernel = nullptr;
  Check(cuModuleGetFunction(&kernel, module, "scale") == CUDA_SUCCESS, "cuModuleGetFunction");
  CUdeviceptr data = 0;
  float values[kElements];
  for (int i = 0; i < kElements; ++i) values[i] = static_cast<float>(i);
  cuMemAlloc(&data, sizeof values);
  cuMemcpyHtoD(data, values, sizeof values);
  int n = kElements;
  void* parameters[] = {&data, &n};
  Check(cuLaunchKernel(kernel, 1, 1, 1, 2 * kElements, 1, 1, 0, nullptr, parameters, nullptr) ==
            CUDA_SUCCESS,
        "cuLaunchKernel");
  cuMemcpyDtoH(values, data, sizeof values);
  float sum = 0;
  for (const float value : values) sum += value;
  cuMemFree(data);
  std::printf("sum %g\n", sum);
}

void Start() {
  CUdevice device = 0;
  CUcontext context = nullptr;
  cuInit(0);
  cuDeviceGet(&device, 0);
  cuDevicePrimaryCtxRetain(&context, device);
  cuCtxSetCurrent(context);
}

#ifdef COMPILER_LINKED
int Run(int, char**) {
  Nvrtc nvrtc;
  nvrtc.create = &nvrtcCreateProgram;
  nvrtc.compile = &nvrtcCompileProgram;
  nvrtc.destroy = &nvrtcDestroyProgram;
  Launch(
      LoadData(Compile(nvrtc, {"-arch=sm_90", "-lineinfo"}, &nvrtcGetCUBINSize, &nvrtcGetCUBIN)));
  return 0;
}
#else
template <class Function>
void Get(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  Check(*function != nullptr, name);
}

void* Open(const char* path) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) Fail(dlerror());
  return library;
}

Nvrtc OpenNvrtc(const char* path) {
  void* library = Open(path);
  Nvrtc nvrtc;
  Get(library, "nvrtcCreateProgram", &nvrtc.create);
  Get(library, "nvrtcCompileProgram", &nvrtc.compile);
  Get(library, "nvrtcGetCUBINSize", &nvrtc.cubin_size);
  Get(library, "nvrtcGetCUBIN", &nvrtc.cubin);
  Get(library, "nvrtcGetPTXSize", &nvrtc.ptx_size);
  Get(library, "nvrtcGetPTX", &nvrtc.ptx);
  Get(library, "nvrtcGetLTOIRSize", &nvrtc.lto_size);
  Get(library, "nvrtcGetLTOIR", &nvrtc.lto);
  Get(library, "nvrtcDestroyProgram", &nvrtc.destroy);
  return nvrtc;
}

std::string JitLink(const char* path, nvJitLinkInputType type, const std::string& input, bool lto) {
  void* library = Open(path);
  decltype(&::nvJitLinkCreate) create = nullptr;
  decltype(&::nvJitLinkAddData) add = nullptr;
  decltype(&::nvJitLinkComplete) complete = nullptr;
  decltype(&::nvJitLinkGetLinkedCubinSize) size = nullptr;
  decltype(&::nvJitLinkGetLinkedCubin) get = nullptr;
  decltype(&::nvJitLinkDestroy) destroy = nullptr;
  Get(library, "nvJitLinkCreate", &create);
  Get(library, "nvJitLinkAddData", &add);
  Get(library, "nvJitLinkComplete", &complete);
  Get(library, "nvJitLinkGetLinkedCubinSize", &size);
  Get(library, "nvJitLinkGetLinkedCubin", &get);
  Get(library, "nvJitLinkDestroy", &destroy);
  std::vector<const char*> options = {"-arch=sm_90"};
  if (lto) options.push_back("-lto");
  nvJitLinkHandle link = nullptr;
  Check(create(&link, static_cast<uint32_t>(options.size()), options.data()) == NVJITLINK_SUCCESS,
        "nvJitLinkCreate");
  Check(add(link, type, input.data(), input.size(), "scale") == NVJITLINK_SUCCESS, "add");
  Check(complete(link) == NVJITLINK_SUCCESS, "nvJitLinkComplete");
  size_t bytes = 0;
  Check(size(link, &bytes) == NVJITLINK_SUCCESS, "size");
  std::string cubin(bytes, '\0');
  Check(get(link, cubin.data()) == NVJITLINK_SUCCESS, "get");
  destroy(&link);
  return cubin;
}

std::string ReadFile(const char* path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

int Run(int argc, char** argv) {
  const std::string how = argc > 2 ? argv[1] : "";
  if (how == "nvrtc") {
    for (int i = 2; i < argc; ++i) {
      const Nvrtc nvrtc = OpenNvrtc(argv[i]);
      Launch(LoadData(Compile(nvrtc, {"-arch=sm_90", "-lineinfo"}, nvrtc.cubin_size, nvrtc.cubin)));
    }
  } else if (how == "nvjitlink") {
    const Nvrtc nvrtc = OpenNvrtc(argv[2]);
    const std::string ptx = Compile(nvrtc, {"-arch=compute_90"}, nvrtc.ptx_size, nvrtc.ptx);
    Launch(LoadData(JitLink(argv[3], NVJITLINK_INPUT_PTX, ptx, false)));
  } else if (how == "lto") {
    const Nvrtc nvrtc = OpenNvrtc(argv[2]);
    const std::string ir = Compile(nvrtc, {"-arch=sm_90", "-dlto"}, nvrtc.lto_size, nvrtc.lto);
    Launch(LoadData(JitLink(argv[3], NVJITLINK_INPUT_LTOIR, ir, true)));
  } else if (how == "ptxas") {
    std::vector<char*> command = {argv[2], argv[3], const_cast<char*>("-o"), argv[4]};
    for (int i = 5; i < argc; ++i) command.push_back(argv[i]);
    command.push_back(nullptr);
    const pid_t child = fork();
    if (child == 0) {
      execv(argv[2], command.data());
      _exit(127);
    }
    int status = 0;
    Check(waitpid(child, &status, 0) == child && status == 0, "ptxas");
    Launch(LoadData(ReadFile(argv[4])));
  } else if (how == "file") {
    CUmodule module = nullptr;
    const CUresult result = cuModuleLoad(&module, argv[2]);
    if (result != CUDA_SUCCESS) Fail("load error " + std::to_string(result));
    Launch(module);
  } else if (how == "data") {
    Launch(LoadData(ReadFile(argv[2])));
  } else {
    return 2;
  }
  return 0;
}
#endif

}  // namespace

int main(int argc, char** argv) {
  Start();
  return Run(argc, argv);
}
