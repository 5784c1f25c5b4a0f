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
  void Add(uint32_t process_id, const proto::ModuleLoaded& module);
  void Add(uint32_t process_id, const proto::LaunchSummary& summary);
  // A checked launch of this kernel reported something.
  void AddReport(const std::string& mangled_kernel, const std::string& engine);
  void Add(const proto::UnknownAccesses& unknown);

  Coverage Finish() const;

 private:
  struct Kernel {
    uint64_t launches = 0;
    std::map<std::string, uint64_t> checked;      // launches by engine
    std::map<std::string, uint64_t> not_checked;  // launches by reason, which may be empty
    uint64_t timed_launches = 0;
    uint64_t timed_duration_ns = 0;
    std::string reported;  // by which engine: so it was launched and checked, even if its summary
                           // never came
  };
  struct LoadedKernel {
    proto::ModuleLoaded::Kernel kernel;
    std::string reason;
  };

  // Of a kernel whose launches did not say why they were not checked.
  std::string UsualReason(const std::string& mangled_name) const;

  std::map<std::string, Kernel> kernels_;  // mangled name, all processes together
  std::map<std::string, LoadedKernel> loaded_;
  uint64_t loaded_modules_ = 0;
  uint64_t loaded_kernels_ = 0;
  uint64_t unknown_accesses_ = 0;
};

}  // namespace ops_debug::analysis
