// Layout only (text_report.h): every sentence was decided by the detectors.
#include "analysis/text_report.h"

#include <algorithm>
#include <string>
#include <vector>

#include "analysis/source_lines.h"
#include "analysis/text_conversions.h"
#include "analysis/text_coverage.h"
#include "analysis/text_sheet.h"

namespace ops_debug::analysis {
namespace {

std::string PlaceText(const SourceLocation& place) {
  std::string text = place.file + ':' + std::to_string(place.line);
  if (place.column > 0) text += ':' + std::to_string(place.column);
  return text;
}

class Writer {
 public:
  Writer(bool colour, bool list_kernels) : sheet_(colour), list_kernels_(list_kernels) {}

  std::string Write(const Report& report) {
    if (IsOneRemark(report)) {
      const Remark& remark = report.remarks.front();
      sheet_.Line("ops-debug: " +
                  Printable(remark.text + (remark.hint.empty() ? "" : "; " + remark.hint)));
      return sheet_.text();
    }
    for (const Finding& finding : report.findings) {
      WriteFinding(finding, SeverityName(finding.severity));
    }
    if (!report.unproven.empty()) {
      sheet_.Line(sheet_.Toned(Tone::kWarning, "unproven") +
                  ", neither findings nor passes; what is not known stands with each:\n");
    }
    for (const Finding& finding : report.unproven) WriteFinding(finding, "unproven");
    WriteGeneratedSuppressions(report);
    WriteConversions(report.conversions, sheet_);
    WriteCoverage(report, list_kernels_, sheet_);
    WriteSuppressed(report, sheet_);
    for (const Remark& remark : report.remarks) WriteRemark(remark);
    WriteClosingLine(report);
    return sheet_.text();
  }

 private:
  // A program that never used the GPU is told so in one line.
  static bool IsOneRemark(const Report& report) {
    return report.remarks.size() == 1 && report.remarks.front().severity == Severity::kNote &&
           report.findings.empty() && report.unproven.empty() && report.suppressed.empty() &&
           report.coverage.processes.empty() && report.coverage.kernels.empty() &&
           report.lost_events == 0;
  }

  void WriteFinding(const Finding& finding, const std::string& title) {
    sheet_.Line(
        sheet_.Toned(ToneOf(finding.severity), title + '[' + Printable(finding.kind) + "]: ") +
        sheet_.Toned(Tone::kStrong, Printable(finding.message)));
    if (finding.accesses.size() == 2) {
      WriteRace(finding);
    } else {
      WritePlace({finding.kernel, finding.function, finding.frames, finding.toolkit_frames,
                  finding.ptx_line, finding.sass_offset});
      if (!finding.found_in_text.empty()) sheet_.Labelled("found in", finding.found_in_text);
      WriteAccess(finding);
    }
    if (finding.engine == "replay") {
      sheet_.Labelled("found by", "running this launch once more on the CPU device");
    }
    for (const WaitingGroup& group : finding.waiters) WriteWaiters(finding, group);
    if (!finding.use.empty()) sheet_.Labelled("matters", finding.use);
    if (finding.leaked_bytes > 0) {
      sheet_.Labelled("leaked", Count(finding.leaked_bytes, "byte", "bytes") + " in " +
                                    Count(finding.count, "allocation", "allocations") +
                                    (finding.count > 1 ? "; the biggest:" : ""));
    }
    if (finding.call) {
      sheet_.Labelled("called", finding.call->api);
      sheet_.Stack(finding.call->python_stack, finding.call->stack);
    }
    if (finding.allocation) WriteAllocation("allocation", *finding.allocation);
    if (finding.target_allocation) WriteAllocation("reached", *finding.target_allocation);
    if (finding.launch && !HasTwoLaunches(finding)) WriteLaunch(*finding.launch);
    if (!finding.reason.empty()) sheet_.Labelled("not known", finding.reason);
    if (!finding.advice.empty()) sheet_.Labelled("advice", finding.advice);
    sheet_.Line("");
  }

  // Where an instruction stands.
  struct Place {
    const std::string& kernel;
    const std::string& function;
    const std::vector<SourceLocation>& frames;
    const std::vector<SourceLocation>& toolkit_frames;
    uint32_t ptx_line = 0;
    std::optional<uint64_t> sass_offset;
  };

  void WritePlace(const Place& code) {
    const std::string& function = code.function.empty() ? code.kernel : code.function;
    if (code.frames.empty()) {
      if (function.empty()) return;
      std::string text = "in " + function;
      if (code.ptx_line > 0) text += ", PTX line " + std::to_string(code.ptx_line);
      if (code.sass_offset) text += ", SASS offset " + Hex(*code.sass_offset);
      sheet_.Line(sheet_.Toned(Tone::kFaint, "  --> ") + Printable(text));
    } else {
      const SourceLocation& place = code.frames.front();
      const std::string in = place.function.empty() ? function : place.function;
      sheet_.Line(sheet_.Toned(Tone::kFaint, "  --> ") +
                  Printable(PlaceText(place) + (in.empty() ? "" : " in " + in)));
      WriteSourceLine(place);
      for (const SourceLocation& inner : code.toolkit_frames) {
        sheet_.Labelled("in",
                        PlaceText(inner) + (inner.function.empty() ? "" : " in " + inner.function));
      }
      for (size_t i = 1; i < code.frames.size(); ++i) {
        const SourceLocation& caller = code.frames[i];
        sheet_.Labelled(
            "inlined at",
            PlaceText(caller) + (caller.function.empty() ? "" : " in " + caller.function));
      }
    }
    const bool named = code.frames.empty() || code.frames.front().function.empty();
    if (!code.kernel.empty() && (!code.function.empty() || !named)) {
      sheet_.Labelled("kernel", code.kernel);
    }
  }

  static bool HasTwoLaunches(const Finding& finding) {
    return finding.accesses.size() == 2 && finding.accesses[0].launch &&
           finding.accesses[1].launch &&
           (finding.accesses[0].launch->number != finding.accesses[1].launch->number ||
            finding.accesses[0].kernel != finding.accesses[1].kernel);
  }

  // Both sides, each at its place, in the order in which they happened.
  void WriteRace(const Finding& finding) {
    const AccessInfo* previous = nullptr;
    for (const AccessInfo& side : finding.accesses) {
      const bool same_place = previous != nullptr && !side.frames.empty() &&
                              side.frames == previous->frames && side.kernel == previous->kernel;
      if (!same_place && side.operation.empty()) {
        WritePlace(
            {side.kernel, side.function, side.frames, side.toolkit_frames, side.ptx_line, {}});
      }
      sheet_.Labelled(previous == nullptr ? "first" : "second", side.text);
      if (!side.instruction.empty()) {
        std::string text = side.instruction;
        if (side.ptx_line > 0) text += "  (PTX line " + std::to_string(side.ptx_line) + ')';
        sheet_.Labelled("instruction", text);
      }
      if (!side.operation.empty()) {
        sheet_.Labelled("called", side.operation);
        sheet_.Stack(side.python_stack, side.stack);
      }
      if (HasTwoLaunches(finding)) WriteLaunch(*side.launch);
      previous = &side;
    }
    if (!finding.found_in_text.empty()) sheet_.Labelled("found in", finding.found_in_text);
    if (finding.array && finding.array->size_bytes > 0) {
      sheet_.Labelled(
          "array", finding.array->name + ", " + Count(finding.array->size_bytes, "byte", "bytes"));
    }
    std::string often = finding.count_is_lower_bound ? "at least " : "";
    often += Count(finding.count, "time", "times");
    if (HasTwoLaunches(finding)) {
      often += (finding.count > 1 ? ", first in launches " : ", in launches ") +
               std::to_string(finding.accesses[0].launch->number) + " and " +
               std::to_string(finding.accesses[1].launch->number);
    } else if (finding.launch && finding.launch->number > 0) {
      often += (finding.count > 1 ? ", first in launch " : ", in launch ") +
               std::to_string(finding.launch->number);
    }
    sheet_.Labelled("how often", often);
  }

  void WriteWaiters(const Finding& finding, const WaitingGroup& group) {
    sheet_.Labelled(group.what.starts_with("returned") || group.what.starts_with("never")
                        ? "missing"
                        : "waiting",
                    group.text);
    const bool shown = group.frames == finding.frames && group.ptx_line == finding.ptx_line;
    if (shown) return;
    if (!group.frames.empty()) WriteSourceLine(group.frames.front());
    if (!group.instruction.empty()) sheet_.Labelled("instruction", group.instruction);
  }

  void WriteSourceLine(const SourceLocation& place) {
    const std::optional<std::string> line = sources_.Find(place.file, place.line);
    if (!line) return;
    const std::string number = std::to_string(place.line);
    const std::string margin(number.size() + 1, ' ');
    sheet_.Line(sheet_.Toned(Tone::kFaint, ' ' + margin + '|'));
    sheet_.Line(sheet_.Toned(Tone::kFaint, ' ' + number + " | ") + Printable(*line));
    if (place.column == 0 || place.column > line->size()) return;
    std::string before = line->substr(0, place.column - 1);
    // Tabs stay tabs, so the caret stands under its column whatever the tab width.
    std::replace_if(
        before.begin(), before.end(), [](char c) { return c != '\t'; }, ' ');
    sheet_.Line(sheet_.Toned(Tone::kFaint, ' ' + margin + "| ") + before +
                sheet_.Toned(Tone::kError, "^"));
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
      sheet_.Labelled("instruction", text);
    } else if (finding.sass_offset && !finding.frames.empty()) {
      sheet_.Labelled("instruction",
                      "machine code at offset " + Hex(*finding.sass_offset) + " of the function");
    }
    if (finding.engine == "sass") {
      sheet_.Labelled("engine", "sass: the access was executed, not skipped");
    }
    if (finding.block && finding.thread) {
      std::string text = "block " + ToText(*finding.block) + ", thread " + ToText(*finding.thread);
      if (finding.launch && finding.launch->number > 0) {
        text += " of launch " + std::to_string(finding.launch->number);
      }
      const std::string bound = finding.count_is_lower_bound ? "at least " : "";
      if (finding.count > 1) {
        const bool access = !finding.access.empty() || finding.address;
        text += ", and " + bound +
                Count(finding.count - 1, access ? "more access" : "more time",
                      access ? "more accesses" : "more times");
      }
      sheet_.Labelled("first", text);
    } else if (finding.count > 1 && finding.leaked_bytes == 0) {
      sheet_.Labelled("how often", std::to_string(finding.count) + " times");
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
    sheet_.Labelled("address", text);
    if (offset && finding.array && finding.array->size_bytes > 0) {
      sheet_.Labelled(
          "array", finding.array->name + ", " + Count(finding.array->size_bytes, "byte", "bytes"));
    }
  }

  void WriteAllocation(const std::string& label, const AllocationInfo& allocation) {
    if (allocation.tensor) {
      WriteTensor(label == "allocation" ? "tensor" : label, allocation, *allocation.tensor);
      return;
    }
    std::string text = allocation.name.empty() ? '#' + std::to_string(allocation.id)
                                               : "variable " + allocation.name;
    text += ", " + Count(allocation.size_bytes, "byte", "bytes") + " at " + Hex(allocation.address);
    if (!allocation.api.empty() && allocation.name.empty()) text += ", from " + allocation.api;
    sheet_.Labelled(label, text);
    sheet_.Stack(allocation.allocation_stack);
    if (!allocation.freed) return;
    sheet_.Labelled(
        "freed", allocation.free_api.empty() ? "before this access" : "by " + allocation.free_api);
    sheet_.Stack(allocation.free_stack);
  }

  static std::string At(const std::vector<PythonFrame>& stack) {
    const PythonFrame* own = OwnFrame(stack);
    return own == nullptr ? "" : "at " + FrameText(*own);
  }

  static std::string FreedWhen(const AllocationInfo& allocation, const std::string& at) {
    if (!allocation.free_order_unknown) return at.empty() ? "before this access" : at;
    return at.empty() ? "before or after this access" : at + " (before or after this access)";
  }

  void WriteTensor(const std::string& label, const AllocationInfo& allocation,
                   const TensorInfo& tensor) {
    std::string text = tensor.name.empty() ? "block" : tensor.name;
    text += " (" + Count(allocation.size_bytes, "byte", "bytes") + ") of " + tensor.framework +
            " at " + Hex(allocation.address);
    if (const std::string at = At(tensor.allocation_stack); !at.empty()) {
      text += ", allocated " + at;
    }
    sheet_.Labelled(label, text);
    if (tensor.allocation_stack.size() != 1) {
      sheet_.Stack(tensor.allocation_stack, allocation.allocation_stack);
    }
    if (tensor.segment_bytes > 0) {
      sheet_.Labelled("segment", Count(tensor.segment_bytes, "byte", "bytes") + " at " +
                                     Hex(tensor.segment_address) +
                                     (allocation.api.empty() ? "" : ", from " + allocation.api));
    }
    if (!allocation.freed) return;
    sheet_.Labelled("freed", FreedWhen(allocation, At(tensor.free_stack)));
    if (tensor.free_stack.size() != 1) {
      sheet_.Stack(tensor.free_stack, allocation.free_stack);
    }
  }

  void WriteLaunch(const LaunchInfo& launch) {
    std::string text = "grid " + ToText(launch.grid) + ", block " + ToText(launch.block);
    if (launch.dynamic_shared_bytes > 0) {
      text +=
          ", " + Count(launch.dynamic_shared_bytes, "byte", "bytes") + " of dynamic shared memory";
    }
    if (launch.graph_node) text += ", run by a graph; captured or added here:";
    sheet_.Labelled(launch.graph_node ? "graph node" : "launched", text);
    sheet_.Stack(launch.python_stack, launch.stack);
  }

  void WriteGeneratedSuppressions(const Report& report) {
    std::string entries;
    for (const auto* findings : {&report.findings, &report.unproven}) {
      for (const Finding& finding : *findings) entries += finding.suppression;
    }
    if (entries.empty()) return;
    sheet_.Line("# entries for a file that --suppressions reads; say why each is accepted:");
    sheet_.Block(entries);
    sheet_.Line("");
  }

  void WriteRemark(const Remark& remark) {
    sheet_.Line(
        sheet_.Toned(ToneOf(remark.severity), std::string(SeverityName(remark.severity)) + ": ") +
        Printable(remark.text));
    if (!remark.hint.empty()) sheet_.Line("  hint: " + Printable(remark.hint));
  }

  void WriteClosingLine(const Report& report) {
    const Coverage& coverage = report.coverage;
    std::string text = "ops-debug: ";
    const uint64_t notes = CountNotes(report.findings);
    const uint64_t findings = report.findings.size() - notes;
    if (findings == 0) {
      text += "no findings";
    } else {
      text += Count(findings, "finding", "findings") + " (" +
              CountByKind(report.findings, Notes::kWithout) + ')';
    }
    if (notes > 0) {
      text += ", " + Count(notes, "note", "notes") + " (" +
              CountByKind(report.findings, Notes::kOnly) + ')';
    }
    if (!report.unproven.empty()) {
      text += ", " + std::to_string(report.unproven.size()) + " unproven";
    }
    if (coverage.kernels.empty()) {
      text += ", no kernel was seen";
    } else {
      text += ", " + Count(coverage.kernels.size(), "kernel", "kernels") + ", " +
              std::to_string(coverage.CheckedKernels()) + " checked";
    }
    if (report.lost_events > 0) text += ", " + std::to_string(report.lost_events) + " events lost";
    if (!report.suppressed.empty()) {
      text += ", " + std::to_string(report.suppressed.size()) + " suppressed";
    }
    const Tone tone = CountErrors(report.findings) > 0           ? Tone::kError
                      : findings == 0 && report.unproven.empty() ? Tone::kStrong
                                                                 : Tone::kWarning;
    sheet_.Line(sheet_.Toned(tone, Printable(text)));
  }

  TextSheet sheet_;
  bool list_kernels_;
  SourceLines sources_;
};

}  // namespace

std::string WriteText(const Report& report, bool colour, bool list_kernels) {
  return Writer(colour, list_kernels).Write(report);
}

}  // namespace ops_debug::analysis
