// Names: %odsxN is the companion of the program's register N, %odsxmN gathers the sign bits of the
// leaves that it is made of, %odsxwK and %odsxvK are copies of both at widening K, for the register
// may be used again before the access. Companions are kept up in front of an instruction, because
// it may overwrite what it reads; behind it where its result is needed (leaves, min, or).
#include "shadow/passes/add_index_checks.h"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "ptx/operands.h"
#include "ptx/parser.h"
#include "shadow/abi/precision_abi.h"
#include "shadow/passes/check_text.h"
#include "shadow/passes/index_slices.h"
#include "shadow/passes/numeric_site.h"

namespace ops_debug::shadow {
namespace {

using ptx::Instruction;
using ptx::Operand;
using ptx::RegisterId;
using ptx::Statement;
using Step = IndexSlices::Step;

constexpr char kScratch[] =
    ".reg .b64 %odsxa, %odsxb, %odsxc;\n.reg .b32 %odsxi;\n.reg .pred %odsxp, %odsxq;\n";

Operand RegisterOperand(RegisterId reg, std::string_view text) {
  Operand operand;
  operand.kind = Operand::Kind::kRegister;
  operand.reg = reg;
  operand.text = text;
  return operand;
}

std::string Number(uint64_t value) { return std::to_string(value); }
std::string Exact(RegisterId reg) { return "%odsx" + Number(reg); }
std::string Signs(RegisterId reg) { return "%odsxm" + Number(reg); }

class IndexCheckPass {
 public:
  IndexCheckPass(ptx::Module& module, const Twin& twin, const SourceFrames& frames,
                 std::vector<NumericSite>* sites)
      : module_(module),
        original_(*twin.original),
        function_(*twin.function),
        frames_(frames),
        sites_(*sites),
        slices_(original_) {
    for (uint32_t i = 0; i < original_.body.size(); i++) {
      const auto* instruction = std::get_if<Instruction>(&original_.body[i]);
      if (instruction == nullptr) continue;
      statements_[{instruction->position.line, instruction->position.column}] = i;
    }
    for (uint32_t k = 0; k < slices_.widenings().size(); k++)
      widenings_[slices_.widenings()[k].statement].push_back(k);
  }

  ptx::Result<IndexPlan> Run() {
    if (slices_.accesses().empty()) return plan_;
    std::vector<Statement> body = std::move(function_.body);
    Declare();
    for (Statement& statement : body) {
      if (std::holds_alternative<ptx::BlockBegin>(statement)) depth_++;
      if (std::holds_alternative<ptx::BlockEnd>(statement)) depth_--;
      const auto* instruction = std::get_if<Instruction>(&statement);
      std::string behind;
      TextArguments arguments;
      if (instruction != nullptr && instruction->position.line != 0) {
        const auto found =
            statements_.find({instruction->position.line, instruction->position.column});
        if (found != statements_.end()) Visit(*instruction, found->second, &behind, &arguments);
      }
      out_.push_back(std::move(statement));
      if (!behind.empty()) Emit(behind, arguments, &out_);
      if (failure_) return *failure_;
    }
    if (!slow_.empty()) Emit("ret;", {}, &out_);
    std::move(slow_.begin(), slow_.end(), std::back_inserter(out_));
    if (failure_) return *failure_;
    function_.body = std::move(out_);
    return plan_;
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

  // A register that is used before it is defined holds anything: its companion holds 0.
  void Declare() {
    std::string text = kScratch;
    for (const RegisterId reg : slices_.registers()) {
      text += ".reg .b64 " + Exact(reg) + ";\n.reg .b32 " + Signs(reg) + ";\nmov.b64 " +
              Exact(reg) + ", 0;\nmov.b32 " + Signs(reg) + ", 0;\n";
    }
    for (uint32_t k = 0; k < slices_.widenings().size(); k++) {
      const std::string number = Number(k);
      text += ".reg .b64 %odsxw" + number + ";\n.reg .b32 %odsxv" + number + ";\nmov.b64 %odsxw" +
              number + ", 0;\nmov.b32 %odsxv" + number + ", 0;\n";
    }
    Emit(text, {}, &out_);
    plan_.companion_registers = static_cast<uint32_t>(slices_.registers().size());
  }

  void Visit(const Instruction& instruction, uint32_t statement, std::string* behind,
             TextArguments* behind_arguments) {
    if (const auto access = slices_.accesses().find(statement); access != slices_.accesses().end())
      TestAccess(instruction, statement, access->second);
    if (const auto widened = widenings_.find(statement); widened != widenings_.end()) {
      for (const uint32_t k : widened->second) CopyWidened(instruction, k);
    }
    const bool is_behind = StepsBehind(slices_.StepOf(statement));
    for (const Operand& destination : Destinations(instruction)) {
      if (!slices_.registers().contains(destination.reg)) continue;
      if (is_behind) {
        *behind += StepText(instruction, statement, destination, behind_arguments);
        continue;
      }
      TextArguments arguments;
      const std::string text = StepText(instruction, statement, destination, &arguments);
      Emit(text, arguments, &out_);
    }
  }

  static bool StepsBehind(Step step) {
    return step == Step::kLeaf || step == Step::kExtremum || step == Step::kOr;
  }

  // Registers that the instruction writes.
  static std::vector<Operand> Destinations(const Instruction& instruction) {
    std::vector<Operand> found;
    const auto add = [&](const Operand& operand, const auto& self) -> void {
      if (operand.IsRegister()) found.push_back(operand);
      if (operand.IsAddress()) return;
      for (const Operand& child : operand.children) self(child, self);
    };
    const ptx::DestinationShape shape = ptx::DestinationsOf(instruction);
    for (size_t i = 0; i < instruction.operands.size() && i < shape.written; i++)
      add(instruction.operands[i], add);
    return found;
  }

  // "@#0 ", where the instruction has a guard.
  static std::string Guarded(const Instruction& instruction, TextArguments* arguments) {
    if (!instruction.guard.Present()) return {};
    return std::string(instruction.guard.negated ? "@!" : "@") +
           arguments->Add(RegisterOperand(instruction.guard.reg, instruction.guard.text)) + " ";
  }

  void CopyWidened(const Instruction& instruction, uint32_t k) {
    TextArguments arguments;
    const RegisterId reg = slices_.widenings()[k].reg;
    const std::string guard = Guarded(instruction, &arguments), number = Number(k);
    Emit(guard + "mov.b64 %odsxw" + number + ", " + Exact(reg) + ";\n" + guard + "mov.b32 %odsxv" +
             number + ", " + Signs(reg) + ";\n",
         arguments, &out_);
    tested_.erase(k);
  }

  // The operand's exact value as a 64-bit operand; `before` computes it into `scratch` if need be.
  std::string ExactOperand(const Operand& operand, const char* scratch, std::string* before,
                           TextArguments* arguments) {
    if (!operand.IsRegister()) return std::to_string(static_cast<int32_t>(operand.value));
    if (slices_.registers().contains(operand.reg)) return Exact(operand.reg);
    *before += std::string("cvt.s64.s32 ") + scratch + ", " + arguments->Add(operand) + ";\n";
    return scratch;
  }

  // Ors the sign bits that `operand` brings into `into`.
  std::string SignsOf(const Operand& operand, const std::string& into, TextArguments* arguments) {
    if (!operand.IsRegister()) return {};
    if (slices_.registers().contains(operand.reg)) {
      return "or.b32 " + into + ", " + into + ", " + Signs(operand.reg) + ";\n";
    }
    if (slices_.IsNeverNegative(operand)) return {};
    return "or.b32 " + into + ", " + into + ", " + arguments->Add(operand) + ";\n";
  }

  // What the definition of `destination` means for its companion.
  std::string StepText(const Instruction& instruction, uint32_t statement,
                       const Operand& destination, TextArguments* arguments) {
    const std::string to = Exact(destination.reg), signs = Signs(destination.reg);
    const Step step = slices_.StepOf(statement);
    std::string text, skip;
    if (instruction.guard.Present()) {
      skip = "$ods_index_skip" + Number(label_count_++);
      text += std::string(instruction.guard.negated ? "@" : "@!") +
              arguments->Add(RegisterOperand(instruction.guard.reg, instruction.guard.text)) +
              " bra " + skip + ";\n";
    }
    if (step == Step::kLeaf) {
      const std::string value = arguments->Add(destination);
      text += "cvt.s64.s32 " + to + ", " + value + ";\n";
      const bool constant =
          instruction.Is("mov") &&
          (instruction.operands[1].is_integer || slices_.IsNeverNegative(instruction.operands[1]));
      text += "mov.b32 " + signs + ", " + (constant ? "0" : value) + ";\n";
    } else {
      text += ArithmeticText(instruction, step, destination, arguments);
    }
    return skip.empty() ? text : text + skip + ":\n";
  }

  std::string ArithmeticText(const Instruction& instruction, Step step, const Operand& destination,
                             TextArguments* arguments) {
    const std::string to = Exact(destination.reg), signs = Signs(destination.reg);
    const auto sources = Sources(instruction);
    std::string text;
    constexpr const char* kScratchOf[] = {"%odsxa", "%odsxb", "%odsxc"};
    std::vector<std::string> value;
    const size_t values = step == Step::kSelect ? 2 : sources.size();
    for (size_t i = 0; i < values && i < 3; i++)
      value.push_back(ExactOperand(sources[i], kScratchOf[i], &text, arguments));
    // The sum of signs first: the destination may be among the operands.
    text += "mov.b32 %odsxi, 0;\n";
    for (size_t i = 0; i < values && i < 3; i++) text += SignsOf(sources[i], "%odsxi", arguments);
    text += "mov.b32 " + signs + ", %odsxi;\n";
    switch (step) {
      case Step::kCopy:
        return text + "mov.b64 " + to + ", " + value[0] + ";\n";
      case Step::kAdd:
        return text + "add.s64 " + to + ", " + value[0] + ", " + value[1] + ";\n";
      case Step::kSubtract:
        return text + "sub.s64 " + to + ", " + value[0] + ", " + value[1] + ";\n";
      case Step::kMultiply:
        return text + "mul.lo.s64 " + to + ", " + value[0] + ", " + value[1] + ";\n";
      case Step::kMultiplyAdd:
        return text + "mad.lo.s64 " + to + ", " + value[0] + ", " + value[1] + ", " + value[2] +
               ";\n";
      case Step::kShiftLeft: {
        const std::string by =
            sources[1].IsRegister() ? arguments->Add(sources[1]) : Number(sources[1].value & 63);
        return text + "shl.b64 " + to + ", " + value[0] + ", " + by + ";\n";
      }
      case Step::kNegate:
        return text + "neg.s64 " + to + ", " + value[0] + ";\n";
      case Step::kNot:
        return text + "not.b64 " + to + ", " + value[0] + ";\n";
      case Step::kSelect:
        return text + "selp.b64 " + to + ", " + value[0] + ", " + value[1] + ", " +
               arguments->Add(sources[2]) + ";\n";
      case Step::kExtremum:
        return text + "setp.eq.u32 %odsxp, " + arguments->Add(destination) + ", " +
               arguments->Add(sources[0]) + ";\nselp.b64 " + to + ", " + value[0] + ", " +
               value[1] + ", %odsxp;\n";
      case Step::kOr: {
        const std::string result = arguments->Add(destination), before = arguments->Add(sources[0]);
        return text + "sub.u32 %odsxi, " + result + ", " + before +
               ";\ncvt.u64.u32 %odsxb, %odsxi;\nadd.s64 " + to + ", " + value[0] + ", %odsxb;\n";
      }
      case Step::kLeaf:
        break;
    }
    return text;
  }

  // The exact value fits the type that it was widened from iff it keeps its upper half when that
  // type's least value is taken off.
  static std::string OutOfRange(const Widening& widening, uint32_t k, const std::string& comparison,
                                const std::string& rest) {
    const std::string value = "%odsxw" + Number(k);
    if (!widening.is_signed)
      return "setp.gt" + comparison + ".u64 %odsxp, " + value + ", 4294967295" + rest + ";\n";
    return "add.s64 %odsxa, " + value + ", 2147483648;\nsetp.gt" + comparison +
           ".u64 %odsxp, %odsxa, 4294967295" + rest + ";\n";
  }

  void TestAccess(const Instruction& instruction, uint32_t statement,
                  const std::vector<uint32_t>& widenings) {
    const uint32_t block = slices_.BlockOf(statement);
    if (block != block_) tested_.clear();
    block_ = block;
    std::vector<uint32_t> open;
    for (const uint32_t k : widenings) {
      if (!tested_.contains(k)) open.push_back(k);
      if (!instruction.guard.Present()) tested_.insert(k);
    }
    if (open.empty()) return;
    plan_.checked_accesses++;
    const std::string number = Number(label_count_++);
    const std::string slow = "$ods_index_slow" + number, next = "$ods_index_next" + number;
    TextArguments arguments;
    std::string text;
    for (size_t i = 0; i < open.size(); i++) {
      text += OutOfRange(slices_.widenings()[open[i]], open[i], i == 0 ? "" : ".or",
                         i == 0 ? "" : ", %odsxp");
    }
    if (instruction.guard.Present()) {
      const std::string held =
          arguments.Add(RegisterOperand(instruction.guard.reg, instruction.guard.text));
      if (instruction.guard.negated) {
        text += "not.pred %odsxq, " + held + ";\nand.pred %odsxp, %odsxp, %odsxq;\n";
      } else {
        text += "and.pred %odsxp, %odsxp, " + held + ";\n";
      }
    }
    std::string report;
    for (const uint32_t k : open) report += ReportText(instruction, statement, k);
    if (depth_ == 0) {
      Emit(text + "@%odsxp bra " + slow + ";\n" + next + ":\n", arguments, &out_);
      Emit(slow + ":\n" + report + "bra " + next + ";\n", {}, &slow_);
    } else {
      Emit(text + "@!%odsxp bra " + next + ";\n" + report + next + ":\n", arguments, &out_);
    }
  }

  // Reports widening `k`, if it is what does not fit, and no leaf leaves a doubt.
  std::string ReportText(const Instruction& access, uint32_t statement, uint32_t k) {
    const Widening& widening = slices_.widenings()[k];
    const std::string number = Number(k), fits = "$ods_index_fits" + Number(label_count_++);
    const uint32_t site = AddSite(access, statement, widening);
    const std::string exact = "%odsxw" + number;
    std::string text =
        OutOfRange(widening, k, "", "") + "@!%odsxp bra " + fits + ";\nsetp.lt.s32 %odsxp, %odsxv" +
        number + ", 0;\n@%odsxp bra " + fits + ";\ncvt.u32.u64 %odsxi, " + exact + ";\n" +
        (widening.is_signed ? "cvt.s64.s32" : "cvt.u64.u32") +
        " %odsxa, %odsxi;\nmov.b64 %odsxb, 0;\nmov.b32 %odsxi, " + Number(site) + ";\n{\n";
    const std::pair<const char*, std::string> parameters[] = {
        {".b32", "%odsxi"}, {".b32", Number(kNumericIndexOverflow)},
        {".b64", "%odsxb"}, {".b64", "%odsxb"},
        {".b64", "%odsxb"}, {".b64", "%odsxa"},
        {".b64", exact},    {".b64", std::string(kLaunchIdRegister)}};
    std::string list;
    for (size_t i = 0; i < std::size(parameters); i++) {
      const std::string name = "odsx" + Number(i);
      const auto& [type, value] = parameters[i];
      text += std::string(".param ") + type + " " + name + ";\nst.param" + type + " [" + name +
              "], " + value + ";\n";
      list += (i > 0 ? ", " : "") + name;
    }
    return text + "call __ops_debug_numeric_report, (" + list + ");\n}\n" + fits + ":\n";
  }

  uint32_t AddSite(const Instruction& access, uint32_t statement, const Widening& widening) {
    NumericSite site = MakeNumericSite(original_, access, frames_);
    site.result_type = widening.is_signed ? "s32" : "u32";
    const uint32_t made_at = widening.made_by.value_or(widening.statement);
    if (made_at != statement) {
      const auto& made_by = std::get<Instruction>(original_.body[made_at]);
      site.origins.push_back({.site = MakeInstructionSite(original_, made_by, frames_)});
    }
    sites_.push_back(std::move(site));
    return static_cast<uint32_t>(sites_.size() - 1);
  }

  ptx::Module& module_;
  const ptx::Function& original_;
  ptx::Function& function_;
  const SourceFrames& frames_;
  std::vector<NumericSite>& sites_;
  const IndexSlices slices_;
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> statements_;  // of the original, by place
  std::map<uint32_t, std::vector<uint32_t>> widenings_;           // by statement

  IndexPlan plan_;
  std::optional<ptx::Diagnostic> failure_;
  std::vector<Statement> out_, slow_;
  int depth_ = 0;
  uint64_t label_count_ = 0;
  uint32_t block_ = ~0u;
  std::set<uint32_t> tested_;  // widenings, in this block, whatever its guards
};

}  // namespace

ptx::Result<IndexPlan> AddIndexChecks(ptx::Module& module, const Twin& twin,
                                      const SourceFrames& frames, std::vector<NumericSite>* sites) {
  return IndexCheckPass(module, twin, frames, sites).Run();
}

}  // namespace ops_debug::shadow
