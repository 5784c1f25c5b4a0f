// The pass walks a twin's body once. It keeps one open group: instructions that wait for the
// group's test, and the accesses among them. A statement either joins the group, moves in front of
// its test, or closes it.
#include "shadow/passes/add_memory_checks.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <string>

#include "ptx/parser.h"
#include "ptx/printer.h"
#include "shadow/abi/device_abi.h"
#include "shadow/passes/access_groups.h"
#include "shadow/passes/access_site.h"
#include "shadow/passes/check_text.h"
#include "shadow/passes/memory_access.h"
#include "shadow/passes/provenance.h"

namespace ops_debug::shadow {
namespace {

using ptx::Function;
using ptx::Instruction;
using ptx::Operand;
using ptx::Statement;

// Bounds of the code that exists twice.
constexpr size_t kMaxGroupAccesses = 32;
constexpr size_t kMaxGroupStatements = 256;

class MemoryCheckPass {
 public:
  MemoryCheckPass(ptx::Module& module, const Twin& twin, const SourceFrames& frames,
                  uint32_t reserved_bytes, std::vector<Site>* sites)
      : module_(module),
        twin_(twin),
        function_(*twin.function),
        frames_(frames),
        sites_(*sites),
        provenance_(module, *twin.function),
        text_(*twin.function, provenance_),
        parameters_(ptx::LayoutParameters(*twin.original)),
        group_registers_(twin.function->registers.size()) {
    if (function_.is_entry) {
      const uint32_t used =
          parameters_.empty() ? 0 : parameters_.back().offset_bytes + parameters_.back().size_bytes;
      const uint32_t start = (used + 7) / 8 * 8 + sizeof(LaunchHeader) + reserved_bytes;
      const uint32_t space = ParameterSpaceBytes(module);
      slots_that_fit_ = space > start ? (space - start) / sizeof(BoundsEntry) : 0;
    }
  }

  ptx::Result<MemoryChecks> Run() {
    const std::vector<Statement> original = std::move(function_.body);
    body_.reserve(original.size() * 2);
    // Declared first, so that the texts of the checks can name them.
    Emit(ScratchText(), {}, &head_);
    for (const Statement& statement : original) {
      if (std::holds_alternative<ptx::Loc>(statement) ||
          std::holds_alternative<ptx::RawDirective>(statement)) {
        Place(statement);
      } else if (const auto* instruction = std::get_if<Instruction>(&statement)) {
        Visit(*instruction, statement);
      } else {
        CloseGroup();
        if (std::holds_alternative<ptx::BlockBegin>(statement)) depth_++;
        if (std::holds_alternative<ptx::BlockEnd>(statement)) depth_--;
        body_.push_back(statement);
      }
      if (failure_) return *failure_;
    }
    CloseGroup();
    if (!slow_blocks_.empty()) Emit("ret;", {}, &body_);
    if (failure_) return *failure_;
    std::move(body_.begin(), body_.end(), std::back_inserter(head_));
    std::move(slow_blocks_.begin(), slow_blocks_.end(), std::back_inserter(head_));
    function_.body = std::move(head_);
    if (function_.is_entry) {
      const uint64_t bytes = sizeof(LaunchHeader) + checks_.slots.size() * sizeof(BoundsEntry);
      function_.parameters.back().names[0].dims[0] = module_.Intern(std::to_string(bytes));
    }
    return std::move(checks_);
  }

 private:
  struct GroupItem {
    const Statement* statement = nullptr;
    size_t first_access = 0, access_count = 0;  // in group_accesses_
  };

  // A text that does not parse is a fault of ours; it ends the pass (failure_), and the module
  // stays uninstrumented.
  void Emit(const std::string& text, const TextArguments& arguments, std::vector<Statement>* out) {
    auto parsed = ptx::ParseStatements(module_, function_, text, arguments.list());
    if (!parsed.ok()) {
      failure_ = parsed.error();
      failure_->message = "in code made for " + std::string(function_.name) + ": " +
                          failure_->message + ": " + text;
      return;
    }
    std::move(parsed->begin(), parsed->end(), std::back_inserter(*out));
  }

  void Visit(const Instruction& instruction, const Statement& statement) {
    const bool ends_group = EndsGroup(instruction);
    if (ends_group) CloseGroup();
    std::vector<CheckedAccess> accesses = DecideAll(instruction);
    if (accesses.empty()) {
      if (ends_group) {
        body_.push_back(statement);
      } else if (!group_.empty() && IsMovable(instruction) &&
                 group_registers_.MayMoveBefore(instruction)) {
        body_.push_back(statement);
      } else {
        Place(statement);
        if (!group_.empty()) group_registers_.Add(instruction);
      }
      return;
    }
    if (DependsOnGroup(instruction, accesses) ||
        group_accesses_.size() + accesses.size() > kMaxGroupAccesses ||
        group_.size() >= kMaxGroupStatements) {
      CloseGroup();
    }
    group_.push_back({&statement, group_accesses_.size(), accesses.size()});
    group_accesses_.insert(group_accesses_.end(), accesses.begin(), accesses.end());
    group_registers_.Add(instruction);
    if (ends_group) CloseGroup();
  }

  void Place(const Statement& statement) {
    if (group_.empty()) {
      body_.push_back(statement);
    } else {
      group_.push_back({&statement, 0, 0});
    }
  }

  // The test stands in front of the group, so all that it reads must be known there.
  bool DependsOnGroup(const Instruction& instruction,
                      const std::vector<CheckedAccess>& accesses) const {
    if (group_.empty()) return false;
    const auto written = [&](const Operand& operand) {
      return operand.IsRegister() && group_registers_.Writes(operand.reg);
    };
    if (instruction.guard.Present() && group_registers_.Writes(instruction.guard.reg)) return true;
    for (const CheckedAccess& checked : accesses) {
      const MemoryAccess& access = checked.access;
      if (written(checked.Address().children[0])) return true;
      if (access.size_operand != 0 && written(instruction.operands[access.size_operand]))
        return true;
      if (access.ignore_operand != 0 && written(instruction.operands[access.ignore_operand]))
        return true;
    }
    return false;
  }

  void CloseGroup() {
    if (group_.empty()) return;
    // What follows the last access need not exist twice.
    size_t end = group_.size();
    while (group_[end - 1].access_count == 0) end--;
    const bool collective = group_accesses_[0].access.collective_lanes != 0;  // alone in its group
    const std::string number = std::to_string(group_count_++);
    const std::string slow = "$ods_slow" + number, fast = "$ods_fast" + number,
                      join = "$ods_join" + number;

    TextArguments arguments;
    std::string test = text_.GroupTest(group_accesses_, &arguments);
    if (collective) test += "vote.sync.any.pred %odsq, %odsp, 0xffffffff;\n";
    const std::string condition = collective ? "%odsq" : "%odsp";
    // Slow code out of line cannot name registers of a nested block, so there it stays in place.
    if (depth_ == 0) {
      Emit(test + "@" + condition + " bra " + slow + ";\n", arguments, &body_);
      Emit(slow + ":", {}, &slow_blocks_);
      EmitSlowCopy(end, join, &slow_blocks_);
    } else {
      Emit(test + "@!" + condition + " bra " + fast + ";\n", arguments, &body_);
      EmitSlowCopy(end, join, &body_);
      Emit(fast + ":", {}, &body_);
    }
    for (size_t i = 0; i < end; i++) body_.push_back(*group_[i].statement);
    Emit(join + ":", {}, &body_);
    for (size_t i = end; i < group_.size(); i++) body_.push_back(*group_[i].statement);
    group_.clear();
    group_accesses_.clear();
    group_registers_.Clear();
  }

  void EmitSlowCopy(size_t end, const std::string& join, std::vector<Statement>* out) {
    for (size_t i = 0; i < end; i++) {
      const GroupItem& item = group_[i];
      if (item.access_count == 0) {
        out->push_back(*item.statement);
        continue;
      }
      const auto& instruction = std::get<Instruction>(*item.statement);
      // Out of line, the line that was named last is another's.
      if (instruction.loc != 0) out->emplace_back(function_.locs[instruction.loc]);
      const std::string number = std::to_string(check_count_++);
      const std::string skip = "$ods_skip" + number, next = "$ods_next" + number;
      TextArguments arguments;
      std::string ask;
      if (instruction.guard.Present()) {
        Operand guard;
        guard.kind = Operand::Kind::kRegister;
        guard.reg = instruction.guard.reg;
        guard.text = instruction.guard.text;
        ask += std::string(instruction.guard.negated ? "@" : "@!") + arguments.Add(guard) +
               " bra " + next + ";\n";
      }
      for (size_t k = 0; k < item.access_count; k++) {
        const CheckedAccess& checked = group_accesses_[item.first_access + k];
        // A copy of run-time size is judged whole, with the test of its last byte.
        if (checked.access.size_operand != 0 && !checked.access.last_byte) continue;
        ask += AskAbout(checked, instruction, skip, number + "_" + std::to_string(k), &arguments);
      }
      Emit(ask, arguments, out);
      if (group_accesses_[item.first_access].access.collective_lanes == 0) {
        out->push_back(*item.statement);
        Emit("bra " + next + ";\n", {}, out);
      }
      TextArguments destinations;
      Emit(skip + ":\n" + text_.ZeroDestinations(instruction, &destinations) + next + ":",
           destinations, out);
    }
    Emit("bra " + join + ";", {}, out);
  }

  std::string AskAbout(const CheckedAccess& checked, const Instruction& instruction,
                       const std::string& skip, const std::string& unique,
                       TextArguments* arguments) const {
    const MemoryAccess& access = checked.access;
    // Lanes whose own test failed report; the warp skips as one.
    if (access.collective_lanes != 0) {
      return "@!%odsp bra " + skip + ";\n" + text_.SlowCheck(checked, arguments) + "bra " + skip +
             ";\n";
    }
    const std::string ask = text_.SlowCheck(checked, arguments) + "@!%odsp bra " + skip + ";\n";
    const std::string unread = "$ods_unread" + unique;
    if (access.size_operand != 0) {
      return "setp.eq.u32 %odsp, " + arguments->Add(instruction.operands[access.size_operand]) +
             ", 0;\n@%odsp bra " + unread + ";\n" + ask + unread + ":\n";
    }
    if (access.ignore_operand != 0) {
      return "@" + arguments->Add(instruction.operands[access.ignore_operand]) + " bra " + unread +
             ";\n" + ask + unread + ":\n";
    }
    return ask;
  }

  // Accesses of the instruction that need a test, with their sites. Counts all, also those proved
  // in bounds.
  std::vector<CheckedAccess> DecideAll(const Instruction& instruction) {
    std::vector<CheckedAccess> accesses;
    const AccessDescription description = DescribeAccesses(function_, instruction);
    if (!description.unchecked_reason.empty())
      CountUnchecked(instruction, description.unchecked_reason);
    for (const MemoryAccess& access : description.accesses) {
      CheckedAccess checked;
      checked.instruction = &instruction;
      checked.access = access;
      std::string unchecked_reason;
      checked.decision = Decide(instruction, access, &unchecked_reason);
      if (!unchecked_reason.empty()) {
        CountUnchecked(instruction, unchecked_reason);
        continue;
      }
      checks_.checked_accesses++;
      if (checked.decision.test == Test::kNone) continue;
      checked.site = AddSite(instruction, access, checked.decision);
      accesses.push_back(checked);
    }
    return accesses;
  }

  void CountUnchecked(const Instruction& instruction, const std::string& reason) {
    std::string name(instruction.opcode);
    for (std::string_view modifier : instruction.modifiers) name += modifier;
    for (UncheckedAccess& known : checks_.unchecked) {
      if (known.instruction == name && known.reason == reason) {
        known.count++;
        return;
      }
    }
    checks_.unchecked.push_back({name, reason, 1});
  }

  std::optional<uint32_t> FindSlot(uint32_t parameter_offset, uint32_t bytes, uint32_t alignment) {
    for (uint32_t i = 0; i < checks_.slots.size(); i++) {
      const BoundsSlot& slot = checks_.slots[i];
      if (slot.parameter_offset == parameter_offset && slot.access_bytes == bytes &&
          slot.alignment_bytes == alignment) {
        return i;
      }
    }
    if (checks_.slots.size() >= slots_that_fit_) return std::nullopt;
    const auto index = static_cast<uint32_t>(checks_.slots.size());
    checks_.slots.push_back({parameter_offset, bytes, alignment});
    Emit(LoadBoundsText(index, twin_.launch_parameter), {}, &head_);
    return index;
  }

  Decision Decide(const Instruction& instruction, const MemoryAccess& access,
                  std::string* unchecked_reason) {
    Decision decision;
    decision.value = provenance_.OfAddress(instruction.operands[access.operand]);
    const Value& value = decision.value;
    const uint32_t needed = access.alignment_bytes;
    const bool terms_aligned = (1u << value.alignment_log2) >= needed;
    if (value.origin == Origin::kSymbol || value.origin == Origin::kLocalRegion) {
      const AddressedSymbol& symbol = provenance_.symbols()[value.id];
      uint64_t size = symbol.size_bytes;
      uint32_t alignment = symbol.alignment_bytes;
      if (value.origin == Origin::kLocalRegion) {
        size = provenance_.LocalRegionBytes(value.id, value.region);
        if (value.region != 0) {
          alignment = std::min(
              alignment, 1u << std::min(12, std::countr_zero(static_cast<uint64_t>(value.region))));
        }
      }
      if (size > 0 || symbol.dynamic_shared) {
        decision.array_bytes = size;
        decision.dynamic_shared = symbol.dynamic_shared;
        decision.test_alignment = alignment < needed || !terms_aligned;
        decision.test = Test::kSymbol;
        if (symbol.dynamic_shared) return decision;
        if (size < access.bytes) {
          decision.test = Test::kStaticFault;
        } else if (value.exact && !decision.test_alignment) {
          const bool inside =
              value.offset >= 0 && static_cast<uint64_t>(value.offset) <= size - access.bytes;
          decision.test = inside ? Test::kNone : Test::kStaticFault;
        }
        return decision;
      }
    }
    if (access.constant_space) {
      *unchecked_reason = "address in constant memory of unknown origin";
      return decision;
    }
    if (access.space == AccessSpace::kLocal) {
      *unchecked_reason = "local address of unknown origin";
      return decision;
    }
    decision.test_alignment = needed > 1;
    if (access.space == AccessSpace::kShared) {
      decision.test = Test::kSymbol;  // against the block's whole shared memory
      return decision;
    }
    if (value.origin == Origin::kParameter) {
      if (const auto slot = FindSlot(value.id, access.bytes, terms_aligned ? needed : 1)) {
        decision.test = Test::kParameter;
        decision.slot = *slot;
        decision.test_alignment = !terms_aligned;
        return decision;
      }
    }
    decision.test = Test::kShadow;
    if (!uses_shadow_) Emit(LoadDirectoryText(), {}, &head_);
    uses_shadow_ = true;
    return decision;
  }

  uint32_t AddSite(const Instruction& instruction, const MemoryAccess& access,
                   const Decision& decision) {
    sites_.push_back(MakeSite(*twin_.original, instruction, access, provenance_, decision.value,
                              decision.array_bytes, parameters_, frames_));
    return static_cast<uint32_t>(sites_.size() - 1);
  }

  ptx::Module& module_;
  const Twin& twin_;
  Function& function_;
  const SourceFrames& frames_;
  std::vector<Site>& sites_;
  const Provenance provenance_;
  const CheckText text_;
  const std::vector<ptx::ParameterLayout> parameters_;
  uint32_t slots_that_fit_ = 0;

  MemoryChecks checks_;
  std::optional<ptx::Diagnostic> failure_;
  std::vector<Statement> head_;         // what checks need at the top of the function
  std::vector<Statement> body_;         // done
  std::vector<Statement> slow_blocks_;  // behind the body
  int depth_ = 0;                       // of nested blocks
  bool uses_shadow_ = false;
  uint64_t group_count_ = 0, check_count_ = 0;

  std::vector<GroupItem> group_;  // open group: from its first access on
  std::vector<CheckedAccess> group_accesses_;
  GroupRegisters group_registers_;
};

}  // namespace

ptx::Result<MemoryChecks> AddMemoryChecks(ptx::Module& module, const Twin& twin,
                                          const SourceFrames& frames, uint32_t reserved_bytes,
                                          std::vector<Site>* sites) {
  return MemoryCheckPass(module, twin, frames, reserved_bytes, sites).Run();
}

}  // namespace ops_debug::shadow
