// The pipeline. Order matters: the device part first, because twins call it and PTX wants a
// declaration before use; then twins, because every later pass changes twins only and the originals
// must stay as they were; then the checks.
#include "shadow/passes/instrument.h"

#include <charconv>
#include <map>
#include <utility>

#include "ptx/parser.h"
#include "ptx/printer.h"
#include "shadow/abi/device_abi.h"
#include "shadow/passes/add_memory_checks.h"
#include "shadow/passes/make_twins.h"
#include "shadow/passes/provenance.h"
#include "shadow/passes/source_frames.h"
#include "shadow/passes/waiting_loops.h"

namespace ops_debug::shadow {
namespace {

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

}  // namespace

std::string TwinName(std::string_view name) { return std::string(name) + "$ops_debug"; }

ptx::Result<InstrumentedModule> Instrument(std::string_view ptx, Rewrite rewrite) {
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

  if (ParseVersion(module.version) < ParseVersion(kSlowPathPtxVersion))
    module.version = kSlowPathPtxVersion;
  if (auto appended = ptx::AppendItems(module, kSlowPathPtx); !appended.ok())
    return appended.error();
  auto twins = MakeTwins(module);
  if (!twins.ok()) return twins.error();
  std::vector<UncheckedAccess> in_functions;
  bool a_function_waits = false;
  for (const Twin& twin : twins.value()) {
    auto checks = AddMemoryChecks(module, twin, frames, &result.sites);
    if (!checks.ok()) return checks.error();
    if (CallsThroughPointer(*twin.original)) {
      checks->unchecked.push_back(
          {"call", "function called through a pointer, which may be an unchecked original", 1});
    }
    if (!twin.function->is_entry) {
      Merge(checks->unchecked, &in_functions);
      a_function_waits |= WaitsInLoop(*twin.original);
      continue;
    }
    KernelPlan& plan = plans[twin.original->name];
    plan.twin = std::string(twin.function->name);
    plan.reason.clear();
    plan.slots = std::move(checks->slots);
    plan.launch_parameter_bytes =
        static_cast<uint32_t>(sizeof(LaunchHeader) + plan.slots.size() * sizeof(BoundsEntry));
    plan.checked_accesses = checks->checked_accesses;
    plan.unchecked = std::move(checks->unchecked);
    plan.waits_for_blocks = WaitsInLoop(*twin.original);
  }
  for (std::string_view name : order) {
    // Which functions an entry reaches is not worked out; what they leave unchecked counts for
    // each.
    Merge(in_functions, &plans[name].unchecked);
    for (ptx::ParameterLayout& parameter : plans[name].parameters) parameter.name = {};
    result.kernels.push_back(std::move(plans[name]));
  }
  result.ptx = ptx::Print(module);
  return result;
}

}  // namespace ops_debug::shadow
