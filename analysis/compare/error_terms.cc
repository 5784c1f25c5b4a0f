// The grid has at most kMostGridCells cells, so the smaller side of any unfolding has at most 256
// rows; each sweep of the power method reads the grid once per axis.
#include "analysis/compare/error_terms.h"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <numeric>

#include "analysis/compare/error_axes.h"

namespace ops_debug::analysis {
namespace {

constexpr int kMostTerms = 3;
constexpr double kLeastExplained = 0.02;
constexpr int kMostSweeps = 30;
constexpr double kPeakShare = 0.8, kPeakBins = 0.25;
constexpr size_t kMostPeaks = 8;

// A dense row-major tensor over the axes that have more than one bin.
struct Magnitudes {
  std::vector<size_t> axes;   // of the grid
  std::vector<size_t> sizes;  // bins of those
  std::vector<double> cells;
};

using Matrix = Eigen::MatrixXd;
using Vector = Eigen::VectorXd;

size_t InnerSize(const Magnitudes& tensor, size_t mode) {
  size_t inner = 1;
  for (size_t i = mode + 1; i < tensor.sizes.size(); ++i) inner *= tensor.sizes[i];
  return inner;
}

// Bins of `mode` as rows, all other axes folded into columns.
Matrix Unfold(const Magnitudes& tensor, size_t mode) {
  const size_t size = tensor.sizes[mode], inner = InnerSize(tensor, mode);
  const size_t outer = tensor.cells.size() / size / inner;
  Matrix unfolded(size, outer * inner);
  for (size_t o = 0; o < outer; ++o) {
    for (size_t s = 0; s < size; ++s) {
      for (size_t i = 0; i < inner; ++i) {
        unfolded(static_cast<Eigen::Index>(s), static_cast<Eigen::Index>(o * inner + i)) =
            tensor.cells[(o * size + s) * inner + i];
      }
    }
  }
  return unfolded;
}

// Of one sign if the first term is: it has one sign throughout (Perron-Frobenius); of the two, the
// positive one.
Vector Normalized(const Vector& vector, Eigen::Index size) {
  const double norm = vector.norm();
  if (!(norm > 0)) return Vector::Constant(size, 1 / std::sqrt(static_cast<double>(size)));
  return vector / (vector.sum() < 0 ? -norm : norm);
}

// Only where the power method begins: large matrices are iterated a few times (Golub and Van Loan,
// Matrix Computations, 7.3.1), small ones solved.
Vector LeadingSingularVector(const Matrix& matrix) {
  constexpr Eigen::Index kSmall = 32;
  constexpr int kIterations = 8;
  if (std::min(matrix.rows(), matrix.cols()) > kSmall) {
    Vector vector = Normalized(matrix.rowwise().norm(), matrix.rows());
    for (int i = 0; i < kIterations; ++i)
      vector = Normalized(matrix * (matrix.transpose() * vector), matrix.rows());
    return vector;
  }
  const bool tall = matrix.rows() > matrix.cols();
  const Matrix gram =
      tall ? Matrix(matrix.transpose() * matrix) : Matrix(matrix * matrix.transpose());
  const Eigen::SelfAdjointEigenSolver<Matrix> solver(gram);
  Vector vector = solver.eigenvectors().col(gram.cols() - 1);
  if (tall) vector = matrix * vector;
  return Normalized(vector, matrix.rows());
}

// The tensor times all factors but `mode`'s.
Vector Contract(const Magnitudes& tensor, const std::vector<Vector>& factors, size_t mode) {
  std::vector<double> cells = tensor.cells;
  size_t left = cells.size();
  // From the last axis to the first: always the innermost, or the one above `mode`.
  size_t inner = 1;
  for (size_t axis = tensor.sizes.size(); axis-- > 0;) {
    const size_t size = tensor.sizes[axis];
    if (axis == mode) {
      inner = size;
      continue;
    }
    const size_t outer = left / size / inner;
    for (size_t o = 0; o < outer; ++o) {
      for (size_t i = 0; i < inner; ++i) {
        double sum = 0;
        for (size_t s = 0; s < size; ++s) {
          sum += cells[(o * size + s) * inner + i] * factors[axis][static_cast<Eigen::Index>(s)];
        }
        cells[o * inner + i] = sum;
      }
    }
    left /= size;
  }
  return Eigen::Map<const Vector>(cells.data(), static_cast<Eigen::Index>(left));
}

double BestRankOne(const Magnitudes& tensor, std::vector<Vector>* factors) {
  // The sweep computes the first axis' factor from the others.
  factors->assign(1, Vector());
  for (size_t mode = 1; mode < tensor.sizes.size(); ++mode) {
    factors->push_back(LeadingSingularVector(Unfold(tensor, mode)));
  }
  double weight = 0;
  for (int sweep = 0; sweep < kMostSweeps; ++sweep) {
    const double before = weight;
    for (size_t mode = 0; mode < tensor.sizes.size(); ++mode) {
      const Vector contracted = Contract(tensor, *factors, mode);
      weight = contracted.norm();
      if (!(weight > 0)) return 0;
      (*factors)[mode] = contracted / weight;
    }
    if (weight - before <= 1e-9 * weight) break;
  }
  return weight;
}

void Subtract(const std::vector<Vector>& factors, double weight, Magnitudes* tensor) {
  for (size_t cell = 0; cell < tensor->cells.size(); ++cell) {
    double product = weight;
    size_t rest = cell;
    for (size_t mode = tensor->sizes.size(); mode-- > 0;) {
      product *= factors[mode][static_cast<Eigen::Index>(rest % tensor->sizes[mode])];
      rest /= tensor->sizes[mode];
    }
    tensor->cells[cell] -= product;
  }
}

std::vector<int64_t> Peaks(const Vector& values, int64_t bin) {
  std::vector<Eigen::Index> order(static_cast<size_t>(values.size()));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](Eigen::Index a, Eigen::Index b) {
    return std::abs(values[a]) > std::abs(values[b]);
  });
  std::vector<int64_t> peaks;
  double share = 0;
  for (const Eigen::Index i : order) {
    peaks.push_back(i * bin);
    share += values[i] * values[i];
    if (share >= kPeakShare) break;
  }
  const double most = std::max(1.0, kPeakBins * static_cast<double>(values.size()));
  if (static_cast<double>(peaks.size()) > most || values.size() < 2) return {};
  if (peaks.size() > kMostPeaks) peaks.resize(kMostPeaks);
  return peaks;
}

Magnitudes MagnitudesOf(const Comparison& comparison) {
  const ErrorGrid& grid = comparison.grid;
  Magnitudes tensor;
  for (size_t axis = 0; axis < grid.bins.size(); ++axis) {
    if (grid.bins[axis] < 2) continue;
    tensor.axes.push_back(axis);
    tensor.sizes.push_back(static_cast<size_t>(grid.bins[axis]));
  }
  const bool failed = MeasureOf(comparison.whole) == Measure::kFailed;
  double largest = 0;
  for (size_t i = 0; i < grid.squared_error.size(); ++i) {
    const double mass = failed ? static_cast<double>(grid.failed[i]) : grid.squared_error[i];
    tensor.cells.push_back(std::isfinite(mass) && mass > 0 ? std::sqrt(mass) : 0);
    largest = std::max(largest, tensor.cells.back());
  }
  // Weights are relative to the largest cell only while computing: squares must not overflow.
  if (!(largest > 0)) tensor.cells.clear();
  return tensor;
}

}  // namespace

std::vector<RankOneTerm> DecomposeErrors(const Comparison& comparison) {
  const ErrorGrid& grid = comparison.grid;
  Magnitudes tensor = MagnitudesOf(comparison);
  if (tensor.sizes.size() < 2 || tensor.cells.empty()) return {};
  const double scale = *std::max_element(tensor.cells.begin(), tensor.cells.end());
  for (double& cell : tensor.cells) cell /= scale;
  const double total =
      std::inner_product(tensor.cells.begin(), tensor.cells.end(), tensor.cells.begin(), 0.0);
  std::vector<RankOneTerm> terms;
  for (int i = 0; i < kMostTerms; ++i) {
    std::vector<Vector> factors;
    const double weight = BestRankOne(tensor, &factors);
    if (weight * weight < kLeastExplained * total) break;
    RankOneTerm term;
    term.weight = weight * scale;
    term.explained = weight * weight / total;
    for (size_t mode = 0; mode < tensor.axes.size(); ++mode) {
      const int64_t bin = grid.bin_sizes[tensor.axes[mode]];
      const Vector& values = factors[mode];
      term.factors.push_back({static_cast<uint32_t>(tensor.axes[mode]), bin,
                              std::vector<double>(values.begin(), values.end()),
                              Peaks(values, bin)});
    }
    terms.push_back(std::move(term));
    Subtract(factors, weight, &tensor);
  }
  return terms;
}

}  // namespace ops_debug::analysis
