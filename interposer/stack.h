// Host stacks of allocations, frees and launches: captured as bare addresses, named only when an
// event needs them.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace ops_debug::interposer {

// Return addresses, innermost first, without the frames of this library. 264 bytes, trivially
// copyable.
struct HostStack {
  static constexpr uint32_t kMaxFrames = 32;
  uint32_t count = 0;
  std::array<uintptr_t, kMaxFrames> return_addresses{};
};

// Walks the stack of the calling thread by the unwind tables (about a microsecond per few frames;
// no allocation, no locks of ours). Never throws.
HostStack CaptureHostStack() noexcept;

// One named frame; the shape of proto StackFrame.
struct StackFrame {
  std::string module;   // path of the executable or library
  uint64_t offset = 0;  // of the return address from the module's load address, in bytes
  std::string symbol;   // nearest exported symbol, mangled; may be empty
  uint64_t symbol_offset = 0;
};

// Names the frames. Modules must still be loaded: a frame whose module is gone has an empty path
// and its raw address.
std::vector<StackFrame> ResolveHostStack(const HostStack& stack);

}  // namespace ops_debug::interposer
