// How far one tensor is from another, in layers: the whole, the worst elements, the distribution,
// the place, the channel, the structure. Plain data; compare.h fills it in one pass over memory,
// error_structure.h reads structure out of what that pass gathered, comparison_text.h and
// comparison_json.h print it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "proto/tensor.h"

namespace ops_debug::analysis {

// An element passes if |candidate - reference| <= atol + rtol * |reference|, or both are NaN, or
// the same infinity (torch.testing.assert_close with equal_nan). Complex numbers by their modulus.
struct Tolerance {
  double rtol = 0, atol = 0;
};
// torch.testing's defaults for the less precise of two types; 0, 0 for integers and bool.
Tolerance DefaultTolerance(proto::DType candidate, proto::DType reference);

struct CompareOptions {
  std::optional<double> rtol, atol;  // unset: DefaultTolerance
  uint32_t worst_count = 10;
  uint32_t heat_rows = 32, heat_columns = 64;  // at most; of the last two dimensions that are not
                                               // 1, the others folded into rows
  uint32_t threads = 0;                        // 0: all processors
};

// Sums are in float64 over the elements that are finite on both sides.
struct WholeStatistics {
  int64_t count = 0;                                           // elements
  int64_t finite = 0;                                          // on both sides
  int64_t nan_candidate = 0, nan_reference = 0, nan_both = 0;  // both: at the same position
  int64_t inf_candidate = 0, inf_reference = 0, inf_both = 0;  // both: same sign
  int64_t equal = 0;                                           // bit for bit (or both zero)
  int64_t failed = 0;                                          // do not pass the tolerance
  double min_candidate = 0, max_candidate = 0, mean_candidate = 0;
  double min_reference = 0, max_reference = 0, mean_reference = 0;
  double l1 = 0, l2 = 0;   // of the difference
  double relative_l2 = 0;  // l2 / l2 of the reference; infinity if only the latter is 0
  double cosine = 0;       // 1 if both are 0
  double sqnr_db = 0;      // 10 log10(sum reference^2 / sum difference^2); infinity if equal
  double max_abs = 0, max_rel = 0, rmse = 0;
  double mean_error = 0;  // signed: candidate - reference
  // Least squares candidate = factor * reference + offset, and what is left (relative to the
  // difference's l2).
  double factor = 1, offset = 0, left_after_fit = 1;
};

struct Element {
  std::vector<int64_t> index;
  double candidate = 0,
         reference = 0;  // real part of complex numbers; NaN and infinities as they are
  double candidate_imag = 0, reference_imag = 0;
  double abs_error = 0, rel_error = 0;
  double ulps = 0;  // in the less precise of the two types; infinity if one side is not finite
};

// ulps[0]: equal; ulps[i]: distances in [2^(i-1), 2^i); the last: at least that, or not finite on
// one side. decades[0]: relative error 0; decades[i]: [10^(i-18), 10^(i-17)); the last: at least
// 10, or not finite.
struct Histograms {
  std::array<int64_t, 34> ulps{};
  std::array<int64_t, 20> decades{};
};

// Down-sampled by maximum so that nothing hides: cell (r, c) is the largest |difference| of its
// tile; infinity where exactly one side is not finite.
struct HeatMap {
  uint32_t rows = 0, columns = 0;
  uint64_t tile_rows = 0, tile_columns = 0;  // of the folded matrix
  std::vector<int64_t> folded_shape;         // rows x columns of the folded matrix
  std::string axes;                          // "dims 0,1,2 x dim 3"
  std::vector<double> cells;                 // row-major
};

// Sums of one slice: index `index` of axis `axis`.
struct Channel {
  int64_t index = 0;
  double squared_error = 0, squared_reference = 0, max_abs = 0;
  int64_t failed = 0, count = 0;
};
struct Axis {
  uint32_t axis = 0;
  int64_t size = 0;
  int64_t bin = 1;  // slices per entry of `channels`: more than kMostChannels are binned
  std::vector<Channel> channels;  // in order of index (first slice of the bin)
  std::vector<uint32_t> ranked;   // positions in `channels`, worst first, as far as they stand out
  double explained = 0;  // share of the squared error's variation that this axis explains: 1 -
                         // within/total (one-way ANOVA)
};
constexpr int64_t kMostChannels = 4096;

// error ~ sum over terms of weight * outer(u_0, u_1, ...): by SVD of unfoldings of the error
// magnitudes on a grid of tiles.
struct RankOneTerm {
  double weight = 0;
  double explained = 0;  // share of the squared (binned) error
  struct Factor {
    uint32_t axis = 0;
    int64_t bin = 1;             // slices per entry
    std::vector<double> values;  // one per bin, unit norm
    std::vector<int64_t> peaks;  // indices (first slice of the bin) that carry it, largest first
  };
  std::vector<Factor> factors;
};

// The binned error tensor that the structure is read from: sums of squared differences, row-major
// over `bins`.
struct ErrorGrid {
  std::vector<int64_t> bins;       // bins per axis
  std::vector<int64_t> bin_sizes;  // slices per bin
  std::vector<double> squared_error;
  std::vector<int64_t> failed;
};
constexpr int64_t kMostGridCells = 1 << 16;

// "every 16th element of dim 1 from 3", "last 5 columns", "transposed", "factor 0.5", ...
struct PatternHint {
  std::string kind;  // "periodic", "tile-edge", "last-tile", "warp-lanes", "transposed", "shifted",
                     // "factor", "offset", "swapped-halves", "channel"
  std::string text;  // one sentence
  std::string evidence;   // numbers: "98.2 % of the squared error in 1.6 % of the elements"
  double confidence = 0;  // 0..1
};

enum class Outcome : uint8_t {
  kPass,
  kFail,
  kShapeMismatch,
  kDtypeMismatch,   // of classes that cannot be compared (complex against real, bool against float)
  kNothingCompared  // no element, or all NaN on both sides: said, not called right
};

struct Verdict {
  Outcome outcome = Outcome::kPass;
  std::string text;  // one sentence
  Tolerance used;
  bool defaults = true;  // torch.testing's
  // The smallest rtol that passes with the atol used, and the smallest atol with the rtol used;
  // unset if none does.
  std::optional<double> passing_rtol, passing_atol;
  // Elements that fail only because the reference is tiny (|reference| < small_value): judged by
  // absolute error alone in `failed_without_small`.
  double small_value = 0;
  int64_t failed_without_small = 0;
  // Candidate's error over a trusted low-precision implementation's, both against float64 (relative
  // L2); unset: not asked.
  std::optional<double> dual_ratio;
};

struct Comparison {
  std::string name;
  proto::DType candidate_dtype{}, reference_dtype{};
  std::vector<int64_t> shape;
  WholeStatistics whole;
  std::vector<Element> worst;           // by abs error, those not finite on one side first
  std::vector<Element> worst_relative;  // by relative error
  Histograms histograms;
  HeatMap heat;
  std::vector<Axis> axes;
  ErrorGrid grid;
  std::vector<RankOneTerm> terms;  // error_structure.h
  std::vector<PatternHint> patterns;
  Verdict verdict;
};

}  // namespace ops_debug::analysis
