// Splits PTX text into tokens (PTX ISA 9.0, chapter 4). Tokens are views into the text; nothing is
// allocated. Comments and the line markers of the C preprocessor count as white space.
//
// The text must end in a NUL that is not part of it (std::string and Module::Intern guarantee it):
// the lexer needs no bounds checks then, because the NUL ends every token class.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace ops_debug::ptx {

enum class TokenKind : uint8_t {
  kEnd,
  kIdentifier,   // add  %r1  $L__BB0_1  _
  kDotWord,      // .global  .L1::no_allocate  .x
  kNumber,       // 12  0x1FU  0f3F800000  1.5e-3
  kString,       // "..." with its quotes
  kPlaceholder,  // #0, an operand that the caller of ParseStatements passes
  kPunctuation,  // one of ( ) [ ] { } < > , ; : @ ! ~ | & ^ + - * / % = ? and << >> <= >= == != &&
                 // ||
  kError,        // text that is no token; Lexer::error says why
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  char punctuation =
      0;  // first character of kPunctuation; for two-character operators `text` has both
  uint32_t line = 1;    // 1-based
  uint32_t column = 1;  // 1-based, bytes
  std::string_view text;

  bool Is(char c) const {
    return kind == TokenKind::kPunctuation && punctuation == c && text.size() == 1;
  }
};

class Lexer {
 public:
  explicit Lexer(std::string_view text)
      : cursor_(text.data()), end_(text.data() + text.size()), line_start_(text.data()) {}

  Token Next();

  // The next character that is neither white space nor comment, without consuming it; 0 at the end.
  char PeekCharacter();

  // Skips to the end of the line and returns what was skipped.
  std::string_view RestOfLine();

  // Why the last token was kError.
  const char* error() const { return error_; }

 private:
  // False at an unterminated comment.
  bool SkipSpace();

  const char* cursor_;
  const char* end_;
  const char* line_start_;
  uint32_t line_ = 1;
  const char* error_ = "";
};

// All tokens up to the end or the first error (which is the last element then).
std::vector<Token> Tokenize(std::string_view text);

}  // namespace ops_debug::ptx
