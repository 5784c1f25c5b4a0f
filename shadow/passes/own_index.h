// Which accesses are each thread's own: at pointer + stride * i + constant, where i is the number
// of the thread in a grid of one dimension (%ctaid.x * %ntid.x + %tid.x), or that plus a multiple
// of the grid's size, as in a grid-stride loop. Two threads never have the same i then, so what
// lies within one stride belongs to one thread.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "ptx/ir.h"

namespace ops_debug::shadow {

struct OwnIndex {
  bool known = false;
  uint32_t parameter_offset = 0;  // of the pointer in the parameter buffer
  int64_t stride = 0;             // bytes
  int64_t offset = 0;             // bytes; of the access behind pointer + stride * i
};

class OwnIndexes {
 public:
  // Of an entry.
  explicit OwnIndexes(const ptx::Function& function);

  OwnIndex OfAddress(const ptx::Operand& address) const;

  // What a register holds, but for a pointer and a constant in front.
  enum class Term : uint8_t {
    kUnvisited,
    kConstant,    // 0
    kThread,      // %tid.x
    kBlock,       // %ctaid.x
    kBlockSize,   // %ntid.x
    kGridSize,    // %nctaid.x
    kBlockStart,  // %ctaid.x * %ntid.x
    kOwn,         // factor * (number of the thread + any multiple of the number of threads)
    kAll,         // factor * a multiple of the number of threads (%nctaid.x * %ntid.x)
    kOther,
  };
  struct Value {
    Term term = Term::kUnvisited;
    bool has_pointer = false;
    uint32_t parameter_offset = 0;
    int64_t factor = 1;
    int64_t constant = 0;
    friend bool operator==(const Value&, const Value&) = default;
  };

 private:
  Value OfOperand(const ptx::Operand& operand) const;
  Value Transfer(const ptx::Instruction& instruction) const;

  std::map<std::string_view, uint32_t> parameters_;
  std::vector<Value> values_;  // by RegisterId
};

}  // namespace ops_debug::shadow
