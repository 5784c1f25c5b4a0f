// ops-debug-analyzer: started by ops-debug, not by people.
//
//   live      --ring NAME --control-fd N --result-fd N [--log FILE]: reads until the control pipe
//             closes. [--replay-folder FOLDER --replay-launcher PATH --replayer PATH
//             --replay-checks LIST --replay-time SECONDS]: replays captured launches (replays.h);
//             SIGUSR1 ends that
//   offline   --read FILE|FOLDER ... --result-fd N
//   both      --format text|json [--output FILE|-]
//
// It outlives the target however that ends, and the launcher: every end it waits for is a pipe that
// the kernel closes.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/program_options.hpp>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "analysis/event_analysis.h"
#include "analysis/json_report.h"
#include "analysis/live_recording.h"
#include "analysis/precision_trace.h"
#include "analysis/report_file.h"
#include "analysis/suppressions.h"
#include "analysis/text_report.h"
#include "proto/ring_room.h"
#include "proto/standard_streams.h"

namespace ops_debug::analysis {
namespace {

namespace po = boost::program_options;

constexpr int kExitFailure = 3;
constexpr size_t kRingBytes = 8 << 20;

struct Options {
  std::string ring, log, format, output;
  std::vector<std::string> read;
  int control_fd = -1;
  int result_fd = -1;
  bool no_cuda_remark = true;
  std::vector<std::string> suppressions, shipped_suppressions;
  bool generate_suppressions = false;
  bool list_kernels = false;
  std::string precision_trace;
  ReplayOptions replays;
  unsigned replay_time_s = 20;
};

// SIGUSR1: whoever waits for the report does not want to wait for replays.
volatile sig_atomic_t g_interrupted = 0;

// False: bad arguments.
bool Parse(int argc, char** argv, Options* options) {
  po::options_description flags;
  flags.add_options()("ring", po::value(&options->ring));
  flags.add_options()("read", po::value(&options->read));
  flags.add_options()("log", po::value(&options->log));
  flags.add_options()("format", po::value(&options->format)->default_value("text"));
  flags.add_options()("output", po::value(&options->output));
  flags.add_options()("suppressions", po::value(&options->suppressions));
  flags.add_options()("shipped-suppressions", po::value(&options->shipped_suppressions));
  flags.add_options()("gen-suppressions", po::bool_switch(&options->generate_suppressions));
  flags.add_options()("precision-trace", po::value(&options->precision_trace));
  flags.add_options()("list-kernels", po::bool_switch(&options->list_kernels));
  flags.add_options()("control-fd", po::value(&options->control_fd));
  flags.add_options()("result-fd", po::value(&options->result_fd));
  flags.add_options()("replay-folder", po::value(&options->replays.folder));
  flags.add_options()("replay-launcher", po::value(&options->replays.launcher));
  flags.add_options()("replayer", po::value(&options->replays.replayer));
  flags.add_options()("replay-checks", po::value(&options->replays.checks));
  flags.add_options()("replay-time", po::value(&options->replay_time_s));
  flags.add_options()("no-cuda-remark", po::value(&options->no_cuda_remark));
  try {
    po::variables_map values;
    po::store(po::parse_command_line(argc, argv, flags), values);
    po::notify(values);
  } catch (const po::error& error) {
    std::cerr << "ops-debug-analyzer: " << error.what() << '\n';
    return false;
  }
  const bool live = !options->ring.empty() && options->control_fd >= 0;
  if (!live && options->read.empty()) {
    std::cerr << "ops-debug-analyzer is started by ops-debug; see ops-debug --help\n";
    return false;
  }
  options->replays.time_limit = std::chrono::seconds(options->replay_time_s);
  return true;
}

class Link {
 public:
  explicit Link(int fd) : fd_(fd) {}
  void Ready(const std::string& ring_name) const { Send("ready\t" + ring_name + '\n'); }
  void Replaying(uint64_t launches) const { Send("replaying\t" + std::to_string(launches) + '\n'); }
  void Hang(uint32_t process_id, const std::string& text) const {
    Send("hang\t" + std::to_string(process_id) + '\t' + text + '\n');
  }
  // Whether the launcher, which waits for the report, is gone.
  bool IsDeaf() const {
    pollfd state{.fd = fd_, .events = 0, .revents = 0};
    return poll(&state, 1, 0) == 1 && (state.revents & (POLLERR | POLLHUP)) != 0;
  }
  void Finish(const proto::Verdict& verdict) const { Send(proto::FormatVerdict(verdict)); }
  int Fail(const std::string& text, const std::string& hint = "") const {
    Send("error\t" + text + '\t' + hint + '\n');
    return kExitFailure;
  }

 private:
  void Send(const std::string& line) const {
    if (fd_ >= 0) WriteAll(fd_, line);
  }
  int fd_;
};

int Run(const Options& options, const Link& link) {
  auto opened =
      ReportFile::Open(options.output, options.read.empty() ? STDERR_FILENO : STDOUT_FILENO);
  if (!opened.ok()) {
    return link.Fail(std::string(opened.status().message()), "choose another --output");
  }
  ReportFile output = std::move(*opened);
  const auto fail = [&](const std::string& message, const std::string& hint = "") {
    output.Discard();
    return link.Fail(message, hint);
  };
  std::optional<ReportFile> trace;
  if (!options.precision_trace.empty()) {
    auto file = ReportFile::Open(options.precision_trace, STDOUT_FILENO);
    if (!file.ok())
      return fail(std::string(file.status().message()), "choose another --precision-trace");
    trace.emplace(std::move(*file));
  }
  // The user's first: what both hide is the user's decision.
  Suppressions suppressions;
  for (const bool shipped : {false, true}) {
    for (const std::string& file : shipped ? options.shipped_suppressions : options.suppressions) {
      const absl::Status status = suppressions.AddFile(file, shipped);
      if (!status.ok()) {
        return fail(std::string(status.message()),
                    "analysis/README.md explains the format; --gen-suppressions writes entries");
      }
    }
  }
  EventAnalysis analysis;
  if (options.read.empty()) {
    std::unique_ptr<RunLog> log;
    if (!options.log.empty()) {
      auto created = RunLog::Open(options.log);
      if (!created.ok()) {
        return fail(std::string(created.status().message()), "choose another --log");
      }
      log = std::move(*created);
    }
    std::string error, note;
    proto::RemoveDeadRings("/dev/shm");
    auto ring = proto::CreateRingWhereRoom(options.ring, kRingBytes, &note, &error);
    if (ring == nullptr) {
      const size_t hint = error.find("; ");
      return hint == std::string::npos ? fail(error)
                                       : fail(error.substr(0, hint), error.substr(hint + 2));
    }
    link.Ready(ring->name());
    RecordLive(*ring, log.get(),
               {.control_fd = options.control_fd,
                .tell_no_cuda = options.no_cuda_remark,
                .ring_note = note,
                .replays = options.replays,
                .tell_replaying = [&](uint64_t launches) { link.Replaying(launches); },
                .tell_hang = [&](uint32_t process_id,
                                 const std::string& text) { link.Hang(process_id, text); },
                .is_interrupted = [&] { return g_interrupted != 0 || link.IsDeaf(); }},
               analysis);
    // The launcher removes it, too, unless it was killed.
    std::error_code ignored;
    if (!options.replays.folder.empty()) {
      std::filesystem::remove_all(options.replays.folder, ignored);
    }
  } else {
    for (const std::string& path : options.read) {
      const absl::Status status = ReadLog(path, analysis);
      if (status.ok()) continue;
      return fail(std::string(status.message()),
                  "give a file that ops-debug wrote with --log FILE, or a folder of such files");
    }
  }
  Report report = analysis.Finish();
  if (trace) {
    const bool csv = options.precision_trace.ends_with(".csv");
    if (const absl::Status status = trace->Write(csv ? WriteTraceCsv(report.conversions)
                                                     : WriteTraceJson(report.conversions));
        !status.ok()) {
      report.remarks.push_back(
          {Severity::kWarning, std::string(status.message()),
           "the trace of conversions is not written; the report holds it, too"});
    }
  }
  suppressions.Apply(report);
  if (options.generate_suppressions) GenerateSuppressions(report);
  const std::string text = options.format == "json"
                               ? WriteJson(report)
                               : WriteText(report, WantsColour(output.fd()), options.list_kernels);
  if (const absl::Status status = output.Write(text); !status.ok()) {
    // What was found must not be lost with the place for it.
    if (!options.output.empty()) WriteAll(STDERR_FILENO, WriteText(report, false));
    return fail(std::string(status.message()),
                options.output.empty() ? "" : "the report stands above instead");
  }
  link.Finish(VerdictOf(report));
  return 0;
}

}  // namespace
}  // namespace ops_debug::analysis

int main(int argc, char** argv) {
  ops_debug::proto::OccupyStandardStreams();
  // Ctrl-C and `timeout` hit the whole process group; the report is wanted just then.
  // A limit on file sizes (SIGXFSZ) costs the file that hits it, nothing else.
  for (const int number : {SIGINT, SIGTERM, SIGQUIT, SIGHUP, SIGPIPE, SIGXFSZ}) {
    signal(number, SIG_IGN);
  }
  signal(SIGUSR1, [](int) { ops_debug::analysis::g_interrupted = 1; });
  // libdw would ask the servers named here for debug files: a report must not depend on the
  // network.
  unsetenv("DEBUGINFOD_URLS");
  ops_debug::analysis::Options options;
  if (!ops_debug::analysis::Parse(argc, argv, &options)) return 2;
  const ops_debug::analysis::Link link(options.result_fd);
  try {
    return ops_debug::analysis::Run(options, link);
  } catch (const std::bad_alloc&) {
    return link.Fail("the analyzer ran out of memory",
                     "is there a limit (ulimit -v, a container)?");
  }
}
