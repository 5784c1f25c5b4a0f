// Registration of device code. nvcc's stubs call these functions from static constructors, before
// main and before any device is touched; so registering only notes, and code is loaded when a
// kernel or variable of it is first used.
#include "emulator/cudart/registry.h"

#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace ops_debug::emulator::cudart {
namespace {

struct ManagedVariable {
  std::string name;
  void** host_pointer;  // where the program keeps the variable's address
};

struct FatBinary {
  const void* image = nullptr;
  CUlibrary library = nullptr;
  cudaError_t error = cudaSuccess;  // why it could not be loaded
  std::vector<ManagedVariable> managed;
};

struct Function {
  FatBinary* binary = nullptr;
  std::string name;
  CUkernel kernel = nullptr;
};

struct Variable {
  FatBinary* binary = nullptr;
  std::string name;
};

struct Registry {
  std::mutex mutex;
  std::unordered_map<const void*, Function> functions;
  std::unordered_map<const void*, Variable> variables;
};

// Never destroyed: unregistering happens in atexit handlers.
Registry& TheRegistry() {
  static Registry& registry = *new Registry;
  return registry;
}

// The registry is locked.
cudaError_t Load(const DriverCalls& driver, FatBinary& binary) {
  if (binary.library != nullptr) return cudaSuccess;
  if (binary.error != cudaSuccess) return binary.error;
  binary.error = static_cast<cudaError_t>(driver.cuLibraryLoadData(
      &binary.library, binary.image, nullptr, nullptr, 0, nullptr, nullptr, 0));
  for (const ManagedVariable& variable : binary.managed) {
    if (binary.error != cudaSuccess) break;
    CUdeviceptr address = 0;
    binary.error = static_cast<cudaError_t>(
        driver.cuLibraryGetManaged(&address, nullptr, binary.library, variable.name.c_str()));
    *variable.host_pointer = reinterpret_cast<void*>(address);
    // `&variable` in the program is this address from now on.
    TheRegistry().variables[*variable.host_pointer] = {.binary = &binary, .name = variable.name};
  }
  return binary.error;
}

FatBinary* BinaryOf(void** handle) { return reinterpret_cast<FatBinary*>(handle); }

// A registration that fails for want of memory leaves the item unknown; using it then reports an
// error.
template <class Action>
void Register(Action action) noexcept {
  try {
    Registry& registry = TheRegistry();
    const std::lock_guard<std::mutex> lock(registry.mutex);
    action(registry);
  } catch (...) {
  }
}

}  // namespace

cudaError_t FindKernel(const DriverCalls& driver, const void* function, CUkernel* kernel) {
  Registry& registry = TheRegistry();
  const std::lock_guard<std::mutex> lock(registry.mutex);
  const auto found = registry.functions.find(function);
  if (found == registry.functions.end()) {
    // Handed out by FindKernel or by cudaLibraryGetKernel; the driver checks it.
    *kernel = const_cast<CUkernel>(static_cast<const CUkern_st*>(function));
    const char* name = nullptr;
    const bool known = driver.cuKernelGetName(&name, *kernel) == CUDA_SUCCESS;
    return known ? cudaSuccess : cudaErrorInvalidDeviceFunction;
  }
  Function& entry = found->second;
  if (entry.kernel == nullptr) {
    const cudaError_t error = Load(driver, *entry.binary);
    if (error != cudaSuccess) return error;
    const CUresult result =
        driver.cuLibraryGetKernel(&entry.kernel, entry.binary->library, entry.name.c_str());
    if (result != CUDA_SUCCESS) return cudaErrorInvalidDeviceFunction;
  }
  *kernel = entry.kernel;
  return cudaSuccess;
}

const void* FindHostFunction(const DriverCalls& driver, CUkernel kernel, CUfunction function) {
  Registry& registry = TheRegistry();
  const std::lock_guard<std::mutex> lock(registry.mutex);
  for (const auto& [host, entry] : registry.functions) {
    if (entry.kernel == nullptr) continue;
    if (entry.kernel == kernel) return host;
    CUfunction in_context = nullptr;
    if (function != nullptr &&
        driver.cuKernelGetFunction(&in_context, entry.kernel) == CUDA_SUCCESS &&
        in_context == function) {
      return host;
    }
  }
  return kernel != nullptr ? static_cast<const void*>(kernel) : function;
}

cudaError_t FindSymbol(const DriverCalls& driver, const void* symbol, CUdeviceptr* address,
                       size_t* bytes) {
  Registry& registry = TheRegistry();
  const std::lock_guard<std::mutex> lock(registry.mutex);
  const auto found = registry.variables.find(symbol);
  if (found == registry.variables.end()) return cudaErrorInvalidSymbol;
  const cudaError_t error = Load(driver, *found->second.binary);
  if (error != cudaSuccess) return error;
  const CUresult result = driver.cuLibraryGetGlobal(address, bytes, found->second.binary->library,
                                                    found->second.name.c_str());
  return result == CUDA_ERROR_NOT_FOUND ? cudaErrorInvalidSymbol : static_cast<cudaError_t>(result);
}

}  // namespace ops_debug::emulator::cudart

using namespace ops_debug::emulator::cudart;  // NOLINT(google-build-using-namespace): entry points

// Called by nvcc's generated code; declared nowhere but in its internal headers
// (crt/host_runtime.h).
extern "C" {

void** __cudaRegisterFatBinary(void* image) {
  FatBinary* binary = nullptr;
  Register([&](Registry&) { binary = new FatBinary{.image = image}; });
  return reinterpret_cast<void**>(binary);
}

void __cudaRegisterFatBinaryEnd(void**) {}

void __cudaUnregisterFatBinary(void** handle) {
  FatBinary* binary = BinaryOf(handle);
  if (binary == nullptr) return;
  Register([&](Registry& registry) {
    std::erase_if(registry.functions,
                  [&](const auto& entry) { return entry.second.binary == binary; });
    std::erase_if(registry.variables,
                  [&](const auto& entry) { return entry.second.binary == binary; });
  });
  const DriverCalls* driver = nullptr;
  if (binary->library != nullptr && LoadDriver(&driver) == cudaSuccess) {
    driver->cuLibraryUnload(binary->library);
  }
  delete binary;
}

void __cudaRegisterFunction(void** handle, const char* host_function, char*, const char* name, int,
                            uint3*, uint3*, dim3*, dim3*, int*) {
  if (handle == nullptr) return;
  Register([&](Registry& registry) {
    registry.functions[host_function] = {.binary = BinaryOf(handle), .name = name};
  });
}

void __cudaRegisterVar(void** handle, char* host_variable, char*, const char* name, int, size_t,
                       int, int) {
  if (handle == nullptr) return;
  Register([&](Registry& registry) {
    registry.variables[host_variable] = {.binary = BinaryOf(handle), .name = name};
  });
}

void __cudaRegisterManagedVar(void** handle, void** host_pointer, char*, const char* name, int,
                              size_t, int, int) {
  if (handle == nullptr) return;
  Register([&](Registry& registry) {
    BinaryOf(handle)->managed.push_back({.name = name, .host_pointer = host_pointer});
    registry.variables[host_pointer] = {.binary = BinaryOf(handle), .name = name};
  });
}

// Host variables registered for code on the device: the device cannot reach them here.
void __cudaRegisterHostVar(void**, const char*, char*, size_t) {}

// Called before the host's first access to a managed variable of the binary.
char __cudaInitModule(void** handle) {
  if (handle == nullptr) return 0;
  const cudaError_t error = WithContext([&](const DriverCalls& driver) {
    const std::lock_guard<std::mutex> lock(TheRegistry().mutex);
    return Load(driver, *BinaryOf(handle));
  });
  return error == cudaSuccess ? 1 : 0;
}

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  return cudaGetKernel(kernel, function);
}

cudaError_t cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  if (kernel == nullptr) return Report(cudaErrorInvalidValue);
  return WithContext(
      [&](const DriverCalls& driver) { return FindKernel(driver, function, kernel); });
}

cudaError_t cudaGetFuncBySymbol(cudaFunction_t* result, const void* function) {
  if (result == nullptr) return Report(cudaErrorInvalidValue);
  return WithContext([&](const DriverCalls& driver) -> cudaError_t {
    CUkernel kernel = nullptr;
    const cudaError_t error = FindKernel(driver, function, &kernel);
    if (error != cudaSuccess) return error;
    return static_cast<cudaError_t>(driver.cuKernelGetFunction(result, kernel));
  });
}

cudaError_t cudaGetSymbolAddress(void** address, const void* symbol) {
  if (address == nullptr) return Report(cudaErrorInvalidValue);
  return WithContext([&](const DriverCalls& driver) {
    CUdeviceptr found = 0;
    const cudaError_t error = FindSymbol(driver, symbol, &found, nullptr);
    *address = reinterpret_cast<void*>(found);
    return error;
  });
}

cudaError_t cudaGetSymbolSize(size_t* bytes, const void* symbol) {
  if (bytes == nullptr) return Report(cudaErrorInvalidValue);
  return WithContext(
      [&](const DriverCalls& driver) { return FindSymbol(driver, symbol, nullptr, bytes); });
}

}  // extern "C"
