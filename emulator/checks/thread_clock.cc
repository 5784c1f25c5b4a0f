// See thread_clock.h. Reference counts are atomic because launches that run side by side share
// trees, and what holds one may die outside of the lock.
#include "emulator/checks/thread_clock.h"

#include <algorithm>

namespace ops_debug::emulator {

struct ClockTree::Node {
  explicit Node(bool leaf) : is_leaf(leaf) {}
  mutable std::atomic<uint32_t> references{1};
  const bool is_leaf;
};

namespace {

using Node = ClockTree::Node;

struct Leaf : Node {
  explicit Leaf(ActorId actor_) : Node(true), actor(actor_) {}
  ActorId actor;
  uint32_t clocks[kWarpLanes] = {};
};

// Holds the actors whose bits above `bit` are `prefix`; those without `bit` are on the left.
struct Branch : Node {
  Branch(uint32_t prefix_, uint32_t bit_, const Node* left_, const Node* right_)
      : Node(false), prefix(prefix_), bit(bit_), left(left_), right(right_) {}
  uint32_t prefix, bit;
  const Node* left;
  const Node* right;
};

const Leaf& AsLeaf(const Node* node) { return *static_cast<const Leaf*>(node); }
const Branch& AsBranch(const Node* node) { return *static_cast<const Branch*>(node); }

uint32_t Above(uint32_t key, uint32_t bit) { return key & ~(bit | (bit - 1)); }
bool Matches(uint32_t key, const Branch& branch) { return Above(key, branch.bit) == branch.prefix; }
uint32_t KeyOf(const Node* node) {
  return node->is_leaf ? AsLeaf(node).actor : AsBranch(node).prefix;
}

// Two trees whose keys differ.
const Node* Connect(uint32_t a_key, const Node* a, uint32_t b_key, const Node* b) {
  const uint32_t bit = 1u << (31 - __builtin_clz(a_key ^ b_key));
  return (a_key & bit) == 0 ? new Branch(Above(a_key, bit), bit, a, b)
                            : new Branch(Above(a_key, bit), bit, b, a);
}

const Leaf* Find(const Node* node, ActorId actor) {
  while (node != nullptr && !node->is_leaf) {
    const Branch& branch = AsBranch(node);
    if (!Matches(actor, branch)) return nullptr;
    node = (actor & branch.bit) == 0 ? branch.left : branch.right;
  }
  return node != nullptr && AsLeaf(node).actor == actor ? &AsLeaf(node) : nullptr;
}

}  // namespace

void ClockTree::Retain(const Node* node) {
  if (node != nullptr) node->references.fetch_add(1, std::memory_order_relaxed);
}

void ClockTree::Drop(const Node* node) {
  while (node != nullptr && node->references.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    if (node->is_leaf) {
      delete &AsLeaf(node);
      return;
    }
    const Branch& branch = AsBranch(node);
    const Node* const right = branch.right;
    Drop(branch.left);
    delete &branch;
    node = right;
  }
}

// A new reference to the union.
const Node* ClockTree::Merge(const Node* a, const Node* b) {
  const auto share = [](const Node* node) {
    Retain(node);
    return node;
  };
  if (a == b || b == nullptr) return share(a);
  if (a == nullptr) return share(b);
  if (a->is_leaf && b->is_leaf && AsLeaf(a).actor == AsLeaf(b).actor) {
    const Leaf& x = AsLeaf(a);
    const Leaf& y = AsLeaf(b);
    bool x_is_most = true, y_is_most = true;
    for (uint32_t i = 0; i < kWarpLanes; ++i) {
      x_is_most = x_is_most && x.clocks[i] >= y.clocks[i];
      y_is_most = y_is_most && y.clocks[i] >= x.clocks[i];
    }
    if (x_is_most) return share(a);
    if (y_is_most) return share(b);
    auto* const both = new Leaf(x.actor);
    for (uint32_t i = 0; i < kWarpLanes; ++i) both->clocks[i] = std::max(x.clocks[i], y.clocks[i]);
    return both;
  }
  // Merges `part` into the side of `branch` that holds its keys; `whole` is the branch.
  const auto into = [&](const Branch& branch, const Node* whole, const Node* part) -> const Node* {
    const bool left = (KeyOf(part) & branch.bit) == 0;
    const Node* const old = left ? branch.left : branch.right;
    const Node* const merged = Merge(old, part);
    if (merged == old) {
      Drop(merged);
      return share(whole);
    }
    return left ? new Branch(branch.prefix, branch.bit, merged, share(branch.right))
                : new Branch(branch.prefix, branch.bit, share(branch.left), merged);
  };
  if (a->is_leaf && b->is_leaf)
    return Connect(AsLeaf(a).actor, share(a), AsLeaf(b).actor, share(b));
  if (!a->is_leaf && (b->is_leaf || AsBranch(a).bit > AsBranch(b).bit)) {
    const Branch& branch = AsBranch(a);
    return Matches(KeyOf(b), branch) ? into(branch, a, b)
                                     : Connect(branch.prefix, share(a), KeyOf(b), share(b));
  }
  if (!b->is_leaf && (a->is_leaf || AsBranch(b).bit > AsBranch(a).bit)) {
    const Branch& branch = AsBranch(b);
    return Matches(KeyOf(a), branch) ? into(branch, b, a)
                                     : Connect(KeyOf(a), share(a), branch.prefix, share(b));
  }
  const Branch& x = AsBranch(a);
  const Branch& y = AsBranch(b);
  if (x.prefix != y.prefix) return Connect(x.prefix, share(a), y.prefix, share(b));
  const Node* const left = Merge(x.left, y.left);
  const Node* const right = Merge(x.right, y.right);
  const Node* same = nullptr;
  if (left == x.left && right == x.right) same = a;
  if (left == y.left && right == y.right) same = b;
  if (same != nullptr) {
    Drop(left);
    Drop(right);
    return share(same);
  }
  return new Branch(x.prefix, x.bit, left, right);
}

uint32_t ClockTree::Of(ActorId actor, uint32_t lane) const {
  const Leaf* const leaf = Find(node_, actor);
  return leaf == nullptr ? 0 : leaf->clocks[lane];
}

const uint32_t* ClockTree::Row(ActorId actor) const {
  const Leaf* const leaf = Find(node_, actor);
  return leaf == nullptr ? nullptr : leaf->clocks;
}

bool ClockTree::Covers(ActorId actor, uint32_t lanes, uint32_t clock) const {
  const Leaf* const leaf = Find(node_, actor);
  if (leaf == nullptr) return false;
  for (; lanes != 0; lanes &= lanes - 1) {
    if (leaf->clocks[__builtin_ctz(lanes)] < clock) return false;
  }
  return true;
}

void ClockTree::Join(const ClockTree& other) {
  if (other.node_ == nullptr || other.node_ == node_) return;
  const Node* const merged = Merge(node_, other.node_);
  Drop(node_);
  node_ = merged;
}

void ClockTree::Add(ActorId actor, uint32_t lanes, const uint32_t* clocks) {
  auto* const leaf = new Leaf(actor);
  for (; lanes != 0; lanes &= lanes - 1) {
    const auto lane = static_cast<uint32_t>(__builtin_ctz(lanes));
    leaf->clocks[lane] = clocks[lane];
  }
  const Node* const merged = Merge(node_, leaf);
  Drop(leaf);
  Drop(node_);
  node_ = merged;
}

void ClockTree::Add(ActorId actor, uint32_t lane, uint32_t clock) {
  uint32_t clocks[kWarpLanes];
  clocks[lane] = clock;
  Add(actor, 1u << lane, clocks);
}

}  // namespace ops_debug::emulator
