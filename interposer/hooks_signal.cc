// sigaction and signal, exported: so that our stand-in for a default action (termination.h) is not
// seen. _exit, exported: so that what there is gets reported.
#include <dlfcn.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>

#include "interposer/dynamic_linker.h"
#include "interposer/termination.h"

extern "C" {

__attribute__((visibility("default"))) int sigaction(int signal, const struct sigaction* action,
                                                     struct sigaction* old) noexcept {
  return ops_debug::interposer::SetSignalAction(signal, action, old);
}

__attribute__((visibility("default"))) sighandler_t signal(int number,
                                                           sighandler_t handler) noexcept {
  return ops_debug::interposer::SetSignalHandler(number, handler);
}

__attribute__((visibility("default"))) void _exit(int status) {
  ops_debug::interposer::ReportBeforeExit();
  // Other tools intercept it, too.
  const auto next =
      reinterpret_cast<void (*)(int)>(ops_debug::interposer::RealDlsym()(RTLD_NEXT, "_exit"));
  if (next != nullptr) next(status);
  while (true) syscall(SYS_exit_group, status);
}

__attribute__((visibility("default"))) void _Exit(int status) noexcept { _exit(status); }

}  // extern "C"
