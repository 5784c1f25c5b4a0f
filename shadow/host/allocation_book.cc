// The ordered map behind allocation_book.h. A new entry erases whatever it overlaps: the driver has
// handed out the range, so older knowledge of it is stale.
#include "shadow/host/allocation_book.h"

#include <algorithm>
#include <mutex>
#include <utility>

namespace ops_debug::shadow {

AllocationBook::Map::const_iterator AllocationBook::AtOrBefore(uint64_t address) const {
  auto after = by_base_.upper_bound(address);
  return after == by_base_.begin() ? by_base_.end() : std::prev(after);
}

void AllocationBook::EraseEntry(Map::iterator at) {
  if (at->second.pool) CutBlocks(at->first, at->second.end());
  by_base_.erase(at);
}

void AllocationBook::EraseOverlaps(uint64_t base, uint64_t end) {
  auto at = by_base_.upper_bound(base);
  if (at != by_base_.begin()) {
    auto before = std::prev(at);
    if (before->first == base || before->first + before->second.reserved_bytes > base) at = before;
  }
  while (at != by_base_.end() && at->first < end) EraseEntry(at++);
}

uint64_t AllocationBook::Insert(Allocation allocation) {
  std::unique_lock lock(mutex_);
  allocation.reserved_bytes = std::max(allocation.reserved_bytes, allocation.size_bytes);
  EraseOverlaps(allocation.base,
                allocation.base + std::max<uint64_t>(allocation.reserved_bytes, 1));
  allocation.id = next_id_++;
  const uint64_t id = allocation.id;
  const uint64_t base = allocation.base;
  by_base_.emplace(base, std::move(allocation));
  return id;
}

bool AllocationBook::MarkFreed(uint64_t base, const char* free_api, HostStack free_stack) {
  std::unique_lock lock(mutex_);
  const auto found = by_base_.find(base);
  if (found == by_base_.end() || found->second.freed) return false;
  found->second.freed = true;
  found->second.free_api = free_api;
  found->second.free_stack = std::move(free_stack);
  if (found->second.pool) {
    CutBlocks(base, found->second.end());
    found->second.pool = found->second.graph_pool = false;
  }
  return true;
}

std::optional<Allocation> AllocationBook::Remove(uint64_t base) {
  std::unique_lock lock(mutex_);
  const auto found = by_base_.find(base);
  if (found == by_base_.end()) return std::nullopt;
  Allocation removed = found->second;
  EraseEntry(found);
  return removed;
}

void AllocationBook::RemoveContext(const void* context) {
  std::unique_lock lock(mutex_);
  for (auto at = by_base_.begin(); at != by_base_.end();) {
    const auto here = at++;
    if (here->second.context == context) EraseEntry(here);
  }
}

void AllocationBook::RemoveOwner(uint64_t owner) {
  std::unique_lock lock(mutex_);
  for (auto at = by_base_.begin(); at != by_base_.end();) {
    const auto here = at++;
    if (here->second.owner == owner) EraseEntry(here);
  }
}

void AllocationBook::InsertMapped(Allocation mapping) {
  std::unique_lock lock(mutex_);
  uint64_t base = mapping.base;
  uint64_t end = mapping.base + mapping.size_bytes;
  EraseOverlaps(base, end);
  const auto joins = [&](const Allocation& other) {
    return other.reservation != 0 && other.reservation == mapping.reservation;
  };
  // The parts are replaced by the whole; their blocks stay.
  if (const auto before = AtOrBefore(base);
      before != by_base_.end() && joins(before->second) && before->second.end() == base) {
    base = before->first;
    mapping.pool |= before->second.pool;
    mapping.graph_pool |= before->second.graph_pool;
    by_base_.erase(before);
  }
  if (const auto behind = by_base_.find(end); behind != by_base_.end() && joins(behind->second)) {
    end = behind->second.end();
    mapping.pool |= behind->second.pool;
    mapping.graph_pool |= behind->second.graph_pool;
    by_base_.erase(behind);
  }
  mapping.base = base;
  mapping.size_bytes = mapping.reserved_bytes = end - base;
  mapping.id = next_id_++;
  by_base_.emplace(base, std::move(mapping));
}

void AllocationBook::RemoveMapped(uint64_t base, uint64_t size_bytes) {
  std::unique_lock lock(mutex_);
  const uint64_t end = base + size_bytes;
  auto at = by_base_.upper_bound(base);
  if (at != by_base_.begin() && std::prev(at)->second.end() > base) --at;
  CutBlocks(base, end);
  std::vector<Allocation> rest;
  while (at != by_base_.end() && at->first < end) {
    const Allocation whole = std::move(at->second);
    at = by_base_.erase(at);
    const auto keep = [&](uint64_t from, uint64_t to) {
      if (from >= to) return;
      Allocation part = whole;
      part.base = from;
      part.size_bytes = part.reserved_bytes = to - from;
      part.id = next_id_++;
      rest.push_back(std::move(part));
    };
    keep(whole.base, std::min(whole.end(), base));
    keep(std::max(whole.base, end), whole.end());
  }
  for (Allocation& part : rest) by_base_.emplace(part.base, std::move(part));
}

std::optional<Allocation> AllocationBook::FindStart(uint64_t base) const {
  std::shared_lock lock(mutex_);
  const auto found = by_base_.find(base);
  if (found == by_base_.end()) return std::nullopt;
  return found->second;
}

std::optional<Allocation> AllocationBook::FindContaining(uint64_t address, bool reserved) const {
  std::shared_lock lock(mutex_);
  const auto at = AtOrBefore(address);
  if (at == by_base_.end()) return std::nullopt;
  const uint64_t bytes = reserved ? at->second.reserved_bytes : at->second.size_bytes;
  if (address - at->first >= bytes) return std::nullopt;
  return at->second;
}

std::optional<NearestAllocation> AllocationBook::FindNearest(uint64_t address,
                                                             uint64_t time) const {
  using Place = NearestAllocation::Place;
  std::shared_lock lock(mutex_);
  const auto at = AtOrBefore(address);
  const auto next = at == by_base_.end() ? by_base_.begin() : std::next(at);
  if (at != by_base_.end()) {
    const Allocation& low = at->second;
    const bool inside = address < low.end();
    if (low.pool && (inside || address - low.base < low.reserved_bytes)) {
      if (auto block = NearestBlock(low, address, time)) return block;
    }
    if (inside) return NearestAllocation{low, Place::kInside, address - low.base};
    const uint64_t behind = address - low.end();
    // An address in a red zone belongs to the allocation in front of it, however near the next one
    // starts.
    const bool in_red_zone = address - low.base < low.reserved_bytes;
    if (in_red_zone || next == by_base_.end() || behind <= next->first - address) {
      return NearestAllocation{low, Place::kBehind, behind};
    }
  }
  if (next == by_base_.end()) return std::nullopt;
  return NearestAllocation{next->second, Place::kBefore, next->first - address};
}

bool AllocationBook::FindLive(uint64_t pointer, AllocationRange* range) const {
  std::shared_lock lock(mutex_);
  // AtOrBefore prefers the allocation that starts at `pointer` to one that ends there.
  const auto at = AtOrBefore(pointer);
  if (at == by_base_.end() || at->second.freed || pointer > at->second.end()) return false;
  if (at->second.pool && !at->second.graph_pool) {
    const auto span = SpanAtOrBefore(pointer);
    if (span == spans_.end()) return false;
    const PoolBlock& block = *span->second.block;
    if (block.freed || pointer > block.end()) return false;
    *range = {block.base, block.size_bytes};
    return true;
  }
  *range = {at->second.base, at->second.size_bytes};
  return true;
}

std::vector<Allocation> AllocationBook::Live() const {
  std::shared_lock lock(mutex_);
  std::vector<Allocation> live;
  for (const auto& [base, allocation] : by_base_) {
    if (!allocation.freed) live.push_back(allocation);
  }
  return live;
}

std::vector<AllocationRange> AllocationBook::LiveRanges() const {
  std::shared_lock lock(mutex_);
  std::vector<AllocationRange> live;
  for (const auto& [base, allocation] : by_base_) {
    if (!allocation.freed) live.push_back({base, allocation.size_bytes});
  }
  return live;
}

size_t AllocationBook::size() const {
  std::shared_lock lock(mutex_);
  return by_base_.size();
}

}  // namespace ops_debug::shadow
