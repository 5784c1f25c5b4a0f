// The memory that a launch can reach, as it is before it runs: what its parameters and the module's
// variables point into, and what that memory points into in turn. Any aligned word may be a
// pointer; a word that only looks like one costs room, nothing else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "interposer/capture_file.h"
#include "interposer/stream_reader.h"
#include "shadow/host/allocation_book.h"

namespace ops_debug::interposer {

class CapturedReach {
 public:
  // Adds to what `capture` holds. At most `budget_bytes` of memory and variables in all.
  CapturedReach(const ContextPointer& context, StreamReader& reader, uint64_t budget_bytes,
                Capture* capture);

  // A variable of the module, and what it points into.
  bool AddVariable(CapturedModule& module, const std::string& name, uint64_t address,
                   uint64_t size_bytes);
  // What the words of the parameter buffer, and tensor maps in it, point into.
  bool AddParameters(std::span<const char> parameters);
  // What was found on the way. Memory that is reached through other memory is left out where there
  // is no room for it: a replay that needs it says so. False: `failure` says why.
  bool Finish();

  const std::string& failure() const { return failure_; }
  // Of what was captured, biggest first.
  std::vector<shadow::Allocation> allocations() const;

 private:
  struct Found {
    shadow::Allocation allocation;
    bool direct = false;
  };

  void Scan(std::span<const char> bytes, uint64_t address, bool direct);
  void Point(uint64_t address, bool direct);
  bool Covered(uint64_t address, uint64_t size_bytes) const;
  bool Read(const shadow::Allocation& allocation);

  const ContextPointer context_;
  StreamReader& reader_;
  const uint64_t budget_bytes_;
  Capture& capture_;
  uint64_t used_bytes_ = 0;
  std::vector<shadow::AllocationRange> live_;  // by address
  std::vector<Found> queue_;
  std::vector<shadow::AllocationRange> claimed_;  // captured or queued
  std::vector<shadow::Allocation> allocations_;
  size_t scanned_maps_ = 0;
  std::string failure_;
};

// True if the allocation that `pointer` points into, of at most `most_bytes`, has bytes that nobody
// has written when the reader's stream is done so far.
bool HasUnwritten(ContextState& context, StreamReader& reader, uint64_t pointer,
                  uint64_t most_bytes);

// "3.2 GiB"
std::string SizeInWords(uint64_t bytes);

}  // namespace ops_debug::interposer
