// Nothing is lost: the print of a parsed file has the tokens of the file.
#include <catch2/catch.hpp>
#include <iostream>

#include "ptx/lexer.h"
#include "ptx/parser.h"
#include "ptx/printer.h"
#include "test/ptx/corpus.h"

namespace ops_debug::ptx {
namespace {

// Everything but comments, line markers and white space outside strings. Shares no code with the
// lexer.
std::string Squeeze(const std::string& text) {
  std::string result;
  bool line_is_blank = true;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text.compare(i, 2, "//") == 0 || (text[i] == '#' && line_is_blank)) {
      i = text.find('\n', i);
      if (i == std::string::npos) break;
      line_is_blank = true;
    } else if (text.compare(i, 2, "/*") == 0) {
      i = text.find("*/", i) + 1;
    } else if (text[i] == '"') {
      const size_t end = text.find('"', i + 1);
      result += text.substr(i, end + 1 - i);
      i = end;
    } else if (text[i] == '\n') {
      line_is_blank = true;
    } else if (text[i] != ' ' && text[i] != '\t' && text[i] != '\r') {
      result += text[i];
      line_is_blank = false;
    }
  }
  return result;
}

// "12:3 'ld' became 'st'" for the first difference, or empty.
std::string FirstDifference(const std::string& before, const std::string& after) {
  const std::vector<Token> a = Tokenize(before), b = Tokenize(after);
  for (size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
    const Token none;
    const Token& left = i < a.size() ? a[i] : none;
    const Token& right = i < b.size() ? b[i] : none;
    if (left.kind != right.kind || left.text != right.text) {
      return std::to_string(left.line) + ":" + std::to_string(left.column) + " '" +
             std::string(left.text) + "' became '" + std::string(right.text) + "'";
    }
  }
  return "";
}

}  // namespace

TEST_CASE("the corpus is complete where there is one") {
  const Corpus& corpus = TestCorpus();
  CHECK(corpus.own.size() >= 4);
  if (corpus.real.empty()) {
    std::cout << "skipped the real PTX files: " << corpus.skipped << "\n";
    return;
  }
  CHECK(corpus.real.size() == 88);
}

TEST_CASE("print(parse(x)) has the tokens of x") {
  for (const auto& path : TestCorpus().All()) {
    INFO(path);
    const std::string text = ReadFile(path);
    auto module = Parse(text);
    REQUIRE((module.ok() ? "" : module.error().ToString()) == std::string());
    const std::string printed = Print(*module);
    CHECK(FirstDifference(text, printed) == "");
    CHECK((Squeeze(text) == Squeeze(printed)));
  }
}

TEST_CASE("parsing a print prints the same again") {
  for (const auto& path : TestCorpus().All()) {
    INFO(path);
    auto module = Parse(ReadFile(path));
    REQUIRE(module.ok());
    const std::string printed = Print(*module);
    auto again = Parse(printed);
    REQUIRE(again.ok());
    CHECK((Print(*again) == printed));
  }
}

TEST_CASE("a moved module still owns its text") {
  auto module = Parse(ReadFile(std::string(OPS_DEBUG_PTX_DATA) + "/saxpy.ptx"));
  REQUIRE(module.ok());
  const std::string printed = Print(*module);
  Module moved = std::move(*module);
  CHECK(Print(moved) == printed);
}

}  // namespace ops_debug::ptx
