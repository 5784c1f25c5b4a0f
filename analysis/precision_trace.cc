// One list of columns for both formats (precision_trace.h).
#include "analysis/precision_trace.h"

#include <nlohmann/json.hpp>

namespace ops_debug::analysis {

using Json = nlohmann::ordered_json;

Json ConversionJson(const Conversion& conversion) {
  Json object;
  const auto put = [&](const char* name, const std::string& text) {
    if (!text.empty()) object[name] = text;
  };
  put("kernel", conversion.kernel);
  put("function", conversion.function);
  if (!conversion.frames.empty()) {
    object["file"] = conversion.frames.front().file;
    object["line"] = conversion.frames.front().line;
  }
  object["ptx_line"] = conversion.ptx_line;
  put("instruction", conversion.instruction);
  put("from", conversion.from);
  put("to", conversion.to);
  object["widens"] = conversion.widens;
  object["executions"] = conversion.executions;
  object["rounded"] = conversion.rounded;
  object["worst_relative_loss"] = conversion.worst_relative_loss;
  put("example_from", conversion.example_from);
  put("example_to", conversion.example_to);
  put("origin", conversion.origin);
  object["process"] = conversion.process_id;
  return object;
}

namespace {

std::string Quoted(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

}  // namespace

std::string WriteTraceJson(const std::vector<Conversion>& conversions) {
  std::string text;
  for (const Conversion& conversion : conversions)
    text += ConversionJson(conversion).dump(-1, ' ', false, Json::error_handler_t::replace) + '\n';
  return text;
}

std::string WriteTraceCsv(const std::vector<Conversion>& conversions) {
  constexpr const char* kColumns[] = {
      "kernel",       "function",   "file",   "line",       "ptx_line", "instruction",
      "from",         "to",         "widens", "executions", "rounded",  "worst_relative_loss",
      "example_from", "example_to", "origin", "process"};
  std::string text;
  for (const char* column : kColumns) text += (text.empty() ? "" : ",") + std::string(column);
  text += "\r\n";
  for (const Conversion& conversion : conversions) {
    const Json object = ConversionJson(conversion);
    std::string line;
    bool first = true;
    for (const char* column : kColumns) {
      if (!first) line += ',';
      first = false;
      const auto found = object.find(column);
      if (found == object.end()) continue;
      line += Quoted(found->is_string() ? found->get<std::string>() : found->dump());
    }
    text += line + "\r\n";
  }
  return text;
}

}  // namespace ops_debug::analysis
