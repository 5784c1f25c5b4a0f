// Where an address comes from: which kernel parameter, which declared array, or unknown.
//
// A dataflow analysis over the registers of one function. It ignores control flow: the value of a
// register is the join of what all its definitions yield, iterated to a fixed point. Compilers emit
// PTX close to SSA form (one definition per register, but for loop-carried ones), so little is
// lost, and the result holds at every place. Only one question is asked: is the address `base +
// terms` with exactly one base of coefficient +1, whose terms cannot be a pointer? In that case a
// run-time test against the bounds of the base's allocation is right. What is not certain is
// kUnknown.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "ptx/ir.h"

namespace ops_debug::shadow {

enum class Origin : uint8_t {
  kUnvisited,    // no definition seen yet (bottom)
  kNumber,       // no pointer with coefficient +1 in it
  kParameter,    // parameter slot: 64 bits at byte `id` of the parameter buffer
  kSymbol,       // variable: index `id` into Provenance::symbols()
  kLocalRegion,  // one array in a function's __local_depot: symbol `id`, array at `region` bytes
  kUnknown,      // may be a pointer (loaded, returned, two candidates)
  kOpaque,       // bits of something that may be a pointer; scaling does not make it a number
};

struct Value {
  static constexpr uint8_t kMaxAlignment = 12;  // log2; enough for any access and any page

  Origin origin = Origin::kUnvisited;
  uint32_t id = 0;
  int64_t region = 0;
  uint8_t alignment_log2 =
      kMaxAlignment;  // the terms (without the base) are a multiple of this power of two
  bool exact = true;  // terms are the constant `offset`
  int64_t offset = 0;

  bool IsPointer() const {
    return origin == Origin::kParameter || origin == Origin::kSymbol ||
           origin == Origin::kLocalRegion;
  }
  friend bool operator==(const Value&, const Value&) = default;
};

// A variable that addresses are derived from.
struct AddressedSymbol {
  std::string_view name;
  std::string_view space;   // ".shared", ".global", ".const", ".local"
  uint64_t size_bytes = 0;  // 0: dynamic shared memory or declared elsewhere
  uint32_t alignment_bytes = 1;
  bool dynamic_shared = false;
};

class Provenance {
 public:
  // Linear in the function's size but for a few rounds over loops. `module` gives module-scope
  // variables.
  Provenance(const ptx::Module& module, const ptx::Function& function);

  // Value of an address operand, its constant offset included.
  Value OfAddress(const ptx::Operand& address) const;
  const std::vector<AddressedSymbol>& symbols() const { return symbols_; }
  // Bytes from the start of the local array at `region` to the start of the next one (or the
  // depot's end).
  uint64_t LocalRegionBytes(uint32_t symbol, int64_t region) const;

 private:
  void CollectSymbols(const ptx::Module& module, const ptx::Function& function);
  void CollectLocalRegions(const ptx::Function& function);
  bool Visit(const ptx::Instruction& instruction);
  bool Assign(const ptx::Operand& destination, const Value& value);
  Value OfOperand(const ptx::Operand& operand) const;
  Value Transfer(const ptx::Instruction& instruction) const;
  Value LoadParameter(const ptx::Operand& address, uint32_t element_bytes, uint32_t element) const;

  bool is_entry_ = false;
  std::vector<AddressedSymbol> symbols_;
  std::map<std::string_view, uint32_t> symbol_index_;
  std::map<std::string_view, uint32_t> parameter_offsets_;
  std::vector<Value> values_;                               // by RegisterId
  std::vector<uint8_t> register_bytes_;                     // by RegisterId
  std::map<uint32_t, std::vector<int64_t>> local_regions_;  // symbol -> sorted array starts
};

}  // namespace ops_debug::shadow
