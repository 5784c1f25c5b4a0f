#include "analysis/compare/error_maps.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <string>

namespace ops_debug::analysis {
namespace {

using Index = std::vector<int64_t>;
using Map = std::function<bool(Index*)>;  // false: leaves the tensor

constexpr double kLeastMatching = 0.9;
constexpr int64_t kLeastTried = 8;
constexpr size_t kScreened = 64;
constexpr int64_t kMostMoved = 1 << 16;
// Relative; of values that were copied, perhaps through a less precise type's last bit.
double CopyTolerance(proto::DType dtype) {
  switch (dtype) {
    case proto::DType::kFloat8E4M3:
    case proto::DType::kFloat8E5M2:
      return 0.13;
    case proto::DType::kBfloat16:
      return 8e-3;
    case proto::DType::kFloat16:
    case proto::DType::kTf32:
      return 1e-3;
    case proto::DType::kFloat64:
    case proto::DType::kComplex128:
      return 1e-12;
    case proto::DType::kFloat32:
    case proto::DType::kComplex64:
      return 1e-6;
    default:
      return 0;
  }
}

bool Same(std::complex<double> a, std::complex<double> b, double tolerance) {
  if (a == b) return true;
  const double distance = std::abs(a - b);
  if (std::isnan(distance)) return std::isnan(std::abs(a)) && std::isnan(std::abs(b));
  return distance <= tolerance * std::abs(b);
}

struct Hypothesis {
  std::string kind, text;
  Map forward, inverse;
};

class Hypotheses {
 public:
  explicit Hypotheses(const TensorPair& pair) : pair_(pair), shape_(pair.shape()) {}

  // Simpler ones first: of two that explain as much, the first is kept.
  std::vector<Hypothesis> All() {
    for (size_t axis = shape_.size(); axis-- > 0;) {
      if (shape_[axis] < 2) continue;
      Shifts(axis);
      Swaps(axis);
    }
    for (size_t axis = shape_.size(); axis-- > 1;) {
      for (size_t other = axis; other-- > 0;) Transpositions(other, axis);
    }
    for (const int64_t by : {1, -1, 2, -2}) ShiftInMemory(by);
    return std::move(all_);
  }

 private:
  void Shifts(size_t axis) {
    std::vector<int64_t> distances = {1, -1, 2, -2, 3, -3, 4, -4};
    for (const int64_t far : {8, 16, 32}) {
      distances.push_back(far);
      distances.push_back(-far);
    }
    for (const int64_t by : distances) {
      if (std::abs(by) >= shape_[axis]) continue;
      const auto shift = [axis, size = shape_[axis]](int64_t distance) {
        return [=](Index* index) {
          (*index)[axis] += distance;
          return (*index)[axis] >= 0 && (*index)[axis] < size;
        };
      };
      const std::string name = AxisText(static_cast<int>(axis));
      const std::string at = by > 0 ? "i - " + std::to_string(by) : "i + " + std::to_string(-by);
      all_.push_back({"shifted",
                      "shifted along " + name + " by " + std::to_string(by) +
                          ": the candidate at i is the reference at " + at,
                      shift(-by), shift(by)});
    }
  }

  void Swaps(size_t axis) {
    const int64_t size = shape_[axis];
    const std::string name = AxisText(static_cast<int>(axis));
    const auto self_inverse = [&](const char* kind, const std::string& text, Map map) {
      all_.push_back({kind, text, map, map});
    };
    if (size % 2 == 0) {
      self_inverse("swapped-halves",
                   size == 2 ? "the two slices of " + name + " are swapped"
                             : "the halves of " + name + " are swapped: i and i + " +
                                   std::to_string(size / 2),
                   [axis, size](Index* index) {
                     (*index)[axis] = ((*index)[axis] + size / 2) % size;
                     return true;
                   });
    }
    if (size == 2) return;
    if (size % 2 == 0) {
      self_inverse("swapped-pairs", "neighbours along " + name + " are swapped: 2i and 2i + 1",
                   [axis](Index* index) {
                     (*index)[axis] ^= 1;
                     return true;
                   });
    }
    self_inverse("reversed", name + " is reversed: i and " + std::to_string(size - 1) + " - i",
                 [axis, size](Index* index) {
                   (*index)[axis] = size - 1 - (*index)[axis];
                   return true;
                 });
  }

  void Transpositions(size_t first, size_t second) {
    const int64_t rows = shape_[first], columns = shape_[second];
    if (rows < 2 || columns < 2) return;
    const std::string names = "dims " + std::to_string(first) + " and " + std::to_string(second);
    if (rows == columns) {
      const Map swap = [first, second](Index* index) {
        std::swap((*index)[first], (*index)[second]);
        return true;
      };
      all_.push_back({"transposed", names + " are transposed", swap, swap});
      return;
    }
    if (second != first + 1) return;
    // Both read as one axis: element (i, j) of the transposed tensor, in the shape of this one.
    const auto layout = [=](int64_t inner, int64_t outer, int64_t new_inner) {
      return [=](Index* index) {
        const int64_t position = (*index)[first] * columns + (*index)[second];
        const int64_t moved = position % inner * outer + position / inner;
        (*index)[first] = moved / new_inner;
        (*index)[second] = moved % new_inner;
        return true;
      };
    };
    const Map transposed = layout(rows, columns, columns);
    const Map back = layout(columns, rows, columns);
    all_.push_back({"transposed",
                    names + " are transposed: the candidate's memory holds the " +
                        std::to_string(columns) + " x " + std::to_string(rows) + " transpose",
                    transposed, back});
    all_.push_back({"transposed",
                    names + " are transposed: the reference's memory was read as " +
                        std::to_string(columns) + " x " + std::to_string(rows),
                    back, transposed});
  }

  void ShiftInMemory(int64_t by) {
    const ElementReader& reader = pair_.reference();
    const auto shift = [&reader](int64_t distance) {
      return [&reader, distance](Index* index) {
        const int64_t position = reader.Ravel(*index) + distance;
        if (position < 0 || position >= reader.count()) return false;
        reader.Unravel(position, index);
        return true;
      };
    };
    all_.push_back({"shifted",
                    "shifted by " + std::to_string(by) +
                        (std::abs(by) == 1 ? " element" : " elements") + " in memory order",
                    shift(-by), shift(by)});
  }

  const TensorPair& pair_;
  const std::vector<int64_t>& shape_;
  std::vector<Hypothesis> all_;
};

struct Match {
  int64_t tried = 0, matching = 0;
  int64_t tried_back = 0, matching_back = 0;
  double error = 0, left = 0;  // squared, before and under the map

  bool Holds() const {
    return tried > 0 && tried_back > 0 &&
           static_cast<double>(matching) >= kLeastMatching * static_cast<double>(tried) &&
           static_cast<double>(matching_back) >= kLeastMatching * static_cast<double>(tried_back);
  }
  double Share() const {
    return static_cast<double>(matching + matching_back) / static_cast<double>(tried + tried_back);
  }
};

// Every `step`-th element of the sample.
Match Try(const TensorPair& pair, const std::vector<FailingElement>& failing, size_t step,
          const Hypothesis& hypothesis, double tolerance) {
  Match match;
  for (size_t i = 0; i < failing.size(); i += step) {
    const FailingElement& element = failing[i];
    Index index = element.index;
    if (hypothesis.forward(&index)) {
      const std::complex<double> expected = pair.Reference(index);
      ++match.tried;
      match.matching += Same(element.candidate, expected, tolerance) ? 1 : 0;
      const double before = std::norm(element.candidate - element.reference);
      const double after = std::norm(element.candidate - expected);
      if (std::isfinite(before) && std::isfinite(after)) {
        match.error += before;
        match.left += after;
      }
    }
    index = element.index;
    if (hypothesis.inverse(&index)) {
      ++match.tried_back;
      match.matching_back += Same(pair.Candidate(index), element.reference, tolerance) ? 1 : 0;
    }
  }
  return match;
}

std::optional<FoundPattern> BestMap(const TensorPair& pair,
                                    const std::vector<FailingElement>& failing, double tolerance) {
  std::optional<FoundPattern> best;
  const size_t screen = std::max<size_t>(failing.size() / kScreened, 1);
  const bool screening = screen > 1;
  for (const Hypothesis& hypothesis : Hypotheses(pair).All()) {
    if (screening) {
      const Match rough = Try(pair, failing, screen, hypothesis, tolerance);
      if (rough.tried + rough.tried_back > 0 && rough.Share() < 0.75) continue;
    }
    const Match match = Try(pair, failing, 1, hypothesis, tolerance);
    if (std::min(match.tried, match.tried_back) < kLeastTried || !match.Holds()) continue;
    // What leaves the tensor cannot be told; a map under which most does has little to show.
    if (4 * match.tried < static_cast<int64_t>(failing.size())) continue;
    const double explained =
        match.error > 0 ? std::clamp(1 - match.left / match.error, 0.0, 1.0) : match.Share();
    if (best && explained <= best->explained + 0.02) continue;
    FoundPattern pattern;
    pattern.family = PatternFamily::kMap;
    pattern.explained = explained;
    pattern.hint.kind = hypothesis.kind;
    pattern.hint.text = hypothesis.text;
    pattern.hint.evidence = PercentText(match.Share()) + " of " +
                            std::to_string(match.tried + match.tried_back) +
                            " failing places looked at hold the value that this map expects";
    pattern.hint.confidence =
        explained * match.Share() * (1 - std::exp(-static_cast<double>(match.tried) / 8));
    best = std::move(pattern);
  }
  return best;
}

// A part of the tensor of at most kMostMoved elements: leading axes are held at the worst element.
struct Box {
  std::vector<int64_t> begin, end;
};

Box BoxAround(const TensorPair& pair, const Index& worst) {
  const std::vector<int64_t>& shape = pair.shape();
  Box box;
  box.begin.assign(shape.size(), 0);
  box.end = shape;
  int64_t count = pair.reference().count();
  for (size_t axis = 0; axis < shape.size() && count > kMostMoved; ++axis) {
    const int64_t others = count / shape[axis];
    const int64_t kept = std::clamp<int64_t>(kMostMoved / others, 1, shape[axis]);
    box.begin[axis] = std::clamp<int64_t>(worst[axis] - kept / 2, 0, shape[axis] - kept);
    box.end[axis] = box.begin[axis] + kept;
    count = others * kept;
  }
  return box;
}

struct Place {
  double value;
  int64_t position;
};

struct Moved {
  std::vector<Place> candidate, reference;  // of the failing elements
  double sum = 0, magnitude = 0;            // of candidate - reference
  int64_t one_side_zero = 0;
};

// Nothing if a failing value is complex or not finite.
std::optional<Moved> GatherMoved(const TensorPair& pair, const Box& box) {
  Moved moved;
  Index index = box.begin;
  for (;;) {
    const std::complex<double> candidate = pair.Candidate(index), reference = pair.Reference(index);
    if (pair.Fails(candidate, reference)) {
      if (!std::isfinite(std::abs(candidate - reference)) || candidate.imag() != 0 ||
          reference.imag() != 0) {
        return std::nullopt;
      }
      const int64_t position = pair.reference().Ravel(index);
      moved.candidate.push_back({candidate.real(), position});
      moved.reference.push_back({reference.real(), position});
      moved.sum += candidate.real() - reference.real();
      moved.magnitude += std::abs(candidate.real() - reference.real());
      moved.one_side_zero += (candidate == 0.0) != (reference == 0.0) ? 1 : 0;
    }
    size_t axis = index.size();
    while (axis > 0 && ++index[axis - 1] == box.end[axis - 1]) {
      index[axis - 1] = box.begin[axis - 1];
      --axis;
    }
    if (axis == 0) break;
  }
  return moved;
}

void SortByValue(std::vector<Place>* places) {
  std::stable_sort(places->begin(), places->end(),
                   [](const Place& a, const Place& b) { return a.value < b.value; });
}

// "by (0, 0, 3, 3)" if most elements moved alike.
std::string DisplacementText(const ElementReader& reader, const Moved& moved, double tolerance) {
  std::map<Index, int64_t> votes;
  int64_t voters = 0;
  Index by, origin;
  for (size_t i = 0; i < moved.reference.size(); ++i) {
    const Place &from = moved.reference[i], &to = moved.candidate[i];
    if (from.value == 0 || !Same(to.value, from.value, tolerance)) continue;
    reader.Unravel(to.position, &by);
    reader.Unravel(from.position, &origin);
    for (size_t axis = 0; axis < by.size(); ++axis) by[axis] -= origin[axis];
    ++voters;
    ++votes[by];
  }
  const auto best = std::max_element(
      votes.begin(), votes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  if (best == votes.end() || 2 * best->second <= voters) return "";
  return (best->second == voters ? ", all by " : ", most by ") + IndexText(best->first);
}

const Place& Largest(const std::vector<Place>& places) {
  return *std::max_element(places.begin(), places.end(), [](const Place& a, const Place& b) {
    return std::abs(a.value) < std::abs(b.value);
  });
}

// Where something stands on one side and nothing on the other.
std::string ZeroPlacesText(const ElementReader& reader, const Moved& moved) {
  const Place &extra = Largest(moved.candidate), &missing = Largest(moved.reference);
  Index extra_index, missing_index;
  reader.Unravel(extra.position, &extra_index);
  reader.Unravel(missing.position, &missing_index);
  return "the candidate has " + NumberText(extra.value) + " at " + IndexText(extra_index) +
         ", the reference " + NumberText(missing.value) + " at " + IndexText(missing_index);
}

// Sum of the distances from the mean.
double Spread(const std::vector<Place>& places) {
  double sum = 0, spread = 0;
  for (const Place& place : places) sum += place.value;
  const double mean = sum / static_cast<double>(places.size());
  for (const Place& place : places) spread += std::abs(place.value - mean);
  return spread;
}

std::optional<FoundPattern> MovedValues(const TensorPair& pair, const Comparison& comparison,
                                        const Index& worst) {
  const double tolerance = std::max(CopyTolerance(comparison.candidate_dtype),
                                    CopyTolerance(comparison.reference_dtype));
  const bool floating = proto::IsFloating(comparison.reference_dtype);
  std::optional<Moved> moved = GatherMoved(pair, BoxAround(pair, worst));
  if (!moved || moved->candidate.size() < 2) return std::nullopt;
  const auto failing = static_cast<double>(moved->candidate.size());
  const bool through_zero = static_cast<double>(moved->one_side_zero) >= 0.95 * failing &&
                            Largest(moved->candidate).value != 0 &&
                            Largest(moved->reference).value != 0;
  const bool sum_kept = std::abs(moved->sum) <= std::max(1e-5, tolerance) * moved->magnitude;
  const std::string places = through_zero ? "; " + ZeroPlacesText(pair.reference(), *moved) : "";
  SortByValue(&moved->candidate);
  SortByValue(&moved->reference);
  int64_t same = 0, distinct = 0;
  for (size_t i = 0; i < moved->candidate.size(); ++i) {
    same += Same(moved->candidate[i].value, moved->reference[i].value, tolerance) ? 1 : 0;
    const double value = moved->reference[i].value;
    distinct += value != 0 && (i == 0 || value != moved->reference[i - 1].value) ? 1 : 0;
  }
  const double same_share = static_cast<double>(same) / failing;
  // Small noise hardly changes the sorted values: in another order, values differ about as much as
  // they spread.
  const bool far = moved->magnitude >= 0.25 * Spread(moved->reference);
  // Few different values are in any order the same values.
  const bool telling = distinct >= 4 && static_cast<double>(distinct) >= 0.25 * failing;
  // Coarse types have neighbours everywhere.
  const bool fine = floating && tolerance < 0.01;
  FoundPattern pattern;
  pattern.family = PatternFamily::kMap;
  pattern.hint.kind = "moved";
  if (same_share >= kLeastMatching && far &&
      ((telling && fine) || (through_zero && floating && same_share == 1))) {
    pattern.hint.text = "the reference's values stand at other places" +
                        DisplacementText(pair.reference(), *moved, tolerance) +
                        ": an index map, not the scale" + places;
    pattern.hint.evidence = PercentText(same_share) + " of the " +
                            std::to_string(moved->candidate.size()) +
                            " failing values are the reference's in another order" +
                            (sum_kept ? "; the sum is kept" : "");
    pattern.explained = same_share;
  } else if (through_zero && sum_kept && fine) {
    pattern.hint.text =
        "the sum is kept, but stands at other places: an index map, not the scale" + places;
    pattern.hint.evidence = "sum of the differences " + NumberText(moved->sum) +
                            ", of their magnitudes " + NumberText(moved->magnitude);
    pattern.explained = 0.9;
  } else {
    return std::nullopt;
  }
  pattern.hint.confidence = pattern.explained * (1 - std::exp(-failing / 2));
  return pattern;
}

}  // namespace

std::vector<FoundPattern> FindMap(const TensorPair& pair, const Comparison& comparison,
                                  const std::vector<FailingElement>& failing) {
  if (failing.empty()) return {};
  const double copy = std::max(CopyTolerance(comparison.candidate_dtype),
                               CopyTolerance(comparison.reference_dtype));
  const double tolerance = std::max(copy, std::min(comparison.verdict.used.rtol, 0.01));
  std::optional<FoundPattern> found = BestMap(pair, failing, tolerance);
  if (!found) {
    const bool known =
        !comparison.worst.empty() && comparison.worst.front().index.size() == pair.shape().size();
    found = MovedValues(pair, comparison,
                        known ? comparison.worst.front().index : failing.front().index);
  }
  if (!found) return {};
  found->everywhere = 2 * comparison.whole.failed > comparison.whole.count;
  return {*std::move(found)};
}

}  // namespace ops_debug::analysis
