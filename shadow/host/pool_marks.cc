// The interval map behind pool_marks.h: split at the ends of what changes, change, join again.
#include "shadow/host/pool_marks.h"

#include <algorithm>
#include <iterator>

namespace ops_debug::shadow {
namespace {

constexpr uint8_t kGranuleBytes = 8;

// Values below 8 say how many leading bytes are addressable, 0 meaning all; others say none.
uint8_t ValidBytes(uint8_t value) {
  if (value == 0) return kGranuleBytes;
  return value < kGranuleBytes ? value : 0;
}

// Some byte becomes addressable. (A partial granule that grows never has to lose bytes as well.)
bool GivesValidity(uint8_t written, uint8_t wanted) {
  return ValidBytes(wanted) > ValidBytes(written);
}

}  // namespace

void PoolMarks::Unlist(uint64_t begin, Range& range) {
  if (range.list == List::kGiving) giving_.erase(begin);
  if (range.list == List::kTaking) taking_.erase(begin);
  if (range.list == List::kPatient) patient_count_--;
  range.list = List::kNone;
}

void PoolMarks::Classify(uint64_t begin, Range& range) {
  List list = List::kNone;
  if (range.written != range.wanted) {
    list = GivesValidity(range.written, range.wanted) ? List::kGiving
           : range.due != 0                           ? List::kPatient
                                                      : List::kTaking;
  }
  if (list == range.list) return;
  Unlist(begin, range);
  range.list = list;
  if (list == List::kGiving) giving_.insert(begin);
  if (list == List::kTaking) taking_.insert(begin);
  if (list == List::kPatient) patient_count_++;
}

void PoolMarks::Split(uint64_t at) {
  auto after = ranges_.upper_bound(at);
  if (after == ranges_.begin()) return;
  const auto holder = std::prev(after);
  if (holder->first == at || holder->second.end <= at) return;
  Range rest = holder->second;
  holder->second.end = at;
  rest.list = List::kNone;
  Classify(at, ranges_.emplace_hint(after, at, rest)->second);
}

void PoolMarks::Join(uint64_t begin, uint64_t end) {
  auto at = ranges_.lower_bound(begin);
  if (at != ranges_.begin()) --at;
  while (at != ranges_.end()) {
    const auto next = std::next(at);
    if (next == ranges_.end() || next->first > end) return;
    Range &low = at->second, &high = next->second;
    const bool same = low.end == next->first && low.written == high.written &&
                      low.wanted == high.wanted && low.kept == high.kept &&
                      (low.written == low.wanted ||
                       (low.batch == high.batch && (low.due != 0) == (high.due != 0)));
    if (!same) {
      at = next;
      continue;
    }
    low.end = high.end;
    low.due = std::max(low.due, high.due);
    Unlist(next->first, high);
    ranges_.erase(next);
  }
}

void PoolMarks::Adopt(uint64_t begin, uint64_t end, uint8_t value) {
  if (begin >= end) return;
  Drop(begin, end);
  Range range;
  range.end = end;
  range.written = range.wanted = value;
  ranges_.emplace(begin, range);
  Join(begin, end);
}

bool PoolMarks::Drop(uint64_t begin, uint64_t end) {
  if (begin >= end) return false;
  Split(begin);
  Split(end);
  bool any = false;
  for (auto at = ranges_.lower_bound(begin); at != ranges_.end() && at->first < end;) {
    Unlist(at->first, at->second);
    at = ranges_.erase(at);
    any = true;
  }
  return any;
}

void PoolMarks::Want(uint64_t begin, uint64_t end, uint8_t value, uint64_t batch, uint64_t due) {
  if (begin >= end) return;
  if (due != 0) deadlines_.push_back({due, begin, end});
  Split(begin);
  Split(end);
  for (auto at = ranges_.lower_bound(begin); at != ranges_.end() && at->first < end; ++at) {
    Range& range = at->second;
    if (range.kept && value != 0) continue;
    range.wanted = value;
    range.batch = batch;
    range.due = due;
    Classify(at->first, range);
  }
  Join(begin, end);
}

void PoolMarks::Expire(uint64_t now) {
  while (!deadlines_.empty() && deadlines_.front().due <= now) {
    const Deadline deadline = deadlines_.front();
    deadlines_.pop_front();
    auto at = ranges_.upper_bound(deadline.begin);
    if (at != ranges_.begin()) --at;
    for (; at != ranges_.end() && at->first < deadline.end; ++at) {
      Range& range = at->second;
      if (range.due == 0 || range.due > now) continue;
      range.due = 0;
      Classify(at->first, range);
    }
  }
}

bool PoolMarks::Demand(uint64_t granule) {
  auto at = ranges_.upper_bound(granule);
  if (at == ranges_.begin()) return false;
  --at;
  if (at->second.end <= granule) return false;
  bool any = false;
  for (; at != ranges_.end() && at->second.list == List::kPatient; ++at) {
    at->second.due = 0;
    Classify(at->first, at->second);
    any = true;
    const auto next = std::next(at);
    if (next == ranges_.end() || next->first != at->second.end) break;
  }
  return any;
}

void PoolMarks::DemandAll() {
  for (auto& [begin, range] : ranges_) {
    range.due = 0;
    Classify(begin, range);
  }
}

void PoolMarks::Keep(uint64_t begin, uint64_t end) {
  if (begin >= end) return;
  Split(begin);
  Split(end);
  for (auto at = ranges_.lower_bound(begin); at != ranges_.end() && at->first < end; ++at) {
    at->second.kept = true;
    at->second.wanted = 0;
    at->second.due = 0;
    Classify(at->first, at->second);
  }
  Join(begin, end);
}

void PoolMarks::Take(uint64_t ended_batch, std::vector<ShadowMark>* marks) {
  const size_t first = marks->size();
  std::vector<uint64_t> starts(giving_.begin(), giving_.end());
  for (const uint64_t begin : taking_) {
    if (ranges_.at(begin).batch <= ended_batch) starts.push_back(begin);
  }
  std::sort(starts.begin(), starts.end());
  for (const uint64_t begin : starts) {
    Range& range = ranges_.at(begin);
    range.written = range.wanted;
    range.due = 0;
    Classify(begin, range);
    const uint64_t count = range.end - begin;
    if (marks->size() > first && marks->back().value == range.wanted &&
        marks->back().granule + marks->back().count == begin) {
      marks->back().count += count;
    } else {
      marks->push_back({begin, count, range.wanted});
    }
  }
  for (size_t i = first; i < marks->size(); i++) {
    Join((*marks)[i].granule, (*marks)[i].granule + (*marks)[i].count);
  }
}

bool PoolMarks::At(uint64_t granule, uint8_t* written, uint8_t* wanted) const {
  auto after = ranges_.upper_bound(granule);
  if (after == ranges_.begin()) return false;
  const Range& range = std::prev(after)->second;
  if (range.end <= granule) return false;
  *written = range.written;
  *wanted = range.wanted;
  return true;
}

}  // namespace ops_debug::shadow
