// What the launcher asked of this process, and the way back to the analyzer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "proto/ring.h"

namespace ops_debug::interposer {

// The environment of proto/session.h, read once.
struct SessionOptions {
  bool active = false;        // kEnvRing is set and the library is not to stay passive
  std::string ring;           // name of the shared-memory segment
  bool check_memory = false;  // kEnvChecks contains "memory" (default when unset)
  // kEnvChecks contains "race", "sync", "init", "precision".
  bool check_races = false, check_sync = false, check_init = false, check_precision = false;
  bool precision_trace = false;  // kEnvPrecisionTrace is "1"
  bool null_rewrite = false;     // kEnvRewrite is "null"
  bool trap_on_error = false;    // kEnvOnError is "trap"
  uint64_t quarantine_bytes = 256ull << 20;
  std::string dump_directory;  // where to write rewritten modules; empty: nowhere
  bool emulated = false;       // the target runs on the emulator
  bool use_ptx_engine = true, use_sass_engine = true;  // kEnvEngine
  std::string ptx_store;                               // folder; empty: in memory only
  bool track_tensors = true;
  std::string kernel_name_pattern;  // regular expression; empty: all kernels
  uint64_t launch_skip = 0;         // per kernel
  uint64_t launch_count = UINT64_MAX;
  uint64_t sample = 1;  // check one launch in so many
  bool leak_check = false;
  // Races, barriers and uninitialised reads are found by the emulator's own exact checks, not by
  // instrumented kernels: emulated, unless kEnvEngine is "ptx".
  bool exact_checks = false;
  std::string library;        // full path of the interposer, as the launcher named it
  std::string replay_folder;  // for captured launches; empty: none are captured
  uint64_t replay_memory_bytes = 64ull << 20;  // most of one capture
  std::string capture_launch;                  // file for one launch; empty: none is saved
  std::string capture_tensors;                 // regular expression of kernels; empty: none
  std::string capture_folder;                  // existing; for their tensors
  uint64_t capture_bytes = 1ull << 30;         // of values
  bool races_in_shared_only = false;           // kEnvRaceMemory is "shared"
};

// True if any check is on: allocations and streams are tracked.
bool ChecksAnything() noexcept;

// Thread-safe; the reference stays valid until the process is gone.
const SessionOptions& Options() noexcept;

// True if events reach the analyzer from here: the ring is (or could be) opened. Never throws.
bool SessionOpen() noexcept;

// Sends one encoded proto::Event to the analyzer. False: no ring, or the ring stayed full and the
// loss was counted. Never throws. Opens the ring at the first call.
bool WriteEvent(std::span<const std::byte> event, proto::WhenFull when_full) noexcept;

}  // namespace ops_debug::interposer
