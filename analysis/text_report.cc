// Layout only (text_report.h): every sentence was decided by the detectors.
#include "analysis/text_report.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <map>

#include "analysis/source_lines.h"

namespace ops_debug::analysis {
namespace {

std::string Hex(uint64_t value) {
  char text[32];
  std::snprintf(text, sizeof(text), "0x%" PRIx64, value);
  return text;
}

std::string Count(uint64_t count, const std::string& singular, const std::string& plural) {
  return std::to_string(count) + ' ' + (count == 1 ? singular : plural);
}

std::string ToText(const Extent3& extent) {
  return '(' + std::to_string(extent.x) + ',' + std::to_string(extent.y) + ',' +
         std::to_string(extent.z) + ')';
}

// Names come from other processes: control characters must not reach a terminal.
std::string Printable(std::string text) {
  for (char& c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\t') || byte == 0x7f) c = '?';
  }
  return text;
}

std::string FrameText(const HostFrame& frame) {
  if (frame.line > 0) {
    const std::string place = frame.file + ':' + std::to_string(frame.line);
    return frame.function.empty() ? place : frame.function + " at " + place;
  }
  if (!frame.function.empty()) {
    return frame.function + " + " + std::to_string(frame.function_offset) + " in " + frame.module;
  }
  return (frame.module.empty() ? "(unknown module)" : frame.module) + " + " +
         Hex(frame.module_offset);
}

std::string PlaceText(const SourceLocation& place) {
  std::string text = place.file + ':' + std::to_string(place.line);
  if (place.column > 0) text += ':' + std::to_string(place.column);
  return text;
}

class Writer {
 public:
  explicit Writer(bool colour) : colour_(colour) {}

  std::string Write(const Report& report) {
    for (const Finding& finding : report.findings) WriteFinding(finding, "");
    for (const Finding& finding : report.unproven) WriteFinding(finding, "unproven ");
    WriteCoverage(report);
    for (const Remark& remark : report.remarks) WriteRemark(remark);
    WriteClosingLine(report);
    return std::move(text_);
  }

 private:
  enum class Tone { kPlain, kError, kWarning, kNote, kStrong, kFaint };

  static constexpr size_t kLabelWidth = 14;

  std::string Toned(Tone tone, const std::string& text) const {
    if (!colour_ || tone == Tone::kPlain) return text;
    static const std::map<Tone, std::string> kCodes = {{Tone::kError, "1;31"},
                                                       {Tone::kWarning, "1;33"},
                                                       {Tone::kNote, "1;36"},
                                                       {Tone::kStrong, "1"},
                                                       {Tone::kFaint, "34"}};
    return "\033[" + kCodes.at(tone) + 'm' + text + "\033[0m";
  }

  static Tone ToneOf(Severity severity) {
    switch (severity) {
      case Severity::kError:
        return Tone::kError;
      case Severity::kWarning:
        return Tone::kWarning;
      case Severity::kNote:
        break;
    }
    return Tone::kNote;
  }

  void Line(const std::string& text) { text_ += text + '\n'; }

  // "  address       0x7f..."
  void Labelled(const std::string& label, const std::string& text) {
    std::string padded = "  " + label;
    padded.resize(2 + kLabelWidth, ' ');
    Line(Toned(Tone::kFaint, padded) + Printable(text));
  }

  void Continued(const std::string& text) {
    Line(std::string(2 + kLabelWidth, ' ') + Printable(text));
  }

  void Stack(const std::vector<HostFrame>& stack) {
    constexpr size_t kShown = 12;
    for (size_t i = 0; i < stack.size() && i < kShown; ++i) Continued("  " + FrameText(stack[i]));
    if (stack.size() > kShown) {
      Continued("  and " + Count(stack.size() - kShown, "more frame", "more frames"));
    }
  }

  void WriteFinding(const Finding& finding, const std::string& prefix) {
    Line(Toned(ToneOf(finding.severity),
               prefix + SeverityName(finding.severity) + '[' + Printable(finding.kind) + "]: ") +
         Toned(Tone::kStrong, Printable(finding.message)));
    WritePlace(finding);
    WriteAccess(finding);
    if (finding.allocation) WriteAllocation("allocation", *finding.allocation);
    if (finding.target_allocation) WriteAllocation("reached", *finding.target_allocation);
    WriteLaunch(finding);
    if (!finding.advice.empty()) Labelled("advice", finding.advice);
    Line("");
  }

  void WritePlace(const Finding& finding) {
    const std::string function = finding.function.empty() ? finding.kernel : finding.function;
    if (finding.frames.empty()) {
      if (function.empty()) return;
      std::string text = "in " + function;
      if (finding.ptx_line > 0) text += ", PTX line " + std::to_string(finding.ptx_line);
      Line(Toned(Tone::kFaint, "  --> ") + Printable(text));
    } else {
      const SourceLocation& place = finding.frames.front();
      const std::string in = place.function.empty() ? function : place.function;
      Line(Toned(Tone::kFaint, "  --> ") +
           Printable(PlaceText(place) + (in.empty() ? "" : " in " + in)));
      WriteSourceLine(place);
      for (const SourceLocation& inner : finding.toolkit_frames) {
        Labelled("in", PlaceText(inner) + (inner.function.empty() ? "" : " in " + inner.function));
      }
      for (size_t i = 1; i < finding.frames.size(); ++i) {
        const SourceLocation& caller = finding.frames[i];
        Labelled("inlined at",
                 PlaceText(caller) + (caller.function.empty() ? "" : " in " + caller.function));
      }
    }
    const bool named = finding.frames.empty() || finding.frames.front().function.empty();
    if (!finding.kernel.empty() && (!finding.function.empty() || !named)) {
      Labelled("kernel", finding.kernel);
    }
  }

  void WriteSourceLine(const SourceLocation& place) {
    const std::optional<std::string> line = sources_.Find(place.file, place.line);
    if (!line) return;
    const std::string number = std::to_string(place.line);
    const std::string margin(number.size() + 1, ' ');
    Line(Toned(Tone::kFaint, ' ' + margin + '|'));
    Line(Toned(Tone::kFaint, ' ' + number + " | ") + Printable(*line));
    if (place.column == 0 || place.column > line->size()) return;
    std::string before = line->substr(0, place.column - 1);
    // Tabs stay tabs, so the caret stands under its column whatever the tab width.
    std::replace_if(
        before.begin(), before.end(), [](char c) { return c != '\t'; }, ' ');
    Line(Toned(Tone::kFaint, ' ' + margin + "| ") + before + Toned(Tone::kError, "^"));
  }

  void WriteAccess(const Finding& finding) {
    if (!finding.instruction.empty()) {
      std::string text = finding.instruction;
      if (finding.ptx_line > 0) text += "  (PTX line " + std::to_string(finding.ptx_line) + ')';
      if (finding.instructions > 1) {
        text += ", and " +
                Count(finding.instructions - 1, "more instruction", "more instructions") +
                " of this line";
      }
      Labelled("instruction", text);
    }
    if (finding.block && finding.thread) {
      std::string text = "block " + ToText(*finding.block) + ", thread " + ToText(*finding.thread);
      if (finding.launch && finding.launch->number > 0) {
        text += " of launch " + std::to_string(finding.launch->number);
      }
      const std::string bound = finding.count_is_lower_bound ? "at least " : "";
      if (finding.count > 1) {
        text += ", and " + bound + Count(finding.count - 1, "more access", "more accesses");
      }
      Labelled("first", text);
    } else if (finding.count > 1) {
      Labelled("how often", std::to_string(finding.count) + " times");
    }
    if (!finding.address) return;
    const bool offset = finding.space == "shared" || finding.space == "local";
    std::string text = Hex(*finding.address);
    if (offset)
      text += " (byte " + std::to_string(*finding.address) + " of " + finding.space + " memory)";
    if (finding.parameter) {
      text += ", pointer from parameter " + std::to_string(finding.parameter->index);
      if (!finding.parameter->type.empty()) text += " (" + finding.parameter->type + ')';
    }
    Labelled("address", text);
    if (offset && finding.array && finding.array->size_bytes > 0) {
      Labelled("array",
               finding.array->name + ", " + Count(finding.array->size_bytes, "byte", "bytes"));
    }
  }

  void WriteAllocation(const char* label, const AllocationInfo& allocation) {
    std::string text = allocation.name.empty() ? '#' + std::to_string(allocation.id)
                                               : "variable " + allocation.name;
    text += ", " + Count(allocation.size_bytes, "byte", "bytes") + " at " + Hex(allocation.address);
    if (!allocation.api.empty() && allocation.name.empty()) text += ", from " + allocation.api;
    Labelled(label, text);
    Stack(allocation.allocation_stack);
    if (!allocation.freed) return;
    Labelled("freed",
             allocation.free_api.empty() ? "before this access" : "by " + allocation.free_api);
    Stack(allocation.free_stack);
  }

  void WriteLaunch(const Finding& finding) {
    if (!finding.launch) return;
    const LaunchInfo& launch = *finding.launch;
    std::string text = "grid " + ToText(launch.grid) + ", block " + ToText(launch.block);
    if (launch.dynamic_shared_bytes > 0) {
      text +=
          ", " + Count(launch.dynamic_shared_bytes, "byte", "bytes") + " of dynamic shared memory";
    }
    Labelled("launched", text);
    Stack(launch.stack);
  }

  void WriteCoverage(const Report& report) {
    const Coverage& coverage = report.coverage;
    for (const ProcessInfo& process : coverage.processes) {
      if (process.device_name.empty()) continue;
      std::string text = process.executable + " on " + process.device_name;
      if (!process.driver_version.empty()) text += ", CUDA driver " + process.driver_version;
      Line("ran: " + Printable(text));
    }
    std::vector<const KernelCoverage*> unchecked;
    for (const KernelCoverage& kernel : coverage.kernels) {
      if (kernel.checked_launches < kernel.launches) unchecked.push_back(&kernel);
    }
    if (!coverage.kernels.empty()) {
      Line("checked: " + std::to_string(coverage.CheckedKernels()) + " of " +
           Count(coverage.kernels.size(), "kernel", "kernels") + ", " +
           std::to_string(coverage.CheckedLaunches()) + " of " +
           Count(coverage.Launches(), "launch", "launches") +
           (coverage.CheckedKernels() > 0 ? " (engine: ptx)" : ""));
    }
    if (!unchecked.empty()) Line(Toned(Tone::kWarning, "not checked:"));
    for (const KernelCoverage* kernel : unchecked) {
      Line("  " + Printable(kernel->name + ", " +
                            std::to_string(kernel->launches - kernel->checked_launches) + " of " +
                            Count(kernel->launches, "launch", "launches") + ": " + kernel->reason));
    }
    WriteUncheckedAccesses(coverage);
    if (coverage.unknown_accesses > 0) {
      Line("unknown: " + Count(coverage.unknown_accesses, "access", "accesses") +
           " to memory that no call we saw allocated; let through");
    }
    if (report.lost_events > 0) {
      Line(Toned(Tone::kWarning, "lost: ") + Count(report.lost_events, "event", "events") +
           "; this report is incomplete");
    }
  }

  void WriteUncheckedAccesses(const Coverage& coverage) {
    std::map<std::pair<std::string, std::string>, uint64_t> sums;
    for (const KernelCoverage& kernel : coverage.kernels) {
      for (const UncheckedAccesses& unchecked : kernel.unchecked) {
        sums[{unchecked.instruction, unchecked.reason}] += unchecked.count;
      }
    }
    if (!sums.empty()) Line(Toned(Tone::kWarning, "instructions not checked in these kernels:"));
    for (const auto& [what, count] : sums) {
      Line("  " + Printable(std::to_string(count) + " x " + what.first + ": " + what.second));
    }
  }

  void WriteRemark(const Remark& remark) {
    Line(Toned(ToneOf(remark.severity), std::string(SeverityName(remark.severity)) + ": ") +
         Printable(remark.text));
    if (!remark.hint.empty()) Line("  hint: " + Printable(remark.hint));
  }

  void WriteClosingLine(const Report& report) {
    const Coverage& coverage = report.coverage;
    std::string text = "ops-debug: ";
    if (report.findings.empty()) {
      text += "no findings";
    } else {
      text += Count(report.findings.size(), "finding", "findings") + " (" +
              CountByKind(report.findings) + ')';
    }
    if (coverage.kernels.empty()) {
      text += ", no kernel was seen";
    } else {
      text += ", " + Count(coverage.kernels.size(), "kernel", "kernels") + ", " +
              std::to_string(coverage.CheckedKernels()) + " checked";
    }
    if (report.lost_events > 0) text += ", " + std::to_string(report.lost_events) + " events lost";
    Line(Toned(report.findings.empty() ? Tone::kStrong : Tone::kError, Printable(text)));
  }

  bool colour_;
  std::string text_;
  SourceLines sources_;
};

}  // namespace

std::string WriteText(const Report& report, bool colour) { return Writer(colour).Write(report); }

}  // namespace ops_debug::analysis
