// Habits of real programs: children, exec, signals, late calls. The first argument names the habit;
// test_processes.py says what must come of it. A process that uses the device prints what it
// computed; `overflow` kernels write one element too many.
#include <cuda.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

static const char kPtx[] = R"(
.version 7.0
.target sm_70
.address_size 64
.visible .entry fill(.param .u64 out, .param .u32 n)
{
  .reg .pred %p<2>;
  .reg .b32 %r<6>;
  .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [out];
  ld.param.u32 %r1, [n];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.s32 %r5, %r2, %r3, %r4;
  setp.ge.s32 %p1, %r5, %r1;
  @%p1 bra done;
  cvta.to.global.u64 %rd2, %rd1;
  mul.wide.s32 %rd3, %r5, 4;
  add.s64 %rd4, %rd2, %rd3;
  st.global.u32 [%rd4], %r5;
done:
  ret;
}
.visible .entry spin(.param .u64 out, .param .u32 n)
{
  .reg .b64 %rd<5>;
  .reg .b32 %r<3>;
  ld.param.u64 %rd1, [out];
  cvta.to.global.u64 %rd2, %rd1;
  st.global.u32 [%rd2+4000], %r1;
again:
  ld.volatile.global.u32 %r2, [%rd2];
  bra again;
}
)";

static const int kElements = 1000;

static void Check(const char* call, CUresult result) {
  if (result == CUDA_SUCCESS) return;
  std::printf("%s: error %d\n", call, static_cast<int>(result));
  std::fflush(stdout);
}
#define CALL(function, ...) Check(#function, function(__VA_ARGS__))

struct Work {
  CUmodule module = nullptr;
  CUfunction fill = nullptr;
  CUdeviceptr out = 0;
};

static Work Begin() {
  Work work;
  CUdevice device;
  CUcontext context;
  CALL(cuInit, 0);
  CALL(cuDeviceGet, &device, 0);
  CALL(cuDevicePrimaryCtxRetain, &context, device);
  CALL(cuCtxSetCurrent, context);
  CALL(cuModuleLoadData, &work.module, kPtx);
  CALL(cuModuleGetFunction, &work.fill, work.module, "fill");
  CALL(cuMemAlloc, &work.out, kElements * sizeof(int));
  return work;
}

static void Launch(Work& work, bool overflow) {
  int written = overflow ? kElements + 1 : kElements;
  void* parameters[] = {&work.out, &written};
  CALL(cuLaunchKernel, work.fill, 4, 1, 1, 256, 1, 1, 0, nullptr, parameters, nullptr);
}

static void Finish(Work& work) {
  CALL(cuCtxSynchronize, );
  std::vector<int> result(kElements);
  CALL(cuMemcpyDtoH, result.data(), work.out, kElements * sizeof(int));
  long long sum = 0;
  for (int value : result) sum += value;
  std::printf("sum %lld\n", sum);
  std::fflush(stdout);
}

static void Compute(bool overflow) {
  Work work = Begin();
  Launch(work, overflow);
  Finish(work);
  CALL(cuMemFree, work.out);
}

static void Wait(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) {
    std::printf("child killed by %d\n", WTERMSIG(status));
  } else {
    std::printf("child exited with %d\n", WEXITSTATUS(status));
  }
  std::fflush(stdout);
}

// Called by the plugin test: the whole program is also built as a library.
extern "C" __attribute__((visibility("default"))) void PluginCompute(int overflow) {
  Compute(overflow != 0);
}

// Destroyed after main, after what the driver registered in between.
struct Late {
  Work work;
  bool wanted = false;
  ~Late() {
    if (!wanted) return;
    Launch(work, true);
    cuCtxSynchronize();
    std::printf("late end\n");
    std::fflush(stdout);
  }
};

static std::vector<char*> Arguments(int argc, char** argv, int first) {
  std::vector<char*> arguments(argv + first, argv + argc);
  arguments.push_back(nullptr);
  return arguments;
}

// The environment without the variables of `names`; "*" is all of them but where libraries are.
static std::vector<char*> EnvironmentWithout(const std::string& names) {
  std::vector<char*> kept;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string name(*entry, std::strcspn(*entry, "="));
    const bool drop = names == "*"
                          ? name != "LD_LIBRARY_PATH"
                          : (',' + names + ',').find(',' + name + ',') != std::string::npos;
    if (!drop) kept.push_back(*entry);
  }
  kept.push_back(nullptr);
  return kept;
}

static void Daemonize() {
  if (fork() != 0) _exit(0);
  setsid();
  if (fork() != 0) _exit(0);
  if (chdir("/") != 0) _exit(1);
}

// Every process ends as soon as the next one runs: who looks at the table of processes can miss
// both.
static void Relay(int count) {
  for (int i = 0; i < count; ++i) {
    if (fork() != 0) _exit(0);
  }
}

int main(int argc, char** argv) {
  const std::string habit = argc > 1 ? argv[1] : "compute";
  const std::string argument = argc > 2 ? argv[2] : "";
  if (habit == "compute") {
    Compute(argument == "overflow");
  } else if (habit == "fork-then-both") {  // each initialises the driver for itself
    const pid_t child = fork();
    Compute(child == 0);
    if (child != 0) Wait(child);
  } else if (habit == "fork-idle") {  // data-loader workers: they never touch the device
    Work work = Begin();
    Launch(work, false);
    for (int i = 0; i < 4; ++i) {
      const pid_t child = fork();
      if (child == 0) i % 2 == 0 ? _exit(0) : exit(0);
      Wait(child);
    }
    Finish(work);
  } else if (habit == "fork-while-launching") {
    Work work = Begin();
    std::atomic<bool> stop{false};
    std::thread launcher([&] {
      CUcontext context;
      CUdevice device;
      CALL(cuDeviceGet, &device, 0);
      CALL(cuDevicePrimaryCtxRetain, &context, device);
      CALL(cuCtxSetCurrent, context);
      while (!stop) {
        Launch(work, false);
        CALL(cuCtxSynchronize, );
      }
    });
    for (int i = 0; i < 20; ++i) {
      const pid_t child = fork();
      if (child == 0) _exit(0);
      int status = 0;
      waitpid(child, &status, 0);
    }
    stop = true;
    launcher.join();
    Finish(work);
  } else if (habit == "exec") {  // another program under the same process id
    Work work = Begin();
    Launch(work, true);  // not waited for
    execv(argv[2], Arguments(argc, argv, 2).data());
    std::printf("exec failed\n");
    Finish(work);
  } else if (habit == "spawn-without" || habit == "exec-without") {
    std::vector<char*> environment = EnvironmentWithout(argument);
    std::vector<char*> arguments = Arguments(argc, argv, 3);
    if (habit == "exec-without") {
      execve(arguments[0], arguments.data(), environment.data());
      return 1;
    }
    pid_t child = 0;
    if (posix_spawn(&child, arguments[0], nullptr, nullptr, arguments.data(), environment.data()) !=
        0) {
      return 1;
    }
    Wait(child);
  } else if (habit == "fork-exit-at-once") {  // as Python ends the children that it forked
    const pid_t child = fork();
    if (child == 0) {
      Work work = Begin();
      Launch(work, true);
      _exit(3);
    }
    Wait(child);
  } else if (habit == "vfork") {
    std::vector<char*> arguments = Arguments(argc, argv, 2);
    Compute(false);
    const pid_t child = vfork();
    if (child == 0) {
      execv(arguments[0], arguments.data());
      _exit(1);
    }
    Wait(child);
    Compute(true);
  } else if (habit == "killed-child") {  // dies after what it found was sent
    const pid_t child = fork();
    if (child == 0) {
      Compute(true);
      if (argument == "SEGV") signal(SIGSEGV, SIG_DFL);
      raise(argument == "SEGV" ? SIGSEGV : argument == "KILL" ? SIGKILL : SIGABRT);
    }
    Wait(child);
    Compute(false);
  } else if (habit == "raise") {  // before it has waited for the kernel
    Work work = Begin();
    Launch(work, true);
    const int number = std::atoi(argv[2]);
    struct sigaction before {};
    sigaction(number, nullptr, &before);
    std::printf("default %d\n", before.sa_handler == SIG_DFL);
    std::fflush(stdout);
    raise(number);
  } else if (habit == "spin") {  // a kernel that never ends, and a signal while it is waited for
    Work work = Begin();
    CALL(cuModuleGetFunction, &work.fill, work.module, "spin");
    Launch(work, false);
    std::printf("spinning\n");
    std::fflush(stdout);
    CALL(cuCtxSynchronize, );
  } else if (habit == "fork-after-init") {  // the driver refuses such a child
    Work work = Begin();
    Launch(work, false);
    const pid_t child = fork();
    if (child == 0) {
      CALL(cuCtxSynchronize, );
      exit(0);
    }
    Wait(child);
    Finish(work);
  } else if (habit == "own-handler") {
    Work work = Begin();
    const auto old = signal(SIGTERM, [](int) {
      static const char text[] = "own handler\n";
      if (write(1, text, sizeof(text) - 1) < 0) return;
    });
    std::printf("old is default %d\n", old == SIG_DFL);
    std::fflush(stdout);
    Launch(work, true);
    raise(SIGTERM);
    signal(SIGTERM, SIG_DFL);
    raise(SIGTERM);
  } else if (habit == "sleep") {
    Work work = Begin();
    Launch(work, true);
    std::printf("sleeping\n");
    std::fflush(stdout);
    sleep(60);
  } else if (habit == "daemon") {  // outlives the program that was started
    Daemonize();
    for (int fd = 0; fd < 256; ++fd) close(fd);
    open("/dev/null", O_RDWR);
    if (dup(0) < 0 || dup(0) < 0) return 1;
    Work work = Begin();
    Launch(work, true);
    CALL(cuCtxSynchronize, );
    if (argument == "long") sleep(8);
  } else if (habit == "relay") {  // as "daemon", after many steps
    Daemonize();
    for (int fd = 0; fd < 256; ++fd) close(fd);
    open("/dev/null", O_RDWR);
    if (dup(0) < 0 || dup(0) < 0) return 1;
    Relay(300);
    Work work = Begin();
    Launch(work, true);
    CALL(cuCtxSynchronize, );
  } else if (habit == "plugin") {
    for (int i = 0; i < 2; ++i) {
      void* const plugin = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL);
      if (plugin == nullptr) {
        std::printf("%s\n", dlerror());
        return 1;
      }
      reinterpret_cast<void (*)(int)>(dlsym(plugin, "PluginCompute"))(i);
      dlclose(plugin);
    }
  } else if (habit == "late") {
    Work work = Begin();
    static Late late;  // made after cuInit, so destroyed while the driver still works
    late.work = work;
    late.wanted = true;
    std::printf("main ends\n");
    std::fflush(stdout);
  } else if (habit == "threads-at-exit") {
    static Work work = Begin();
    for (int i = 0; i < 3; ++i) {
      std::thread([] {
        CUcontext context;
        CUdevice device;
        cuDeviceGet(&device, 0);
        cuDevicePrimaryCtxRetain(&context, device);
        cuCtxSetCurrent(context);
        while (true) {
          int written = kElements + 1;
          void* parameters[] = {&work.out, &written};
          if (cuLaunchKernel(work.fill, 4, 1, 1, 256, 1, 1, 0, nullptr, parameters, nullptr) !=
              CUDA_SUCCESS) {
            sleep(60);
          }
          cuCtxSynchronize();
        }
      }).detach();
    }
    usleep(200000);
    std::printf("main ends\n");
    std::fflush(stdout);
  } else if (habit == "confined") {  // a daemon that locks itself in before it begins
    const rlimit few{8, 8};
    setrlimit(RLIMIT_NOFILE, &few);
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, nullptr);
    if (chdir("/") != 0) return 1;
    Compute(true);
  } else if (habit == "another-user") {  // a server that gives its rights away
    if (setgid(65534) != 0 || setuid(65534) != 0) return 1;
    Compute(true);
  } else if (habit == "chroot") {
    void* const driver = dlopen("libcuda.so.1", RTLD_NOW);  // what the host would still find
    if (driver == nullptr || chroot(argv[2]) != 0 || chdir("/") != 0) return 1;
    Compute(true);
  } else {
    return 2;
  }
  return 0;
}
