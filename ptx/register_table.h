// Register names of one function, resolved by scope while its body is parsed.
//
// `.reg .b32 %r<4000>` declares thousands of names of which most are never used, so a range is one
// entry and its members get an index when they are first mentioned. Inner blocks may declare a name
// again: every name keeps a chain of declarations, deepest first, and leaving a block takes its
// declarations off again (the classic scoped symbol table), which makes every look-up one or two
// hash probes at any nesting depth.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace ops_debug::ptx {

// Index into Function::registers.
using RegisterId = uint32_t;
inline constexpr RegisterId kNoRegister = ~0u;

struct Register;

class RegisterTable {
 public:
  void EnterScope();
  void LeaveScope();

  // Declares `name`; appends it to `registers`.
  RegisterId DeclareName(std::string_view name, std::string_view type, std::string_view vector_type,
                         std::vector<Register>& registers);
  // Declares `prefix`0 ... `prefix`(count-1). Members are appended to `registers` when Find sees
  // them first.
  void DeclareRange(std::string_view prefix, uint32_t count, std::string_view type,
                    std::string_view vector_type);

  // The innermost visible register called `name`, or kNoRegister. `name` must live as long as the
  // table.
  RegisterId Find(std::string_view name, std::vector<Register>& registers);

  // True if `name` was ever declared in any scope, alone or as a possible member of a range.
  bool EverDeclared(std::string_view name) const;

 private:
  static constexpr uint32_t kNone = ~0u;
  struct Entry {
    RegisterId id = kNoRegister;  // kNoRegister: a range
    uint32_t count = 0;
    std::string_view type, vector_type;
    uint32_t depth = 0;
    uint32_t slot = 0;
    uint32_t shadowed = kNone;       // entry of the same name further out
    uint32_t next_in_scope = kNone;  // for LeaveScope
  };
  // Name -> innermost entry. Slots stay when the entry goes, so removal needs no tombstones.
  class NameMap {
   public:
    struct Slot {
      std::string_view name;
      uint32_t entry = kNone;
    };
    uint32_t Find(std::string_view name) const;  // slot index or kNone
    uint32_t FindOrAdd(std::string_view name);
    Slot& operator[](uint32_t slot) { return slots_[slot]; }
    const Slot& operator[](uint32_t slot) const { return slots_[slot]; }

   private:
    void Grow();
    std::vector<Slot> slots_;
    std::vector<uint32_t> buckets_;  // power of two; slot index or kNone
  };
  void Push(NameMap& map, uint32_t slot, Entry entry);
  // Entry of the range that `name` is a member of, or kNone.
  uint32_t FindRange(std::string_view name) const;

  NameMap names_, ranges_;
  std::vector<Entry> entries_;
  struct Scope {
    uint32_t names = kNone;  // first entry of names_ and of ranges_ that leave with this scope
    uint32_t ranges = kNone;
  };
  std::vector<Scope> scopes_;  // open inner scopes
  uint32_t open_inner_ranges_ =
      0;  // ranges declared in them; while 0, an exact hit is always the innermost
  bool prefix_ends_in_digit_ = false;
};

}  // namespace ops_debug::ptx
