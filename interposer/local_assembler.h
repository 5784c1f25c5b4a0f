// A ptxas of this machine, for PTX that is newer than the driver's own compiler.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "interposer/ptx_store.h"

namespace ops_debug::interposer {

// Programs to try, the most likely first: beside the compilers and frameworks that this process has
// loaded, on PATH, in the toolkit's usual place.
std::vector<std::string> LocalAssemblers();

// The cubin for `arch` (90: sm_90; the text's own target if that is more specific). Empty: no
// assembler was found or none accepts the text; `*why` says so.
std::string AssembleLocally(const std::string& ptx, uint32_t arch, const AssemblerOptions& options,
                            std::string* why);

}  // namespace ops_debug::interposer
