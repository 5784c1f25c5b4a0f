// Data races inside one launch: what orders two accesses, what does not, and what the report says
// is missing. Every wrong program has its right twin.
#include <catch2/catch.hpp>

#include "test/emulator/checks/checked_run.h"

namespace ops_debug::emulator {
namespace {

using Catch::Contains;
using Catch::StartsWith;

// proto MissingOrder, as CheckedRun prints it.
const std::string kBlockBarrier = "missing 1", kWarpBarrier = "missing 2",
                  kGridBarrier = "missing 4", kAtomic = "missing 5", kAcquire = "missing 6",
                  kRelease = "missing 7", kScope = "missing 8";

RunOptions Threads(uint32_t threads) { return {.block = {threads, 1, 1}}; }
RunOptions Blocks(uint32_t blocks, uint32_t threads = 1) {
  return {.grid = {blocks, 1, 1}, .block = {threads, 1, 1}, .workers = 1, .out_words = 4096};
}

// %r10: shared address of this thread's word, %r11: that of the neighbour (xor 32),
// %r12: that of the neighbour in the warp (xor 1). %r13: tid / 32.
const std::string kWords = R"(
  .shared .align 128 .b32 words[1024];
  mov.u32 %r20, words; shl.b32 %r21, %r1, 2; add.u32 %r10, %r20, %r21;
  xor.b32 %r22, %r21, 128; add.u32 %r11, %r20, %r22; xor.b32 %r23, %r21, 4; add.u32 %r12, %r20, %r23;
  shr.u32 %r13, %r1, 5;
)";

// ---- barriers of the block

TEST_CASE("a barrier between write and read of two warps orders them") {
  CHECK(Races(kWords + "st.shared.u32 [%r10], %r1; bar.sync 0; ld.shared.u32 %r5, [%r11];",
              Threads(64)) == "silent");
}

TEST_CASE("without a barrier two warps race") {
  const std::string races =
      Races(kWords + "st.shared.u32 [%r10], %r1; ld.shared.u32 %r5, [%r11];", Threads(64));
  CHECK_THAT(races, Contains("at `st.shared.u32 [%r10], %r1;`") && Contains(kBlockBarrier) &&
                        StartsWith("1: "));
}

TEST_CASE("the next round's write needs a barrier behind the reads") {
  const std::string loop = R"(mov.u32 %r30, 0;
    LOOP: add.u32 %r31, %r1, %r30; st.shared.u32 [%r10], %r31; bar.sync 0; ld.shared.u32 %r5, [%r11]; )";
  const std::string end = "add.u32 %r30, %r30, 1; setp.lt.u32 %p1, %r30, 3; @%p1 bra LOOP;";
  CHECK_THAT(Races(kWords + loop + end, Threads(64)),
             Contains("load at `ld.shared.u32 %r5, [%r11];`") && Contains(kBlockBarrier));
  CHECK(Races(kWords + loop + "bar.sync 0;" + end, Threads(64)) == "silent");
}

TEST_CASE("named barriers order those who take part") {
  // Warps 0 and 1 meet at barrier 1, warps 2 and 3 at barrier 2.
  const std::string body = kWords + R"(st.shared.u32 [%r10], %r1; shr.u32 %r14, %r1, 6;
    add.u32 %r14, %r14, 1; bar.sync %r14, 64; )";
  CHECK(Races(body + "ld.shared.u32 %r5, [%r11];", Threads(128)) == "silent");
  const std::string others = "xor.b32 %r24, %r21, 256; add.u32 %r24, %r20, %r24; ";
  CHECK_THAT(Races(body + others + "ld.shared.u32 %r5, [%r24];", Threads(128)),
             Contains(kBlockBarrier));
}

TEST_CASE("bar.arrive releases and does not acquire") {
  // Warp 0 produces and arrives; warp 1 syncs.
  const std::string start = kWords + "setp.eq.u32 %p1, %r13, 0; @!%p1 bra CONSUME; ";
  CHECK(Races(start + R"(st.shared.u32 [%r10], %r1; bar.arrive 1, 64; bra DONE;
    CONSUME: bar.sync 1, 64; ld.shared.u32 %r5, [%r11]; DONE:)",
              Threads(64)) == "silent");
  CHECK_THAT(Races(start + R"(bar.arrive 1, 64; ld.shared.u32 %r5, [%r11]; bra DONE;
    CONSUME: st.shared.u32 [%r10], %r1; bar.sync 1, 64; DONE:)",
                   Threads(64)),
             Contains(kBlockBarrier));
}

TEST_CASE("bar.red orders like bar.sync") {
  CHECK(Races(kWords + R"(st.shared.u32 [%r10], %r1; setp.eq.u32 %p1, %r1, 0;
    bar.red.popc.u32 %r5, 0, %p1; ld.shared.u32 %r5, [%r11];)",
              Threads(64)) == "silent");
}

TEST_CASE("threads that have left count as arrived") {
  CHECK(Races(kWords + R"(st.shared.u32 [%r10], %r1; setp.ge.u32 %p1, %r1, 32; @%p1 exit;
    bar.sync 0; ld.shared.u32 %r5, [%r11];)",
              Threads(64)) == "silent");
}

// ---- warps

TEST_CASE("lanes of a warp need a warp barrier") {
  const std::string races =
      Races(kWords + "st.shared.u32 [%r10], %r1; ld.shared.u32 %r5, [%r12];", Threads(32));
  CHECK_THAT(races, StartsWith("3: store at") && Contains(kWarpBarrier));
  CHECK(Races(kWords + "st.shared.u32 [%r10], %r1; bar.warp.sync -1; ld.shared.u32 %r5, [%r12];",
              Threads(32)) == "silent");
}

TEST_CASE("where lanes and warps race on the same lines, the barrier of the block is missing") {
  // Each thread reads the word of thread (tid + 33) % 64: of its own warp for lane 31 only.
  CHECK_THAT(
      Races(kWords + R"(st.shared.u32 [%r10], %r1; add.u32 %r14, %r1, 33; and.b32 %r14, %r14, 63;
    shl.b32 %r14, %r14, 2; add.u32 %r14, %r20, %r14; ld.shared.u32 %r5, [%r14];)",
            Threads(64)),
      Contains(kBlockBarrier) && !Contains(kWarpBarrier));
}

TEST_CASE("a shuffle or a vote orders no memory") {
  CHECK_THAT(Races(kWords + R"(st.shared.u32 [%r10], %r1;
    shfl.sync.idx.b32 %r6, %r1, 0, 31, -1; vote.sync.all.pred %p2, %p1, -1;
    ld.shared.u32 %r5, [%r12];)",
                   Threads(32)),
             StartsWith("3: store at") && Contains(kWarpBarrier));
}

TEST_CASE("a warp barrier orders only the lanes that it names") {
  const std::string body = kWords + R"(and.b32 %r14, %r1, 2; setp.eq.u32 %p1, %r14, 0;
    selp.b32 %r15, 0x33333333, 0xcccccccc, %p1; st.shared.u32 [%r10], %r1; bar.warp.sync %r15; )";
  CHECK(Races(body + "ld.shared.u32 %r5, [%r12];", Threads(32)) == "silent");
  CHECK_THAT(Races(body + "xor.b32 %r16, %r21, 8; add.u32 %r16, %r20, %r16; "
                          "ld.shared.u32 %r5, [%r16];",
                   Threads(32)),
             StartsWith("3: "));
}

TEST_CASE("a warp barrier does not order two warps") {
  CHECK_THAT(Races(kWords + "st.shared.u32 [%r10], %r1; bar.warp.sync -1; "
                            "ld.shared.u32 %r5, [%r11];",
                   Threads(64)),
             StartsWith("1: "));
}

// ---- bytes and values

TEST_CASE("neighbouring bytes of a word are no race") {
  CHECK(Races(".shared .align 4 .b8 bytes[64]; mov.u32 %r10, bytes; add.u32 %r10, %r10, %r1; "
              "st.shared.u8 [%r10], %r1; st.shared.u8 [%r10], %r1;",
              Threads(64)) == "silent");
}

TEST_CASE("a wide load overlaps one byte of another thread") {
  CHECK_THAT(Races(".shared .align 4 .b8 bytes[64]; mov.u32 %r10, bytes; add.u32 %r11, %r10, %r1; "
                   "setp.eq.u32 %p1, %r1, 32; @%p1 st.shared.u8 [%r10+3], %r1; "
                   "setp.eq.u32 %p2, %r1, 0; @%p2 ld.shared.u32 %r5, [%r10];",
                   Threads(64)),
             StartsWith("1: "));
}

TEST_CASE("writes of the same value are benign") {
  const CheckedRun run =
      RunChecked(kWords + "mov.u32 %r5, 7; st.shared.u32 [words], %r5;", Threads(64));
  REQUIRE(run.races.size() == 1);
  CHECK_THAT(run.races[0], Contains("same value"));
}

TEST_CASE("a zero over memory that nobody has written is still something new to a reader") {
  const CheckedRun run = RunChecked(kWords + R"(mov.u32 %r5, 0; setp.eq.u32 %p1, %r1, 0;
    setp.eq.u32 %p2, %r1, 32; @%p1 st.shared.u32 [words], %r5; @%p2 ld.shared.u32 %r6, [words];)",
                                    Threads(64));
  REQUIRE(run.races.size() == 1);
  CHECK_THAT(run.races[0], !Contains("same value"));
}

TEST_CASE("different values written by one instruction") {
  const CheckedRun run = RunChecked(kWords + "st.shared.u32 [words], %r1;", Threads(64));
  REQUIRE(run.races.size() == 1);
  CHECK_THAT(run.races[0], StartsWith("1: store at") && !Contains("same value"));
}

// ---- atomics

TEST_CASE("atomic and atomic is no race, atomic and plain is one") {
  const std::string body = kWords + "red.shared.add.u32 [words], 1; ";
  CHECK(Races(body, Threads(64)) == "silent");
  CHECK_THAT(Races(body + "ld.shared.u32 %r5, [words];", Threads(64)),
             Contains("atomic at `red.shared.add.u32 [words], 1;`"));
  CHECK(Races(body + "bar.sync 0; ld.shared.u32 %r5, [words];", Threads(64)) == "silent");
}

TEST_CASE("an initial plain store must come before the atomics") {
  const std::string first = kWords + "setp.eq.u32 %p1, %r1, 0; @%p1 st.shared.u32 [words], 0; ";
  CHECK_THAT(Races(first + "red.shared.add.u32 [words], 1;", Threads(64)), Contains("missing"));
  CHECK(Races(first + "bar.sync 0; red.shared.add.u32 [words], 1;", Threads(64)) == "silent");
}

TEST_CASE("an update that is no atomic one") {
  const std::string races = Races(
      "ld.global.u32 %r5, [%rd1]; add.u32 %r5, %r5, 1; st.global.u32 [%rd1], %r5;", Blocks(8));
  CHECK_THAT(races, Contains("5: ") && Contains(kAtomic));
  CHECK(Races("red.global.add.u32 [%rd1], 1;", Blocks(8)) == "silent");
}

TEST_CASE("atomics whose scope is too narrow") {
  CHECK_THAT(Races("red.relaxed.cta.global.add.u32 [%rd1], 1;", Blocks(4)),
             StartsWith("5: ") && Contains(kScope));
  CHECK(Races("red.relaxed.gpu.global.add.u32 [%rd1], 1;", Blocks(4)) == "silent");
}

// ---- flags between blocks. Block 0 writes [out+64] and then the flag [out]; block 1 waits.

std::string Flag(const std::string& produce, const std::string& consume) {
  return R"(mov.u32 %r2, %ctaid.x; setp.ne.u32 %p1, %r2, 0; mov.u32 %r3, 1; @%p1 bra CONSUME;
    st.global.u32 [%rd1+64], %r3; )" +
         produce + " bra DONE; CONSUME: " + consume + " ld.global.u32 %r6, [%rd1+64]; DONE:";
}
const std::string kWaitRelaxed =
    "ld.relaxed.gpu.global.u32 %r5, [%rd1]; setp.eq.u32 %p2, %r5, 0; @%p2 bra CONSUME; ";

TEST_CASE("release and acquire") {
  CHECK(Races(Flag("st.release.gpu.global.u32 [%rd1], %r3;",
                   "ld.acquire.gpu.global.u32 %r5, [%rd1]; setp.eq.u32 %p2, %r5, 0; "
                   "@%p2 bra CONSUME;"),
              Blocks(2)) == "silent");
}

TEST_CASE("fences and relaxed accesses") {
  CHECK(
      Races(Flag("membar.gl; st.relaxed.gpu.global.u32 [%rd1], %r3;", kWaitRelaxed + "membar.gl;"),
            Blocks(2)) == "silent");
}

TEST_CASE("a volatile flag with fences") {
  CHECK(Races(Flag("membar.gl; st.volatile.global.u32 [%rd1], %r3;",
                   "ld.volatile.global.u32 %r5, [%rd1]; setp.eq.u32 %p2, %r5, 0; "
                   "@%p2 bra CONSUME; membar.gl;"),
              Blocks(2)) == "silent");
}

TEST_CASE("a flag that is not acquired") {
  CHECK_THAT(
      Races(Flag("membar.gl; st.relaxed.gpu.global.u32 [%rd1], %r3;", kWaitRelaxed), Blocks(2)),
      StartsWith("2: store at") && Contains(kAcquire));
}

TEST_CASE("a flag that is not released") {
  CHECK_THAT(
      Races(Flag("st.relaxed.gpu.global.u32 [%rd1], %r3;", kWaitRelaxed + "membar.gl;"), Blocks(2)),
      StartsWith("2: store at") && Contains(kRelease));
}

TEST_CASE("a fence before the data releases nothing") {
  CHECK_THAT(Races(R"(mov.u32 %r2, %ctaid.x; setp.ne.u32 %p1, %r2, 0; mov.u32 %r3, 1;
    @%p1 bra CONSUME; membar.gl; st.global.u32 [%rd1+64], %r3;
    st.relaxed.gpu.global.u32 [%rd1], %r3; bra DONE; CONSUME: )" +
                       kWaitRelaxed + "membar.gl; ld.global.u32 %r6, [%rd1+64]; DONE:",
                   Blocks(2)),
             Contains(kRelease));
}

TEST_CASE("scopes that do not hold both blocks") {
  CHECK_THAT(
      Races(Flag("membar.cta; st.relaxed.gpu.global.u32 [%rd1], %r3;", kWaitRelaxed + "membar.gl;"),
            Blocks(2)),
      Contains(kScope));
  CHECK_THAT(
      Races(Flag("membar.gl; st.relaxed.gpu.global.u32 [%rd1], %r3;", kWaitRelaxed + "membar.cta;"),
            Blocks(2)),
      Contains(kScope));
  CHECK_THAT(
      Races(Flag("st.release.cta.global.u32 [%rd1], %r3;", kWaitRelaxed + "membar.gl;"), Blocks(2)),
      Contains(kScope));
}

TEST_CASE("block scope is enough within a block") {
  CHECK(Races(kWords + R"(.shared .b32 flag; setp.ne.u32 %p1, %r13, 0; mov.u32 %r3, 1;
    setp.ne.u32 %p3, %r1, 0; @%p1 bra CONSUME; @%p3 bra DONE;
    st.shared.u32 [words], %r3; membar.cta; st.volatile.shared.u32 [flag], %r3; bra DONE;
    CONSUME: ld.volatile.shared.u32 %r5, [flag]; setp.eq.u32 %p2, %r5, 0; @%p2 bra CONSUME;
    membar.cta; ld.shared.u32 %r6, [words]; DONE:)",
              Threads(64)) == "silent");
}

TEST_CASE("a plain flag is itself a race") {
  CHECK_THAT(
      Races(Flag("membar.gl; st.global.u32 [%rd1], %r3;", kWaitRelaxed + "membar.gl;"), Blocks(2)),
      Contains(kRelease));
}

TEST_CASE("a block's writes pass through its barrier to the thread that sets the flag") {
  const std::string body = R"(mov.u32 %r2, %ctaid.x; setp.ne.u32 %p1, %r2, 0; mov.u32 %r3, 1;
    setp.ne.u32 %p3, %r1, 0; add.u64 %rd4, %rd3, 64;
    @%p1 bra CONSUME; st.global.u32 [%rd4], %r3; bar.sync 0; @%p3 bra DONE;
    membar.gl; st.relaxed.gpu.global.u32 [%rd1], %r3; bra DONE;
    CONSUME: @%p3 bra READY; WAIT: ld.relaxed.gpu.global.u32 %r5, [%rd1]; setp.eq.u32 %p2, %r5, 0;
    @%p2 bra WAIT; membar.gl; READY: )";
  CHECK(Races(body + "bar.sync 0; ld.global.u32 %r6, [%rd4]; DONE:", Blocks(2, 64)) == "silent");
  CHECK_THAT(Races(body + "ld.global.u32 %r6, [%rd4]; DONE:", Blocks(2, 64)),
             Contains(kGridBarrier));
}

TEST_CASE("all threads fence, a barrier, one sets the flag: hardware keeps that in order") {
  CHECK(Races(R"(mov.u32 %r2, %ctaid.x; setp.ne.u32 %p1, %r2, 0; mov.u32 %r3, 1;
    setp.ne.u32 %p3, %r1, 0; add.u64 %rd4, %rd3, 64;
    @%p1 bra CONSUME; st.global.u32 [%rd4], %r3; membar.gl; bar.sync 0; @%p3 bra DONE;
    st.relaxed.gpu.global.u32 [%rd1], %r3; bra DONE;
    CONSUME: @%p3 bra READY; WAIT: ld.relaxed.gpu.global.u32 %r5, [%rd1]; setp.eq.u32 %p2, %r5, 0;
    @%p2 bra WAIT; READY: bar.sync 0; membar.gl; ld.global.u32 %r6, [%rd4]; DONE:)",
              Blocks(2, 64)) == "silent");
}

// ---- locks

std::string Lock(const std::string& behind_lock, const std::string& before_unlock) {
  return "LOCK: atom.global.cas.b32 %r5, [%rd1], 0, 1; setp.ne.u32 %p1, %r5, 0; @%p1 bra LOCK; " +
         behind_lock +
         " ld.global.u32 %r6, [%rd1+64]; add.u32 %r6, %r6, 1; st.global.u32 [%rd1+64], %r6; " +
         before_unlock + " atom.global.exch.b32 %r7, [%rd1], 0;";
}

TEST_CASE("a lock with fences on both sides") {
  CHECK(Races(Lock("membar.gl;", "membar.gl;"), Blocks(4)) == "silent");
}
TEST_CASE("a lock without the fence behind it") {
  CHECK_THAT(Races(Lock("", "membar.gl;"), Blocks(4)), !Contains("silent"));
}
TEST_CASE("a lock without the fence before its release") {
  CHECK_THAT(Races(Lock("membar.gl;", ""), Blocks(4)), !Contains("silent"));
}
TEST_CASE("a lock by acquire and release operations") {
  CHECK(Races(R"(LOCK: atom.acquire.gpu.global.cas.b32 %r5, [%rd1], 0, 1; setp.ne.u32 %p1, %r5, 0;
    @%p1 bra LOCK; ld.global.u32 %r6, [%rd1+64]; add.u32 %r6, %r6, 1; st.global.u32 [%rd1+64], %r6;
    st.release.gpu.global.u32 [%rd1], 0;)",
              Blocks(4)) == "silent");
}

// ---- last block, grid barrier, look-back

std::string LastBlock(const std::string& release, const std::string& acquire) {
  return R"(mov.u32 %r2, %ctaid.x; mul.wide.u32 %rd5, %r2, 4; add.u64 %rd5, %rd5, %rd1;
    add.u32 %r3, %r2, 1; st.global.u32 [%rd5+64], %r3; )" +
         release +
         R"( atom.global.add.u32 %r4, [%rd1], 1; setp.ne.u32 %p1, %r4, 7; @%p1 bra DONE; )" +
         acquire + R"( ld.global.u32 %r6, [%rd1+64]; ld.global.u32 %r7, [%rd1+72]; DONE:)";
}

TEST_CASE("the last block reads what the others have left") {
  CHECK(Races(LastBlock("membar.gl;", "membar.gl;"), Blocks(8)) == "silent");
  CHECK_THAT(Races(LastBlock("membar.gl;", ""), Blocks(8)),
             StartsWith("2: store at") && Contains(kAcquire));
  CHECK_THAT(Races(LastBlock("", "membar.gl;"), Blocks(8)), Contains(kRelease));
}

TEST_CASE("a barrier of the grid, used twice") {
  const std::string barrier = R"(membar.gl; atom.global.add.u32 %r4, [%rd1], 1;
    WAITn: ld.volatile.global.u32 %r5, [%rd1]; setp.lt.u32 %p2, %r5, COUNT; @%p2 bra WAITn; membar.gl; )";
  const auto round = [&](const std::string& n, const std::string& count) {
    std::string text = barrier;
    for (size_t at; (at = text.find("WAITn")) != std::string::npos;) text.replace(at, 5, "W" + n);
    text.replace(text.find("COUNT"), 5, count);
    return text;
  };
  const std::string start =
      R"(mov.u32 %r2, %ctaid.x; mul.wide.u32 %rd5, %r2, 4; add.u64 %rd5, %rd5, %rd1;
    xor.b32 %r8, %r2, 1; mul.wide.u32 %rd6, %r8, 4; add.u64 %rd6, %rd6, %rd1; st.global.u32 [%rd5+64], %r2; )";
  const std::string middle = "ld.global.u32 %r6, [%rd6+64]; BETWEEN st.global.u32 [%rd5+64], %r3; ";
  std::string right = start + round("1", "4") + middle;
  std::string wrong = right;
  right.replace(right.find("BETWEEN"), 7, round("2", "8"));
  wrong.replace(wrong.find("BETWEEN"), 7, "");
  CHECK(Races(right, Blocks(4)) == "silent");
  CHECK_THAT(Races(wrong, Blocks(4)), StartsWith("2: ") && Contains(kGridBarrier));
}

TEST_CASE("decoupled look-back: value and state in one word") {
  CHECK(Races(R"(mov.u32 %r2, %ctaid.x; mul.wide.u32 %rd5, %r2, 8; add.u64 %rd5, %rd5, %rd1;
    mov.u64 %rd7, 1; setp.eq.u32 %p1, %r2, 0; @%p1 bra PUBLISH;
    WAIT: ld.relaxed.gpu.global.u64 %rd6, [%rd5-8]; setp.eq.u64 %p2, %rd6, 0; @%p2 bra WAIT;
    add.u64 %rd7, %rd6, 1; PUBLISH: st.relaxed.gpu.global.u64 [%rd5], %rd7;)",
              Blocks(16)) == "silent");
}

TEST_CASE("many blocks read one word that another one writes") {
  const std::string body = R"(mov.u32 %r2, %ctaid.x; setp.eq.u32 %p1, %r2, 99;
    @!%p1 ld.global.u32 %r5, [%rd1]; @%p1 st.global.u32 [%rd1], %r2;)";
  CHECK_THAT(Races(body, Blocks(100, 1)), StartsWith("2: load at"));
}

TEST_CASE("a barrier of the grid by releasing additions and acquiring loads") {
  CHECK(Races(R"(mov.u32 %r2, %ctaid.x; mul.wide.u32 %rd5, %r2, 4; add.u64 %rd5, %rd5, %rd1;
    xor.b32 %r8, %r2, 3; mul.wide.u32 %rd6, %r8, 4; add.u64 %rd6, %rd6, %rd1;
    st.global.u32 [%rd5+64], %r2; atom.add.release.gpu.global.u32 %r4, [%rd1], 1;
    WAIT: ld.acquire.gpu.global.u32 %r5, [%rd1]; setp.lt.u32 %p2, %r5, 4; @%p2 bra WAIT;
    ld.global.u32 %r6, [%rd6+64];)",
              Blocks(4)) == "silent");
}

TEST_CASE("a warp that sums up in volatile memory as if it ran in lock step") {
  const std::string step =
      "ld.volatile.shared.u32 %r5, [%r10]; ld.volatile.shared.u32 %r6, [%r12]; "
      "add.u32 %r5, %r5, %r6; SYNC st.volatile.shared.u32 [%r10], %r5;";
  const auto with = [&](const std::string& sync) {
    std::string text = step;
    return kWords + text.replace(text.find("SYNC"), 4, sync);
  };
  CHECK_THAT(Races(with(""), Threads(32)), StartsWith("3: ") && Contains(kWarpBarrier));
  CHECK(Races(with("bar.warp.sync -1;"), Threads(32)) == "silent");
}

TEST_CASE("a partial sum of the next round is no update of what was read") {
  // Each warp's word is written from another register than the one that reads all of them.
  CHECK_THAT(Races(kWords + R"(mov.u32 %r30, 0; shl.b32 %r31, %r13, 2; add.u32 %r31, %r20, %r31;
    LOOP: st.shared.u32 [%r31], %r30; bar.sync 0;
    ld.shared.u32 %r5, [words]; ld.shared.u32 %r6, [words+4];
    add.u32 %r30, %r30, 1; setp.lt.u32 %p1, %r30, 3; @%p1 bra LOOP;)",
                   Threads(64)),
             Contains(kBlockBarrier) && !Contains(kAtomic));
}

TEST_CASE("the maximum of floats by an integer atomic") {
  // -1 first, then 2 (unsigned: stays -1) or -2 (signed: becomes -2).
  const auto maximum = [](const std::string& type, const std::string& value) {
    return Races("mov.f32 %f1, 0fBF800000; st.global.f32 [%rd1], %f1; mov.f32 %f2, " + value +
                     "; mov.b32 %r5, %f2; atom.global.max." + type + " %r6, [%rd1], %r5;",
                 Blocks(1));
  };
  CHECK_THAT(maximum("u32", "0f40000000"), StartsWith("5: store at `st.global.f32 [%rd1], %f1;`"));
  CHECK_THAT(maximum("s32", "0fC0000000"), StartsWith("5: store at `st.global.f32 [%rd1], %f1;`"));
  CHECK(maximum("s32", "0f40000000") == "silent");
}

TEST_CASE("the maximum of integers is none of floats") {
  CHECK(Races("mov.u32 %r5, -1; st.global.u32 [%rd1], %r5; mov.u32 %r5, -2; "
              "atom.global.max.s32 %r6, [%rd1], %r5;",
              Blocks(1)) == "silent");
}

TEST_CASE("chosen schedules agree") {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    RunOptions options = Blocks(2);
    options.schedule_seed = seed;
    CHECK(Races(Flag("membar.gl; st.relaxed.gpu.global.u32 [%rd1], %r3;",
                     kWaitRelaxed + "membar.gl;"),
                options) == "silent");
    RunOptions block = Threads(64);
    block.schedule_seed = seed;
    CHECK_THAT(Races(kWords + "st.shared.u32 [%r10], %r1; ld.shared.u32 %r5, [%r11];", block),
               Contains(kBlockBarrier));
  }
}

}  // namespace
}  // namespace ops_debug::emulator
