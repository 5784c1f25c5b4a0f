#include "analysis/validate/gradient_hints.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>

#include "analysis/validate/break_point.h"
#include "analysis/validate/tensor_values.h"

namespace ops_debug::analysis {
namespace {

constexpr double kSmallShare = 1e-4;  // of the largest value: what counts as nothing
constexpr int64_t kMostShift = 8;
constexpr double kExplains = 0.95;

double Largest(const std::vector<double>& values) {
  double largest = 0;
  for (const double value : values) {
    if (std::isfinite(value)) largest = std::max(largest, std::fabs(value));
  }
  return largest;
}

bool BadAt(const GradientValues& gradient, size_t i) {
  return !std::isfinite(gradient.candidate[i]) && std::isfinite(gradient.expected[i]);
}

// Rows (slices of axis 0) of which every element is bad.
std::vector<int64_t> BadRows(const GradientValues& gradient) {
  std::vector<int64_t> rows;
  if (gradient.shape.empty() || gradient.shape[0] == 0) return rows;
  const size_t inner = gradient.candidate.size() / static_cast<size_t>(gradient.shape[0]);
  for (int64_t row = 0; row < gradient.shape[0]; ++row) {
    bool all = inner > 0;
    for (size_t i = 0; i < inner; ++i) all &= BadAt(gradient, static_cast<size_t>(row) * inner + i);
    if (all) rows.push_back(row);
  }
  return rows;
}

int64_t BadElements(const GradientValues& gradient) {
  int64_t bad = 0;
  for (size_t i = 0; i < gradient.candidate.size(); ++i) bad += BadAt(gradient, i) ? 1 : 0;
  return bad;
}

// The last two dimensions as a picture; the rest is a stack of them.
struct Picture {
  int64_t height = 1, width = 1;
  explicit Picture(const std::vector<int64_t>& shape) {
    if (!shape.empty()) width = shape.back();
    if (shape.size() >= 2) height = shape[shape.size() - 2];
  }
};

// Share of the candidate's squared mass that the expected gradient, moved by (dy, dx), explains.
double ExplainedBy(const GradientValues& gradient, int64_t dy, int64_t dx) {
  const Picture picture(gradient.shape);
  const auto count = static_cast<int64_t>(gradient.candidate.size());
  double left = 0, whole = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t y = i / picture.width % picture.height - dy, x = i % picture.width - dx;
    const bool inside = y >= 0 && y < picture.height && x >= 0 && x < picture.width;
    const double expected =
        inside ? gradient.expected[static_cast<size_t>(i - dy * picture.width - dx)] : 0;
    const double value = gradient.candidate[static_cast<size_t>(i)];
    left += (value - expected) * (value - expected);
    whole += value * value;
  }
  return whole > 0 ? 1 - left / whole : 0;
}

struct Shift {
  int64_t dy = 0, dx = 0;
  double explained = 0;
};

Shift BestShift(const GradientValues& gradient) {
  const Picture picture(gradient.shape);
  Shift best;
  const int64_t most_y = std::min(kMostShift, picture.height - 1);
  const int64_t most_x = std::min(kMostShift, picture.width - 1);
  for (int64_t dy = -most_y; dy <= most_y; ++dy) {
    for (int64_t dx = -most_x; dx <= most_x; ++dx) {
      const double explained = ExplainedBy(gradient, dy, dx);
      if (explained > best.explained) best = {dy, dx, explained};
    }
  }
  return best;
}

// Where the expected gradient is nothing and the candidate's is something, or the other way.
struct Places {
  int64_t gained = -1, lost = -1;  // first elements
  int64_t gains = 0, losses = 0;
};

Places MovedPlaces(const GradientValues& gradient, double small) {
  Places places;
  for (size_t i = 0; i < gradient.candidate.size(); ++i) {
    const double candidate = std::fabs(gradient.candidate[i]);
    const double expected = std::fabs(gradient.expected[i]);
    if (candidate > small && expected <= small) {
      if (places.gains++ == 0) places.gained = static_cast<int64_t>(i);
    } else if (candidate <= small && expected > small) {
      if (places.losses++ == 0) places.lost = static_cast<int64_t>(i);
    }
  }
  return places;
}

// Largest difference of sums over pictures, over the largest sum of magnitudes.
double SumMismatch(const GradientValues& gradient) {
  const Picture picture(gradient.shape);
  const size_t area = static_cast<size_t>(std::max<int64_t>(picture.height * picture.width, 1));
  double worst = 0, largest = 0;
  for (size_t begin = 0; begin + area <= gradient.candidate.size(); begin += area) {
    double difference = 0, magnitude = 0;
    for (size_t i = begin; i < begin + area; ++i) {
      difference += gradient.candidate[i] - gradient.expected[i];
      magnitude += std::fabs(gradient.expected[i]);
    }
    worst = std::max(worst, std::fabs(difference));
    largest = std::max(largest, magnitude);
  }
  return largest > 0 ? worst / largest : HUGE_VAL;
}

std::string Signed(int64_t number) { return absl::StrFormat("%+d", number); }

}  // namespace

std::vector<std::string> NonFiniteHints(const std::vector<GradientValues>& gradients) {
  std::vector<std::string> rows_of, reduced;
  for (const GradientValues& gradient : gradients) {
    const int64_t bad = BadElements(gradient);
    if (bad == 0) continue;
    const std::vector<int64_t> rows = BadRows(gradient);
    if (!rows.empty() && static_cast<int64_t>(rows.size()) < gradient.shape[0]) {
      rows_of.push_back(absl::StrCat("rows ", ChannelsText(rows), " of grad.", gradient.input,
                                     " (of ", gradient.shape[0], ")"));
    } else {
      reduced.push_back(absl::StrCat(bad == static_cast<int64_t>(gradient.candidate.size())
                                         ? "every element"
                                         : absl::StrCat(bad, " elements"),
                                     " of grad.", gradient.input));
    }
  }
  if (rows_of.empty() && reduced.empty()) return {};
  std::string text = absl::StrCat(
      absl::StrJoin(rows_of, " and "), rows_of.empty() || reduced.empty() ? "" : ", and ",
      absl::StrJoin(reduced, " and "), " not finite where the truth is finite: ");
  if (!reduced.empty()) {
    absl::StrAppend(&text, rows_of.empty()
                               ? "a reduction reads rows that nothing has written"
                               : "those rows of a buffer were never written, and the reduction "
                                 "behind it reads all rows");
    absl::StrAppend(&text,
                    "; zero the buffer (empty -> zeros), or end the reduction at the last "
                    "row that is written");
  } else {
    absl::StrAppend(&text, "never written; does the grid cover all rows?");
  }
  return {text};
}

std::optional<std::string> DisplacedHint(const GradientValues& gradient) {
  const double small =
      kSmallShare * std::max(Largest(gradient.expected), Largest(gradient.candidate));
  if (small == 0 || BadElements(gradient) > 0) return std::nullopt;
  constexpr double kSameSum = 1e-3;
  if (SumMismatch(gradient) > kSameSum) return std::nullopt;
  const Places places = MovedPlaces(gradient, small);
  std::string text = absl::StrCat("grad.", gradient.input, ": sum preserved");
  if (places.gains > 0 && places.losses > 0) {
    absl::StrAppend(&text, ", mass at ", PlaceText(IndexOf(places.gained, gradient.shape)),
                    " instead of ", PlaceText(IndexOf(places.lost, gradient.shape)), " (",
                    places.gains, " elements gained, ", places.losses, " lost)");
  } else {
    absl::StrAppend(&text, ", mass at other elements");
  }
  const Shift shift = BestShift(gradient);
  if (shift.explained > kExplains && (shift.dy != 0 || shift.dx != 0)) {
    absl::StrAppend(&text, ", moved by (", Signed(shift.dy), ", ", Signed(shift.dx),
                    ") in the last two dimensions");
  }
  return absl::StrCat(text, ": index map, not scale; does the backward kernel use the forward ",
                      "map where it needs the inverse?");
}

std::optional<std::string> FactorHint(const GradientValues& gradient) {
  double products = 0, squares = 0, left = 0;
  for (size_t i = 0; i < gradient.candidate.size(); ++i) {
    if (!std::isfinite(gradient.candidate[i])) return std::nullopt;
    products += gradient.candidate[i] * gradient.expected[i];
    squares += gradient.expected[i] * gradient.expected[i];
  }
  if (squares == 0) return std::nullopt;
  const double factor = products / squares;
  for (size_t i = 0; i < gradient.candidate.size(); ++i) {
    const double rest = gradient.candidate[i] - factor * gradient.expected[i];
    left += rest * rest;
  }
  constexpr double kNothingLeft = 1e-8, kOne = 1e-3;
  if (left > kNothingLeft * squares || std::fabs(factor - 1) < kOne) return std::nullopt;
  return absl::StrFormat("grad.%s is %.6g times the truth everywhere: scale, not index map",
                         gradient.input, factor);
}

std::optional<std::string> CrosstalkHint(const std::string& input, const Crosstalk& crosstalk) {
  const double small = kSmallShare * crosstalk.scale;
  std::map<int64_t, int64_t> offsets;  // slice that receives minus slice it belongs to
  int64_t leaks = 0, first_from = -1, first_to = -1;
  for (size_t from = 0; from < crosstalk.received.size(); ++from) {
    for (size_t to = 0; to < crosstalk.received[from].size(); ++to) {
      if (from == to || std::fabs(crosstalk.possible[from][to]) > small ||
          !(std::fabs(crosstalk.received[from][to]) > small)) {
        continue;
      }
      if (leaks++ == 0) {
        first_from = static_cast<int64_t>(from);
        first_to = static_cast<int64_t>(to);
      }
      ++offsets[static_cast<int64_t>(to) - static_cast<int64_t>(from)];
    }
  }
  if (leaks == 0) return std::nullopt;
  const std::string head = absl::StrCat("grad.", input, ": ");
  if (offsets.size() > 1) {
    return absl::StrCat(head, "channels get gradients of other channels (channel ", first_to,
                        " that of channel ", first_from, ", and ", leaks - 1, " more pairs)");
  }
  const int64_t offset = offsets.begin()->first;
  std::string text = absl::StrCat(
      head, "element of channel c", Signed(offset), " gets gradient of channel c (", leaks,
      leaks == 1 ? " channel" : " channels", ", first ", first_from, " -> ", first_to,
      "); of channel ", offset < 0 ? "0" : "the last", " the same write lies outside the tensor");
  if (offset == -1) {
    absl::StrAppend(&text,
                    ": a negative row or column (a sentinel such as -1) is not checked "
                    "before the address is made");
  }
  return text;
}

}  // namespace ops_debug::analysis
