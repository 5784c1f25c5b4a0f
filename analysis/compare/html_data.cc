// Field by field (html_data.h). Keys are words where they occur once per pair, and rows of numbers
// are arrays, since a report may hold hundreds of pairs.
#include "analysis/compare/html_data.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

namespace ops_debug::analysis {
namespace {

using Json = nlohmann::ordered_json;

Json Number(double value, int digits = 4) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  if (value == std::floor(value) && std::abs(value) < 1e15) return static_cast<int64_t>(value);
  char text[40];
  std::snprintf(text, sizeof(text), "%.*g", digits, value);
  return std::strtod(text, nullptr);
}

std::string Base64(const std::vector<uint8_t>& bytes) {
  static constexpr char kDigits[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t begin = 0; begin < bytes.size(); begin += 3) {
    const size_t count = std::min<size_t>(3, bytes.size() - begin);
    uint32_t group = 0;
    for (size_t i = 0; i < 3; ++i) group = group << 8 | (i < count ? bytes[begin + i] : 0);
    for (size_t i = 0; i < 4; ++i) {
      text += i <= count ? kDigits[group >> (18 - 6 * i) & 63] : '=';
    }
  }
  return text;
}

const char* OutcomeName(const ComparedPair& pair) {
  if (pair.candidate.empty() || pair.reference.empty()) return "missing";
  switch (pair.comparison.verdict.outcome) {
    case Outcome::kPass:
      return "pass";
    case Outcome::kFail:
      return "fail";
    case Outcome::kShapeMismatch:
      return "shape";
    case Outcome::kDtypeMismatch:
      return "dtype";
    case Outcome::kNothingCompared:
      return "nothing";
  }
  return "fail";
}

std::string DTypes(const Comparison& comparison) {
  const std::string candidate = proto::Name(comparison.candidate_dtype);
  const std::string reference = proto::Name(comparison.reference_dtype);
  return candidate == reference ? candidate : candidate + " / " + reference;
}

// The largest ULP distance that is known: the worst elements' if it lies in the last bin that is
// not empty, else that bin's lower end, which is all that a histogram tells.
struct MostUlps {
  double value = 0;
  bool at_least = false;
};
MostUlps LargestUlps(const Comparison& comparison) {
  const auto& bins = comparison.histograms.ulps;
  size_t last = bins.size();
  while (last > 0 && bins[last - 1] == 0) --last;
  if (last <= 1) return {};
  const double low = std::ldexp(1.0, static_cast<int>(last) - 2);
  double listed = 0;
  for (const auto* elements : {&comparison.worst, &comparison.worst_relative}) {
    for (const Element& element : *elements) listed = std::max(listed, element.ulps);
  }
  return listed >= low ? MostUlps{listed, false} : MostUlps{low, true};
}

Json Whole(const WholeStatistics& whole) {
  Json object;
  for (const auto& [key, count] : std::initializer_list<std::pair<const char*, int64_t>>{
           {"count", whole.count},
           {"finite", whole.finite},
           {"nan_candidate", whole.nan_candidate},
           {"nan_reference", whole.nan_reference},
           {"nan_both", whole.nan_both},
           {"inf_candidate", whole.inf_candidate},
           {"inf_reference", whole.inf_reference},
           {"inf_both", whole.inf_both},
           {"equal", whole.equal},
           {"failed", whole.failed}}) {
    object[key] = count;
  }
  for (const auto& [key, value] : std::initializer_list<std::pair<const char*, double>>{
           {"min_candidate", whole.min_candidate},
           {"max_candidate", whole.max_candidate},
           {"mean_candidate", whole.mean_candidate},
           {"min_reference", whole.min_reference},
           {"max_reference", whole.max_reference},
           {"mean_reference", whole.mean_reference},
           {"l1", whole.l1},
           {"l2", whole.l2},
           {"relative_l2", whole.relative_l2},
           {"sqnr_db", whole.sqnr_db},
           {"max_abs", whole.max_abs},
           {"max_rel", whole.max_rel},
           {"rmse", whole.rmse},
           {"mean_error", whole.mean_error},
           {"left_after_fit", whole.left_after_fit}}) {
    object[key] = Number(value);
  }
  // What matters of these is how far they are from 1.
  object["cosine"] = Number(whole.cosine, 10);
  object["factor"] = Number(whole.factor, 7);
  object["offset"] = Number(whole.offset);
  return object;
}

Json VerdictOf(const Verdict& verdict) {
  Json object;
  object["text"] = verdict.text;
  object["rtol"] = Number(verdict.used.rtol);
  object["atol"] = Number(verdict.used.atol);
  object["defaults"] = verdict.defaults;
  if (verdict.passing_rtol) object["passing_rtol"] = Number(*verdict.passing_rtol);
  if (verdict.passing_atol) object["passing_atol"] = Number(*verdict.passing_atol);
  object["small_value"] = Number(verdict.small_value);
  object["failed_without_small"] = verdict.failed_without_small;
  if (verdict.dual_ratio) object["dual_ratio"] = Number(*verdict.dual_ratio);
  return object;
}

// [index, candidate, reference, abs, rel, ulps], with the imaginary parts behind if there are any.
Json Elements(const std::vector<Element>& elements) {
  Json rows = Json::array();
  for (size_t i = 0; i < std::min(elements.size(), kMostElements); ++i) {
    const Element& element = elements[i];
    Json row = Json::array({element.index, Number(element.candidate, 9),
                            Number(element.reference, 9), Number(element.abs_error),
                            Number(element.rel_error), Number(element.ulps, 6)});
    if (element.candidate_imag != 0 || element.reference_imag != 0) {
      row.push_back(Number(element.candidate_imag, 9));
      row.push_back(Number(element.reference_imag, 9));
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

// Without the empty bins behind the last that is not.
template <size_t kBins>
Json Bins(const std::array<int64_t, kBins>& bins) {
  size_t size = kBins;
  while (size > 0 && bins[size - 1] == 0) --size;
  return Json(std::vector<int64_t>(bins.begin(), bins.begin() + size));
}

// The first cell that is not finite, else the largest.
size_t Peak(const std::vector<double>& cells) {
  const auto not_finite =
      std::find_if(cells.begin(), cells.end(), [](double cell) { return !std::isfinite(cell); });
  if (not_finite != cells.end()) return not_finite - cells.begin();
  return std::max_element(cells.begin(), cells.end()) - cells.begin();
}

Json Heat(const HeatMap& heat) {
  const QuantisedValues cells = Quantise(heat.cells);
  Json object;
  object["rows"] = heat.rows;
  object["columns"] = heat.columns;
  object["tile"] = {heat.tile_rows, heat.tile_columns};
  object["folded"] = heat.folded_shape;
  object["axes"] = heat.axes;
  object["low"] = Number(cells.low);
  object["high"] = Number(cells.high);
  object["peak"] = Peak(heat.cells);
  object["cells"] = cells.base64;
  return object;
}

// How many of `size` entries share one bar.
size_t EntriesPerBar(size_t size) {
  return std::max<size_t>(1, (size + kMostBars - 1) / kMostBars);
}

// The largest of each bar's entries; NaN counts as infinity, so that it shows.
template <typename Entries, typename Value>
Json Bars(const Entries& entries, Value value) {
  const size_t per_bar = EntriesPerBar(entries.size());
  Json bars = Json::array();
  for (size_t begin = 0; begin < entries.size(); begin += per_bar) {
    double largest = 0;
    for (size_t i = begin; i < std::min(begin + per_bar, entries.size()); ++i) {
      const double here = value(entries[i]);
      largest = std::max(largest, std::isnan(here) ? INFINITY : here);
    }
    bars.push_back(Number(largest, 3));
  }
  return bars;
}

Json AxisOf(const Axis& axis) {
  constexpr size_t kMostRanked = 8;
  double squared_error = 0;
  for (const Channel& channel : axis.channels) squared_error += channel.squared_error;
  const auto share = [&](const Channel& channel) {
    return squared_error > 0 ? channel.squared_error / squared_error : 0;
  };
  Json object;
  object["axis"] = axis.axis;
  object["size"] = axis.size;
  object["per_bar"] = axis.bin * static_cast<int64_t>(EntriesPerBar(axis.channels.size()));
  object["explained"] = Number(axis.explained);
  object["share"] = Bars(axis.channels, share);
  object["max_abs"] = Bars(axis.channels, [](const Channel& channel) { return channel.max_abs; });
  object["failed"] = Bars(
      axis.channels, [](const Channel& channel) { return static_cast<double>(channel.failed); });
  Json ranked = Json::array();
  for (size_t i = 0; i < std::min(axis.ranked.size(), kMostRanked); ++i) {
    if (axis.ranked[i] >= axis.channels.size()) continue;
    const Channel& channel = axis.channels[axis.ranked[i]];
    ranked.push_back(Json::array({channel.index, Number(share(channel)), Number(channel.max_abs),
                                  channel.failed, channel.count}));
  }
  object["ranked"] = std::move(ranked);
  object["bin"] = axis.bin;
  return object;
}

Json TermOf(const RankOneTerm& term) {
  constexpr size_t kMostPeaks = 8;
  Json object;
  object["weight"] = Number(term.weight);
  object["explained"] = Number(term.explained);
  Json factors = Json::array();
  for (const RankOneTerm::Factor& factor : term.factors) {
    Json one;
    one["axis"] = factor.axis;
    one["bin"] = factor.bin;
    one["per_bar"] = factor.bin * static_cast<int64_t>(EntriesPerBar(factor.values.size()));
    one["values"] = Bars(factor.values, [](double value) { return std::abs(value); });
    one["peaks"] = std::vector<int64_t>(
        factor.peaks.begin(), factor.peaks.begin() + std::min(factor.peaks.size(), kMostPeaks));
    factors.push_back(std::move(one));
  }
  object["factors"] = std::move(factors);
  return object;
}

void PutDetails(const Comparison& comparison, bool heatmap, Json& object) {
  object["whole"] = Whole(comparison.whole);
  const MostUlps ulps = LargestUlps(comparison);
  object["ulps"] = Number(ulps.value, 6);
  if (ulps.at_least) object["ulps_at_least"] = true;
  object["worst"] = Elements(comparison.worst);
  object["worst_relative"] = Elements(comparison.worst_relative);
  object["ulp_bins"] = Bins(comparison.histograms.ulps);
  object["decade_bins"] = Bins(comparison.histograms.decades);
  // Where all is equal there is no place to show.
  const bool differs = comparison.whole.equal < comparison.whole.count;
  const HeatMap& heat = comparison.heat;
  if (heatmap && differs && !heat.cells.empty() &&
      heat.cells.size() == static_cast<size_t>(heat.rows) * heat.columns) {
    object["heat"] = Heat(heat);
  }
  Json axes = Json::array();
  for (const Axis& axis : comparison.axes) {
    if (differs && axis.size > 1 && !axis.channels.empty()) axes.push_back(AxisOf(axis));
  }
  object["axes"] = std::move(axes);
  Json terms = Json::array();
  for (size_t i = 0; i < std::min(comparison.terms.size(), kMostTerms); ++i) {
    terms.push_back(TermOf(comparison.terms[i]));
  }
  object["terms"] = std::move(terms);
  Json patterns = Json::array();
  for (const PatternHint& hint : comparison.patterns) {
    patterns.push_back(
        Json::array({hint.kind, hint.text, hint.evidence, Number(hint.confidence, 2)}));
  }
  object["patterns"] = std::move(patterns);
}

Json PairOf(const ComparedPair& pair, bool heatmap) {
  Json object;
  object["tag"] = pair.tag;
  object["candidate"] = pair.candidate;
  object["reference"] = pair.reference;
  object["outcome"] = OutcomeName(pair);
  object["verdict"] = VerdictOf(pair.comparison.verdict);
  object["dtype"] = DTypes(pair.comparison);
  object["shape"] = pair.comparison.shape;
  // Nothing was computed where there was nothing to compare: no zeros that look like results.
  const std::string outcome = object["outcome"];
  if (outcome == "pass" || outcome == "fail" || outcome == "nothing") {
    PutDetails(pair.comparison, heatmap, object);
  }
  return object;
}

}  // namespace

QuantisedValues Quantise(const std::vector<double>& values) {
  constexpr int kSteps = 253;
  QuantisedValues result;
  double lowest = INFINITY;
  for (const double value : values) {
    if (!std::isfinite(value) || value <= 0) continue;
    lowest = std::min(lowest, value);
    result.high = std::max(result.high, value);
  }
  if (result.high > 0) result.low = std::max(lowest, result.high / kQuantisedRange);
  const double range = result.high > 0 ? std::log(result.high / result.low) : 0;
  std::vector<uint8_t> bytes;
  bytes.reserve(values.size());
  for (const double value : values) {
    if (!std::isfinite(value)) {
      bytes.push_back(255);
    } else if (value <= 0) {
      bytes.push_back(0);
    } else {
      const double place =
          range > 0 ? std::clamp(std::log(value / result.low) / range, 0.0, 1.0) : 1.0;
      bytes.push_back(static_cast<uint8_t>(1 + std::lround(place * kSteps)));
    }
  }
  result.base64 = Base64(bytes);
  return result;
}

std::string HtmlData(const DiffReport& report, bool heatmap) {
  Json object;
  object["title"] = report.title;
  object["candidate"] = report.candidate;
  object["reference"] = report.reference;
  object["passes"] = report.passes;
  object["first_divergence"] = report.first_divergence;
  object["remarks"] = report.remarks;
  object["heatmap"] = heatmap;
  Json pairs = Json::array();
  for (const ComparedPair& pair : report.pairs) pairs.push_back(PairOf(pair, heatmap));
  object["pairs"] = std::move(pairs);
  const std::string text = object.dump(-1, ' ', false, Json::error_handler_t::replace);
  // JSON has these characters only inside strings, where any character may be written so.
  std::string escaped;
  escaped.reserve(text.size() + text.size() / 64);
  for (const char c : text) {
    switch (c) {
      case '<':
        escaped += "\\u003c";
        break;
      case '>':
        escaped += "\\u003e";
        break;
      case '&':
        escaped += "\\u0026";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

}  // namespace ops_debug::analysis
