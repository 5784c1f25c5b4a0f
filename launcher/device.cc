// Asks the driver itself, in a child: the driver starts threads and maps address space that the
// launcher has no use for, and a broken installation may crash.
#include "launcher/device.h"

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <string>

namespace ops_debug::launcher {
namespace {

// Number of GPUs the driver shows; 0 without a usable driver.
int CountGpus() {
  if (access("/dev/nvidiactl", F_OK) != 0 && access("/dev/dxg", F_OK) != 0) return 0;
  const pid_t child = fork();
  if (child < 0) return 0;
  if (child == 0) {
    constexpr unsigned kPatience_s = 30;
    alarm(kPatience_s);
    void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (driver == nullptr) _exit(0);
    using Init = int (*)(unsigned);
    using Count = int (*)(int*);
    const auto init = reinterpret_cast<Init>(dlsym(driver, "cuInit"));
    const auto count = reinterpret_cast<Count>(dlsym(driver, "cuDeviceGetCount"));
    int gpus = 0;
    if (init == nullptr || count == nullptr || init(0) != 0 || count(&gpus) != 0) _exit(0);
    _exit(gpus < 100 ? gpus : 100);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

}  // namespace

std::variant<DeviceChoice, Problem> ChooseDevice(const DeviceChoice& wish) {
  if (wish.kind == DeviceKind::kEmulator) return wish;
  const int gpus = CountGpus();
  if (wish.kind == DeviceKind::kAuto) {
    return DeviceChoice{gpus > 0 ? DeviceKind::kGpu : DeviceKind::kEmulator, std::nullopt};
  }
  if (gpus == 0) {
    return Problem{"there is no usable NVIDIA GPU here",
                   "--device emulator runs kernels on the CPU; nvidia-smi tells about the driver",
                   kExitToolFailure};
  }
  if (wish.index && *wish.index >= static_cast<uint32_t>(gpus)) {
    return Problem{"--device gpu:" + std::to_string(*wish.index) + ": this machine shows " +
                       std::to_string(gpus) + (gpus == 1 ? " GPU" : " GPUs"),
                   "numbers start at 0"};
  }
  return wish;
}

}  // namespace ops_debug::launcher
