#include "analysis/validate/validate.h"

#include <absl/strings/str_cat.h>
#include <stdlib.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "analysis/compare/last_run.h"
#include "analysis/validate/sweep.h"
#include "analysis/validate/tensor_values.h"

namespace ops_debug::analysis {
namespace {

namespace fs = std::filesystem;

// Of Python providers: where PyTorch computes (python/ops_debug/provider.py).
constexpr char kProviderDevice[] = "OPS_DEBUG_PROVIDER_DEVICE";

// Removed with all that it holds.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::error_code error;
    path_ = (fs::temp_directory_path(error) / "ops-debug-validate-XXXXXX").string();
    if (mkdtemp(path_.data()) == nullptr) path_.clear();
  }
  ~TemporaryFolder() {
    std::error_code error;
    if (!path_.empty()) fs::remove_all(path_, error);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

absl::StatusOr<ValidateSession> OpenSession(const ValidateOptions& options,
                                            const ProviderTools& tools, const std::string& folder) {
  ValidateSession session{.options = options, .tools = tools, .folder = folder};
  const absl::StatusOr<OperatorBook> book = ReadOperatorBook(tools.folder);
  if (!book.ok()) return book.status();
  absl::StatusOr<Provider> op = ResolveProvider(options.op, *book, tools);
  if (!op.ok()) return op.status();
  session.op = *op;
  // The candidate is what the user will run: on the GPU. References stay on the CPU, in float64.
  if (!tools.emulator && std::getenv(kProviderDevice) == nullptr) {
    session.op.environment.push_back(std::string(kProviderDevice) + "=auto");
  }
  const std::string name =
      options.reference.empty() ? session.op.settings.reference : options.reference;
  if (name.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "there is nothing to hold ", options.op, " against: give --reference builtin:NAME, ",
        "torch.nn.NAME, a file or module:function, or \"reference\" in ops-debug.yaml"));
  }
  absl::StatusOr<Provider> reference = ResolveProvider(name, *book, tools);
  if (!reference.ok()) return reference.status();
  session.reference = *reference;
  if (!options.trusted.empty()) {
    absl::StatusOr<Provider> trusted = ResolveProvider(options.trusted, *book, tools);
    if (!trusted.ok()) return trusted.status();
    session.trusted = *trusted;
  }
  return session;
}

std::string OneOf(const std::string& answered, const std::string& planned,
                  const std::string& name) {
  if (!answered.empty()) return answered;
  return planned.empty() ? name : planned;
}

// The first case that failed: the one to be explained.
size_t FirstFailing(const std::vector<CaseResult>& cases) {
  const auto failing = std::find_if(cases.begin(), cases.end(), [](const CaseResult& result) {
    return result.state == CaseState::kFail;
  });
  return static_cast<size_t>(failing - cases.begin());
}

// For `ops-debug diff` without files: a convenience, never an error.
void KeepPair(const ValidateReport& report, const CaseResult& result) {
  constexpr int64_t kMostBytes_kept = int64_t{256} << 20;
  int64_t bytes = 0;
  for (const auto* outputs : {&result.candidate.outputs, &result.reference.outputs}) {
    for (const proto::Tensor& tensor : *outputs) {
      bytes += tensor.ElementCount() * proto::ElementBytes(tensor.dtype);
    }
  }
  if (result.pairs.empty() || bytes > kMostBytes_kept) return;
  KeepLastRun({.kind = "validate", .title = report.op + " against " + report.reference},
              {.tensors = result.candidate.outputs}, {.tensors = result.reference.outputs})
      .IgnoreError();
}

}  // namespace

CaseState ValidateReport::State() const {
  // What the user asked for must be judged; a further case that could not be is told, and no more.
  CaseState state = cases.front().state;
  for (const CaseResult& result : cases) {
    if (result.state == CaseState::kFail) state = CaseState::kFail;
  }
  if (gradients && state != CaseState::kFail) {
    if (!gradients->passes) return CaseState::kFail;
    if (!gradients->problem.ok() && state == CaseState::kPass) {
      return gradients->problem.code() == absl::StatusCode::kUnimplemented
                 ? CaseState::kUnjudged
                 : CaseState::kProviderFailed;
    }
  }
  return state;
}

DiffReport ValidateReport::AsDiff() const {
  DiffReport report;
  report.title = absl::StrCat(op, " against ", reference);
  report.candidate = op_description;
  report.reference = reference_description;
  report.remarks = remarks;
  report.passes = State() == CaseState::kPass;
  for (const CaseResult& result : cases) {
    for (ComparedPair pair : result.pairs) {
      pair.tag = cases.size() > 1 ? absl::StrCat(result.name, ": ", pair.tag) : pair.tag;
      report.pairs.push_back(std::move(pair));
    }
    for (const std::string& remark : result.remarks) report.remarks.push_back(remark);
    if (!result.problem.ok()) {
      report.remarks.push_back(
          absl::StrCat(result.name, " was not judged: ", result.problem.message()));
    }
  }
  if (break_point) report.remarks.push_back(break_point->text);
  if (gradients) {
    for (const ComparedPair& pair : gradients->pairs) report.pairs.push_back(pair);
    for (const std::string& hint : gradients->hints) report.remarks.push_back(hint);
    for (const std::string& remark : gradients->remarks) report.remarks.push_back(remark);
  }
  for (size_t i = 0; i < report.pairs.size() && report.first_divergence < 0; ++i) {
    if (!Passes(report.pairs[i].comparison)) report.first_divergence = static_cast<int64_t>(i);
  }
  return report;
}

absl::StatusOr<ValidateReport> Validate(const ValidateOptions& options,
                                        const ProviderTools& tools) {
  const TemporaryFolder folder;
  if (folder.path().empty()) {
    return absl::UnavailableError("cannot make a folder for tensors; is TMPDIR full or read-only?");
  }
  const absl::StatusOr<ValidateSession> session = OpenSession(options, tools, folder.path());
  if (!session.ok()) return session.status();
  const absl::StatusOr<OperatorPlan> plan =
      PlanOperator(session->op, session->reference, options, options.input_shapes);
  if (!plan.ok()) return plan.status();

  ValidateReport report;
  report.op = options.op;
  report.reference = session->reference.name;
  std::vector<ValidateCase> cases = {MakeCase("random", *plan, options.seed)};
  if (options.sweep && !plan->inputs.empty()) {
    for (ValidateCase& test : SweepCases(*session, *plan, &report.remarks)) {
      cases.push_back(std::move(test));
    }
  }
  report.cases = RunCases(*session, cases);
  const CaseResult& first = report.cases.front();
  if (first.problem.code() == absl::StatusCode::kInvalidArgument) return first.problem;
  report.op_description = OneOf(first.candidate.description, plan->description, report.op);
  report.reference_description = OneOf(first.reference.description, "", report.reference);
  KeepPair(report, first);
  if (const size_t failing = FirstFailing(report.cases); failing < report.cases.size()) {
    report.break_point = FindBreakPoint(*session, cases[failing]);
  }
  if (options.gradients && first.problem.ok()) {
    report.gradients = CheckGradients(*session, cases.front(), first);
  }
  return report;
}

}  // namespace ops_debug::analysis
