// The table and what is told in full (report_text.h).
#include "analysis/compare/report_text.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>
#include <vector>

#include "analysis/text_sheet.h"

namespace ops_debug::analysis {
namespace {

constexpr size_t kMostRows = 40, kAround = 5, kWorstRows = 20;
constexpr size_t kMostTagWidth = 44;

bool Missing(const ComparedPair& pair) { return pair.candidate.empty() || pair.reference.empty(); }

bool Passes(const ComparedPair& pair) {
  return !Missing(pair) && pair.comparison.verdict.outcome == Outcome::kPass;
}

std::string NameOf(const ComparedPair& pair) {
  std::string name = !pair.tag.empty()         ? pair.tag
                     : !pair.candidate.empty() ? pair.candidate
                                               : pair.reference;
  if (pair.candidate != pair.reference && !Missing(pair)) {
    name += " (" + pair.candidate + " against " + pair.reference + ")";
  }
  return Printable(name);
}

// Larger is worse; those that could not be compared are the worst.
double Badness(const ComparedPair& pair) {
  if (Passes(pair)) return -1;
  const WholeStatistics& whole = pair.comparison.whole;
  if (Missing(pair) || pair.comparison.verdict.outcome != Outcome::kFail) return HUGE_VAL;
  const double not_finite = static_cast<double>(whole.nan_candidate - whole.nan_both +
                                                whole.inf_candidate - whole.inf_both);
  return (not_finite > 0 ? 1e300 : 0) +
         (std::isfinite(whole.relative_l2) ? whole.relative_l2 : 1e200);
}

std::string Short(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.3g", value);
  return text;
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  std::string text;
  for (const int64_t size : shape) {
    if (!text.empty()) text += 'x';
    text += std::to_string(size);
  }
  return text.empty() ? "scalar" : text;
}

class Table {
 public:
  explicit Table(const DiffReport& report) : report_(report) {}

  void Write(TextSheet* sheet) const {
    const std::set<size_t> rows = Rows();
    size_t width = 4;
    for (const size_t i : rows) width = std::max(width, Tag(i).size());
    sheet->Line(sheet->Toned(Tone::kFaint, Row("#", "", Left("name", width), "shape", "dtype",
                                               "max abs", "rel L2", "failing")));
    size_t next = 0;
    for (const size_t i : rows) {
      if (i > next) sheet->Line(Skipped(next, i));
      sheet->Line(RowOf(i, width, *sheet));
      next = i + 1;
    }
    if (next < report_.pairs.size()) sheet->Line(Skipped(next, report_.pairs.size()));
  }

 private:
  static std::string Left(std::string text, size_t width) {
    if (text.size() < width) text.resize(width, ' ');
    return text;
  }
  static std::string Right(const std::string& text, size_t width) {
    return text.size() < width ? std::string(width - text.size(), ' ') + text : text;
  }

  std::string Tag(size_t i) const {
    std::string name = NameOf(report_.pairs[i]);
    if (name.size() <= kMostTagWidth) return name;
    // The ends tell layers apart.
    const size_t half = (kMostTagWidth - 3) / 2;
    return name.substr(0, half) + "..." + name.substr(name.size() - half);
  }

  // All, or those that a reader wants: the begin, around the first divergence, the worst.
  std::set<size_t> Rows() const {
    std::set<size_t> rows;
    const size_t count = report_.pairs.size();
    const auto first = static_cast<size_t>(std::max<int64_t>(report_.first_divergence, 0));
    std::vector<size_t> order(count);
    for (size_t i = 0; i < count; ++i) {
      order[i] = i;
      if (count <= kMostRows || i < kAround || i + 1 == count ||
          (i + kAround >= first && i <= first + kAround)) {
        rows.insert(i);
      }
    }
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return Badness(report_.pairs[a]) > Badness(report_.pairs[b]);
    });
    for (size_t i = 0; i < std::min(count, kWorstRows); ++i) {
      if (!Passes(report_.pairs[order[i]])) rows.insert(order[i]);
    }
    return rows;
  }

  static std::string Row(const std::string& number, const std::string& word, const std::string& tag,
                         const std::string& shape, const std::string& dtype,
                         const std::string& max_abs, const std::string& l2,
                         const std::string& failing) {
    return "  " + Right(number, 4) + "  " + Left(word, 7) + "  " + tag + "  " + Left(shape, 16) +
           "  " + Left(dtype, 8) + Right(max_abs, 10) + Right(l2, 10) + Right(failing, 12);
  }

  std::string RowOf(size_t i, size_t width, const TextSheet& sheet) const {
    const ComparedPair& pair = report_.pairs[i];
    const Comparison& comparison = pair.comparison;
    std::string row;
    if (Missing(pair)) {
      row = Row(std::to_string(i), "MISSING", Left(Tag(i), width),
                pair.candidate.empty() ? "not in the candidate" : "not in the reference", "", "",
                "", "");
    } else {
      const bool compared = comparison.verdict.outcome == Outcome::kPass ||
                            comparison.verdict.outcome == Outcome::kFail;
      row = Row(std::to_string(i), OutcomeWord(comparison.verdict.outcome), Left(Tag(i), width),
                ShapeText(comparison.shape), proto::Name(comparison.candidate_dtype),
                compared ? Short(comparison.whole.max_abs) : "",
                compared ? Short(comparison.whole.relative_l2) : "",
                compared ? std::to_string(comparison.whole.failed) : "");
    }
    while (!row.empty() && row.back() == ' ') row.pop_back();
    if (static_cast<int64_t>(i) == report_.first_divergence) row += "  <- first";
    return Passes(pair) ? row : sheet.Toned(Tone::kStrong, row);
  }

  std::string Skipped(size_t begin, size_t end) const {
    size_t failing = 0;
    for (size_t i = begin; i < end; ++i) failing += Passes(report_.pairs[i]) ? 0 : 1;
    return "        (" + Count(end - begin, "more pair", "more pairs") + ", " +
           (failing == 0 ? "all pass" : std::to_string(failing) + " of them fail") + ")";
  }

  const DiffReport& report_;
};

std::string HeadText(const DiffReport& report) {
  const size_t count = report.pairs.size();
  const auto failing =
      static_cast<size_t>(std::count_if(report.pairs.begin(), report.pairs.end(),
                                        [](const ComparedPair& pair) { return !Passes(pair); }));
  std::string text = Printable(report.title) + ": ";
  if (count == 0) return text + "no pair of tensors to compare";
  if (failing == 0)
    return text + (count == 1 ? "the pair passes" : "all " + std::to_string(count) + " pairs pass");
  text += std::to_string(failing) + " of " + Count(count, "pair", "pairs") +
          (failing == 1 ? " differs" : " differ");
  if (report.first_divergence >= 0 && static_cast<size_t>(report.first_divergence) < count) {
    text += "; first divergence: " +
            NameOf(report.pairs[static_cast<size_t>(report.first_divergence)]) + " (number " +
            std::to_string(report.first_divergence) + ")";
  }
  return text;
}

}  // namespace

std::string DiffText(const DiffReport& report, const TextOptions& options) {
  TextSheet sheet(options.colour);
  sheet.Line(
      sheet.Toned(report.passes ? Tone::kStrong : Tone::kError, report.passes ? "pass" : "FAIL") +
      "  " + HeadText(report));
  sheet.Labelled("candidate", report.candidate);
  sheet.Labelled("reference", report.reference);
  for (const std::string& remark : report.remarks) sheet.Labelled("remark", remark);
  if (!report.pairs.empty()) {
    sheet.Line("");
    Table(report).Write(&sheet);
  }
  const auto in_full = [&](const std::string& title, const ComparedPair& pair) {
    sheet.Line("");
    sheet.Line(sheet.Toned(Tone::kStrong, title + ": " + NameOf(pair)));
    sheet.Block(ComparisonText(pair.comparison, options));
  };
  const auto first = static_cast<size_t>(std::max<int64_t>(report.first_divergence, 0));
  const bool diverges = report.first_divergence >= 0 && first < report.pairs.size();
  if (diverges && !Missing(report.pairs[first])) in_full("first divergence", report.pairs[first]);
  // The worst of those that have something to tell.
  const ComparedPair* worst = nullptr;
  for (const ComparedPair& pair : report.pairs) {
    if (Missing(pair) || Passes(pair)) continue;
    if (worst == nullptr || Badness(pair) > Badness(*worst)) worst = &pair;
  }
  if (worst != nullptr && !(diverges && worst == &report.pairs[first])) in_full("worst", *worst);
  if (worst == nullptr && report.pairs.size() == 1 && !Missing(report.pairs[0])) {
    in_full("the pair", report.pairs[0]);
  }
  return sheet.text();
}

}  // namespace ops_debug::analysis
