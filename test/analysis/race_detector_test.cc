// Which races are one finding, who speaks for it, how each kind of missing order is worded, and
// what is a note or unproven.
#include "analysis/race_detector.h"

#include "analysis/value_text.h"
#include "test/analysis/event_builder.h"

namespace ops_debug::analysis {
namespace {

constexpr char kRace[] = R"(
  kind: KIND_SHARED
  first {
    site { function: "_Z1kPf" access: ACCESS_KIND_STORE space: ADDRESS_SPACE_SHARED ptx_line: 10
           instruction: "st.shared.u32 [%r1], %r2;" frames { file: "/src/k.cu" line: 41 column: 3 }
           variable: "_ZZ1kPfE4smem" variable_bytes: 512 }
    launch { launch_id: 2 kernel: "_Z1kPf" grid { x: 4 y: 1 z: 1 } block { x: 64 y: 1 z: 1 } }
    block { } thread { x: 1 } address: 12 bytes: 4 value: "\007\000\000\000"
  }
  second {
    site { function: "_Z1kPf" access: ACCESS_KIND_LOAD space: ADDRESS_SPACE_SHARED ptx_line: 20
           instruction: "ld.shared.u32 %r3, [%r4];" frames { file: "/src/k.cu" line: 47 column: 9 } }
    launch { launch_id: 2 kernel: "_Z1kPf" grid { x: 4 y: 1 z: 1 } block { x: 64 y: 1 z: 1 } }
    block { } thread { x: 33 } address: 12 bytes: 4
  }
  space: ADDRESS_SPACE_SHARED address: 12 bytes: 4 count: 3
  missing: MISSING_ORDER_BLOCK_BARRIER engine: "emulator"
)";
constexpr char kRemedy[] = R"(remedy_after { file: "/src/k.cu" line: 41 }
                              remedy_before { file: "/src/k.cu" line: 47 })";

proto::Race Race(const std::string& change = "") {
  auto race = Parse<proto::Race>(kRace);
  race.MergeFrom(Parse<proto::Race>(change));
  return race;
}

struct Detection {
  void Add(const proto::Race& race, uint32_t process = 1) { detector.Add(process, race); }
  HostSymbolizer symbolizer;
  RaceDetector detector{symbolizer};
};

Finding FindingOf(const proto::Race& race) {
  Detection detection;
  detection.Add(race);
  auto findings = detection.detector.Finish();
  REQUIRE(findings.proven.size() + findings.unproven.size() == 1);
  return findings.proven.empty() ? findings.unproven[0] : findings.proven[0];
}

bool Ends(const std::string& text, const std::string& end) {
  INFO(text);
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

// ---- One bug, one finding

TEST_CASE("races of one pair of lines add up, and the earliest launch speaks") {
  Detection detection;
  detection.Add(Race("first { launch { launch_id: 9 } } second { launch { launch_id: 9 } }"));
  detection.Add(Race("count: 5"));
  const auto findings = detection.detector.Finish().proven;
  REQUIRE(findings.size() == 1);
  REQUIRE(findings[0].count == 8);
  REQUIRE(findings[0].launch->number == 2);
}

TEST_CASE("the order in which the two happened does not tell findings apart") {
  Detection detection;
  auto turned = Race();
  turned.mutable_first()->Swap(turned.mutable_second());
  detection.Add(Race());
  detection.Add(turned);
  const auto findings = detection.detector.Finish().proven;
  REQUIRE(findings.size() == 1);
  REQUIRE(findings[0].count == 6);
  REQUIRE(findings[0].accesses[0].frames[0].line == 41);
}

TEST_CASE("columns, directions and unrolled copies of the lines do not tell findings apart") {
  Detection detection;
  detection.Add(Race());
  auto race = Race("second { site { access: ACCESS_KIND_STORE ptx_line: 25 } }");
  race.mutable_second()->mutable_site()->mutable_frames(0)->set_column(17);
  detection.Add(race);
  REQUIRE(detection.detector.Finish().proven.size() == 1);
}

TEST_CASE("process, kernel, kind and line keep findings apart") {
  Detection detection;
  detection.Add(Race());
  detection.Add(Race(), 2);
  detection.Add(Race("kind: KIND_GLOBAL"));
  detection.Add(
      Race(R"(first { launch { kernel: "_Z1mPf" } } second { launch { kernel: "_Z1mPf" } })"));
  auto race = Race();
  race.mutable_second()->mutable_site()->mutable_frames(0)->set_line(48);
  detection.Add(race);
  REQUIRE(detection.detector.Finish().proven.size() == 5);
}

TEST_CASE("without line info each pair of instructions is a finding of its own") {
  Detection detection;
  for (const uint32_t line : {20, 21}) {
    auto race = Race();
    race.mutable_first()->mutable_site()->clear_frames();
    race.mutable_second()->mutable_site()->clear_frames();
    race.mutable_second()->mutable_site()->set_ptx_line(line);
    detection.Add(race);
  }
  const auto findings = detection.detector.Finish().proven;
  REQUIRE(findings.size() == 2);
  REQUIRE(findings[0].message ==
          "block (0,0,0) thread (1,0,0) wrote 4 bytes of smem (byte 12 of shared memory) at PTX "
          "line 10; thread (33,0,0) read them at PTX line 20; nothing orders the two");
}

TEST_CASE("lanes of a warp that race where warps do are no second finding") {
  Detection detection;
  detection.Add(Race("kind: KIND_WARP missing: MISSING_ORDER_WARP_BARRIER count: 10"));
  detection.Add(Race());
  const auto findings = detection.detector.Finish().proven;
  REQUIRE(findings.size() == 1);
  REQUIRE(findings[0].kind == "race-shared");
  REQUIRE(findings[0].count == 13);
}

TEST_CASE("pairs of an unprotected read-modify-write belong to it, others do not") {
  Detection detection;
  auto both_write = Race();
  *both_write.mutable_second() = both_write.first();
  both_write.mutable_second()->mutable_thread()->set_x(40);
  auto elsewhere = both_write;
  for (auto* side : {elsewhere.mutable_first(), elsewhere.mutable_second()}) {
    side->mutable_site()->mutable_frames(0)->set_line(60);
  }
  detection.Add(both_write);
  detection.Add(elsewhere);
  detection.Add(Race(R"(kind: KIND_ATOMICS pattern: "read-modify-write without atomics")"));
  const auto findings = detection.detector.Finish().proven;
  REQUIRE(findings.size() == 2);
  REQUIRE(findings[0].kind == "atomics-misuse");
  REQUIRE(findings[0].count == 6);
  REQUIRE(findings[1].kind == "race-shared");
  REQUIRE(findings[1].frames[0].line == 60);
}

TEST_CASE("a race beats what is benign or not proven at the same lines") {
  Detection detection;
  detection.Add(Race("same_value: true"));
  detection.Add(Race("unproven: true"));
  detection.Add(Race());
  const auto findings = detection.detector.Finish();
  REQUIRE(findings.unproven.empty());
  REQUIRE(findings.proven.size() == 1);
  REQUIRE(findings.proven[0].severity == Severity::kError);
  REQUIRE(findings.proven[0].count == 3);
}

TEST_CASE("races come in the order in which they first happened") {
  Detection detection;
  for (const uint32_t line : {49, 43, 47}) {
    auto race = Race();
    race.mutable_second()->mutable_site()->mutable_frames(0)->set_line(line);
    detection.Add(race);
  }
  const auto findings = detection.detector.Finish().proven;
  REQUIRE(findings[0].accesses[1].frames[0].line == 49);
  REQUIRE(findings[1].accesses[1].frames[0].line == 43);
  REQUIRE(findings[2].accesses[1].frames[0].line == 47);
}

// ---- Kinds and severities

TEST_CASE("the event's kind gives the finding's, and all are errors") {
  const auto [change, kind] = GENERATE(table<std::string, std::string>({
      {"", "race-shared"},
      {"kind: KIND_GLOBAL", "race-global"},
      {"kind: KIND_WARP", "missing-warp-sync"},
      {"kind: KIND_STREAM", "stream-race"},
      {"kind: KIND_ATOMICS", "atomics-misuse"},
  }));
  const Finding finding = FindingOf(Race(change));
  REQUIRE(finding.kind == kind);
  REQUIRE(finding.severity == Severity::kError);
}

TEST_CASE("two writes of the same value are a note") {
  const Finding finding = FindingOf(Race("same_value: true"));
  REQUIRE(finding.severity == Severity::kNote);
  REQUIRE(finding.message.rfind("benign: both write the same value: block (0,0,0)", 0) == 0);
}

TEST_CASE("what is not proven stands apart, with what is not known") {
  Detection detection;
  detection.Add(Race(R"(unproven: true reason: "a lock is involved" engine: "ptx")"));
  const auto findings = detection.detector.Finish();
  REQUIRE(findings.proven.empty());
  REQUIRE(findings.unproven.size() == 1);
  REQUIRE(findings.unproven[0].severity != Severity::kError);
  REQUIRE(findings.unproven[0].reason == "a lock is involved");
  REQUIRE(findings.unproven[0].advice.rfind("if it is a race: ", 0) == 0);
  REQUIRE(Ends(findings.unproven[0].advice,
               "the emulator decides it exactly (--device emulator, without --engine)"));
}

// ---- Words

TEST_CASE("the sentence names both accesses, and each side its value") {
  const Finding finding = FindingOf(Race());
  REQUIRE(finding.message ==
          "block (0,0,0) thread (1,0,0) wrote 4 bytes of smem (byte 12 of shared memory) at "
          "k.cu:41; thread (33,0,0) read them at k.cu:47; nothing orders the two");
  REQUIRE(finding.accesses[0].text ==
          "block (0,0,0) thread (1,0,0) wrote 4 bytes of smem (byte 12 of shared memory), value 7");
  REQUIRE(finding.related[0].line == 47);
  REQUIRE(finding.related[0].message ==
          "block (0,0,0) thread (33,0,0) read 4 bytes of smem (byte 12 of shared memory)");
}

TEST_CASE("threads of other blocks, unknown threads and the thread itself are told apart") {
  const auto [change, subject] = GENERATE(table<std::string, std::string>({
      {"second { block { x: 2 } }", "block (2,0,0) thread (33,0,0) read"},
      {"second { thread_unknown: true }", "another thread of the block read"},
      {"second { block { x: 2 } thread_unknown: true }", "a thread of block (2,0,0) read"},
      {"second { thread { x: 1 } }", "the same thread read"},
      {"second { launch { launch_id: 3 } }",
       "block (0,0,0) thread (33,0,0) of kernel k (launch 3) read"},
      {R"(second { launch { launch_id: 3 kernel: "_Z1mPf" } })",
       "block (0,0,0) thread (33,0,0) of kernel m read"},
  }));
  const std::string message = FindingOf(Race(change)).message;
  INFO(message);
  REQUIRE(message.find("; " + subject) != std::string::npos);
}

TEST_CASE("the second access is described by the first where they overlap") {
  const auto [change, object] = GENERATE(table<std::string, std::string>({
      {"", "read them at"},
      {"second { address: 13 bytes: 1 }", "read one of them at"},
      {"second { address: 14 bytes: 2 }", "read 2 of them at"},
      {"second { address: 8 bytes: 8 }", "read 8 bytes of smem (byte 8 of shared memory) at"},
  }));
  const std::string message = FindingOf(Race(change)).message;
  INFO(message);
  REQUIRE(message.find(object) != std::string::npos);
}

TEST_CASE("a barrier's place is named only if the reporter knows that it helps") {
  REQUIRE(FindingOf(Race(kRemedy)).advice == "add __syncthreads() between line 41 and line 47");
  REQUIRE(FindingOf(Race()).advice ==
          "let all threads of the block meet at a barrier (__syncthreads()) between the two "
          "accesses");
}

TEST_CASE("a barrier at the end of a loop is said to stand before the next iteration") {
  REQUIRE(FindingOf(Race("remedy_after { line: 47 } remedy_before { line: 41 }")).advice ==
          "add __syncthreads() behind line 47, before line 41 of the next iteration");
  REQUIRE(FindingOf(Race("remedy_after { line: 47 } remedy_before { line: 47 }")).advice ==
          "add __syncthreads() behind line 47, before it is executed again");
}

TEST_CASE("a remedy in another file names the file") {
  REQUIRE(FindingOf(Race(R"(remedy_after { file: "/src/k.cu" line: 41 }
                            remedy_before { file: "/src/tile.cuh" line: 8 })"))
              .advice == "add __syncthreads() between line 41 and tile.cuh:8");
}

TEST_CASE("each kind of missing order has its reason and its remedy") {
  const auto [change, cause, reason,
              advice] = GENERATE(table<std::string, std::string, std::string, std::string>({
      {"missing: MISSING_ORDER_BLOCK_BARRIER", "block-barrier", "nothing orders the two",
       "add __syncthreads() between line 41 and line 47"},
      {"missing: MISSING_ORDER_WARP_BARRIER", "warp-barrier", "without a warp barrier",
       "add __syncwarp() between line 41 and line 47"},
      {"missing: MISSING_ORDER_CLUSTER_BARRIER", "cluster-barrier", "cluster barriers only",
       "add cluster.sync()"},
      {"missing: MISSING_ORDER_GRID_BARRIER", "grid-barrier", "run in any order", "grid.sync()"},
      {"missing: MISSING_ORDER_ATOMIC", "atomic", "updates are lost", "atomicAdd"},
      {"missing: MISSING_ORDER_ACQUIRE", "acquire", "the reader does not acquire",
       "put __threadfence_block() behind the reader's look"},
      {"missing: MISSING_ORDER_RELEASE", "release", "the writer does not release",
       "behind the writes of the data and before the flag is set"},
      {R"(missing: MISSING_ORDER_SCOPE first { semantics: "release.cta" } second { block { x: 1 } })",
       "scope", "at .cta scope, but the threads are in different blocks", "__threadfence()"},
      {"missing: MISSING_ORDER_COPY_WAIT", "copy-wait", "is not waited for", "wait_group"},
      {"missing: MISSING_ORDER_MBARRIER_WAIT", "mbarrier-wait", "phase of the mbarrier",
       "mbarrier.try_wait"},
      {"missing: MISSING_ORDER_PROXY_FENCE", "proxy-fence", "async proxy", "add fence.proxy.async"},
      {"missing: MISSING_ORDER_GRID_DEPENDENCY", "grid-dependency", "programmatic dependent launch",
       "cudaGridDependencySynchronize()"},
      {"missing: MISSING_ORDER_EVENT", "event", "no event and no synchronisation",
       "cudaStreamWaitEvent"},
      {"missing: MISSING_ORDER_HOST_SYNC", "host-sync", "makes the host wait",
       "cudaStreamSynchronize"},
      {"missing: MISSING_ORDER_WGMMA_WAIT", "wgmma-wait", "matrix instruction", "wgmma.wait_group"},
  }));
  const Finding finding = FindingOf(Race(change + " " + kRemedy));
  INFO(finding.message << " | " << finding.advice);
  REQUIRE(finding.cause == cause);
  REQUIRE(finding.message.find(reason) != std::string::npos);
  REQUIRE(finding.advice.find(advice) != std::string::npos);
}

TEST_CASE("the fence of a remedy is as wide as the two are apart") {
  const auto [change, fence] = GENERATE(table<std::string, std::string>({
      {"", "put __threadfence_block() "},
      {"second { block { x: 1 } }", "put __threadfence() "},
      {R"(second { operation: "host function" })", "put __threadfence_system() "},
  }));
  for (const char* missing : {"MISSING_ORDER_ACQUIRE", "MISSING_ORDER_RELEASE"}) {
    const std::string advice = FindingOf(Race(change + " missing: " + missing)).advice;
    INFO(advice);
    REQUIRE(advice.rfind(fence, 0) == 0);
  }
}

TEST_CASE("an atomic against an ordinary access is told as such") {
  const Finding finding = FindingOf(
      Race("missing: MISSING_ORDER_ATOMIC first { site { access: ACCESS_KIND_ATOMIC } }"));
  REQUIRE(Ends(finding.message, "an atomic does not protect the bytes against an ordinary access"));
  REQUIRE(finding.accesses[0].text.find("atomically updated") != std::string::npos);
}

TEST_CASE("a line that reads and writes may be an update, which needs an atomic") {
  auto race = Race();
  race.mutable_second()->mutable_site()->mutable_frames(0)->set_line(41);
  const std::string update = "if the line updates a value in place, use an atomic";
  REQUIRE(FindingOf(race).advice.find(update) != std::string::npos);
  REQUIRE(FindingOf(Race()).advice.find(update) == std::string::npos);
  race.mutable_second()->mutable_site()->set_access(proto::ACCESS_KIND_STORE);
  REQUIRE(FindingOf(race).advice.find(update) == std::string::npos);
}

TEST_CASE("misuse of atomics is explained by its pattern") {
  const auto [pattern, reason, advice] = GENERATE(table<std::string, std::string, std::string>({
      {"read-modify-write without atomics", "updates are lost", "atomicAdd"},
      {"float maximum by integer atomic", "compares the bits of floats", "compare-and-swap"},
      {"mixed scopes", "scope of one of the atomics", "atomicAdd_block()"},
      {"ticket without acquire", "the last ticket", "__threadfence() behind the atomic"},
      {"atomic and plain access", "does not protect", "atomicExch"},
      {"something new", "something new", "barrier"},
  }));
  const Finding finding = FindingOf(Race("kind: KIND_ATOMICS pattern: \"" + pattern + '"'));
  INFO(finding.message << " | " << finding.advice);
  REQUIRE(finding.cause == pattern);
  REQUIRE(finding.message.find(reason) != std::string::npos);
  REQUIRE(finding.advice.find(advice) != std::string::npos);
}

// ---- Operations of the host

proto::Race StreamRace(const std::string& change = "") {
  auto race = Race(R"pb(kind: KIND_STREAM
                        missing: MISSING_ORDER_EVENT
                        space: ADDRESS_SPACE_GLOBAL
                        second {
                          site { space: ADDRESS_SPACE_GLOBAL }
                          address: 4096
                          stream { number: 2 name: "stream 2 (non-blocking)" }
                        }
                        address: 4096
                        allocation { id: 3 address: 4096 size_bytes: 4000 api: "cuMemAlloc" })pb");
  race.mutable_first()->CopyFrom(Parse<proto::Access>(R"pb(
    operation: "cuMemcpyHtoDAsync"
    address: 4096
    bytes: 4000
    stream { number: 0 name: "the legacy default stream" })pb"));
  race.MergeFrom(Parse<proto::Race>(change));
  return race;
}

TEST_CASE("a stream race names both streams and stands at the kernel's access") {
  const Finding finding = FindingOf(StreamRace());
  REQUIRE(finding.message ==
          "cuMemcpyHtoDAsync in the legacy default stream wrote 4000 bytes at byte 0 of allocation "
          "#3 (4000 bytes); block (0,0,0) thread (33,0,0) of kernel k in stream 2 (non-blocking) "
          "read 4 of them at k.cu:47; no event and no synchronisation orders the two streams, and "
          "a non-blocking stream does not wait for the legacy default stream");
  REQUIRE(finding.kernel == "k(float*)");
  REQUIRE(finding.frames[0].line == 47);
  REQUIRE(finding.launch->number == 2);
}

TEST_CASE("memory that is freed under a kernel is said to be freed") {
  const Finding finding = FindingOf(StreamRace(R"(first { operation: "cuMemFreeAsync" })"));
  REQUIRE(finding.message.rfind(
              "cuMemFreeAsync in the legacy default stream freed allocation #3 (4000 bytes); ",
              0) == 0);
  REQUIRE(finding.advice.find("record_stream") != std::string::npos);
}

TEST_CASE("what an operation did comes from its access, its name, or the other side") {
  const auto [change, deed] = GENERATE(table<std::string, std::string>({
      {"first { site { access: ACCESS_KIND_LOAD } }", " read 4000 bytes"},
      {R"(first { operation: "cuMemsetD8Async" })", " wrote 4000 bytes"},
      {R"(first { operation: "cuMemcpyDtoHAsync" } second { site { access: ACCESS_KIND_STORE } })",
       " read 4000 bytes"},
      {R"(first { operation: "host function" })",
       "a host function in the legacy default stream wrote"},
      {R"(first { operation: "host function" } second { site { access: ACCESS_KIND_STORE } })",
       " used 4000 bytes"},
  }));
  const std::string message = FindingOf(StreamRace(change)).message;
  INFO(message);
  REQUIRE(message.find(deed) != std::string::npos);
}

TEST_CASE("operations at different places of the host are different findings") {
  Detection detection;
  for (const char* offset : {"8", "16", "8"}) {
    detection.Add(
        StreamRace(std::string("first { stack { frames { module: \"/gone/app\" offset: ") + offset +
                   " } } }"));
  }
  REQUIRE(detection.detector.Finish().proven.size() == 2);
}

// ---- Values

TEST_CASE("values are shown in the instruction's type") {
  using namespace std::string_literals;
  const auto [bytes, instruction, text] = GENERATE(table<std::string, std::string, std::string>({
      {""s, "ld.global.f32 %f1, [%rd1];", ""},
      {"\0\0\xc0\x3f"s, "st.shared.f32 [%r1], %f1;", "1.5"},
      {"\0\0\0\0\0\0\xf8\x3f"s, "ld.global.f64 %fd1, [%rd1];", "1.5"},
      {"\0\x3e"s, "ld.shared.f16 %h1, [%r1];", "1.5"},
      {"\xc0\x3f"s, "ld.shared.bf16 %h1, [%r1];", "1.5"},
      {"\xff\xff\xff\xff"s, "ld.global.s32 %r1, [%rd1];", "-1"},
      {"\xff\xff\xff\xff"s, "atom.global.add.u32 %r1, [%rd1], 1;", "4294967295"},
      {"\x01\0\0\0\x02\0\0\0"s, "@%p1 ld.global.v2.u32 {%r1,%r2}, [%rd1];", "1, 2"},
      {"\0\0\xc0\x3f"s, "st.global.b32 [%rd1], %r1;", "0x3fc00000 (1.5 as a float)"},
      {"\x21\0\0\0"s, "st.global.b32 [%rd1], %r1;", "33"},
      {"\xff\xff\xff\xff"s, "st.global.b32 [%rd1], %r1;", "0xffffffff"},
      {"\x01\x02\x03"s, "ld.global.f32 %f1, [%rd1];", "197121"},
  }));
  REQUIRE(ValueText(bytes, instruction) == text);
}

}  // namespace
}  // namespace ops_debug::analysis
