// The process's driver, the threads' context stacks, and the rules that every call shares.
#include "emulator/driver/state.h"

#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <string>

#include "emulator/driver/environment.h"
#include "emulator/driver/memory.h"
#include "emulator/driver/messages.h"
#include "emulator/driver/models.h"
#include "emulator/driver/placement.h"
#include "emulator/driver/work_scheduler.h"

namespace ops_debug::emulator {
namespace {

std::atomic<Driver*> the_driver{nullptr};
// A forked child has the parent's state but none of its threads.
std::atomic<bool> is_forked_child{false};

}  // namespace

bool Initialised() {
  return the_driver.load(std::memory_order_acquire) != nullptr &&
         !is_forked_child.load(std::memory_order_relaxed);
}

bool IsDeinitialised(const Driver& driver) { return driver.scheduler->has_given_up(); }

Driver& TheDriver() { return *the_driver.load(std::memory_order_acquire); }

ContextStackType& ContextStack() {
  constinit thread_local ContextStackType stack;
  return stack;
}

CUctx_st* CurrentContext() {
  ContextStackType& stack = ContextStack();
  return stack.Empty() ? nullptr : TheDriver().contexts.Find(stack.Top());
}

uint64_t ThreadNumber() {
  static std::atomic<uint64_t> next{1};
  constinit thread_local uint64_t number = 0;
  if (number == 0) number = next.fetch_add(1);
  return number;
}

bool& InHostFunction() {
  constinit thread_local bool inside = false;
  return inside;
}

bool& ZeroIsThreadStream() {
  constinit thread_local bool is = false;
  return is;
}

int& CallDepth() {
  constinit thread_local int depth = 0;
  return depth;
}

void SettleSchedule(Driver& driver) { driver.scheduler->Settle(); }

std::map<uint64_t, Allocation>::iterator Driver::FindAllocation(uint64_t address,
                                                                uint64_t size_bytes) {
  auto it = allocations.upper_bound(address);
  if (it == allocations.begin()) return allocations.end();
  --it;
  const uint64_t offset = address - it->first;
  const bool inside =
      offset < it->second.size_bytes && size_bytes <= it->second.size_bytes - offset;
  return inside ? it : allocations.end();
}

CUstream_st* FindStream(Driver& driver, CUctx_st& context, CUstream handle) {
  if (handle == CU_STREAM_LEGACY || (handle == nullptr && !ZeroIsThreadStream())) {
    return &context.legacy_stream;
  }
  if (handle != nullptr && handle != CU_STREAM_PER_THREAD) return driver.streams.Find(handle);
  CUstream_st& stream = context.thread_streams[ThreadNumber()];
  if (stream.order == nullptr) {
    stream.context = &context;
    stream.id = kPerThreadStreamId;
    stream.order = std::make_shared<StreamOrder>(&context, /*is_blocking=*/true);
  }
  return &stream;
}

CUresult CheckStream(const Device& device, const CUctx_st& context, CUstream stream) {
  if (stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD) {
    return CUDA_SUCCESS;
  }
  const CUstream_st* found = device.driver.streams.Find(stream);
  return found != nullptr && found->context == &context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

namespace {

std::optional<uint64_t> SeedFromEnvironment() {
  const char* text = std::getenv(kEnvScheduleSeed);
  const uint64_t seed = text != nullptr ? std::strtoull(text, nullptr, 0) : 0;
  return seed != 0 ? std::optional(seed) : std::nullopt;  // 0: the default schedule
}

// NVIDIA's driver loads what this variable names when it is initialised, before it has a device,
// and calls its InitializeInjection: the way in for tools that are not preloaded.
void LoadInjection() {
  static std::atomic<bool> done{false};
  const char* const path = std::getenv("CUDA_INJECTION64_PATH");
  if (path == nullptr || *path == '\0' || done.exchange(true)) return;
  void* const library = dlopen(path, RTLD_NOW);
  if (library == nullptr) return;
  const auto begin = reinterpret_cast<int (*)()>(dlsym(library, "InitializeInjection"));
  if (begin != nullptr) begin();
}

CUresult Initialise() {
  const char* wanted = std::getenv(kEnvEmulate);
  std::string why;
  const std::vector<DeviceModel> models =
      ChooseModels(wanted != nullptr ? wanted : std::string_view(), &why);
  if (models.empty()) {
    Say(why);
    return CUDA_ERROR_NO_DEVICE;
  }
  auto driver = std::make_unique<Driver>();
  driver->scheduler = std::make_unique<WorkScheduler>(models.size(), SeedFromEnvironment());
  // The host's memory is the devices'; half of it, so that the program itself still fits.
  const uint64_t host_bytes = uint64_t(sysconf(_SC_PHYS_PAGES)) * uint64_t(sysconf(_SC_PAGESIZE));
  for (const DeviceModel& model : models) {
    auto device = std::make_unique<Device>(
        *driver, IsReplay() ? DeviceMemory::Reach::kAnywhere : DeviceMemory::Reach::kArena);
    if (device->memory.arena_base() == 0) return CUDA_ERROR_OUT_OF_MEMORY;
    device->ordinal = int(driver->devices.size());
    device->model = model;
    device->total_memory_bytes =
        std::min<uint64_t>({host_bytes / 2, DeviceMemory::kArenaBytes / 2, model.memory_bytes});
    device->default_pool = AddPool(*driver, *device);
    device->default_pool->is_default = true;
    device->current_pool = device->default_pool;
    driver->devices.push_back(std::move(device));
  }
  pthread_atfork(nullptr, nullptr, [] { is_forked_child.store(true); });
  // Runs before the destructors of whatever was there before cuInit, which may call the driver.
  // A forked child must not touch the scheduler: a worker may have held its lock at the fork.
  std::atexit([] {
    if (Initialised()) TheDriver().scheduler->BeginExit();
  });
  the_driver.store(driver.release(), std::memory_order_release);
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace ops_debug::emulator

extern "C" CUresult cuInit(unsigned int flags) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return ops_debug::emulator::Guarded([]() -> CUresult {
    using namespace ops_debug::emulator;  // NOLINT(google-build-using-namespace): entry point
    if (is_forked_child.load()) return CUDA_ERROR_NOT_INITIALIZED;
    LoadInjection();  // not under the lock: it may ask us for functions
    static std::mutex& mutex = *new std::mutex;
    const std::lock_guard<std::mutex> lock(mutex);
    return Initialised() ? CUDA_SUCCESS : Initialise();
  });
}

extern "C" CUresult cuDriverGetVersion(int* version) {
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = 13000;
  return CUDA_SUCCESS;
}
