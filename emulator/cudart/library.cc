// Libraries of device code that the program loads itself, and the way to the driver's own
// functions.
#include "emulator/cudart/runtime.h"

using namespace ops_debug::emulator::cudart;  // NOLINT(google-build-using-namespace): entry points

namespace {

cudaError_t FindEntryPoint(const char* name, void** function, unsigned version, cuuint64_t flags,
                           cudaDriverEntryPointQueryResult* status) {
  if (name == nullptr || function == nullptr) return Report(cudaErrorInvalidValue);
  return WithDriver([&](const DriverCalls&) -> cudaError_t {
    CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    const CUresult result = GetProcAddress()(name, function, int(version), flags, &found);
    if (status != nullptr) *status = static_cast<cudaDriverEntryPointQueryResult>(found);
    // Not finding is an answer, given in `*status`.
    if (result == CUDA_ERROR_NOT_FOUND) *function = nullptr;
    return result == CUDA_ERROR_NOT_FOUND && status != nullptr ? cudaSuccess
                                                               : static_cast<cudaError_t>(result);
  });
}

cudaError_t FindVariable(bool managed, void** address, size_t* bytes, cudaLibrary_t library,
                         const char* name) {
  return WithContext([&](const DriverCalls& driver) {
    CUdeviceptr found = 0;
    const CUresult result = managed ? driver.cuLibraryGetManaged(&found, bytes, library, name)
                                    : driver.cuLibraryGetGlobal(&found, bytes, library, name);
    if (result == CUDA_SUCCESS && address != nullptr) *address = reinterpret_cast<void*>(found);
    return result;
  });
}

}  // namespace

extern "C" {

cudaError_t cudaLibraryLoadData(cudaLibrary_t* library, const void* code, cudaJitOption* options,
                                void** values, unsigned int count,
                                cudaLibraryOption* library_options, void** library_values,
                                unsigned int library_count) {
  return WithContext([&](const DriverCalls& driver) {
    return driver.cuLibraryLoadData(library, code, reinterpret_cast<CUjit_option*>(options), values,
                                    count, reinterpret_cast<CUlibraryOption*>(library_options),
                                    library_values, library_count);
  });
}

cudaError_t cudaLibraryLoadFromFile(cudaLibrary_t* library, const char* path,
                                    cudaJitOption* options, void** values, unsigned int count,
                                    cudaLibraryOption* library_options, void** library_values,
                                    unsigned int library_count) {
  return WithContext([&](const DriverCalls& driver) {
    return driver.cuLibraryLoadFromFile(
        library, path, reinterpret_cast<CUjit_option*>(options), values, count,
        reinterpret_cast<CUlibraryOption*>(library_options), library_values, library_count);
  });
}

cudaError_t cudaLibraryUnload(cudaLibrary_t library) {
  return WithContext([&](const DriverCalls& driver) { return driver.cuLibraryUnload(library); });
}

cudaError_t cudaLibraryGetKernel(cudaKernel_t* kernel, cudaLibrary_t library, const char* name) {
  return WithContext(
      [&](const DriverCalls& driver) { return driver.cuLibraryGetKernel(kernel, library, name); });
}

cudaError_t cudaLibraryGetKernelCount(unsigned int* count, cudaLibrary_t library) {
  return WithContext(
      [&](const DriverCalls& driver) { return driver.cuLibraryGetKernelCount(count, library); });
}

cudaError_t cudaLibraryEnumerateKernels(cudaKernel_t* kernels, unsigned int capacity,
                                        cudaLibrary_t library) {
  return WithContext([&](const DriverCalls& driver) {
    return driver.cuLibraryEnumerateKernels(kernels, capacity, library);
  });
}

cudaError_t cudaLibraryGetGlobal(void** address, size_t* bytes, cudaLibrary_t library,
                                 const char* name) {
  return FindVariable(/*managed=*/false, address, bytes, library, name);
}

cudaError_t cudaLibraryGetManaged(void** address, size_t* bytes, cudaLibrary_t library,
                                  const char* name) {
  return FindVariable(/*managed=*/true, address, bytes, library, name);
}

cudaError_t cudaGetDriverEntryPoint(const char* name, void** function,
                                    unsigned long long flags,  // NOLINT(google-runtime-int): ABI
                                    cudaDriverEntryPointQueryResult* status) {
  return FindEntryPoint(name, function, OPS_DEBUG_RUNTIME_VERSION, flags, status);
}

cudaError_t cudaGetDriverEntryPointByVersion(
    const char* name, void** function, unsigned int version,
    unsigned long long flags,  // NOLINT(google-runtime-int): ABI
    cudaDriverEntryPointQueryResult* status) {
  return FindEntryPoint(name, function, version, flags, status);
}

}  // extern "C"

OPS_DEBUG_PER_THREAD(cudaGetDriverEntryPoint, ptsz, 4)
OPS_DEBUG_PER_THREAD(cudaGetDriverEntryPointByVersion, ptsz, 5)
