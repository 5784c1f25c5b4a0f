// The functions of PyTorch's that this library stands in front of.
#pragma once

#include <span>

namespace ops_debug::interposer {

struct TorchFunction {
  const char* symbol;  // mangled
  void (*ours)();
};

// A preloaded library is in front of PyTorch's by its exports; an injected one comes too late for
// that, and has to set the importers' slots (rebinding.h).
std::span<const TorchFunction> TorchFunctions();

}  // namespace ops_debug::interposer
