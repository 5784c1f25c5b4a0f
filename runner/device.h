// One device, ready to launch: its primary context is current in this thread until the object is
// gone.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runner/driver.h"
#include "runner/launch_plan.h"

namespace ops_debug::runner {

struct LaunchResult {
  double duration_ms = 0;                        // launch to synchronisation, by the host's clock
  std::vector<std::vector<std::byte>> contents;  // per argument, outputs; else empty
};

class Device {
 public:
  // The first device that CUDA shows. Errors say which call failed and what to do.
  static absl::StatusOr<std::unique_ptr<Device>> Open();
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const std::string& name() const { return name_; }
  int compute_capability() const { return compute_capability_; }  // 90

  // Loads `ptx`, allocates each buffer with exactly its size, fills it, launches once, waits, and
  // frees everything. `given`: per argument the bytes of a buffer; an empty one, or none at all: by
  // the plan's fill.
  absl::StatusOr<LaunchResult> Launch(const std::string& ptx, const LaunchPlan& plan, uint64_t seed,
                                      bool copy_outputs,
                                      const std::vector<std::vector<std::byte>>& given = {});

 private:
  explicit Device(const Driver& driver) : driver_(driver) {}

  Driver driver_;
  CUdevice device_ = 0;
  bool retained_ = false;
  std::string name_;
  int compute_capability_ = 0;
};

}  // namespace ops_debug::runner
