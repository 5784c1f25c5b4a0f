// Marks ranges of shadow memory: whole chunks by changing the directory, parts by memsets into
// chunks of their own. Everything goes through one stream, in order.
#include "shadow/host/shadow_map.h"

#include <algorithm>
#include <vector>

#include "shadow/abi/device_abi.h"

namespace ops_debug::shadow {
namespace {

constexpr uint64_t kGranuleBytes = 1ull << kShadowGranuleShift;
constexpr uint32_t kGranulesPerChunkShift = kDirectoryShift - kShadowGranuleShift;
constexpr uint64_t kDirectoryBytes = (uint64_t{kDirectoryEntries} + 1) * sizeof(uint64_t);

uint64_t GranuleOf(uint64_t address) { return address >> kShadowGranuleShift; }
uint64_t GranuleBehind(uint64_t end) { return (end + kGranuleBytes - 1) >> kShadowGranuleShift; }

}  // namespace

ShadowMap::ShadowMap(DeviceOperations& device) : ShadowMap(device, kShadowUnknown, kShadowWild) {}

bool ShadowMap::Create() {
  std::lock_guard lock(mutex_);
  if (directory_ != 0) return true;
  const uint64_t directory = device_.Allocate(kDirectoryBytes);
  const uint64_t unknown = SharedChunk(unknown_);
  wild_chunk_ = device_.Allocate(kChunkBytes);
  bool ok = directory != 0 && unknown != 0 && wild_chunk_ != 0 &&
            device_.Fill(wild_chunk_, wild_, kChunkBytes);
  if (ok) {
    const std::vector<uint64_t> piece(64 * 1024, unknown);
    static_assert(kDirectoryEntries % (64 * 1024) == 0);
    for (uint64_t entry = 0; ok && entry < kDirectoryEntries; entry += piece.size()) {
      ok = device_.Write(directory + entry * sizeof(uint64_t), piece.data(),
                         piece.size() * sizeof(uint64_t));
    }
    ok = ok && device_.Write(directory + uint64_t{kDirectoryEntries} * sizeof(uint64_t),
                             &wild_chunk_, sizeof wild_chunk_);
    ok = ok && device_.Finish();
  }
  if (!ok) {
    for (uint64_t address : {directory, unknown, wild_chunk_}) {
      if (address != 0) device_.Free(address);
    }
    shared_.clear();
    wild_chunk_ = 0;
    return false;
  }
  directory_ = directory;
  return true;
}

uint64_t ShadowMap::SharedChunk(uint8_t value) {
  const auto found = shared_.find(value);
  if (found != shared_.end()) return found->second;
  const uint64_t chunk = device_.Allocate(kChunkBytes);
  if (chunk == 0) return 0;
  if (!device_.Fill(chunk, value, kChunkBytes)) {
    device_.Free(chunk);
    return 0;
  }
  shared_.emplace(value, chunk);
  return chunk;
}

// The chunk's contents precede the directory's pointer to it: both go through one stream.
bool ShadowMap::Point(uint64_t entry, uint64_t chunk) {
  return device_.Write(directory_ + entry * sizeof(uint64_t), &chunk, sizeof chunk);
}

uint64_t ShadowMap::OwnChunk(uint64_t entry) {
  const auto found = regions_.find(entry);
  if (found != regions_.end() && !found->second.shared) return found->second.chunk;
  const uint8_t value = found == regions_.end() ? unknown_ : found->second.value;
  const uint64_t chunk = device_.Allocate(kChunkBytes);
  if (chunk == 0) return 0;
  if (!device_.Fill(chunk, value, kChunkBytes) || !Point(entry, chunk)) {
    device_.Free(chunk);
    return 0;
  }
  regions_[entry] = {chunk, false, 0};
  return chunk;
}

bool ShadowMap::Fill(uint64_t first_granule, uint64_t end_granule, uint8_t value) {
  while (first_granule < end_granule) {
    const uint64_t entry = first_granule >> kGranulesPerChunkShift;
    if (entry >= kDirectoryEntries) return false;
    const uint64_t end = std::min(end_granule, (entry + 1) << kGranulesPerChunkShift);
    const uint64_t bytes = end - first_granule;
    const auto found = regions_.find(entry);
    const bool own = found != regions_.end() && !found->second.shared;
    const uint8_t now = found == regions_.end() ? unknown_ : found->second.value;
    if (!own && now == value) {
      // Says so already.
    } else if (!own && bytes == kChunkBytes) {
      const uint64_t chunk = SharedChunk(value);
      if (chunk == 0 || !Point(entry, chunk)) return false;
      regions_[entry] = {chunk, true, value};
    } else {
      const uint64_t chunk = OwnChunk(entry);
      if (chunk == 0 || !device_.Fill(chunk + (first_granule & (kChunkBytes - 1)), value, bytes)) {
        return false;
      }
    }
    first_granule = end;
  }
  return true;
}

bool ShadowMap::FillInStream(uint64_t first_granule, uint64_t end_granule, uint8_t value,
                             void* stream) {
  // Regions that change in the order of another stream need chunks of their own, complete before
  // that stream writes.
  for (uint64_t entry = first_granule >> kGranulesPerChunkShift;
       entry <= (end_granule - 1) >> kGranulesPerChunkShift; entry++) {
    if (entry >= kDirectoryEntries || OwnChunk(entry) == 0) return false;
  }
  if (!device_.Finish()) return false;
  while (first_granule < end_granule) {
    const uint64_t entry = first_granule >> kGranulesPerChunkShift;
    const uint64_t end = std::min(end_granule, (entry + 1) << kGranulesPerChunkShift);
    if (!device_.FillInStream(OwnChunk(entry) + (first_granule & (kChunkBytes - 1)), value,
                              end - first_granule, stream)) {
      return false;
    }
    first_granule = end;
  }
  return true;
}

bool ShadowMap::MarkValid(uint64_t address, uint64_t size_bytes, uint64_t reserved_bytes) {
  std::lock_guard lock(mutex_);
  if (directory_ == 0) return false;
  const uint64_t end = address + size_bytes;
  const bool red_zone = reserved_bytes > size_bytes;
  const uint64_t tail = red_zone ? end % kGranuleBytes : 0;
  const uint64_t valid_end = tail != 0 ? GranuleOf(end) : GranuleBehind(end);
  bool ok = Fill(GranuleOf(address), valid_end, 0);
  if (tail != 0) ok = ok && Fill(valid_end, valid_end + 1, static_cast<uint8_t>(tail));
  if (red_zone) {
    ok = ok && Fill(GranuleBehind(end), GranuleBehind(address + reserved_bytes), kShadowRedZone);
  }
  return device_.Finish() && ok;
}

bool ShadowMap::MarkFreed(uint64_t address, uint64_t reserved_bytes) {
  std::lock_guard lock(mutex_);
  if (directory_ == 0) return false;
  const bool ok = Fill(GranuleOf(address), GranuleBehind(address + reserved_bytes), kShadowFreed);
  return device_.Finish() && ok;
}

bool ShadowMap::Mark(uint64_t address, uint64_t size_bytes, uint8_t value) {
  std::lock_guard lock(mutex_);
  if (directory_ == 0) return false;
  const bool ok = Fill(GranuleOf(address), GranuleBehind(address + size_bytes), value);
  return device_.Finish() && ok;
}

bool ShadowMap::MarkAllInStream(uint8_t value, void* stream) {
  std::lock_guard lock(mutex_);
  bool ok = true;
  for (const auto& [entry, region] : regions_) {
    if (!region.shared) ok = device_.FillInStream(region.chunk, value, kChunkBytes, stream) && ok;
  }
  return ok;
}

bool ShadowMap::MarkUnknown(uint64_t address, uint64_t reserved_bytes) {
  std::lock_guard lock(mutex_);
  if (directory_ == 0) return false;
  const bool ok = Fill(GranuleOf(address), GranuleBehind(address + reserved_bytes), unknown_);
  return device_.Finish() && ok;
}

bool ShadowMap::MarkFreedInStream(uint64_t address, uint64_t reserved_bytes, void* stream) {
  std::lock_guard lock(mutex_);
  if (directory_ == 0) return false;
  return FillInStream(GranuleOf(address), GranuleBehind(address + reserved_bytes), kShadowFreed,
                      stream);
}

bool ShadowMap::MarkUnknownInStream(uint64_t address, uint64_t reserved_bytes, void* stream) {
  std::lock_guard lock(mutex_);
  if (directory_ == 0) return false;
  return FillInStream(GranuleOf(address), GranuleBehind(address + reserved_bytes), unknown_,
                      stream);
}

bool ShadowMap::Prepare(uint64_t address, uint64_t size_bytes) {
  if (size_bytes == 0) return true;
  std::lock_guard lock(mutex_);
  if (directory_ == 0) return false;
  const uint64_t last = (address + size_bytes - 1) >> kDirectoryShift;
  for (uint64_t entry = address >> kDirectoryShift; entry <= last; entry++) {
    if (entry >= kDirectoryEntries || OwnChunk(entry) == 0) return false;
  }
  return device_.Finish();
}

uint64_t ShadowMap::ByteAddress(uint64_t granule) const {
  std::lock_guard lock(mutex_);
  const auto found = regions_.find(granule >> kGranulesPerChunkShift);
  if (found == regions_.end() || found->second.shared) return 0;
  return found->second.chunk + (granule & (kChunkBytes - 1));
}

void ShadowMap::Destroy() {
  std::lock_guard lock(mutex_);
  if (directory_ == 0) return;
  for (const auto& [entry, region] : regions_) {
    if (!region.shared) device_.Free(region.chunk);
  }
  for (const auto& [value, chunk] : shared_) device_.Free(chunk);
  regions_.clear();
  shared_.clear();
  device_.Free(wild_chunk_);
  device_.Free(directory_);
  directory_ = wild_chunk_ = 0;
}

uint64_t ShadowMap::device_bytes() const {
  std::lock_guard lock(mutex_);
  if (directory_ == 0) return 0;
  uint64_t chunks = shared_.size() + 1;
  for (const auto& [entry, region] : regions_) chunks += region.shared ? 0 : 1;
  return kDirectoryBytes + chunks * kChunkBytes;
}

}  // namespace ops_debug::shadow
