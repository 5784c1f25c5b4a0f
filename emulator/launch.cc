// Run(): one launch from its configuration to its outcome, on several host threads.
#include <xmmintrin.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include "emulator/checks/checks.h"
#include "emulator/deadlock_text.h"
#include "emulator/machine.h"

namespace ops_debug::emulator {
namespace {

constexpr uint64_t kSharedGranuleBytes = 128;
constexpr uint64_t kGridWorkspaceBytes = 64;
constexpr unsigned kDefaultMxcsr = 0x1f80;  // round to nearest, denormals kept, no traps

// The host program may have changed rounding or flushing (-ffast-math does); kernels must not see
// that.
class FloatEnvironment {
 public:
  FloatEnvironment() : saved_(_mm_getcsr()) { _mm_setcsr(kDefaultMxcsr); }
  ~FloatEnvironment() { _mm_setcsr(saved_); }
  FloatEnvironment(const FloatEnvironment&) = delete;
  FloatEnvironment& operator=(const FloatEnvironment&) = delete;

 private:
  unsigned saved_;
};

void Work(Launch& launch) {
  const FloatEnvironment environment;
  try {
    Machine machine(launch);
    if (launch.schedule_seed != 0) {
      machine.Explore();
    } else {
      machine.Work();
    }
  } catch (const std::bad_alloc&) {
    const std::lock_guard lock(launch.mutex);
    launch.failed_block.store(0);
    launch.error = {LaunchError::Code::kIllegalAddress,
                    "the host has no memory left for the state of the launch's blocks"};
  }
}

void RunWorkers(Launch& launch, uint64_t workers) {
  if (workers == 0) workers = std::max(1u, std::thread::hardware_concurrency());
  workers = std::min(workers, launch.cluster_count);
  if (launch.resident_limit != 0)
    workers =
        std::min(workers, std::max<uint64_t>(1, launch.resident_limit / launch.cluster_blocks));
  if (launch.schedule_seed != 0 || launch.checks != nullptr) workers = 1;
  std::vector<std::thread> threads;
  for (uint64_t i = 1; i < workers; ++i) {
    try {
      threads.emplace_back([&launch] { Work(launch); });
    } catch (const std::system_error&) {
      break;  // fewer threads do the same work
    }
  }
  Work(launch);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

LaunchOutcome Run(const Program& program, const Kernel& kernel, const LaunchConfig& config,
                  const DeviceModel& model, DeviceMemory& memory, uint32_t workers) {
  static std::atomic<uint64_t> next_grid{1};
  LaunchOutcome outcome;
  Launch launch;
  launch.program = &program.impl();
  launch.kernel = &kernel;
  launch.grid = config.grid;
  launch.block = config.block;
  launch.block_count = static_cast<uint64_t>(config.grid.x) * config.grid.y * config.grid.z;
  launch.threads_per_block = config.block.x * config.block.y * config.block.z;
  launch.warps_per_block = (launch.threads_per_block + kWarpLanes - 1) / kWarpLanes;
  launch.cluster = config.cluster;
  launch.cluster_blocks = config.cluster.x * config.cluster.y * config.cluster.z;
  if (launch.block_count == 0 || launch.threads_per_block == 0 || launch.cluster_blocks == 0)
    return outcome;
  launch.cluster_count = launch.block_count / launch.cluster_blocks;
  launch.dynamic_shared_bytes = config.dynamic_shared_bytes;
  launch.total_shared_bytes = config.dynamic_shared_bytes == 0
                                  ? kernel.attributes.static_shared_bytes
                                  : kernel.dynamic_shared_offset + config.dynamic_shared_bytes;
  launch.shared_limit_bytes = (launch.total_shared_bytes + kSharedGranuleBytes - 1) /
                              kSharedGranuleBytes * kSharedGranuleBytes;
  if (kernel.uses_reserved_shared) launch.shared_limit_bytes += kReservedSharedBytes;
  launch.local_limit_bytes = kernel.local_limit_bytes;
  // Rows of different lanes should not all fall into the same cache set.
  launch.local_stride_bytes = kernel.local_limit_bytes == 0 ? 0 : kernel.local_limit_bytes + 64;
  launch.parameters.assign(config.parameters.begin(), config.parameters.end());
  launch.parameter_bytes = config.parameters.size();
  launch.parameters.resize(launch.parameters.size() + 64);
  launch.model = &model;
  launch.memory = &memory;
  launch.map_base = memory.map_base();
  launch.map_bytes = memory.map_bytes();
  launch.page_map = memory.page_map();
  launch.lanes = &SelectLanes().support();
  launch.grid_id = next_grid.fetch_add(1);
  launch.resident_limit = config.resident_blocks;
  launch.host_accessible = config.host_accessible;
  launch.is_alone = config.is_alone;
  launch.schedule_seed = config.schedule_seed;
  launch.cooperative = config.cooperative;
  launch.explicit_cluster = config.explicit_cluster;
  launch.instruction_limit = config.instruction_limit;

  if (launch.cooperative) {
    launch.grid_workspace = memory.Allocate(kGridWorkspaceBytes);
    if (launch.grid_workspace != 0)
      std::memset(reinterpret_cast<void*>(launch.grid_workspace), 0, kGridWorkspaceBytes);
  }
  std::unique_ptr<LaunchChecks> checks;
  if (config.checks != nullptr) {
    checks = config.checks->StartLaunch(launch, config.operation);
    launch.checks = checks.get();
    if (launch.grid_workspace != 0)
      config.checks->Forget(launch.grid_workspace, kGridWorkspaceBytes);
  }
  RunWorkers(launch, workers);
  if (checks != nullptr) {
    checks->EndLaunch();
    config.checks->Deliver();
  }
  if (launch.grid_workspace != 0) memory.Free(launch.grid_workspace);

  std::sort(launch.outputs.begin(), launch.outputs.end());
  for (const auto& [number, text] : launch.outputs)
    std::fwrite(text.data(), 1, text.size(), stdout);
  if (!launch.outputs.empty()) std::fflush(stdout);
  outcome.thread_instructions = launch.instructions.load();
  if (launch.is_deadlocked.load() && launch.failed_block.load() == ~0ull) {
    if (launch.schedule_seed == 0)
      launch.unstarted =
          launch.cluster_count - std::min(launch.next_cluster.load(), launch.cluster_count);
    outcome.ok = false;
    outcome.error = {
        launch.waits_for_host ? LaunchError::Code::kHostWait : LaunchError::Code::kDeadlock,
        DescribeLaunchDeadlock(launch), launch.spins_globally};
  }
  if (launch.failed_block.load() != ~0ull) {
    outcome.ok = false;
    outcome.error = launch.error;
  }
  return outcome;
}

}  // namespace ops_debug::emulator
