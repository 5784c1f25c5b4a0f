// Merging, and the translation of one merged fault into a finding (memory_detector.h).
#include "analysis/memory_detector.h"

#include <algorithm>

#include "analysis/demangle.h"
#include "analysis/finding_parts.h"
#include "analysis/memory_words.h"

namespace ops_debug::analysis {
namespace {

// Position of a thread in its grid, as (block, thread in block).
std::pair<uint64_t, uint64_t> Linear(const proto::Fault& fault) {
  const auto linear = [](const proto::Dim3& at, const proto::Dim3& of) {
    return at.x() + uint64_t{of.x()} * (at.y() + uint64_t{of.y()} * at.z());
  };
  return {linear(fault.block(), fault.launch().grid()),
          linear(fault.thread(), fault.launch().block())};
}

bool IsEarlier(const proto::Fault& a, const proto::Fault& b) {
  if (a.launch().launch_id() != b.launch().launch_id()) {
    return a.launch().launch_id() < b.launch().launch_id();
  }
  return Linear(a) < Linear(b);
}

// What makes two faults of one process the same finding.
std::string MergeKey(const proto::Fault& fault) {
  const proto::Site& site = fault.site();
  std::string key;
  const auto add = [&key](const std::string& text) { key.append(text).push_back('\0'); };
  add(fault.launch().kernel());
  add(site.function());
  add(std::to_string(fault.fault_class()));
  add(std::to_string(site.access()));
  add(std::to_string(site.space()));
  add(std::to_string(site.access_bytes()));
  add(site.variable());
  for (const proto::SourceFrame& frame : site.frames()) {
    add(frame.file());
    add(std::to_string(frame.line()) + ':' + std::to_string(frame.column()));
  }
  if (site.frames().empty()) {
    add(std::to_string(site.ptx_line()));
    add(site.instruction());
    add(std::to_string(site.sass_offset()));
  }
  return key;
}

}  // namespace

void MemoryDetector::Add(uint32_t process_id, const proto::Fault& fault) {
  Merged& merged = faults_[{process_id, MergeKey(fault)}];
  const bool is_new = merged.instructions.empty();
  if (is_new) merged.order = order_++;
  if (is_new || IsEarlier(fault, merged.first)) merged.first = fault;
  merged.instructions.emplace(fault.site().ptx_line() + fault.site().sass_offset(),
                              fault.site().instruction());
  merged.count += std::max<uint64_t>(fault.count(), 1);
  // A count that was not known when the fault was reported is completed by the next report of it.
  merged.lower_bound = fault.count() == 0;
}

void MemoryDetector::Add(uint32_t process_id, const proto::InvalidLaunch& invalid) {
  const std::string key = invalid.launch().kernel() + '\0' + invalid.error() + '\0' +
                          invalid.api() + '\0' + invalid.reason();
  MergedLaunch& merged = launches_[{process_id, key}];
  if (merged.count++ == 0) {
    merged.order = order_++;
    merged.first = invalid;
  }
}

std::vector<Finding> MemoryDetector::Finish() {
  std::vector<std::pair<size_t, Finding>> ordered;
  for (const auto& [key, merged] : faults_) {
    ordered.emplace_back(merged.order, MakeFinding(std::get<0>(key), merged));
  }
  for (const auto& [key, merged] : launches_) {
    ordered.emplace_back(merged.order, MakeFinding(std::get<0>(key), merged));
  }
  std::sort(ordered.begin(), ordered.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Finding> findings;
  findings.reserve(ordered.size());
  for (auto& [order, finding] : ordered) findings.push_back(std::move(finding));
  return findings;
}

Finding MemoryDetector::MakeFinding(uint32_t process_id, const Merged& merged) {
  const proto::Fault& fault = merged.first;
  const proto::Site& site = fault.site();
  Finding finding;
  finding.process_id = process_id;
  SetPlace(ToCodePlace(site, fault.launch().kernel()), site, finding);
  finding.engine = fault.engine().empty() ? "ptx" : fault.engine();
  if (finding.engine == "sass") finding.sass_offset = site.sass_offset();
  finding.instructions = static_cast<uint32_t>(merged.instructions.size());
  finding.count = merged.count;
  finding.count_is_lower_bound = merged.lower_bound;
  finding.block = ToExtent(fault.block());
  finding.thread = ToExtent(fault.thread());
  finding.address = fault.address();
  const auto to_allocation = [&](const proto::Allocation& allocation) {
    AllocationInfo info =
        ToAllocation(allocation, fault.address(), site.access_bytes(), symbolizer_);
    // A pool frees at any time without waiting for kernels; only shadow memory tells the state at
    // the access.
    info.free_order_unknown =
        info.freed && info.tensor && fault.fault_class() != proto::FAULT_CLASS_USE_AFTER_FREE;
    return info;
  };
  if (fault.has_allocation()) finding.allocation = to_allocation(fault.allocation());
  if (fault.has_target_allocation()) {
    finding.target_allocation = to_allocation(fault.target_allocation());
  }
  if (fault.parameter_index() >= 0) {
    const auto index = static_cast<uint32_t>(fault.parameter_index());
    const std::vector<std::string> types = ParameterTypes(finding.kernel);
    finding.parameter =
        ParameterInfo{index, index < types.size() ? types[index] : "", fault.parameter_offset()};
  }
  finding.launch = ToLaunch(fault.launch(), symbolizer_);
  DescribeFault(fault, finding);
  AddLaunchToRelated(finding);
  if (finding.allocation) AddRelated(*finding.allocation, finding.related);
  if (finding.target_allocation) AddRelated(*finding.target_allocation, finding.related);
  return finding;
}

Finding MemoryDetector::MakeFinding(uint32_t process_id, const MergedLaunch& merged) {
  Finding finding;
  finding.process_id = process_id;
  finding.kernel = Demangle(merged.first.launch().kernel());
  finding.count = merged.count;
  finding.launch = ToLaunch(merged.first.launch(), symbolizer_);
  DescribeInvalidLaunch(merged.first, finding);
  AddLaunchToRelated(finding);
  return finding;
}

}  // namespace ops_debug::analysis
