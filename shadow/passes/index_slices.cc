// Reaching definitions lead from an access to the widenings, because address registers are used
// again and again; below them every definition of a register counts, because its 64-bit copy has to
// be kept on all ways.
#include "shadow/passes/index_slices.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <utility>

#include "ptx/operands.h"
#include "shadow/passes/memory_access.h"

namespace ops_debug::shadow {
namespace {

using ptx::Instruction;
using ptx::Operand;
using ptx::RegisterId;
using Step = IndexSlices::Step;

constexpr int kMostDepth = 24;         // of a chain of definitions
constexpr size_t kMostSteps = 200;     // of the search for a cut
constexpr size_t kMostAddresses = 64;  // registers that one address is made of
constexpr int64_t kLeast = INT32_MIN, kMost = INT32_MAX;

template <size_t N>
bool Contains(const std::array<std::string_view, N>& list, std::string_view name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

bool HasType32(const Instruction& instruction) {
  constexpr std::array<std::string_view, 3> kTypes = {".s32", ".u32", ".b32"};
  return !instruction.modifiers.empty() && Contains(kTypes, instruction.modifiers.back());
}

// Their results stand for themselves: memory, other threads.
bool IsSource(const Instruction& instruction) {
  constexpr std::array<std::string_view, 12> kSources = {"ld",   "ldu",   "atom",  "shfl",
                                                         "call", "tex",   "suld",  "tld4",
                                                         "vote", "match", "redux", "activemask"};
  return Contains(kSources, instruction.opcode);
}

// What passes a 64-bit address on.
bool MovesAddress(const Instruction& instruction) {
  constexpr std::array<std::string_view, 9> kMovers = {"add", "sub",  "shl",  "mul", "mad",
                                                       "mov", "cvta", "selp", "or"};
  return Contains(kMovers, instruction.opcode);
}

bool IsWide(const Instruction& instruction) { return instruction.Has(".wide"); }

bool WritesOnly(const Instruction& instruction, RegisterId reg) {
  return !instruction.operands.empty() && instruction.operands[0].IsRegister() &&
         instruction.operands[0].reg == reg;
}

bool Reads(const Instruction& instruction, RegisterId reg) {
  const auto sources = Sources(instruction);
  return std::any_of(sources.begin(), sources.end(), [&](const Operand& operand) {
    return operand.IsRegister() && operand.reg == reg;
  });
}

bool IsArithmetic(Step step) {
  return step != Step::kLeaf && step != Step::kCopy && step != Step::kSelect &&
         step != Step::kExtremum;
}

// %tid is below 1024, and so on: CUDA C++ Programming Guide, compute capabilities.
std::optional<int64_t> MostOf(std::string_view special) {
  const std::string_view name = special.substr(0, special.find('.'));
  const bool is_x = special.ends_with(".x");
  if (name == "%tid") return special.ends_with(".z") ? 63 : 1023;
  if (name == "%ntid") return special.ends_with(".z") ? 64 : 1024;
  if (name == "%ctaid") return is_x ? kMost - 1 : 65534;
  if (name == "%nctaid") return is_x ? kMost : 65535;
  if (name == "%laneid") return 31;
  if (name == "%warpid" || name == "%nwarpid" || name == "WARP_SZ") return 64;
  return std::nullopt;
}

}  // namespace

std::span<const Operand> Sources(const Instruction& instruction) {
  return instruction.operands.empty() ? std::span<const Operand>()
                                      : std::span<const Operand>(instruction.operands).subspan(1);
}

IndexSlices::IndexSlices(const ptx::Function& function)
    : function_(function), definitions_(function.registers.size()), steps_(function.body.size()) {
  auto flow = ptx::ControlFlow::Build(function);
  if (!flow.ok()) return;
  flow_.emplace(std::move(flow).value());
  values_.emplace(function, *flow_);
  for (uint32_t i = 0; i < function.body.size(); i++) {
    const Instruction* instruction = At(i);
    if (instruction == nullptr) continue;
    ptx::ForEachRegister(*instruction, [&](RegisterId reg, bool is_write) {
      if (is_write && reg < definitions_.size()) definitions_[reg].push_back(i);
    });
  }
  FindAddresses();
}

const Instruction* IndexSlices::At(uint32_t statement) const {
  return std::get_if<Instruction>(&function_.body[statement]);
}

// A 32-bit register, or a number.
bool IndexSlices::IsNarrow(const Operand& operand) const {
  if (operand.kind == Operand::Kind::kImmediate) return operand.is_integer;
  return operand.IsRegister() && operand.reg != ptx::kNoRegister &&
         ptx::TypeSizeBytes(function_.registers[operand.reg].type) == 4 &&
         function_.registers[operand.reg].vector_type.empty();
}

Step IndexSlices::Classify(uint32_t statement) {
  if (!steps_[statement]) {
    const Instruction& instruction = *At(statement);
    const Step step = StepBy(instruction);
    steps_[statement] = IsArithmetic(step) && IsRemainder(instruction) ? Step::kLeaf : step;
  }
  return *steps_[statement];
}

// By the look of the instruction alone.
Step IndexSlices::StepBy(const Instruction& instruction) const {
  if (!HasType32(instruction) || instruction.operands.size() < 2) return Step::kLeaf;
  if (instruction.Has(".cc") || instruction.Has(".sat") || instruction.Has(".hi"))
    return Step::kLeaf;
  if (!instruction.operands[0].IsRegister() || !IsNarrow(instruction.operands[0]))
    return Step::kLeaf;
  const auto sources = Sources(instruction);
  const bool select = instruction.Is("selp");
  const auto values = select ? sources.first(std::min<size_t>(2, sources.size())) : sources;
  if (!std::all_of(values.begin(), values.end(),
                   [&](const Operand& operand) { return IsNarrow(operand); })) {
    return Step::kLeaf;
  }
  constexpr std::array<std::pair<std::string_view, std::pair<Step, size_t>>, 11> kSteps = {{
      {"mov", {Step::kCopy, 1}},
      {"add", {Step::kAdd, 2}},
      {"sub", {Step::kSubtract, 2}},
      {"mul", {Step::kMultiply, 2}},
      {"mad", {Step::kMultiplyAdd, 3}},
      {"shl", {Step::kShiftLeft, 2}},
      {"neg", {Step::kNegate, 1}},
      {"not", {Step::kNot, 1}},
      {"selp", {Step::kSelect, 3}},
      {"min", {Step::kExtremum, 2}},
      {"max", {Step::kExtremum, 2}},
  }};
  const bool overwrites_source = Reads(instruction, instruction.operands[0].reg);
  if (instruction.Is("or")) {
    // The compiler's addition where it knows the bits to be clear.
    const bool constant = sources.size() == 2 && sources[0].IsRegister() &&
                          sources[1].kind == Operand::Kind::kImmediate && sources[1].value >= 0;
    return constant && !overwrites_source ? Step::kOr : Step::kLeaf;
  }
  for (const auto& [opcode, step] : kSteps) {
    if (instruction.opcode != opcode || sources.size() != step.second) continue;
    if (step.first == Step::kExtremum && overwrites_source) return Step::kLeaf;
    if (step.first == Step::kCopy && !sources[0].IsRegister()) return Step::kLeaf;
    return step.first;
  }
  return Step::kLeaf;
}

// One operand was cut out of another one.
bool IndexSlices::IsRemainder(const Instruction& instruction) const {
  const auto sources = Sources(instruction);
  for (const Operand& value : sources) {
    for (const Operand& from : sources) {
      if (&value == &from || !value.IsRegister() || !from.IsRegister() || value.reg == from.reg)
        continue;
      if (IsCutFrom(value.reg, from.reg)) return true;
    }
  }
  return false;
}

// `value` was made of `from`, and bits were taken apart on the way.
bool IndexSlices::IsCutFrom(RegisterId value, RegisterId from) const {
  constexpr std::array<std::string_view, 11> kWhole = {"mov", "add", "sub", "mul",  "mad", "shl",
                                                       "neg", "not", "cvt", "selp", "or"};
  std::vector<std::pair<RegisterId, bool>> open = {{value, false}};
  std::set<std::pair<RegisterId, bool>> seen;
  while (!open.empty() && seen.size() < kMostSteps) {
    const auto [reg, cut] = open.back();
    open.pop_back();
    if (!seen.insert({reg, cut}).second) continue;
    if (reg == from) {
      if (cut) return true;
      continue;
    }
    for (const uint32_t statement : definitions_[reg]) {
      const Instruction& definition = *At(statement);
      if (IsSource(definition)) continue;
      const bool cuts = cut || !Contains(kWhole, definition.opcode) || definition.Has(".hi");
      for (const Operand& operand : Sources(definition)) {
        if (operand.IsRegister() && operand.reg < definitions_.size())
          open.emplace_back(operand.reg, cuts);
      }
    }
  }
  return false;
}

std::optional<IndexSlices::Interval> IndexSlices::IntervalOf(const Operand& operand,
                                                             int depth) const {
  if (operand.kind == Operand::Kind::kImmediate && operand.is_integer)
    return Interval{static_cast<int32_t>(operand.value), static_cast<int32_t>(operand.value)};
  if (operand.kind == Operand::Kind::kSpecialRegister) {
    if (const auto most = MostOf(operand.text)) return Interval{0, *most};
    return std::nullopt;
  }
  if (!operand.IsRegister() || operand.reg >= definitions_.size() || depth > kMostDepth)
    return std::nullopt;
  const std::vector<uint32_t>& definitions = definitions_[operand.reg];
  if (definitions.size() != 1) return std::nullopt;
  const Instruction& definition = *At(definitions[0]);
  if (!WritesOnly(definition, operand.reg)) return std::nullopt;
  return IntervalOf(definition, depth + 1);
}

// Of its result, if no step on the way can leave 32 bits.
std::optional<IndexSlices::Interval> IndexSlices::IntervalOf(const Instruction& definition,
                                                             int depth) const {
  const auto sources = Sources(definition);
  if (sources.empty()) return std::nullopt;
  const auto constant = [&](size_t i) -> std::optional<int64_t> {
    if (i >= sources.size() || !sources[i].is_integer) return std::nullopt;
    return sources[i].value;
  };
  if (definition.Is("and") && constant(1) && *constant(1) >= 0 && *constant(1) <= kMost)
    return Interval{0, *constant(1)};
  if (definition.Is("shr") && definition.Has(".u32") && constant(1) && *constant(1) > 0 &&
      *constant(1) < 32) {
    return Interval{0, static_cast<int64_t>(UINT32_MAX >> *constant(1))};
  }
  if (definition.Is("rem") && definition.Has(".u32") && constant(1) && *constant(1) > 0 &&
      *constant(1) <= kMost) {
    return Interval{0, *constant(1) - 1};
  }
  if (definition.Is("ld") || definition.Is("cvt")) {
    for (const std::string_view modifier : definition.modifiers) {
      if (definition.Is("cvt") && modifier != definition.modifiers.back()) continue;
      if (modifier == ".u8") return Interval{0, UINT8_MAX};
      if (modifier == ".u16") return Interval{0, UINT16_MAX};
    }
    return std::nullopt;
  }
  if (!HasType32(definition) || definition.Has(".cc") || definition.Has(".hi")) return std::nullopt;
  const auto a = IntervalOf(sources[0], depth);
  if (!a) return std::nullopt;
  if (definition.Is("mov")) return a;
  if (sources.size() < 2) return std::nullopt;
  const auto b = IntervalOf(sources[1], depth);
  if (!b) return std::nullopt;
  const auto fits = [](int64_t low, int64_t high) -> std::optional<Interval> {
    if (low < kLeast || high > kMost) return std::nullopt;
    return Interval{low, high};
  };
  const auto product = [](const Interval& x, const Interval& y) {
    const auto [low, high] =
        std::minmax({x.low * y.low, x.low * y.high, x.high * y.low, x.high * y.high});
    return Interval{low, high};
  };
  if (definition.Is("add")) return fits(a->low + b->low, a->high + b->high);
  if (definition.Is("sub")) return fits(a->low - b->high, a->high - b->low);
  if (definition.Is("mul")) {
    const Interval times = product(*a, *b);
    return fits(times.low, times.high);
  }
  if (definition.Is("mad") && sources.size() == 3) {
    const auto c = IntervalOf(sources[2], depth);
    if (!c) return std::nullopt;
    const Interval times = product(*a, *b);
    return fits(times.low + c->low, times.high + c->high);
  }
  if (definition.Is("shl") && b->low == b->high && b->low >= 0 && b->low < 31)
    return fits(a->low * (int64_t{1} << b->low), a->high * (int64_t{1} << b->low));
  if (definition.Is("or") && a->low >= 0 && b->low >= 0) return fits(0, a->high + b->high);
  return std::nullopt;
}

bool IndexSlices::IsNeverNegative(const Operand& operand) const {
  const auto interval = IntervalOf(operand, 0);
  return interval && interval->low >= 0;
}

// Some arithmetic in what the register is made of may leave 32 bits.
bool IndexSlices::CanWrap(RegisterId reg) {
  const auto [known, is_new] = can_wrap_.try_emplace(reg, false);
  if (!is_new) return known->second;  // while it is being decided: a loop alone does not wrap
  bool wraps = false;
  for (const uint32_t statement : definitions_[reg]) {
    const Step step = Classify(statement);
    const Instruction& definition = *At(statement);
    if (step == Step::kLeaf || IntervalOf(definition, 0)) continue;
    wraps |= IsArithmetic(step);
    for (const Operand& operand : Sources(definition)) {
      if (operand.IsRegister() && IsNarrow(operand)) wraps |= CanWrap(operand.reg);
    }
  }
  return can_wrap_[reg] = wraps;
}

void IndexSlices::FindAddresses() {
  for (uint32_t i = 0; i < function_.body.size(); i++) {
    const Instruction* instruction = At(i);
    if (instruction == nullptr || !flow_->IsReachable(flow_->BlockOf(i))) continue;
    std::set<uint32_t> found;
    for (const MemoryAccess& access : DescribeAccesses(function_, *instruction).accesses) {
      if (access.collective_lanes != 0 || access.space == AccessSpace::kShared) continue;
      const Operand& address = instruction->operands[access.operand];
      if (!address.IsAddress() || address.children.empty()) continue;
      const Operand& base = address.children[0];
      if (!base.IsRegister() || base.reg == ptx::kNoRegister ||
          ptx::TypeSizeBytes(function_.registers[base.reg].type) != 8) {
        continue;
      }
      FollowAddress(i, base.reg, &found);
    }
    if (!found.empty()) accesses_[i].assign(found.begin(), found.end());
  }
}

void IndexSlices::FollowAddress(uint32_t statement, RegisterId reg, std::set<uint32_t>* found) {
  std::vector<std::pair<uint32_t, RegisterId>> open = {{statement, reg}};
  std::set<uint32_t> seen;  // definitions
  while (!open.empty() && seen.size() < kMostAddresses) {
    const auto [at, read] = open.back();
    open.pop_back();
    for (const uint32_t definition : values_->ReachingDefinitions(at, read)) {
      const uint32_t from = values_->definitions()[definition].statement;
      if (from == ptx::DefUse::kAtEntry || !seen.insert(definition).second) continue;
      const Instruction& instruction = *At(from);
      if (!WritesOnly(instruction, read)) continue;
      const auto sources = Sources(instruction);
      const std::string_view type =
          instruction.modifiers.empty() ? std::string_view() : instruction.modifiers.back();
      if (instruction.Is("cvt") || IsWide(instruction)) {
        const size_t narrow = instruction.Is("cvt") ? 1 : 2;
        for (size_t i = 0; i < narrow && i < sources.size(); i++) {
          if (sources[i].IsRegister() && IsNarrow(sources[i]) && (type == ".s32" || type == ".u32"))
            Widen(from, sources[i], type == ".s32", found);
        }
        if (!instruction.Is("mad")) continue;
      } else if (!MovesAddress(instruction)) {
        continue;
      }
      for (const Operand& operand : sources) {
        if (operand.IsRegister() && operand.reg != ptx::kNoRegister &&
            ptx::TypeSizeBytes(function_.registers[operand.reg].type) == 8) {
          open.emplace_back(from, operand.reg);
        }
      }
    }
  }
}

void IndexSlices::Widen(uint32_t statement, const Operand& operand, bool is_signed,
                        std::set<uint32_t>* found) {
  if (!CanWrap(operand.reg)) return;
  const auto [known, is_new] = widening_index_.try_emplace(
      {statement, operand.reg}, static_cast<uint32_t>(widenings_.size()));
  if (is_new) {
    widenings_.push_back({statement, operand.reg, is_signed, Maker(statement, operand.reg)});
    Close(operand.reg);
  }
  found->insert(known->second);
}

// Everything that the register's exact value is made of.
void IndexSlices::Close(RegisterId reg) {
  std::vector<RegisterId> open = {reg};
  while (!open.empty()) {
    const RegisterId next = open.back();
    open.pop_back();
    if (!CanWrap(next) || !registers_.insert(next).second) continue;
    for (const uint32_t statement : definitions_[next]) {
      if (Classify(statement) == Step::kLeaf) continue;
      for (const Operand& operand : Sources(*At(statement))) {
        if (operand.IsRegister() && IsNarrow(operand)) open.push_back(operand.reg);
      }
    }
  }
}

// The arithmetic behind copies and constants added: where an author would look.
std::optional<uint32_t> IndexSlices::Maker(uint32_t statement, RegisterId reg) {
  std::optional<uint32_t> maker;
  for (int depth = 0; depth < kMostDepth; depth++) {
    const ptx::DefUse::Definition* definition = values_->UniqueDefinition(statement, reg);
    if (definition == nullptr) return maker;
    statement = definition->statement;
    const Step step = Classify(statement);
    if (IsArithmetic(step)) maker = statement;
    const auto sources = Sources(*At(statement));
    const bool adds_constant = step == Step::kOr || (step == Step::kAdd && sources[1].is_integer);
    if ((step != Step::kCopy && !adds_constant) || !sources[0].IsRegister()) return maker;
    reg = sources[0].reg;
  }
  return maker;
}

}  // namespace ops_debug::shadow
