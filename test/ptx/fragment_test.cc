// How passes add code: statements from text, registers, whole functions, clones.
#include <catch2/catch.hpp>

#include "ptx/parser.h"
#include "ptx/printer.h"
#include "test/ptx/corpus.h"
#include "test/ptx/module_text.h"

namespace ops_debug::ptx {
namespace {

std::string PrintAll(const std::vector<Statement>& statements) {
  std::string result;
  for (const Statement& statement : statements) {
    if (const auto* instruction = std::get_if<Instruction>(&statement)) {
      result += PrintInstruction(*instruction) + "\n";
    } else if (const auto* label = std::get_if<Label>(&statement)) {
      result += std::string(label->name) + ":\n";
    } else if (std::holds_alternative<BlockBegin>(statement)) {
      result += "{\n";
    } else if (std::holds_alternative<BlockEnd>(statement)) {
      result += "}\n";
    } else {
      result += "...\n";
    }
  }
  return result;
}

const Instruction& InstructionAt(const std::vector<Statement>& statements, size_t i) {
  return std::get<Instruction>(statements.at(i));
}

}  // namespace

TEST_CASE("statements from text use the function's registers") {
  Module module = ParseText(Kernel("mov.u32 %r1, 1; ret;"));
  Function& function = *module.FindFunction("k");
  auto statements = ParseStatements(module, function, "@!%p1 add.u32 %r1, %r1, 2;\nL: ret;");
  REQUIRE(statements.ok());
  CHECK(PrintAll(*statements) == "@!%p1 add.u32 %r1, %r1, 2;\nL:\nret;\n");
  const Instruction& mov = std::get<Instruction>(function.body[5]);
  CHECK(InstructionAt(*statements, 0).operands[0].reg == mov.operands[0].reg);
  CHECK(InstructionAt(*statements, 0).position.line == 0);
}

TEST_CASE("registers that a text declares in braces end with the braces") {
  Module module = ParseText(Kernel("mov.u32 %r1, 1; ret;"));
  Function& function = *module.FindFunction("k");
  auto first = ParseStatements(module, function, "{ .reg .b32 t; mov.u32 t, %r1; }");
  auto second = ParseStatements(module, function, "{ .reg .b64 t; mov.u64 t, 1; }");
  auto third = ParseStatements(module, function, "mov.u32 %r2, u;");
  REQUIRE((first.ok() && second.ok() && third.ok()));
  const RegisterId t1 = InstructionAt(*first, 2).operands[0].reg,
                   t2 = InstructionAt(*second, 2).operands[0].reg;
  CHECK(t1 != t2);
  CHECK(function.registers[t2].type == ".b64");
  CHECK(InstructionAt(*third, 0).operands[1].kind == Operand::Kind::kSymbol);
}

TEST_CASE("a register of an inner block is found by name if only one block declares it") {
  Module module =
      ParseText(Kernel("{ .reg .b64 a, t; mov.u64 a, t; } { .reg .b64 t; mov.u64 t, 1; } ret;"));
  Function& function = *module.FindFunction("k");
  auto unique = ParseStatements(module, function, "st.global.u32 [a], 1;");
  REQUIRE(unique.ok());
  CHECK(InstructionAt(*unique, 0).operands[0].children[0].IsRegister());
  const auto ambiguous = ParseStatements(module, function, "st.global.u32 [t], 1;");
  REQUIRE_FALSE(ambiguous.ok());
  CHECK(ambiguous.error().ToString() ==
        "1:16: register 't' is declared in several blocks (pass it as an operand (#0) instead of "
        "by name)");
}

TEST_CASE("placeholders stand for operands, bases and guards") {
  Module module = ParseText(Kernel("@%p2 ld.global.v2.u32 {%r1, %r2}, [%rd3+16]; ret;"));
  Function& function = *module.FindFunction("k");
  const auto& load = std::get<Instruction>(function.body[5]);
  Operand guard;
  guard.kind = Operand::Kind::kRegister;
  guard.reg = load.guard.reg;
  guard.text = load.guard.text;
  const Operand arguments[] = {guard, load.operands[0], load.operands[1],
                               load.operands[1].children[0]};
  auto statements = ParseStatements(
      module, function, "@!#0 ld.global.v2.u32 #1, #2; add.u64 #3, #3, 4; ld.u32 %r1, [#3+4];",
      arguments);
  REQUIRE(statements.ok());
  CHECK(PrintAll(*statements) ==
        "@!%p2 ld.global.v2.u32 {%r1, %r2}, [%rd3+16];\nadd.u64 %rd3, %rd3, 4;\nld.u32 %r1, "
        "[%rd3+4];\n");
  CHECK(InstructionAt(*statements, 0).guard.reg == load.guard.reg);
  const auto missing = ParseStatements(module, function, "mov.u32 #4, 1;", arguments);
  REQUIRE_FALSE(missing.ok());
  CHECK(missing.error().message == "no operand was passed for '#4'");
}

TEST_CASE("a broken fragment leaves the function's scopes as they were") {
  Module module = ParseText(Kernel("ret;"));
  Function& function = *module.FindFunction("k");
  const auto broken = ParseStatements(module, function, "{ { .reg .b64 %r1; mov %r1 1; } }");
  REQUIRE_FALSE(broken.ok());
  CHECK(broken.error().line == 1);
  CHECK(broken.error().column == 28);
  auto statements = ParseStatements(module, function, "mov.u32 %r1, 1;");
  REQUIRE(statements.ok());
  CHECK(function.registers[InstructionAt(*statements, 0).operands[0].reg].type == ".b32");
}

TEST_CASE("added registers are declared at the top of the body") {
  Module module = ParseText(Kernel("{ .reg .b64 %od7; } ret;"));
  Function& function = *module.FindFunction("k");
  const Operand address = AddRegister(module, function, ".b64", "%od");
  const Operand predicate = AddRegister(module, function, ".pred", "%od_p");
  const Operand beside_range = AddRegister(module, function, ".b32", "%r");
  CHECK(address.text == "%od0");
  CHECK(predicate.text == "%od_p1");
  CHECK(beside_range.text == "%r_2");
  auto use = ParseStatements(module, function, "@%od_p1 mov.u64 %od0, 1;");
  REQUIRE(use.ok());
  CHECK(InstructionAt(*use, 0).operands[0].reg == address.reg);
  function.body.insert(function.body.end() - 1, use->begin(), use->end());
  const std::string printed = Print(module);
  CHECK(printed.find("{\n\t.reg .b32 %r_2;\n\t.reg .b64 %od0;\n\t.reg .pred %od_p1;\n") !=
        std::string::npos);
  auto again = Parse(printed);
  REQUIRE(again.ok());
  CHECK(Print(*again) == printed);
}

TEST_CASE("added registers never take a declared name") {
  Module module = ParseText(Kernel(".reg .b32 %x<40>; { .reg .b32 %y0, %x_0; } ret;"));
  Function& function = *module.FindFunction("k");
  CHECK(AddRegister(module, function, ".b32", "%x").text == "%x_1");
  CHECK(AddRegister(module, function, ".b32", "%y").text == "%y1");
  CHECK(AddRegister(module, function, ".b32", "%pm").text != "%pm2");
}

TEST_CASE("functions and variables of another text are appended") {
  Module module = ParseText(Kernel("ret;"));
  const Function* before = module.FindFunction("k");
  REQUIRE(AppendItems(module,
                      ".global .b64 added[4];\n.func helper(.param .b64 a) { .reg .b32 %r<2>; "
                      "mov.u32 %r1, %laneid; ret; }")
              .ok());
  CHECK(module.FindFunction("k") == before);
  REQUIRE(module.FindFunction("helper") != nullptr);
  CHECK(module.FindFunction("helper")->position.line == 0);
  CHECK(module.FindVariable("added") != nullptr);
  const auto broken = AppendItems(module, ".global .b64 kept;\n.func broken( { }");
  REQUIRE_FALSE(broken.ok());
  CHECK(broken.error().line == 2);
  CHECK(module.FindVariable("kept") == nullptr);
}

TEST_CASE("a clone can be edited without touching the original") {
  Module module = ParseText(Kernel("ld.global.u32 %r1, [%rd1+4]; ret;"));
  Function& original = *module.FindFunction("k");
  Function clone = CloneFunction(module, original);
  auto& load = std::get<Instruction>(clone.body[5]);
  load.operands[1].children[0].text = "%rd2";
  load.modifiers[0] = ".shared";
  CHECK(PrintInstruction(load) == "ld.shared.u32 %r1, [%rd2+4];");
  CHECK(PrintInstruction(std::get<Instruction>(original.body[5])) ==
        "ld.global.u32 %r1, [%rd1+4];");
}

TEST_CASE("statements made by hand are printed from their fields") {
  Module module = ParseText(Kernel("ret;"));
  Function& function = *module.FindFunction("k");
  Loc loc;
  loc.file = 1;
  loc.line = 20;
  loc.column = 3;
  loc.has_function = true;
  loc.function_name = "$info";
  loc.function_offset = "+4";
  loc.inlined_at_file = 2;
  loc.inlined_at_line = 7;
  function.body.insert(function.body.begin(), loc);
  CHECK(Print(module).find("\t.loc 1 20 3, function_name $info+4, inlined_at 2 7 0\n") !=
        std::string::npos);
}

TEST_CASE("constants are evaluated from text") {
  int64_t value = 0;
  CHECK(EvaluateConstant("128", &value));
  CHECK(value == 128);
  CHECK(EvaluateConstant("(3 + 4) * 0x10U", &value));
  CHECK(value == 112);
  CHECK_FALSE(EvaluateConstant("", &value));
  CHECK_FALSE(EvaluateConstant("1.5", &value));
  CHECK_FALSE(EvaluateConstant("4 x", &value));
  CHECK_FALSE(EvaluateConstant("name", &value));
}

}  // namespace ops_debug::ptx
