// The stack is walked with the unwinder that is linked in statically: it finds the unwind tables of
// every loaded object by dl_iterate_phdr, needs no frame pointers, and is not shared with the
// program.
#include "interposer/stack.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdlib.h>
#include <unistd.h>
#include <unwind.h>

// First and last byte of this library in memory, from the linker.
extern "C" {
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char _end[] __attribute__((visibility("hidden")));
}

namespace ops_debug::interposer {
namespace {

struct Walk {
  HostStack* stack;
  bool inside_library = true;
};

_Unwind_Reason_Code OnFrame(_Unwind_Context* context, void* argument) {
  auto& walk = *static_cast<Walk*>(argument);
  const uintptr_t address = _Unwind_GetIP(context);
  if (address == 0) return _URC_END_OF_STACK;
  if (walk.inside_library) {
    if (address >= reinterpret_cast<uintptr_t>(__ehdr_start) &&
        address < reinterpret_cast<uintptr_t>(_end)) {
      return _URC_NO_REASON;
    }
    walk.inside_library = false;
  }
  walk.stack->return_addresses[walk.stack->count++] = address;
  return walk.stack->count < HostStack::kMaxFrames ? _URC_NO_REASON : _URC_END_OF_STACK;
}

// The dynamic linker names the executable "" and libraries as they were asked for.
std::string ModulePath(const char* name) {
  char path[PATH_MAX];
  if (name == nullptr || name[0] == '\0') {
    const ssize_t length = readlink("/proc/self/exe", path, sizeof(path));
    return length > 0 ? std::string(path, static_cast<size_t>(length)) : std::string();
  }
  if (name[0] != '/' && realpath(name, path) != nullptr) return path;
  return name;
}

}  // namespace

HostStack CaptureHostStack() noexcept {
  HostStack stack;
  Walk walk{&stack};
  _Unwind_Backtrace(&OnFrame, &walk);
  return stack;
}

std::vector<StackFrame> ResolveHostStack(const HostStack& stack) {
  std::vector<StackFrame> frames;
  frames.reserve(stack.count);
  for (uint32_t i = 0; i < stack.count; ++i) {
    const uintptr_t return_address = stack.return_addresses[i];
    StackFrame frame;
    Dl_info info{};
    link_map* map = nullptr;
    // One byte back is inside the call instruction: a call that ends its function still counts to
    // it.
    if (dladdr1(reinterpret_cast<void*>(return_address - 1), &info, reinterpret_cast<void**>(&map),
                RTLD_DL_LINKMAP) != 0 &&
        map != nullptr) {
      frame.module = ModulePath(map->l_name);
      frame.offset = return_address - map->l_addr;
      if (info.dli_sname != nullptr) {
        frame.symbol = info.dli_sname;
        frame.symbol_offset = return_address - reinterpret_cast<uintptr_t>(info.dli_saddr);
      }
    } else {
      frame.offset = return_address;
    }
    frames.push_back(std::move(frame));
  }
  return frames;
}

}  // namespace ops_debug::interposer
