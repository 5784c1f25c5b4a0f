// A period is found by folding the slices of an axis by it: the residues that carry the error must
// be one run of neighbours. Only the true period passes: a divisor of it takes in slices that have
// no error, a multiple folds into several runs.
#include "analysis/compare/slice_sets.h"

#include <algorithm>
#include <cmath>

namespace ops_debug::analysis {
namespace {

constexpr double kLeastTaking = 0.8, kMostFraction = 0.95;
constexpr double kLeastEffective = 1.5;
constexpr double kLeastEvidence = 5;
constexpr double kLeastElements = 16;
constexpr int64_t kMostPeriod = 1024;
constexpr size_t kMostSingle = 8;
// Below this part of the largest density all is the same silence.
constexpr double kFloor = 1e-4;

// The upper side of the widest gap between the logarithms of densities; empty if the gap is less
// than a factor of three.
std::vector<bool> Elevated(const std::vector<double>& densities) {
  std::vector<bool> elevated;
  const auto [least, most] = std::minmax_element(densities.begin(), densities.end());
  const double largest = *most;
  if (!(largest > 0) || *least * 3 >= largest) return elevated;
  std::vector<double> logs;
  for (const double density : densities)
    logs.push_back(std::log(std::max(density / largest, kFloor)));
  std::vector<double> sorted = logs;
  std::sort(sorted.begin(), sorted.end());
  double gap = std::log(3.0), threshold = 0;
  bool found = false;
  for (size_t i = 1; i < sorted.size(); ++i) {
    if (sorted[i] - sorted[i - 1] <= gap) continue;
    gap = sorted[i] - sorted[i - 1];
    threshold = sorted[i];
    found = true;
  }
  if (!found) return elevated;
  for (const double value : logs) elevated.push_back(value >= threshold);
  return elevated;
}

// Kullback-Leibler divergence of (share, 1 - share) from (fraction, 1 - fraction): times the number
// of independent errors, the logarithm of the likelihood ratio.
double Divergence(double share, double fraction) {
  const auto term = [](double p, double q) { return p > 0 ? p * std::log(p / q) : 0; };
  return term(share, fraction) + term(1 - share, 1 - fraction);
}

// Of the set of slices for which in(slice) holds; unset unless it is a pattern. `hypotheses`: about
// how many sets were looked at, one of which may fit by chance.
template <class In>
std::optional<Strength> Weigh(const Profile& profile, const SetLimits& limits, double hypotheses,
                              const In& in) {
  double mass = 0, elements = 0, inside = 0, inside_elements = 0;
  double failed = 0, failed_inside = 0, squares = 0, reference = 0, reference_inside = 0;
  Strength strength;
  for (const Slice& slice : profile.slices) {
    mass += slice.mass;
    elements += slice.elements;
    failed += slice.failed;
    reference += slice.squared_reference;
    if (slice.effective > 0) squares += slice.mass * (slice.mass / slice.effective);
    if (!in(slice)) continue;
    failed_inside += slice.failed;
    reference_inside += slice.squared_reference;
    ++strength.members;
    inside += slice.mass;
    inside_elements += slice.elements;
    strength.effective += slice.effective;
  }
  if (!(mass > 0) || !std::isfinite(mass) || elements < kLeastElements || inside_elements == 0) {
    return std::nullopt;
  }
  strength.share = inside / mass;
  strength.fraction = inside_elements / elements;
  const double outside =
      elements > inside_elements ? (mass - inside) / (elements - inside_elements) : 0;
  const double lift_outside = std::max(outside, 0.0) * limits.lift;
  if (strength.share < limits.share || strength.fraction > kMostFraction ||
      strength.effective < kLeastEffective || inside / inside_elements < lift_outside) {
    return std::nullopt;
  }
  const double relative_outside = std::max(mass - inside, 0.0) * reference_inside;
  strength.relative_lift =
      relative_outside > 0 ? inside * std::max(reference - reference_inside, 0.0) / relative_outside
                           : HUGE_VAL;
  // Few errors can fall together by chance. Errors of differing size count as fewer of one size
  // (participation ratio), failing elements one by one.
  const double independent = squares > 0 ? mass / squares * mass : 0;
  strength.evidence = std::max(independent * Divergence(strength.share, strength.fraction),
                               failed > 0 && failed_inside / failed > strength.fraction
                                   ? failed * Divergence(failed_inside / failed, strength.fraction)
                                   : 0);
  if (strength.evidence < std::log(hypotheses) + kLeastEvidence) return std::nullopt;
  int64_t taking = 0;
  for (const Slice& slice : profile.slices) {
    if (in(slice) && slice.mass > 0 && slice.mass >= slice.elements * outside * 3) ++taking;
  }
  strength.taking = static_cast<double>(taking) / static_cast<double>(strength.members);
  if (strength.taking < kLeastTaking) return std::nullopt;
  return strength;
}

// The one run of set residues, if there is just one.
bool CyclicRun(const std::vector<bool>& set, int64_t* begin, int64_t* width) {
  const auto size = static_cast<int64_t>(set.size());
  int64_t runs = 0;
  *width = 0;
  for (int64_t i = 0; i < size; ++i) {
    if (!set[static_cast<size_t>(i)]) continue;
    ++*width;
    if (!set[static_cast<size_t>((i + size - 1) % size)]) {
      ++runs;
      *begin = i;
    }
  }
  return runs == 1;
}

// Sums over slices by index modulo the period. Neighbouring slices mostly follow each other.
void Fold(const Profile& profile, int64_t period, std::vector<double>* mass,
          std::vector<double>* elements) {
  mass->assign(static_cast<size_t>(period), 0);
  elements->assign(static_cast<size_t>(period), 0);
  int64_t next = -1, residue = 0;
  for (const Slice& slice : profile.slices) {
    if (slice.index != next) residue = slice.index % period;
    (*mass)[static_cast<size_t>(residue)] += slice.mass;
    (*elements)[static_cast<size_t>(residue)] += slice.elements;
    next = slice.index + 1;
    if (++residue == period) residue = 0;
  }
}

// Whether any set of slices at all holds enough of the error at enough density: the densest ones
// do, or none does.
bool IsConcentrated(const Profile& profile, const SetLimits& limits) {
  std::vector<const Slice*> order;
  double mass = 0, elements = 0;
  for (const Slice& slice : profile.slices) {
    if (!(slice.elements > 0)) continue;
    order.push_back(&slice);
    mass += slice.mass;
    elements += slice.elements;
  }
  std::sort(order.begin(), order.end(), [](const Slice* a, const Slice* b) {
    return a->mass * b->elements > b->mass * a->elements;
  });
  double inside = 0, inside_elements = 0;
  for (const Slice* slice : order) {
    inside += slice->mass;
    inside_elements += slice->elements;
    const double outside = std::max(mass - inside, 0.0);
    if (inside >= limits.share * mass && inside_elements < elements &&
        inside * (elements - inside_elements) >= limits.lift * outside * inside_elements) {
      return mass > 0 && std::isfinite(mass);
    }
  }
  return false;
}

}  // namespace

std::optional<Period> FindPeriod(const Profile& profile, const SetLimits& limits) {
  if (!IsConcentrated(profile, limits)) return std::nullopt;
  const auto count = static_cast<double>(profile.slices.size());
  const auto most = std::min<int64_t>(kMostPeriod, static_cast<int64_t>(profile.slices.size()) / 3);
  std::optional<Period> best;
  std::vector<double> mass, elements;
  for (int64_t period = 2; period <= most; ++period) {
    Fold(profile, period, &mass, &elements);
    for (size_t i = 0; i < mass.size(); ++i) {
      mass[i] = elements[i] > 0 && std::isfinite(mass[i]) ? mass[i] / elements[i] : 0;
    }
    const std::vector<bool> elevated = Elevated(mass);
    Period found{period, 0, 0, {}};
    if (elevated.empty() || !CyclicRun(elevated, &found.offset, &found.width)) continue;
    const auto strength = Weigh(profile, limits, count * count * count, [&](const Slice& slice) {
      return elevated[static_cast<size_t>(slice.index % period)];
    });
    if (!strength || strength->members < 3) continue;
    // Of few periods a slightly different length fits, too, but worse.
    if (best && strength->Fit() <= best->strength.Fit() + 1e-3) continue;
    found.strength = *strength;
    best = found;
  }
  return best;
}

std::optional<Range> FindRange(const Profile& profile, const SetLimits& limits) {
  if (profile.slices.size() < 2 || !IsConcentrated(profile, limits)) return std::nullopt;
  std::vector<double> densities;
  for (const Slice& slice : profile.slices) {
    const bool known = slice.elements > 0 && std::isfinite(slice.mass);
    densities.push_back(known ? slice.mass / slice.elements : 0);
  }
  const std::vector<bool> elevated = Elevated(densities);
  if (elevated.empty()) return std::nullopt;
  std::vector<size_t> members;
  for (size_t i = 0; i < elevated.size(); ++i) {
    if (elevated[i]) members.push_back(i);
  }
  Range range;
  const size_t spanned = members.back() - members.front() + 1;
  // In a run of single elements some may be right by chance.
  const bool run = static_cast<double>(members.size()) >= 0.8 * static_cast<double>(spanned);
  if (!run && (members.size() > kMostSingle || 3 * members.size() > profile.slices.size())) {
    return std::nullopt;
  }
  const auto count = static_cast<double>(profile.slices.size());
  const auto strength = Weigh(profile, limits, count * count, [&](const Slice& slice) {
    const auto at = static_cast<size_t>(&slice - profile.slices.data());
    return run ? at >= members.front() && at <= members.back() : elevated[at];
  });
  if (!strength) return std::nullopt;
  // Single elements here and there are no channels.
  if (!run && strength->effective < 2 * static_cast<double>(members.size())) return std::nullopt;
  range.strength = *strength;
  range.begin = profile.slices[members.front()].index;
  range.end = members.back() + 1 < profile.slices.size() ? profile.slices[members.back() + 1].index
                                                         : profile.size;
  if (!run) {
    for (const size_t i : members) range.indices.push_back(profile.slices[i].index);
  }
  return range;
}

}  // namespace ops_debug::analysis
