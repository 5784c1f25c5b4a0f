// The error tensor as a short sum of rank-1 terms: which channel times which tile carries it.
#pragma once

#include <vector>

#include "analysis/compare/comparison.h"

namespace ops_debug::analysis {

// Terms of the magnitudes (square roots of the grid's squared errors, or of its failing elements
// where differences are not finite), largest first, at most three, each at least 2 % of the whole.
// Each is the best rank-1 approximation of what the terms before it left: the leading singular
// vectors of the unfoldings (Eigen) to begin with, then the higher-order power method (De
// Lathauwer, De Moor, Vandewalle, "On the best rank-1 and rank-(R1, ..., RN) approximation of
// higher-order tensors", SIAM J. Matrix Anal. Appl. 21, 2000, algorithm 3.2). A factor's peaks are
// empty where no quarter of its bins carries 80 % of it: the term does not say where on that axis.
// Empty if fewer than two axes have more than one bin.
std::vector<RankOneTerm> DecomposeErrors(const Comparison& comparison);

}  // namespace ops_debug::analysis
