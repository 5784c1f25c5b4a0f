// Chunks of one call are allocated together, as large as they come: a buffer of some gigabytes
// would otherwise take tens of thousands of calls.
#include "shadow/host/race_cells.h"

#include <algorithm>
#include <bit>
#include <cstddef>

#include "shadow/abi/race_abi.h"

namespace ops_debug::shadow {
namespace {

constexpr uint64_t kDirectoryBytes = uint64_t{kRaceDirectoryEntries} * sizeof(uint64_t);
constexpr uint64_t kTableBytes = uint64_t{kRaceTableEntries} * sizeof(uint64_t);
constexpr uint32_t kChunksPerTableShift = kRaceDirectoryShift - kRaceChunkShift;
constexpr uint64_t kNamedBytes = uint64_t{kNamedWords} * sizeof(uint64_t);
constexpr uint64_t kChunkMemory = 1ull << kRaceChunkShift;

uint64_t FirstChunk(uint64_t address) { return address >> kRaceChunkShift; }
uint64_t EndChunk(uint64_t end) { return (end + kChunkMemory - 1) >> kRaceChunkShift; }

}  // namespace

bool RaceCells::Create() {
  std::lock_guard lock(mutex_);
  if (channel_ != 0) return true;
  channel_ = device_.Allocate(sizeof(RaceChannel));
  directory_ = device_.Allocate(kDirectoryBytes);
  empty_table_ = device_.Allocate(kTableBytes);
  bool ok = channel_ != 0 && directory_ != 0 && empty_table_ != 0 &&
            device_.Fill(channel_, 0, sizeof(RaceChannel)) &&
            device_.Fill(empty_table_, 0, kTableBytes);
  const std::vector<uint64_t> piece(16 * 1024, empty_table_);
  static_assert(kRaceDirectoryEntries % (16 * 1024) == 0);
  for (uint64_t entry = 0; ok && entry < kRaceDirectoryEntries; entry += piece.size()) {
    ok = device_.Write(directory_ + entry * sizeof(uint64_t), piece.data(),
                       piece.size() * sizeof(uint64_t));
  }
  ok = device_.Finish() && ok;
  if (ok) return true;
  for (uint64_t* address : {&channel_, &directory_, &empty_table_}) {
    if (*address != 0) device_.Free(*address);
    *address = 0;
  }
  return false;
}

uint64_t RaceCells::TableOf(uint64_t region) {
  const auto found = tables_.find(region);
  if (found != tables_.end()) return found->second;
  if (region >= kRaceDirectoryEntries || !Fits(kTableBytes)) return 0;
  const uint64_t table = device_.Allocate(kTableBytes);
  if (table == 0) return 0;
  // The contents precede the pointer: both go through one stream.
  if (!device_.Fill(table, 0, kTableBytes) ||
      !device_.Write(directory_ + region * sizeof(uint64_t), &table, sizeof table)) {
    device_.Free(table);
    return 0;
  }
  used_bytes_ += kTableBytes;
  tables_[region] = table;
  return table;
}

bool RaceCells::MakeChunks(uint64_t first, uint64_t end) {
  while (first < end) {
    const uint64_t region = first >> kChunksPerTableShift;
    const uint64_t region_end = std::min(end, (region + 1) << kChunksPerTableShift);
    const uint64_t table = TableOf(region);
    uint64_t count = region_end - first, memory = 0;
    while (table != 0 && count != 0) {
      memory = Fits(count * kRaceChunkBytes) ? device_.Allocate(count * kRaceChunkBytes) : 0;
      if (memory != 0) break;
      count /= 2;
    }
    if (memory == 0) return false;
    std::vector<uint64_t> pointers(count);
    for (uint64_t i = 0; i < count; i++) pointers[i] = memory + i * kRaceChunkBytes;
    const uint64_t place = first & ((1ull << kChunksPerTableShift) - 1);
    if (!device_.Fill(memory, 0, count * kRaceChunkBytes) ||
        !device_.Write(table + place * sizeof(uint64_t), pointers.data(),
                       count * sizeof(uint64_t))) {
      device_.Free(memory);
      return false;
    }
    used_bytes_ += count * kRaceChunkBytes;
    pieces_.push_back({memory, count * kRaceChunkBytes});
    for (uint64_t i = 0; i < count; i++) chunks_[first + i] = pointers[i];
    first += count;
  }
  return true;
}

bool RaceCells::Cover(uint64_t address, uint64_t size_bytes) {
  if (size_bytes == 0) return true;
  std::lock_guard lock(mutex_);
  if (directory_ == 0) return false;
  bool covered = true, changed = false;
  const uint64_t end = EndChunk(address + size_bytes);
  for (uint64_t at = FirstChunk(address); at < end;) {
    const auto known = chunks_.find(at);
    if (known != chunks_.end()) {
      covered = covered && known->second != 0;
      at++;
      continue;
    }
    uint64_t behind = at + 1;
    while (behind < end && !chunks_.contains(behind)) behind++;
    changed = true;
    if (!MakeChunks(at, behind)) {
      covered = false;
      for (uint64_t chunk = at; chunk < behind; chunk++) {
        if (chunks_.try_emplace(chunk, 0).second) uncovered_bytes_ += kChunkMemory;
      }
    }
    at = behind;
  }
  if (changed) covered = device_.Finish() && covered;
  return covered;
}

bool RaceCells::Renew(uint64_t address, uint64_t size_bytes, void* stream) {
  if (size_bytes == 0) return true;
  std::lock_guard lock(mutex_);
  bool ok = true, any = false;
  const uint64_t end = address + size_bytes;
  for (uint64_t chunk = FirstChunk(address); ok && chunk < EndChunk(end); chunk++) {
    const auto known = chunks_.find(chunk);
    if (known == chunks_.end() || known->second == 0) continue;
    const uint64_t from = std::max(address, chunk << kRaceChunkShift) & (kChunkMemory - 1);
    const uint64_t to = std::min(end - (chunk << kRaceChunkShift), kChunkMemory);
    // Words that are only partly in the range are the neighbour's, too; what they say of it is
    // worth less than a report that is wrong.
    const uint64_t first = from / 4 * sizeof(RaceCell),
                   bytes = (to + 3) / 4 * sizeof(RaceCell) - first;
    ok = stream ? device_.FillInStream(known->second + first, 0, bytes, stream)
                : device_.Fill(known->second + first, 0, bytes);
    any = true;
  }
  return (!any || stream || device_.Finish()) && ok;
}

bool RaceCells::HasShared(uint32_t slots, uint32_t words, bool named_barriers) const {
  std::lock_guard lock(mutex_);
  return shared_.cells != 0 && shared_.slots >= slots && shared_.words >= words &&
         (!named_barriers || shared_.named_barriers != 0);
}

bool RaceCells::GrowShared(uint32_t slots, uint32_t words, bool named_barriers) {
  std::lock_guard lock(mutex_);
  words = std::max(words, shared_.words);
  slots = std::bit_ceil(std::max(slots, shared_.slots));
  named_barriers = named_barriers || shared_.named_barriers != 0;
  const uint64_t slot_bytes = uint64_t{words} * kBytesPerWord + (named_barriers ? kNamedBytes : 0);
  if (shared_.cells != 0) {
    device_.Free(shared_.cells);
    used_bytes_ -= uint64_t{shared_.slots} * shared_.words * kBytesPerWord;
  }
  if (shared_.named_barriers != 0) {
    device_.Free(shared_.named_barriers);
    used_bytes_ -= shared_.slots * kNamedBytes;
  }
  shared_ = {};
  // Blocks that share a slot overlook conflicts, so fewer slots find less and stay right.
  for (; slots != 0; slots /= 2) {
    if (!Fits(slots * slot_bytes)) continue;
    const uint64_t cells_bytes = uint64_t{slots} * words * kBytesPerWord;
    const uint64_t cells = device_.Allocate(cells_bytes);
    const uint64_t named = named_barriers && cells != 0 ? device_.Allocate(slots * kNamedBytes) : 0;
    if (cells == 0 || (named_barriers && named == 0)) {
      if (cells != 0) device_.Free(cells);
      continue;
    }
    bool ok = device_.Fill(cells, 0, cells_bytes);
    if (named != 0) ok = device_.Fill(named, 0, slots * kNamedBytes) && ok;
    if (!device_.Finish() || !ok) {
      device_.Free(cells);
      if (named != 0) device_.Free(named);
      return false;
    }
    used_bytes_ += slots * slot_bytes;
    shared_ = {cells, named, slots, words};
    return true;
  }
  return false;
}

SharedCells RaceCells::shared() const {
  std::lock_guard lock(mutex_);
  return shared_;
}

bool RaceCells::ClearAll() {
  std::lock_guard lock(mutex_);
  bool ok = true;
  for (const Piece& piece : pieces_) ok = device_.Fill(piece.address, 0, piece.bytes) && ok;
  if (shared_.cells != 0) {
    ok = device_.Fill(shared_.cells, 0, uint64_t{shared_.slots} * shared_.words * kBytesPerWord) &&
         ok;
  }
  if (shared_.named_barriers != 0)
    ok = device_.Fill(shared_.named_barriers, 0, shared_.slots * kNamedBytes) && ok;
  if (channel_ != 0) {
    constexpr uint64_t kRings = offsetof(RaceChannel, sync_ring);  // and all that follows
    ok = device_.Fill(channel_ + kRings, 0, sizeof(RaceChannel) - kRings) && ok;
  }
  return device_.Finish() && ok;
}

uint64_t RaceCells::uncovered_bytes() const {
  std::lock_guard lock(mutex_);
  return uncovered_bytes_;
}

uint64_t RaceCells::device_bytes() const {
  std::lock_guard lock(mutex_);
  return channel_ == 0 ? 0 : used_bytes_ + sizeof(RaceChannel) + kDirectoryBytes + kTableBytes;
}

}  // namespace ops_debug::shadow
