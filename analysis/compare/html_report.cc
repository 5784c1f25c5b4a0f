// The page is fixed text with one gap for the data (html_page.h). All that depends on the report
// passes through HtmlData, so nothing else has to be escaped.
#include "analysis/compare/html_report.h"

#include "analysis/compare/html_data.h"
#include "analysis/compare/html_page.h"

namespace ops_debug::analysis {

std::string HtmlReport(const DiffReport& report, const HtmlOptions& options) {
  const std::string data = HtmlData(report, options.heatmap);
  std::string page;
  page.reserve(kHtmlBeforeData.size() + data.size() + kHtmlAfterData.size());
  page.append(kHtmlBeforeData).append(data).append(kHtmlAfterData);
  return page;
}

}  // namespace ops_debug::analysis
