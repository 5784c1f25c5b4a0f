// Shadow memory of one context: one byte per 8 bytes of device memory behind a directory of chunks,
// as device_abi.h describes (the encoding is AddressSanitizer's: Serebryany et al., USENIX ATC
// 2012). Every region of 64 MiB starts out at a shared chunk that says "unknown", so a look-up on
// the device never needs a test. A region that one range covers whole leads to another shared chunk
// ("valid" or "freed"), so large buffers cost no shadow memory; only where a region is mixed does
// it get a chunk of its own. Thread-safe.
#pragma once

#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "shadow/host/device_operations.h"

namespace ops_debug::shadow {

class ShadowMap {
 public:
  // `device` must outlive the map.
  explicit ShadowMap(DeviceOperations& device);
  // For shadow memory of another meaning: what bytes are at first, and beyond all addresses.
  ShadowMap(DeviceOperations& device, uint8_t unknown, uint8_t wild)
      : device_(device), unknown_(unknown), wild_(wild) {}
  ShadowMap(const ShadowMap&) = delete;
  ShadowMap& operator=(const ShadowMap&) = delete;

  // Makes the directory and the first shared chunks (32 MiB). False: no memory; the map then stays
  // empty and marking does nothing.
  bool Create();
  // Device address of the directory; 0 before Create.
  uint64_t directory() const { return directory_; }

  // [address, address + size) becomes addressable and [address + size, address + reserved) a red
  // zone. Without a red zone (reserved == size) the last granule counts as addressable to its end,
  // because what follows may be anybody's.
  bool MarkValid(uint64_t address, uint64_t size_bytes, uint64_t reserved_bytes);
  // The whole of [address, address + reserved).
  bool MarkFreed(uint64_t address, uint64_t reserved_bytes);
  // All of its bytes; for shadow memory of another meaning.
  bool Mark(uint64_t address, uint64_t size_bytes, uint8_t value);
  // Every byte of every region that has a chunk of its own, in stream order.
  bool MarkAllInStream(uint8_t value, void* stream);
  bool MarkUnknown(uint64_t address, uint64_t reserved_bytes);
  // The same when the work queued on `stream` so far is done.
  bool MarkFreedInStream(uint64_t address, uint64_t reserved_bytes, void* stream);
  bool MarkUnknownInStream(uint64_t address, uint64_t reserved_bytes, void* stream);

  // Gives every region of [address, address + size) a chunk of its own, so that its shadow bytes
  // have an address that stays (ByteAddress) and others may write them.
  bool Prepare(uint64_t address, uint64_t size_bytes);
  // Device address of a granule's shadow byte in a prepared region, else 0. The following granules
  // of the region follow it.
  uint64_t ByteAddress(uint64_t granule) const;

  // Returns all device memory.
  void Destroy();
  uint64_t device_bytes() const;

 private:
  // Where a directory entry leads, if not to the unknown chunk.
  struct Region {
    uint64_t chunk = 0;
    bool shared = false;
    uint8_t value = 0;  // of all bytes, if shared
  };

  bool Fill(uint64_t first_granule, uint64_t end_granule, uint8_t value);
  bool FillInStream(uint64_t first_granule, uint64_t end_granule, uint8_t value, void* stream);
  // Device address of the region's own chunk, made if needed with the contents that it has now; 0
  // if impossible.
  uint64_t OwnChunk(uint64_t entry);
  // Device address of the chunk full of `value`, made if needed; 0 if impossible.
  uint64_t SharedChunk(uint8_t value);
  bool Point(uint64_t entry, uint64_t chunk);

  DeviceOperations& device_;
  const uint8_t unknown_, wild_;
  mutable std::mutex mutex_;
  uint64_t directory_ = 0;
  uint64_t wild_chunk_ = 0;
  std::unordered_map<uint8_t, uint64_t> shared_;  // value -> device address
  std::unordered_map<uint64_t, Region> regions_;  // by directory entry
};

}  // namespace ops_debug::shadow
