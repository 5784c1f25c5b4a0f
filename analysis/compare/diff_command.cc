#include "analysis/compare/diff_command.h"

#include <unistd.h>

#include <boost/program_options.hpp>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "analysis/compare/last_run.h"
#include "analysis/compare/name_map.h"
#include "analysis/compare/report_output.h"
#include "analysis/compare/sequence.h"
#include "proto/log_layout.h"
#include "proto/tensor_file.h"

namespace ops_debug::analysis {
namespace {

namespace po = boost::program_options;

constexpr int kExitUsage = 2, kExitFailure = 3, kExitDiffers = 86;
constexpr uint32_t kMostWorst = 100'000;

struct DiffOptions {
  std::vector<std::string> files;
  std::string map;
  CompareOptions compare;
  ReportChoice report;
  int error_exit_code = kExitDiffers;
};

int Tell(int exit_code, const std::string& text, const std::string& hint) {
  std::cerr << "ops-debug: error: " << text << '\n';
  if (!hint.empty()) std::cerr << "  hint: " << hint << '\n';
  return exit_code;
}

// What a flag was given, as a number; nothing if it was not given.
template <typename Number>
absl::Status TakeNumber(const po::variables_map& values, const char* flag,
                        bool (*parse)(absl::string_view, Number*), Number most,
                        const char* expected, std::optional<Number>* number) {
  if (values.count(flag) == 0) return absl::OkStatus();
  const std::string text = values[flag].as<std::string>();
  Number value = 0;
  if (!parse(text, &value) || !(value >= 0 && value <= most)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--", flag, " takes ", expected, ", not \"", text, "\""));
  }
  *number = value;
  return absl::OkStatus();
}

bool ParseTolerance(absl::string_view text, double* value) { return absl::SimpleAtod(text, value); }
bool ParseCount(absl::string_view text, uint32_t* value) { return absl::SimpleAtoi(text, value); }

absl::Status TakeNumbers(const po::variables_map& values, DiffOptions* options) {
  constexpr double kLargest = std::numeric_limits<double>::max();
  std::optional<uint32_t> worst, exit_code;
  for (const absl::Status& status :
       {TakeNumber(values, "rtol", ParseTolerance, kLargest, "a number such as 1e-5",
                   &options->compare.rtol),
        TakeNumber(values, "atol", ParseTolerance, kLargest, "a number such as 1e-8",
                   &options->compare.atol),
        TakeNumber(values, "worst", ParseCount, kMostWorst, "a count up to 100000", &worst),
        TakeNumber(values, "error-exitcode", ParseCount, uint32_t{255}, "a number from 0 to 255",
                   &exit_code)}) {
    if (!status.ok()) return status;
  }
  options->compare.worst_count = worst.value_or(options->compare.worst_count);
  options->error_exit_code = static_cast<int>(exit_code.value_or(kExitDiffers));
  return absl::OkStatus();
}

absl::StatusOr<DiffOptions> ParseOptions(int argc, char** argv) {
  DiffOptions options;
  po::options_description flags;
  const auto text = [] { return po::value<std::string>(); };
  flags.add_options()("rtol", text())("atol", text())("worst", text())("error-exitcode", text())(
      "map", po::value(&options.map))("format", po::value(&options.report.format))(
      "output", po::value(&options.report.output))(
      "heatmap", po::bool_switch(&options.report.heatmap))("files", po::value(&options.files));
  po::positional_options_description positional;
  positional.add("files", -1);
  const int style = po::command_line_style::unix_style & ~po::command_line_style::allow_guessing;
  po::variables_map values;
  try {
    po::store(po::command_line_parser(argc, argv)
                  .options(flags)
                  .positional(positional)
                  .style(style)
                  .run(),
              values);
    po::notify(values);
  } catch (const po::error& error) {
    return absl::InvalidArgumentError(error.what());
  }
  if (absl::Status status = TakeNumbers(values, &options); !status.ok()) return status;
  if (absl::Status status = CheckChoice(options.report); !status.ok()) return status;
  if (options.files.size() != 0 && options.files.size() != 2) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.files.size() == 1 ? "one file is"
                                               : absl::StrCat(options.files.size(), " files are"),
                     " named; two are compared"));
  }
  return options;
}

bool IsLog(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  proto::LogHeader header;
  return path.ends_with(".odlog") || (file.read(reinterpret_cast<char*>(&header), sizeof header) &&
                                      header.magic == proto::kLogHeaderMagic);
}

// Writing a report must not cut a file that is mapped, nor destroy the user's tensors.
bool IsSameFile(const std::string& a, const std::string& b) {
  std::error_code error;
  return std::filesystem::equivalent(a, b, error);
}

int Compare(const DiffOptions& options, const std::string& title) {
  for (const std::string& path : options.files) {
    if (IsLog(path)) {
      return Tell(
          kExitFailure, "\"" + path + "\" is a log, which holds events but no tensors",
          "ops-debug run --capture REGEX --capture-folder FOLDER -- PROGRAM saves the tensors "
          "of its kernels: compare two such folders. ops-debug report prints a log");
    }
    if (IsSameFile(path, options.report.output)) {
      return Tell(kExitUsage, "--output \"" + options.report.output + "\" is one of the inputs",
                  "name another file");
    }
  }
  std::optional<NameMap> map;
  if (!options.map.empty()) {
    absl::StatusOr<NameMap> read = NameMap::Read(options.map);
    if (!read.ok()) {
      return Tell(kExitUsage, std::string(read.status().message()),
                  "each line is \"CANDIDATE: REFERENCE\", with a name or a regular expression "
                  "whose groups are \\1 to \\9");
    }
    map = *std::move(read);
  }
  std::vector<proto::TensorSet> sets;
  for (const std::string& path : options.files) {
    absl::StatusOr<proto::TensorSet> set = proto::ReadTensors(path);
    if (!set.ok()) return Tell(kExitFailure, std::string(set.status().message()), "");
    sets.push_back(*std::move(set));
  }
  absl::StatusOr<ReportFile> file = ReportFile::Open(options.report.output, STDOUT_FILENO);
  if (!file.ok()) return Tell(kExitFailure, std::string(file.status().message()), "");
  DiffReport report = CompareSets(sets[0], sets[1], map ? &*map : nullptr, options.compare);
  if (!title.empty()) report.title = title;
  const std::string text = RenderReport(report, options.report, WantsColour(file->fd()));
  if (absl::Status status = file->Write(text); !status.ok()) {
    return Tell(kExitFailure, std::string(status.message()), "");
  }
  return report.passes ? 0 : options.error_exit_code;
}

}  // namespace

int DiffMain(int argc, char** argv) {
  absl::StatusOr<DiffOptions> options = ParseOptions(argc, argv);
  if (!options.ok()) {
    return Tell(kExitUsage, std::string(options.status().message()),
                "ops-debug diff CANDIDATE REFERENCE; ops-debug diff --help lists the flags");
  }
  std::string title;
  if (options->files.empty()) {
    const absl::StatusOr<LastRun> last = FindLastRun();
    if (!last.ok()) {
      return Tell(kExitUsage, std::string(last.status().message()),
                  "name two files or folders, ops-debug diff CANDIDATE REFERENCE; or first run "
                  "ops-debug validate, whose pair is kept, or twice ops-debug run --capture REGEX");
    }
    options->files = {last->candidate, last->reference};
    title = last->title;
  }
  return Compare(*options, title);
}

}  // namespace ops_debug::analysis
