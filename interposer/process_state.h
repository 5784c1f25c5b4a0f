// The one process state, for the hook boundary and for what else reacts to the life of the process:
// who may run a handler now, the announcement of the process, and its end.
#pragma once

namespace ops_debug::interposer {

// True: the calling thread may run a handler, and must call LeaveHandler afterwards. False: no
// session, this thread is inside a handler already, or handlers are off in this child of a fork.
bool EnterHandler() noexcept;
void LeaveHandler() noexcept;
// The same as EnterHandler, for what is no driver call: it never announces the process.
bool EnterHandlerQuietly() noexcept;

// Sends ProcessStart if this process (this process id) has not yet, and arms the exit hook. Call
// between EnterHandler and LeaveHandler.
void AnnounceProcess() noexcept;

// True if this process has sent its ProcessStart: not a forked or vforked child of one that has.
bool AnnouncedHere() noexcept;

// The process goes on as another program. Sends what there is to report and ProcessEnd; if the exec
// then fails, ExecFailed makes the next driver call announce the process again.
void EndBeforeExec() noexcept;
void ExecFailed() noexcept;

// A signal, or _exit, ends the process. In any thread that holds no lock of ours.
void EndBySignal(int signal) noexcept;
void EndBeforeExit() noexcept;

// Called by the driver, which loaded the library (injection.cc): sets ProcessStart.injected.
void SetInjected() noexcept;
bool IsInjected() noexcept;

}  // namespace ops_debug::interposer
