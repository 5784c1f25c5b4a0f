// Uninitialised reads (emulator/checks/init_check.h): which programs are told, which are not, and
// what is said. Every rule has a twin that is right and stays silent. Single bits:
// init_bits_test.cc.
#include <catch2/catch.hpp>
#include <string>

#include "test/emulator/executor/init_session.h"

namespace ops_debug::emulator {
namespace {

// ---- where an undefined value matters

TEST_CASE("A load of memory that nobody wrote, stored, is told at the load's place") {
  InitSession session;
  const auto& findings = session.Run(R"(
    ld.global.u32 %r2, [%rd5];
    st.global.u32 [%rd3], %r2;)");
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].read == "ld.global.u32 %r2, [%rd5];");
  CHECK(findings[0].used_at == "st.global.u32 [%rd3], %r2;");
  CHECK(findings[0].use == "stored");
  CHECK(findings[0].space == kGlobal);
  CHECK(findings[0].access == 1);
  CHECK(findings[0].address == session.raw());
  CHECK(findings[0].bytes == 4);
  CHECK(findings[0].count == 32);
  CHECK(findings[0].thread == 0);
  CHECK(findings[0].kernel == "kernel");
}

TEST_CASE("Memory that the host has written is no finding, beyond it is one") {
  const char* const body = "ld.global.u32 %r2, [%rd5]; st.global.u32 [%rd3], %r2;";
  InitSession right;
  right.Write(right.raw(), 128);
  CHECK(right.Run(body).empty());
  InitSession wrong;
  wrong.Write(wrong.raw(), 127);
  CHECK(wrong.Run(body).empty());  // one byte of a word: carried
  InitSession more;
  more.Write(more.raw(), 124);
  const auto& findings = more.Run(body);
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].thread == 31);
  CHECK(findings[0].address == more.raw() + 124);
  CHECK(findings[0].count == 1);
}

TEST_CASE("A load whose value is never used is silent") {
  CHECK(Uses("ld.global.u32 %r2, [%rd5];") == "");
  CHECK(Uses("ld.global.u32 %r2, [%rd5]; add.u32 %r3, %r2, 1; mul.lo.u32 %r4, %r3, %r3;") == "");
}

TEST_CASE("A branch, a predicate, an address, a barrier and a warp mask are uses") {
  CHECK(Uses("ld.global.u32 %r2, [%rd5]; setp.eq.u32 %p1, %r2, 7; @%p1 bra L; "
             "st.global.u32 [%rd3], 1; L:") == "branch");
  CHECK(Uses("ld.global.u32 %r2, [%rd5]; setp.eq.u32 %p1, %r2, 7; @%p1 st.global.u32 [%rd3], 1;") ==
        "predicate");
  CHECK(Uses("ld.global.u32 %r2, [%rd5]; and.b32 %r2, %r2, 60; cvt.u64.u32 %rd6, %r2; "
             "add.u64 %rd6, %rd6, %rd4; ld.global.u32 %r3, [%rd6];") == "address");
  CHECK(Uses("ld.global.u32 %r2, [%rd5]; and.b32 %r2, %r2, 1; bar.sync %r2;") == "barrier");
  CHECK(Uses("ld.global.u32 %r2, [%rd5]; or.b32 %r2, %r2, -1; bar.warp.sync %r2;") == "");
  CHECK(Uses("ld.global.u32 %r2, [%rd5]; or.b32 %r2, %r2, 0x7fffffff; bar.warp.sync %r2;", 31) ==
        "warp mask");
}

TEST_CASE("An undefined guard matters although nobody's is true") {
  InitSession session;
  // The memory happens to be zero, so the branch is not taken.
  const auto& findings =
      session.Run("ld.global.u32 %r2, [%rd5]; setp.ne.u32 %p1, %r2, 0; @%p1 bra L; L:");
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].use == "branch");
  CHECK(findings[0].used_at == "@%p1 bra L;");
  CHECK(findings[0].count == 32);
}

TEST_CASE("One fault is told once, with its first use, however often it matters") {
  InitSession session;
  const auto& findings = session.Run(R"(
    ld.global.u32 %r2, [%rd5];
    setp.eq.u32 %p1, %r2, 7;
    @%p1 bra L;
    st.global.u32 [%rd3], %r2;
  L:
    st.global.u32 [%rd3+4], %r2;)");
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].use == "branch");
  CHECK(findings[0].count == 96);
}

TEST_CASE("Results computed from an undefined value are undefined; the origin is the load") {
  InitSession session;
  const auto& findings = session.Run(R"(
    ld.global.f32 %f1, [%rd5];
    ld.global.f32 %f2, [%rd4];
    fma.rn.f32 %f3, %f1, %f2, %f2;
    st.global.f32 [%rd3], %f3;)");
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].read == "ld.global.f32 %f1, [%rd5];");
  CHECK(findings[0].used_at == "st.global.f32 [%rd3], %f3;");
}

// ---- copies of structures

TEST_CASE("Padding that is copied along is silent, and undefined where it goes") {
  // struct { double; int; } whose last four bytes nobody writes, copied as two 8-byte words and as
  // one vector of four.
  InitSession session;
  session.Write(session.raw(), 12);
  session.Write(session.raw() + 16, 12);
  CHECK(session
            .Run(R"(
    ld.global.u64 %rd6, [%rd2]; ld.global.u64 %rd7, [%rd2+8];
    st.global.u64 [%rd1], %rd6; st.global.u64 [%rd1+8], %rd7;
    ld.global.v4.u32 {%r2, %r3, %r4, %r5}, [%rd2+16];
    st.global.v4.u32 [%rd1+16], {%r2, %r3, %r4, %r5};)",
                 1)
            .empty());
  const auto& findings = session.Run(
      "ld.global.u32 %r2, [%rd1+12]; setp.eq.u32 %p1, %r2, 5; "
      "@%p1 bra L; L:",
      1);
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].use == "branch");
  CHECK(findings[0].read == "ld.global.u64 %rd7, [%rd2+8];");  // where it came from
}

TEST_CASE("Padding that is copied byte by byte is silent; an unwritten byte array is not") {
  const char* const body = R"(
    mov.u32 %r2, 0; mov.u64 %rd6, %rd2; mov.u64 %rd7, %rd1;
  L:
    ld.global.u8 %h1, [%rd6]; st.global.u8 [%rd7], %h1;
    add.u64 %rd6, %rd6, 1; add.u64 %rd7, %rd7, 1; add.u32 %r2, %r2, 1;
    setp.lt.u32 %p1, %r2, 16; @%p1 bra L;)";
  InitSession padding;
  padding.Write(padding.raw(), 1);
  padding.Write(padding.raw() + 4, 12);
  CHECK(padding.Run(body, 1).empty());
  InitSession wrong;
  CHECK(wrong.Run(body, 1).size() == 1);
}

TEST_CASE("Padding that takes part in arithmetic is told") {
  InitSession session;
  session.Write(session.raw(), 12);
  CHECK(session
            .Run(R"(
    ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd2];
    add.f32 %f4, %f4, %f3;
    st.global.f32 [%rd1], %f4;)",
                 1)
            .size() == 1);
}

// ---- memory

TEST_CASE("What a kernel writes is defined for the next; what it copies undefined is told once") {
  InitSession session;
  CHECK(session.Run("ld.global.u32 %r2, [%rd4]; st.global.u32 [%rd5], %r2;").empty());
  CHECK(session.Run("ld.global.u32 %r2, [%rd5]; st.global.u32 [%rd3], %r2;").empty());
  CHECK(session.Run("ld.global.u32 %r2, [%rd5+128]; st.global.u32 [%rd5+256], %r2;").size() == 1);
  CHECK(session.Run("ld.global.u32 %r2, [%rd5+256]; st.global.u32 [%rd3], %r2;").size() == 1);
}

TEST_CASE("A copy between device buffers carries the state of its source") {
  const char* const body = "ld.global.u32 %r2, [%rd5+4096]; st.global.u32 [%rd3], %r2;";
  InitSession wrong;
  wrong.Write(wrong.raw() + 4096, 128);
  wrong.checks().Copy(wrong.raw() + 4096, wrong.raw(), 128);
  CHECK(wrong.Run(body).size() == 1);
  InitSession right;
  right.Write(right.raw(), 128);
  right.checks().Copy(right.raw() + 4096, right.raw(), 128);
  CHECK(right.Run(body).empty());
}

TEST_CASE("Memory that is handed out again is unwritten; memory given back is not looked at") {
  const char* const body = "ld.global.u32 %r2, [%rd5]; st.global.u32 [%rd3], %r2;";
  InitSession session;
  session.Write(session.raw(), kRawBytes);
  session.checks().Renew(session.raw() + 64, 64);
  const auto& findings = session.Run(body);
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].count == 16);
  CHECK(findings[0].address == session.raw() + 64);
  InitSession given_back;
  given_back.checks().Forget(given_back.raw(), kRawBytes);
  CHECK(given_back.Run(body).empty());
  InitSession hidden;
  hidden.checks().Hide(hidden.raw(), kRawBytes);
  CHECK(hidden.Run(body).empty());
}

TEST_CASE("Shared memory begins undefined in every block") {
  const std::string fill = R"(
    .shared .align 8 .b8 s[256];
    mov.u32 %r2, s; mad.lo.u32 %r3, %r1, 4, %r2;
    setp.lt.u32 %p1, %r1, 32; )";
  const std::string rest = R"( st.shared.u32 [%r3], %r1; bar.sync 0;
    ld.shared.u32 %r4, [%r3]; st.global.u32 [%rd3], %r4;)";
  InitSession right;
  CHECK(right.Run(fill + rest, 64, {}, 2).empty());
  InitSession wrong;
  const auto& findings = wrong.Run(fill + "@%p1" + rest, 64, {}, 2);
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].space == kShared);
  CHECK(findings[0].thread == 32);
  CHECK(findings[0].address == 128);
  CHECK(findings[0].count == 64);
  CHECK(findings[0].read == "ld.shared.u32 %r4, [%r3];");
}

TEST_CASE("What was undefined when it was put in shared memory keeps its origin") {
  InitSession session;
  const auto& findings = session.Run(R"(
    .shared .align 8 .b8 s[256];
    mov.u32 %r2, s; mad.lo.u32 %r3, %r1, 4, %r2;
    ld.global.u32 %r4, [%rd5];
    st.shared.u32 [%r3], %r4; bar.warp.sync -1;
    ld.shared.u32 %r5, [%r3]; st.global.u32 [%rd3], %r5;)");
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].read == "ld.global.u32 %r4, [%rd5];");
  CHECK(findings[0].space == kGlobal);
}

TEST_CASE("Local memory begins undefined at every call") {
  const std::string function = R"(
    .func (.param .u32 result) f(.param .u32 write)
    {
    .reg .b32 %r<8>; .reg .pred %p<4>; .local .align 4 .b8 list[16];
    ld.param.u32 %r1, [write];
    setp.eq.u32 %p1, %r1, 0;
    @%p1 bra L;
    st.local.u32 [list+4], 7;
  L:
    ld.local.u32 %r2, [list+4];
    st.param.u32 [result], %r2;
    ret;
    })";
  const auto call = [](const char* write) {
    return std::string("{ .param .u32 a; .param .u32 b; st.param.u32 [a], ") + write +
           "; call (b), f, (a); ld.param.u32 %r2, [b]; } st.global.u32 [%rd3], %r2;";
  };
  CHECK(Uses(call("1"), 32, function) == "");
  CHECK(Uses(call("1") + call("0"), 32, function) == "stored");
  InitSession session;
  const auto& findings = session.Run(call("0"), 32, function);
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].space == kLocal);
  CHECK(findings[0].read == "ld.local.u32 %r2, [list+4];");
}

TEST_CASE("Arguments and results carry what is undefined") {
  const std::string function = R"(
    .func (.param .u32 result) id(.param .u32 x)
    { .reg .b32 %r<8>; ld.param.u32 %r1, [x]; st.param.u32 [result], %r1; ret; })";
  const auto call = [](const char* base) {
    return "ld.global.u32 %r3, [" + std::string(base) +
           "]; { .param .u32 a; .param .u32 b; st.param.u32 [a], %r3; call (b), id, (a); "
           "ld.param.u32 %r2, [b]; } setp.eq.u32 %p1, %r2, 1; @%p1 bra M; M:";
  };
  CHECK(Uses(call("%rd5"), 32, function) == "branch");
  CHECK(Uses(call("%rd4"), 32, function) == "");
}

TEST_CASE("Variables of a module count as written") {
  CHECK(Uses("ld.global.u32 %r2, [v]; st.global.u32 [%rd3], %r2;", 32, ".global .u32 v;") == "");
  CHECK(Uses("mov.u64 %rd6, v; ld.global.u32 %r2, [%rd6]; st.global.u32 [%rd3], %r2;", 32,
             ".global .u32 v;") == "");
}

TEST_CASE("Counting in memory that nobody has set to zero") {
  CHECK(Uses("red.global.add.u32 [%rd2], 1;") == "stored");
  CHECK(Uses("red.global.add.u32 [%rd1], 1;") == "");
  CHECK(Uses("atom.global.add.u32 %r2, [%rd1], 1; st.global.u32 [%rd3], %r2;") == "");
  CHECK(Uses("atom.global.cas.b32 %r2, [%rd2], 0, 1;") == "compared");
  CHECK(Uses("atom.global.exch.b32 %r2, [%rd2], 1;") == "");
  CHECK(Uses("atom.global.exch.b32 %r2, [%rd2], 1; st.global.u32 [%rd3], %r2;", 1) == "stored");
  InitSession session;
  const auto& findings = session.Run("red.global.add.u32 [%rd5], 1;");
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].access == 3);
  CHECK(findings[0].used_at.empty());
}

TEST_CASE("An undefined operand that an atomic adds is stored") {
  CHECK(Uses("ld.global.u32 %r2, [%rd5]; red.global.add.u32 [%rd1], %r2;") == "stored");
  CHECK(Uses("ld.global.u32 %r2, [%rd4]; red.global.add.u32 [%rd1], %r2;") == "");
}

// ---- between lanes

TEST_CASE("A shuffle gives a lane what the source lane has") {
  // Lanes 16 and up have an undefined value.
  const std::string head = R"(
    setp.lt.u32 %p2, %r1, 16;
    ld.global.u32 %r2, [%rd5]; selp.u32 %r2, 5, %r2, %p2;)";
  CHECK(Uses(head + "shfl.sync.idx.b32 %r3, %r2, 3, 31, -1; st.global.u32 [%rd3], %r3;") == "");
  CHECK(Uses(head + "shfl.sync.idx.b32 %r3, %r2, 17, 31, -1; st.global.u32 [%rd3], %r3;") ==
        "stored");
  CHECK(Uses(head + "shfl.sync.down.b32 %r3, %r2, 8, 31, -1; setp.lt.u32 %p3, %r1, 8; "
                    "@%p3 st.global.u32 [%rd3], %r3;") == "");
  CHECK(Uses(head + "shfl.sync.down.b32 %r3, %r2, 8, 31, -1; setp.lt.u32 %p3, %r1, 9; "
                    "@%p3 st.global.u32 [%rd3], %r3;") == "stored");
}

TEST_CASE("Votes: a ballot is undefined in single bits, any and all as far as they are open") {
  const std::string head = R"(
    setp.lt.u32 %p2, %r1, 16;
    ld.global.u32 %r2, [%rd5]; setp.eq.u32 %p3, %r2, 0;
    @%p2 setp.eq.u32 %p3, %r1, %r1;)";
  CHECK(Uses(head + "vote.sync.ballot.b32 %r3, %p3, -1; and.b32 %r3, %r3, 0xffff; "
                    "st.global.u32 [%rd3], %r3;") == "");
  CHECK(Uses(head + "vote.sync.ballot.b32 %r3, %p3, -1; popc.b32 %r3, %r3; "
                    "st.global.u32 [%rd3], %r3;") == "stored");
  CHECK(Uses(head + "vote.sync.any.pred %p4, %p3, -1; @%p4 bra L; L:") == "");
  CHECK(Uses(head + "vote.sync.all.pred %p4, %p3, -1; @%p4 bra L; L:") == "branch");
}

TEST_CASE("A reduction over the warp takes what every lane has") {
  const std::string head =
      "ld.global.u32 %r2, [%rd5]; setp.lt.u32 %p2, %r1, 31; "
      "selp.u32 %r2, 5, %r2, %p2;";
  CHECK(Uses(head + "redux.sync.add.u32 %r3, %r2, -1; st.global.u32 [%rd3], %r3;") == "stored");
  CHECK(Uses(head + "redux.sync.and.b32 %r3, %r2, -1; and.b32 %r3, %r3, 2; "
                    "st.global.u32 [%rd3], %r3;") == "");
  CHECK(Uses(head + "redux.sync.or.b32 %r3, %r2, -1; and.b32 %r3, %r3, 5; "
                    "st.global.u32 [%rd3], %r3;") == "");
}

// ---- matrices and asynchronous copies

// Rows of an 8x8 tile of halves in shared memory; only the first `rows` are written.
std::string Tile(const char* rows) {
  return std::string(R"(
    .shared .align 128 .b8 s[512];
    mov.u32 %r2, s; and.b32 %r3, %r1, 7; mad.lo.u32 %r3, %r3, 16, %r2;
    mov.u32 %r9, 0; mov.f32 %f9, 0f00000000;
    setp.lt.u32 %p1, %r1, )") +
         rows + R"(;
    @%p1 st.shared.v4.u32 [%r3], {%r1, %r1, %r1, %r1};
    bar.warp.sync -1;
    ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r4}, [%r3];)";
}

TEST_CASE("ldmatrix gives each lane what its row has") {
  // Lane l holds elements of row l / 4.
  CHECK(Uses(Tile("8") + "st.global.u32 [%rd3], %r4;") == "");
  CHECK(Uses(Tile("6") + "setp.lt.u32 %p2, %r1, 24; @%p2 st.global.u32 [%rd3], %r4;") == "");
  CHECK(Uses(Tile("6") + "setp.lt.u32 %p2, %r1, 25; @%p2 st.global.u32 [%rd3], %r4;") == "stored");
  CHECK(Uses(Tile("6") + "movmatrix.sync.aligned.m8n8.trans.b16 %r5, %r4; and.b32 %r6, %r1, 3; "
                         "setp.lt.u32 %p2, %r6, 3; @%p2 st.global.u32 [%rd3], %r5;") == "");
  CHECK(Uses(Tile("6") + "movmatrix.sync.aligned.m8n8.trans.b16 %r5, %r4; "
                         "st.global.u32 [%rd3], %r5;") == "stored");
  InitSession session;
  const auto& findings = session.Run(Tile("6") + "st.global.u32 [%rd3], %r4;");
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].read.starts_with("ldmatrix"));
  CHECK(findings[0].space == kShared);
  CHECK(findings[0].bytes == 16);
}

TEST_CASE("An element of a product is undefined by its row of a and its column of b") {
  // The tile is the upper left part of a, or all of b's upper half; lane l has row l / 4 of d in
  // the first two registers, columns l % 4 * 2 and the next.
  const std::string product = R"(
    mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1, %f2, %f3, %f4}, {%r4, %r9, %r9, %r9},
      {%r9, %r9}, {%f9, %f9, %f9, %f9};)";
  const std::string of_b = R"(
    mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1, %f2, %f3, %f4}, {%r9, %r9, %r9, %r9},
      {%r4, %r9}, {%f9, %f9, %f9, %f9};)";
  CHECK(Uses(Tile("8") + product + "st.global.f32 [%rd3], %f1;") == "");
  CHECK(Uses(Tile("6") + product +
             "setp.lt.u32 %p2, %r1, 24; @%p2 st.global.f32 [%rd3], %f1; "
             "st.global.f32 [%rd3+4], %f3;") == "");
  CHECK(Uses(Tile("6") + product + "st.global.f32 [%rd3], %f1;") == "stored");
  CHECK(Uses(Tile("6") + of_b +
             "and.b32 %r6, %r1, 3; setp.lt.u32 %p2, %r6, 3; "
             "@%p2 st.global.f32 [%rd3], %f1;") == "");
  CHECK(Uses(Tile("6") + of_b + "st.global.f32 [%rd3], %f3;") == "stored");
}

TEST_CASE("In an integer product a zero hides what it is multiplied with") {
  const auto product = [](const char* a) {
    return Tile("0") + "mov.u32 %r10, " + a + R"(;
    mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%r5, %r6}, {%r10}, {%r4}, {%r9, %r9};
    st.global.u32 [%rd3], %r5;)";
  };
  CHECK(Uses(product("0")) == "");
  CHECK(Uses(product("1")) == "stored");
}

TEST_CASE("cp.async carries the state of its source and defines what it fills with zeros") {
  const auto copy = [](const char* source, const char* bytes) {
    return std::string(
               ".shared .align 16 .b8 s[512]; mov.u32 %r2, s; mad.lo.u32 %r3, %r1, 16, "
               "%r2; mad.wide.u32 %rd6, %r1, 16, ") +
           source + "; mov.u32 %r5, " + bytes +
           "; cp.async.ca.shared.global [%r3], [%rd6], 16, %r5; cp.async.wait_all; "
           "ld.shared.u32 %r4, [%r3+8]; st.global.u32 [%rd3], %r4;";
  };
  CHECK(Uses(copy("%rd4", "16")) == "");
  CHECK(Uses(copy("%rd2", "16")) == "stored");
  CHECK(Uses(copy("%rd2", "8")) == "");
  CHECK(Uses(copy("%rd2", "0")) == "");
}

TEST_CASE("Bulk copies write: what came from defined memory is defined") {
  const auto copy = [](const char* source) {
    return std::string(R"(
    .shared .align 128 .b8 s[512];
    .shared .align 8 .b64 m;
    mov.u32 %r2, s; mov.u32 %r3, m;
    setp.ne.u32 %p1, %r1, 0; @%p1 bra W;
    mbarrier.init.shared.b64 [%r3], 1;
    fence.proxy.async;
    mbarrier.arrive.expect_tx.shared.b64 %rd10, [%r3], 128;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [)") +
           source + R"(], 128, [%r3];
  W: bar.warp.sync -1;
  P: mbarrier.try_wait.parity.shared.b64 %p2, [%r3], 0; @!%p2 bra P;
    mad.lo.u32 %r4, %r1, 4, %r2; ld.shared.u32 %r5, [%r4]; st.global.u32 [%rd3], %r5;)";
  };
  CHECK(Uses(copy("%rd4")) == "");
  CHECK(Uses(copy("%rd2")) == "stored");
}

TEST_CASE("A bulk store defines global memory (the async proxy writes too)") {
  InitSession session;
  CHECK(session
            .Run(R"(
    .shared .align 128 .b8 s[512];
    mov.u32 %r2, s; mad.lo.u32 %r3, %r1, 4, %r2; st.shared.u32 [%r3], %r1;
    bar.warp.sync -1; fence.proxy.async;
    setp.ne.u32 %p1, %r1, 0; @%p1 bra W;
    cp.async.bulk.global.shared::cta.bulk_group [%rd2], [%r2], 128;
    cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
  W:)")
            .empty());
  CHECK(session.Run("ld.global.u32 %r2, [%rd5]; st.global.u32 [%rd3], %r2;").empty());
  CHECK(session.Run("ld.global.u32 %r2, [%rd5+128]; st.global.u32 [%rd3], %r2;").size() == 1);
}

TEST_CASE("Memory from the device's malloc begins undefined, its address is defined") {
  const std::string preamble = R"(
    .extern .func (.param .b64 result) malloc(.param .b64 size);
    .extern .func free(.param .b64 pointer);)";
  const auto use = [](const char* store) {
    return std::string(R"(
    { .param .b64 a; .param .b64 b; st.param.b64 [a], 64; call (b), malloc, (a);
      ld.param.b64 %rd6, [b]; })") +
           store + R"(
    ld.u32 %r2, [%rd6]; st.global.u32 [%rd3], %r2;
    { .param .b64 c; st.param.b64 [c], %rd6; call free, (c); })";
  };
  CHECK(Uses(use("st.u32 [%rd6], 1;"), 32, preamble) == "");
  CHECK(Uses(use(""), 32, preamble) == "stored");
}

TEST_CASE("What printf prints is used") {
  const std::string preamble = R"(
    .extern .func (.param .b32 result) vprintf(.param .b64 format, .param .b64 arguments);
    .global .align 1 .b8 format[4] = {37, 100, 10, 0};)";
  const auto print = [](const char* value) {
    return std::string(R"(
    .local .align 8 .b8 list[8]; .reg .b64 %q<4>;
    mov.u64 %q1, list; cvta.local.u64 %q1, %q1; mov.u64 %q2, format; cvta.global.u64 %q2, %q2;)") +
           value + R"( st.local.u32 [list], %r2;
    { .param .b64 a; .param .b64 b; .param .b32 c; st.param.b64 [a], %q2; st.param.b64 [b], %q1;
      call (c), vprintf, (a, b); })";
  };
  CHECK(Uses(print("mov.u32 %r2, 5;"), 1, preamble) == "");
  CHECK(Uses(print("ld.global.u32 %r2, [%rd5];"), 1, preamble) == "printed");
}

TEST_CASE("alloca: what the thread's stack gives is undefined") {
  const auto use = [](const char* store) {
    return std::string("mov.u64 %rd6, 16; alloca.u64 %rd7, %rd6; ") + store +
           " ld.local.u32 %r2, [%rd7]; st.global.u32 [%rd3], %r2;";
  };
  CHECK(Uses(use("st.local.u32 [%rd7], 1;")) == "");
  CHECK(Uses(use("")) == "stored");
}

}  // namespace
}  // namespace ops_debug::emulator
