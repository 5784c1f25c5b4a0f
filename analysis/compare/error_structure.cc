// In the order in which one reads it: which axis, which term, which pattern.
#include "analysis/compare/error_structure.h"

#include <algorithm>
#include <cmath>

#include "analysis/compare/error_axes.h"
#include "analysis/compare/error_maps.h"
#include "analysis/compare/error_places.h"
#include "analysis/compare/error_sample.h"
#include "analysis/compare/error_terms.h"
#include "analysis/compare/error_values.h"

namespace ops_debug::analysis {
namespace {

constexpr size_t kMostHints = 6;
constexpr int64_t kFewElements = 4;
constexpr double kAlone = 0.9;  // of the squared error in one element

// A handful of elements is no pattern: their places are named.
bool FewElements(const Comparison& comparison, FoundPattern* found) {
  const WholeStatistics& whole = comparison.whole;
  if (comparison.worst.empty() || whole.count < 16) return false;
  found->hint.kind = "single-element";
  found->family = PatternFamily::kPlace;
  const std::string first = IndexText(comparison.worst.front().index);
  const double share = whole.l2 > 0 && std::isfinite(whole.l2)
                           ? std::min(1.0, whole.max_abs * whole.max_abs / (whole.l2 * whole.l2))
                           : 0;
  if (whole.failed <= kFewElements) {
    std::vector<std::vector<int64_t>> places;
    for (const Element& element : comparison.worst) {
      if (places.size() < static_cast<size_t>(whole.failed)) places.push_back(element.index);
    }
    std::sort(places.begin(), places.end());
    found->hint.text =
        places.size() == 1 ? "one element alone fails: " : "few elements alone fail: ";
    for (size_t i = 0; i < places.size(); ++i) {
      found->hint.text += (i == 0 ? "" : ", ") + IndexText(places[i]);
    }
    const auto& shape = comparison.shape;
    int64_t first = 0;
    for (size_t axis = 0; axis < shape.size(); ++axis) {
      first = first * shape[axis] + places[0][axis];
    }
    if (places.size() > 1 && first + whole.failed == whole.count) {
      found->hint.text += ", the last of memory order";
      if (first % 4 == 0) {
        found->hint.kind = "last-tile";
        found->hint.text += ": what is left behind full groups of 4";
      }
    }
    found->hint.evidence =
        std::to_string(whole.failed) + " of " + std::to_string(whole.count) + " elements fail";
    found->explained = found->hint.confidence = 1;
    return true;
  }
  // Those that are not finite on one side stand before it and have no square.
  if (share < kAlone || NotFiniteOnOneSide(whole) > 0) return false;
  found->hint.text = "one element outweighs all others: " + first;
  found->hint.evidence = PercentText(share) + " of the squared error, one of " +
                         std::to_string(whole.failed) + " failing elements";
  found->explained = found->hint.confidence = share;
  return true;
}

// A map or a factor that holds everywhere explains the places, too, unless all that fails lies
// there.
bool Explains(const FoundPattern& better, const FoundPattern& pattern) {
  if (better.explained < kAlone) return false;
  if (pattern.family == PatternFamily::kPlace) {
    return better.family != PatternFamily::kPlace &&
           (better.everywhere || better.hint.kind == "moved" || better.hint.kind == "shifted") &&
           pattern.failing_share < 0.9;
  }
  // Of a map and a value the one that explains more; a factor is the simpler of two equals.
  if (better.family == pattern.family || better.family == PatternFamily::kPlace) return false;
  const double lead = better.explained - pattern.explained;
  return lead > 0.02 || (lead >= -0.02 && better.family == PatternFamily::kValue);
}

std::vector<PatternHint> Choose(std::vector<FoundPattern> found) {
  // By whole percents: of equals the order of finding stays, maps before places before values.
  const auto percent = [](const FoundPattern& pattern) {
    return std::lround(pattern.explained * 100);
  };
  std::stable_sort(found.begin(), found.end(), [&](const FoundPattern& a, const FoundPattern& b) {
    return percent(a) > percent(b);
  });
  std::vector<PatternHint> hints;
  for (const FoundPattern& pattern : found) {
    const bool explained = std::any_of(found.begin(), found.end(), [&](const FoundPattern& other) {
      return &other != &pattern && Explains(other, pattern);
    });
    if (!explained && hints.size() < kMostHints) hints.push_back(pattern.hint);
  }
  return hints;
}

void Append(std::vector<FoundPattern> more, std::vector<FoundPattern>* found) {
  for (FoundPattern& pattern : more) found->push_back(std::move(pattern));
}

}  // namespace

void FindStructure(const proto::Tensor& candidate, const proto::Tensor& reference,
                   Comparison* comparison) {
  const Outcome outcome = comparison->verdict.outcome;
  if (outcome != Outcome::kPass && outcome != Outcome::kFail) return;
  if (candidate.shape != reference.shape || comparison->shape != reference.shape) return;
  if (!(comparison->whole.l2 > 0) && comparison->whole.failed == 0) return;
  RankChannels(comparison);
  comparison->terms = DecomposeErrors(*comparison);
  comparison->patterns.clear();
  // What passes differs by rounding: patterns of that would only mislead.
  if (comparison->whole.failed == 0 || candidate.data == nullptr || reference.data == nullptr)
    return;
  const TensorPair pair(candidate, reference, comparison->verdict.used);
  const std::vector<FailingElement> failing = SampleFailing(pair, *comparison);
  std::vector<FoundPattern> found;
  Append(FindMap(pair, *comparison, failing), &found);
  FoundPattern few;
  if (FewElements(*comparison, &few)) {
    Append({few}, &found);
  } else {
    Append(FindPlaces(pair, *comparison, failing), &found);
    Append(FindValuePatterns(*comparison, failing), &found);
  }
  comparison->patterns = Choose(std::move(found));
}

}  // namespace ops_debug::analysis
