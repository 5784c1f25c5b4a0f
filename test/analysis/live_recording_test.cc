// A live run and its log say the same; a run without CUDA, a damaged ring and foreign bytes are
// told of.
#include "analysis/live_recording.h"

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>

#include "analysis/json_report.h"
#include "analysis/text_report.h"
#include "test/analysis/event_builder.h"

namespace ops_debug::analysis {
namespace {

struct Run {
  Run() {
    const std::string unique = std::to_string(getpid()) + "-" + std::to_string(++number);
    log_path = (std::filesystem::temp_directory_path() / ("ops-debug-live-" + unique)).string();
    std::string error;
    ring = proto::RingConsumer::Create(("ops-debug-live-" + unique).c_str(), 1 << 16, &error);
    REQUIRE(ring != nullptr);
    producer = proto::RingProducer::Open(("ops-debug-live-" + unique).c_str(), &error);
    REQUIRE(producer != nullptr);
    auto created = RunLog::Open(log_path);
    REQUIRE(created.ok());
    log = std::move(*created);
  }
  ~Run() { std::filesystem::remove(log_path); }

  void Send(const std::string& bytes) {
    producer->Write(std::as_bytes(std::span(bytes.data(), bytes.size())), proto::WhenFull::kDrop);
  }
  void SendEvent(const std::string& text) { Send(Parse<proto::Event>(text).SerializeAsString()); }

  // The target ends; everything is read.
  Report Finish() {
    int control[2];
    REQUIRE(pipe(control) == 0);
    REQUIRE(write(control[1], "e", 1) == 1);  // the launcher's word that the target has ended
    close(control[1]);
    EventAnalysis analysis;
    RecordLive(*ring, log.get(), {.control_fd = control[0]}, analysis);
    close(control[0]);
    log.reset();
    return analysis.Finish();
  }
  Report FromLog() const {
    EventAnalysis analysis;
    REQUIRE(ReadLog(log_path, analysis).ok());
    return analysis.Finish();
  }

  static inline int number = 0;
  std::string log_path;
  std::unique_ptr<proto::RingConsumer> ring;
  std::unique_ptr<proto::RingProducer> producer;
  std::unique_ptr<RunLog> log;
};

// No such process exists (proc(5), pid_max).
constexpr char kStart[] =
    R"(process_id: 99999999 process_start { executable: "/bin/app" device_name: "GPU" })";

TEST_CASE("the log gives the same report, byte for byte") {
  Run run;
  run.SendEvent(kStart);
  run.SendEvent(
      R"(process_id: 99999999 launch_summary { kernel: "_Z1kv" launches: 3 checked_launches: 3 })");
  run.SendEvent(
      R"(process_id: 99999999 fault { fault_class: FAULT_CLASS_WILD_ADDRESS parameter_index: -1
                   launch { launch_id: 1 kernel: "_Z1kv" } count: 4 })");
  run.Send("\xff\xff no event");
  for (int i = 0; i < 2000; ++i) run.Send(std::string(100, '\0'));  // more than fits: some are lost
  const Report live = run.Finish();
  const Report offline = run.FromLog();
  REQUIRE(live.findings.size() == 1);
  REQUIRE(live.lost_events > 0);
  REQUIRE(WriteText(live, false) == WriteText(offline, false));
  REQUIRE(WriteJson(live) == WriteJson(offline));
}

TEST_CASE("a target without driver calls is remarked on, in the log too") {
  Run run;
  REQUIRE(run.Finish().remarks.at(0).text == "no CUDA driver call was seen");
  REQUIRE(run.FromLog().remarks.at(0).text == "no CUDA driver call was seen");
}

TEST_CASE("bytes that are no event are counted as lost") {
  Run run;
  run.SendEvent(kStart);
  run.Send("\xff\xff\xff");
  REQUIRE(run.Finish().lost_events == 1);
}

TEST_CASE("a process that never said goodbye is remarked on; one that did is not") {
  Run run;
  run.SendEvent(kStart);
  SECTION("killed") {
    REQUIRE(run.Finish().remarks.at(0).text.find("process 99999999 (/bin/app) did not end") == 0);
  }
  SECTION("orderly") {
    run.SendEvent(R"(process_id: 99999999 process_end { orderly: true })");
    REQUIRE(run.Finish().remarks.empty());
  }
}

TEST_CASE("a log that stops working costs the log, not the report") {
  Run run;
  run.SendEvent(kStart);
  // A file size limit makes writes fail as a full disk does.
  signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  getrlimit(RLIMIT_FSIZE, &old);
  const rlimit tiny{30, old.rlim_max};
  setrlimit(RLIMIT_FSIZE, &tiny);
  const Report report = run.Finish();
  setrlimit(RLIMIT_FSIZE, &old);
  REQUIRE(report.coverage.processes.size() == 1);
  bool told = false;
  for (const Remark& remark : report.remarks)
    told |= remark.text.find("cannot write log") != std::string::npos;
  REQUIRE(told);
}

TEST_CASE("what is no log is an error") {
  EventAnalysis analysis;
  REQUIRE_FALSE(ReadLog("/etc/passwd", analysis).ok());
}

}  // namespace
}  // namespace ops_debug::analysis
