// PTX text -> Module, and fragments of text into an existing module (how passes add code).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ptx/ir.h"
#include "ptx/result.h"

namespace ops_debug::ptx {

// A whole module (PTX ISA 9.0). Trailing NUL bytes are ignored. Errors carry line and column of the
// offending token.
Result<Module> Parse(std::string text);

// Statements to insert into `function`. Names resolve in this order: registers that the text
// declares itself (inside braces: for these braces only), registers of the function's outermost
// scope, registers of inner blocks if the name is declared in one block only. `#0`, `#1`... stand
// for the given operands, wherever an operand, the base of an address or a guard may stand: the way
// to name a register of any scope. The statements have line 0 ("made by a pass"); the error's line
// and column refer to `text`. A `.reg` outside braces must be inserted once and before its uses.
Result<std::vector<Statement>> ParseStatements(Module& module, Function& function,
                                               std::string_view text,
                                               std::span<const Operand> arguments = {});

// Appends the functions and variables of a PTX text without .version header to the module's items.
Result<bool> AppendItems(Module& module, std::string_view ptx_items);

}  // namespace ops_debug::ptx
