// The parameters of a launch as the program gives them, and the same with the
// twin's extra one behind them.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "shadow/host/bounds.h"
#include "shadow/passes/instrument.h"

namespace ops_debug::interposer {

// Reads the buffer out of `extra` (CU_LAUNCH_PARAM_BUFFER_POINTER and _SIZE, up
// to CU_LAUNCH_PARAM_END). False: there is none, or an unknown item.
bool ReadExtra(void* const* extra, std::span<const std::byte>* buffer);

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
  void** parameters() { return pointers_.empty() ? nullptr : pointers_.data(); }
  void** extra() { return pointers_.empty() ? extra_ : nullptr; }

 private:
  std::vector<uint64_t> launch_parameter_;  // 8-byte units, for its alignment
  std::vector<void*> pointers_;
  std::vector<uint64_t> packed_;
  size_t packed_bytes_ = 0;
  void* extra_[5] = {};
};

}  // namespace ops_debug::interposer
