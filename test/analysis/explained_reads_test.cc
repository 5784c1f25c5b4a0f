// An uninitialised read that comes too early belongs to the race that it is one side of.
#include "analysis/explained_reads.h"

#include "analysis/event_analysis.h"
#include "test/analysis/event_builder.h"

namespace ops_debug::analysis {
namespace {

const std::string kLaunch = "launch { launch_id: 1 kernel: \"_Z1kPf\" }";

// An access at `line`, by the instruction of PTX line `ptx_line`, of array `variable`.
std::string Site(int line, int ptx_line, const std::string& access, const std::string& variable) {
  return "site { function: \"_Z1kPf\" access: ACCESS_KIND_" + access +
         " space: ADDRESS_SPACE_SHARED instruction: \"i\" ptx_line: " + std::to_string(ptx_line) +
         " frames { file: \"k.cu\" line: " + std::to_string(line) + " } " +
         (variable.empty() ? "" : "variable: \"" + variable + "\"") + " } " + kLaunch;
}

std::string Race(const std::string& write, const std::string& read, const std::string& more = "") {
  return "race { kind: KIND_SHARED space: ADDRESS_SPACE_SHARED first { " + write + " } second { " +
         read + " } " + more + " }";
}
std::string Read(const std::string& site) { return "uninitialised_read { " + site + " bytes: 4 }"; }

std::vector<std::string> KindsOf(const std::vector<std::string>& bodies) {
  EventAnalysis analysis;
  for (const std::string& body : bodies) {
    analysis.Add(Parse<proto::Event>("process_id: 77 " + body));
  }
  std::vector<std::string> kinds;
  for (const Finding& finding : analysis.Finish().findings) kinds.push_back(finding.kind);
  return kinds;
}

using Kinds = std::vector<std::string>;
const Kinds kRaceOnly = {"race-shared"};
const Kinds kBoth = {"race-shared", "uninitialised-read"};
const std::string kWrite = Site(3, 30, "STORE", "s");

TEST_CASE("the instruction that reads too early shows as a race only") {
  REQUIRE(KindsOf({Race(kWrite, Site(4, 40, "LOAD", "s")), Read(Site(4, 40, "LOAD", ""))}) ==
          kRaceOnly);
}

TEST_CASE("so does another instruction of the same line that reads the same array") {
  const std::string race = Race(kWrite, Site(4, 40, "LOAD", "s"));
  REQUIRE(KindsOf({race, Read(Site(4, 44, "LOAD", "s"))}) == kRaceOnly);
  REQUIRE(KindsOf({race, Read(Site(4, 44, "LOAD", "t"))}) == kBoth);
  REQUIRE(KindsOf({race, Read(Site(4, 44, "LOAD", ""))}) == kBoth);
  REQUIRE(KindsOf({race, Read(Site(5, 44, "LOAD", "s"))}) == kBoth);
}

TEST_CASE("a benign or unproven race explains nothing, nor does the side that writes") {
  const std::string read = Site(4, 40, "LOAD", "s");
  const Kinds one = {"uninitialised-read"};
  REQUIRE(KindsOf({Race(kWrite, read, "same_value: true"), Read(read)}) == kBoth);
  REQUIRE(KindsOf({Race(kWrite, read, "unproven: true"), Read(read)}) == one);
  REQUIRE(KindsOf({Race(kWrite, Site(4, 40, "STORE", "s")), Read(read)}) == kBoth);
}

std::string GlobalLoad(int line) {
  return "site { function: \"_Z1kPf\" access: ACCESS_KIND_LOAD space: ADDRESS_SPACE_GLOBAL "
         "ptx_line: 40 frames { file: \"k.cu\" line: " +
         std::to_string(line) + " } } " + kLaunch;
}
std::string OutOfBounds(int line) {
  return "fault { fault_class: FAULT_CLASS_OUT_OF_BOUNDS " + GlobalLoad(line) + " address: 4096 }";
}
std::string WrappedIndex(int line, int origin) {
  return "numerical_fault { kind: KIND_INDEX_OVERFLOW " + GlobalLoad(line) +
         " origin { function: \"_Z1kPf\" frames { file: \"k.cu\" line: " + std::to_string(origin) +
         " } } }";
}

TEST_CASE("an access out of bounds through an index that has wrapped belongs to that index") {
  const Kinds one = {"index-overflow"};
  REQUIRE(KindsOf({OutOfBounds(4), WrappedIndex(4, 3)}) == one);
  REQUIRE(KindsOf({OutOfBounds(3), WrappedIndex(4, 3)}) == one);
  REQUIRE(KindsOf({OutOfBounds(5), WrappedIndex(4, 3)}).size() == 2);
}

}  // namespace
}  // namespace ops_debug::analysis
