// Which lines of Python are being executed in this thread: captured as small numbers while the
// program runs, named when an event needs them. The interpreter is whatever the process holds
// (CPython 3.11 and up), found by name at run time; this library is linked to none.
#pragma once

#include <array>
#include <cstdint>

#include "interposer/event_sender.h"

namespace ops_debug::interposer {

// Innermost first; no frames if no Python runs in the thread. Trivially copyable.
struct PythonStackHandle {
  static constexpr uint32_t kMaxFrames = 16;
  uint32_t count = 0;
  std::array<uint32_t, kMaxFrames> lines{};  // numbers of the table in python_stack.cc
};

// Some ten nanoseconds per frame. Works whether or not this thread holds the interpreter's lock
// (PyTorch gives it up around every operation); takes no lock of the interpreter's, runs no Python
// code, changes no reference count.
PythonStackHandle CapturePythonStack() noexcept;

PythonStack ResolvePythonStack(const PythonStackHandle& stack);

// True if an interpreter was found in the process and its frames can be read.
bool PythonReadable() noexcept;

}  // namespace ops_debug::interposer
