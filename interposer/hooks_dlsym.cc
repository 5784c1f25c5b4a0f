// dlsym, exported: programs that load the driver by dlopen ask here for its functions.
//
// The real dlsym looks at its return address to learn which library is asking; RTLD_NEXT and
// RTLD_DEFAULT depend on it. So calls that we do not answer must reach it by a jump, with the
// registers and the stack as the caller left them: the exported symbol is a few instructions that
// ask AnswerDlsym and then return or jump.
//
// We answer only if the name is exactly that of a hooked driver function and the real look-up finds
// the real function: then with the hook. A library's own function of the same name stays what it
// is. Functions of other libraries that have handlers (library_hooks.h) may exist in several
// copies: there the answer stands for the one that the real look-up finds.
#include <dlfcn.h>

#include <cstring>

#include "interposer/dynamic_linker.h"
#include "interposer/hooks.h"
#include "interposer/library_copies.h"
#include "interposer/process_state.h"
#include "interposer/rebinding.h"
#include "interposer/session.h"

#if !defined(__x86_64__)
#error "the dlsym stub is written for x86-64"
#endif

namespace ops_debug::interposer {
namespace {

// In rax and rdx, for the stub.
struct Answer {
  uint64_t answered;
  void* address;  // the answer, or where to jump: the real dlsym
};

Answer AnswerDlsym(void* handle, const char* name, const void* caller) noexcept;

}  // namespace
}  // namespace ops_debug::interposer

extern "C" {
__attribute__((visibility("hidden"), used)) auto ops_debug_answer_dlsym(
    void* handle, const char* name, const void* caller) noexcept {
  return ops_debug::interposer::AnswerDlsym(handle, name, caller);
}
__attribute__((visibility("hidden"))) void ops_debug_export_dlsym();
}

__asm__(R"(
  .pushsection .text
  .p2align 4
  .globl dlsym
  .type dlsym, @function
  .hidden ops_debug_export_dlsym
  .globl ops_debug_export_dlsym
  .type ops_debug_export_dlsym, @function
dlsym:
ops_debug_export_dlsym:
  .cfi_startproc
  endbr64
  pushq %rdi
  .cfi_adjust_cfa_offset 8
  pushq %rsi
  .cfi_adjust_cfa_offset 8
  subq $8, %rsp
  .cfi_adjust_cfa_offset 8
  movq 24(%rsp), %rdx  # the return address
  call ops_debug_answer_dlsym
  addq $8, %rsp
  .cfi_adjust_cfa_offset -8
  popq %rsi
  .cfi_adjust_cfa_offset -8
  popq %rdi
  .cfi_adjust_cfa_offset -8
  testq %rax, %rax
  jz 1f
  movq %rdx, %rax
  ret
1:
  jmp *%rdx
  .cfi_endproc
  .size dlsym, . - dlsym
  .popsection
)");

namespace ops_debug::interposer {
namespace {

void* AnswerLibraryFunction(const LibraryFunction& function, void* handle,
                            const void* caller) noexcept {
  void* const exported = reinterpret_cast<void*>(function.exported);
  void* found = RealDlsym()(handle, function.name);
  // By RTLD_DEFAULT or the handle of the whole program: our own export, or what stands behind it.
  if (found == exported || handle == RTLD_DEFAULT) found = RealInScope(function, caller);
  if (found == nullptr || !RemembersPtx()) return found;
  return EntryFor(function, found);
}

Answer AnswerDlsym(void* handle, const char* name, const void* caller) noexcept {
  // The caller may be about to enter a new object. (A look-up by pseudo-handle may come from inside
  // an allocator, where nothing may be allocated; and it follows no dlopen.)
  if (IsInjected()) {
    RebindNewObjects();
  } else if (handle != RTLD_NEXT && handle != RTLD_DEFAULT) {
    BindLibraryImports();
  }
  const DlsymFunction real_dlsym = RealDlsym();
  const Answer pass_on{0, reinterpret_cast<void*>(real_dlsym)};
  // RTLD_NEXT asks for what stands behind the caller, whose place we cannot take.
  if (name == nullptr || handle == RTLD_NEXT) return pass_on;

  if (std::strcmp(name, "dlsym") == 0 && Options().active) {
    void* found = real_dlsym(handle, name);
    if (found != nullptr && IsRealDlsym(found))
      found = reinterpret_cast<void*>(&ops_debug_export_dlsym);
    return {1, found};
  }

  if (const LibraryFunction* library_function = FindLibraryFunction(name))
    return {1, AnswerLibraryFunction(*library_function, handle, caller)};

  DriverFunction function;
  if (name[0] != 'c' || name[1] != 'u' || !FindDriverFunction(name, &function)) return pass_on;
  const Hook* hook = FindHook(function);
  if (hook == nullptr) return pass_on;

  void* const exported = reinterpret_cast<void*>(hook->exported);
  void* const found = real_dlsym(handle, name);
  if (found == nullptr) return {1, nullptr};  // dlerror() describes it
  if (found == exported) {
    // Our own export, by RTLD_DEFAULT or the handle of the whole program. Without us, would there
    // be anything?
    if (DriverLoaded()) return {1, exported};
    return {1, real_dlsym(RTLD_NEXT, name)};
  }
  const bool replace = Options().active && Serves(function) && found == RealAddress(function);
  return {1, replace ? exported : found};
}

}  // namespace
}  // namespace ops_debug::interposer
