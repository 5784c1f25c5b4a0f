// Option names and which of them take a value: `ptxas --help` of CUDA 12.8 and 13.0.
#include "interposer/assembler_command.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <iterator>

#include "interposer/files.h"

namespace ops_debug::interposer {
namespace {

constexpr int kMaxNestedFiles = 8;

enum class Meaning { kOther, kOutput, kFmad, kMaxRegisters, kOptimization, kDebug, kOptionsFile };

struct Option {
  std::string_view name;  // without its dashes
  Meaning meaning;
  bool takes_value;
};

constexpr Option kOptions[] = {
    {"o", Meaning::kOutput, true},
    {"output-file", Meaning::kOutput, true},
    {"fmad", Meaning::kFmad, true},
    {"maxrregcount", Meaning::kMaxRegisters, true},
    {"O", Meaning::kOptimization, true},
    {"opt-level", Meaning::kOptimization, true},
    {"g", Meaning::kDebug, false},
    {"device-debug", Meaning::kDebug, false},
    {"optf", Meaning::kOptionsFile, true},
    {"options-file", Meaning::kOptionsFile, true},
    {"option-file", Meaning::kOptionsFile, true},
    {"Ofast-compile", Meaning::kOther, true},
    {"Ofc", Meaning::kOther, true},
    {"allow-expensive-optimizations", Meaning::kOther, true},
    {"arch", Meaning::kOther, true},
    {"gpu-name", Meaning::kOther, true},
    {"m", Meaning::kOther, true},
    {"machine", Meaning::kOther, true},
    {"def-load-cache", Meaning::kOther, true},
    {"dlcm", Meaning::kOther, true},
    {"def-store-cache", Meaning::kOther, true},
    {"dscm", Meaning::kOther, true},
    {"force-load-cache", Meaning::kOther, true},
    {"flcm", Meaning::kOther, true},
    {"force-store-cache", Meaning::kOther, true},
    {"fscm", Meaning::kOther, true},
    {"device-function-maxrregcount", Meaning::kOther, true},
    {"func-maxrregcount", Meaning::kOther, true},
    {"device-stack-protector", Meaning::kOther, true},
    {"entry", Meaning::kOther, true},
    {"e", Meaning::kOther, true},
    {"maxntid", Meaning::kOther, true},
    {"minnctapersm", Meaning::kOther, true},
    {"position-independent-code", Meaning::kOther, true},
    {"pic", Meaning::kOther, true},
    {"register-usage-level", Meaning::kOther, true},
    {"regUsageLevel", Meaning::kOther, true},
    {"sanitize", Meaning::kOther, true},
    {"split-compile", Meaning::kOther, true},
    {"input-as-string", Meaning::kOther, true},
    {"ias", Meaning::kOther, true},
};

const Option* FindOption(std::string_view name) {
  const auto* found = std::ranges::find(kOptions, name, &Option::name);
  return found == std::end(kOptions) ? nullptr : found;
}

bool ReadNumber(std::string_view text, int* number) {
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), *number);
  return parsed.ec == std::errc() && parsed.ptr == text.data() + text.size();
}

class Parser {
 public:
  explicit Parser(AssemblerCommand* command) : command_(command) {}

  void Parse(const std::vector<std::string>& arguments) {
    for (size_t i = 0; i < arguments.size(); ++i) {
      const std::string_view argument = arguments[i];
      if (argument.size() > 1 && argument.front() == '@') {
        ParseFile(std::string(argument.substr(1)));
        continue;
      }
      if (argument.size() < 2 || argument.front() != '-') {
        command_->inputs.emplace_back(argument);
        continue;
      }
      std::string_view name = argument.substr(argument.starts_with("--") ? 2 : 1);
      std::string_view value;
      bool has_value = false;
      if (const size_t equals = name.find('='); equals != std::string_view::npos) {
        value = name.substr(equals + 1);
        name = name.substr(0, equals);
        has_value = true;
      } else if (name.size() == 2 && name[0] == 'O' && (std::isdigit(name[1]) != 0)) {
        value = name.substr(1);  // -O3
        name = name.substr(0, 1);
        has_value = true;
      }
      const Option* option = FindOption(name);
      if (option == nullptr) continue;
      if (option->takes_value && !has_value) {
        if (++i == arguments.size()) return;
        value = arguments[i];
      }
      Apply(option->meaning, value);
    }
  }

 private:
  void Apply(Meaning meaning, std::string_view value) {
    AssemblerOptions& options = command_->options;
    int number = 0;
    switch (meaning) {
      case Meaning::kOutput:
        command_->output = value;
        break;
      case Meaning::kFmad:
        options.fuse_multiply_add = value != "false" && value != "0";
        break;
      case Meaning::kMaxRegisters:  // may also be archmax, archmin
        if (ReadNumber(value, &number)) options.max_registers = number;
        break;
      case Meaning::kOptimization:
        if (ReadNumber(value, &number)) options.optimization = number;
        break;
      case Meaning::kDebug:
        options.optimization = 0;
        break;
      case Meaning::kOptionsFile:
        ParseFile(std::string(value));
        break;
      case Meaning::kOther:
        break;
    }
  }

  void ParseFile(const std::string& path) {
    std::string text;
    if (depth_ == kMaxNestedFiles || !ReadWholeFile(path, &text)) return;
    ++depth_;
    Parse(SplitArguments(text));
    --depth_;
  }

  AssemblerCommand* command_;
  int depth_ = 0;
};

}  // namespace

std::vector<std::string> SplitArguments(std::string_view text) {
  std::vector<std::string> arguments;
  bool open = false;  // an argument has begun
  char quote = 0;
  for (const char c : text) {
    if (quote != 0) {
      if (c == quote) {
        quote = 0;
      } else {
        arguments.back() += c;
      }
    } else if (std::isspace(static_cast<unsigned char>(c)) != 0) {
      open = false;
    } else {
      if (!open) arguments.emplace_back();
      open = true;
      if (c == '"' || c == '\'') {
        quote = c;
      } else {
        arguments.back() += c;
      }
    }
  }
  return arguments;
}

AssemblerCommand ParseAssemblerCommand(const std::vector<std::string>& arguments) {
  AssemblerCommand command;
  Parser(&command).Parse(arguments);
  return command;
}

void ApplyAssemblerArguments(const std::vector<std::string>& arguments, AssemblerOptions* options) {
  AssemblerCommand command;
  command.options = *options;
  Parser(&command).Parse(arguments);
  *options = command.options;
}

}  // namespace ops_debug::interposer
