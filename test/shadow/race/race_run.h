// Runs a kernel that is instrumented for races on the CPU device's executor, with cells and channel
// as the interposer would provide them, and reads what it recorded.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "emulator/executor.h"
#include "shadow/abi/race_abi.h"
#include "shadow/passes/instrument.h"

namespace ops_debug::shadow {

struct RaceLaunchOptions {
  emulator::Dim3 grid{1, 1, 1}, block{64, 1, 1};
  uint32_t dynamic_shared_bytes = 0;
  uint64_t schedule_seed = 0;
  bool cooperative = false;
  bool unordered = false;  // no stream orders it behind the launches before it
  uint32_t tracked = ~0u;
};

// One device with its memory. Launches of several modules share cells.
class RaceRun {
 public:
  RaceRun();

  // A buffer of zeros that has cells.
  uint64_t Buffer(uint64_t size_bytes);

  // Instruments `ptx` and runs `kernel` with 64-bit parameters. Throws if anything fails.
  void Launch(const std::string& ptx, const std::string& kernel,
              const std::vector<uint64_t>& parameters, const RaceLaunchOptions& options = {},
              const Checks& checks = {.memory = false, .races = true});

  // A copy or memset that touches the range, ordered behind everything before it, or behind
  // nothing.
  void Operation(uint64_t address, uint64_t size_bytes, bool is_write, bool unordered);

  std::vector<RaceRecord> Records() const;
  uint64_t conflicts() const;
  const Site& SiteOf(uint32_t site) const { return sites_.at(site - 1); }
  // "write `st.shared.u32 [%r3], %r1;` / read `...` same-block shared": one line for each record,
  // sorted.
  std::string Text() const;

  const RacePlan& plan() const { return plan_; }
  uint64_t thread_instructions() const { return thread_instructions_; }
  emulator::DeviceMemory& memory() { return memory_; }

 private:
  uint64_t Zeros(uint64_t size_bytes);
  void Cover(uint64_t address, uint64_t size_bytes);
  void SetOrder(bool unordered, RaceLaunch* launch);

  emulator::DeviceMemory memory_;
  uint64_t channel_ = 0, directory_ = 0, null_table_ = 0, shared_cells_ = 0, named_ = 0;
  uint32_t next_ticket_ = 1;
  std::vector<Site> sites_;
  std::vector<TicketRange> unordered_;
  RacePlan plan_;
  uint64_t thread_instructions_ = 0;
};

}  // namespace ops_debug::shadow
