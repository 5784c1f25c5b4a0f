// Loading code: PTX text, fat binaries from nvcc, libraries, and images that are none of these.
#include <fstream>
#include <iterator>
#include <vector>

#include "test/emulator/driver/driver_fixture.h"

using namespace ops_debug::emulator::test;  // NOLINT(google-build-using-namespace): test helpers

namespace {

// Built by CMake from increment.cu: increment.cubin, sass.fatbin without PTX, and MODE.fatbin with
// PTX for compute_75 and compute_90 (MODE as in nvcc --compress-mode: none, default and size =
// zstd, speed = LZ4).
std::string ImagePath(const std::string& name) {
  return std::string(OPS_DEBUG_IMAGES) + "/" + name;
}

std::vector<char> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  REQUIRE(file);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Runs increment(int*) of the loaded code on one value.
int Increment(CUfunction function, int value) {
  CUdeviceptr address = Allocate(4);
  REQUIRE(cuMemcpyHtoD(address, &value, 4) == CUDA_SUCCESS);
  void* parameters[] = {&address};
  REQUIRE(Launch(function, 1, 1, parameters) == CUDA_SUCCESS);
  REQUIRE(cuMemcpyDtoH(&value, address, 4) == CUDA_SUCCESS);
  return value;
}

}  // namespace

TEST_CASE("module variables have an address, a size and their initial value") {
  Context context;
  Module module;
  CUdeviceptr address = 0;
  size_t bytes = 0;
  CHECK(cuModuleGetGlobal(&address, &bytes, module.handle(), "counters") == CUDA_SUCCESS);
  CHECK(bytes == 16);
  int values[4] = {};
  CHECK(cuMemcpyDtoH(values, address, 16) == CUDA_SUCCESS);
  CHECK(values[2] == 3);
  CHECK(cuModuleGetGlobal(&address, &bytes, module.handle(), "nothing") == CUDA_ERROR_NOT_FOUND);
}

TEST_CASE("a module lists its functions") {
  Context context;
  Module module;
  unsigned count = 0;
  CHECK(cuModuleGetFunctionCount(&count, module.handle()) == CUDA_SUCCESS);
  REQUIRE(count == 6);
  CUfunction functions[6] = {};
  CHECK(cuModuleEnumerateFunctions(functions, 6, module.handle()) == CUDA_SUCCESS);
  for (CUfunction function : functions) CHECK(function != nullptr);
  CUfunction missing = nullptr;
  CHECK(cuModuleGetFunction(&missing, module.handle(), "nothing") == CUDA_ERROR_NOT_FOUND);
}

TEST_CASE("fat binaries load plain, LZ4 and zstd compressed, from a file and from memory") {
  Context context;
  for (const char* name : {"none.fatbin", "default.fatbin", "speed.fatbin", "size.fatbin"}) {
    INFO(name);
    const std::vector<char> image = ReadFile(ImagePath(name));
    for (const bool from_file : {true, false}) {
      CUmodule module = nullptr;
      const CUresult result = from_file ? cuModuleLoad(&module, ImagePath(name).c_str())
                                        : cuModuleLoadData(&module, image.data());
      REQUIRE(result == CUDA_SUCCESS);
      CUfunction function = nullptr;
      REQUIRE(cuModuleGetFunction(&function, module, "increment") == CUDA_SUCCESS);
      // The newest PTX that the device can run is the one for compute_90.
      CHECK(Increment(function, 41) == 41 + 90);
      CHECK(cuModuleUnload(module) == CUDA_SUCCESS);
    }
  }
}

TEST_CASE("machine code without PTX has no image for this device") {
  Context context;
  CUmodule module = nullptr;
  CHECK(cuModuleLoad(&module, ImagePath("increment.cubin").c_str()) ==
        CUDA_ERROR_NO_BINARY_FOR_GPU);
  CHECK(cuModuleLoad(&module, ImagePath("sass.fatbin").c_str()) == CUDA_ERROR_NO_BINARY_FOR_GPU);
}

TEST_CASE("garbage and broken PTX are told apart, and the compiler's log says where") {
  Context context;
  CUmodule module = nullptr;
  CHECK(cuModuleLoadData(&module, "this is no code") == CUDA_ERROR_INVALID_IMAGE);
  CHECK(cuModuleLoad(&module, "/no/such/file.ptx") == CUDA_ERROR_FILE_NOT_FOUND);
  CHECK(cuModuleLoadData(&module, nullptr) == CUDA_ERROR_INVALID_VALUE);
  const char broken[] =
      ".version 7.0\n.target sm_70\n.address_size 64\n"
      ".visible .entry f()\n{\n  mov.u32 , ;\n}\n";
  char log[256] = {};
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log, reinterpret_cast<void*>(sizeof(log))};
  CHECK(cuModuleLoadDataEx(&module, broken, 2, options, values) == CUDA_ERROR_INVALID_PTX);
  CHECK(std::string(log).find("6:") != std::string::npos);
}

TEST_CASE("a damaged fat binary is refused") {
  Context context;
  std::vector<char> image = ReadFile(ImagePath("size.fatbin"));
  for (size_t i = 64; i < image.size(); ++i) image[i] = char(image[i] * 31 + 7);
  CUmodule module = nullptr;
  CHECK(cuModuleLoadData(&module, image.data()) != CUDA_SUCCESS);
}

TEST_CASE("a library's kernel runs in whatever context is current") {
  Context first;
  CUlibrary library = nullptr;
  REQUIRE(cuLibraryLoadData(&library, kKernels, nullptr, nullptr, 0, nullptr, nullptr, 0) ==
          CUDA_SUCCESS);
  CUkernel add = nullptr, missing = nullptr;
  REQUIRE(cuLibraryGetKernel(&add, library, "add") == CUDA_SUCCESS);
  CHECK(cuLibraryGetKernel(&missing, library, "nothing") == CUDA_ERROR_NOT_FOUND);
  const auto run = [&] {
    CUdeviceptr values = Allocate(4);
    int count = 1, amount = 6, out = 0;
    REQUIRE(cuMemsetD32(values, 0, 1) == CUDA_SUCCESS);
    void* parameters[] = {&values, &count, &amount};
    // A CUkernel is accepted where a CUfunction is declared.
    REQUIRE(Launch(reinterpret_cast<CUfunction>(add), 1, 32, parameters) == CUDA_SUCCESS);
    REQUIRE(cuMemcpyDtoH(&out, values, 4) == CUDA_SUCCESS);
    return out;
  };
  CHECK(run() == 6);
  CUdeviceptr counters_of_first = 0, counters_of_second = 0;
  CHECK(cuLibraryGetGlobal(&counters_of_first, nullptr, library, "counters") == CUDA_SUCCESS);
  {
    Context second;
    CHECK(run() == 6);
    CHECK(cuLibraryGetGlobal(&counters_of_second, nullptr, library, "counters") == CUDA_SUCCESS);
    CHECK(counters_of_first != counters_of_second);
  }
  CUfunction function = nullptr;
  CHECK(cuKernelGetFunction(&function, add) == CUDA_SUCCESS);
  CHECK(cuLibraryUnload(library) == CUDA_SUCCESS);
  CHECK(cuKernelGetFunction(&function, add) == CUDA_ERROR_INVALID_HANDLE);
}

TEST_CASE("a library's kernels can be listed and given attributes") {
  Context context;
  CUlibrary library = nullptr;
  REQUIRE(cuLibraryLoadData(&library, kKernels, nullptr, nullptr, 0, nullptr, nullptr, 0) ==
          CUDA_SUCCESS);
  unsigned count = 0;
  CHECK(cuLibraryGetKernelCount(&count, library) == CUDA_SUCCESS);
  CHECK(count == 6);
  CUkernel kernel = nullptr;
  REQUIRE(cuLibraryGetKernel(&kernel, library, "dynamic_shared") == CUDA_SUCCESS);
  const auto attribute = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
  CHECK(cuKernelSetAttribute(attribute, 96 * 1024, kernel, 0) == CUDA_SUCCESS);
  int value = 0;
  CHECK(cuKernelGetAttribute(&value, attribute, kernel, 0) == CUDA_SUCCESS);
  CHECK(value == 96 * 1024);
  const char* name = nullptr;
  CHECK(cuKernelGetName(&name, kernel) == CUDA_SUCCESS);
  CHECK(std::string(name) == "dynamic_shared");
  CHECK(cuLibraryUnload(library) == CUDA_SUCCESS);
}
