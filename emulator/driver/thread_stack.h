// A stack for thread_local use that needs no destructor. Programs and tools call CUDA from atexit
// handlers, which run after the main thread's thread_local objects have been destroyed; a
// std::vector would be gone by then.
#pragma once

#include <cstddef>
#include <type_traits>

namespace ops_debug::emulator {

template <class T, size_t kCapacity>
class ThreadStack {
 public:
  bool Empty() const { return depth_ == 0; }
  T& Top() { return items_[depth_ - 1]; }
  void Pop() { --depth_; }

  // False: full.
  bool Push(const T& item) {
    if (depth_ == kCapacity) return false;
    items_[depth_++] = item;
    return true;
  }

 private:
  static_assert(std::is_trivially_destructible_v<T>);
  size_t depth_ = 0;
  T items_[kCapacity] = {};
};

}  // namespace ops_debug::emulator
