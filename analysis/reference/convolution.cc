// Convolution (cross-correlation, as all frameworks call it) over one to three spatial dimensions.
// Fewer dimensions are leading dimensions of size 1, so that one loop nest serves all; the
// innermost loop runs along a row.
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <array>

#include "analysis/reference/operator.h"

namespace ops_debug::reference {
namespace {

constexpr size_t kInput = 0, kWeight = 1, kBias = 2;

// out[n, f, p] = bias[f] + sum over c, k of in[n, c, stride * p + dilation * k - padding] *
// weight[f, c, k]
struct Geometry {
  using Extents = std::array<int64_t, 3>;
  int64_t batch = 1, groups = 1, in_channels = 1, out_channels = 1;
  Extents in{1, 1, 1}, kernel{1, 1, 1}, out{1, 1, 1};
  Extents stride{1, 1, 1}, dilation{1, 1, 1}, padding{0, 0, 0};

  int64_t InPerGroup() const { return in_channels / groups; }
  int64_t OutPerGroup() const { return out_channels / groups; }
  int64_t InSize() const { return in[0] * in[1] * in[2]; }
  int64_t OutSize() const { return out[0] * out[1] * out[2]; }
  int64_t KernelSize() const { return kernel[0] * kernel[1] * kernel[2]; }
};

Geometry GeometryOf(const Plan& plan, size_t dimensions) {
  const Shape& input = *plan.inputs[kInput];
  const Shape& weight = *plan.inputs[kWeight];
  Geometry geometry;
  geometry.batch = input[0];
  geometry.in_channels = input[1];
  geometry.out_channels = weight[0];
  geometry.groups = plan.attributes.Integer("groups");
  const auto set = [&](Geometry::Extents* extents, const Shape& values, size_t first) {
    for (size_t i = 0; i < dimensions; ++i) {
      (*extents)[3 - dimensions + i] = values[values.size() == 1 ? 0 : first + i];
    }
  };
  set(&geometry.in, input, 2);
  set(&geometry.kernel, weight, 2);
  set(&geometry.out, plan.outputs[0], 2);
  set(&geometry.stride, plan.attributes.Integers("stride"), 0);
  set(&geometry.dilation, plan.attributes.Integers("dilation"), 0);
  if (!plan.attributes.IsWord("padding")) {
    set(&geometry.padding, plan.attributes.Integers("padding"), 0);
  } else if (plan.attributes.Word("padding") == "same") {
    // What is odd is padded behind, as in PyTorch and TensorFlow.
    for (size_t i = 0; i < 3; ++i) {
      geometry.padding[i] = geometry.dilation[i] * (geometry.kernel[i] - 1) / 2;
    }
  }
  return geometry;
}

// Positions p of the output for which in[stride * p + offset] exists: [begin, end).
struct Range {
  int64_t begin = 0, end = 0;
  Range(int64_t offset, int64_t stride, int64_t in_size, int64_t out_size) {
    begin = offset < 0 ? (-offset + stride - 1) / stride : 0;
    end = offset >= in_size ? 0 : std::min(out_size, (in_size - 1 - offset) / stride + 1);
    end = std::max(end, begin);
  }
};

// Calls row(out offset, in offset, count, stride) for each run of a channel that the tap (z, y, x)
// of the kernel connects.
template <class Row>
void ForEachRow(const Geometry& g, int64_t tap, const Row& row) {
  Geometry::Extents offset;
  int64_t rest = tap;
  for (size_t i = 3; i-- > 0;) {
    offset[i] = rest % g.kernel[i] * g.dilation[i] - g.padding[i];
    rest /= g.kernel[i];
  }
  const Range z_range(offset[0], g.stride[0], g.in[0], g.out[0]);
  const Range y_range(offset[1], g.stride[1], g.in[1], g.out[1]);
  const Range x_range(offset[2], g.stride[2], g.in[2], g.out[2]);
  if (x_range.begin == x_range.end) return;
  for (int64_t z = z_range.begin; z < z_range.end; ++z) {
    const int64_t in_z = z * g.stride[0] + offset[0];
    for (int64_t y = y_range.begin; y < y_range.end; ++y) {
      const int64_t in_y = y * g.stride[1] + offset[1];
      row((z * g.out[1] + y) * g.out[2] + x_range.begin,
          (in_z * g.in[1] + in_y) * g.in[2] + x_range.begin * g.stride[2] + offset[2],
          x_range.end - x_range.begin, g.stride[2]);
    }
  }
}

absl::Status Compute(const Plan& plan, Evaluation& evaluation, size_t dimensions) {
  const Geometry g = GeometryOf(plan, dimensions);
  const double* input = evaluation.inputs[kInput]->data();
  const double* weight = evaluation.inputs[kWeight]->data();
  const auto& bias = evaluation.inputs[kBias];
  double* output = evaluation.outputs[0].data();
  const int64_t cost = g.OutSize() * g.InPerGroup() * g.KernelSize();
  ParallelFor(g.batch * g.out_channels, cost, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t n = i / g.out_channels, f = i % g.out_channels;
      double* out = output + i * g.OutSize();
      if (bias) std::fill_n(out, g.OutSize(), bias->values[static_cast<size_t>(f)]);
      for (int64_t c = 0; c < g.InPerGroup(); ++c) {
        const int64_t channel = f / g.OutPerGroup() * g.InPerGroup() + c;
        const double* in = input + (n * g.in_channels + channel) * g.InSize();
        const double* taps = weight + (f * g.InPerGroup() + c) * g.KernelSize();
        for (int64_t tap = 0; tap < g.KernelSize(); ++tap) {
          const double w = taps[tap];
          ForEachRow(g, tap, [&](int64_t to, int64_t from, int64_t count, int64_t stride) {
            if (stride == 1) {
              for (int64_t x = 0; x < count; ++x) out[to + x] += w * in[from + x];
            } else {
              for (int64_t x = 0; x < count; ++x) out[to + x] += w * in[from + x * stride];
            }
          });
        }
      }
    }
  });
  return absl::OkStatus();
}

// grad_in[n, c, stride * p + ...] += grad_out[n, f, p] * weight[f, c, k]: the transposed
// convolution.
void InputGradient(const Geometry& g, const double* cotangent, const double* weight,
                   double* gradient) {
  const int64_t cost = g.InSize() * g.OutPerGroup() * g.KernelSize();
  ParallelFor(g.batch * g.in_channels, cost, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t n = i / g.in_channels, channel = i % g.in_channels;
      const int64_t group = channel / g.InPerGroup(), c = channel % g.InPerGroup();
      double* in = gradient + i * g.InSize();
      for (int64_t f = group * g.OutPerGroup(); f < (group + 1) * g.OutPerGroup(); ++f) {
        const double* out = cotangent + (n * g.out_channels + f) * g.OutSize();
        const double* taps = weight + (f * g.InPerGroup() + c) * g.KernelSize();
        for (int64_t tap = 0; tap < g.KernelSize(); ++tap) {
          const double w = taps[tap];
          ForEachRow(g, tap, [&](int64_t to, int64_t from, int64_t count, int64_t stride) {
            for (int64_t x = 0; x < count; ++x) in[from + x * stride] += w * out[to + x];
          });
        }
      }
    }
  });
}

void WeightGradient(const Geometry& g, const double* cotangent, const double* input,
                    double* gradient) {
  const int64_t cost = g.batch * g.OutSize() * g.InPerGroup() * g.KernelSize();
  ParallelFor(g.out_channels, cost, [&](int64_t begin, int64_t end) {
    for (int64_t f = begin; f < end; ++f) {
      for (int64_t c = 0; c < g.InPerGroup(); ++c) {
        const int64_t channel = f / g.OutPerGroup() * g.InPerGroup() + c;
        for (int64_t tap = 0; tap < g.KernelSize(); ++tap) {
          double sum = 0;
          for (int64_t n = 0; n < g.batch; ++n) {
            const double* out = cotangent + (n * g.out_channels + f) * g.OutSize();
            const double* in = input + (n * g.in_channels + channel) * g.InSize();
            ForEachRow(g, tap, [&](int64_t to, int64_t from, int64_t count, int64_t stride) {
              for (int64_t x = 0; x < count; ++x) sum += out[to + x] * in[from + x * stride];
            });
          }
          gradient[(f * g.InPerGroup() + c) * g.KernelSize() + tap] += sum;
        }
      }
    }
  });
}

absl::Status Differentiate(const Plan& plan, Evaluation& evaluation, size_t dimensions) {
  const Geometry g = GeometryOf(plan, dimensions);
  const double* cotangent = evaluation.cotangents[0].data();
  auto& gradients = evaluation.gradients;
  if (gradients[kInput]) {
    InputGradient(g, cotangent, evaluation.inputs[kWeight]->data(), gradients[kInput]->data());
  }
  if (gradients[kWeight]) {
    WeightGradient(g, cotangent, evaluation.inputs[kInput]->data(), gradients[kWeight]->data());
  }
  for (int64_t i = 0; gradients[kBias] && i < g.batch * g.out_channels; ++i) {
    double& sum = gradients[kBias]->values[static_cast<size_t>(i % g.out_channels)];
    for (int64_t p = 0; p < g.OutSize(); ++p) sum += cotangent[i * g.OutSize() + p];
  }
  return absl::OkStatus();
}

// The weight's shape from the attributes that torch.nn.ConvNd has.
absl::Status DeriveWeight(const std::string& op, size_t dimensions, Plan& plan) {
  const Attributes& attributes = plan.attributes;
  const int64_t in_channels = (*plan.inputs[kInput])[1];
  const int64_t groups = attributes.Has("groups") ? attributes.Integer("groups") : 1;
  if (groups < 1 || in_channels % groups != 0) {
    return BadShape(op, absl::StrCat("groups=", groups, " does not divide the ", in_channels,
                                     " channels of input"));
  }
  absl::StatusOr<std::vector<int64_t>> kernel = std::vector<int64_t>(dimensions, 3);
  if (attributes.Has("kernel_size")) kernel = attributes.Integers("kernel_size", dimensions, 1);
  if (!kernel.ok()) return kernel.status();
  const int64_t out_channels =
      attributes.Has("out_channels") ? attributes.Integer("out_channels") : in_channels;
  Shape weight = {out_channels, in_channels / groups};
  weight.insert(weight.end(), kernel->begin(), kernel->end());
  plan.inputs[kWeight] = weight;
  if (attributes.Has("bias") && attributes.Flag("bias")) plan.inputs[kBias] = Shape{out_channels};
  return absl::OkStatus();
}

absl::Status CheckChannels(const std::string& op, Plan& plan) {
  const Shape& input = *plan.inputs[kInput];
  const Shape& weight = *plan.inputs[kWeight];
  if (!plan.attributes.Has("groups")) {
    if (weight[1] < 1 || input[1] % weight[1] != 0) {
      return BadShape(op, absl::StrCat("input ", ShapeText(input), " has ", input[1],
                                       " channels, which is no multiple of the ", weight[1],
                                       " of weight ", ShapeText(weight)));
    }
    plan.attributes.Set("groups", input[1] / weight[1]);
  }
  const int64_t groups = plan.attributes.Integer("groups");
  if (groups < 1 || weight[1] * groups != input[1] || weight[0] % groups != 0) {
    return BadShape(op, absl::StrCat("groups=", groups, " does not fit input ", ShapeText(input),
                                     " and weight ", ShapeText(weight),
                                     ": weight is out x in/groups x kernel, and groups divides out "
                                     "and in"));
  }
  if (plan.inputs[kBias] && *plan.inputs[kBias] != Shape{weight[0]}) {
    return BadShape(op, absl::StrCat("bias is ", ShapeText(*plan.inputs[kBias]), ", but weight ",
                                     ShapeText(weight), " has ", weight[0], " output channels"));
  }
  return absl::OkStatus();
}

// torch.nn says these a second time; they must not contradict the shapes.
absl::Status CheckRepeated(const std::string& op, size_t dimensions, const Plan& plan) {
  const Shape& weight = *plan.inputs[kWeight];
  const auto differs = [&](const char* name, int64_t actual) {
    return plan.attributes.Has(name) && plan.attributes.Integer(name) != actual;
  };
  if (differs("in_channels", (*plan.inputs[kInput])[1]) || differs("out_channels", weight[0])) {
    return BadShape(
        op, absl::StrCat("in_channels or out_channels is not that of input ",
                         ShapeText(*plan.inputs[kInput]), " and weight ", ShapeText(weight)));
  }
  if (!plan.attributes.Has("kernel_size")) return absl::OkStatus();
  const auto kernel = plan.attributes.Integers("kernel_size", dimensions, 1);
  if (!kernel.ok()) return kernel.status();
  if (!std::equal(kernel->begin(), kernel->end(), weight.begin() + 2)) {
    return BadShape(op, absl::StrCat("kernel_size=", ShapeText(*kernel), " is not that of weight ",
                                     ShapeText(weight)));
  }
  return absl::OkStatus();
}

absl::Status MakePlan(const std::string& op, size_t dimensions, Plan& plan) {
  const Shape& input = *plan.inputs[kInput];
  if (input.size() != dimensions + 2) {
    return BadShape(op,
                    absl::StrCat("input is ", ShapeText(input), ", but must have ", dimensions + 2,
                                 " dimensions: batch, channels and ", dimensions, " more"));
  }
  if (!plan.inputs[kWeight]) {
    if (absl::Status status = DeriveWeight(op, dimensions, plan); !status.ok()) return status;
  }
  const Shape& weight = *plan.inputs[kWeight];
  if (weight.size() != dimensions + 2) {
    return BadShape(op, absl::StrCat("weight is ", ShapeText(weight), ", but must have ",
                                     dimensions + 2, " dimensions"));
  }
  if (absl::Status status = CheckChannels(op, plan); !status.ok()) return status;
  if (absl::Status status = CheckRepeated(op, dimensions, plan); !status.ok()) return status;
  const auto stride = plan.attributes.Integers("stride", dimensions, 1);
  if (!stride.ok()) return stride.status();
  const auto dilation = plan.attributes.Integers("dilation", dimensions, 1);
  if (!dilation.ok()) return dilation.status();
  const bool same = plan.attributes.IsWord("padding") && plan.attributes.Word("padding") == "same";
  std::vector<int64_t> padding(dimensions, 0);
  if (!plan.attributes.IsWord("padding")) {
    const auto given = plan.attributes.Integers("padding", dimensions, 0);
    if (!given.ok()) return given.status();
    padding = *given;
  }
  Shape output = {input[0], weight[0]};
  for (size_t i = 0; i < dimensions; ++i) {
    if (same && (*stride)[i] != 1) return BadShape(op, "padding=same needs stride=1");
    const int64_t reach = (*dilation)[i] * (weight[2 + i] - 1) + 1;
    const int64_t padded = input[2 + i] + (same ? reach - 1 : 2 * padding[i]);
    if (padded < reach) {
      return BadShape(op, absl::StrCat("weight ", ShapeText(weight), " with dilation ",
                                       (*dilation)[i], " is larger than the padded input ",
                                       ShapeText(input), " in spatial dimension ", i));
    }
    output.push_back((padded - reach) / (*stride)[i] + 1);
  }
  plan.outputs = {output};
  return absl::OkStatus();
}

}  // namespace

void AddConvolutions(std::vector<Operator>* operators) {
  for (size_t dimensions = 1; dimensions <= 3; ++dimensions) {
    Operator op;
    op.name = absl::StrCat("conv", dimensions, "d");
    op.summary =
        "out[n,f,p] = bias[f] + sum in[n,c,stride*p + dilation*k - padding] * weight[f,c,k], as "
        "torch.nn.functional's";
    op.inputs = {{"input"}, {"weight"}, {.name = "bias", .optional = true}};
    op.attributes = {{"stride", AttributeKind::kIntegers, 1},
                     {"padding", AttributeKind::kPadding, 0, {"same", "valid"}},
                     {"dilation", AttributeKind::kIntegers, 1},
                     {"groups", AttributeKind::kInteger, nullptr},
                     {"in_channels", AttributeKind::kInteger, nullptr},
                     {"out_channels", AttributeKind::kInteger, nullptr},
                     {"kernel_size", AttributeKind::kIntegers, nullptr},
                     {"bias", AttributeKind::kFlag, nullptr},
                     {"padding_mode", AttributeKind::kWord, nullptr, {"zeros"}}};
    const std::string name = op.name;
    op.plan = [=](Plan& plan) { return MakePlan(name, dimensions, plan); };
    op.compute = [=](const Plan& plan, Evaluation& evaluation) {
      return Compute(plan, evaluation, dimensions);
    };
    op.differentiate = [=](const Plan& plan, Evaluation& evaluation) {
      return Differentiate(plan, evaluation, dimensions);
    };
    operators->push_back(std::move(op));
  }
}

}  // namespace ops_debug::reference
