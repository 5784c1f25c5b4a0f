// Reads device memory in the order of a stream without ever waiting for longer than is agreed: the
// stream may be held up by a kernel that never ends, or that waits for what the program does next.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "interposer/context_state.h"

namespace ops_debug::interposer {

// Not thread-safe: one at a time in the process.
class StreamReader {
 public:
  using Clock = std::chrono::steady_clock;

  // The context must be current (InternalCalls), the stream not captured.
  StreamReader(const ContextPointer& context, CUstream explicit_stream, Clock::time_point deadline)
      : context_(context), stream_(explicit_stream), deadline_(deadline) {}

  // The memory as the work that was submitted to the stream before leaves it. False: `failure`
  // says why, and nothing more can be read.
  bool Read(uint64_t address, uint64_t size_bytes, char* out);
  const std::string& failure() const { return failure_; }
  bool timed_out() const { return timed_out_; }

 private:
  struct Staging;
  static Staging* StagingOf(const ContextPointer& context);
  bool Wait();

  const ContextPointer context_;
  const CUstream stream_;
  const Clock::time_point deadline_;
  Staging* staging_ = nullptr;
  std::string failure_;
  bool timed_out_ = false;
};

}  // namespace ops_debug::interposer
