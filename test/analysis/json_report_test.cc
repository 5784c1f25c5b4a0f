// The JSON schema of design.md, field by field.
#include "analysis/json_report.h"

#include <nlohmann/json.hpp>

#include "analysis/event_analysis.h"
#include "analysis/suppressions.h"
#include "test/analysis/event_builder.h"

namespace ops_debug::analysis {
namespace {

using nlohmann::json;

constexpr char kFault[] = R"(
process_id: 42
fault {
  fault_class: FAULT_CLASS_OUT_OF_BOUNDS
  site {
    function: "_Z15overflow_by_onePfi" access: ACCESS_KIND_STORE space: ADDRESS_SPACE_GLOBAL access_bytes: 4
    ptx_line: 45 instruction: "st.global.f32 [%rd4], %f1;"
    frames { file: "planted.cu" line: 18 column: 15 }
    frames { function: "_Z5outerv" file: "planted.cu" line: 90 }
  }
  launch { launch_id: 1 kernel: "_Z15overflow_by_onePfi" grid { x: 4 y: 1 z: 1 } block { x: 256 y: 1 z: 1 } }
  block { x: 3 } thread { x: 232 } address: 140737488359328 count: 2
  allocation {
    id: 1 address: 140737488355328 size_bytes: 4000 api: "cuMemAlloc"
    allocation_stack { frames { module: "/gone/app" offset: 16 symbol: "main" } }
  }
  parameter_index: 0
}
)";

json ToJson(EventAnalysis& analysis) { return json::parse(WriteJson(analysis.Finish())); }

TEST_CASE("an empty run has every top-level field") {
  EventAnalysis analysis;
  const json report = ToJson(analysis);
  REQUIRE(report["schema"] == 1);
  REQUIRE(report["findings"] == json::array());
  REQUIRE(report["unproven"] == json::array());
  REQUIRE(report["lost_events"] == 0);
  REQUIRE(report["remarks"] == json::array());
  REQUIRE(report["coverage"]["launches"] == 0);
  REQUIRE(report["coverage"]["by_kernel"] == json::array());
}

TEST_CASE("a finding has the fields of the design, with their types") {
  EventAnalysis analysis;
  analysis.Add(Parse<proto::Event>(kFault));
  const json finding = ToJson(analysis)["findings"][0];
  REQUIRE(finding["kind"] == "oob-global");
  REQUIRE(finding["severity"] == "error");
  REQUIRE(finding["kernel"] == "overflow_by_one(float*, int)");
  REQUIRE(finding["file"] == "planted.cu");
  REQUIRE(finding["line"] == 18);
  REQUIRE(finding["column"] == 15);
  REQUIRE(finding["message"] == "4-byte store just past the end of a 4000-byte allocation");
  REQUIRE(finding["count"] == 2);
  REQUIRE(finding["block"] == json({3, 0, 0}));
  REQUIRE(finding["thread"] == json({232, 0, 0}));
  REQUIRE(finding["address"] == "0x800000000fa0");
  REQUIRE(finding["access_bytes"] == 4);
  REQUIRE(finding["access"] == "store");
  REQUIRE(finding["inlined_at"][0]["function"] == "outer()");
  REQUIRE(finding["parameter"] == json({{"index", 0}, {"type", "float*"}, {"offset_bytes", 0}}));
  REQUIRE(finding["allocation"]["size_bytes"] == 4000);
  REQUIRE(finding["allocation"]["placement"] == "behind");
  REQUIRE(finding["allocation"]["distance_bytes"] == 0);
  REQUIRE(finding["allocation"]["allocation_stack"][0]["function"] == "main");
  REQUIRE(finding["launch"]["grid"] == json({4, 1, 1}));
  REQUIRE(finding["process"] == 42);
  REQUIRE(finding["advice"].is_string());
}

TEST_CASE("fields that do not apply are absent") {
  EventAnalysis analysis;
  analysis.Add(Parse<proto::Event>(
      R"(invalid_launch { launch { kernel: "k" } error: "CUDA_ERROR_INVALID_VALUE" })"));
  const json finding = ToJson(analysis)["findings"][0];
  for (const char* field : {"file", "line", "column", "block", "thread", "address", "access_bytes",
                            "allocation", "target_allocation", "array", "parameter", "instruction",
                            "related", "function", "inlined_at", "count_is_lower_bound"}) {
    INFO(field);
    REQUIRE_FALSE(finding.contains(field));
  }
}

TEST_CASE("coverage tells launches and reasons by kernel") {
  EventAnalysis analysis;
  analysis.Add(
      Parse<proto::Event>(R"(launch_summary { kernel: "_Z1av" launches: 5 checked_launches: 5 })"));
  analysis.Add(Parse<proto::Event>(
      R"(launch_summary { kernel: "_Z1bv" launches: 3 checked_launches: 1 not_checked_reason: "no PTX" })"));
  const json coverage = ToJson(analysis)["coverage"];
  REQUIRE(coverage["kernels"] == 2);
  REQUIRE(coverage["checked_kernels"] == 2);
  REQUIRE(coverage["launches"] == 8);
  REQUIRE(coverage["checked_launches"] == 6);
  REQUIRE(coverage["by_kernel"][0]["name"] == "a()");
  REQUIRE(coverage["by_kernel"][0]["engine"] == "ptx");
  REQUIRE_FALSE(coverage["by_kernel"][0].contains("not_checked_reason"));
  REQUIRE(coverage["by_kernel"][1]["not_checked_reason"] == "no PTX");
}

TEST_CASE("a kernel that faulted counts as checked even if its summary was lost") {
  EventAnalysis analysis;
  analysis.Add(Parse<proto::Event>(kFault));
  const json coverage = ToJson(analysis)["coverage"];
  REQUIRE(coverage["launches"] == 1);
  REQUIRE(coverage["checked_launches"] == 1);
}

TEST_CASE("a tensor has its framework, shape, Python stacks and segment") {
  EventAnalysis analysis;
  proto::Event event = Parse<proto::Event>(kFault);
  *event.mutable_fault()->mutable_allocation()->mutable_tensor() = Parse<proto::Tensor>(R"(
    framework: "PyTorch" shape: 64 shape: 256 dtype: "float32"
    allocation_stack { file: "train.py" line: 30 function: "forward" }
    free_stack { file: "train.py" line: 35 function: "forward" }
    segment_address: 4096 segment_bytes: 2097152)");
  event.mutable_fault()->mutable_launch()->mutable_python_stack()->Add()->set_file("train.py");
  analysis.Add(event);
  const json finding = ToJson(analysis)["findings"][0];
  const json tensor = finding["allocation"]["tensor"];
  REQUIRE(tensor["framework"] == "PyTorch");
  REQUIRE(tensor["name"] == "float32[64, 256]");
  REQUIRE(tensor["dtype"] == "float32");
  REQUIRE(tensor["shape"] == json({64, 256}));
  REQUIRE(tensor["allocation_stack"][0] ==
          json({{"function", "forward"}, {"file", "train.py"}, {"line", 30}}));
  REQUIRE(tensor["free_stack"][0]["line"] == 35);
  REQUIRE(tensor["segment"] == json({{"address", "0x1000"}, {"size_bytes", 2097152}}));
  REQUIRE(finding["launch"]["python_stack"][0]["file"] == "train.py");
  REQUIRE(finding["related"].back() ==
          json({{"file", "train.py"},
                {"line", 35},
                {"message", "tensor float32[64, 256] was freed here"}}));
}

TEST_CASE("a finding of the second engine has its offset instead of PTX") {
  EventAnalysis analysis;
  proto::Event event = Parse<proto::Event>(kFault);
  event.mutable_fault()->set_engine("sass");
  *event.mutable_fault()->mutable_site() = Parse<proto::Site>(
      R"(function: "_Z1kv" access: ACCESS_KIND_STORE space: ADDRESS_SPACE_GLOBAL access_bytes: 4
         sass_offset: 416)");
  analysis.Add(event);
  const json finding = ToJson(analysis)["findings"][0];
  REQUIRE(finding["engine"] == "sass");
  REQUIRE(finding["sass_offset"] == "0x1a0");
  REQUIRE_FALSE(finding.contains("ptx_line"));
}

TEST_CASE("leaks and failed calls are warnings, which the exit code does not count") {
  EventAnalysis analysis;
  analysis.Add(
      Parse<proto::Event>(R"(leak { allocation { id: 1 size_bytes: 512 api: "cuMemAlloc" } })"));
  analysis.Add(
      Parse<proto::Event>(R"(leak { allocation { id: 2 size_bytes: 1024 api: "cuMemAlloc" } })"));
  analysis.Add(Parse<proto::Event>(
      R"(call_failed { api: "cuMemFree" error: "CUDA_ERROR_INVALID_VALUE" count: 4 })"));
  const Report report = analysis.Finish();
  REQUIRE(VerdictOf(report).findings == 0);
  const json findings = json::parse(WriteJson(report))["findings"];
  REQUIRE(findings.size() == 2);
  REQUIRE(findings[0]["kind"] == "failed-call");
  REQUIRE(findings[0]["severity"] == "warning");
  REQUIRE(findings[0]["count"] == 4);
  REQUIRE(findings[0]["call"] ==
          json({{"api", "cuMemFree"}, {"error", "CUDA_ERROR_INVALID_VALUE"}}));
  REQUIRE(findings[1]["kind"] == "leak");
  REQUIRE(findings[1]["severity"] == "warning");
  REQUIRE(findings[1]["leaked_bytes"] == 1536);
  REQUIRE(findings[1]["count"] == 2);
  REQUIRE(findings[1]["allocation"]["id"] == 2);
}

TEST_CASE("coverage tells engines, reasons and the share of the GPU's time") {
  EventAnalysis analysis;
  for (
      const char* summary :
      {R"(kernel: "a" launches: 6 checked_launches: 6 engine: "ptx" timed_launches: 3 timed_duration_ns: 300)",
       R"(kernel: "a" launches: 4 checked_launches: 4 engine: "sass")",
       R"(kernel: "b" launches: 5 checked_launches: 5 engine: "sass" timed_launches: 1 timed_duration_ns: 400)",
       R"(kernel: "c" launches: 10 not_checked_reason: "left out by --sample 1/2" timed_launches: 2 timed_duration_ns: 200)",
       R"(kernel: "d" launches: 1 not_checked_reason: "left out by --sample 1/2")"}) {
    analysis.Add(Parse<proto::Event>("launch_summary { " + std::string(summary) + " }"));
  }
  const json coverage = ToJson(analysis)["coverage"];
  REQUIRE(coverage["engines"] == json({{"ptx", {{"kernels", 1}}}, {"sass", {{"kernels", 2}}}}));
  // 10 x 100 ns and 5 x 400 ns checked, 10 x 100 ns not; d is not timed.
  REQUIRE(
      coverage["gpu_time"] ==
      json({{"estimated_checked_percent", 75.0}, {"timed_launches", 6}, {"untimed_kernels", 1}}));
  REQUIRE(
      coverage["not_checked"] ==
      json::array({{{"reason", "left out by --sample 1/2"}, {"kernels", 2}, {"launches", 11}}}));
  REQUIRE(coverage["by_kernel"][0]["engine"] == "ptx+sass");
  REQUIRE(coverage["by_kernel"][0]["timed_launches"] == 3);
  REQUIRE(coverage["by_kernel"][0]["timed_duration_ns"] == 300);
}

TEST_CASE("suppressed findings stay in the document, with the entry that hides them") {
  EventAnalysis analysis;
  analysis.Add(Parse<proto::Event>(kFault));
  Suppressions suppressions;
  REQUIRE(suppressions.AddText("- {kind: oob-global, reason: known}", "s.yaml", false).ok());
  Report report = analysis.Finish();
  suppressions.Apply(report);
  REQUIRE(VerdictOf(report).findings == 0);
  const json document = json::parse(WriteJson(report));
  REQUIRE(document["findings"] == json::array());
  const json entry = {
      {"file", "s.yaml"}, {"line", 1}, {"reason", "known"}, {"shipped", false}, {"findings", 1}};
  REQUIRE(document["suppressions"] == json::array({entry}));
  REQUIRE(document["suppressed"][0]["kind"] == "oob-global");
  REQUIRE(document["suppressed"][0]["suppressed_by"] == entry);
}

TEST_CASE("names that are no UTF-8 do not break the document") {
  EventAnalysis analysis;
  proto::Event event;
  event.mutable_diagnostic()->set_text("\xff\xfe");
  analysis.Add(event);
  REQUIRE(ToJson(analysis)["remarks"][0]["text"] == "\xef\xbf\xbd\xef\xbf\xbd");
}

}  // namespace
}  // namespace ops_debug::analysis
