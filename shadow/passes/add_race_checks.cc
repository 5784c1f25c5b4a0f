// The pass decides per instruction of the original, where it is easy to see what an address is, and
// then walks the twin's body, which may hold copies of it. Texts name operands as #0, #1... as in
// check_text.h; scratch registers start with %odsr.
#include "shadow/passes/add_race_checks.h"

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ptx/parser.h"
#include "ptx/printer.h"
#include "shadow/abi/device_abi.h"
#include "shadow/abi/race_abi.h"
#include "shadow/passes/check_text.h"
#include "shadow/passes/memory_access.h"
#include "shadow/passes/synchronisation.h"

namespace ops_debug::shadow {
namespace {

using ptx::Function;
using ptx::Instruction;
using ptx::Operand;
using ptx::Statement;

std::string Number(uint64_t value) { return std::to_string(value); }

Operand RegisterOperand(const ptx::Guard& guard) {
  Operand operand;
  operand.kind = Operand::Kind::kRegister;
  operand.reg = guard.reg;
  operand.text = guard.text;
  return operand;
}

uint32_t SpaceBits(AccessSpace space) {
  if (space == AccessSpace::kShared) return kCallShared;
  if (space == AccessSpace::kGlobal) return kCallGlobal;
  return kCallGeneric;
}

class RaceCheckPass {
 public:
  RaceCheckPass(ptx::Module& module, const Twin& twin, const ModuleRaceFacts& facts,
                RaceDecisions decisions)
      : module_(module),
        twin_(twin),
        module_facts_(facts),
        facts_(FactsOf(twin, facts)),
        decisions_(std::move(decisions)),
        plan_(decisions_.plan),
        parameters_(ptx::LayoutParameters(*twin.original)) {}

  ptx::Result<RacePlan> Run(Function* lean) {
    const bool hidden = !twin_.original->is_entry && twin_.launch_parameter.empty();
    if (hidden) return std::move(plan_);
    if (auto done = Rewrite(twin_.function); !done.ok()) return done.error();
    lean_ = true;
    if (lean != nullptr) {
      if (auto done = Rewrite(lean); !done.ok()) return done.error();
    }
    return std::move(plan_);
  }

 private:
  static const RaceFacts& FactsOf(const Twin& twin, const ModuleRaceFacts& facts) {
    const auto entry = facts.entries.find(twin.original->name);
    return entry == facts.entries.end() ? facts.functions : entry->second;
  }

  // Instruments one function, which starts as a copy of the twin.
  ptx::Result<bool> Rewrite(Function* function) {
    function_ = function;
    body_.clear();
    skip_count_ = 0;
    // An entry that checks nothing only passes on what its launch parameter says, which is nothing.
    active_ = !function->is_entry || decisions_.exits || ChecksAccesses();
    const std::vector<Statement> original = std::move(function->body);
    body_.reserve(original.size() * 2);
    bool started = false;
    for (const Statement& statement : original) {
      const auto* instruction = std::get_if<Instruction>(&statement);
      if (instruction == nullptr || instruction->position.line == 0) {
        body_.push_back(statement);
        if (!started && instruction != nullptr && MakesRaceThread(*instruction)) {
          started = true;
          if (function->is_entry) ReserveParameter();
          if (active_) EmitStart();
        }
      } else if (active_) {
        Visit(*instruction, statement);
      } else {
        body_.push_back(statement);
      }
      if (failure_) return *failure_;
    }
    function->body = std::move(body_);
    return true;
  }

  bool ChecksAccesses() const {
    if (decisions_.calls_others) return true;
    for (const auto& [place, accesses] : decisions_.accesses) {
      for (const RaceAccess& access : accesses) {
        if (access.lean || !lean_) return true;
      }
    }
    return false;
  }

  static bool MakesRaceThread(const Instruction& instruction) {
    return !instruction.operands.empty() && instruction.operands[0].IsRegister() &&
           instruction.operands[0].text == kRaceThreadRegister;
  }

  void Emit(const std::string& text, const TextArguments& arguments = {}) {
    auto parsed = ptx::ParseStatements(module_, *function_, text, arguments.list());
    if (!parsed.ok()) {
      failure_ = parsed.error();
      failure_->message = "in code made for " + std::string(function_->name) + ": " +
                          failure_->message + ": " + text;
      return;
    }
    std::move(parsed->begin(), parsed->end(), std::back_inserter(body_));
  }

  void ReserveParameter() {
    int64_t used = 0;
    ptx::EvaluateConstant(function_->parameters.back().names[0].dims[0], &used);
    const uint32_t start =
        (parameters_.empty() ? 0
                             : parameters_.back().offset_bytes + parameters_.back().size_bytes) +
        7;
    plan_.checked = start / 8 * 8 + static_cast<uint64_t>(used) + sizeof(RaceLaunch) <=
                    ParameterSpaceBytes(module_);
    if (!plan_.checked) plan_.reason = "its parameters leave no room for those of the race checks";
    if (plan_.checked && module_facts_.hidden_synchronisation) {
      plan_.checked = false;
      plan_.reason = "the module calls functions through pointers, and one of them synchronises";
    }
    plan_.named_barriers = facts_.named_barriers;
    plan_.launch_offset = static_cast<uint32_t>(used);
    if (!plan_.checked) return;
    function_->parameters.back().names[0].dims[0] =
        module_.Intern(Number(static_cast<uint64_t>(used) + sizeof(RaceLaunch)));
  }

  // The thread's RaceThread, and what says whether an access is checked.
  void EmitStart() {
    const std::string thread(kRaceThreadRegister);
    std::string text =
        ".reg .b64 %odsra, %odsrv, %odsrt;\n.reg .b32 %odsrw, %odsrx;\n"
        ".reg .pred %odsron, %odsrp;\n";
    if (!function_->is_entry) {
      Emit(text + "ld.b64 %odsrt, [" + thread + "];\nsetp.ne.s64 %odsron, %odsrt, 0;\n");
      return;
    }
    const std::string name(twin_.launch_parameter);
    text += ".local .align 8 .b8 __ods_race_thread[" + Number(sizeof(RaceThread)) + "];\n";
    const auto load = [&](const std::string& into, uint64_t offset) {
      return "ld.param" + into + ", [" + name + "+" + Number(plan_.launch_offset + offset) + "];\n";
    };
    const auto store = [](const std::string& type, uint64_t offset, const std::string& value) {
      return "st.local" + type + " [__ods_race_thread+" + Number(offset) + "], " + value + ";\n";
    };
    static_assert(offsetof(RaceThread, launch) == 0 && offsetof(RaceLaunch, channel) == 0);
    if (plan_.checked) {
      text += load(".b64 %odsrt", 0);
    } else {
      text += "mov.b64 %odsrt, 0;\n";
    }
    // A launch without channel checks nothing, and pays little more than this.
    text += "mov.b64 " + thread + ", __ods_race_thread;\ncvta.local.u64 " + thread + ", " + thread +
            ";\n" + store(".b64", 0, "%odsrt") + "setp.ne.s64 %odsron, %odsrt, 0;\n";
    if (plan_.checked) {
      text += "@!%odsron bra $ods_race_off;\n";
      for (size_t i = 8; i < sizeof(RaceLaunch); i += 8) {
        const bool none = i == offsetof(RaceLaunch, named_barriers) && !facts_.named_barriers;
        text +=
            (none ? "mov.b64 %odsrt, 0;\n" : load(".b64 %odsrt", i)) + store(".b64", i, "%odsrt");
      }
      text += store(".b64", offsetof(RaceThread, launch_id), std::string(kLaunchIdRegister)) +
              "mov.b32 %odsrw, " + Number(NarrowBits()) + ";\n" +
              store(".b32", offsetof(RaceThread, narrow_bits), "%odsrw") + Call("start", {}) +
              "$ods_race_off:\n";
    }
    if (!plan_.slots.empty()) {
      text += plan_.checked ? load(".b32 %odsrx", offsetof(RaceLaunch, tracked))
                            : std::string("mov.b32 %odsrx, 0;\n");
    }
    for (size_t i = 0; i < plan_.slots.size(); i++) {
      if (lean_ && (plan_.lean_tracked >> i & 1) == 0) continue;
      const std::string predicate = "%odsrs" + Number(i);
      text += ".reg .pred " + predicate + ";\nand.b32 %odsrw, %odsrx, " + Number(1u << i) +
              ";\nsetp.ne.and.u32 " + predicate + ", %odsrw, 0, %odsron;\n";
    }
    Emit(text);
  }

  // Loops mostly use one kind of barrier; with both, each gets some. Kernels in which warps hand
  // work to each other pass few others.
  uint32_t NarrowBits() const {
    // A count may be that of the whole block.
    const bool wide = facts_.block_barriers || (facts_.named_barriers && !facts_.some_arrive);
    if (!facts_.warp_barriers && !facts_.named_barriers) return 1;
    return !wide ? kEpochBits - 1 : facts_.some_arrive ? 15 : 10;
  }

  // A call of a device function with the RaceThread and `arguments` ({type, value}).
  static std::string Call(const std::string& name,
                          const std::vector<std::pair<std::string, std::string>>& arguments) {
    std::string text =
        "{\n.param .b64 odsr0;\nst.param.b64 [odsr0], " + std::string(kRaceThreadRegister) + ";\n";
    std::string list = "odsr0";
    for (size_t i = 0; i < arguments.size(); i++) {
      const std::string parameter = "odsr" + Number(i + 1);
      const std::string& type = arguments[i].first;
      text += ".param " + type + " " + parameter + ";\nst.param" + type + " [" + parameter + "], " +
              arguments[i].second + ";\n";
      list += ", " + parameter;
    }
    return text + "call __ops_debug_race_" + name + ", (" + list + ");\n}\n";
  }

  // `text` is executed by threads that pass the instruction's guard, if `condition` (a predicate)
  // holds.
  void EmitGuarded(const Instruction& instruction, const std::string& condition, std::string text,
                   TextArguments arguments) {
    const std::string skip = "$ods_race" + Number(skip_count_++);
    std::string head;
    if (instruction.guard.Present()) {
      head = std::string(instruction.guard.negated ? "@" : "@!") +
             arguments.Add(RegisterOperand(instruction.guard)) + " bra " + skip + ";\n";
    }
    Emit(head + "@!" + condition + " bra " + skip + ";\n" + text + skip + ":\n", arguments);
  }

  void Visit(const Instruction& instruction, const Statement& statement) {
    EmitSyncChecks(instruction);
    if (facts_.has_fences && !decisions_.accesses.empty()) {
      if (const uint32_t order = DescribeOrder(instruction); order != 0)
        EmitGuarded(instruction, "%odsron", Call("order", {{".b32", Number(order)}}), {});
    }
    if (const auto found = decisions_.accesses.find(PlaceOf(instruction));
        found != decisions_.accesses.end()) {
      for (const RaceAccess& access : found->second) {
        if (access.lean || !lean_) EmitAccess(instruction, access);
      }
    }
    const BarrierUse barrier = DescribeBarrier(instruction);
    EmitBarrier(instruction, barrier, true);
    body_.push_back(statement);
    EmitBarrier(instruction, barrier, false);
  }

  void EmitSyncChecks(const Instruction& instruction) {
    if (instruction.Is("exit") || (instruction.Is("ret") && function_->is_entry)) {
      if (decisions_.exits) EmitGuarded(instruction, "%odsron", Call("exit", {}), {});
      return;
    }
    const auto found = decisions_.sync_sites.find(PlaceOf(instruction));
    if (found == decisions_.sync_sites.end()) return;
    const BarrierUse barrier = DescribeBarrier(instruction);
    const std::pair<std::string, std::string> site = {".b32", Number(found->second)};
    if (barrier.kind == Barrier::kBlock) {
      EmitGuarded(instruction, "%odsron", Call("at_barrier", {site}), {});
    } else if (const int mask = MaskOperandOf(instruction); mask >= 0) {
      TextArguments arguments;
      const std::string lanes = arguments.Add(instruction.operands[static_cast<size_t>(mask)]);
      const std::string here = "$ods_race_here" + Number(skip_count_);
      // Nobody is missing if the lanes that are here are those that it names.
      EmitGuarded(
          instruction, "%odsron",
          "activemask.b32 %odsrw;\nsetp.eq.u32 %odsrp, %odsrw, " + lanes + ";\n@%odsrp bra " +
              here + ";\n" +
              Call("at_warp_sync",
                   {site, {".b32", lanes}, {".b32", barrier.kind == Barrier::kWarp ? "1" : "0"}}) +
              here + ":\n",
          arguments);
    }
  }

  void EmitBarrier(const Instruction& instruction, const BarrierUse& barrier, bool before) {
    TextArguments arguments;
    const auto operand = [&](uint32_t index) -> std::pair<std::string, std::string> {
      return {".b32", arguments.Add(instruction.operands[index])};
    };
    const uint32_t some = facts_.some_arrive ? kNamedSomeArrive : 0;
    std::string call;
    switch (barrier.kind) {
      case Barrier::kNone:
        return;
      case Barrier::kBlock:
        if (before) return;
        call = Call("barrier", {});
        break;
      case Barrier::kWarp:
        if (before || instruction.operands.empty()) return;
        call = Call("warp_sync", {operand(barrier.mask_operand)});
        break;
      case Barrier::kNamed:
        call = Call("named", {operand(barrier.id_operand),
                              operand(barrier.count_operand),
                              {".b32", Number(before ? kNamedBefore | some : some)}});
        break;
      case Barrier::kNamedOnly:
        if (!before || instruction.operands.size() < 2) return;
        call = Call("named", {operand(barrier.id_operand),
                              operand(barrier.count_operand),
                              {".b32", Number(kNamedBefore | some)}});
        break;
    }
    EmitGuarded(instruction, "%odsron", call, arguments);
  }

  // The address into %odsra.
  std::string AddressText(const Instruction& instruction, const MemoryAccess& access,
                          TextArguments* arguments) const {
    const Operand& address = instruction.operands[access.operand];
    const Operand& base = address.children[0];
    const bool narrow = base.IsRegister() && base.reg < function_->registers.size() &&
                        ptx::TypeSizeBytes(function_->registers[base.reg].type) == 4;
    std::string text =
        (narrow ? "cvt.u64.u32 %odsra, " : "mov.u64 %odsra, ") + arguments->Add(base) + ";\n";
    if (address.offset != 0)
      text += "add.s64 %odsra, %odsra, " + std::to_string(address.offset) + ";\n";
    return text;
  }

  void EmitAccess(const Instruction& instruction, const RaceAccess& race) {
    const MemoryAccess& access = race.access;
    TextArguments arguments;
    std::string text;
    const std::string unread = "$ods_race_unread" + Number(skip_count_);
    if (access.collective_lanes != 0 && access.collective_lanes < 32) {
      text += "mov.u32 %odsrw, %laneid;\nsetp.ge.u32 %odsrp, %odsrw, " +
              Number(access.collective_lanes) + ";\n@%odsrp bra " + unread + ";\n";
    }
    if (access.ignore_operand != 0) {
      text += "@" + arguments.Add(instruction.operands[access.ignore_operand]) + " bra " + unread +
              ";\n";
    }
    text += AddressText(instruction, access, &arguments);
    uint32_t what = SpaceBits(access.space) | access.bytes << kCallBytesShift;
    if (access.kind == AccessKind::kLoad) {
      what |= StrengthOf(instruction);
      std::string given = Number(what);
      if (access.size_operand != 0) {
        text += "mov.b32 %odsrw, " + arguments.Add(instruction.operands[access.size_operand]) +
                ";\nshl.b32 %odsrw, %odsrw, " + Number(kCallBytesShift) +
                ";\nor.b32 %odsrw, %odsrw, " + Number(SpaceBits(access.space)) + ";\n";
        given = "%odsrw";
      }
      text += Call("read", {{".b64", "%odsra"}, {".b32", given}, {".b32", Number(race.site)}});
    } else if (access.kind == AccessKind::kAtomic) {
      what |= StrengthOf(instruction) | kCallAtomic;
      text += Write(what, race.site, "0");
    } else {
      text += StoreText(instruction, race, &arguments);
    }
    const std::string condition = race.slot >= 0 ? "%odsrs" + Number(race.slot) : "%odsron";
    EmitGuarded(instruction, condition, text + unread + ":\n", arguments);
  }

  static std::string Write(uint32_t what, uint32_t site, const std::string& value) {
    return Call(
        "write",
        {{".b64", "%odsra"}, {".b32", Number(what)}, {".b32", Number(site)}, {".b64", value}});
  }

  // Calls for the words of a store, with their values where they can be told.
  std::string StoreText(const Instruction& instruction, const RaceAccess& race,
                        TextArguments* arguments) {
    const MemoryAccess& access = race.access;
    const uint32_t space = SpaceBits(access.space);
    std::vector<Operand> elements;
    if (instruction.Is("st") && access.operand + 1 < instruction.operands.size()) {
      const Operand& value = instruction.operands[access.operand + 1];
      if (value.kind == Operand::Kind::kVector) {
        elements.assign(value.children.begin(), value.children.end());
      } else {
        elements.push_back(value);
      }
    }
    const uint32_t element_bytes =
        elements.empty() ? 0 : access.bytes / static_cast<uint32_t>(elements.size());
    bool known = element_bytes > 0 && element_bytes <= 8;
    for (const Operand& element : elements)
      known &= element.IsRegister() || element.kind == Operand::Kind::kImmediate;
    if (!known) {
      const uint32_t strength = StrengthOf(instruction);
      return Write(space | access.bytes << kCallBytesShift |
                       static_cast<uint32_t>(strength == kWriteWeak ? kWriteUnknown : strength),
                   race.site, "0");
    }
    std::string text;
    for (size_t i = 0; i < elements.size(); i++) {
      text += ValueText(elements[i], arguments);
      uint32_t bytes = element_bytes;
      if (element_bytes == 4 && i + 1 < elements.size()) {
        text += "mov.b64 %odsrt, %odsrv;\n" + ValueText(elements[++i], arguments) +
                "shl.b64 %odsrv, %odsrv, 32;\nand.b64 %odsrt, %odsrt, 0xffffffff;\n"
                "or.b64 %odsrv, %odsrv, %odsrt;\n";
        bytes = 8;
      }
      text +=
          Write(space | bytes << kCallBytesShift | StrengthOf(instruction), race.site, "%odsrv");
      if (i + 1 < elements.size()) text += "add.s64 %odsra, %odsra, " + Number(bytes) + ";\n";
    }
    return text;
  }

  // The bits of a register or an immediate into %odsrv.
  std::string ValueText(const Operand& operand, TextArguments* arguments) const {
    if (operand.kind == Operand::Kind::kImmediate)
      return "mov.b64 %odsrv, " + std::to_string(operand.value) + ";\n";
    const uint32_t bytes = operand.reg < function_->registers.size()
                               ? ptx::TypeSizeBytes(function_->registers[operand.reg].type)
                               : 0;
    const std::string name = arguments->Add(operand);
    switch (bytes) {
      case 1:
        return "cvt.u64.u8 %odsrv, " + name + ";\n";
      case 2:
        return "{\n.reg .b16 %odsrh;\nmov.b16 %odsrh, " + name +
               ";\ncvt.u64.u16 %odsrv, %odsrh;\n}\n";
      case 4:
        return "mov.b32 %odsrw, " + name + ";\ncvt.u64.u32 %odsrv, %odsrw;\n";
      default:
        return "mov.b64 %odsrv, " + name + ";\n";
    }
  }

  ptx::Module& module_;
  const Twin& twin_;
  Function* function_ = nullptr;  // that is written: the twin's, or the lean twin
  bool lean_ = false, active_ = true;
  const ModuleRaceFacts& module_facts_;
  const RaceFacts& facts_;
  RaceDecisions decisions_;
  RacePlan& plan_;
  const std::vector<ptx::ParameterLayout> parameters_;

  std::vector<Statement> body_;
  std::optional<ptx::Diagnostic> failure_;
  uint64_t skip_count_ = 0;
};

}  // namespace

ptx::Result<RacePlan> AddRaceChecks(ptx::Module& module, const Twin& twin,
                                    const ModuleRaceFacts& facts, RaceDecisions decisions,
                                    ptx::Function* lean) {
  return RaceCheckPass(module, twin, facts, std::move(decisions)).Run(lean);
}

}  // namespace ops_debug::shadow
