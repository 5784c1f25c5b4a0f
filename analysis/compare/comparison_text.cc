// Line by line (comparison_text.h).
#include "analysis/compare/comparison_text.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "analysis/compare/error_axes.h"
#include "analysis/compare/found_pattern.h"
#include "analysis/text_sheet.h"

namespace ops_debug::analysis {
namespace {

constexpr size_t kShownWorst = 5, kShownChannels = 4, kShownHints = 4;
constexpr double kLeastTerm = 0.05;
constexpr int kBarWidth = 40;
// As the labels of text_sheet.h.
const std::string kMargin(2 + 14, ' ');

std::string Short(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.4g", value);
  return text;
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  if (shape.empty()) return "scalar";
  std::string text;
  for (size_t i = 0; i < shape.size(); ++i) {
    text += (i > 0 ? " x " : "") + std::to_string(shape[i]);
  }
  return text;
}

std::string Padded(std::string text, size_t width, bool right = true) {
  if (text.size() >= width) return text;
  return right ? std::string(width - text.size(), ' ') + text
               : text.append(width - text.size(), ' ');
}

class Writer {
 public:
  Writer(const Comparison& comparison, const TextOptions& options)
      : comparison_(comparison),
        whole_(comparison.whole),
        heat_(options.heat),
        sheet_(options.colour) {}

  std::string Write() {
    Head();
    const Outcome outcome = comparison_.verdict.outcome;
    if (outcome == Outcome::kShapeMismatch || outcome == Outcome::kDtypeMismatch)
      return sheet_.text();
    if (outcome == Outcome::kNothingCompared) {
      NotFinite();
      return sheet_.text();
    }
    Whole();
    if (outcome == Outcome::kPass && whole_.failed == 0) {
      NotFinite();
      return sheet_.text();
    }
    Values();
    NotFinite();
    Patterns();
    Where();
    Terms();
    Worst();
    Ulps();
    Passing();
    if (heat_) Heat();
    return sheet_.text();
  }

 private:
  void Head() {
    const bool passes = comparison_.verdict.outcome == Outcome::kPass;
    std::string line = sheet_.Toned(passes ? Tone::kStrong : Tone::kError,
                                    OutcomeWord(comparison_.verdict.outcome));
    line += "  ";
    if (!comparison_.name.empty()) line += Printable(comparison_.name) + ": ";
    // The word stands in front already.
    std::string text = comparison_.verdict.text;
    for (const char* word : {"fails: ", "passes: "}) {
      if (text.starts_with(word)) text.erase(0, std::strlen(word));
    }
    sheet_.Line(line + Printable(text));
    const std::string candidate = proto::Name(comparison_.candidate_dtype);
    const std::string reference = proto::Name(comparison_.reference_dtype);
    sheet_.Labelled("tensor", ShapeText(comparison_.shape) + ", " + candidate +
                                  (candidate == reference ? "" : " against " + reference));
  }

  void Whole() {
    if (whole_.finite == whole_.count && whole_.equal == whole_.count) {
      sheet_.Labelled("whole", "equal bit for bit");
      return;
    }
    sheet_.Labelled("whole", "max abs " + Short(whole_.max_abs) + ", max rel " +
                                 Short(whole_.max_rel) + ", relative L2 " +
                                 Short(whole_.relative_l2) + ", RMSE " + Short(whole_.rmse) +
                                 ", SQNR " + Short(whole_.sqnr_db) + " dB, cosine " +
                                 NumberText(whole_.cosine));
  }

  void Values() {
    const auto side = [](double least, double most, double mean) {
      return Short(least) + " to " + Short(most) + ", mean " + Short(mean);
    };
    sheet_.Labelled("values",
                    "candidate " +
                        side(whole_.min_candidate, whole_.max_candidate, whole_.mean_candidate) +
                        "; reference " +
                        side(whole_.min_reference, whole_.max_reference, whole_.mean_reference) +
                        "; mean error " + Short(whole_.mean_error));
  }

  void NotFinite() {
    const WholeStatistics& w = whole_;
    if (w.nan_candidate + w.nan_reference + w.inf_candidate + w.inf_reference == 0) return;
    const auto line = [](int64_t candidate, int64_t reference, int64_t both) {
      return std::to_string(candidate) + " in the candidate, " + std::to_string(reference) +
             " in the reference, " + std::to_string(both) + " at the same places";
    };
    if (w.nan_candidate + w.nan_reference > 0) {
      sheet_.Labelled("NaN", line(w.nan_candidate, w.nan_reference, w.nan_both));
    }
    if (w.inf_candidate + w.inf_reference > 0) {
      sheet_.Labelled("infinite", line(w.inf_candidate, w.inf_reference, w.inf_both));
    }
  }

  void Patterns() {
    const char* label = "pattern";
    for (size_t i = 0; i < comparison_.patterns.size() && i < kShownHints; ++i) {
      const PatternHint& hint = comparison_.patterns[i];
      sheet_.Labelled(label, hint.text);
      char confidence[32];
      std::snprintf(confidence, sizeof(confidence), "%.2f", hint.confidence);
      Below("  " + hint.evidence + "; confidence " + confidence);
      label = "";
    }
  }

  // The axis that explains most, and the channels that stand out.
  void Where() {
    std::vector<const Axis*> axes;
    for (const Axis& axis : comparison_.axes) {
      if (axis.size > 1) axes.push_back(&axis);
    }
    std::stable_sort(axes.begin(), axes.end(),
                     [](const Axis* a, const Axis* b) { return a->explained > b->explained; });
    if (axes.size() > 1 && axes.front()->explained >= 0.01) {
      std::string text = "of the error's variation ";
      for (size_t i = 0; i < axes.size() && i < 4; ++i) {
        text += (i == 0 ? "" : ", ") + AxisText(static_cast<int>(axes[i]->axis)) + " explains " +
                PercentText(axes[i]->explained);
      }
      sheet_.Labelled("where", text);
    }
    for (size_t i = 0; i < axes.size() && i < 3; ++i) Channels(*axes[i]);
  }

  void Channels(const Axis& axis) {
    if (axis.ranked.empty()) return;
    const bool by_failed = MeasureOf(whole_) == Measure::kFailed;
    double total = 0;
    for (const Channel& channel : axis.channels) {
      total += by_failed ? static_cast<double>(channel.failed) : channel.squared_error;
    }
    std::string text = AxisText(static_cast<int>(axis.axis)) + " stands out at ";
    for (size_t i = 0; i < axis.ranked.size() && i < kShownChannels; ++i) {
      const Channel& channel = axis.channels[axis.ranked[i]];
      const double mass = by_failed ? static_cast<double>(channel.failed) : channel.squared_error;
      text += (i == 0 ? "" : ", ") + std::to_string(channel.index);
      if (axis.bin > 1) {
        text += " to " + std::to_string(std::min(channel.index + axis.bin, axis.size) - 1);
      }
      text += " (" + PercentText(total > 0 ? mass / total : 0) + ", max abs " +
              Short(channel.max_abs) + ")";
    }
    if (axis.ranked.size() > kShownChannels) {
      text += " and " + std::to_string(axis.ranked.size() - kShownChannels) + " more";
    }
    Below(text);
  }

  // Terms that say where: one whose factors are flat says nothing.
  void Terms() {
    const char* label = "rank-1 terms";
    for (const RankOneTerm& term : comparison_.terms) {
      if (term.explained < kLeastTerm) continue;
      std::string where;
      for (const RankOneTerm::Factor& factor : term.factors) {
        if (factor.peaks.empty()) continue;
        where += (where.empty() ? "" : "  x  ") + AxisText(static_cast<int>(factor.axis)) + " at ";
        for (size_t i = 0; i < factor.peaks.size() && i < 3; ++i) {
          where += (i == 0 ? "" : ", ") + std::to_string(factor.peaks[i]);
          if (factor.bin > 1) where += ".." + std::to_string(factor.peaks[i] + factor.bin - 1);
        }
        if (factor.peaks.size() > 3) where += ", ...";
      }
      if (where.empty()) continue;
      sheet_.Labelled(label, PercentText(term.explained) + ": " + where);
      label = "";
    }
  }

  void Worst() {
    if (comparison_.worst.empty()) return;
    const size_t shown = std::min(comparison_.worst.size(), kShownWorst);
    size_t width = 5;
    for (size_t i = 0; i < shown; ++i) {
      width = std::max(width, IndexText(comparison_.worst[i].index).size());
    }
    sheet_.Labelled("worst", Padded("index", width, false) + Padded("candidate", 15) +
                                 Padded("reference", 15) + Padded("abs error", 12) +
                                 Padded("rel error", 12) + Padded("ULPs", 12));
    for (size_t i = 0; i < shown; ++i) {
      const Element& element = comparison_.worst[i];
      const std::complex<double> candidate(element.candidate, element.candidate_imag);
      const std::complex<double> reference(element.reference, element.reference_imag);
      Below(Padded(IndexText(element.index), width, false) + Padded(NumberText(candidate), 15) +
            Padded(NumberText(reference), 15) + Padded(Short(element.abs_error), 12) +
            Padded(Short(element.rel_error), 12) + Padded(Short(element.ulps), 12));
    }
  }

  void Ulps() {
    const auto& ulps = comparison_.histograms.ulps;
    const int64_t total = std::accumulate(ulps.begin(), ulps.end(), int64_t{0});
    if (total == 0 || !proto::IsFloating(comparison_.candidate_dtype)) return;
    // First and last bin of each row: bin i holds distances from 2^(i-1) on.
    struct Row {
      const char* name;
      size_t first, last;
    };
    static constexpr Row kRows[] = {{"equal", 0, 0},        {"1", 1, 1},
                                    {"2..3", 2, 2},         {"4..15", 3, 4},
                                    {"16..255", 5, 8},      {"256..65535", 9, 16},
                                    {"2^16..2^32", 17, 32}, {"more, not finite", 33, 33}};
    std::string label = "ULPs";
    for (const Row& row : kRows) {
      const int64_t count =
          std::accumulate(ulps.begin() + static_cast<std::ptrdiff_t>(row.first),
                          ulps.begin() + static_cast<std::ptrdiff_t>(row.last) + 1, int64_t{0});
      if (count == 0) continue;
      const double share = static_cast<double>(count) / static_cast<double>(total);
      const auto bar = static_cast<size_t>(std::max(1.0, std::round(share * kBarWidth)));
      sheet_.Labelled(label, Padded(row.name, 16, false) + Padded(std::to_string(count), 14) +
                                 Padded(PercentText(share), 10) + "  " + std::string(bar, '#'));
      label.clear();
    }
  }

  void Passing() {
    const Verdict& verdict = comparison_.verdict;
    if (verdict.passing_rtol || verdict.passing_atol) {
      std::string text;
      if (verdict.passing_rtol) {
        text = "rtol " + Short(*verdict.passing_rtol) + " (with atol " + Short(verdict.used.atol) +
               ")";
      }
      if (verdict.passing_atol) {
        text += (text.empty() ? "" : ", or ") + ("atol " + Short(*verdict.passing_atol)) +
                " (with rtol " + Short(verdict.used.rtol) + ")";
      }
      sheet_.Labelled("passes with", text);
    } else if (whole_.failed > 0) {
      sheet_.Labelled("passes with", NotFiniteOnOneSide(whole_) > 0
                                         ? "no tolerance: elements are not finite on one side"
                                         : "no tolerance");
    }
    if (verdict.small_value > 0 && verdict.failed_without_small < whole_.failed) {
      sheet_.Labelled("small values", std::to_string(whole_.failed - verdict.failed_without_small) +
                                          " elements fail only because |reference| < " +
                                          Short(verdict.small_value));
    }
    if (verdict.dual_ratio) {
      sheet_.Labelled("dual ratio", Short(*verdict.dual_ratio) +
                                        " times the error of the trusted implementation");
    }
  }

  void Heat() {
    const HeatMap& heat = comparison_.heat;
    if (heat.cells.empty() || heat.cells.size() != size_t{heat.rows} * heat.columns) return;
    double largest = 0;
    for (const double cell : heat.cells) {
      if (std::isfinite(cell)) largest = std::max(largest, cell);
    }
    sheet_.Labelled("heat", heat.axes + ", a character for " + std::to_string(heat.tile_rows) +
                                " x " + std::to_string(heat.tile_columns) + " elements; @ is " +
                                Short(largest) + ", each step down a factor of 10, ! not finite");
    static constexpr char kSteps[] = ".:-=+*#%@";
    constexpr int kMost = static_cast<int>(sizeof(kSteps)) - 2;
    for (size_t row = 0; row < heat.rows; ++row) {
      std::string line;
      for (size_t column = 0; column < heat.columns; ++column) {
        const double cell = heat.cells[row * heat.columns + column];
        if (!std::isfinite(cell)) {
          line += '!';
        } else if (!(cell > 0)) {
          line += ' ';
        } else {
          const int down = static_cast<int>(std::floor(std::log10(largest / cell)));
          line += kSteps[std::clamp(kMost - down, 0, kMost)];
        }
      }
      Below("|" + line + "|");
    }
  }

  void Below(const std::string& text) { sheet_.Line(kMargin + Printable(text)); }

  const Comparison& comparison_;
  const WholeStatistics& whole_;
  bool heat_;
  TextSheet sheet_;
};

}  // namespace

const char* OutcomeWord(Outcome outcome) {
  switch (outcome) {
    case Outcome::kPass:
      return "pass";
    case Outcome::kFail:
      return "FAIL";
    case Outcome::kShapeMismatch:
      return "SHAPE";
    case Outcome::kDtypeMismatch:
      return "DTYPE";
    case Outcome::kNothingCompared:
      break;
  }
  return "EMPTY";
}

std::string ComparisonText(const Comparison& comparison, const TextOptions& options) {
  return Writer(comparison, options).Write();
}

}  // namespace ops_debug::analysis
