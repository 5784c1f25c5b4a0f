// Every allocation of the process that is live or in quarantine. One book serves all contexts: with
// unified addressing no two of them use the same address. Ranges never overlap; an ordered map
// answers "which one holds this address" and "which one is nearest". Thread-safe; answers are
// copies.
//
// Frameworks allocate large segments and hand out blocks of them. A segment with blocks is a pool:
// its blocks lie in a second map, and questions about an address that a kernel uses are answered
// with the block. Questions about what the driver allocated are answered with the segment.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <string>
#include <vector>

namespace ops_debug::shadow {

// Return addresses, innermost first; opaque here.
using HostStack = std::vector<uintptr_t>;

enum class AllocationKind : uint8_t {
  kDevice,         // cuMemAlloc and friends: red zone and quarantine
  kStreamOrdered,  // the same from a memory pool
  kHost,           // pinned or registered host memory
  kMapped,         // VMM
  kModuleVariable,
  kImported,  // another process's
};

// Lines of Python, innermost first, by numbers that only the caller understands.
struct CodeLines {
  uint32_t count = 0;
  std::array<uint32_t, 16> numbers{};
};

// What a framework keeps in a block. The strings live as long as the process.
struct TensorInfo {
  static constexpr uint32_t kMaxRank = 8;
  const char* framework = "";  // "PyTorch"
  const char* dtype = "";      // empty: not known
  bool has_shape = false;
  uint32_t rank = 0;  // dimensions beyond kMaxRank are left out
  std::array<int64_t, kMaxRank> shape{};
  CodeLines allocation_lines;
  CodeLines free_lines;
};

// A part of a segment that a pool has handed out.
struct PoolBlock {
  uint64_t id = 0;  // given by the book
  uint64_t base = 0;
  uint64_t size_bytes = 0;      // that the framework uses
  uint64_t reserved_bytes = 0;  // that the pool set aside for it
  uint64_t born = 0;            // launches of the process when it was handed out …
  uint64_t died = 0;            // … and when it was given back
  bool freed = false;
  const char* api = "";  // "PyTorch caching allocator"
  HostStack allocation_stack;
  HostStack free_stack;
  TensorInfo tensor;
  uint64_t segment_base = 0;  // of the allocation it is part of; the rest is filled in by the book
  uint64_t segment_bytes = 0;
  void* context = nullptr;

  uint64_t end() const { return base + size_bytes; }
};

struct Allocation {
  uint64_t id = 0;  // unique in the process, from 1; given by the book
  uint64_t base = 0;
  uint64_t size_bytes = 0;      // that the program asked for
  uint64_t reserved_bytes = 0;  // that the driver gave, red zone included
  AllocationKind kind = AllocationKind::kDevice;
  const char* api = "";  // "cuMemAlloc"
  std::string name;      // of a module variable
  void* context = nullptr;
  void* stream = nullptr;    // of a stream-ordered allocation
  uint64_t reservation = 0;  // VMM: start of the address reservation, else 0
  uint64_t owner = 0;        // module id of a module variable, else 0
  bool freed = false;        // in quarantine
  const char* free_api = "";
  HostStack allocation_stack;
  HostStack free_stack;
  bool pool = false;  // blocks were handed out of it
  // Captured graphs use it. A framework lets several graphs take turns in such memory, and hands
  // out and takes back their tensors without a word to anybody when they are replayed: its blocks
  // have a name and no bounds.
  bool graph_pool = false;
  // Set in answers about a block (then id, base and sizes are the block's), and for an allocation
  // that is a tensor of its own.
  std::shared_ptr<const TensorInfo> tensor;
  uint64_t segment_base = 0;  // of a block: the allocation it is part of, else 0
  uint64_t segment_bytes = 0;
  uint64_t died = 0;  // of a freed block: as in PoolBlock

  uint64_t end() const { return base + size_bytes; }
};

// The allocation that a block was handed out of.
struct SegmentOfBlock {
  uint64_t base = 0;
  uint64_t size_bytes = 0;
  void* context = nullptr;
  bool first_block = false;  // it was no pool before
  bool graph_pool = false;
  std::vector<PoolBlock> now_of_graphs;  // live blocks, if it was no graph's pool before
};

struct AllocationRange {
  uint64_t base = 0;
  uint64_t size_bytes = 0;
};

struct NearestAllocation {
  enum class Place : uint8_t { kInside, kBefore, kBehind };
  Allocation allocation;
  Place place = Place::kInside;
  uint64_t distance_bytes =
      0;  // kBefore: base - address; kBehind: address - end; kInside: address - base
};

class AllocationBook {
 public:
  // Enters a live allocation and returns its id. Whatever the book still held in its range is gone
  // without our having seen it, and leaves the book.
  uint64_t Insert(Allocation allocation);
  // Live -> quarantined. False: `base` is not the start of a live allocation.
  bool MarkFreed(uint64_t base, const char* free_api, HostStack free_stack);
  // Forgets an allocation, live or quarantined.
  std::optional<Allocation> Remove(uint64_t base);
  // Forgets all allocations of a context, which is being destroyed.
  void RemoveContext(const void* context);
  // Forgets the variables of an unloaded module: those whose `owner` is given.
  void RemoveOwner(uint64_t owner);

  // VMM: mappings of one reservation that touch are one allocation, and unmapping a part leaves the
  // rest.
  void InsertMapped(Allocation mapping);
  void RemoveMapped(uint64_t base, uint64_t size_bytes);

  // Pools. A block that is handed out ends whatever block was in its range. Empty: no live
  // allocation holds the range. `for_graph`: under capture.
  std::optional<SegmentOfBlock> HandOut(PoolBlock block, bool for_graph = false);
  // Live -> freed; the block is remembered until its memory is handed out again. Empty: no live
  // block starts there. The answer is the block as it was.
  std::optional<PoolBlock> GiveBack(uint64_t base, uint64_t time, const CodeLines& lines,
                                    HostStack free_stack);
  // True if the allocation that holds `address` is a pool.
  bool IsPool(uint64_t address) const;
  // Blocks of a range, live ones only; for tests and reports.
  size_t live_blocks() const;

  // What has not been freed, by address: allocations in the driver's view, and the blocks of pools.
  std::vector<Allocation> Live() const;
  std::vector<PoolBlock> LiveBlocks() const;
  // The same without anything but where, in the driver's view.
  std::vector<AllocationRange> LiveRanges() const;

  // Driver's view.
  // The allocation that starts at `base`.
  std::optional<Allocation> FindStart(uint64_t base) const;
  // The allocation with `address` in its size; with `reserved`, also in its red zone.
  std::optional<Allocation> FindContaining(uint64_t address, bool reserved = false) const;

  // Kernel's view: blocks come before the segment they lie in. `time` is a launch's number: of
  // several blocks that had the same memory, the one that had it then.
  std::optional<NearestAllocation> FindNearest(uint64_t address, uint64_t time = UINT64_MAX) const;
  // The block or allocation that starts at `base`; with `size_bytes`, preferably one of that size.
  std::optional<Allocation> FindInnermostStart(uint64_t base, uint64_t size_bytes = 0,
                                               uint64_t time = UINT64_MAX) const;
  // The block or allocation with `address` in its size.
  std::optional<Allocation> FindInnermost(uint64_t address, uint64_t time = UINT64_MAX) const;
  // The live allocation that a pointer held by the program belongs to: the one that holds it, else
  // the one it ends (a pointer behind the last element). An allocation that starts there comes
  // before one that ends there. In a pool: of blocks, false where none is.
  bool FindLive(uint64_t pointer, AllocationRange* range) const;

  size_t size() const;

 private:
  using Map = std::map<uint64_t, Allocation>;
  // Memory whose latest owner is `block`: a block that was given back may have lost parts of it.
  struct Span {
    uint64_t end = 0;
    std::shared_ptr<PoolBlock> block;
  };
  using SpanMap = std::map<uint64_t, Span>;

  Map::const_iterator AtOrBefore(uint64_t address) const;
  SpanMap::const_iterator SpanAtOrBefore(uint64_t address) const;
  void EraseOverlaps(uint64_t base, uint64_t end);
  // Ends the blocks of a range; what lies outside of it keeps its owner.
  void CutBlocks(uint64_t base, uint64_t end);
  void EraseEntry(Map::iterator at);
  std::shared_ptr<const PoolBlock> FindPast(uint64_t address, uint64_t time) const;
  std::optional<NearestAllocation> NearestBlock(const Allocation& segment, uint64_t address,
                                                uint64_t time) const;

  mutable std::shared_mutex mutex_;
  Map by_base_;
  SpanMap spans_;
  // Blocks whose memory was handed out again, latest last: a fault is reported later than it
  // happens.
  std::deque<std::shared_ptr<const PoolBlock>> past_;
  uint64_t next_id_ = 1;
};

}  // namespace ops_debug::shadow
