#include "analysis/compare/error_places.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <string>

#include "analysis/compare/place_words.h"
#include "analysis/compare/slice_sets.h"

namespace ops_debug::analysis {
namespace {

constexpr SetLimits kAlone = {};
// Of two axes whose sets together carry the error: the borders of an image, the edges of tiles.
constexpr SetLimits kJoint = {0.2, 3};
constexpr int64_t kNeighbours = 4;

std::string Evidence(const Profile& profile, const Strength& strength, Measure measure) {
  std::string text = PercentText(strength.share);
  text += measure == Measure::kFailed ? " of the failing elements" : " of the squared error";
  text += " in " + PercentText(strength.fraction) + " of the elements";
  if (!profile.complete) text += ", of a sample of " + std::to_string(profile.slices.size());
  return text;
}

// Where between `right` (no error there) and `wrong` (error there) the errors begin. The errors are
// taken to fill the run: of a few neighbours one fails.
int64_t Boundary(const TensorPair& pair, const std::vector<FailingElement>& failing, size_t axis,
                 int64_t right, int64_t wrong) {
  const int64_t step = right < wrong ? 1 : -1;
  const size_t stride = std::max<size_t>(failing.size() / 8, 1);
  const auto fails_at = [&](int64_t position, int64_t neighbours) {
    for (size_t i = 0; i < failing.size(); i += stride) {
      std::vector<int64_t> index = failing[i].index;
      for (int64_t near = 0; near < neighbours; ++near) {
        index[axis] = position + near * step;
        if ((wrong - index[axis]) * step < 0) break;
        if (pair.Fails(pair.Candidate(index), pair.Reference(index))) return true;
      }
    }
    return false;
  };
  while ((wrong - right) * step > 1) {
    const int64_t middle = right + (wrong - right) / 2;
    (fails_at(middle, kNeighbours) ? wrong : right) = middle;
  }
  // One of the neighbours failed: which?
  for (int64_t i = 1; i < kNeighbours && !fails_at(wrong, 1); ++i) wrong += step;
  return wrong;
}

// Runs of a binned axis end somewhere inside a bin.
void Refine(const TensorPair& pair, const std::vector<FailingElement>& failing, const Axis& axis,
            Range* range) {
  int64_t first = axis.size, last = -1;
  for (const FailingElement& element : failing) {
    const int64_t index = element.index[axis.axis];
    if (index < range->begin || index >= range->end) continue;
    first = std::min(first, index);
    last = std::max(last, index);
  }
  if (last < 0) return;
  const int64_t before = std::max<int64_t>(range->begin - axis.bin - 1, -1);
  const int64_t behind = std::min(range->end + axis.bin, axis.size);
  range->begin = Boundary(pair, failing, axis.axis, before, first);
  range->end = Boundary(pair, failing, axis.axis, behind, last) + 1;
}

// A set of slices of one axis.
struct Place {
  FoundPattern pattern;
  Strength strength;
  std::function<bool(int64_t)> holds;  // whether an index is in the set
};

class PlaceFinder {
 public:
  PlaceFinder(const TensorPair& pair, const Comparison& comparison,
              const std::vector<FailingElement>& failing)
      : pair_(pair), comparison_(comparison), failing_(failing) {
    for (const Axis& axis : comparison.axes) {
      if (axis.size < 2 || axis.channels.empty()) continue;
      axes_.push_back(&axis);
      innermost_ = static_cast<int>(axis.axis);
    }
  }

  std::vector<FoundPattern> Find() const {
    const Measure measure = MeasureOf(comparison_.whole);
    std::vector<Place> places;
    for (const Axis* axis : axes_) {
      std::optional<Place> place = OnAxis(*axis, measure, kAlone);
      // One huge error can outweigh a regular rest.
      if (!place && measure == Measure::kSquaredError) {
        place = OnAxis(*axis, Measure::kFailed, kAlone);
      }
      if (place) places.push_back(*std::move(place));
    }
    std::vector<FoundPattern> found;
    double fraction = 1;  // of the elements that lie in all places
    for (Place& place : places) {
      fraction *= place.strength.fraction;
      found.push_back(std::move(place.pattern));
    }
    if (axes_.size() < 2) return found;
    if (found.empty()) {
      if (std::optional<FoundPattern> joint = Joint(measure)) return {*std::move(joint)};
    }
    // What memory order shows counts only if it is narrower than what the axes show together.
    if (std::optional<Place> place = InMemoryOrder(measure, fraction)) return {place->pattern};
    return found;
  }

 private:
  std::optional<Place> OnAxis(const Axis& axis, Measure measure, const SetLimits& limits) const {
    const bool complete = axis.bin == 1;
    const Profile profile =
        complete ? ProfileOfChannels(axis, measure)
                 : ProfileOfWindows(pair_, failing_, static_cast<int>(axis.axis), measure);
    if (const auto period = FindPeriod(profile, limits)) return PlaceOf(*period, profile, measure);
    if (complete) {
      const auto range = FindRange(profile, limits);
      return range ? PlaceOf(*range, profile, measure) : std::nullopt;
    }
    Axis binned = axis;
    binned.bin = 1;  // its bins taken as slices
    const Profile coarse = ProfileOfChannels(binned, measure);
    auto range = FindRange(coarse, limits);
    if (!range || !range->indices.empty()) return std::nullopt;
    Refine(pair_, failing_, axis, &*range);
    return PlaceOf(*range, coarse, measure);
  }

  std::optional<Place> InMemoryOrder(Measure measure, double fraction) const {
    const Profile profile = ProfileOfWindows(pair_, failing_, kMemoryOrder, measure);
    if (const auto period = FindPeriod(profile, kAlone)) {
      if (period->strength.fraction > 0.5 * fraction) return std::nullopt;
      return PlaceOf(*period, profile, measure);
    }
    if (failing_.size() < 2) return std::nullopt;
    // Failing elements that fill the run from the first to the last of them; the sample may have
    // missed a few at either end.
    const int64_t first = pair_.reference().Ravel(failing_.front().index);
    const int64_t last = pair_.reference().Ravel(failing_.back().index);
    const auto spanned = static_cast<double>(last - first + 1);
    const auto failed = static_cast<double>(comparison_.whole.failed);
    const auto count = static_cast<double>(comparison_.whole.count);
    if (failed < 0.9 * spanned || failed > 1.1 * spanned || spanned > 0.9 * fraction * count ||
        spanned > 0.5 * count) {
      return std::nullopt;
    }
    Range range{{}, first, last + 1, {}};
    range.strength.share = range.strength.taking = 1;
    range.strength.fraction = spanned / count;
    range.strength.effective = failed;
    const Profile whole{kMemoryOrder, comparison_.whole.count, true, {}};
    return PlaceOf(range, whole, Measure::kFailed);
  }

  // Sets of several axes, none of which carries the error alone.
  std::optional<FoundPattern> Joint(Measure measure) const {
    std::vector<Place> places;
    double outside = 1;
    for (const Axis* axis : axes_) {
      if (axis->bin != 1) continue;
      if (auto place = OnAxis(*axis, measure, kJoint)) {
        outside *= 1 - place->strength.fraction;
        places.push_back(*std::move(place));
      }
    }
    if (places.size() < 2 || failing_.empty()) return std::nullopt;
    const auto inside = std::count_if(failing_.begin(), failing_.end(), [&](const auto& element) {
      return std::any_of(places.begin(), places.end(), [&](const Place& place) {
        return place.holds(element.index[static_cast<size_t>(place.pattern.axis)]);
      });
    });
    const double share = static_cast<double>(inside) / static_cast<double>(failing_.size());
    const double fraction = 1 - outside;
    if (share < 0.9 || share * outside < kAlone.lift * (1 - share) * fraction) return std::nullopt;
    FoundPattern joint = places.front().pattern;
    for (size_t i = 1; i < places.size(); ++i) {
      joint.hint.text += ", and " + places[i].pattern.hint.text;
      if (places[i].pattern.hint.kind != joint.hint.kind) joint.hint.kind = "run";
    }
    joint.explained = joint.failing_share = share;
    joint.hint.evidence = PercentText(share) + " of " + std::to_string(failing_.size()) +
                          " failing elements looked at lie in " + PercentText(fraction) +
                          " of the elements";
    joint.hint.confidence = share * (1 - std::exp(-static_cast<double>(failing_.size()) / 16));
    return joint;
  }

  std::optional<Place> PlaceOf(const Period& period, const Profile& profile,
                               Measure measure) const {
    return PlaceOf(
        period.strength, profile, measure,
        NamePeriod(period, profile.axis, Innermost(profile.axis)), [period](int64_t index) {
          const int64_t residue = index % period.period;
          const int64_t end = period.offset + period.width;
          return (residue >= period.offset && residue < end) || residue + period.period < end;
        });
  }

  std::optional<Place> PlaceOf(const Range& range, const Profile& profile, Measure measure) const {
    return PlaceOf(range.strength, profile, measure,
                   NameRange(range, profile.axis, profile.size, Innermost(profile.axis)),
                   [range](int64_t index) {
                     if (range.indices.empty()) return index >= range.begin && index < range.end;
                     return std::binary_search(range.indices.begin(), range.indices.end(), index);
                   });
  }

  std::optional<Place> PlaceOf(const Strength& strength, const Profile& profile, Measure measure,
                               const PatternHint& hint, std::function<bool(int64_t)> holds) const {
    const double failing_share = FailingShare(profile.axis, holds);
    const bool alone = strength.share >= kAlone.share;
    // Elements fail elsewhere, too, and where the error is large the values are: no pattern.
    if (alone && failing_share < 0.9 && strength.relative_lift < kAlone.lift) return std::nullopt;
    Place place{{}, strength, std::move(holds)};
    FoundPattern& pattern = place.pattern;
    pattern.hint = hint;
    pattern.family = PatternFamily::kPlace;
    pattern.axis = profile.axis;
    pattern.explained = strength.share;
    pattern.failing_share = failing_share;
    if (alone && failing_share < 0.9) {
      pattern.hint.text += "; elsewhere elements fail, too, by far less";
    }
    pattern.hint.evidence = Evidence(profile, strength, measure);
    const double weight = 1 - std::exp(-strength.effective / 4);
    pattern.hint.confidence = strength.share * strength.taking * weight;
    return place;
  }

  double FailingShare(int axis, const std::function<bool(int64_t)>& holds) const {
    if (failing_.empty()) return 1;
    const auto inside = std::count_if(failing_.begin(), failing_.end(), [&](const auto& element) {
      return holds(axis == kMemoryOrder ? pair_.reference().Ravel(element.index)
                                        : element.index[static_cast<size_t>(axis)]);
    });
    return static_cast<double>(inside) / static_cast<double>(failing_.size());
  }

  bool Innermost(int axis) const { return axis == kMemoryOrder || axis == innermost_; }

  const TensorPair& pair_;
  const Comparison& comparison_;
  const std::vector<FailingElement>& failing_;
  std::vector<const Axis*> axes_;  // longer than 1
  int innermost_ = 0;
};

}  // namespace

std::vector<FoundPattern> FindPlaces(const TensorPair& pair, const Comparison& comparison,
                                     const std::vector<FailingElement>& failing) {
  return PlaceFinder(pair, comparison, failing).Find();
}

}  // namespace ops_debug::analysis
