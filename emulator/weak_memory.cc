// Late stores and old values. See weak_memory.h for the model.
#include "emulator/weak_memory.h"

#include <algorithm>
#include <cstring>

#include "emulator/machine.h"

namespace ops_debug::emulator {
namespace {

constexpr size_t kPendingPerThread = 32;
constexpr size_t kOverlayCells = 1024;
constexpr size_t kOverwritesPerCell = 8;
constexpr size_t kReadersPerCell = 128;
constexpr size_t kHistories = 1 << 16;

uint64_t ReadCell(uintptr_t cell) {
  return __atomic_load_n(reinterpret_cast<const uint64_t*>(cell), __ATOMIC_RELAXED);
}

void WriteBytes(std::byte* pointer, uint64_t value, uint32_t bytes) {
  switch (bytes) {
    case 1:
      return __atomic_store_n(reinterpret_cast<uint8_t*>(pointer), static_cast<uint8_t>(value),
                              __ATOMIC_RELAXED);
    case 2:
      return __atomic_store_n(reinterpret_cast<uint16_t*>(pointer), static_cast<uint16_t>(value),
                              __ATOMIC_RELAXED);
    case 4:
      return __atomic_store_n(reinterpret_cast<uint32_t*>(pointer), static_cast<uint32_t>(value),
                              __ATOMIC_RELAXED);
    default:
      return __atomic_store_n(reinterpret_cast<uint64_t*>(pointer), value, __ATOMIC_RELAXED);
  }
}

}  // namespace

// What the threads of one block see beside memory.
struct BlockView {
  using Pending = WeakMemory::Pending;
  using Cell = WeakMemory::Cell;
  Block* block = nullptr;                     // null: it has ended, and only the overlay is left
  uint64_t number = 0;                        // of the block
  std::vector<std::vector<Pending>> buffers;  // per thread, in program order
  std::vector<uint32_t> buffered;             // threads whose buffer is not empty
  std::vector<uint64_t> horizons;             // per thread
  // Stores that are visible to the block only, by cell, in their order.
  std::unordered_map<Cell, std::vector<Pending>> overlay;
  std::vector<Cell> overlay_cells;  // its keys, oldest first but for removals
  std::vector<Cell> shared_cells;   // cells of shared memory that have a history
};

WeakMemory::WeakMemory(const Weakness& weakness, Random random, const ReadSet& reads,
                       std::atomic<uint64_t>& changes)
    : weakness_(weakness), random_(random), reads_(reads), changes_(changes) {}
WeakMemory::~WeakMemory() = default;

BlockView& WeakMemory::View(Warp& warp) const { return *warp.block->view; }

uint64_t WeakMemory::ThreadOf(const Warp& warp, uint32_t lane) const {
  return warp.block->number << 11 | (warp.index * kWarpLanes + lane);
}

bool WeakMemory::IsShared(const Block& block, const std::byte* pointer) {
  for (const Block* other : block.cluster->blocks) {
    if (static_cast<size_t>(pointer - other->shared.data()) < other->shared.size_bytes())
      return true;
  }
  return false;
}

void WeakMemory::StartBlock(Block& block) {
  if (free_views_.empty()) {
    all_views_.push_back(std::make_unique<BlockView>());
    free_views_.push_back(all_views_.back().get());
  }
  block.view = free_views_.back();
  free_views_.pop_back();
  block.view->block = &block;
  block.view->number = block.number;
  block.view->buffers.resize(block.warps.size() * kWarpLanes);
  block.view->horizons.assign(block.view->buffers.size(), 0);
  views_.push_back(block.view);
}

void WeakMemory::EndBlock(Block& block) {
  BlockView& view = *block.view;
  while (!view.buffered.empty()) FlushThread(view, view.buffered.back(), true);
  for (const Cell cell : view.shared_cells) histories_.erase(cell);
  view.shared_cells.clear();
  block.view = nullptr;
  view.block = nullptr;
  FreeIfDone(view);
}

// What a block has stored may become visible only after its end.
void WeakMemory::FreeIfDone(BlockView& view) {
  if (view.block != nullptr || !view.overlay_cells.empty()) return;
  views_.erase(std::find(views_.begin(), views_.end(), &view));
  free_views_.push_back(&view);
}

void WeakMemory::Apply(const Pending& store, Cell cell, uint64_t* value) {
  std::memcpy(reinterpret_cast<std::byte*>(value) + (reinterpret_cast<Cell>(store.pointer) - cell),
              &store.value, store.bytes);
}

WeakMemory::History& WeakMemory::HistoryOf(BlockView& view, Cell cell) {
  const auto found = histories_.find(cell);
  if (found != histories_.end()) return found->second;
  if (histories_.size() >= kHistories) {
    histories_.clear();
    floor_ = now_;
  }
  History& history = histories_[cell];
  history.floor = floor_;
  if (view.block != nullptr && IsShared(*view.block, reinterpret_cast<const std::byte*>(cell)))
    view.shared_cells.push_back(cell);
  return history;
}

void WeakMemory::MarkSeen(History& history, uint64_t thread, uint64_t time) {
  for (Seen& seen : history.seen) {
    if (seen.thread != thread) continue;
    seen.time = std::max(seen.time, time);
    return;
  }
  if (history.seen.size() >= kReadersPerCell) {
    history.seen.clear();
    history.overwrites.clear();
    history.floor = now_;
  }
  history.seen.push_back({thread, time});
}

void WeakMemory::AddOverwrite(History& history, const Overwrite& overwrite) {
  if (history.overwrites.size() >= kOverwritesPerCell)
    history.overwrites.erase(history.overwrites.begin());
  history.overwrites.push_back(overwrite);
}

void WeakMemory::WriteMemory(BlockView& view, const Pending& store) {
  const Cell cell = CellOf(store.pointer);
  const uint64_t old = ReadCell(cell);
  uint64_t expected = old;
  Apply(store, cell, &expected);
  WriteBytes(store.pointer, store.value, store.bytes);
  if (expected != old && reads_.Contains(store.pointer, store.bytes))
    changes_.fetch_add(1, std::memory_order_relaxed);
  ++now_;
  const uint64_t block_time = store.block_time == 0 ? now_ : store.block_time;
  History& history = HistoryOf(view, cell);
  AddOverwrite(history, {old, now_, block_time, view.number});
  MarkSeen(history, store.thread, block_time);
}

void WeakMemory::FlushOverlay(BlockView& view, Cell cell) {
  const auto found = view.overlay.find(cell);
  if (found == view.overlay.end()) return;
  const std::vector<Pending> stores = std::move(found->second);
  view.overlay.erase(found);
  view.overlay_cells.erase(std::find(view.overlay_cells.begin(), view.overlay_cells.end(), cell));
  for (const Pending& store : stores) WriteMemory(view, store);
}

void WeakMemory::FlushOverlay(BlockView& view) {
  for (const Cell cell : view.overlay_cells) {
    for (const Pending& store : view.overlay[cell]) WriteMemory(view, store);
  }
  view.overlay.clear();
  view.overlay_cells.clear();
}

// Stores that the block has seen before stay in front.
void WeakMemory::WriteThrough(BlockView& view, const Pending& store) {
  FlushOverlay(view, CellOf(store.pointer));
  WriteMemory(view, store);
}

void WeakMemory::ToOverlay(BlockView& view, Pending store) {
  if (IsShared(*view.block, store.pointer)) return WriteThrough(view, store);
  const Cell cell = CellOf(store.pointer);
  if (view.overlay_cells.size() >= kOverlayCells) FlushOverlay(view, view.overlay_cells.front());
  store.block_time = ++now_;
  std::vector<Pending>& stores = view.overlay[cell];
  if (stores.empty()) view.overlay_cells.push_back(cell);
  stores.push_back(store);
  MarkSeen(HistoryOf(view, cell), store.thread, store.block_time);
}

void WeakMemory::FlushThread(BlockView& view, uint32_t thread, bool block_scope) {
  std::vector<Pending>& buffer = view.buffers[thread];
  if (buffer.empty()) return;
  for (const Pending& store : buffer) {
    if (block_scope) {
      ToOverlay(view, store);
    } else {
      WriteThrough(view, store);
    }
  }
  buffer.clear();
  view.buffered.erase(std::find(view.buffered.begin(), view.buffered.end(), thread));
}

void WeakMemory::FlushThreadCell(BlockView& view, uint32_t thread, Cell cell) {
  std::vector<Pending>& buffer = view.buffers[thread];
  if (buffer.empty()) return;
  for (size_t i = 0; i < buffer.size();) {
    if (CellOf(buffer[i].pointer) != cell) {
      ++i;
      continue;
    }
    WriteThrough(view, buffer[i]);
    buffer.erase(buffer.begin() + static_cast<ptrdiff_t>(i));
  }
  if (buffer.empty())
    view.buffered.erase(std::find(view.buffered.begin(), view.buffered.end(), thread));
}

void WeakMemory::Load(Warp& warp, uint32_t lane, const std::byte* pointer, uint32_t bytes,
                      bool acquire, std::byte* out) {
  BlockView& view = View(warp);
  const uint32_t index = warp.index * kWarpLanes + lane;
  const uint64_t thread = ThreadOf(warp, lane);
  const Cell cell = CellOf(pointer);
  if (bytes > 8) {
    FlushCells(view, index, pointer, bytes);
    std::memcpy(out, pointer, bytes);
    for (uint32_t i = 0; i < bytes; i += 8) {
      const auto known = histories_.find(cell + i);
      if (known != histories_.end()) MarkSeen(known->second, thread, now_);
    }
    if (acquire) view.horizons[index] = now_;
    return;
  }
  const auto known = histories_.find(cell);
  const auto overlaid = view.overlay.empty() ? view.overlay.end() : view.overlay.find(cell);
  uint64_t as_of = now_;
  const bool has_history = known != histories_.end();
  if (has_history && !calm_ && weakness_.old_values != 0) {
    const History& history = known->second;
    uint64_t earliest = std::max(view.horizons[index], history.floor);
    for (const Seen& seen : history.seen) {
      if (seen.thread == thread) earliest = std::max(earliest, seen.time);
    }
    uint64_t candidates[kOverwritesPerCell + 8];
    uint32_t count = 0;
    for (const Overwrite& overwrite : history.overwrites) {
      const uint64_t time = overwrite.TimeFor(view.number);
      if (time > earliest) candidates[count++] = time - 1;
    }
    if (overlaid != view.overlay.end()) {
      for (const Pending& store : overlaid->second) {
        if (store.block_time > earliest && count < std::size(candidates))
          candidates[count++] = store.block_time - 1;
      }
    }
    if (count != 0 && random_.Chance(weakness_.old_values))
      as_of = candidates[random_.Below(count)];
  }
  uint64_t value = ReadCell(cell);
  if (has_history) {
    // The last store in memory's order that is visible at that time hides those before it.
    const std::vector<Overwrite>& overwrites = known->second.overwrites;
    for (size_t i = overwrites.size(); i > 0; --i) {
      if (overwrites[i - 1].TimeFor(view.number) <= as_of) break;
      value = overwrites[i - 1].old;
    }
  }
  if (overlaid != view.overlay.end()) {
    for (const Pending& store : overlaid->second) {
      if (store.block_time <= as_of) Apply(store, cell, &value);
    }
  }
  for (const Pending& store : view.buffers[index]) {
    if (CellOf(store.pointer) == cell) Apply(store, cell, &value);
  }
  if (has_history) MarkSeen(known->second, thread, as_of);
  if (acquire) view.horizons[index] = std::max(view.horizons[index], as_of);
  std::memcpy(out,
              reinterpret_cast<const std::byte*>(&value) + (reinterpret_cast<Cell>(pointer) - cell),
              bytes);
}

void WeakMemory::Store(Warp& warp, uint32_t lane, std::byte* pointer, uint32_t bytes,
                       const std::byte* value) {
  BlockView& view = View(warp);
  const uint32_t index = warp.index * kWarpLanes + lane;
  Pending store{.pointer = pointer, .thread = ThreadOf(warp, lane)};
  const Cell cell = CellOf(pointer);
  if (bytes > 8) {
    // One access: both halves become visible together.
    FlushCells(view, index, pointer, bytes);
    store.bytes = 8;
    for (uint32_t i = 0; i < bytes; i += 8) {
      store.pointer = pointer + i;
      std::memcpy(&store.value, value + i, 8);
      WriteMemory(view, store);
    }
    return;
  }
  store.bytes = static_cast<uint8_t>(bytes);
  std::memcpy(&store.value, value, bytes);
  std::vector<Pending>& buffer = view.buffers[index];
  if (!calm_ && random_.Chance(weakness_.late_stores)) {
    if (buffer.size() >= kPendingPerThread)
      FlushThreadCell(view, index, CellOf(buffer.front().pointer));
    if (buffer.empty()) view.buffered.push_back(index);
    buffer.push_back(store);
    return;
  }
  FlushThreadCell(view, index, cell);
  WriteThrough(view, store);
}

void WeakMemory::FlushCells(BlockView& view, uint32_t thread, const std::byte* pointer,
                            uint32_t bytes) {
  for (Cell cell = CellOf(pointer); cell <= CellOf(pointer + bytes - 1); cell += 8) {
    FlushThreadCell(view, thread, cell);
    FlushOverlay(view, cell);
  }
}

void WeakMemory::BeginAtomic(Warp& warp, uint32_t lane, const std::byte* pointer, uint32_t bytes) {
  FlushCells(View(warp), warp.index * kWarpLanes + lane, pointer, bytes);
  for (Cell cell = CellOf(pointer); cell <= CellOf(pointer + bytes - 1); cell += 8)
    atomic_targets_.push_back({cell, ReadCell(cell), ThreadOf(warp, lane)});
}

void WeakMemory::EndAtomics(Warp& warp) {
  BlockView& view = View(warp);
  ++now_;
  for (size_t i = 0; i < atomic_targets_.size(); ++i) {
    const AtomicTarget& target = atomic_targets_[i];
    const auto same_cell = [&](const AtomicTarget& other) { return other.cell == target.cell; };
    const auto end = atomic_targets_.begin() + static_cast<ptrdiff_t>(i);
    if (std::none_of(atomic_targets_.begin(), end, same_cell) &&
        ReadCell(target.cell) != target.old) {
      if (reads_.Contains(reinterpret_cast<const std::byte*>(target.cell), 8))
        changes_.fetch_add(1, std::memory_order_relaxed);
      AddOverwrite(HistoryOf(view, target.cell), {target.old, now_, now_, view.number});
    }
    const auto known = histories_.find(target.cell);
    if (known != histories_.end()) MarkSeen(known->second, target.thread, now_);
  }
  atomic_targets_.clear();
}

void WeakMemory::Release(Warp& warp, uint32_t lanes, bool block_scope) {
  BlockView& view = View(warp);
  for (uint32_t m = lanes; m != 0; m &= m - 1) {
    const auto lane = static_cast<uint32_t>(__builtin_ctz(m));
    FlushThread(view, warp.index * kWarpLanes + lane, block_scope);
  }
  if (!block_scope) FlushOverlay(view);
}

void WeakMemory::Acquire(Warp& warp, uint32_t lanes) {
  BlockView& view = View(warp);
  for (uint32_t m = lanes; m != 0; m &= m - 1) {
    view.horizons[warp.index * kWarpLanes + static_cast<uint32_t>(__builtin_ctz(m))] = now_;
  }
}

void WeakMemory::Step() {
  if (views_.empty() || !random_.Chance(weakness_.arrivals)) return;
  const size_t first = random_.Below(views_.size());
  for (size_t i = 0; i < views_.size(); ++i) {
    BlockView& view = *views_[(first + i) % views_.size()];
    const size_t choices = view.buffered.size() + view.overlay_cells.size();
    if (choices == 0) continue;
    const size_t choice = random_.Below(choices);
    if (choice >= view.buffered.size()) {
      FlushOverlay(view, view.overlay_cells[choice - view.buffered.size()]);
      FreeIfDone(view);
      return;
    }
    const uint32_t thread = view.buffered[choice];
    const std::vector<Pending>& buffer = view.buffers[thread];
    FlushThreadCell(view, thread, CellOf(buffer[random_.Below(buffer.size())].pointer));
    return;
  }
}

bool WeakMemory::Settle() {
  bool any = false;
  const std::vector<BlockView*> views = views_;
  for (BlockView* view : views) {
    any = any || !view->buffered.empty() || !view->overlay_cells.empty();
    while (!view->buffered.empty()) FlushThread(*view, view->buffered.back(), false);
    FlushOverlay(*view);
    FreeIfDone(*view);
  }
  return any;
}

}  // namespace ops_debug::emulator
