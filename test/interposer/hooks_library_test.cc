// What the shipped library looks like from outside.
#include <catch2/catch.hpp>
#include <set>
#include <sstream>

#include "hooks_harness.h"
#include "interposer/driver_table.h"

namespace ops_debug::interposer {
namespace {

std::string Output(const std::string& command) {
  FILE* pipe = popen(command.c_str(), "r");
  std::string output;
  char buffer[4096];
  while (size_t count = std::fread(buffer, 1, sizeof(buffer), pipe)) output.append(buffer, count);
  pclose(pipe);
  return output;
}

}  // namespace

namespace {

// interposer.map: what is intercepted besides the driver, and the two ways in that are looked up.
bool MayBeExported(const std::string& name) {
  static const std::set<std::string> kNames = {"dlsym",       "InitializeInjection",
                                               "sigaction",   "signal",
                                               "_exit",       "_Exit",
                                               "execve",      "execv",
                                               "execvp",      "execvpe",
                                               "execl",       "execlp",
                                               "execle",      "fexecve",
                                               "posix_spawn", "posix_spawnp"};
  DriverFunction function;
  if (kNames.count(name) != 0 || FindDriverFunction(name, &function)) return true;
  for (const char* family : {"nvrtc", "nvJitLink", "__nvJitLink", "cupti", "ops_debug_",
                             "_ZN3c1027reportMemoryUsageToProfilerE", "_ZN2at6detail"}) {
    if (name.rfind(family, 0) == 0) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("the library exports what it intercepts, nothing else") {
  std::istringstream lines(Output("nm -D --defined-only " HOOKS_INTERPOSER));
  std::set<std::string> names;
  std::string address, type, name;
  while (lines >> address >> type >> name) {
    CAPTURE(name, type);
    CHECK(MayBeExported(name));
    CHECK(type == "T");
    names.insert(name);
  }
  for (const char* expected : {"dlsym", "cuInit", "cuGetProcAddress", "cuGetProcAddress_v2"}) {
    CHECK(names.count(expected) == 1);
  }
}

TEST_CASE("the library needs the C library alone") {
  std::istringstream lines(
      Output("readelf -dW " HOOKS_INTERPOSER " | grep NEEDED | sed 's/.*\\[\\(.*\\)\\]/\\1/'"));
  std::string name;
  int count = 0;
  while (lines >> name) {
    ++count;
    CAPTURE(name);
    CHECK((name == "libc.so.6" || name == "libm.so.6" || name == "ld-linux-x86-64.so.2"));
  }
  CHECK(count > 0);
}

TEST_CASE("a program with its own libprotobuf and abseil runs unchanged") {
  const Run run = RunUnder(HOOKS_UNDER_TEST, HOOKS_PROGRAMS "/hooks_foreign_libraries_program",
                           HOOKS_FAKE_DRIVER);
  CHECK(run.output == "seconds 1\naddress ab00200005\ncaught seconds 2\n");
  CHECK(run.exit_status == 0);
  CHECK(run.Of(proto::Event::kProcessEnd).size() == 1);
}

}  // namespace ops_debug::interposer
