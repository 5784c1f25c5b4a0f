// Files of suppressions: what is read, what is refused and where, what is hidden, what is
// generated.
#include "analysis/suppressions.h"

#include <catch2/catch.hpp>

#include "analysis/text_report.h"

namespace ops_debug::analysis {
namespace {

std::string Mistake(const std::string& text) {
  Suppressions suppressions;
  return std::string(suppressions.AddText(text, "s.yaml", false).message());
}

Finding OutOfBounds() {
  Finding finding;
  finding.kind = "oob-global";
  finding.message = "4-byte load just past the end of a 4000-byte allocation";
  finding.kernel = "void ns::soft_max<float [4]>(float*, int)";
  finding.function = "load_tile(float*)";
  finding.frames = {{"load_tile", "/home/me/ops/softmax.cu", 41, 7}};
  finding.allocation = AllocationInfo{.id = 2, .api = "cuMemAlloc"};
  finding.allocation->tensor = TensorInfo{.framework = "PyTorch", .name = "float32[10, 100]"};
  finding.launch = LaunchInfo{.number = 1};
  finding.launch->stack = {{.function = "f", .module = "/usr/lib/libcudnn_ops.so.9"}};
  return finding;
}

Finding FailedCall() {
  Finding finding;
  finding.kind = "failed-call";
  finding.severity = Severity::kWarning;
  finding.message = "cuMemHostRegister failed: CUDA_ERROR_NOT_SUPPORTED";
  finding.call = CallInfo{.api = "cuMemHostRegister", .error = "CUDA_ERROR_NOT_SUPPORTED"};
  finding.call->stack = {{.function = "main", .module = "/bin/app"},
                         {.function = "probe", .module = "/usr/lib/libnccl.so.2"}};
  return finding;
}

Report Applied(const std::string& text, std::vector<Finding> findings) {
  Suppressions suppressions;
  REQUIRE(suppressions.AddText(text, "s.yaml", false).message() == "");
  Report report;
  report.findings = std::move(findings);
  suppressions.Apply(report);
  return report;
}

bool Hides(const std::string& keys, const Finding& finding) {
  return Applied("- {" + keys + ", reason: known}", {finding}).findings.empty();
}

TEST_CASE("mistakes are told with file and line") {
  const auto [text, mistake] = GENERATE(table<std::string, std::string>({
      {"kind: leak", "s.yaml:1: expected a list of entries (- kind: ...)"},
      {"# one\n- leak\n", "s.yaml:2: expected an entry such as \"- kind: leak\""},
      {"- kind: leak\n  reason: r\n- kind: leek\n  reason: r\n",
       "s.yaml:3: unknown kind \"leek\" (known: oob-global, oob-shared, oob-local, use-after-free, "
       "misaligned, race-shared, race-global, missing-warp-sync, stream-race, atomics-misuse, "
       "uninitialised-read, barrier-divergence, deadlock, redundant-sync, invalid-launch, "
       "failed-call, leak)"},
      {"- kind: leak\n  kernal: a\n  reason: r\n",
       "s.yaml:2: unknown key \"kernal\" (known: kind, kernel, function, file, caller, "
       "library, api, error, tensor, line, reason)"},
      {"- kind: leak\n  api: cuMemAlloc\n",
       "s.yaml:1: the entry has no reason: say why this finding is accepted"},
      {"- kind: leak\n  reason: \"\"\n", "s.yaml:2: reason: expected a text"},
      {"- kind: leak\n  reason: r\n  line: many\n", "s.yaml:3: line: expected a line number"},
      {"- kind: leak\n  api: a\n  api: b\n  reason: r\n", "s.yaml:3: api is given twice"},
      {"- kind: leak\n  reason: [a]\n", "s.yaml:2: reason: expected a text"},
      {"- kernel: \"regex:a(b\"\n  reason: r\n",
       "s.yaml:1: not a regular expression: this ( is never closed (character 2 of \"a(b\")"},
  }));
  CHECK(Mistake(text) == mistake);
}

TEST_CASE("what is no YAML is refused with its line") {
  REQUIRE_THAT(Mistake("- kind: leak\n- [a\n"), Catch::StartsWith("s.yaml:3: not YAML: "));
  Suppressions suppressions;
  REQUIRE_THAT(std::string(suppressions.AddFile("/no/such/file", false).message()),
               Catch::Contains("\"/no/such/file\": No such file"));
  REQUIRE_FALSE(suppressions.AddFile("/", false).ok());
}

TEST_CASE("an entry that would hide everything is refused") {
  for (const char* place : {"", "kernel: \"*\", ", "kernel: \"regex:.*\", file: \"**\", "}) {
    CHECK_THAT(Mistake("- {" + std::string(place) + "reason: r}"),
               Catch::StartsWith("s.yaml:1: the entry would hide every finding"));
  }
}

TEST_CASE("files without entries are files") {
  CHECK(Mistake("") == "");
  CHECK(Mistake("# nothing yet\n") == "");
  CHECK(Mistake("[]\n") == "");
}

TEST_CASE("an entry hides what matches all its keys") {
  const auto [keys, hidden] = GENERATE(table<std::string, bool>({
      {"kind: oob-global", true},
      {"kind: [leak, oob-global]", true},
      {"kind: misaligned", false},
      {"kernel: \"*soft_max*\"", true},
      {"kernel: \"ns::soft_max\"", true},
      {"kernel: soft_max", false},
      {"kernel: \"regex:^void ns::soft\"", true},
      {"kernel: \"regex:gemm\"", false},
      {"function: load_tile", true},
      {"function: \"store_*\"", false},
      {"file: \"*/softmax.cu\"", true},
      {"file: softmax.cu", false},
      {"file: \"*/softmax.cu\", line: 41", true},
      {"file: \"*/softmax.cu\", line: 42", false},
      {"library: \"libcudnn*\"", true},
      {"library: \"/usr/lib/*\"", true},
      {"library: libcublas.so", false},
      {"caller: f", true},
      {"caller: g", false},
      {"api: cuMemAlloc", true},
      {"api: cuMemAllocAsync", false},
      {"tensor: \"PyTorch float32*\"", true},
      {"tensor: \"CuPy*\"", false},
      {"error: \"*NOT_SUPPORTED\"", false},
      {"kind: oob-global, kernel: \"*gemm*\"", false},
  }));
  CAPTURE(keys);
  CHECK(Hides(keys, OutOfBounds()) == hidden);
}

TEST_CASE("failed calls are matched by call, error and library") {
  CHECK(Hides("api: cuMemHostRegister, error: CUDA_ERROR_NOT_SUPPORTED", FailedCall()));
  CHECK(Hides("library: \"libnccl.so*\"", FailedCall()));
  CHECK_FALSE(Hides("api: cuMemAlloc", FailedCall()));
}

TEST_CASE("what is hidden is counted by entry, and said") {
  const Report report = Applied(
      "- {kind: failed-call, reason: probing}\n"
      "- {kind: leak, reason: on purpose}\n",
      {OutOfBounds(), FailedCall(), FailedCall()});
  REQUIRE(report.findings.size() == 1);
  REQUIRE(report.suppressed.size() == 2);
  CHECK(report.suppressions[report.suppressed[1].by].reason == "probing");
  CHECK(report.suppressions[0].findings == 2);
  CHECK(report.suppressions[1].findings == 0);
  const std::string text = WriteText(report, false);
  CHECK_THAT(text, Catch::Contains("\nsuppressed: 2 findings by 1 entry of s.yaml\n"));
  CHECK_THAT(text,
             Catch::Contains("\nnote: suppressions of s.yaml that nothing matched: line 2\n"));
  CHECK_THAT(text, Catch::EndsWith(
                       "ops-debug: 1 finding (oob-global 1), no kernel was seen, 2 suppressed\n"));
}

TEST_CASE("entries that ship with the tool are not reported as unused") {
  Suppressions suppressions;
  REQUIRE(suppressions.AddText("- {kind: leak, reason: r}", "shipped.yaml", true).ok());
  Report report;
  suppressions.Apply(report);
  CHECK_THAT(WriteText(report, false), !Catch::Contains("shipped.yaml"));
}

TEST_CASE("a generated entry hides its own finding and no other") {
  const Finding finding = GENERATE(OutOfBounds(), FailedCall());
  const std::string entry = SuppressionFor(finding);
  CAPTURE(entry);
  CHECK(Applied(entry, {finding}).findings.empty());
  Finding other = finding;
  other.kernel += "x";
  if (other.call) other.call->error = "CUDA_ERROR_UNKNOWN";
  CHECK(Applied(entry, {other}).findings.size() == 1);
}

TEST_CASE("a finding of the host side is told apart by the line that called, or the function") {
  Finding leak;
  leak.kind = "leak";
  leak.allocation = AllocationInfo{.id = 1, .api = "cuMemAlloc"};
  leak.allocation->allocation_stack = {
      {.function = "Grow(int)", .file = "/src/pool.cc", .line = 12, .module = "/bin/app"}};
  Finding other = leak;
  other.allocation->allocation_stack[0].line = 30;
  CHECK(Applied(SuppressionFor(leak), {leak, other}).findings.size() == 1);
  CHECK(Hides("file: \"*/pool.cc\", line: 12", leak));

  for (Finding* finding : {&leak, &other}) finding->allocation->allocation_stack[0].line = 0;
  other.allocation->allocation_stack[0].function = "Shrink(int)";
  CHECK(Applied(SuppressionFor(leak), {leak, other}).findings.size() == 1);
  CHECK(Hides("caller: Grow", leak));

  leak.allocation->tensor = TensorInfo{.framework = "PyTorch"};
  leak.allocation->tensor->allocation_stack = {
      {"empty", "/usr/lib/python3/dist-packages/torch/x.py", 3}, {"forward", "train.py", 30}};
  CHECK(Hides("file: train.py, line: 30, caller: forward", leak));
}

TEST_CASE("a generated entry can be read by people") {
  CHECK(SuppressionFor(OutOfBounds()) ==
        "- kind: oob-global\n"
        "  kernel: 'void ns::soft_max<float \\[4\\]>(float\\*, int)'\n"
        "  function: 'load_tile(float\\*)'\n"
        "  file: '*/softmax.cu'\n"
        "  line: 41\n"
        "  reason: 'accepted: 4-byte load just past the end of a 4000-byte allocation'\n");
}

TEST_CASE("names with quotes and control characters survive") {
  Finding finding = FailedCall();
  finding.kernel = "it's \"quoted\"\n\x01 and \xc3\xa9";
  CHECK(Applied(SuppressionFor(finding), {finding}).findings.empty());
}

TEST_CASE("one entry is generated for findings that it hides together") {
  Report report;
  report.findings = {OutOfBounds(), FailedCall(), OutOfBounds()};
  report.findings[2].message = "4-byte store just past the end of a 4000-byte allocation";
  GenerateSuppressions(report);
  CHECK(report.findings[0].suppression == SuppressionFor(OutOfBounds()));
  CHECK(report.findings[1].suppression == SuppressionFor(FailedCall()));
  CHECK(report.findings[2].suppression.empty());
  const std::string text = WriteText(report, false);
  CHECK_THAT(text, Catch::Contains("\n# entries for a file that --suppressions reads; say why each "
                                   "is accepted:\n- kind: oob-global\n"));
}

TEST_CASE("the shipped file is right") {
  Suppressions suppressions;
  CHECK(suppressions.AddFile(OPS_DEBUG_SHIPPED_SUPPRESSIONS, true).message() == "");
}

}  // namespace
}  // namespace ops_debug::analysis
