// Proves for one launch that no two threads touch the same byte through given forms of addresses
// (index_form.h). What is proved needs no race checks; what is not is checked.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "shadow/host/bounds.h"
#include "shadow/passes/index_form.h"

namespace ops_debug::shadow {

struct LaunchShape {
  std::array<uint32_t, 3> grid{1, 1, 1}, block{1, 1, 1};
};

enum class Among : uint8_t {
  kAllThreads,
  kThreadsOfBlock,  // for shared memory
};

// `forms` have one base in common. A thread may meet itself. False: not proved.
bool ThreadsStayApart(std::span<const IndexForm> forms, const LaunchShape& shape,
                      const LaunchParameters& parameters, Among among);

}  // namespace ops_debug::shadow
