// Matrix products: BLAS's GEMM with ONNX Gemm's names of attributes, broadcast over leading
// dimensions as torch.matmul does; and the layer y = x W^T + b.
#include "analysis/reference/matrix_product.h"

#include <absl/strings/str_cat.h>

#include <Eigen/Dense>

#include "analysis/reference/operator.h"

namespace ops_debug::reference {
namespace {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using ConstMap = Eigen::Map<const Matrix>;

constexpr size_t kA = 0, kB = 1, kC = 2;

// Operands as matrices: a vector is a row on the left and a column on the right.
struct Product {
  MatrixShape shape;
  Shape batch, a_batch, b_batch;
  bool transpose_a = false, transpose_b = false;
  double alpha = 1, beta = 1;
};

struct Operand {
  Shape batch;
  int64_t rows = 1, columns = 1;  // as stored
};

Operand OperandOf(const Shape& shape, bool is_left) {
  Operand operand;
  if (shape.size() == 1) {
    (is_left ? operand.columns : operand.rows) = shape[0];
    return operand;
  }
  operand.batch.assign(shape.begin(), shape.end() - 2);
  operand.rows = shape[shape.size() - 2];
  operand.columns = shape.back();
  return operand;
}

absl::StatusOr<Product> ProductOf(const Plan& plan) {
  const Shape& a = *plan.inputs[kA];
  const Shape& b = *plan.inputs[kB];
  Product product;
  product.transpose_a = a.size() > 1 && plan.attributes.Flag("transA");
  product.transpose_b = b.size() > 1 && plan.attributes.Flag("transB");
  product.alpha = plan.attributes.Real("alpha");
  product.beta = plan.attributes.Real("beta");
  const Operand left = OperandOf(a, true), right = OperandOf(b, false);
  const int64_t inner_a = product.transpose_a ? left.rows : left.columns;
  const int64_t inner_b = product.transpose_b ? right.columns : right.rows;
  if (inner_a != inner_b) {
    return BadShape(
        "matmul", absl::StrCat("a is ", ShapeText(a), product.transpose_a ? "^T" : "", " and b is ",
                               ShapeText(b), product.transpose_b ? "^T" : "",
                               ": the inner dimensions ", inner_a, " and ", inner_b, " differ"));
  }
  product.shape = {product.transpose_a ? left.columns : left.rows,
                   product.transpose_b ? right.rows : right.columns, inner_a};
  product.a_batch = left.batch;
  product.b_batch = right.batch;
  if (!Broadcast(left.batch, right.batch, &product.batch)) {
    return BadShape("matmul", absl::StrCat("the leading dimensions of a ", ShapeText(a), " and b ",
                                           ShapeText(b), " differ"));
  }
  return product;
}

absl::Status MakePlan(Plan& plan) {
  if (plan.inputs[kA]->empty()) return BadShape("matmul", "a is a scalar");
  if (!plan.inputs[kB]) {  // a square second factor
    const Shape& a = *plan.inputs[kA];
    const bool transposed = a.size() > 1 && plan.attributes.Flag("transA");
    const int64_t inner = transposed ? a[a.size() - 2] : a.back();
    plan.inputs[kB] = Shape{inner, inner};
  }
  if (plan.inputs[kB]->empty()) return BadShape("matmul", "b is a scalar");
  const absl::StatusOr<Product> product = ProductOf(plan);
  if (!product.ok()) return product.status();
  Shape output = product->batch;
  if (plan.inputs[kA]->size() > 1) output.push_back(product->shape.m);
  if (plan.inputs[kB]->size() > 1) output.push_back(product->shape.n);
  Shape common;
  if (plan.inputs[kC] && (!Broadcast(output, *plan.inputs[kC], &common) || common != output)) {
    return BadShape(
        "matmul", absl::StrCat("c is ", ShapeText(*plan.inputs[kC]),
                               ", which does not broadcast to the product's ", ShapeText(output)));
  }
  plan.outputs = {output};
  return absl::OkStatus();
}

// Calls visit(a, b, c) with the places of each product's matrices.
template <class Visit>
void ForEachProduct(const Product& product, const Visit& visit) {
  const int64_t count = ElementCount(product.batch);
  std::vector<int64_t> a(static_cast<size_t>(count)), b(a.size());
  const auto fill = [&](const Shape& batch, std::vector<int64_t>* places) {
    ForEachBroadcast(product.batch, batch,
                     [&](int64_t i, int64_t place) { (*places)[static_cast<size_t>(i)] = place; });
  };
  fill(product.a_batch, &a);
  fill(product.b_batch, &b);
  const MatrixShape& s = product.shape;
  for (size_t i = 0; i < a.size(); ++i) {
    visit(a[i] * s.m * s.k, b[i] * s.k * s.n, static_cast<int64_t>(i) * s.m * s.n);
  }
}

absl::Status Compute(const Plan& plan, Evaluation& evaluation) {
  const absl::StatusOr<Product> product = ProductOf(plan);
  if (!product.ok()) return product.status();
  Array& output = evaluation.outputs[0];
  if (evaluation.inputs[kC]) {
    output = Expand(*evaluation.inputs[kC], output.shape);
    for (double& value : output.values) value *= product->beta;
  }
  ForEachProduct(*product, [&](int64_t a, int64_t b, int64_t c) {
    MultiplyAdd(product->shape, product->alpha, evaluation.inputs[kA]->data() + a,
                product->transpose_a, evaluation.inputs[kB]->data() + b, product->transpose_b,
                output.data() + c);
  });
  return absl::OkStatus();
}

absl::Status Differentiate(const Plan& plan, Evaluation& evaluation) {
  const absl::StatusOr<Product> product = ProductOf(plan);
  if (!product.ok()) return product.status();
  const auto& [m, n, k] = product->shape;
  const double alpha = product->alpha;
  const double* g = evaluation.cotangents[0].data();
  ForEachProduct(*product, [&](int64_t a, int64_t b, int64_t c) {
    if (auto& gradient = evaluation.gradients[kA]) {  // G op(B)^T, or its transpose
      const double* other = evaluation.inputs[kB]->data() + b;
      if (product->transpose_a) {
        MultiplyAdd({k, m, n}, alpha, other, product->transpose_b, g + c, true,
                    gradient->data() + a);
      } else {
        MultiplyAdd({m, k, n}, alpha, g + c, false, other, !product->transpose_b,
                    gradient->data() + a);
      }
    }
    if (auto& gradient = evaluation.gradients[kB]) {  // op(A)^T G, or its transpose
      const double* other = evaluation.inputs[kA]->data() + a;
      if (product->transpose_b) {
        MultiplyAdd({n, k, m}, alpha, g + c, true, other, product->transpose_a,
                    gradient->data() + b);
      } else {
        MultiplyAdd({k, n, m}, alpha, other, !product->transpose_a, g + c, false,
                    gradient->data() + b);
      }
    }
  });
  if (auto& gradient = evaluation.gradients[kC]) {
    *gradient = SumTo(evaluation.cotangents[0], gradient->shape);
    for (double& value : gradient->values) value *= product->beta;
  }
  return absl::OkStatus();
}

// linear: x (..., in), weight (out, in), bias (out).
absl::Status MakeLinearPlan(Plan& plan) {
  const Shape& input = *plan.inputs[kA];
  if (input.empty()) return BadShape("linear", "input is a scalar");
  const Attributes& attributes = plan.attributes;
  const auto given = [&](const char* name, int64_t fallback) {
    return attributes.Has(name) ? attributes.Integer(name) : fallback;
  };
  if (!plan.inputs[kB]) {
    const int64_t out = given("out_features", input.back());
    plan.inputs[kB] = Shape{out, input.back()};
    if (attributes.Has("bias") && attributes.Flag("bias")) plan.inputs[kC] = Shape{out};
  }
  const Shape& weight = *plan.inputs[kB];
  if (weight.size() != 2 || weight[1] != input.back()) {
    return BadShape("linear", absl::StrCat("weight is ", ShapeText(weight), ", but must be out x ",
                                           input.back(), " for input ", ShapeText(input)));
  }
  if (given("in_features", weight[1]) != weight[1] ||
      given("out_features", weight[0]) != weight[0]) {
    return BadShape("linear", absl::StrCat("in_features or out_features is not that of weight ",
                                           ShapeText(weight), " (out x in)"));
  }
  if (plan.inputs[kC] && *plan.inputs[kC] != Shape{weight[0]}) {
    return BadShape("linear", absl::StrCat("bias is ", ShapeText(*plan.inputs[kC]), ", but weight ",
                                           ShapeText(weight), " has ", weight[0], " outputs"));
  }
  Shape output = input;
  output.back() = weight[0];
  plan.outputs = {output};
  return absl::OkStatus();
}

// The same product in matmul's terms.
Plan AsProduct(const Plan& plan) {
  Plan product = plan;
  product.attributes = Attributes();
  product.attributes.Set("transA", false);
  product.attributes.Set("transB", true);
  product.attributes.Set("alpha", 1.0);
  product.attributes.Set("beta", 1.0);
  return product;
}

}  // namespace

void MultiplyAdd(const MatrixShape& shape, double alpha, const double* a, bool transpose_a,
                 const double* b, bool transpose_b, double* c) {
  const auto& [m, n, k] = shape;
  const ConstMap left(a, transpose_a ? k : m, transpose_a ? m : k);
  const ConstMap right(b, transpose_b ? n : k, transpose_b ? k : n);
  ParallelFor(m, n * k, [&, m = m, n = n](int64_t begin, int64_t end) {
    const int64_t rows = end - begin;
    Eigen::Map<Matrix> out(c + begin * n, rows, n);
    // One expression type each; a transposed view costs no copy.
    const auto multiply = [&](const auto& part) {
      if (transpose_b) {
        out.noalias() += alpha * (part * right.transpose());
      } else {
        out.noalias() += alpha * (part * right);
      }
    };
    if (transpose_a) {
      multiply(left.transpose().middleRows(begin, rows));
    } else {
      multiply(left.middleRows(begin, rows));
    }
  });
}

void AddMatrixProducts(std::vector<Operator>* operators) {
  operators->push_back({.name = "matmul",
                        .summary = "alpha * op(a) op(b) + beta * c, BLAS GEMM; leading dimensions "
                                   "broadcast as torch.matmul's",
                        .inputs = {{"a"}, {"b"}, {.name = "c", .optional = true}},
                        .attributes = {{"transA", AttributeKind::kFlag, false},
                                       {"transB", AttributeKind::kFlag, false},
                                       {"alpha", AttributeKind::kReal, 1.0},
                                       {"beta", AttributeKind::kReal, 1.0}},
                        .plan = MakePlan,
                        .compute = Compute,
                        .differentiate = Differentiate,
                        .result = ResultType::kAsInputs});
  operators->push_back(
      {.name = "linear",
       .summary = "input weight^T + bias, as torch.nn.functional.linear",
       .inputs = {{"input"}, {"weight"}, {.name = "bias", .optional = true}},
       .attributes = {{"in_features", AttributeKind::kInteger, nullptr},
                      {"out_features", AttributeKind::kInteger, nullptr},
                      {"bias", AttributeKind::kFlag, nullptr}},
       .plan = MakeLinearPlan,
       .compute = [](const Plan& plan,
                     Evaluation& evaluation) { return Compute(AsProduct(plan), evaluation); },
       .differentiate =
           [](const Plan& plan, Evaluation& evaluation) {
             return Differentiate(AsProduct(plan), evaluation);
           },
       .result = ResultType::kAsInputs});
}

}  // namespace ops_debug::reference
