#include "launcher/compare_process.h"

#include "launcher/child_process.h"

namespace ops_debug::launcher {

int BecomeCompare(const Installation& installation, const char* verb, std::span<const Flag> flags,
                  const FlagValues& values, const std::vector<std::string>& more) {
  std::vector<std::string> arguments = {"ops-debug-compare", verb};
  for (const Flag& flag : flags) {
    for (const std::string& value : values.All(flag.name)) {
      // One word, so that a value may begin with a dash.
      arguments.push_back(std::string("--") + flag.name +
                          (flag.argument != nullptr ? '=' + value : ""));
    }
  }
  arguments.insert(arguments.end(), more.begin(), more.end());
  arguments.push_back("--");
  arguments.insert(arguments.end(), values.operands.begin(), values.operands.end());
  arguments.insert(arguments.end(), values.command.begin(), values.command.end());
  Problem problem = Become(installation.compare, arguments);
  problem.exit_code = kExitToolFailure;
  problem.hint = "build it: scripts/build.sh";
  return Tell(problem);
}

}  // namespace ops_debug::launcher
