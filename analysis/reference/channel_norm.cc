// Normalizations with a weight and a bias per channel: batch norm (Ioffe and Szegedy 2015), group
// norm (Wu and He 2018), instance norm. They differ in which elements share mean and variance:
// element (n, c, p) belongs to one group of statistics and to channel c.
#include <absl/strings/str_cat.h>

#include <cmath>

#include "analysis/reference/operator.h"

namespace ops_debug::reference {
namespace {

constexpr size_t kInput = 0, kWeight = 1, kBias = 2, kMean = 3, kVariance = 4;

enum class Kind : uint8_t { kBatch, kGroup, kInstance };

struct Layout {
  int64_t batch = 1, channels = 1, positions = 1;  // input is batch x channels x positions
  int64_t groups = 1;                              // of statistics
  bool shares_batch = false;                       // statistics over the batch, per channel
  int64_t per_group = 1;                           // channels

  size_t Channel(size_t element) const {
    return element / static_cast<size_t>(positions) % static_cast<size_t>(channels);
  }
  size_t Group(size_t element) const {
    const size_t channel = Channel(element);
    if (shares_batch) return channel;
    const size_t n = element / static_cast<size_t>(positions * channels);
    return n * static_cast<size_t>(channels / per_group) + channel / static_cast<size_t>(per_group);
  }
};

Layout LayoutOf(Kind kind, const Plan& plan) {
  const Shape& input = *plan.inputs[kInput];
  Layout layout;
  layout.batch = input[0];
  layout.channels = input[1];
  for (size_t i = 2; i < input.size(); ++i) layout.positions *= input[i];
  if (kind == Kind::kGroup) {
    layout.per_group = layout.channels / plan.attributes.Integer("num_groups");
  }
  layout.shares_batch = kind == Kind::kBatch;
  layout.groups =
      layout.shares_batch ? layout.channels : layout.batch * (layout.channels / layout.per_group);
  return layout;
}

struct Statistics {
  std::vector<double> mean, scale;  // per group; scale = 1 / sqrt(variance + eps)
  std::vector<double> count;
};

Statistics StatisticsOf(const Layout& layout, const Plan& plan, const Evaluation& evaluation) {
  const Array& input = *evaluation.inputs[kInput];
  const double eps = plan.attributes.Real("eps");
  Statistics s;
  s.mean.assign(static_cast<size_t>(layout.groups), 0.0);
  s.scale = s.count = s.mean;
  const bool is_given = evaluation.inputs.size() > kVariance && evaluation.inputs[kMean];
  if (is_given) {
    s.mean = evaluation.inputs[kMean]->values;
    for (size_t g = 0; g < s.scale.size(); ++g) {
      s.scale[g] = 1 / std::sqrt(evaluation.inputs[kVariance]->values[g] + eps);
    }
    return s;  // count 0: they do not depend on the input
  }
  for (size_t i = 0; i < input.values.size(); ++i) {
    s.mean[layout.Group(i)] += input.values[i];
    s.count[layout.Group(i)] += 1;
  }
  for (size_t g = 0; g < s.mean.size(); ++g) s.mean[g] /= s.count[g];
  std::vector<double> variance(s.mean.size(), 0.0);
  for (size_t i = 0; i < input.values.size(); ++i) {
    const size_t g = layout.Group(i);
    const double x = input.values[i] - s.mean[g];
    variance[g] += x * x / s.count[g];
  }
  for (size_t g = 0; g < variance.size(); ++g) s.scale[g] = 1 / std::sqrt(variance[g] + eps);
  return s;
}

absl::Status Compute(Kind kind, const Plan& plan, Evaluation& evaluation) {
  const Layout layout = LayoutOf(kind, plan);
  const Statistics s = StatisticsOf(layout, plan, evaluation);
  const auto& weight = evaluation.inputs[kWeight];
  const auto& bias = evaluation.inputs[kBias];
  const Array& input = *evaluation.inputs[kInput];
  for (size_t i = 0; i < input.values.size(); ++i) {
    const size_t g = layout.Group(i), c = layout.Channel(i);
    evaluation.outputs[0].values[i] =
        (input.values[i] - s.mean[g]) * s.scale[g] * (weight ? weight->values[c] : 1) +
        (bias ? bias->values[c] : 0);
  }
  return absl::OkStatus();
}

// As layer norm: dx = scale * (e - mean(e) - h mean(e h)) within a group, h the normalized input
// and e = g * weight.
absl::Status Differentiate(Kind kind, const Plan& plan, Evaluation& evaluation) {
  const Layout layout = LayoutOf(kind, plan);
  const Statistics s = StatisticsOf(layout, plan, evaluation);
  const auto& weight = evaluation.inputs[kWeight];
  auto& gradients = evaluation.gradients;
  const Array& input = *evaluation.inputs[kInput];
  const Array& cotangent = evaluation.cotangents[0];
  std::vector<double> mean(s.mean.size(), 0.0), projection = mean;
  std::vector<double> h(input.values.size()), e(input.values.size());
  for (size_t i = 0; i < h.size(); ++i) {
    const size_t g = layout.Group(i), c = layout.Channel(i);
    h[i] = (input.values[i] - s.mean[g]) * s.scale[g];
    e[i] = cotangent.values[i] * (weight ? weight->values[c] : 1);
    if (gradients[kWeight]) gradients[kWeight]->values[c] += cotangent.values[i] * h[i];
    if (gradients[kBias]) gradients[kBias]->values[c] += cotangent.values[i];
    if (s.count[g] == 0) continue;
    mean[g] += e[i] / s.count[g];
    projection[g] += e[i] * h[i] / s.count[g];
  }
  for (size_t i = 0; gradients[kInput] && i < h.size(); ++i) {
    const size_t g = layout.Group(i);
    gradients[kInput]->values[i] = s.scale[g] * (e[i] - mean[g] - h[i] * projection[g]);
  }
  return absl::OkStatus();
}

absl::Status MakePlan(Kind kind, const std::string& name, Plan& plan) {
  const Shape& input = *plan.inputs[kInput];
  if (input.size() < 2) {
    return BadShape(
        name, absl::StrCat("input is ", ShapeText(input), ", but must be batch x channels x ..."));
  }
  const Shape channels = {input[1]};
  if (kind == Kind::kGroup) {
    const int64_t groups = plan.attributes.Integer("num_groups");
    if (groups < 1 || input[1] % groups != 0) {
      return BadShape(name, absl::StrCat("num_groups=", groups, " does not divide the ", input[1],
                                         " channels of input ", ShapeText(input)));
    }
  }
  for (size_t i = kWeight; i < plan.inputs.size(); ++i) {
    if (!plan.inputs[i] || *plan.inputs[i] == channels) continue;
    static constexpr const char* kNames[] = {"", "weight", "bias", "running_mean", "running_var"};
    return BadShape(name,
                    absl::StrCat(kNames[i], " is ", ShapeText(*plan.inputs[i]), ", but input ",
                                 ShapeText(input), " has ", input[1], " channels"));
  }
  if (kind == Kind::kBatch &&
      plan.inputs[kMean].has_value() != plan.inputs[kVariance].has_value()) {
    return BadShape(name, "running_mean and running_var are given together or not at all");
  }
  plan.outputs = {input};
  return absl::OkStatus();
}

Operator MakeNorm(Kind kind, const std::string& name, const std::string& summary) {
  Operator op;
  op.name = name;
  op.summary = summary;
  op.inputs = {{"input"}, {.name = "weight", .optional = true}, {.name = "bias", .optional = true}};
  op.attributes = {{"eps", AttributeKind::kReal, 1e-5}};
  if (kind == Kind::kGroup)
    op.attributes.push_back({"num_groups", AttributeKind::kInteger, 1, {}, true});
  if (kind == Kind::kBatch) {
    op.inputs.push_back({.name = "running_mean", .optional = true, .differentiable = false});
    op.inputs.push_back(
        {.name = "running_var", .optional = true, .differentiable = false, .contents = "positive"});
  }
  op.plan = [=](Plan& plan) { return MakePlan(kind, name, plan); };
  op.compute = [=](const Plan& plan, Evaluation& evaluation) {
    return Compute(kind, plan, evaluation);
  };
  op.differentiate = [=](const Plan& plan, Evaluation& evaluation) {
    return Differentiate(kind, plan, evaluation);
  };
  return op;
}

}  // namespace

void AddChannelNormalizations(std::vector<Operator>* operators) {
  operators->push_back(MakeNorm(Kind::kBatch, "batch_norm",
                                "normalized per channel over the batch (biased variance), or by "
                                "running_mean and running_var (Ioffe and Szegedy 2015)"));
  operators->push_back(MakeNorm(Kind::kGroup, "group_norm",
                                "normalized per sample and group of channels (Wu and He 2018)"));
  operators->push_back(
      MakeNorm(Kind::kInstance, "instance_norm", "normalized per sample and channel"));
}

}  // namespace ops_debug::reference
