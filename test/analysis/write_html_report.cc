// Writes a report made by hand, for the test in a browser:
//   write_html_report few|many|outcomes|hostile|empty OUTPUT
#include <fstream>
#include <iostream>

#include "analysis/compare/html_report.h"
#include "test/analysis/sample_reports.h"

int main(int argc, char** argv) {
  using ops_debug::analysis::ComparedPair, ops_debug::analysis::DiffReport;
  using ops_debug::analysis::OutcomesReport, ops_debug::analysis::SampleReport;
  if (argc != 3) {
    std::cerr << "usage: write_html_report few|many|outcomes|hostile|empty OUTPUT\n";
    return 2;
  }
  const std::string kind = argv[1];
  DiffReport report;
  if (kind == "few") {
    report = SampleReport(6);
  } else if (kind == "many") {
    report = SampleReport(200);
  } else if (kind == "outcomes") {
    report = OutcomesReport();
  } else if (kind == "hostile") {
    report = SampleReport(3);
    const std::string text =
        "</script><img src=x onerror='document.title=1'><script>document.title=1</script>";
    report.title = report.candidate = report.remarks.emplace_back() = text;
    for (ComparedPair& pair : report.pairs) {
      pair.tag = pair.candidate = pair.comparison.verdict.text = pair.comparison.heat.axes = text;
      pair.comparison.patterns = {{text, text, text, 1}};
    }
  } else if (kind != "empty") {
    std::cerr << "write_html_report: unknown report '" << kind << "'\n";
    return 2;
  }
  std::ofstream(argv[2], std::ios::binary) << ops_debug::analysis::HtmlReport(report, {});
  return 0;
}
