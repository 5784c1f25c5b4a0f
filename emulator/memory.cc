// The allocator of device memory: whole pages, best fit among freed blocks, else the untouched end
// of the arena. One page stays unallocated behind every block, so a run past the end meets the page
// map and not a neighbour.
#include "emulator/memory.h"

#include <sys/mman.h>

namespace ops_debug::emulator {
namespace {

constexpr uint64_t kGuardBytes = DeviceMemory::kPageBytes;
// Freed blocks of this size or more go back to the host at once.
constexpr uint64_t kReturnBytes = 256 * 1024;

uint64_t RoundToPages(uint64_t size_bytes) {
  return (size_bytes + DeviceMemory::kPageBytes - 1) & ~(DeviceMemory::kPageBytes - 1);
}

void* Reserve(uint64_t size_bytes) {
  void* p = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return p == MAP_FAILED ? nullptr : p;
}

}  // namespace

DeviceMemory::DeviceMemory() {
  page_map_ = static_cast<uint8_t*>(Reserve(kArenaBytes / kPageBytes));
  if (page_map_ == nullptr) return;
  // A host with a limit on address space (ulimit -v, strict overcommit) gets a smaller device.
  for (uint64_t bytes = kArenaBytes; bytes >= (1ull << 28); bytes /= 4) {
    void* arena = Reserve(bytes);
    if (arena == nullptr) continue;
    madvise(arena, bytes, MADV_DONTDUMP);
    arena_base_ = reinterpret_cast<uint64_t>(arena);
    arena_bytes_ = bytes;
    next_ = arena_base_;
    break;
  }
}

DeviceMemory::~DeviceMemory() {
  if (arena_bytes_ != 0) munmap(reinterpret_cast<void*>(arena_base_), arena_bytes_);
  if (page_map_ != nullptr) munmap(page_map_, kArenaBytes / kPageBytes);
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
  __builtin_memset(page_map_ + (base - arena_base_) / kPageBytes, value,
                   rounded_bytes / kPageBytes);
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
  const uint64_t rounded_bytes = RoundToPages(found->second);
  allocated_bytes_ -= found->second;
  live_.erase(found);
  SetPages(address, rounded_bytes, 0);
  if (rounded_bytes >= kReturnBytes) {
    madvise(reinterpret_cast<void*>(address), rounded_bytes, MADV_DONTNEED);
  }
  free_.emplace(rounded_bytes, address);
  return true;
}

bool DeviceMemory::Find(uint64_t address, uint64_t* base, uint64_t* size_bytes) const {
  const std::lock_guard lock(mutex_);
  auto above = live_.upper_bound(address);
  if (above == live_.begin()) return false;
  const auto& [start, bytes] = *--above;
  if (address - start >= bytes) return false;
  if (base != nullptr) *base = start;
  if (size_bytes != nullptr) *size_bytes = bytes;
  return true;
}

uint64_t DeviceMemory::allocated_bytes() const {
  const std::lock_guard lock(mutex_);
  return allocated_bytes_;
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

bool DeviceMemory::Accessible(uint64_t address, uint64_t size_bytes) const {
  if (size_bytes == 0) return true;
  const uint64_t first = address - arena_base_;
  const uint64_t last = first + size_bytes - 1;
  if (first >= arena_bytes_ || last >= arena_bytes_ || last < first) {
    return InHostRange(address, size_bytes);
  }
  for (uint64_t page = first / kPageBytes; page <= last / kPageBytes; ++page) {
    if (page_map_[page] == 0) return false;
  }
  return true;
}

}  // namespace ops_debug::emulator
