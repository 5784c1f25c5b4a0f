// Captured launches that do not end. The replay of a capture may prove that a launch can never end;
// that the launch hangs on the GPU, too, is found here, by a thread that asks the driver now and
// then and never waits (fault_watch.h).
#pragma once

#include <cstdint>

#include "interposer/context_state.h"
#include "interposer/event_sender.h"

namespace ops_debug::interposer {

struct WatchedLaunch {
  uint64_t capture_id = 0;
  LaunchDescription launch;
  ContextPointer context;
  CUstream stream = nullptr;  // explicit
  bool host_memory = false;   // memory in its reach that the host may write at any time
};
// Right behind the launch, in the same thread.
void WatchLaunch(WatchedLaunch launch);

// Sends LaunchStuck for those that run for too long. In the watching thread, while no context goes.
void LookForStuckLaunches();

// While one lives, the calling thread waits in the driver for work of the device, and does nothing
// else. Costs nothing unless launches are captured.
class BlockingCall {
 public:
  BlockingCall() = default;
  static BlockingCall Begin();
  ~BlockingCall() { End(); }
  BlockingCall(BlockingCall&& other) noexcept : active_(other.active_) { other.active_ = false; }
  BlockingCall& operator=(BlockingCall&& other) noexcept;
  void End();

 private:
  bool active_ = false;
};

}  // namespace ops_debug::interposer
