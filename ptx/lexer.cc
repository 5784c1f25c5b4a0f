// The PTX lexer: one table of character classes, one switch on the first character of a token.
#include "ptx/lexer.h"

#include <array>
#include <cstring>

namespace ops_debug::ptx {
namespace {

enum CharacterClass : uint8_t { kWord = 1, kDigit = 2, kHex = 4, kSpace = 8, kStart = 16 };

constexpr std::array<uint8_t, 256> MakeClasses() {
  std::array<uint8_t, 256> table{};
  for (int c = 'a'; c <= 'z'; ++c) table[c] = kWord | kStart;
  for (int c = 'A'; c <= 'Z'; ++c) table[c] = kWord | kStart;
  for (int c = '0'; c <= '9'; ++c) table[c] = kWord | kDigit | kHex;
  for (int c = 'a'; c <= 'f'; ++c) table[c] |= kHex;
  for (int c = 'A'; c <= 'F'; ++c) table[c] |= kHex;
  table['_'] = table['$'] = kWord | kStart;
  for (char c : {' ', '\t', '\r', '\n', '\v', '\f'}) table[static_cast<unsigned char>(c)] = kSpace;
  return table;
}
constexpr std::array<uint8_t, 256> kClasses = MakeClasses();

inline bool Has(char c, uint8_t classes) {
  return kClasses[static_cast<unsigned char>(c)] & classes;
}

// End of the number that starts at `p` (a digit), or nullptr if the digits do not fit the prefix.
const char* ScanNumber(const char* p, const char** error) {
  const auto scan = [](const char* q, uint8_t classes) {
    while (Has(*q, classes)) ++q;
    return q;
  };
  const auto finish = [&](const char* digits, const char* q, bool valid) -> const char* {
    if (q == digits || !valid) {
      *error = "malformed number";
      return nullptr;
    }
    if (*q == 'U') ++q;
    if (Has(*q, kWord)) {
      *error = "malformed number";
      return nullptr;
    }
    return q;
  };
  if (p[0] == '0' && (p[1] == 'x' || p[1] == 'X')) {
    const char* q = scan(p + 2, kHex);
    return finish(p + 2, q, true);
  }
  if (p[0] == '0' && (p[1] == 'f' || p[1] == 'F' || p[1] == 'd' || p[1] == 'D')) {
    const size_t digits = p[1] == 'f' || p[1] == 'F' ? 8 : 16;
    const char* q = scan(p + 2, kHex);
    if (static_cast<size_t>(q - (p + 2)) != digits || Has(*q, kWord)) {
      *error = digits == 8 ? "a 0f literal has 8 hexadecimal digits"
                           : "a 0d literal has 16 hexadecimal digits";
      return nullptr;
    }
    return q;
  }
  if (p[0] == '0' && (p[1] == 'b' || p[1] == 'B')) {
    const char* q = p + 2;
    while (*q == '0' || *q == '1') ++q;
    return finish(p + 2, q, true);
  }
  const char* q = scan(p, kDigit);
  const char* integer_end = q;
  if (*q == '.' && !Has(q[1], kStart)) q = scan(q + 1, kDigit);
  if ((*q == 'e' || *q == 'E') &&
      (Has(q[1], kDigit) || ((q[1] == '+' || q[1] == '-') && Has(q[2], kDigit)))) {
    q = scan(q + 2, kDigit);
  }
  if (q != integer_end) {
    if (!Has(*q, kWord)) return q;
    *error = "malformed number";
    return nullptr;
  }
  return finish(p, q, true);
}

// `# 12 "file.cu"` or `#line 12`: what the C preprocessor leaves behind. ptxas takes such lines
// anywhere and uses them for its messages only. (`#0` is a placeholder.)
bool IsLineMarker(const char* p) {
  const char* q = p + 1;
  while (*q == ' ' || *q == '\t') ++q;
  return (q != p + 1 && Has(*q, kDigit)) || std::string_view(q, strnlen(q, 4)) == "line";
}

}  // namespace

bool Lexer::SkipSpace() {
  const char* p = cursor_;
  for (;;) {
    while (*p == ' ' || *p == '\t') ++p;
    if (*p == '\n') {
      ++p;
      ++line_;
      line_start_ = p;
    } else if (*p == '/' && p[1] == '/') {
      p += 2;
      while (*p != '\n' && p != end_) ++p;
    } else if (*p == '/' && p[1] == '*') {
      const char* q = p + 2;
      for (; !(*q == '*' && q[1] == '/'); ++q) {
        if (q == end_) {
          cursor_ = p;
          error_ = "unterminated comment";
          return false;
        }
        if (*q == '\n') {
          ++line_;
          line_start_ = q + 1;
        }
      }
      p = q + 2;
    } else if (Has(*p, kSpace)) {
      ++p;
    } else if (*p == '#' && IsLineMarker(p)) {
      while (*p != '\n' && p != end_) ++p;
    } else {
      cursor_ = p;
      return true;
    }
  }
}

char Lexer::PeekCharacter() { return SkipSpace() ? *cursor_ : 0; }

std::string_view Lexer::RestOfLine() {
  const char* start = cursor_;
  while (*cursor_ != '\n' && cursor_ != end_) ++cursor_;
  return {start, static_cast<size_t>(cursor_ - start)};
}

Token Lexer::Next() {
  Token token;
  const bool skipped = SkipSpace();
  const char* p = cursor_;
  token.line = line_;
  token.column = p < line_start_ ? 1 : static_cast<uint32_t>(p - line_start_) + 1;
  const auto make = [&](TokenKind kind, const char* end) {
    token.kind = kind;
    token.text = {p, static_cast<size_t>(end - p)};
    cursor_ = end;
    return token;
  };
  const auto fail = [&](const char* why, const char* end) {
    error_ = why;
    return make(TokenKind::kError, end);
  };
  if (!skipped) return fail(error_, end_);
  const char* q = p + 1;
  if (Has(*p, kStart) || (*p == '%' && Has(*q, kWord))) {
    while (Has(*q, kWord)) ++q;
    return make(TokenKind::kIdentifier, q);
  }
  switch (*p) {
    case 0:
      if (p == end_) return make(TokenKind::kEnd, p);
      return fail("stray NUL byte", q);
    case '.':
      if (!Has(*q, kWord)) return fail("stray '.'", q);
      do {
        while (Has(*q, kWord)) ++q;
        if (*q != ':' || q[1] != ':' || !Has(q[2], kWord)) break;
        q += 2;
      } while (true);
      return make(TokenKind::kDotWord, q);
    case '0':
    case '1':
    case '2':
    case '3':
    case '4':
    case '5':
    case '6':
    case '7':
    case '8':
    case '9': {
      const char* error = nullptr;
      const char* number_end = ScanNumber(p, &error);
      if (number_end != nullptr) return make(TokenKind::kNumber, number_end);
      while (Has(*q, kWord)) ++q;
      return fail(error, q);
    }
    case '"':  // no escapes: ptxas ends a string at the next quote, also behind a backslash
      for (;; ++q) {
        if (*q == '"') return make(TokenKind::kString, q + 1);
        if (*q == '\n' || q == end_) return fail("unterminated string", q);
      }
    case '#':
      if (!Has(*q, kDigit)) return fail("stray '#'", q);
      while (Has(*q, kDigit)) ++q;
      return make(TokenKind::kPlaceholder, q);
    case '<':
    case '>':
      if (*q == *p || *q == '=') ++q;
      break;
    case '=':
    case '!':
      if (*q == '=') ++q;
      break;
    case '&':
    case '|':
      if (*q == *p) ++q;
      break;
    case '(':
    case ')':
    case '[':
    case ']':
    case '{':
    case '}':
    case ',':
    case ';':
    case ':':
    case '@':
    case '~':
    case '^':
    case '+':
    case '-':
    case '*':
    case '/':
    case '%':
    case '?':
      break;
    default:
      return fail("character that PTX does not use outside strings and comments", q);
  }
  token.punctuation = *p;
  return make(TokenKind::kPunctuation, q);
}

std::vector<Token> Tokenize(std::string_view text) {
  Lexer lexer(text);
  std::vector<Token> tokens;
  do {
    tokens.push_back(lexer.Next());
  } while (tokens.back().kind != TokenKind::kEnd && tokens.back().kind != TokenKind::kError);
  if (tokens.back().kind == TokenKind::kEnd) tokens.pop_back();
  return tokens;
}

}  // namespace ops_debug::ptx
