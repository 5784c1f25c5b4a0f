// Functions of one element, and of two with NumPy's broadcasting. Where the C library has a
// function that does not cancel (expm1, log1p, erfc), it is taken.
#include <absl/strings/str_cat.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "analysis/reference/operator.h"

namespace ops_debug::reference {
namespace {

// f(x) and f'(x), with the attributes at hand.
struct Unary {
  const char* name;
  const char* summary;
  double (*value)(double x, const Attributes& attributes);
  double (*slope)(double x, const Attributes& attributes);
  std::vector<AttributeSpec> attributes;
  const char* contents = "random";
};

double Sigmoid(double x) {
  return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x));
}
double NormalDensity(double x) { return std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi); }
double NormalDistribution(double x) { return std::erfc(-x / std::numbers::sqrt2) / 2; }

// Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016: x Phi(x), and its approximation by
// tanh.
constexpr double kGeluCubic = 0.044715;
double GeluArgument(double x) {
  return std::sqrt(2 / std::numbers::pi) * (x + kGeluCubic * x * x * x);
}
double Gelu(double x, const Attributes& attributes) {
  if (attributes.Word("approximate") == "none") return x * NormalDistribution(x);
  return x / 2 * (1 + std::tanh(GeluArgument(x)));
}
double GeluSlope(double x, const Attributes& attributes) {
  if (attributes.Word("approximate") == "none") {
    return NormalDistribution(x) + x * NormalDensity(x);
  }
  const double t = std::tanh(GeluArgument(x));
  const double inner = std::sqrt(2 / std::numbers::pi) * (1 + 3 * kGeluCubic * x * x);
  return (1 + t) / 2 + x / 2 * (1 - t * t) * inner;
}

#define OPS_DEBUG_FUNCTION(expression)                                                     \
  []([[maybe_unused]] double x, [[maybe_unused]] const Attributes& attributes) -> double { \
    return expression;                                                                     \
  }

std::vector<Unary> UnaryFunctions() {
  const std::vector<AttributeSpec> gelu = {
      {"approximate", AttributeKind::kWord, "none", {"none", "tanh"}}};
  const std::vector<AttributeSpec> leaky = {{"negative_slope", AttributeKind::kReal, 0.01}};
  return {
      {"exp", "e^x", OPS_DEBUG_FUNCTION(std::exp(x)), OPS_DEBUG_FUNCTION(std::exp(x)), {}},
      {"log", "ln x", OPS_DEBUG_FUNCTION(std::log(x)), OPS_DEBUG_FUNCTION(1 / x), {}, "positive"},
      {"sqrt",
       "square root",
       OPS_DEBUG_FUNCTION(std::sqrt(x)),
       OPS_DEBUG_FUNCTION(0.5 / std::sqrt(x)),
       {},
       "positive"},
      {"rsqrt",
       "1 / sqrt(x)",
       OPS_DEBUG_FUNCTION(1 / std::sqrt(x)),
       OPS_DEBUG_FUNCTION(-0.5 / (x * std::sqrt(x))),
       {},
       "positive"},
      {"abs",
       "|x|, slope 0 at 0",
       OPS_DEBUG_FUNCTION(std::fabs(x)),
       OPS_DEBUG_FUNCTION((x > 0) - (x < 0)),
       {}},
      {"neg", "-x", OPS_DEBUG_FUNCTION(-x), OPS_DEBUG_FUNCTION(-1), {}},
      {"square", "x^2", OPS_DEBUG_FUNCTION(x * x), OPS_DEBUG_FUNCTION(2 * x), {}},
      {"sin", "sine", OPS_DEBUG_FUNCTION(std::sin(x)), OPS_DEBUG_FUNCTION(std::cos(x)), {}},
      {"cos", "cosine", OPS_DEBUG_FUNCTION(std::cos(x)), OPS_DEBUG_FUNCTION(-std::sin(x)), {}},
      {"tanh",
       "hyperbolic tangent",
       OPS_DEBUG_FUNCTION(std::tanh(x)),
       OPS_DEBUG_FUNCTION(1 - std::tanh(x) * std::tanh(x)),
       {}},
      {"sigmoid",
       "1 / (1 + e^-x)",
       OPS_DEBUG_FUNCTION(Sigmoid(x)),
       OPS_DEBUG_FUNCTION(Sigmoid(x) * Sigmoid(-x)),
       {}},
      {"silu",
       "x sigmoid(x) (Elfwing et al. 2017)",
       OPS_DEBUG_FUNCTION(x * Sigmoid(x)),
       OPS_DEBUG_FUNCTION(Sigmoid(x) * (1 + x * Sigmoid(-x))),
       {}},
      {"softplus",
       "ln(1 + e^x)",
       OPS_DEBUG_FUNCTION(x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x))),
       OPS_DEBUG_FUNCTION(Sigmoid(x)),
       {}},
      {"relu",
       "max(x, 0), slope 0 at 0; NaN stays",
       OPS_DEBUG_FUNCTION(x <= 0 ? 0 : x),
       OPS_DEBUG_FUNCTION(x <= 0 ? 0 : 1),
       {}},
      {"leaky_relu", "x, or negative_slope * x below 0",
       OPS_DEBUG_FUNCTION(x < 0 ? attributes.Real("negative_slope") * x : x),
       OPS_DEBUG_FUNCTION(x > 0 ? 1 : attributes.Real("negative_slope")), leaky},
      {"gelu", "x Phi(x), or its tanh approximation (Hendrycks and Gimpel 2016)", Gelu, GeluSlope,
       gelu},
      {"erf",
       "error function",
       OPS_DEBUG_FUNCTION(std::erf(x)),
       OPS_DEBUG_FUNCTION(2 / std::sqrt(std::numbers::pi) * std::exp(-x * x)),
       {}},
  };
}
#undef OPS_DEBUG_FUNCTION

Operator MakeUnary(const Unary& function) {
  constexpr int64_t kCost = 32;
  Operator op;
  op.name = function.name;
  op.summary = function.summary;
  op.inputs = {{.name = "input", .contents = function.contents}};
  op.attributes = function.attributes;
  op.plan = [](Plan& plan) {
    plan.outputs = {*plan.inputs[0]};
    return absl::OkStatus();
  };
  op.compute = [value = function.value](const Plan& plan, Evaluation& evaluation) {
    const double* x = evaluation.inputs[0]->data();
    double* y = evaluation.outputs[0].data();
    ParallelFor(ElementCount(plan.outputs[0]), kCost, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) y[i] = value(x[i], plan.attributes);
    });
    return absl::OkStatus();
  };
  op.differentiate = [slope = function.slope](const Plan& plan, Evaluation& evaluation) {
    if (!evaluation.gradients[0]) return absl::OkStatus();
    const double* x = evaluation.inputs[0]->data();
    const double* cotangent = evaluation.cotangents[0].data();
    double* gradient = evaluation.gradients[0]->data();
    ParallelFor(ElementCount(plan.outputs[0]), kCost, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        gradient[i] = cotangent[i] * slope(x[i], plan.attributes);
      }
    });
    return absl::OkStatus();
  };
  return op;
}

struct Binary {
  const char* name;
  const char* summary;
  double (*value)(double a, double b);
  double (*slope_a)(double a, double b);
  double (*slope_b)(double a, double b);
  const char* b_contents = "random";
};

#define OPS_DEBUG_FUNCTION(expression)                             \
  [](double a, double b) -> double {                               \
    return static_cast<void>(a), static_cast<void>(b), expression; \
  }
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

std::vector<Binary> BinaryFunctions() {
  return {
      {"add", "a + b", OPS_DEBUG_FUNCTION(a + b), OPS_DEBUG_FUNCTION(1), OPS_DEBUG_FUNCTION(1)},
      {"sub", "a - b", OPS_DEBUG_FUNCTION(a - b), OPS_DEBUG_FUNCTION(1), OPS_DEBUG_FUNCTION(-1)},
      {"mul", "a * b", OPS_DEBUG_FUNCTION(a * b), OPS_DEBUG_FUNCTION(b), OPS_DEBUG_FUNCTION(a)},
      {"div", "a / b", OPS_DEBUG_FUNCTION(a / b), OPS_DEBUG_FUNCTION(1 / b),
       OPS_DEBUG_FUNCTION(-a / (b * b)), "positive"},
      {"maximum", "the larger; half the slope each where equal; NaN stays",
       OPS_DEBUG_FUNCTION(std::isnan(a + b) ? kNaN : std::fmax(a, b)),
       OPS_DEBUG_FUNCTION(a > b    ? 1
                          : a == b ? 0.5
                                   : 0),
       OPS_DEBUG_FUNCTION(b > a    ? 1
                          : a == b ? 0.5
                                   : 0)},
      {"minimum", "the smaller; half the slope each where equal; NaN stays",
       OPS_DEBUG_FUNCTION(std::isnan(a + b) ? kNaN : std::fmin(a, b)),
       OPS_DEBUG_FUNCTION(a < b    ? 1
                          : a == b ? 0.5
                                   : 0),
       OPS_DEBUG_FUNCTION(b < a    ? 1
                          : a == b ? 0.5
                                   : 0)},
  };
}
#undef OPS_DEBUG_FUNCTION

absl::Status PlanBinary(const std::string& name, Plan& plan) {
  if (!plan.inputs[1]) plan.inputs[1] = plan.inputs[0];
  Shape shape;
  if (!Broadcast(*plan.inputs[0], *plan.inputs[1], &shape)) {
    return BadShape(name, absl::StrCat("a is ", ShapeText(*plan.inputs[0]), " and b is ",
                                       ShapeText(*plan.inputs[1]), ": they do not broadcast"));
  }
  plan.outputs = {shape};
  return absl::OkStatus();
}

Operator MakeBinary(const Binary& function) {
  Operator op;
  op.name = function.name;
  op.summary = function.summary;
  op.inputs = {{"a"}, {.name = "b", .contents = function.b_contents}};
  op.result = ResultType::kAsInputs;
  const std::string name = function.name;
  op.plan = [name](Plan& plan) { return PlanBinary(name, plan); };
  op.compute = [value = function.value](const Plan& plan, Evaluation& evaluation) {
    const Array a = Expand(*evaluation.inputs[0], plan.outputs[0]);
    const Array b = Expand(*evaluation.inputs[1], plan.outputs[0]);
    for (size_t i = 0; i < a.values.size(); ++i) {
      evaluation.outputs[0].values[i] = value(a.values[i], b.values[i]);
    }
    return absl::OkStatus();
  };
  op.differentiate = [function](const Plan& plan, Evaluation& evaluation) {
    const Array a = Expand(*evaluation.inputs[0], plan.outputs[0]);
    const Array b = Expand(*evaluation.inputs[1], plan.outputs[0]);
    for (size_t input = 0; input < 2; ++input) {
      if (!evaluation.gradients[input]) continue;
      const auto slope = input == 0 ? function.slope_a : function.slope_b;
      Array gradient = evaluation.cotangents[0];
      for (size_t i = 0; i < a.values.size(); ++i) {
        gradient.values[i] *= slope(a.values[i], b.values[i]);
      }
      evaluation.gradients[input] = SumTo(gradient, evaluation.gradients[input]->shape);
    }
    return absl::OkStatus();
  };
  return op;
}

}  // namespace

void AddElementwise(std::vector<Operator>* operators) {
  for (const Unary& function : UnaryFunctions()) operators->push_back(MakeUnary(function));
  for (const Binary& function : BinaryFunctions()) operators->push_back(MakeBinary(function));
}

}  // namespace ops_debug::reference
