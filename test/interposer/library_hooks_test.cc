// Functions of libraries that may be loaded several times: each call reaches the copy that it would
// reach without us.
#include <catch2/catch.hpp>

#include "hooks_harness.h"

namespace ops_debug::interposer {

TEST_CASE("every way to a library's function reaches the same copy with and without the library") {
  const std::string command = HOOKS_PROGRAMS "/library_hooks_program " HOOKS_PROGRAMS;
  const Run without = RunUnder("", command, HOOKS_PROGRAMS, "", false);
  const Run with = RunUnder(HOOKS_INTERPOSER, command, HOOKS_PROGRAMS);
  CHECK(without.output.find("table two, from its package: t") != std::string::npos);
  CHECK(with.output == without.output);
  CHECK(with.exit_status == 0);
}

TEST_CASE("without a session the functions are the libraries' own") {
  const std::string command = HOOKS_PROGRAMS "/library_hooks_program " HOOKS_PROGRAMS;
  const Run without = RunUnder("", command, HOOKS_PROGRAMS, "", false);
  const Run with = RunUnder(HOOKS_INTERPOSER, command, HOOKS_PROGRAMS, "", false);
  CHECK(with.output == without.output);
}

}  // namespace ops_debug::interposer
