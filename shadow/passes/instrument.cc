// The pipeline. Order matters: the device part first, because twins call it and PTX wants a
// declaration before use; then twins, because every later pass changes twins only and the originals
// must stay as they were; then the checks, those of memory first, because they decide which
// accesses happen at all, those of races last, as the lean twin is a copy of all but them.
#include "shadow/passes/instrument.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <utility>

#include "ptx/parser.h"
#include "ptx/printer.h"
#include "shadow/abi/device_abi.h"
#include "shadow/abi/race_abi.h"
#include "shadow/passes/add_index_checks.h"
#include "shadow/passes/add_init_checks.h"
#include "shadow/passes/add_memory_checks.h"
#include "shadow/passes/add_precision_checks.h"
#include "shadow/passes/add_race_checks.h"
#include "shadow/passes/make_twins.h"
#include "shadow/passes/provenance.h"
#include "shadow/passes/source_frames.h"
#include "shadow/passes/undecided.h"
#include "shadow/passes/waiting_loops.h"
#include "shadow/passes/widened_constants.h"

namespace ops_debug::shadow {
namespace {

#include "shadow/device/init_ptx.inc"
#include "shadow/device/precision_ptx.inc"
#include "shadow/device/race_ptx.inc"
#include "shadow/device/slow_path_ptx.inc"

std::pair<int, int> ParseVersion(std::string_view text) {
  int major = 0, minor = 0;
  const auto [dot, error] = std::from_chars(text.data(), text.data() + text.size(), major);
  if (dot != text.data() + text.size()) std::from_chars(dot + 1, text.data() + text.size(), minor);
  return {major, minor};
}

std::vector<ModuleVariable> ListGlobals(const ptx::Module& module) {
  std::vector<ModuleVariable> globals;
  const ptx::Function no_function;
  const Provenance provenance(module, no_function);
  for (const AddressedSymbol& symbol : provenance.symbols()) {
    if ((symbol.space == ".global" || symbol.space == ".const") && symbol.size_bytes > 0) {
      globals.push_back({std::string(symbol.name), symbol.size_bytes});
    }
  }
  return globals;
}

// Functions reached through tables in memory run uninstrumented: the table holds the originals.
bool CallsThroughPointer(const ptx::Function& function) {
  for (const ptx::Statement& statement : function.body) {
    const auto* instruction = std::get_if<ptx::Instruction>(&statement);
    if (instruction == nullptr || !instruction->Is("call")) continue;
    for (const ptx::Operand& operand : instruction->operands) {
      if (operand.kind == ptx::Operand::Kind::kRegister) return true;
    }
  }
  return false;
}

void Merge(const std::vector<UncheckedAccess>& from, std::vector<UncheckedAccess>* to) {
  for (const UncheckedAccess& access : from) {
    bool known = false;
    for (UncheckedAccess& held : *to) {
      if (held.instruction != access.instruction || held.reason != access.reason) continue;
      held.count += access.count;
      known = true;
    }
    if (!known) to->push_back(access);
  }
}

void Merge(const RacePlan& from, RacePlan* to) {
  Merge(from.unchecked, &to->unchecked);
  to->reaches_elsewhere |= from.reaches_elsewhere;
  to->writes_elsewhere |= from.writes_elsewhere;
  to->uses_shared |= from.uses_shared;
  to->uses_global |= from.uses_global;
  to->sync_sites += from.sync_sites;
  to->checked_accesses += from.checked_accesses;
  to->proved_accesses += from.proved_accesses;
  for (const std::string& name : from.variables) {
    if (std::find(to->variables.begin(), to->variables.end(), name) == to->variables.end())
      to->variables.push_back(name);
  }
}

void Merge(const InitPlan& from, InitPlan* to) {
  to->checked_loads += from.checked_loads;
  to->marked_stores += from.marked_stores;
  to->not_followed += from.not_followed;
  to->writes_unseen |= from.writes_unseen;
}

void Merge(const PrecisionPlan& from, PrecisionPlan* to) {
  to->checked_instructions += from.checked_instructions;
  to->indexes += from.indexes;
  to->constants.insert(to->constants.end(), from.constants.begin(), from.constants.end());
  Merge(from.unchecked, &to->unchecked);
}

KernelPlan PlanOf(const ptx::Function& entry) {
  KernelPlan plan;
  plan.name = std::string(entry.name);
  plan.parameters = ptx::LayoutParameters(entry);
  if (!plan.parameters.empty()) {
    plan.parameter_bytes = plan.parameters.back().offset_bytes + plan.parameters.back().size_bytes;
  }
  plan.launch_parameter_offset = (plan.parameter_bytes + 7) / 8 * 8;
  return plan;
}

// sm_90 and up.
bool HasClusters(const ptx::Module& module) {
  for (const std::string_view target : module.targets) {
    constexpr std::string_view kPrefix = "sm_";
    if (!target.starts_with(kPrefix)) continue;
    int number = 0;
    std::from_chars(target.data() + kPrefix.size(), target.data() + target.size(), number);
    return number >= 90;
  }
  return false;
}

// The slow path as fits the module's target: where there are clusters, a generic address may lie in
// the shared memory of another block of the cluster.
std::string SlowPathText(ptx::Module* module) {
  std::string text = kSlowPathPtx;
  if (!HasClusters(*module)) return text;
  constexpr std::string_view kOwn = "isspacep.shared ", kAny = "isspacep.shared::cluster ";
  for (size_t at = 0; (at = text.find(kOwn, at)) != std::string::npos; at += kAny.size()) {
    text.replace(at, kOwn.size(), kAny);
  }
  constexpr std::string_view kVersionOfClusters = "7.8";
  if (ParseVersion(module->version) < ParseVersion(kVersionOfClusters))
    module->version = kVersionOfClusters;
  return text;
}

// The same entry under another name, behind all others.
ptx::Function* CopyEntry(ptx::Module& module, const ptx::Function& entry, const std::string& name) {
  module.items.emplace_back(entry);
  auto& copy = std::get<ptx::Function>(module.items.back());
  copy.name = module.Intern(name);
  return &copy;
}

}  // namespace

std::string TwinName(std::string_view name) { return std::string(name) + "$ops_debug"; }
std::string LeanTwinName(std::string_view name) { return TwinName(std::string(name) + "$lean"); }

ptx::Result<InstrumentedModule> Instrument(std::string_view ptx, Rewrite rewrite,
                                           const Checks& options) {
  auto parsed = ptx::Parse(std::string(ptx));
  if (!parsed.ok()) return parsed.error();
  ptx::Module& module = parsed.value();
  InstrumentedModule result;
  if (rewrite == Rewrite::kNull) {
    result.ptx = ptx::Print(module);
    return result;
  }

  result.globals = ListGlobals(module);
  const SourceFrames frames(module);
  std::map<std::string_view, KernelPlan> plans;
  std::vector<std::string_view> order;
  for (const ptx::Item& item : module.items) {
    const auto* function = std::get_if<ptx::Function>(&item);
    if (function == nullptr || !function->is_entry || !function->has_body) continue;
    plans[function->name] = PlanOf(*function);
    plans[function->name].reason = "its parameters leave no room for one more";
    order.push_back(function->name);
  }

  const InitFacts init_facts = options.init ? ReadInitFacts(module) : InitFacts{};
  UndecidedReader undecided(module, options, init_facts);
  for (std::string_view name : order) {
    const ptx::Function& entry = *module.FindFunction(name);
    plans[name].undecided = undecided.FindUndecided(entry);
    if (options.init) plans[name].unwritten_reads = undecided.FindUnwrittenReads(entry);
  }
  const bool races = options.races || options.sync;
  const ModuleRaceFacts facts = races ? ReadRaceFacts(module) : ModuleRaceFacts{};
  if (ParseVersion(module.version) < ParseVersion(kSlowPathPtxVersion))
    module.version = kSlowPathPtxVersion;
  if (auto appended = ptx::AppendItems(module, SlowPathText(&module)); !appended.ok())
    return appended.error();
  if (races) {
    if (ParseVersion(module.version) < ParseVersion(kRacePtxVersion))
      module.version = kRacePtxVersion;
    if (auto appended = ptx::AppendItems(module, kRacePtx); !appended.ok()) return appended.error();
  }
  if (options.init) {
    if (ParseVersion(module.version) < ParseVersion(kInitPtxVersion))
      module.version = kInitPtxVersion;
    if (auto appended = ptx::AppendItems(module, SharedBitsText(init_facts) + kInitPtx);
        !appended.ok())
      return appended.error();
  }
  if (options.precision || options.indexes) {
    if (ParseVersion(module.version) < ParseVersion(kPrecisionPtxVersion))
      module.version = kPrecisionPtxVersion;
    if (auto appended = ptx::AppendItems(module, kPrecisionPtx); !appended.ok())
      return appended.error();
  }
  auto twins = MakeTwins(module, races);
  if (!twins.ok()) return twins.error();
  std::vector<UncheckedAccess> in_functions;
  RacePlan races_in_functions;
  std::set<std::string_view> callers;  // entries that call other functions of the module
  InitPlan init_in_functions;
  PrecisionPlan precision_in_functions;
  bool a_function_waits = false;
  for (const Twin& twin : twins.value()) {
    uint32_t indexes = 0;
    if (options.indexes) {
      auto plan = AddIndexChecks(module, twin, frames, &result.numeric_sites);
      if (!plan.ok()) return plan.error();
      indexes = plan->checked_accesses;
    }
    ptx::Result<MemoryChecks> checks = MemoryChecks{};
    if (options.memory) {
      checks = AddMemoryChecks(
          module, twin, frames,
          (races ? sizeof(RaceLaunch) : 0) + (options.init ? kWrittenBytes : 0), &result.sites);
      if (!checks.ok()) return checks.error();
    }
    ptx::Result<InitPlan> init_plan = InitPlan{};
    if (options.init) {
      init_plan = AddInitChecks(module, twin, init_facts, frames, &result.sites);
      if (!init_plan.ok()) return init_plan.error();
    }
    ptx::Result<PrecisionPlan> precision_plan = PrecisionPlan{};
    if (options.precision) {
      precision_plan = AddPrecisionChecks(module, twin, options, frames, &result.numeric_sites);
      if (!precision_plan.ok()) return precision_plan.error();
      for (NumericSite& site : FindWidenedConstants(*twin.original, frames)) {
        precision_plan->constants.push_back(static_cast<uint32_t>(result.numeric_sites.size()));
        result.numeric_sites.push_back(std::move(site));
      }
    }
    precision_plan->indexes += indexes;
    ptx::Result<RacePlan> race_plan = RacePlan{};
    ptx::Function* lean = nullptr;
    if (races) {
      RaceDecisions decisions =
          DecideRaceChecks(module, twin, facts, options, frames, &result.sites);
      if (decisions.calls_others) callers.insert(twin.original->name);
      if (decisions.lean)
        lean = CopyEntry(module, *twin.function, LeanTwinName(twin.original->name));
      race_plan = AddRaceChecks(module, twin, facts, std::move(decisions), lean);
      if (!race_plan.ok()) return race_plan.error();
    }
    if (CallsThroughPointer(*twin.original)) {
      checks->unchecked.push_back(
          {"call", "function called through a pointer, which may be an unchecked original", 1});
    }
    if (!twin.function->is_entry) {
      Merge(checks->unchecked, &in_functions);
      Merge(*race_plan, &races_in_functions);
      Merge(*init_plan, &init_in_functions);
      Merge(*precision_plan, &precision_in_functions);
      a_function_waits |= WaitsInLoop(*twin.original);
      continue;
    }
    KernelPlan& plan = plans[twin.original->name];
    plan.twin = std::string(twin.function->name);
    if (lean != nullptr && race_plan->checked) plan.lean_twin = std::string(lean->name);
    plan.reason.clear();
    plan.slots = std::move(checks->slots);
    plan.launch_parameter_bytes =
        static_cast<uint32_t>(sizeof(LaunchHeader) + plan.slots.size() * sizeof(BoundsEntry));
    plan.races = std::move(race_plan).value();
    if (plan.races.checked) plan.launch_parameter_bytes += sizeof(RaceLaunch);
    plan.init = *init_plan;
    if (!plan.init.slots.empty()) plan.launch_parameter_bytes += kWrittenBytes;
    plan.precision = std::move(precision_plan).value();
    plan.checked_accesses = checks->checked_accesses;
    plan.unchecked = std::move(checks->unchecked);
    plan.waits_for_blocks = WaitsInLoop(*twin.original);
  }
  for (std::string_view name : order) {
    // Which functions an entry reaches is not worked out; what they leave unchecked counts for
    // each.
    Merge(in_functions, &plans[name].unchecked);
    if (callers.contains(name)) Merge(races_in_functions, &plans[name].races);
    Merge(init_in_functions, &plans[name].init);
    Merge(precision_in_functions, &plans[name].precision);
    for (ptx::ParameterLayout& parameter : plans[name].parameters) parameter.name = {};
    result.kernels.push_back(std::move(plans[name]));
  }
  result.ptx = ptx::Print(module, &result.original_lines);
  return result;
}

ptx::Result<InstrumentedModule> Inspect(std::string_view ptx) {
  auto parsed = ptx::Parse(std::string(ptx));
  if (!parsed.ok()) return parsed.error();
  InstrumentedModule result;
  result.globals = ListGlobals(parsed.value());
  for (const ptx::Item& item : parsed.value().items) {
    const auto* function = std::get_if<ptx::Function>(&item);
    if (function == nullptr || !function->is_entry || !function->has_body) continue;
    KernelPlan& plan = result.kernels.emplace_back(PlanOf(*function));
    for (ptx::ParameterLayout& parameter : plan.parameters) parameter.name = {};
  }
  return result;
}

}  // namespace ops_debug::shadow
