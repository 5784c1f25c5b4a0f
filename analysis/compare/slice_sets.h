// Regular sets of an axis' slices that carry the error: every k-th, a run, a few single ones.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

#include "analysis/compare/error_sample.h"

namespace ops_debug::analysis {

// What makes a set a pattern: its share of the error, how much denser the error is in it than
// outside, and that the evidence outweighs the number of sets looked at.
struct SetLimits {
  double share = 0.8, lift = 10;
};

struct Strength {
  double share = 0, fraction = 0, taking = 0, effective = 0;
  int64_t members = 0;
  // Squared error over squared reference inside, over the same outside: 1 where errors are larger
  // only because the values are.
  double relative_lift = 0;
  // Logarithm of how much likelier the shares are if the set matters than if errors fall anywhere.
  double evidence = 0;

  double Fit() const { return share * taking; }
};

struct Period {
  int64_t period = 0, offset = 0, width = 0;  // residues offset .. offset + width - 1, cyclic
  Strength strength;
};

struct Range {
  std::vector<int64_t> indices;  // single ones; else the run from begin to end, exclusive
  int64_t begin = 0, end = 0;
  Strength strength;
};

std::optional<Period> FindPeriod(const Profile& profile, const SetLimits& limits);
std::optional<Range> FindRange(const Profile& profile, const SetLimits& limits);

}  // namespace ops_debug::analysis
