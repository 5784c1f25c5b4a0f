// Errors name the place, what was expected, what stood there, and a hint where one helps. No input
// crashes the parser.
#include <catch2/catch.hpp>

#include "ptx/lexer.h"
#include "ptx/parser.h"
#include "ptx/printer.h"
#include "test/ptx/corpus.h"
#include "test/ptx/module_text.h"

namespace ops_debug::ptx {
namespace {

std::string ErrorOf(const std::string& text) {
  const auto module = Parse(text);
  return module.ok() ? "" : module.error().ToString();
}

// The same sequence everywhere, unlike std::mt19937's distributions.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  size_t Below(size_t limit) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<size_t>(state_ >> 33) % limit;
  }

 private:
  uint64_t state_;
};

// A damaged module parses or gives a located error; what parses can be printed and parsed again.
void Survives(const std::string& text) {
  const auto module = Parse(text);
  if (!module.ok()) {
    CHECK(module.error().line > 0);
    CHECK(module.error().column > 0);
    CHECK_FALSE(module.error().message.empty());
    return;
  }
  const auto again = Parse(Print(module.value()));
  CHECK(again.ok());
}

}  // namespace

TEST_CASE("errors give line, column, what was expected and what was found") {
  CHECK(ErrorOf("") ==
        "1:1: expected '.version', found end of text (PTX text begins with .version, .target and, "
        "mostly, .address_size)");
  CHECK(ErrorOf(".version 8.0\n.target sm_90\n  add.u32 a, b;") ==
        "3:3: expected a directive, found 'add' (instructions stand between the braces of a "
        "function; is a '{' missing, "
        "or a '}' too many?)");
  CHECK(ErrorOf(Kernel("\tadd.u32 %r1, %r2")) ==
        "8:1: expected ',' or ';' behind an operand, found '}' (a statement ends with ';')");
  CHECK(ErrorOf(Kernel("add.u32 %r1, ;")) == "7:14: expected an operand, found ';'");
  CHECK(ErrorOf(Kernel("ld.global.u32 %r1, [%rd1+%rd2];")) ==
        "7:26: expected a constant offset in bytes, found '%rd2' (PTX addresses are "
        "[register+constant])");
  CHECK(ErrorOf(Kernel("@%q1 bra L;")) ==
        "7:2: guard '%q1' is not a declared register (declare it: .reg .pred %q1;)");
  CHECK(ErrorOf(Kernel("mov.f32 %f1, 0f3F8000;")) ==
        "7:14: a 0f literal has 8 hexadecimal digits '0f3F8000'");
  CHECK(ErrorOf(Kernel("{ ret;")) ==
        "9:1: expected '}', found end of text (function k is not closed)");
  CHECK(ErrorOf(Kernel(".lock 1 2 3")) ==
        "7:1: unknown directive '.lock' in a function body (expected an instruction, a variable, "
        ".loc or .pragma)");
  CHECK(ErrorOf(".version 8.0\n.target sm_90\n.entry (.param .b32 r) k() { ret; }") ==
        "3:8: expected the name of the entry, found '(' (only a .func returns values)");
  CHECK(ErrorOf(".version 8.0\n.target sm_90\n/* open") == "3:1: unterminated comment");
  CHECK(ErrorOf(".version 8.0\n.target sm_90\n.file 1 \"open\n") ==
        "3:9: unterminated string '\"open'");
  CHECK(ErrorOf(".version 8.0\n.target sm_90\n#define N 1\n") ==
        "3:1: stray '#' '#' (preprocessor lines are not PTX: run the C preprocessor first)");
}

TEST_CASE("trailing NUL bytes are not part of the text") {
  CHECK(ErrorOf(Kernel("ret;") + std::string(3, '\0')).empty());
  CHECK_FALSE(ErrorOf(Kernel(std::string("ret;\0 ret;", 10))).empty());
}

TEST_CASE("deep nesting is an error, not a stack overflow") {
  for (const char* open : {"(", "-", "{", "[", "!", "-("}) {
    std::string nested;
    for (int i = 0; i < 200000; ++i) nested += open;
    const std::string error = ErrorOf(Kernel("mov.b32 %r1, " + nested));
    INFO(open << " -> " << error.substr(0, 100));
    CHECK((error.find("levels of nesting") != std::string::npos ||
           error.find("expected") != std::string::npos));
  }
  std::string blocks;
  for (int i = 0; i < 200000; ++i) blocks += "{ .reg .b32 x; ";
  CHECK(ErrorOf(Kernel(blocks)).find("expected '}'") != std::string::npos);
}

TEST_CASE("truncated files give errors or modules, never a crash") {
  for (const auto& path : TestCorpus().own) {
    const std::string text = ReadFile(path);
    INFO(path);
    for (size_t length = 0; length < text.size(); ++length) Survives(text.substr(0, length));
  }
}

TEST_CASE("mutated files give errors or modules, never a crash") {
  static constexpr char kAlphabet[] = "{}()[]<>,;:@!|+-*/%=.\"#0x_ \n\0\xff";
  const std::string alphabet(kAlphabet, sizeof(kAlphabet) - 1);
  Random random(2);
  for (const auto& path : TestCorpus().All()) {
    const std::string text = ReadFile(path);
    if (text.size() > 30000) continue;  // the large ones have nothing that the small ones lack
    INFO(path);
    for (int round = 0; round < 40; ++round) {
      std::string mutated = text;
      for (size_t edit = 0; edit <= random.Below(4); ++edit) {
        const size_t at = random.Below(mutated.size()), length = random.Below(40);
        switch (random.Below(4)) {
          case 0:
            mutated[at] = alphabet[random.Below(alphabet.size())];
            break;
          case 1:
            mutated.erase(at, length);
            break;
          case 2:
            mutated.insert(at, mutated.substr(random.Below(mutated.size()), length));
            break;
          default:
            mutated.insert(at, 1, alphabet[random.Below(alphabet.size())]);
        }
        if (mutated.empty()) mutated = ";";
      }
      INFO("round " << round);
      Survives(mutated);
    }
  }
}

TEST_CASE("random tokens give errors or modules, never a crash") {
  const std::string text = ReadFile(std::string(OPS_DEBUG_PTX_DATA) + "/grammar.ptx");
  const std::vector<Token> vocabulary = Tokenize(text);
  REQUIRE(vocabulary.size() > 1000);
  Random random(3);
  for (int round = 0; round < 3000; ++round) {
    std::string body;
    for (size_t i = 0; i < 1 + random.Below(30); ++i) {
      body += std::string(vocabulary[random.Below(vocabulary.size())].text) + " ";
    }
    INFO(body);
    Survives(Kernel(body));
    Survives(".version 8.0\n.target sm_90\n.address_size 64\n" + body);
  }
}

}  // namespace ops_debug::ptx
