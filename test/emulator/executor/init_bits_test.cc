// Which bits of a result are undefined (emulator/checks/definedness_flow.h): instructions in
// kernels, and the rules against all values that the undefined bits can have.
#include <catch2/catch.hpp>
#include <random>
#include <string>

#include "emulator/checks/definedness_flow.h"
#include "emulator/isa/lane_ops.h"
#include "test/emulator/executor/init_session.h"

namespace ops_debug::emulator {
namespace {

TEST_CASE("The tail of a bit mask is silent once it is masked away") {
  // Seven of eight bits of the last word were written.
  InitSession session;
  session.Write(session.raw(), 3);
  CHECK(session
            .Run(R"(
    ld.global.u32 %r2, [%rd2];
    and.b32 %r3, %r2, 0x00ffffff;
    popc.b32 %r4, %r3;
    setp.gt.u32 %p1, %r4, 3;
    @%p1 bra L;
    st.global.u32 [%rd3], %r4;
  L:)")
            .empty());
}

TEST_CASE("The tail of a bit mask that is counted is told") {
  InitSession session;
  session.Write(session.raw(), 3);
  const auto& findings = session.Run(R"(
    ld.global.u32 %r2, [%rd2];
    popc.b32 %r4, %r2;
    st.global.u32 [%rd3], %r4;)");
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].use == "stored");
  CHECK(findings[0].address == session.raw() + 3);
  CHECK(findings[0].bytes == 1);
}

// %r2 has its upper half undefined; `code` computes %p1, which decides a branch.
std::string UsesOfHalf(const std::string& code) {
  return UsesWithWritten(2,
                         "ld.global.u32 %r2, [%rd2]; ld.global.u64 %rd7, [%rd4]; "
                         "mov.u32 %r20, 4; " +
                             code + " @%p1 bra L; L:");
}

TEST_CASE("Bit operations keep track of single bits") {
  struct Row {
    const char* code;
    const char* uses;
  };
  const Row rows[] = {
      {"and.b32 %r3, %r2, 0xffff; setp.eq.u32 %p1, %r3, 5;", ""},
      {"and.b32 %r3, %r2, 0x1ffff; setp.eq.u32 %p1, %r3, 0;", "branch"},
      {"or.b32 %r3, %r2, 0xffff0000; setp.eq.u32 %p1, %r3, 5;", ""},
      {"or.b32 %r3, %r2, 0xfffe0000; setp.eq.u32 %p1, %r3, 0xfffe0000;", "branch"},
      {"xor.b32 %r3, %r2, %r2; setp.eq.u32 %p1, %r3, 0;", "branch"},
      {"not.b32 %r3, %r2; and.b32 %r3, %r3, 255; setp.eq.u32 %p1, %r3, 5;", ""},
      {"shl.b32 %r3, %r2, 16; setp.eq.u32 %p1, %r3, 5;", ""},
      {"shl.b32 %r3, %r2, 15; setp.eq.u32 %p1, %r3, 0;", "branch"},
      {"shr.u32 %r3, %r2, 16; and.b32 %r3, %r3, 1; setp.eq.u32 %p1, %r3, 5;", ""},
      {"shr.u32 %r3, %r2, 16; and.b32 %r3, %r3, 1; setp.eq.u32 %p1, %r3, 1;", "branch"},
      {"shr.s32 %r3, %r2, 31; and.b32 %r3, %r3, 1; setp.ne.u32 %p1, %r3, 0;", "branch"},
      {"shl.b32 %r3, %r20, %r2; setp.eq.u32 %p1, %r3, 0;", "branch"},
      {"prmt.b32 %r3, %r2, 0, 0x4410; setp.eq.u32 %p1, %r3, 5;", ""},
      {"prmt.b32 %r3, %r2, 0, 0x4420; setp.eq.u32 %p1, %r3, 0;", "branch"},
      {"bfe.u32 %r3, %r2, 8, 8; setp.eq.u32 %p1, %r3, 5;", ""},
      {"bfe.u32 %r3, %r2, 9, 8; setp.eq.u32 %p1, %r3, 0;", "branch"},
      {"bfe.s32 %r3, %r2, 4, 8; setp.eq.u32 %p1, %r3, 5;", ""},
      {"bfi.b32 %r3, %r20, %r2, 16, 16; setp.eq.u32 %p1, %r3, 5;", ""},
      {"bfi.b32 %r3, %r20, %r2, 17, 15; setp.eq.u32 %p1, %r3, 0x80000;", "branch"},
      {"shf.l.wrap.b32 %r3, %r20, %r2, 16; setp.eq.u32 %p1, %r3, 5;", ""},
      {"shf.r.wrap.b32 %r3, %r2, %r20, 8; and.b32 %r3, %r3, 255; setp.eq.u32 %p1, %r3, 5;", ""},
      {"shf.r.wrap.b32 %r3, %r2, %r20, 9; and.b32 %r3, %r3, 255; setp.eq.u32 %p1, %r3, 0;",
       "branch"},
      {"brev.b32 %r3, %r2; shr.u32 %r3, %r3, 16; setp.eq.u32 %p1, %r3, 5;", ""},
      {"lop3.b32 %r3, %r2, 0xffff, %r20, 0xc0; setp.eq.u32 %p1, %r3, 5;", ""},
      {"lop3.b32 %r3, %r2, 0xffff, %r20, 0xfc; setp.eq.u32 %p1, %r3, 0xffff;", "branch"},
      {"lop3.b32 %r3, %r2, %r2, %r20, 0xaa; setp.eq.u32 %p1, %r3, 5;", ""},
      {"cvt.u16.u32 %h1, %r2; setp.eq.u16 %p1, %h1, 5;", ""},
      {"cvt.u64.u32 %rd6, %r2; and.b64 %rd6, %rd6, 0xff0000000000ffff; setp.eq.u64 %p1, %rd6, 5;",
       ""},
      {"cvt.s64.s32 %rd6, %r2; shr.u64 %rd6, %rd6, 63; setp.eq.u64 %p1, %rd6, 1;", "branch"},
      {"mov.b32 {%h1, %h2}, %r2; setp.eq.u16 %p1, %h1, 5;", ""},
      {"mov.b32 {%h1, %h2}, %r2; setp.eq.u16 %p1, %h2, 0;", "branch"},
      {"mov.b64 %rd6, {%r20, %r2}; cvt.u32.u64 %r3, %rd6; setp.eq.u32 %p1, %r3, 5;", ""},
      {"mov.b64 {%r3, %r4}, %rd7; mov.b64 %rd6, {%r3, %r2}; mov.b64 {%r5, %r6}, %rd6; "
       "setp.eq.u32 %p1, %r5, 9;",
       ""},
  };
  for (const Row& row : rows) {
    INFO(row.code);
    CHECK(UsesOfHalf(row.code) == row.uses);
  }
}

TEST_CASE("Sums and products are undefined from their lowest undefined bit on") {
  struct Row {
    const char* code;
    const char* uses;
  };
  const Row rows[] = {
      {"add.u32 %r3, %r2, 7; and.b32 %r3, %r3, 0xffff; setp.eq.u32 %p1, %r3, 5;", ""},
      {"add.u32 %r3, %r2, 7; setp.eq.u32 %p1, %r3, 7;", "branch"},
      {"sub.u32 %r3, %r20, %r2; and.b32 %r3, %r3, 0xffff; setp.eq.u32 %p1, %r3, 5;", ""},
      {"sub.u32 %r3, %r20, %r2; setp.eq.u32 %p1, %r3, 4;", "branch"},
      {"mul.lo.u32 %r3, %r2, 12; and.b32 %r3, %r3, 0x3ffff; setp.eq.u32 %p1, %r3, 5;", ""},
      {"mul.lo.u32 %r3, %r2, 12; and.b32 %r3, %r3, 0x7ffff; setp.eq.u32 %p1, %r3, 0;", "branch"},
      {"mul.lo.u32 %r3, %r2, 0; setp.eq.u32 %p1, %r3, 5;", ""},
      {"mad.lo.u32 %r3, %r2, 8, 4; and.b32 %r3, %r3, 0xffff; setp.eq.u32 %p1, %r3, 5;", ""},
      {"mad.lo.u32 %r3, %r20, 8, %r2; and.b32 %r3, %r3, 0x1ffff; setp.eq.u32 %p1, %r3, 32;",
       "branch"},
      {"mul.wide.u32 %rd6, %r2, 8; and.b64 %rd6, %rd6, 0x7ffff; setp.eq.u64 %p1, %rd6, 5;", ""},
      {"mul.wide.s32 %rd6, %r2, 8; shr.u64 %rd6, %rd6, 60; setp.eq.u64 %p1, %rd6, 0;", "branch"},
      {"mad.wide.u32 %rd6, %r2, 4, %rd7; and.b64 %rd6, %rd6, 0xffff; setp.eq.u64 %p1, %rd6, 5;",
       ""},
      {"neg.s32 %r3, %r2; and.b32 %r3, %r3, 0xffff; setp.eq.u32 %p1, %r3, 5;", ""},
      {"add.cc.u32 %r3, %r2, 0x10000; addc.u32 %r4, 0, 0; setp.eq.u32 %p1, %r4, 1;", "branch"},
      {"add.cc.u32 %r3, %r2, 7; addc.u32 %r4, 0, 0; setp.eq.u32 %p1, %r4, 1;", ""},
      {"and.b32 %r3, %r2, 0x7fffffff; add.cc.u32 %r3, %r3, 7; addc.u32 %r4, 0, 0; "
       "setp.eq.u32 %p1, %r4, 1;",
       ""},
      {"sub.cc.u32 %r3, %r20, %r2; subc.u32 %r4, 0, 0; setp.eq.u32 %p1, %r4, 1;", "branch"},
      {"mul.hi.u32 %r3, %r2, 5; setp.eq.u32 %p1, %r3, 0;", "branch"},
      {"div.u32 %r3, %r2, 5; setp.eq.u32 %p1, %r3, 0;", "branch"},
      {"add.f32 %f1, 0f3f800000, 0f3f800000; mov.b32 %f2, %r2; add.f32 %f1, %f1, %f2; "
       "setp.gt.f32 %p1, %f1, 0f00000000;",
       "branch"},
      // Packed halves: each on its own.
      {"add.rn.f16x2 %r3, %r2, %r2; and.b32 %r3, %r3, 0xffff; setp.eq.u32 %p1, %r3, 5;", ""},
      {"add.rn.f16x2 %r3, %r2, %r2; shr.u32 %r3, %r3, 16; setp.eq.u32 %p1, %r3, 0;", "branch"},
      {"vote.sync.ballot.b32 %r3, 1, -1; setp.eq.u32 %p1, %r3, 5;", ""},
  };
  for (const Row& row : rows) {
    INFO(row.code);
    CHECK(UsesOfHalf(row.code) == row.uses);
  }
}

TEST_CASE("A comparison that the defined bits decide is defined") {
  // %r2: lower half defined and 0, upper half undefined.
  CHECK(UsesOfHalf("setp.eq.u32 %p1, %r2, 1;") == "");
  CHECK(UsesOfHalf("setp.ne.u32 %p1, %r2, 1;") == "");
  CHECK(UsesOfHalf("setp.eq.u32 %p1, %r2, 0x10000;") == "branch");
  CHECK(UsesOfHalf("setp.lt.u32 %p1, %r2, 0x10;") == "branch");
  CHECK(UsesOfHalf("shr.u32 %r3, %r2, 16; setp.lt.u32 %p1, %r3, 0x10000;") == "");
  CHECK(UsesOfHalf("or.b32 %r3, %r2, 0x80000000; setp.lt.s32 %p1, %r3, 0;") == "");
  CHECK(UsesOfHalf("setp.lt.s32 %p1, %r2, 0;") == "branch");
  CHECK(UsesOfHalf("and.b32 %r3, %r2, 0x7fffffff; setp.ge.s32 %p1, %r3, 0;") == "");
}

TEST_CASE("Predicates: and with false, or with true are defined") {
  CHECK(UsesOfHalf("setp.lt.s32 %p2, %r2, 0; setp.eq.u32 %p3, %r1, 99; and.pred %p1, %p2, %p3;") ==
        "");
  CHECK(UsesOfHalf("setp.lt.s32 %p2, %r2, 0; setp.ne.u32 %p3, %r1, 99; and.pred %p1, %p2, %p3;") ==
        "branch");
  CHECK(UsesOfHalf("setp.lt.s32 %p2, %r2, 0; setp.ne.u32 %p3, %r1, 99; or.pred %p1, %p2, %p3;") ==
        "");
  CHECK(UsesOfHalf("setp.lt.s32 %p2, %r2, 0; not.pred %p1, %p2;") == "branch");
  CHECK(UsesOfHalf("setp.eq.u32 %p3, %r1, 99; setp.lt.and.s32 %p1|%p4, %r2, 0, %p3;") == "");
}

TEST_CASE("A selection takes the chosen side; an undefined choice matters where the sides differ") {
  CHECK(UsesOfHalf("setp.eq.u32 %p2, %r1, 99; selp.u32 %r3, %r2, 5, %p2; "
                   "setp.eq.u32 %p1, %r3, 5;") == "");
  CHECK(UsesOfHalf("setp.ne.u32 %p2, %r1, 99; selp.u32 %r3, %r2, 5, %p2; "
                   "setp.eq.u32 %p1, %r3, 0;") == "branch");
  CHECK(UsesOfHalf("setp.lt.s32 %p2, %r2, 0; selp.u32 %r3, 5, 5, %p2; setp.eq.u32 %p1, %r3, 6;") ==
        "");
  CHECK(UsesOfHalf("setp.lt.s32 %p2, %r2, 0; selp.u32 %r3, 5, 4, %p2; setp.eq.u32 %p1, %r3, 4;") ==
        "branch");
  CHECK(UsesOfHalf("slct.u32.s32 %r3, 5, 5, %r2; setp.eq.u32 %p1, %r3, 6;") == "");
  CHECK(UsesOfHalf("slct.u32.s32 %r3, 4, 5, %r2; setp.eq.u32 %p1, %r3, 4;") == "branch");
}

TEST_CASE("A guarded move is as undefined as its guard") {
  CHECK(UsesOfHalf("setp.lt.s32 %p2, %r2, 0; mov.u32 %r3, 4; @%p2 mov.u32 %r3, 5; "
                   "setp.eq.u32 %p1, %r3, 4;") == "branch");
  CHECK(UsesOfHalf("setp.lt.s32 %p2, %r2, 0; mov.u32 %r3, 4; @%p2 mov.u32 %r3, 5; "
                   "mov.u32 %r3, 6; setp.eq.u32 %p1, %r3, 4;") == "");
}

// ---- the rules against all values that undefined bits can have

// Bits of function(a, b, c) that differ for some values of the undefined bits.
template <class F>
uint64_t Varying(const uint64_t v[3], const uint64_t u[3], F function) {
  const uint64_t fixed = function(v[0], v[1], v[2]);
  uint64_t varying = 0;
  // Every subset of the undefined bits of each operand (a subset of a set: s = (s - u) & u).
  uint64_t s[3] = {};
  do {
    do {
      do {
        varying |= fixed ^ function(v[0] ^ s[0], v[1] ^ s[1], v[2] ^ s[2]);
        s[2] = (s[2] - u[2]) & u[2];
      } while (s[2] != 0);
      s[1] = (s[1] - u[1]) & u[1];
    } while (s[1] != 0);
    s[0] = (s[0] - u[0]) & u[0];
  } while (s[0] != 0);
  return varying & 0xff;
}

TEST_CASE("No bit that can vary is called defined; bit operations and sums are exact") {
  std::mt19937 random(5);
  for (int round = 0; round < 20000; ++round) {
    uint64_t v[3], u[3];
    for (int i = 0; i < 3; ++i) {
      v[i] = random() & 0xff;
      u[i] = random() & random() & random() & 0xff;  // one bit in eight
    }
    const uint64_t none[3] = {u[0], u[1], 0};
    const auto of_two = [&](auto function) {
      return Varying(v, none, [&](uint64_t a, uint64_t b, uint64_t) { return function(a, b); });
    };
    const uint64_t sum = of_two([](uint64_t a, uint64_t b) { return a + b; });
    const uint64_t difference = of_two([](uint64_t a, uint64_t b) { return a - b; });
    const uint64_t product = of_two([](uint64_t a, uint64_t b) { return a * b; });
    CHECK((UndefinedSum(v[0], u[0], v[1], u[1]) & 0xff) == sum);
    CHECK((UndefinedDifference(v[0], u[0], v[1], u[1]) & 0xff) == difference);
    CHECK((product & ~UndefinedProduct(v[0], u[0], v[1], u[1])) == 0);
    CHECK((UndefinedAnd(v[0], u[0], v[1], u[1]) & 0xff) ==
          of_two([](uint64_t a, uint64_t b) { return a & b; }));
    CHECK((UndefinedOr(v[0], u[0], v[1], u[1]) & 0xff) ==
          of_two([](uint64_t a, uint64_t b) { return a | b; }));
    const uint64_t table = random() & 0xff;
    CHECK((UndefinedTable(v, u, table) & 0xff) ==
          Varying(v, u, [&](uint64_t a, uint64_t b, uint64_t c) {
            uint64_t out = 0;
            for (int bit = 0; bit < 8; ++bit) {
              const uint64_t row = (a >> bit & 1) * 4 + (b >> bit & 1) * 2 + (c >> bit & 1);
              out |= (table >> row & 1) << bit;
            }
            return out;
          }));
  }
}

TEST_CASE("Only operations that move or combine bits one by one follow a bit rule") {
  for (const std::string& key : SelectLanes().Keys()) {
    const Flow flow = FlowOf(key);
    const bool is_float =
        key.find(".f") != std::string::npos || key.find(".bf") != std::string::npos;
    if (!is_float) continue;
    INFO(key);
    CHECK((flow == Flow::kAny || flow == Flow::kAnyHalf || flow == Flow::kAnyWord ||
           flow == Flow::kBytesOfHalves || flow == Flow::kHalvesOfBytes ||
           flow == Flow::kBytesOfWords));
  }
}

}  // namespace
}  // namespace ops_debug::emulator
