// What a thread knows of the others: a vector clock over all threads of all launches, which would
// be far too large as an array. It is a persistent map from warps to the clocks of their 32 lanes:
// a big-endian Patricia tree (Okasaki, Gill: Fast Mergeable Integer Maps, ML Workshop 1998), whose
// merge shares what is equal on both sides. After a barrier all threads hold the same tree, so
// joining them again costs nothing.
//
// Clocks start at 1 and grow at every release; clock 0 is before everything.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "emulator/isa/lane_ops.h"

namespace ops_debug::emulator {

// Warps of all launches, operations and agents: one number space (race_memory.h).
using ActorId = uint32_t;

class ClockTree {
 public:
  ClockTree() = default;
  ClockTree(const ClockTree& other) noexcept : node_(other.node_) { Retain(node_); }
  ClockTree(ClockTree&& other) noexcept : node_(std::exchange(other.node_, nullptr)) {}
  ClockTree& operator=(ClockTree other) noexcept {
    std::swap(node_, other.node_);
    return *this;
  }
  ~ClockTree() { Drop(node_); }

  bool empty() const { return node_ == nullptr; }
  // The latest clock of the lane that is known; 0: nothing.
  uint32_t Of(ActorId actor, uint32_t lane) const;
  // Whether all lanes of the mask are known up to `clock`.
  bool Covers(ActorId actor, uint32_t lanes, uint32_t clock) const;
  void Join(const ClockTree& other);
  // The clocks of a warp's lanes, null if nothing is known of it. Valid while a tree holds them.
  const uint32_t* Row(ActorId actor) const;
  // Lanes of one warp; clocks of other lanes are not looked at.
  void Add(ActorId actor, uint32_t lanes, const uint32_t* clocks);
  void Add(ActorId actor, uint32_t lane, uint32_t clock);
  bool SameAs(const ClockTree& other) const { return node_ == other.node_; }

  struct Node;

 private:
  static void Retain(const Node* node);
  static void Drop(const Node* node);
  static const Node* Merge(const Node* a, const Node* b);

  const Node* node_ = nullptr;
};

// What somebody knows: everything that happens before, and the part of it whose writes a proxy
// fence has made visible to the async proxy (PTX ISA 9.0, 8.2.5).
struct Knowledge {
  ClockTree all, fenced;

  bool empty() const { return all.empty(); }
  bool SameAs(const Knowledge& other) const {
    return all.SameAs(other.all) && fenced.SameAs(other.fenced);
  }
  void Join(const Knowledge& other) {
    all.Join(other.all);
    fenced.Join(other.fenced);
  }
};

}  // namespace ops_debug::emulator
