// The life of a process that holds the interposer: first driver call, fork, exit.
#pragma once

#include <cstdint>

namespace ops_debug::interposer {

enum class EndPhase : uint8_t {
  kDriverUsable,  // exit() or return from main: the driver still works, device memory can be read
  kDriverGone,    // library destructors: host data only; real driver calls may fail or crash, make
                  // none
};

// `flush` runs once in each phase when the process ends in an orderly way (never on _exit, exec or
// a signal), before ProcessEnd is sent. Call it during static initialisation or later; at most 16
// in a process. Must not throw.
void AtProcessEnd(void (*flush)(EndPhase phase)) noexcept;

// Fork: while fork() runs, no other thread is inside a handler, so a lock that handlers hold only
// while they run is free in the child, and the data it guards is whole. A thread that stays inside
// the driver too long makes the fork go ahead without that promise; handlers in the child are then
// switched off (calls pass through, with a Diagnostic).
//
// Counts forks between the process that loaded the library and this one: handlers compare it to
// notice that device state belongs to a parent.
uint32_t ForkGeneration();

}  // namespace ops_debug::interposer
