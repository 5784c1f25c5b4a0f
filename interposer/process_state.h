// The one process state, for hooks.cc: who may run a handler now, and the announcement of the
// process.
#pragma once

namespace ops_debug::interposer {

// True: the calling thread may run a handler, and must call LeaveHandler afterwards. False: no
// session, this thread is inside a handler already, or handlers are off in this child of a fork.
bool EnterHandler() noexcept;
void LeaveHandler() noexcept;

// Sends ProcessStart if this process (this process id) has not yet, and arms the exit hook. Call
// between EnterHandler and LeaveHandler.
void AnnounceProcess() noexcept;

}  // namespace ops_debug::interposer
