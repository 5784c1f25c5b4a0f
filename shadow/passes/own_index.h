// Where the accesses of an entry go, as forms in the number of the thread (index_form.h), so that
// the host can prove for a launch that no two threads meet: y[i], out[y * n + x], tile[ty][tx],
// row[i] in a loop over i < columns.
//
// A dataflow analysis: a register's value is the join of the definitions that reach its use.
// A register that grows by the same amount again and again has a form with a step. Branches tell
// more: behind `if (threadIdx.x == 0)` one thread is left, in `for (; i < n; ...)` i is below n.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "ptx/cfg.h"
#include "ptx/def_use.h"
#include "ptx/ir.h"
#include "shadow/passes/index_form.h"

namespace ops_debug::shadow {

class OwnIndexes {
 public:
  // Of an entry.
  explicit OwnIndexes(const ptx::Function& function);

  // `base` tells what the address starts from.
  struct Base {
    enum class Kind : uint8_t { kNone, kParameter, kSymbol };
    Kind kind = Kind::kNone;
    uint32_t parameter_offset = 0;
    std::string_view symbol;
    friend bool operator==(const Base&, const Base&) = default;
  };
  // Of an address that the instruction at this place of the body accesses.
  // Empty: not known.
  std::optional<IndexForm> OfAddress(uint32_t statement, const ptx::Operand& address,
                                     uint32_t bytes, Base* base) const;
  // True if the operand is this number whenever the instruction there is executed.
  bool IsConstant(uint32_t statement, const ptx::Operand& operand, int64_t number) const;

 private:
  enum class State : uint8_t {
    kUnvisited,
    kKnown,
    kShifted,  // %tid.x >> shift
    kLane,     // %tid.x % 32
    kOther,
  };
  struct Value {
    State state = State::kUnvisited;
    uint32_t shift = 0;
    Base base;
    std::array<UniformSum, kPlaces> places;
    UniformSum start;
    std::vector<UniformSum> steps;
    int64_t narrow;
    int counter = -1;  // index in counters_
    UniformSum counter_factor;

    Value();
    bool IsUniform() const;
    friend bool operator==(const Value&, const Value&) = default;
  };
  // A register that is below a bound.
  struct Bound {
    ptx::RegisterId reg = 0;
    uint32_t below = 0;  // index in bounds_
    friend auto operator<=>(const Bound&, const Bound&) = default;
  };
  // `predicate` being true, or false, says it.
  struct Link {
    ptx::RegisterId predicate = 0;
    bool when = true;
    Bound bound;
    friend auto operator<=>(const Link&, const Link&) = default;
  };
  struct Facts {
    bool reached = false;
    std::set<Bound> bounds;
    std::set<Link> links;
    friend bool operator==(const Facts&, const Facts&) = default;
  };

  static Value Other();
  static Value Known(UniformSum start);
  static Value Join(const Value& a, const Value& b);
  static Value Add(const Value& a, const Value& b);
  static Value Scale(const Value& value, const UniformSum& by);
  static Value Multiply(const Value& a, const Value& b);
  static bool AsUniform(const Value& value, UniformSum* sum);

  // Values of definitions as far as they are known, and where in the body they are asked for.
  struct View {
    const std::vector<Value>& values;
    uint32_t statement = 0;
    const Facts* facts = nullptr;
  };
  void Iterate(bool with_facts, std::vector<Value>* values);
  Value OfOperand(const ptx::Operand& operand, const View& view) const;
  Value OfRegister(ptx::RegisterId reg, const View& view) const;
  Value Reaching(ptx::RegisterId reg, uint32_t statement, const std::vector<Value>& values) const;
  Value Transfer(const ptx::Instruction& instruction, const View& view) const;
  Value LoadParameter(const ptx::Instruction& instruction) const;

  void FindPins(const ptx::ControlFlow& flow);
  bool PinOf(const ptx::Guard& guard, bool taken, uint32_t* place, UniformSum* value) const;
  void AddPins(const ptx::Guard& guard, IndexForm* form) const;
  void FindFacts(const ptx::ControlFlow& flow);
  void Learn(uint32_t statement, const ptx::Instruction& instruction, Facts* facts) const;
  void LearnComparison(uint32_t statement, const ptx::Instruction& instruction, Facts* facts) const;
  static void Take(const ptx::Guard& guard, bool taken, Facts* facts);

  const ptx::Function& function_;
  std::map<std::string_view, uint32_t> parameters_;
  std::vector<Value> values_;   // by definition (DefUse)
  std::vector<Value> refined_;  // the same with counters
  // The only comparison that sets a predicate, by its place; kNone: there are others, or it is
  // none.
  static constexpr uint32_t kNone = ~0u;
  std::map<ptx::RegisterId, uint32_t> comparisons_;
  std::optional<ptx::ControlFlow> flow_;
  std::optional<ptx::DefUse> uses_;
  struct Pin {
    uint32_t place;
    UniformSum value;
    ptx::BlockId from;  // and all that it dominates
  };
  std::vector<Pin> pins_;
  std::vector<Facts> facts_;  // at the start of each block
  // What the members above refer to; grows while they are found.
  struct Limit {
    UniformSum below;
    bool is_unsigned = false;
  };
  mutable std::vector<Limit> limits_;
  mutable std::vector<BoundedCounter> counters_;
};

}  // namespace ops_debug::shadow
