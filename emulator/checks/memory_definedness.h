// Which bits of memory hold a value that somebody has written. Device memory page by page, as far
// as it was allocated for kernels alone (Renew); everything else (host memory, managed and pinned
// memory, variables of modules) always counts as defined. Shared and local memory are LocalBytes.
//
// A set bit means defined, so that memory nobody has touched costs nothing. What is stored
// undefined keeps the origin of the value, for each four bytes.
//
// Not thread-safe: under Checks::mutex.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "emulator/checks/launch_checks.h"
#include "emulator/checks/register_definedness.h"

namespace ops_debug::emulator {

inline constexpr uint64_t kDefinednessPageBytes = 4096;

class MemoryDefinedness : public DeviceObserver {
 public:
  ~MemoryDefinedness() override;

  // Undefined bits (one byte per byte) of at most kMaxAccessBytes bytes in one page; false if all
  // are defined.
  bool Load(uint64_t address, uint32_t bytes, uint8_t* undefined) const;
  // The value at `address` gets these undefined bits; null: none. In one page, too.
  void Store(uint64_t address, uint32_t bytes, const uint8_t* undefined, ReadOrigin origin);
  // Ranges of any size.
  void Define(uint64_t address, uint64_t bytes);
  bool LoadRange(uint64_t address, uint64_t bytes, uint8_t* undefined) const;
  void StoreRange(uint64_t address, uint64_t bytes, const uint8_t* undefined);
  bool KeepsOrigins() const { return !origins_.empty(); }
  // Of the undefined value at `address`; 0: nobody has written there.
  ReadOrigin OriginAt(uint64_t address) const;
  // All eight bits.
  bool IsUndefined(uint64_t address) const;

  // ---- DeviceObserver
  void Write(const DeviceOperation& operation, uint64_t address, uint64_t bytes) override;
  void Copy(uint64_t to, uint64_t from, uint64_t bytes) override;
  void Renew(uint64_t address, uint64_t bytes) override;
  void Forget(uint64_t address, uint64_t bytes) override;

 private:
  // Defined bits of a page; null if it always counts as defined.
  const uint8_t* Find(uint64_t page) const;
  uint8_t* FindToWrite(uint64_t page);
  uint8_t* MakePage(uint64_t page) const;
  bool IsTracked(uint64_t begin, uint64_t end) const;  // any byte
  void Drop(uint64_t page) const;
  void DropOrigins(uint64_t address, uint64_t bytes);

  struct CacheEntry {
    uint64_t page = ~0ull;
    uint8_t* bits = nullptr;  // null: not tracked
  };
  static constexpr size_t kCacheEntries = 256;

  std::map<uint64_t, uint64_t> tracked_;  // begin to end
  mutable std::unordered_map<uint64_t, uint8_t*>
      pages_;  // one page stands for all that are wholly defined
  mutable CacheEntry cache_[kCacheEntries];
  std::unordered_map<uint64_t, ReadOrigin> origins_;  // by address / 4
};

// Shared memory of a block, or the local memory of its threads.
class LocalBytes {
 public:
  explicit LocalBytes(size_t bytes);
  ~LocalBytes();
  LocalBytes(const LocalBytes&) = delete;
  LocalBytes& operator=(const LocalBytes&) = delete;

  size_t size() const { return size_; }
  bool Load(size_t offset, size_t bytes, uint8_t* undefined) const;
  void Store(size_t offset, size_t bytes, const uint8_t* undefined, ReadOrigin origin);
  void SetDefined(size_t offset, size_t bytes, bool defined);
  ReadOrigin OriginAt(size_t offset) const;
  bool IsUndefined(size_t offset) const { return offset < size_ && bits_[offset] == 0; }

 private:
  size_t size_;
  uint8_t* bits_;
  std::unordered_map<size_t, ReadOrigin> origins_;  // by offset / 4
};

}  // namespace ops_debug::emulator
