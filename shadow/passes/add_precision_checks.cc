// Values are followed in the original, whose statements the twin's copies are found by: both keep
// their place in the program's text. Groups end where control may come from or go elsewhere, also
// by branches of other passes: their slow ways are copies of code, with tests of their own.
#include "shadow/passes/add_precision_checks.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "ptx/cfg.h"
#include "ptx/def_use.h"
#include "ptx/operands.h"
#include "ptx/parser.h"
#include "shadow/passes/accumulators.h"
#include "shadow/passes/check_text.h"
#include "shadow/passes/numeric_instruction.h"
#include "shadow/passes/numeric_site.h"
#include "shadow/passes/precision_text.h"
#include "shadow/passes/value_origin.h"

namespace ops_debug::shadow {
namespace {

using ptx::Function;
using ptx::Instruction;
using ptx::Operand;
using ptx::Statement;

// Registers of 32 bits that the operands of a group may occupy until its branch.
constexpr size_t kMostPendingWords = 28;
constexpr std::string_view kDepot = "__ods_numeric_depot";

// An infinite or NaN operand makes the result one, or the instruction's own test sees the operand.
bool Keeps(const NumericInstruction& what) {
  switch (what.operation) {
    case kOperationAdd:
    case kOperationSubtract:
    case kOperationMultiply:
    case kOperationFma:
    case kOperationDivide:
    case kOperationReciprocal:
    case kOperationSquareRoot:
    case kOperationReciprocalSquareRoot:
    case kOperationLog2:
    case kOperationToInteger:
    case kOperationMatrix:
    case kOperationStore:
      return true;
    case kOperationConvert:
      return what.operand_type == kTypeF32 && what.Narrows();
    default:
      return false;
  }
}

// setp.nan, setp.num, x != x, |x| == infinity: the program knows what it does.
bool AsksForExceptions(const Instruction& instruction, const Operand& a, const Operand& b) {
  if (instruction.Has(".nan") || instruction.Has(".num")) return true;
  if (a.IsRegister() && b.IsRegister() && a.reg == b.reg) return true;
  return false;
}

bool IsInfinity(const Operand& operand, NumericType type) {
  const auto bits = LiteralBits(operand, type);
  if (!bits) return false;
  switch (type) {
    case kTypeF32:
      return (*bits & 0x7fffffff) == 0x7f800000;
    case kTypeF64:
      return (*bits & ~(1ull << 63)) == 0x7ff0000000000000ull;
    case kTypeF16:
      return (*bits & 0x7fff) == 0x7c00;
    default:
      return (*bits & 0x7fff) == 0x7f80;
  }
}

class PrecisionPass {
 public:
  PrecisionPass(ptx::Module& module, const Twin& twin, const Checks& checks,
                const SourceFrames& frames, std::vector<NumericSite>* sites)
      : module_(module),
        original_(*twin.original),
        function_(*twin.function),
        trace_(checks.precision_trace),
        frames_(frames),
        sites_(*sites),
        text_(*twin.function) {
    for (uint32_t i = 0; i < original_.body.size(); i++) {
      const auto* instruction = std::get_if<Instruction>(&original_.body[i]);
      if (instruction == nullptr) continue;
      statements_[std::pair(instruction->position.line, instruction->position.column)] = i;
    }
    auto flow = ptx::ControlFlow::Build(original_);
    if (!flow.ok()) return;
    def_use_ = std::make_unique<ptx::DefUse>(original_, *flow);
    accumulators_ = FindAccumulators(original_, *def_use_);
  }

  ptx::Result<PrecisionPlan> Run() {
    std::vector<Statement> body = std::move(function_.body);
    // Declared first, so that the texts of the checks can name them.
    Emit(PrecisionScratchText(), {}, &head_);
    for (Statement& statement : body) {
      if (std::holds_alternative<ptx::BlockBegin>(statement)) depth_++;
      if (std::holds_alternative<ptx::BlockEnd>(statement)) depth_--;
      const auto* instruction = std::get_if<Instruction>(&statement);
      if (std::holds_alternative<ptx::Label>(statement) ||
          (instruction != nullptr && (ptx::EndsBlock(*instruction) || instruction->Is("call")))) {
        CloseGroup();
      }
      if (instruction == nullptr) {
        out_.push_back(std::move(statement));
      } else {
        const Instruction copy = *instruction;
        Visit(copy, std::move(statement));
      }
      if (failure_) return *failure_;
    }
    CloseGroup();
    if (!slow_.empty()) Emit("ret;", {}, &out_);
    std::move(slow_.begin(), slow_.end(), std::back_inserter(out_));
    if (depot_bytes_ != 0) {
      Emit(".local .align 8 .b8 " + std::string(kDepot) + "[" + std::to_string(depot_bytes_) +
               "];\n",
           {}, &head_);
    }
    if (plan_.checked_instructions != 0) {
      out_.insert(out_.begin(), std::make_move_iterator(head_.begin()),
                  std::make_move_iterator(head_.end()));
    }
    if (failure_) return *failure_;
    function_.body = std::move(out_);
    plan_.checked = true;
    return std::move(plan_);
  }

 private:
  struct Pending {
    NumericTest test;
    // Registers that still hold the results, by element; kNoRegister: overwritten.
    std::vector<ptx::RegisterId> live;
  };

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

  void Visit(const Instruction& instruction, Statement&& statement) {
    std::set<ptx::RegisterId> written;
    ptx::ForEachRegister(instruction, [&](ptx::RegisterId reg, bool is_write) {
      if (is_write) written.insert(reg);
    });
    std::optional<NumericInstruction> what;
    if (instruction.position.line != 0) what = DescribeNumeric(instruction);
    if (what && !IsWorthATest(instruction, *what)) what.reset();
    std::optional<Pending> pending;
    if (what) pending = MakePending(instruction, *what, written);
    SaveOverwritten(written);
    out_.push_back(std::move(statement));
    if (!pending) return;
    if (depth_ > 0) SaveInner(&*pending);
    plan_.checked_instructions++;
    const bool tests = !what->Widens();
    if (trace_) Measure(*what, *pending);
    if (!tests) return;
    if (what->operation != kOperationStore) {
      Enter(*what, std::move(*pending));
      return;
    }
    // One value each.
    const std::vector<Operand> values = pending->test.operands;
    for (const Operand& value : values) {
      pending->test.operands = {value};
      Enter(*what, Pending(*pending));
    }
  }

  void Enter(const NumericInstruction& what, Pending&& pending) {
    MarkSeenLater(what, pending);
    pending_words_ += WordsOf(pending.test);
    group_.push_back(std::move(pending));
    if (pending_words_ > kMostPendingWords) CloseGroup();
  }

  bool IsWorthATest(const Instruction& instruction, const NumericInstruction& what) {
    if (what.operation == kOperationCompare || what.operation == kOperationMinMax) {
      const Operand &a = *what.operands[0], &b = *what.operands[1];
      if (!a.IsRegister() && !b.IsRegister()) return false;
      if (what.operation == kOperationMinMax) return true;
      return !AsksForExceptions(instruction, a, b) && !IsInfinity(a, what.operand_type) &&
             !IsInfinity(b, what.operand_type) && !HoldsInfinity(instruction, a, what) &&
             !HoldsInfinity(instruction, b, what);
    }
    if (what.Widens()) return trace_;
    return true;
  }

  // Registers that were set to infinity for a comparison.
  bool HoldsInfinity(const Instruction& instruction, const Operand& operand,
                     const NumericInstruction& what) {
    const auto at = StatementOf(instruction);
    if (!at || !def_use_ || !operand.IsRegister()) return false;
    const auto* original = std::get_if<Instruction>(&original_.body[*at]);
    for (const Operand& same : original->operands) {
      if (!same.IsRegister() || same.text != operand.text) continue;
      const auto* definition = def_use_->UniqueDefinition(*at, same.reg);
      if (definition == nullptr) return false;
      const auto* maker = std::get_if<Instruction>(&original_.body[definition->statement]);
      return maker != nullptr && maker->Is("mov") && maker->operands.size() == 2 &&
             IsInfinity(maker->operands[1], what.operand_type);
    }
    return false;
  }

  std::optional<uint32_t> StatementOf(const Instruction& instruction) const {
    const auto found =
        statements_.find(std::pair(instruction.position.line, instruction.position.column));
    if (found == statements_.end()) return {};
    return found->second;
  }

  Pending MakePending(const Instruction& instruction, const NumericInstruction& what,
                      const std::set<ptx::RegisterId>& written) {
    Pending pending;
    NumericTest& test = pending.test;
    test.what = what;
    test.what.result = nullptr;
    test.what.operands.clear();
    if (what.operation == kOperationMatrix) {
      test.results.assign(what.result->children.begin(), what.result->children.end());
      test.operands.assign(what.operands[2]->children.begin(), what.operands[2]->children.end());
      for (const size_t i : {0, 1}) {
        for (const Operand& factor : what.operands[i]->children) test.factors.push_back(factor);
      }
    } else {
      if (what.result != nullptr) test.results.push_back(*what.result);
      for (const Operand* operand : what.operands) test.operands.push_back(*operand);
    }
    if (instruction.guard.Present()) {
      test.guard.kind = Operand::Kind::kRegister;
      test.guard.reg = instruction.guard.reg;
      test.guard.text = instruction.guard.text;
      test.guard_negated = instruction.guard.negated;
    }
    for (const Operand& result : test.results) pending.live.push_back(result.reg);
    AddSite(instruction, what, &test);
    // What the instruction itself overwrites.
    std::map<ptx::RegisterId, Operand> saved;
    ForEachOperand(&test, [&](Operand* operand) {
      if (written.contains(operand->reg)) *operand = Save(*operand, &saved);
    });
    return pending;
  }

  // Operands, factors and the guard; not the results.
  template <class Callback>
  static void ForEachOperand(NumericTest* test, Callback&& callback) {
    const auto visit = [&](Operand& operand) {
      if (operand.IsRegister() && operand.reg != ptx::kNoRegister) callback(&operand);
    };
    for (Operand& operand : test->operands) visit(operand);
    for (Operand& factor : test->factors) visit(factor);
    visit(test->guard);
  }

  // A copy of the register as it is now.
  Operand Save(const Operand& operand, std::map<ptx::RegisterId, Operand>* saved) {
    const auto known = saved->find(operand.reg);
    if (known != saved->end()) return known->second;
    const std::string_view type = function_.registers[operand.reg].type;
    const Operand copy = ptx::AddRegister(module_, function_, type, "%odsns");
    const uint32_t bytes = ptx::TypeSizeBytes(type);
    TextArguments arguments;
    const std::string to = arguments.Add(copy), from = arguments.Add(operand);
    const std::string name = bytes == 0 ? "pred" : "b" + std::to_string(bytes * 8);
    Emit("mov." + name + " " + to + ", " + from + ";\n", arguments, &out_);
    (*saved)[operand.reg] = copy;
    return copy;
  }

  // Registers of pending tests that the next statement writes.
  void SaveOverwritten(const std::set<ptx::RegisterId>& written) {
    if (written.empty()) return;
    std::map<ptx::RegisterId, Operand> saved;
    for (Pending& pending : group_) {
      const auto save = [&](Operand* operand) {
        if (written.contains(operand->reg)) *operand = Save(*operand, &saved);
      };
      ForEachOperand(&pending.test, save);
      for (size_t i = 0; i < pending.test.results.size(); i++) {
        Operand& result = pending.test.results[i];
        if (!result.IsRegister() || result.reg == ptx::kNoRegister) continue;
        save(&result);
      }
      for (ptx::RegisterId& live : pending.live) {
        if (written.contains(live)) live = ptx::kNoRegister;
      }
    }
  }

  // Registers of a nested block have no names outside of it.
  void SaveInner(Pending* pending) {
    std::map<ptx::RegisterId, Operand> saved;
    const auto save = [&](Operand* operand) {
      const std::string_view name = module_.Intern(function_.registers[operand->reg].name);
      if (function_.register_table.Find(name, function_.registers) != operand->reg)
        *operand = Save(*operand, &saved);
    };
    ForEachOperand(&pending->test, save);
    for (Operand& result : pending->test.results) {
      if (result.IsRegister() && result.reg != ptx::kNoRegister) save(&result);
    }
  }

  void AddSite(const Instruction& instruction, const NumericInstruction& what, NumericTest* test) {
    NumericSite site = MakeNumericSite(original_, instruction, frames_);
    const bool matrix = what.operation == kOperationMatrix;
    const size_t count = matrix ? 3 : what.operands.size();
    // A conversion that packs is told by its halves, each of one operand.
    const bool packs = what.operation == kOperationConvert && what.packed && count == 2;
    const bool stores = what.operation == kOperationStore;
    for (size_t i = 0; i < (packs || stores ? 1 : count); i++) {
      const bool part = matrix && i < 2;
      site.operand_types.emplace_back(part ? "" : NameOf(what.operand_type));
    }
    if (what.result != nullptr && what.operation != kOperationToInteger)
      site.result_type = NameOf(what.result_type);
    const auto statement = StatementOf(instruction);
    if (statement && def_use_) {
      const auto* original = std::get_if<Instruction>(&original_.body[*statement]);
      const auto same = DescribeNumeric(*original);
      if (same && !matrix && !packs && !(stores && count > 1)) {
        for (uint32_t i = 0; i < same->operands.size(); i++) {
          const Instruction* maker =
              FindOrigin(original_, *def_use_, *statement, *same->operands[i], what.Widens());
          if (maker == nullptr) continue;
          site.origins.push_back({i, MakeInstructionSite(original_, *maker, frames_)});
        }
      }
      const auto sum = accumulators_.find(*statement);
      // Of half sums every addition is tested, of others the last one of a round.
      const bool half = what.operand_type == kTypeF16 || what.operand_type == kTypeBf16;
      if (sum != accumulators_.end() &&
          (half || (what.operand_type == kTypeF32 && sum->second.last)) &&
          std::all_of(test->operands.begin(), test->operands.end(),
                      [](const Operand& operand) { return operand.IsRegister(); })) {
        test->accumulator = sum->second.operand;
      }
    }
    test->site = static_cast<uint32_t>(sites_.size());
    sites_.push_back(std::move(site));
  }

  // Earlier tests of the group whose result this instruction takes on.
  void MarkSeenLater(const NumericInstruction& what, const Pending& pending) {
    if (!Keeps(what)) return;
    const bool takes_pairs =
        what.packed && !(what.operation == kOperationConvert && what.operand_type == kTypeF32);
    for (Pending& earlier : group_) {
      const NumericTest& test = earlier.test;
      if (test.results.empty() || test.what.result_type != what.operand_type ||
          test.what.packed != takes_pairs || test.what.operation == kOperationConvert) {
        continue;
      }
      if (pending.test.Guarded() && (test.guard.reg != pending.test.guard.reg || !test.Guarded() ||
                                     test.guard_negated != pending.test.guard_negated)) {
        continue;
      }
      const bool taken =
          std::all_of(earlier.live.begin(), earlier.live.end(), [&](ptx::RegisterId live) {
            return live != ptx::kNoRegister && Takes(pending.test, live);
          });
      if (taken) earlier.test.seen_later = true;
    }
  }
  bool Takes(const NumericTest& test, ptx::RegisterId reg) const {
    return std::any_of(test.operands.begin(), test.operands.end(), [&](const Operand& operand) {
      return operand.IsRegister() && operand.reg == reg;
    });
  }

  size_t WordsOf(const NumericTest& test) const {
    size_t words = 0;
    const auto add = [&](const Operand& operand) {
      if (operand.IsRegister() && operand.reg != ptx::kNoRegister)
        words += (ptx::TypeSizeBytes(function_.registers[operand.reg].type) + 3) / 4;
    };
    for (const Operand& operand : test.operands) add(operand);
    for (const Operand& factor : test.factors) add(factor);
    for (const Operand& result : test.results) add(result);
    return words;
  }

  void Measure(const NumericInstruction& what, const Pending& pending) {
    NumericKind kind = kNumericWidenedRounded;
    if (what.operation == kOperationAdd || what.operation == kOperationSubtract) {
      kind = kNumericCancellation;
    } else if (what.Narrows()) {
      kind = kNumericNarrowingLoss;
    } else if (!what.Widens()) {
      return;
    }
    TextArguments arguments;
    const std::string text =
        text_.Measure(pending.test, kind, std::to_string(count_++), &arguments);
    Emit(text, arguments, &out_);
  }

  void CloseGroup() {
    if (group_.empty()) return;
    std::vector<NumericTest> tests;
    for (Pending& pending : group_) tests.push_back(std::move(pending.test));
    group_.clear();
    pending_words_ = 0;
    const std::string number = std::to_string(count_++);
    const std::string next = "$ods_num_next" + number, slow = "$ods_num_slow" + number;
    TextArguments test_arguments, slow_arguments;
    const std::string test = text_.GroupTest(tests, &test_arguments);
    std::string ask, park;
    uint32_t parked_bytes = 0;
    for (size_t i = 0; i < tests.size(); i++) {
      // A single one's operands go into its call and are done with.
      if (tests.size() > 1) Park(&tests[i], &parked_bytes, &park, &ask, &slow_arguments);
      ask += text_.SlowTest(tests[i], number + "_" + std::to_string(i), &slow_arguments);
    }
    depot_bytes_ = std::max(depot_bytes_, parked_bytes);
    ask = park + ask;
    // A label of a nested block cannot be named outside.
    if (depth_ == 0) {
      Emit(test + "@%odsnp bra " + slow + ";\n" + next + ":\n", test_arguments, &out_);
      Emit(slow + ":\n" + ask + "bra " + next + ";\n", slow_arguments, &slow_);
    } else {
      Emit(test + "@!%odsnp bra " + next + ";\n", test_arguments, &out_);
      Emit(ask + next + ":\n", slow_arguments, &out_);
    }
  }

  // What lives across a call is best kept in few registers, which the whole kernel would have to
  // have. So the slow way writes all operands of its group to local memory (`park`), and each test
  // fetches its own (`fetch`), into registers that take their place.
  void Park(NumericTest* test, uint32_t* bytes, std::string* park, std::string* fetch,
            TextArguments* arguments) {
    std::map<uint32_t, uint32_t> used;  // scratch registers of this test, by size in bytes
    std::map<ptx::RegisterId, Operand> parked;
    const auto move = [&](Operand* operand) {
      const auto known = parked.find(operand->reg);
      if (known != parked.end()) {
        *operand = known->second;
        return;
      }
      const std::string_view type = function_.registers[operand->reg].type;
      const uint32_t size = ptx::TypeSizeBytes(type);
      if (size == 0 || size > 8) return;  // predicates
      const Operand scratch = FetchRegister(type, used[size]++);
      *bytes = (*bytes + size - 1) / size * size;
      const std::string place = "[" + std::string(kDepot) + "+" + std::to_string(*bytes) + "]";
      const std::string width = ".b" + std::to_string(size * 8) + " ";
      *park += "st.local" + width + place + ", " + arguments->Add(*operand) + ";\n";
      *fetch += "ld.local" + width + arguments->Add(scratch) + ", " + place + ";\n";
      *bytes += size;
      parked[operand->reg] = scratch;
      *operand = scratch;
    };
    ForEachOperand(test, move);
    for (Operand& result : test->results) {
      if (result.IsRegister() && result.reg != ptx::kNoRegister) move(&result);
    }
  }

  Operand FetchRegister(std::string_view type, uint32_t number) {
    std::vector<Operand>& known = fetch_registers_[type];
    while (known.size() <= number)
      known.push_back(ptx::AddRegister(module_, function_, type, "%odsnx"));
    return known[number];
  }

  ptx::Module& module_;
  const Function& original_;
  Function& function_;
  const bool trace_;
  const SourceFrames& frames_;
  std::vector<NumericSite>& sites_;
  const PrecisionText text_;
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> statements_;  // of the original, by place
  std::unique_ptr<ptx::DefUse> def_use_;  // of the original; null: its flow is not understood
  std::map<uint32_t, Accumulator> accumulators_;

  PrecisionPlan plan_;
  std::optional<ptx::Diagnostic> failure_;
  std::vector<Statement> head_, out_, slow_;
  std::vector<Pending> group_;
  size_t pending_words_ = 0;
  uint32_t depot_bytes_ = 0;  // of local memory for Park
  std::map<std::string_view, std::vector<Operand>> fetch_registers_;
  int depth_ = 0;
  uint64_t count_ = 0;
};

}  // namespace

ptx::Result<PrecisionPlan> AddPrecisionChecks(ptx::Module& module, const Twin& twin,
                                              const Checks& checks, const SourceFrames& frames,
                                              std::vector<NumericSite>* sites) {
  return PrecisionPass(module, twin, checks, frames, sites).Run();
}

}  // namespace ops_debug::shadow
