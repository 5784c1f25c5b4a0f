// Events as plain structs, and the functions that encode and send them (messages of
// proto/events.proto, by protozero). Field for field the proto messages; comments there. Send*
// functions never throw and may be called in any thread; they stamp time and process id. False: the
// event did not reach the ring (no session, or lost and counted).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "interposer/event_fields.h"
#include "interposer/stack.h"

namespace ops_debug::interposer {

using StackTrace = std::vector<StackFrame>;

struct Dim3 {
  uint32_t x = 0, y = 0, z = 0;
};

// A line of Python that was being executed.
struct PythonFrame {
  std::string file;
  uint32_t line = 0;
  std::string function;
};
using PythonStack = std::vector<PythonFrame>;  // innermost first

struct ProcessStartEvent {
  uint32_t parent_process_id = 0;
  std::string executable;
  std::vector<std::string> arguments;
  std::string device_name;
  std::string driver_version;
  bool emulated = false;
  std::string tool_version;
  std::string rank, local_rank, world_size;  // of a distributed launcher; empty: none
  bool injected = false;                     // loaded by the driver, not by LD_PRELOAD
  std::vector<std::string> checks;           // that are on; "none" if none is
};

struct ProcessEndEvent {
  bool orderly = false;
  uint32_t signal = 0;  // that ends the process
};

struct UncheckedInstruction {
  std::string instruction;
  std::string reason;
  uint32_t count = 0;
};

struct LoadedKernel {
  std::string name;
  bool checked = false;
  std::string reason;
  uint32_t checked_accesses = 0;
  std::vector<UncheckedInstruction> unchecked;
  std::string engine;  // "ptx", "sass", "emulator"; empty: not checked
};

struct ModuleLoadedEvent {
  uint64_t module_id = 0;
  std::string api;
  std::string image;
  std::string ptx_version;
  std::string target;
  std::vector<LoadedKernel> kernels;
  std::string not_checked_reason;
  std::string note;
  uint64_t rewrite_duration_ns = 0;
  uint64_t load_duration_ns = 0;
};

struct LaunchSummaryEvent {
  uint64_t module_id = 0;
  std::string kernel;
  uint64_t launches = 0;
  uint64_t checked_launches = 0;
  std::string not_checked_reason;
  std::string engine;  // of the checked launches
  uint64_t timed_launches = 0;
  uint64_t timed_duration_ns = 0;
};

struct SourceLocation {
  std::string function;
  std::string file;
  uint32_t line = 0;
  uint32_t column = 0;
};

// AccessKind, AddressSpace, FaultClass, Severity: enums of event_fields.h (proto::ACCESS_KIND_LOAD
// = AccessKind::kLoad).
struct FaultSite {
  std::string function;
  proto_enums::AccessKind access = proto_enums::AccessKind::kUnspecified;
  proto_enums::AddressSpace space = proto_enums::AddressSpace::kUnspecified;
  uint32_t access_bytes = 0;
  uint32_t ptx_line = 0;
  std::string instruction;
  std::vector<SourceLocation> frames;
  std::string variable;
  uint64_t variable_bytes = 0;
  uint64_t sass_offset = 0;  // engine "sass": of the instruction in its function, in bytes
};

struct TensorDescription {
  std::string framework;
  std::vector<int64_t> shape;
  std::string dtype;
  PythonStack allocation_stack;
  PythonStack free_stack;
  uint64_t segment_address = 0;  // of the driver's allocation that the block is part of
  uint64_t segment_bytes = 0;
};

struct AllocationDescription {
  uint64_t id = 0;
  uint64_t address = 0;
  uint64_t size_bytes = 0;
  std::string api;
  std::string name;
  bool freed = false;
  StackTrace allocation_stack;
  StackTrace free_stack;
  std::string free_api;
  bool has_tensor = false;
  TensorDescription tensor;
};

struct LaunchDescription {
  uint64_t launch_id = 0;
  std::string kernel;
  Dim3 grid, block;
  uint32_t dynamic_shared_bytes = 0;
  StackTrace stack;
  PythonStack python_stack;
  bool graph_node = false;
};

struct FaultEvent {
  proto_enums::FaultClass fault_class = proto_enums::FaultClass::kUnspecified;
  FaultSite site;
  LaunchDescription launch;
  Dim3 block, thread;
  uint64_t address = 0;
  uint64_t count = 0;
  bool has_allocation = false;
  AllocationDescription allocation;
  bool has_target_allocation = false;
  AllocationDescription target_allocation;  // that the address lies in instead
  int32_t parameter_index = -1;
  uint32_t parameter_offset = 0;
  uint32_t shadow_value = 0;
  uint64_t module_id = 0;
  bool provenance = false;
  std::string engine;  // "ptx", "sass"
};

struct DiagnosticEvent {
  proto_enums::Severity severity = proto_enums::Severity::kNote;
  std::string text;
  std::string hint;
};

struct UnknownAccessesEvent {
  uint64_t module_id = 0;
  uint64_t count = 0;
};

struct LostEventsEvent {
  uint64_t count = 0;
};

struct InvalidLaunchEvent {
  LaunchDescription launch;
  std::string error;
  std::string api;
  std::string reason;  // in words
};

struct CallFailedEvent {
  std::string api;
  std::string error;
  std::string reason;
  StackTrace stack;
  PythonStack python_stack;
  uint64_t count = 0;
};

struct LeakEvent {
  AllocationDescription allocation;
};

struct StreamDescription {
  uint64_t number = 0;
  std::string name;  // empty: not known
};

// One side of a conflict: `site` and `launch` are a kernel's, `operation` and `stack` of what the
// host submitted or performed.
struct AccessDescription {
  bool has_site = false;
  FaultSite site;
  bool has_launch = false;
  LaunchDescription launch;
  Dim3 block, thread;
  bool thread_unknown = false;
  uint64_t address = 0;
  uint32_t bytes = 0;
  std::string value;  // bytes
  std::string semantics;
  std::string operation;
  StackTrace stack;
  PythonStack python_stack;
  StreamDescription stream;
};

struct RaceEvent {
  proto_enums::RaceKind kind = proto_enums::RaceKind::kUnspecified;
  AccessDescription first, second;  // in the order in which they happened
  proto_enums::AddressSpace space = proto_enums::AddressSpace::kUnspecified;
  uint64_t address = 0;
  uint32_t bytes = 0;
  bool has_allocation = false;
  AllocationDescription allocation;
  uint64_t count = 0;
  bool same_value = false;
  bool unproven = false;
  std::string reason;
  proto_enums::MissingOrder missing = proto_enums::MissingOrder::kUnspecified;
  SourceLocation remedy_after, remedy_before;  // line 0: not known
  uint64_t module_id = 0;
  std::string engine;
  std::string pattern;
};

struct UninitialisedReadEvent {
  FaultSite site;
  LaunchDescription launch;
  Dim3 block, thread;
  uint64_t address = 0;
  uint32_t bytes = 0;
  bool has_allocation = false;
  AllocationDescription allocation;
  uint64_t count = 0;
  std::string use;
  bool has_use_site = false;
  FaultSite use_site;
  uint64_t module_id = 0;
  std::string engine;
};

struct NumericValueDescription {
  std::string name, type;
  uint64_t bits = 0;
};

struct NumericalFaultEvent {
  proto_enums::NumericalFaultKind kind = proto_enums::NumericalFaultKind::kUnspecified;
  FaultSite site;
  LaunchDescription launch;
  Dim3 block, thread;
  uint64_t count = 0;
  std::vector<NumericValueDescription> operands;
  bool has_result = false;
  NumericValueDescription result;
  double worst = 0;
  int64_t exact_value = 0, wrapped_value = 0;  // of an index
  bool has_origin = false;
  FaultSite origin;
  uint64_t executions = 0;
  uint64_t module_id = 0;
  std::string engine;
};

struct WaitersDescription {
  bool has_site = false;
  FaultSite site;
  uint64_t threads = 0;
  uint64_t blocks = 0;
  Dim3 first_block, first_thread;
  std::string what;
};

struct SyncFaultEvent {
  proto_enums::SyncFaultKind kind = proto_enums::SyncFaultKind::kUnspecified;
  bool has_site = false;
  FaultSite site;
  LaunchDescription launch;
  Dim3 block, thread;
  std::vector<WaitersDescription> waiters;
  uint64_t count = 0;
  std::string text;
  uint64_t module_id = 0;
  std::string engine;
  uint64_t address = 0;
};

struct RedundantSyncEvent {
  std::string api;
  StackTrace stack;
  PythonStack python_stack;
  uint64_t count = 0;
  std::string reason;
  uint64_t duration_ns = 0;
};

struct CapturedLaunchDescription {
  LaunchDescription launch;
  uint64_t module_id = 0;
  std::vector<std::string> undecided;
};

struct LaunchCapturedEvent {
  uint64_t capture_id = 0;
  std::string file;
  std::vector<CapturedLaunchDescription> launches;
  uint64_t bytes = 0;
  std::vector<AllocationDescription> allocations;
};

struct LaunchNotCapturedEvent {
  CapturedLaunchDescription launch;
  std::string reason;
};

struct LaunchStuckEvent {
  LaunchDescription launch;
  uint64_t capture_id = 0;
  uint64_t running_ns = 0;
  bool alone = false;
};

bool Send(const ProcessStartEvent& event) noexcept;
bool Send(const ProcessEndEvent& event) noexcept;
bool Send(const ModuleLoadedEvent& event) noexcept;
bool Send(const LaunchSummaryEvent& event) noexcept;
bool Send(const FaultEvent& event) noexcept;
bool Send(const DiagnosticEvent& event) noexcept;
bool Send(const UnknownAccessesEvent& event) noexcept;
bool Send(const LostEventsEvent& event) noexcept;
bool Send(const InvalidLaunchEvent& event) noexcept;
bool Send(const CallFailedEvent& event) noexcept;
bool Send(const LeakEvent& event) noexcept;
bool Send(const RaceEvent& event) noexcept;
bool Send(const UninitialisedReadEvent& event) noexcept;
bool Send(const NumericalFaultEvent& event) noexcept;
bool Send(const SyncFaultEvent& event) noexcept;
bool Send(const RedundantSyncEvent& event) noexcept;
bool Send(const LaunchCapturedEvent& event) noexcept;
bool Send(const LaunchNotCapturedEvent& event) noexcept;
bool Send(const LaunchStuckEvent& event) noexcept;

// Sends a diagnostic unless the same text was sent before by this process (at most 256 different
// ones).
bool SendOnce(const DiagnosticEvent& event) noexcept;

}  // namespace ops_debug::interposer
