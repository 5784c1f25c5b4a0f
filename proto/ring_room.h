// Where the ring of a run goes: /dev/shm if it has room and lets us, nameless memory otherwise, and
// a smaller ring if memory itself is short. A run must not fail for lack of a buffer.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "proto/ring.h"

namespace ops_debug::proto {

// A ring of `capacity_bytes`, or of less, down to 32 KiB. `name` is used if the ring goes to
// /dev/shm; RingConsumer::name() tells. `*note`: what was not as wished, in words for the user;
// empty if all was. Null and `*error`: nothing worked.
std::unique_ptr<RingConsumer> CreateRingWhereRoom(const std::string& name, size_t capacity_bytes,
                                                  std::string* note, std::string* error);

// Removes rings of ours from `folder` (/dev/shm) whose runs were killed as a whole: named
// "ops-debug-PID-...", of this user and this PID namespace, with neither launcher nor consumer
// alive. Returns how many.
int RemoveDeadRings(const std::string& folder);

}  // namespace ops_debug::proto
