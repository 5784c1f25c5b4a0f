// Which registers an instruction reads and writes.
#include "ptx/operands.h"

#include <catch2/catch.hpp>
#include <set>

#include "test/ptx/corpus.h"
#include "test/ptx/module_text.h"

namespace ops_debug::ptx {
namespace {

// "read: a b  write: c" with the names sorted.
std::string Accesses(const std::string& text) {
  const Module module = ParseText(Kernel(text));
  const Function& function = *module.FindFunction("k");
  std::set<std::string> reads, writes;
  for (const Statement& statement : function.body) {
    const auto* instruction = std::get_if<Instruction>(&statement);
    if (instruction == nullptr) continue;
    ForEachRegister(*instruction, [&](RegisterId reg, bool is_write) {
      (is_write ? writes : reads).insert(function.registers[reg].name);
    });
  }
  std::string result = "read:";
  for (const std::string& name : reads) result += " " + name;
  result += " write:";
  for (const std::string& name : writes) result += " " + name;
  return result;
}

}  // namespace

TEST_CASE("registers read and written, by instruction") {
  struct Expected {
    const char* text;
    const char* accesses;
  };
  for (const Expected& expected : {
           Expected{"add.u32 %r1, %r2, %r3;", "read: %r2 %r3 write: %r1"},
           {"@%p1 mov.u32 %r1, 5;", "read: %p1 write: %r1"},
           {"setp.lt.and.s32 %p1|%p2, %r1, %r2, !%p3;", "read: %p3 %r1 %r2 write: %p1 %p2"},
           {"setp.eq.s32 _|%p2, %r1, 0;", "read: %r1 write: %p2"},
           {"shfl.sync.up.b32 %r1|%p1, %r2, %r3, 0, -1;", "read: %r2 %r3 write: %p1 %r1"},
           {"ld.global.v2.u32 {%r1, _}, [%rd1+8];", "read: %rd1 write: %r1"},
           {"st.global.v2.u32 [%rd1+8], {%r1, %r2};", "read: %r1 %r2 %rd1 write:"},
           {"atom.global.add.u32 %r1, [%rd1], %r2;", "read: %r2 %rd1 write: %r1"},
           {"atom.global.cas.b32 _, [%rd1], %r2, %r3;", "read: %r2 %r3 %rd1 write:"},
           {"red.global.add.u32 [%rd1], %r2;", "read: %r2 %rd1 write:"},
           {"mov.b64 {%r1, %r2}, %rd1;", "read: %rd1 write: %r1 %r2"},
           {"mov.b64 %rd1, {%r1, %r2};", "read: %r1 %r2 write: %rd1"},
           {"mov.f32 %f1, %v.x;", "read: %v write: %f1"},
           {"mov.f32 %v.x, %f1;", "read: %f1 %v write: %v"},
           {"sub.f32 %f1, %f2, -%f3;", "read: %f2 %f3 write: %f1"},
           {"vmad.u32.u32.u32 %r1, %r2.b0, %r3.h1, -%r4;", "read: %r2 %r3 %r4 write: %r1"},
           {"bra L; L:", "read: write:"},
           {"brx.idx %r1, list;", "read: %r1 write:"},
           {"bar.sync %r1, %r2;", "read: %r1 %r2 write:"},
           {"barrier.cta.arrive %r1, %r2;", "read: %r1 %r2 write:"},
           {"bar.red.popc.u32 %r1, %r2, %r3, !%p1;", "read: %p1 %r2 %r3 write: %r1"},
           {"bar.warp.sync %r1;", "read: %r1 write:"},
           {"nanosleep.u32 %r1;", "read: %r1 write:"},
           {"call.uni (%r1), f, (%r2, %rd1);", "read: %r2 %rd1 write: %r1"},
           {"call (retval0), %rd1, (param0), proto;", "read: %rd1 write:"},
           {"call f, (%r1);", "read: %r1 write:"},
           {"call (%r1), f;", "read: write: %r1"},
           {"ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r1, %r2}, [%r3];",
            "read: %r3 write: %r1 %r2"},
           {"stmatrix.sync.aligned.m8n8.x2.shared.b16 [%r3], {%r1, %r2};",
            "read: %r1 %r2 %r3 write:"},
           {"mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f1, %f2}, {%r1, %r2}, {%r3}, {%f1, "
            "%f3};",
            "read: %f1 %f3 %r1 %r2 %r3 write: %f1 %f2"},
           {"wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1, %f2}, %rd1, %rd2, %p1, 1, 1, "
            "0, 0;",
            "read: %f1 %f2 %p1 %rd1 %rd2 write: %f1 %f2"},
           {"wgmma.wait_group.sync.aligned 0;", "read: write:"},
           {"cp.async.cg.shared.global [%r1], [%rd1], 16, %r2;", "read: %r1 %r2 %rd1 write:"},
           {"cp.async.bulk.tensor.2d.shared::cluster.global.tile [%r1], [%rd1, {%r2, %r3}], [%r4];",
            "read: %r1 %r2 %r3 %r4 %rd1 write:"},
           {"mbarrier.arrive.shared.b64 %rd1, [%r1];", "read: %r1 write: %rd1"},
           {"mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], %r2;",
            "read: %r1 %r2 write: %p1"},
           {"tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}|%p1, [tex0, {%f5, %f6}];",
            "read: %f5 %f6 write: %f1 %f2 %f3 %f4 %p1"},
           {"sust.b.1d.b32.trap [surf, {%r1}], {%r2};", "read: %r1 %r2 write:"},
           {"tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r1, 32;", "read: %r1 write:"},
           {"tcgen05.ld.sync.aligned.32x32b.x2.b32 {%r1, %r2}, [%r3];", "read: %r3 write: %r1 %r2"},
           {"tcgen05.st.sync.aligned.32x32b.x2.b32 [%r3], {%r1, %r2};", "read: %r1 %r2 %r3 write:"},
           {"st.global.u32 array[%r1], %r2;", "read: %r1 %r2 write:"},
           {"prefetch.global.L2 [%rd1];", "read: %rd1 write:"},
           {"elect.sync %r1|%p1, %r2;", "read: %r2 write: %p1 %r1"},
           {"an_instruction.of.the.future %r1, {%r2}, [%rd1];", "read: %r2 %rd1 write: %r1"},
       }) {
    INFO(expected.text);
    CHECK(Accesses(expected.text) == expected.accesses);
  }
}

TEST_CASE("every register that the text of an instruction names is read or written") {
  size_t instructions = 0;
  for (const auto& path : TestCorpus().All()) {
    const Module module = ParseText(ReadFile(path));
    for (const Item& item : module.items) {
      const auto* function = std::get_if<Function>(&item);
      if (function == nullptr) continue;
      for (const Statement& statement : function->body) {
        const auto* instruction = std::get_if<Instruction>(&statement);
        if (instruction == nullptr) continue;
        ++instructions;
        std::set<RegisterId> named, accessed;
        if (instruction->guard.Present()) named.insert(instruction->guard.reg);
        std::vector<const Operand*> open;
        for (const Operand& operand : instruction->operands) open.push_back(&operand);
        while (!open.empty()) {
          const Operand* operand = open.back();
          open.pop_back();
          if (operand->IsRegister()) named.insert(operand->reg);
          for (const Operand& child : operand->children) open.push_back(&child);
        }
        ForEachRegister(*instruction, [&](RegisterId reg, bool) { accessed.insert(reg); });
        if (named != accessed) FAIL(path << ":" << instruction->position.line);
      }
    }
  }
  CHECK(instructions > 100);
}

}  // namespace ops_debug::ptx
