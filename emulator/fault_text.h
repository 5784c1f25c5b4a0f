// The words in which a failed launch is reported.
#pragma once

#include <string>

#include "emulator/machine.h"

namespace ops_debug::emulator {

// "illegal address in kernel K at `st.global.u32 [%rd1], %r1;` (PTX line 12, planted.cu:18), block
// (0,0,0), thread (31,0,0): 4-byte access to ...".
std::string DescribeFault(const Launch& launch, const Block& block, const Fault& fault);

// "`bar.sync 0;` (PTX line 12, planted.cu:18)".
std::string DescribePlace(const Program::Impl& program, const Function& function,
                          uint32_t statement);

}  // namespace ops_debug::emulator
