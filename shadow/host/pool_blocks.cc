// The blocks of pools (allocation_book.h). Spans tell who had a piece of memory last: live blocks
// own one span each; a block that was given back keeps what nobody has taken since, so that a stale
// pointer can be named long after the free.
#include <algorithm>
#include <mutex>
#include <utility>

#include "shadow/host/allocation_book.h"

namespace ops_debug::shadow {
namespace {

constexpr size_t kPastBlocks = 8192;

Allocation AsAllocation(const PoolBlock& block) {
  Allocation out;
  out.id = block.id;
  out.base = block.base;
  out.size_bytes = block.size_bytes;
  out.reserved_bytes = block.reserved_bytes;
  out.api = block.api;
  out.context = block.context;
  out.freed = block.freed;
  out.free_api = block.freed ? block.api : "";
  out.allocation_stack = block.allocation_stack;
  out.free_stack = block.free_stack;
  out.tensor = std::make_shared<const TensorInfo>(block.tensor);
  out.segment_base = block.segment_base;
  out.segment_bytes = block.segment_bytes;
  out.died = block.died;
  return out;
}

}  // namespace

AllocationBook::SpanMap::const_iterator AllocationBook::SpanAtOrBefore(uint64_t address) const {
  auto after = spans_.upper_bound(address);
  return after == spans_.begin() ? spans_.end() : std::prev(after);
}

void AllocationBook::CutBlocks(uint64_t base, uint64_t end) {
  auto at = spans_.upper_bound(base);
  if (at != spans_.begin() && std::prev(at)->second.end > base) --at;
  while (at != spans_.end() && at->first < end) {
    const uint64_t begin = at->first;
    const Span span = std::move(at->second);
    at = spans_.erase(at);
    if (!span.block->freed) span.block->freed = true;  // nobody told us, but it is gone
    if (past_.empty() || past_.back() != span.block) past_.push_back(span.block);
    if (begin < base) spans_.emplace_hint(at, begin, Span{base, span.block});
    if (span.end > end) at = spans_.emplace_hint(at, end, Span{span.end, span.block});
  }
  while (past_.size() > kPastBlocks) past_.pop_front();
}

std::optional<SegmentOfBlock> AllocationBook::HandOut(PoolBlock block, bool for_graph) {
  auto entry = std::make_shared<PoolBlock>(std::move(block));
  std::unique_lock lock(mutex_);
  auto entry_of_segment = by_base_.upper_bound(entry->base);
  if (entry_of_segment == by_base_.begin()) return std::nullopt;
  Allocation& segment = (--entry_of_segment)->second;
  entry->reserved_bytes = std::max(entry->reserved_bytes, entry->size_bytes);
  const uint64_t end = entry->base + entry->reserved_bytes;
  if (segment.freed || entry->reserved_bytes == 0 || end > segment.end()) return std::nullopt;
  SegmentOfBlock out{segment.base, segment.size_bytes, segment.context, !segment.pool};
  segment.pool = true;
  CutBlocks(entry->base, end);
  if (for_graph && !segment.graph_pool) {
    segment.graph_pool = true;
    for (auto at = spans_.lower_bound(segment.base);
         at != spans_.end() && at->first < segment.end(); ++at) {
      if (!at->second.block->freed) out.now_of_graphs.push_back(*at->second.block);
    }
  }
  out.graph_pool = segment.graph_pool;
  entry->id = next_id_++;
  entry->segment_base = segment.base;
  entry->segment_bytes = segment.size_bytes;
  entry->context = segment.context;
  const uint64_t base = entry->base;
  spans_.emplace(base, Span{end, std::move(entry)});
  return out;
}

std::optional<PoolBlock> AllocationBook::GiveBack(uint64_t base, uint64_t time,
                                                  const CodeLines& lines, HostStack free_stack) {
  std::unique_lock lock(mutex_);
  const auto found = spans_.find(base);
  if (found == spans_.end() || found->second.block->freed || found->second.block->base != base) {
    return std::nullopt;
  }
  PoolBlock& block = *found->second.block;
  block.freed = true;
  block.died = time;
  block.tensor.free_lines = lines;
  block.free_stack = std::move(free_stack);
  return block;
}

bool AllocationBook::IsPool(uint64_t address) const {
  std::shared_lock lock(mutex_);
  const auto at = AtOrBefore(address);
  return at != by_base_.end() && at->second.pool && address < at->second.end();
}

size_t AllocationBook::live_blocks() const {
  std::shared_lock lock(mutex_);
  return static_cast<size_t>(
      std::ranges::count_if(spans_, [](const auto& entry) { return !entry.second.block->freed; }));
}

std::vector<PoolBlock> AllocationBook::LiveBlocks() const {
  std::shared_lock lock(mutex_);
  std::vector<PoolBlock> live;
  const PoolBlock* last = nullptr;
  for (const auto& [base, span] : spans_) {
    if (span.block->freed || span.block.get() == last) continue;
    last = span.block.get();
    live.push_back(*last);
  }
  return live;
}

// Whose memory `address` was at `time`, if that block has lost it since.
std::shared_ptr<const PoolBlock> AllocationBook::FindPast(uint64_t address, uint64_t time) const {
  for (auto at = past_.rbegin(); at != past_.rend(); ++at) {
    const PoolBlock& block = **at;
    if (block.born <= time && address - block.base < block.reserved_bytes) return *at;
  }
  return nullptr;
}

// The block that holds the address; else, in the gap between two blocks, the one whose end or start
// is nearer. Memory that a block has not filled belongs to that block.
std::optional<NearestAllocation> AllocationBook::NearestBlock(const Allocation& segment,
                                                              uint64_t address,
                                                              uint64_t time) const {
  using Place = NearestAllocation::Place;
  const auto describe = [&](const PoolBlock& block) {
    if (address < block.base) {
      return NearestAllocation{AsAllocation(block), Place::kBefore, block.base - address};
    }
    return address < block.end()
               ? NearestAllocation{AsAllocation(block), Place::kInside, address - block.base}
               : NearestAllocation{AsAllocation(block), Place::kBehind, address - block.end()};
  };
  const auto at = SpanAtOrBefore(address);
  const bool holds = at != spans_.end() && address < at->second.end;
  if (holds && at->second.block->born <= time) return describe(*at->second.block);
  if (const auto past = holds ? FindPast(address, time) : nullptr) return describe(*past);
  if (holds) return describe(*at->second.block);
  const PoolBlock* low =
      at != spans_.end() && at->first >= segment.base ? at->second.block.get() : nullptr;
  const auto next = at == spans_.end() ? spans_.begin() : std::next(at);
  const PoolBlock* high =
      next != spans_.end() && next->first < segment.end() ? next->second.block.get() : nullptr;
  if (low && high) {
    // A write that runs over an end is likelier than one that starts too early.
    return describe(address - low->end() <= high->base - address ? *low : *high);
  }
  if (low || high) return describe(low ? *low : *high);
  return std::nullopt;
}

std::optional<Allocation> AllocationBook::FindInnermost(uint64_t address, uint64_t time) const {
  {
    std::shared_lock lock(mutex_);
    const auto at = AtOrBefore(address);
    if (at != by_base_.end() && at->second.pool && address < at->second.end()) {
      const auto nearest = NearestBlock(at->second, address, time);
      if (nearest && nearest->place == NearestAllocation::Place::kInside) {
        return nearest->allocation;
      }
    }
  }
  return FindContaining(address);
}

std::optional<Allocation> AllocationBook::FindInnermostStart(uint64_t base, uint64_t size_bytes,
                                                             uint64_t time) const {
  std::shared_lock lock(mutex_);
  const auto fits = [&](const PoolBlock& block, bool strict) {
    return block.base == base && block.born <= time &&
           (!strict || size_bytes == 0 || block.size_bytes == size_bytes);
  };
  const auto entry = by_base_.find(base);
  for (const bool strict : {true, false}) {
    const auto span = spans_.find(base);
    if (span != spans_.end() && fits(*span->second.block, strict)) {
      return AsAllocation(*span->second.block);
    }
    const bool whole = entry != by_base_.end() &&
                       (!strict || size_bytes == 0 || entry->second.size_bytes == size_bytes);
    if (whole && !entry->second.pool) return entry->second;
    for (auto at = past_.rbegin(); at != past_.rend(); ++at) {
      if (fits(**at, strict)) return AsAllocation(**at);
    }
    if (whole) return entry->second;
  }
  return std::nullopt;
}

}  // namespace ops_debug::shadow
