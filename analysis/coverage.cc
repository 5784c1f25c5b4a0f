// Accounting for launches (coverage.h).
#include "analysis/coverage.h"

#include <algorithm>

#include "analysis/demangle.h"

namespace ops_debug::analysis {

void CoverageBook::Add(uint32_t process_id, const proto::ProcessStart& start) {
  ProcessInfo& process = processes_[process_id];
  process.process_id = process_id;
  process.executable = start.executable();
  process.arguments.assign(start.arguments().begin(), start.arguments().end());
  process.device_name = start.device_name();
  process.driver_version = start.driver_version();
  process.emulated = start.emulated();
  process.ended = false;
}

void CoverageBook::Add(uint32_t process_id, const proto::ProcessEnd& end) {
  const auto process = processes_.find(process_id);
  if (process != processes_.end()) process->second.ended = end.orderly();
}

void CoverageBook::Add(uint32_t, const proto::ModuleLoaded& module) {
  ++loaded_modules_;
  loaded_kernels_ += static_cast<uint64_t>(module.kernels_size());
  for (const proto::ModuleLoaded::Kernel& kernel : module.kernels()) {
    LoadedKernel& loaded = loaded_[kernel.name()];
    loaded.kernel = kernel;
    loaded.reason = kernel.reason().empty() ? module.not_checked_reason() : kernel.reason();
  }
}

void CoverageBook::Add(uint32_t, const proto::LaunchSummary& summary) {
  Kernel& kernel = kernels_[summary.kernel()];
  kernel.launches += summary.launches();
  kernel.checked_launches += std::min(summary.checked_launches(), summary.launches());
  if (kernel.reason.empty()) kernel.reason = summary.not_checked_reason();
}

void CoverageBook::Add(uint32_t, const proto::Launch& faulty) {
  if (!faulty.kernel().empty()) kernels_[faulty.kernel()].faulted = true;
}

void CoverageBook::Add(const proto::UnknownAccesses& unknown) {
  unknown_accesses_ += unknown.count();
}

Coverage CoverageBook::Finish() const {
  Coverage coverage;
  coverage.loaded_modules = loaded_modules_;
  coverage.loaded_kernels = loaded_kernels_;
  coverage.unknown_accesses = unknown_accesses_;
  for (const auto& [id, process] : processes_) coverage.processes.push_back(process);
  for (const auto& [name, kernel] : kernels_) {
    KernelCoverage covered;
    covered.name = Demangle(name);
    covered.launches = kernel.launches;
    covered.checked_launches = kernel.checked_launches;
    if (kernel.faulted && kernel.launches == 0) covered.launches = covered.checked_launches = 1;
    if (covered.checked_launches > 0) covered.engine = "ptx";
    const auto loaded = loaded_.find(name);
    if (covered.checked_launches < covered.launches) {
      covered.reason = kernel.reason;
      if (covered.reason.empty() && loaded != loaded_.end()) covered.reason = loaded->second.reason;
      if (covered.reason.empty()) {
        covered.reason = loaded == loaded_.end() ? "its code was not seen being loaded"
                                                 : "no reason was recorded";
      }
    }
    if (loaded != loaded_.end() && covered.checked_launches > 0) {
      covered.checked_accesses = loaded->second.kernel.checked_accesses();
      for (const auto& unchecked : loaded->second.kernel.unchecked()) {
        covered.unchecked.push_back(
            {unchecked.instruction(), unchecked.reason(), unchecked.count()});
      }
    }
    coverage.kernels.push_back(std::move(covered));
  }
  std::sort(coverage.kernels.begin(), coverage.kernels.end(),
            [](const KernelCoverage& a, const KernelCoverage& b) { return a.name < b.name; });
  return coverage;
}

}  // namespace ops_debug::analysis
