#include "runner/expression.h"

#include <catch2/catch.hpp>

namespace ops_debug::runner {
namespace {

std::optional<int64_t> Lookup(std::string_view name) {
  if (name == "N") return 1000;
  if (name == "M") return 7;
  if (name == "A.size") return 7000;
  return std::nullopt;
}

std::string Message(std::string_view text) {
  return std::string(Evaluate(text, Lookup).status().message());
}

TEST_CASE("arithmetic has the usual precedence and is exact") {
  const auto [text, value] = GENERATE(table<const char*, int64_t>({
      {"42", 42},
      {"2+3*4", 14},
      {"(2+3)*4", 20},
      {"10-3-2", 5},
      {"-3+5", 2},
      {"17%5", 2},
      {"N/8*8", 1000},
      {"ceil(N/64)", 16},
      {"floor(N/64)", 15},
      {"ceil(-1/2)", 0},
      {"floor(-1/2)", -1},
      {"min(N,M)", 7},
      {"max(N/3,M)*3", 1000},
      {"ceil(M/2)*N", 4000},
      {" N + 1 ", 1001},
      {"A.size/M", 1000},
  }));
  CAPTURE(text);
  const absl::StatusOr<int64_t> result = Evaluate(text, Lookup);
  REQUIRE(result.ok());
  CHECK(*result == value);
}

TEST_CASE("a fraction is an error that names ceil") {
  CHECK(Message("N/64") == "'N/64' is 125/8, not a whole number: use ceil(...) or floor(...)");
}

TEST_CASE("errors say what and where") {
  CHECK(Message("N+K") == "'N+K': no value is known for 'K' at position 3");
  CHECK(Message("(N") == "'(N': expected ')' at position 3");
  CHECK(Message("N/0") == "'N/0': division by zero at position 4");
  CHECK(Message("") == "'': expected a number or a name at position 1");
  CHECK(Message("2 3") == "'2 3': unexpected text at position 3");
  CHECK(Message("round(N)") ==
        "'round(N)': unknown function 'round' (known: ceil, floor, min, max) at position 1");
  CHECK(Message("12cm") == "'12cm': expected a whole number at position 3");
}

TEST_CASE("overflow and deep nesting are errors, not crashes") {
  CHECK(Message("9223372036854775807*2").find("does not fit into 64 bits") != std::string::npos);
  CHECK(Message("99999999999999999999").find("does not fit into 64 bits") != std::string::npos);
  CHECK(Message(std::string(100000, '(')).find("nested too deeply") != std::string::npos);
  CHECK(Message(std::string(100000, '-')).find("nested too deeply") != std::string::npos);
}

TEST_CASE("lists are joined by x or by commas") {
  using List = std::vector<int64_t>;
  CHECK(*EvaluateList("16x16", Lookup) == List{16, 16});
  CHECK(*EvaluateList("256", Lookup) == List{256});
  CHECK(*EvaluateList("ceil(N/64),min(M,3),2", Lookup) == List{16, 3, 2});
  CHECK_FALSE(EvaluateList("16x", Lookup).ok());
  CHECK_FALSE(EvaluateList("1,,2", Lookup).ok());
}

}  // namespace
}  // namespace ops_debug::runner
