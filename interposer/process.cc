// Process life cycle. All state is constant-initialised and never destroyed, because hooks may run
// before the library's constructors and after its destructors.
//
// Fork: handlers run under the shared side of one lock, fork() takes the other side. So at the
// moment of a fork no handler is half way, and a child finds every lock free that handlers take.
// The wait is bounded: a handler can sit in the driver for long (a module load, a synchronisation),
// and a fork must not wait for the GPU. Then the child gets no handlers.
#include "interposer/process.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include "interposer/driver_table.h"
#include "interposer/event_sender.h"
#include "interposer/other_tools.h"
#include "interposer/process_state.h"
#include "interposer/rebinding.h"
#include "interposer/session.h"
#include "interposer/termination.h"

#ifndef OPS_DEBUG_VERSION
#error "set by CMakeLists.txt"
#endif

namespace ops_debug::interposer {
namespace {

constexpr long kForkWaitMilliseconds = 100;
constexpr size_t kMaxFunctions = 16;

struct ProcessState {
  pthread_rwlock_t handlers = PTHREAD_RWLOCK_INITIALIZER;  // readers run handlers, the writer forks
  pthread_mutex_t announcement = PTHREAD_MUTEX_INITIALIZER;
  std::atomic<uint32_t> fork_generation{0};
  std::atomic<uint32_t> announced{0};  // fork generation + 1 of the process that sent ProcessStart
  std::atomic<bool> handlers_off{false};  // in this child of a fork
  std::atomic<bool> fork_hooks_set{false};
  std::atomic<bool> exit_hook_set{false};
  std::atomic<pid_t> announced_process{0};  // a vforked child shares all of this, but not that
  std::atomic<bool> injected{false};
  std::atomic<bool> end_is_forced{false};
  std::atomic<bool> ended{false};  // ProcessEnd was sent
  std::atomic<void (*)(EndPhase)> flush[kMaxFunctions]{};
  std::atomic<void (*)()> forget[kMaxFunctions]{};
};
constinit ProcessState g_process;

// How deep this thread is in handlers, and whether it holds the writer's side for a fork.
struct ThreadState {
  bool in_handler = false;
  bool fork_locked = false;
};
[[gnu::tls_model("initial-exec")]] constinit thread_local ThreadState t_thread;

void BeforeFork() {
  t_thread.fork_locked = false;
  if (t_thread.in_handler) return;  // a handler starts a child of its own
  timespec deadline{};
  clock_gettime(CLOCK_REALTIME, &deadline);
  deadline.tv_nsec += kForkWaitMilliseconds * 1000000;
  if (deadline.tv_nsec >= 1000000000) {
    deadline.tv_nsec -= 1000000000;
    ++deadline.tv_sec;
  }
  t_thread.fork_locked = pthread_rwlock_timedwrlock(&g_process.handlers, &deadline) == 0;
}

void AfterForkInParent() {
  if (t_thread.fork_locked) pthread_rwlock_unlock(&g_process.handlers);
  t_thread.fork_locked = false;
}

void AfterForkInChild() {
  if (!t_thread.fork_locked) g_process.handlers_off.store(true);
  t_thread = {};
  g_process.handlers = PTHREAD_RWLOCK_INITIALIZER;
  g_process.announcement = PTHREAD_MUTEX_INITIALIZER;
  g_process.fork_generation.fetch_add(1);
  LeaveSignalsAlone();
  if (g_process.handlers_off.load()) return;
  for (auto& slot : g_process.forget) {
    if (void (*function)() = slot.load()) function();
  }
}

bool AnnouncedInGeneration() {
  return g_process.announced.load() == g_process.fork_generation.load() + 1;
}

void RunFlushFunctions(EndPhase phase) {
  t_thread.in_handler = true;  // what the driver calls meanwhile passes through
  for (auto& slot : g_process.flush) {
    if (void (*function)(EndPhase) = slot.load()) function(phase);
  }
  t_thread.in_handler = false;
}

// exit() out of a handler (from a signal handler, say): the handler may hold the locks that
// flushing takes.
bool MayFlush() {
  return AnnouncedInGeneration() && !t_thread.in_handler && !g_process.ended.load();
}

void OnExit() {
  if (MayFlush()) RunFlushFunctions(EndPhase::kDriverUsable);
}

__attribute__((destructor)) void OnUnload() {
  if (!MayFlush()) return;
  RunFlushFunctions(EndPhase::kDriverGone);
  if (!g_process.ended.exchange(true)) Send(ProcessEndEvent{.orderly = true});
}

// Sends all there is and says goodbye, before the program has come to its own end.
void EndForced(const ProcessEndEvent& end) {
  g_process.end_is_forced = true;
  RunFlushFunctions(EndPhase::kDriverUsable);
  g_process.end_is_forced = false;
  if (!g_process.ended.exchange(true)) Send(end);
}

// Distributed launchers tell a process its place in variables of their own: torchrun; Open MPI;
// MPICH, Intel MPI and PMIx; Slurm.
std::string FirstOf(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const char* value = std::getenv(name);
    if (value != nullptr && *value != '\0') return value;
  }
  return {};
}

std::string ReadLink(const char* path) {
  char target[PATH_MAX];
  const ssize_t length = readlink(path, target, sizeof(target));
  return length > 0 ? std::string(target, static_cast<size_t>(length)) : std::string();
}

std::vector<std::string> CommandLine() {
  constexpr size_t kMaxBytes = 64 * 1024;
  std::vector<std::string> arguments;
  FILE* file = std::fopen("/proc/self/cmdline", "re");
  if (file == nullptr) return arguments;
  std::string text(kMaxBytes, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\0', begin), text.size());
    arguments.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return arguments;
}

std::string DeviceName() {
  CUdevice device{};
  char name[256] = "";
  if (OPS_DEBUG_REAL(cuDeviceGet)(&device, 0) != CUDA_SUCCESS) return {};
  if (OPS_DEBUG_REAL(cuDeviceGetName)(name, sizeof(name), device) != CUDA_SUCCESS) return {};
  name[sizeof(name) - 1] = '\0';
  return name;
}

std::string DriverVersion() {
  int version = 0;
  if (OPS_DEBUG_REAL(cuDriverGetVersion)(&version) != CUDA_SUCCESS) return {};
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::vector<std::string> ChecksInWords(const SessionOptions& options) {
  std::vector<std::string> checks;
  if (options.check_memory) checks.emplace_back("memory");
  if (options.check_races) checks.emplace_back("race");
  if (options.check_sync) checks.emplace_back("sync");
  if (options.check_init) checks.emplace_back("init");
  if (options.check_precision) checks.emplace_back("precision");
  if (checks.empty() || options.null_rewrite) checks = {"none"};
  return checks;
}

void SendProcessStart() {
  ProcessStartEvent event;
  event.parent_process_id = static_cast<uint32_t>(getppid());
  event.executable = ReadLink("/proc/self/exe");
  event.arguments = CommandLine();
  event.device_name = DeviceName();
  event.driver_version = DriverVersion();
  event.emulated = Options().emulated;
  event.tool_version = OPS_DEBUG_VERSION;
  event.rank = FirstOf({"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"});
  event.local_rank =
      FirstOf({"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"});
  event.world_size = FirstOf({"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"});
  event.injected = g_process.injected.load();
  event.checks = ChecksInWords(Options());
  Send(event);
  if (g_process.handlers_off.load()) {
    DiagnosticEvent diagnostic;
    diagnostic.severity = proto_enums::Severity::kWarning;
    diagnostic.text =
        "this process was forked while another thread of its parent was inside the CUDA driver; "
        "its own CUDA calls are not checked";
    diagnostic.hint =
        "use CUDA after fork only in programs that are started anew (exec, multiprocessing "
        "'spawn')";
    Send(diagnostic);
  }
}

}  // namespace

void AtProcessEnd(void (*flush)(EndPhase phase)) noexcept {
  for (auto& slot : g_process.flush) {
    void (*expected)(EndPhase) = nullptr;
    if (slot.compare_exchange_strong(expected, flush) || expected == flush) return;
  }
}

void AtForkInChild(void (*forget)()) noexcept {
  for (auto& slot : g_process.forget) {
    void (*expected)() = nullptr;
    if (slot.compare_exchange_strong(expected, forget) || expected == forget) return;
  }
}

bool EndIsForced() noexcept { return g_process.end_is_forced.load(); }

uint32_t ForkGeneration() { return g_process.fork_generation.load(std::memory_order_acquire); }

bool AnnouncedHere() noexcept {
  return AnnouncedInGeneration() && g_process.announced_process.load() == getpid();
}

void EndBeforeExec() noexcept {
  if (AnnouncedHere() && MayFlush()) EndForced({.orderly = true});
}

void ExecFailed() noexcept {
  if (AnnouncedHere() && g_process.ended.exchange(false)) g_process.announced = 0;
}

void EndBySignal(int signal) noexcept {
  if (AnnouncedHere() && MayFlush()) {
    EndForced({.orderly = false, .signal = static_cast<uint32_t>(signal)});
  }
}

void EndBeforeExit() noexcept {
  if (AnnouncedHere() && MayFlush()) EndForced({.orderly = true});
}

void SetInjected() noexcept { g_process.injected = true; }
bool IsInjected() noexcept { return g_process.injected.load(std::memory_order_relaxed); }

bool EnterHandler() noexcept {
  if (IsInjected()) RebindNewObjects();
  if (g_process.handlers_off.load(std::memory_order_relaxed) && !t_thread.in_handler &&
      SessionOpen()) {
    t_thread.in_handler = true;
    AnnounceProcess();
    t_thread.in_handler = false;
    return false;
  }
  return EnterHandlerQuietly();
}

bool EnterHandlerQuietly() noexcept {
  if (t_thread.in_handler || g_process.handlers_off.load(std::memory_order_relaxed) ||
      !SessionOpen()) {
    return false;
  }
  if (!g_process.fork_hooks_set.exchange(true)) {
    pthread_atfork(&BeforeFork, &AfterForkInParent, &AfterForkInChild);
  }
  t_thread.in_handler = true;
  if (pthread_rwlock_rdlock(&g_process.handlers) != 0) {
    t_thread.in_handler = false;
    return false;
  }
  return true;
}

void LeaveHandler() noexcept {
  pthread_rwlock_unlock(&g_process.handlers);
  t_thread.in_handler = false;
}

void AnnounceProcess() noexcept {
  if (AnnouncedInGeneration()) return;
  pthread_mutex_lock(&g_process.announcement);
  if (!AnnouncedInGeneration()) {
    try {
      g_process.ended = false;
      SendProcessStart();
      ReportOtherTools();
    } catch (...) {
    }
    g_process.announced_process.store(getpid());
    g_process.announced.store(g_process.fork_generation.load() + 1);
    if (!g_process.exit_hook_set.exchange(true)) std::atexit(&OnExit);
    WatchSignals();
  }
  pthread_mutex_unlock(&g_process.announcement);
}

}  // namespace ops_debug::interposer
