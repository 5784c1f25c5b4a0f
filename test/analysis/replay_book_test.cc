// What a replay decides: unproven pairs of a launch in the shape that was replayed to its end.
#include "analysis/replay_book.h"

#include "analysis/event_analysis.h"
#include "analysis/text_report.h"
#include "test/analysis/event_builder.h"

namespace ops_debug::analysis {
namespace {

// Launch `id` of kernel k with `blocks` blocks.
std::string Launch(int id, int blocks = 2, const std::string& kernel = "_Z1kPf") {
  return "launch { launch_id: " + std::to_string(id) + " kernel: \"" + kernel +
         "\" grid { x: " + std::to_string(blocks) + " y: 1 z: 1 } block { x: 64 y: 1 z: 1 } }";
}

proto::Event Event(const std::string& body) {
  return Parse<proto::Event>("process_id: 77 " + body);
}

std::string Captured(const std::string& launches) {
  return "launch_captured { capture_id: 1 file: \"f\" " + launches + " }";
}

std::string Unproven(const std::string& first, const std::string& second,
                     const std::string& more = "") {
  return "race { kind: KIND_GLOBAL unproven: true module_id: 3 first { site { ptx_line: 5 } " +
         first + " } second { site { ptx_line: 9 } " + second + " } " + more + " }";
}

constexpr char kComplete[] = "replay_ended { capture_id: 1 complete: true }";

// The unproven findings after these events.
size_t UnprovenAfter(const std::vector<std::string>& bodies) {
  EventAnalysis analysis;
  for (const std::string& body : bodies) analysis.Add(Event(body));
  return analysis.Finish().unproven.size();
}

const std::string kOneLaunch = Captured("launches { module_id: 3 " + Launch(1) + " }");

TEST_CASE("a complete replay decides the unproven pairs of its launch") {
  REQUIRE(UnprovenAfter({Unproven(Launch(1), Launch(1))}) == 1);
  REQUIRE(UnprovenAfter({Unproven(Launch(1), Launch(1)), kOneLaunch, kComplete}) == 0);
}

TEST_CASE("a pair that only a later launch showed stays open") {
  REQUIRE(UnprovenAfter({kOneLaunch, kComplete, Unproven(Launch(8), Launch(8))}) == 1);
  // The same pair of lines in another shape is another pair.
  REQUIRE(UnprovenAfter({kOneLaunch, kComplete, Unproven(Launch(1), Launch(1)),
                         Unproven(Launch(2, 3), Launch(2, 3))}) == 1);
}

TEST_CASE("later launches that show a decided pair again do not open it") {
  REQUIRE(UnprovenAfter({kOneLaunch, kComplete, Unproven(Launch(1), Launch(1)),
                         Unproven(Launch(8), Launch(8))}) == 0);
}

TEST_CASE("a kernel of the same name in another module is another kernel") {
  const std::string module_4 = Captured("launches { module_id: 4 " + Launch(1) + " }");
  REQUIRE(UnprovenAfter({module_4, kComplete, Unproven(Launch(1), Launch(1))}) == 1);
}

TEST_CASE("a replay that was not complete, or is of another process, decides nothing") {
  REQUIRE(UnprovenAfter({Unproven(Launch(1), Launch(1)), kOneLaunch,
                         "replay_ended { capture_id: 1 reason: \"it took too long\" }"}) == 1);
  REQUIRE(UnprovenAfter({Unproven(Launch(1), Launch(1)), kOneLaunch}) == 1);
  EventAnalysis analysis;
  analysis.Add(Event(kOneLaunch));
  analysis.Add(Event(kComplete));
  proto::Event race = Event(Unproven(Launch(1), Launch(1)));
  race.set_process_id(78);
  analysis.Add(race);
  REQUIRE(analysis.Finish().unproven.size() == 1);
}

TEST_CASE("two launches are decided only by a capture of both, in their order") {
  const std::string pair = Unproven(Launch(1), Launch(2, 3));
  REQUIRE(UnprovenAfter({kOneLaunch, kComplete, pair}) == 1);
  const std::string both =
      Captured("launches { " + Launch(1) + " } launches { " + Launch(2, 3) + " }");
  REQUIRE(UnprovenAfter({both, kComplete, pair}) == 0);
  const std::string reverse =
      Captured("launches { " + Launch(2, 3) + " } launches { " + Launch(1) + " }");
  REQUIRE(UnprovenAfter({reverse, kComplete, pair}) == 1);
}

TEST_CASE("what the host does is not part of a replay, nor what the replay leaves open itself") {
  REQUIRE(UnprovenAfter(
              {kOneLaunch, kComplete, Unproven(Launch(1), "operation: \"cuMemcpyHtoD\"")}) == 1);
  REQUIRE(UnprovenAfter(
              {kOneLaunch, kComplete, Unproven(Launch(1), Launch(1), "engine: \"replay\"")}) == 1);
}

TEST_CASE("a launch of which only the number is known is decided by none") {
  REQUIRE(UnprovenAfter({kOneLaunch, kComplete,
                         Unproven("launch { launch_id: 1 }", "launch { launch_id: 1 }")}) == 1);
}

TEST_CASE("what the replay finds is counted once, and the device speaks") {
  const std::string sides = "first { site { ptx_line: 5 } " + Launch(1) +
                            " } second { site { ptx_line: 9 } " + Launch(1) + " } ";
  for (const bool replay_first : {false, true}) {
    EventAnalysis analysis;
    const auto add = [&](bool replay) {
      analysis.Add(
          Event("race { kind: KIND_GLOBAL " + sides +
                (replay ? "engine: \"replay\" count: 4 }" : "engine: \"ptx\" count: 6 }")));
      analysis.Add(
          Event("uninitialised_read { " + Launch(1) +
                (replay ? " engine: \"replay\" count: 2 }" : " engine: \"ptx\" count: 3 }")));
      analysis.Add(Event("sync_fault { kind: KIND_DIVERGENT_BARRIER " + Launch(1) +
                         (replay ? " engine: \"replay\" }" : " engine: \"ptx\" }")));
    };
    add(replay_first);
    add(!replay_first);
    const Report report = analysis.Finish();
    REQUIRE(report.findings.size() == 3);
    REQUIRE(report.findings[0].count == 6);
    REQUIRE(report.findings[1].count == 3);
    REQUIRE(report.findings[2].count == 1);
    for (const Finding& finding : report.findings) REQUIRE(finding.engine == "ptx");
  }
}

TEST_CASE("the report says what was replayed and, reason by reason, what was not") {
  EventAnalysis analysis;
  const std::string undecided = " undecided: \"cp.async: whether its data has arrived\" ";
  analysis.Add(Event(Captured("launches { " + Launch(1) + undecided + "}")));
  analysis.Add(Event(kComplete));
  for (const char* kernel : {"_Z1kPf", "_Z1jPi"}) {
    analysis.Add(Event("launch_not_captured { reason: \"its buffers hold 3.2 GiB\" launch { " +
                       Launch(2, 9, kernel) + undecided + "} }"));
  }
  analysis.Add(
      Event("launch_captured { capture_id: 2 launches { " + Launch(5, 2, "_Z1cPf") + " } }"));
  const Report report = analysis.Finish();
  REQUIRE(report.coverage.replays.launches == 1);
  const std::string text = WriteText(report, false);
  INFO(text);
  REQUIRE(text.find("replayed on the CPU device: 1 launch of 1 kernel\n"
                    "not replayed:\n"
                    "  j(int*), k(float*): its buffers hold 3.2 GiB\n"
                    "    not known there: cp.async: whether its data has arrived\n"
                    "  c(float*): the recording ended before its replay\n") != std::string::npos);
}

TEST_CASE("a launch that is part of two captures is one launch") {
  EventAnalysis analysis;
  analysis.Add(Event(Captured("launches { " + Launch(1) + " }")));
  analysis.Add(Event("launch_captured { capture_id: 2 launches { " + Launch(1) + " } launches { " +
                     Launch(2, 5) + " } }"));
  analysis.Add(Event(kComplete));
  analysis.Add(Event("replay_ended { capture_id: 2 complete: true }"));
  const ReplaySummary replays = analysis.Finish().coverage.replays;
  REQUIRE(replays.launches == 2);
  REQUIRE(replays.kernels == 1);
}

TEST_CASE("a report without replays does not speak of them") {
  EventAnalysis analysis;
  analysis.Add(Event("launch_summary { kernel: \"_Z1kPf\" launches: 1 checked_launches: 1 }"));
  REQUIRE(WriteText(analysis.Finish(), false).find("replay") == std::string::npos);
}

}  // namespace
}  // namespace ops_debug::analysis
