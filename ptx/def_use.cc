// Reaching definitions, one register at a time.
//
// Most registers of compiler output have one unconditional definition that dominates every use:
// their answer needs no dataflow. The others run a worklist over bit sets of their own definitions
// only, from the blocks that define them, so the cost follows the region in which a value lives,
// not definitions times blocks.
#include "ptx/def_use.h"

#include <algorithm>
#include <deque>

#include "ptx/operands.h"

namespace ops_debug::ptx {
namespace {

// A read or write of one register, in statement order; within a statement reads come first.
struct Event {
  uint32_t statement;
  uint32_t index;  // of the use, or of the definition
  bool is_write;
};

}  // namespace

class DefUse::Solver {
 public:
  Solver(DefUse& result, const ControlFlow& flow)
      : result_(result), flow_(flow), state_of_block_(flow.blocks().size(), kNone) {}

  // `events` of `reg`; its definitions are [first, first + count) of the result.
  void Solve(RegisterId reg, std::span<const Event> events, uint32_t first, uint32_t count) {
    if (count == 1 && SolveSingle(events, first)) return;
    reg_ = reg;
    first_ = first;
    count_ = count;
    words_ = count / 64 + 1;  // one more bit: the value at entry
    at_entry_ = kNone;
    SummariseBlocks(events);
    Propagate();
    Answer(events);
    for (const State& state : states_) state_of_block_[state.block] = kNone;
    states_.clear();
    bits_.clear();
  }

  // Pseudo-definitions get their places behind the real ones; Finish sorts them in.
  std::vector<Definition> entry_definitions;

 private:
  static constexpr uint32_t kNone = ~0u;
  // A block that defines the register or that some definition reaches. Bit sets: in, generated.
  struct State {
    BlockId block;
    bool kills = false;
    bool queued = false;
  };

  // One definition, unconditional, above all uses. A use below it in a loop is still only reached
  // by it.
  bool SolveSingle(std::span<const Event> events, uint32_t definition) {
    if (result_.definitions_[definition].conditional) return false;
    const uint32_t at = result_.definitions_[definition].statement;
    const BlockId block = flow_.BlockOf(at);
    for (const Event& event : events) {
      if (event.is_write) continue;
      const BlockId use_block = flow_.BlockOf(event.statement);
      if (use_block == block ? event.statement <= at : !flow_.Dominates(block, use_block))
        return false;
    }
    const auto begin = static_cast<uint32_t>(result_.reaching_pool_.size());
    result_.reaching_pool_.push_back(definition);
    for (const Event& event : events) {
      if (!event.is_write) result_.reaching_[event.index] = {begin, begin + 1};
    }
    return true;
  }

  State& StateOf(BlockId block) {
    if (state_of_block_[block] == kNone) {
      state_of_block_[block] = static_cast<uint32_t>(states_.size());
      states_.push_back({block});
      bits_.resize(bits_.size() + 2 * words_);
    }
    return states_[state_of_block_[block]];
  }
  uint64_t* In(BlockId block) { return &bits_[state_of_block_[block] * 2 * words_]; }
  uint64_t* Generated(BlockId block) { return In(block) + words_; }

  void Apply(uint64_t* set, const Event& event) const {
    if (!result_.definitions_[event.index].conditional) std::fill(set, set + words_, 0);
    const uint32_t bit = event.index - first_;
    set[bit / 64] |= uint64_t{1} << bit % 64;
  }

  void SummariseBlocks(std::span<const Event> events) {
    for (const Event& event : events) {
      if (!event.is_write) continue;
      const BlockId block = flow_.BlockOf(event.statement);
      State& state = StateOf(block);
      state.kills = state.kills || !result_.definitions_[event.index].conditional;
      Apply(Generated(block), event);
    }
  }

  void Enqueue(BlockId block) {
    State& state = StateOf(block);
    if (state.queued) return;
    state.queued = true;
    queue_.push_back(block);
  }

  void Propagate() {
    StateOf(0);
    In(0)[count_ / 64] |= uint64_t{1} << count_ % 64;
    Enqueue(0);
    for (size_t i = 0; i < states_.size(); ++i) {
      if (flow_.IsReachable(states_[i].block)) Enqueue(states_[i].block);
    }
    std::vector<uint64_t> out(words_);
    while (!queue_.empty()) {
      const BlockId block = queue_.front();
      queue_.pop_front();
      State& state = StateOf(block);
      state.queued = false;
      const bool kills = state.kills;
      for (size_t i = 0; i < words_; ++i) out[i] = Generated(block)[i] | (kills ? 0 : In(block)[i]);
      for (const BlockId successor : flow_.blocks()[block].successors) {
        StateOf(successor);
        uint64_t* in = In(successor);
        bool changed = false;
        for (size_t i = 0; i < words_; ++i) {
          changed = changed || (out[i] & ~in[i]) != 0;
          in[i] |= out[i];
        }
        if (changed) Enqueue(successor);
      }
    }
  }

  void Answer(std::span<const Event> events) {
    std::vector<uint64_t> set(words_);
    BlockId current = kNoBlock;
    Range shared;
    bool is_stale = true;
    for (const Event& event : events) {
      const BlockId block = flow_.BlockOf(event.statement);
      if (block != current) {
        current = block;
        is_stale = true;
        if (state_of_block_[block] == kNone) {
          std::fill(set.begin(), set.end(), 0);
        } else {
          std::copy(In(block), In(block) + words_, set.begin());
        }
      }
      if (event.is_write) {
        Apply(set.data(), event);
        is_stale = true;
        continue;
      }
      if (is_stale) shared = Store(set);
      is_stale = false;
      result_.reaching_[event.index] = shared;
    }
  }

  Range Store(const std::vector<uint64_t>& set) {
    Range range{static_cast<uint32_t>(result_.reaching_pool_.size()), 0};
    for (size_t word = 0; word < words_; ++word) {
      for (uint64_t bits = set[word]; bits != 0; bits &= bits - 1) {
        const auto bit =
            static_cast<uint32_t>(word * 64 + static_cast<size_t>(__builtin_ctzll(bits)));
        result_.reaching_pool_.push_back(bit == count_ ? AtEntry() : first_ + bit);
      }
    }
    range.end = static_cast<uint32_t>(result_.reaching_pool_.size());
    return range;
  }

  uint32_t AtEntry() {
    if (at_entry_ == kNone) {
      at_entry_ = static_cast<uint32_t>(result_.definitions_.size() + entry_definitions.size());
      entry_definitions.push_back({kAtEntry, reg_, false});
    }
    return at_entry_;
  }

  DefUse& result_;
  const ControlFlow& flow_;
  RegisterId reg_ = kNoRegister;
  uint32_t first_ = 0, count_ = 0, at_entry_ = kNone;
  size_t words_ = 1;
  std::vector<uint32_t> state_of_block_;  // index into states_, kNone = not visited
  std::vector<State> states_;
  std::vector<uint64_t> bits_;
  std::deque<BlockId> queue_;
};

DefUse::DefUse(const Function& function, const ControlFlow& flow) {
  const auto count = static_cast<uint32_t>(function.body.size());
  const size_t registers = function.registers.size();
  struct Access {
    RegisterId reg;
    Event event;
    bool conditional;
  };
  std::vector<Access> accesses;
  first_use_.reserve(count + 1);
  for (uint32_t i = 0; i < count; ++i) {
    first_use_.push_back(static_cast<uint32_t>(uses_.size()));
    const auto* instruction = std::get_if<Instruction>(&function.body[i]);
    if (instruction == nullptr) continue;
    const size_t first_access = accesses.size();
    ForEachRegister(*instruction, [&](RegisterId reg, bool is_write) {
      if (reg >= registers) return;
      bool is_read = false;
      for (size_t k = first_access; k < accesses.size(); ++k) {
        if (accesses[k].reg != reg) continue;
        if (accesses[k].event.is_write == is_write) return;
        is_read = true;
      }
      if (!is_write) {
        accesses.push_back({reg, {i, static_cast<uint32_t>(uses_.size()), false}, false});
        uses_.push_back({i, reg});
        return;
      }
      accesses.push_back(
          {reg,
           {i, 0, true},
           instruction->guard.Present() || (is_read && WritesPart(*instruction, reg))});
    });
  }
  first_use_.push_back(static_cast<uint32_t>(uses_.size()));

  // Group by register; the sort is stable, so statements stay in order.
  std::vector<uint32_t> first_of_register(registers + 1);
  for (const Access& access : accesses) ++first_of_register[access.reg + 1];
  for (size_t reg = 0; reg < registers; ++reg) first_of_register[reg + 1] += first_of_register[reg];
  std::vector<Event> events(accesses.size());
  std::vector<bool> conditional(accesses.size());
  std::vector<uint32_t> next = first_of_register;
  for (const Access& access : accesses) {
    conditional[next[access.reg]] = access.conditional;
    events[next[access.reg]++] = access.event;
  }
  std::vector<uint32_t> first_definition(registers + 1);
  for (RegisterId reg = 0; reg < registers; ++reg) {
    first_definition[reg] = static_cast<uint32_t>(definitions_.size());
    for (uint32_t i = first_of_register[reg]; i < first_of_register[reg + 1]; ++i) {
      if (!events[i].is_write) continue;
      events[i].index = static_cast<uint32_t>(definitions_.size());
      definitions_.push_back({events[i].statement, reg, conditional[i]});
    }
  }
  first_definition[registers] = static_cast<uint32_t>(definitions_.size());

  reaching_.resize(uses_.size());
  Solver solver(*this, flow);
  for (RegisterId reg = 0; reg < registers; ++reg) {
    const uint32_t first = first_definition[reg], last = first_definition[reg + 1];
    const std::span<const Event> own(events.data() + first_of_register[reg],
                                     events.data() + first_of_register[reg + 1]);
    if (own.size() == last - first) continue;  // no uses
    solver.Solve(reg, own, first, last - first);
  }
  definitions_.insert(definitions_.end(), solver.entry_definitions.begin(),
                      solver.entry_definitions.end());

  // The other direction: definition -> uses.
  first_reached_.assign(definitions_.size() + 1, 0);
  for (const Range range : reaching_) {
    for (uint32_t i = range.begin; i < range.end; ++i) ++first_reached_[reaching_pool_[i] + 1];
  }
  for (size_t i = 0; i < definitions_.size(); ++i) first_reached_[i + 1] += first_reached_[i];
  reached_pool_.resize(first_reached_.back());
  std::vector<uint32_t> fill(first_reached_.begin(), first_reached_.end() - 1);
  for (uint32_t use = 0; use < uses_.size(); ++use) {
    for (uint32_t i = reaching_[use].begin; i < reaching_[use].end; ++i)
      reached_pool_[fill[reaching_pool_[i]]++] = use;
  }
  for (uint32_t i = 0; i < definitions_.size(); ++i) {
    if (definitions_[i].statement != kAtEntry)
      definitions_by_statement_.emplace_back(definitions_[i].statement, i);
  }
  std::sort(definitions_by_statement_.begin(), definitions_by_statement_.end());
}

std::span<const uint32_t> DefUse::ReachingDefinitions(uint32_t statement, RegisterId reg) const {
  for (uint32_t use = first_use_[statement]; use < first_use_[statement + 1]; ++use) {
    if (uses_[use].reg != reg) continue;
    return std::span(reaching_pool_)
        .subspan(reaching_[use].begin, reaching_[use].end - reaching_[use].begin);
  }
  return {};
}

const DefUse::Definition* DefUse::UniqueDefinition(uint32_t statement, RegisterId reg) const {
  const std::span<const uint32_t> reaching = ReachingDefinitions(statement, reg);
  if (reaching.size() != 1) return nullptr;
  const Definition& definition = definitions_[reaching[0]];
  return definition.statement == kAtEntry || definition.conditional ? nullptr : &definition;
}

std::span<const uint32_t> DefUse::UsesOf(uint32_t definition) const {
  return std::span(reached_pool_)
      .subspan(first_reached_[definition],
               first_reached_[definition + 1] - first_reached_[definition]);
}

std::vector<uint32_t> DefUse::DefinitionsAt(uint32_t statement) const {
  std::vector<uint32_t> result;
  auto it = std::lower_bound(definitions_by_statement_.begin(), definitions_by_statement_.end(),
                             std::pair<uint32_t, uint32_t>{statement, 0});
  for (; it != definitions_by_statement_.end() && it->first == statement; ++it)
    result.push_back(it->second);
  return result;
}

}  // namespace ops_debug::ptx
