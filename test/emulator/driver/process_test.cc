// What needs a process of its own: schedule seeds, forks and exits. Every scenario runs in a child
// that has not used the driver before.
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "emulator/driver/environment.h"
#include "test/emulator/driver/driver_fixture.h"

using namespace ops_debug::emulator::test;  // NOLINT(google-build-using-namespace): test helpers

namespace {

// A call of the driver in a child, where Catch's assertions do not reach the parent.
void Must(CUresult result) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "driver call failed: %d\n", int(result));
  _exit(99);
}

struct Child {
  int exit_code = -1;  // -1: killed by a signal, such as the alarm that ends a hang
  std::string output;
};

// Runs `scenario`, which writes to the file, and then exit(0).
Child RunChild(uint64_t seed, const std::function<void(std::FILE*)>& scenario) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t pid = fork();
  REQUIRE(pid >= 0);
  if (pid == 0) {
    close(ends[0]);
    alarm(20);
    for (const int caught : {SIGALRM, SIGSEGV, SIGABRT, SIGTERM}) std::signal(caught, SIG_DFL);
    setenv(ops_debug::emulator::kEnvScheduleSeed, std::to_string(seed).c_str(), 1);
    std::FILE* out = fdopen(ends[1], "w");
    scenario(out);
    std::fflush(out);
    std::exit(0);
  }
  close(ends[1]);
  Child child;
  char buffer[256];
  for (ssize_t n = 0; (n = read(ends[0], buffer, sizeof(buffer))) > 0;) {
    child.output.append(buffer, size_t(n));
  }
  close(ends[0]);
  int status = 0;
  REQUIRE(waitpid(pid, &status, 0) == pid);
  if (WIFEXITED(status)) child.exit_code = WEXITSTATUS(status);
  return child;
}

CUcontext Start() {
  CUcontext context = nullptr;
  Must(cuInit(0));
  Must(cuCtxCreate(&context, nullptr, 0, 0));
  return context;
}

CUstream NewStream() {
  CUstream stream = nullptr;
  Must(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  return stream;
}

CUdeviceptr Word() {
  CUdeviceptr address = 0;
  Must(cuMemAlloc(&address, 4));
  Must(cuMemsetD32(address, 0, 1));
  Must(cuCtxSynchronize());
  return address;
}

unsigned* PinnedWord() {
  void* word = nullptr;
  Must(cuMemHostAlloc(&word, 4, 0));
  *static_cast<unsigned*>(word) = 0;
  return static_cast<unsigned*>(word);
}

// Four streams write their number in no order; the last one stays.
void WriteFromFourStreams(std::FILE* out) {
  Start();
  const CUdeviceptr word = Word();
  for (unsigned i = 1; i <= 4; ++i) Must(cuMemsetD32Async(word, i, 1, NewStream()));
  Must(cuCtxSynchronize());
  unsigned last = 0;
  Must(cuMemcpyDtoH(&last, word, 4));
  std::fprintf(out, "%u", last);
}

}  // namespace

TEST_CASE("a seed picks an order among streams and repeats it") {
  std::set<std::string> results;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    const Child first = RunChild(seed, WriteFromFourStreams);
    CHECK(first.exit_code == 0);
    CHECK(RunChild(seed, WriteFromFourStreams).output == first.output);
    results.insert(first.output);
  }
  CHECK(results.size() >= 3);
  CHECK(RunChild(0, WriteFromFourStreams).output == "4");  // without: the order of submission
}

TEST_CASE("no seed breaks the order that events and the default stream give") {
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    const Child child = RunChild(seed, [](std::FILE* out) {
      Start();
      const CUdeviceptr word = Word();
      const CUstream first = NewStream(), second = NewStream();
      CUevent event = nullptr;
      Must(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
      Must(cuMemsetD32Async(word, 1, 1, first));
      Must(cuEventRecord(event, first));
      Must(cuStreamWaitEvent(second, event, 0));
      Must(cuMemsetD32Async(word, 2, 1, second));
      Must(cuStreamSynchronize(second));
      unsigned value = 0;
      Must(cuMemcpyDtoH(&value, word, 4));
      CUstream blocking = nullptr;
      Must(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
      Must(cuMemsetD32Async(word, 3, 1, blocking));
      Must(cuMemsetD32Async(word, 4, 1, nullptr));
      unsigned last = 0;
      Must(cuMemcpyDtoH(&last, word, 4));
      std::fprintf(out, "%u %u", value, last);
    });
    CAPTURE(seed);
    CHECK(child.output == "2 4");
  }
}

TEST_CASE("with a seed a missing synchronisation shows reliably") {
  int stale = 0;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    const Child child = RunChild(seed, [](std::FILE* out) {
      Start();
      const CUdeviceptr word = Word();
      unsigned* const pinned = PinnedWord();
      const CUstream stream = NewStream();
      Must(cuMemsetD32Async(word, 5, 1, stream));
      Must(cuMemcpyDtoHAsync(pinned, word, 4, stream));
      const unsigned early = *pinned;
      Must(cuStreamSynchronize(stream));
      std::fprintf(out, "%u%u", early, *pinned);
    });
    CHECK(child.output.back() == '5');
    stale += child.output.front() == '0' ? 1 : 0;
  }
  CHECK(stale >= 5);
}

TEST_CASE("with a seed work goes on when the host asks or polls memory") {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    const Child child = RunChild(seed, [](std::FILE* out) {
      Start();
      const CUstream stream = NewStream();
      unsigned* const pinned = PinnedWord();
      Must(cuMemsetD32Async(CUdeviceptr(pinned), 1, 1, stream));
      while (cuStreamQuery(stream) == CUDA_ERROR_NOT_READY) {
      }
      const unsigned after_query = __atomic_load_n(pinned, __ATOMIC_ACQUIRE);
      Must(cuMemsetD32Async(CUdeviceptr(pinned), 2, 1, stream));
      while (__atomic_load_n(pinned, __ATOMIC_ACQUIRE) != 2) std::this_thread::yield();
      std::fprintf(out, "%u", after_query);
    });
    CHECK(child.exit_code == 0);
    CHECK(child.output == "1");
  }
}

TEST_CASE("a process exits with work pending that can never be done") {
  for (const uint64_t seed : {0u, 3u}) {
    const Child child = RunChild(seed, [](std::FILE* out) {
      Start();
      const CUstream stream = NewStream();
      Must(cuStreamWaitValue32(stream, CUdeviceptr(PinnedWord()), 1, CU_STREAM_WAIT_VALUE_EQ));
      Must(cuLaunchHostFunc(
          NewStream(), [](void*) { std::this_thread::sleep_for(std::chrono::hours(1)); }, nullptr));
      std::fprintf(out, "exits");
    });
    CHECK(child.exit_code == 0);
    CHECK(child.output == "exits");
  }
}

TEST_CASE("atexit handlers may wait for work") {
  static std::FILE* to;
  static CUstream stream;
  static unsigned* word;
  const Child child = RunChild(0, [](std::FILE* out) {
    Start();
    to = out;
    stream = NewStream();
    word = PinnedWord();
    std::atexit([] {
      const CUresult result = cuStreamSynchronize(stream);
      std::fprintf(to, "%d %u", int(result), *word);
      std::fflush(to);
    });
    Must(cuMemsetD32Async(CUdeviceptr(word), 6, 1, stream));
  });
  CHECK(child.exit_code == 0);
  CHECK(child.output == "0 6");
}

TEST_CASE("an atexit handler does not wait for ever, and what it frees then stays") {
  static std::FILE* to;
  static CUcontext context;
  const Child child = RunChild(0, [](std::FILE* out) {
    to = out;
    std::atexit([] {  // runs behind the driver's own
      const CUresult synchronised = cuCtxSynchronize();
      std::fprintf(to, "%d %d", int(synchronised), int(cuCtxDestroy(context)));
      std::fflush(to);
    });
    context = Start();
    Must(cuStreamWaitValue32(NewStream(), CUdeviceptr(PinnedWord()), 1, CU_STREAM_WAIT_VALUE_EQ));
  });
  CHECK(child.exit_code == 0);
  CHECK(child.output == "4 4");  // CUDA_ERROR_DEINITIALIZED
}

TEST_CASE("a forked child cannot use the driver and does not hang") {
  const Child child = RunChild(0, [](std::FILE* out) {
    Start();
    const CUstream stream = NewStream();
    Must(cuMemsetD32Async(Word(), 1, 1, stream));
    std::fflush(out);
    const pid_t forked = fork();
    if (forked == 0) {
      std::fprintf(out, "%d %d %d ", int(cuInit(0)), int(cuCtxSynchronize()),
                   int(cuStreamQuery(stream)));
      std::fflush(out);
      std::exit(0);
    }
    int status = 0;
    waitpid(forked, &status, 0);
    std::fprintf(out, "%d %d", status, int(cuStreamSynchronize(stream)));
  });
  CHECK(child.exit_code == 0);
  CHECK(child.output == "3 3 3 0 0");  // CUDA_ERROR_NOT_INITIALIZED in the child
}

TEST_CASE("an unknown model is an error that names the known ones") {
  const Child child = RunChild(0, [](std::FILE* out) {
    setenv(ops_debug::emulator::kEnvEmulate, "sm_12", 1);
    dup2(fileno(out), STDERR_FILENO);
    std::fprintf(out, "%d\n", int(cuInit(0)));
  });
  CHECK_THAT(child.output, Catch::Contains("no model of a GPU named 'sm_12'") &&
                               Catch::Contains("sm_80 a100") && Catch::Contains("100\n"));
}
