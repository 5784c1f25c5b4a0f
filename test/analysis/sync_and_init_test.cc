// Faults of barriers, deadlocks, needless synchronisation and uninitialised reads: kinds,
// severities, merging, words.
#include "analysis/init_detector.h"
#include "analysis/sync_detector.h"
#include "test/analysis/event_builder.h"

namespace ops_debug::analysis {
namespace {

constexpr char kFault[] = R"(
  kind: KIND_DIVERGENT_BARRIER
  site { function: "_Z1kPf" ptx_line: 10 instruction: "bar.sync 0;" frames { file: "/src/k.cu" line: 41 } }
  launch { launch_id: 2 kernel: "_Z1kPf" grid { x: 4 y: 1 z: 1 } block { x: 128 y: 1 z: 1 } }
  block { } thread { } count: 1 engine: "emulator"
)";

proto::SyncFault Fault(const std::string& change = "") {
  auto fault = Parse<proto::SyncFault>(kFault);
  fault.MergeFrom(Parse<proto::SyncFault>(change));
  return fault;
}

struct Detection {
  HostSymbolizer symbolizer;
  SyncDetector sync{symbolizer};
  InitDetector init{symbolizer};
};

Finding FindingOf(const proto::SyncFault& fault) {
  Detection detection;
  detection.sync.Add(1, fault);
  const auto findings = detection.sync.FinishFaults();
  REQUIRE(findings.size() == 1);
  return findings[0];
}

std::string Exited(uint64_t threads, uint64_t blocks, uint32_t first, const std::string& what) {
  return "kind: KIND_EXITED_THREADS waiters { threads: " + std::to_string(threads) +
         " blocks: " + std::to_string(blocks) + " first_thread { x: " + std::to_string(first) +
         " } what: \"" + what + "\" }";
}

TEST_CASE("kinds and causes of faults of barriers") {
  const auto [kind, name, cause] = GENERATE(table<std::string, std::string, std::string>({
      {"KIND_DIVERGENT_BARRIER", "barrier-divergence", "divergent-barrier"},
      {"KIND_BARRIER_COUNT", "barrier-divergence", "barrier-count"},
      {"KIND_UNINITIALISED_MBARRIER", "barrier-divergence", "uninitialised-mbarrier"},
      {"KIND_INVALID_MBARRIER", "barrier-divergence", "invalid-mbarrier"},
      {"KIND_WARP_MASK", "barrier-divergence", "warp-mask"},
      {"KIND_DEADLOCK", "deadlock", ""},
  }));
  const Finding finding = FindingOf(Fault("kind: " + kind));
  REQUIRE(finding.kind == name);
  REQUIRE(finding.cause == cause);
  REQUIRE(finding.severity == Severity::kError);
  REQUIRE_FALSE(finding.message.empty());
  REQUIRE_FALSE(finding.advice.empty());
}

TEST_CASE("whole warps that returned before a barrier are a warning, a split warp is an error") {
  const auto [change, severity] = GENERATE(table<std::string, Severity>({
      {Exited(32, 1, 96, "returned"), Severity::kWarning},
      {Exited(64, 1, 32, "returned"), Severity::kWarning},
      {Exited(28, 1, 100, "returned"), Severity::kError},
      {Exited(16, 1, 0, "returned"), Severity::kError},
      {Exited(64, 2, 96, "returned"), Severity::kWarning},
      {Exited(32, 1, 96, "returned, splitting a warp"), Severity::kError},
  }));
  REQUIRE(FindingOf(Fault(change)).severity == severity);
}

TEST_CASE("the last threads of a block that is no whole number of warps split none") {
  const std::string block = "launch { block { x: 112 } }";
  REQUIRE(FindingOf(Fault(block + Exited(16, 1, 96, "returned"))).severity == Severity::kWarning);
}

TEST_CASE("a reporter's sentence is taken word for word; without one the groups are told") {
  REQUIRE(FindingOf(Fault(R"(text: "who waits where" waiters { threads: 1 })")).message ==
          "who waits where");
  const std::string waiters = R"(
    waiters { threads: 96 blocks: 1 first_thread { x: 32 } what: "wait at barrier 0 for 128 threads"
              site { frames { file: "/src/k.cu" line: 47 } } }
    waiters { threads: 1 blocks: 1 what: "wait at barrier 1 for 128 threads" site { ptx_line: 12 } }
    waiters { threads: 8 blocks: 2 first_block { x: 2 } what: "never started" })";
  const Finding finding = FindingOf(Fault(waiters));
  REQUIRE(
      finding.message ==
      "threads of one block do not reach the same barrier: 96 threads wait at barrier 0 for 128 "
      "threads at k.cu:47 (the first: block (0,0,0) thread (32,0,0)); 1 thread waits at barrier "
      "1 for 128 threads at PTX line 12 (the first: block (0,0,0) thread (0,0,0)); 8 threads of "
      "2 blocks never started (the first: block (2,0,0) thread (0,0,0))");
  REQUIRE(finding.related[0].line == 47);
}

TEST_CASE("the place of a group that split a warp stands behind its verb") {
  const Finding finding = FindingOf(
      Fault(R"(kind: KIND_EXITED_THREADS waiters { threads: 16 blocks: 1 first_thread { x: 16 }
               what: "returned, splitting a warp" site { frames { file: "k.cu" line: 9 } } })"));
  REQUIRE(finding.waiters[0].text ==
          "16 threads returned at k.cu:9, splitting a warp (the first: block (0,0,0) thread "
          "(16,0,0))");
}

TEST_CASE("a reporter that knows no more than the kernel names no launch") {
  auto fault = Fault();
  *fault.mutable_launch() = Parse<proto::Launch>(R"(kernel: "_Z1kPf")");
  const Finding finding = FindingOf(fault);
  REQUIRE(finding.kernel == "k(float*)");
  REQUIRE_FALSE(finding.launch.has_value());
}

TEST_CASE("faults of one line add up, and the earliest launch speaks") {
  Detection detection;
  detection.sync.Add(1, Fault("launch { launch_id: 5 } block { x: 3 }"));
  detection.sync.Add(1, Fault("count: 4"));
  detection.sync.Add(1, Fault("kind: KIND_DEADLOCK"));
  detection.sync.Add(2, Fault());
  const auto findings = detection.sync.FinishFaults();
  REQUIRE(findings.size() == 3);
  REQUIRE(findings[0].count == 5);
  REQUIRE(findings[0].launch->number == 2);
}

TEST_CASE("an mbarrier's fault has its address, another fault has none") {
  REQUIRE(FindingOf(Fault("kind: KIND_INVALID_MBARRIER address: 64")).address == 64u);
  REQUIRE_FALSE(FindingOf(Fault()).address.has_value());
}

TEST_CASE("needless synchronisation is a note, the longest wait first") {
  Detection detection;
  const std::string from = "stack { frames { module: \"/gone/app\" offset: ";
  detection.sync.Add(
      1, Parse<proto::RedundantSync>(R"(api: "cuStreamSynchronize" count: 2 duration_ns: 3000 )" +
                                     from + "8 } }"));
  for (int i = 0; i < 2; ++i) {
    detection.sync.Add(
        1, Parse<proto::RedundantSync>(
               R"(api: "cuCtxSynchronize" reason: "the copy waited" duration_ns: 4500 )" + from +
               "16 } }"));
  }
  const auto findings = detection.sync.FinishRedundant();
  REQUIRE(findings.size() == 2);
  REQUIRE(findings[0].kind == "redundant-sync");
  REQUIRE(findings[0].severity == Severity::kNote);
  REQUIRE(findings[0].count == 2);
  REQUIRE(findings[0].wait_duration_ns == 9000);
  REQUIRE(findings[0].message ==
          "cuCtxSynchronize orders nothing that was not in order before: the copy waited");
  REQUIRE(findings[0].advice == "remove it; the host waited 9.0 us in 2 calls");
  REQUIRE(findings[1].call->api == "cuStreamSynchronize");
}

// ---- Uninitialised reads

constexpr char kRead[] = R"(
  site { function: "_Z1kPf" access: ACCESS_KIND_LOAD space: ADDRESS_SPACE_GLOBAL access_bytes: 4
         ptx_line: 10 instruction: "ld.global.f32 %f1, [%rd1];" frames { file: "/src/k.cu" line: 41 column: 3 } }
  launch { launch_id: 2 kernel: "_Z1kPf" grid { x: 4 y: 1 z: 1 } block { x: 128 y: 1 z: 1 } }
  block { } thread { x: 5 } address: 4116 bytes: 4 count: 3 engine: "emulator"
  allocation { id: 3 address: 4096 size_bytes: 4000 api: "cuMemAlloc" }
)";

proto::UninitialisedRead Read(const std::string& change = "") {
  auto read = Parse<proto::UninitialisedRead>(kRead);
  read.MergeFrom(Parse<proto::UninitialisedRead>(change));
  return read;
}

Finding FindingOf(const proto::UninitialisedRead& read) {
  Detection detection;
  detection.init.Add(1, read);
  const auto findings = detection.init.Finish();
  REQUIRE(findings.size() == 1);
  return findings[0];
}

TEST_CASE("an uninitialised read says which bytes of what, and since when") {
  const auto [change, message] = GENERATE(table<std::string, std::string>({
      {"",
       "block (0,0,0) thread (5,0,0) read 4 bytes at byte 20 of allocation #3 (4000 bytes) that "
       "nothing has written since the memory was allocated"},
      {R"(site { space: ADDRESS_SPACE_SHARED variable: "_ZZ1kPfE4smem" } address: 20 bytes: 1)",
       "block (0,0,0) thread (5,0,0) read 1 byte of smem (byte 20 of shared memory) that no thread "
       "of the block has written"},
      {"site { space: ADDRESS_SPACE_LOCAL } address: 20",
       "block (0,0,0) thread (5,0,0) read 4 bytes at byte 20 of local memory that the thread has "
       "not written"},
  }));
  const Finding finding = FindingOf(Read(change));
  REQUIRE(finding.kind == "uninitialised-read");
  REQUIRE(finding.severity == Severity::kError);
  REQUIRE(finding.message == message);
}

TEST_CASE("where the value came to matter is told, with its place") {
  const Finding finding = FindingOf(Read(
      R"(use: "branch" use_site { instruction: "@%p1 bra $L2;" frames { file: "/src/k.cu" line: 50 } })"));
  REQUIRE(finding.use == "it decides a branch at k.cu:50: @%p1 bra $L2;");
  REQUIRE(finding.cause == "branch");
  REQUIRE(finding.related[0].line == 50);
}

TEST_CASE("uninitialised reads of one line add up; the earliest launch and lowest thread speak") {
  Detection detection;
  detection.init.Add(1, Read("launch { launch_id: 7 }"));
  detection.init.Add(1, Read("thread { x: 4 }"));
  detection.init.Add(1, Read());
  auto elsewhere = Read();
  elsewhere.mutable_site()->mutable_frames(0)->set_line(42);
  detection.init.Add(1, elsewhere);
  const auto findings = detection.init.Finish();
  REQUIRE(findings.size() == 2);
  REQUIRE(findings[0].count == 9);
  REQUIRE(findings[0].launch->number == 2);
  REQUIRE(findings[0].thread->x == 4);
}

}  // namespace
}  // namespace ops_debug::analysis
