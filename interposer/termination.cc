// The handler, the thread that works for it, and what hides it from the program (termination.h).
#include "interposer/termination.h"

#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <ctime>

#include "interposer/dynamic_linker.h"
#include "interposer/process_state.h"

namespace ops_debug::interposer {
namespace {

// A context's last kernels get a second (fault_hooks.cc), reading gets the rest.
constexpr int kPatience_ms = 1500;
constexpr size_t kStackBytes = 1 << 20;
constexpr int kWatched[] = {SIGTERM, SIGINT,  SIGHUP, SIGQUIT, SIGPIPE,
                            SIGABRT, SIGSEGV, SIGBUS, SIGFPE,  SIGILL};

using SigactionFunction = int (*)(int, const struct sigaction*, struct sigaction*);
using SignalFunction = sighandler_t (*)(int, sighandler_t);

struct State {
  std::atomic<bool> watching{false};  // in this process: false again in a forked child
  std::atomic<pid_t> process{0};
  std::atomic<int> signal{0};
  std::atomic<bool> done{false};
  sem_t request;
  std::atomic<SigactionFunction> sigaction{nullptr};
  std::atomic<SignalFunction> signal_function{nullptr};
};
constinit State g_state{};

template <class Function>
Function RealFunction(std::atomic<Function>& cached, const char* name) noexcept {
  Function function = cached.load(std::memory_order_acquire);
  if (function == nullptr) {
    function = reinterpret_cast<Function>(RealDlsym()(RTLD_NEXT, name));
    cached.store(function, std::memory_order_release);
  }
  return function;
}
SigactionFunction RealSigaction() noexcept { return RealFunction(g_state.sigaction, "sigaction"); }
SignalFunction RealSignal() noexcept { return RealFunction(g_state.signal_function, "signal"); }

bool IsWatched(int signal) {
  for (const int watched : kWatched) {
    if (signal == watched) return true;
  }
  return false;
}

void OnSignal(int signal, siginfo_t* info, void* context);

bool IsOurs(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction == &OnSignal;
}

struct sigaction OurAction() {
  struct sigaction action {};
  action.sa_sigaction = &OnSignal;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  return action;
}

struct sigaction DefaultAction() {
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  return action;
}

// Only functions that may be called in a signal handler from here on.

// Has the thread report, whatever state this one is in. `reason`: a signal, or kExit.
constexpr int kExit = -1;
void Report(int reason) {
  // A vforked child shares our memory, but it is another process.
  if (!g_state.watching.load(std::memory_order_acquire) || g_state.process.load() != getpid()) {
    return;
  }
  int none = 0;
  if (g_state.signal.compare_exchange_strong(none, reason)) sem_post(&g_state.request);
  for (int waited_ms = 0; waited_ms < kPatience_ms && !g_state.done.load(); ++waited_ms) {
    const timespec nap{0, 1'000'000};
    nanosleep(&nap, nullptr);
  }
}

void OnSignal(int signal, siginfo_t* info, void*) {
  const int error = errno;
  Report(signal);
  const struct sigaction action = DefaultAction();
  RealSigaction()(signal, &action, nullptr);
  errno = error;
  // A fault of an instruction happens again when we return; what was sent must be sent again.
  const bool can_fault =
      signal == SIGSEGV || signal == SIGBUS || signal == SIGFPE || signal == SIGILL;
  if (can_fault && info != nullptr && info->si_code > 0) return;
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, signal);
  raise(signal);
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

void* Work(void*) {
  pthread_setname_np(pthread_self(), "ops-debug-end");  // ours: stuck_launches.cc knows by the name
  while (sem_wait(&g_state.request) != 0) {
  }
  const int reason = g_state.signal.load();
  reason == kExit ? EndBeforeExit() : EndBySignal(reason);
  g_state.done = true;
  return nullptr;
}

// The program's signals stay its own threads' business.
bool StartThread() {
  sigset_t all, before;
  sigfillset(&all);
  if (pthread_sigmask(SIG_SETMASK, &all, &before) != 0) return false;
  pthread_attr_t attributes;
  bool started = false;
  if (pthread_attr_init(&attributes) == 0) {
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, kStackBytes);
    pthread_t thread{};
    started = pthread_create(&thread, &attributes, &Work, nullptr) == 0;
    pthread_attr_destroy(&attributes);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return started;
}

}  // namespace

void WatchSignals() noexcept {
  if (g_state.watching.load() || RealSigaction() == nullptr || RealSignal() == nullptr) return;
  // A forked child that uses CUDA on its own account gets a thread of its own.
  sem_init(&g_state.request, 0, 0);
  g_state.signal = 0;
  g_state.done = false;
  g_state.process = getpid();
  if (!StartThread()) return;
  g_state.watching.store(true, std::memory_order_release);
  for (const int signal : kWatched) {
    struct sigaction action {};
    if (RealSigaction()(signal, nullptr, &action) != 0) continue;
    const bool is_default = (action.sa_flags & SA_SIGINFO) == 0 && action.sa_handler == SIG_DFL;
    if (!is_default) continue;
    const struct sigaction ours = OurAction();
    RealSigaction()(signal, &ours, nullptr);
  }
}

void LeaveSignalsAlone() noexcept {
  if (!g_state.watching.exchange(false)) return;
  for (const int signal : kWatched) {
    struct sigaction action {};
    if (RealSigaction()(signal, nullptr, &action) != 0 || !IsOurs(action)) continue;
    const struct sigaction default_action = DefaultAction();
    RealSigaction()(signal, &default_action, nullptr);
  }
}

void ReportBeforeExit() noexcept {
  const int error = errno;
  Report(kExit);
  errno = error;
}

int SetSignalAction(int signal, const struct sigaction* action, struct sigaction* old) noexcept {
  const SigactionFunction real = RealSigaction();
  if (!g_state.watching.load(std::memory_order_acquire) || !IsWatched(signal)) {
    return real(signal, action, old);
  }
  // "Default" means us, in both directions.
  const bool wants_default =
      action != nullptr && (action->sa_flags & SA_SIGINFO) == 0 && action->sa_handler == SIG_DFL;
  const struct sigaction ours = OurAction();
  const int result = real(signal, wants_default ? &ours : action, old);
  if (result == 0 && old != nullptr && IsOurs(*old)) *old = DefaultAction();
  return result;
}

sighandler_t SetSignalHandler(int signal, sighandler_t handler) noexcept {
  const SignalFunction real = RealSignal();
  if (!g_state.watching.load(std::memory_order_acquire) || !IsWatched(signal)) {
    return real(signal, handler);
  }
  if (handler == SIG_DFL) {
    struct sigaction old {};
    const struct sigaction ours = OurAction();
    if (RealSigaction()(signal, &ours, &old) != 0) return SIG_ERR;
    return IsOurs(old) ? SIG_DFL : old.sa_handler;
  }
  const sighandler_t old = real(signal, handler);
  return reinterpret_cast<void*>(old) == reinterpret_cast<void*>(&OnSignal) ? SIG_DFL : old;
}

}  // namespace ops_debug::interposer
