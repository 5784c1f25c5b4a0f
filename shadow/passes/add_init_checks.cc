// The inline part is a look-up of one, two or four shadow bytes and a branch that is not taken once
// memory is in use; init.cu has the rest. Values are followed in the original, whose statements the
// twin's copies are found by: both keep their place in the program's text.
#include "shadow/passes/add_init_checks.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "ptx/parser.h"
#include "shadow/abi/device_abi.h"
#include "shadow/passes/access_site.h"
#include "shadow/passes/check_text.h"
#include "shadow/passes/memory_access.h"
#include "shadow/passes/provenance.h"
#include "shadow/passes/value_uses.h"

namespace ops_debug::shadow {
namespace {

using ptx::Function;
using ptx::Instruction;
using ptx::Operand;
using ptx::Statement;

// Behind kLaunchIdRegister (make_twins.h) and the scratch registers of other passes.
constexpr char kSharedBits[] = "__ops_debug_init_shared";
// Static shared memory ends here on every device (CUDA C++ Programming Guide, compute
// capabilities); the system's own part comes in front.
constexpr uint64_t kMostStaticShared = 48 * 1024;
constexpr uint64_t kSharedAround = 2048;
constexpr size_t kMostSlots = 32;  // of InitPlan

constexpr char kScratch[] =
    ".reg .b64 %odsia, %odsib, %odsic, %odsinit;\n.reg .b32 %odsid, %odsie, %odsif, %odsiw;\n.reg "
    ".pred "
    "%odsip;\n";

std::string Number(uint64_t value) { return std::to_string(value); }

uint32_t ElementBytes(const Instruction& instruction) {
  for (auto at = instruction.modifiers.rbegin(); at != instruction.modifiers.rend(); ++at) {
    if (const uint32_t bytes = ptx::TypeSizeBytes(*at)) return bytes;
  }
  return 0;
}

// An atomic whose result or effect depends on what was there.
bool UsesOldValue(const Instruction& instruction) { return !instruction.Has(".exch"); }

// Functions of the run-time that write no memory of the program's.
bool IsHarmlessCallee(std::string_view name) {
  return name == "vprintf" || name == "malloc" || name == "free" || name == "__assertfail" ||
         name.starts_with("__ops_debug_");
}

bool TouchesShared(const Instruction& instruction) {
  return std::any_of(instruction.modifiers.begin(), instruction.modifiers.end(),
                     [](std::string_view modifier) { return modifier.starts_with(".shared"); });
}

// Only reads shared memory, or writes what no plain load reads.
bool LeavesSharedAlone(const Instruction& instruction) {
  return instruction.Is("mbarrier") || instruction.Is("wgmma") || instruction.Is("ldmatrix") ||
         instruction.Is("fence") || instruction.Is("cvta") || instruction.Is("isspacep") ||
         instruction.Is("ld") || instruction.Is("call") || instruction.Is("wmma") ||
         (instruction.Is("cp") && instruction.Has(".mbarrier"));
}

// Writes to shared memory that the pass does not understand, in the whole module: other blocks'
// stores, bulk copies, fragments.
bool WritesSharedOtherwise(const Function& function, const Instruction& instruction) {
  if (instruction.Is("mapa") || instruction.Has(".shared::cluster")) return true;
  if (instruction.Is("wmma") && instruction.Has(".store")) return true;
  const AccessDescription description = DescribeAccesses(function, instruction);
  if (!description.unchecked_reason.empty())
    return !LeavesSharedAlone(instruction) &&
           (TouchesShared(instruction) || !instruction.Has(".global"));
  return std::any_of(description.accesses.begin(), description.accesses.end(),
                     [](const MemoryAccess& access) {
                       return access.kind != AccessKind::kLoad && access.collective_lanes != 0;
                     });
}

bool CallsUnknown(const Instruction& instruction) {
  if (!instruction.Is("call")) return false;
  const size_t callee =
      !instruction.operands.empty() && instruction.operands[0].kind == Operand::Kind::kList ? 1 : 0;
  return callee < instruction.operands.size() &&
         instruction.operands[callee].kind != Operand::Kind::kSymbol;
}

void CollectSymbols(const Operand& operand, std::set<std::string_view>* names) {
  if (operand.kind == Operand::Kind::kSymbol) names->insert(operand.text);
  for (const Operand& child : operand.children) CollectSymbols(child, names);
}

// Bytes of the bits for so much shared memory; they have bits of their own.
uint64_t BitsFor(uint64_t bytes) { return (bytes + kSharedAround + 6) / 7 / 4 * 4 + 4; }

uint64_t SharedBytesOf(const ptx::Variable& variable) {
  if (variable.space != ".shared") return 0;
  uint64_t bytes = 0;
  for (const ptx::Variable::Name& name : variable.names)
    bytes += ptx::VariableSizeBytes(variable, name) + ptx::VariableAlignmentBytes(variable);
  return bytes;
}

class InitCheckPass {
 public:
  InitCheckPass(ptx::Module& module, const Twin& twin, const InitFacts& facts,
                const SourceFrames& frames, std::vector<Site>* sites)
      : module_(module),
        facts_(facts),
        original_(*twin.original),
        function_(*twin.function),
        frames_(frames),
        sites_(*sites),
        provenance_(module, *twin.original),
        parameters_(ptx::LayoutParameters(*twin.original)),
        uses_(*twin.original),
        launch_parameter_(twin.launch_parameter),
        shared_(facts.shared_bits_bytes != 0 && !facts.unfit.contains(twin.original->name)) {
    for (uint32_t i = 0; i < original_.body.size(); i++) {
      const auto* instruction = std::get_if<Instruction>(&original_.body[i]);
      if (instruction == nullptr) continue;
      const auto place = std::pair(instruction->position.line, instruction->position.column);
      statements_[place] = i;
    }
  }

  ptx::Result<InitPlan> Run() {
    std::vector<Statement> body = std::move(function_.body);
    // Declared first, so that the texts of the checks can name them.
    Emit(std::string(kScratch) + "ld.const.u64 %odsinit, [" + std::string(kModuleContextSymbol) +
             "+" + Number(offsetof(ModuleContext, init_directory)) +
             "];\ncvta.to.global.u64 %odsinit, %odsinit;\n",
         {}, &head_);
    ReserveSlots();
    for (Statement& statement : body) {
      if (std::holds_alternative<ptx::BlockBegin>(statement)) depth_++;
      if (std::holds_alternative<ptx::BlockEnd>(statement)) depth_--;
      if (const auto* instruction = std::get_if<Instruction>(&statement);
          instruction != nullptr && instruction->position.line != 0) {
        Visit(*instruction);
      }
      out_.push_back(std::move(statement));
      if (failure_) return *failure_;
    }
    if (!slow_.empty()) Emit("ret;", {}, &out_);
    std::move(slow_.begin(), slow_.end(), std::back_inserter(out_));
    if (shared_ && function_.is_entry && (uses_shared_ || facts_.a_function_uses_shared)) {
      uses_scratch_ = true;
      Emit(ClearSharedText(), {}, &head_);
    }
    if (uses_scratch_) {
      out_.insert(out_.begin(), std::make_move_iterator(head_.begin()),
                  std::make_move_iterator(head_.end()));
    }
    if (failure_) return *failure_;
    function_.body = std::move(out_);
    if (!plan_.slots.empty()) {
      function_.parameters.back().names[0].dims[0] =
          module_.Intern(Number(plan_.written_offset + kWrittenBytes));
    }
    plan_.checked = true;
    return std::move(plan_);
  }

 private:
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

  // Entries have a launch parameter, which is grown if it has room.
  void ReserveSlots() {
    int64_t used = 0;
    if (!function_.is_entry ||
        !ptx::EvaluateConstant(function_.parameters.back().names[0].dims[0], &used)) {
      return;
    }
    const uint32_t start =
        parameters_.empty() ? 0 : parameters_.back().offset_bytes + parameters_.back().size_bytes;
    const uint64_t end = (start + 7) / 8 * 8 + static_cast<uint64_t>(used) + kWrittenBytes;
    has_slots_ = end <= ParameterSpaceBytes(module_);
    plan_.written_offset = static_cast<uint32_t>(used);
  }

  // The predicate that says that memory behind a parameter is wholly written; empty: there is none.
  std::string WrittenPredicate(const Value& value) {
    if (!has_slots_ || value.origin != Origin::kParameter) return {};
    const auto found = std::find(plan_.slots.begin(), plan_.slots.end(), value.id);
    const auto index = static_cast<uint64_t>(found - plan_.slots.begin());
    std::string name = "%odsiw" + Number(index);
    if (found != plan_.slots.end()) return name;
    if (index == kMostSlots) return {};
    if (index == 0) {
      Emit("ld.param.u32 %odsiw, [" + std::string(launch_parameter_) + "+" +
               Number(plan_.written_offset) + "];\n",
           {}, &head_);
    }
    plan_.slots.push_back(value.id);
    Emit(".reg .pred " + name + ";\nand.b32 %odsid, %odsiw, " + Number(1u << index) +
             ";\nsetp.ne.u32 " + name + ", %odsid, 0;\n",
         {}, &head_);
    return name;
  }

  void Visit(const Instruction& instruction) {
    if (instruction.Is("call")) {
      VisitCall(instruction);
      return;
    }
    const AccessDescription description = DescribeAccesses(original_, instruction);
    if (!description.unchecked_reason.empty()) VisitUnknown(instruction);
    for (const MemoryAccess& access : description.accesses) {
      if (shared_) VisitShared(instruction, access);
      if (access.constant_space || access.collective_lanes != 0 || access.size_operand != 0 ||
          access.ignore_operand != 0 ||
          (access.space != AccessSpace::kGlobal && access.space != AccessSpace::kGeneric)) {
        continue;
      }
      const Value value = provenance_.OfAddress(instruction.operands[access.operand]);
      // Declared variables are initialised, or not in global memory.
      if (value.origin == Origin::kSymbol || value.origin == Origin::kLocalRegion) continue;
      const Operand& base = instruction.operands[access.operand].children[0];
      if (!base.IsRegister() || base.reg == ptx::kNoRegister ||
          ptx::TypeSizeBytes(function_.registers[base.reg].type) != 8) {
        continue;
      }
      if (access.kind == AccessKind::kLoad) {
        if (instruction.Is("ld") || instruction.Is("ldu")) CheckLoad(instruction, access, value);
      } else {
        if (access.kind == AccessKind::kAtomic && UsesOldValue(instruction)) {
          CheckElements(instruction, access, value, access.bytes, 1, "stored", nullptr);
        }
        MarkWritten(instruction, access);
      }
    }
  }

  void VisitShared(const Instruction& instruction, const MemoryAccess& access) {
    const bool generic = access.space == AccessSpace::kGeneric;
    if ((!generic && access.space != AccessSpace::kShared) || access.collective_lanes != 0) return;
    const Value value = provenance_.OfAddress(instruction.operands[access.operand]);
    const bool symbol = value.origin == Origin::kSymbol;
    const bool declared = symbol && provenance_.symbols()[value.id].space == ".shared" &&
                          !provenance_.symbols()[value.id].dynamic_shared;
    if (symbol && !declared) return;
    if (value.origin == Origin::kLocalRegion) return;
    if (access.kind != AccessKind::kLoad) {
      uses_shared_ = true;
      SharedTest(instruction, access,
                 "{\n.param .b32 odsa0;\n.param .b32 odsa1;\n.param .b32 odsa2;\nmov.b32 %odsie, " +
                     std::string(kSharedBits) +
                     ";\nst.param.b32 [odsa0], %odsie;\nst.param.b32 [odsa1], "
                     "%odsid;\nst.param.b32 [odsa2], " +
                     Number(access.bytes) +
                     ";\ncall __ops_debug_init_shared_write, (odsa0, odsa1, odsa2);\n}\n");
      return;
    }
    if (!declared || generic || !instruction.Is("ld")) return;
    CheckLoad(instruction, access, value);
  }

  // Every thread clears its part, then the block begins.
  std::string ClearSharedText() const {
    return "mov.u32 %odsid, %tid.z;\nmov.u32 %odsie, %ntid.y;\nmov.u32 %odsif, %tid.y;\n"
           "mad.lo.u32 %odsid, %odsid, %odsie, %odsif;\nmov.u32 %odsie, %ntid.x;\n"
           "mov.u32 %odsif, %tid.x;\nmad.lo.u32 %odsid, %odsid, %odsie, %odsif;\n"
           "shl.b32 %odsid, %odsid, 2;\n$ods_init_clear:\nsetp.ge.u32 %odsip, %odsid, " +
           Number(facts_.shared_bits_bytes) + ";\n@%odsip bra $ods_init_begin;\nmov.b32 %odsie, " +
           std::string(kSharedBits) +
           ";\nadd.u32 %odsie, %odsie, %odsid;\nst.shared.u32 [%odsie], 0;\n"
           "mov.u32 %odsie, %ntid.x;\nmov.u32 %odsif, %ntid.y;\nmul.lo.u32 %odsie, %odsie, "
           "%odsif;\nmov.u32 %odsif, %ntid.z;\nmul.lo.u32 %odsie, %odsie, %odsif;\n"
           "shl.b32 %odsie, %odsie, 2;\nadd.u32 %odsid, %odsid, %odsie;\nbra $ods_init_clear;\n"
           "$ods_init_begin:\nbarrier.sync 0;\n";
  }

  // In front of the instruction: `call` if not all of the bytes were written, with the offset in
  // the shared window in %odsid.
  void SharedTest(const Instruction& instruction, const MemoryAccess& access,
                  const std::string& call) {
    uses_scratch_ = true;
    const std::string number = Number(count_++);
    const std::string next = "$ods_init_next" + number, slow = "$ods_init_slow" + number;
    TextArguments arguments;
    std::string text = Around(instruction, next, &arguments);
    const Operand& address = instruction.operands[access.operand];
    const Operand& base = address.children[0];
    const bool narrow = base.IsRegister() && base.reg != ptx::kNoRegister &&
                        ptx::TypeSizeBytes(function_.registers[base.reg].type) == 4;
    if (access.space == AccessSpace::kGeneric) {
      if (narrow) return;
      text += "mov.b64 %odsia, " + arguments.Add(base) +
              ";\nisspacep.shared %odsip, %odsia;\n@!%odsip bra " + next +
              ";\ncvta.to.shared.u64 %odsia, %odsia;\ncvt.u32.u64 %odsid, %odsia;\n";
    } else if (base.IsRegister() && !narrow) {
      text += "cvt.u32.u64 %odsid, " + arguments.Add(base) + ";\n";
    } else {
      text += "mov.b32 %odsid, " + arguments.Add(base) + ";\n";
    }
    if (address.offset != 0)
      text += "add.s32 %odsid, %odsid, " + std::to_string(address.offset) + ";\n";
    // Dynamic shared memory lies behind what has bits.
    text += "shr.u32 %odsie, %odsid, 3;\nsetp.gt.u32 %odsip, %odsie, " +
            Number(facts_.shared_bits_bytes - 4) + ";\n@%odsip bra " + next +
            ";\nmov.b32 %odsif, " + std::string(kSharedBits) +
            ";\nadd.u32 %odsif, %odsif, %odsie;\n";
    if (access.bytes <= 8 && std::has_single_bit(access.bytes)) {
      text += "ld.volatile.shared.u8 %odsif, [%odsif];\n";
      if (access.bytes < 8) {
        text +=
            "and.b32 %odsie, %odsid, 7;\nshr.u32 %odsif, %odsif, %odsie;\nand.b32 %odsif, "
            "%odsif, " +
            Number((1u << access.bytes) - 1) + ";\n";
      }
      text += "setp.ne.u32 %odsip, %odsif, " + Number((1u << access.bytes) - 1) + ";\n";
    } else if (access.bytes == 16) {
      text += "ld.volatile.shared.u16 %odsif, [%odsif];\nsetp.ne.u32 %odsip, %odsif, 65535;\n";
    } else {
      text += "setp.eq.u32 %odsip, %odsif, %odsif;\n";
    }
    if (depth_ == 0) {
      Emit(text + "@%odsip bra " + slow + ";\n" + next + ":\n", arguments, &out_);
      Emit(slow + ":\n" + call + "bra " + next + ";\n", {}, &slow_);
    } else {
      Emit(text + "@!%odsip bra " + next + ";\n" + call + next + ":\n", arguments, &out_);
    }
  }

  // Memory may be written that nobody can name: the host must know (InitPlan).
  void VisitCall(const Instruction& instruction) {
    const size_t callee =
        !instruction.operands.empty() && instruction.operands[0].kind == Operand::Kind::kList ? 1
                                                                                              : 0;
    if (callee >= instruction.operands.size()) return;
    const Operand& target = instruction.operands[callee];
    if (target.kind != Operand::Kind::kSymbol) {
      plan_.writes_unseen = true;
      return;
    }
    const Function* function = module_.FindFunction(target.text);
    if ((function == nullptr || !function->has_body) && !IsHarmlessCallee(target.text))
      plan_.writes_unseen = true;
  }

  void VisitUnknown(const Instruction& instruction) {
    const bool to_shared = instruction.Has(".shared::cluster") && !instruction.Has(".global");
    // cp.async.bulk.global.shared::cta.bulk_group [to], [from], bytes
    if (instruction.Is("cp") && instruction.Has(".bulk") && instruction.Has(".global") &&
        !instruction.Has(".tensor") && !instruction.Has(".prefetch") &&
        instruction.operands.size() >= 3 && instruction.operands[0].IsAddress() &&
        !WritesShared(instruction)) {
      MarkBulk(instruction);
      return;
    }
    if (to_shared || WritesShared(instruction) || instruction.Has(".prefetch") ||
        instruction.Is("mbarrier") || instruction.Is("wgmma") || instruction.Is("ldmatrix") ||
        instruction.Is("ld") || instruction.Is("tex") || instruction.Is("tld4") ||
        instruction.Is("suld") || instruction.Is("txq") || instruction.Is("suq")) {
      return;
    }
    plan_.writes_unseen = true;
  }

  // The first space that a copy names is its target's.
  static bool WritesShared(const Instruction& instruction) {
    for (std::string_view modifier : instruction.modifiers) {
      if (modifier.starts_with(".shared")) return true;
      if (modifier == ".global") return false;
    }
    return false;
  }

  void CheckLoad(const Instruction& instruction, const MemoryAccess& access, const Value& value) {
    const auto found = statements_.find({instruction.position.line, instruction.position.column});
    const uint32_t element_bytes = ElementBytes(instruction);
    if (found == statements_.end() || element_bytes == 0 || instruction.operands.empty()) return;
    if (!uses_.ok()) return;
    const auto* original = std::get_if<Instruction>(&original_.body[found->second]);
    const Operand& destination = original->operands[0];
    uint32_t elements = 0;
    const ValueUse* use = nullptr;
    const auto look_at = [&](const Operand& operand, uint32_t index) {
      if (!operand.IsRegister() || operand.reg == ptx::kNoRegister) return;
      const ValueUse* here = uses_.Find(found->second, operand.reg);
      if (here == nullptr) return;
      elements |= 1u << index;
      if (use == nullptr) use = here;
    };
    if (destination.kind == Operand::Kind::kVector) {
      for (uint32_t i = 0; i < destination.children.size() && i < 8; i++)
        look_at(destination.children[i], i);
    } else {
      look_at(destination, 0);
    }
    if (elements == 0) {
      plan_.not_followed++;
      return;
    }
    CheckElements(instruction, access, value, element_bytes, elements, use->use,
                  std::get_if<Instruction>(&original_.body[use->statement]));
  }

  void CheckElements(const Instruction& instruction, const MemoryAccess& access, const Value& value,
                     uint32_t element_bytes, uint32_t elements, const std::string& use,
                     const Instruction* user) {
    Site site =
        MakeSite(original_, instruction, access, provenance_, value, 0, parameters_, frames_);
    site.init = true;
    site.use = use;
    if (user != nullptr) {
      site.use_ptx_line = user->position.line;
      site.use_frames = frames_.Of(original_, user->loc);
    }
    const bool in_shared = access.space == AccessSpace::kShared;
    sites_.push_back(std::move(site));
    plan_.checked_loads++;
    if (in_shared) {
      uses_shared_ = true;
      SharedTest(instruction, access,
                 "{\n.param .b32 odsa0;\n.param .b32 odsa1;\n.param .b32 odsa2;\n.param .b32 "
                 "odsa3;\n.param .b32 odsa4;\n.param .b64 odsa5;\nmov.b32 %odsie, " +
                     std::string(kSharedBits) +
                     ";\nst.param.b32 [odsa0], %odsie;\nst.param.b32 [odsa1], "
                     "%odsid;\nst.param.b32 [odsa2], " +
                     Number(sites_.size() - 1) + ";\nst.param.b32 [odsa3], " +
                     Number(element_bytes) + ";\nst.param.b32 [odsa4], " + Number(elements) +
                     ";\nst.param.b64 [odsa5], " + std::string(kLaunchIdRegister) +
                     ";\ncall __ops_debug_init_shared_read, (odsa0, odsa1, odsa2, odsa3, odsa4, "
                     "odsa5);\n}\n");
      return;
    }
    const std::string call =
        "{\n.param .b64 odsa0;\n.param .b32 odsa1;\n.param .b32 odsa2;\n.param .b32 odsa3;\n.param "
        ".b64 odsa4;\nst.param.b64 [odsa0], %odsia;\nst.param.b32 [odsa1], " +
        Number(sites_.size() - 1) + ";\nst.param.b32 [odsa2], " + Number(element_bytes) +
        ";\nst.param.b32 [odsa3], " + Number(elements) + ";\nst.param.b64 [odsa4], " +
        std::string(kLaunchIdRegister) +
        ";\ncall __ops_debug_init_read, (odsa0, odsa1, odsa2, odsa3, odsa4);\n}\n";
    Test(instruction, access, call,
         access.kind == AccessKind::kLoad ? WrittenPredicate(value) : std::string());
  }

  static std::string WriteCall(const std::string& bytes) {
    return "{\n.param .b64 odsa0;\n.param .b64 odsa1;\nst.param.b64 [odsa0], "
           "%odsia;\nst.param.b64 [odsa1], " +
           bytes + ";\ncall __ops_debug_init_write, (odsa0, odsa1);\n}\n";
  }

  void MarkWritten(const Instruction& instruction, const MemoryAccess& access) {
    plan_.marked_stores++;
    Test(instruction, access, WriteCall(Number(access.bytes)));
  }

  void MarkBulk(const Instruction& instruction) {
    plan_.marked_stores++;
    uses_scratch_ = true;
    TextArguments arguments;
    const Operand& size = instruction.operands[2];
    const std::string number = Number(count_++), next = "$ods_init_next" + number;
    std::string text = Around(instruction, next, &arguments);
    text += Address(instruction.operands[0], &arguments);
    if (size.is_integer) {
      text += WriteCall(Number(static_cast<uint64_t>(size.value)));
    } else {
      text += "cvt.u64.u32 %odsib, " + arguments.Add(size) + ";\n" + WriteCall("%odsib");
    }
    Emit(text + next + ":\n", arguments, &out_);
  }

  static std::string Address(const Operand& address, TextArguments* arguments) {
    std::string text = "mov.b64 %odsia, " + arguments->Add(address.children[0]) + ";\n";
    if (address.offset != 0)
      text += "add.s64 %odsia, %odsia, " + std::to_string(address.offset) + ";\n";
    return text;
  }

  // A branch around what follows, where the guard suppresses the instruction.
  static std::string Around(const Instruction& instruction, const std::string& next,
                            TextArguments* arguments) {
    if (!instruction.guard.Present()) return {};
    Operand guard;
    guard.kind = Operand::Kind::kRegister;
    guard.reg = instruction.guard.reg;
    guard.text = instruction.guard.text;
    return std::string(instruction.guard.negated ? "@" : "@!") + arguments->Add(guard) + " bra " +
           next + ";\n";
  }

  // In front of the instruction: `call` if one of the bytes was never written; nothing if the
  // predicate `unless` holds.
  void Test(const Instruction& instruction, const MemoryAccess& access, const std::string& call,
            const std::string& unless = {}) {
    uses_scratch_ = true;
    const std::string number = Number(count_++);
    const std::string next = "$ods_init_next" + number, slow = "$ods_init_slow" + number;
    TextArguments arguments;
    std::string text = unless.empty() ? "" : "@" + unless + " bra.uni " + next + ";\n";
    text += Around(instruction, next, &arguments);
    text += Address(instruction.operands[access.operand], &arguments);
    text += "shr.u64 %odsib, %odsia, " + Number(kDirectoryShift) + ";\nmin.u64 %odsib, %odsib, " +
            Number(kDirectoryEntries) +
            ";\nshl.b64 %odsib, %odsib, 3;\nadd.s64 %odsib, %odsib, %odsinit;\nld.global.u64 "
            "%odsib, [%odsib];\nshr.u64 %odsic, %odsia, " +
            Number(kShadowGranuleShift) + ";\nand.b64 %odsic, %odsic, " + Number(kChunkBytes - 1) +
            ";\nadd.s64 %odsib, %odsib, %odsic;\n";
    if (access.bytes <= 8 && std::has_single_bit(access.bytes)) {
      text += "ld.global.u8 %odsid, [%odsib];\n";
      if (access.bytes < 8) {
        text +=
            "cvt.u32.u64 %odsie, %odsia;\nand.b32 %odsie, %odsie, 7;\nshr.u32 %odsid, %odsid, "
            "%odsie;\nand.b32 %odsid, %odsid, " +
            Number((1u << access.bytes) - 1) + ";\n";
      }
    } else if (access.bytes == 16 || access.bytes == 32) {
      text += std::string(access.bytes == 16 ? "ld.global.u16" : "ld.global.u32") +
              " %odsid, [%odsib];\n";
    } else {
      text += "mov.b32 %odsid, 1;\n";
    }
    text += "setp.ne.u32 %odsip, %odsid, 0;\n";
    // Code out of line cannot name registers of a nested block; it needs none but ours.
    if (depth_ == 0) {
      Emit(text + "@%odsip bra " + slow + ";\n" + next + ":\n", arguments, &out_);
      Emit(slow + ":\n" + call + "bra " + next + ";\n", {}, &slow_);
    } else {
      Emit(text + "@!%odsip bra " + next + ";\n" + call + next + ":\n", arguments, &out_);
    }
  }

  ptx::Module& module_;
  const InitFacts& facts_;
  const Function& original_;
  Function& function_;
  const SourceFrames& frames_;
  std::vector<Site>& sites_;
  const Provenance provenance_;
  const std::vector<ptx::ParameterLayout> parameters_;
  ValueUses uses_;
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> statements_;  // of the original, by place

  InitPlan plan_;
  std::optional<ptx::Diagnostic> failure_;
  const std::string_view launch_parameter_;
  std::vector<Statement> head_, out_, slow_;
  int depth_ = 0;
  bool has_slots_ = false;  // the launch parameter has room for InitPlan::slots
  uint64_t count_ = 0;
  bool uses_scratch_ = false;
  bool shared_ = false, uses_shared_ = false;  // shared memory is checked; the function touches it
};

}  // namespace

InitFacts ReadInitFacts(const ptx::Module& module) {
  InitFacts facts;
  std::map<std::string_view, uint64_t> module_arrays;  // bytes
  std::map<std::string_view, uint64_t> entries;        // bytes of the arrays that each uses
  std::set<std::string_view> of_functions;
  uint64_t functions_bytes = 0;
  for (const ptx::Item& item : module.items) {
    if (const auto* variable = std::get_if<ptx::Variable>(&item)) {
      for (const ptx::Variable::Name& name : variable->names)
        module_arrays[name.text] = SharedBytesOf(*variable);
    }
  }
  for (const ptx::Item& item : module.items) {
    const auto* function = std::get_if<Function>(&item);
    if (function == nullptr || !function->has_body) continue;
    std::set<std::string_view> named;
    uint64_t bytes = 0;
    for (const Statement& statement : function->body) {
      if (const auto* variable = std::get_if<ptx::Variable>(&statement))
        bytes += SharedBytesOf(*variable);
      const auto* instruction = std::get_if<Instruction>(&statement);
      if (instruction == nullptr) continue;
      if (WritesSharedOtherwise(*function, *instruction) || CallsUnknown(*instruction)) {
        if (!function->is_entry) return {};
        facts.unfit.insert(function->name);
      }
      facts.a_function_uses_shared |= !function->is_entry && TouchesShared(*instruction);
      for (const Operand& operand : instruction->operands) CollectSymbols(operand, &named);
    }
    if (!function->is_entry) {
      of_functions.merge(named);
      functions_bytes += bytes;
      continue;
    }
    for (std::string_view name : named) {
      const auto found = module_arrays.find(name);
      if (found != module_arrays.end()) bytes += found->second;
    }
    entries[function->name] = bytes;
  }
  for (std::string_view name : of_functions) {
    const auto found = module_arrays.find(name);
    if (found != module_arrays.end()) functions_bytes += found->second;
  }
  uint64_t most = 0;
  for (const auto& [name, own] : entries) {
    // The bits must fit beside the arrays.
    const uint64_t bytes = own + functions_bytes;
    if (bytes + BitsFor(bytes) > kMostStaticShared) {
      facts.unfit.insert(name);
    } else if (!facts.unfit.contains(name)) {
      most = std::max(most, bytes);
    }
  }
  if (most == 0) return {};
  facts.shared_bits_bytes = static_cast<uint32_t>(BitsFor(most));
  for (const auto& [name, own] : entries) {
    if (own + functions_bytes + facts.shared_bits_bytes > kMostStaticShared)
      facts.unfit.insert(name);
  }
  return facts;
}

std::string SharedBitsText(const InitFacts& facts) {
  if (facts.shared_bits_bytes == 0) return {};
  return ".shared .align 4 .b8 " + std::string(kSharedBits) + "[" +
         Number(facts.shared_bits_bytes) + "];\n";
}

ptx::Result<InitPlan> AddInitChecks(ptx::Module& module, const Twin& twin, const InitFacts& facts,
                                    const SourceFrames& frames, std::vector<Site>* sites) {
  return InitCheckPass(module, twin, facts, frames, sites).Run();
}

}  // namespace ops_debug::shadow
