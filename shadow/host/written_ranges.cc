// Intervals in sorted maps. Few: an allocation that is written in many pieces is given up.
#include "shadow/host/written_ranges.h"

#include <algorithm>
#include <iterator>

namespace ops_debug::shadow {
namespace {

constexpr size_t kMostPieces = 256;

void Cut(std::map<uint64_t, uint64_t>& pieces, uint64_t first, uint64_t end) {
  auto at = pieces.upper_bound(first);
  if (at != pieces.begin() && std::prev(at)->second > first) --at;
  while (at != pieces.end() && at->first < end) {
    const auto [piece_first, piece_end] = *at;
    at = pieces.erase(at);
    if (piece_first < first) pieces.emplace(piece_first, first);
    if (piece_end > end) pieces.emplace(end, piece_end);
  }
}

void Add(std::map<uint64_t, uint64_t>& pieces, uint64_t first, uint64_t end) {
  auto at = pieces.upper_bound(first);
  if (at != pieces.begin() && std::prev(at)->second >= first) --at;
  while (at != pieces.end() && at->first <= end) {
    first = std::min(first, at->first);
    end = std::max(end, at->second);
    at = pieces.erase(at);
  }
  if (pieces.size() < kMostPieces) pieces.emplace(first, end);
}

uint64_t EndOf(uint64_t address, uint64_t size_bytes) {
  const uint64_t end = address + size_bytes;
  return end < address ? UINT64_MAX : end;
}

bool Holds(const std::map<uint64_t, uint64_t>& pieces, uint64_t first, uint64_t end) {
  const auto behind = pieces.upper_bound(first);
  return behind != pieces.begin() && std::prev(behind)->second >= end;
}

}  // namespace

WrittenRanges::Extents::const_iterator WrittenRanges::FirstBehind(uint64_t address) const {
  auto at = extents_.upper_bound(address);
  if (at != extents_.begin() && std::prev(at)->second.end > address) --at;
  return at;
}

void WrittenRanges::Allocated(uint64_t base, uint64_t size_bytes) {
  const uint64_t end = EndOf(base, size_bytes);
  for (auto at = FirstBehind(base); at != extents_.end() && at->first < end;)
    at = extents_.erase(at);
  extents_[base].end = end;
}

void WrittenRanges::Written(uint64_t address, uint64_t size_bytes) {
  const uint64_t end = EndOf(address, size_bytes);
  for (auto found = FirstBehind(address); found != extents_.end() && found->first < end; ++found) {
    Extent& extent = extents_.find(found->first)->second;
    Add(extent.written, std::max(address, found->first), std::min(end, extent.end));
  }
}

void WrittenRanges::Unknown(uint64_t address, uint64_t size_bytes, bool forever) {
  const uint64_t end = EndOf(address, size_bytes);
  for (auto found = FirstBehind(address); found != extents_.end() && found->first < end; ++found) {
    Extent& extent = extents_.find(found->first)->second;
    extent.lost |= forever;
    Cut(extent.written, address, end);
  }
}

void WrittenRanges::AllWritten() {
  for (auto& [base, extent] : extents_) {
    extent.written.clear();
    extent.written.emplace(base, extent.end);
  }
}

bool WrittenRanges::AreWritten(uint64_t address, uint64_t size_bytes) const {
  const uint64_t end = EndOf(address, size_bytes);
  for (auto at = FirstBehind(address); at != extents_.end() && at->first < end; ++at) {
    const Extent& extent = at->second;
    if (extent.lost ||
        !Holds(extent.written, std::max(address, at->first), std::min(end, extent.end)))
      return false;
  }
  return true;
}

WrittenRanges::Answer WrittenRanges::WhollyWritten(uint64_t address) const {
  const auto at = FirstBehind(address);
  if (at == extents_.end() || at->first > address) return Answer::kNotAllocated;
  const Extent& extent = at->second;
  const bool written = !extent.lost && Holds(extent.written, at->first, extent.end);
  return written ? Answer::kWritten : Answer::kUnknown;
}

}  // namespace ops_debug::shadow
