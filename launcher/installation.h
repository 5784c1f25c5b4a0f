// Where the tool's own files are: relative to this program, so that a build tree or a copy of it
// runs in place.
#pragma once

#include <string>

namespace ops_debug::launcher {

struct Installation {
  std::string directory;        // of ops-debug
  std::string analyzer;         // ops-debug-analyzer
  std::string runner;           // ops-debug-runner
  std::string preload_library;  // lib/libops_debug_interposer.so
  std::string emulator_folder;  // emulator: libcuda.so.1 and libcudart.so.N of the CPU device
  std::string python_folder;    // python: package ops_debug, for the target's PYTHONPATH
  std::string suppressions;     // suppressions.yaml: known-benign patterns of libraries
  std::string launcher;         // ops-debug itself
  std::string replayer;         // ops-debug-replayer
  std::string compare;          // ops-debug-compare
};

Installation FindInstallation();

}  // namespace ops_debug::launcher
