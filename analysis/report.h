// What an analysis found, as plain data. Detectors fill it, the writers (text_report.h,
// json_report.h) print it and add nothing: every sentence a user reads is decided here, so all
// formats say the same.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ops_debug::analysis {

enum class Severity : uint8_t { kError, kWarning, kNote };

// "error", "warning", "note".
const char* SeverityName(Severity severity);

struct Extent3 {
  uint32_t x = 0, y = 0, z = 0;
  bool operator==(const Extent3&) const = default;
};
// "(1,2,3)".
std::string ToText(const Extent3& extent);

// A place in device source. `line` 0: not known.
struct SourceLocation {
  std::string function;  // demangled, may be empty
  std::string file;
  uint32_t line = 0;
  uint32_t column = 0;
  bool operator==(const SourceLocation&) const = default;
};

// A host frame as far as it could be named: function and line, else exported symbol, else module
// and offset.
struct HostFrame {
  std::string function;          // demangled; empty if unknown
  uint64_t function_offset = 0;  // printed when there is no line
  std::string file;
  uint32_t line = 0;
  std::string module;  // path
  uint64_t module_offset = 0;
};

// A line of Python that was being executed.
struct PythonFrame {
  std::string function;
  std::string file;
  uint32_t line = 0;
};

// What a framework keeps in a block of its pool.
struct TensorInfo {
  std::string framework;  // "PyTorch"
  std::string name;       // "float32[64, 256]"; empty if the framework hands out bytes only
  std::string dtype;
  std::vector<int64_t> shape;
  std::vector<PythonFrame> allocation_stack;  // innermost first
  std::vector<PythonFrame> free_stack;
  uint64_t segment_address = 0;  // of the driver's allocation that the block is part of
  uint64_t segment_bytes = 0;    // 0: not known
};

// Where the access lies relative to an allocation or array.
enum class Placement : uint8_t { kUnknown, kInside, kBefore, kBehind, kAcrossEnd };

struct AllocationInfo {
  uint64_t id = 0;
  uint64_t address = 0;
  uint64_t size_bytes = 0;
  std::string api;
  std::string name;  // of a module variable, demangled
  bool freed = false;
  bool free_order_unknown = false;  // freed when the fault was read, perhaps not yet at the access
  std::string free_api;
  std::vector<HostFrame> allocation_stack;
  std::vector<HostFrame> free_stack;
  std::optional<TensorInfo> tensor;
  Placement placement = Placement::kUnknown;
  uint64_t distance_bytes =
      0;  // kBefore, kBehind: between the access and the nearest byte of the block
};

struct ArrayInfo {
  std::string name;         // demangled: "shared_overflow(float*, int)::s"
  uint64_t size_bytes = 0;  // 0: not known
};

struct ParameterInfo {
  uint32_t index = 0;   // from 0
  std::string type;     // from the demangled signature, or empty
  uint32_t offset = 0;  // of the pointer in the parameter buffer, in bytes
};

struct LaunchInfo {
  uint64_t number = 0;  // in its process, from 1
  Extent3 grid, block;
  uint32_t dynamic_shared_bytes = 0;
  bool graph_node = false;  // a graph's launches run it; the stacks are of its capture or making
  std::vector<HostFrame> stack;
  std::vector<PythonFrame> python_stack;
};

// A driver call of the program, for findings that are about one.
struct CallInfo {
  std::string api;
  std::string error;  // empty: it succeeded
  std::vector<HostFrame> stack;
  std::vector<PythonFrame> python_stack;
};

// A further place that explains a finding: the launch, an allocation, a free.
struct RelatedPlace {
  std::string file;
  uint32_t line = 0;
  std::string message;
};

// One side of a race: an access of a kernel, or an operation that the host made or submitted.
struct AccessInfo {
  std::string text;      // "block (0,0,0) thread (3,0,0) wrote 4 bytes of s (byte 12 ...), value 3"
  std::string kernel;    // demangled entry; empty for an operation
  std::string function;  // as in Finding, like the next two
  std::vector<SourceLocation> frames;
  std::vector<SourceLocation> toolkit_frames;
  std::string instruction;
  uint32_t ptx_line = 0;
  std::string access;  // "load", "store", "atomic", or empty
  std::string space;
  std::optional<Extent3> block, thread;
  std::optional<uint64_t> address;
  uint32_t access_bytes = 0;
  std::string value;                 // read or written; empty: not known
  std::string semantics;             // "relaxed.gpu", "cp.async"; empty: an ordinary access
  std::string operation;             // "cuMemcpyHtoDAsync"; empty for a kernel's access
  std::string stream;                // "stream 2 (non-blocking)", where streams matter
  std::optional<LaunchInfo> launch;  // of a kernel's access
  std::vector<HostFrame> stack;      // of an operation
  std::vector<PythonFrame> python_stack;
};

// Threads that wait at one place for the same thing, or that left.
struct WaitingGroup {
  std::string text;  // "96 threads of block (0,0,0) wait at barrier 0, the first is (0,0,0)"
  std::string what;
  uint64_t threads = 0, blocks = 0;
  Extent3 first_block, first_thread;
  std::vector<SourceLocation> frames;  // own code, innermost first
  std::string instruction;
  uint32_t ptx_line = 0;
};

// A process that a finding was made in.
struct FoundIn {
  uint32_t process_id = 0;
  std::string rank;  // of a distributed launcher; empty: none
  bool operator==(const FoundIn&) const = default;
};

struct Finding {
  std::string kind;  // design.md, "Findings: one vocabulary"
  std::string
      cause;  // what is behind the kind, where that says more: analysis/README.md lists them
  Severity severity = Severity::kError;
  std::string message;  // one sentence without a full stop
  std::string advice;
  uint32_t process_id = 0;
  std::string kernel;    // demangled entry
  std::string function;  // demangled device function that holds the access, if it is not the entry
  std::vector<SourceLocation>
      frames;  // innermost first: the access, then where it was inlined; empty without line info
  // The access stands in a header of the CUDA toolkit that the code at frames.front() calls
  // (atomicAdd, a vector load): the places in that header, innermost first.
  std::vector<SourceLocation> toolkit_frames;
  std::string instruction;
  uint32_t ptx_line = 0;
  std::string engine;  // "ptx", "sass", "emulator", "replay"; empty for findings of the host side
  std::optional<uint64_t> sass_offset;  // engine "sass": of the instruction in its function
  uint32_t instructions = 1;            // instructions of this source place that did the same
  std::string access;                   // "load", "store", "atomic", or empty
  std::string space;                    // "global", "shared", "local", "generic", or empty
  uint32_t access_bytes = 0;
  uint64_t count = 0;  // accesses; 0 for findings that are none
  bool count_is_lower_bound = false;
  std::optional<Extent3> block, thread;  // of the first offender
  std::optional<uint64_t> address;
  std::optional<AllocationInfo> allocation;  // that the pointer belongs to or that is nearest
  std::optional<AllocationInfo> target_allocation;  // that the access reached instead
  std::optional<ArrayInfo> array;
  std::optional<ParameterInfo> parameter;
  std::optional<LaunchInfo> launch;
  std::optional<CallInfo> call;
  uint64_t leaked_bytes = 0;          // of kind "leak": of all allocations together
  std::vector<AccessInfo> accesses;   // of races: both, in the order in which they happened
  std::vector<WaitingGroup> waiters;  // of faults of barriers: largest group first
  std::string use;     // of uninitialised values: where they came to matter, as a sentence
  std::string reason;  // unproven: what is not known
  uint64_t wait_duration_ns = 0;  // of kind "redundant-sync": the host waited, all calls together
  std::vector<RelatedPlace> related;
  std::string suppression;  // an entry for a file of suppressions, if asked for
  // Equal findings of several processes are one. Empty if the run had one process only.
  std::vector<FoundIn> found_in;
  std::string found_in_text;  // "ranks 0, 1", "process 77 (worker)"
};

// A conversion between floating-point types, as far as it was counted (--trace-fp16-to-fp32).
struct Conversion {
  uint32_t process_id = 0;
  std::string kernel, function;  // as in Finding, like the next three
  std::vector<SourceLocation> frames;
  uint32_t ptx_line = 0;
  std::string instruction;
  std::string from, to;  // PTX types: "f32", "f16"
  bool widens = false;  // exact; `origin` says where the value was rounded before, if that is known
  std::string origin;   // "cvt.rn.f16.f32 at k.cu:12"
  uint64_t executions = 0, rounded = 0;  // by all threads; those that lost something
  double worst_relative_loss = 0;
  std::string example_from, example_to;  // the first that lost something
};

struct UncheckedAccesses {
  std::string instruction;
  std::string reason;
  uint64_t count = 0;  // instructions, not executions
};

struct UncheckedLaunches {
  std::string reason;
  uint64_t launches = 0;
};

struct KernelCoverage {
  std::string name;    // demangled
  std::string engine;  // "ptx", "sass", "emulator", several as "ptx+sass"; empty: never checked
  uint64_t launches = 0;
  uint64_t checked_launches = 0;
  std::vector<UncheckedLaunches> not_checked;  // the rest, most launches first
  uint64_t timed_launches = 0;                 // whose time on the GPU was measured
  uint64_t timed_duration_ns = 0;
  uint64_t checked_accesses = 0;  // instructions
  std::vector<UncheckedAccesses> unchecked;

  // Mean of the measured launches times all launches; nothing if none was measured.
  std::optional<double> EstimatedTime_ns() const;
};

// How much of the GPU's time in kernels was checked, from sampled launches
// (interposer/launch_timing.h).
struct TimeShare {
  double checked_percent = 0;    // of the time of the kernels that were timed
  uint64_t untimed_kernels = 0;  // that were launched
  uint64_t timed_launches = 0;
};

// Kernels and launches that were not checked for one reason.
struct UncheckedGroup {
  std::string reason;
  uint64_t launches = 0;
  std::vector<std::pair<const KernelCoverage*, uint64_t>> kernels;  // with its launches, most first
};

struct ProcessInfo {
  uint32_t process_id = 0;
  std::string executable;
  std::vector<std::string> arguments;
  std::string device_name;
  std::string driver_version;
  bool emulated = false;
  bool ended = false;                        // in an orderly way
  std::string rank, local_rank, world_size;  // of a distributed launcher; empty: none
  bool injected = false;                     // the driver loaded the tool, not LD_PRELOAD
  uint32_t signal = 0;                       // that ended it, if it could say so; else 0
  std::vector<std::string> checks;           // that were on; "none"; empty: a log that does not say
};

// Launches that the CPU device did not decide for one reason, though the GPU could not either.
struct UnreplayedGroup {
  std::string reason;
  std::vector<std::string> kernels;    // demangled, by name
  std::vector<std::string> undecided;  // what is not known about them
};

// Launches that were run once more on the CPU device, to decide what the GPU cannot.
struct ReplaySummary {
  uint64_t launches = 0;
  uint64_t kernels = 0;
  uint64_t decided_pairs = 0;  // unproven pairs of accesses that are none after all
  uint64_t duration_ns = 0;    // of all replays, one after the other
  std::vector<UnreplayedGroup> not_replayed;
  bool empty() const { return launches == 0 && not_replayed.empty(); }
};

struct Coverage {
  std::vector<KernelCoverage> kernels;  // that were launched, by name
  uint64_t loaded_modules = 0;
  uint64_t loaded_kernels = 0;
  uint64_t unknown_accesses = 0;  // to memory of unknown origin, let through
  std::vector<ProcessInfo> processes;
  ReplaySummary replays;

  uint64_t CheckedKernels() const;  // with at least one checked launch
  uint64_t CheckedKernels(const std::string& engine) const;
  // That checked kernels, by name.
  std::vector<std::string> Engines() const;
  // That were on in any process, in the order "memory", "race", "sync", "init"; "none" if all
  // processes say so; empty: none says.
  std::vector<std::string> Checks() const;
  uint64_t Launches() const;
  uint64_t CheckedLaunches() const;
  // Nothing if no kernel was timed.
  std::optional<TimeShare> CheckedTime() const;
  // Most launches first.
  std::vector<UncheckedGroup> NotChecked() const;
};

// What one entry of a file of suppressions did to this report (suppressions.h).
struct SuppressionUse {
  std::string file;
  uint32_t line = 0;
  std::string reason;
  bool shipped = false;  // with ops-debug, not the user's
  uint64_t findings = 0;
};

// Something the tool has to say about itself.
struct Remark {
  Severity severity = Severity::kNote;
  std::string text;
  std::string hint;
  bool operator==(const Remark&) const = default;
};

// A finding that is not reported because an entry accepts it.
struct SuppressedFinding {
  Finding finding;
  size_t by = 0;  // index into Report::suppressions
};

struct Report {
  std::vector<Finding> findings;
  std::vector<Finding> unproven;  // neither findings nor passes: they change no exit code
  std::vector<SuppressedFinding> suppressed;
  std::vector<SuppressionUse> suppressions;  // all entries that were read
  std::vector<Remark> remarks;
  std::vector<Conversion> conversions;
  Coverage coverage;
  uint64_t lost_events = 0;
};

// Findings that change the exit code: errors. Warnings (leaks, failed calls) and notes do not.
uint64_t CountErrors(const std::vector<Finding>& findings);

// Of the stack, what its author wrote: the innermost frame outside of installed packages and the
// standard library; else the innermost one. Null: the stack is empty.
const PythonFrame* OwnFrame(const std::vector<PythonFrame>& stack);

// Benign races and needless synchronisation: information, no finding to act on.
uint64_t CountNotes(const std::vector<Finding>& findings);

// "oob-global 2, misaligned 1", most frequent first.
enum class Notes : uint8_t { kWithout, kOnly };
std::string CountByKind(const std::vector<Finding>& findings, Notes notes);

}  // namespace ops_debug::analysis
