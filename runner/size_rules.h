// What the name of an integer parameter says about its value, given the shapes of the inputs.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "runner/shape.h"

namespace ops_debug::runner {

enum class SizeRole : uint8_t {
  kUnknown,  // the name says nothing
  kM,        // M: rows of a matrix product, else rows
  kN,  // N, n: columns of a matrix product; beside M, columns; alone, elements if there is one
       // dimension
  kK,  // K: inner dimension of a matrix product
  kElements,  // size, count, numel, total, length: number of elements
  kRows,      // rows: the product of all dimensions but the last
  kColumns,   // cols, dim, hidden_size, stride, lda: the last dimension
  kHeight,    // the last dimension but one
  kWidth,     // the last dimension
  kChannels,  // the last dimension but two
  kBatch,     // the first of at least three dimensions
};

// Compared in lower case, without underscores.
SizeRole RoleOfName(std::string_view name);

struct NamedShape {
  std::string name;
  Shape shape;
};

// C (m x n) = A (m x k) * B (k x n).
struct MatrixProduct {
  int64_t m = 0, n = 0, k = 0;
};

class SizeRules {
 public:
  // `inputs` in the kernel's order; `roles` of all its integers. M, N and K together with two
  // matrices make a matrix product, if `allow_matrix_product`.
  SizeRules(std::vector<NamedShape> inputs, const std::set<SizeRole>& roles,
            bool allow_matrix_product);

  // 0: not sure, because the name says nothing or the inputs disagree.
  int64_t ValueOf(SizeRole role) const;
  // "--arg n=2048 (elements of in) or --arg n=32 (dimension 0 of in)": what `name` may be, to
  // choose from.
  std::string Candidates(std::string_view name) const;

  const std::optional<MatrixProduct>& matrix_product() const { return matrix_product_; }
  bool has_m() const { return has_m_; }
  // Why M, N and K make no matrix product though they should; empty if all is well.
  const std::string& problem() const { return problem_; }

 private:
  template <class Measure>
  int64_t Agreed(size_t rank, Measure measure) const;
  int64_t FromEnd(size_t place) const;

  std::vector<NamedShape> inputs_;
  bool has_m_ = false;
  std::optional<MatrixProduct> matrix_product_;
  std::string problem_;
};

}  // namespace ops_debug::runner
