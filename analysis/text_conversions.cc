// Layout only (text_conversions.h).
#include "analysis/text_conversions.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <string>

namespace ops_debug::analysis {
namespace {

constexpr size_t kShown = 20;

std::string Place(const Conversion& conversion) {
  if (conversion.frames.empty()) return "PTX line " + std::to_string(conversion.ptx_line);
  const SourceLocation& frame = conversion.frames.front();
  return frame.file.substr(frame.file.rfind('/') + 1) + ':' + std::to_string(frame.line);
}

std::string Loss(const Conversion& conversion) {
  if (conversion.rounded == 0) return "-";
  char text[32];
  std::snprintf(text, sizeof(text), "%.2e", conversion.worst_relative_loss);
  return text;
}

std::string Example(const Conversion& conversion) {
  if (conversion.widens)
    return conversion.origin.empty() ? "exact" : "exact; rounded before by " + conversion.origin;
  if (conversion.rounded == 0) return "nothing was lost";
  return conversion.example_from + " became " + conversion.example_to;
}

std::string Padded(std::string text, size_t width, bool right = false) {
  if (text.size() >= width) return text;
  return right ? std::string(width - text.size(), ' ') + text
               : text.append(width - text.size(), ' ');
}

// Copies that a compiler made of one line (unrolled loops) are one row.
std::vector<Conversion> MergedByLine(const std::vector<Conversion>& conversions) {
  std::vector<Conversion> rows;
  for (const Conversion& conversion : conversions) {
    const auto same = std::find_if(rows.begin(), rows.end(), [&](const Conversion& row) {
      return row.process_id == conversion.process_id && row.kernel == conversion.kernel &&
             row.from == conversion.from && row.to == conversion.to &&
             row.origin == conversion.origin && !row.frames.empty() &&
             row.frames == conversion.frames;
    });
    if (same == rows.end()) {
      rows.push_back(conversion);
      continue;
    }
    if (same->rounded == 0) {
      same->example_from = conversion.example_from;
      same->example_to = conversion.example_to;
    }
    same->executions += conversion.executions;
    same->rounded += conversion.rounded;
    same->worst_relative_loss = std::max(same->worst_relative_loss, conversion.worst_relative_loss);
  }
  return rows;
}

}  // namespace

void WriteConversions(const std::vector<Conversion>& conversions, TextSheet& sheet) {
  if (conversions.empty()) return;
  std::vector<Conversion> ordered = MergedByLine(conversions);
  std::stable_sort(ordered.begin(), ordered.end(), [](const Conversion& a, const Conversion& b) {
    return a.worst_relative_loss > b.worst_relative_loss;
  });
  const size_t more = ordered.size() > kShown ? ordered.size() - kShown : 0;
  ordered.erase(ordered.end() - static_cast<std::ptrdiff_t>(more), ordered.end());
  size_t width = std::string("conversion").size();
  for (const Conversion& conversion : ordered) width = std::max(width, Place(conversion).size());
  sheet.Line(sheet.Toned(Tone::kStrong, "conversions") +
             " between floating-point types, largest relative loss first:");
  sheet.Line("  " + Padded("line", width) + "  " + Padded("types", 12) +
             Padded("executed", 12, true) + Padded("rounded", 12, true) +
             Padded("worst loss", 12, true) + "  first case");
  for (const Conversion& conversion : ordered) {
    sheet.Line(Printable("  " + Padded(Place(conversion), width) + "  " +
                         Padded(conversion.from + "->" + conversion.to, 12) +
                         Padded(std::to_string(conversion.executions), 12, true) +
                         Padded(std::to_string(conversion.rounded), 12, true) +
                         Padded(Loss(conversion), 12, true) + "  " + Example(conversion)));
  }
  if (more > 0)
    sheet.Line("  and " + std::to_string(more) +
               " more; --precision-trace FILE writes every instruction");
  sheet.Line("");
}

}  // namespace ops_debug::analysis
