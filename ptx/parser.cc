// Module scope: header, functions, variables, .file, .section. See parser_state.h for how the
// parser works.
#include "ptx/parser.h"

#include <utility>

#include "ptx/parser_state.h"

namespace ops_debug::ptx {
namespace {

bool IsLinkage(std::string_view word) {
  return word == ".visible" || word == ".extern" || word == ".weak" || word == ".common";
}

bool IsSpace(std::string_view word) {
  return word == ".global" || word == ".const" || word == ".shared" || word == ".local" ||
         word == ".param" || word == ".reg" || word == ".sreg" || word == ".tex" ||
         word == ".surf" || word == ".sampler";
}

bool IsVectorType(std::string_view word) { return word == ".v2" || word == ".v4" || word == ".v8"; }

// `"C:\\x"` -> `C:\x`. The only escape that ptxas knows.
std::string DecodeString(std::string_view quoted) {
  std::string result;
  for (size_t i = 1; i + 1 < quoted.size(); ++i) {
    if (quoted[i] == '\\' && quoted[i + 1] == '\\') ++i;
    result += quoted[i];
  }
  return result;
}

}  // namespace

std::string Describe(const Token& token) {
  if (token.kind == TokenKind::kEnd) return "end of text";
  constexpr size_t kShown = 40;
  std::string result = "'" + std::string(token.text.substr(0, kShown));
  if (token.text.size() > kShown) result += "...";
  return result + "'";
}

Parser::Parser(Module& module, std::string_view text)
    : module_(module), lexer_(text), previous_end_(text.data()) {
  token_.text = {text.data(), 0};
  Advance();
}

bool Parser::Fail(Diagnostic::Code code, const Token& at, std::string message, std::string hint) {
  if (!failed_) diagnostic = {code, at.line, at.column, std::move(message), std::move(hint)};
  failed_ = true;
  return false;
}

bool Parser::FailExpected(std::string_view what, std::string hint) {
  return Fail(Diagnostic::Code::kSyntax, token_,
              "expected " + std::string(what) + ", found " + Describe(token_), std::move(hint));
}

void Parser::LexicalError() {
  std::string message = lexer_.error();
  if (message != "unterminated comment") message += " " + Describe(token_);
  std::string hint;
  if (token_.text.starts_with("#"))
    hint = "preprocessor lines are not PTX: run the C preprocessor first";
  Fail(Diagnostic::Code::kSyntax, token_, std::move(message), std::move(hint));
}

bool Parser::DepthExceeded() {
  if (depth_ <= kMaxDepth) return false;
  Fail(Diagnostic::Code::kUnsupported, token_,
       "more than " + std::to_string(kMaxDepth) + " levels of nesting");
  return true;
}

bool Parser::Expect(char c, const char* where) {
  if (token_.Is(c)) {
    Advance();
    return !failed_;
  }
  return FailExpected(std::string("'") + c + "' " + where);
}

bool Parser::ParseUnsigned(uint32_t* value, const char* what) {
  if (token_.kind != TokenKind::kNumber) return FailExpected(what);
  const Constant constant = DecodeNumber(token_.text);
  if (!constant.is_integer || constant.bits > 0xFFFFFFFFu)
    return FailExpected(std::string(what) + " below 2^32");
  *value = static_cast<uint32_t>(constant.bits);
  Advance();
  return !failed_;
}

bool Parser::ParseModule() {
  if (!AtWord(".version")) {
    return FailExpected("'.version'",
                        "PTX text begins with .version, .target and, mostly, .address_size");
  }
  Advance();
  if (token_.kind != TokenKind::kNumber) return FailExpected("a version such as 8.0");
  module_.version = token_.text;
  Advance();
  if (!AtWord(".target"))
    return FailExpected("'.target'", "the directive behind .version names the architecture");
  Advance();
  if (!ParseTargets()) return false;
  if (AtWord(".address_size")) {
    Advance();
    if (!token_.text.empty() && token_.text != "32" && token_.text != "64")
      return FailExpected("32 or 64");
    module_.has_address_size = true;
    if (!ParseUnsigned(&module_.address_size, "32 or 64")) return false;
  } else {
    module_.address_size = 32;  // PTX ISA, .address_size: the default
  }
  return ParseItems(module_.items);
}

bool Parser::ParseTargets() {
  for (;;) {
    if (token_.kind != TokenKind::kIdentifier) return FailExpected("a target such as sm_90");
    module_.targets.push_back(token_.text);
    Advance();
    if (!token_.Is(',')) return !failed_;
    Advance();
  }
}

bool Parser::ParseItems(std::deque<Item>& items) {
  while (!AtEnd()) {
    if (!ParseItem(items)) return false;
  }
  return !failed_;
}

bool Parser::ParseItem(std::deque<Item>& items) {
  const Position position = Place();
  const char* start = token_.text.data();
  if (token_.Is('@')) {  // @@DWARF lines of PTX 1.x; the line is the directive
    Advance();
    if (!token_.Is('@'))
      return FailExpected("'@@DWARF'", "an instruction cannot stand outside a function");
    const std::string_view rest = lexer_.RestOfLine();
    previous_end_ = rest.data() + rest.size();
    items.emplace_back(RawDirective{position, TextSince(start)});
    token_ = lexer_.Next();
    if (token_.kind == TokenKind::kError) LexicalError();
    return !failed_;
  }
  if (token_.Is(';')) {
    Advance();
    items.emplace_back(RawDirective{position, TextSince(start)});
    return !failed_;
  }
  if (token_.kind != TokenKind::kDotWord) {
    return FailExpected("a directive", token_.kind == TokenKind::kIdentifier || token_.Is('}')
                                           ? "instructions stand between the braces of a function; "
                                             "is a '{' missing, or a '}' too many?"
                                           : "");
  }
  std::vector<std::string_view> linkage;
  while (token_.kind == TokenKind::kDotWord && IsLinkage(token_.text)) {
    linkage.push_back(token_.text);
    Advance();
  }
  if (failed_) return false;
  if (AtWord(".entry") || AtWord(".func"))
    return ParseFunction(std::move(linkage), position, items);
  if (token_.kind == TokenKind::kDotWord && IsSpace(token_.text)) {
    Variable variable;
    variable.position = position;
    variable.linkage = std::move(linkage);
    if (!ParseVariable(variable) || !Expect(';', "behind the declaration")) return false;
    items.emplace_back(std::move(variable));
    return true;
  }
  if (!linkage.empty())
    return FailExpected("'.entry', '.func' or a state space behind " + std::string(linkage.back()));
  const std::string_view word = token_.text;
  if (word == ".file") {
    File file;
    file.position = position;
    if (!ParseFile(file)) return false;
    items.emplace_back(std::move(file));
    return true;
  }
  RawDirective raw{position, {}};
  if (word == ".section") {
    if (!ParseSection(raw)) return false;
  } else if (word == ".alias" || word == ".pragma" || word == ".callprototype") {
    if (!ParseRawToSemicolon(raw)) return false;
  } else if (word == ".version" || word == ".address_size") {
    Advance();
    uint32_t ignored = 0;
    if (word == ".version" && token_.kind == TokenKind::kNumber) {
      Advance();
    } else if (!ParseUnsigned(&ignored, "a number")) {
      return false;
    }
    raw.text = TextSince(start);
  } else if (word == ".target") {
    Advance();
    const size_t count = module_.targets.size();
    if (!ParseTargets()) return false;
    module_.targets.resize(
        count);  // kept in the raw text; the header's list stays what the header says
    raw.text = TextSince(start);
  } else {
    return Fail(Diagnostic::Code::kUnsupported, token_, "unknown directive " + Describe(token_),
                "expected a function, a variable, .file, .section, .alias or .pragma");
  }
  items.emplace_back(raw);
  return !failed_;
}

bool Parser::ParseAttribute(std::string_view* text) {
  const char* start = token_.text.data();
  Advance();
  if (!token_.Is('(')) return FailExpected("'(' behind .attribute");
  int open = 0;
  do {
    if (AtEnd()) return FailExpected("')'");
    if (token_.Is('(')) ++open;
    if (token_.Is(')')) --open;
    Advance();
  } while (open > 0);
  *text = TextSince(start);
  return !failed_;
}

bool Parser::ParseFunction(std::vector<std::string_view> linkage, Position position,
                           std::deque<Item>& items) {
  Function function;
  function.position = position;
  function.linkage = std::move(linkage);
  function.is_entry = token_.text == ".entry";
  Advance();
  while (AtWord(".attribute")) {
    if (!ParseAttribute(&function.attributes.emplace_back())) return false;
  }
  if (token_.Is('(')) {
    if (function.is_entry)
      return FailExpected("the name of the entry", "only a .func returns values");
    function.has_result_list = true;
    if (!ParseParameterList(function.results)) return false;
  }
  if (token_.kind != TokenKind::kIdentifier) return FailExpected("the name of the function");
  function.name = token_.text;
  Advance();
  if (token_.Is('(')) {
    function.has_parameter_list = true;
    if (!ParseParameterList(function.parameters)) return false;
  }
  if (!ParseFunctionDirectives(function)) return false;
  for (const Variable& variable : function.results) DeclareRegisters(function, variable);
  for (const Variable& variable : function.parameters) DeclareRegisters(function, variable);
  if (token_.Is(';')) {
    Advance();
  } else {
    function.has_body = true;
    Advance();  // '{'
    function_ = &function;
    current_loc_ = 0;
    const bool parsed = ParseStatementList(function.body, true);
    function_ = nullptr;
    if (!parsed) return false;
  }
  items.emplace_back(std::move(function));
  return !failed_;
}

bool Parser::ParseParameterList(std::vector<Variable>& list) {
  Advance();  // '('
  if (token_.Is(')')) {
    Advance();
    return !failed_;
  }
  for (;;) {
    if (token_.kind != TokenKind::kDotWord || !IsSpace(token_.text)) {
      return FailExpected("'.param' or '.reg'", "a parameter reads '.param .b64 name'");
    }
    Variable& variable = list.emplace_back();
    variable.position = Place();
    if (!ParseVariable(variable)) return false;
    if (token_.Is(')')) {
      Advance();
      return !failed_;
    }
    if (!Expect(',', "or ')' behind a parameter")) return false;
  }
}

bool Parser::ParseFunctionDirectives(Function& function) {
  while (!token_.Is('{') && !token_.Is(';')) {
    if (token_.kind != TokenKind::kDotWord)
      return FailExpected("'{', ';' or a directive such as .maxntid");
    const char* start = token_.text.data();
    const bool is_pragma = token_.text == ".pragma";
    Advance();
    while (!AtEnd() && !token_.Is(';') && !token_.Is('{') &&
           (is_pragma || token_.kind != TokenKind::kDotWord)) {
      Advance();
    }
    if (is_pragma && !Expect(';', "behind .pragma")) return false;
    if (failed_) return false;
    function.directives.push_back(TextSince(start));
  }
  return !failed_;
}

bool Parser::ParseVariable(Variable& variable) {
  using Place = Variable::AlignmentPlace;
  const char* start = token_.text.data();
  Advance();
  if (token_.Is('[')) {  // .const[2], PTX 1.x
    Advance();
    uint32_t bank = 0;
    if (!ParseUnsigned(&bank, "a bank number") || !Expect(']', "behind the bank number"))
      return false;
  }
  variable.space = TextSince(start);
  while (token_.kind == TokenKind::kDotWord) {
    if (token_.text == ".align") {
      if (!variable.alignment.empty()) return FailExpected("a type", "one .align is enough");
      variable.alignment_place = !variable.vector_type.empty() ? Place::kBeforeType
                                 : variable.attributes.empty() ? Place::kBeforeAttributes
                                                               : Place::kBeforeVectorType;
      Advance();
      if (token_.kind != TokenKind::kNumber) return FailExpected("a number of bytes");
      variable.alignment = token_.text;
      Advance();
    } else if (token_.text == ".attribute") {
      if (!variable.vector_type.empty())
        return FailExpected("a type", ".attribute stands before the type");
      if (!ParseAttribute(&variable.attributes.emplace_back())) return false;
    } else if (IsVectorType(token_.text) && variable.vector_type.empty()) {
      variable.vector_type = token_.text;
      Advance();
    } else {
      break;
    }
  }
  if (token_.kind != TokenKind::kDotWord) return FailExpected("a type such as .b32");
  variable.type = token_.text;
  Advance();
  while (token_.kind == TokenKind::kDotWord) {
    const char* word = token_.text.data();
    const bool is_alignment = token_.text == ".align";
    Advance();
    if (is_alignment) {
      if (token_.kind != TokenKind::kNumber) return FailExpected("a number of bytes");
      Advance();
    }
    variable.pointer_attributes.push_back(TextSince(word));
  }
  for (;;) {
    if (!ParseVariableName(variable.names.emplace_back())) return false;
    if (!token_.Is(',')) return !failed_;
    // In a parameter list the comma separates parameters.
    if (lexer_.PeekCharacter() == '.') return !failed_;
    Advance();
  }
}

bool Parser::ParseVariableName(Variable::Name& name) {
  if (token_.kind != TokenKind::kIdentifier) return FailExpected("a name");
  name.text = token_.text;
  Advance();
  if (token_.Is('<')) {
    Advance();
    name.count_text = token_.text;
    if (!ParseUnsigned(&name.count, "a count") || !Expect('>', "behind the count")) return false;
  }
  while (token_.Is('[')) {
    Advance();
    const char* start = token_.text.data();
    Operand size;
    if (token_.Is(']')) {
      start = previous_end_;
    } else if (!ParseConstant(size)) {
      return false;
    }
    name.dims.push_back(TextSince(start));
    if (!Expect(']', "behind the number of elements")) return false;
  }
  if (token_.Is('=')) {
    Advance();
    const char* start = token_.text.data();
    int open = 0;
    while (!AtEnd()) {
      if (open == 0 && (token_.Is(',') || token_.Is(';'))) break;
      if (token_.Is('{') || token_.Is('(')) ++open;
      if (token_.Is('}') || token_.Is(')')) --open;
      if (open < 0) break;
      Advance();
    }
    if (failed_) return false;
    if (previous_end_ <= start) return FailExpected("a value behind '='");
    name.initializer = TextSince(start);
  }
  return !failed_;
}

void Parser::DeclareRegisters(Function& function, const Variable& variable) {
  if (variable.space != ".reg") return;
  for (const Variable::Name& name : variable.names) {
    if (name.count_text.empty()) {
      function.register_table.DeclareName(name.text, variable.type, variable.vector_type,
                                          function.registers);
    } else {
      function.register_table.DeclareRange(name.text, name.count, variable.type,
                                           variable.vector_type);
    }
  }
}

bool Parser::ParseFile(File& file) {
  Advance();
  const std::string_view number = token_.text;
  if (!ParseUnsigned(&file.index, "a file number")) return false;
  if (std::to_string(file.index) != number) {
    return Fail(Diagnostic::Code::kUnsupported, token_,
                "file number not written as a plain decimal");
  }
  if (token_.kind != TokenKind::kString) return FailExpected("a file name in quotes");
  file.path_text = token_.text;
  file.path = DecodeString(token_.text);
  Advance();
  const char* start = token_.text.data();
  while (token_.Is(',')) {
    Advance();
    if (token_.kind != TokenKind::kNumber) return FailExpected("a time stamp or file size");
    Advance();
    file.rest = TextSince(start);
  }
  return !failed_;
}

bool Parser::ParseSection(RawDirective& raw) {
  const char* start = token_.text.data();
  Advance();
  if (token_.kind != TokenKind::kDotWord && token_.kind != TokenKind::kIdentifier)
    return FailExpected("a section name");
  Advance();
  if (!token_.Is('{')) return FailExpected("'{' behind the section name");
  int open = 0;
  do {
    if (AtEnd()) return FailExpected("'}' that closes the section");
    if (token_.Is('{')) ++open;
    if (token_.Is('}')) --open;
    Advance();
  } while (open > 0 && !failed_);
  raw.text = TextSince(start);
  return !failed_;
}

bool Parser::ParseRawToSemicolon(RawDirective& raw) {
  const char* start = token_.text.data();
  const std::string directive(token_.text);
  while (!AtEnd() && !token_.Is(';') && !token_.Is('{') && !token_.Is('}')) Advance();
  if (failed_) return false;
  if (!token_.Is(';')) return FailExpected("';' behind " + directive);
  Advance();
  raw.text = TextSince(start);
  return !failed_;
}

Result<Module> Parse(std::string text) {
  while (!text.empty() && text.back() == 0) text.pop_back();
  if (text.size() >= 0xFFFFFFFFu)
    return Diagnostic{Diagnostic::Code::kUnsupported, 0, 0, "PTX text of 4 GiB or more", ""};
  Module module(std::move(text));
  Parser parser(module, module.source());
  if (!parser.ParseModule()) return std::move(parser.diagnostic);
  return module;
}

Result<bool> AppendItems(Module& module, std::string_view ptx_items) {
  Parser parser(module, module.Intern(ptx_items));
  parser.SetMadeByPass();
  std::deque<Item> items;
  if (!parser.ParseItems(items)) return std::move(parser.diagnostic);
  for (Item& item : items) module.items.push_back(std::move(item));
  return true;
}

Result<std::vector<Statement>> ParseStatements(Module& module, Function& function,
                                               std::string_view text,
                                               std::span<const Operand> arguments) {
  Parser parser(module, module.Intern(text));
  parser.SetMadeByPass();
  std::vector<Statement> statements;
  if (!parser.ParseFragment(function, arguments, statements)) return std::move(parser.diagnostic);
  return statements;
}

}  // namespace ops_debug::ptx
