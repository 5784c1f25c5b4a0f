// Softmax and the normalizations: all work on rows, which ForEachRow hands out as contiguous
// copies. Sums are of numbers whose largest magnitude was taken out first.
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "analysis/reference/operator.h"

namespace ops_debug::reference {
namespace {

constexpr size_t kInput = 0, kWeight = 1, kBias = 2;
using Row = std::vector<double>;

// Row number `row` along the view's axis.
Row Load(const AxisView& view, const Array& array, int64_t row) {
  Row values(static_cast<size_t>(view.size));
  const double* place = array.data() + row / view.inner * view.size * view.inner + row % view.inner;
  for (double& value : values) {
    value = *place;
    place += view.inner;
  }
  return values;
}

void Store(const AxisView& view, const Row& values, int64_t row, Array* array) {
  double* place = array->data() + row / view.inner * view.size * view.inner + row % view.inner;
  for (double value : values) {
    *place = value;
    place += view.inner;
  }
}

void ForEachRow(const AxisView& view, const std::function<void(int64_t)>& visit) {
  ParallelFor(view.outer * view.inner, view.size * 32, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) visit(row);
  });
}

// exp(x_i - max x) / sum; in logarithms x_i - max x - ln sum.
Row Softmax(Row row, bool logarithm) {
  double largest = -std::numeric_limits<double>::infinity(), sum = 0;
  for (double x : row) largest = std::isnan(x) ? x : std::max(largest, x);
  for (double x : row) sum += std::exp(x - largest);
  for (double& x : row) {
    x = logarithm ? x - largest - std::log(sum) : std::exp(x - largest) / sum;
  }
  return row;
}

absl::Status PlanSoftmax(const std::string& name, Plan& plan) {
  if (plan.inputs[kInput]->empty()) return BadShape(name, "input is a scalar");
  const auto axis = PlainAxis(name, plan.attributes.Integer("axis"), plan.inputs[kInput]->size());
  if (!axis.ok()) return axis.status();
  plan.outputs = {*plan.inputs[kInput]};
  return absl::OkStatus();
}

AxisView SoftmaxView(const Plan& plan) {
  const Shape& shape = *plan.inputs[kInput];
  const int64_t axis = plan.attributes.Integer("axis");
  return {shape, axis < 0 ? axis + static_cast<int64_t>(shape.size()) : axis};
}

// y = softmax: dx_i = y_i (g_i - sum g_j y_j). y = log softmax: dx_i = g_i - e^y_i sum g_j.
Row SoftmaxGradient(const Row& y, const Row& g, bool logarithm) {
  double sum = 0;
  for (size_t i = 0; i < y.size(); ++i) sum += logarithm ? g[i] : g[i] * y[i];
  Row gradient(y.size());
  for (size_t i = 0; i < y.size(); ++i) {
    gradient[i] = logarithm ? g[i] - std::exp(y[i]) * sum : y[i] * (g[i] - sum);
  }
  return gradient;
}

Operator MakeSoftmax(const std::string& name, bool logarithm) {
  Operator op;
  op.name = name;
  op.summary =
      logarithm ? "x - max x - ln sum e^(x - max x) along axis" : "e^(x - max x) / sum along axis";
  op.inputs = {{"input"}};
  op.attributes = {{"axis", AttributeKind::kInteger, -1, {}, true}};
  op.plan = [name](Plan& plan) { return PlanSoftmax(name, plan); };
  op.compute = [logarithm](const Plan& plan, Evaluation& evaluation) {
    const AxisView view = SoftmaxView(plan);
    ForEachRow(view, [&](int64_t row) {
      Store(view, Softmax(Load(view, *evaluation.inputs[kInput], row), logarithm), row,
            &evaluation.outputs[0]);
    });
    return absl::OkStatus();
  };
  op.differentiate = [logarithm](const Plan& plan, Evaluation& evaluation) {
    if (!evaluation.gradients[kInput]) return absl::OkStatus();
    const AxisView view = SoftmaxView(plan);
    ForEachRow(view, [&](int64_t row) {
      const Row gradient = SoftmaxGradient(Load(view, evaluation.outputs[0], row),
                                           Load(view, evaluation.cotangents[0], row), logarithm);
      Store(view, gradient, row, &*evaluation.gradients[kInput]);
    });
    return absl::OkStatus();
  };
  return op;
}

// Layer norm: y = (x - mean) / sqrt(var + eps) * weight + bias over the last dimensions, with the
// biased variance (Ba, Kiros and Hinton 2016). RMS norm: mean is 0 (Zhang and Sennrich 2019).
struct Statistics {
  double mean = 0, scale = 1;  // 1 / sqrt(var + eps)
};

Statistics StatisticsOf(const Row& x, bool centred, double eps) {
  const double count = static_cast<double>(x.size());
  Statistics statistics;
  for (double value : x) statistics.mean += centred ? value / count : 0;
  double variance = 0;
  for (double value : x) variance += (value - statistics.mean) * (value - statistics.mean) / count;
  statistics.scale = 1 / std::sqrt(variance + eps);
  return statistics;
}

// The normalized dimensions as one: rows x elements.
AxisView NormalizedView(const Plan& plan) {
  const Shape& shape = *plan.inputs[kInput];
  const int64_t dimensions =
      static_cast<int64_t>(plan.attributes.Integers("normalized_shape").size());
  int64_t rows = 1;
  for (size_t i = 0; i + static_cast<size_t>(dimensions) < shape.size(); ++i) rows *= shape[i];
  const int64_t count = ElementCount(shape);
  return {{rows, rows == 0 ? 0 : count / rows}, 1};
}

absl::Status PlanNorm(const std::string& name, bool has_bias, Plan& plan) {
  const Shape& input = *plan.inputs[kInput];
  if (input.empty()) return BadShape(name, "input is a scalar");
  if (!plan.attributes.Has("normalized_shape")) {  // that of weight, else the last dimension
    const bool follows = plan.inputs[kWeight] && plan.inputs[kWeight]->size() <= input.size();
    plan.attributes.Set("normalized_shape", follows ? *plan.inputs[kWeight] : Shape{input.back()});
  }
  const Shape normalized = plan.attributes.Integers("normalized_shape");
  const bool fits = !normalized.empty() && normalized.size() <= input.size() &&
                    std::equal(normalized.rbegin(), normalized.rend(), input.rbegin());
  if (!fits) {
    return BadShape(name, absl::StrCat("normalized_shape ", ShapeText(normalized),
                                       " is not how input ", ShapeText(input), " ends"));
  }
  const bool affine =
      plan.attributes.Has("elementwise_affine") && plan.attributes.Flag("elementwise_affine");
  if (!plan.inputs[kWeight] && affine) plan.inputs[kWeight] = normalized;
  if (has_bias && !plan.inputs[kBias] && affine) plan.inputs[kBias] = normalized;
  for (size_t i = kWeight; i < plan.inputs.size(); ++i) {
    if (!plan.inputs[i] || *plan.inputs[i] == normalized) continue;
    return BadShape(
        name, absl::StrCat(i == kWeight ? "weight" : "bias", " is ", ShapeText(*plan.inputs[i]),
                           ", but the normalized shape is ", ShapeText(normalized)));
  }
  plan.outputs = {input};
  return absl::OkStatus();
}

double EpsOf(const Plan& plan, bool centred) {
  // torch.nn.RMSNorm's default would be the input type's epsilon; ours is the papers' 1e-6.
  return plan.attributes.Has("eps") ? plan.attributes.Real("eps") : centred ? 1e-5 : 1e-6;
}

void Normalize(const Plan& plan, Evaluation& evaluation, bool centred) {
  const AxisView view = NormalizedView(plan);
  const auto& weight = evaluation.inputs[kWeight];
  const std::optional<Array> none;
  const auto& bias = centred ? evaluation.inputs[kBias] : none;
  ForEachRow(view, [&](int64_t row) {
    Row x = Load(view, *evaluation.inputs[kInput], row);
    const Statistics statistics = StatisticsOf(x, centred, EpsOf(plan, centred));
    for (size_t i = 0; i < x.size(); ++i) {
      x[i] = (x[i] - statistics.mean) * statistics.scale * (weight ? weight->values[i] : 1) +
             (bias ? bias->values[i] : 0);
    }
    Store(view, x, row, &evaluation.outputs[0]);
  });
}

// With h = (x - mean) * scale and e = g * weight: dx = scale * (e - mean(e) - h mean(e h)); without
// centring the first mean is away.
void DifferentiateNorm(const Plan& plan, Evaluation& evaluation, bool centred) {
  const AxisView view = NormalizedView(plan);
  const auto& weight = evaluation.inputs[kWeight];
  auto& gradients = evaluation.gradients;
  std::optional<Array> none;
  auto& bias_gradient = centred ? gradients[kBias] : none;
  for (int64_t row = 0; row < view.outer; ++row) {
    const Row x = Load(view, *evaluation.inputs[kInput], row);
    const Row g = Load(view, evaluation.cotangents[0], row);
    const Statistics statistics = StatisticsOf(x, centred, EpsOf(plan, centred));
    const double count = static_cast<double>(x.size());
    double mean = 0, projection = 0;
    Row h(x.size()), e(x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      h[i] = (x[i] - statistics.mean) * statistics.scale;
      e[i] = g[i] * (weight ? weight->values[i] : 1);
      mean += centred ? e[i] / count : 0;
      projection += e[i] * h[i] / count;
      if (gradients[kWeight]) gradients[kWeight]->values[i] += g[i] * h[i];
      if (bias_gradient) bias_gradient->values[i] += g[i];
    }
    if (!gradients[kInput]) continue;
    for (size_t i = 0; i < x.size(); ++i)
      e[i] = statistics.scale * (e[i] - mean - h[i] * projection);
    Store(view, e, row, &*gradients[kInput]);
  }
}

Operator MakeNorm(const std::string& name, bool centred) {
  Operator op;
  op.name = name;
  op.summary = centred ? "(x - mean) / sqrt(var + eps) * weight + bias (Ba, Kiros and Hinton 2016)"
                       : "x / sqrt(mean x^2 + eps) * weight (Zhang and Sennrich 2019)";
  op.inputs = {{"input"}, {.name = "weight", .optional = true}};
  if (centred) op.inputs.push_back({.name = "bias", .optional = true});
  op.attributes = {{"normalized_shape", AttributeKind::kIntegers, nullptr},
                   {"eps", AttributeKind::kReal, nullptr},
                   {"elementwise_affine", AttributeKind::kFlag, nullptr}};
  op.plan = [=](Plan& plan) { return PlanNorm(name, centred, plan); };
  op.compute = [=](const Plan& plan, Evaluation& evaluation) {
    Normalize(plan, evaluation, centred);
    return absl::OkStatus();
  };
  op.differentiate = [=](const Plan& plan, Evaluation& evaluation) {
    DifferentiateNorm(plan, evaluation, centred);
    return absl::OkStatus();
  };
  return op;
}

}  // namespace

void AddNormalizations(std::vector<Operator>* operators) {
  operators->push_back(MakeSoftmax("softmax", false));
  operators->push_back(MakeSoftmax("log_softmax", true));
  operators->push_back(MakeNorm("layer_norm", true));
  operators->push_back(MakeNorm("rms_norm", false));
}

}  // namespace ops_debug::reference
