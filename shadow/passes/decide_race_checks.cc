// Provenance says what an address is, own_index.h where it goes, barrier_intervals.h what can meet.
#include "shadow/passes/decide_race_checks.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "ptx/cfg.h"
#include "shadow/abi/race_abi.h"
#include "shadow/passes/access_site.h"
#include "shadow/passes/barrier_intervals.h"
#include "shadow/passes/own_index.h"
#include "shadow/passes/provenance.h"
#include "shadow/passes/synchronisation.h"
#include "shadow/passes/uniformity.h"

namespace ops_debug::shadow {
namespace {

using ptx::Function;
using ptx::Instruction;
using ptx::Operand;
using ptx::Statement;

constexpr size_t kMaxSlots = 32;

// True if the function calls another one of the module, or through a pointer.
bool CallsOthers(const ptx::Module& module, const Function& function) {
  std::set<std::string_view> with_body;
  for (const ptx::Item& item : module.items) {
    const auto* other = std::get_if<Function>(&item);
    if (other != nullptr && other->has_body && !other->is_entry) with_body.insert(other->name);
  }
  for (const Statement& statement : function.body) {
    const auto* instruction = std::get_if<Instruction>(&statement);
    if (instruction == nullptr || !instruction->Is("call")) continue;
    for (const Operand& operand : instruction->operands) {
      if (operand.kind == Operand::Kind::kRegister || with_body.contains(operand.text)) return true;
    }
  }
  return false;
}

class Decider {
 public:
  Decider(const ptx::Module& module, const Twin& twin, const ModuleRaceFacts& facts,
          const Checks& checks, const SourceFrames& frames, std::vector<Site>* sites)
      : twin_(twin),
        module_facts_(facts),
        checks_(checks),
        frames_(frames),
        sites_(*sites),
        provenance_(module, *twin.original),
        own_indexes_(*twin.original),
        parameters_(ptx::LayoutParameters(*twin.original)),
        calls_others_(CallsOthers(module, *twin.original)) {}

  RaceDecisions Run() {
    decisions_.calls_others = calls_others_;
    if (checks_.races) DecideAll();
    if (!twin_.original->is_entry && twin_.launch_parameter.empty()) {
      if (plan_.checked_accesses > 0)
        CountUnchecked("call", "function called through a pointer", plan_.checked_accesses);
      plan_.checked_accesses = 0;
      return std::move(decisions_);
    }
    if (checks_.sync) DecideSync();
    if (twin_.original->is_entry && !calls_others_) DecideLean();
    return std::move(decisions_);
  }

 private:
  void CountUnchecked(const std::string& name, const std::string& reason, uint32_t count = 1) {
    for (UncheckedAccess& known : plan_.unchecked) {
      if (known.instruction == name && known.reason == reason) {
        known.count += count;
        return;
      }
    }
    plan_.unchecked.push_back({name, reason, count});
  }

  int FindSlot(uint32_t parameter_offset) {
    for (size_t i = 0; i < plan_.slots.size(); i++) {
      if (plan_.slots[i].parameter_offset == parameter_offset) return static_cast<int>(i);
    }
    if (plan_.slots.size() == kMaxSlots) return -1;
    plan_.slots.push_back({.parameter_offset = parameter_offset});
    return static_cast<int>(plan_.slots.size() - 1);
  }

  void DecideAll() {
    ProveReads();
    uint32_t next_shared = 0;
    const std::vector<Statement>& body = twin_.original->body;
    for (uint32_t i = 0; i < body.size(); i++) {
      const auto* instruction = std::get_if<Instruction>(&body[i]);
      if (instruction == nullptr) continue;
      const AccessDescription description = DescribeAccesses(*twin_.original, *instruction);
      if (!description.unchecked_reason.empty() && !instruction->Is("mbarrier")) {
        std::string name(instruction->opcode);
        for (std::string_view modifier : instruction->modifiers) name += modifier;
        CountUnchecked(name, description.unchecked_reason);
      }
      for (const MemoryAccess& access : description.accesses) {
        if (access.last_byte || access.constant_space || access.space == AccessSpace::kLocal)
          continue;
        IntervalMeeting meeting;
        const bool shared = MayBeShared(*instruction, access) && twin_.original->is_entry;
        if (shared) meeting = meetings_[next_shared++];
        if (meeting.unraced) {
          plan_.proved_accesses++;
        } else {
          Decide(i, *instruction, access, shared ? static_cast<int>(meeting.group) : -1);
        }
      }
    }
  }

  bool MayBeShared(const Instruction& instruction, const MemoryAccess& access) const {
    if (access.space == AccessSpace::kShared) return true;
    if (access.space != AccessSpace::kGeneric) return false;
    const Value value = provenance_.OfAddress(instruction.operands[access.operand]);
    if (value.origin == Origin::kSymbol || value.origin == Origin::kLocalRegion)
      return provenance_.symbols()[value.id].space == ".shared";
    return value.origin != Origin::kParameter;
  }

  // Reads of shared memory that barriers keep apart from all writes.
  void ProveReads() {
    if (!twin_.original->is_entry) return;
    constexpr int64_t kDynamicArrays = int64_t{1} << 32;  // overlap each other
    std::vector<IntervalAccess> shared;
    const std::vector<Statement>& body = twin_.original->body;
    for (uint32_t i = 0; i < body.size(); i++) {
      const auto* instruction = std::get_if<Instruction>(&body[i]);
      if (instruction == nullptr) continue;
      for (const MemoryAccess& access : DescribeAccesses(*twin_.original, *instruction).accesses) {
        if (access.last_byte || access.constant_space || !MayBeShared(*instruction, access))
          continue;
        const Value value = provenance_.OfAddress(instruction->operands[access.operand]);
        int64_t array = -1;
        if (value.origin == Origin::kSymbol && provenance_.symbols()[value.id].space == ".shared")
          array = provenance_.symbols()[value.id].dynamic_shared ? kDynamicArrays : value.id;
        shared.push_back({i, array, access.kind != AccessKind::kLoad});
      }
    }
    meetings_ = FindMeetings(*twin_.original, shared);
  }

  void Decide(uint32_t statement, const Instruction& instruction, const MemoryAccess& access,
              int group) {
    const Value value = provenance_.OfAddress(instruction.operands[access.operand]);
    RaceAccess race{access};
    uint64_t array_bytes = 0;
    bool elsewhere = access.space != AccessSpace::kShared;
    if (value.origin == Origin::kSymbol || value.origin == Origin::kLocalRegion) {
      const AddressedSymbol& symbol = provenance_.symbols()[value.id];
      if (symbol.space == ".local" || symbol.space == ".const") return;
      array_bytes = symbol.size_bytes;
      elsewhere = false;
      if (symbol.space == ".global") {
        const std::string name(symbol.name);
        if (std::find(plan_.variables.begin(), plan_.variables.end(), name) ==
            plan_.variables.end()) {
          plan_.variables.push_back(name);
        }
      }
      (symbol.space == ".global" ? plan_.uses_global : plan_.uses_shared) = true;
    } else if (access.space == AccessSpace::kShared) {
      plan_.uses_shared = true;
    }
    if (value.origin == Origin::kParameter && elsewhere && twin_.original->is_entry) {
      race.slot = FindSlot(value.id);
      if (race.slot >= 0) {
        elsewhere = false;
        plan_.uses_global = true;
        RaceSlot& slot = plan_.slots[static_cast<size_t>(race.slot)];
        (access.kind == AccessKind::kLoad ? slot.reads : slot.writes) = true;
        NoteForm(FormOf(statement, instruction, access, value),
                 &slot_forms_[static_cast<uint32_t>(race.slot)]);
      }
    }
    if (elsewhere) {
      plan_.uses_global = plan_.reaches_elsewhere = true;
      // A generic address may lie in shared memory.
      if (access.space == AccessSpace::kGeneric) plan_.uses_shared = true;
      plan_.writes_elsewhere |= access.kind != AccessKind::kLoad;
    }
    if (group >= 0) {
      const bool one_array = access.space == AccessSpace::kShared || !elsewhere;
      NoteForm(one_array ? FormOf(statement, instruction, access, value) : std::nullopt,
               &group_forms_[group]);
    }
    sites_.push_back(MakeSite(*twin_.original, instruction, access, provenance_, value, array_bytes,
                              parameters_, frames_));
    race.site = static_cast<uint32_t>(sites_.size());
    plan_.checked_accesses++;
    race.group = group;
    decisions_.accesses[PlaceOf(instruction)].push_back(race);
  }

  // Where the accesses of a slot, or of a group in shared memory, go.
  struct Forms {
    bool known = true;
    std::vector<IndexForm> forms;
  };
  static constexpr size_t kMostForms = 64;

  static void NoteForm(const std::optional<IndexForm>& form, Forms* forms) {
    if (!forms->known) return;
    if (!form || forms->forms.size() == kMostForms) {
      forms->known = false;
      forms->forms.clear();
    } else if (std::find(forms->forms.begin(), forms->forms.end(), *form) == forms->forms.end()) {
      forms->forms.push_back(*form);
    }
  }

  // `value` is what Provenance says of the address: both must name the same base.
  std::optional<IndexForm> FormOf(uint32_t statement, const Instruction& instruction,
                                  const MemoryAccess& access, const Value& value) const {
    if (access.size_operand != 0 || access.collective_lanes != 0 || access.bytes == 0)
      return std::nullopt;
    OwnIndexes::Base base;
    auto form = own_indexes_.OfAddress(statement, instruction.operands[access.operand],
                                       access.bytes, &base);
    using Kind = OwnIndexes::Base::Kind;
    const bool same = value.origin == Origin::kParameter
                          ? base.kind == Kind::kParameter && base.parameter_offset == value.id
                          : value.origin == Origin::kSymbol && base.kind == Kind::kSymbol &&
                                base.symbol == provenance_.symbols()[value.id].name;
    if (!same) form.reset();
    return form;
  }

  // ---- Synchronisation
  // Barriers that all threads of the block reach together cannot be missed by some, and where
  // nobody has left the others, a warp's synchronisation that names all lanes finds them all.
  void DecideSync() {
    const Function& function = *twin_.original;
    std::optional<ptx::ControlFlow> flow;
    std::optional<Uniformity> uniformity;
    if (function.is_entry && !(calls_others_ && module_facts_.functions.Synchronises())) {
      if (auto built = ptx::ControlFlow::Build(function); built.ok()) {
        flow = std::move(built).value();
        uniformity.emplace(function, *flow, Uniformity::Group::kBlock);
      }
    }
    const auto together = [&](uint32_t statement, const Instruction& instruction) {
      return uniformity && !uniformity->IsDivergent(statement) &&
             (!instruction.guard.Present() || !uniformity->Differs(instruction.guard.reg));
    };
    std::vector<const Instruction*> barriers, others;
    bool all_together = true;
    for (uint32_t i = 0; i < function.body.size(); i++) {
      const auto* instruction = std::get_if<Instruction>(&function.body[i]);
      if (instruction == nullptr) continue;
      // A count says that the program knows who comes: warps may then meet from several places.
      if (DescribeBarrier(*instruction).kind == Barrier::kBlock) {
        barriers.push_back(instruction);
        all_together = all_together && together(i, *instruction);
      } else if (const int mask = MaskOperandOf(*instruction); mask >= 0) {
        const Operand& lanes = instruction->operands[static_cast<size_t>(mask)];
        const bool all = own_indexes_.IsConstant(i, lanes, -1);
        if (!all || !together(i, *instruction)) others.push_back(instruction);
      }
    }
    if (!all_together) others.insert(others.end(), barriers.begin(), barriers.end());
    for (const Instruction* instruction : others) {
      plan_.sync_sites++;
      sites_.push_back(
          MakeSite(function, *instruction, {}, provenance_, {}, 0, parameters_, frames_));
      decisions_.sync_sites[PlaceOf(*instruction)] = static_cast<uint32_t>(sites_.size());
    }
    // What callees check needs to know who returned.
    decisions_.exits = !others.empty() || calls_others_;
  }

  // ---- The lean twin
  // In most blocks more than one thread gets to an access, and there are several blocks.
  static bool Plausible(const IndexForm& form, bool of_grid) {
    const auto varies = [&](uint32_t place) {
      return !form.places[place].empty() || (form.pinned >> place & 1) != 0;
    };
    const bool of_thread = varies(kThreadX) || varies(kWarpX) || !form.counter_factor.empty();
    return of_thread && (!of_grid || varies(kBlockX) || varies(kBlockX + 1) ||
                         varies(kBlockX + 2) || !form.steps.empty());
  }

  static bool Plausible(const Forms& forms, bool of_grid) {
    return forms.known &&
           std::all_of(forms.forms.begin(), forms.forms.end(),
                       [&](const IndexForm& form) { return Plausible(form, of_grid); });
  }

  void DecideLean() {
    for (size_t i = 0; i < plan_.slots.size(); i++) {
      const Forms& forms = slot_forms_[static_cast<uint32_t>(i)];
      const bool plausible = Plausible(forms, /*of_grid=*/true);
      if (plausible) plan_.slots[i].forms = forms.forms;
      if (plan_.slots[i].writes && !plausible) plan_.lean_tracked |= 1u << i;
    }
    std::set<int> proved;
    for (const auto& [group, forms] : group_forms_) {
      if (!Plausible(forms, /*of_grid=*/false)) continue;
      proved.insert(group);
      plan_.lean_shared.push_back(forms.forms);
    }
    uint32_t left_out = 0;
    for (auto& [place, accesses] : decisions_.accesses) {
      for (RaceAccess& race : accesses) {
        race.lean = race.slot >= 0 ? (plan_.lean_tracked >> race.slot & 1) != 0
                                   : race.group < 0 || !proved.contains(race.group);
        left_out += race.lean ? 0 : 1;
        plan_.lean_checks = plan_.lean_checks || race.lean;
        plan_.lean_uses_shared =
            plan_.lean_uses_shared ||
            (race.lean && race.slot < 0 && race.access.space != AccessSpace::kGlobal);
      }
    }
    plan_.lean_checks = plan_.lean_checks || plan_.sync_sites != 0;
    decisions_.lean = left_out != 0;
  }

  const Twin& twin_;
  const ModuleRaceFacts& module_facts_;
  const Checks& checks_;
  const SourceFrames& frames_;
  std::vector<Site>& sites_;
  const Provenance provenance_;  // of the original
  const OwnIndexes own_indexes_;
  const std::vector<ptx::ParameterLayout> parameters_;
  const bool calls_others_;

  RaceDecisions decisions_;
  RacePlan& plan_ = decisions_.plan;
  std::map<uint32_t, Forms> slot_forms_;
  std::map<int, Forms> group_forms_;
  // By access that may be to shared memory, in order of the text.
  std::vector<IntervalMeeting> meetings_;
};

bool IsAddressTaken(const ptx::Module& module, const Function& function) {
  // As MakeTwins decides it: the name occurs anywhere but as a callee. Seen from the twins: they
  // then have no launch parameter. Here, before there are twins, any module-scope initializer or
  // operand counts.
  const auto mentions = [&](const Operand& operand, const auto& self) -> bool {
    if (operand.kind == Operand::Kind::kSymbol && operand.text == function.name) return true;
    return std::any_of(operand.children.begin(), operand.children.end(),
                       [&](const Operand& child) { return self(child, self); });
  };
  for (const ptx::Item& item : module.items) {
    if (const auto* variable = std::get_if<ptx::Variable>(&item)) {
      for (const ptx::Variable::Name& name : variable->names) {
        if (name.initializer.find(function.name) != std::string_view::npos) return true;
      }
    }
    const auto* other = std::get_if<Function>(&item);
    if (other == nullptr) continue;
    for (const Statement& statement : other->body) {
      const auto* instruction = std::get_if<Instruction>(&statement);
      if (instruction == nullptr || instruction->Is("call")) continue;
      for (const Operand& operand : instruction->operands) {
        if (mentions(operand, mentions)) return true;
      }
    }
  }
  return false;
}

}  // namespace

uint64_t PlaceOf(const Instruction& instruction) {
  return uint64_t{instruction.position.line} << 32 | instruction.position.column;
}

RaceFacts& RaceFacts::operator|=(const RaceFacts& other) {
  has_fences |= other.has_fences;
  block_barriers |= other.block_barriers;
  warp_barriers |= other.warp_barriers;
  named_barriers |= other.named_barriers;
  some_arrive |= other.some_arrive;
  return *this;
}

ModuleRaceFacts ReadRaceFacts(const ptx::Module& module) {
  ModuleRaceFacts all;
  for (const ptx::Item& item : module.items) {
    const auto* function = std::get_if<Function>(&item);
    if (function == nullptr || !function->has_body) continue;
    RaceFacts facts;
    for (const Statement& statement : function->body) {
      const auto* instruction = std::get_if<Instruction>(&statement);
      if (instruction == nullptr) continue;
      const uint32_t order = DescribeOrder(*instruction);
      facts.has_fences |= (order & (kOrderFence | kOrderAcquire | kOrderRelease)) != 0;
      const Barrier kind = DescribeBarrier(*instruction).kind;
      facts.block_barriers |= kind == Barrier::kBlock;
      facts.warp_barriers |= kind == Barrier::kWarp;
      facts.named_barriers |= kind == Barrier::kNamed || kind == Barrier::kNamedOnly;
      facts.some_arrive |= kind == Barrier::kNamedOnly;
    }
    if (function->is_entry) {
      all.entries[function->name] = facts;
    } else {
      all.functions |= facts;
      if (facts.Synchronises() && !all.hidden_synchronisation)
        all.hidden_synchronisation = IsAddressTaken(module, *function);
    }
  }
  for (auto& [name, facts] : all.entries) facts |= all.functions;
  return all;
}

RaceDecisions DecideRaceChecks(const ptx::Module& module, const Twin& twin,
                               const ModuleRaceFacts& facts, const Checks& checks,
                               const SourceFrames& frames, std::vector<Site>* sites) {
  return Decider(module, twin, facts, checks, frames, sites).Run();
}

}  // namespace ops_debug::shadow
