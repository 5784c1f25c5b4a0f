// What the arguments of an assembler run mean: `ptxas`, and the options of the same names that
// NVRTC, nvJitLink and Triton pass on.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "interposer/ptx_store.h"

namespace ops_debug::interposer {

struct AssemblerCommand {
  std::vector<std::string> inputs;  // as named; option values are not among them
  std::string output = "elf.o";     // ptxas's default
  AssemblerOptions options;
};

// `arguments`: without the program's name. Files named by --options-file are read; unknown options
// are passed over.
AssemblerCommand ParseAssemblerCommand(const std::vector<std::string>& arguments);

// The same for a list that holds options only.
void ApplyAssemblerArguments(const std::vector<std::string>& arguments, AssemblerOptions* options);

// Splits as ptxas splits an options file: at white space, with "…" and '…' kept together.
std::vector<std::string> SplitArguments(std::string_view text);

}  // namespace ops_debug::interposer
