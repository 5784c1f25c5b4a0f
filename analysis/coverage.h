// What ran, and how much of it was checked. Silence about a kernel is only worth something if the
// kernel was checked, so every launch is accounted for: by kernel, checked or not, and why not.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "analysis/report.h"
#include "proto/events.pb.h"

namespace ops_debug::analysis {

class CoverageBook {
 public:
  void Add(uint32_t process_id, const proto::ProcessStart& start);
  void Add(uint32_t process_id, const proto::ProcessEnd& end);
  void Add(uint32_t process_id, const proto::ModuleLoaded& module);
  void Add(uint32_t process_id, const proto::LaunchSummary& summary);
  void Add(uint32_t process_id, const proto::Launch& faulty);  // a launch that a finding names
  void Add(const proto::UnknownAccesses& unknown);

  Coverage Finish() const;

 private:
  struct Kernel {
    uint64_t launches = 0;
    uint64_t checked_launches = 0;
    bool faulted = false;  // so it was launched and checked, even if its summary never came
    std::string reason;
  };
  struct LoadedKernel {
    proto::ModuleLoaded::Kernel kernel;
    std::string reason;
  };

  std::map<std::string, Kernel> kernels_;  // mangled name, all processes together
  std::map<std::string, LoadedKernel> loaded_;
  std::map<uint32_t, ProcessInfo> processes_;
  uint64_t loaded_modules_ = 0;
  uint64_t loaded_kernels_ = 0;
  uint64_t unknown_accesses_ = 0;
};

}  // namespace ops_debug::analysis
