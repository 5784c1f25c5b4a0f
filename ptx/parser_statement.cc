// Function bodies: statements, labels, guards, .loc. Blocks are flat begin/end markers, so no
// recursion here.
#include <algorithm>
#include <utility>

#include "ptx/parser_state.h"

namespace ops_debug::ptx {

bool Parser::ParseFragment(Function& function, std::span<const Operand> arguments,
                           std::vector<Statement>& out) {
  function_ = &function;
  is_fragment_ = true;
  arguments_ = arguments;
  return ParseStatementList(out, false);
}

// `until_brace`: the list is a body, whose '{' is already consumed, and ends with its '}'.
bool Parser::ParseStatementList(std::vector<Statement>& out, bool until_brace) {
  size_t open = 0;
  while (!failed_) {
    if (token_.Is('{')) {
      out.emplace_back(BlockBegin{Place()});
      function_->register_table.EnterScope();
      ++open;
      Advance();
    } else if (token_.Is('}') && open > 0) {
      out.emplace_back(BlockEnd{Place()});
      function_->register_table.LeaveScope();
      --open;
      Advance();
    } else if (token_.Is('}') && until_brace) {
      Advance();
      return !failed_;
    } else if (token_.kind == TokenKind::kEnd) {
      if (!until_brace && open == 0) return true;
      FailExpected(
          "'}'", until_brace ? "function " + std::string(function_->name) + " is not closed" : "");
    } else {
      ParseStatement(out);
    }
  }
  for (; open > 0; --open) function_->register_table.LeaveScope();
  return false;
}

bool Parser::ParseStatement(std::vector<Statement>& out) {
  if (token_.kind == TokenKind::kDotWord) return ParseDirective(out);
  if (token_.Is(';')) {  // empty statement
    out.emplace_back(RawDirective{Place(), token_.text});
    Advance();
    return !failed_;
  }
  if (token_.kind == TokenKind::kIdentifier && lexer_.PeekCharacter() == ':') {
    out.emplace_back(Label{Place(), token_.text});
    Advance();
    Advance();
    return !failed_;
  }
  if (token_.Is('@') && lexer_.PeekCharacter() == '@') {  // @@DWARF line of PTX 1.x
    RawDirective raw{Place(), {}};
    const char* start = token_.text.data();
    const std::string_view rest = lexer_.RestOfLine();
    raw.text = {start, static_cast<size_t>(rest.data() + rest.size() - start)};
    out.emplace_back(raw);
    Advance();
    return !failed_;
  }
  Instruction instruction;
  if (!ParseInstruction(instruction)) return false;
  out.emplace_back(std::in_place_type<Instruction>, instruction);
  return true;
}

bool Parser::ParseDirective(std::vector<Statement>& out) {
  const Position position = Place();
  const std::string_view word = token_.text;
  if (word == ".loc") {
    Loc loc;
    if (!ParseLoc(loc)) return false;
    current_loc_ = static_cast<uint32_t>(function_->locs.size());
    function_->locs.push_back(loc);
    out.emplace_back(loc);
    return true;
  }
  if (word == ".pragma" || word == ".branchtargets" || word == ".calltargets" ||
      word == ".callprototype") {
    RawDirective raw{position, {}};
    if (!ParseRawToSemicolon(raw)) return false;
    out.emplace_back(raw);
    return true;
  }
  if (word == ".file") {
    const char* start = word.data();
    File file;
    if (!ParseFile(file)) return false;
    out.emplace_back(RawDirective{position, TextSince(start)});
    return true;
  }
  Variable variable;
  variable.position = position;
  while (AtWord(".extern") || AtWord(".visible") || AtWord(".weak") || AtWord(".common")) {
    variable.linkage.push_back(token_.text);
    Advance();
  }
  static constexpr std::string_view kSpaces[] = {".reg",    ".local",  ".shared", ".param",
                                                 ".global", ".const",  ".sreg",   ".tex",
                                                 ".surf",   ".sampler"};
  if (token_.kind != TokenKind::kDotWord ||
      std::find(std::begin(kSpaces), std::end(kSpaces), token_.text) == std::end(kSpaces)) {
    if (failed_) return false;
    return Fail(Diagnostic::Code::kUnsupported, token_,
                "unknown directive " + Describe(token_) + " in a function body",
                "expected an instruction, a variable, .loc or .pragma");
  }
  if (!ParseVariable(variable) || !Expect(';', "behind the declaration")) return false;
  DeclareRegisters(*function_, variable);
  out.emplace_back(std::move(variable));
  return true;
}

bool Parser::ParseLoc(Loc& loc) {
  const char* start = token_.text.data();
  Advance();
  if (!ParseUnsigned(&loc.file, "a file number") || !ParseUnsigned(&loc.line, "a line number") ||
      !ParseUnsigned(&loc.column, "a column")) {
    return false;
  }
  while (token_.Is(',')) {
    Advance();
    const std::string_view word = token_.text;
    if (word == "function_name") {
      loc.has_function = true;
      Advance();
      if (token_.kind != TokenKind::kIdentifier && token_.kind != TokenKind::kDotWord)
        return FailExpected("a label");
      loc.function_name = token_.text;
      Advance();
      if (token_.Is('+')) {
        const char* offset = token_.text.data();
        uint32_t ignored = 0;
        Advance();
        if (!ParseUnsigned(&ignored, "an offset")) return false;
        loc.function_offset = TextSince(offset);
      }
    } else if (word == "inlined_at") {
      Advance();
      if (!ParseUnsigned(&loc.inlined_at_file, "a file number") ||
          !ParseUnsigned(&loc.inlined_at_line, "a line number") ||
          !ParseUnsigned(&loc.inlined_at_column, "a column")) {
        return false;
      }
    } else {
      return FailExpected("'function_name' or 'inlined_at'");
    }
  }
  loc.text = TextSince(start);
  return !failed_;
}

bool Parser::ParseGuard(Guard& guard) {
  Advance();  // '@'
  if (token_.Is('!')) {
    guard.negated = true;
    Advance();
  }
  if (token_.kind == TokenKind::kPlaceholder) {
    Operand operand;
    if (!ParsePlaceholder(operand)) return false;
    if (!operand.IsRegister()) {
      return Fail(Diagnostic::Code::kInvalid, token_,
                  "the operand passed for the guard is not a register");
    }
    guard.reg = operand.reg;
    guard.text = operand.text;
    return true;
  }
  if (token_.kind != TokenKind::kIdentifier) return FailExpected("a predicate register behind '@'");
  guard.text = token_.text;
  guard.reg = Resolve(token_.text);
  if (failed_) return false;
  if (guard.reg == kNoRegister) {
    return Fail(Diagnostic::Code::kInvalid, token_,
                "guard " + Describe(token_) + " is not a declared register",
                "declare it: .reg .pred " + std::string(token_.text) + ";");
  }
  Advance();
  return !failed_;
}

bool Parser::ParseInstruction(Instruction& instruction) {
  instruction.position = Place();
  instruction.loc = current_loc_;
  if (token_.Is('@') && !ParseGuard(instruction.guard)) return false;
  if (token_.kind != TokenKind::kIdentifier) return FailExpected("an instruction");
  instruction.opcode = token_.text;
  in_call_ = token_.text == "call";
  Advance();
  modifier_stack_.clear();
  while (token_.kind == TokenKind::kDotWord) {
    modifier_stack_.push_back(token_.text);
    Advance();
  }
  instruction.modifiers = module_.InternList(modifier_stack_);
  operand_stack_.clear();
  if (!token_.Is(';')) {
    for (;;) {
      Operand operand;
      if (!ParseOperand(operand, true)) return false;
      operand_stack_.push_back(operand);
      if (token_.Is(';')) break;
      if (!token_.Is(','))
        return FailExpected("',' or ';' behind an operand", "a statement ends with ';'");
      Advance();
    }
  }
  instruction.operands = module_.Intern(operand_stack_);
  Advance();  // ';'
  return !failed_;
}

}  // namespace ops_debug::ptx
