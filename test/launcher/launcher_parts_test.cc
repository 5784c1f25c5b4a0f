// The launcher's parts that need no process: flags, values, suggestions, exit codes, environment.
#include <catch2/catch.hpp>

#include "launcher/diagnostics.h"
#include "launcher/environment.h"
#include "launcher/exit_code.h"
#include "launcher/flags.h"
#include "launcher/run_options.h"

namespace ops_debug::launcher {
namespace {

using Words = std::vector<std::string>;

std::variant<FlagValues, Problem> ParseRun(const Words& words) {
  return ParseFlags(words, {kRunFlags, kCheckFlags, kKernelFlags});
}

FlagValues Values(const Words& words) {
  auto values = ParseRun(words);
  REQUIRE(std::holds_alternative<FlagValues>(values));
  return std::get<FlagValues>(values);
}

Problem ProblemOf(const Words& words) {
  auto values = ParseRun(words);
  if (auto* problem = std::get_if<Problem>(&values)) return *problem;
  auto options = ReadRunOptions(std::get<FlagValues>(values));
  REQUIRE(std::holds_alternative<Problem>(options));
  return std::get<Problem>(options);
}

RunOptions Options(const Words& words) {
  auto options = ReadRunOptions(Values(words));
  REQUIRE(std::holds_alternative<RunOptions>(options));
  return std::get<RunOptions>(options);
}

TEST_CASE("flags are read up to the separator, the rest is the program's") {
  const FlagValues values =
      Values({"--log", "a.odlog", "--format=json", "--", "prog", "--log", "b", "--"});
  REQUIRE(values.Get("log") == "a.odlog");
  REQUIRE(values.Get("format") == "json");
  REQUIRE(values.has_separator);
  REQUIRE(values.command == Words{"prog", "--log", "b", "--"});
}

TEST_CASE("repeatable flags keep every value, in order, whatever it looks like") {
  const FlagValues values =
      Values({"--arg", "n=4", "--arg=k=-1", "--input-shape", "8x8", "--debug-build"});
  REQUIRE(values.All("arg") == Words{"n=4", "k=-1"});
  REQUIRE(values.All("input-shape") == Words{"8x8"});
  REQUIRE(values.Has("debug-build"));
  REQUIRE_FALSE(values.Has("check-boundary"));
}

TEST_CASE("a misspelt flag gets the nearest one suggested") {
  const Problem problem = ProblemOf({"--ouput", "x"});
  REQUIRE(problem.text == "unknown flag --ouput");
  REQUIRE(problem.hint == "did you mean --output?");
}

TEST_CASE("flags are never guessed from their beginnings") {
  REQUIRE(ProblemOf({"--form", "json"}).text == "unknown flag --form");
}

TEST_CASE("a flag that is given twice or without its value is refused") {
  REQUIRE(ProblemOf({"--log", "a", "--log", "b"}).exit_code == kExitUsage);
  REQUIRE(ProblemOf({"--log"}).exit_code == kExitUsage);
}

TEST_CASE("bad values are refused with what was expected") {
  const auto [words, text] = GENERATE(table<Words, std::string>({
      {{"--emulate", "sm 80"},
       "--emulate sm 80: expected models of GPUs, such as sm_80 or h100,h100"},
      {{"--emulate", "sm_80", "--device", "gpu"}, "--emulate and --device gpu exclude each other"},
      {{"--device", "tpu"}, "--device tpu: expected auto, gpu, gpu:N or emulator"},
      {{"--device", "gpu:x"}, "--device gpu:x: expected auto, gpu, gpu:N or emulator"},
      {{"--device", "gpu:"}, "--device gpu:: expected auto, gpu, gpu:N or emulator"},
      {{"--format", "xml"}, "--format xml: expected text or json"},
      {{"--check", "rase"},
       "--check rase: expected memory, race, sync, init, precision, all or none, several with "
       "commas"},
      {{"--check", "race,,init"},
       "--check race,,init: expected memory, race, sync, init, precision, all or none, several "
       "with commas"},
      {{"--check", ""},
       "--check \"\": expected memory, race, sync, init, precision, all or none, several with "
       "commas"},
      {{"--check", "none,race"}, "--check none and other checks exclude each other"},
      {{"--check", "none", "--check-sync"}, "--check none and other checks exclude each other"},
      {{"--check", "memory,race", "--engine", "sass"},
       "--engine sass checks memory only; --check memory,race needs the kernels' PTX"},
      {{"--on-error", "stop"}, "--on-error stop: expected skip or trap"},
      {{"--rewrite", "all"}, "--rewrite all: expected checks or null"},
      {{"--error-exitcode", "256"}, "--error-exitcode 256: expected a number from 0 to 255"},
      {{"--error-exitcode", "7x"}, "--error-exitcode 7x: expected a number from 0 to 255"},
      {{"--require-coverage", "101"},
       "--require-coverage 101: expected a percentage from 0 to 100"},
      {{"--require-coverage", "nan"},
       "--require-coverage nan: expected a percentage from 0 to 100"},
      {{"--engine", "ptxas"}, "--engine ptxas: expected auto, ptx or sass"},
      {{"--tensors", "yes"}, "--tensors yes: expected on or off"},
      {{"--launch-skip", "-1"}, "--launch-skip -1: expected a number from 0 on"},
      {{"--launch-count", "0"}, "--launch-count 0: expected a number from 1 on"},
      {{"--sample", "1/0"}, "--sample 1/0: expected 1/N with N from 1 on, such as 1/100"},
      {{"--sample", "100"}, "--sample 100: expected 1/N with N from 1 on, such as 1/100"},
      {{"--ptx-store", ""}, "--ptx-store \"\": expected a folder, or none"},
      {{"--suppressions", ""}, "--suppressions \"\": expected a file name"},
      {{"--kernel-name", ""},
       "--kernel-name \"\": expected a regular expression, such as \"gemm|softmax\""},
      {{"--quarantine-size", "1T"},
       "--quarantine-size 1T: expected a size in bytes, or with K, M or G behind it"},
      {{"--quarantine-size", "99999999999999999999"},
       "--quarantine-size 99999999999999999999: expected a size in bytes, or with K, M or G behind "
       "it"},
      {{"--quarantine-size", "18446744073709551615G"},
       "--quarantine-size 18446744073709551615G: expected a size in bytes, or with K, M or G "
       "behind it"},
  }));
  REQUIRE(ProblemOf(words).text == text);
}

TEST_CASE("conversions are counted where precision is checked, for a table or a file") {
  REQUIRE(Options({"--check", "precision", "--trace-fp16-to-fp32"}).trace_conversions);
  REQUIRE(Options({"--check", "all", "--precision-trace", "t.csv"}).trace_conversions);
  REQUIRE(Options({"--check", "all", "--precision-trace", "t.csv"}).report.precision_trace ==
          "t.csv");
  REQUIRE_FALSE(Options({"--check", "precision"}).trace_conversions);
  REQUIRE(ProblemOf({"--precision-trace", "t.csv"}).text ==
          "--precision-trace belongs to the check \"precision\"; chosen: memory");
}

TEST_CASE("checks are chosen by a list, in whatever order, and by --check-sync") {
  const auto [words, checks] = GENERATE(table<Words, std::string>({
      {Words{}, "memory"},
      {{"--check", "memory"}, "memory"},
      {{"--check", "none"}, "none"},
      {{"--check", "all"}, "memory,race,sync,init,precision"},
      {{"--check", "init,race,race"}, "race,init"},
      {{"--check", "race,sync,init,memory"}, "memory,race,sync,init"},
      {{"--check", "all,race"}, "memory,race,sync,init,precision"},
      {{"--check-sync"}, "race,sync,init"},
      {{"--check", "memory", "--check-sync"}, "memory,race,sync,init"},
      {{"--check", "race", "--engine", "ptx"}, "race"},
  }));
  REQUIRE(Options(words).checks == checks);
}

TEST_CASE("a command has its own checks, which --check replaces and --check-boundary adds to") {
  const auto checks = [](const Words& words) {
    return std::get<RunOptions>(ReadRunOptions(Values(words), "race,sync,init")).checks;
  };
  REQUIRE(checks({}) == "race,sync,init");
  REQUIRE(checks({"--check", "all"}) == "memory,race,sync,init,precision");
  REQUIRE(checks({"--check", "race"}) == "race");
  REQUIRE(checks({"--check-boundary"}) == "memory,race,sync,init");
}

TEST_CASE("a misspelt check gets the nearest one suggested") {
  REQUIRE(ProblemOf({"--check", "memory,rase"}).hint == "did you mean race?");
}

TEST_CASE("a wrong regular expression is shown with the place of the mistake") {
  const auto [pattern, mistake, position] = GENERATE(table<std::string, std::string, size_t>({
      {"gemm(a", "this ( is never closed", 5},
      {"gemm)a", "this ) closes nothing", 5},
      {"(a)[bc", "this [ is never closed", 4},
      {"[(]a)", "this ) closes nothing", 5},
      {"ab|*c", "nothing to repeat", 4},
      {"ab{3,1}c", "bad repeat count", 3},
      {"a[z-b]", "range whose end lies before its beginning", 4},
      {"ab\\", "unfinished escape", 3},
      {"(a)\\1", "back-references are not supported", 5},
  }));
  const Problem problem = ProblemOf({"--kernel-name", pattern});
  REQUIRE(problem.exit_code == kExitUsage);
  REQUIRE(problem.text == "--kernel-name: " + mistake + " (character " + std::to_string(position) +
                              ")\n  " + pattern + "\n  " + std::string(position - 1, ' ') + "^");
}

TEST_CASE("regular expressions of kernel names are ECMAScript's") {
  for (const char* pattern :
       {"gemm|softmax", "^_Z\\d+foo", "void f<\\(int\\)3>", "[a-z]{2,3}?", "\\]"}) {
    REQUIRE(Options({"--kernel-name", pattern}).kernel_name == pattern);
  }
}

Environment TargetVariables(const Environment& inherited, const RunOptions& options,
                            Installation installation = {}) {
  installation.preload_library = "/bin/sh";  // any file that can be read
  const auto made =
      TargetEnvironment(inherited, installation, options, {.kind = DeviceKind::kGpu}, "a-ring");
  REQUIRE(std::holds_alternative<Environment>(made));
  return std::get<Environment>(made);
}

TEST_CASE("what a run is asked to do reaches the target by its environment") {
  const Environment target = TargetVariables(
      {}, Options({"--engine=sass", "--tensors=off", "--kernel-name=gemm", "--launch-skip=3",
                   "--launch-count=2", "--sample=1/7", "--leak-check", "--ptx-store=/keep/it"}));
  REQUIRE(target.at("OPS_DEBUG_ENGINE") == "sass");
  REQUIRE(target.at("OPS_DEBUG_TENSORS") == "0");
  REQUIRE(target.at("OPS_DEBUG_KERNEL_NAME") == "gemm");
  REQUIRE(target.at("OPS_DEBUG_LAUNCH_SKIP") == "3");
  REQUIRE(target.at("OPS_DEBUG_LAUNCH_COUNT") == "2");
  REQUIRE(target.at("OPS_DEBUG_SAMPLE") == "7");
  REQUIRE(target.at("OPS_DEBUG_LEAK_CHECK") == "1");
  REQUIRE(target.at("OPS_DEBUG_PTX_STORE") == "/keep/it");
}

TEST_CASE("what a run is not asked to do is not left over from an outer one") {
  const Environment target = TargetVariables({{"OPS_DEBUG_KERNEL_NAME", "gemm"},
                                              {"OPS_DEBUG_LAUNCH_SKIP", "1"},
                                              {"OPS_DEBUG_LAUNCH_COUNT", "1"},
                                              {"OPS_DEBUG_SAMPLE", "2"},
                                              {"OPS_DEBUG_LEAK_CHECK", "1"},
                                              {"OPS_DEBUG_REPLAY_FOLDER", "/outer"},
                                              {"OPS_DEBUG_REPLAY_MEMORY", "1"},
                                              {"OPS_DEBUG_RACE_MEMORY", "shared"},
                                              {"OPS_DEBUG_PTX_STORE", "/outer"}},
                                             {});
  for (const char* name : {"KERNEL_NAME", "LAUNCH_SKIP", "LAUNCH_COUNT", "SAMPLE", "LEAK_CHECK",
                           "PTX_STORE", "REPLAY_FOLDER", "REPLAY_MEMORY", "RACE_MEMORY"}) {
    CAPTURE(name);
    REQUIRE(target.count(std::string("OPS_DEBUG_") + name) == 0);
  }
  REQUIRE(target.at("OPS_DEBUG_ENGINE") == "auto");
  REQUIRE(target.at("OPS_DEBUG_TENSORS") == "1");
}

TEST_CASE(
    "the driver loads the library into children that lost LD_PRELOAD, if nobody else has the "
    "place") {
  const Environment target = TargetVariables({}, {});
  REQUIRE(target.at("CUDA_INJECTION64_PATH") == "/bin/sh");
  REQUIRE(target.at("OPS_DEBUG_LIBRARY") == "/bin/sh");
  const Environment taken = TargetVariables({{"CUDA_INJECTION64_PATH", "/other/tool.so"}}, {});
  REQUIRE(taken.at("CUDA_INJECTION64_PATH") == "/other/tool.so");
}

TEST_CASE("our Python package stands in front of the user's path, if it is installed") {
  Installation installation;
  installation.python_folder = "/";
  REQUIRE(TargetVariables({}, {}, installation).at("PYTHONPATH") == "/");
  REQUIRE(TargetVariables({{"PYTHONPATH", "/mine"}}, {}, installation).at("PYTHONPATH") ==
          "/:/mine");
  installation.python_folder = "/no/such/folder";
  REQUIRE(TargetVariables({}, {}, installation).count("PYTHONPATH") == 0);
}

TEST_CASE("PTX is kept in the user's cache folder unless another is named") {
  REQUIRE(PtxStoreFolder({{"HOME", "/home/me"}}, "") == "/home/me/.cache/ops-debug/ptx");
  REQUIRE(PtxStoreFolder({{"HOME", "/home/me"}, {"XDG_CACHE_HOME", "/fast"}}, "") ==
          "/fast/ops-debug/ptx");
  REQUIRE(PtxStoreFolder({{"HOME", "/home/me"}, {"XDG_CACHE_HOME", "relative"}}, "") ==
          "/home/me/.cache/ops-debug/ptx");
  REQUIRE(PtxStoreFolder({}, "").empty());
  REQUIRE(PtxStoreFolder({{"HOME", "/home/me"}}, "none").empty());
  REQUIRE(PtxStoreFolder({}, "/a/store") == "/a/store");
  REQUIRE(PtxStoreFolder({}, "store").front() == '/');
}

TEST_CASE("the second engine is refused on the emulator") {
  RunOptions options;
  options.engine = "sass";
  Installation installation;
  installation.preload_library = "/bin/sh";
  const auto made =
      TargetEnvironment({}, installation, options, {.kind = DeviceKind::kEmulator}, "a-ring");
  REQUIRE(std::get<Problem>(made).text ==
          "--engine sass needs an NVIDIA GPU: the emulator executes PTX");
}

TEST_CASE("values are typed") {
  const RunOptions options =
      Options({"--device=gpu:2", "--quarantine-size=64M", "--require-coverage=99.5",
               "--error-exitcode=0", "--rewrite=null", "--on-error=trap"});
  REQUIRE(options.device.kind == DeviceKind::kGpu);
  REQUIRE(options.device.index == 2u);
  REQUIRE(options.quarantine_bytes == 64ull << 20);
  REQUIRE(options.report.required_coverage_percent == 99.5);
  REQUIRE(options.report.error_exit_code == 0);
  REQUIRE(options.rewrite == "null");
  REQUIRE(options.on_error == "trap");
}

TEST_CASE("launches are replayed where the device leaves something open") {
  const auto wants = [](const Words& words, DeviceKind device) {
    return WantsReplays(Options(words), device);
  };
  REQUIRE(wants({"--check", "all"}, DeviceKind::kGpu));
  REQUIRE(wants({"--check", "init"}, DeviceKind::kGpu));
  REQUIRE(wants({"--check", "race", "--engine", "ptx"}, DeviceKind::kEmulator));
  REQUIRE_FALSE(wants({"--check", "race"}, DeviceKind::kEmulator));
  REQUIRE_FALSE(wants({"--check", "memory"}, DeviceKind::kGpu));
  REQUIRE_FALSE(wants({"--check", "none"}, DeviceKind::kGpu));
  REQUIRE_FALSE(wants({"--check", "race", "--rewrite", "null"}, DeviceKind::kGpu));
  REQUIRE_FALSE(wants({"--check", "race", "--replay", "off"}, DeviceKind::kGpu));
  REQUIRE(Options({"--check", "all"}).ReplayChecks() == "race,sync,init");
}

TEST_CASE("--replay is a switch or a schedule's number") {
  REQUIRE(Options({"--replay", "on"}).replay);
  REQUIRE_FALSE(Options({"--replay", "off", "--schedule-seed", "3"}).replay);
  const RunOptions options = Options({"--replay", "7"});
  REQUIRE(options.replay);
  REQUIRE(options.schedule_seed == 7);
  REQUIRE(ProblemOf({"--replay", "no"}).text ==
          "--replay no: expected on, off, or the number of a schedule, from 1 on");
}

TEST_CASE("replays have a budget, and races a place") {
  const RunOptions options =
      Options({"--replay-memory", "1G", "--replay-time", "5", "--race-memory", "shared"});
  REQUIRE(options.replay_memory_bytes == uint64_t{1} << 30);
  REQUIRE(options.replay_time_s == 5);
  REQUIRE(options.race_memory == "shared");
  REQUIRE(ProblemOf({"--replay-memory", "0"}).text.starts_with("--replay-memory 0: expected"));
  REQUIRE(ProblemOf({"--replay-time", "-1"}).text.starts_with("--replay-time -1: expected"));
  REQUIRE(ProblemOf({"--race-memory", "global"}).text ==
          "--race-memory global: expected all or shared");
}

TEST_CASE("suggestions are near misses only") {
  const Words commands = {"check-memory", "run", "report"};
  REQUIRE(Nearest("reprot", commands) == "report");
  REQUIRE(Nearest("memory", commands) == "check-memory");
  REQUIRE(Nearest("check-memroy", commands) == "check-memory");
  REQUIRE_FALSE(Nearest("xyzzy", commands).has_value());
  REQUIRE_FALSE(Nearest("", commands).has_value());
}

TEST_CASE("the heaviest reason decides the exit code") {
  const auto [program, verdict, expected] = GENERATE(table<int, proto::Verdict, int>({
      {0, {}, 0},
      {7, {.launches = 2, .checked_launches = 2}, 7},
      {139, {}, 139},
      {0, {.findings = 1, .launches = 1, .checked_launches = 1}, 86},
      {7, {.findings = 1, .launches = 1, .checked_launches = 1, .tool_errors = 1}, 86},
      {0, {.launches = 1, .checked_launches = 1, .tool_errors = 1}, 3},
      {7, {.launches = 5}, 4},
      {0, {.launches = 5, .checked_launches = 1}, 0},
  }));
  REQUIRE(DecideExitCode(program, verdict, {}, true).code == expected);
}

TEST_CASE("--error-exitcode chooses the code, and 0 lets the program's stand") {
  const proto::Verdict verdict{.findings = 1, .launches = 1, .checked_launches = 1};
  ReportOptions options;
  options.error_exit_code = 99;
  REQUIRE(DecideExitCode(5, verdict, options, true).code == 99);
  options.error_exit_code = 0;
  REQUIRE(DecideExitCode(5, verdict, options, true).code == 5);
}

TEST_CASE("--require-coverage fails a run of which less was checked, or that launched nothing") {
  ReportOptions options;
  options.required_coverage_percent = 75;
  REQUIRE(DecideExitCode(0, {.launches = 4, .checked_launches = 3}, options, true).code == 0);
  const ExitDecision low = DecideExitCode(0, {.launches = 4, .checked_launches = 2}, options, true);
  REQUIRE(low.code == 4);
  REQUIRE(low.problem->text == "only 50% of the launches were checked, 75% are required");
  REQUIRE(DecideExitCode(0, {}, options, true).code == 4);
}

TEST_CASE("a run that was asked not to check is not blamed for it") {
  REQUIRE(DecideExitCode(0, {.launches = 5}, {}, false).code == 0);
}

TEST_CASE("gpu:N counts among the devices that the user left visible") {
  REQUIRE(VisibleDevice("", 1) == "1");
  REQUIRE(VisibleDevice("4,6", 1) == "6");
  REQUIRE(VisibleDevice("GPU-aa,GPU-bb", 0) == "GPU-aa");
}

TEST_CASE("verdicts travel as text, and anything else is refused") {
  const proto::Verdict verdict{1, 2, 3, 4, 5, 6};
  std::string line = proto::FormatVerdict(verdict);
  line.pop_back();
  proto::Verdict read;
  REQUIRE(proto::ParseVerdict(line, &read));
  REQUIRE(read.findings == 1);
  REQUIRE(read.processes == 6);
  REQUIRE_FALSE(proto::ParseVerdict("verdict\t1\t2", &read));
  REQUIRE_FALSE(proto::ParseVerdict(line + "x", &read));
  REQUIRE_FALSE(proto::ParseVerdict("", &read));
}

}  // namespace
}  // namespace ops_debug::launcher
