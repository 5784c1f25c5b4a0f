// From a submitted kernel to the executor, and from the executor's errors to the driver's.
#include "emulator/driver/kernel_run.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>

#include "emulator/driver/checked_work.h"
#include "emulator/driver/environment.h"
#include "emulator/driver/function.h"
#include "emulator/driver/messages.h"
#include "emulator/driver/module.h"
#include "emulator/driver/placement.h"
#include "emulator/schedule.h"

namespace ops_debug::emulator {
namespace {

CUresult ResultOf(LaunchError::Code code) {
  switch (code) {
    case LaunchError::Code::kIllegalAddress:
      return CUDA_ERROR_ILLEGAL_ADDRESS;
    case LaunchError::Code::kMisalignedAddress:
      return CUDA_ERROR_MISALIGNED_ADDRESS;
    case LaunchError::Code::kInvalidAddressSpace:
      return CUDA_ERROR_INVALID_ADDRESS_SPACE;
    case LaunchError::Code::kIllegalInstruction:
      return CUDA_ERROR_ILLEGAL_INSTRUCTION;
    case LaunchError::Code::kUnsupportedInstruction:
      return CUDA_ERROR_NOT_SUPPORTED;
    case LaunchError::Code::kTrap:
    case LaunchError::Code::kLaunchFailure:
      return CUDA_ERROR_LAUNCH_FAILED;
    case LaunchError::Code::kAssert:
      return CUDA_ERROR_ASSERT;
    case LaunchError::Code::kInvalidProgramCounter:
      return CUDA_ERROR_INVALID_PC;
    case LaunchError::Code::kDeadlock:
    case LaunchError::Code::kInstructionLimit:
    case LaunchError::Code::kHostWait:
      return CUDA_ERROR_LAUNCH_TIMEOUT;
  }
  return CUDA_ERROR_LAUNCH_FAILED;
}

// A process's launches have schedules of their own, by their order.
uint64_t NextScheduleSeed() {
  static const uint64_t seed = [] {
    const char* text = std::getenv(kEnvScheduleSeed);
    return text == nullptr ? uint64_t{0} : uint64_t{std::strtoull(text, nullptr, 0)};
  }();
  static std::atomic<uint64_t> launches{0};
  return SeedOfLaunch(seed, launches.fetch_add(1));
}

uint64_t BlocksOnDevice(const DeviceModel& model, const KernelOperation& kernel) {
  const int threads = int(kernel.block.x * kernel.block.y * kernel.block.z);
  const int blocks = ResidentBlocks(model, *kernel.function, threads, kernel.dynamic_shared_bytes);
  return uint64_t(std::max(blocks, 1)) * model.multiprocessors;
}

bool HostCanWrite(Driver& driver, uint64_t address) {
  const std::lock_guard lock(driver.mutex);
  const auto found = driver.FindAllocation(address, 1);
  return found != driver.allocations.end() && found->second.kind != AllocationKind::kDevice &&
         found->second.kind != AllocationKind::kPool;
}

}  // namespace

CUresult RunKernel(Device& device, const KernelOperation& kernel) {
  const LaunchConfig config{
      .grid = kernel.grid,
      .block = kernel.block,
      .dynamic_shared_bytes = kernel.dynamic_shared_bytes,
      .parameters = kernel.parameters,
      .cooperative = kernel.cooperative,
      .cluster = kernel.cluster,
      .resident_blocks = BlocksOnDevice(device.model, kernel),
      .schedule_seed = NextScheduleSeed(),
      .host_accessible =
          [&device](uint64_t address) { return HostCanWrite(device.driver, address); },
      .is_alone = IsReplay(),
      .explicit_cluster = kernel.explicit_cluster,
      .checks = ActiveChecks(),
      .operation = kernel.order};
  const LaunchOutcome outcome = Run(*kernel.function->module->program, *kernel.function->kernel,
                                    config, device.model, device.memory, /*workers=*/0);
  if (outcome.ok) return CUDA_SUCCESS;
  if (IsReplay()) NoteFailure(outcome.error);
  Say("kernel failed: " + outcome.error.message);
  return ResultOf(outcome.error.code);
}

}  // namespace ops_debug::emulator
