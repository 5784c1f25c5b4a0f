// Reaching definitions on small functions, and against a brute-force search.
#include "ptx/def_use.h"

#include <catch2/catch.hpp>
#include <set>

#include "ptx/operands.h"
#include "ptx/printer.h"
#include "test/ptx/corpus.h"
#include "test/ptx/module_text.h"

namespace ops_debug::ptx {
namespace {

struct Chains {
  explicit Chains(const std::string& body) : Chains(ParseText(Kernel(body)), "k") {}
  Chains(Module parsed, const char* name)
      : module(std::move(parsed)),
        function(*module.FindFunction(name)),
        flow(std::move(ControlFlow::Build(function)).value()),
        chains(function, flow) {}

  uint32_t Find(const std::string& text) const {
    for (uint32_t i = 0; i < function.body.size(); ++i) {
      const auto* instruction = std::get_if<Instruction>(&function.body[i]);
      if (instruction != nullptr && PrintInstruction(*instruction) == text) return i;
    }
    throw std::logic_error("no " + text);
  }
  RegisterId Register(std::string_view name) const {
    for (RegisterId id = 0; id < function.registers.size(); ++id) {
      if (function.registers[id].name == name) return id;
    }
    throw std::logic_error("no register");
  }
  // The instructions whose value `use` may see in `name`; "entry" for the value at entry.
  std::set<std::string> Reaching(const std::string& use, std::string_view name) const {
    std::set<std::string> result;
    for (const uint32_t index : chains.ReachingDefinitions(Find(use), Register(name))) {
      const DefUse::Definition& definition = chains.definitions()[index];
      result.insert(
          definition.statement == DefUse::kAtEntry
              ? "entry"
              : PrintInstruction(std::get<Instruction>(function.body[definition.statement])));
    }
    return result;
  }

  Module module;
  const Function& function;
  ControlFlow flow;
  DefUse chains;
};

using Set = std::set<std::string>;

}  // namespace

TEST_CASE("the last definition in straight code reaches") {
  const Chains c("mov.u32 %r1, 1; mov.u32 %r1, 2; add.u32 %r2, %r1, 0; ret;");
  CHECK(c.Reaching("add.u32 %r2, %r1, 0;", "%r1") == Set{"mov.u32 %r1, 2;"});
}

TEST_CASE("a definition under a guard leaves the earlier one alive") {
  const Chains c("mov.u32 %r1, 1; @%p1 mov.u32 %r1, 2; add.u32 %r2, %r1, 0; ret;");
  CHECK(c.Reaching("add.u32 %r2, %r1, 0;", "%r1") ==
        Set{"mov.u32 %r1, 1;", "@%p1 mov.u32 %r1, 2;"});
  CHECK(c.chains.UniqueDefinition(c.Find("add.u32 %r2, %r1, 0;"), c.Register("%r1")) == nullptr);
}

TEST_CASE("a guarded definition alone does not hide the value at entry") {
  const Chains c("@%p1 mov.u32 %r1, 2; add.u32 %r2, %r1, 0; ret;");
  CHECK(c.Reaching("add.u32 %r2, %r1, 0;", "%r1") == Set{"entry", "@%p1 mov.u32 %r1, 2;"});
}

TEST_CASE("both arms reach the join") {
  const Chains c(
      "@%p1 bra E; mov.u32 %r1, 1; bra J; E: mov.u32 %r1, 2; J: add.u32 %r2, %r1, 0; ret;");
  CHECK(c.Reaching("add.u32 %r2, %r1, 0;", "%r1") == Set{"mov.u32 %r1, 1;", "mov.u32 %r1, 2;"});
}

TEST_CASE("one arm only: the value at entry reaches too") {
  const Chains c("@%p1 bra J; mov.u32 %r1, 1; J: add.u32 %r2, %r1, 0; ret;");
  CHECK(c.Reaching("add.u32 %r2, %r1, 0;", "%r1") == Set{"entry", "mov.u32 %r1, 1;"});
}

TEST_CASE("a loop counter comes from before the loop and from its end") {
  const Chains c(
      "mov.u32 %r1, 0; L: add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 9; @%p1 bra L; ret;");
  CHECK(c.Reaching("add.u32 %r1, %r1, 1;", "%r1") ==
        Set{"mov.u32 %r1, 0;", "add.u32 %r1, %r1, 1;"});
  CHECK(c.Reaching("setp.lt.u32 %p1, %r1, 9;", "%r1") == Set{"add.u32 %r1, %r1, 1;"});
}

TEST_CASE("a use above its only definition in a loop sees the entry too") {
  const Chains c("L: add.u32 %r2, %r1, 1; mov.u32 %r1, %r3; @%p1 bra L; ret;");
  CHECK(c.Reaching("add.u32 %r2, %r1, 1;", "%r1") == Set{"entry", "mov.u32 %r1, %r3;"});
}

TEST_CASE("a single definition that dominates its uses is unique") {
  const Chains c("mov.u32 %r1, 7; L: add.u32 %r2, %r1, 1; @%p1 bra L; ret;");
  const DefUse::Definition* definition =
      c.chains.UniqueDefinition(c.Find("add.u32 %r2, %r1, 1;"), c.Register("%r1"));
  REQUIRE(definition != nullptr);
  CHECK(definition->statement == c.Find("mov.u32 %r1, 7;"));
}

TEST_CASE("a write to a part keeps the rest alive") {
  const Chains c("mov.v4.f32 %v, {%f1, %f1, %f1, %f1}; mov.f32 %v.x, %f2; mov.f32 %f3, %v.y; ret;");
  CHECK(c.Reaching("mov.f32 %f3, %v.y;", "%v") ==
        Set{"mov.v4.f32 %v, {%f1, %f1, %f1, %f1};", "mov.f32 %v.x, %f2;"});
}

TEST_CASE("register parameters reach from the entry") {
  const Chains c(ParseText(".version 7.0\n.target sm_75\n.func (.reg .b32 out) f (.reg .b32 in) { "
                           "add.u32 out, in, 1; ret; }"),
                 "f");
  CHECK(c.Reaching("add.u32 out, in, 1;", "in") == Set{"entry"});
}

TEST_CASE("uses of a definition are listed, and what a statement defines") {
  const Chains c("mov.u32 %r1, 7; add.u32 %r2, %r1, 1; add.u32 %r3, %r1, %r1; ret;");
  const std::vector<uint32_t> definitions = c.chains.DefinitionsAt(c.Find("mov.u32 %r1, 7;"));
  REQUIRE(definitions.size() == 1);
  std::vector<uint32_t> statements;
  for (const uint32_t use : c.chains.UsesOf(definitions[0]))
    statements.push_back(c.chains.uses()[use].statement);
  CHECK(statements ==
        std::vector<uint32_t>{c.Find("add.u32 %r2, %r1, 1;"), c.Find("add.u32 %r3, %r1, %r1;")});
}

TEST_CASE("unreachable code passes nothing on") {
  const Chains c(
      "mov.u32 %r1, 1; bra J; D: mov.u32 %r1, 2; @%p1 bra D; J: add.u32 %r2, %r1, 1; ret;");
  CHECK(c.Reaching("add.u32 %r2, %r1, 1;", "%r1") == Set{"mov.u32 %r1, 1;"});
}

TEST_CASE("nothing reaches unreachable code") {
  const Chains c("mov.u32 %r1, 1; ret; D: add.u32 %r2, %r1, 1; ret;");
  CHECK(c.Reaching("add.u32 %r2, %r1, 1;", "%r1").empty());
}

TEST_CASE("more than 64 definitions of one register") {
  std::string body = "mov.u32 %r2, 0;";
  Set expected;
  for (int i = 0; i < 150; ++i) {
    body += "@%p1 mov.u32 %r1, " + std::to_string(i) + ";";
    expected.insert("@%p1 mov.u32 %r1, " + std::to_string(i) + ";");
  }
  expected.insert("entry");
  const Chains c(body + "L: add.u32 %r2, %r2, %r1; @%p2 bra L; ret;");
  CHECK(c.Reaching("add.u32 %r2, %r2, %r1;", "%r1") == expected);
}

// Walks backwards from one use along every path, as the definition of "reaches" says.
static std::set<uint32_t> BruteForce(const Function& function, const ControlFlow& flow,
                                     uint32_t use, RegisterId reg) {
  std::set<uint32_t> found;
  std::set<BlockId> entered;
  struct Walk {
    BlockId block;
    uint32_t end;
  };
  std::vector<Walk> open{{flow.BlockOf(use), use}};
  while (!open.empty()) {
    const Walk walk = open.back();
    open.pop_back();
    bool killed = false;
    for (uint32_t i = walk.end; i > flow.blocks()[walk.block].begin && !killed;) {
      const auto* instruction = std::get_if<Instruction>(&function.body[--i]);
      if (instruction == nullptr) continue;
      bool writes = false;
      ForEachRegister(*instruction, [&](RegisterId id, bool is_write) {
        writes = writes || (is_write && id == reg);
      });
      if (!writes) continue;
      found.insert(i);
      killed = !instruction->guard.Present() && !WritesPart(*instruction, reg);
    }
    if (killed) continue;
    if (walk.block == 0) found.insert(DefUse::kAtEntry);
    for (const BlockId before : flow.blocks()[walk.block].predecessors) {
      if (flow.IsReachable(before) && entered.insert(before).second)
        open.push_back({before, flow.blocks()[before].end});
    }
  }
  return found;
}

TEST_CASE("chains equal a brute-force search on real code") {
  size_t compared = 0;
  for (const auto& path : TestCorpus().All()) {
    if (path.filename() == "grammar.ptx") continue;
    INFO(path);
    const Module module = ParseText(ReadFile(path));
    for (const Item& item : module.items) {
      const auto* function = std::get_if<Function>(&item);
      if (function == nullptr || !function->has_body) continue;
      auto flow = ControlFlow::Build(*function);
      REQUIRE(flow.ok());
      const DefUse chains(*function, *flow);
      const size_t step = chains.uses().size() / 200 + 1;
      for (size_t i = 0; i < chains.uses().size(); i += step) {
        const DefUse::Use& use = chains.uses()[i];
        if (!flow->IsReachable(flow->BlockOf(use.statement))) continue;
        std::set<uint32_t> reaching;
        for (const uint32_t index : chains.ReachingDefinitions(use.statement, use.reg)) {
          reaching.insert(chains.definitions()[index].statement);
        }
        std::set<uint32_t> expected = BruteForce(*function, *flow, use.statement, use.reg);
        ++compared;
        if (reaching != expected) {
          FAIL(function->name << " "
                              << PrintInstruction(
                                     std::get<Instruction>(function->body[use.statement]))
                              << " " << function->registers[use.reg].name);
        }
      }
    }
  }
  CHECK(compared > 30);
}

}  // namespace ops_debug::ptx
