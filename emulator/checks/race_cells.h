// Who has touched four bytes of memory, as far as a later access could still race with it.
//
// FastTrack (Flanagan, Freund, PLDI 2009) keeps the last write and the last reads. Two things are
// added. Masks say which bytes an access touched, so that neighbouring bytes never conflict. And
// strong accesses (atomics, relaxed, volatile) may be unordered without a race among themselves,
// so they are kept beside the weak ones, and do not replace them: a later weak access has to be
// ordered behind each.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "emulator/checks/thread_clock.h"

namespace ops_debug::emulator {

inline constexpr uint32_t kCellBytes = 4;

// Number of an access's description (race_memory.h): site, kind, order.
using DescriptorId = uint32_t;

// Accesses by lanes of one warp, each at its own clock, which is the same number for all of them.
struct Record {
  static constexpr uint32_t kMask = 15;    // bytes of the cell
  static constexpr uint32_t kSilent = 16;  // a write that found the bytes as it left them
  static constexpr uint32_t kUpdate = 32;  // a volatile write of what its thread has just read
  static constexpr uint32_t kShift = 8;

  ActorId actor = 0;
  uint32_t lanes = 0;
  uint32_t clock = 0;
  uint32_t what = 0;

  uint32_t mask() const { return what & kMask; }
  DescriptorId descriptor() const { return what >> kShift; }
  bool is_silent() const { return (what & kSilent) != 0; }
  bool is_update() const { return (what & kUpdate) != 0; }
  void RemoveBytes(uint32_t mask) { what &= ~mask; }
};

class RecordSet {
 public:
  bool empty() const { return records_.empty(); }
  size_t size() const { return records_.size(); }
  const std::vector<Record>& records() const { return records_; }

  // `is_past(record)`: it happens before whoever touches the cell now, so it need not be kept.
  template <class IsPast>
  void Add(const Record& record, const IsPast& is_past) {
    const size_t newest = records_.size() > kSearched ? records_.size() - kSearched : 0;
    for (size_t i = records_.size(); i-- > newest;) {
      Record& known = records_[i];
      if (known.actor != record.actor || known.what != record.what) continue;
      if (known.clock == record.clock) {
        known.lanes |= record.lanes;
        return;
      }
      if ((known.lanes & ~record.lanes) == 0) {
        known = record;
        return;
      }
    }
    if (records_.size() >= limit_) Compact(is_past);
    records_.push_back(record);
  }

  void RemoveBytes(uint32_t mask) {
    for (Record& record : records_) record.RemoveBytes(mask);
    std::erase_if(records_, [](const Record& record) { return record.mask() == 0; });
    limit_ = kSmall;
  }

 private:
  static constexpr size_t kSearched = 4;
  static constexpr size_t kSmall = 16;

  template <class IsPast>
  void Compact(const IsPast& is_past) {
    std::erase_if(records_, is_past);
    // A lane's later access stands for its earlier ones of the same kind.
    std::stable_sort(records_.begin(), records_.end(), [](const Record& a, const Record& b) {
      return a.actor != b.actor ? a.actor < b.actor
             : a.what != b.what ? a.what < b.what
                                : a.clock > b.clock;
    });
    uint32_t seen = 0;
    for (size_t i = 0; i < records_.size(); ++i) {
      Record& record = records_[i];
      const bool same =
          i > 0 && records_[i - 1].actor == record.actor && records_[i - 1].what == record.what;
      if (!same) seen = 0;
      const uint32_t lanes = record.lanes;
      record.lanes &= ~seen;
      seen |= lanes;
    }
    std::erase_if(records_, [](const Record& record) { return record.lanes == 0; });
    limit_ = std::max(kSmall, 2 * records_.size());
  }

  std::vector<Record> records_;
  size_t limit_ = kSmall;
};

struct Cell {
  // Latest weak accesses; further ones, of other bytes or unordered, are in `more`.
  Record write, read;
  struct More {
    RecordSet writes, reads, strong_writes, strong_reads;
  };
  std::unique_ptr<More> more;
  // What stores have left, for "the same value": memory itself may be late in a chosen schedule.
  std::byte value[kCellBytes] = {};

  More& EnsureMore() {
    if (more == nullptr) more = std::make_unique<More>();
    return *more;
  }
  // Whether all bytes of `mask` have been written by somebody who is recorded.
  bool IsWritten(uint32_t mask) const {
    uint32_t written = write.mask();
    if (more != nullptr) {
      for (const Record& record : more->writes.records()) written |= record.mask();
      for (const Record& record : more->strong_writes.records()) written |= record.mask();
    }
    return (mask & ~written) == 0;
  }
};

// Tells `judge` of what conflicts with the access `now`, and records it. Judge:
//   bool IsBefore(const Record&)                  it happens before the access
//   bool AreStrongTogether(const Record&)         both strong, in scopes that hold both threads
//   void Race(const Record&, bool is_write)
template <class Judge>
void TouchCell(Cell& cell, const Record& now, bool is_write, bool is_strong, Judge& judge) {
  const uint32_t mask = now.mask();
  const auto check = [&](const Record& record, bool record_writes, bool record_is_strong) {
    if ((record.mask() & mask) == 0 || judge.IsBefore(record)) return;
    if (is_strong && record_is_strong && judge.AreStrongTogether(record)) return;
    judge.Race(record, record_writes);
  };
  check(cell.write, true, false);
  if (is_write) check(cell.read, false, false);
  if (cell.more != nullptr) {
    for (const Record& record : cell.more->writes.records()) check(record, true, false);
    for (const Record& record : cell.more->strong_writes.records()) check(record, true, true);
    if (is_write) {
      for (const Record& record : cell.more->reads.records()) check(record, false, false);
      for (const Record& record : cell.more->strong_reads.records()) check(record, false, true);
    }
  }
  const auto is_past = [&judge](const Record& record) { return judge.IsBefore(record); };
  if (is_strong) {
    Cell::More& more = cell.EnsureMore();
    (is_write ? more.strong_writes : more.strong_reads).Add(now, is_past);
    return;
  }
  if (is_write) {
    cell.read.RemoveBytes(mask);
    if (cell.more != nullptr) {
      for (RecordSet* set : {&cell.more->writes, &cell.more->reads, &cell.more->strong_writes,
                             &cell.more->strong_reads})
        if (!set->empty()) set->RemoveBytes(mask);
    }
    cell.write.RemoveBytes(mask);
    if (cell.write.mask() != 0) cell.EnsureMore().writes.Add(cell.write, is_past);
    cell.write = now;
    return;
  }
  Record& read = cell.read;
  if (read.actor == now.actor && read.clock == now.clock && read.what == now.what) {
    read.lanes |= now.lanes;
  } else if (read.mask() == 0 || ((read.mask() & ~mask) == 0 && judge.IsBefore(read))) {
    read = now;
  } else {
    cell.EnsureMore().reads.Add(now, is_past);
  }
}

}  // namespace ops_debug::emulator
