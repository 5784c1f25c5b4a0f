// Accounting for launches (coverage.h).
#include "analysis/coverage.h"

#include <algorithm>

#include "analysis/demangle.h"

namespace ops_debug::analysis {
namespace {

// Logs of versions that had one engine do not name it.
std::string EngineName(const std::string& engine) { return engine.empty() ? "ptx" : engine; }

}  // namespace

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
  const uint64_t checked = std::min(summary.checked_launches(), summary.launches());
  kernel.launches += summary.launches();
  if (checked > 0) kernel.checked[EngineName(summary.engine())] += checked;
  if (checked < summary.launches()) {
    kernel.not_checked[summary.not_checked_reason()] += summary.launches() - checked;
  }
  kernel.timed_launches += summary.timed_launches();
  kernel.timed_duration_ns += summary.timed_duration_ns();
}

void CoverageBook::AddReport(const std::string& mangled_kernel, const std::string& engine) {
  if (mangled_kernel.empty()) return;
  std::string& reported = kernels_[mangled_kernel].reported;
  if (reported.empty() || engine != "replay") reported = EngineName(engine);
}

void CoverageBook::Add(const proto::UnknownAccesses& unknown) {
  unknown_accesses_ += unknown.count();
}

std::string CoverageBook::UsualReason(const std::string& mangled_name) const {
  const auto loaded = loaded_.find(mangled_name);
  if (loaded == loaded_.end()) return "its code was not seen being loaded";
  return loaded->second.reason.empty() ? "no reason was recorded" : loaded->second.reason;
}

Coverage CoverageBook::Finish() const {
  Coverage coverage;
  coverage.loaded_modules = loaded_modules_;
  coverage.loaded_kernels = loaded_kernels_;
  coverage.unknown_accesses = unknown_accesses_;
  for (const auto& [name, kernel] : kernels_) {
    KernelCoverage covered;
    covered.name = Demangle(name);
    covered.launches = kernel.launches;
    covered.timed_launches = kernel.timed_launches;
    covered.timed_duration_ns = kernel.timed_duration_ns;
    for (const auto& [engine, launches] : kernel.checked) {
      covered.checked_launches += launches;
      covered.engine += (covered.engine.empty() ? "" : "+") + engine;
    }
    if (!kernel.reported.empty() && kernel.launches == 0) {
      covered.launches = covered.checked_launches = 1;
      covered.engine = kernel.reported;
    }
    const auto loaded = loaded_.find(name);
    std::map<std::string, uint64_t> not_checked;
    for (const auto& [reason, launches] : kernel.not_checked) {
      not_checked[reason.empty() ? UsualReason(name) : reason] += launches;
    }
    for (const auto& [reason, launches] : not_checked) {
      covered.not_checked.push_back({reason, launches});
    }
    std::stable_sort(covered.not_checked.begin(), covered.not_checked.end(),
                     [](const auto& a, const auto& b) { return a.launches > b.launches; });
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
