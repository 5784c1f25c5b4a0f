// The allocator of device memory: whole pages, best fit among freed blocks, else the untouched end
// of the arena. One page stays unallocated behind every block, so a run past the end meets the page
// map and not a neighbour.
//
// A device that replays what another one did needs memory at that device's addresses, which lie
// anywhere. Its page map covers all addresses that a process can have; untouched, it costs nothing.
#include "emulator/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <iterator>

namespace ops_debug::emulator {
namespace {

constexpr uint64_t kGuardBytes = DeviceMemory::kPageBytes;
// Freed blocks of this size or more go back to the host at once.
constexpr uint64_t kReturnBytes = 256 * 1024;
constexpr uint64_t kAddressSpaceBytes = 1ull << 47;  // x86-64, four levels of page tables
// Of a device whose other memory is adopted.
constexpr uint64_t kSmallArenaBytes = 1ull << 34;

uint64_t RoundToPages(uint64_t size_bytes) {
  return (size_bytes + DeviceMemory::kPageBytes - 1) & ~(DeviceMemory::kPageBytes - 1);
}

void* Reserve(uint64_t size_bytes) {
  void* p = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return p == MAP_FAILED ? nullptr : p;
}

}  // namespace

DeviceMemory::DeviceMemory(Reach reach) {
  const bool anywhere = reach == Reach::kAnywhere;
  map_bytes_ = anywhere ? kAddressSpaceBytes : kArenaBytes;
  page_map_ = static_cast<uint8_t*>(Reserve(map_bytes_ / kPageBytes));
  if (page_map_ == nullptr) return;
  madvise(page_map_, map_bytes_ / kPageBytes, MADV_DONTDUMP);
  // A host with a limit on address space (ulimit -v, strict overcommit) gets a smaller device.
  const uint64_t most_bytes = anywhere ? kSmallArenaBytes : kArenaBytes;
  for (uint64_t bytes = most_bytes; bytes >= (1ull << 28); bytes /= 4) {
    void* arena = Reserve(bytes);
    if (arena == nullptr) continue;
    madvise(arena, bytes, MADV_DONTDUMP);
    arena_base_ = reinterpret_cast<uint64_t>(arena);
    arena_bytes_ = bytes;
    next_ = arena_base_;
    break;
  }
  if (!anywhere) map_base_ = arena_base_;
}

DeviceMemory::~DeviceMemory() {
  if (arena_bytes_ != 0) munmap(reinterpret_cast<void*>(arena_base_), arena_bytes_);
  if (page_map_ != nullptr) munmap(page_map_, map_bytes_ / kPageBytes);
}

uint64_t DeviceMemory::TakeFreeBlock(uint64_t rounded_bytes) {
  auto found = free_.lower_bound(rounded_bytes);
  if (found == free_.end()) return 0;
  const uint64_t block_bytes = found->first;
  const uint64_t base = found->second;
  const uint64_t rest_bytes = block_bytes - rounded_bytes;
  // A rest that cannot hold a guard and a page stays with the block until the block is freed again:
  // then it would be lost, so such blocks are left alone.
  if (rest_bytes != 0 && rest_bytes < kGuardBytes + kPageBytes) return 0;
  free_.erase(found);
  if (rest_bytes != 0) {
    free_.emplace(rest_bytes - kGuardBytes, base + rounded_bytes + kGuardBytes);
  }
  return base;
}

void DeviceMemory::SetPages(uint64_t base, uint64_t rounded_bytes, uint8_t value) {
  __builtin_memset(page_map_ + (base - map_base_) / kPageBytes, value, rounded_bytes / kPageBytes);
}

uint64_t DeviceMemory::Allocate(uint64_t size_bytes) {
  if (size_bytes == 0 || size_bytes > arena_bytes_) return 0;
  const uint64_t rounded_bytes = RoundToPages(size_bytes);
  const std::lock_guard lock(mutex_);
  uint64_t base = TakeFreeBlock(rounded_bytes);
  if (base == 0) {
    if (arena_base_ + arena_bytes_ - next_ < rounded_bytes + kGuardBytes) return 0;
    base = next_;
    next_ += rounded_bytes + kGuardBytes;
  }
  SetPages(base, rounded_bytes, 1);
  live_.emplace(base, size_bytes);
  allocated_bytes_ += size_bytes;
  return base;
}

bool DeviceMemory::Free(uint64_t address) {
  const std::lock_guard lock(mutex_);
  auto found = live_.find(address);
  if (found == live_.end()) return false;
  const uint64_t size_bytes = found->second;
  const uint64_t rounded_bytes = RoundToPages(size_bytes);
  allocated_bytes_ -= size_bytes;
  live_.erase(found);
  if (!InArena(address)) {
    CloseAdoptedPages(address, size_bytes);
    return true;
  }
  SetPages(address, rounded_bytes, 0);
  if (rounded_bytes >= kReturnBytes) {
    madvise(reinterpret_cast<void*>(address), rounded_bytes, MADV_DONTNEED);
  }
  free_.emplace(rounded_bytes, address);
  return true;
}

bool DeviceMemory::Adopt(uint64_t address, uint64_t size_bytes) {
  const uint64_t end = address + size_bytes;
  if (size_bytes == 0 || map_base_ != 0 || end <= address || end > map_bytes_) return false;
  if (address < arena_base_ + arena_bytes_ && end > arena_base_) return false;
  const std::lock_guard lock(mutex_);
  const auto next = live_.lower_bound(address);
  if (next != live_.end() && next->first < end) return false;
  if (next != live_.begin()) {
    const auto& [start, bytes] = *std::prev(next);
    if (address - start < bytes) return false;
  }
  const uint64_t first_page = address & ~(kPageBytes - 1);
  SetPages(first_page, RoundToPages(end) - first_page, 1);
  live_.emplace(address, size_bytes);
  allocated_bytes_ += size_bytes;
  return true;
}

// With the lock held, after the block has left live_: pages that no other block lies in.
void DeviceMemory::CloseAdoptedPages(uint64_t address, uint64_t size_bytes) {
  uint64_t first_page = address & ~(kPageBytes - 1);
  uint64_t end_page = RoundToPages(address + size_bytes);
  const auto next = live_.lower_bound(address);
  if (next != live_.end() && next->first < end_page) end_page = next->first & ~(kPageBytes - 1);
  if (next != live_.begin()) {
    const auto& [start, bytes] = *std::prev(next);
    first_page = std::max(first_page, RoundToPages(start + bytes));
  }
  if (first_page < end_page) SetPages(first_page, end_page - first_page, 0);
}

bool DeviceMemory::Owns(uint64_t address) const {
  return InArena(address) || (map_base_ == 0 && map_bytes_ != 0 && Find(address, nullptr, nullptr));
}

bool DeviceMemory::SetAllocationAccessible(uint64_t address, bool accessible) {
  const std::lock_guard lock(mutex_);
  const auto found = live_.find(address);
  if (found == live_.end()) return false;
  SetPages(address, RoundToPages(found->second), accessible ? 1 : 0);
  return true;
}

bool DeviceMemory::Find(uint64_t address, uint64_t* base, uint64_t* size_bytes) const {
  const std::lock_guard lock(mutex_);
  for (const auto* ranges : {&live_, &mappings_}) {
    auto above = ranges->upper_bound(address);
    if (above == ranges->begin()) continue;
    const auto& [start, bytes] = *--above;
    if (address - start >= bytes) continue;
    if (base != nullptr) *base = start;
    if (size_bytes != nullptr) *size_bytes = bytes;
    return true;
  }
  return false;
}

uint64_t DeviceMemory::allocated_bytes() const {
  const std::lock_guard lock(mutex_);
  return allocated_bytes_;
}

void DeviceMemory::CountAllocated(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  allocated_bytes_ += static_cast<uint64_t>(bytes);
}

void DeviceMemory::RegisterHostRange(uint64_t address, uint64_t size_bytes) {
  const std::lock_guard lock(mutex_);
  host_ranges_[address] = size_bytes;
}

void DeviceMemory::UnregisterHostRange(uint64_t address) {
  const std::lock_guard lock(mutex_);
  host_ranges_.erase(address);
}

bool DeviceMemory::InHostRange(uint64_t address, uint64_t size_bytes) const {
  const std::lock_guard lock(mutex_);
  auto above = host_ranges_.upper_bound(address);
  if (above == host_ranges_.begin()) return false;
  const auto& [start, bytes] = *--above;
  return address - start < bytes && size_bytes <= bytes - (address - start);
}

uint64_t DeviceMemory::ReserveAddresses(uint64_t size_bytes, uint64_t alignment_bytes) {
  if (size_bytes == 0 || size_bytes > arena_bytes_) return 0;
  const std::lock_guard lock(mutex_);
  // Freed reservations are ordinary free blocks; one serves again if it happens to be aligned.
  const auto fitting = free_.lower_bound(size_bytes);
  const bool aligned = fitting != free_.end() && fitting->second % alignment_bytes == 0;
  uint64_t base = aligned ? TakeFreeBlock(size_bytes) : 0;
  if (base == 0) {
    base = (next_ + alignment_bytes - 1) & ~(alignment_bytes - 1);
    const uint64_t end = arena_base_ + arena_bytes_;
    if (base < next_ || base > end || end - base < size_bytes + kGuardBytes) return 0;
    next_ = base + size_bytes + kGuardBytes;
  }
  reservations_.emplace(base, size_bytes);
  return base;
}

bool DeviceMemory::FreeReservation(uint64_t address) {
  const std::lock_guard lock(mutex_);
  const auto found = reservations_.find(address);
  if (found == reservations_.end()) return false;
  const auto mapping = mappings_.lower_bound(address);
  if (mapping != mappings_.end() && mapping->first - address < found->second) return false;
  free_.emplace(found->second, address);
  reservations_.erase(found);
  return true;
}

bool DeviceMemory::InReservation(uint64_t address, uint64_t size_bytes) const {
  const std::lock_guard lock(mutex_);
  auto above = reservations_.upper_bound(address);
  if (above == reservations_.begin()) return false;
  const auto& [start, bytes] = *--above;
  return address - start < bytes && size_bytes <= bytes - (address - start);
}

bool DeviceMemory::Map(uint64_t address, uint64_t size_bytes, int file, uint64_t offset) {
  const std::lock_guard lock(mutex_);
  const auto next = mappings_.lower_bound(address);
  if (next != mappings_.end() && next->first - address < size_bytes) return false;
  if (next != mappings_.begin()) {
    const auto& [start, bytes] = *std::prev(next);
    if (address - start < bytes) return false;
  }
  void* place = mmap(reinterpret_cast<void*>(address), size_bytes, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_FIXED, file, static_cast<off_t>(offset));
  if (place == MAP_FAILED) return false;
  mappings_.emplace(address, size_bytes);
  return true;
}

bool DeviceMemory::Unmap(uint64_t address, uint64_t size_bytes) {
  const std::lock_guard lock(mutex_);
  const auto first = mappings_.find(address);
  auto behind = first;
  uint64_t end = address;
  while (behind != mappings_.end() && behind->first == end && end - address < size_bytes) {
    end += behind->second;
    ++behind;
  }
  if (end - address != size_bytes) return false;
  SetPages(address, size_bytes, 0);
  // The arena's own memory again, untouched.
  void* place = mmap(reinterpret_cast<void*>(address), size_bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  if (place == MAP_FAILED) return false;
  mappings_.erase(first, behind);
  return true;
}

bool DeviceMemory::IsMapped(uint64_t address, uint64_t size_bytes) const {
  const std::lock_guard lock(mutex_);
  return IsCovered(address, size_bytes);
}

bool DeviceMemory::IsCovered(uint64_t address, uint64_t size_bytes) const {
  auto above = mappings_.upper_bound(address);
  if (above == mappings_.begin()) return false;
  --above;
  uint64_t end = address;
  while (above != mappings_.end() && above->first <= end) {
    end = above->first + above->second;
    if (end >= address + size_bytes) return true;
    ++above;
  }
  return false;
}

bool DeviceMemory::SetAccessible(uint64_t address, uint64_t size_bytes, bool accessible) {
  const std::lock_guard lock(mutex_);
  if (!IsCovered(address, size_bytes)) return false;
  SetPages(address, size_bytes, accessible ? 1 : 0);
  return true;
}

void DeviceMemory::SetPeer(const DeviceMemory& peer, bool accessible) {
  const std::lock_guard lock(mutex_);
  if (accessible) {
    peers_.insert(&peer);
  } else {
    peers_.erase(&peer);
  }
}

bool DeviceMemory::InPeer(uint64_t address, uint64_t size_bytes) const {
  const std::lock_guard lock(mutex_);
  return std::any_of(peers_.begin(), peers_.end(), [&](const DeviceMemory* peer) {
    return peer->InOwnPages(address, size_bytes);
  });
}

bool DeviceMemory::InOwnPages(uint64_t address, uint64_t size_bytes) const {
  const uint64_t first = address - map_base_;
  const uint64_t last = first + size_bytes - 1;
  if (first >= map_bytes_ || last >= map_bytes_ || last < first) return false;
  for (uint64_t page = first / kPageBytes; page <= last / kPageBytes; ++page) {
    if (page_map_[page] == 0) return false;
  }
  return true;
}

bool DeviceMemory::Accessible(uint64_t address, uint64_t size_bytes) const {
  if (size_bytes == 0 || InOwnPages(address, size_bytes)) return true;
  return InHostRange(address, size_bytes) || InPeer(address, size_bytes);
}

}  // namespace ops_debug::emulator
