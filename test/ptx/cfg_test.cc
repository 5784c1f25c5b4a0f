// Basic blocks, dominators and reconvergence points of small functions.
#include "ptx/cfg.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "test/ptx/corpus.h"
#include "test/ptx/module_text.h"

namespace ops_debug::ptx {
namespace {

struct Flow {
  explicit Flow(const std::string& body) : module(ParseText(Kernel(body))), flow(Build()) {}
  ControlFlow Build() {
    auto built = ControlFlow::Build(*module.FindFunction("k"));
    if (!built.ok()) throw std::runtime_error(built.error().ToString());
    return std::move(built).value();
  }
  // The block that holds label `name`.
  BlockId operator[](std::string_view name) const {
    const Function& function = *module.FindFunction("k");
    for (uint32_t i = 0; i < function.body.size(); ++i) {
      const auto* label = std::get_if<Label>(&function.body[i]);
      if (label != nullptr && label->name == name) return flow.BlockOf(i);
    }
    throw std::logic_error("no label");
  }
  const BasicBlock& Block(BlockId id) const { return flow.blocks()[id]; }
  Module module;
  ControlFlow flow;
};

using Blocks = std::vector<BlockId>;

std::string ErrorOf(const std::string& body) {
  const Module module = ParseText(Kernel(body));
  const auto flow = ControlFlow::Build(*module.FindFunction("k"));
  return flow.ok() ? "" : flow.error().message;
}

}  // namespace

TEST_CASE("straight code is one block") {
  const Flow f("mov.u32 %r1, 1; add.u32 %r1, %r1, 1; ret;");
  REQUIRE(f.flow.blocks().size() == 1);
  CHECK(f.Block(0).begin == 0);
  CHECK(f.Block(0).exits);
  CHECK(f.Block(0).successors.empty());
  CHECK(f.flow.ReconvergenceBlock(0) == kNoBlock);
}

TEST_CASE("an empty body is one block that ends the thread") {
  const Module module = ParseText(".version 8.0\n.target sm_90\n.func f { }");
  auto flow = ControlFlow::Build(*module.FindFunction("f"));
  REQUIRE(flow.ok());
  CHECK(flow->blocks().size() == 1);
  CHECK(flow->blocks()[0].exits);
}

TEST_CASE("labels that nothing jumps to split nothing") {
  const Flow f("mov.u32 %r1, 1; $L__tmp0: mov.u32 %r2, 1; $L__tmp1: ret;");
  CHECK(f.flow.blocks().size() == 1);
}

TEST_CASE("both arms of a branch meet at the join") {
  const Flow f(
      "setp.eq.u32 %p1, %r1, 0; @%p1 bra ELSE; THEN: mov.u32 %r2, 1; bra JOIN; ELSE: mov.u32 %r2, "
      "2; JOIN: ret;");
  REQUIRE(f.flow.blocks().size() == 4);
  CHECK(f.Block(0).successors == Blocks{f["THEN"], f["ELSE"]});
  CHECK(f.Block(f["JOIN"]).predecessors == Blocks{f["THEN"], f["ELSE"]});
  CHECK(f.flow.ReconvergenceBlock(0) == f["JOIN"]);
  CHECK(f.flow.ImmediateDominator(f["JOIN"]) == 0);
  CHECK_FALSE(f.flow.Dominates(f["ELSE"], f["JOIN"]));
  CHECK(f.flow.PostDominates(f["JOIN"], 0));
  CHECK_FALSE(f.flow.PostDominates(f["ELSE"], 0));
  CHECK(f.flow.reverse_post_order().front() == 0);
  CHECK(f.flow.reverse_post_order().back() == f["JOIN"]);
}

TEST_CASE("a loop branches back to its header and reconverges behind it") {
  const Flow f(
      "mov.u32 %r1, 0; HEAD: setp.ge.u32 %p1, %r1, 9; @%p1 bra END; add.u32 %r1, %r1, 1; bra HEAD; "
      "END: ret;");
  const BlockId body = f["HEAD"] + 1;
  CHECK(f.Block(f["HEAD"]).predecessors == Blocks{0, body});
  CHECK(f.Block(body).successors == Blocks{f["HEAD"]});
  CHECK(f.flow.ReconvergenceBlock(f["HEAD"]) == f["END"]);
  CHECK(f.flow.ImmediateDominator(body) == f["HEAD"]);
  CHECK(f.flow.ReconvergenceBlock(body) == f["HEAD"]);
}

TEST_CASE("nested loops reconverge inside out") {
  const Flow f(
      "OUTER: mov.u32 %r2, 0; INNER: add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 4; @%p1 bra INNER; "
      "LATCH: setp.lt.u32 %p2, %r1, 4; @%p2 bra OUTER; END: ret;");
  CHECK(f.flow.ReconvergenceBlock(f["INNER"]) == f["LATCH"]);
  CHECK(f.flow.ReconvergenceBlock(f["LATCH"]) == f["END"]);
  CHECK(f.flow.Dominates(f["OUTER"], f["LATCH"]));
}

TEST_CASE("a guarded return falls through and may end the thread") {
  const Flow f("@%p1 ret; BODY: mov.u32 %r1, 1; @!%p2 exit; REST: ret;");
  CHECK(f.Block(0).exits);
  CHECK(f.Block(0).successors == Blocks{f["BODY"]});
  CHECK(f.flow.ReconvergenceBlock(0) == kNoBlock);  // threads that return never meet the others
  CHECK(f.Block(f["BODY"]).successors == Blocks{f["REST"]});
}

TEST_CASE("an early return on one arm leaves only the exit in common") {
  const Flow f("@%p1 bra OUT; mov.u32 %r1, 1; ret; OUT: mov.u32 %r1, 2; ret;");
  CHECK(f.flow.ReconvergenceBlock(0) == kNoBlock);
}

TEST_CASE("trap ends a block") {
  const Flow f("@%p1 bra FINE; trap; FINE: ret;");
  CHECK(f.Block(1).exits);
  CHECK(f.Block(1).successors.empty());
}

TEST_CASE("code behind a jump is unreachable and disturbs nobody") {
  const Flow f("bra END; DEAD: mov.u32 %r1, 1; @%p1 bra DEAD; END: ret;");
  const BlockId dead = 1;
  CHECK_FALSE(f.flow.IsReachable(dead));
  CHECK(f.flow.ImmediateDominator(dead) == kNoBlock);
  CHECK(f.flow.ImmediateDominator(f["END"]) == 0);
  CHECK(f.flow.reverse_post_order() == Blocks{0, f["END"]});
}

TEST_CASE("irreducible flow: two entries into one loop") {
  const Flow f(
      "@%p1 bra B; A: mov.u32 %r1, 1; @%p2 bra OUT; bra B; B: mov.u32 %r1, 2; @%p3 bra OUT; bra A; "
      "OUT: ret;");
  CHECK(f.flow.ImmediateDominator(f["A"]) == 0);
  CHECK(f.flow.ImmediateDominator(f["B"]) == 0);
  CHECK(f.flow.ImmediateDominator(f["OUT"]) == 0);
  CHECK_FALSE(f.flow.Dominates(f["A"], f["B"]));
  CHECK(f.flow.ReconvergenceBlock(0) == f["OUT"]);
  CHECK(f.flow.ReconvergenceBlock(f["A"]) == f["OUT"]);
}

TEST_CASE("an infinite loop has a virtual way out at its end") {
  const Flow f(
      "@%p1 bra END; LOOP: mov.u32 %r1, 1; @%p2 bra ODD; add.u32 %r1, %r1, 1; ODD: bra LOOP; END: "
      "ret;");
  CHECK(f.flow.ReconvergenceBlock(f["LOOP"]) == f["ODD"]);
  CHECK(f.flow.ReconvergenceBlock(f["ODD"]) == kNoBlock);
  CHECK(f.flow.ReconvergenceBlock(0) == kNoBlock);
}

TEST_CASE("a function that never ends has post-dominators too") {
  const Flow f("LOOP: @%p1 bra ELSE; mov.u32 %r1, 1; ELSE: bra LOOP;");
  CHECK(f.flow.ReconvergenceBlock(f["LOOP"]) == f["ELSE"]);
}

TEST_CASE("an indexed branch goes to all its targets") {
  const Flow f(
      "ts: .branchtargets A, B, A, C; brx.idx %r1, ts; A: mov.u32 %r1, 1; bra C; B: mov.u32 %r1, "
      "2; C: ret;");
  CHECK(f.Block(0).successors == Blocks{f["A"], f["B"], f["C"]});
  CHECK(f.flow.ReconvergenceBlock(0) == f["C"]);
}

TEST_CASE("a branch to the next statement is one edge") {
  const Flow f("@%p1 bra NEXT; NEXT: ret;");
  CHECK(f.Block(0).successors == Blocks{f["NEXT"]});
  CHECK(f.Block(f["NEXT"]).predecessors == Blocks{0});
}

TEST_CASE("labels of inline assembly resolve in their own block") {
  const Module module = ParseText(ReadFile(std::string(OPS_DEBUG_PTX_DATA) + "/scopes.ptx"));
  const Function& function = *module.FindFunction("scopes");
  auto flow = ControlFlow::Build(function);
  REQUIRE(flow.ok());
  std::vector<BlockId> waits;
  for (uint32_t i = 0; i < function.body.size(); ++i) {
    const auto* label = std::get_if<Label>(&function.body[i]);
    if (label != nullptr && label->name == "WAIT") waits.push_back(flow->BlockOf(i));
  }
  REQUIRE(waits.size() == 2);
  // Each loop jumps back to its own WAIT. The second shares a block with the first DONE: no
  // instruction is between them.
  CHECK(flow->blocks()[waits[0]].predecessors == Blocks{waits[0] - 1, waits[0] + 1});
  CHECK(flow->blocks()[waits[1]].predecessors == Blocks{waits[0], waits[1] + 1});
}

TEST_CASE("branches to nowhere are errors") {
  CHECK(ErrorOf("bra NOWHERE;") == "branch to label 'NOWHERE', which is not in this function");
  CHECK(ErrorOf("bra %r1;") == "bra without a label to jump to");
  CHECK(ErrorOf("L: mov.u32 %r1, 1; brx.idx %r1, L;") == "label 'L' is no .branchtargets list");
  CHECK(ErrorOf("ts: .branchtargets A, B; A: brx.idx %r1, ts;") ==
        "branch target 'B' is not in this function");
}

TEST_CASE("the graph of every corpus function is consistent") {
  for (const auto& path : TestCorpus().All()) {
    if (path.filename() == "grammar.ptx") continue;
    INFO(path);
    const Module module = ParseText(ReadFile(path));
    for (const Item& item : module.items) {
      const auto* function = std::get_if<Function>(&item);
      if (function == nullptr || !function->has_body) continue;
      INFO(function->name);
      auto built = ControlFlow::Build(*function);
      REQUIRE(built.ok());
      const ControlFlow& flow = *built;
      uint32_t end = 0;
      bool consistent = true;
      for (BlockId block = 0; block < flow.blocks().size(); ++block) {
        const BasicBlock& current = flow.blocks()[block];
        consistent = consistent && current.begin == end;
        end = current.end;
        for (const BlockId successor : current.successors) {
          const auto& back = flow.blocks()[successor].predecessors;
          consistent = consistent && std::count(back.begin(), back.end(), block) == 1;
        }
        const BlockId dominator = flow.ImmediateDominator(block);
        consistent = consistent && (dominator == kNoBlock || flow.Dominates(dominator, block));
        const BlockId join = flow.ReconvergenceBlock(block);
        consistent = consistent && (join == kNoBlock || flow.PostDominates(join, block));
        if (current.successors.size() == 1 && !current.exits)
          consistent = consistent && join == current.successors[0];
      }
      CHECK(end == function->body.size());
      CHECK(consistent);
    }
  }
}

}  // namespace ops_debug::ptx
