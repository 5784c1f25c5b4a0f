// The contract between the interposer and the emulator, for checks that the CPU device makes itself
// because it sees every access and every synchronisation: races by happens-before, uninitialised
// reads, faults of barriers, deadlocks. The emulator's libcuda.so.1 exports kEmulatorChecksSymbol;
// the interposer asks for it once (dlsym on that library), says what to check, and is called back.
// Plain data and C functions: both sides are separate libraries in the user's process.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ops_debug::shadow {

inline constexpr uint32_t kEmulatorChecksVersion = 1;
inline constexpr char kEmulatorChecksSymbol[] = "cuOpsDebugEmulatorChecks";

// Code that instrumentation adds, which checks must not look at: functions whose names begin so
// (and what they call), and instructions that name a register which begins so.
inline constexpr char kToolFunctionPrefix[] = "__ops_debug_";
inline constexpr char kToolRegisterPrefix[] = "%ods";

enum EmulatorCheck : uint32_t {
  kEmulatorChecksRaces = 1,     // data races, stream order, misuse of atomics
  kEmulatorChecksBarriers = 2,  // barriers, warp masks, mbarriers, deadlocks
  kEmulatorChecksInit = 4,      // uninitialised reads
};

// ---- Order between operations
// Every piece of stream work (launch, copy, memset, free in stream order, host function, graph) is
// an operation with a number in a row of its own (its slot, mostly: its stream). Operation `a`
// happens before operation `b` iff a.number <= b.clock[a.slot]: a vector clock over slots
// (Mattern 1989; Fidge 1988). Operations of one slot are always ordered, whatever their numbers say
// (two threads may submit to one stream at the same moment) -- but for `early_clock` of the later
// one. All nodes of a launched graph have the graph's id, and are ordered by the graph. Accesses of
// the host are operations of slot 0.
struct OperationId {
  uint32_t slot = 0;
  uint32_t reserved = 0;
  uint64_t number = 0;  // from 1; 0: no operation
};
// What the interposer knows of an operation. Slots at and beyond `clock_size` count as 0. Copied by
// whoever keeps it.
struct OperationOrder {
  OperationId id;
  uint64_t token = 0;  // the interposer's name for it (launch id or number), given back in reports
  const uint64_t* clock = nullptr;
  size_t clock_size = 0;
  // A programmatic dependent launch: until it has waited for the grids before it
  // (griddepcontrol.wait), it comes only after this clock, also within its own slot. Null: there is
  // no such time.
  const uint64_t* early_clock = nullptr;
  size_t early_clock_size = 0;
};

// ---- Reports
struct EmulatorFrame {
  const char* function;  // null: not named
  const char* file;
  uint32_t line, column;
};

// The instruction that made an access or waits.
struct EmulatorSite {
  const char* function;     // mangled, as in the loaded module (a twin's name ends in $ops_debug)
  const char* instruction;  // as written
  uint32_t ptx_line;        // in the text that was loaded into the emulator
  uint32_t access_bytes;
  uint32_t access;              // proto AccessKind: 1 load, 2 store, 3 atomic; 0: none
  uint32_t space;               // proto AddressSpace: 1 global, 2 shared, 3 local
  const EmulatorFrame* frames;  // innermost first
  size_t frame_count;
  const char* variable;  // that holds the address, if it is a declared one; or null
  uint64_t variable_bytes;
};

struct EmulatorAccess {
  bool from_operation;  // a copy, memset, free... of the host: `token` says which; no site
  EmulatorSite site;
  const char* kernel;  // entry, mangled as loaded
  OperationId operation;
  uint64_t token;
  uint32_t block[3], thread[3];
  uint64_t address;  // device address, or offset in the block's shared memory
  uint32_t bytes;
  const uint8_t* value;  // null: not known
  uint32_t value_bytes;
  const char* semantics;  // "weak", "relaxed.gpu", "acquire.cta", "cp.async", "async proxy"
};

// Merged by the emulator per pair of sites and kind within a launch; `count` says how often.
struct EmulatorRace {
  uint32_t kind;  // proto Race.Kind
  EmulatorAccess first, second;
  uint64_t address;  // of what both touch
  uint32_t bytes;
  uint64_t count;
  bool same_value;
  uint32_t missing;                   // proto MissingOrder
  const char* pattern;                // KIND_ATOMICS, else null
  const EmulatorFrame* remedy_after;  // or null
  const EmulatorFrame* remedy_before;
};

struct EmulatorUninitialisedRead {
  EmulatorAccess read;
  uint64_t address;
  uint32_t bytes;
  uint64_t count;
  const char* use;               // "branch", "address", "stored", ...
  const EmulatorSite* use_site;  // null: the read itself
};

struct EmulatorWaiters {
  EmulatorSite site;
  uint64_t threads, blocks;
  uint32_t first_block[3], first_thread[3];
  const char* what;
};

struct EmulatorSyncFault {
  uint32_t kind;         // proto SyncFault.Kind
  EmulatorAccess place;  // site, kernel, token, block, thread; the rest only for mbarriers
  const EmulatorWaiters* waiters;
  size_t waiter_count;
  uint64_t count;
  const char* text;  // one sentence, or null
};

// Called on any thread of the emulator, never with its locks held, at the latest when the operation
// has been performed and before anybody is told that it has. Everything that is pointed to is valid
// during the call only.
struct EmulatorReportFunctions {
  void (*race)(const EmulatorRace* race);
  void (*uninitialised_read)(const EmulatorUninitialisedRead* read);
  void (*sync_fault)(const EmulatorSyncFault* fault);
  // A check could not be kept up (memory, a limit): in words, once per reason.
  void (*incomplete)(const char* text);
};

// ---- What the emulator offers
struct EmulatorChecks {
  uint32_t version;
  // Before the first driver call that does work; `checks` is a set of EmulatorCheck.
  void (*configure)(uint32_t checks, const EmulatorReportFunctions* functions);
  // The order of the next operation that the calling thread submits (one driver call; a graph's
  // launch or a batch of copies is one). Copied. Null: takes it back, because the call did not use
  // it. Work that is submitted without it is ordered behind everything before.
  void (*set_next_operation)(const OperationOrder* order);
  // The host itself reads or writes device-visible memory (a synchronous copy's host side, managed
  // or pinned memory that a later operation touches), ordered by `order`.
  void (*host_access)(const OperationOrder* order, uint64_t address, uint64_t bytes, bool is_write);
  // Memory that the interposer itself allocated: no check looks at it.
  void (*hide)(uint64_t address, uint64_t bytes);
  // New contents: a block was handed out (again) by a pool that the emulator does not know; it
  // counts as unwritten, and earlier accesses do not race with later ones.
  void (*renew)(uint64_t address, uint64_t bytes);
  // The memory was given back; later accesses are use after free, not races.
  void (*forget)(uint64_t address, uint64_t bytes);
  // A hash over who wrote the bytes of a range last (OperationId); 0: nobody that is known. Tells
  // whether operations of the device wrote there between two calls. May be null.
  uint64_t (*writers)(uint64_t address, uint64_t bytes);
};
using EmulatorChecksFunction = const EmulatorChecks* (*)(uint32_t version);  // null: other version

}  // namespace ops_debug::shadow
