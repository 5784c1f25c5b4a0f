// Work that is done on behalf of a thread beside it: asynchronous copies and matrix operands.
#pragma once

#include <cstdint>

#include "emulator/checks/thread_clock.h"

namespace ops_debug::emulator {

struct Warp;

// A thread, or what works on its behalf beside it: the agents are actors of their own, which know
// nothing of what their thread does after it has started their work, and of which nobody knows
// anything until he has waited for it.
enum class Agent : uint8_t {
  kThread = 0,
  kAsyncCopy,   // cp.async of the thread
  kAsyncProxy,  // its bulk and tensor copies, wgmma operands; and all further numbers
};
inline constexpr uint32_t kAgents = 10;

// One piece of work (RaceCheck::StartAgent).
struct AgentWork {
  const Warp* warp = nullptr;
  uint32_t lane = 0;
  Agent agent = Agent::kAsyncCopy;
  uint32_t clock = 0;
  Knowledge known;
};

}  // namespace ops_debug::emulator
