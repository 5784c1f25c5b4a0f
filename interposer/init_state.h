// Which device memory was never written, for kernels that look for reads of it themselves
// (shadow/passes/add_init_checks.h): the host marks fresh allocations, and what its copies and
// memsets write, in the order of their streams; kernels mark what they write. Whatever may write
// unseen makes everything count as written: a finding must be true.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "interposer/driver_table.h"
#include "shadow/abi/device_abi.h"
#include "shadow/host/allocation_book.h"
#include "shadow/host/bounds.h"
#include "shadow/host/shadow_map.h"
#include "shadow/host/written_ranges.h"

namespace ops_debug::interposer {

struct ContextState;

// True if instrumented kernels look for reads of memory that was never written.
bool ChecksInitOnDevice() noexcept;

// Of one context. Thread-safe.
class InitState {
 public:
  explicit InitState(ContextState& context);
  InitState(const InitState&) = delete;
  InitState& operator=(const InitState&) = delete;

  // Device address for ModuleContext::init_directory; 0: no memory.
  uint64_t directory();

  // Fresh memory of the program; nothing that others write unseen (managed, mapped, imported).
  // Stream-ordered memory is marked in the order of its stream.
  void Allocated(const shadow::Allocation& allocation);
  // The memory is written from here on, in the order of the stream (null: now).
  void Written(uint64_t address, uint64_t width_bytes, uint64_t height, uint64_t pitch_bytes,
               CUstream explicit_stream);
  // The same, with the state of its source in this context.
  void Copied(uint64_t to, uint64_t to_pitch_bytes, uint64_t from, uint64_t from_pitch_bytes,
              uint64_t width_bytes, uint64_t height, CUstream explicit_stream);
  // Where on the device the bits of memory lie, one piece per region of shadow memory; a set bit is
  // a byte that was never written. What lies in no piece counts as written. The bits change in the
  // order of streams, before the memory does.
  struct Bits {
    uint64_t address = 0;  // of the memory: a multiple of 8
    uint64_t place = 0;    // of the bits: 8 bytes of memory each
    uint64_t bytes = 0;
  };
  std::vector<Bits> BitsOf(uint64_t address, uint64_t size_bytes);
  // Of a launch's pointers: bit i is set if the host knows the allocation that pointer i lies in to
  // be wholly written (written_ranges.h).
  uint32_t WhollyWritten(const std::vector<uint32_t>& parameter_offsets,
                         const shadow::LaunchParameters& parameters);
  // Something writes that cannot be followed; said once.
  void AllWritten(CUstream explicit_stream, const std::string& because);

 private:
  bool Ready();
  void NoteCopied(uint64_t to, uint64_t to_pitch_bytes, uint64_t from, uint64_t from_pitch_bytes,
                  uint64_t width_bytes, uint64_t height, bool captured);
  void Launch(const shadow::InitRange& range, CUstream explicit_stream);
  // Shadow memory that may be wrong makes false alarms.
  void Lose();

  ContextState& context_;
  std::mutex mutex_;  // guards the rest
  bool ready_ = false, failed_ = false;
  bool any_unwritten_ = false;  // since everything was last written
  shadow::ShadowMap map_;
  shadow::WrittenRanges known_;  // is no more than what the bits say
  CUmodule module_ = nullptr;
  CUfunction kernel_ = nullptr;
};

// Has copies and memsets of the host told to what device memory holds about memory: which of it was
// written (here), and who touched it last (race_state.h).
void ListenForHostWork() noexcept;

// In all contexts: a way that memory is written by that nobody sees.
void AllMemoryWritten(const std::string& because) noexcept;

}  // namespace ops_debug::interposer
