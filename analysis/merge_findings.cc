// Equal place, equal kind: one finding (merge_findings.h). Addresses, threads and values differ
// between processes and are no part of the key; the sentence is not either, since it quotes them.
#include "analysis/merge_findings.h"

#include <algorithm>
#include <map>
#include <string>

#include "analysis/finding_parts.h"

namespace ops_debug::analysis {
namespace {

// Of a race: its two places, whichever came first.
std::string PairKey(const Finding& finding) {
  std::vector<std::string> sides;
  for (const AccessInfo& side : finding.accesses) {
    std::string key = side.kernel + '\0' + side.function + '\0' + side.operation + '\0';
    AddToKey(side.frames, key);
    AddToKey(side.stack, side.python_stack, key);
    if (side.frames.empty()) key += std::to_string(side.ptx_line) + ' ' + side.instruction;
    sides.push_back(std::move(key));
  }
  std::sort(sides.begin(), sides.end());
  return finding.kind + '\1' + SeverityName(finding.severity) + '\1' + sides[0] + '\1' + sides[1];
}

std::string PlaceKey(const Finding& finding) {
  if (finding.accesses.size() == 2) return PairKey(finding);
  std::string key;
  const auto add = [&key](const std::string& text) { key.append(text).push_back('\0'); };
  add(finding.kind);
  add(finding.cause);
  add(finding.kernel);
  add(finding.function);
  add(finding.access);
  add(finding.space);
  add(std::to_string(finding.access_bytes));
  add(finding.array ? finding.array->name : "");
  for (const SourceLocation& frame : finding.frames) {
    add(frame.file + ':' + std::to_string(frame.line) + ':' + std::to_string(frame.column));
  }
  if (!finding.frames.empty()) return key;
  add(finding.instruction);
  add(std::to_string(finding.ptx_line));
  if (finding.sass_offset) {
    add(std::to_string(*finding.sass_offset));
    return key;
  }
  // Host-side findings have no instruction: the call's place tells them apart, or what they say.
  if (!finding.instruction.empty() || finding.ptx_line != 0) return key;
  const std::vector<HostFrame>* stack = nullptr;
  if (finding.launch) stack = &finding.launch->stack;
  if (finding.call) stack = &finding.call->stack;
  if (finding.allocation) stack = &finding.allocation->allocation_stack;
  if (stack == nullptr || stack->empty()) {
    add(finding.message);
    return key;
  }
  for (const HostFrame& frame : *stack) {
    add(frame.line > 0 ? frame.file + ':' + std::to_string(frame.line)
                       : frame.module + '+' + std::to_string(frame.module_offset));
  }
  return key;
}

FoundIn PlaceOf(uint32_t number, const ProcessBook& processes) {
  const ProcessInfo* process = processes.Find(number);
  return {processes.ProcessIdOf(number), process != nullptr ? process->rank : ""};
}

// "ranks 0, 1, 3", "processes 77, 78 (worker)": ranks speak for themselves, process ids do not.
std::string Describe(const std::vector<uint32_t>& numbers, const ProcessBook& processes) {
  std::vector<std::string> ranks, others;
  for (const uint32_t number : numbers) {
    const ProcessInfo* process = processes.Find(number);
    if (process != nullptr && !process->rank.empty()) {
      ranks.push_back(process->rank);
      continue;
    }
    const std::string name = process != nullptr
                                 ? ProcessName(*process)
                                 : "process " + std::to_string(processes.ProcessIdOf(number));
    if (std::find(others.begin(), others.end(), name) == others.end()) others.push_back(name);
  }
  // "10" comes behind "9".
  std::stable_sort(ranks.begin(), ranks.end(), [](const std::string& a, const std::string& b) {
    return std::pair(a.size(), a) < std::pair(b.size(), b);
  });
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  std::string text;
  for (size_t i = 0; i < ranks.size(); ++i) {
    text += (i > 0 ? ", " : ranks.size() > 1 ? "ranks " : "rank ") + ranks[i];
  }
  for (const std::string& other : others) text += (text.empty() ? "" : ", ") + other;
  return text;
}

}  // namespace

std::vector<Finding> MergeProcesses(std::vector<Finding> findings, const ProcessBook& processes) {
  struct Merged {
    Finding finding;
    std::vector<uint32_t> numbers;
  };
  std::vector<Merged> merged;
  std::map<std::string, size_t> by_place;
  const bool several = processes.Finish().size() > 1;
  for (Finding& finding : findings) {
    const uint32_t number = finding.process_id;
    // Within one process the detectors have decided what is one finding.
    const std::string key = PlaceKey(finding);
    const auto found = by_place.find(key);
    if (several && found != by_place.end()) {
      Merged& first = merged[found->second];
      if (std::find(first.numbers.begin(), first.numbers.end(), number) == first.numbers.end()) {
        first.numbers.push_back(number);
        first.finding.count += finding.count;
        first.finding.count_is_lower_bound |= finding.count_is_lower_bound;
        first.finding.leaked_bytes += finding.leaked_bytes;
        first.finding.wait_duration_ns += finding.wait_duration_ns;
        continue;
      }
    }
    by_place.try_emplace(key, merged.size());
    merged.push_back({std::move(finding), {number}});
  }
  findings.clear();
  for (Merged& entry : merged) {
    Finding& finding = entry.finding;
    if (several) {
      for (const uint32_t number : entry.numbers) {
        const FoundIn place = PlaceOf(number, processes);
        // A program that exec replaced goes under the same id.
        if (std::find(finding.found_in.begin(), finding.found_in.end(), place) ==
            finding.found_in.end()) {
          finding.found_in.push_back(place);
        }
      }
      finding.found_in_text = Describe(entry.numbers, processes);
    }
    finding.process_id = processes.ProcessIdOf(finding.process_id);
    findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace ops_debug::analysis
