// Module -> PTX text. Token for token what was parsed, plus what passes added; layout and comments
// are our own.
#pragma once

#include <string>

#include "ptx/ir.h"

namespace ops_debug::ptx {

std::string Print(const Module& module);

// One line, without indentation or line end: "@%p1 ld.global.f32 %f1, [%rd4+8];".
std::string PrintInstruction(const Instruction& instruction);

std::string PrintOperand(const Operand& operand);

}  // namespace ops_debug::ptx
