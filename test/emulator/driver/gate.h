// A host function that holds a stream until the test lets it go on.
#pragma once

#include <cuda.h>

#include <catch2/catch.hpp>
#include <condition_variable>
#include <mutex>

namespace ops_debug::emulator::test {

class Gate {
 public:
  Gate() = default;
  ~Gate() { Open(); }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  void Hold(CUstream stream) {
    REQUIRE(cuLaunchHostFunc(
                stream, [](void* gate) { static_cast<Gate*>(gate)->Wait(); }, this) ==
            CUDA_SUCCESS);
  }
  void Open() {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_open_ = true;
    opened_.notify_all();
  }
  bool is_open() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return is_open_;
  }

 private:
  void Wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    opened_.wait(lock, [&] { return is_open_; });
  }

  std::mutex mutex_;
  std::condition_variable opened_;
  bool is_open_ = false;
};

}  // namespace ops_debug::emulator::test
