// Finding the driver and the context. The run-time asks the loader for libcuda.so.1 and that for
// cuGetProcAddress_v2, and takes everything else from there: the same steps as NVIDIA's, so tools
// that hook those see this one as well.
#include "emulator/cudart/runtime.h"

#include <dlfcn.h>

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <type_traits>

#include "emulator/driver/messages.h"

namespace ops_debug::emulator {

bool& ZeroIsThreadStream() {
  constinit thread_local bool is = false;
  return is;
}

namespace cudart {
namespace {

struct Loaded {
  cudaError_t error = cudaErrorInsufficientDriver;
  PFN_cuGetProcAddress_v12000 get_proc_address = nullptr;
  DriverCalls calls;         // stream 0 is the legacy default stream
  DriverCalls thread_calls;  // stream 0 is the calling thread's default stream
};

int Missing() { return CUDA_ERROR_NOT_SUPPORTED; }

template <class Function>
void Look(PFN_cuGetProcAddress_v12000 get_proc_address, const char* name, int version,
          cuuint64_t flags, Function* function) {
  void* found = nullptr;
  CUdriverProcAddressQueryResult status;
  const CUresult result = get_proc_address(name, &found, version, flags, &status);
  if (result != CUDA_SUCCESS || found == nullptr) found = reinterpret_cast<void*>(&Missing);
  *function = reinterpret_cast<Function>(found);
}

// NVIDIA's run-time, too, has its pointers in static memory before it initialises the driver: tools
// that the driver loads just then (CUDA_INJECTION64_PATH) find them there.
void Load(Loaded& loaded) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) {
    const char* reason = dlerror();
    Say(std::string("cannot load libcuda.so.1: ") +
        (reason != nullptr ? reason : "no reason given"));
    return;
  }
  loaded.get_proc_address =
      reinterpret_cast<PFN_cuGetProcAddress_v12000>(dlsym(library, "cuGetProcAddress_v2"));
  if (loaded.get_proc_address == nullptr) return;
#define OPS_DEBUG_DRIVER_CALL(name, version)                                                   \
  Look(loaded.get_proc_address, #name, version, CU_GET_PROC_ADDRESS_LEGACY_STREAM,             \
       &loaded.calls.name);                                                                    \
  Look(loaded.get_proc_address, #name, version, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, \
       &loaded.thread_calls.name);
#include "emulator/cudart/driver_calls.inc"
#undef OPS_DEBUG_DRIVER_CALL
  loaded.error = static_cast<cudaError_t>(loaded.calls.cuInit(0));
}

// Never destroyed: programs call the run-time from atexit handlers.
static_assert(std::is_trivially_destructible_v<Loaded>);
const Loaded& TheDriver() {
  static Loaded loaded;
  static std::once_flag once;
  std::call_once(once, Load, std::ref(loaded));
  return loaded;
}

thread_local cudaError_t last_error = cudaSuccess;

}  // namespace

cudaError_t LoadDriver(const DriverCalls** driver) {
  const Loaded& loaded = TheDriver();
  *driver = ZeroIsThreadStream() ? &loaded.thread_calls : &loaded.calls;
  return loaded.error;
}

PFN_cuGetProcAddress_v12000 GetProcAddress() { return TheDriver().get_proc_address; }

int& ThreadDevice() {
  constinit thread_local int ordinal = 0;
  return ordinal;
}

cudaError_t RetainPrimary(const DriverCalls& driver, int ordinal, CUcontext* primary) {
  // Retained once for the whole process. Never destroyed, like the driver.
  static std::mutex& mutex = *new std::mutex;
  static std::map<int, CUcontext>& retained = *new std::map<int, CUcontext>;
  const std::lock_guard<std::mutex> lock(mutex);
  CUcontext& known = retained[ordinal];
  if (known == nullptr) {
    const CUresult result = driver.cuDevicePrimaryCtxRetain(&known, ordinal);
    if (result != CUDA_SUCCESS) {
      known = nullptr;
      return static_cast<cudaError_t>(result);
    }
  }
  *primary = known;
  return cudaSuccess;
}

cudaError_t EnsureContext(const DriverCalls& driver) {
  CUcontext context = nullptr;
  const CUresult result = driver.cuCtxGetCurrent(&context);
  if (result != CUDA_SUCCESS || context != nullptr) return static_cast<cudaError_t>(result);
  const cudaError_t error = RetainPrimary(driver, ThreadDevice(), &context);
  return error != cudaSuccess ? error : static_cast<cudaError_t>(driver.cuCtxSetCurrent(context));
}

cudaError_t CurrentDevice(const DriverCalls& driver, int* ordinal) {
  CUcontext context = nullptr;
  const CUresult result = driver.cuCtxGetCurrent(&context);
  if (result == CUDA_SUCCESS && context != nullptr) {
    return static_cast<cudaError_t>(driver.cuCtxGetDevice(ordinal));
  }
  *ordinal = ThreadDevice();
  return cudaSuccess;
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
}  // namespace cudart
}  // namespace ops_debug::emulator

using namespace ops_debug::emulator::cudart;  // NOLINT(google-build-using-namespace): entry points

extern "C" {

cudaError_t cudaPeekAtLastError(void) { return last_error; }

cudaError_t cudaGetLastError(void) {
  const cudaError_t error = last_error;
  if (!IsSticky(error)) last_error = cudaSuccess;
  return error;
}

}  // extern "C"
