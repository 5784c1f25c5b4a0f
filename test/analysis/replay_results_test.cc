// A replay's log in the words of the program, and logs that prove nothing.
#include "analysis/replay_results.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "proto/capture.pb.h"
#include "proto/log.h"
#include "test/analysis/event_builder.h"

namespace ops_debug::analysis {
namespace {

namespace fs = std::filesystem;

// Launches 31 and 34 of the program, of kernels k and j; two buffers, one inside of the other.
const char kCaptured[] = R"(
  capture_id: 1
  launches { launch { launch_id: 31 kernel: "k" grid { x: 2 } } module_id: 5 }
  launches { launch { launch_id: 34 kernel: "j" grid { x: 3 } } module_id: 6 }
  allocations { id: 1 address: 0x1000 size_bytes: 0x1000 api: "cuMemAlloc" }
  allocations { id: 2 address: 0x1100 size_bytes: 0x100 api: "cuMemAlloc" })";

struct Files {
  Files() {
    folder = fs::temp_directory_path() / ("ops-debug-replay-results-" + std::to_string(getpid()));
    fs::create_directories(folder);
  }
  ~Files() { fs::remove_all(folder); }
  std::string capture() const { return folder / "capture"; }
  void Result(const std::string& text) const { std::ofstream(capture() + ".result") << text; }

  ReplayResult Read(const std::vector<std::string>& events) const {
    auto log = proto::LogWriter::Create(folder / "log");
    REQUIRE(log.ok());
    for (const std::string& text : events) {
      const std::string bytes = Parse<proto::Event>(text).SerializeAsString();
      REQUIRE((*log)->Append(std::as_bytes(std::span(bytes.data(), bytes.size()))).ok());
    }
    REQUIRE((*log)->Close().ok());
    return ReadReplay(capture(), folder / "log", 77, Parse<proto::LaunchCaptured>(kCaptured),
                      "its process was killed");
  }
  fs::path folder;
};

const char kChecked[] = R"(launch_summary { kernel: "k" launches: 2 checked_launches: 2 })";

TEST_CASE("a race names the program's launches, module, process and innermost allocation") {
  const Files files;
  files.Result("complete\n");
  const ReplayResult result = files.Read({kChecked, R"(process_id: 5 race {
      space: ADDRESS_SPACE_GLOBAL address: 0x1180 bytes: 4 module_id: 1 engine: "emulator"
      allocation { id: 9 api: "cuMemMap" address: 0x1000 size_bytes: 0x200000 }
      first { launch { launch_id: 1 kernel: "k" } stream { number: 1 } }
      second { launch { launch_id: 2 kernel: "j" } } })"});
  REQUIRE(result.ending == ReplayEnding::kComplete);
  REQUIRE(result.events.size() == 1);
  REQUIRE(result.events[0].process_id() == 77);
  const proto::Race& race = result.events[0].race();
  REQUIRE(race.first().launch().launch_id() == 31);
  REQUIRE(race.second().launch().launch_id() == 34);
  REQUIRE(race.second().launch().grid().x() == 3);
  REQUIRE_FALSE(race.first().has_stream());
  REQUIRE(race.module_id() == 6);
  REQUIRE(race.allocation().id() == 2);
  REQUIRE(race.engine() == "replay");
}

TEST_CASE("offsets in shared memory are no addresses of allocations") {
  const Files files;
  files.Result("complete\n");
  const ReplayResult result = files.Read({kChecked, R"(uninitialised_read {
      site { space: ADDRESS_SPACE_SHARED } address: 0x1000 launch { launch_id: 1 kernel: "k" } })"});
  REQUIRE(result.events.size() == 1);
  REQUIRE_FALSE(result.events[0].uninitialised_read().has_allocation());
}

TEST_CASE("what is not about a captured launch is left out") {
  const Files files;
  files.Result("complete\n");
  const ReplayResult result = files.Read(
      {kChecked, R"(sync_fault { launch { launch_id: 3 kernel: "k" } })",
       R"(sync_fault { launch { launch_id: 1 kernel: "other" } })",
       R"(sync_fault { launch { launch_id: 0 kernel: "k" } })",
       R"(race { first { operation: "cuMemcpyHtoD" } second { launch { launch_id: 1 kernel: "k" } } })",
       R"(leak { allocation { id: 1 } })",
       R"(process_start { executable: "ops-debug-replayer" })"});
  REQUIRE(result.ending == ReplayEnding::kComplete);
  REQUIRE(result.events.empty());
}

TEST_CASE("threads that spin on global memory prove a deadlock only with the program's word") {
  const Files files;
  files.Result("spins\nblock (0,0,0) waits for 4 bytes at 0x1000\n");
  const ReplayResult result = files.Read(
      {kChecked, R"(sync_fault { kind: KIND_DEADLOCK launch { launch_id: 1 kernel: "k" } })",
       R"(sync_fault { kind: KIND_WARP_MASK launch { launch_id: 1 kernel: "k" } })"});
  REQUIRE(result.ending == ReplayEnding::kSpins);
  REQUIRE(result.reason == "block (0,0,0) waits for 4 bytes at 0x1000");
  REQUIRE(result.deadlocks.size() == 1);
  REQUIRE(result.events.size() == 1);
}

TEST_CASE("silence proves something only if the replay was whole and watched") {
  const Files files;
  SECTION("no result file") { REQUIRE(files.Read({kChecked}).reason == "its process was killed"); }
  SECTION("a launch failed") {
    files.Result("failed\nlaunch 1 of k: CUDA_ERROR_ILLEGAL_ADDRESS\n");
    REQUIRE(files.Read({kChecked}).reason == "launch 1 of k: CUDA_ERROR_ILLEGAL_ADDRESS");
  }
  SECTION("a word of a newer replayer") {
    files.Result("dreams\n");
    REQUIRE(files.Read({kChecked}).reason == "its replay ended as \"dreams\"");
  }
  files.Result("complete\n");
  SECTION("a launch that was not checked") {
    const ReplayResult result = files.Read({R"(launch_summary {
        kernel: "k" launches: 2 checked_launches: 1 not_checked_reason: "wgmma is not known" })"});
    REQUIRE(result.reason == "the CPU device could not check it: wgmma is not known");
  }
  SECTION("lost events") {
    REQUIRE(files.Read({kChecked, "lost_events { count: 3 }"}).reason ==
            "3 events of its replay were lost");
  }
  SECTION("a tool that could not work") {
    REQUIRE(files.Read({kChecked, R"(diagnostic { severity: SEVERITY_ERROR text: "no memory" })"})
                .reason == "its replay could not be checked: no memory");
  }
  SECTION("no log") {
    const ReplayResult result = ReadReplay(files.capture(), files.folder / "none", 77, {}, "");
    REQUIRE(result.reason.starts_with("the log of its replay is missing"));
    REQUIRE(result.ending == ReplayEnding::kFailed);
    return;
  }
  REQUIRE(files.Read({"lost_events { count: 1 }"}).ending == ReplayEnding::kFailed);
}

TEST_CASE("the model of a capture is read past whatever stands before it") {
  const Files files;
  proto::Capture capture;
  capture.add_memory()->set_content(std::string(100'000, 'x'));
  std::string bytes = capture.SerializeAsString();
  capture.Clear();
  capture.set_model("sm_90");
  bytes += capture.SerializeAsString();
  std::ofstream(files.capture(), std::ios::binary) << bytes;
  REQUIRE(ReadCaptureModel(files.capture()) == "sm_90");
  std::ofstream(files.capture(), std::ios::binary) << "no capture at all";
  REQUIRE(ReadCaptureModel(files.capture()).empty());
  REQUIRE(ReadCaptureModel(files.folder / "none").empty());
}

}  // namespace
}  // namespace ops_debug::analysis
