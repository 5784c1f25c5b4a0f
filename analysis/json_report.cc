// Field by field (json_report.h). Keys keep the order in which they are written, so reports can be
// read and compared.
#include "analysis/json_report.h"

#include <cinttypes>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "analysis/precision_trace.h"

namespace ops_debug::analysis {
namespace {

using Json = nlohmann::ordered_json;

std::string Hex(uint64_t value) {
  char text[32];
  std::snprintf(text, sizeof(text), "0x%" PRIx64, value);
  return text;
}

Json ToJson(const Extent3& extent) { return Json::array({extent.x, extent.y, extent.z}); }

// Puts `text` under `key` unless it is empty.
void Put(Json& object, const char* key, const std::string& text) {
  if (!text.empty()) object[key] = text;
}

Json ToJson(const std::vector<HostFrame>& stack) {
  Json frames = Json::array();
  for (const HostFrame& frame : stack) {
    Json object = Json::object();
    Put(object, "function", frame.function);
    Put(object, "file", frame.file);
    if (frame.line > 0) object["line"] = frame.line;
    Put(object, "module", frame.module);
    object["module_offset"] = Hex(frame.module_offset);
    frames.push_back(std::move(object));
  }
  return frames;
}

Json ToJson(const std::vector<PythonFrame>& stack) {
  Json frames = Json::array();
  for (const PythonFrame& frame : stack) {
    Json object = Json::object();
    Put(object, "function", frame.function);
    object["file"] = frame.file;
    object["line"] = frame.line;
    frames.push_back(std::move(object));
  }
  return frames;
}

Json ToJson(const TensorInfo& tensor) {
  Json object;
  object["framework"] = tensor.framework;
  Put(object, "name", tensor.name);
  Put(object, "dtype", tensor.dtype);
  if (!tensor.name.empty()) object["shape"] = tensor.shape;
  if (!tensor.allocation_stack.empty()) {
    object["allocation_stack"] = ToJson(tensor.allocation_stack);
  }
  if (!tensor.free_stack.empty()) object["free_stack"] = ToJson(tensor.free_stack);
  if (tensor.segment_bytes > 0) {
    object["segment"]["address"] = Hex(tensor.segment_address);
    object["segment"]["size_bytes"] = tensor.segment_bytes;
  }
  return object;
}

const char* PlacementName(Placement placement) {
  switch (placement) {
    case Placement::kInside:
      return "inside";
    case Placement::kBefore:
      return "before";
    case Placement::kBehind:
      return "behind";
    case Placement::kAcrossEnd:
      return "across-end";
    case Placement::kUnknown:
      break;
  }
  return "";
}

Json ToJson(const AllocationInfo& allocation) {
  Json object;
  object["id"] = allocation.id;
  object["address"] = Hex(allocation.address);
  object["size_bytes"] = allocation.size_bytes;
  Put(object, "api", allocation.api);
  Put(object, "name", allocation.name);
  object["freed"] = allocation.freed;
  if (allocation.free_order_unknown) object["free_order_unknown"] = true;
  Put(object, "free_api", allocation.free_api);
  Put(object, "placement", PlacementName(allocation.placement));
  if (allocation.placement == Placement::kBefore || allocation.placement == Placement::kBehind) {
    object["distance_bytes"] = allocation.distance_bytes;
  }
  if (!allocation.allocation_stack.empty()) {
    object["allocation_stack"] = ToJson(allocation.allocation_stack);
  }
  if (!allocation.free_stack.empty()) object["free_stack"] = ToJson(allocation.free_stack);
  if (allocation.tensor) object["tensor"] = ToJson(*allocation.tensor);
  return object;
}

Json ToJson(const LaunchInfo& launch) {
  Json object;
  if (launch.number > 0) object["number"] = launch.number;
  object["grid"] = ToJson(launch.grid);
  object["block"] = ToJson(launch.block);
  object["dynamic_shared_bytes"] = launch.dynamic_shared_bytes;
  if (launch.graph_node) object["graph_node"] = true;
  if (!launch.stack.empty()) object["stack"] = ToJson(launch.stack);
  if (!launch.python_stack.empty()) object["python_stack"] = ToJson(launch.python_stack);
  return object;
}

Json ToJson(const CallInfo& call) {
  Json object;
  object["api"] = call.api;
  Put(object, "error", call.error);
  if (!call.stack.empty()) object["stack"] = ToJson(call.stack);
  if (!call.python_stack.empty()) object["python_stack"] = ToJson(call.python_stack);
  return object;
}

Json ToJson(const SourceLocation& frame) {
  Json object;
  Put(object, "function", frame.function);
  object["file"] = frame.file;
  object["line"] = frame.line;
  if (frame.column > 0) object["column"] = frame.column;
  return object;
}

Json ToJson(const AccessInfo& side) {
  Json object;
  object["message"] = side.text;
  Put(object, "kernel", side.kernel);
  Put(object, "function", side.function);
  Put(object, "operation", side.operation);
  if (!side.frames.empty()) {
    object["file"] = side.frames.front().file;
    object["line"] = side.frames.front().line;
    if (side.frames.front().column > 0) object["column"] = side.frames.front().column;
  }
  if (side.block) object["block"] = ToJson(*side.block);
  if (side.thread) object["thread"] = ToJson(*side.thread);
  if (side.address) object["address"] = Hex(*side.address);
  if (side.access_bytes > 0) object["access_bytes"] = side.access_bytes;
  Put(object, "access", side.access);
  Put(object, "value", side.value);
  Put(object, "semantics", side.semantics);
  Put(object, "instruction", side.instruction);
  if (side.ptx_line > 0) object["ptx_line"] = side.ptx_line;
  for (const SourceLocation& frame : side.toolkit_frames) {
    object["toolkit_frames"].push_back(ToJson(frame));
  }
  for (size_t i = 1; i < side.frames.size(); ++i) {
    object["inlined_at"].push_back(ToJson(side.frames[i]));
  }
  Put(object, "stream", side.stream);
  if (side.launch) object["launch"] = ToJson(*side.launch);
  if (!side.stack.empty()) object["stack"] = ToJson(side.stack);
  if (!side.python_stack.empty()) object["python_stack"] = ToJson(side.python_stack);
  return object;
}

Json ToJson(const WaitingGroup& group) {
  Json object;
  object["message"] = group.text;
  object["what"] = group.what;
  object["threads"] = group.threads;
  object["blocks"] = group.blocks;
  object["first_block"] = ToJson(group.first_block);
  object["first_thread"] = ToJson(group.first_thread);
  if (!group.frames.empty()) {
    object["file"] = group.frames.front().file;
    object["line"] = group.frames.front().line;
  }
  Put(object, "instruction", group.instruction);
  if (group.ptx_line > 0) object["ptx_line"] = group.ptx_line;
  return object;
}

Json ToJson(const Finding& finding) {
  Json object;
  object["kind"] = finding.kind;
  Put(object, "cause", finding.cause);
  object["severity"] = SeverityName(finding.severity);
  Put(object, "kernel", finding.kernel);
  Put(object, "function", finding.function);
  if (!finding.frames.empty()) {
    object["file"] = finding.frames.front().file;
    object["line"] = finding.frames.front().line;
    if (finding.frames.front().column > 0) object["column"] = finding.frames.front().column;
  }
  object["message"] = finding.message;
  if (finding.count > 0) object["count"] = finding.count;
  if (finding.count_is_lower_bound) object["count_is_lower_bound"] = true;
  if (finding.block) object["block"] = ToJson(*finding.block);
  if (finding.thread) object["thread"] = ToJson(*finding.thread);
  if (finding.address) object["address"] = Hex(*finding.address);
  if (finding.access_bytes > 0) object["access_bytes"] = finding.access_bytes;
  Put(object, "access", finding.access);
  Put(object, "space", finding.space);
  Put(object, "instruction", finding.instruction);
  if (finding.ptx_line > 0) object["ptx_line"] = finding.ptx_line;
  Put(object, "engine", finding.engine);
  if (finding.sass_offset) object["sass_offset"] = Hex(*finding.sass_offset);
  if (finding.instructions > 1) object["instructions"] = finding.instructions;
  for (const SourceLocation& frame : finding.toolkit_frames) {
    object["toolkit_frames"].push_back(ToJson(frame));
  }
  if (finding.frames.size() > 1) {
    object["inlined_at"] = Json::array();
    for (size_t i = 1; i < finding.frames.size(); ++i) {
      object["inlined_at"].push_back(ToJson(finding.frames[i]));
    }
  }
  if (finding.array) {
    object["array"]["name"] = finding.array->name;
    if (finding.array->size_bytes > 0) object["array"]["size_bytes"] = finding.array->size_bytes;
  }
  if (finding.parameter) {
    object["parameter"]["index"] = finding.parameter->index;
    Put(object["parameter"], "type", finding.parameter->type);
    object["parameter"]["offset_bytes"] = finding.parameter->offset;
  }
  if (finding.allocation) object["allocation"] = ToJson(*finding.allocation);
  if (finding.target_allocation) object["target_allocation"] = ToJson(*finding.target_allocation);
  if (finding.launch) object["launch"] = ToJson(*finding.launch);
  if (finding.call) object["call"] = ToJson(*finding.call);
  if (finding.leaked_bytes > 0) object["leaked_bytes"] = finding.leaked_bytes;
  for (const AccessInfo& side : finding.accesses) object["accesses"].push_back(ToJson(side));
  for (const WaitingGroup& group : finding.waiters) object["waiters"].push_back(ToJson(group));
  Put(object, "use", finding.use);
  Put(object, "reason", finding.reason);
  if (finding.wait_duration_ns > 0) object["wait_duration_ns"] = finding.wait_duration_ns;
  object["process"] = finding.process_id;
  if (!finding.found_in.empty()) {
    object["processes"] = Json::array();
    for (const FoundIn& found : finding.found_in) {
      Json process;
      process["id"] = found.process_id;
      Put(process, "rank", found.rank);
      object["processes"].push_back(std::move(process));
    }
  }
  if (!finding.related.empty()) {
    object["related"] = Json::array();
    for (const RelatedPlace& place : finding.related) {
      object["related"].push_back(
          {{"file", place.file}, {"line", place.line}, {"message", place.message}});
    }
  }
  Put(object, "advice", finding.advice);
  Put(object, "suppression", finding.suppression);
  return object;
}

Json ToJson(const KernelCoverage& kernel) {
  Json object;
  object["name"] = kernel.name;
  Put(object, "engine", kernel.engine);
  object["launches"] = kernel.launches;
  object["checked_launches"] = kernel.checked_launches;
  if (!kernel.not_checked.empty()) {
    object["not_checked_reason"] = kernel.not_checked.front().reason;
    object["not_checked"] = Json::array();
    for (const UncheckedLaunches& unchecked : kernel.not_checked) {
      object["not_checked"].push_back(
          {{"reason", unchecked.reason}, {"launches", unchecked.launches}});
    }
  }
  if (kernel.timed_launches > 0) {
    object["timed_launches"] = kernel.timed_launches;
    object["timed_duration_ns"] = kernel.timed_duration_ns;
  }
  if (kernel.checked_accesses > 0) object["checked_accesses"] = kernel.checked_accesses;
  if (!kernel.unchecked.empty()) {
    object["unchecked_accesses"] = Json::array();
    for (const UncheckedAccesses& unchecked : kernel.unchecked) {
      object["unchecked_accesses"].push_back({{"instruction", unchecked.instruction},
                                              {"reason", unchecked.reason},
                                              {"count", unchecked.count}});
    }
  }
  return object;
}

Json ToJson(const ProcessInfo& process) {
  Json object;
  object["id"] = process.process_id;
  Put(object, "executable", process.executable);
  object["arguments"] = process.arguments;
  Put(object, "device", process.device_name);
  Put(object, "driver_version", process.driver_version);
  object["emulated"] = process.emulated;
  object["orderly_end"] = process.ended;
  if (process.signal > 0) object["signal"] = process.signal;
  Put(object, "rank", process.rank);
  Put(object, "local_rank", process.local_rank);
  Put(object, "world_size", process.world_size);
  object["injected"] = process.injected;
  if (!process.checks.empty()) object["checks"] = process.checks;
  return object;
}

Json ToJson(const ReplaySummary& replays) {
  Json object;
  object["launches"] = replays.launches;
  object["kernels"] = replays.kernels;
  object["decided_pairs"] = replays.decided_pairs;
  object["duration_ns"] = replays.duration_ns;
  object["not_replayed"] = Json::array();
  for (const UnreplayedGroup& group : replays.not_replayed) {
    object["not_replayed"].push_back(
        {{"reason", group.reason}, {"kernels", group.kernels}, {"undecided", group.undecided}});
  }
  return object;
}

Json ToJson(const Coverage& coverage) {
  Json object;
  object["kernels"] = coverage.kernels.size();
  object["checked_kernels"] = coverage.CheckedKernels();
  object["launches"] = coverage.Launches();
  object["checked_launches"] = coverage.CheckedLaunches();
  object["engines"] = Json::object();
  for (const std::string& engine : coverage.Engines()) {
    object["engines"][engine]["kernels"] = coverage.CheckedKernels(engine);
  }
  object["checks"] = coverage.Checks();
  if (const std::optional<TimeShare> time = coverage.CheckedTime()) {
    object["gpu_time"]["estimated_checked_percent"] = time->checked_percent;
    object["gpu_time"]["timed_launches"] = time->timed_launches;
    object["gpu_time"]["untimed_kernels"] = time->untimed_kernels;
  }
  object["not_checked"] = Json::array();
  for (const UncheckedGroup& group : coverage.NotChecked()) {
    object["not_checked"].push_back({{"reason", group.reason},
                                     {"kernels", group.kernels.size()},
                                     {"launches", group.launches}});
  }
  if (!coverage.replays.empty()) object["replays"] = ToJson(coverage.replays);
  object["unknown_accesses"] = coverage.unknown_accesses;
  object["loaded_modules"] = coverage.loaded_modules;
  object["loaded_kernels"] = coverage.loaded_kernels;
  object["by_kernel"] = Json::array();
  for (const KernelCoverage& kernel : coverage.kernels) {
    object["by_kernel"].push_back(ToJson(kernel));
  }
  object["processes"] = Json::array();
  for (const ProcessInfo& process : coverage.processes) {
    object["processes"].push_back(ToJson(process));
  }
  return object;
}

Json ToJson(const std::vector<Finding>& findings) {
  Json array = Json::array();
  for (const Finding& finding : findings) array.push_back(ToJson(finding));
  return array;
}

Json ToJson(const SuppressionUse& use) {
  Json object;
  object["file"] = use.file;
  object["line"] = use.line;
  object["reason"] = use.reason;
  object["shipped"] = use.shipped;
  object["findings"] = use.findings;
  return object;
}

}  // namespace

std::string WriteJson(const Report& report) {
  Json document;
  document["schema"] = 1;
  document["findings"] = ToJson(report.findings);
  document["unproven"] = ToJson(report.unproven);
  document["suppressed"] = Json::array();
  for (const SuppressedFinding& suppressed : report.suppressed) {
    Json object = ToJson(suppressed.finding);
    object["suppressed_by"] = ToJson(report.suppressions[suppressed.by]);
    document["suppressed"].push_back(std::move(object));
  }
  document["suppressions"] = Json::array();
  for (const SuppressionUse& use : report.suppressions) {
    document["suppressions"].push_back(ToJson(use));
  }
  if (!report.conversions.empty()) {
    document["conversions"] = Json::array();
    for (const Conversion& conversion : report.conversions)
      document["conversions"].push_back(ConversionJson(conversion));
  }
  document["coverage"] = ToJson(report.coverage);
  document["lost_events"] = report.lost_events;
  document["remarks"] = Json::array();
  for (const Remark& remark : report.remarks) {
    Json object;
    object["severity"] = SeverityName(remark.severity);
    object["text"] = remark.text;
    Put(object, "hint", remark.hint);
    document["remarks"].push_back(std::move(object));
  }
  // Names come from other people's files: bytes that are no UTF-8 become U+FFFD instead of an
  // exception.
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
}

}  // namespace ops_debug::analysis
