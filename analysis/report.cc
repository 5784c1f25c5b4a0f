// Sums over a report that several writers need.
#include "analysis/report.h"

#include <algorithm>
#include <map>

namespace ops_debug::analysis {

const char* SeverityName(Severity severity) {
  switch (severity) {
    case Severity::kError:
      return "error";
    case Severity::kWarning:
      return "warning";
    case Severity::kNote:
      return "note";
  }
  return "note";
}

uint64_t Coverage::CheckedKernels() const {
  return static_cast<uint64_t>(
      std::count_if(kernels.begin(), kernels.end(),
                    [](const KernelCoverage& kernel) { return kernel.checked_launches > 0; }));
}

uint64_t Coverage::Launches() const {
  uint64_t sum = 0;
  for (const KernelCoverage& kernel : kernels) sum += kernel.launches;
  return sum;
}

uint64_t Coverage::CheckedLaunches() const {
  uint64_t sum = 0;
  for (const KernelCoverage& kernel : kernels) sum += kernel.checked_launches;
  return sum;
}

std::string CountByKind(const std::vector<Finding>& findings) {
  std::map<std::string, uint64_t> counts;
  for (const Finding& finding : findings) ++counts[finding.kind];
  std::vector<std::pair<std::string, uint64_t>> sorted(counts.begin(), counts.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text;
  for (const auto& [kind, count] : sorted) {
    if (!text.empty()) text += ", ";
    text += kind + ' ' + std::to_string(count);
  }
  return text;
}

}  // namespace ops_debug::analysis
