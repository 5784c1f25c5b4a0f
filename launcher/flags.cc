// The tables, and Boost.Program_options behind them.
#include "launcher/flags.h"

#include <algorithm>
#include <boost/program_options.hpp>
#include <sstream>

namespace ops_debug::launcher {
namespace {

namespace po = boost::program_options;

constexpr Flag kRunTable[] = {
    {"device", "auto|gpu[:N]|emulator", "where kernels run (auto: a GPU if there is one)"},
    {"emulate", "MODEL[,MODEL...]",
     "GPUs the emulator is: sm_80|sm_86|sm_89|sm_90|a100|h100|h200 (sm_90)"},
    {"format", "text|json", "of the report (text)"},
    {"output", "FILE", "write the report there instead of to stderr; - is stdout"},
    {"log", "FILE|FOLDER/",
     "record the events too, in a folder one file per process; `ops-debug report` prints the "
     "report again"},
    {"error-exitcode", "N", "exit code when there are findings (86; 0: the program's own)"},
    {"require-coverage", "PERCENT", "exit with 4 if fewer of the launches were checked"},
    {"suppressions", "FILE", "findings that are known and accepted; format: analysis/README.md",
     true},
    {"gen-suppressions", nullptr, "print an entry for such a file with each finding"},
    {"list-kernels", nullptr, "list every kernel: engine, launches, share of the GPU time"},
    {"engine", "auto|ptx|sass",
     "check rewritten PTX, patched machine code, or the first if there is PTX (auto; on the "
     "emulator, ptx finds races as a GPU does, auto exactly)"},
    {"tensors", "on|off",
     "give each tensor in PyTorch's, CuPy's and RMM's pools bounds of its own (on)"},
    {"leak-check", nullptr, "list device memory that is never freed"},
    {"kernel-name", "REGEX", "check kernels whose mangled or demangled name contains this"},
    {"launch-skip", "N", "leave the first N launches of each kernel unchecked (0)"},
    {"launch-count", "N", "then check N launches of each kernel (all)"},
    {"sample", "1/N", "of each kernel check one launch in N (1/1)"},
    {"ptx-store", "FOLDER",
     "of PTX for kernels that arrive as machine code (~/.cache/ops-debug/ptx; none: keep none)"},
    {"on-error", "skip|trap", "skip a bad access and go on, or stop the kernel there (skip)"},
    {"quarantine-size", "SIZE", "freed device memory kept back to find uses of it (256M)"},
    {"schedules", "K",
     "try K interleavings of threads, with weak memory; stop at the first that fails (emulator)"},
    {"replay", "on|off|SEED",
     "on: run launches that the GPU cannot decide once more on the CPU device, beside the program; "
     "SEED: run the schedule that failed once more, exactly as it was (on; SEED: emulator)"},
    {"replay-memory", "SIZE", "--replay on: most memory that such a launch may reach (64M)"},
    {"replay-time", "SECONDS",
     "--replay on: of one launch; three times that for all that are left at the end (20)"},
    {"race-memory", "all|shared", "memory in which races are looked for on a GPU (all)"},
    {"schedule-seed", "N",
     "the same for any schedule, from 1 on (without: a fixed order on all cores)"},
    {"rewrite", "checks|null", nullptr},
    {"help", nullptr, "show this"},
};

constexpr char kTraceConversionsHelp[] =
    "--check precision: count every conversion between floating-point types, with its loss";
constexpr char kPrecisionTraceHelp[] =
    "the same, and write them there: a JSON object per line, or CSV if FILE ends in .csv";

constexpr Flag kCheckTable[] = {
    {"check", "CHECK[,CHECK...]",
     "memory, race, sync (barriers, deadlocks), init (uninitialised reads), precision (NaN, "
     "overflow, loss, index arithmetic), all or none (memory)"},
    {"check-sync", nullptr, "the same as --check race,sync,init, beside what --check names"},
    {"trace-fp16-to-fp32", nullptr, kTraceConversionsHelp},
    {"precision-trace", "FILE", kPrecisionTraceHelp},
    {"capture", "REGEX",
     "save what the pointers of kernels with such a name lead to, before and after each launch, as "
     "FOLDER/KERNEL#CALL.safetensors, for ops-debug diff"},
    {"capture-folder", "FOLDER", "--capture: new or empty (./ops-debug-capture)"},
    {"capture-memory", "SIZE",
     "--capture: most bytes of values that are kept; beyond, statistics alone (1G)"},
    {"capture-launch", "FILE",
     "save the first launch that --kernel-name and --launch-skip let through, with all the memory "
     "that it can reach, for ops-debug replay FILE"},
};

constexpr Flag kSyncTable[] = {
    {"check", "CHECK[,CHECK...]",
     "memory, race, sync (barriers, deadlocks), init (uninitialised reads), all or none "
     "(race,sync,init)"},
};

constexpr Flag kPrecisionTable[] = {
    {"check", "CHECK[,CHECK...]",
     "precision (NaN, overflow, loss, index arithmetic), memory, race, sync, init, all or none "
     "(precision)"},
    {"trace-fp16-to-fp32", nullptr, kTraceConversionsHelp},
    {"precision-trace", "FILE", kPrecisionTraceHelp},
};

constexpr Flag kReplayTable[] = {
    {"check", "CHECK[,CHECK...]",
     "memory, race, sync (barriers, deadlocks), init (uninitialised reads), all or none (all)"},
};

constexpr Flag kKernelTable[] = {
    {"kernel", "FILE", "a .cu or .ptx file with the kernel, or a program"},
    {"entry", "NAME", "which kernel of the file, if it has several"},
    {"input-shape", "AxB...", "shape of the inputs: once for all, or once per input", true},
    {"arg", "NAME=VALUE", "value of one kernel parameter", true},
    {"grid", "AxBxC", "blocks"},
    {"block", "AxBxC", "threads in a block"},
    {"block-size", "N", "the same as --block, for one dimension"},
    {"shared-bytes", "N", "dynamic shared memory in bytes"},
    {"seed", "N", "of the inputs' random contents (0)"},
    {"save-outputs", "FOLDER", "keep the outputs there, as NAME.npy"},
    {"debug-build", nullptr, "compile with -G and without inlining"},
    {"nvcc-option", "OPTION", "passed on to nvcc: --nvcc-option=-Iinclude", true},
    {"any-output", nullptr, "--schedules: outputs may depend on the schedule"},
    {"check-boundary", nullptr,
     "check array boundaries: memory checking, which check-memory always does"},
};

constexpr Flag kReportTable[] = {
    {"format", "text|json", "of the report (text)"},
    {"output", "FILE", "write the report there instead of to stdout"},
    {"error-exitcode", "N", "exit code when there are findings (86; 0: succeed)"},
    {"require-coverage", "PERCENT", "exit with 4 if fewer of the launches were checked"},
    {"suppressions", "FILE", "findings that are known and accepted; format: analysis/README.md",
     true},
    {"gen-suppressions", nullptr, "print an entry for such a file with each finding"},
    {"precision-trace", "FILE", "write the conversions that a precision check counted there"},
    {"list-kernels", nullptr, "list every kernel: engine, launches, share of the GPU time"},
    {"help", nullptr, "show this"},
};

constexpr Flag kValidateTable[] = {
    {"reference", "REF", "what is right, a provider like OP (\"reference\" in ops-debug.yaml)"},
    {"input-shape", "AxB...", "shape of the first input, and of further ones in order", true},
    {"input", "NAME=VALUE",
     "an input: a file (FILE or FILE:KEY), a shape, or contents: random, positive, zeros, ones, "
     "iota, nan, large, tiny, denormal, mixed, index:N, a number",
     true},
    {"attr", "NAME=VALUE", "an attribute of the operator: groups=32, padding=[1,1]", true},
    {"dtype", "TYPE", "of the floating inputs (the operator's own, else float32)"},
    {"rtol", "NUMBER",
     "relative tolerance: pass if |OP - REF| <= atol + rtol * |REF| (by the type)"},
    {"atol", "NUMBER", "absolute tolerance (by the type, as torch.testing.assert_close)"},
    {"grad", nullptr,
     "gradients, too: against float64 finite differences of REF and REF's own gradients"},
    {"sweep", nullptr, "adversarial contents and sizes around tile edges, too"},
    {"seed", "N", "of the inputs' random contents (0)"},
    {"trusted", "PROVIDER", "also tell OP's error as a multiple of this implementation's"},
    {"device", "auto|gpu[:N]|emulator", "where kernels run (auto: a GPU if there is one)"},
    {"python", "PROGRAM", "that runs Python providers ($OPS_DEBUG_PYTHON, else python3)"},
    {"format", "text|json|html", "of the report (text)"},
    {"output", "FILE", "write the report there instead of to stdout"},
    {"heatmap", nullptr, "show where in the tensors the errors lie"},
    {"error-exitcode", "N", "exit code when OP is wrong (86; 0: succeed)"},
    {"help", nullptr, "show this"},
};

constexpr Flag kDiffTable[] = {
    {"rtol", "NUMBER", "relative tolerance: pass if |A - B| <= atol + rtol * |B| (by the type)"},
    {"atol", "NUMBER", "absolute tolerance (by the type, as torch.testing.assert_close)"},
    {"map", "FILE", "names that were changed: lines \"A's name or regex: B's name\""},
    {"worst", "K", "list the K worst elements of each pair (10)"},
    {"format", "text|json|html", "of the report (text)"},
    {"output", "FILE", "write the report there instead of to stdout"},
    {"heatmap", nullptr, "show where in the tensors the errors lie"},
    {"error-exitcode", "N", "exit code when A and B differ (86; 0: succeed)"},
    {"help", nullptr, "show this"},
};

std::vector<std::string> VisibleNames(const std::vector<std::span<const Flag>>& groups) {
  std::vector<std::string> names;
  for (const std::span<const Flag> group : groups) {
    for (const Flag& flag : group) {
      if (flag.help != nullptr) names.push_back(std::string("--") + flag.name);
    }
  }
  return names;
}

}  // namespace

const std::span<const Flag> kRunFlags = kRunTable;
const std::span<const Flag> kCheckFlags = kCheckTable;
const std::span<const Flag> kSyncFlags = kSyncTable;
const std::span<const Flag> kPrecisionFlags = kPrecisionTable;
const std::span<const Flag> kReplayFlags = kReplayTable;
const std::span<const Flag> kKernelFlags = kKernelTable;
const std::span<const Flag> kReportFlags = kReportTable;
const std::span<const Flag> kDiffFlags = kDiffTable;
const std::span<const Flag> kValidateFlags = kValidateTable;

std::string FlagValues::Get(const std::string& name, const std::string& fallback) const {
  const auto found = values_.find(name);
  return found == values_.end() ? fallback : found->second.back();
}

std::vector<std::string> FlagValues::All(const std::string& name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? std::vector<std::string>{} : found->second;
}

std::variant<FlagValues, Problem> ParseFlags(const std::vector<std::string>& arguments,
                                             const std::vector<std::span<const Flag>>& groups) {
  FlagValues result;
  const auto separator = std::find(arguments.begin(), arguments.end(), "--");
  result.has_separator = separator != arguments.end();
  if (result.has_separator) result.command.assign(separator + 1, arguments.end());

  po::options_description options;
  std::map<std::string, bool> is_switch;
  for (const std::span<const Flag> group : groups) {
    for (const Flag& flag : group) {
      is_switch[flag.name] = flag.argument == nullptr;
      if (flag.argument == nullptr) {
        options.add_options()(flag.name, po::bool_switch());
      } else if (flag.repeatable) {
        options.add_options()(flag.name, po::value<std::vector<std::string>>());
      } else {
        options.add_options()(flag.name, po::value<std::string>());
      }
    }
  }
  po::positional_options_description positional;
  positional.add("operands", -1);
  po::options_description all;
  all.add(options).add_options()("operands", po::value<std::vector<std::string>>());
  // Abbreviated flags would change their meaning when a flag is added.
  const int style = po::command_line_style::unix_style & ~po::command_line_style::allow_guessing;
  try {
    const std::vector<std::string> own(arguments.begin(), separator);
    const auto parsed =
        po::command_line_parser(own).options(all).positional(positional).style(style).run();
    po::variables_map values;
    po::store(parsed, values);
    for (const po::option& option : parsed.options) {
      if (option.string_key == "operands" || option.position_key >= 0) {
        result.operands.insert(result.operands.end(), option.value.begin(), option.value.end());
      } else if (is_switch[option.string_key]) {
        result.Add(option.string_key, "");
      } else {
        for (const std::string& value : option.value) result.Add(option.string_key, value);
      }
    }
  } catch (const po::unknown_option& error) {
    const std::string name = error.get_option_name();
    Problem problem{"unknown flag " + name, "--help lists the flags"};
    if (const auto near = Nearest(name, VisibleNames(groups))) {
      problem.hint = "did you mean " + *near + "?";
    } else if (!result.has_separator) {
      problem.hint = "flags of your program stand behind --";
    }
    return problem;
  } catch (const po::multiple_occurrences& error) {
    return Problem{error.get_option_name() + " is given twice", "give it once"};
  } catch (const po::error& error) {
    return Problem{error.what(), "--help shows how flags are used"};
  }
  return result;
}

std::string DescribeFlags(const std::string& title, std::span<const Flag> flags) {
  constexpr size_t kColumn = 34;
  std::ostringstream text;
  text << title << ":\n";
  for (const Flag& flag : flags) {
    if (flag.help == nullptr) continue;
    std::string left = std::string("  --") + flag.name;
    if (flag.argument != nullptr) left += std::string(" ") + flag.argument;
    if (left.size() + 2 > kColumn) {
      text << left << '\n' << std::string(kColumn, ' ');
    } else {
      left.resize(kColumn, ' ');
      text << left;
    }
    text << flag.help << (flag.repeatable ? " (repeatable)" : "") << '\n';
  }
  return text.str();
}

}  // namespace ops_debug::launcher
