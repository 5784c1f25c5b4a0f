// A search from the load forward, over definitions of registers. Each step from a definition to a
// use must be certain by itself; post-dominance is transitive, so then the whole way is.
#include "shadow/passes/value_uses.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <string_view>

#include "ptx/cfg.h"
#include "ptx/def_use.h"
#include "ptx/operands.h"

namespace ops_debug::shadow {
namespace {

using ptx::Instruction;
using ptx::Operand;
using ptx::RegisterId;

// Long ways through unrolled loops are given up; the load then counts as not followed.
constexpr size_t kMostSteps = 4000;

// The result of these depends on every operand. (A product may be one with zero; who multiplies by
// what may be anything still reads it.) Left out is what hides operands by design: and, or, bit
// fields, permutations, selections.
constexpr std::array<std::string_view, 30> kCarriers = {
    "abs", "add",  "addc", "bfind", "brev", "clz",  "copysign", "cos",  "cvt",  "cvta",
    "div", "ex2",  "fma",  "lg2",   "mad",  "max",  "min",      "mov",  "mul",  "neg",
    "not", "popc", "rcp",  "rsqrt", "sin",  "sqrt", "sub",      "subc", "tanh", "xor"};

bool Mentions(const Operand& operand, RegisterId reg) {
  if (operand.IsRegister() && operand.reg == reg) return true;
  return std::any_of(operand.children.begin(), operand.children.end(),
                     [&](const Operand& child) { return Mentions(child, reg); });
}

bool Carries(const Instruction& instruction) {
  if (instruction.Is("setp") || instruction.Is("set")) return instruction.operands.size() == 3;
  return std::find(kCarriers.begin(), kCarriers.end(), instruction.opcode) != kCarriers.end();
}

bool HasEffect(const Instruction& instruction) {
  constexpr std::array<std::string_view, 8> kEffects = {"bra",  "brx", "ret", "exit",
                                                        "trap", "st",  "red", "atom"};
  return std::find(kEffects.begin(), kEffects.end(), instruction.opcode) != kEffects.end();
}

bool OutlivesThread(const Instruction& instruction) {
  for (std::string_view modifier : instruction.modifiers) {
    if (modifier.starts_with(".shared") || modifier.starts_with(".param") || modifier == ".local")
      return false;
  }
  // A generic address may be that of a local array.
  return instruction.Has(".global");
}

// What the instruction itself makes of the value in `reg`; empty: nothing that matters.
std::string_view UseBy(const Instruction& instruction, RegisterId reg) {
  if (instruction.guard.Present() && instruction.guard.reg == reg)
    return HasEffect(instruction) ? "branch" : "";
  const bool is_store = instruction.Is("st") || instruction.Is("red") || instruction.Is("atom");
  if (!is_store && !instruction.Is("ld") && !instruction.Is("ldu")) return "";
  for (size_t i = 0; i < instruction.operands.size(); i++) {
    const Operand& operand = instruction.operands[i];
    if (!Mentions(operand, reg)) continue;
    if (operand.IsAddress()) return "address";
    const bool is_destination = i == 0 && !instruction.Is("st") && !instruction.Is("red");
    if (is_store && !is_destination && OutlivesThread(instruction)) return "stored";
  }
  return "";
}

}  // namespace

struct ValueUses::Flow {
  Flow(const ptx::Function& of, ptx::ControlFlow control)
      : function(of), flow(std::move(control)), values(of, flow), reachable(flow.blocks().size()) {}

  const Instruction* At(uint32_t statement) const {
    return statement < function.body.size() ? std::get_if<Instruction>(&function.body[statement])
                                            : nullptr;
  }

  // True if control can come from behind `from` to `to`.
  bool Reaches(uint32_t from, uint32_t to) {
    const ptx::BlockId a = flow.BlockOf(from), b = flow.BlockOf(to);
    if (a == b && from < to) return true;
    std::vector<bool>& known = reachable[a];
    if (known.empty()) {
      known.assign(flow.blocks().size(), false);
      std::vector<ptx::BlockId> open(flow.blocks()[a].successors);
      while (!open.empty()) {
        const ptx::BlockId block = open.back();
        open.pop_back();
        if (known[block]) continue;
        known[block] = true;
        for (ptx::BlockId next : flow.blocks()[block].successors) open.push_back(next);
      }
    }
    return known[b];
  }

  bool AlwaysFollowedBy(uint32_t from, uint32_t to) const {
    const ptx::BlockId a = flow.BlockOf(from), b = flow.BlockOf(to);
    if (a == b) return from < to;
    return flow.PostDominates(b, a);
  }

  // An instruction that keeps what its register held before in the new value: sums in loops.
  bool Accumulates(uint32_t statement, RegisterId reg) const {
    const Instruction* instruction = At(statement);
    if (instruction == nullptr || instruction->guard.Present() || !Carries(*instruction))
      return false;
    for (size_t i = 1; i < instruction->operands.size(); i++) {
      if (Mentions(instruction->operands[i], reg)) return true;
    }
    return false;
  }

  // What `definition` wrote is still in the register, or in what was made of it, when `use` reads
  // it, whichever way control went.
  bool IsKept(uint32_t definition, uint32_t use, RegisterId reg) {
    const uint32_t origin = values.definitions()[definition].statement;
    std::vector<uint32_t> open;
    std::set<uint32_t> seen;
    const auto add = [&](uint32_t statement) {
      for (uint32_t reaching : values.ReachingDefinitions(statement, reg)) open.push_back(reaching);
    };
    add(use);
    while (!open.empty()) {
      const uint32_t other = open.back();
      open.pop_back();
      if (other == definition || !seen.insert(other).second) continue;
      const uint32_t statement = values.definitions()[other].statement;
      if (statement == ptx::DefUse::kAtEntry || !Reaches(origin, statement)) continue;
      if (!Accumulates(statement, reg)) return false;
      add(statement);
    }
    return true;
  }

  std::optional<ValueUse> Search(uint32_t statement, RegisterId reg) {
    std::vector<uint32_t> open;
    std::set<uint32_t> seen;
    for (uint32_t definition : values.DefinitionsAt(statement)) {
      if (values.definitions()[definition].reg == reg) open.push_back(definition);
    }
    const Instruction& load = *At(statement);
    std::optional<ValueUse> best;
    while (!open.empty() && seen.size() < kMostSteps) {
      const uint32_t definition = open.back();
      open.pop_back();
      if (!seen.insert(definition).second) continue;
      const auto [from, held, conditional] = values.definitions()[definition];
      for (uint32_t index : values.UsesOf(definition)) {
        const uint32_t to = values.uses()[index].statement;
        const Instruction* instruction = At(to);
        if (instruction == nullptr || to == from || !AlwaysFollowedBy(from, to)) continue;
        const std::string_view use = UseBy(*instruction, held);
        if (use != "branch" && !RunsWith(load, statement, *instruction, to)) continue;
        if (!IsKept(definition, to, held)) continue;
        if (!use.empty()) {
          if (!best || to < best->statement) best = ValueUse{std::string(use), to};
        } else if (Carries(*instruction)) {
          for (uint32_t next : values.DefinitionsAt(to)) open.push_back(next);
        }
      }
    }
    return best;
  }

  // No guard keeps the instruction from running where the load ran.
  bool RunsWith(const Instruction& load, uint32_t load_at, const Instruction& other,
                uint32_t at) const {
    if (!other.guard.Present()) return true;
    if (other.guard.reg != load.guard.reg || other.guard.negated != load.guard.negated ||
        flow.BlockOf(load_at) != flow.BlockOf(at)) {
      return false;
    }
    const std::span<const uint32_t> then = values.ReachingDefinitions(load_at, load.guard.reg);
    const std::span<const uint32_t> now = values.ReachingDefinitions(at, load.guard.reg);
    return std::equal(then.begin(), then.end(), now.begin(), now.end());
  }

  const ptx::Function& function;
  const ptx::ControlFlow flow;
  const ptx::DefUse values;
  std::vector<std::vector<bool>> reachable;  // by block; empty: not asked yet
};

ValueUses::ValueUses(const ptx::Function& function) : function_(function) {
  auto flow = ptx::ControlFlow::Build(function);
  if (flow.ok()) flow_ = std::make_unique<Flow>(function, std::move(flow).value());
}
ValueUses::~ValueUses() = default;

const ValueUse* ValueUses::Find(uint32_t statement, RegisterId reg) {
  if (!flow_) return nullptr;
  const auto [at, fresh] = found_.try_emplace({statement, reg});
  if (fresh) {
    if (auto use = flow_->Search(statement, reg)) at->second.push_back(std::move(*use));
  }
  return at->second.empty() ? nullptr : at->second.data();
}

}  // namespace ops_debug::shadow
