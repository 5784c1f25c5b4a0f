// The table of hooked functions and their entries. Which copy a call means: library_copies.h.
#include "interposer/library_hooks.h"

#include <dlfcn.h>
#include <pthread.h>

#include <cstring>
#include <span>

#include "interposer/dynamic_linker.h"
#include "interposer/process_state.h"
#include "interposer/session.h"

// Bounds of the section that OPS_DEBUG_LIBRARY_HOOK fills, made by the linker; weak, because a test
// may link no hook.
extern "C" {
extern const ops_debug::interposer::LibraryFunction __start_ops_debug_library_hooks[]
    __attribute__((weak, visibility("hidden")));
extern const ops_debug::interposer::LibraryFunction __stop_ops_debug_library_hooks[]
    __attribute__((weak, visibility("hidden")));
}

namespace ops_debug::interposer {
namespace {

[[gnu::tls_model("initial-exec")]] constinit thread_local bool t_in_library_call = false;

}  // namespace

const LibraryFunction* FindLibraryFunction(const char* name) {
  // Every dlsym of the process passes here.
  const bool may_be_one =
      name[0] == 'n' || std::strncmp(name, "__n", 3) == 0 || std::strncmp(name, "cupti", 5) == 0;
  if (!may_be_one) return nullptr;
  for (const LibraryFunction& function :
       std::span(__start_ops_debug_library_hooks, __stop_ops_debug_library_hooks)) {
    if (std::strcmp(function.name, name) == 0) return &function;
  }
  return nullptr;
}

void* EntryFor(const LibraryFunction& function, void* real) {
  for (size_t i = 0; i < kMaxLibraryCopies; ++i) {
    void* bound = function.real[i].load(std::memory_order_acquire);
    if (bound == nullptr && function.real[i].compare_exchange_strong(bound, real)) bound = real;
    if (bound == real) return function.entry(i);
  }
  return real;
}

void* SiblingOf(const void* address, const char* name) {
  Dl_info info;
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) return nullptr;
  void* const handle = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr) return nullptr;
  void* const found = RealDlsym()(handle, name);
  dlclose(handle);
  return found;
}

bool RemembersPtx() {
  const SessionOptions& options = Options();
  return options.active && options.use_ptx_engine && (ChecksAnything() || options.null_rewrite);
}

LibraryCallScope::LibraryCallScope() : outermost_(!t_in_library_call) { t_in_library_call = true; }
LibraryCallScope::~LibraryCallScope() {
  if (outermost_) t_in_library_call = false;
}

LibraryHookScope::LibraryHookScope() : active_(RemembersPtx() && EnterHandler()) {
  if (active_) pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state_);
}

LibraryHookScope::~LibraryHookScope() {
  if (!active_) return;
  LeaveHandler();
  pthread_setcancelstate(cancel_state_, nullptr);
}

}  // namespace ops_debug::interposer
