// First everything is asked, then everything is judged.
#include "analysis/validate/gradients.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "analysis/validate/finite_differences.h"
#include "analysis/validate/gradient_hints.h"
#include "analysis/validate/tensor_values.h"
#include "proto/provider.h"

namespace ops_debug::analysis {
namespace {

constexpr uint64_t kCotangentStream = 1 << 20;  // apart from the inputs'
constexpr uint64_t kProjectionStream = 2 << 20;
constexpr uint64_t kSampleStream = 3 << 20;
constexpr int64_t kMostElements_each = 1024;  // of an input whose every element is moved
constexpr int64_t kFewestSamples = 4;
constexpr int64_t kMostSamples = 64;
constexpr int64_t kMostBytes_moved = 256 << 20;  // of all requests for one input
constexpr int64_t kMostChannels_masked = 32;
// Gradients are sums over many outputs: their rounding is larger than one output's, and relative to
// the largest gradient.
constexpr double kGradientSlack = 10;

// A random direction, and what the reference's loss does along it.
struct Probe {
  Direction direction;
  double derivative = 0;
};

struct InputCheck {
  size_t input = 0;
  std::vector<int64_t> elements;  // that are moved one by one
  std::vector<double> slopes;     // their derivatives
  Probe projection;
  bool every = false;  // `elements` are all
};

class GradientCheck {
 public:
  GradientCheck(const ValidateSession& session, const ValidateCase& test, const CaseResult& forward)
      : session_(session), test_(test), forward_(forward) {}

  GradientResult Run() {
    MakeCotangents();
    if (!AskCandidate()) return result_;
    AskReference();
    Differentiate();
    if (!have_differences_ && reference_.gradients.empty()) {
      result_.problem = differences_problem_;
      return result_;
    }
    for (const InputCheck& check : checks_) Judge(check);
    if (!result_.passes) Explain();
    return result_;
  }

 private:
  const proto::Tensor& Input(size_t i) const { return test_.inputs[i]; }

  // Random, the same for both sides: rounded to the candidate's types.
  void MakeCotangents() {
    for (size_t i = 0; i < forward_.candidate.outputs.size(); ++i) {
      const proto::Tensor& output = forward_.candidate.outputs[i];
      std::vector<double> values(static_cast<size_t>(output.ElementCount()), 0);
      if (proto::IsFloating(output.dtype)) {
        for (size_t k = 0; k < values.size(); ++k) {
          values[k] = 2 * UniformAt(session_.options.seed, kCotangentStream + i, k) - 1;
        }
      }
      cotangents_.push_back(ElementValues(TensorOf("", output.dtype, output.shape, values)));
    }
  }

  // As a request's tensors, under the names of `outputs`.
  static std::vector<proto::Tensor> Named(const Cotangents& cotangents,
                                          const std::vector<proto::Tensor>& outputs, bool float64) {
    std::vector<proto::Tensor> tensors;
    for (size_t i = 0; i < cotangents.size() && i < outputs.size(); ++i) {
      if (static_cast<int64_t>(cotangents[i].size()) != outputs[i].ElementCount()) continue;
      tensors.push_back(TensorOf(proto::kCotangentPrefix + outputs[i].name,
                                 float64 ? proto::DType::kFloat64 : outputs[i].dtype,
                                 outputs[i].shape, cotangents[i]));
    }
    return tensors;
  }

  ProviderRequest CandidateRequest(const Cotangents& cotangents) const {
    ProviderRequest request = RequestOf(test_, session_.options, false);
    request.cotangents = Named(cotangents, forward_.candidate.outputs, false);
    return request;
  }

  bool AskCandidate() {
    const auto answers =
        CallProvider(session_.op, {CandidateRequest(cotangents_)}, session_.folder);
    if (!answers[0].ok()) {
      result_.problem = answers[0].status();
      return false;
    }
    candidate_ = *answers[0];
    for (size_t i = 0; i < test_.inputs.size(); ++i) {
      const InputPlan& plan = test_.plan.inputs[i];
      if (!plan.differentiable || !proto::IsFloating(plan.dtype)) continue;
      if (candidate_.gradients.count(plan.name) == 0) {
        result_.remarks.push_back(absl::StrCat("no gradient of ", plan.name,
                                               " was judged: ", session_.op.name, " gives none"));
        continue;
      }
      checks_.push_back({.input = i});
    }
    if (checks_.empty()) {
      result_.problem = absl::UnimplementedError(
          absl::StrCat(session_.op.name, ": it gives no gradient of any input"));
      return false;
    }
    return true;
  }

  // Its own gradients are welcome, not needed.
  void AskReference() {
    ProviderRequest request = RequestOf(test_, session_.options, true);
    request.cotangents = Named(cotangents_, forward_.reference.outputs, true);
    const auto answers = CallProvider(session_.reference, {request}, session_.folder);
    if (answers[0].ok()) reference_ = *answers[0];
  }

  void ChooseElements(InputCheck* check) {
    const int64_t count = Input(check->input).ElementCount();
    const int64_t bytes = std::max<int64_t>(16 * count, 1);  // two float64 per element and request
    const int64_t affordable = kMostBytes_moved / bytes;
    if (count <= kMostElements_each && count <= std::max(affordable, kFewestSamples)) {
      check->every = true;
      check->elements.resize(static_cast<size_t>(count));
      std::iota(check->elements.begin(), check->elements.end(), 0);
      return;
    }
    const int64_t samples = std::clamp(affordable, kFewestSamples, kMostSamples);
    for (int64_t i = 0; i < samples; ++i) {
      const double uniform =
          UniformAt(session_.options.seed, kSampleStream + check->input, static_cast<uint64_t>(i));
      check->elements.push_back(
          std::min(count - 1, static_cast<int64_t>(uniform * static_cast<double>(count))));
    }
  }

  void Differentiate() {
    std::vector<Direction> directions;
    for (InputCheck& check : checks_) {
      ChooseElements(&check);
      const auto count = static_cast<size_t>(Input(check.input).ElementCount());
      for (const int64_t element : check.elements) {
        directions.push_back({check.input, std::vector<double>(count, 0)});
        directions.back().values[static_cast<size_t>(element)] = 1;
      }
      check.projection.direction = {check.input, std::vector<double>(count)};
      for (size_t k = 0; k < count; ++k) {
        check.projection.direction.values[k] =
            2 * UniformAt(session_.options.seed, kProjectionStream + check.input, k) - 1;
      }
      directions.push_back(check.projection.direction);
    }
    const auto derivatives = DifferencesAlong(session_, test_, directions);
    if (!derivatives.ok()) {
      differences_problem_ = derivatives.status();
      result_.remarks.push_back(
          absl::StrCat("no finite differences: ", derivatives.status().message()));
      return;
    }
    have_differences_ = true;
    size_t at = 0;
    for (InputCheck& check : checks_) {
      for (size_t i = 0; i < check.elements.size(); ++i) {
        check.slopes.push_back(LossDerivative(cotangents_, (*derivatives)[at++]));
      }
      check.projection.derivative = LossDerivative(cotangents_, (*derivatives)[at++]);
    }
  }

  CompareOptions GradientTolerance(const proto::Tensor& candidate,
                                   const std::vector<double>& expected) const {
    CompareOptions options = ToleranceOf(session_, test_.plan);
    const Tolerance usual = DefaultTolerance(candidate.dtype, proto::DType::kFloat64);
    double largest = 0;
    for (const double value : expected) {
      if (std::isfinite(value)) largest = std::max(largest, std::fabs(value));
    }
    if (!options.rtol) options.rtol = kGradientSlack * usual.rtol;
    if (!options.atol) options.atol = kGradientSlack * usual.atol * std::max(1.0, largest);
    return options;
  }

  void AddPair(const std::string& tag, const proto::Tensor& candidate,
               const proto::Tensor& expected) {
    result_.pairs.push_back(ComparePair(tag, candidate, expected,
                                        GradientTolerance(candidate, ElementValues(expected))));
    result_.passes &= Passes(result_.pairs.back().comparison);
  }

  void Judge(const InputCheck& check) {
    const std::string& name = Input(check.input).name;
    const proto::Tensor& candidate = candidate_.gradients.at(name);
    const std::string tag = proto::kGradientPrefix + name;
    if (candidate.ElementCount() != Input(check.input).ElementCount()) {
      // Compare says what is wrong with the shape.
      AddPair(tag, candidate, Input(check.input));
      return;
    }
    const auto own = reference_.gradients.find(name);
    const bool has_own = own != reference_.gradients.end();
    if (have_differences_ && check.every) {
      proto::Tensor differences =
          TensorOf("finite differences", proto::DType::kFloat64, candidate.shape, check.slopes);
      AddPair(tag + " against finite differences", candidate, differences);
      values_.push_back({name, candidate.shape, ElementValues(candidate), check.slopes});
    } else if (have_differences_) {
      JudgeSamples(check, tag, candidate);
    }
    if (has_own) {
      AddPair(absl::StrCat(tag, " against ", session_.reference.name), candidate, own->second);
      if (!check.every || !have_differences_) {
        values_.push_back(
            {name, candidate.shape, ElementValues(candidate), ElementValues(own->second)});
      }
    }
    if (have_differences_) JudgeProjection(check, name, candidate);
  }

  void JudgeSamples(const InputCheck& check, const std::string& tag,
                    const proto::Tensor& candidate) {
    const std::vector<double> values = ElementValues(candidate);
    std::vector<double> sampled;
    for (const int64_t element : check.elements) {
      sampled.push_back(values[static_cast<size_t>(element)]);
    }
    const std::vector<int64_t> shape = {static_cast<int64_t>(sampled.size())};
    AddPair(absl::StrCat(tag, " against finite differences at ", sampled.size(), " of ",
                         values.size(), " elements"),
            TensorOf(candidate.name, candidate.dtype, shape, sampled),
            TensorOf("finite differences", proto::DType::kFloat64, shape, check.slopes));
  }

  // Every element takes part, so that nothing hides between samples.
  void JudgeProjection(const InputCheck& check, const std::string& name,
                       const proto::Tensor& candidate) {
    const std::vector<double> values = ElementValues(candidate);
    const std::vector<double>& direction = check.projection.direction.values;
    double sum = 0, squares = 0, largest = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      sum += values[i] * direction[i];
      squares += direction[i] * direction[i];
      largest = std::max(largest, std::fabs(values[i]));
    }
    const CompareOptions tolerance = GradientTolerance(candidate, {largest});
    const double expected = check.projection.derivative;
    const bool good = std::fabs(sum - expected) <=
                      *tolerance.atol * std::sqrt(squares) + *tolerance.rtol * std::fabs(expected);
    result_.remarks.push_back(absl::StrFormat(
        "grad.%s along a random direction: %.9g, finite differences of %s: %.9g (%s)", name, sum,
        session_.reference.name, expected, good ? "agree" : "DIFFER"));
    result_.passes &= good;
  }

  void Explain() {
    result_.hints = NonFiniteHints(values_);
    for (const GradientValues& gradient : values_) {
      const auto wrong =
          std::any_of(result_.pairs.begin(), result_.pairs.end(), [&](const ComparedPair& pair) {
            return pair.tag.rfind(proto::kGradientPrefix + gradient.input + " ", 0) == 0 &&
                   !Passes(pair.comparison);
          });
      if (!wrong) continue;
      std::optional<std::string> hint = FactorHint(gradient);
      if (!hint) hint = MaskedHint(gradient);
      if (!hint) hint = DisplacedHint(gradient);
      if (hint) result_.hints.push_back(*hint);
    }
  }

  // An axis of the gradient and one of an output that count the same channels.
  struct ChannelAxes {
    size_t input = 0, output = 0;
    uint32_t input_axis = 0, output_axis = 0;
  };
  std::optional<ChannelAxes> FindChannelAxes(const GradientValues& gradient) const {
    ChannelAxes axes;
    while (axes.input < test_.inputs.size() && Input(axes.input).name != gradient.input) {
      ++axes.input;
    }
    const auto& outputs = forward_.candidate.outputs;
    if (outputs.empty()) return std::nullopt;
    const auto axis_of = [](size_t rank) { return rank >= 4 ? 1u : 0u; };
    axes.input_axis = axis_of(gradient.shape.size());
    axes.output_axis = axis_of(outputs[0].shape.size());
    if (gradient.shape.size() < 2 || outputs[0].shape.empty()) return std::nullopt;
    const int64_t channels = gradient.shape[axes.input_axis];
    if (channels < 2 || channels > kMostChannels_masked ||
        outputs[0].shape[axes.output_axis] != channels) {
      return std::nullopt;
    }
    return axes;
  }

  static std::vector<int64_t> SliceOf(const std::vector<int64_t>& shape, uint32_t axis) {
    int64_t count = 1, inner = 1;
    for (const int64_t size : shape) count *= size;
    for (size_t i = axis + 1; i < shape.size(); ++i) inner *= shape[i];
    std::vector<int64_t> slices(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) slices[static_cast<size_t>(i)] = i / inner % shape[axis];
    return slices;
  }

  // Asks again with the cotangent in one channel only: who gets something that cannot?
  std::optional<std::string> MaskedHint(const GradientValues& gradient) const {
    const std::optional<ChannelAxes> axes = FindChannelAxes(gradient);
    if (!axes || !have_differences_) return std::nullopt;
    const proto::Tensor& output = forward_.candidate.outputs[0];
    const std::vector<int64_t> input_slice = SliceOf(gradient.shape, axes->input_axis);
    const std::vector<int64_t> output_slice = SliceOf(output.shape, axes->output_axis);
    const auto channels = static_cast<size_t>(gradient.shape[axes->input_axis]);
    std::vector<Cotangents> masked;
    std::vector<ProviderRequest> requests;
    std::vector<Direction> directions;
    for (size_t channel = 0; channel < channels; ++channel) {
      masked.push_back(cotangents_);
      for (size_t k = 0; k < masked.back()[0].size(); ++k) {
        if (output_slice[k] != static_cast<int64_t>(channel)) masked.back()[0][k] = 0;
      }
      requests.push_back(CandidateRequest(masked.back()));
      directions.push_back({axes->input, std::vector<double>(input_slice.size(), 0)});
      for (size_t i = 0; i < input_slice.size(); ++i) {
        if (input_slice[i] != static_cast<int64_t>(channel)) continue;
        directions.back().values[i] =
            2 * UniformAt(session_.options.seed, kProjectionStream + axes->input, i) - 1;
      }
    }
    const auto answers = CallProvider(session_.op, requests, session_.folder);
    const auto derivatives = DifferencesAlong(session_, test_, directions);
    if (!derivatives.ok()) return std::nullopt;
    Crosstalk crosstalk;
    for (size_t from = 0; from < channels; ++from) {
      if (!answers[from].ok() || answers[from]->gradients.count(gradient.input) == 0) {
        return std::nullopt;
      }
      const std::vector<double> values = ElementValues(answers[from]->gradients.at(gradient.input));
      crosstalk.received.emplace_back();
      crosstalk.possible.emplace_back();
      for (size_t to = 0; to < channels; ++to) {
        double sum = 0;
        for (size_t i = 0; i < values.size(); ++i) sum += values[i] * directions[to].values[i];
        crosstalk.received.back().push_back(sum);
        crosstalk.possible.back().push_back(LossDerivative(masked[from], (*derivatives)[to]));
        crosstalk.scale = std::max(
            {crosstalk.scale, std::fabs(sum), std::fabs(crosstalk.possible.back().back())});
      }
    }
    return CrosstalkHint(gradient.input, crosstalk);
  }

  const ValidateSession& session_;
  const ValidateCase& test_;
  const CaseResult& forward_;
  Cotangents cotangents_;
  ProviderResponse candidate_, reference_;
  std::vector<InputCheck> checks_;
  std::vector<GradientValues> values_;
  bool have_differences_ = false;
  absl::Status differences_problem_;
  GradientResult result_;
};

}  // namespace

GradientResult CheckGradients(const ValidateSession& session, const ValidateCase& test,
                              const CaseResult& forward) {
  return GradientCheck(session, test, forward).Run();
}

}  // namespace ops_debug::analysis
