// Checks each flag's value and says what it should have been.
#include "launcher/run_options.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <filesystem>
#include <set>

#include "proto/kernel_name_pattern.h"

namespace ops_debug::launcher {
namespace {

template <class Number>
bool ParseNumber(const std::string& text, Number* number) {
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, *number);
  return !text.empty() && result.ec == std::errc() && result.ptr == end;
}

Problem BadValue(const std::string& flag, const std::string& value, const std::string& expected) {
  return {"--" + flag + " " + (value.empty() ? "\"\"" : value) + ": expected " + expected, ""};
}

// "text or json".
std::string Alternatives(const std::vector<std::string>& words) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0) text += i + 1 == words.size() ? " or " : ", ";
    text += words[i];
  }
  return text;
}

// Reads a flag that takes one of a few words.
std::optional<Problem> ReadWord(const FlagValues& values, const std::string& flag,
                                const std::vector<std::string>& words, std::string* value) {
  *value = values.Get(flag, *value);
  if (std::find(words.begin(), words.end(), *value) != words.end()) return std::nullopt;
  return BadValue(flag, *value, Alternatives(words));
}

// "64M", "1G", "4096".
bool ParseSize(const std::string& text, uint64_t* bytes) {
  if (text.empty()) return false;
  std::string digits = text;
  uint32_t shift = 0;
  switch (digits.back()) {
    case 'K':
    case 'k':
      shift = 10;
      break;
    case 'M':
    case 'm':
      shift = 20;
      break;
    case 'G':
    case 'g':
      shift = 30;
      break;
    default:
      break;
  }
  if (shift != 0) digits.pop_back();
  if (!ParseNumber(digits, bytes) || *bytes > ~uint64_t{0} >> shift) return false;
  *bytes <<= shift;
  return true;
}

std::optional<Problem> ReadDevice(const FlagValues& values, DeviceChoice* device) {
  const std::string text = values.Get("device", "auto");
  if (text == "auto") return std::nullopt;
  if (text == "emulator") {
    device->kind = DeviceKind::kEmulator;
    return std::nullopt;
  }
  device->kind = DeviceKind::kGpu;
  if (text == "gpu") return std::nullopt;
  uint32_t index = 0;
  if (text.rfind("gpu:", 0) == 0 && ParseNumber(text.substr(4), &index)) {
    device->index = index;
    return std::nullopt;
  }
  return BadValue("device", text, "auto, gpu, gpu:N or emulator");
}

// Names are the emulator's to know; here they only have to look like names.
std::optional<Problem> ReadEmulate(const FlagValues& values, RunOptions* options) {
  if (!values.Has("emulate")) return std::nullopt;
  options->emulate = values.Get("emulate");
  const bool is_list =
      !options->emulate.empty() &&
      std::all_of(options->emulate.begin(), options->emulate.end(), [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == ',' || c == '-';
      });
  if (!is_list) {
    return BadValue("emulate", options->emulate, "models of GPUs, such as sm_80 or h100,h100");
  }
  if (options->device.kind == DeviceKind::kGpu) {
    return Problem{"--emulate and --device gpu exclude each other",
                   "leave --device away, or give --device emulator"};
  }
  options->device.kind = DeviceKind::kEmulator;
  return std::nullopt;
}

// --replay has two uses: a number is a schedule of the emulator, on and off are about launches
// that a GPU cannot decide.
bool NamesSchedule(const FlagValues& values, const std::string& flag) {
  const std::string text = values.Get(flag);
  return values.Has(flag) && (flag != "replay" || (text != "on" && text != "off"));
}

// Chosen schedules need the emulator: a GPU's scheduler cannot be told what to do.
std::optional<Problem> ReadSchedule(const FlagValues& values, RunOptions* options) {
  std::string given;
  for (const char* flag : {"schedule-seed", "schedules", "replay"}) {
    if (!NamesSchedule(values, flag)) continue;
    if (!given.empty()) {
      return Problem{"--" + given + " and --" + flag + " exclude each other",
                     "--schedules looks for a schedule that fails, --replay runs that one again"};
    }
    given = flag;
    const std::string text = values.Get(flag);
    uint64_t number = 0;
    if (!ParseNumber(text, &number) || number == 0) {
      return BadValue(flag, text,
                      given == "replay" ? "on, off, or the number of a schedule, from 1 on"
                                        : "a number from 1 on");
    }
    (given == "schedules" ? options->schedules : options->schedule_seed) = number;
  }
  if (!given.empty() && options->device.kind == DeviceKind::kGpu) {
    return Problem{"--" + given + " needs the emulator: the schedule of a GPU cannot be chosen",
                   "give --device emulator, or leave --device away"};
  }
  if (!given.empty()) options->device.kind = DeviceKind::kEmulator;
  return std::nullopt;
}

// Replays of launches.
std::optional<Problem> ReadReplays(const FlagValues& values, RunOptions* options) {
  options->replay = values.Get("replay") != "off";
  if (values.Has("replay-memory")) {
    const std::string text = values.Get("replay-memory");
    if (!ParseSize(text, &options->replay_memory_bytes) || options->replay_memory_bytes == 0) {
      return BadValue("replay-memory", text, "a size in bytes, or with K, M or G behind it");
    }
  }
  if (values.Has("replay-time")) {
    const std::string text = values.Get("replay-time");
    constexpr uint64_t kLongest_s = 86400;
    if (!ParseNumber(text, &options->replay_time_s) || options->replay_time_s == 0 ||
        options->replay_time_s > kLongest_s) {
      return BadValue("replay-time", text, "seconds from 1 to " + std::to_string(kLongest_s));
    }
  }
  return ReadWord(values, "race-memory", {"all", "shared"}, &options->race_memory);
}

// A number from `least` on.
std::optional<Problem> ReadCount(const FlagValues& values, const std::string& flag, uint64_t least,
                                 std::optional<uint64_t>* count) {
  if (!values.Has(flag)) return std::nullopt;
  const std::string text = values.Get(flag);
  uint64_t number = 0;
  if (!ParseNumber(text, &number) || number < least) {
    return BadValue(flag, text, "a number from " + std::to_string(least) + " on");
  }
  *count = number;
  return std::nullopt;
}

std::vector<std::string> SplitAtCommas(const std::string& text) {
  std::vector<std::string> words(1);
  for (const char c : text) {
    if (c == ',') {
      words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  return words;
}

// --check, --check-sync and, where memory is not checked anyway, --check-boundary.
std::optional<Problem> ReadChecks(const FlagValues& values, const std::string& default_checks,
                                  RunOptions* options) {
  const std::vector<std::string> names = {"memory", "race", "sync", "init", "precision"};
  std::vector<std::string> known = names;
  known.insert(known.end(), {"all", "none"});
  std::set<std::string> chosen;
  bool none = false;
  const auto add = [&](const std::string& list) -> std::optional<Problem> {
    for (const std::string& word : SplitAtCommas(list)) {
      if (std::find(known.begin(), known.end(), word) == known.end()) {
        Problem problem = BadValue("check", list, Alternatives(known) + ", several with commas");
        if (const auto near = Nearest(word, known)) problem.hint = "did you mean " + *near + '?';
        return problem;
      }
      none |= word == "none";
      if (word == "all") chosen.insert(names.begin(), names.end());
      if (word != "all" && word != "none") chosen.insert(word);
    }
    return std::nullopt;
  };
  const bool adds_sync = values.Has("check-sync");
  if (values.Has("check") || !adds_sync) {
    if (auto problem = add(values.Get("check", default_checks))) return problem;
  }
  if (adds_sync) add("race,sync,init");
  if (values.Has("check-boundary")) add("memory");
  if (none && !chosen.empty()) {
    return Problem{"--check none and other checks exclude each other",
                   "name the checks that you want, or none alone"};
  }
  options->checks.clear();
  for (const std::string& name : names) {
    if (!chosen.contains(name)) continue;
    options->checks += (options->checks.empty() ? "" : ",") + name;
  }
  if (options->checks.empty()) options->checks = "none";
  return std::nullopt;
}

// --trace-fp16-to-fp32 and --precision-trace: what the check for precision counts besides faults.
std::optional<Problem> ReadTrace(const FlagValues& values, RunOptions* options) {
  const bool table = values.Has("trace-fp16-to-fp32");
  options->trace_conversions = table || !options->report.precision_trace.empty();
  if (!options->trace_conversions || options->Has("precision")) return std::nullopt;
  return Problem{std::string(table ? "--trace-fp16-to-fp32" : "--precision-trace") +
                     " belongs to the check \"precision\"; chosen: " + options->checks,
                 "add it: --check precision, or ops-debug check-precision"};
}

// Which launches are checked.
std::optional<Problem> ReadFilters(const FlagValues& values, RunOptions* options) {
  if (values.Has("kernel-name")) {
    options->kernel_name = values.Get("kernel-name");
    if (options->kernel_name.empty()) {
      return BadValue("kernel-name", "", "a regular expression, such as \"gemm|softmax\"");
    }
    proto::PatternError error;
    if (!proto::CompileKernelNamePattern(options->kernel_name, &error)) {
      return Problem{"--kernel-name: " + error.text + " (character " +
                         std::to_string(error.position) + ")\n  " + options->kernel_name + "\n  " +
                         std::string(error.position - 1, ' ') + '^',
                     "a \\ before ( ) [ ] { } * + ? . | $ ^ takes the character as it is"};
    }
  }
  if (auto problem = ReadCount(values, "launch-skip", 0, &options->launch_skip)) return problem;
  if (auto problem = ReadCount(values, "launch-count", 1, &options->launch_count)) return problem;
  if (values.Has("sample")) {
    const std::string text = values.Get("sample");
    uint64_t number = 0;
    if (text.rfind("1/", 0) != 0 || !ParseNumber(text.substr(2), &number) || number == 0) {
      return BadValue("sample", text, "1/N with N from 1 on, such as 1/100");
    }
    options->sample = number;
  }
  return std::nullopt;
}

// What is read where the kernel runs needs its rewritten PTX.
std::optional<Problem> NeedsRewriting(const RunOptions& options, const std::string& flag) {
  const std::vector<std::string> checks = SplitAtCommas(options.checks);
  if (std::find(checks.begin(), checks.end(), "memory") != checks.end() &&
      options.engine != "sass" && options.rewrite != "null") {
    return std::nullopt;
  }
  return Problem{"--" + flag + " needs kernels whose PTX is rewritten for memory checking",
                 "give --check memory, or all, and leave --engine and --rewrite away"};
}

std::optional<Problem> ReadCaptureLaunch(const FlagValues& values, RunOptions* options) {
  if (!values.Has("capture-launch")) return std::nullopt;
  const std::string file = values.Get("capture-launch");
  std::error_code error;
  options->capture_launch = std::filesystem::absolute(file, error).string();
  if (file.empty() || error || std::filesystem::is_directory(options->capture_launch, error)) {
    return BadValue("capture-launch", file, "a file name");
  }
  // It is the only one, so it may be large.
  constexpr uint64_t kMost_bytes = 1900ull << 20;  // one protobuf message
  if (!values.Has("replay-memory")) options->replay_memory_bytes = kMost_bytes;
  return NeedsRewriting(*options, "capture-launch");
}

std::optional<Problem> ReadCapture(const FlagValues& values, RunOptions* options) {
  for (const char* flag : {"capture-folder", "capture-memory"}) {
    if (values.Has(flag) && !values.Has("capture")) {
      return Problem{std::string("--") + flag + " goes with --capture REGEX",
                     "--capture . captures the tensors of every kernel"};
    }
  }
  if (!values.Has("capture")) return std::nullopt;
  options->capture_tensors = values.Get("capture");
  proto::PatternError wrong;
  if (options->capture_tensors.empty() ||
      !proto::CompileKernelNamePattern(options->capture_tensors, &wrong)) {
    return Problem{"--capture " + options->capture_tensors + ": " +
                       (wrong.text.empty() ? "empty" : wrong.text),
                   "a regular expression that is found in the names of kernels; . finds all"};
  }
  std::error_code error;
  const std::string folder = values.Get("capture-folder", "ops-debug-capture");
  options->capture_folder = std::filesystem::absolute(folder, error).string();
  if (folder.empty() || error ||
      (std::filesystem::exists(options->capture_folder, error) &&
       !std::filesystem::is_empty(options->capture_folder, error))) {
    return Problem{"--capture-folder " + folder + ": not a new or empty folder",
                   "name another one, or remove what an earlier run left there"};
  }
  if (values.Has("capture-memory") &&
      !ParseSize(values.Get("capture-memory"), &options->capture_bytes)) {
    return BadValue("capture-memory", values.Get("capture-memory"),
                    "a size in bytes, or with K, M or G behind it");
  }
  return NeedsRewriting(*options, "capture");
}

}  // namespace

bool RunOptions::Has(const std::string& check) const {
  const std::vector<std::string> names = SplitAtCommas(checks);
  return std::find(names.begin(), names.end(), check) != names.end();
}

std::string RunOptions::ReplayChecks() const {
  std::string kept;
  for (const std::string& name : SplitAtCommas(checks)) {
    // Memory and numbers are checked exactly where the launch runs.
    if (name != "memory" && name != "precision" && name != "none")
      kept += (kept.empty() ? "" : ",") + name;
  }
  return kept;
}

bool WantsReplays(const RunOptions& options, DeviceKind device) {
  return options.replay && options.rewrite == "checks" && !options.ReplayChecks().empty() &&
         (device == DeviceKind::kGpu || options.engine == "ptx");
}

std::variant<ReportOptions, Problem> ReadReportOptions(const FlagValues& values) {
  ReportOptions options;
  if (auto problem = ReadWord(values, "format", {"text", "json"}, &options.format)) return *problem;
  options.output = values.Get("output");
  if (values.Has("output") && options.output.empty()) {
    return BadValue("output", "", "a file name, or - for stdout");
  }
  if (values.Has("error-exitcode")) {
    const std::string text = values.Get("error-exitcode");
    if (!ParseNumber(text, &options.error_exit_code) || options.error_exit_code < 0 ||
        options.error_exit_code > 255) {
      return BadValue("error-exitcode", text, "a number from 0 to 255");
    }
  }
  if (values.Has("require-coverage")) {
    const std::string text = values.Get("require-coverage");
    double percent = 0;
    if (!ParseNumber(text, &percent) || !(percent >= 0 && percent <= 100)) {
      return BadValue("require-coverage", text, "a percentage from 0 to 100");
    }
    options.required_coverage_percent = percent;
  }
  options.suppressions = values.All("suppressions");
  for (const std::string& file : options.suppressions) {
    if (file.empty()) return BadValue("suppressions", "", "a file name");
  }
  options.generate_suppressions = values.Has("gen-suppressions");
  options.list_kernels = values.Has("list-kernels");
  options.precision_trace = values.Get("precision-trace");
  if (values.Has("precision-trace") && options.precision_trace.empty())
    return BadValue("precision-trace", "", "a file name");
  return options;
}

std::variant<RunOptions, Problem> ReadRunOptions(const FlagValues& values,
                                                 const std::string& default_checks) {
  RunOptions options;
  auto report = ReadReportOptions(values);
  if (auto* problem = std::get_if<Problem>(&report)) return *problem;
  options.report = std::get<ReportOptions>(report);
  if (auto problem = ReadDevice(values, &options.device)) return *problem;
  if (auto problem = ReadEmulate(values, &options)) return *problem;
  if (auto problem = ReadSchedule(values, &options)) return *problem;
  if (auto problem = ReadChecks(values, default_checks, &options)) return *problem;
  if (auto problem = ReadTrace(values, &options)) return *problem;
  if (auto problem = ReadWord(values, "rewrite", {"checks", "null"}, &options.rewrite)) {
    return *problem;
  }
  if (auto problem = ReadWord(values, "on-error", {"skip", "trap"}, &options.on_error)) {
    return *problem;
  }
  if (auto problem = ReadWord(values, "engine", {"auto", "ptx", "sass"}, &options.engine)) {
    return *problem;
  }
  if (options.engine == "sass" && options.checks != "memory" && options.checks != "none") {
    return Problem{
        "--engine sass checks memory only; --check " + options.checks + " needs the kernels' PTX",
        "leave --engine away: kernels with PTX get every check, the others memory"};
  }
  std::string tensors = "on";
  if (auto problem = ReadWord(values, "tensors", {"on", "off"}, &tensors)) return *problem;
  options.tensors = tensors == "on";
  options.leak_check = values.Has("leak-check");
  options.ptx_store = values.Get("ptx-store");
  if (values.Has("ptx-store") && options.ptx_store.empty()) {
    return BadValue("ptx-store", "", "a folder, or none");
  }
  if (auto problem = ReadFilters(values, &options)) return *problem;
  if (auto problem = ReadReplays(values, &options)) return *problem;
  if (auto problem = ReadCaptureLaunch(values, &options)) return *problem;
  if (auto problem = ReadCapture(values, &options)) return *problem;
  options.log = values.Get("log");
  if (values.Has("log") && options.log.empty()) return BadValue("log", "", "a file name");
  if (values.Has("quarantine-size")) {
    const std::string text = values.Get("quarantine-size");
    uint64_t bytes = 0;
    if (!ParseSize(text, &bytes)) {
      return BadValue("quarantine-size", text, "a size in bytes, or with K, M or G behind it");
    }
    options.quarantine_bytes = bytes;
  }
  return options;
}

}  // namespace ops_debug::launcher
