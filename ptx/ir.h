// The PTX module as data: what the parser builds, passes edit and the printer writes back.
//
// Why it looks like this: rewriting must lose nothing, so every token of the input has a place
// here, and literals keep their spelling. A function body is one flat list of statements (nested
// blocks are begin/end markers), because passes insert and look around far more often than they
// care about nesting. Text is `std::string_view` into the module's source or its arena; a `Module`
// owns both and outlives every view. Source: PTX ISA 9.0, chapters 4 to 11.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <memory_resource>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "ptx/register_table.h"

namespace ops_debug::ptx {

// 1-based position in the text that was parsed; line 0 means "made by a pass".
struct Position {
  uint32_t line = 0;
  uint32_t column = 0;
};

struct Operand {
  enum class Kind : uint8_t {
    kRegister,  // %r1 or a register with a user-chosen name; `reg` is set, `text` is the name
    kSpecialRegister,  // %tid.x, %laneid, WARP_SZ: `text` is the whole spelling
    kSymbol,     // variable, parameter, function or label: `text`; `offset` for sym+imm, has_offset
    kImmediate,  // number or constant expression: `text` is the spelling; `value` the bits if
                 // is_integer
    kSink,       // _
    kAddress,    // [base], [base+offset] or [a, b, ...]: children hold base (register, symbol or
               // immediate) and, for tensors and textures, the further items; `offset` is the byte
               // offset of base; `text` is a suffix behind the bracket (".unified"), mostly empty
    kVector,    // {a, b, c, d}: children
    kList,      // (a, b): children; arguments and results of `call`
    kPair,      // a|b: two children (setp, shfl, vote results)
    kNot,       // !a: one child
    kNegate,    // -a: one child, a register or selector (immediates carry their own sign)
    kSelector,  // %r1.b0, %v.x: one child, `text` is ".b0"
    kElement,   // name[index]: two children, the symbol and a kAddress that holds what the brackets
                // hold
  };
  Kind kind = Kind::kSink;
  bool is_integer = false;  // kImmediate: `value` holds the two's-complement bits
  bool has_offset =
      false;  // kAddress, kSymbol: an offset was written (also "+0"); its spelling is `offset_text`
  bool offset_is_bare = false;  // the offset was written without '+': [%rd1-4]
  RegisterId reg = kNoRegister;
  std::string_view text;
  std::string_view offset_text;  // without the '+': "8", "-4", "0x10"; printed as "+" then this
  int64_t value = 0;  // kImmediate; the bits of a 0f/0d literal too (is_integer is false for those)
  int64_t offset = 0;           // kAddress, kSymbol: bytes
  std::span<Operand> children;  // storage in the module's arena

  bool IsRegister() const { return kind == Kind::kRegister; }
  bool IsAddress() const { return kind == Kind::kAddress; }
};

struct Guard {
  RegisterId reg = kNoRegister;  // kNoRegister: unconditional
  bool negated = false;
  std::string_view text;
  bool Present() const { return reg != kNoRegister; }
};

// One machine instruction. `opcode` is the part before the first dot, `modifiers` the rest with
// their dots, in the order written: {"ld"} {".global", ".L1::no_allocate", ".v4", ".f32"}.
struct Instruction {
  Position position;
  uint32_t loc = 0;  // index into Function::locs of the `.loc` in force, 0 = none
  Guard guard;
  std::string_view opcode;
  std::span<std::string_view> modifiers;
  std::span<Operand> operands;

  bool Is(std::string_view name) const { return opcode == name; }
  bool Has(std::string_view modifier) const;
};

// `.loc file line column [, function_name label [+ n], inlined_at file line column]`.
struct Loc {
  uint32_t file = 0;
  uint32_t line = 0;
  uint32_t column = 0;
  bool has_function = false;
  std::string_view function_name;    // label in .debug_str, or empty
  std::string_view function_offset;  // tokens behind it ("+12"), or empty
  uint32_t inlined_at_file = 0;      // 0 = not inlined
  uint32_t inlined_at_line = 0;
  uint32_t inlined_at_column = 0;
  std::string_view text;  // as written; empty: made by a pass, printed from the fields above
};

struct Label {
  Position position;
  std::string_view name;
};

// One `.reg`, `.shared`, `.global`, `.param`... declaration. Several names in one statement share a
// declaration by `names`; nvcc writes one name, hand-written PTX often more.
struct Variable {
  struct Name {
    std::string_view text;
    uint32_t count = 0;                  // N of %r<N>
    std::string_view count_text;         // N as written; empty with count 0 = plain name
    std::vector<std::string_view> dims;  // [128] -> {"128"}; [] -> {""}
    std::string_view initializer;        // tokens behind '=', as written, or empty
  };
  Position position;
  std::vector<std::string_view> linkage;  // .visible .extern .weak .common, in order
  std::string_view space;  // ".reg", ".shared", ".global", ".const", ".local", ".param", ".tex"...
  std::vector<std::string_view>
      attributes;              // between space and type, other than .align: ".attribute(.managed)"
  std::string_view alignment;  // number behind .align, or empty
  enum class AlignmentPlace : uint8_t {
    kBeforeAttributes,
    kBeforeVectorType,
    kBeforeType,
    kBehindType
  };
  AlignmentPlace alignment_place = AlignmentPlace::kBeforeVectorType;  // where .align was written
  std::string_view vector_type;                                        // ".v2", ".v4" or empty
  std::string_view type;  // ".b8", ".f32", ".pred", ".texref"...
  std::vector<std::string_view>
      pointer_attributes;  // parameters: .ptr .global .align 16 -> as written, behind the type
  std::vector<Name> names;
};

struct BlockBegin {
  Position position;
};
struct BlockEnd {
  Position position;
};

// Anything that must survive but that no pass interprets: .pragma "...";, .branchtargets,
// .callprototype, .section.
struct RawDirective {
  Position position;
  std::string_view text;  // whole tokens, including the closing ';' where there is one
};

using Statement =
    std::variant<Instruction, Label, Loc, Variable, BlockBegin, BlockEnd, RawDirective>;

// Registers of a %r<N> range appear here when they are first mentioned, so the list holds what the
// code uses.
struct Register {
  std::string name;       // "%rd4"; registers of different blocks can share a name, never an index
  std::string_view type;  // ".b64", ".pred", ".f32"
  std::string_view vector_type;  // ".v2", ".v4" or empty
};

// One formal parameter of an entry, with its place in the parameter buffer that a launch passes.
struct ParameterLayout {
  std::string_view name;
  uint32_t offset_bytes = 0;
  uint32_t size_bytes = 0;
  uint32_t alignment_bytes = 0;
};

struct Function {
  Position position;
  std::vector<std::string_view> linkage;
  bool is_entry = false;
  bool has_body = false;
  bool has_parameter_list = false;
  bool has_result_list = false;              // parentheses were written, even if empty
  std::vector<std::string_view> attributes;  // ".attribute(.unified(1, 2))" behind .func or .entry
  std::string_view name;
  std::vector<Variable> results;     // of a .func, one name each
  std::vector<Variable> parameters;  // one name each
  std::vector<std::string_view>
      directives;  // ".maxntid 256, 1, 1", ".noreturn", ".minnctapersm 2": tokens as written
  std::vector<Statement> body;
  std::vector<Register> registers;
  std::vector<Loc> locs{Loc{}};  // locs[0] means "none"

  // Declares a fresh register of `type` (".b64", ".pred"...) at the top of the body and returns its
  // operand. The name starts with `prefix` and is unique in the function. The declaration is
  // emitted by the printer. (Registers made this way are collected in `added_registers`, so nested
  // blocks see them too.)
  std::vector<RegisterId> added_registers;

  RegisterTable register_table;  // names of the outermost scope; kept by the parser and AddRegister
};

// `.file 1 "path" [, timestamp, size]`
struct File {
  Position position;
  uint32_t index = 0;
  std::string path;            // decoded
  std::string_view path_text;  // as written, with quotes
  std::string_view rest;       // ", timestamp, size" or empty
};

using Item = std::variant<Function, Variable, File, RawDirective>;

class Module {
 public:
  Module();
  explicit Module(std::string source);
  Module(Module&&) noexcept;
  Module& operator=(Module&&) noexcept;
  ~Module();

  std::string_view version;               // "9.0"
  std::vector<std::string_view> targets;  // "sm_90", "texmode_independent", "debug"
  uint32_t address_size = 64;
  bool has_address_size = false;
  std::deque<Item>
      items;  // in file order; a deque, so that pointers to functions stay valid on append

  std::string_view source() const { return *source_; }

  // Copies text or operands into memory that lives as long as the module. Operands: one level;
  // children stay shared.
  std::string_view Intern(std::string_view text);
  std::span<Operand> Intern(std::span<const Operand> operands);
  std::span<std::string_view> InternList(std::span<const std::string_view> list);

  Function* FindFunction(std::string_view name);  // nullptr if absent; the one with a body first
  const Function* FindFunction(std::string_view name) const;
  const Variable* FindVariable(std::string_view name) const;  // module scope
  const File* FindFile(uint32_t index) const;

 private:
  std::unique_ptr<std::string> source_;
  std::unique_ptr<std::pmr::monotonic_buffer_resource> arena_;
};

// Adds a register of `type` to `function`; returns a kRegister operand that names it.
Operand AddRegister(Module& module, Function& function, std::string_view type,
                    std::string_view prefix);

// A copy whose operands and modifiers can be edited without touching the original (plain copies
// share them).
Function CloneFunction(Module& module, const Function& function);

// Bytes of a PTX type: ".b8" 1, ".f16x2" 4, ".pred" 0, ".b128" 16; 0 for opaque types.
uint32_t TypeSizeBytes(std::string_view type);

// Bytes of one declared variable (type, vector and dimensions; 0 for [] and opaque types), and its
// alignment: `.align` or the natural one.
uint64_t VariableSizeBytes(const Variable& variable, const Variable::Name& name);
uint32_t VariableAlignmentBytes(const Variable& variable);

// Value of a constant integer expression ("128", "0x10U", "(3+4)*2"); false if it is none.
bool EvaluateConstant(std::string_view text, int64_t* value);

// Parameter buffer layout of an entry (PTX ISA 5.1.6: natural alignment of each parameter, in
// order).
std::vector<ParameterLayout> LayoutParameters(const Function& function);

}  // namespace ops_debug::ptx
