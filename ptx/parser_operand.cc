// Operands and constant expressions. See parser_state.h for how the parser works.
#include <string>

#include "ptx/parser_state.h"
#include "ptx/special_registers.h"

namespace ops_debug::ptx {

RegisterId Parser::Resolve(std::string_view name) {
  const RegisterId found = function_->register_table.Find(name, function_->registers);
  if (found != kNoRegister || !is_fragment_ || !function_->register_table.EverDeclared(name))
    return found;
  // A fragment has no place in the body yet, so a register of an inner block is found only if its
  // name is unique.
  RegisterId unique = kNoRegister;
  for (RegisterId id = 0; id < function_->registers.size(); ++id) {
    if (function_->registers[id].name != name) continue;
    if (unique != kNoRegister) {
      Fail(Diagnostic::Code::kInvalid, token_,
           "register " + Describe(token_) + " is declared in several blocks",
           "pass it as an operand (#0) instead of by name");
      return kNoRegister;
    }
    unique = id;
  }
  return unique;
}

void Parser::Wrap(Operand& out, Operand::Kind kind, std::span<const Operand> children) {
  const std::span<Operand> stored = module_.Intern(children);
  out = Operand{};
  out.kind = kind;
  out.children = stored;
}

bool Parser::ParseOperand(Operand& out, bool offset_allowed) {
  if (!ParseSimpleOperand(out, offset_allowed)) return false;
  if (token_.kind == TokenKind::kDotWord &&
      (out.IsRegister() || out.kind == Operand::Kind::kSymbol ||
       out.kind == Operand::Kind::kNegate)) {
    const std::string_view selector = token_.text;
    // -%r1.b0 is the negation of a selected part.
    const bool negated = out.kind == Operand::Kind::kNegate;
    const Operand selected = negated ? out.children[0] : out;
    Wrap(out, Operand::Kind::kSelector, {&selected, 1});
    out.text = selector;
    if (negated) {
      const Operand inner = out;
      Wrap(out, Operand::Kind::kNegate, {&inner, 1});
    }
    Advance();
  }
  if (token_.Is('|')) {
    Advance();
    Operand pair[2] = {out, {}};
    if (!ParseSimpleOperand(pair[1], false)) return false;
    Wrap(out, Operand::Kind::kPair, pair);
  }
  return !failed_;
}

bool Parser::ParseSimpleOperand(Operand& out, bool offset_allowed) {
  const DepthGuard guard(depth_);
  if (DepthExceeded()) return false;
  switch (token_.kind) {
    case TokenKind::kIdentifier:
      if (token_.text == "_") {
        out.kind = Operand::Kind::kSink;
        out.text = token_.text;
        Advance();
        return !failed_;
      }
      return ParseName(out, offset_allowed);
    case TokenKind::kNumber:
      return ParseConstant(out);
    case TokenKind::kPlaceholder:
      return ParsePlaceholder(out);
    case TokenKind::kString:
      out.kind = Operand::Kind::kImmediate;
      out.text = token_.text;
      Advance();
      return !failed_;
    case TokenKind::kPunctuation: {
      if (token_.text.size() != 1) break;
      switch (token_.punctuation) {
        case '[':
          return ParseAddress(out);
        case '{':
          return ParseSequence(out, Operand::Kind::kVector, '}');
        case '(':
          return in_call_ ? ParseSequence(out, Operand::Kind::kList, ')') : ParseConstant(out);
        case '!':
          return ParseUnary(out, Operand::Kind::kNot);
        case '-':
          return ParseUnary(out, Operand::Kind::kNegate);
        case '+':
        case '~':
          return ParseConstant(out);
        default:
          break;
      }
      break;
    }
    default:
      break;
  }
  return FailExpected("an operand");
}

bool Parser::ParsePlaceholder(Operand& out) {
  const uint64_t index = DecodeNumber(token_.text.substr(1)).bits;
  if (token_.text.size() > 6 || index >= arguments_.size()) {
    return Fail(Diagnostic::Code::kInvalid, token_,
                "no operand was passed for " + Describe(token_));
  }
  out = arguments_[index];
  Advance();
  return !failed_;
}

// '!' or '-' before a register; before anything else a constant expression starts.
bool Parser::ParseUnary(Operand& out, Operand::Kind kind) {
  const char next = lexer_.PeekCharacter();
  const bool is_name = next == '%' || next == '$' || next == '_' || next == '#' ||
                       (next >= 'A' && next <= 'Z') || (next >= 'a' && next <= 'z');
  if (!is_name) return ParseConstant(out);
  Advance();
  Operand child;
  if (token_.kind == TokenKind::kPlaceholder ? !ParsePlaceholder(child)
                                             : !ParseSimpleOperand(child, false))
    return false;
  Wrap(out, kind, {&child, 1});
  return true;
}

bool Parser::ParseName(Operand& out, bool offset_allowed) {
  const Token name = token_;
  out.text = name.text;
  out.reg = Resolve(name.text);
  if (failed_) return false;
  if (out.reg != kNoRegister) {
    out.kind = Operand::Kind::kRegister;
    Advance();
    return !failed_;
  }
  if (IsSpecialRegister(name.text)) {
    if (name.text == "WARP_SZ") {
      const char next = lexer_.PeekCharacter();
      if (std::string_view("+-*/%<>&^?=!").find(next) != std::string_view::npos && next != 0)
        return ParseConstant(out);
    }
    out.kind = Operand::Kind::kSpecialRegister;
    Advance();
    if (token_.kind == TokenKind::kDotWord) {
      const bool adjacent = token_.text.data() == name.text.data() + name.text.size();
      out.text = adjacent
                     ? std::string_view(name.text.data(), name.text.size() + token_.text.size())
                     : module_.Intern(std::string(name.text) + std::string(token_.text));
      Advance();
    }
    return !failed_;
  }
  out.kind = Operand::Kind::kSymbol;
  Advance();
  if (!offset_allowed) return !failed_;
  if (token_.Is('[')) {
    Operand element[2] = {out, {}};
    if (!ParseAddress(element[1])) return false;
    Wrap(out, Operand::Kind::kElement, element);
    return true;
  }
  if (token_.Is('+') || token_.Is('-')) return ParseOffset(out);
  return !failed_;
}

// Behind the base of an address or a symbol: "+ expression" or "- expression".
bool Parser::ParseOffset(Operand& out) {
  out.has_offset = true;
  out.offset_is_bare = token_.Is('-');
  if (!out.offset_is_bare) Advance();
  Operand offset;
  if (token_.kind == TokenKind::kIdentifier && token_.text != "WARP_SZ") {
    return FailExpected("a constant offset in bytes", "PTX addresses are [register+constant]");
  }
  if (!ParseConstant(offset)) return false;
  if (!offset.is_integer)
    return Fail(Diagnostic::Code::kInvalid, token_, "the offset is not an integer constant");
  out.offset_text = offset.text;
  out.offset = offset.value;
  return true;
}

bool Parser::ParseAddress(Operand& out) {
  const size_t first = operand_stack_.size();
  Advance();  // '['
  Operand address;
  address.kind = Operand::Kind::kAddress;
  for (;;) {
    Operand item;
    if (!ParseOperand(item, false)) return false;
    operand_stack_.push_back(item);
    if (operand_stack_.size() == first + 1 && (token_.Is('+') || token_.Is('-')) &&
        !ParseOffset(address))
      return false;
    if (token_.Is(']')) break;
    if (!Expect(',', "or ']' in an address")) return false;
  }
  Advance();
  if (token_.kind == TokenKind::kDotWord) {  // .unified
    address.text = token_.text;
    Advance();
  }
  address.children = module_.Intern(std::span<const Operand>(operand_stack_).subspan(first));
  operand_stack_.resize(first);
  out = address;
  return !failed_;
}

bool Parser::ParseSequence(Operand& out, Operand::Kind kind, char close) {
  const size_t first = operand_stack_.size();
  Advance();  // '{' or '('
  if (!token_.Is(close)) {
    for (;;) {
      Operand item;
      if (!ParseOperand(item, true)) return false;
      operand_stack_.push_back(item);
      if (token_.Is(close)) break;
      if (!token_.Is(','))
        return FailExpected(std::string("',' or '") + close + "' in a list of operands");
      Advance();
    }
  }
  Advance();
  out.kind = kind;
  out.children = module_.Intern(std::span<const Operand>(operand_stack_).subspan(first));
  operand_stack_.resize(first);
  return !failed_;
}

bool Parser::ParseConstant(Operand& out) {
  const char* start = token_.text.data();
  Constant value;
  if (!ParseExpression(value, 1)) return false;
  out.kind = Operand::Kind::kImmediate;
  out.text = TextSince(start);
  out.value = static_cast<int64_t>(value.bits);
  out.is_integer = value.is_integer;
  return true;
}

// Precedence climbing; ?: binds weakest and is handled at the outermost level.
bool Parser::ParseExpression(Constant& value, int minimum_precedence) {
  const DepthGuard guard(depth_);
  if (DepthExceeded() || !ParseTerm(value)) return false;
  for (;;) {
    if (token_.kind != TokenKind::kPunctuation) return !failed_;
    if (token_.Is('?') && minimum_precedence <= 1) {
      Constant yes, no;
      Advance();
      if (!ParseExpression(yes, 1) || !Expect(':', "between the values of '?'") ||
          !ParseExpression(no, 1))
        return false;
      const bool known = value.is_integer;
      value = value.bits != 0 ? yes : no;
      value.is_integer = value.is_integer && known;
      continue;
    }
    const int precedence = BinaryPrecedence(token_.text);
    if (precedence < minimum_precedence || precedence == 0) return !failed_;
    const std::string_view operation = token_.text;
    Advance();
    Constant right;
    if (!ParseExpression(right, precedence + 1)) return false;
    value = ApplyBinary(operation, value, right);
  }
}

bool Parser::ParseTerm(Constant& value) {
  const DepthGuard guard(depth_);
  if (DepthExceeded()) return false;
  if (token_.kind == TokenKind::kNumber) {
    value = DecodeNumber(token_.text);
    Advance();
    return !failed_;
  }
  if (token_.kind == TokenKind::kDotWord && token_.text[1] >= '0' && token_.text[1] <= '9') {  // .5
    value.is_integer = false;
    Advance();
    return !failed_;
  }
  if (token_.kind == TokenKind::kIdentifier && token_.text == "WARP_SZ") {
    value = Constant{32, true, false};
    Advance();
    return !failed_;
  }
  if (token_.kind == TokenKind::kPunctuation && token_.text.size() == 1) {
    const char operation = token_.punctuation;
    if (operation == '-' || operation == '+' || operation == '!' || operation == '~') {
      Advance();
      if (!ParseTerm(value)) return false;
      value = ApplyUnary(operation, value);
      return true;
    }
    if (operation == '(') {
      Advance();
      if (AtWord(".s64") || AtWord(".u64")) {
        const bool is_unsigned = AtWord(".u64");
        Advance();
        if (!Expect(')', "behind the cast") || !ParseTerm(value)) return false;
        value.is_unsigned = is_unsigned;
        return true;
      }
      return ParseExpression(value, 1) && Expect(')', "in an expression");
    }
  }
  return FailExpected("a constant");
}

bool EvaluateConstant(std::string_view text, int64_t* value) {
  // A plain number, the usual case, needs no parser.
  bool is_decimal = !text.empty() && text.size() < 18 && text[0] != '0';
  for (char c : text) is_decimal = is_decimal && c >= '0' && c <= '9';
  if (is_decimal) {
    *value = static_cast<int64_t>(DecodeNumber(text).bits);
    return true;
  }
  Module module;
  Parser parser(module, module.Intern(text));
  Constant constant;
  if (!parser.ParseWholeConstant(constant) || !constant.is_integer) return false;
  *value = static_cast<int64_t>(constant.bits);
  return true;
}

bool Parser::ParseWholeConstant(Constant& constant) {
  return !failed_ && ParseExpression(constant, 1) && token_.kind == TokenKind::kEnd;
}

}  // namespace ops_debug::ptx
