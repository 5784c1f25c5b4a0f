// The life of a process that holds the interposer: first driver call, fork, exec, exit, signals.
#pragma once

#include <cstdint>

namespace ops_debug::interposer {

enum class EndPhase : uint8_t {
  kDriverUsable,  // exit() or return from main: the driver still works, device memory can be read
  kDriverGone,    // library destructors: host data only; real driver calls may fail or crash, make
                  // none
};

// `flush` runs when the process ends, before ProcessEnd is sent: in both phases when it ends by
// itself; in the first one only before exec, and when _exit, or a signal that the program does not
// handle, ends it (termination.h; in a thread of ours then). Never on SIGKILL. It may run
// more than once: an exec that fails lets the process go on. Call this during static initialisation
// or later; at most 16 in a process. Must not throw.
void AtProcessEnd(void (*flush)(EndPhase phase)) noexcept;

// True while flush functions run because of exec, _exit or a signal: the program did not get to its
// own end, so what it has not freed yet is no leak.
bool EndIsForced() noexcept;

// Fork: while fork() runs, no other thread is inside a handler, so a lock that handlers hold only
// while they run is free in the child, and the data it guards is whole. A thread that stays inside
// the driver too long makes the fork go ahead without that promise; handlers in the child are then
// switched off (calls pass through, with a Diagnostic).
//
// Counts forks between the process that loaded the library and this one: handlers compare it to
// notice that device state belongs to a parent.
uint32_t ForkGeneration();

// `forget` runs in the child of each fork, when the above promise holds: for what the parent has
// counted but not sent, which is the parent's to send. Call it during static initialisation or
// later; at most 16 in a process. Must not throw, must not call the driver.
void AtForkInChild(void (*forget)()) noexcept;

}  // namespace ops_debug::interposer
