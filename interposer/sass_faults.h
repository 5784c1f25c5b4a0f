// The fault channel of the second engine in one context: its memory, and from there to events.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "interposer/context_state.h"
#include "interposer/event_sender.h"
#include "interposer/fault_drain.h"
#include "interposer/sass_code.h"
#include "shadow/abi/sass_abi.h"

namespace ops_debug::interposer {

class SassFaultChannel {
 public:
  // Makes the channel in the current context. On failure `failure()` says why.
  SassFaultChannel(const ContextPointer& context, SassCodeBook& code);
  // The memory goes with the context: the channel lives until the process ends.
  SassFaultChannel(const SassFaultChannel&) = delete;
  SassFaultChannel& operator=(const SassFaultChannel&) = delete;

  const std::string& failure() const { return failure_; }
  const ContextPointer& context() const { return context_; }
  // Device address of the SassChannel.
  uint64_t address() const { return channel_; }

  // Sends what is new. `learn(function)` fills in pc and size of a function; false: not loaded.
  using LearnFunction = std::function<bool(SassFunction* function)>;
  void Drain(DrainDepth depth, const LearnFunction& learn);

  // Drains, from host memory, what has been there for longer than `patience`.
  void DrainStanding(std::chrono::steady_clock::time_point now,
                     std::chrono::steady_clock::duration patience);

  // The event for one published fault.
  static FaultEvent MakeEvent(const shadow::SassPublishedFault& published,
                              const std::optional<SassPlace>& place, uint64_t count);

 private:
  struct Reported {
    uint64_t sequence = 0;
    uint64_t count = 0;
  };

  std::string SetUp();
  std::optional<SassPlace> Locate(uint64_t pc, bool ask, const LearnFunction& learn);
  void ReportSlot(uint32_t slot, const shadow::SassFaultRecord* record, bool ask,
                  const LearnFunction& learn);
  void ReportCounters(bool final);
  void DrainLocked(DrainDepth depth, const LearnFunction& learn);

  ContextPointer context_;
  SassCodeBook& code_;
  std::string failure_;
  uint64_t records_ = 0;
  uint64_t channel_ = 0;
  shadow::SassPublishedFault* published_ = nullptr;
  shadow::SassCounters* counters_ = nullptr;

  std::mutex mutex_;                                 // guards the rest
  std::unordered_map<uint32_t, Reported> reported_;  // by slot
  uint64_t seen_publications_ = 0;
  uint64_t standing_publications_ = 0;
  std::chrono::steady_clock::time_point standing_since_;
  uint64_t reported_unknown_ = 0;
  uint64_t reported_overflow_ = 0;
};

}  // namespace ops_debug::interposer
