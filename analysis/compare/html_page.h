// The page around the data of an HTML report; written by html/embed_page.py when the tool is built.
#pragma once

#include <string_view>

namespace ops_debug::analysis {

extern const std::string_view kHtmlBeforeData, kHtmlAfterData;

}  // namespace ops_debug::analysis
