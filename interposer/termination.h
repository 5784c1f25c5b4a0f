// Signals that would end the process without a word: SIGTERM and its kin, and crashes.
//
// A kernel's faults wait in memory of this process until they are read, and nobody else can read
// them. So while such a signal has its default action, a handler of ours stands in for it: it has
// what there is reported, then lets the default action happen, so the program ends by the same
// signal as without us (after a crash the faulting instruction runs once more, so a core file shows
// the same). What the program sees does not change: our sigaction and signal (exported)
// go on answering "default" for it, and whatever handler the program sets takes our place.
//
// _exit is the other way to go without a word: Python's multiprocessing ends the children that it
// forked so. The exported _exit has the same done before.
//
// A handler may run in any state, malloc's lock held, so it does nothing itself: a thread of ours,
// started in time, reports while the handler waits for it, at most a second and a half.
#pragma once

#include <signal.h>

namespace ops_debug::interposer {

// From now on. Call it when the process has announced itself. Does nothing the second time.
void WatchSignals() noexcept;

// In a forked child: it has no such thread, and nothing to report.
void LeaveSignalsAlone() noexcept;

// Has what there is reported, by the thread, if this process is watched. Returns when that is done
// or has taken too long. May be called in a signal handler.
void ReportBeforeExit() noexcept;

// What the exported sigaction and signal do (hooks_signal.cc).
int SetSignalAction(int signal, const struct sigaction* action, struct sigaction* old) noexcept;
sighandler_t SetSignalHandler(int signal, sighandler_t handler) noexcept;

}  // namespace ops_debug::interposer
