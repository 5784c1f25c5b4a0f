// Several processes in one report: numbers, ranks, merged findings, one log per process.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "analysis/event_analysis.h"
#include "analysis/live_recording.h"
#include "analysis/run_log.h"
#include "test/analysis/event_builder.h"

namespace ops_debug::analysis {
namespace {

namespace fs = std::filesystem;

proto::Event Start(uint32_t process, const std::string& program, const std::string& rank = "") {
  proto::Event event;
  event.set_process_id(process);
  event.mutable_process_start()->set_executable(program);
  event.mutable_process_start()->set_rank(rank);
  return event;
}

proto::Event End(uint32_t process, bool orderly, uint32_t signal = 0) {
  proto::Event event;
  event.set_process_id(process);
  event.mutable_process_end()->set_orderly(orderly);
  event.mutable_process_end()->set_signal(signal);
  return event;
}

proto::Event Fault(uint32_t process, uint32_t line, uint64_t address = 64) {
  proto::Event event = Parse<proto::Event>(R"(
    fault { fault_class: FAULT_CLASS_OUT_OF_BOUNDS count: 2 parameter_index: -1
            site { function: "_Z1kv" access: ACCESS_KIND_STORE space: ADDRESS_SPACE_GLOBAL
                   access_bytes: 4 }
            launch { launch_id: 1 kernel: "_Z1kv" } })");
  event.set_process_id(process);
  event.mutable_fault()->set_address(address);
  proto::SourceFrame& frame = *event.mutable_fault()->mutable_site()->add_frames();
  frame.set_file("k.cu");
  frame.set_line(line);
  return event;
}

proto::Event Launches(uint32_t process, uint64_t launches) {
  proto::Event event;
  event.set_process_id(process);
  event.mutable_launch_summary()->set_kernel("_Z1kv");
  event.mutable_launch_summary()->set_launches(launches);
  event.mutable_launch_summary()->set_checked_launches(launches);
  return event;
}

Report Analyse(const std::vector<proto::Event>& events) {
  EventAnalysis analysis;
  for (const proto::Event& event : events) analysis.Add(event);
  return analysis.Finish();
}

TEST_CASE("equal places in several ranks are one finding that lists them, in order") {
  const Report report = Analyse({Start(9, "/bin/app", "10"), Start(7, "/bin/app", "2"),
                                 Start(8, "/bin/app", "0"), Fault(9, 5, 64), Fault(7, 5, 128),
                                 Fault(7, 6), End(7, true), End(8, true), End(9, true)});
  REQUIRE(report.findings.size() == 2);
  REQUIRE(report.findings[0].found_in_text == "ranks 2, 10");
  REQUIRE(report.findings[0].count == 4);
  REQUIRE(report.findings[0].process_id == 9);
  REQUIRE(report.findings[1].found_in_text == "rank 2");
  REQUIRE(report.coverage.processes[0].rank == "0");
  REQUIRE(report.coverage.processes[2].rank == "10");
  REQUIRE(report.remarks.empty());
}

TEST_CASE("processes without a rank are named by id and program") {
  const Report report = Analyse(
      {Start(7, "/bin/app"), Start(8, "/bin/worker"), Fault(8, 5), End(7, true), End(8, true)});
  REQUIRE(report.findings.at(0).found_in_text == "process 8 (worker)");
}

TEST_CASE("a run of one process names none") {
  const Report report =
      Analyse({Start(7, "/bin/app", "0"), Fault(7, 5), Fault(7, 6), End(7, true)});
  REQUIRE(report.findings.size() == 2);
  REQUIRE(report.findings[0].found_in.empty());
  REQUIRE(report.findings[0].found_in_text.empty());
}

TEST_CASE("a program that exec replaced, and its successor, are two processes of one id") {
  const Report report = Analyse({Start(7, "/bin/first"), Launches(7, 2), End(7, true),
                                 Start(7, "/bin/second"), Launches(7, 3), Fault(7, 5)});
  REQUIRE(report.coverage.processes.size() == 2);
  REQUIRE(report.coverage.processes[1].process_id == 7);
  REQUIRE(report.findings.at(0).process_id == 7);
  REQUIRE(report.findings[0].found_in_text == "process 7 (second)");
  // The first ended in an orderly way, the second was not seen to end.
  REQUIRE(report.remarks.size() == 1);
  REQUIRE(report.remarks[0].text.find("process 7 (/bin/second) did not end") == 0);
  REQUIRE(report.remarks[0].text.find("3 launches") != std::string::npos);
}

TEST_CASE("equal process ids of two recordings are different processes") {
  EventAnalysis analysis;
  for (int recording = 0; recording < 2; ++recording) {
    analysis.NextRecording();
    for (const proto::Event& event : {Start(7, "/bin/app"), Fault(7, 5), End(7, true)}) {
      analysis.Add(event);
    }
  }
  const Report report = analysis.Finish();
  REQUIRE(report.coverage.processes.size() == 2);
  REQUIRE(report.findings.size() == 1);
  REQUIRE(report.findings[0].count == 4);
  REQUIRE(report.findings[0].process_id == 7);
}

TEST_CASE("how a process ended is told") {
  REQUIRE(Analyse({Start(7, "/bin/app"), End(7, false, 15)}).remarks.at(0).text ==
          "process 7 (/bin/app) was ended by SIGTERM; what it had found until then is in this "
          "report");
  proto::Event running = End(7, false);
  running.mutable_process_end()->set_still_running(true);
  REQUIRE(Analyse({Start(7, "/bin/app", "3"), running})
              .remarks.at(0)
              .text.find("process 7 (/bin/app, rank 3) was still running") == 0);
}

struct Folder {
  Folder() {
    static int number = 0;
    path = (fs::temp_directory_path() /
            ("ops-debug-logs-" + std::to_string(getpid()) + '-' + std::to_string(++number)))
               .string();
  }
  ~Folder() { fs::remove_all(path); }

  void Record(const std::vector<proto::Event>& events) const {
    auto log = RunLog::Open(path + '/');
    REQUIRE(log.ok());
    for (const proto::Event& event : events) {
      const std::string bytes = event.SerializeAsString();
      REQUIRE((*log)->Append(event, std::as_bytes(std::span(bytes.data(), bytes.size()))).ok());
    }
    REQUIRE((*log)->Close().ok());
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    const auto logs = FindLogs(path);
    REQUIRE(logs.ok());
    for (const std::string& log : *logs) names.push_back(fs::path(log).filename().string());
    return names;
  }
  Report Read(const std::string& name = "") const {
    EventAnalysis analysis;
    REQUIRE(ReadLog(name.empty() ? path : path + '/' + name, analysis).ok());
    return analysis.Finish();
  }

  std::string path;
};

TEST_CASE("a folder gets one log per process, named by program, rank and id") {
  Folder folder;
  proto::Event early = Launches(8, 1);  // comes before the process has said who it is
  folder.Record({Start(7, "/bin/my app", "0"), early, Start(8, "/bin/app"), Launches(7, 2),
                 Fault(8, 5), End(8, true), End(7, true), Start(8, "/bin/app"), Launches(8, 1),
                 End(8, true)});
  REQUIRE(folder.Names() ==
          std::vector<std::string>{"app.8.2.odlog", "app.8.odlog", "my_app.rank0.7.odlog"});
  REQUIRE(folder.Read("app.8.odlog").findings.size() == 1);
  REQUIRE(folder.Read("app.8.odlog").coverage.Launches() == 1);
  REQUIRE(folder.Read("my_app.rank0.7.odlog").findings.empty());
  REQUIRE(folder.Read().coverage.Launches() == 4);
  REQUIRE(folder.Read().coverage.processes.size() == 3);
}

TEST_CASE("a process that only asked for devices gets a log if there is no other") {
  Folder folder;
  folder.Record({Start(6, "/bin/torchrun"), Start(7, "/usr/bin/python3.12", "0"), Launches(7, 1),
                 End(7, true), End(6, true)});
  REQUIRE(folder.Names() == std::vector<std::string>{"python3.12.rank0.7.odlog"});
  Folder other;
  other.Record({Start(6, "/bin/torchrun"), End(6, true)});
  REQUIRE(other.Names() == std::vector<std::string>{"torchrun.6.odlog"});
}

TEST_CASE("an earlier run's logs in the folder are kept") {
  Folder folder;
  folder.Record({Start(7, "/bin/app"), End(7, true)});
  folder.Record({Start(7, "/bin/app"), End(7, true)});
  REQUIRE(folder.Names() == std::vector<std::string>{"app.7.2.odlog", "app.7.odlog"});
}

TEST_CASE("what concerns no process has a log of its own") {
  Folder folder;
  proto::Event lost;
  lost.mutable_lost_events()->set_count(5);
  folder.Record({Start(7, "/bin/app"), lost, Launches(7, 1), End(7, true)});
  REQUIRE(folder.Names().size() == 2);
  REQUIRE(folder.Read("app.7.odlog").lost_events == 0);
  REQUIRE(folder.Read().lost_events == 5);
}

TEST_CASE("names from other processes cannot leave the folder") {
  Folder folder;
  folder.Record({Start(7, "/bin/..", "../../x"), End(7, true)});
  REQUIRE(folder.Names() == std::vector<std::string>{"__.rank______x.7.odlog"});
}

TEST_CASE("a file of the folder that is no log is remarked on, the others are read") {
  Folder folder;
  folder.Record({Start(7, "/bin/app"), End(7, true)});
  std::ofstream(folder.path + "/other.odlog") << "this is not a log";
  std::ofstream(folder.path + "/notes.txt") << "neither is this";
  const Report report = folder.Read();
  REQUIRE(report.coverage.processes.size() == 1);
  REQUIRE(report.remarks.size() == 1);
}

TEST_CASE("a folder without logs is an error that names it") {
  Folder folder;
  fs::create_directories(folder.path);
  EventAnalysis analysis;
  const absl::Status status = ReadLog(folder.path, analysis);
  REQUIRE_FALSE(status.ok());
  REQUIRE(std::string(status.message()).find(folder.path) != std::string::npos);
}

}  // namespace
}  // namespace ops_debug::analysis
