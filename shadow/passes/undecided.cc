// One walk over the text of the entry and of what it calls, by what each instruction is; and of
// each function its flow of control, for barriers that not all threads reach.
#include "shadow/passes/undecided.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "ptx/cfg.h"
#include "ptx/operands.h"
#include "shadow/abi/race_abi.h"
#include "shadow/passes/memory_access.h"
#include "shadow/passes/provenance.h"
#include "shadow/passes/synchronisation.h"
#include "shadow/passes/uniformity.h"
#include "shadow/passes/value_uses.h"
#include "shadow/passes/waiting_loops.h"

namespace ops_debug::shadow {
namespace {

using ptx::Function;
using ptx::Instruction;
using ptx::Operand;

constexpr int64_t kAllLanes = 0xffffffff;

// Of a call; null if it has none.
const Operand* CalleeOf(const Instruction& call) {
  const size_t callee =
      !call.operands.empty() && call.operands[0].kind == Operand::Kind::kList ? 1 : 0;
  return callee < call.operands.size() ? &call.operands[callee] : nullptr;
}

void CollectNames(const Operand& operand, std::set<std::string_view>* names) {
  if (operand.kind == Operand::Kind::kSymbol) names->insert(operand.text);
  for (const Operand& child : operand.children) CollectNames(child, names);
}

bool IsShared(const Instruction& instruction) {
  return std::any_of(instruction.modifiers.begin(), instruction.modifiers.end(),
                     [](std::string_view modifier) { return modifier.starts_with(".shared"); });
}

bool IsOfAsyncProxy(const Instruction& instruction) {
  if (instruction.Is("cp")) return instruction.Has(".bulk");
  return (instruction.Is("st") && (instruction.Has(".async") || instruction.Has(".bulk"))) ||
         (instruction.Is("red") && instruction.Has(".async"));
}

// Only asks the cache for something, or reads through the texture unit, which is not coherent with
// writes of the same launch anyway (CUDA C++ Programming Guide, texture memory).
bool IsOutside(const Instruction& instruction) {
  return instruction.Has(".prefetch") || instruction.Is("tex") || instruction.Is("tld4") ||
         instruction.Is("txq") || instruction.Is("suq");
}

uint32_t ElementBytes(const Instruction& instruction) {
  for (auto at = instruction.modifiers.rbegin(); at != instruction.modifiers.rend(); ++at) {
    if (const uint32_t bytes = ptx::TypeSizeBytes(*at)) return bytes;
  }
  return 0;
}

class FunctionReader {
 public:
  FunctionReader(const ptx::Module& module, const Function& function, const Checks& checks,
                 bool shared_is_followed, std::set<std::string>* found)
      : function_(function),
        checks_(checks),
        shared_is_followed_(shared_is_followed),
        provenance_(module, function),
        found_(*found) {}

  void Read() {
    for (uint32_t i = 0; i < function_.body.size(); i++) {
      const auto* instruction = std::get_if<Instruction>(&function_.body[i]);
      if (instruction == nullptr) continue;
      if (checks_.races) ReadForRaces(*instruction);
      if (checks_.sync) ReadForSync(*instruction, i);
      if (checks_.init) ReadForInit(*instruction);
      ReadForAll(*instruction);
    }
    if (checks_.sync) {
      if (WaitsInLoop(function_) || WaitsInLoop(function_, PolledMemory::kAny))
        Add("a loop that waits for a value: whether it ever comes");
      ReadDivergentCode();
    }
    if (checks_.init && shared_is_followed_) ReadSharedInit();
  }

 private:
  void Add(std::string text) { found_.insert(std::move(text)); }

  void ReadForAll(const Instruction& instruction) {
    if (instruction.Is("call")) {
      const Operand* callee = CalleeOf(instruction);
      if (callee != nullptr && callee->kind != Operand::Kind::kSymbol)
        Add("a call through a pointer: what the function does");
    }
    if (instruction.Is("griddepcontrol"))
      Add("griddepcontrol: what the launch before it has done by then");
    if (instruction.Is("mbarrier") || (instruction.Is("cp") && instruction.Has(".mbarrier")))
      Add("mbarrier: whether it is valid, and what its phases order");
    if (instruction.Is("mapa") || instruction.Has(".shared::cluster"))
      Add("distributed shared memory: accesses to that of other blocks");
    if ((instruction.Is("barrier") && instruction.Has(".cluster")))
      Add("barrier.cluster: who comes, and what it orders");
    if (IsOfAsyncProxy(instruction) && !instruction.Has(".prefetch") &&
        !instruction.Has(".commit_group") && !instruction.Has(".wait_group")) {
      Add("bulk copies (asynchronous proxy): what they access, and when they are complete");
    }
    if (IsOfAsyncProxy(instruction) || IsOutside(instruction) || instruction.Is("mbarrier") ||
        instruction.Has(".shared::cluster") || instruction.Has(".mbarrier")) {
      return;
    }
    const AccessDescription description = DescribeAccesses(function_, instruction);
    if (description.unchecked_reason.empty()) return;
    std::string name(instruction.opcode);
    for (std::string_view modifier : instruction.modifiers) {
      name += modifier;
      if (name.size() > instruction.opcode.size() + 12) break;
    }
    Add(name + ": " + description.unchecked_reason);
  }

  void ReadForRaces(const Instruction& instruction) {
    if (instruction.Is("cp") && !instruction.Has(".bulk") && !instruction.Has(".mbarrier"))
      Add("cp.async: whether its data has arrived before it is used");
    constexpr uint32_t kOrdering = kOrderFence | kOrderAcquire | kOrderRelease;
    if ((DescribeOrder(instruction) & kOrdering) != 0 && !instruction.Is("mbarrier") &&
        !instruction.Is("barrier") && !instruction.Is("cp")) {
      Add("fences, acquire and release: what they order");
    }
    // A strong access of one side, a weak one of another, and atomics of too small a scope.
    if (instruction.Has(".volatile") && IsShared(instruction))
      Add("volatile accesses to shared memory: whether lanes rely on them");
    if (DescribeBarrier(instruction).kind == Barrier::kWarp && !NamesAllLanes(instruction))
      Add("bar.warp.sync of some lanes: what it orders");
    if ((instruction.Is("atom") || instruction.Is("red")) &&
        (instruction.Has(".min") || instruction.Has(".max")) && TakesFloat(instruction)) {
      Add("an integer maximum or minimum of floats: whether their signs allow it");
    }
  }

  void ReadForSync(const Instruction& instruction, uint32_t statement) {
    const BarrierUse barrier = DescribeBarrier(instruction);
    if (barrier.kind == Barrier::kNamed &&
        IsOfWholeBlock(instruction.operands[barrier.count_operand])) {
      barriers_.push_back(statement);
    } else if (barrier.kind == Barrier::kNamed || barrier.kind == Barrier::kNamedOnly) {
      Add("barriers for a number of threads: whether so many come");
    }
    const bool masked = MaskOperandOf(instruction) >= 0;
    if (masked && !NamesAllLanes(instruction))
      Add("masks of shfl.sync and its like: whether all of their lanes come");
    if (masked) masked_.push_back(statement);
    if (barrier.kind == Barrier::kBlock) barriers_.push_back(statement);
  }

  static bool IsAllLanes(const Operand& operand) {
    return operand.is_integer && (operand.value & kAllLanes) == kAllLanes;
  }

  bool NamesAllLanes(const Instruction& instruction) const {
    const int index = MaskOperandOf(instruction);
    if (index < 0) return true;
    const Operand& mask = instruction.operands[static_cast<size_t>(index)];
    return mask.IsRegister() ? IsOnly(mask.reg, IsAllLanes) : IsAllLanes(mask);
  }

  // A count of threads that is the size of the block, if that has one dimension.
  bool IsOfWholeBlock(const Operand& count) const {
    return count.IsRegister() && IsOnly(count.reg, [](const Operand& value) {
             return value.kind == Operand::Kind::kSpecialRegister && value.text == "%ntid.x";
           });
  }

  // The register is assigned such a value and no other.
  template <class Test>
  bool IsOnly(ptx::RegisterId reg, const Test& test) const {
    bool known = false, other = false;
    for (const ptx::Statement& statement : function_.body) {
      const auto* instruction = std::get_if<Instruction>(&statement);
      if (instruction == nullptr) continue;
      bool writes = false;
      ptx::ForEachRegister(*instruction, [&](ptx::RegisterId written, bool is_write) {
        writes |= is_write && written == reg;
      });
      if (!writes) continue;
      const bool is_value = instruction->Is("mov") && instruction->operands.size() == 2 &&
                            test(instruction->operands[1]);
      (is_value ? known : other) = true;
    }
    return known && !other;
  }

  // Bits that the program moved out of a register of floats.
  bool TakesFloat(const Instruction& atomic) const {
    if (atomic.operands.empty() || !atomic.operands.back().IsRegister()) return false;
    const ptx::RegisterId value = atomic.operands.back().reg;
    for (const ptx::Statement& statement : function_.body) {
      const auto* instruction = std::get_if<Instruction>(&statement);
      if (instruction == nullptr || !instruction->Is("mov") || instruction->operands.size() != 2)
        continue;
      const Operand& from = instruction->operands[1];
      if (instruction->operands[0].IsRegister() && instruction->operands[0].reg == value &&
          from.IsRegister() && from.reg < function_.registers.size() &&
          function_.registers[from.reg].type.starts_with(".f")) {
        return true;
      }
    }
    return false;
  }

  // The twin sees who is at a barrier together with others; that somebody never comes, nobody sees
  // who waits there.
  void ReadDivergentCode() {
    if (masked_.empty() && barriers_.empty()) return;
    auto flow = ptx::ControlFlow::Build(function_);
    const auto any_divergent = [&](const std::vector<uint32_t>& statements,
                                   Uniformity::Group group) {
      if (statements.empty()) return false;
      if (!flow.ok()) return true;
      const Uniformity uniformity(function_, *flow, group);
      return std::any_of(statements.begin(), statements.end(), [&](uint32_t statement) {
        const auto& instruction = std::get<Instruction>(function_.body[statement]);
        return uniformity.IsDivergent(statement) ||
               (instruction.guard.Present() && uniformity.Differs(instruction.guard.reg));
      });
    };
    if (any_divergent(masked_, Uniformity::Group::kWarp))
      Add("shfl.sync and its like in divergent code: whether all lanes of the mask come");
    if (any_divergent(barriers_, Uniformity::Group::kBlock))
      Add("barriers in divergent code: whether somebody waits for ever");
  }

  void ReadForInit(const Instruction& instruction) {
    for (const MemoryAccess& access : DescribeAccesses(function_, instruction).accesses) {
      if (access.kind == AccessKind::kStore || access.constant_space) continue;
      if (access.space == AccessSpace::kLocal) {
        Add("local memory: whether it was written");
        continue;
      }
      const Value value = provenance_.OfAddress(instruction.operands[access.operand]);
      if (access.space == AccessSpace::kGeneric &&
          (value.origin == Origin::kLocalRegion || SpaceOf(value) == ".local")) {
        Add("local memory: whether it was written");
      } else if (IsDynamicShared(value)) {
        Add("dynamic shared memory: whether it was written");
      } else if (access.space == AccessSpace::kShared &&
                 (!shared_is_followed_ || value.origin != Origin::kSymbol ||
                  access.collective_lanes != 0)) {
        Add("shared memory: whether it was written");
      }
    }
  }

  std::string_view SpaceOf(const Value& value) const {
    return value.origin == Origin::kSymbol ? provenance_.symbols()[value.id].space
                                           : std::string_view();
  }
  bool IsDynamicShared(const Value& value) const {
    return SpaceOf(value) == ".shared" && provenance_.symbols()[value.id].dynamic_shared;
  }

  // Declared shared arrays have their bits, but reads are judged where their values surely matter,
  // and as whole elements: see if there are others.
  void ReadSharedInit() {
    struct Load {
      uint32_t statement, array, bytes;
    };
    std::vector<Load> loads;
    std::map<uint32_t, uint32_t> smallest_store;  // by array, bytes
    uint32_t smallest_elsewhere = ~0u;
    for (uint32_t i = 0; i < function_.body.size(); i++) {
      const auto* instruction = std::get_if<Instruction>(&function_.body[i]);
      if (instruction == nullptr) continue;
      for (const MemoryAccess& access : DescribeAccesses(function_, *instruction).accesses) {
        if (access.space != AccessSpace::kShared && access.space != AccessSpace::kGeneric) continue;
        const Value value = provenance_.OfAddress(instruction->operands[access.operand]);
        const bool shared = SpaceOf(value) == ".shared";
        if (access.kind == AccessKind::kLoad) {
          if (shared && instruction->Is("ld"))
            loads.push_back({i, value.id, ElementBytes(*instruction)});
          continue;
        }
        uint32_t* smallest = &smallest_elsewhere;
        if (shared) {
          smallest = &smallest_store.try_emplace(value.id, ~0u).first->second;
        } else if (access.space != AccessSpace::kShared && value.origin != Origin::kUnknown) {
          continue;
        }
        *smallest = std::min(*smallest, access.bytes);
      }
    }
    if (loads.empty()) return;
    ValueUses uses(function_);
    const bool all_matter = std::all_of(loads.begin(), loads.end(), [&](const Load& load) {
      const auto& instruction = std::get<Instruction>(function_.body[load.statement]);
      const auto matters = [&](const Operand& operand) {
        return !operand.IsRegister() || operand.reg == ptx::kNoRegister ||
               uses.Find(load.statement, operand.reg) != nullptr;
      };
      const Operand& to = instruction.operands[0];
      if (to.kind != Operand::Kind::kVector) return matters(to);
      return std::all_of(to.children.begin(), to.children.end(), matters);
    });
    if (!uses.ok() || !all_matter)
      Add("values read from shared memory: whether unwritten ones come to matter");
    for (const Load& load : loads) {
      const auto found = smallest_store.find(load.array);
      const uint32_t smallest =
          std::min(found == smallest_store.end() ? ~0u : found->second, smallest_elsewhere);
      if (smallest < load.bytes)
        Add("shared memory that is written in parts of what is read: whether the rest matters");
    }
  }

  const Function& function_;
  const Checks& checks_;
  const bool shared_is_followed_;
  const Provenance provenance_;
  std::vector<uint32_t> masked_, barriers_;  // statements
  std::set<std::string>& found_;
};

UnwrittenReads ReadsOf(const ptx::Module& module, const Function& function) {
  UnwrittenReads reads;
  std::set<uint32_t> offsets;
  const Provenance provenance(module, function);
  for (const ptx::Statement& statement : function.body) {
    const auto* instruction = std::get_if<Instruction>(&statement);
    if (instruction == nullptr) continue;
    const AccessDescription description = DescribeAccesses(function, *instruction);
    // Copies, matrices and others that no pass takes apart.
    if (!description.unchecked_reason.empty() && !IsOutside(*instruction) &&
        (!IsShared(*instruction) || instruction->Has(".global"))) {
      reads.elsewhere = true;
    }
    for (const MemoryAccess& access : description.accesses) {
      if (access.kind == AccessKind::kStore || access.constant_space) continue;
      if (access.space != AccessSpace::kGlobal && access.space != AccessSpace::kGeneric) continue;
      const Value value = provenance.OfAddress(instruction->operands[access.operand]);
      // Declared variables are initialised, or not in global memory.
      if (value.origin == Origin::kSymbol || value.origin == Origin::kLocalRegion) continue;
      if (value.origin == Origin::kParameter && function.is_entry) {
        offsets.insert(value.id);
      } else {
        reads.elsewhere = true;
      }
    }
  }
  reads.parameter_offsets.assign(offsets.begin(), offsets.end());
  return reads;
}

}  // namespace

// What may be reached through a pointer: functions whose name stands where nothing is called.
const std::vector<const Function*>& UndecidedReader::AddressTaken() {
  if (knows_address_taken_) return address_taken_;
  knows_address_taken_ = true;
  std::set<std::string_view> names;
  std::string initializers;
  for (const ptx::Item& item : module_.items) {
    if (const auto* variable = std::get_if<ptx::Variable>(&item)) {
      for (const ptx::Variable::Name& name : variable->names) initializers += name.initializer;
    }
    const auto* function = std::get_if<Function>(&item);
    if (function == nullptr) continue;
    for (const ptx::Statement& statement : function->body) {
      const auto* instruction = std::get_if<Instruction>(&statement);
      if (instruction == nullptr || instruction->Is("call")) continue;
      for (const Operand& operand : instruction->operands) CollectNames(operand, &names);
    }
  }
  for (const ptx::Item& item : module_.items) {
    const auto* function = std::get_if<Function>(&item);
    if (function == nullptr || function->is_entry || !function->has_body) continue;
    if (names.contains(function->name) || initializers.find(function->name) != std::string::npos)
      address_taken_.push_back(function);
  }
  return address_taken_;
}

// The entry and what it may call.
std::vector<const Function*> UndecidedReader::ReachableFrom(const Function& entry) {
  std::vector<const Function*> reached{&entry};
  const auto add = [&](const Function* function) {
    if (function != nullptr && function->has_body &&
        std::find(reached.begin(), reached.end(), function) == reached.end()) {
      reached.push_back(function);
    }
  };
  for (size_t i = 0; i < reached.size(); i++) {
    for (const ptx::Statement& statement : reached[i]->body) {
      const auto* instruction = std::get_if<Instruction>(&statement);
      if (instruction == nullptr || !instruction->Is("call")) continue;
      const Operand* callee = CalleeOf(*instruction);
      if (callee == nullptr) continue;
      if (callee->kind == Operand::Kind::kSymbol) {
        add(module_.FindFunction(callee->text));
      } else {
        for (const Function* function : AddressTaken()) add(function);
      }
    }
  }
  return reached;
}

std::vector<std::string> UndecidedReader::FindUndecided(const Function& entry) {
  std::set<std::string> found;
  if (!checks_.races && !checks_.sync && !checks_.init) return {};
  const bool followed =
      init_facts_.shared_bits_bytes != 0 && !init_facts_.unfit.contains(entry.name);
  for (const Function* function : ReachableFrom(entry)) {
    const auto [known, fresh] = undecided_.try_emplace({function, followed});
    if (fresh) FunctionReader(module_, *function, checks_, followed, &known->second).Read();
    found.insert(known->second.begin(), known->second.end());
  }
  return {found.begin(), found.end()};
}

UnwrittenReads UndecidedReader::FindUnwrittenReads(const Function& entry) {
  UnwrittenReads all;
  for (const Function* function : ReachableFrom(entry)) {
    const auto [known, fresh] = reads_.try_emplace(function);
    if (fresh) known->second = ReadsOf(module_, *function);
    if (function == &entry) all.parameter_offsets = known->second.parameter_offsets;
    all.elsewhere |= known->second.elsewhere;
  }
  return all;
}

}  // namespace ops_debug::shadow
