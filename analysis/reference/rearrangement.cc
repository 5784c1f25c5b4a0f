// Transposes: the elements stay, their order changes.
#include <absl/strings/str_cat.h>

#include <algorithm>

#include "analysis/reference/operator.h"

namespace ops_debug::reference {
namespace {

// Output axis i is input axis permutation[i].
absl::StatusOr<std::vector<int64_t>> PermutationOf(const std::string& name, const Plan& plan) {
  const size_t rank = plan.inputs[0]->size();
  std::vector<int64_t> permutation;
  if (plan.attributes.Has("permutation")) {
    for (int64_t axis : plan.attributes.Integers("permutation")) {
      const auto plain = PlainAxis(name, axis, rank);
      if (!plain.ok()) return plain.status();
      permutation.push_back(*plain);
    }
  } else {
    for (size_t axis = 0; axis < rank; ++axis) permutation.push_back(static_cast<int64_t>(axis));
    const auto first = PlainAxis(name, plan.attributes.Integer("dim0"), rank);
    if (!first.ok()) return first.status();
    const auto second = PlainAxis(name, plan.attributes.Integer("dim1"), rank);
    if (!second.ok()) return second.status();
    std::swap(permutation[static_cast<size_t>(*first)], permutation[static_cast<size_t>(*second)]);
  }
  std::vector<int64_t> sorted = permutation;
  std::sort(sorted.begin(), sorted.end());
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  if (sorted.size() != rank || permutation.size() != rank) {
    return BadShape(name, absl::StrCat("permutation does not name each of the ", rank,
                                       " axes of input ", ShapeText(*plan.inputs[0]), " once"));
  }
  return permutation;
}

// Calls visit(output element, input element).
template <class Visit>
void ForEachElement(const Shape& input, const std::vector<int64_t>& permutation,
                    const Visit& visit) {
  const Shape strides = StridesOf(input);
  Shape shape, step, index(input.size(), 0);
  for (int64_t axis : permutation) {
    shape.push_back(input[static_cast<size_t>(axis)]);
    step.push_back(strides[static_cast<size_t>(axis)]);
  }
  const int64_t count = ElementCount(shape);
  int64_t place = 0;
  for (int64_t i = 0; i < count; ++i) {
    visit(i, place);
    for (size_t axis = shape.size(); axis-- > 0;) {
      place += step[axis];
      if (++index[axis] < shape[axis]) break;
      place -= step[axis] * shape[axis];
      index[axis] = 0;
    }
  }
}

Operator MakePermutation(const std::string& name, const std::string& summary,
                         std::vector<AttributeSpec> attributes) {
  Operator op;
  op.name = name;
  op.summary = summary;
  op.inputs = {{"input"}};
  op.attributes = std::move(attributes);
  op.result = ResultType::kAsInputs;
  op.plan = [name](Plan& plan) -> absl::Status {
    if (plan.attributes.Has("permutation")) {  // it says all
      plan.attributes.Remove("dim0");
      plan.attributes.Remove("dim1");
    }
    const auto permutation = PermutationOf(name, plan);
    if (!permutation.ok()) return permutation.status();
    Shape output;
    for (int64_t axis : *permutation) {
      output.push_back((*plan.inputs[0])[static_cast<size_t>(axis)]);
    }
    plan.outputs = {output};
    return absl::OkStatus();
  };
  op.compute = [name](const Plan& plan, Evaluation& evaluation) -> absl::Status {
    const auto permutation = PermutationOf(name, plan);
    if (!permutation.ok()) return permutation.status();
    ForEachElement(*plan.inputs[0], *permutation, [&](int64_t to, int64_t from) {
      evaluation.outputs[0].values[static_cast<size_t>(to)] =
          evaluation.inputs[0]->values[static_cast<size_t>(from)];
    });
    return absl::OkStatus();
  };
  op.differentiate = [name](const Plan& plan, Evaluation& evaluation) -> absl::Status {
    const auto permutation = PermutationOf(name, plan);
    if (!permutation.ok()) return permutation.status();
    if (!evaluation.gradients[0]) return absl::OkStatus();
    ForEachElement(*plan.inputs[0], *permutation, [&](int64_t to, int64_t from) {
      evaluation.gradients[0]->values[static_cast<size_t>(from)] =
          evaluation.cotangents[0].values[static_cast<size_t>(to)];
    });
    return absl::OkStatus();
  };
  return op;
}

}  // namespace

void AddRearrangements(std::vector<Operator>* operators) {
  operators->push_back(MakePermutation("transpose",
                                       "axes dim0 and dim1 change places (the last two)",
                                       {{"dim0", AttributeKind::kInteger, -2, {}, true},
                                        {"dim1", AttributeKind::kInteger, -1, {}, true},
                                        {"permutation", AttributeKind::kIntegers, nullptr}}));
  operators->push_back(MakePermutation("permute", "output axis i is input axis permutation[i]",
                                       {{"dim0", AttributeKind::kInteger, -2, {}, true},
                                        {"dim1", AttributeKind::kInteger, -1, {}, true},
                                        {"permutation", AttributeKind::kIntegers, nullptr}}));
}

}  // namespace ops_debug::reference
