// Scaled dot-product attention: softmax(q k^T * scale + mask) v over the last two dimensions
// (Vaswani et al. 2017, equation 1), with the leading dimensions as batch.
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "analysis/reference/matrix_product.h"
#include "analysis/reference/operator.h"

namespace ops_debug::reference {
namespace {

constexpr size_t kQuery = 0, kKey = 1, kValue = 2, kMask = 3;
constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

struct Sizes {
  int64_t batch = 1, rows = 1, keys = 1, depth = 1, value_depth = 1;
  double scale = 1;
  bool causal = false;
};

Sizes SizesOf(const Plan& plan) {
  const Shape& query = *plan.inputs[kQuery];
  Sizes sizes;
  sizes.rows = query[query.size() - 2];
  sizes.depth = query.back();
  sizes.keys = (*plan.inputs[kKey])[query.size() - 2];
  sizes.value_depth = plan.inputs[kValue]->back();
  for (size_t i = 0; i + 2 < query.size(); ++i) sizes.batch *= query[i];
  sizes.scale = plan.attributes.Has("scale") ? plan.attributes.Real("scale")
                                             : 1 / std::sqrt(static_cast<double>(sizes.depth));
  sizes.causal = plan.attributes.Flag("causal");
  return sizes;
}

absl::Status MakePlan(Plan& plan) {
  const Shape& query = *plan.inputs[kQuery];
  if (query.size() < 2) return BadShape("attention", "query needs at least two dimensions");
  if (!plan.inputs[kKey]) plan.inputs[kKey] = query;
  if (!plan.inputs[kValue]) plan.inputs[kValue] = plan.inputs[kKey];
  const Shape& key = *plan.inputs[kKey];
  const Shape& value = *plan.inputs[kValue];
  const size_t rank = query.size();
  const bool leading = key.size() == rank && value.size() == rank &&
                       std::equal(query.begin(), query.end() - 2, key.begin()) &&
                       std::equal(query.begin(), query.end() - 2, value.begin());
  if (!leading || key.back() != query.back() || value[rank - 2] != key[rank - 2]) {
    return BadShape("attention",
                    absl::StrCat("query ", ShapeText(query), ", key ", ShapeText(key),
                                 " and value ", ShapeText(value),
                                 " do not belong together: (..., L, E), (..., S, E), (..., S, V)"));
  }
  Shape scores = query, common;
  scores.back() = key[rank - 2];
  if (plan.inputs[kMask] &&
      (!Broadcast(scores, *plan.inputs[kMask], &common) || common != scores)) {
    return BadShape("attention", absl::StrCat("mask is ", ShapeText(*plan.inputs[kMask]),
                                              ", which does not broadcast to ", ShapeText(scores)));
  }
  Shape output = query;
  output.back() = value.back();
  plan.outputs = {output};
  return absl::OkStatus();
}

// What is added to the scores, of all batches; empty: nothing.
std::vector<double> MaskOf(const Plan& plan, const Evaluation& evaluation, const Sizes& sizes) {
  if (!evaluation.inputs[kMask]) return {};
  Shape scores = *plan.inputs[kQuery];
  scores.back() = sizes.keys;
  Array mask = Expand(*evaluation.inputs[kMask], scores);
  if (plan.attributes.Flag("mask_keeps")) {  // boolean: 1 takes part, 0 does not
    for (double& value : mask.values) value = value != 0 ? 0 : kMinusInfinity;
  }
  return std::move(mask.values);
}

// The probabilities of one batch.
std::vector<double> Probabilities(const Sizes& sizes, const double* query, const double* key,
                                  const double* mask) {
  std::vector<double> scores(static_cast<size_t>(sizes.rows * sizes.keys), 0.0);
  MultiplyAdd({sizes.rows, sizes.keys, sizes.depth}, sizes.scale, query, false, key, true,
              scores.data());
  for (int64_t row = 0; row < sizes.rows; ++row) {
    double* s = scores.data() + row * sizes.keys;
    double largest = kMinusInfinity, sum = 0;
    for (int64_t i = 0; i < sizes.keys; ++i) {
      if (mask != nullptr) s[i] += mask[row * sizes.keys + i];
      if (sizes.causal && i > row) s[i] = kMinusInfinity;
      largest = std::isnan(s[i]) ? s[i] : std::max(largest, s[i]);
    }
    for (int64_t i = 0; i < sizes.keys; ++i) sum += s[i] = std::exp(s[i] - largest);
    for (int64_t i = 0; i < sizes.keys; ++i) s[i] /= sum;
  }
  return scores;
}

struct Batch {
  const double *query, *key, *value, *mask;
  int64_t query_offset, key_offset, value_offset, output_offset;
};

Batch BatchOf(const Sizes& sizes, const Evaluation& evaluation, const std::vector<double>& mask,
              int64_t n) {
  Batch batch;
  batch.query_offset = n * sizes.rows * sizes.depth;
  batch.key_offset = n * sizes.keys * sizes.depth;
  batch.value_offset = n * sizes.keys * sizes.value_depth;
  batch.output_offset = n * sizes.rows * sizes.value_depth;
  batch.query = evaluation.inputs[kQuery]->data() + batch.query_offset;
  batch.key = evaluation.inputs[kKey]->data() + batch.key_offset;
  batch.value = evaluation.inputs[kValue]->data() + batch.value_offset;
  batch.mask = mask.empty() ? nullptr : mask.data() + n * sizes.rows * sizes.keys;
  return batch;
}

absl::Status Compute(const Plan& plan, Evaluation& evaluation) {
  const Sizes sizes = SizesOf(plan);
  const std::vector<double> mask = MaskOf(plan, evaluation, sizes);
  for (int64_t n = 0; n < sizes.batch; ++n) {
    const Batch batch = BatchOf(sizes, evaluation, mask, n);
    const std::vector<double> p = Probabilities(sizes, batch.query, batch.key, batch.mask);
    MultiplyAdd({sizes.rows, sizes.value_depth, sizes.keys}, 1, p.data(), false, batch.value, false,
                evaluation.outputs[0].data() + batch.output_offset);
  }
  return absl::OkStatus();
}

// dV = P^T G, dP = G V^T, dS = P (dP - rowsum(dP P)), dQ = scale dS K, dK = scale dS^T Q (Dao et
// al. 2022, appendix B.2).
absl::Status Differentiate(const Plan& plan, Evaluation& evaluation) {
  const Sizes s = SizesOf(plan);
  const std::vector<double> mask = MaskOf(plan, evaluation, s);
  auto& gradients = evaluation.gradients;
  Shape scores_shape = *plan.inputs[kQuery];
  scores_shape.back() = s.keys;
  Array all_scores = gradients[kMask] ? Array::Zeros(scores_shape) : Array();
  for (int64_t n = 0; n < s.batch; ++n) {
    const Batch batch = BatchOf(s, evaluation, mask, n);
    const double* g = evaluation.cotangents[0].data() + batch.output_offset;
    const std::vector<double> p = Probabilities(s, batch.query, batch.key, batch.mask);
    std::vector<double> d(p.size(), 0.0);
    MultiplyAdd({s.rows, s.keys, s.value_depth}, 1, g, false, batch.value, true, d.data());
    for (int64_t row = 0; row < s.rows; ++row) {
      const size_t begin = static_cast<size_t>(row * s.keys),
                   end = begin + static_cast<size_t>(s.keys);
      double sum = 0;
      for (size_t i = begin; i < end; ++i) sum += d[i] * p[i];
      for (size_t i = begin; i < end; ++i) d[i] = p[i] * (d[i] - sum);
    }
    if (gradients[kValue]) {
      MultiplyAdd({s.keys, s.value_depth, s.rows}, 1, p.data(), true, g, false,
                  gradients[kValue]->data() + batch.value_offset);
    }
    if (gradients[kQuery]) {
      MultiplyAdd({s.rows, s.depth, s.keys}, s.scale, d.data(), false, batch.key, false,
                  gradients[kQuery]->data() + batch.query_offset);
    }
    if (gradients[kKey]) {
      MultiplyAdd({s.keys, s.depth, s.rows}, s.scale, d.data(), true, batch.query, false,
                  gradients[kKey]->data() + batch.key_offset);
    }
    if (gradients[kMask]) std::copy(d.begin(), d.end(), all_scores.data() + n * s.rows * s.keys);
  }
  if (gradients[kMask]) gradients[kMask] = SumTo(all_scores, gradients[kMask]->shape);
  return absl::OkStatus();
}

}  // namespace

void AddAttention(std::vector<Operator>* operators) {
  operators->push_back(
      {.name = "attention",
       .summary = "softmax(query key^T * scale + mask) value (Vaswani et al. 2017); scale "
                  "1/sqrt(depth); mask_keeps: mask is 1 where a key takes part",
       .inputs = {{"query"}, {"key"}, {"value"}, {.name = "mask", .optional = true}},
       .attributes = {{"scale", AttributeKind::kReal, nullptr},
                      {"causal", AttributeKind::kFlag, false},
                      {"mask_keeps", AttributeKind::kFlag, false}},
       .plan = MakePlan,
       .compute = Compute,
       .differentiate = Differentiate});
}

}  // namespace ops_debug::reference
