// How a function of a library other than the driver gets a handler: NVRTC, nvJitLink.
//
//   OPS_DEBUG_LIBRARY_HOOK(nvrtcGetCUBIN, NVRTC_ERROR_INTERNAL_ERROR, nvrtcProgram program,
//                          char* cubin) {
//     const nvrtcResult result = real(program, cubin);
//     KeepingBooks([&] { ... });
//     return result;
//   }
//   OPS_DEBUG_LIBRARY_HOOK_AS(__nvJitLinkCreate_12_0, nvJitLinkCreate, NVJITLINK_ERROR_INTERNAL)
//
// A process may hold several copies of such a library (PyTorch's NVRTC, CuPy's, JAX's), so a
// handler must reach the very copy that the program meant:
//  - dlsym(handle, name) is answered with an entry of ours that stands for what the real look-up
//    found: each function has a few numbered entries, each bound to one real function.
//  - Linked programs are bound to the exported symbol; library_copies.h sends each to an entry.
// The compiler compares the parameter list with the library's header. The second argument is what
// a call returns that leads nowhere because no copy is loaded.
//
// Handlers run in any thread and in every process, with a session or without, and outside the hook
// boundary of driver calls (hooks.h): compilers run for seconds, which a fork must not wait for.
// Data of ours is touched within KeepingBooks only.
#pragma once

#include <atomic>
#include <cstddef>
#include <type_traits>

namespace ops_debug::interposer {

inline constexpr size_t kMaxLibraryCopies = 8;

// One hooked function.
struct LibraryFunction {
  const char* name;
  void (*exported)();            // the symbol that linked programs call
  void* (*entry)(size_t index);  // the numbered entries
  std::atomic<void*>* real;      // what each entry stands for; null: free
};

// Null if there is none of exactly this name.
const LibraryFunction* FindLibraryFunction(const char* name);

// The entry for a real function, bound at first use. The real function itself if all entries are
// taken.
void* EntryFor(const LibraryFunction& function, void* real);

// The function that a call of the export means (library_copies.h). Null if no copy is loaded.
void* RealForCaller(const LibraryFunction& function, const void* caller);

// A function of the library that holds `address`; null if it has none of this name.
void* SiblingOf(const void* address, const char* name);

// True if this process is to remember which PTX cubins are made from.
bool RemembersPtx();

// Brackets access to data of ours: forks wait for it, cancellation too. Not active: no session,
// nothing to remember, or inside another handler.
class LibraryHookScope {
 public:
  LibraryHookScope();
  ~LibraryHookScope();
  LibraryHookScope(const LibraryHookScope&) = delete;
  LibraryHookScope& operator=(const LibraryHookScope&) = delete;
  bool active() const { return active_; }

 private:
  bool active_;
  int cancel_state_ = 0;
};

// Marks this thread as inside a handler: calls that a library makes to its own exports meanwhile
// (nvJitLinkCreate calls __nvJitLinkCreate_13_0) pass straight through.
class LibraryCallScope {
 public:
  LibraryCallScope();
  ~LibraryCallScope();
  LibraryCallScope(const LibraryCallScope&) = delete;
  LibraryCallScope& operator=(const LibraryCallScope&) = delete;
  bool outermost() const { return outermost_; }

 private:
  bool outermost_;
};

// Runs `body` unless there is nothing to remember. Never throws: what cannot be remembered is
// found to have no PTX when it is loaded.
template <class Body>
void KeepingBooks(Body body) noexcept {
  LibraryHookScope scope;
  if (!scope.active()) return;
  try {
    body();
  } catch (...) {
  }
}

template <class Signature>
class LibraryCall;

// The program's own call, and its library.
template <class ResultType, class... Args>
class LibraryCall<ResultType (*)(Args...)> {
 public:
  using Result = ResultType;
  explicit LibraryCall(void* address) : address_(address) {}
  Result operator()(Args... args) const {
    return reinterpret_cast<Result (*)(Args...)>(address_)(args...);
  }
  // Another function of the same copy; null if it has none of this name.
  template <class Signature>
  Signature Sibling(const char* name) const {
    return reinterpret_cast<Signature>(SiblingOf(address_, name));
  }
  // Tells handles of different copies apart.
  const void* address() const { return address_; }

 private:
  void* address_;
};

template <class Signature>
struct LibraryHookEntry;

template <class Result, class... Args>
struct LibraryHookEntry<Result (*)(Args...)> {
  using Real = LibraryCall<Result (*)(Args...)>;
  using Handler = Result (*)(const Real&, Args...);

  template <Handler kHandler>
  static Result Run(void* address, Args... args) {
    const Real real(address);
    LibraryCallScope scope;
    return scope.outermost() ? kHandler(real, args...) : real(args...);
  }

  template <std::atomic<void*>* kReal, Handler kHandler, size_t kIndex>
  static Result CallEntry(Args... args) {
    return Run<kHandler>(kReal[kIndex].load(std::memory_order_acquire), args...);
  }

  template <std::atomic<void*>* kReal, Handler kHandler>
  static void* Entry(size_t index) {
    static_assert(kMaxLibraryCopies == 8);
    static constexpr Result (*kEntries[kMaxLibraryCopies])(Args...) = {
        &CallEntry<kReal, kHandler, 0>, &CallEntry<kReal, kHandler, 1>,
        &CallEntry<kReal, kHandler, 2>, &CallEntry<kReal, kHandler, 3>,
        &CallEntry<kReal, kHandler, 4>, &CallEntry<kReal, kHandler, 5>,
        &CallEntry<kReal, kHandler, 6>, &CallEntry<kReal, kHandler, 7>};
    return reinterpret_cast<void*>(kEntries[index]);
  }

  // What the exported symbol jumps to, so the return address is the program's.
  template <const LibraryFunction* kFunction, Handler kHandler, int kNotFound>
  static Result CallExported(Args... args) {
    void* const real = RealForCaller(*kFunction, __builtin_return_address(0));
    if (real == nullptr) return static_cast<Result>(kNotFound);
    return Run<kHandler>(real, args...);
  }
};

}  // namespace ops_debug::interposer

#if !defined(__x86_64__)
#error "the exported stubs are written for x86-64"
#endif

#define OPS_DEBUG_LIBRARY_HOOK(symbol, not_found, ...)                                     \
  using OpsDebugCall_##symbol = ::ops_debug::interposer::LibraryCall<decltype(&::symbol)>; \
  static OpsDebugCall_##symbol::Result OpsDebugHandle_##symbol(                            \
      [[maybe_unused]] const OpsDebugCall_##symbol& real __VA_OPT__(, ) __VA_ARGS__);      \
  OPS_DEBUG_LIBRARY_HOOK_AS(symbol, symbol, not_found)                                     \
  static OpsDebugCall_##symbol::Result OpsDebugHandle_##symbol(                            \
      [[maybe_unused]] const OpsDebugCall_##symbol& real __VA_OPT__(, ) __VA_ARGS__)

// `symbol` need not be declared anywhere: it has the signature and the handler of `handled`.
#define OPS_DEBUG_LIBRARY_HOOK_AS(symbol, handled, not_found)                             \
  static constinit std::atomic<void*>                                                     \
      OpsDebugReal_##symbol[::ops_debug::interposer::kMaxLibraryCopies]{};                \
  extern "C" {                                                                            \
  __attribute__((visibility("hidden"))) void ops_debug_library_export_##symbol();         \
  }                                                                                       \
  __attribute__((section("ops_debug_library_hooks"),                                      \
                 used)) static constinit const ::ops_debug::interposer::LibraryFunction   \
      OpsDebugLibraryHook_##symbol = {                                                    \
          #symbol, &ops_debug_library_export_##symbol,                                    \
          &::ops_debug::interposer::LibraryHookEntry<decltype(&::handled)>::Entry<        \
              OpsDebugReal_##symbol, &OpsDebugHandle_##handled>,                          \
          OpsDebugReal_##symbol};                                                         \
  extern "C" {                                                                            \
  __attribute__((visibility("hidden"), used)) extern constinit decltype(&::handled)       \
      const ops_debug_library_entry_##symbol =                                            \
          &::ops_debug::interposer::LibraryHookEntry<decltype(&::handled)>::CallExported< \
              &OpsDebugLibraryHook_##symbol, &OpsDebugHandle_##handled, not_found>;       \
  }                                                                                       \
  __asm__(".pushsection .text\n\t.p2align 4\n\t.globl " #symbol "\n\t.type " #symbol      \
          ", @function\n\t.hidden ops_debug_library_export_" #symbol                      \
          "\n\t.globl ops_debug_library_export_" #symbol                                  \
          "\n\t.type ops_debug_library_export_" #symbol ", @function\n" #symbol           \
          ":\nops_debug_library_export_" #symbol                                          \
          ":\n\t.cfi_startproc\n\tendbr64\n\tjmp *ops_debug_library_entry_" #symbol       \
          "(%rip)\n\t.cfi_endproc\n\t.size " #symbol ", . - " #symbol "\n\t.popsection");
