// The kernel puts libraries below the stack, at an offset that it draws at each exec (unless
// randomisation is off). NVIDIA's driver puts device memory there as well, so a collision is
// unlikely but possible, and certain to come back where randomisation is off. The layouts to try:
// mappings from a third of the address space upwards (ADDR_COMPAT_LAYOUT, personality(2)); the same
// region from above, which an unlimited stack makes the kernel choose (arch/x86/mm/mmap.c,
// mmap_base); and simply another draw. Containers forbid the first, a hard limit the second.
#include "replayer/address_space.h"

#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

namespace ops_debug::replayer {
namespace {

// How many layouts were tried already; handed on across exec.
constexpr char kEnvLayout[] = "OPS_DEBUG_REPLAYER_LAYOUT";
constexpr int kLayouts = 6;
constexpr unsigned long kAskPersonality = 0xffffffff;  // NOLINT(google-runtime-int): ABI

bool UpwardLayout() {
  const int now = personality(kAskPersonality);
  return now >= 0 && (now & ADDR_COMPAT_LAYOUT) == 0 &&
         personality(static_cast<unsigned>(now) | ADDR_COMPAT_LAYOUT) >= 0;
}

bool UnlimitedStackLayout() {
  const int now = personality(kAskPersonality);
  if (now >= 0 && (now & ADDR_COMPAT_LAYOUT) != 0)
    personality(static_cast<unsigned>(now) & ~static_cast<unsigned>(ADDR_COMPAT_LAYOUT));
  rlimit limit{};
  if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_max != RLIM_INFINITY) return false;
  if (limit.rlim_cur == RLIM_INFINITY) return false;
  limit.rlim_cur = RLIM_INFINITY;
  return setrlimit(RLIMIT_STACK, &limit) == 0;
}

bool PrepareLayout(int number) {
  switch (number) {
    case 1:
      return UpwardLayout();
    case 2:
      return UnlimitedStackLayout();
    default:
      return true;
  }
}

}  // namespace

bool MapPages(const std::vector<AddressRange>& ranges, std::string* reason) {
  for (size_t i = 0; i < ranges.size(); ++i) {
    const uint64_t bytes = ranges[i].end - ranges[i].begin;
    void* const wish = reinterpret_cast<void*>(ranges[i].begin);
    void* const got =
        mmap(wish, bytes, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (got == wish) continue;
    const int error = errno;
    if (got != MAP_FAILED) munmap(got, bytes);  // a kernel that takes the flag for a mere wish
    char text[128];
    std::snprintf(
        text, sizeof(text), "0x%llx to 0x%llx cannot be mapped here: %s",
        static_cast<unsigned long long>(ranges[i].begin),
        static_cast<unsigned long long>(ranges[i].end),
        got != MAP_FAILED || error == EEXIST ? "other memory lies there" : std::strerror(error));
    *reason = text;
    for (size_t k = 0; k < i; ++k)
      munmap(reinterpret_cast<void*>(ranges[k].begin), ranges[k].end - ranges[k].begin);
    return false;
  }
  return true;
}

void TryAnotherLayout(char** arguments) {
  const char* const tried = std::getenv(kEnvLayout);
  char self[4096];
  const ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
  if (length <= 0) return;
  self[length] = '\0';
  for (int next = (tried != nullptr ? std::atoi(tried) : 0) + 1; next <= kLayouts; ++next) {
    if (!PrepareLayout(next)) continue;
    setenv(kEnvLayout, std::to_string(next).c_str(), 1);
    execv(self, arguments);
  }
}

}  // namespace ops_debug::replayer
