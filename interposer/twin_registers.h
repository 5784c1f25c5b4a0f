// A twin must launch wherever its original does. It needs more registers, and a block's threads
// share a fixed number of them: a kernel without launch bounds may run in blocks of 1024 threads
// with its 64 registers, its twin of 80 may not. The driver tells after loading how many threads a
// block of each may have; twins that fall behind are compiled again with `.maxnreg` (PTX ISA,
// performance-tuning directives), which costs them spills but not the launch.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "shadow/passes/instrument.h"

namespace ops_debug::interposer {

struct RegisterCap {
  std::string twin;
  int registers = 0;  // per thread
};

// `max_threads`: of a block of this kernel of the loaded module; 0 if the driver does not tell. It
// is asked only about kernels without bounds in their declaration (.maxntid, .reqntid, .maxnreg):
// those bind the twin as well.
std::vector<RegisterCap> TwinsThatFitLess(const std::string& ptx,
                                          const std::vector<shadow::KernelPlan>& kernels,
                                          const std::function<int(const char* name)>& max_threads);

// The text with the caps in the twins' declarations.
std::string CapRegisters(const std::string& ptx, const std::vector<RegisterCap>& caps);

}  // namespace ops_debug::interposer
