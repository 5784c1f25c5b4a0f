// The parameters of a launch as the program gives them, and the same with the
// twin's extra one behind them.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "shadow/host/bounds.h"
#include "shadow/passes/instrument.h"

namespace ops_debug::interposer {

// Reads the buffer out of `extra` (CU_LAUNCH_PARAM_BUFFER_POINTER and _SIZE, up
// to CU_LAUNCH_PARAM_END). False: there is none, or an unknown item.
bool ReadExtra(void* const* extra, std::span<const std::byte>* buffer);

// Memory for one launch: on the stack if it is little, as it mostly is, because a launch must not
// pay for the heap.
template <class T, size_t kInline>
class LaunchBuffer {
 public:
  // `count` elements, all zero.
  T* Make(size_t count) {
    if (count > kInline) {
      more_.assign(count, T{});
      return more_.data();
    }
    std::fill_n(few_.begin(), count, T{});
    return few_.data();
  }

 private:
  std::array<T, kInline> few_;  // not initialised: Make does
  std::vector<T> more_;
};

// Owns what the driver reads while it copies the parameters of one launch.
class TwinParameters {
 public:
  TwinParameters() = default;
  TwinParameters(const TwinParameters&) = delete;
  TwinParameters& operator=(const TwinParameters&) = delete;

  // False: the program's own parameters are incomplete, and the driver will
  // refuse the original, too.
  bool Build(const shadow::KernelPlan& plan, void** parameters, void** extra,
             const shadow::AllocationBook& book, shadow::BoundsSource source, uint64_t launch_id);
  // Where the driver will read the twin's own parameter, plan.launch_parameter_bytes long.
  std::byte* launch_parameter() { return launch_parameter_bytes_; }
  void** parameters() { return pointers_; }
  void** extra() { return pointers_ ? nullptr : extra_; }

 private:
  LaunchBuffer<uint64_t, 64> launch_parameter_;  // 8-byte units, for its alignment
  LaunchBuffer<void*, 64> pointer_memory_;
  LaunchBuffer<uint64_t, 64> packed_;
  std::byte* launch_parameter_bytes_ = nullptr;
  void** pointers_ = nullptr;
  size_t packed_bytes_ = 0;
  void* extra_[5] = {};
};

}  // namespace ops_debug::interposer
