// Merging, and the words (host_detector.h).
#include "analysis/host_detector.h"

#include <algorithm>

#include "analysis/finding_parts.h"

namespace ops_debug::analysis {
namespace {

void AddStack(const proto::StackTrace& stack, std::string& key) {
  for (const proto::StackFrame& frame : stack.frames()) {
    key += frame.module() + '+' + std::to_string(frame.offset()) + '\0';
  }
}

void AddStack(const ProtoPythonStack& stack, std::string& key) {
  for (const proto::PythonFrame& frame : stack) {
    key += frame.file() + ':' + std::to_string(frame.line()) + '\0';
  }
}

std::string PlaceKey(const Finding& finding) {
  std::string key = finding.message + '\0';
  if (finding.call) {
    AddToKey(finding.call->stack, finding.call->python_stack, key);
    return key;
  }
  const AllocationInfo& allocation = *finding.allocation;
  AddToKey(allocation.allocation_stack,
           allocation.tensor ? allocation.tensor->allocation_stack : std::vector<PythonFrame>(),
           key);
  return key;
}

// Findings of one process that name the same place become one; the bigger allocation speaks for
// both.
void MergeByPlace(std::vector<std::pair<size_t, Finding>>& findings) {
  std::map<std::pair<uint32_t, std::string>, size_t> seen;
  std::vector<std::pair<size_t, Finding>> merged;
  for (auto& [order, finding] : findings) {
    const auto [found, is_new] =
        seen.try_emplace({finding.process_id, PlaceKey(finding)}, merged.size());
    if (is_new) {
      merged.emplace_back(order, std::move(finding));
      continue;
    }
    auto& [first_order, first] = merged[found->second];
    first_order = std::min(first_order, order);
    const uint64_t count = first.count + finding.count;
    const uint64_t leaked_bytes = first.leaked_bytes + finding.leaked_bytes;
    const bool bigger =
        finding.allocation && finding.allocation->size_bytes > first.allocation->size_bytes;
    if (bigger) first = std::move(finding);
    first.count = count;
    first.leaked_bytes = leaked_bytes;
  }
  findings = std::move(merged);
}

}  // namespace

void HostDetector::Add(uint32_t process_id, const proto::CallFailed& failed) {
  std::string key = failed.api() + '\0' + failed.error() + '\0' + failed.reason() + '\0';
  AddStack(failed.stack(), key);
  AddStack(failed.python_stack(), key);
  MergedCall& merged = calls_[{process_id, key}];
  if (merged.count == 0) {
    merged.first = failed;
    merged.order = order_++;
  }
  merged.count += std::max<uint64_t>(failed.count(), 1);
}

void HostDetector::Add(uint32_t process_id, const proto::Leak& leak) {
  const proto::Allocation& allocation = leak.allocation();
  std::string key = allocation.api() + '\0';
  AddStack(allocation.allocation_stack(), key);
  AddStack(allocation.tensor().allocation_stack(), key);
  MergedLeak& merged = leaks_[{process_id, key}];
  if (merged.count++ == 0) merged.order = order_++;
  merged.bytes += allocation.size_bytes();
  if (merged.count == 1 || allocation.size_bytes() > merged.biggest.size_bytes()) {
    merged.biggest = allocation;
  }
}

std::vector<Finding> HostDetector::Finish() {
  std::vector<Finding> findings;
  std::vector<std::pair<size_t, Finding>> calls;
  for (const auto& [key, merged] : calls_) {
    calls.emplace_back(merged.order, MakeFinding(key.first, merged));
  }
  MergeByPlace(calls);
  std::sort(calls.begin(), calls.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  for (auto& [order, finding] : calls) findings.push_back(std::move(finding));
  std::vector<std::pair<size_t, Finding>> leaks;
  for (const auto& [key, merged] : leaks_) {
    leaks.emplace_back(merged.order, MakeFinding(key.first, merged));
  }
  MergeByPlace(leaks);
  std::sort(leaks.begin(), leaks.end(), [](const auto& a, const auto& b) {
    if (a.second.leaked_bytes != b.second.leaked_bytes) {
      return a.second.leaked_bytes > b.second.leaked_bytes;
    }
    return a.first < b.first;
  });
  for (auto& [order, finding] : leaks) findings.push_back(std::move(finding));
  return findings;
}

Finding HostDetector::MakeFinding(uint32_t process_id, const MergedCall& merged) {
  const proto::CallFailed& failed = merged.first;
  Finding finding;
  finding.kind = "failed-call";
  finding.severity = Severity::kWarning;
  finding.process_id = process_id;
  finding.count = merged.count;
  finding.call = CallInfo{failed.api(), failed.error(), symbolizer_.Resolve(failed.stack()),
                          ToPythonStack(failed.python_stack())};
  finding.message = failed.api() + " failed: ";
  finding.message +=
      failed.reason().empty() ? failed.error() : failed.reason() + " (" + failed.error() + ')';
  finding.advice = "check the result of the call: what it should have done was not done";
  AddRelated(finding.call->stack, finding.call->python_stack, "the call was made here",
             finding.related);
  return finding;
}

Finding HostDetector::MakeFinding(uint32_t process_id, const MergedLeak& merged) {
  Finding finding;
  finding.kind = "leak";
  finding.severity = Severity::kWarning;
  finding.process_id = process_id;
  finding.count = merged.count;
  finding.leaked_bytes = merged.bytes;
  finding.allocation = ToAllocation(merged.biggest, 0, 0, symbolizer_);
  const std::string from =
      finding.allocation->api.empty() ? "" : " from " + finding.allocation->api;
  finding.message = finding.allocation->tensor
                        ? finding.allocation->tensor->framework + " memory is never given back"
                        : "memory" + from + " is never freed";
  finding.advice = "free it when its last kernel has run";
  AddRelated(*finding.allocation, finding.related);
  return finding;
}

}  // namespace ops_debug::analysis
