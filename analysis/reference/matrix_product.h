// Dense products of float64 matrices, row-major, by Eigen.
#pragma once

#include <cstdint>

namespace ops_debug::reference {

// c (m x n) += alpha * op(a) * op(b), op(a) m x k. Transposed: stored as k x m, n x k.
struct MatrixShape {
  int64_t m = 0, n = 0, k = 0;
};
void MultiplyAdd(const MatrixShape& shape, double alpha, const double* a, bool transpose_a,
                 const double* b, bool transpose_b, double* c);

}  // namespace ops_debug::reference
