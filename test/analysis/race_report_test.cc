// Races, faults of barriers and needless synchronisation in a whole report: fields of the JSON
// document, the verdict behind the exit code, several processes, suppressions, which checks ran.
#include <nlohmann/json.hpp>

#include "analysis/event_analysis.h"
#include "analysis/json_report.h"
#include "analysis/suppressions.h"
#include "analysis/text_report.h"
#include "test/analysis/event_builder.h"

namespace ops_debug::analysis {
namespace {

using nlohmann::json;

constexpr char kRace[] = R"(
process_id: 42
race {
  kind: KIND_SHARED
  first {
    site { function: "_Z1kPf" access: ACCESS_KIND_STORE space: ADDRESS_SPACE_SHARED ptx_line: 10
           access_bytes: 4 instruction: "st.shared.u32 [%r1], %r2;"
           frames { file: "/src/k.cu" line: 41 column: 3 } }
    launch { launch_id: 2 kernel: "_Z1kPf" grid { x: 4 y: 1 z: 1 } block { x: 64 y: 1 z: 1 } }
    block { } thread { x: 1 } address: 12 bytes: 4 value: "\007\000\000\000"
  }
  second {
    site { function: "_Z1kPf" access: ACCESS_KIND_LOAD space: ADDRESS_SPACE_SHARED ptx_line: 20
           access_bytes: 4 instruction: "ld.shared.u32 %r3, [%r4];"
           frames { file: "/src/tile.cuh" line: 47 column: 9 } frames { file: "/src/k.cu" line: 50 } }
    launch { launch_id: 2 kernel: "_Z1kPf" grid { x: 4 y: 1 z: 1 } block { x: 64 y: 1 z: 1 } }
    block { } thread { x: 33 } address: 12 bytes: 4 semantics: "relaxed.cta"
  }
  space: ADDRESS_SPACE_SHARED address: 12 bytes: 4 count: 3
  missing: MISSING_ORDER_BLOCK_BARRIER engine: "emulator"
}
)";

proto::Event Race(const std::string& change = "", uint32_t process = 42) {
  auto event = Parse<proto::Event>(kRace);
  event.MergeFrom(Parse<proto::Event>("race { " + change + " }"));
  event.set_process_id(process);
  return event;
}

Report ReportOf(const std::vector<proto::Event>& events) {
  EventAnalysis analysis;
  for (const proto::Event& event : events) analysis.Add(event);
  return analysis.Finish();
}

json JsonOf(const std::vector<proto::Event>& events) {
  return json::parse(WriteJson(ReportOf(events)));
}

TEST_CASE("a race has both its accesses, field by field") {
  const json finding = JsonOf({Race()})["findings"][0];
  REQUIRE(finding["kind"] == "race-shared");
  REQUIRE(finding["cause"] == "block-barrier");
  REQUIRE(finding["severity"] == "error");
  REQUIRE(finding["kernel"] == "k(float*)");
  REQUIRE(finding["file"] == "/src/k.cu");
  REQUIRE(finding["line"] == 41);
  REQUIRE(finding["count"] == 3);
  REQUIRE(finding["space"] == "shared");
  REQUIRE(finding["engine"] == "emulator");
  REQUIRE(finding["accesses"].size() == 2);
  const json first = finding["accesses"][0];
  REQUIRE(first["thread"] == json({1, 0, 0}));
  REQUIRE(first["access"] == "store");
  REQUIRE(first["value"] == "7");
  REQUIRE(first["address"] == "0xc");
  REQUIRE(first["access_bytes"] == 4);
  REQUIRE(first["launch"]["number"] == 2);
  REQUIRE_FALSE(first.contains("semantics"));
  const json second = finding["accesses"][1];
  REQUIRE(second["file"] == "/src/tile.cuh");
  REQUIRE(second["line"] == 47);
  REQUIRE(second["inlined_at"][0]["line"] == 50);
  REQUIRE(second["semantics"] == "relaxed.cta");
  REQUIRE(second["instruction"] == "ld.shared.u32 %r3, [%r4];");
  REQUIRE_FALSE(second.contains("value"));
  REQUIRE_FALSE(second.contains("operation"));
}

TEST_CASE("the other side of a race comes first among the related places") {
  const json related = JsonOf({Race()})["findings"][0]["related"];
  REQUIRE(related[0]["file"] == "/src/tile.cuh");
  REQUIRE(related[0]["line"] == 47);
  REQUIRE(related[0]["message"] ==
          "block (0,0,0) thread (33,0,0) read 4 bytes at byte 12 of shared memory (relaxed.cta)");
}

TEST_CASE(
    "races, barriers that split a block, deadlocks and uninitialised reads change the exit code") {
  const char* event = GENERATE(R"(sync_fault { kind: KIND_DIVERGENT_BARRIER })",
                               R"(sync_fault { kind: KIND_DEADLOCK })",
                               R"(uninitialised_read { site { space: ADDRESS_SPACE_SHARED } })",
                               R"(race { kind: KIND_STREAM })", R"(race { kind: KIND_ATOMICS })",
                               R"(race { kind: KIND_WARP })", R"(race { kind: KIND_GLOBAL })");
  INFO(event);
  REQUIRE(VerdictOf(ReportOf({Parse<proto::Event>(event)})).findings == 1);
}

TEST_CASE("benign and unproven races, exited warps and needless synchronisation do not") {
  const char* event =
      GENERATE(R"(race { kind: KIND_GLOBAL same_value: true })",
               R"(race { kind: KIND_GLOBAL unproven: true })",
               R"(sync_fault { kind: KIND_EXITED_THREADS })", R"(redundant_sync { api: "a" })");
  INFO(event);
  const Report report = ReportOf({Parse<proto::Event>(event)});
  REQUIRE(report.findings.size() + report.unproven.size() == 1);
  REQUIRE(VerdictOf(report).findings == 0);
}

TEST_CASE("an unproven race is in its own list, with what is not known") {
  const json document = JsonOf({Race(R"(unproven: true reason: "a lock is involved")")});
  REQUIRE(document["findings"] == json::array());
  REQUIRE(document["unproven"].size() == 1);
  REQUIRE(document["unproven"][0]["kind"] == "race-shared");
  REQUIRE(document["unproven"][0]["reason"] == "a lock is involved");
}

TEST_CASE("notes are counted apart from findings in the closing line") {
  const std::string text = WriteText(ReportOf({Race("same_value: true")}), false);
  INFO(text);
  REQUIRE(text.find("ops-debug: no findings, 1 note (race-shared 1), 1 kernel, 1 checked\n") !=
          std::string::npos);
}

TEST_CASE("groups of waiting threads and needless synchronisation have their own fields") {
  const json findings = JsonOf({Parse<proto::Event>(R"(sync_fault {
      kind: KIND_DEADLOCK site { frames { file: "k.cu" line: 9 } }
      waiters { threads: 64 blocks: 2 first_block { x: 1 } what: "wait at barrier 0 for 64 threads"
                site { frames { file: "k.cu" line: 9 } } } })"),
                                Parse<proto::Event>(R"(redundant_sync {
      api: "cuCtxSynchronize" count: 3 duration_ns: 5000 })")})["findings"];
  REQUIRE(findings[0]["waiters"][0]["threads"] == 64);
  REQUIRE(findings[0]["waiters"][0]["blocks"] == 2);
  REQUIRE(findings[0]["waiters"][0]["first_block"] == json({1, 0, 0}));
  REQUIRE(findings[0]["waiters"][0]["line"] == 9);
  REQUIRE(findings[0]["waiters"][0]["what"] == "wait at barrier 0 for 64 threads");
  REQUIRE(findings[1]["kind"] == "redundant-sync");
  REQUIRE(findings[1]["severity"] == "note");
  REQUIRE(findings[1]["call"] == json({{"api", "cuCtxSynchronize"}}));
  REQUIRE(findings[1]["count"] == 3);
  REQUIRE(findings[1]["wait_duration_ns"] == 5000);
}

TEST_CASE("the report says which checks ran") {
  const auto start = [](const std::string& checks) {
    return Parse<proto::Event>("process_start { executable: \"/bin/app\" " + checks + " }");
  };
  REQUIRE(JsonOf({start("")})["coverage"]["checks"] == json::array());
  REQUIRE(JsonOf({start(R"(checks: "none")")})["coverage"]["checks"] == json({"none"}));
  const auto events = {start(R"(checks: "init" checks: "race")"),
                       start(R"(checks: "memory" checks: "race")"), Race()};
  REQUIRE(JsonOf(events)["coverage"]["checks"] == json({"memory", "race", "init"}));
  REQUIRE(WriteText(ReportOf(events), false).find("\nchecks: memory, race, init\n") !=
          std::string::npos);
}

TEST_CASE("a kernel that raced counts as checked by its engine even if its summary was lost") {
  const json coverage = JsonOf({Race()})["coverage"];
  REQUIRE(coverage["checked_launches"] == 1);
  REQUIRE(coverage["engines"] == json({{"emulator", {{"kernels", 1}}}}));
}

TEST_CASE("one pair of lines in several ranks is one finding, whichever side came first") {
  std::vector<proto::Event> events;
  for (const uint32_t process : {7, 8}) {
    proto::Event start;
    start.set_process_id(process);
    start.mutable_process_start()->set_rank(process == 7 ? "0" : "1");
    events.push_back(start);
    events.push_back(Race("", process));
  }
  events.back().mutable_race()->mutable_first()->Swap(
      events.back().mutable_race()->mutable_second());
  const Report report = ReportOf(events);
  REQUIRE(report.findings.size() == 1);
  REQUIRE(report.findings[0].count == 6);
  REQUIRE(report.findings[0].found_in_text == "ranks 0, 1");
}

TEST_CASE("a race that is no race in another process, or ends elsewhere, is not merged with it") {
  proto::Event other = Race("", 8);
  other.mutable_race()->mutable_second()->mutable_site()->mutable_frames(0)->set_line(48);
  std::vector<proto::Event> events;
  for (const uint32_t process : {7, 8, 9}) {
    proto::Event start;
    start.set_process_id(process);
    start.mutable_process_start()->set_executable("/bin/app");
    events.push_back(start);
  }
  events.insert(events.end(), {Race("", 7), other, Race("same_value: true", 9)});
  REQUIRE(ReportOf(events).findings.size() == 3);
}

TEST_CASE("a suppression may name either side of a race, and hides unproven ones too") {
  const auto [entry, hidden] = GENERATE(table<std::string, bool>({
      {"kind: race-shared", true},
      {"kind: race-global", false},
      {"file: '*/k.cu', line: 41", true},
      {"file: '*/tile.cuh', line: 47", true},
      {"file: '*/k.cu', line: 47", false},
      {"kernel: k", true},
  }));
  INFO(entry);
  Suppressions suppressions;
  REQUIRE(suppressions.AddText("- {" + entry + ", reason: known}", "s.yaml", false).message() ==
          "");
  for (const char* change : {"", "unproven: true"}) {
    Report report = ReportOf({Race(change)});
    suppressions.Apply(report);
    REQUIRE(report.findings.size() + report.unproven.size() == (hidden ? 0u : 1u));
    REQUIRE(report.suppressed.size() == (hidden ? 1u : 0u));
  }
}

TEST_CASE("a generated entry hides the race that it was made for, and no other") {
  Report report = ReportOf({Race()});
  GenerateSuppressions(report);
  Suppressions suppressions;
  REQUIRE(suppressions.AddText(report.findings[0].suppression, "s.yaml", false).message() == "");
  REQUIRE(suppressions.Matches(report.findings[0]));
  proto::Event other = Race();
  for (auto* side :
       {other.mutable_race()->mutable_first(), other.mutable_race()->mutable_second()}) {
    side->mutable_site()->mutable_frames(0)->set_line(99);
  }
  REQUIRE_FALSE(suppressions.Matches(ReportOf({other}).findings[0]));
}

TEST_CASE("what a log keeps of these events gives the same report") {
  const std::vector<proto::Event> events = {
      Race(), Parse<proto::Event>(R"(sync_fault { kind: KIND_DEADLOCK text: "t" count: 2 })"),
      Parse<proto::Event>(R"(uninitialised_read { use: "branch" })"),
      Parse<proto::Event>(R"(redundant_sync { api: "a" reason: "r" })")};
  EventAnalysis offline;
  for (const proto::Event& event : events) {
    const std::string bytes = event.SerializeAsString();
    offline.AddMessage(std::as_bytes(std::span(bytes.data(), bytes.size())));
  }
  REQUIRE(WriteJson(offline.Finish()) == WriteJson(ReportOf(events)));
}

}  // namespace
}  // namespace ops_debug::analysis
