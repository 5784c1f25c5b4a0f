// Look-ups by index, with their index input checked: embedding, gather, scatter_add, as PyTorch
// defines them. Also what sums along an axis without reducing it: cumsum.
#include <absl/strings/str_cat.h>

#include <cmath>

#include "analysis/reference/operator.h"

namespace ops_debug::reference {
namespace {

constexpr size_t kInput = 0, kIndex = 1, kSource = 2;

absl::StatusOr<std::vector<int64_t>> Indices(const std::string& name, const Array& array,
                                             int64_t limit) {
  std::vector<int64_t> indices;
  for (size_t i = 0; i < array.values.size(); ++i) {
    const double value = array.values[i];
    if (!(value >= 0 && value < static_cast<double>(limit)) || value != std::floor(value)) {
      return BadShape(name, absl::StrCat("index ", value, " at element ", i,
                                         " is not a whole number from 0 to ", limit - 1));
    }
    indices.push_back(static_cast<int64_t>(value));
  }
  return indices;
}

absl::Status PlanEmbedding(Plan& plan) {
  const Shape& weight = *plan.inputs[kInput];
  if (weight.size() != 2) {
    return BadShape("embedding", absl::StrCat("weight is ", ShapeText(weight),
                                              ", but must be entries x elements"));
  }
  if (!plan.inputs[kIndex]) plan.inputs[kIndex] = Shape{64};
  plan.contents[kIndex] = absl::StrCat("index:", weight[0]);
  Shape output = *plan.inputs[kIndex];
  output.push_back(weight[1]);
  plan.outputs = {output};
  return absl::OkStatus();
}

absl::Status ComputeEmbedding(const Plan& plan, Evaluation& evaluation) {
  const Shape& weight = *plan.inputs[kInput];
  const auto rows = Indices("embedding", *evaluation.inputs[kIndex], weight[0]);
  if (!rows.ok()) return rows.status();
  double* out = evaluation.outputs[0].data();
  for (int64_t row : *rows) {
    const double* in = evaluation.inputs[kInput]->data() + row * weight[1];
    for (int64_t i = 0; i < weight[1]; ++i) *out++ = in[i];
  }
  return absl::OkStatus();
}

absl::Status DifferentiateEmbedding(const Plan& plan, Evaluation& evaluation) {
  const Shape& weight = *plan.inputs[kInput];
  const auto rows = Indices("embedding", *evaluation.inputs[kIndex], weight[0]);
  if (!rows.ok()) return rows.status();
  if (!evaluation.gradients[kInput]) return absl::OkStatus();
  const double* g = evaluation.cotangents[0].data();
  for (int64_t row : *rows) {
    double* gradient = evaluation.gradients[kInput]->data() + row * weight[1];
    for (int64_t i = 0; i < weight[1]; ++i) gradient[i] += *g++;
  }
  return absl::OkStatus();
}

// gather: out[i][j][k] = input[i][index[i][j][k]][k] for axis 1. scatter_add: the other way, added
// to input. Both as places of `input` for each element of index.
absl::StatusOr<std::vector<int64_t>> Places(const std::string& name, const Plan& plan,
                                            const Evaluation& evaluation) {
  const Shape& input = *plan.inputs[kInput];
  const Shape& index = *plan.inputs[kIndex];
  const auto axis = PlainAxis(name, plan.attributes.Integer("axis"), input.size());
  if (!axis.ok()) return axis.status();
  const size_t along = static_cast<size_t>(*axis);
  const auto entries = Indices(name, *evaluation.inputs[kIndex], input[along]);
  if (!entries.ok()) return entries.status();
  const Shape strides = StridesOf(input), index_strides = StridesOf(index);
  std::vector<int64_t> places;
  for (size_t i = 0; i < entries->size(); ++i) {
    int64_t rest = static_cast<int64_t>(i), place = 0;
    for (size_t a = 0; a < index.size(); ++a) {
      place += (a == along ? (*entries)[i] : rest / index_strides[a]) * strides[a];
      rest %= index_strides[a];
    }
    places.push_back(place);
  }
  return places;
}

absl::Status PlanIndexed(const std::string& name, Plan& plan) {
  const Shape& input = *plan.inputs[kInput];
  const auto axis = PlainAxis(name, plan.attributes.Integer("axis"), input.size());
  if (!axis.ok()) return axis.status();
  if (!plan.inputs[kIndex]) plan.inputs[kIndex] = input;
  plan.contents[kIndex] = absl::StrCat("index:", input[static_cast<size_t>(*axis)]);
  const Shape& index = *plan.inputs[kIndex];
  bool fits = index.size() == input.size();
  for (size_t a = 0; fits && a < index.size(); ++a) {
    fits = static_cast<int64_t>(a) == *axis || index[a] <= input[a];
  }
  if (!fits) {
    return BadShape(name, absl::StrCat("index is ", ShapeText(index), ", which exceeds input ",
                                       ShapeText(input), " in another axis than ", *axis));
  }
  const bool scatters = plan.inputs.size() > kSource;
  if (scatters && !plan.inputs[kSource]) plan.inputs[kSource] = index;
  if (scatters && *plan.inputs[kSource] != index) {
    return BadShape(name, absl::StrCat("source is ", ShapeText(*plan.inputs[kSource]),
                                       ", but index is ", ShapeText(index)));
  }
  plan.outputs = {scatters ? input : index};
  return absl::OkStatus();
}

absl::Status ComputeGather(const Plan& plan, Evaluation& evaluation) {
  const auto places = Places("gather", plan, evaluation);
  if (!places.ok()) return places.status();
  for (size_t i = 0; i < places->size(); ++i) {
    evaluation.outputs[0].values[i] =
        evaluation.inputs[kInput]->values[static_cast<size_t>((*places)[i])];
  }
  return absl::OkStatus();
}

absl::Status DifferentiateGather(const Plan& plan, Evaluation& evaluation) {
  const auto places = Places("gather", plan, evaluation);
  if (!places.ok()) return places.status();
  for (size_t i = 0; evaluation.gradients[kInput] && i < places->size(); ++i) {
    evaluation.gradients[kInput]->values[static_cast<size_t>((*places)[i])] +=
        evaluation.cotangents[0].values[i];
  }
  return absl::OkStatus();
}

absl::Status ComputeScatter(const Plan& plan, Evaluation& evaluation) {
  const auto places = Places("scatter_add", plan, evaluation);
  if (!places.ok()) return places.status();
  evaluation.outputs[0] = *evaluation.inputs[kInput];
  for (size_t i = 0; i < places->size(); ++i) {
    evaluation.outputs[0].values[static_cast<size_t>((*places)[i])] +=
        evaluation.inputs[kSource]->values[i];
  }
  return absl::OkStatus();
}

absl::Status DifferentiateScatter(const Plan& plan, Evaluation& evaluation) {
  const auto places = Places("scatter_add", plan, evaluation);
  if (!places.ok()) return places.status();
  const Array& cotangent = evaluation.cotangents[0];
  if (evaluation.gradients[kInput]) evaluation.gradients[kInput] = cotangent;
  for (size_t i = 0; evaluation.gradients[kSource] && i < places->size(); ++i) {
    evaluation.gradients[kSource]->values[i] = cotangent.values[static_cast<size_t>((*places)[i])];
  }
  return absl::OkStatus();
}

// Sums from the front of the axis, or, for the gradient, from its end.
void RunningSum(const Shape& shape, int64_t axis, bool from_end, const Array& from, Array* to) {
  const AxisView view(shape, axis < 0 ? axis + static_cast<int64_t>(shape.size()) : axis);
  for (int64_t row = 0; row < view.outer * view.inner; ++row) {
    const int64_t base = row / view.inner * view.size * view.inner + row % view.inner;
    double sum = 0;
    for (int64_t i = 0; i < view.size; ++i) {
      const int64_t step = from_end ? view.size - 1 - i : i;
      const size_t place = static_cast<size_t>(base + step * view.inner);
      sum += from.values[place];
      to->values[place] = sum;
    }
  }
}

Operator MakeCumsum() {
  Operator op;
  op.name = "cumsum";
  op.summary = "sum of x from the first element along axis to each";
  op.inputs = {{"input"}};
  op.attributes = {{"axis", AttributeKind::kInteger, -1, {}, true}};
  op.result = ResultType::kAsInputs;
  op.plan = [](Plan& plan) -> absl::Status {
    const auto axis =
        PlainAxis("cumsum", plan.attributes.Integer("axis"), plan.inputs[kInput]->size());
    if (!axis.ok()) return axis.status();
    plan.outputs = {*plan.inputs[kInput]};
    return absl::OkStatus();
  };
  op.compute = [](const Plan& plan, Evaluation& evaluation) {
    RunningSum(plan.outputs[0], plan.attributes.Integer("axis"), false, *evaluation.inputs[kInput],
               &evaluation.outputs[0]);
    return absl::OkStatus();
  };
  op.differentiate = [](const Plan& plan, Evaluation& evaluation) {
    if (!evaluation.gradients[kInput]) return absl::OkStatus();
    RunningSum(plan.outputs[0], plan.attributes.Integer("axis"), true, evaluation.cotangents[0],
               &*evaluation.gradients[kInput]);
    return absl::OkStatus();
  };
  return op;
}

}  // namespace

void AddIndexing(std::vector<Operator>* operators) {
  operators->push_back({.name = "embedding",
                        .summary = "row index[i] of weight, as torch.nn.functional.embedding",
                        .inputs = {{"weight"}, {.name = "index", .differentiable = false}},
                        .attributes = {},
                        .plan = PlanEmbedding,
                        .compute = ComputeEmbedding,
                        .differentiate = DifferentiateEmbedding,
                        .result = ResultType::kAsInputs});
  const std::vector<AttributeSpec> axis = {{"axis", AttributeKind::kInteger, -1, {}, true}};
  operators->push_back({.name = "gather",
                        .summary = "input at index along axis, as torch.gather",
                        .inputs = {{"input"}, {.name = "index", .differentiable = false}},
                        .attributes = axis,
                        .plan = [](Plan& plan) { return PlanIndexed("gather", plan); },
                        .compute = ComputeGather,
                        .differentiate = DifferentiateGather,
                        .result = ResultType::kAsInputs});
  operators->push_back(
      {.name = "scatter_add",
       .summary = "input with source added at index along axis, as torch.scatter_add",
       .inputs = {{"input"}, {.name = "index", .differentiable = false}, {"source"}},
       .attributes = axis,
       .plan = [](Plan& plan) { return PlanIndexed("scatter_add", plan); },
       .compute = ComputeScatter,
       .differentiate = DifferentiateScatter,
       .result = ResultType::kAsInputs});
  operators->push_back(MakeCumsum());
}

}  // namespace ops_debug::reference
