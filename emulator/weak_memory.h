// What threads see of each other's memory accesses in a chosen schedule (LaunchConfig::schedule).
//
// The PTX memory consistency model (PTX ISA 9.0, chapter 8) lets weak and relaxed accesses to
// different locations take effect in another order than the program's. Two mechanisms produce such
// outcomes, and nothing that the model forbids:
//
// - Late stores. A store may wait in its thread's buffer, where only that thread sees it. Pending
//   stores become visible in any order, but in program order per location. What releases (fences,
//   release operations, barriers, the thread's exit) first lets all of them through. A release of
//   block scope lets them through to the threads of the block only: they move to the block's
//   overlay, from where a later release of a wider scope, by any thread of the block, moves them
//   on.
// - Old values. Of each location the last values are kept with the time at which they were
//   overwritten. A load may be answered as of an earlier time, but never earlier than the thread's
//   horizon, which acquire operations, fences and barriers advance to the present, nor than what
//   the thread has already seen of or written to the location.
//
// Time is one number for the whole launch. A thread that acquires therefore sees everything that
// was visible when it did, not only what happens before in the model's sense: stronger than the
// model in places, never weaker. Atomic operations always act on the latest value; all stores to
// one location have one order, in which they reach memory. Reordering of a load behind a later
// store (load buffering) is not produced.
//
// Memory that other instructions access (matrix fragments, asynchronous copies, mbarriers) holds
// the latest visible values; the machine calls Synchronise around such an instruction, which makes
// the executing threads' view and memory the same.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "emulator/random.h"
#include "emulator/read_set.h"

namespace ops_debug::emulator {

struct Block;
struct Warp;
struct BlockView;

// How weak memory is in a schedule, each in 1/256.
struct Weakness {
  uint32_t late_stores = 0;  // stores that wait
  uint32_t old_values = 0;   // loads that are answered as of an earlier time, where there is one
  uint32_t arrivals = 0;     // steps in which a pending store becomes visible
};

class WeakMemory {
 public:
  // Counts in `changes` whenever memory changes that is among `reads`.
  WeakMemory(const Weakness& weakness, Random random, const ReadSet& reads,
             std::atomic<uint64_t>& changes);
  ~WeakMemory();

  // At the end of a block its shared memory is gone; its other stores may stay pending.
  void StartBlock(Block& block);
  void EndBlock(Block& block);

  // Accesses of up to 16 bytes by one thread to shared or global memory. `pointer` is aligned.
  void Load(Warp& warp, uint32_t lane, const std::byte* pointer, uint32_t bytes, bool acquire,
            std::byte* out);
  void Store(Warp& warp, uint32_t lane, std::byte* pointer, uint32_t bytes, const std::byte* value);
  // Around atomic operations that are performed on memory: Begin for each lane, then the
  // operations, then End once.
  void BeginAtomic(Warp& warp, uint32_t lane, const std::byte* pointer, uint32_t bytes);
  void EndAtomics(Warp& warp);

  // Lets the stores of `lanes` through, for their block or for everybody.
  void Release(Warp& warp, uint32_t lanes, bool block_scope);
  // `lanes` see what is visible now.
  void Acquire(Warp& warp, uint32_t lanes);
  void Synchronise(Warp& warp, uint32_t lanes) {
    Release(warp, lanes, false);
    Acquire(warp, lanes);
  }

  // Between two slices of the schedule: perhaps a pending store becomes visible.
  void Step();
  // All pending stores become visible. True if there were any.
  bool Settle();
  // While calm, nothing waits and nothing is old.
  void SetCalm(bool calm) { calm_ = calm; }

 private:
  using Cell = uintptr_t;  // address of 8 aligned bytes
  struct Pending {
    std::byte* pointer = nullptr;
    uint64_t value = 0;
    uint64_t block_time = 0;  // when it became visible to its block; 0: not yet
    uint64_t thread = 0;
    uint8_t bytes = 0;
  };
  // A store that has reached memory, seen from the value that it replaced.
  struct Overwrite {
    uint64_t old = 0;         // the cell's 8 bytes before
    uint64_t time = 0;        // when it became visible
    uint64_t block_time = 0;  // to the threads of `block`
    uint64_t block = 0;
    uint64_t TimeFor(uint64_t reader) const { return reader == block ? block_time : time; }
  };
  struct Seen {
    uint64_t thread = 0, time = 0;
  };
  struct AtomicTarget {
    Cell cell = 0;
    uint64_t old = 0;
    uint64_t thread = 0;
  };
  struct History {
    std::vector<Overwrite> overwrites;  // in the order in which they reached memory
    std::vector<Seen> seen;
    uint64_t floor = 0;  // nobody is answered as of an earlier time
  };
  friend struct BlockView;

  static Cell CellOf(const std::byte* pointer) {
    return reinterpret_cast<Cell>(pointer) & ~Cell{7};
  }
  static bool IsShared(const Block& block, const std::byte* pointer);
  static void Apply(const Pending& store, Cell cell, uint64_t* value);
  BlockView& View(Warp& warp) const;
  uint64_t ThreadOf(const Warp& warp, uint32_t lane) const;
  History& HistoryOf(BlockView& view, Cell cell);
  static void AddOverwrite(History& history, const Overwrite& overwrite);
  void MarkSeen(History& history, uint64_t thread, uint64_t time);
  void WriteMemory(BlockView& view, const Pending& store);
  void WriteThrough(BlockView& view, const Pending& store);
  void FlushOverlay(BlockView& view, Cell cell);
  void FlushOverlay(BlockView& view);
  void ToOverlay(BlockView& view, Pending store);
  void FreeIfDone(BlockView& view);
  void FlushThread(BlockView& view, uint32_t thread, bool block_scope);
  void FlushThreadCell(BlockView& view, uint32_t thread, Cell cell);
  void FlushCells(BlockView& view, uint32_t thread, const std::byte* pointer, uint32_t bytes);

  const Weakness weakness_;
  Random random_;
  const ReadSet& reads_;
  std::atomic<uint64_t>& changes_;
  uint64_t now_ = 1;
  bool calm_ = false;
  // Of blocks that run or have stores pending, in the order in which they started.
  std::vector<BlockView*> views_;
  std::vector<std::unique_ptr<BlockView>> all_views_;
  std::vector<BlockView*> free_views_;
  std::unordered_map<Cell, History> histories_;
  std::vector<AtomicTarget> atomic_targets_;
  uint64_t floor_ = 0;  // of cells without a history
};

}  // namespace ops_debug::emulator
