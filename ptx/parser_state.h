// The recursive-descent parser behind parser.h. Internal: include parser.h instead.
//
// Every rule returns false after the first error, which `diagnostic` then holds; nothing throws.
// Operands and modifiers are collected on scratch stacks and moved to the module's arena in one
// piece, so parsing allocates per statement list, not per token. Nesting is bounded (kMaxDepth), so
// no input can exhaust the stack.
//   parser.cc            module scope: header, functions, variables, .file, .section
//   parser_statement.cc  function bodies: instructions, labels, .loc
//   parser_operand.cc    operands and constant expressions
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ptx/constant.h"
#include "ptx/ir.h"
#include "ptx/lexer.h"
#include "ptx/result.h"

namespace ops_debug::ptx {

class Parser {
 public:
  // `text` is NUL-terminated and lives as long as `module`.
  Parser(Module& module, std::string_view text);

  bool ParseModule();
  bool ParseItems(std::deque<Item>& items);
  // Statements up to the end of the text.
  bool ParseFragment(Function& function, std::span<const Operand> arguments,
                     std::vector<Statement>& out);
  // The whole text is one constant expression.
  bool ParseWholeConstant(Constant& constant);
  // Statements and whatever is in them get line 0.
  void SetMadeByPass() { made_by_pass_ = true; }

  Diagnostic diagnostic;

 private:
  static constexpr int kMaxDepth = 200;

  // parser.cc
  bool ParseItem(std::deque<Item>& items);
  bool ParseTargets();
  bool ParseFunction(std::vector<std::string_view> linkage, Position position,
                     std::deque<Item>& items);
  bool ParseParameterList(std::vector<Variable>& list);
  bool ParseFunctionDirectives(Function& function);
  bool ParseVariable(Variable& variable);
  bool ParseVariableName(Variable::Name& name);
  bool ParseFile(File& file);
  bool ParseSection(RawDirective& raw);
  bool ParseRawToSemicolon(RawDirective& raw);
  // `name` plus a parenthesised list, as one text.
  bool ParseAttribute(std::string_view* text);
  void DeclareRegisters(Function& function, const Variable& variable);

  // parser_statement.cc
  bool ParseStatementList(std::vector<Statement>& out, bool until_brace);
  bool ParseStatement(std::vector<Statement>& out);
  bool ParseDirective(std::vector<Statement>& out);
  bool ParseLoc(Loc& loc);
  bool ParseGuard(Guard& guard);
  bool ParseInstruction(Instruction& instruction);

  // parser_operand.cc
  bool ParseOperand(Operand& out, bool offset_allowed);
  bool ParseSimpleOperand(Operand& out, bool offset_allowed);
  bool ParseName(Operand& out, bool offset_allowed);
  bool ParsePlaceholder(Operand& out);
  bool ParseAddress(Operand& out);
  bool ParseOffset(Operand& out);
  bool ParseSequence(Operand& out, Operand::Kind kind, char close);
  bool ParseUnary(Operand& out, Operand::Kind kind);
  bool ParseConstant(Operand& out);
  bool ParseExpression(Constant& value, int minimum_precedence);
  bool ParseTerm(Constant& value);
  RegisterId Resolve(std::string_view name);
  void Wrap(Operand& out, Operand::Kind kind, std::span<const Operand> children);

  // Tokens
  void Advance() {
    previous_end_ = token_.text.data() + token_.text.size();
    token_ = lexer_.Next();
    if (token_.kind == TokenKind::kError) LexicalError();
  }
  bool AtWord(std::string_view word) const {
    return token_.kind == TokenKind::kDotWord && token_.text == word;
  }
  bool AtEnd() const { return token_.kind == TokenKind::kEnd || failed_; }
  bool Expect(char c, const char* where);
  // The text from `start` to the end of the token before the current one.
  std::string_view TextSince(const char* start) const {
    return {start, static_cast<size_t>(previous_end_ - start)};
  }
  Position Place() const {
    return made_by_pass_ ? Position{} : Position{token_.line, token_.column};
  }
  bool ParseUnsigned(uint32_t* value, const char* what);

  // Errors. The first one wins; all return false.
  bool Fail(Diagnostic::Code code, const Token& at, std::string message, std::string hint = "");
  bool FailExpected(std::string_view what, std::string hint = "");
  void LexicalError();

  struct DepthGuard {
    explicit DepthGuard(int& depth) : depth(++depth) {}
    ~DepthGuard() { --depth; }
    int& depth;
  };
  bool DepthExceeded();

  Module& module_;
  Lexer lexer_;
  Token token_;
  const char* previous_end_;
  bool failed_ = false;
  bool made_by_pass_ = false;
  bool in_call_ = false;
  int depth_ = 0;
  Function* function_ = nullptr;
  bool is_fragment_ = false;
  std::span<const Operand> arguments_;
  uint32_t current_loc_ = 0;
  std::vector<Operand> operand_stack_;
  std::vector<std::string_view> modifier_stack_;
};

// "'x'" or "end of text", for messages.
std::string Describe(const Token& token);

}  // namespace ops_debug::ptx
