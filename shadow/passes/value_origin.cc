// A walk from definition to definition, as long as there is one.
#include "shadow/passes/value_origin.h"

#include <variant>

#include "shadow/passes/numeric_instruction.h"

namespace ops_debug::shadow {
namespace {

constexpr int kMostSteps = 16;

bool Brings(const ptx::Instruction& instruction) {
  for (const char* name :
       {"ld", "ldu", "tex", "tld4", "suld", "atom", "shfl", "wgmma", "ldmatrix"}) {
    if (instruction.Is(name)) return true;
  }
  return instruction.Is("wmma") && instruction.Has(".load");
}

bool Passes(const ptx::Instruction& instruction) {
  if (instruction.Is("mov") || instruction.Is("neg") || instruction.Is("abs")) return true;
  const auto what = DescribeNumeric(instruction);
  return what && what->Widens();
}

}  // namespace

const ptx::Instruction* FindOrigin(const ptx::Function& function, const ptx::DefUse& flow,
                                   uint32_t statement, const ptx::Operand& operand,
                                   bool or_narrowing) {
  const ptx::Operand* at = &operand;
  for (int step = 0; step < kMostSteps && at->IsRegister(); step++) {
    const ptx::DefUse::Definition* definition = flow.UniqueDefinition(statement, at->reg);
    if (definition == nullptr) return nullptr;
    statement = definition->statement;
    const auto* maker = std::get_if<ptx::Instruction>(&function.body[statement]);
    if (maker == nullptr) return nullptr;
    if (Brings(*maker)) return maker;
    if (or_narrowing) {
      if (const auto what = DescribeNumeric(*maker); what && what->Narrows()) return maker;
    }
    if (!Passes(*maker) || maker->operands.size() != 2) return nullptr;
    at = &maker->operands[1];
  }
  return nullptr;
}

}  // namespace ops_debug::shadow
