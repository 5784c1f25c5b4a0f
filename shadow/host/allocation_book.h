// Every allocation of the process that is live or in quarantine. One book serves all contexts: with
// unified addressing no two of them use the same address. Ranges never overlap; an ordered map
// answers "which one holds this address" and "which one is nearest". Thread-safe; answers are
// copies.
#pragma once

#include <cstdint>
#include <map>
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

  uint64_t end() const { return base + size_bytes; }
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

  // The allocation that starts at `base`.
  std::optional<Allocation> FindStart(uint64_t base) const;
  // The allocation with `address` in its size; with `reserved`, also in its red zone.
  std::optional<Allocation> FindContaining(uint64_t address, bool reserved = false) const;
  std::optional<NearestAllocation> FindNearest(uint64_t address) const;
  // The live allocation that a pointer held by the program belongs to: the one that holds it, else
  // the one it ends (a pointer behind the last element). An allocation that starts there comes
  // before one that ends there.
  bool FindLive(uint64_t pointer, AllocationRange* range) const;

  size_t size() const;

 private:
  using Map = std::map<uint64_t, Allocation>;
  Map::const_iterator AtOrBefore(uint64_t address) const;
  void EraseOverlaps(uint64_t base, uint64_t end);

  mutable std::shared_mutex mutex_;
  Map by_base_;
  uint64_t next_id_ = 1;
};

}  // namespace ops_debug::shadow
