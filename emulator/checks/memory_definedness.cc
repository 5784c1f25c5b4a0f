// Pages of defined bits, made when somebody writes; ranges of any size are cut at their borders.
#include "emulator/checks/memory_definedness.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>

namespace ops_debug::emulator {
namespace {

constexpr uint64_t kPage = kDefinednessPageBytes;

// Stands for every page whose bits are all defined. Never written.
struct AllDefined {
  uint8_t bits[kPage];
  AllDefined() { std::memset(bits, 0xff, sizeof(bits)); }
};
uint8_t* Wholly() {
  static AllDefined page;
  return page.bits;
}

bool Invert(const uint8_t* defined, size_t bytes, uint8_t* undefined) {
  uint8_t any = 0;
  for (size_t i = 0; i < bytes; ++i) {
    undefined[i] = static_cast<uint8_t>(~defined[i]);
    any |= undefined[i];
  }
  return any != 0;
}

// body(page, first byte in it, bytes) for the pages of a range.
template <class Body>
void ForEachPage(uint64_t address, uint64_t bytes, Body body) {
  while (bytes != 0) {
    const uint64_t offset = address % kPage;
    const uint64_t part = std::min(bytes, kPage - offset);
    body(address / kPage, offset, part);
    address += part;
    bytes -= part;
  }
}

}  // namespace

MemoryDefinedness::~MemoryDefinedness() {
  for (const auto& [page, bits] : pages_) {
    if (bits != Wholly()) delete[] bits;
  }
}

bool MemoryDefinedness::IsTracked(uint64_t begin, uint64_t end) const {
  auto above = tracked_.lower_bound(end);
  if (above == tracked_.begin()) return false;
  return (--above)->second > begin;
}

// Bytes of the page that no allocation holds count as defined.
uint8_t* MemoryDefinedness::MakePage(uint64_t page) const {
  const uint64_t begin = page * kPage, end = begin + kPage;
  auto* bits = new uint8_t[kPage];
  std::memset(bits, 0xff, kPage);
  auto range = tracked_.upper_bound(begin);
  if (range != tracked_.begin()) --range;
  for (; range != tracked_.end() && range->first < end; ++range) {
    const uint64_t first = std::max(range->first, begin), last = std::min(range->second, end);
    if (first < last) std::memset(bits + (first - begin), 0, last - first);
  }
  pages_[page] = bits;
  cache_[page % kCacheEntries] = {page, bits};
  return bits;
}

const uint8_t* MemoryDefinedness::Find(uint64_t page) const {
  CacheEntry& entry = cache_[page % kCacheEntries];
  if (entry.page == page) return entry.bits;
  const auto found = pages_.find(page);
  if (found != pages_.end()) {
    entry = {page, found->second};
  } else if (IsTracked(page * kPage, (page + 1) * kPage)) {
    return MakePage(page);
  } else {
    entry = {page, nullptr};
  }
  return entry.bits;
}

uint8_t* MemoryDefinedness::FindToWrite(uint64_t page) {
  const uint8_t* const bits = Find(page);
  if (bits == nullptr || bits != Wholly()) return const_cast<uint8_t*>(bits);
  auto* own = new uint8_t[kPage];
  std::memset(own, 0xff, kPage);
  pages_[page] = own;
  cache_[page % kCacheEntries] = {page, own};
  return own;
}

void MemoryDefinedness::Drop(uint64_t page) const {
  const auto found = pages_.find(page);
  if (found != pages_.end()) {
    if (found->second != Wholly()) delete[] found->second;
    pages_.erase(found);
  }
  cache_[page % kCacheEntries] = {};
}

void MemoryDefinedness::DropOrigins(uint64_t address, uint64_t bytes) {
  if (origins_.empty()) return;
  if (bytes / 4 < origins_.size()) {
    for (uint64_t word = address / 4; word <= (address + bytes - 1) / 4; ++word)
      origins_.erase(word);
    return;
  }
  std::erase_if(origins_, [&](const auto& entry) { return entry.first * 4 - address < bytes; });
}

bool MemoryDefinedness::Load(uint64_t address, uint32_t bytes, uint8_t* undefined) const {
  const uint8_t* const bits = Find(address / kPage);
  if (bits == nullptr || bits == Wholly()) {
    return false;
  }
  return Invert(bits + address % kPage, bytes, undefined);
}

void MemoryDefinedness::Store(uint64_t address, uint32_t bytes, const uint8_t* undefined,
                              ReadOrigin origin) {
  const uint64_t page = address / kPage;
  const uint64_t offset = address % kPage;
  if (undefined == nullptr) {
    const uint8_t* const bits = Find(page);
    if (bits != nullptr && bits != Wholly())
      std::memset(const_cast<uint8_t*>(bits) + offset, 0xff, bytes);
    return;
  }
  uint8_t* const bits = FindToWrite(page);
  if (bits == nullptr) return;
  Invert(undefined, bytes, bits + offset);
  for (uint64_t word = address / 4; word <= (address + bytes - 1) / 4; ++word)
    origins_[word] = origin;
}

void MemoryDefinedness::Define(uint64_t address, uint64_t bytes) {
  if (bytes == 0 || !IsTracked(address, address + bytes)) return;
  ForEachPage(address, bytes, [&](uint64_t page, uint64_t offset, uint64_t part) {
    if (part == kPage) {
      if (!IsTracked(page * kPage, (page + 1) * kPage)) return;
      Drop(page);
      pages_[page] = Wholly();
      return;
    }
    const uint8_t* const bits = Find(page);
    if (bits != nullptr && bits != Wholly())
      std::memset(const_cast<uint8_t*>(bits) + offset, 0xff, part);
  });
}

bool MemoryDefinedness::LoadRange(uint64_t address, uint64_t bytes, uint8_t* undefined) const {
  bool any = false;
  ForEachPage(address, bytes, [&](uint64_t page, uint64_t offset, uint64_t part) {
    const uint8_t* const bits = Find(page);
    if (bits == nullptr) {
      std::memset(undefined, 0, part);
    } else {
      any = Invert(bits + offset, part, undefined) || any;
    }
    undefined += part;
  });
  return any;
}

void MemoryDefinedness::StoreRange(uint64_t address, uint64_t bytes, const uint8_t* undefined) {
  ForEachPage(address, bytes, [&](uint64_t page, uint64_t offset, uint64_t part) {
    if (uint8_t* const bits = FindToWrite(page)) Invert(undefined, part, bits + offset);
    undefined += part;
  });
}

ReadOrigin MemoryDefinedness::OriginAt(uint64_t address) const {
  if (origins_.empty()) return 0;
  const auto found = origins_.find(address / 4);
  return found == origins_.end() ? 0 : found->second;
}

bool MemoryDefinedness::IsUndefined(uint64_t address) const {
  const uint8_t* const bits = Find(address / kPage);
  return bits != nullptr && bits[address % kPage] == 0;
}

void MemoryDefinedness::Write(const DeviceOperation& /*operation*/, uint64_t address,
                              uint64_t bytes) {
  Define(address, bytes);
}

// ReadOrigins travel with the bytes.
void MemoryDefinedness::Copy(uint64_t to, uint64_t from, uint64_t bytes) {
  if (bytes == 0 || !IsTracked(to, to + bytes)) return;
  if (!IsTracked(from, from + bytes)) return Define(to, bytes);
  std::vector<uint8_t> undefined(bytes);
  if (!LoadRange(from, bytes, undefined.data())) return Define(to, bytes);
  StoreRange(to, bytes, undefined.data());
  DropOrigins(to, bytes);
  if (origins_.empty() || (to - from) % 4 != 0) return;
  std::vector<std::pair<uint64_t, ReadOrigin>> moved;
  for (const auto& [word, origin] : origins_) {
    if (word * 4 - from < bytes) moved.emplace_back(word + (to - from) / 4, origin);
  }
  for (const auto& [word, origin] : moved) origins_[word] = origin;
}

void MemoryDefinedness::Renew(uint64_t address, uint64_t bytes) {
  if (bytes == 0) return;
  Forget(address, bytes);
  const uint64_t end = address + bytes;
  tracked_[address] = end;
  // Whole pages are made when they are touched; of the others, parts exist already.
  for (uint64_t page : {address / kPage, (end - 1) / kPage}) {
    const auto found = pages_.find(page);
    cache_[page % kCacheEntries] = {};
    if (found == pages_.end()) continue;
    uint8_t* const bits = FindToWrite(page);
    const uint64_t first = std::max(address, page * kPage);
    const uint64_t last = std::min(end, (page + 1) * kPage);
    std::memset(bits + (first - page * kPage), 0, last - first);
  }
  for (CacheEntry& entry : cache_) {
    if (entry.bits == nullptr) entry = {};
  }
}

void MemoryDefinedness::Forget(uint64_t address, uint64_t bytes) {
  if (bytes == 0) return;
  const uint64_t end = address + bytes;
  DropOrigins(address, bytes);
  auto range = tracked_.upper_bound(address);
  if (range != tracked_.begin()) --range;
  while (range != tracked_.end() && range->first < end) {
    const auto [first, last] = *range;
    if (last <= address) {
      ++range;
      continue;
    }
    range = tracked_.erase(range);
    if (first < address) tracked_[first] = address;
    if (last > end) tracked_[end] = last;
  }
  // Pages that nothing is left of are dropped; in others the bytes are defined.
  const uint64_t first_page = address / kPage, last_page = (end - 1) / kPage;
  const auto forget_page = [&](uint64_t page) {
    if (!IsTracked(page * kPage, (page + 1) * kPage)) return Drop(page);
    const uint64_t first = std::max(address, page * kPage);
    const uint64_t last = std::min(end, (page + 1) * kPage);
    uint8_t* const bits = FindToWrite(page);
    if (bits != nullptr) std::memset(bits + (first - page * kPage), 0xff, last - first);
  };
  if (last_page - first_page < pages_.size()) {
    for (uint64_t page = first_page; page <= last_page; ++page) forget_page(page);
    return;
  }
  std::vector<uint64_t> known;
  for (const auto& [page, bits] : pages_) {
    if (page >= first_page && page <= last_page) known.push_back(page);
  }
  for (const uint64_t page : known) forget_page(page);
  for (CacheEntry& entry : cache_) entry = {};
}

// Large ones (stacks) come as untouched pages.
LocalBytes::LocalBytes(size_t bytes) : size_(bytes) {
  void* const pages = mmap(nullptr, std::max<size_t>(bytes, 1), PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) throw std::bad_alloc();
  bits_ = static_cast<uint8_t*>(pages);
}
LocalBytes::~LocalBytes() { munmap(bits_, std::max<size_t>(size_, 1)); }

bool LocalBytes::Load(size_t offset, size_t bytes, uint8_t* undefined) const {
  return Invert(bits_ + offset, bytes, undefined);
}

void LocalBytes::Store(size_t offset, size_t bytes, const uint8_t* undefined, ReadOrigin origin) {
  if (undefined == nullptr) {
    std::memset(bits_ + offset, 0xff, bytes);
    return;
  }
  Invert(undefined, bytes, bits_ + offset);
  for (size_t word = offset / 4; word <= (offset + bytes - 1) / 4; ++word) origins_[word] = origin;
}

void LocalBytes::SetDefined(size_t offset, size_t bytes, bool defined) {
  if (bytes == 0) return;
  std::memset(bits_ + offset, defined ? 0xff : 0, bytes);
  if (defined || origins_.empty()) return;
  if (bytes / 4 < origins_.size()) {
    for (size_t word = offset / 4; word <= (offset + bytes - 1) / 4; ++word) origins_.erase(word);
  } else {
    std::erase_if(origins_, [&](const auto& entry) { return entry.first * 4 - offset < bytes; });
  }
}

ReadOrigin LocalBytes::OriginAt(size_t offset) const {
  if (origins_.empty()) return 0;
  const auto found = origins_.find(offset / 4);
  return found == origins_.end() ? 0 : found->second;
}

}  // namespace ops_debug::emulator
