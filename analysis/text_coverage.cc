// Layout only (text_coverage.h).
#include "analysis/text_coverage.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace ops_debug::analysis {
namespace {

// Processes that differ in their rank only take one line.
void WriteProcesses(const Coverage& coverage, TextSheet& sheet) {
  struct Alike {
    std::string text, ranks;
    uint64_t count = 0;
  };
  std::vector<Alike> lines;
  for (const ProcessInfo& process : coverage.processes) {
    if (process.device_name.empty()) continue;
    std::string text = process.executable + " on " + process.device_name;
    if (!process.driver_version.empty()) text += ", CUDA driver " + process.driver_version;
    if (process.injected) text += ", loaded by the driver";
    auto line = std::find_if(lines.begin(), lines.end(),
                             [&text](const Alike& other) { return other.text == text; });
    if (line == lines.end()) line = lines.insert(lines.end(), {text, "", 0});
    ++line->count;
    if (!process.rank.empty()) line->ranks += (line->ranks.empty() ? "" : ", ") + process.rank;
  }
  for (const Alike& line : lines) {
    std::string text = line.text;
    if (line.count > 1) text += ", " + std::to_string(line.count) + " processes";
    if (!line.ranks.empty()) {
      text += (line.count > 1 ? " (ranks " : " (rank ") + line.ranks + ')';
    }
    sheet.Line("ran: " + Printable(text));
  }
}

// Those that take most of the GPU's time first; those that were not timed last.
void WriteKernels(const Coverage& coverage, TextSheet& sheet) {
  if (coverage.kernels.empty()) return;
  std::vector<const KernelCoverage*> kernels;
  double all_ns = 0;
  for (const KernelCoverage& kernel : coverage.kernels) {
    kernels.push_back(&kernel);
    all_ns += kernel.EstimatedTime_ns().value_or(0);
  }
  std::stable_sort(kernels.begin(), kernels.end(), [](const auto* a, const auto* b) {
    return std::pair(a->EstimatedTime_ns().value_or(0), a->launches) >
           std::pair(b->EstimatedTime_ns().value_or(0), b->launches);
  });
  sheet.Line(sheet.Toned(Tone::kStrong, "  launches   checked   GPU time  engine    kernel"));
  for (const KernelCoverage* kernel : kernels) {
    const std::optional<double> time_ns = kernel->EstimatedTime_ns();
    const std::string share =
        time_ns && all_ns > 0 ? Percent(100 * *time_ns / all_ns) : "not timed";
    char row[96];
    std::snprintf(row, sizeof(row), "%10" PRIu64 "%10" PRIu64 "  %9s  %-8s  ", kernel->launches,
                  kernel->checked_launches, share.c_str(),
                  kernel->engine.empty() ? "none" : kernel->engine.c_str());
    sheet.Line(row + Printable(kernel->name));
  }
}

void WriteShare(const Coverage& coverage, TextSheet& sheet) {
  if (coverage.kernels.empty()) return;
  const uint64_t launches = coverage.Launches();
  const uint64_t checked = coverage.CheckedLaunches();
  std::string text = "checked: " + std::to_string(coverage.CheckedKernels()) + " of " +
                     Count(coverage.kernels.size(), "kernel", "kernels") + ", " +
                     std::to_string(checked) + " of " + Count(launches, "launch", "launches");
  if (checked < launches) {
    text +=
        " (" + Percent(100 * static_cast<double>(checked) / static_cast<double>(launches)) + ')';
    if (const std::optional<TimeShare> time = coverage.CheckedTime()) {
      text += ", about " + Percent(time->checked_percent) + " of the GPU time";
      if (time->untimed_kernels > 0) {
        text += " (without " + Count(time->untimed_kernels, "kernel", "kernels") +
                " that could not be timed)";
      }
    }
  }
  const std::vector<std::string> engines = coverage.Engines();
  if (engines.size() > 1) {
    for (const std::string& engine : engines) {
      text += (engine == engines.front() ? "; engines: " : ", ") + Printable(engine) + ' ' +
              Count(coverage.CheckedKernels(engine), "kernel", "kernels");
    }
  } else if (!engines.empty()) {
    const std::string engine = "engine: " + Printable(engines.front());
    text += checked < launches ? "; " + engine : " (" + engine + ')';
  }
  sheet.Line(text);
}

void WriteChecks(const Coverage& coverage, TextSheet& sheet) {
  std::string text;
  for (const std::string& check : coverage.Checks()) text += (text.empty() ? "" : ", ") + check;
  if (!text.empty()) sheet.Line("checks: " + text);
}

// By reason; a reason with one kernel takes one line.
void WriteNotChecked(const Coverage& coverage, TextSheet& sheet) {
  constexpr size_t kShownKernels = 30;
  const std::vector<UncheckedGroup> groups = coverage.NotChecked();
  if (groups.empty()) return;
  sheet.Line(sheet.Toned(Tone::kWarning, "not checked:"));
  const auto part = [](const std::pair<const KernelCoverage*, uint64_t>& kernel) {
    return Printable(kernel.first->name) + ", " + std::to_string(kernel.second) + " of " +
           Count(kernel.first->launches, "launch", "launches");
  };
  for (const UncheckedGroup& group : groups) {
    if (group.kernels.size() == 1) {
      sheet.Line("  " + part(group.kernels.front()) + ": " + Printable(group.reason));
      continue;
    }
    sheet.Line("  " + Count(group.kernels.size(), "kernel", "kernels") + ", " +
               Count(group.launches, "launch", "launches") + ": " + Printable(group.reason));
    for (size_t i = 0; i < group.kernels.size() && i < kShownKernels; ++i) {
      sheet.Line("    " + part(group.kernels[i]));
    }
    if (group.kernels.size() > kShownKernels) {
      sheet.Line("    and " +
                 Count(group.kernels.size() - kShownKernels, "more kernel", "more kernels") +
                 " (--format json lists all)");
    }
  }
}

// "a", "a, b and 3 more".
std::string ListText(const std::vector<std::string>& words, size_t shown, const char* separator) {
  std::string text;
  for (size_t i = 0; i < words.size() && i < shown; ++i)
    text += (i > 0 ? separator : "") + words[i];
  if (words.size() > shown) text += " and " + std::to_string(words.size() - shown) + " more";
  return text;
}

// What the GPU could not decide: where the CPU device did, and where it did not. A line per reason.
void WriteReplays(const Coverage& coverage, TextSheet& sheet) {
  constexpr size_t kShownKernels = 4;
  constexpr size_t kShownUndecided = 3;
  const ReplaySummary& replays = coverage.replays;
  if (replays.launches > 0) {
    std::string text =
        "replayed on the CPU device: " + Count(replays.launches, "launch", "launches") + " of " +
        Count(replays.kernels, "kernel", "kernels");
    if (replays.decided_pairs > 0) {
      text += "; " + Count(replays.decided_pairs, "pair", "pairs") +
              " of accesses that the GPU could not decide " +
              (replays.decided_pairs == 1 ? "is" : "are") + " decided";
    }
    sheet.Line(text);
  }
  if (replays.not_replayed.empty()) return;
  sheet.Line(sheet.Toned(Tone::kWarning, "not replayed:"));
  for (const UnreplayedGroup& group : replays.not_replayed) {
    sheet.Line("  " +
               Printable(ListText(group.kernels, kShownKernels, ", ") + ": " + group.reason));
    if (group.undecided.empty()) continue;
    sheet.Line("    not known there: " +
               Printable(ListText(group.undecided, kShownUndecided, "; ")));
  }
}

void WriteUncheckedAccesses(const Coverage& coverage, TextSheet& sheet) {
  std::map<std::pair<std::string, std::string>, uint64_t> sums;
  for (const KernelCoverage& kernel : coverage.kernels) {
    for (const UncheckedAccesses& unchecked : kernel.unchecked) {
      sums[{unchecked.instruction, unchecked.reason}] += unchecked.count;
    }
  }
  if (!sums.empty())
    sheet.Line(sheet.Toned(Tone::kWarning, "instructions not checked in these kernels:"));
  for (const auto& [what, count] : sums) {
    sheet.Line("  " + Printable(std::to_string(count) + " x " + what.first + ": " + what.second));
  }
}

}  // namespace

void WriteCoverage(const Report& report, bool list_kernels, TextSheet& sheet) {
  const Coverage& coverage = report.coverage;
  WriteProcesses(coverage, sheet);
  if (list_kernels) WriteKernels(coverage, sheet);
  WriteShare(coverage, sheet);
  WriteChecks(coverage, sheet);
  WriteNotChecked(coverage, sheet);
  WriteUncheckedAccesses(coverage, sheet);
  WriteReplays(coverage, sheet);
  if (coverage.unknown_accesses > 0) {
    sheet.Line("unknown: " + Count(coverage.unknown_accesses, "access", "accesses") +
               " to memory that no call we saw allocated; let through");
  }
  if (report.lost_events > 0) {
    sheet.Line(sheet.Toned(Tone::kWarning, "lost: ") +
               Count(report.lost_events, "event", "events") + "; this report is incomplete");
  }
}

void WriteSuppressed(const Report& report, TextSheet& sheet) {
  struct File {
    uint64_t findings = 0, entries = 0;
    std::string unused;
  };
  std::map<std::string, File> files;
  for (const SuppressionUse& use : report.suppressions) {
    File& file = files[use.file];
    file.findings += use.findings;
    file.entries += use.findings > 0 ? 1 : 0;
    if (use.findings > 0 || use.shipped) continue;
    file.unused += (file.unused.empty() ? "" : ", ") + std::to_string(use.line);
  }
  for (const auto& [name, file] : files) {
    if (file.findings > 0) {
      sheet.Line(sheet.Toned(Tone::kNote, "suppressed: ") +
                 Count(file.findings, "finding", "findings") + " by " +
                 Count(file.entries, "entry", "entries") + " of " + Printable(name));
    }
    if (!file.unused.empty()) {
      sheet.Line(sheet.Toned(Tone::kNote, "note: ") + "suppressions of " + Printable(name) +
                 " that nothing matched: line " + file.unused);
    }
  }
}

}  // namespace ops_debug::analysis
