// dlvsym is not interposed, so it leads past our own dlsym. glibc 2.34 moved the function from
// libdl into libc and gave it a new version; programs built before that ask for the old one, which
// glibc still has.
#include "interposer/dynamic_linker.h"

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <ctime>

namespace ops_debug::interposer {
namespace {

constexpr const char* kVersions[] = {"GLIBC_2.34", "GLIBC_2.2.5"};

void* Lookup(const char* version) noexcept { return dlvsym(RTLD_NEXT, "dlsym", version); }

// Readers are in VisitObjects, the writer forks. A visitor that never comes back (its thread is
// stopped) must not stop the program's fork as well.
constexpr time_t kPatience_s = 2;
pthread_rwlock_t g_visitors = PTHREAD_RWLOCK_INITIALIZER;
[[gnu::tls_model("initial-exec")]] constinit thread_local bool t_holds_off = false;

void HoldOffVisitors() {
  timespec until{};
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_sec += kPatience_s;
  t_holds_off = pthread_rwlock_clockwrlock(&g_visitors, CLOCK_MONOTONIC, &until) == 0;
}

void LetVisitorsIn() {
  if (t_holds_off) pthread_rwlock_unlock(&g_visitors);
  t_holds_off = false;
}

void LetVisitorsInInChild() {
  // No other thread is left. The lock knows its writer by a thread number that is the parent's.
  g_visitors = PTHREAD_RWLOCK_INITIALIZER;
  t_holds_off = false;
}

__attribute__((constructor)) void WatchForks() {
  pthread_atfork(&HoldOffVisitors, &LetVisitorsIn, &LetVisitorsInInChild);
}

}  // namespace

int VisitObjects(int (*visit)(dl_phdr_info* info, size_t size, void* data), void* data) noexcept {
  const bool locked = pthread_rwlock_rdlock(&g_visitors) == 0;
  const int result = dl_iterate_phdr(visit, data);
  if (locked) pthread_rwlock_unlock(&g_visitors);
  return result;
}

unsigned long long LoadCount() noexcept {
  unsigned long long count = 0;
  VisitObjects(
      [](dl_phdr_info* info, size_t, void* data) {
        *static_cast<unsigned long long*>(data) = info->dlpi_adds;
        return 1;
      },
      &count);
  return count;
}

DlsymFunction RealDlsym() noexcept {
  static std::atomic<DlsymFunction> cached{nullptr};
  DlsymFunction function = cached.load(std::memory_order_acquire);
  if (function != nullptr) return function;
  for (const char* version : kVersions) {
    function = reinterpret_cast<DlsymFunction>(Lookup(version));
    if (function != nullptr) break;
  }
  cached.store(function, std::memory_order_release);
  return function;
}

std::array<const void*, 2> RealDlsymAddresses() noexcept {
  return {Lookup(kVersions[0]), Lookup(kVersions[1])};
}

bool IsRealDlsym(const void* address) noexcept {
  for (const char* version : kVersions) {
    if (address == Lookup(version)) return true;
  }
  return false;
}

}  // namespace ops_debug::interposer
