// ops-debug-compare VERB ...: started by ops-debug, not by people. One verb per command of the
// launcher that compares tensors.
#include <csignal>
#include <iostream>
#include <string_view>

#include "analysis/compare/diff_command.h"
#include "analysis/validate/validate_main.h"
#include "proto/standard_streams.h"

namespace {

struct Verb {
  std::string_view name;
  int (*run)(int argc, char** argv);  // argv[0] is the name
};

constexpr Verb kVerbs[] = {
    {"diff", ops_debug::analysis::DiffMain},
    {"validate", ops_debug::analysis::ValidateMain},
};

}  // namespace

int main(int argc, char** argv) {
  ops_debug::proto::OccupyStandardStreams();
  std::signal(SIGPIPE, SIG_IGN);  // a reader that goes away (| head) is no failure
  for (const Verb& verb : kVerbs) {
    if (argc > 1 && verb.name == argv[1]) return verb.run(argc - 1, argv + 1);
  }
  std::cerr << "ops-debug-compare is started by ops-debug; see ops-debug --help\n";
  return 2;
}
