#include "analysis/validate/sweep.h"

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <set>

#include "analysis/validate/tensor_values.h"

namespace ops_debug::analysis {
namespace {

using Shape = std::vector<int64_t>;

constexpr int64_t kSmallSpatial = 20;
constexpr int64_t kSmallRows = 48;
constexpr int64_t kSmallLength = 4096;
constexpr int64_t kCheapElements = 1 << 14;

struct ContentsCase {
  const char* contents;
  bool scaled;
};
constexpr ContentsCase kContents[] = {{"zeros", false}, {"ones", false},    {"large", true},
                                      {"tiny", true},   {"denormal", true}, {"mixed", true},
                                      {"nan", false}};

// One below, at and above a warp, a half tile and a tile; one alone.
constexpr int64_t kEdges[] = {1, 15, 16, 17, 31, 32, 33, 63, 64, 65};
// Fewer for the dimension before the last: the axis across warps.
constexpr int64_t kFewEdges[] = {1, 15, 17, 33};

OperatorPlan WithContents(OperatorPlan plan, const std::string& contents) {
  bool first = true;
  for (InputPlan& input : plan.inputs) {
    if (input.fixed || input.given.data != nullptr || !proto::IsFloating(input.dtype)) continue;
    // One input with NaN tells where they go; all with NaN tell nothing.
    if (contents != "nan" || first) input.contents = contents;
    first = false;
  }
  return plan;
}

int64_t Elements(const Shape& shape) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return count;
}

}  // namespace

Shape SmallShape(const Shape& shape) {
  Shape small = shape;
  if (Elements(shape) <= kCheapElements) return small;
  if (shape.size() == 1) {
    small[0] = std::min(small[0], kSmallLength);
  } else if (shape.size() == 2) {
    small[0] = std::min(small[0], kSmallRows);
    small[1] = std::min(small[1], kSmallLength);
  } else {
    small[0] = std::min<int64_t>(small[0], 2);
    for (size_t axis = 2; axis < small.size(); ++axis) {
      small[axis] = std::min(small[axis], kSmallSpatial);
    }
  }
  return small;
}

bool FollowsFirstShape(const ValidateOptions& options) {
  if (options.input_shapes.size() != 1) return false;
  return std::all_of(options.inputs.begin(), options.inputs.end(),
                     [](const auto& input) { return IsContents(input.second); });
}

std::vector<ValidateCase> SweepCases(const ValidateSession& session, const OperatorPlan& base,
                                     std::vector<std::string>* remarks) {
  const ValidateOptions& options = session.options;
  std::vector<ValidateCase> cases;
  OperatorPlan small = base;
  const auto plan_for = [&](const Shape& shape) {
    return PlanOperator(session.op, session.reference, options, {shape});
  };
  Shape first;
  if (FollowsFirstShape(options)) {
    first = SmallShape(options.input_shapes[0]);
    if (const auto plan = plan_for(first); plan.ok()) small = *plan;
  }
  for (const ContentsCase& kind : kContents) {
    cases.push_back(MakeCase(kind.contents, WithContents(small, kind.contents), options.seed));
    cases.back().scaled = kind.scaled;
  }
  if (first.empty()) {
    remarks->push_back(
        "sizes were not varied: that needs one --input-shape from which the other "
        "shapes follow");
    return cases;
  }
  std::set<Shape> seen = {options.input_shapes[0]};
  const auto add_size = [&](size_t axis, int64_t size) {
    Shape shape = first;
    shape[axis] = size;
    if (!seen.insert(shape).second) return;
    const auto plan = plan_for(shape);
    if (!plan.ok()) {
      remarks->push_back(
          absl::StrCat("shape ", ShapeText(shape), " was left out: ", plan.status().message()));
      return;
    }
    cases.push_back(MakeCase(absl::StrCat("dim ", axis, " = ", size), *plan, options.seed));
  };
  for (const int64_t size : kEdges) add_size(first.size() - 1, size);
  if (first.size() >= 2) {
    for (const int64_t size : kFewEdges) add_size(first.size() - 2, size);
  }
  return cases;
}

}  // namespace ops_debug::analysis
