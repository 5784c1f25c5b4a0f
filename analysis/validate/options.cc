// Boost.Program_options behind a struct; the launcher's help (launcher/flags.cc) tells users of the
// flags.
#include "analysis/validate/options.h"

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>

#include <boost/program_options.hpp>
#include <cstdlib>

namespace ops_debug::analysis {
namespace {

namespace po = boost::program_options;
using Strings = std::vector<std::string>;

constexpr int64_t kMostElements = int64_t{1} << 36;

absl::Status Wrong(const std::string& flag, const std::string& value, const std::string& wanted) {
  return absl::InvalidArgumentError(absl::StrCat("--", flag, " ", value, ": ", wanted));
}

po::options_description Flags() {
  po::options_description flags;
  const auto texts = [] { return po::value<Strings>()->composing(); };
  flags.add_options()("operands", texts())("reference", po::value<std::string>())(
      "trusted", po::value<std::string>())("input-shape", texts())("input", texts())(
      "attr", texts())("dtype", po::value<std::string>())("rtol", po::value<std::string>())(
      "atol", po::value<std::string>())("grad", po::bool_switch())("sweep", po::bool_switch())(
      "seed", po::value<std::string>())("format", po::value<std::string>())(
      "output", po::value<std::string>())("heatmap", po::bool_switch())(
      "device", po::value<std::string>())("chosen-device", po::value<std::string>())(
      "python", po::value<std::string>())("error-exitcode", po::value<std::string>());
  return flags;
}

absl::Status ReadPairs(const po::variables_map& values, const char* flag, const char* wanted,
                       std::vector<std::pair<std::string, std::string>>* pairs) {
  if (!values.count(flag)) return absl::OkStatus();
  for (const std::string& text : values[flag].as<Strings>()) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == text.size()) {
      return Wrong(flag, text, wanted);
    }
    pairs->emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  return absl::OkStatus();
}

absl::Status ReadTolerance(const po::variables_map& values, const char* flag,
                           std::optional<double>* tolerance) {
  if (!values.count(flag)) return absl::OkStatus();
  double number = 0;
  const std::string text = values[flag].as<std::string>();
  if (!absl::SimpleAtod(text, &number) || !(number >= 0)) {
    return Wrong(flag, text, "a number that is not negative, such as 1e-5");
  }
  *tolerance = number;
  return absl::OkStatus();
}

absl::Status ReadTensorFlags(const po::variables_map& values, ValidateOptions* options) {
  if (values.count("input-shape")) {
    for (const std::string& text : values["input-shape"].as<Strings>()) {
      std::vector<int64_t> shape;
      if (!ParseShape(text, &shape)) {
        return Wrong("input-shape", text, "sizes joined by x, such as 1x32x224x224");
      }
      options->input_shapes.push_back(shape);
    }
  }
  if (values.count("dtype")) {
    const std::string text = values["dtype"].as<std::string>();
    proto::DType dtype;
    if (!proto::ParseDType(text, &dtype) || !proto::IsFloating(dtype)) {
      return Wrong("dtype", text, "a floating type, such as float32, float16, bfloat16");
    }
    options->dtype = dtype;
  }
  return ReadPairs(values, "input", "NAME=FILE, NAME=32x1x3x3 or NAME=zeros", &options->inputs);
}

absl::Status ReadReportFlags(const po::variables_map& values, ValidateOptions* options) {
  const auto text = [&](const char* flag, std::string* value) {
    if (values.count(flag)) *value = values[flag].as<std::string>();
  };
  text("format", &options->format);
  text("output", &options->output);
  text("chosen-device", &options->device);
  text("python", &options->python);
  if (options->output == "-") options->output.clear();
  options->heatmap = values["heatmap"].as<bool>();
  if (options->format != "text" && options->format != "json" && options->format != "html") {
    return Wrong("format", options->format, "text, json or html");
  }
  if (options->format == "html" && options->output.empty()) {
    return absl::InvalidArgumentError("--format html needs --output FILE");
  }
  std::string code;
  text("error-exitcode", &code);
  if (!code.empty() && (!absl::SimpleAtoi(code, &options->error_exit_code) ||
                        options->error_exit_code < 0 || options->error_exit_code > 255)) {
    return Wrong("error-exitcode", code, "a number from 0 to 255");
  }
  return absl::OkStatus();
}

absl::Status ReadOperands(const po::variables_map& values, ValidateOptions* options) {
  const Strings operands = values.count("operands") ? values["operands"].as<Strings>() : Strings{};
  if (operands.empty()) {
    return absl::InvalidArgumentError(
        "no operator is given: ops-debug validate OP --reference REF --input-shape 1x32x224x224");
  }
  if (operands.size() > 1) {
    return absl::InvalidArgumentError(absl::StrCat("\"", operands[1], "\" belongs to no flag; one ",
                                                   "operator is validated at a time"));
  }
  options->op = operands.front();
  if (values.count("reference")) options->reference = values["reference"].as<std::string>();
  if (values.count("trusted")) options->trusted = values["trusted"].as<std::string>();
  options->gradients = values["grad"].as<bool>();
  options->sweep = values["sweep"].as<bool>();
  if (values.count("seed") && !absl::SimpleAtoi(values["seed"].as<std::string>(), &options->seed)) {
    return Wrong("seed", values["seed"].as<std::string>(), "a whole number");
  }
  return ReadPairs(values, "attr", "NAME=VALUE", &options->attributes);
}

}  // namespace

bool ParseShape(const std::string& text, std::vector<int64_t>* shape) {
  int64_t elements = 1;
  for (const absl::string_view part : absl::StrSplit(text, 'x')) {
    int64_t size = 0;
    if (part.empty() || part.find_first_not_of("0123456789") != absl::string_view::npos ||
        !absl::SimpleAtoi(part, &size)) {
      return false;
    }
    if (__builtin_mul_overflow(elements, size, &elements) || elements > kMostElements) return false;
    shape->push_back(size);
  }
  return true;
}

absl::StatusOr<ValidateOptions> ParseValidateOptions(int argc, const char* const* argv) {
  po::variables_map values;
  try {
    const po::options_description flags = Flags();
    po::positional_options_description positional;
    positional.add("operands", -1);
    const int style = po::command_line_style::unix_style & ~po::command_line_style::allow_guessing;
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
  ValidateOptions options;
  for (const auto& read : {ReadOperands, ReadTensorFlags, ReadReportFlags}) {
    if (absl::Status status = read(values, &options); !status.ok()) return status;
  }
  for (const auto& [flag, tolerance] :
       {std::pair{"rtol", &options.rtol}, std::pair{"atol", &options.atol}}) {
    if (absl::Status status = ReadTolerance(values, flag, tolerance); !status.ok()) return status;
  }
  if (options.python.empty()) {
    const char* python = std::getenv("OPS_DEBUG_PYTHON");
    options.python = python != nullptr && *python != '\0' ? python : "python3";
  }
  return options;
}

}  // namespace ops_debug::analysis
