// ops-debug-analyzer: started by ops-debug, not by people.
//
//   live      --ring NAME --control-fd N --result-fd N [--log FILE]   reads until the control pipe
//   closes offline   --read FILE --result-fd N both      --format text|json [--output FILE|-]
//
// It outlives the target however that ends, and the launcher: every end it waits for is a pipe that
// the kernel closes.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/program_options.hpp>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>

#include "analysis/event_analysis.h"
#include "analysis/json_report.h"
#include "analysis/live_recording.h"
#include "analysis/text_report.h"

namespace ops_debug::analysis {
namespace {

namespace po = boost::program_options;

constexpr int kExitFailure = 3;
constexpr size_t kRingBytes = 8 << 20;

struct Options {
  std::string ring, read, log, format, output;
  int control_fd = -1;
  int result_fd = -1;
  bool no_cuda_remark = true;
};

// False: bad arguments.
bool Parse(int argc, char** argv, Options* options) {
  po::options_description flags;
  flags.add_options()("ring", po::value(&options->ring));
  flags.add_options()("read", po::value(&options->read));
  flags.add_options()("log", po::value(&options->log));
  flags.add_options()("format", po::value(&options->format)->default_value("text"));
  flags.add_options()("output", po::value(&options->output));
  flags.add_options()("control-fd", po::value(&options->control_fd));
  flags.add_options()("result-fd", po::value(&options->result_fd));
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
  return true;
}

bool WriteAll(int fd, const std::string& text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t size = write(fd, text.data() + done, text.size() - done);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return false;
    done += static_cast<size_t>(size);
  }
  return true;
}

class Link {
 public:
  explicit Link(int fd) : fd_(fd) {}
  void Ready() const { Send("ready\n"); }
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

bool WantsColour(int fd) {
  const char* terminal = std::getenv("TERM");
  return isatty(fd) == 1 && std::getenv("NO_COLOR") == nullptr && terminal != nullptr &&
         std::strcmp(terminal, "dumb") != 0;
}

// Where the report goes: --output, else stderr in a live run and stdout offline. -1 and errno on
// failure.
int OpenOutput(const Options& options) {
  if (options.output == "-") return STDOUT_FILENO;
  if (options.output.empty()) return options.read.empty() ? STDERR_FILENO : STDOUT_FILENO;
  return open(options.output.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
}

// A run that ends without a report leaves no file that could be taken for one.
void RemoveOutput(const Options& options) {
  struct stat status {};
  if (options.output.empty() || options.output == "-") return;
  if (stat(options.output.c_str(), &status) == 0 && S_ISREG(status.st_mode))
    unlink(options.output.c_str());
}

int Run(const Options& options) {
  const Link link(options.result_fd);
  const auto fail = [&](const std::string& message, const std::string& hint = "") {
    RemoveOutput(options);
    return link.Fail(message, hint);
  };
  // Opened first: a run of hours must not end with "no such directory".
  const int output = OpenOutput(options);
  if (output < 0) {
    return link.Fail("cannot write the report to \"" + options.output + "\": " + strerror(errno),
                     "choose another --output");
  }
  EventAnalysis analysis;
  if (options.read.empty()) {
    std::unique_ptr<proto::LogWriter> log;
    if (!options.log.empty()) {
      auto created = proto::LogWriter::Create(options.log);
      if (!created.ok()) {
        return fail(std::string(created.status().message()), "choose another --log");
      }
      log = std::move(*created);
    }
    std::string error;
    auto ring = proto::RingConsumer::Create(options.ring.c_str(), kRingBytes, &error);
    if (ring == nullptr) {
      const size_t hint = error.find("; ");
      return hint == std::string::npos ? fail(error)
                                       : fail(error.substr(0, hint), error.substr(hint + 2));
    }
    link.Ready();
    RecordLive(*ring, log.get(), {options.control_fd, options.no_cuda_remark}, analysis);
  } else {
    const absl::Status status = ReadLog(options.read, analysis);
    if (!status.ok()) {
      return fail(std::string(status.message()),
                  "give a file that ops-debug wrote with --log FILE");
    }
  }
  const Report report = analysis.Finish();
  const std::string text =
      options.format == "json" ? WriteJson(report) : WriteText(report, WantsColour(output));
  if (!WriteAll(output, text)) {
    return fail(std::string("cannot write the report: ") + strerror(errno),
                "is the disk full, or the reader gone?");
  }
  link.Finish(VerdictOf(report));
  return 0;
}

}  // namespace
}  // namespace ops_debug::analysis

int main(int argc, char** argv) {
  // Ctrl-C and `timeout` hit the whole process group; the report is wanted just then.
  for (const int number : {SIGINT, SIGTERM, SIGQUIT, SIGHUP, SIGPIPE}) signal(number, SIG_IGN);
  // libdw would ask the servers named here for debug files: a report must not depend on the
  // network.
  unsetenv("DEBUGINFOD_URLS");
  ops_debug::analysis::Options options;
  if (!ops_debug::analysis::Parse(argc, argv, &options)) return 2;
  return ops_debug::analysis::Run(options);
}
