// Module -> PTX text. Token for token what was parsed, plus what passes added; layout and comments
// are our own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ptx/ir.h"

namespace ops_debug::ptx {

// `original_lines`, if given, tells for each printed line (index 0: line 1) which line of the
// parsed text its instruction comes from; 0: none, or one that a pass made. It ends with the last
// instruction.
std::string Print(const Module& module, std::vector<uint32_t>* original_lines = nullptr);

// One line, without indentation or line end: "@%p1 ld.global.f32 %f1, [%rd4+8];".
std::string PrintInstruction(const Instruction& instruction);

std::string PrintOperand(const Operand& operand);

}  // namespace ops_debug::ptx
