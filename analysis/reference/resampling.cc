// Resampling of the last two dimensions: each output pixel is a weighted sum of input pixels, so
// that an operator is a list of taps per row and per column, and its gradient the transposed list.
// Conventions of torch.nn.functional.interpolate.
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cmath>

#include "analysis/reference/operator.h"

namespace ops_debug::reference {
namespace {

struct Tap {
  int64_t from = 0;
  double weight = 0;
};
using Taps = std::vector<std::vector<Tap>>;  // per output position

struct Axis {
  int64_t in = 1, out = 1;
  double ratio = 1;  // input positions per output position
};

// Position p of the output is position floor(p * ratio) of the input.
Taps NearestTaps(const Axis& axis) {
  Taps taps;
  for (int64_t p = 0; p < axis.out; ++p) {
    const int64_t from = static_cast<int64_t>(std::floor(static_cast<double>(p) * axis.ratio));
    taps.push_back({{std::min(from, axis.in - 1), 1.0}});
  }
  return taps;
}

// Between the two input pixels around (p + 1/2) * ratio - 1/2, or p * (in - 1) / (out - 1) if the
// corners are aligned.
Taps LinearTaps(const Axis& axis, bool align_corners) {
  Taps taps;
  for (int64_t p = 0; p < axis.out; ++p) {
    double place = (static_cast<double>(p) + 0.5) * axis.ratio - 0.5;
    if (align_corners) {
      place = axis.out == 1 ? 0
                            : static_cast<double>(p) * static_cast<double>(axis.in - 1) /
                                  static_cast<double>(axis.out - 1);
    }
    place = std::max(place, 0.0);
    const int64_t lower = std::min(static_cast<int64_t>(place), axis.in - 1);
    const int64_t upper = std::min(lower + 1, axis.in - 1);
    const double weight = place - static_cast<double>(lower);
    taps.push_back({{lower, 1 - weight}, {upper, weight}});
  }
  return taps;
}

absl::StatusOr<std::vector<Axis>> AxesOf(const std::string& name, const Plan& plan) {
  const Shape& input = *plan.inputs[0];
  if (input.size() != 4) {
    return BadShape(name, absl::StrCat("input is ", ShapeText(input),
                                       ", but must be batch x channels x height x width"));
  }
  std::vector<Axis> axes;
  const bool sized = plan.attributes.Has("size");
  const double scale = sized ? 1 : plan.attributes.Real("scale_factor");
  if (!(scale > 0 && scale <= 1 << 16)) {
    return BadShape(name, "scale_factor must be above 0 and at most 65536");
  }
  std::vector<int64_t> size(2, 0);
  if (sized) {
    const auto given = plan.attributes.Integers("size", 2, 1);
    if (!given.ok()) return given.status();
    size = *given;
  }
  for (size_t i = 0; i < 2; ++i) {
    Axis axis;
    axis.in = input[2 + i];

    axis.out =
        sized ? size[i] : static_cast<int64_t>(std::floor(static_cast<double>(axis.in) * scale));
    if (axis.in < 1 || axis.out < 1) return BadShape(name, "height or width would be 0");
    axis.ratio = sized ? static_cast<double>(axis.in) / static_cast<double>(axis.out) : 1 / scale;
    axes.push_back(axis);
  }
  return axes;
}

// Calls tap(output element, input element, weight) for every tap of one image.
template <class Visit>
void ForEachTap(const Taps& rows, const Taps& columns, int64_t in_width, const Visit& visit) {
  for (size_t y = 0; y < rows.size(); ++y) {
    for (size_t x = 0; x < columns.size(); ++x) {
      for (const Tap& row : rows[y]) {
        for (const Tap& column : columns[x]) {
          visit(y * columns.size() + x, static_cast<size_t>(row.from * in_width + column.from),
                row.weight * column.weight);
        }
      }
    }
  }
}

struct Resampler {
  Taps rows, columns;
  int64_t images = 1, in_width = 1;
  size_t in_size = 1, out_size = 1;
};

absl::StatusOr<Resampler> ResamplerOf(const std::string& name, bool linear, const Plan& plan) {
  const auto axes = AxesOf(name, plan);
  if (!axes.ok()) return axes.status();
  const Shape& input = *plan.inputs[0];
  const auto taps = [&](const Axis& axis) {
    return linear ? LinearTaps(axis, plan.attributes.Flag("align_corners")) : NearestTaps(axis);
  };
  Resampler resampler;
  resampler.rows = taps((*axes)[0]);
  resampler.columns = taps((*axes)[1]);
  resampler.images = input[0] * input[1];
  resampler.in_width = input[3];
  resampler.in_size = static_cast<size_t>(input[2] * input[3]);
  resampler.out_size = resampler.rows.size() * resampler.columns.size();
  return resampler;
}

Operator MakeResampling(const std::string& name, bool linear) {
  Operator op;
  op.name = name;
  op.summary = linear ? "bilinear interpolation, as torch.nn.functional.interpolate"
                      : "nearest pixel, floor(p * in / out), as torch.nn.functional.interpolate";
  op.inputs = {{"input"}};
  op.attributes = {{"scale_factor", AttributeKind::kReal, 2.0, {}, true},
                   {"size", AttributeKind::kIntegers, nullptr}};
  if (linear) op.attributes.push_back({"align_corners", AttributeKind::kFlag, false});
  op.plan = [name](Plan& plan) -> absl::Status {
    const auto axes = AxesOf(name, plan);
    if (!axes.ok()) return axes.status();
    const Shape& input = *plan.inputs[0];
    plan.outputs = {Shape{input[0], input[1], (*axes)[0].out, (*axes)[1].out}};
    return absl::OkStatus();
  };
  op.compute = [=](const Plan& plan, Evaluation& evaluation) -> absl::Status {
    const auto resampler = ResamplerOf(name, linear, plan);
    if (!resampler.ok()) return resampler.status();
    for (int64_t image = 0; image < resampler->images; ++image) {
      const double* in =
          evaluation.inputs[0]->data() + static_cast<size_t>(image) * resampler->in_size;
      double* out = evaluation.outputs[0].data() + static_cast<size_t>(image) * resampler->out_size;
      ForEachTap(resampler->rows, resampler->columns, resampler->in_width,
                 [&](size_t to, size_t from, double weight) {
                   if (weight != 0) out[to] += weight * in[from];
                 });
    }
    return absl::OkStatus();
  };
  op.differentiate = [=](const Plan& plan, Evaluation& evaluation) -> absl::Status {
    if (!evaluation.gradients[0]) return absl::OkStatus();
    const auto resampler = ResamplerOf(name, linear, plan);
    if (!resampler.ok()) return resampler.status();
    for (int64_t image = 0; image < resampler->images; ++image) {
      double* in =
          evaluation.gradients[0]->data() + static_cast<size_t>(image) * resampler->in_size;
      const double* out =
          evaluation.cotangents[0].data() + static_cast<size_t>(image) * resampler->out_size;
      ForEachTap(resampler->rows, resampler->columns, resampler->in_width,
                 [&](size_t to, size_t from, double weight) { in[from] += weight * out[to]; });
    }
    return absl::OkStatus();
  };
  return op;
}

}  // namespace

void AddResampling(std::vector<Operator>* operators) {
  operators->push_back(MakeResampling("upsample_nearest", false));
  operators->push_back(MakeResampling("upsample_bilinear", true));
}

}  // namespace ops_debug::reference
