// A recursive-descent parser that computes as it goes, over fractions of 64-bit integers.
#include "runner/expression.h"

#include <cctype>
#include <charconv>
#include <numeric>
#include <string>

#include "absl/status/status.h"
#include "runner/text.h"

namespace ops_debug::runner {
namespace {

struct Fraction {
  int64_t numerator = 0;
  int64_t denominator = 1;  // > 0
};

int64_t FloorDivide(int64_t a, int64_t b) { return a / b - (a % b != 0 && a < 0); }
int64_t Floor(Fraction f) { return FloorDivide(f.numerator, f.denominator); }
int64_t Ceil(Fraction f) { return -FloorDivide(-f.numerator, f.denominator); }
bool IsWordStart(char c) { return std::isalpha(static_cast<unsigned char>(c)) || c == '_'; }
bool IsWordChar(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.';
}

class Parser {
 public:
  Parser(std::string_view text, const NameLookup& lookup) : text_(text), lookup_(lookup) {}

  absl::StatusOr<Fraction> Whole() {
    absl::StatusOr<Fraction> value = Sum();
    if (value.ok() && at_ < text_.size()) return Error("unexpected text");
    return value;
  }

 private:
  absl::Status Error(std::string_view what) {
    return absl::InvalidArgumentError(StrCat("'", text_, "': ", what, " at position ", at_ + 1));
  }
  void SkipSpace() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }
  bool Take(char c) {
    SkipSpace();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    SkipSpace();
    return true;
  }

  // Reduces, and keeps the denominator positive.
  absl::StatusOr<Fraction> Make(__int128 numerator, __int128 denominator) {
    if (denominator == 0) return Error("division by zero");
    __int128 a = numerator < 0 ? -numerator : numerator;
    __int128 b = denominator < 0 ? -denominator : denominator;
    while (b != 0) {
      const __int128 rest = a % b;
      a = b;
      b = rest;
    }
    if (a != 0) {
      numerator /= a;
      denominator /= a;
    }
    if (denominator < 0) {
      numerator = -numerator;
      denominator = -denominator;
    }
    if (numerator > INT64_MAX || numerator < INT64_MIN || denominator > INT64_MAX) {
      return Error("the value does not fit into 64 bits");
    }
    return Fraction{static_cast<int64_t>(numerator), static_cast<int64_t>(denominator)};
  }

  absl::StatusOr<Fraction> Sum() {
    absl::StatusOr<Fraction> left = Product();
    while (left.ok()) {
      const bool plus = Take('+');
      if (!plus && !Take('-')) break;
      absl::StatusOr<Fraction> right = Product();
      if (!right.ok()) return right;
      const __int128 a = static_cast<__int128>(left->numerator) * right->denominator;
      const __int128 b = static_cast<__int128>(right->numerator) * left->denominator;
      left =
          Make(plus ? a + b : a - b, static_cast<__int128>(left->denominator) * right->denominator);
    }
    return left;
  }

  absl::StatusOr<Fraction> Product() {
    absl::StatusOr<Fraction> left = Factor();
    while (left.ok()) {
      const char op = Take('*') ? '*' : Take('/') ? '/' : Take('%') ? '%' : 0;
      if (op == 0) break;
      absl::StatusOr<Fraction> right = Factor();
      if (!right.ok()) return right;
      if (op == '%') {
        if (left->denominator != 1 || right->denominator != 1)
          return Error("% needs whole numbers");
        if (right->numerator == 0) return Error("division by zero");
        left = Make(right->numerator == -1 ? 0 : left->numerator % right->numerator, 1);
      } else if (op == '*') {
        left = Make(static_cast<__int128>(left->numerator) * right->numerator,
                    static_cast<__int128>(left->denominator) * right->denominator);
      } else {
        left = Make(static_cast<__int128>(left->numerator) * right->denominator,
                    static_cast<__int128>(left->denominator) * right->numerator);
      }
    }
    return left;
  }

  absl::StatusOr<Fraction> Factor() {
    if (++depth_ > 100) return Error("nested too deeply");
    absl::StatusOr<Fraction> value = FactorAtDepth();
    --depth_;
    return value;
  }

  absl::StatusOr<Fraction> FactorAtDepth() {
    if (Take('-')) {
      absl::StatusOr<Fraction> value = Factor();
      if (!value.ok()) return value;
      return Make(-static_cast<__int128>(value->numerator), value->denominator);
    }
    if (Take('(')) {
      absl::StatusOr<Fraction> value = Sum();
      if (value.ok() && !Take(')')) return Error("expected ')'");
      return value;
    }
    SkipSpace();
    if (at_ >= text_.size()) return Error("expected a number or a name");
    if (std::isdigit(static_cast<unsigned char>(text_[at_]))) return Number();
    if (IsWordStart(text_[at_])) return NameOrCall();
    return Error("expected a number or a name");
  }

  absl::StatusOr<Fraction> Number() {
    int64_t value = 0;
    const char* end = text_.data() + text_.size();
    const auto [behind, error] = std::from_chars(text_.data() + at_, end, value);
    if (error != std::errc()) return Error("the number does not fit into 64 bits");
    at_ = behind - text_.data();
    if (at_ < text_.size() && IsWordChar(text_[at_])) return Error("expected a whole number");
    return Fraction{value, 1};
  }

  absl::StatusOr<Fraction> NameOrCall() {
    const size_t begin = at_;
    while (at_ < text_.size() && IsWordChar(text_[at_])) ++at_;
    const std::string_view name = text_.substr(begin, at_ - begin);
    if (!Take('(')) {
      if (std::optional<int64_t> value = lookup_(name)) return Fraction{*value, 1};
      at_ = begin;
      return Error(StrCat("no value is known for '", name, "'"));
    }
    absl::StatusOr<Fraction> first = Sum();
    if (!first.ok()) return first;
    Fraction result;
    if (name == "ceil" || name == "floor") {
      result = {name == "ceil" ? Ceil(*first) : Floor(*first), 1};
    } else if (name == "min" || name == "max") {
      if (!Take(',')) return Error("expected ','");
      absl::StatusOr<Fraction> second = Sum();
      if (!second.ok()) return second;
      const bool first_smaller = static_cast<__int128>(first->numerator) * second->denominator <
                                 static_cast<__int128>(second->numerator) * first->denominator;
      result = first_smaller == (name == "min") ? *first : *second;
    } else {
      at_ = begin;
      return Error(StrCat("unknown function '", name, "' (known: ceil, floor, min, max)"));
    }
    if (!Take(')')) return Error("expected ')'");
    return result;
  }

  std::string_view text_;
  const NameLookup& lookup_;
  size_t at_ = 0;
  int depth_ = 0;
};

// "16x16": only digits and single 'x' between them.
bool IsCrossProduct(std::string_view text) {
  bool digit = false;
  for (char c : text) {
    if (c == 'x' && !digit) return false;
    if (c != 'x' && !std::isdigit(static_cast<unsigned char>(c))) return false;
    digit = c != 'x';
  }
  return digit;
}

}  // namespace

absl::StatusOr<int64_t> Evaluate(std::string_view text, const NameLookup& lookup) {
  absl::StatusOr<Fraction> value = Parser(text, lookup).Whole();
  if (!value.ok()) return value.status();
  if (value->denominator != 1) {
    return absl::InvalidArgumentError(StrCat("'", text, "' is ", value->numerator, "/",
                                             value->denominator,
                                             ", not a whole number: use ceil(...) or floor(...)"));
  }
  return value->numerator;
}

absl::StatusOr<std::vector<int64_t>> EvaluateList(std::string_view text, const NameLookup& lookup) {
  std::vector<int64_t> values;
  const bool cross = IsCrossProduct(text);
  int depth = 0;
  size_t begin = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    const bool end = i == text.size();
    if (!end && text[i] == '(') ++depth;
    if (!end && text[i] == ')') --depth;
    const bool separator = !end && depth == 0 && text[i] == (cross ? 'x' : ',');
    if (!end && !separator) continue;
    absl::StatusOr<int64_t> value = Evaluate(text.substr(begin, i - begin), lookup);
    if (!value.ok()) return value.status();
    values.push_back(*value);
    begin = i + 1;
  }
  return values;
}

}  // namespace ops_debug::runner
