// libcuda.so.1 as far as the hook layer can see it: exports in several ABIs and stream variants,
// cuGetProcAddress with versions and flags, an address that is no export, a name and an ABI from
// the future. Results tell which function ran.
#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "interposer/driver_api.h"

namespace {

constexpr int kDriverVersion = 14000;
std::atomic<bool> g_initialised{false};
std::atomic<int> g_launches{0};

// What cuGetProcAddress hands out for cuMemFree: not the exported function, as a driver may.
CUresult InternalMemFree(CUdeviceptr) { return CUDA_ERROR_ILLEGAL_STATE; }
// The ABI that this driver gives cuMemFree from CUDA 14.0 on.
CUresult FutureMemFree(CUdeviceptr, int) { return CUDA_ERROR_TIMEOUT; }
CUresult FutureThing() { return CUDA_ERROR_LAUNCH_TIMEOUT; }

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

CUresult cuInit(unsigned int) {
  g_initialised = true;
  return CUDA_SUCCESS;
}
CUresult cuDriverGetVersion(int* version) {
  *version = kDriverVersion;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  *device = ordinal;
  return g_initialised ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}
CUresult cuDeviceGetName(char* name, int length, CUdevice) {
  strncpy(name, "Fake Device", static_cast<size_t>(length));
  return CUDA_SUCCESS;
}
CUresult cuMemAlloc(CUdeviceptr_v1* address, unsigned int size_bytes) {
  *address = 0x100000 + size_bytes;
  return CUDA_SUCCESS;
}
CUresult cuMemAlloc_v2(CUdeviceptr* address, size_t size_bytes) {
  *address = 0x200000 + size_bytes;
  return CUDA_SUCCESS;
}
CUresult cuMemFree_v2(CUdeviceptr) { return CUDA_ERROR_ALREADY_MAPPED; }
CUresult cuMemFreeAsync(CUdeviceptr, CUstream) { return CUDA_ERROR_ALREADY_ACQUIRED; }
CUresult cuMemFreeAsync_ptsz(CUdeviceptr, CUstream) { return CUDA_ERROR_NOT_MAPPED; }
// Calls an export of its own by the global scope, so gets the preloaded library's.
CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  CUdeviceptr address = 0;
  auto* own = reinterpret_cast<decltype(&cuMemAlloc_v2)>(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"));
  const CUresult result = own(&address, 3);
  *free = address;
  *total = 0;
  return result;
}
CUresult cuLaunchKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                        unsigned, CUstream, void**, void**) {
  ++g_launches;
  return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
}
CUresult cuCtxSynchronize() {
  usleep(500 * 1000);
  return CUDA_SUCCESS;
}
CUresult cuGetExportTable(const void** table, const CUuuid*) {
  *table = &g_launches;
  return CUDA_SUCCESS;
}
int cudnnCreate() { return 7; }  // not of the driver, but starts with "cu" as well
int FakeLaunchCount() { return g_launches; }
}

namespace {

struct Entry {
  const char* name;
  int since;
  bool per_thread;
  void* function;
};

template <class Function>
void* Pointer(Function* function) {
  return reinterpret_cast<void*>(function);
}

const Entry* Find(const char* symbol, int version, bool per_thread, bool* name_known) {
  static const Entry entries[] = {
      {"cuInit", 2000, false, Pointer(&cuInit)},
      {"cuGetProcAddress", 11030, false, Pointer(&cuGetProcAddress)},
      {"cuGetProcAddress", 12000, false, Pointer(&cuGetProcAddress_v2)},
      {"cuMemAlloc", 2000, false, Pointer(&cuMemAlloc)},
      {"cuMemAlloc", 3020, false, Pointer(&cuMemAlloc_v2)},
      {"cuMemFree", 3020, false, Pointer(&InternalMemFree)},
      {"cuMemFree", 14000, false, Pointer(&FutureMemFree)},
      {"cuMemFreeAsync", 11020, false, Pointer(&cuMemFreeAsync)},
      {"cuMemFreeAsync", 11020, true, Pointer(&cuMemFreeAsync_ptsz)},
      {"cuFutureThing", 13010, false, Pointer(&FutureThing)},
  };
  const Entry* found = nullptr;
  for (const Entry& entry : entries) {
    if (std::strcmp(entry.name, symbol) != 0) continue;
    *name_known = true;
    if (entry.since > version || (entry.per_thread && !per_thread)) continue;
    found = &entry;  // later entries are newer, or fit the stream better
  }
  return found;
}

}  // namespace

extern "C" {

CUresult cuGetProcAddress_v2(const char* symbol, void** function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* status) {
  if (version > kDriverVersion) return CUDA_ERROR_INVALID_VALUE;
  bool name_known = false;
  const Entry* entry = Find(
      symbol, version, (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0, &name_known);
  *function = entry != nullptr ? entry->function : nullptr;
  if (status != nullptr) {
    *status = entry != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS
              : name_known     ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                               : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  }
  return CUDA_SUCCESS;
}

CUresult cuGetProcAddress(const char* symbol, void** function, int version, cuuint64_t flags) {
  const CUresult result = cuGetProcAddress_v2(symbol, function, version, flags, nullptr);
  return result == CUDA_SUCCESS && *function == nullptr ? CUDA_ERROR_NOT_FOUND : result;
}
}
#pragma GCC visibility pop
