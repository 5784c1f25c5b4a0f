// The program under the interposer, in many short roles: `hooks_program ROLE`. It prints what it
// sees; hooks_test.cc says what it should see. It is linked with no driver; hooks_linked_program is
// the same source linked with -lcuda.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "interposer/driver_api.h"

namespace {

void* g_driver = nullptr;

template <class Function>
Function* Symbol(void* handle, const char* name, Function*) {
  return reinterpret_cast<Function*>(dlsym(handle, name));
}
#define DRIVER(name) Symbol(g_driver, #name, &name)

void OpenDriver() {
  g_driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (g_driver == nullptr) std::exit(100);
}

void PrintProc(const char* name, int version, cuuint64_t flags, bool call) {
  auto* get =
      Symbol<CUresult(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*)>(
          g_driver, "cuGetProcAddress_v2", nullptr);
  void* function = nullptr;
  auto status = static_cast<CUdriverProcAddressQueryResult>(99);
  const CUresult result = get(name, &function, version, flags, &status);
  std::printf("%s %d flags %d: result %d status %d ", name, version, static_cast<int>(flags),
              result, status);
  if (function == nullptr || !call) {
    std::printf("%s\n", function == nullptr ? "null" : "found");
    return;
  }
  std::printf("returns %d\n",
              reinterpret_cast<CUresult (*)(CUdeviceptr, CUstream)>(function)(0, nullptr));
}

}  // namespace

// Exported (-rdynamic), so that it has a name on the stack of the allocation.
extern "C" __attribute__((visibility("default"), noinline)) CUdeviceptr AllocateInProgram(
    void* allocate) {
  CUdeviceptr address = 0;
  reinterpret_cast<CUresult (*)(CUdeviceptr*, size_t)>(allocate)(&address, 5);
  return address + 0 * static_cast<CUdeviceptr>(getpid());
}

namespace {

CUdeviceptr Allocate() { return AllocateInProgram(dlsym(g_driver, "cuMemAlloc_v2")); }

void RoleDlsym() {
  OpenDriver();
  std::printf("cuMemAlloc_v2: %llx\n", Allocate());
  CUdeviceptr_v1 old = 0;
  Symbol<CUresult(CUdeviceptr_v1*, unsigned)>(g_driver, "cuMemAlloc", nullptr)(&old, 5);
  std::printf("cuMemAlloc: %x\n", old);
  std::printf("cudnnCreate: %d\n", Symbol<int()>(g_driver, "cudnnCreate", nullptr)());
  std::printf("missing: %p\n", dlsym(g_driver, "cuMemAlloc_v9"));
  std::printf("dlerror: %s\n",
              std::strstr(dlerror(), "cuMemAlloc_v9") != nullptr ? "names it" : "wrong");
  // A hooked name that this driver lacks.
  std::printf("absent: %p\n", dlsym(g_driver, "cuMemAllocManaged"));
  std::printf("dlerror: %s\n",
              std::strstr(dlerror(), "cuMemAllocManaged") != nullptr ? "names it" : "wrong");
  void* libc = dlopen("libc.so.6", RTLD_NOW);
  std::printf("dlsym through libc: %s\n",
              dlsym(libc, "dlsym") == reinterpret_cast<void*>(&dlsym) ? "hooked" : "not hooked");
  const void* table = nullptr;
  CUuuid id{};
  auto* get_table =
      Symbol<CUresult(const void**, const CUuuid*)>(g_driver, "cuGetExportTable", nullptr);
  const CUresult result = get_table(&table, &id);
  std::printf("cuGetExportTable: %d %d\n", result, table != nullptr);
}

void RoleNoDriver() {
  std::printf("default: %p\n", dlsym(RTLD_DEFAULT, "cuInit"));
  std::printf("dlerror: %s\n", std::strstr(dlerror(), "cuInit") != nullptr ? "names it" : "wrong");
  std::printf("program: %p\n", dlsym(dlopen(nullptr, RTLD_NOW), "cuMemAlloc_v2"));
  std::printf("driver: %p\n", dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD));
}

void RoleOwnFunction() {
  OpenDriver();
  void* library = dlopen("libhooks_shim.so", RTLD_NOW);
  std::printf("shim: %llx\n", AllocateInProgram(dlsym(library, "cuMemAlloc_v2")));
  std::printf("through dependency: %d\n",
              Symbol<CUresult(CUdeviceptr)>(library, "cuMemFree_v2", nullptr)(0));
}

void RoleGetProcAddress() {
  OpenDriver();
  constexpr cuuint64_t kDefault = CU_GET_PROC_ADDRESS_DEFAULT,
                       kLegacy = CU_GET_PROC_ADDRESS_LEGACY_STREAM,
                       kPerThread = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  PrintProc("cuMemFreeAsync", 12000, kDefault, true);
  PrintProc("cuMemFreeAsync", 12000, kLegacy, true);
  PrintProc("cuMemFreeAsync", 12000, kPerThread, true);
  PrintProc("cuMemFreeAsync", 11010, kDefault, true);
  PrintProc("cuMemFree", 12000, kDefault, true);
  PrintProc("cuMemFree", 14000, kDefault, true);
  PrintProc("cuFutureThing", 13010, kDefault, true);
  PrintProc("cuFutureThing", 12000, kDefault, true);
  PrintProc("cuNoSuchThing", 12000, kDefault, true);
  PrintProc("cuMemAlloc", 15000, kDefault, false);
  // Both ABIs of one name, by the first ABI of cuGetProcAddress.
  auto* get =
      Symbol<CUresult(const char*, void**, int, cuuint64_t)>(g_driver, "cuGetProcAddress", nullptr);
  void* function = nullptr;
  get("cuMemAlloc", &function, 3020, 0);
  std::printf("cuMemAlloc 3020: %llx\n", AllocateInProgram(function));
  CUdeviceptr_v1 old = 0;
  get("cuMemAlloc", &function, 3000, 0);
  reinterpret_cast<CUresult (*)(CUdeviceptr_v1*, unsigned)>(function)(&old, 5);
  std::printf("cuMemAlloc 3000: %x\n", old);
  std::printf("missing: %d\n", get("cuNoSuchThing", &function, 12000, 0));
  // The function itself, found through itself.
  get("cuGetProcAddress", &function, 12000, 0);
  std::printf("itself: %s\n",
              function == dlsym(g_driver, "cuGetProcAddress_v2") ? "hooked" : "not hooked");
}

void RoleNested() {
  OpenDriver();
  size_t free = 0, total = 0;
  DRIVER(cuMemGetInfo_v2)(&free, &total);
  std::printf("inside the driver: %zx\n", free);
}

void RoleThrow() {
  OpenDriver();
  auto* launch = DRIVER(cuLaunchKernel);
  auto* count = Symbol<int()>(g_driver, "FakeLaunchCount", nullptr);
  const int before = launch(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
  std::printf("before: result %d launches %d\n", before, count());
  const int after = launch(nullptr, 2, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
  std::printf("after: result %d launches %d\n", after, count());
}

void RoleFork() {
  OpenDriver();
  DRIVER(cuInit)(0);
  std::printf("parent: %llx\n", Allocate());
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    std::printf("child: %llx\n", Allocate());
    std::exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  std::printf("child status: %d\n", status);
}

void RoleForkQuiet() {  // the child uses no driver
  OpenDriver();
  DRIVER(cuInit)(0);
  Allocate();
  if (const pid_t child = fork(); child == 0) {
    std::exit(0);
  } else {
    waitpid(child, nullptr, 0);
  }
}

void RoleForkBusy() {  // another thread is inside the driver for longer than a fork waits
  OpenDriver();
  DRIVER(cuInit)(0);
  auto* synchronize = DRIVER(cuCtxSynchronize);
  std::thread busy([&] { synchronize(); });
  usleep(100 * 1000);
  const pid_t child = fork();
  if (child == 0) {
    std::printf("child: %llx\n", Allocate());
    std::fflush(stdout);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  std::printf("child status: %d\n", status);
  busy.join();
  std::printf("parent: %llx\n", Allocate());
}

void RoleThreads() {
  OpenDriver();
  constexpr int kThreads = 8, kCalls = 2000;
  std::vector<std::thread> threads;
  std::vector<int> good(kThreads);
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      auto* release = DRIVER(cuMemFree_v2);
      for (int call = 0; call < kCalls; ++call)
        good[i] += release(0) == 10000 + CUDA_ERROR_ALREADY_MAPPED;
    });
  }
  for (int forks = 0; forks < 20; ++forks) {
    const pid_t child = fork();
    if (child == 0) {
      DRIVER(cuMemFree_v2)(0);
      _exit(0);
    }
    waitpid(child, nullptr, 0);
  }
  int sum = 0;
  for (int i = 0; i < kThreads; ++i) {
    threads[i].join();
    sum += good[i];
  }
  std::printf("good calls: %d of %d\n", sum, kThreads * kCalls);
}

void RoleChain() {
  using Chain = void(char*);
  auto* chain = reinterpret_cast<Chain*>(dlsym(RTLD_DEFAULT, "OpsDebugTestChain"));
  char text[16] = "";
  chain(text);
  std::printf("chain: %s\n", text);
  // RTLD_DEFAULT and RTLD_NEXT of a library that was loaded locally look at its own dependencies.
  void* library = dlopen("libhooks_local.so", RTLD_NOW | RTLD_LOCAL);
  auto* ask = reinterpret_cast<int (*)()>(dlsym(library, "AskLocalScope"));
  std::printf("local scope: %d\n", ask());
  std::printf("own scope: %p\n", dlsym(RTLD_DEFAULT, "OnlyInDependency"));
}

void RoleExit(bool orderly) {
  OpenDriver();
  DRIVER(cuInit)(0);
  Allocate();
  if (!orderly) _exit(3);
  std::exit(3);
}

// Against the CPU device: addresses differ from run to run, so it prints only what was reached.
void RoleEmulator() {
  OpenDriver();
  constexpr CUdeviceptr kMark = 0xab00000000;
  const CUresult initialised = DRIVER(cuInit)(0);
  std::printf("cuInit: %d\n", initialised);
  CUcontext context = nullptr;
  DRIVER(cuDevicePrimaryCtxRetain)(&context, 0);
  const CUresult current = DRIVER(cuCtxSetCurrent)(context);
  std::printf("context: %d\n", current);
  std::printf("by dlsym: %s\n", (Allocate() & kMark) == kMark ? "hooked" : "not hooked");
  PrintProc("cuMemAlloc", 3020, CU_GET_PROC_ADDRESS_DEFAULT, false);
  void* function = nullptr;
  CUdriverProcAddressQueryResult status{};
  DRIVER(cuGetProcAddress_v2)("cuMemAlloc", &function, 12000, 0, &status);
  std::printf("by name: %s\n",
              function == dlsym(g_driver, "cuMemAlloc_v2") ? "hooked" : "not hooked");
  DRIVER(cuGetProcAddress_v2)
  ("cuMemFreeAsync", &function, 12000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &status);
  std::printf("per thread: %s\n",
              function == dlsym(g_driver, "cuMemFreeAsync_ptsz") ? "hooked" : "not hooked");
}

#ifdef HOOKS_LINKED
void RoleLinked() {
  std::printf("cuInit: %d\n", cuInit(0));
  CUdeviceptr address = 0;
  std::printf("cuMemAlloc_v2: %d", cuMemAlloc_v2(&address, 5));
  std::printf(" %llx\n", address);
  std::printf("same address: %d\n",
              reinterpret_cast<void*>(&cuMemAlloc_v2) == dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"));
  CUdeviceptr_v1 old = 0;
  std::printf("cuMemAlloc: %d", cuMemAlloc(&old, 5));
  std::printf(" %x\n", old);
}
#else
void RoleLinked() { std::exit(100); }
#endif

}  // namespace

int main(int argc, char** argv) {
  const char* role = argc > 1 ? argv[1] : "";
  const struct {
    const char* name;
    void (*run)();
  } roles[] = {
      {"dlsym", &RoleDlsym},
      {"no-driver", &RoleNoDriver},
      {"own-function", &RoleOwnFunction},
      {"get-proc-address", &RoleGetProcAddress},
      {"nested", &RoleNested},
      {"throw", &RoleThrow},
      {"fork", &RoleFork},
      {"fork-quiet", &RoleForkQuiet},
      {"fork-busy", &RoleForkBusy},
      {"threads", &RoleThreads},
      {"chain", &RoleChain},
      {"emulator", &RoleEmulator},
      {"linked", &RoleLinked},
      {"exit", [] { RoleExit(true); }},
      {"_exit", [] { RoleExit(false); }},
  };
  for (const auto& entry : roles) {
    if (std::strcmp(entry.name, role) != 0) continue;
    entry.run();
    return 0;
  }
  return 101;
}
