// Events that the sender encodes with protozero, decoded with protobuf: every field arrives in its
// place.
#include <catch2/catch.hpp>

#include "hooks_harness.h"
#include "interposer/event_sender.h"
#include "interposer/session.h"
#include "proto/session.h"

namespace ops_debug::interposer {
namespace {

// The session of the test process: options are read once, so there is one ring for all cases.
proto::RingConsumer& Ring() {
  static const auto ring = [] {
    std::string error;
    const std::string name = UniqueRingName();
    auto consumer = proto::RingConsumer::Create(name.c_str(), 1 << 20, &error);
    setenv(proto::kEnvRing, name.c_str(), 1);
    setenv(proto::kEnvChecks, "memory", 1);
    setenv(proto::kEnvRewrite, "null", 1);
    setenv(proto::kEnvOnError, "trap", 1);
    setenv(proto::kEnvQuarantineBytes, "4096", 1);
    setenv(proto::kEnvDumpPtx, "/tmp/dump", 1);
    setenv(proto::kEnvEmulator, "1", 1);
    return consumer;
  }();
  return *ring;
}

template <class EventStruct>
std::string SendAndRead(const EventStruct& event) {
  Ring();
  if (!Send(event)) return "not sent";
  const auto events = ReadAll(Ring());
  if (events.size() != 1) return "events: " + std::to_string(events.size());
  if (events[0].process_id() != static_cast<uint32_t>(getpid()) || events[0].time_ns() == 0)
    return "bad stamp";
  proto::Event body = events[0];
  body.clear_process_id();
  body.clear_time_ns();
  return body.ShortDebugString();
}

const StackTrace kStack = {{"/bin/app", 0x10, "main", 4}, {"/lib/l.so", 0x20, "", 0}};
const LaunchDescription kLaunch{7, "_Z1kPf", {1, 2, 3}, {4, 5, 6}, 48, kStack};
const std::string kLaunchText =
    R"(launch { launch_id: 7 kernel: "_Z1kPf" grid { x: 1 y: 2 z: 3 } block { x: 4 y: 5 z: 6 } )"
    R"(dynamic_shared_bytes: 48 stack { frames { module: "/bin/app" offset: 16 symbol: "main" symbol_offset: 4 } )"
    R"(frames { module: "/lib/l.so" offset: 32 } } })";

}  // namespace

TEST_CASE("ProcessStart and ProcessEnd arrive field for field") {
  CHECK(
      SendAndRead(ProcessStartEvent{1, "/bin/app", {"app", ""}, "H200", "13.0", true, "0.1"}) ==
      R"(process_start { parent_process_id: 1 executable: "/bin/app" arguments: "app" arguments: "" )"
      R"(device_name: "H200" driver_version: "13.0" emulated: true tool_version: "0.1" })");
  ProcessStartEvent with_checks;
  with_checks.checks = {"memory", "race"};
  CHECK(SendAndRead(with_checks) == R"(process_start { checks: "memory" checks: "race" })");
  CHECK(SendAndRead(ProcessEndEvent{true}) == "process_end { orderly: true }");
  CHECK(SendAndRead(ProcessEndEvent{false}) == "process_end { }");
}

TEST_CASE("ModuleLoaded arrives field for field") {
  ModuleLoadedEvent event{1,  "cuLibraryLoadData", "PTX text", "9.0", "sm_90",
                          {}, "why not",           "older",    11,    12};
  event.kernels = {{"_Z1kPf", true, "", 5, {{"cp.async.bulk", "no bounds", 2}}},
                   {"_Z1l", false, "odd", 0, {}}};
  CHECK(
      SendAndRead(event) ==
      R"(module_loaded { module_id: 1 api: "cuLibraryLoadData" image: "PTX text" ptx_version: "9.0" )"
      R"(target: "sm_90" kernels { name: "_Z1kPf" checked: true checked_accesses: 5 )"
      R"(unchecked { instruction: "cp.async.bulk" reason: "no bounds" count: 2 } } )"
      R"(kernels { name: "_Z1l" reason: "odd" } not_checked_reason: "why not" note: "older" )"
      R"(rewrite_duration_ns: 11 load_duration_ns: 12 })");
}

TEST_CASE("LaunchSummary arrives field for field") {
  CHECK(
      SendAndRead(LaunchSummaryEvent{1, "_Z1kPf", 10, 9, "off"}) ==
      R"(launch_summary { module_id: 1 kernel: "_Z1kPf" launches: 10 checked_launches: 9 not_checked_reason: "off" })");
}

TEST_CASE("Fault arrives field for field") {
  FaultEvent event;
  event.fault_class = proto_enums::FaultClass::kUseAfterFree;
  event.site = {
      "_Z1kPf", proto_enums::AccessKind::kStore, proto_enums::AddressSpace::kGlobal, 4,
      33,       "st.global.f32 [%rd1], %f1",     {{"_Z1kPf", "/src/k.cu", 12, 3}},   "table",
      64};
  event.launch = kLaunch;
  event.block = {1, 0, 2};
  event.thread = {3, 0, 0};
  event.address = 0x7f0000001000;
  event.count = 99;
  event.has_allocation = true;
  event.allocation = {5,    0x7f0000000000, 4096,   "cuMemAlloc", "name",
                      true, kStack,         kStack, "cuMemFree"};
  event.has_target_allocation = true;
  event.target_allocation = {6, 0x7f0000002000, 64, "cuMemAlloc", "", false, {}, {}, ""};
  event.parameter_index = -1;
  event.parameter_offset = 8;
  event.shadow_value = 0xfd;
  event.module_id = 2;
  event.provenance = true;
  const std::string stack =
      R"({ frames { module: "/bin/app" offset: 16 symbol: "main" symbol_offset: 4 } )"
      R"(frames { module: "/lib/l.so" offset: 32 } })";
  CHECK(
      SendAndRead(event) ==
      R"(fault { fault_class: FAULT_CLASS_USE_AFTER_FREE site { function: "_Z1kPf" access: ACCESS_KIND_STORE )"
      R"(space: ADDRESS_SPACE_GLOBAL access_bytes: 4 ptx_line: 33 instruction: "st.global.f32 [%rd1], %f1" )"
      R"(frames { function: "_Z1kPf" file: "/src/k.cu" line: 12 column: 3 } variable: "table" variable_bytes: 64 } )" +
          kLaunchText +
          R"( block { x: 1 z: 2 } thread { x: 3 } address: 139637976731648 count: 99 )"
          R"(allocation { id: 5 address: 139637976727552 size_bytes: 4096 api: "cuMemAlloc" name: "name" freed: true )"
          R"(allocation_stack )" +
          stack + " free_stack " + stack +
          R"( free_api: "cuMemFree" } parameter_index: -1 parameter_offset: 8 shadow_value: 253 module_id: 2 )"
          R"(provenance: true target_allocation { id: 6 address: 139637976735744 size_bytes: 64 )"
          R"(api: "cuMemAlloc" } })");
}

TEST_CASE("Diagnostic, UnknownAccesses, LostEvents and InvalidLaunch arrive field for field") {
  CHECK(SendAndRead(DiagnosticEvent{proto_enums::Severity::kWarning, "text", "hint"}) ==
        R"(diagnostic { severity: SEVERITY_WARNING text: "text" hint: "hint" })");
  CHECK(SendAndRead(UnknownAccessesEvent{3, 4}) == "unknown_accesses { module_id: 3 count: 4 }");
  CHECK(SendAndRead(LostEventsEvent{6}) == "lost_events { count: 6 }");
  CHECK(SendAndRead(InvalidLaunchEvent{kLaunch, "CUDA_ERROR_INVALID_VALUE", "cuLaunchKernel"}) ==
        "invalid_launch { " + kLaunchText +
            R"( error: "CUDA_ERROR_INVALID_VALUE" api: "cuLaunchKernel" })");
}

TEST_CASE("Race arrives field for field, with a kernel on one side and an operation on the other") {
  RaceEvent event;
  event.kind = proto_enums::RaceKind::kStream;
  event.first.has_site = true;
  event.first.site.access = proto_enums::AccessKind::kStore;
  event.first.address = 4096;
  event.first.bytes = 4;
  event.first.operation = "cuMemcpyHtoDAsync";
  event.first.stack = kStack;
  event.first.python_stack = {{"a.py", 3, "f"}};
  event.first.stream = {0, "legacy default stream"};
  event.second.has_site = event.second.has_launch = true;
  event.second.site.function = "k";
  event.second.site.ptx_line = 12;
  event.second.launch.launch_id = 9;
  event.second.block = {1, 0, 0};
  event.second.thread = {0, 2, 0};
  event.second.thread_unknown = true;
  event.second.value = std::string("\x01\x00", 2);
  event.second.semantics = "relaxed.gpu";
  event.second.stream = {2, "stream 2"};
  event.space = proto_enums::AddressSpace::kGlobal;
  event.address = 4098;
  event.bytes = 2;
  event.has_allocation = true;
  event.allocation.id = 5;
  event.count = 3;
  event.same_value = event.unproven = true;
  event.reason = "r";
  event.missing = proto_enums::MissingOrder::kEvent;
  event.remedy_after = {"", "a.cu", 41, 0};
  event.module_id = 6;
  event.engine = "emulator";
  event.pattern = "p";
  CHECK(
      SendAndRead(event) ==
      R"(race { kind: KIND_STREAM first { site { access: ACCESS_KIND_STORE } address: 4096 bytes: 4 )"
      R"(operation: "cuMemcpyHtoDAsync" stack { frames { module: "/bin/app" offset: 16 symbol: "main" )"
      R"(symbol_offset: 4 } frames { module: "/lib/l.so" offset: 32 } } python_stack { file: "a.py" line: 3 )"
      R"(function: "f" } stream { name: "legacy default stream" } } second { site { function: "k" ptx_line: 12 } )"
      R"(launch { launch_id: 9 } block { x: 1 } thread { y: 2 } thread_unknown: true )"
      R"(value: "\001\000" semantics: "relaxed.gpu" stream { number: 2 name: "stream 2" } } )"
      R"(space: ADDRESS_SPACE_GLOBAL address: 4098 bytes: 2 allocation { id: 5 } count: 3 same_value: true )"
      R"(unproven: true reason: "r" missing: MISSING_ORDER_EVENT remedy_after { file: "a.cu" line: 41 } )"
      R"(module_id: 6 engine: "emulator" pattern: "p" })");
}

TEST_CASE("NumericalFault arrives field for field") {
  NumericalFaultEvent fault;
  fault.kind = proto_enums::NumericalFaultKind::kIndexOverflow;
  fault.site.ptx_line = 3;
  fault.launch.launch_id = 2;
  fault.thread = {7, 0, 0};
  fault.count = 5;
  fault.operands.push_back({"a", "s32", 9});
  fault.has_result = true;
  fault.result = {"result", "s32", 4294967295};
  fault.worst = 0.5;
  fault.exact_value = 4294967295;
  fault.wrapped_value = -1;
  fault.has_origin = true;
  fault.origin.ptx_line = 1;
  fault.executions = 64;
  fault.module_id = 4;
  fault.engine = "ptx";
  CHECK(
      SendAndRead(fault) ==
      R"(numerical_fault { kind: KIND_INDEX_OVERFLOW site { ptx_line: 3 } launch { launch_id: 2 } )"
      R"(thread { x: 7 } count: 5 operands { name: "a" type: "s32" bits: 9 } )"
      R"(result { name: "result" type: "s32" bits: 4294967295 } worst: 0.5 )"
      R"(exact_value: 4294967295 wrapped_value: -1 origin { ptx_line: 1 } executions: 64 )"
      R"(module_id: 4 engine: "ptx" })");
}

TEST_CASE("UninitialisedRead, SyncFault and RedundantSync arrive field for field") {
  UninitialisedReadEvent read;
  read.site.ptx_line = 3;
  read.launch.launch_id = 2;
  read.thread = {7, 0, 0};
  read.address = 64;
  read.bytes = 4;
  read.has_allocation = true;
  read.allocation.id = 1;
  read.count = 8;
  read.use = "branch";
  read.has_use_site = true;
  read.use_site.ptx_line = 5;
  read.module_id = 4;
  read.engine = "ptx";
  CHECK(SendAndRead(read) ==
        R"(uninitialised_read { site { ptx_line: 3 } launch { launch_id: 2 } )"
        R"(thread { x: 7 } address: 64 bytes: 4 allocation { id: 1 } count: 8 use: "branch" )"
        R"(use_site { ptx_line: 5 } module_id: 4 engine: "ptx" })");
  SyncFaultEvent fault;
  fault.kind = proto_enums::SyncFaultKind::kDeadlock;
  fault.has_site = true;
  fault.site.ptx_line = 9;
  fault.block = {2, 0, 0};
  WaitersDescription& waiters = fault.waiters.emplace_back();
  waiters.has_site = true;
  waiters.site.ptx_line = 9;
  waiters.threads = 32;
  waiters.blocks = 1;
  waiters.first_block = {2, 0, 0};
  waiters.what = "wait at barrier 0 for 64 threads";
  fault.count = 1;
  fault.text = "t";
  fault.engine = "emulator";
  fault.address = 16;
  CHECK(
      SendAndRead(fault) ==
      R"(sync_fault { kind: KIND_DEADLOCK site { ptx_line: 9 } block { x: 2 } )"
      R"(waiters { site { ptx_line: 9 } threads: 32 blocks: 1 first_block { x: 2 } )"
      R"(what: "wait at barrier 0 for 64 threads" } count: 1 text: "t" engine: "emulator" address: 16 })");
  RedundantSyncEvent sync;
  sync.api = "cuStreamSynchronize";
  sync.python_stack = {{"a.py", 3, "f"}};
  sync.count = 2;
  sync.reason = "r";
  sync.duration_ns = 77;
  CHECK(
      SendAndRead(sync) ==
      R"(redundant_sync { api: "cuStreamSynchronize" python_stack { file: "a.py" line: 3 function: "f" } )"
      R"(count: 2 reason: "r" duration_ns: 77 })");
}

TEST_CASE("SendOnce sends a text once") {
  Ring();
  const DiagnosticEvent event{proto_enums::Severity::kNote, "said once", ""};
  CHECK(SendOnce(event));
  CHECK_FALSE(SendOnce(event));
  CHECK(ReadAll(Ring()).size() == 1);
}

TEST_CASE("the launcher's environment becomes options") {
  Ring();
  const SessionOptions& options = Options();
  CHECK(options.active);
  CHECK(options.check_memory);
  CHECK(options.null_rewrite);
  CHECK(options.trap_on_error);
  CHECK(options.quarantine_bytes == 4096);
  CHECK(options.dump_directory == "/tmp/dump");
  CHECK(options.emulated);
}

}  // namespace ops_debug::interposer
