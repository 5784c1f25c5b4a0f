// How flags order: release and acquire patterns (PTX ISA 9.0, 8.7 to 8.9).
//
// A strong write after a release, or that is one, leaves a message at its location: what the
// writer knew. A strong read that is an acquire, or is followed by a fence, gets what the messages
// say, if the scopes on both sides hold both threads. A strong store replaces the messages, a
// read-modify-write adds to them, since it continues the observation order. What fails (no acquire,
// no release, scopes too narrow) is remembered for the explanation.
//
// Two things are kinder than the letter of the model, because hardware keeps them and programs rely
// on it: a barrier passes on what the fences of its threads have released and what its threads have
// seen, so "all threads fence, barrier, one thread sets the flag" is in order. And one is stricter:
// two fence.sc that merely run one after the other do not order anything, because in another run
// they come the other way round.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "emulator/checks/thread_clock.h"
#include "emulator/code.h"

namespace ops_debug::emulator {

inline constexpr uint32_t kScopes = 4;
inline constexpr uint32_t kKeptFlags = 4;

struct SyncMessage {
  MemoryScope scope = MemoryScope::kDevice;        // of the release
  MemoryScope write_scope = MemoryScope::kDevice;  // of the write
  ActorId actor = 0;
  uint32_t lane = 0;
  Knowledge known;
};

// What a thread knew when it wrote, whether or not it released that.
struct SyncWriter {
  ActorId actor = 0;
  uint32_t lane = 0;
  uint32_t clock = 0;
  ClockTree known;
};

// Some of those who have written, for explanations. Shared with those who have read.
using SyncWriters = std::shared_ptr<const std::vector<SyncWriter>>;

struct SyncCell {
  std::vector<SyncMessage> messages;
  SyncWriters writers;
};

// Of a thread that uses flags.
struct ThreadSync {
  struct Released {
    bool any = false;
    uint32_t clock = 0;
    Knowledge known;
  };
  Released released[kScopes];  // by an own fence, per scope of the fence
  Knowledge passed[kScopes];   // released by fences of others, before a barrier
  Knowledge seen[kScopes];     // read, by distance of the writer; a fence of that scope acquires it
  ClockTree latest_seen;       // the last message that was added to `seen`
  bool acquires = false;       // it has acquired something, or tried to
  ClockTree narrow;            // what could not be acquired for the scopes
  SyncWriters writers[kKeptFlags];  // of the flags that were read last
};

}  // namespace ops_debug::emulator
