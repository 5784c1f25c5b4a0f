// Finding the driver and the context. The run-time asks the loader for libcuda.so.1 and that for
// cuGetProcAddress_v2, and takes everything else from there: the same steps as NVIDIA's, so tools
// that hook those see this one as well.
#include "emulator/cudart/runtime.h"

#include <dlfcn.h>

#include <mutex>

#include "emulator/driver/messages.h"

namespace ops_debug::emulator::cudart {
namespace {

struct Loaded {
  cudaError_t error = cudaErrorInsufficientDriver;
  PFN_cuGetProcAddress_v12000 get_proc_address = nullptr;
  DriverCalls calls;
};

int Missing() { return CUDA_ERROR_NOT_SUPPORTED; }

template <class Function>
void Look(PFN_cuGetProcAddress_v12000 get_proc_address, const char* name, int version,
          Function* function) {
  void* found = nullptr;
  CUdriverProcAddressQueryResult status;
  const CUresult result =
      get_proc_address(name, &found, version, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &status);
  if (result != CUDA_SUCCESS || found == nullptr) found = reinterpret_cast<void*>(&Missing);
  *function = reinterpret_cast<Function>(found);
}

Loaded Load() {
  Loaded loaded;
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) {
    const char* reason = dlerror();
    Say(std::string("cannot load libcuda.so.1: ") +
        (reason != nullptr ? reason : "no reason given"));
    return loaded;
  }
  loaded.get_proc_address =
      reinterpret_cast<PFN_cuGetProcAddress_v12000>(dlsym(library, "cuGetProcAddress_v2"));
  if (loaded.get_proc_address == nullptr) return loaded;
#define OPS_DEBUG_DRIVER_CALL(name, version) \
  Look(loaded.get_proc_address, #name, version, &loaded.calls.name);
#include "emulator/cudart/driver_calls.inc"
#undef OPS_DEBUG_DRIVER_CALL
  loaded.error = static_cast<cudaError_t>(loaded.calls.cuInit(0));
  return loaded;
}

// Never destroyed: programs call the run-time from atexit handlers.
const Loaded& TheDriver() {
  static const Loaded& loaded = *new Loaded(Load());
  return loaded;
}

thread_local cudaError_t last_error = cudaSuccess;

}  // namespace

cudaError_t LoadDriver(const DriverCalls** driver) {
  const Loaded& loaded = TheDriver();
  *driver = &loaded.calls;
  return loaded.error;
}

PFN_cuGetProcAddress_v12000 GetProcAddress() { return TheDriver().get_proc_address; }

cudaError_t EnsureContext(const DriverCalls& driver) {
  CUcontext context = nullptr;
  CUresult result = driver.cuCtxGetCurrent(&context);
  if (result != CUDA_SUCCESS || context != nullptr) return static_cast<cudaError_t>(result);
  static std::mutex& mutex = *new std::mutex;
  static CUcontext primary = nullptr;
  const std::lock_guard<std::mutex> lock(mutex);
  if (primary == nullptr) {
    result = driver.cuDevicePrimaryCtxRetain(&primary, 0);
    if (result != CUDA_SUCCESS) return static_cast<cudaError_t>(result);
  }
  return static_cast<cudaError_t>(driver.cuCtxSetCurrent(primary));
}

cudaError_t Report(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

void ForgetLastError() { last_error = cudaSuccess; }

namespace {

// A faulted kernel leaves the context broken until it is reset; its error stays.
bool IsSticky(cudaError_t error) {
  switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
      return true;
    default:
      return false;
  }
}

}  // namespace
}  // namespace ops_debug::emulator::cudart

using namespace ops_debug::emulator::cudart;  // NOLINT(google-build-using-namespace): entry points

extern "C" {

cudaError_t cudaPeekAtLastError(void) { return last_error; }

cudaError_t cudaGetLastError(void) {
  const cudaError_t error = last_error;
  if (!IsSticky(error)) last_error = cudaSuccess;
  return error;
}

}  // extern "C"
