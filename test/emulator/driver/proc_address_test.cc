// Finding driver functions by name and version.
#include <dlfcn.h>

#include "test/emulator/driver/driver_fixture.h"

namespace {

struct Answer {
  CUresult result;
  void* function;
  CUdriverProcAddressQueryResult status;
};

Answer Ask(const char* name, int version, cuuint64_t flags = CU_GET_PROC_ADDRESS_DEFAULT) {
  Answer answer{};
  answer.function = &answer;  // must be overwritten
  answer.result = cuGetProcAddress(name, &answer.function, version, flags, &answer.status);
  return answer;
}

void* Symbol(const char* name) { return dlsym(RTLD_DEFAULT, name); }

}  // namespace

TEST_CASE("a base name gives the ABI of the version asked for") {
  CHECK(Ask("cuMemAlloc", 13000).function == Symbol("cuMemAlloc_v2"));
  CHECK(Ask("cuMemAlloc", 3020).function == Symbol("cuMemAlloc_v2"));
  CHECK(Ask("cuCtxCreate", 3020).function == Symbol("cuCtxCreate_v2"));
  CHECK(Ask("cuCtxCreate", 11040).function == Symbol("cuCtxCreate_v3"));
  CHECK(Ask("cuCtxCreate", 13000).function == Symbol("cuCtxCreate_v4"));
  const Answer found = Ask("cuInit", 13000);
  CHECK(found.result == CUDA_SUCCESS);
  CHECK(found.function == Symbol("cuInit"));
  CHECK(found.status == CU_GET_PROC_ADDRESS_SUCCESS);
}

TEST_CASE("the per-thread-stream flag gives the variant where there is one") {
  const cuuint64_t per_thread = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  CHECK(Ask("cuLaunchKernel", 13000, per_thread).function == Symbol("cuLaunchKernel_ptsz"));
  CHECK(Ask("cuMemcpyHtoD", 13000, per_thread).function == Symbol("cuMemcpyHtoD_v2_ptds"));
  CHECK(Ask("cuMemAlloc", 13000, per_thread).function == Symbol("cuMemAlloc_v2"));
}

TEST_CASE("a version older than the function is not sufficient") {
  const Answer answer = Ask("cuLibraryLoadData", 11080);
  CHECK(answer.result == CUDA_ERROR_NOT_FOUND);
  CHECK(answer.function == nullptr);
  CHECK(answer.status == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
}

TEST_CASE("unknown names and exported ABI names are not found") {
  for (const char* name : {"cuNoSuchFunction", "cuMemAlloc_v2", "cudnnCreate", ""}) {
    const Answer answer = Ask(name, 13000);
    CHECK(answer.result == CUDA_ERROR_NOT_FOUND);
    CHECK(answer.function == nullptr);
    CHECK(answer.status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  }
}

TEST_CASE("functions the device lacks are not found by name but can be linked and refuse") {
  CHECK(Ask("cuImportExternalMemory", 13000).status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  CHECK(cuImportExternalMemory(nullptr, nullptr) == CUDA_ERROR_NOT_SUPPORTED);
}

TEST_CASE("bad arguments of the look-up are refused") {
  void* function = nullptr;
  CHECK(cuGetProcAddress(nullptr, &function, 13000, 0, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuGetProcAddress("cuInit", nullptr, 13000, 0, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuGetProcAddress("cuInit", &function, 13000, 1u << 20, nullptr) ==
        CUDA_ERROR_INVALID_VALUE);
  CHECK(cuGetProcAddress("cuInit", &function, 13000, 0, nullptr) == CUDA_SUCCESS);
}
