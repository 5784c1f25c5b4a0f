// What the parser makes of the text: operands, registers by scope, line info, sizes.
#include "ptx/parser.h"

#include <catch2/catch.hpp>

#include "ptx/printer.h"
#include "test/ptx/corpus.h"
#include "test/ptx/module_text.h"

namespace ops_debug::ptx {
namespace {

using Kind = Operand::Kind;

const Function& OnlyFunction(const Module& module) {
  for (const Item& item : module.items) {
    if (const auto* function = std::get_if<Function>(&item)) return *function;
  }
  throw std::logic_error("no function");
}

std::vector<const Instruction*> Instructions(const Function& function) {
  std::vector<const Instruction*> result;
  for (const Statement& statement : function.body) {
    if (const auto* instruction = std::get_if<Instruction>(&statement))
      result.push_back(instruction);
  }
  return result;
}

// The one instruction of a kernel that declares %r<10>, %rd<10>, %f<10>, %p<4> and the vector %v.
struct OneInstruction {
  explicit OneInstruction(const std::string& text) : module(ParseText(Kernel(text))) {
    instruction = Instructions(OnlyFunction(module)).at(0);
  }
  const Operand& operator[](size_t i) const { return instruction->operands[i]; }
  Module module;
  const Instruction* instruction;
};

}  // namespace

TEST_CASE("opcode and modifiers are separated") {
  const OneInstruction one("ld.global.L1::no_allocate.v2.f32 {%f1, %f2}, [%rd1];");
  CHECK(one.instruction->opcode == "ld");
  REQUIRE(one.instruction->modifiers.size() == 4);
  CHECK(one.instruction->modifiers[1] == ".L1::no_allocate");
  CHECK(one.instruction->Has(".v2"));
  CHECK_FALSE(one.instruction->Has(".v4"));
}

TEST_CASE("an address has a base, an offset and its spelling") {
  const OneInstruction one("ld.global.u32 %r1, [%rd1+-0x10];");
  const Operand& address = one[1];
  REQUIRE(address.kind == Kind::kAddress);
  REQUIRE(address.children.size() == 1);
  CHECK(address.children[0].kind == Kind::kRegister);
  CHECK(address.children[0].text == "%rd1");
  CHECK(address.has_offset);
  CHECK(address.offset == -16);
  CHECK(address.offset_text == "-0x10");
}

TEST_CASE("a tensor address keeps its coordinates") {
  const OneInstruction one("cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%rd1, {%r1, %r2}];");
  REQUIRE(one[0].children.size() == 2);
  CHECK(one[0].children[1].kind == Kind::kVector);
  CHECK(one[0].children[1].children[1].text == "%r2");
}

TEST_CASE("pairs, sinks, negations and selectors are operands of their own") {
  const OneInstruction setp("setp.eq.and.s32 %p1|_, %r1, %r2, !%p2;");
  CHECK(setp[0].kind == Kind::kPair);
  CHECK(setp[0].children[1].kind == Kind::kSink);
  CHECK(setp[3].kind == Kind::kNot);
  const OneInstruction video("vmad.u32.u32.u32 %r1, %r2.b0, %r3.h1, -%r4;");
  CHECK(video[1].kind == Kind::kSelector);
  CHECK(video[1].text == ".b0");
  CHECK(video[1].children[0].text == "%r2");
  CHECK(video[3].kind == Kind::kNegate);
}

TEST_CASE("special registers, symbols and registers are told apart") {
  CHECK(OneInstruction("mov.u32 %r1, %tid.x;")[1].kind == Kind::kSpecialRegister);
  CHECK(OneInstruction("mov.u32 %r1, %tid.x;")[1].text == "%tid.x");
  CHECK(OneInstruction("mov.u32 %r1, WARP_SZ;")[1].kind == Kind::kSpecialRegister);
  CHECK(OneInstruction("mov.u32 %r1, %r9;")[1].kind == Kind::kRegister);
  CHECK(OneInstruction("mov.u32 %r1, %r10;")[1].kind == Kind::kSymbol);  // %r<10> ends at %r9
  CHECK(OneInstruction("mov.u32 %r1, %r01;")[1].kind == Kind::kSymbol);
  CHECK(OneInstruction("mov.u64 %rd1, array+8;")[1].offset == 8);
}

TEST_CASE("immediates have a value and keep their spelling") {
  struct Expected {
    const char* text;
    int64_t value;
  };
  for (const Expected& expected : {Expected{"-5", -5},
                                   {"0x1FU", 31},
                                   {"017", 15},
                                   {"0b101", 5},
                                   {"0xFFFFFFFFFFFFFFFF", -1},
                                   {"(1 + 2) * 3", 9},
                                   {"1 << 4 | 1", 17},
                                   {"-7 / 2", -3},
                                   {"7 > 3 ? 10 : 20", 10},
                                   {"!0 + ~0", 0},
                                   {"(.s64)8", 8},
                                   {"WARP_SZ - 1", 31},
                                   {"1 << 64", 0},
                                   {"-(.s64)9223372036854775808 / -1", INT64_MIN}}) {
    INFO(expected.text);
    const OneInstruction one("mov.b64 %rd1, " + std::string(expected.text) + ";");
    CHECK(one[1].kind == Kind::kImmediate);
    CHECK(one[1].is_integer);
    CHECK(one[1].value == expected.value);
    CHECK(one[1].text == expected.text);
  }
}

TEST_CASE("floating-point immediates carry their bits but are no integers") {
  const OneInstruction one("mov.f32 %f1, 0f3F800000;");
  CHECK_FALSE(one[1].is_integer);
  CHECK(one[1].value == 0x3F800000);
  CHECK_FALSE(OneInstruction("mov.f32 %f1, 1.5e-3;")[1].is_integer);
  CHECK_FALSE(OneInstruction("mov.b32 %r1, 1/0;")[1].is_integer);
}

TEST_CASE("a call has result and argument lists") {
  const OneInstruction one("call.uni (%r1), callee, (%r2, 5, array), proto;");
  CHECK(one[0].kind == Kind::kList);
  CHECK(one[1].kind == Kind::kSymbol);
  REQUIRE(one[2].children.size() == 3);
  CHECK(one[2].children[0].kind == Kind::kRegister);
  CHECK(one[3].text == "proto");
}

TEST_CASE("a name in an inner block is another register") {
  const Module module = ParseText(ReadFile(std::string(OPS_DEBUG_PTX_DATA) + "/scopes.ptx"));
  const Function& function = OnlyFunction(module);
  std::vector<RegisterId> guards;
  RegisterId outer = kNoRegister, sum = kNoRegister;
  for (const Instruction* instruction : Instructions(function)) {
    if (instruction->guard.Present()) guards.push_back(instruction->guard.reg);
    if (PrintInstruction(*instruction) == "mov.u32 p, 7;") outer = instruction->operands[0].reg;
    if (PrintInstruction(*instruction) == "add.u32 %r2, p, %r1;")
      sum = instruction->operands[1].reg;
  }
  REQUIRE(guards.size() == 3);
  CHECK(guards[0] != guards[1]);
  CHECK(guards[1] != guards[2]);
  CHECK(outer != guards[0]);
  CHECK(outer == sum);
  CHECK(function.registers[guards[0]].type == ".pred");
  CHECK(function.registers[outer].type == ".b32");
}

TEST_CASE("a range in an inner block hides members of an outer range that were used before") {
  const Module module = ParseText(Kernel(
      "mov.u32 %r1, 1; { .reg .b64 %r<2>; mov.u64 %r1, 2; mov.u32 %r2, 3; } mov.u32 %r1, %r2;"));
  const auto instructions = Instructions(OnlyFunction(module));
  const auto reg = [&](size_t i, size_t operand) { return instructions[i]->operands[operand].reg; };
  CHECK(reg(0, 0) != reg(1, 0));
  CHECK(reg(0, 0) == reg(3, 0));
  CHECK(reg(2, 0) == reg(3, 1));
  CHECK(OnlyFunction(module).registers[reg(1, 0)].type == ".b64");
}

TEST_CASE("an inner range hides an outer plain name, an inner plain name an outer range") {
  const Module module =
      ParseText(Kernel(".reg .b32 x1; { .reg .b64 x<2>; mov.u64 x1, 2; { .reg .b16 x1; mov.u16 x1, "
                       "1; } mov.u64 x1, 3; } mov.u32 x1, 4;"));
  const Function& function = OnlyFunction(module);
  std::vector<std::string_view> types;
  for (const Instruction* instruction : Instructions(function)) {
    types.push_back(function.registers[instruction->operands[0].reg].type);
  }
  CHECK(types == std::vector<std::string_view>{".b64", ".b16", ".b64", ".b32"});
}

TEST_CASE("parameters in the register space are registers") {
  const Module module = ParseText(
      ".version 7.0\n.target sm_75\n.address_size 64\n"
      ".func (.reg .b32 out) f (.reg .b32 in) { add.u32 out, in, 1; ret; }");
  const Instruction& add = *Instructions(OnlyFunction(module))[0];
  CHECK(add.operands[0].IsRegister());
  CHECK(add.operands[1].IsRegister());
}

TEST_CASE("only registers that are mentioned are made of a range") {
  const Module module =
      ParseText(Kernel(".reg .b32 %big<4294967295>; mov.u32 %big7, %big4294967294;"));
  CHECK(OnlyFunction(module).registers.size() == 3);  // with %v
}

TEST_CASE("instructions know the .loc in force and its inlining") {
  const Module module = ParseText(ReadFile(std::string(OPS_DEBUG_PTX_DATA) + "/saxpy.ptx"));
  const Function& function = OnlyFunction(module);
  for (const Instruction* instruction : Instructions(function)) {
    if (!instruction->Is("fma")) continue;
    const Loc& loc = function.locs[instruction->loc];
    CHECK(loc.file == 2);
    CHECK(loc.line == 5);
    CHECK(loc.column == 9);
    CHECK(loc.function_name == "$L__info_string0");
    CHECK(loc.inlined_at_file == 1);
    CHECK(loc.inlined_at_line == 5);
    CHECK(loc.inlined_at_column == 3);
    CHECK(instruction->position.line == 43);
    CHECK(instruction->position.column == 2);
  }
  REQUIRE(module.FindFile(2) != nullptr);
  CHECK(module.FindFile(2)->path == "C:\\src\\name with blanks.h");
  CHECK(module.FindFile(3) == nullptr);
}

TEST_CASE("FindFunction prefers the definition to the declaration") {
  Module module = ParseText(
      ".version 7.0\n.target sm_75\n.address_size 64\n.func f; .func f { ret; } .global .b32 a, "
      "b[4];");
  REQUIRE(module.FindFunction("f") != nullptr);
  CHECK(module.FindFunction("f")->has_body);
  CHECK(module.FindFunction("g") == nullptr);
  REQUIRE(module.FindVariable("b") != nullptr);
  CHECK(VariableSizeBytes(*module.FindVariable("b"), module.FindVariable("b")->names[1]) == 16);
}

TEST_CASE("types have sizes") {
  CHECK(TypeSizeBytes(".b8") == 1);
  CHECK(TypeSizeBytes(".bf16") == 2);
  CHECK(TypeSizeBytes(".f16x2") == 4);
  CHECK(TypeSizeBytes(".s64") == 8);
  CHECK(TypeSizeBytes(".b128") == 16);
  CHECK(TypeSizeBytes(".pred") == 0);
  CHECK(TypeSizeBytes(".texref") == 0);
}

TEST_CASE("parameters are laid out with their alignment, in order") {
  const Module module = ParseText(
      ".version 7.0\n.target sm_75\n.address_size 64\n"
      ".entry k(.param .u8 a, .param .u64 b, .param .align 16 .b8 c[20], .param .v2 .f32 d, .param "
      ".texref e) { ret; }");
  const std::vector<ParameterLayout> layout = LayoutParameters(OnlyFunction(module));
  REQUIRE(layout.size() == 5);
  const uint32_t expected[5][3] = {{0, 1, 1}, {8, 8, 8}, {16, 20, 16}, {40, 8, 8}, {48, 8, 8}};
  for (size_t i = 0; i < 5; ++i) {
    CHECK(layout[i].offset_bytes == expected[i][0]);
    CHECK(layout[i].size_bytes == expected[i][1]);
    CHECK(layout[i].alignment_bytes == expected[i][2]);
  }
}

}  // namespace ops_debug::ptx
