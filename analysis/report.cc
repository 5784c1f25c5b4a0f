// Sums over a report that several writers need.
#include "analysis/report.h"

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

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

std::string ToText(const Extent3& extent) {
  return '(' + std::to_string(extent.x) + ',' + std::to_string(extent.y) + ',' +
         std::to_string(extent.z) + ')';
}

uint64_t Coverage::CheckedKernels() const {
  return static_cast<uint64_t>(
      std::count_if(kernels.begin(), kernels.end(),
                    [](const KernelCoverage& kernel) { return kernel.checked_launches > 0; }));
}

namespace {

// "ptx+sass" -> {"ptx", "sass"}.
std::vector<std::string> EnginesOf(const KernelCoverage& kernel) {
  std::vector<std::string> engines;
  std::istringstream in(kernel.engine);
  for (std::string engine; std::getline(in, engine, '+');) engines.push_back(engine);
  return engines;
}

}  // namespace

uint64_t Coverage::CheckedKernels(const std::string& engine) const {
  return static_cast<uint64_t>(
      std::count_if(kernels.begin(), kernels.end(), [&engine](const KernelCoverage& kernel) {
        const std::vector<std::string> engines = EnginesOf(kernel);
        return std::find(engines.begin(), engines.end(), engine) != engines.end();
      }));
}

std::vector<std::string> Coverage::Engines() const {
  std::set<std::string> all;
  for (const KernelCoverage& kernel : kernels) {
    for (const std::string& engine : EnginesOf(kernel)) all.insert(engine);
  }
  return {all.begin(), all.end()};
}

std::vector<std::string> Coverage::Checks() const {
  std::set<std::string> all;
  for (const ProcessInfo& process : processes) {
    all.insert(process.checks.begin(), process.checks.end());
  }
  std::vector<std::string> checks;
  for (const char* check : {"memory", "race", "sync", "init", "precision"}) {
    if (all.contains(check)) checks.emplace_back(check);
  }
  if (checks.empty() && all.contains("none")) checks.emplace_back("none");
  return checks;
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

std::optional<double> KernelCoverage::EstimatedTime_ns() const {
  if (timed_launches == 0) return std::nullopt;
  return static_cast<double>(timed_duration_ns) / static_cast<double>(timed_launches) *
         static_cast<double>(launches);
}

std::optional<TimeShare> Coverage::CheckedTime() const {
  TimeShare share;
  double all_ns = 0, checked_ns = 0;
  for (const KernelCoverage& kernel : kernels) {
    if (kernel.launches == 0) continue;
    const std::optional<double> time_ns = kernel.EstimatedTime_ns();
    if (!time_ns) {
      ++share.untimed_kernels;
      continue;
    }
    share.timed_launches += kernel.timed_launches;
    all_ns += *time_ns;
    checked_ns += *time_ns * static_cast<double>(kernel.checked_launches) /
                  static_cast<double>(kernel.launches);
  }
  if (all_ns <= 0) return std::nullopt;
  share.checked_percent = 100 * checked_ns / all_ns;
  return share;
}

std::vector<UncheckedGroup> Coverage::NotChecked() const {
  std::map<std::string, UncheckedGroup> by_reason;
  for (const KernelCoverage& kernel : kernels) {
    for (const UncheckedLaunches& unchecked : kernel.not_checked) {
      UncheckedGroup& group = by_reason[unchecked.reason];
      group.reason = unchecked.reason;
      group.launches += unchecked.launches;
      group.kernels.emplace_back(&kernel, unchecked.launches);
    }
  }
  std::vector<UncheckedGroup> groups;
  for (auto& [reason, group] : by_reason) {
    std::stable_sort(group.kernels.begin(), group.kernels.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
    groups.push_back(std::move(group));
  }
  std::stable_sort(groups.begin(), groups.end(),
                   [](const auto& a, const auto& b) { return a.launches > b.launches; });
  return groups;
}

uint64_t CountErrors(const std::vector<Finding>& findings) {
  return static_cast<uint64_t>(
      std::count_if(findings.begin(), findings.end(),
                    [](const Finding& finding) { return finding.severity == Severity::kError; }));
}

const PythonFrame* OwnFrame(const std::vector<PythonFrame>& stack) {
  if (stack.empty()) return nullptr;
  const auto own = std::find_if(stack.begin(), stack.end(), [](const PythonFrame& frame) {
    for (const char* part :
         {"/site-packages/", "/dist-packages/", "/lib/python", "/lib64/python"}) {
      if (frame.file.find(part) != std::string::npos) return false;
    }
    return frame.file.empty() || frame.file.front() != '<';  // "<frozen importlib._bootstrap>"
  });
  return own == stack.end() ? &stack.front() : &*own;
}

uint64_t CountNotes(const std::vector<Finding>& findings) {
  return static_cast<uint64_t>(
      std::count_if(findings.begin(), findings.end(),
                    [](const Finding& finding) { return finding.severity == Severity::kNote; }));
}

std::string CountByKind(const std::vector<Finding>& findings, Notes notes) {
  std::map<std::string, uint64_t> counts;
  for (const Finding& finding : findings) {
    if ((finding.severity == Severity::kNote) == (notes == Notes::kOnly)) ++counts[finding.kind];
  }
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
