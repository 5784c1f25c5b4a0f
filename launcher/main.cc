// ops-debug: parses the command line, starts analyzer and target, turns the verdict into an exit
// code.
#include <iostream>
#include <string>
#include <vector>

#include "launcher/child_process.h"
#include "launcher/command.h"
#include "launcher/installation.h"
#include "proto/standard_streams.h"

namespace ops_debug::launcher {
namespace {

int UnknownCommand(const std::string& name) {
  std::vector<std::string> names;
  for (const Command& command : Commands()) names.emplace_back(command.name);
  const auto near = Nearest(name, names);
  return Tell({"unknown command \"" + name + "\"",
               near ? "did you mean \"" + *near + "\"?" : "ops-debug --help lists the commands"});
}

bool AsksForHelp(const std::vector<std::string>& arguments) {
  for (const std::string& argument : arguments) {
    if (argument == "--") return false;
    if (argument == "--help" || argument == "-h") return true;
  }
  return false;
}

int Main(const std::vector<std::string>& words) {
  if (words.empty()) return Tell({"no command is given", "ops-debug --help lists the commands"});
  if (words[0] == "--help" || words[0] == "-h" || (words[0] == "help" && words.size() == 1)) {
    std::cout << DescribeProgram();
    return 0;
  }
  if (words[0] == "--version") {
    std::cout << "ops-debug " OPS_DEBUG_VERSION "\n";
    return 0;
  }
  std::vector<std::string> arguments(words.begin() + 1, words.end());
  const bool help_first = words[0] == "help";  // "help run" is "run --help"
  const std::string name = help_first ? arguments.front() : words[0];
  for (const Command& command : Commands()) {
    if (name != command.name) continue;
    if (help_first || AsksForHelp(arguments)) {
      std::cout << DescribeCommand(command);
      return 0;
    }
    std::vector<std::span<const Flag>> groups;
    for (const FlagGroup& group : command.groups) groups.push_back(*group.flags);
    auto values = ParseFlags(arguments, groups);
    if (const auto* problem = std::get_if<Problem>(&values)) return Tell(*problem);
    return command.run(FindInstallation(), std::get<FlagValues>(values));
  }
  return UnknownCommand(name);
}

}  // namespace
}  // namespace ops_debug::launcher

int main(int argc, char** argv) {
  ops_debug::proto::OccupyStandardStreams();
  ops_debug::launcher::IgnoreFailingOutput();
  return ops_debug::launcher::Main(std::vector<std::string>(argv + 1, argv + argc));
}
