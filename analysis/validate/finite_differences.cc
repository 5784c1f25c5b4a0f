#include "analysis/validate/finite_differences.h"

#include <algorithm>
#include <cmath>

#include "analysis/validate/tensor_values.h"

namespace ops_debug::analysis {
namespace {

constexpr double kStep = 6e-6;  // about the cube root of float64's epsilon

double StepFor(const std::vector<double>& point, const Direction& direction) {
  double largest = 1;
  for (size_t i = 0; i < point.size(); ++i) {
    if (direction.values[i] != 0 && std::isfinite(point[i])) {
      largest = std::max(largest, std::fabs(point[i]));
    }
  }
  return kStep * largest;
}

}  // namespace

absl::StatusOr<std::vector<Directional>> DifferencesAlong(
    const ValidateSession& session, const ValidateCase& test,
    const std::vector<Direction>& directions) {
  std::vector<std::vector<double>> points;
  ValidateCase wide = test;
  for (proto::Tensor& input : wide.inputs) {
    points.push_back(ElementValues(input));
    if (proto::IsFloating(input.dtype)) {
      input = TensorOf(input.name, proto::DType::kFloat64, input.shape, points.back());
    }
  }
  std::vector<ProviderRequest> requests;
  std::vector<double> steps;
  for (const Direction& direction : directions) {
    const std::vector<double>& point = points[direction.input];
    steps.push_back(StepFor(point, direction));
    for (const double sign : {1.0, -1.0}) {
      std::vector<double> moved = point;
      for (size_t i = 0; i < moved.size(); ++i) {
        moved[i] += sign * steps.back() * direction.values[i];
      }
      requests.push_back(RequestOf(wide, session.options, true));
      proto::Tensor& input = requests.back().inputs[direction.input];
      input = TensorOf(input.name, proto::DType::kFloat64, input.shape, moved);
    }
  }
  const auto answers = CallProvider(session.reference, requests, session.folder);
  std::vector<Directional> derivatives;
  for (size_t i = 0; i < directions.size(); ++i) {
    Directional derivative;
    for (const auto* answer : {&answers[2 * i], &answers[2 * i + 1]}) {
      if (!answer->ok()) return answer->status();
    }
    const auto& above = answers[2 * i]->outputs;
    const auto& below = answers[2 * i + 1]->outputs;
    for (size_t output = 0; output < above.size() && output < below.size(); ++output) {
      std::vector<double> slope = ElementValues(above[output]);
      const std::vector<double> other = ElementValues(below[output]);
      if (slope.size() != other.size()) {
        return absl::UnavailableError(session.reference.name +
                                      ": the shape of its output depends on the values of inputs");
      }
      for (size_t k = 0; k < slope.size(); ++k) slope[k] = (slope[k] - other[k]) / (2 * steps[i]);
      derivative.push_back(std::move(slope));
    }
    derivatives.push_back(std::move(derivative));
  }
  return derivatives;
}

double LossDerivative(const Cotangents& cotangents, const Directional& derivative) {
  double sum = 0;
  for (size_t output = 0; output < cotangents.size() && output < derivative.size(); ++output) {
    for (size_t i = 0; i < cotangents[output].size(); ++i) {
      // A cotangent of 0 means that the element is not in the loss, even if it is not finite.
      if (cotangents[output][i] != 0) sum += cotangents[output][i] * derivative[output][i];
    }
  }
  return sum;
}

}  // namespace ops_debug::analysis
