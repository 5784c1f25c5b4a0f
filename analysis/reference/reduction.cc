// Reductions over any set of axes. The input is first brought into rows: one row per output
// element, so that each reduction is a function of one row.
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "analysis/reference/operator.h"

namespace ops_debug::reference {
namespace {

using Row = std::vector<double>;

// Where each element of the input goes: its output element, in the input's order.
struct Rows {
  Shape output;                 // without the reduced axes
  std::vector<int64_t> of;      // output element of each input element
  int64_t count = 1, size = 1;  // outputs, elements per output
};

// Which axes are reduced: those of "axis", all if it is away.
absl::StatusOr<std::vector<bool>> ReducedAxes(const std::string& name, const Plan& plan) {
  const size_t rank = plan.inputs[0]->size();
  const bool all = !plan.attributes.Has("axis") || plan.attributes.Integers("axis").empty();
  std::vector<bool> reduced(rank, all);
  if (all) return reduced;
  for (int64_t axis : plan.attributes.Integers("axis")) {
    const auto plain = PlainAxis(name, axis, rank);
    if (!plain.ok()) return plain.status();
    reduced[static_cast<size_t>(*plain)] = true;
  }
  return reduced;
}

absl::StatusOr<Rows> RowsOf(const std::string& name, const Plan& plan) {
  const Shape& input = *plan.inputs[0];
  const auto reduced = ReducedAxes(name, plan);
  if (!reduced.ok()) return reduced.status();
  Rows rows;
  Shape kept = input;
  for (size_t axis = 0; axis < input.size(); ++axis) {
    if ((*reduced)[axis]) {
      rows.size *= input[axis];
      kept[axis] = 1;
    } else {
      rows.output.push_back(input[axis]);
    }
  }
  rows.count = ElementCount(rows.output);
  rows.of.resize(static_cast<size_t>(ElementCount(input)));
  ForEachBroadcast(input, kept, [&](int64_t element, int64_t place) {
    rows.of[static_cast<size_t>(element)] = place;
  });
  return rows;
}

std::vector<Row> Split(const Rows& rows, const Array& input) {
  std::vector<Row> split(static_cast<size_t>(rows.count));
  for (Row& row : split) row.reserve(static_cast<size_t>(rows.size));
  for (size_t i = 0; i < input.values.size(); ++i) {
    split[static_cast<size_t>(rows.of[i])].push_back(input.values[i]);
  }
  return split;
}

// Of one row; and dy/dx_i for all i.
struct Reduction {
  const char* name;
  const char* summary;
  double (*value)(const Row& row, const Attributes& attributes);
  Row (*slopes)(const Row& row, const Attributes& attributes);  // null: none
  std::vector<AttributeSpec> attributes;
  ResultType result = ResultType::kFloating;
};

double Sum(const Row& row) {
  double sum = 0;
  for (double x : row) sum += x;
  return sum;
}

double Mean(const Row& row) { return Sum(row) / static_cast<double>(row.size()); }

double Variance(const Row& row, const Attributes& attributes) {
  const double mean = Mean(row);
  double sum = 0;
  for (double x : row) sum += (x - mean) * (x - mean);
  return sum /
         (static_cast<double>(row.size()) - static_cast<double>(attributes.Integer("correction")));
}

Row VarianceSlopes(const Row& row, const Attributes& attributes) {
  const double mean = Mean(row);
  const double divisor =
      static_cast<double>(row.size()) - static_cast<double>(attributes.Integer("correction"));
  Row slopes;
  for (double x : row) slopes.push_back(2 * (x - mean) / divisor);
  return slopes;
}

// First place of the largest (or smallest) element; a NaN comes before all.
size_t Extreme(const Row& row, bool largest) {
  size_t place = 0;
  for (size_t i = 0; i < row.size(); ++i) {
    if (std::isnan(row[place])) break;
    if (std::isnan(row[i]) || (largest ? row[i] > row[place] : row[i] < row[place])) place = i;
  }
  return place;
}

// Equal extremes share the slope, as in torch.amax.
Row ExtremeSlopes(const Row& row, bool largest) {
  const double extreme = row[Extreme(row, largest)];
  const double equal = static_cast<double>(std::count(row.begin(), row.end(), extreme));
  Row slopes;
  for (double x : row) slopes.push_back(x == extreme ? 1 / equal : 0);
  return slopes;
}

Row ProductSlopes(const Row& row) {
  Row slopes(row.size(), 1.0);
  double before = 1, behind = 1;
  for (size_t i = 0; i < row.size(); ++i) {
    slopes[i] *= before;
    before *= row[i];
    const size_t j = row.size() - 1 - i;
    slopes[j] *= behind;
    behind *= row[j];
  }
  return slopes;
}

// (sum |x|^p)^(1/p), scaled by the largest so that nothing overflows; p = infinity: the largest.
double Norm(const Row& row, const Attributes& attributes) {
  const double order = attributes.Real("order");
  double largest = 0;
  for (double x : row) largest = std::isnan(x) ? x : std::max(largest, std::fabs(x));
  if (largest == 0 || !std::isfinite(largest)) return largest;
  double sum = 0;
  for (double x : row) sum += std::pow(std::fabs(x) / largest, order);
  return largest * std::pow(sum, 1 / order);
}

Row NormSlopes(const Row& row, const Attributes& attributes) {
  const double order = attributes.Real("order"), norm = Norm(row, attributes);
  Row slopes;
  for (double x : row) {
    slopes.push_back(norm == 0 ? 0 : std::copysign(std::pow(std::fabs(x) / norm, order - 1), x));
  }
  return slopes;
}

std::vector<Reduction> Reductions() {
  using A = Attributes;
  const std::vector<AttributeSpec> correction = {{"correction", AttributeKind::kInteger, 1}};
  return {
      {"sum",
       "sum of x",
       [](const Row& row, const A&) { return Sum(row); },
       [](const Row& row, const A&) { return Row(row.size(), 1.0); },
       {},
       ResultType::kAsInputs},
      {"mean",
       "sum of x / count",
       [](const Row& row, const A&) { return Mean(row); },
       [](const Row& row, const A&) {
         return Row(row.size(), 1 / static_cast<double>(row.size()));
       },
       {}},
      {"prod",
       "product of x",
       [](const Row& row, const A&) {
         double product = 1;
         for (double x : row) product *= x;
         return product;
       },
       [](const Row& row, const A&) { return ProductSlopes(row); },
       {},
       ResultType::kAsInputs},
      {"max",
       "largest; equal ones share the slope; NaN wins",
       [](const Row& row, const A&) { return row[Extreme(row, true)]; },
       [](const Row& row, const A&) { return ExtremeSlopes(row, true); },
       {},
       ResultType::kAsInputs},
      {"min",
       "smallest; equal ones share the slope; NaN wins",
       [](const Row& row, const A&) { return row[Extreme(row, false)]; },
       [](const Row& row, const A&) { return ExtremeSlopes(row, false); },
       {},
       ResultType::kAsInputs},
      {"argmax",
       "first index of the largest along axis",
       [](const Row& row, const A&) { return static_cast<double>(Extreme(row, true)); },
       nullptr,
       {},
       ResultType::kInteger},
      {"argmin",
       "first index of the smallest along axis",
       [](const Row& row, const A&) { return static_cast<double>(Extreme(row, false)); },
       nullptr,
       {},
       ResultType::kInteger},
      {"var", "sum (x - mean)^2 / (count - correction)", Variance, VarianceSlopes, correction},
      {"std", "square root of var",
       [](const Row& row, const A& attributes) { return std::sqrt(Variance(row, attributes)); },
       [](const Row& row, const A& attributes) {
         Row slopes = VarianceSlopes(row, attributes);
         for (double& slope : slopes) slope /= 2 * std::sqrt(Variance(row, attributes));
         return slopes;
       },
       correction},
      {"norm",
       "(sum |x|^order)^(1/order)",
       Norm,
       NormSlopes,
       {{"order", AttributeKind::kReal, 2.0}}},
      {"logsumexp",
       "max x + ln sum e^(x - max x)",
       [](const Row& row, const A&) {
         const double largest = row[Extreme(row, true)];
         if (!std::isfinite(largest)) return largest;
         double sum = 0;
         for (double x : row) sum += std::exp(x - largest);
         return largest + std::log(sum);
       },
       [](const Row& row, const A&) {
         const double largest = row[Extreme(row, true)];
         Row slopes;
         for (double x : row) slopes.push_back(std::exp(x - largest));
         const double sum = Sum(slopes);
         for (double& slope : slopes) slope /= sum;
         return slopes;
       },
       {}},
  };
}

absl::Status PlanReduction(const Reduction& reduction, Plan& plan) {
  const std::string name = reduction.name;
  const bool is_index = reduction.result == ResultType::kInteger;
  if (is_index && plan.attributes.Has("axis") && plan.attributes.Integers("axis").size() > 1) {
    return BadShape(name, "axis must be one axis, or away for the index into all elements");
  }
  const auto reduced = ReducedAxes(name, plan);
  if (!reduced.ok()) return reduced.status();
  Shape output;
  int64_t size = 1;
  for (size_t axis = 0; axis < reduced->size(); ++axis) {
    const int64_t extent = (*plan.inputs[0])[axis];
    if ((*reduced)[axis]) size *= extent;
    if (!(*reduced)[axis]) output.push_back(extent);
    if ((*reduced)[axis] && plan.attributes.Flag("keepdim")) output.push_back(1);
  }
  const bool needs_one = name != "sum" && name != "prod" && name != "norm" && name != "mean";
  if (size == 0 && needs_one && ElementCount(output) != 0) {
    return BadShape(
        name, absl::StrCat("input ", ShapeText(*plan.inputs[0]), " has no elements to reduce"));
  }
  plan.outputs = {output};
  return absl::OkStatus();
}

Operator MakeReduction(const Reduction& reduction) {
  Operator op;
  op.name = reduction.name;
  op.summary = absl::StrCat(reduction.summary, ", over axis (all, if it is away)");
  op.inputs = {{"input"}};
  op.attributes = reduction.attributes;
  op.attributes.push_back({"axis", AttributeKind::kIntegers, nullptr});
  op.attributes.push_back({"keepdim", AttributeKind::kFlag, false});
  op.result = reduction.result;
  op.plan = [reduction](Plan& plan) { return PlanReduction(reduction, plan); };
  op.compute = [reduction](const Plan& plan, Evaluation& evaluation) -> absl::Status {
    const auto rows = RowsOf(reduction.name, plan);
    if (!rows.ok()) return rows.status();
    const std::vector<Row> split = Split(*rows, *evaluation.inputs[0]);
    ParallelFor(rows->count, rows->size * 4, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        evaluation.outputs[0].values[static_cast<size_t>(i)] =
            reduction.value(split[static_cast<size_t>(i)], plan.attributes);
      }
    });
    return absl::OkStatus();
  };
  if (reduction.slopes == nullptr) return op;
  op.differentiate = [reduction](const Plan& plan, Evaluation& evaluation) -> absl::Status {
    if (!evaluation.gradients[0]) return absl::OkStatus();
    const auto rows = RowsOf(reduction.name, plan);
    if (!rows.ok()) return rows.status();
    std::vector<Row> split = Split(*rows, *evaluation.inputs[0]);
    for (Row& row : split) row = reduction.slopes(row, plan.attributes);
    std::vector<size_t> next(split.size(), 0);
    for (size_t i = 0; i < rows->of.size(); ++i) {
      const size_t row = static_cast<size_t>(rows->of[i]);
      evaluation.gradients[0]->values[i] =
          split[row][next[row]++] * evaluation.cotangents[0].values[row];
    }
    return absl::OkStatus();
  };
  return op;
}

}  // namespace

void AddReductions(std::vector<Operator>* operators) {
  for (const Reduction& reduction : Reductions()) operators->push_back(MakeReduction(reduction));
}

}  // namespace ops_debug::reference
