// What programs see when they run under the hook layer, against a fake driver and handlers that
// leave marks (hooks_fake_driver.cc, hooks_test_handlers.cc): 0xab00000000 in an address or 10000
// in a result means "handled".
#include <catch2/catch.hpp>

#include "hooks_harness.h"

namespace ops_debug::interposer {
namespace {

const std::string kPrograms = HOOKS_PROGRAMS;
const std::string kDriver = HOOKS_FAKE_DRIVER;

Run Program(const std::string& role, const std::string& preload = "", bool session = true) {
  return RunUnder(HOOKS_UNDER_TEST, kPrograms + "/hooks_program " + role, kDriver, preload,
                  session);
}

}  // namespace

TEST_CASE("dlsym gives hooks for exactly the hooked names, and the truth for all others") {
  const Run run = Program("dlsym");
  CHECK(run.output ==
        "cuMemAlloc_v2: ab00200005\n"
        "cuMemAlloc: 100005\n"
        "cudnnCreate: 7\n"
        "missing: (nil)\n"
        "dlerror: names it\n"
        "absent: (nil)\n"
        "dlerror: names it\n"
        "dlsym through libc: hooked\n"
        "cuGetExportTable: 0 1\n");
  CHECK(run.exit_status == 0);
}

TEST_CASE("a program without a driver does not get one, nor an exported name of ours") {
  CHECK(Program("no-driver").output ==
        "default: (nil)\ndlerror: names it\nprogram: (nil)\ndriver: (nil)\n");
}

TEST_CASE(
    "a library's own function with a driver name stays; the driver's function behind a library is "
    "hooked") {
  CHECK(Program("own-function").output == "shim: 900005\nthrough dependency: 10208\n");
}

TEST_CASE("RTLD_NEXT and RTLD_DEFAULT keep the meaning that the caller gives them") {
  const Run run =
      Program("chain", kDriver + "/libhooks_chain_a.so:" + kDriver + "/libhooks_chain_b.so");
  CHECK(run.output == "chain: AB\nlocal scope: 42\nown scope: (nil)\n");
}

TEST_CASE("cuGetProcAddress gives the handler of the ABI and stream variant that was asked for") {
  const Run run = Program("get-proc-address");
  CHECK(run.output ==
        "cuMemFreeAsync 12000 flags 0: result 0 status 0 returns 10210\n"
        "cuMemFreeAsync 12000 flags 1: result 0 status 0 returns 10210\n"
        "cuMemFreeAsync 12000 flags 2: result 0 status 0 returns 10211\n"
        "cuMemFreeAsync 11010 flags 0: result 0 status 2 null\n"
        // An address that is no export, confirmed by asking for its version; the real function is
        // the export.
        "cuMemFree 12000 flags 0: result 0 status 0 returns 10208\n"
        // An ABI newer than the table, and a name that it lacks: untouched.
        "cuMemFree 14000 flags 0: result 0 status 0 returns 909\n"
        "cuFutureThing 13010 flags 0: result 0 status 0 returns 702\n"
        "cuFutureThing 12000 flags 0: result 0 status 2 null\n"
        "cuNoSuchThing 12000 flags 0: result 0 status 1 null\n"
        "cuMemAlloc 15000 flags 0: result 1 status 99 null\n"
        "cuMemAlloc 3020: ab00200005\n"
        "cuMemAlloc 3000: 100005\n"
        "missing: 500\n"
        "itself: hooked\n");
  CHECK(run.HasDiagnostic(
      "calls of cuMemFree are not watched: the program uses its ABI of CUDA 14.0"));
}

TEST_CASE("a program linked with -lcuda calls the hooks, and function addresses agree") {
  const Run run = RunUnder(HOOKS_UNDER_TEST, kPrograms + "/hooks_linked_program linked", kDriver);
  CHECK(run.output ==
        "cuInit: 0\ncuMemAlloc_v2: 0 ab00200005\nsame address: 1\ncuMemAlloc: 0 100005\n");
}

TEST_CASE("calls that the driver makes to its own exports pass through") {
  CHECK(Program("nested").output == "inside the driver: 200003\n");
}

TEST_CASE(
    "a handler that throws costs nothing but the check: the call is made once, its result kept, "
    "and reported") {
  const Run run = Program("throw");
  CHECK(run.output == "before: result 701 launches 1\nafter: result 701 launches 2\n");
  CHECK(run.HasDiagnostic("the handler of cuLaunchKernel failed (planted, before)"));
  CHECK(run.HasDiagnostic("the handler of cuLaunchKernel failed (planted, after)"));
}

TEST_CASE("the process announces itself with its device, and ends in order after both flushes") {
  const Run run = Program("exit");
  CHECK(run.exit_status == 3);
  REQUIRE(run.events.size() == 5);
  const proto::ProcessStart& start = run.events[0].process_start();
  CHECK(start.executable().ends_with("/hooks_program"));
  REQUIRE(start.arguments_size() == 2);
  CHECK(start.arguments(1) == "exit");
  CHECK(start.device_name() == "Fake Device");
  CHECK(start.driver_version() == "14.0");
  CHECK_FALSE(start.emulated());
  CHECK_FALSE(start.tool_version().empty());
  CHECK(run.events[0].process_id() != 0);
  CHECK(run.events[0].time_ns() != 0);
  CHECK(run.events[2].diagnostic().text() == "flush: driver usable");
  CHECK(run.events[3].diagnostic().text() == "flush: driver gone");
  CHECK(run.events[4].process_end().orderly());
}

TEST_CASE("_exit is not called an orderly end") {
  const Run run = Program("_exit");
  CHECK(run.exit_status == 3);
  CHECK(run.Of(proto::Event::kProcessStart).size() == 1);
  CHECK(run.Of(proto::Event::kProcessEnd).empty());
}

TEST_CASE("the child of a fork announces itself when it uses the driver, and ends by itself") {
  const Run run = Program("fork");
  CHECK(run.output == "parent: ab00200005\nchild: ab00200005\nchild status: 0\n");
  const auto starts = run.Of(proto::Event::kProcessStart);
  REQUIRE(starts.size() == 2);
  CHECK(starts[0].process_id() != starts[1].process_id());
  CHECK(starts[1].process_start().parent_process_id() == starts[0].process_id());
  CHECK(run.Of(proto::Event::kProcessEnd).size() == 2);
}

TEST_CASE("the child of a fork that uses no driver stays silent") {
  const Run run = Program("fork-quiet");
  CHECK(run.Of(proto::Event::kProcessStart).size() == 1);
  CHECK(run.Of(proto::Event::kProcessEnd).size() == 1);
}

TEST_CASE("a fork does not wait for a thread in the driver: the child runs unchecked and says so") {
  const Run run = Program("fork-busy");
  CHECK(run.output == "child: 200005\nchild status: 0\nparent: ab00200005\n");
  CHECK(run.HasDiagnostic("forked while another thread of its parent was inside the CUDA driver"));
}

TEST_CASE("threads call handlers at once while the process forks") {
  const Run run = Program("threads");
  CHECK(run.output == "good calls: 16000 of 16000\n");
  CHECK(run.exit_status == 0);
}

TEST_CASE("host stacks start in the program's frame and name module and exported function") {
  const Run run = Program("dlsym");
  const auto events = run.Of(proto::Event::kInvalidLaunch);
  REQUIRE(events.size() == 1);
  const proto::StackTrace& stack = events[0].invalid_launch().launch().stack();
  REQUIRE(stack.frames_size() >= 3);
  CHECK(stack.frames(0).module().ends_with("/hooks_program"));
  CHECK(stack.frames(0).symbol() == "AllocateInProgram");
  CHECK(stack.frames(0).symbol_offset() > 0);
  CHECK(stack.frames(0).offset() > 0);
  bool reaches_libc = false;
  for (const proto::StackFrame& frame : stack.frames())
    reaches_libc |= frame.module().find("libc.so") != std::string::npos;
  CHECK(reaches_libc);
}

TEST_CASE("without a session nothing is hooked, and exports pass through") {
  CHECK(Program("dlsym", "", false).output.starts_with("cuMemAlloc_v2: 200005\n"));
  CHECK(Program("no-driver", "", false).output.starts_with("default: (nil)\ndlerror: names it\n"));
  const Run linked =
      RunUnder(HOOKS_UNDER_TEST, kPrograms + "/hooks_linked_program linked", kDriver, "", false);
  CHECK(linked.output.starts_with("cuInit: 0\ncuMemAlloc_v2: 0 200005\n"));
}

TEST_CASE("a ring that cannot be opened makes the library passive, without a word") {
  const Run run = RunUnder(HOOKS_UNDER_TEST, kPrograms + "/hooks_program dlsym", kDriver, "", false,
                           "OPS_DEBUG_RING=/ops_debug_no_such_ring");
  CHECK(run.output.starts_with("cuMemAlloc_v2: 200005\n"));
}

TEST_CASE("programs that have nothing to do with CUDA run as ever and send nothing") {
  const Run run = RunUnder(HOOKS_INTERPOSER, "/bin/sh -c 'echo hello; exit 7'", kDriver);
  CHECK(run.output == "hello\n");
  CHECK(run.exit_status == 7);
  CHECK(run.events.empty());
}

#ifdef HOOKS_EMULATOR
TEST_CASE("the CPU device is hooked like a GPU's driver") {
  const Run run = RunUnder(HOOKS_UNDER_TEST, kPrograms + "/hooks_program emulator", HOOKS_EMULATOR,
                           "", true, "OPS_DEBUG_EMULATOR=1");
  CHECK(run.output ==
        "cuInit: 0\n"
        "context: 0\n"
        "by dlsym: hooked\n"
        "cuMemAlloc 3020 flags 0: result 0 status 0 found\n"
        "by name: hooked\n"
        "per thread: hooked\n");
  const auto starts = run.Of(proto::Event::kProcessStart);
  REQUIRE(starts.size() == 1);
  CHECK(starts[0].process_start().emulated());
  CHECK(starts[0].process_start().device_name().find("CPU device") != std::string::npos);
  CHECK(run.Of(proto::Event::kProcessEnd).size() == 1);
}
#endif

}  // namespace ops_debug::interposer
