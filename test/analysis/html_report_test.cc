// The HTML report as text: size, escaping, what is in its data. Its behaviour in a browser:
// test_html_report.py.
#include "analysis/compare/html_report.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "analysis/compare/html_data.h"
#include "test/analysis/sample_reports.h"

namespace ops_debug::analysis {
namespace {

using Json = nlohmann::json;

Json DataOf(const DiffReport& report, bool heatmap = true) {
  return Json::parse(HtmlData(report, heatmap));
}

// Between the data's script element and the next end tag of one, as HTML's rules have it.
std::string DataInPage(const std::string& page) {
  const std::string start = "<script type=\"application/json\" id=\"data\">";
  const size_t begin = page.find(start) + start.size();
  return page.substr(begin, page.find("</script", begin) - begin);
}

TEST_CASE("names in an HTML report never become markup") {
  DiffReport report = SampleReport(2);
  const std::string hostile = "</script><script>alert(1)</script><!-- & \" ' \\ \u2028";
  report.title = report.candidate = report.remarks.emplace_back() = hostile;
  ComparedPair& pair = report.pairs[1];
  pair.tag = pair.candidate = pair.reference = hostile;
  pair.comparison.verdict.text = pair.comparison.heat.axes = hostile;
  pair.comparison.patterns = {{hostile, hostile, hostile, 1}};

  const std::string page = HtmlReport(report, {});
  CHECK(page.find("alert(1)</script>") == std::string::npos);
  const std::string data = DataInPage(page);
  CHECK(data.find_first_of("<>&") == std::string::npos);
  CHECK(Json::parse(data)["pairs"][1]["tag"] == hostile);
}

TEST_CASE("a name that is not UTF-8 is shown with replacement characters") {
  DiffReport report = SampleReport(1);
  report.pairs[0].tag = "conv\xff\xfe";
  CHECK(DataOf(report)["pairs"][0]["tag"] == "conv\uFFFD\uFFFD");
}

TEST_CASE("an HTML report of 200 layers stays under 5 MB") {
  const size_t size = HtmlReport(SampleReport(200), {}).size();
  CHECK(size < 5'000'000);
  CHECK(size > 1'000'000);  // it has its details
}

TEST_CASE("large tensors with errors everywhere do not make an HTML report large") {
  DiffReport report = SampleReport(200);
  for (ComparedPair& pair : report.pairs) {
    Comparison& comparison = pair.comparison;
    comparison.shape = {4096, 4096, 4096, 4096};
    comparison.heat.columns = 64;
    comparison.heat.cells.assign(32 * 64, 0.123);
    for (Axis& axis : comparison.axes) {
      axis.size = 4096;
      axis.channels.clear();
      for (int64_t i = 0; i < 4096; ++i) {
        axis.channels.push_back({i, 1e-5 * (1 + std::sin(i)), 1, 1e-5 * (1 + std::cos(i)), i, 1});
        axis.ranked.push_back(i);
      }
    }
    for (RankOneTerm& term : comparison.terms) {
      for (RankOneTerm::Factor& factor : term.factors) {
        factor.values.assign(4096, 0.0123456);
        factor.peaks.assign(4096, 4095);
      }
    }
  }
  CHECK(HtmlReport(report, {}).size() < 5'000'000);
}

TEST_CASE("axes of many channels are down-sampled by maximum in an HTML report") {
  DiffReport report = SampleReport(2);
  Axis& axis = report.pairs[1].comparison.axes[1];
  axis.size = 8192;
  axis.bin = 2;
  axis.channels.assign(4096, Channel{0, 1e-9, 1, 1e-3, 0, 2});
  axis.channels[4000] = {8000, 1, 1, 0.5, 2, 2};
  axis.ranked = {4000};
  const Json shown = DataOf(report)["pairs"][1]["axes"][1];
  REQUIRE(shown["max_abs"].size() <= kMostBars);
  const int64_t bar = 8000 / shown["per_bar"].get<int64_t>();
  CHECK(shown["max_abs"][bar] == 0.5);
  CHECK(shown["failed"][bar] == 2);
  CHECK(shown["ranked"][0][0] == 8000);
}

TEST_CASE("numbers that JSON cannot write are words in an HTML report") {
  const Json pairs = DataOf(OutcomesReport())["pairs"];
  const Json& infinite = pairs[8];
  REQUIRE(infinite["tag"] == "infinite");
  CHECK(infinite["whole"]["max_abs"] == "inf");
  CHECK(infinite["whole"]["cosine"] == "nan");
  CHECK(infinite["worst"][0][1] == "-inf");
}

TEST_CASE("pairs that could not be compared carry no statistics into an HTML report") {
  const Json pairs = DataOf(OutcomesReport())["pairs"];
  std::vector<std::string> outcomes;
  for (const Json& pair : pairs) outcomes.push_back(pair["outcome"]);
  CHECK(outcomes == std::vector<std::string>{"pass", "pass", "pass", "fail", "shape", "dtype",
                                             "nothing", "missing", "fail", "fail"});
  for (size_t i : {4, 5, 7}) CHECK_FALSE(pairs[i].contains("whole"));
}

TEST_CASE("of very many worst elements an HTML report lists the first") {
  DiffReport report = SampleReport(2);
  report.pairs[1].comparison.worst.resize(5000);
  CHECK(DataOf(report)["pairs"][1]["worst"].size() == kMostElements);
}

TEST_CASE("without heat maps an HTML report has none") {
  CHECK(DataOf(SampleReport(2))["pairs"][1].contains("heat"));
  CHECK_FALSE(DataOf(SampleReport(2), false)["pairs"][1].contains("heat"));
}

TEST_CASE("where all is equal an HTML report shows no places") {
  DiffReport report = SampleReport(2);
  WholeStatistics& whole = report.pairs[1].comparison.whole;
  whole.equal = whole.count;
  const Json pair = DataOf(report)["pairs"][1];
  CHECK_FALSE(pair.contains("heat"));
  CHECK(pair["axes"].empty());
}

TEST_CASE("a heat map whose cells are not rows x columns is left out") {
  DiffReport report = SampleReport(2);
  report.pairs[1].comparison.heat.cells.pop_back();
  CHECK_FALSE(DataOf(report)["pairs"][1].contains("heat"));
}

TEST_CASE("the largest ULP distance is the listed one or at least the histogram's last bin") {
  DiffReport report = SampleReport(2);
  CHECK(DataOf(report)["pairs"][1]["ulps"] == 1024);
  CHECK_FALSE(DataOf(report)["pairs"][1].contains("ulps_at_least"));
  report.pairs[1].comparison.histograms.ulps[20] = 1;
  CHECK(DataOf(report)["pairs"][1]["ulps"] == 1 << 19);
  CHECK(DataOf(report)["pairs"][1]["ulps_at_least"] == true);
}

TEST_CASE("quantised values keep zero, infinity, the ends and the logarithm between") {
  const QuantisedValues values = Quantise({0, 1e-4, 1e-2, 1, INFINITY, NAN});
  CHECK(values.low == 1e-4);
  CHECK(values.high == 1);
  CHECK(values.base64 == "AAGA/v//");  // 0, 1, 128, 254, 255, 255
}

TEST_CASE("values far below the largest do not make quantised steps coarse") {
  const QuantisedValues values = Quantise({1e-300, 1e-12, 1});
  CHECK(values.low == Approx(1e-12));
  CHECK(values.base64 == "AQH+");  // 1, 1, 254
}

TEST_CASE("equal values quantise to the top, no value at all to zeros") {
  CHECK(Quantise({3, 3}).base64 == "/v4=");
  CHECK(Quantise({0}).base64 == "AA==");
  CHECK(Quantise({0}).high == 0);
}

}  // namespace
}  // namespace ops_debug::analysis
