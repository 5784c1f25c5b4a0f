// The SIMT executor: PTX in, grids out. It knows nothing of the driver API; emulator/driver builds
// that on top.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "emulator/memory.h"
#include "ptx/result.h"

namespace ops_debug::emulator {

class Checks;
struct DeviceOperation;

struct Dim3 {
  uint32_t x = 1, y = 1, z = 1;
};

// What the code can ask of its device; values of the chosen model (`--emulate`).
struct DeviceModel {
  std::string name = "ops-debug CPU device (sm_90)";
  uint32_t compute_major = 9, compute_minor = 0;
  uint32_t multiprocessors = 132;
  uint32_t shared_bytes_per_block = 48 * 1024;
  uint32_t shared_bytes_per_block_optin = 227 * 1024;
  uint32_t shared_bytes_per_multiprocessor = 228 * 1024;
  uint32_t threads_per_multiprocessor = 2048;
  uint32_t blocks_per_multiprocessor = 32;
  uint32_t registers_per_multiprocessor = 64 * 1024;
  uint64_t memory_bytes = 80ull << 30;
  uint64_t l2_bytes = 50ull << 20;
  uint32_t clock_khz = 1'980'000;
  uint32_t memory_clock_khz = 2'619'000;
  uint32_t memory_bus_bits = 5120;
  uint32_t single_to_double_ratio = 2;  // throughput of float to that of double
};

struct KernelAttributes {
  uint32_t static_shared_bytes = 0;
  uint32_t local_bytes = 0;
  uint32_t registers = 32;
  uint32_t max_threads_per_block = 1024;
  uint32_t parameter_bytes = 0;
  std::vector<uint32_t> parameter_offsets, parameter_sizes;  // one per parameter, in order
  // .reqnctapercluster; zeros without.
  Dim3 required_cluster{0, 0, 0};
  bool cluster_must_be_set = false;  // .explicitcluster
  uint32_t max_cluster_rank = 0;     // .maxclusterrank; 0 without
};

// A decoded entry. Owned by its Program.
class Kernel;

// One loaded PTX module: decoded functions and its global and constant variables, placed in device
// memory.
class Program {
 public:
  // Parses, links and decodes `ptx`; allocates and initialises the module's variables in `memory`,
  // which must outlive the program. Errors: syntax with its place; an instruction that the executor
  // lacks is NOT an error here but when it is executed (a launch fails with its text and line), so
  // one odd kernel does not make a library unusable.
  // Variables that `places` names lie there, in memory to be adopted (DeviceMemory::Adopt).
  using VariablePlaces = std::map<std::string, uint64_t, std::less<>>;
  static ptx::Result<std::unique_ptr<Program>> Load(std::string_view ptx, DeviceMemory& memory,
                                                    const VariablePlaces& places = {});
  ~Program();

  const Kernel* FindKernel(std::string_view name) const;  // nullptr if absent
  std::vector<std::string> KernelNames() const;
  const KernelAttributes& Attributes(const Kernel& kernel) const;
  // The instructions that the executor lacks, as written and with their PTX line, in order; a
  // launch that reaches one fails.
  std::vector<std::string> UnsupportedInstructions() const;
  // The architecture of the .target directive: "sm_90a".
  std::string_view Target() const;
  // Device address and size of a module-scope variable; false if absent.
  bool FindVariable(std::string_view name, uint64_t* address, uint64_t* size_bytes) const;

  class Impl;
  explicit Program(std::unique_ptr<Impl> impl);
  Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

struct LaunchConfig {
  Dim3 grid, block;
  uint32_t dynamic_shared_bytes = 0;
  std::span<const std::byte> parameters;  // the packed parameter buffer
  bool cooperative = false;
  Dim3 cluster;  // blocks per cluster; every dimension divides the grid's
  // Blocks that the device holds at a time (occupancy times multiprocessors); 0: no limit.
  uint64_t resident_blocks = 0;
  // 0: the default schedule. Others choose, exactly reproducibly and on one host thread, which
  // lanes, warps and blocks run next and for how long, and which effects of weak memory show
  // (schedule.h).
  uint64_t schedule_seed = 0;
  // Whether the host can change what lies at a global address while the kernel runs. A spin on such
  // memory is given real time before it counts as a deadlock; on other memory less of it, for what
  // other streams do. Empty: nobody but the kernel changes memory.
  std::function<bool(uint64_t)> host_accessible;
  // A replay: neither the host nor another stream changes memory meanwhile, so nothing is waited
  // for; but a spin on memory of the host's is no deadlock (kHostWait).
  bool is_alone = false;
  bool explicit_cluster = false;  // the launch or the kernel names a cluster shape
  // Thread-instructions per host thread after which the launch fails (kInstructionLimit), give or
  // take some thousands; 0: none.
  uint64_t instruction_limit = 0;
  // What is checked (checks/checks.h), and which operation the launch is; null: nothing. A checked
  // launch runs on one host thread, and much slower.
  Checks* checks = nullptr;
  std::shared_ptr<const DeviceOperation> operation;
};

// What ended a launch early, as the hardware would have reported it.
struct LaunchError {
  enum class Code : uint8_t {
    kIllegalAddress,
    kMisalignedAddress,
    kInvalidAddressSpace,
    kIllegalInstruction,
    kUnsupportedInstruction,
    kTrap,
    kAssert,
    kInvalidProgramCounter,
    kDeadlock,
    kLaunchFailure,  // misuse of an mbarrier or of a cluster that hardware reports without a kind
    kInstructionLimit,
    kHostWait,  // is_alone: it waits for what only the host can write
  };
  Code code = Code::kIllegalAddress;
  std::string message;  // with kernel, instruction, PTX line, block and thread
  // kDeadlock: a thread spins on global memory, so another launch or a copy could end it.
  bool spins_globally = false;
};

struct LaunchOutcome {
  bool ok = true;
  LaunchError error;
  uint64_t thread_instructions = 0;
};

// Runs a grid to its end on `workers` host threads (0 = one per core); blocks until done. Blocks of
// a cooperative launch are all resident. Deterministic for blocks that do not communicate: a fixed
// order of warps within a block.
LaunchOutcome Run(const Program& program, const Kernel& kernel, const LaunchConfig& config,
                  const DeviceModel& model, DeviceMemory& memory, uint32_t workers);

}  // namespace ops_debug::emulator
