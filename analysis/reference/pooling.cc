// Pooling of the last two dimensions: maximum and mean of windows, as torch.nn.functional defines
// them.
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "analysis/reference/operator.h"

namespace ops_debug::reference {
namespace {

struct Windows {
  Shape kernel, stride, padding;  // of height and width
  Shape in, out;
  int64_t images = 1;
};

absl::StatusOr<Windows> WindowsOf(const std::string& name, const Plan& plan) {
  const Shape& input = *plan.inputs[0];
  if (input.size() != 4) {
    return BadShape(name, absl::StrCat("input is ", ShapeText(input),
                                       ", but must be batch x channels x height x width"));
  }
  const Attributes& attributes = plan.attributes;
  const auto kernel = attributes.Integers("kernel_size", 2, 1);
  if (!kernel.ok()) return kernel.status();
  const auto stride =
      attributes.Integers(attributes.Has("stride") ? "stride" : "kernel_size", 2, 1);
  if (!stride.ok()) return stride.status();
  const auto padding = attributes.Integers("padding", 2, 0);
  if (!padding.ok()) return padding.status();
  Windows windows{*kernel, *stride, *padding, {input[2], input[3]}, {}, input[0] * input[1]};
  for (size_t i = 0; i < 2; ++i) {
    const int64_t padded = windows.in[i] + 2 * windows.padding[i];
    if (padded < windows.kernel[i] || 2 * windows.padding[i] > windows.kernel[i]) {
      return BadShape(name,
                      absl::StrCat("a window of ", windows.kernel[i], " with padding ",
                                   windows.padding[i], " does not fit input ", ShapeText(input)));
    }
    windows.out.push_back((padded - windows.kernel[i]) / windows.stride[i] + 1);
  }
  return windows;
}

// Calls visit(output element, input elements of its window).
template <class Visit>
void ForEachWindow(const Windows& w, const Visit& visit) {
  std::vector<size_t> places;
  size_t output = 0;
  for (int64_t image = 0; image < w.images; ++image) {
    for (int64_t y = 0; y < w.out[0]; ++y) {
      for (int64_t x = 0; x < w.out[1]; ++x) {
        places.clear();
        const int64_t top = y * w.stride[0] - w.padding[0], left = x * w.stride[1] - w.padding[1];
        for (int64_t row = std::max<int64_t>(top, 0); row < std::min(top + w.kernel[0], w.in[0]);
             ++row) {
          for (int64_t col = std::max<int64_t>(left, 0);
               col < std::min(left + w.kernel[1], w.in[1]); ++col) {
            places.push_back(static_cast<size_t>((image * w.in[0] + row) * w.in[1] + col));
          }
        }
        visit(output++, places);
      }
    }
  }
}

// The first largest, a NaN before all.
size_t Largest(const std::vector<double>& values, const std::vector<size_t>& places) {
  size_t best = places[0];
  for (size_t place : places) {
    if (std::isnan(values[best])) break;
    if (std::isnan(values[place]) || values[place] > values[best]) best = place;
  }
  return best;
}

double Divisor(const Windows& windows, const Plan& plan, const std::vector<size_t>& places) {
  return plan.attributes.Flag("count_include_pad")
             ? static_cast<double>(windows.kernel[0] * windows.kernel[1])
             : static_cast<double>(places.size());
}

absl::Status Compute(const std::string& name, bool mean, const Plan& plan, Evaluation& evaluation) {
  const auto windows = WindowsOf(name, plan);
  if (!windows.ok()) return windows.status();
  const std::vector<double>& in = evaluation.inputs[0]->values;
  std::vector<double>& out = evaluation.outputs[0].values;
  ForEachWindow(*windows, [&](size_t to, const std::vector<size_t>& places) {
    if (!mean) {
      out[to] = in[Largest(in, places)];
      return;
    }
    for (size_t place : places) out[to] += in[place];
    out[to] /= Divisor(*windows, plan, places);
  });
  return absl::OkStatus();
}

absl::Status Differentiate(const std::string& name, bool mean, const Plan& plan,
                           Evaluation& evaluation) {
  if (!evaluation.gradients[0]) return absl::OkStatus();
  const auto windows = WindowsOf(name, plan);
  if (!windows.ok()) return windows.status();
  const std::vector<double>& in = evaluation.inputs[0]->values;
  const std::vector<double>& cotangent = evaluation.cotangents[0].values;
  std::vector<double>& gradient = evaluation.gradients[0]->values;
  ForEachWindow(*windows, [&](size_t to, const std::vector<size_t>& places) {
    if (!mean) {
      gradient[Largest(in, places)] += cotangent[to];
      return;
    }
    for (size_t place : places) gradient[place] += cotangent[to] / Divisor(*windows, plan, places);
  });
  return absl::OkStatus();
}

Operator MakePooling(const std::string& name, bool mean) {
  Operator op;
  op.name = name;
  op.summary = mean ? "mean of each window, as torch.nn.functional.avg_pool2d"
                    : "largest of each window, as torch.nn.functional.max_pool2d; NaN wins";
  op.inputs = {{"input"}};
  op.attributes = {{"kernel_size", AttributeKind::kIntegers, 2, {}, true},
                   {"stride", AttributeKind::kIntegers, nullptr},
                   {"padding", AttributeKind::kIntegers, 0}};
  if (mean) op.attributes.push_back({"count_include_pad", AttributeKind::kFlag, true});
  op.result = mean ? ResultType::kFloating : ResultType::kAsInputs;
  op.plan = [name](Plan& plan) -> absl::Status {
    const auto windows = WindowsOf(name, plan);
    if (!windows.ok()) return windows.status();
    const Shape& input = *plan.inputs[0];
    plan.outputs = {Shape{input[0], input[1], windows->out[0], windows->out[1]}};
    return absl::OkStatus();
  };
  op.compute = [=](const Plan& plan, Evaluation& evaluation) {
    return Compute(name, mean, plan, evaluation);
  };
  op.differentiate = [=](const Plan& plan, Evaluation& evaluation) {
    return Differentiate(name, mean, plan, evaluation);
  };
  return op;
}

}  // namespace

void AddPooling(std::vector<Operator>* operators) {
  operators->push_back(MakePooling("max_pool2d", false));
  operators->push_back(MakePooling("avg_pool2d", true));
}

}  // namespace ops_debug::reference
