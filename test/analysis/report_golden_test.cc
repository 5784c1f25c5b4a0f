// Events and the text that they become, side by side in golden/*.golden:
//
//   === events      protobuf text of one Event each, separated by lines of ---
//   === text        the whole report
//
// @DIR@ stands for the folder. OPS_DEBUG_UPDATE_GOLDENS=1 rewrites the expected text; read the
// difference.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "analysis/event_analysis.h"
#include "analysis/text_report.h"
#include "test/analysis/event_builder.h"

namespace ops_debug::analysis {
namespace {

constexpr char kFolder[] = OPS_DEBUG_GOLDEN_FOLDER;
constexpr char kEventsMark[] = "=== events\n";
constexpr char kTextMark[] = "=== text\n";

std::string Replace(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
  return text;
}

std::string ReadFile(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::string Analyse(const std::string& events) {
  EventAnalysis analysis;
  std::istringstream in(events);
  std::string event;
  for (std::string line; std::getline(in, line);) {
    if (line != "---") {
      event += line + '\n';
      continue;
    }
    analysis.Add(Parse<proto::Event>(event));
    event.clear();
  }
  analysis.Add(Parse<proto::Event>(event));
  return WriteText(analysis.Finish(), false);
}

TEST_CASE("events become the expected text") {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    if (entry.path().extension() == ".golden") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  REQUIRE(files.size() >= 10);
  for (const auto& file : files) {
    const std::string contents = ReadFile(file);
    const size_t events = contents.find(kEventsMark) + sizeof(kEventsMark) - 1;
    const size_t text = contents.find(kTextMark);
    REQUIRE(text != std::string::npos);
    const std::string actual =
        Replace(Analyse(Replace(contents.substr(events, text - events), "@DIR@", kFolder)), kFolder,
                "@DIR@");
    if (std::getenv("OPS_DEBUG_UPDATE_GOLDENS") != nullptr) {
      std::ofstream(file) << contents.substr(0, text) << kTextMark << actual;
      continue;
    }
    INFO(file.string());
    CHECK(actual == contents.substr(text + sizeof(kTextMark) - 1));
  }
}

TEST_CASE("colours are added only when asked for, and nothing else changes") {
  EventAnalysis analysis;
  analysis.Add(
      Parse<proto::Event>(R"(diagnostic { severity: SEVERITY_WARNING text: "w" hint: "h" })"));
  const Report report = analysis.Finish();
  const std::string plain = WriteText(report, false);
  std::string coloured = WriteText(report, true);
  REQUIRE(plain.find('\033') == std::string::npos);
  REQUIRE(coloured.find("\033[1;33mwarning: \033[0m") != std::string::npos);
  for (size_t at = 0; (at = coloured.find('\033')) != std::string::npos;) {
    coloured.erase(at, coloured.find('m', at) - at + 1);
  }
  REQUIRE(coloured == plain);
}

TEST_CASE("control characters of foreign names do not reach the terminal") {
  EventAnalysis analysis;
  analysis.Add(Parse<proto::Event>(R"(diagnostic { text: "a\033[2Jb\nc" })"));
  REQUIRE(WriteText(analysis.Finish(), false) == "ops-debug: a?[2Jb?c\n");
}

}  // namespace
}  // namespace ops_debug::analysis
