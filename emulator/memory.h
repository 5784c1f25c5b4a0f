// Device memory of the CPU device. Device addresses are host addresses inside one reserved arena
// (identity mapping), so a lane's load is an ordinary load once the address has been checked
// against the page map.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>

namespace ops_debug::emulator {

class DeviceMemory {
 public:
  static constexpr uint64_t kPageBytes = 4096;
  static constexpr uint64_t kArenaBytes = 1ull
                                          << 38;  // address space only; pages are touched on demand

  // Reserves the arena. With kAnywhere, blocks can also be adopted outside of it.
  enum class Reach : uint8_t { kArena, kAnywhere };
  explicit DeviceMemory(Reach reach = Reach::kArena);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // 256-byte aligned, zero pages on first touch (contents otherwise undefined, as on a GPU); 0 when
  // full. Neighbouring allocations may share no page, so an access past the last page faults, as on
  // a GPU (which has larger pages: an overflow inside the last page is silent on both).
  uint64_t Allocate(uint64_t size_bytes);
  bool Free(uint64_t address);  // false: not the start of a live allocation
  // Makes memory that the process has mapped itself, with its contents, an allocation: of a device
  // with Reach::kAnywhere, outside the arena, of any alignment; it may share pages with other such
  // blocks. False if one of them overlaps it. Free leaves it mapped.
  bool Adopt(uint64_t address, uint64_t size_bytes);
  // Whether kernels may touch a live allocation (they may at first): memory of a graph that is
  // between two of its launches. False: not the start of one.
  bool SetAllocationAccessible(uint64_t address, bool accessible);
  // The allocation or the mapping that holds `address`; false if none.
  bool Find(uint64_t address, uint64_t* base, uint64_t* size_bytes) const;
  uint64_t allocated_bytes() const;
  // Counts memory that lives outside the arena (what Map shows) as allocated, or takes it off.
  void CountAllocated(int64_t bytes);

  // Host memory that kernels may access at its own address (cuMemHostRegister). Pinned and managed
  // memory comes from Allocate, which is host-accessible anyway.
  void RegisterHostRange(uint64_t address, uint64_t size_bytes);
  void UnregisterHostRange(uint64_t address);

  // Lets kernels of this device access `peer`'s memory, or not. A peer lives as long as the
  // process.
  void SetPeer(const DeviceMemory& peer, bool accessible);

  // ---- Virtual memory management: address ranges whose memory is chosen later. Sizes and
  // addresses are multiples of kPageBytes. A range of addresses without memory, aligned to
  // `alignment_bytes` (a power of two); 0 when full.
  uint64_t ReserveAddresses(uint64_t size_bytes, uint64_t alignment_bytes);
  bool FreeReservation(uint64_t address);  // false: no reservation starts there, or it is mapped
  // The reservation that holds all of [address, address + size_bytes).
  bool InReservation(uint64_t address, uint64_t size_bytes) const;
  // Shows `size_bytes` of `file` from `offset` on at `address`, in a reservation, not yet
  // accessible to kernels. Several mappings of one file are one memory. False: overlaps a mapping,
  // or no host memory is left.
  bool Map(uint64_t address, uint64_t size_bytes, int file, uint64_t offset);
  // False unless whole mappings lie side by side in the range.
  bool Unmap(uint64_t address, uint64_t size_bytes);
  bool IsMapped(uint64_t address, uint64_t size_bytes) const;  // by mappings without a gap
  // Lets kernels access the mapped range, or not. False if a part is not mapped.
  bool SetAccessible(uint64_t address, uint64_t size_bytes, bool accessible);

  // True if all bytes may be accessed by a kernel. The executor inlines the first test on
  // page_map().
  bool Accessible(uint64_t address, uint64_t size_bytes) const;

  uint64_t arena_base() const { return arena_base_; }
  bool InArena(uint64_t address) const { return address - arena_base_ < arena_bytes_; }
  // In the arena or in an adopted block.
  bool Owns(uint64_t address) const;
  // One byte per page of [map_base, map_base + map_bytes): 1 = allocated.
  const uint8_t* page_map() const { return page_map_; }
  uint64_t map_base() const { return map_base_; }
  uint64_t map_bytes() const { return map_bytes_; }

 private:
  uint64_t TakeFreeBlock(uint64_t rounded_bytes);
  void CloseAdoptedPages(uint64_t address, uint64_t size_bytes);
  void SetPages(uint64_t base, uint64_t rounded_bytes, uint8_t value);
  bool InHostRange(uint64_t address, uint64_t size_bytes) const;
  bool InPeer(uint64_t address, uint64_t size_bytes) const;
  bool InOwnPages(uint64_t address, uint64_t size_bytes) const;
  bool IsCovered(uint64_t address, uint64_t size_bytes) const;  // IsMapped with the lock held

  uint64_t arena_base_ = 0;
  uint64_t arena_bytes_ = 0;  // what the host let us reserve, at most kArenaBytes
  uint8_t* page_map_ = nullptr;
  uint64_t map_base_ = 0;
  uint64_t map_bytes_ = 0;
  mutable std::mutex mutex_;
  std::map<uint64_t, uint64_t> live_;         // base -> requested bytes
  std::multimap<uint64_t, uint64_t> free_;    // page-rounded bytes -> base
  std::map<uint64_t, uint64_t> host_ranges_;  // base -> bytes
  std::set<const DeviceMemory*> peers_;
  std::map<uint64_t, uint64_t> reservations_;  // base -> bytes
  std::map<uint64_t, uint64_t> mappings_;      // base -> bytes
  uint64_t next_ = 0;  // address behind the last block ever carved from the arena
  uint64_t allocated_bytes_ = 0;
};

}  // namespace ops_debug::emulator
