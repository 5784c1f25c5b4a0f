// Values are found twice: once without what branches tell, which also gives the loops' bounds, and
// then with it. Arithmetic is taken as exact, but for what IndexForm::narrow says.
#include "shadow/passes/own_index.h"

#include <algorithm>
#include <utility>

#include "ptx/operands.h"

namespace ops_debug::shadow {
namespace {

using ptx::Instruction;
using ptx::Operand;

constexpr int64_t kWide = int64_t{1} << 40;
constexpr size_t kMostSteps = 3, kMostTerms = 6, kMostFactors = 3;
constexpr size_t kMostFacts = 64;

bool TooLarge(const UniformSum& sum) {
  return sum.size() > kMostTerms ||
         std::any_of(sum.begin(), sum.end(), [](const UniformTerm& term) {
           return term.of.size() > kMostFactors || term.factor > kWide || term.factor < -kWide;
         });
}

bool IsInteger(const Instruction& instruction) {
  if (instruction.modifiers.empty()) return false;
  const std::string_view type = instruction.modifiers.back();
  return type.starts_with(".s") || type.starts_with(".u") || type.starts_with(".b");
}

bool Is32Bit(const Instruction& instruction) {
  return ptx::TypeSizeBytes(instruction.modifiers.back()) == 4 && !instruction.Has(".wide");
}

// The axis of "%tid.y" and the like, -1 if `name` is no register of this set.
int AxisOf(std::string_view name, std::string_view set) {
  if (name.size() != set.size() + 2 || !name.starts_with(set) || name[set.size()] != '.') return -1;
  const char axis = name.back();
  return axis >= 'x' && axis <= 'z' ? axis - 'x' : -1;
}

}  // namespace

OwnIndexes::Value::Value() : narrow(kWide) {}

bool OwnIndexes::Value::IsUniform() const {
  return state == State::kKnown && base.kind == Base::Kind::kNone && steps.empty() && counter < 0 &&
         std::all_of(places.begin(), places.end(),
                     [](const UniformSum& sum) { return sum.empty(); });
}

OwnIndexes::Value OwnIndexes::Other() {
  Value value;
  value.state = State::kOther;
  return value;
}

OwnIndexes::Value OwnIndexes::Known(UniformSum start) {
  Value value;
  value.state = State::kKnown;
  value.start = std::move(start);
  return value;
}

OwnIndexes::Value OwnIndexes::Join(const Value& a, const Value& b) {
  if (a.state == State::kUnvisited) return b;
  if (b.state == State::kUnvisited || a == b) return a;
  if (a.state != State::kKnown || b.state != State::kKnown || a.base != b.base ||
      a.places != b.places || a.counter != b.counter || a.counter_factor != b.counter_factor)
    return Other();
  Value joined = a;
  joined.narrow = std::min(a.narrow, b.narrow);
  const auto add = [&](const UniformSum& step) {
    if (!step.empty() &&
        std::find(joined.steps.begin(), joined.steps.end(), step) == joined.steps.end())
      joined.steps.push_back(step);
  };
  for (const UniformSum& step : b.steps) add(step);
  add(AddSums(b.start, ScaleSum(a.start, -1)));
  return joined.steps.size() > kMostSteps ? Other() : joined;
}

OwnIndexes::Value OwnIndexes::Add(const Value& a, const Value& b) {
  if (a.state == State::kUnvisited || b.state == State::kUnvisited) return Value{};
  const bool two_bases = a.base.kind != Base::Kind::kNone && b.base.kind != Base::Kind::kNone;
  if (a.state != State::kKnown || b.state != State::kKnown || two_bases ||
      (a.counter >= 0 && b.counter >= 0))
    return Other();
  Value sum = a;
  if (b.base.kind != Base::Kind::kNone) sum.base = b.base;
  for (uint32_t i = 0; i < kPlaces; i++) sum.places[i] = AddSums(a.places[i], b.places[i]);
  sum.start = AddSums(a.start, b.start);
  for (const UniformSum& step : b.steps) {
    if (std::find(sum.steps.begin(), sum.steps.end(), step) == sum.steps.end())
      sum.steps.push_back(step);
  }
  if (b.counter >= 0) {
    sum.counter = b.counter;
    sum.counter_factor = b.counter_factor;
  }
  sum.narrow = std::min(a.narrow, b.narrow);
  return sum.steps.size() > kMostSteps || TooLarge(sum.start) ? Other() : sum;
}

OwnIndexes::Value OwnIndexes::Scale(const Value& value, const UniformSum& by) {
  if (by.empty()) return Known({});
  Value scaled = value;
  for (UniformSum& place : scaled.places) {
    if (!place.empty()) place = MultiplySums(place, by);
    if (TooLarge(place)) return Other();
  }
  scaled.start = MultiplySums(scaled.start, by);
  for (UniformSum& step : scaled.steps) step = MultiplySums(step, by);
  if (scaled.counter >= 0) scaled.counter_factor = MultiplySums(scaled.counter_factor, by);
  int64_t number = 0;
  if (IsConstantSum(by, &number) && scaled.narrow < kWide)
    scaled.narrow = std::min(kWide, scaled.narrow * std::min(kWide, std::abs(number)));
  return TooLarge(scaled.start) || TooLarge(scaled.counter_factor) ? Other() : scaled;
}

bool OwnIndexes::AsUniform(const Value& value, UniformSum* sum) {
  if (value.IsUniform()) {
    *sum = value.start;
    return true;
  }
  // 64 bits of a parameter are a pointer until they are multiplied.
  Value without = value;
  without.base = {};
  if (value.state != State::kKnown || value.base.kind != Base::Kind::kParameter ||
      !without.IsUniform())
    return false;
  *sum = AddSums(AtomSum(kParameter64 + value.base.parameter_offset), value.start);
  return true;
}

OwnIndexes::Value OwnIndexes::Multiply(const Value& a, const Value& b) {
  if (a.state == State::kUnvisited || b.state == State::kUnvisited) return Value{};
  UniformSum left, right;
  const bool left_uniform = AsUniform(a, &left), right_uniform = AsUniform(b, &right);
  if (left_uniform && right_uniform) {
    UniformSum product = MultiplySums(left, right);
    return TooLarge(product) ? Other() : Known(std::move(product));
  }
  if (!left_uniform && !right_uniform) return Other();
  const Value& moving = left_uniform ? b : a;
  if (moving.state != State::kKnown || moving.base.kind != Base::Kind::kNone) return Other();
  return Scale(moving, left_uniform ? left : right);
}

OwnIndexes::OwnIndexes(const ptx::Function& function) : function_(function) {
  for (const ptx::ParameterLayout& parameter : ptx::LayoutParameters(function))
    parameters_[parameter.name] = parameter.offset_bytes;
  auto flow = ptx::ControlFlow::Build(function);
  if (!flow.ok()) return;
  flow_ = std::move(flow).value();
  uses_.emplace(function, *flow_);
  Iterate(/*with_facts=*/false, &values_);
  for (uint32_t i = 0; i < function.body.size(); i++) {
    const auto* instruction = std::get_if<Instruction>(&function.body[i]);
    if (instruction == nullptr) continue;
    ptx::ForEachRegister(*instruction, [&](ptx::RegisterId reg, bool is_write) {
      if (!is_write) return;
      const bool plain = instruction->Is("setp") && instruction->operands.size() == 3 &&
                         instruction->operands[0].IsRegister() && !instruction->guard.Present();
      const auto [place, is_new] = comparisons_.try_emplace(reg, plain ? i : kNone);
      if (!is_new) place->second = kNone;
    });
  }
  FindPins(*flow_);
  FindFacts(*flow_);
  if (!limits_.empty()) Iterate(/*with_facts=*/true, &refined_);
}

void OwnIndexes::Iterate(bool with_facts, std::vector<Value>* values) {
  // A value changes as often as it gets another step, and once more; what does not settle is given
  // up.
  constexpr int kMostRounds = 24;
  constexpr uint8_t kMostChanges = 8;
  const auto& definitions = uses_->definitions();
  values->assign(definitions.size(), Value{});
  std::vector<uint8_t> changes(definitions.size(), 0);
  for (size_t i = 0; i < definitions.size(); i++) {
    if (definitions[i].statement == ptx::DefUse::kAtEntry) (*values)[i] = Other();
  }
  bool changed = true;
  for (int round = 0; changed && round < kMostRounds; round++) {
    changed = false;
    Facts facts;
    ptx::BlockId block = ptx::kNoBlock;
    for (uint32_t i = 0; i < function_.body.size(); i++) {
      if (with_facts && flow_->BlockOf(i) != block) {
        block = flow_->BlockOf(i);
        facts = facts_[block];
      }
      const auto* instruction = std::get_if<Instruction>(&function_.body[i]);
      if (instruction == nullptr) continue;
      for (const uint32_t definition : uses_->DefinitionsAt(i)) {
        Value& value = (*values)[definition];
        if (value.state == State::kOther) continue;
        const bool plain = instruction->operands[0].IsRegister() &&
                           instruction->operands[0].reg == definitions[definition].reg;
        Value joined =
            Join(value, plain ? Transfer(*instruction, {*values, i, with_facts ? &facts : nullptr})
                              : Other());
        if (joined == value) continue;
        value = ++changes[definition] > kMostChanges ? Other() : std::move(joined);
        changed = true;
      }
      if (with_facts) Learn(i, *instruction, &facts);
    }
  }
  if (changed) values->assign(values->size(), Other());
}

OwnIndexes::Value OwnIndexes::Reaching(ptx::RegisterId reg, uint32_t statement,
                                       const std::vector<Value>& values) const {
  Value value;
  const auto reaching = uses_->ReachingDefinitions(statement, reg);
  if (reaching.empty()) return Other();
  for (const uint32_t definition : reaching) value = Join(value, values[definition]);
  return value;
}

OwnIndexes::Value OwnIndexes::OfRegister(ptx::RegisterId reg, const View& view) const {
  const Value known = Reaching(reg, view.statement, view.values);
  if (view.facts == nullptr) return known;
  const Value plain = Reaching(reg, view.statement, values_);
  if (plain.state != State::kKnown || plain.steps.empty() || plain.base.kind != Base::Kind::kNone)
    return known;
  for (uint32_t i = kBlockX; i < kPlaces; i++) {
    if (!plain.places[i].empty()) return known;
  }
  const auto bound = view.facts->bounds.lower_bound({reg, 0});
  if (bound == view.facts->bounds.end() || bound->reg != reg) return known;
  BoundedCounter counter;
  std::copy_n(plain.places.begin(), 3, counter.threads.begin());
  counter.start = plain.start;
  counter.steps = plain.steps;
  counter.below = limits_[bound->below].below;
  counter.is_unsigned = limits_[bound->below].is_unsigned;
  Value value = Known({});
  const auto same = std::find(counters_.begin(), counters_.end(), counter);
  value.counter = static_cast<int>(same - counters_.begin());
  if (same == counters_.end()) counters_.push_back(std::move(counter));
  value.counter_factor = ConstantSum(1);
  return value;
}

bool OwnIndexes::IsConstant(uint32_t statement, const Operand& operand, int64_t number) const {
  int64_t known = 0;
  if (operand.kind == Operand::Kind::kImmediate)
    return operand.is_integer && static_cast<int32_t>(operand.value) == number;
  if (!flow_ || !operand.IsRegister()) return false;
  const Value value = Reaching(operand.reg, statement, values_);
  return value.IsUniform() && IsConstantSum(value.start, &known) &&
         static_cast<int32_t>(known) == number;
}

OwnIndexes::Value OwnIndexes::OfOperand(const Operand& operand, const View& view) const {
  switch (operand.kind) {
    case Operand::Kind::kRegister:
      return OfRegister(operand.reg, view);
    case Operand::Kind::kImmediate:
      return operand.is_integer ? Known(ConstantSum(operand.value)) : Other();
    case Operand::Kind::kSymbol: {
      Value value = Known(ConstantSum(operand.offset));
      value.base.kind = Base::Kind::kSymbol;
      value.base.symbol = operand.text;
      return value;
    }
    case Operand::Kind::kSpecialRegister: {
      Value value = Known({});
      if (const int axis = AxisOf(operand.text, "%tid"); axis >= 0) {
        value.places[kThreadX + static_cast<uint32_t>(axis)] = ConstantSum(1);
      } else if (const int of_grid = AxisOf(operand.text, "%ctaid"); of_grid >= 0) {
        value.places[kBlockX + static_cast<uint32_t>(of_grid)] = ConstantSum(1);
      } else if (const int size = AxisOf(operand.text, "%ntid"); size >= 0) {
        value.start = AtomSum(kBlockSizeX + static_cast<uint32_t>(size));
      } else if (const int blocks = AxisOf(operand.text, "%nctaid"); blocks >= 0) {
        value.start = AtomSum(kGridSizeX + static_cast<uint32_t>(blocks));
      } else {
        return Other();
      }
      return value;
    }
    default:
      return Other();
  }
}

OwnIndexes::Value OwnIndexes::LoadParameter(const Instruction& instruction) const {
  if (instruction.operands.size() < 2 || !instruction.operands[0].IsRegister() ||
      !instruction.operands[1].IsAddress() || instruction.operands[1].children.empty())
    return Other();
  const Operand& address = instruction.operands[1];
  const auto found = parameters_.find(address.children[0].text);
  if (found == parameters_.end() || !IsInteger(instruction)) return Other();
  const uint32_t offset = found->second + static_cast<uint32_t>(address.offset);
  switch (ptx::TypeSizeBytes(instruction.modifiers.back())) {
    case 4:
      return Known(AtomSum(kParameter32 + offset));
    case 8: {
      Value value = Known({});
      value.base = {Base::Kind::kParameter, offset, {}};
      return value;
    }
    default:
      return Other();
  }
}

OwnIndexes::Value OwnIndexes::Transfer(const Instruction& instruction, const View& view) const {
  const auto operand = [&](size_t i) {
    return i < instruction.operands.size() ? OfOperand(instruction.operands[i], view) : Other();
  };
  if (instruction.Is("ld")) return LoadParameter(instruction);
  // A guarded definition leaves the old value to the other threads; the join takes care of it.
  if (instruction.Is("mov") || instruction.Is("cvta"))
    return instruction.Has(".pred") ? Other() : operand(1);
  if (!IsInteger(instruction)) return Other();
  const auto narrowed = [&](Value value) {
    if (value.state == State::kKnown && Is32Bit(instruction) && !value.IsUniform())
      value.narrow = 1;
    return value;
  };
  if (instruction.Is("cvt")) {
    // Narrowing would drop bits of a pointer or of an index.
    const bool widens =
        instruction.modifiers.back() == ".s32" || instruction.modifiers.back() == ".u32";
    if (!widens || (!instruction.Has(".s64") && !instruction.Has(".u64"))) return Other();
    return operand(1);
  }
  if (instruction.Has(".cc") || instruction.Has(".sat")) return Other();
  if (instruction.Is("add")) return narrowed(Add(operand(1), operand(2)));
  if (instruction.Is("sub")) {
    const Value right = operand(2);
    UniformSum sum;
    if (right.state == State::kUnvisited) return Value{};
    if (right.state != State::kKnown || right.base.kind != Base::Kind::kNone) return Other();
    return narrowed(Add(operand(1), Scale(right, ConstantSum(-1))));
  }
  if (instruction.Is("mul") || instruction.Is("mad")) {
    if (instruction.Has(".hi")) return Other();
    const Value product = narrowed(Multiply(operand(1), operand(2)));
    return instruction.Is("mul") ? product : narrowed(Add(product, operand(3)));
  }
  if (instruction.Is("shl")) {
    const Value amount = operand(2);
    int64_t bits = 0;
    if (amount.state == State::kUnvisited) return Value{};
    if (!amount.IsUniform() || !IsConstantSum(amount.start, &bits) || bits < 0 || bits > 30)
      return Other();
    return narrowed(Multiply(operand(1), Known(ConstantSum(int64_t{1} << bits))));
  }
  if (!instruction.Is("shr") && !instruction.Is("and")) return Other();
  // Of the number of the warp in a block of one dimension: %tid.x >> 5, (%tid.x >> 3) & ~3.
  const Value left = operand(1), right = operand(2);
  if (left.state == State::kUnvisited || right.state == State::kUnvisited) return Value{};
  int64_t number = 0;
  if (!right.IsUniform() || !IsConstantSum(right.start, &number)) return Other();
  Value thread = Known({});
  thread.places[kThreadX] = ConstantSum(1);
  const bool of_thread = left == thread;
  Value value = Known({});
  if (instruction.Is("shr")) {
    if (!of_thread || number < 1 || number > 5) return Other();
    if (number == 5) {
      value.places[kWarpX] = ConstantSum(1);
    } else {
      value.state = State::kShifted;
      value.shift = static_cast<uint32_t>(number);
    }
    return value;
  }
  const auto mask = static_cast<uint32_t>(number);
  if (of_thread && mask == 31) {
    value.state = State::kLane;
    return value;
  }
  // Threads have less than 2^16 numbers, whatever the mask says of the bits above.
  const uint32_t low = left.state == State::kShifted ? 5 - left.shift : 5;
  if ((left.state != State::kShifted && !of_thread) || (mask & 0xffff) != (0xffff & ~0u << low))
    return Other();
  value.places[kWarpX] = ConstantSum(int64_t{1} << low);
  return value;
}

std::optional<IndexForm> OwnIndexes::OfAddress(uint32_t statement, const Operand& address,
                                               uint32_t bytes, Base* base) const {
  if (!address.IsAddress() || address.children.empty()) return std::nullopt;
  if (!flow_) return std::nullopt;
  Value value = OfOperand(address.children[0], {values_, statement});
  const ptx::BlockId block = flow_->BlockOf(statement);
  if (!refined_.empty()) {
    Facts facts = facts_[block];
    for (uint32_t i = flow_->blocks()[block].begin; i < statement; i++) {
      if (const auto* before = std::get_if<Instruction>(&function_.body[i]); before != nullptr)
        Learn(i, *before, &facts);
    }
    Value refined = OfOperand(address.children[0], {refined_, statement, &facts});
    if (refined.state == State::kKnown) value = std::move(refined);
  }
  if (value.state != State::kKnown) return std::nullopt;
  IndexForm form;
  form.places = value.places;
  form.start = AddSums(value.start, ConstantSum(address.offset));
  form.steps = value.steps;
  form.bytes = bytes;
  form.narrow = value.narrow;
  if (value.counter >= 0) {
    form.counter_factor = value.counter_factor;
    form.counter = counters_[static_cast<size_t>(value.counter)];
  }
  for (const Pin& pin : pins_) {
    if (!flow_->Dominates(pin.from, block)) continue;
    form.pinned |= 1u << pin.place;
    form.pin_values[pin.place] = pin.value;
  }
  if (const auto* instruction = std::get_if<Instruction>(&function_.body[statement]);
      instruction != nullptr && instruction->guard.Present())
    AddPins(instruction->guard, &form);
  *base = value.base;
  return form;
}

// ---- What branches tell: numbers that are pinned
bool OwnIndexes::PinOf(const ptx::Guard& guard, bool taken, uint32_t* place,
                       UniformSum* value) const {
  const auto found = comparisons_.find(guard.reg);
  if (found == comparisons_.end() || found->second == kNone) return false;
  const View view{values_, found->second};
  const auto& comparison = std::get<Instruction>(function_.body[found->second]);
  const bool holds = taken != guard.negated;
  if (!comparison.Has(holds ? ".eq" : ".ne") || !IsInteger(comparison)) return false;
  const Value left = OfOperand(comparison.operands[1], view);
  const Value right = OfOperand(comparison.operands[2], view);
  if (left.state == State::kLane && right.IsUniform()) {
    *place = kLaneX;
    *value = right.start;
    return true;
  }
  if (left.state != State::kKnown || right.state != State::kKnown) return false;
  const Value& moving = left.IsUniform() ? right : left;
  const Value& fixed = left.IsUniform() ? left : right;
  if (!fixed.IsUniform() || moving.base.kind != Base::Kind::kNone || !moving.steps.empty() ||
      moving.counter >= 0)
    return false;
  int varying = -1;
  for (uint32_t i = 0; i < kPlaces; i++) {
    if (moving.places[i].empty()) continue;
    int64_t factor = 0;
    if (varying >= 0 || !IsConstantSum(moving.places[i], &factor) || factor != 1) return false;
    varying = static_cast<int>(i);
  }
  if (varying < 0) return false;
  *place = static_cast<uint32_t>(varying);
  *value = AddSums(fixed.start, ScaleSum(moving.start, -1));
  return true;
}

void OwnIndexes::AddPins(const ptx::Guard& guard, IndexForm* form) const {
  uint32_t place = 0;
  UniformSum value;
  if (!PinOf(guard, /*taken=*/true, &place, &value)) return;
  form->pinned |= 1u << place;
  form->pin_values[place] = value;
}

void OwnIndexes::FindPins(const ptx::ControlFlow& flow) {
  for (const ptx::BasicBlock& block : flow.blocks()) {
    if (block.end == block.begin || block.successors.size() != 2) continue;
    const auto* branch = std::get_if<Instruction>(&function_.body[block.end - 1]);
    if (branch == nullptr || !branch->Is("bra") || !branch->guard.Present()) continue;
    for (size_t i = 0; i < 2; i++) {
      Pin pin{.place = 0, .value = {}, .from = block.successors[i]};
      // Who is there came through this branch.
      if (flow.blocks()[pin.from].predecessors.size() == 1 && pin.from != 0 &&
          PinOf(branch->guard, /*taken=*/i == 1, &pin.place, &pin.value))
        pins_.push_back(std::move(pin));
    }
  }
}

// ---- What branches tell: bounds of loops' counters
void OwnIndexes::LearnComparison(uint32_t statement, const Instruction& instruction,
                                 Facts* facts) const {
  if (!instruction.Is("setp") || instruction.operands.size() != 3 ||
      !instruction.operands[0].IsRegister() || instruction.guard.Present() ||
      !IsInteger(instruction) || ptx::TypeSizeBytes(instruction.modifiers.back()) != 4)
    return;
  struct Meaning {
    std::string_view name;
    bool swapped, when;  // the second is below the first; if the predicate is this
    int64_t more;
  };
  constexpr Meaning kMeanings[] = {{".lt", false, true, 0},  {".le", false, true, 1},
                                   {".ge", false, false, 0}, {".gt", false, false, 1},
                                   {".gt", true, true, 0},   {".ge", true, true, 1},
                                   {".le", true, false, 0},  {".lt", true, false, 1}};
  for (const Meaning& meaning : kMeanings) {
    const Operand& low = instruction.operands[meaning.swapped ? 2 : 1];
    const Operand& high = instruction.operands[meaning.swapped ? 1 : 2];
    if (!instruction.Has(meaning.name) || !low.IsRegister()) continue;
    const Value below = OfOperand(high, {values_, statement});
    if (!below.IsUniform()) continue;
    const Value counter = OfRegister(low.reg, {values_, statement});
    if (counter.state != State::kKnown || counter.IsUniform()) continue;
    Limit limit{AddSums(below.start, ConstantSum(meaning.more)),
                instruction.modifiers.back().starts_with(".u")};
    const auto known = std::find_if(limits_.begin(), limits_.end(), [&](const Limit& other) {
      return other.below == limit.below && other.is_unsigned == limit.is_unsigned;
    });
    const auto index = static_cast<uint32_t>(known - limits_.begin());
    if (known == limits_.end()) limits_.push_back(std::move(limit));
    if (facts->links.size() < kMostFacts)
      facts->links.insert({instruction.operands[0].reg, meaning.when, {low.reg, index}});
  }
}

void OwnIndexes::Learn(uint32_t statement, const Instruction& instruction, Facts* facts) const {
  std::vector<Bound> copied;
  if (instruction.Is("mov") && !instruction.guard.Present() && instruction.operands.size() == 2 &&
      instruction.operands[0].IsRegister() && instruction.operands[1].IsRegister() &&
      instruction.operands[0].reg != instruction.operands[1].reg) {
    for (auto at = facts->bounds.lower_bound({instruction.operands[1].reg, 0});
         at != facts->bounds.end() && at->reg == instruction.operands[1].reg; ++at)
      copied.push_back({instruction.operands[0].reg, at->below});
  }
  if (!facts->bounds.empty() || !facts->links.empty()) {
    ptx::ForEachRegister(instruction, [&](ptx::RegisterId reg, bool is_write) {
      if (!is_write) return;
      std::erase_if(facts->bounds, [&](const Bound& bound) { return bound.reg == reg; });
      std::erase_if(facts->links, [&](const Link& link) {
        return link.predicate == reg || link.bound.reg == reg;
      });
    });
  }
  facts->bounds.insert(copied.begin(), copied.end());
  LearnComparison(statement, instruction, facts);
}

void OwnIndexes::Take(const ptx::Guard& guard, bool taken, Facts* facts) {
  const bool holds = taken != guard.negated;
  for (const Link& link : facts->links) {
    if (link.predicate == guard.reg && link.when == holds && facts->bounds.size() < kMostFacts)
      facts->bounds.insert(link.bound);
  }
}

// Forward, by intersection over the ways into a block.
void OwnIndexes::FindFacts(const ptx::ControlFlow& flow) {
  facts_.assign(flow.blocks().size(), Facts{});
  facts_[0].reached = true;
  bool changed = true;
  for (int round = 0; changed && round < 64; round++) {
    changed = false;
    for (const ptx::BlockId id : flow.reverse_post_order()) {
      const ptx::BasicBlock& block = flow.blocks()[id];
      if (!facts_[id].reached) continue;
      Facts out = facts_[id];
      for (uint32_t i = block.begin; i < block.end; i++) {
        if (const auto* instruction = std::get_if<Instruction>(&function_.body[i]);
            instruction != nullptr)
          Learn(i, *instruction, &out);
      }
      const Instruction* branch = block.end == block.begin
                                      ? nullptr
                                      : std::get_if<Instruction>(&function_.body[block.end - 1]);
      for (size_t i = 0; i < block.successors.size(); i++) {
        Facts edge = out;
        if (branch != nullptr && branch->Is("bra") && branch->guard.Present() &&
            block.successors.size() == 2)
          Take(branch->guard, /*taken=*/i == 1, &edge);
        Facts& into = facts_[block.successors[i]];
        Facts met = edge;
        if (into.reached) {
          met.bounds.clear();
          met.links.clear();
          std::set_intersection(into.bounds.begin(), into.bounds.end(), edge.bounds.begin(),
                                edge.bounds.end(), std::inserter(met.bounds, met.bounds.end()));
          std::set_intersection(into.links.begin(), into.links.end(), edge.links.begin(),
                                edge.links.end(), std::inserter(met.links, met.links.end()));
        }
        met.reached = true;
        if (met == into) continue;
        into = std::move(met);
        changed = true;
      }
    }
  }
  if (changed) facts_.assign(flow.blocks().size(), Facts{});
}

}  // namespace ops_debug::shadow
