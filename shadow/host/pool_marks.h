// What shadow memory says about the memory of pools, and what it should say. A pool hands out and
// takes back blocks far more often than anybody looks, so only the difference is ever written: a
// block that is given back and handed out again before the next launch costs nothing.
//
// An ordered map of ranges with equal state (granules of device_abi.h, half-open) holds two values
// each: `written`, what the device's shadow memory says once everything queued has run, and
// `wanted`. A mark that takes validity away carries the number of a batch: it may be written when
// that batch has ended (the caller knows what that means, see interposer/shadow_updates.h). A mark
// that gives validity may be written at any time.
//
// Such a mark can also be patient: it waits until its time has come or somebody asks for it. A
// program that works in a loop takes the same memory again before that, and then nothing was ever
// written. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <vector>

namespace ops_debug::shadow {

struct ShadowMark {
  uint64_t granule = 0;
  uint64_t count = 0;  // of granules
  uint8_t value = 0;
  bool operator==(const ShadowMark&) const = default;
};

class PoolMarks {
 public:
  // [begin, end) belongs to a pool from now on; shadow memory says `value` there.
  void Adopt(uint64_t begin, uint64_t end, uint8_t value);
  // Forgets a range, with whatever was still to be written there. False: none of it was adopted.
  bool Drop(uint64_t begin, uint64_t end);

  // What shadow memory should say, in the adopted parts of a range. Where a range is kept (Keep),
  // only 0 is accepted. `due`: time (as in Expire) until which a mark that takes validity away is
  // patient; 0: it is not.
  void Want(uint64_t begin, uint64_t end, uint8_t value, uint64_t batch, uint64_t due = 0);
  // Captured graphs use the range whenever they are replayed: it stays valid until it is dropped.
  void Keep(uint64_t begin, uint64_t end);

  // Something is to be written, beside patient marks.
  bool dirty() const { return !giving_.empty() || !taking_.empty(); }
  bool patient() const { return patient_count_ != 0; }
  // Patient marks whose time has come are so no more.
  void Expire(uint64_t now);
  // Somebody is about to use the granule: if a patient mark lies there, it and those that follow it
  // without a gap are so no more. True if there was one.
  bool Demand(uint64_t granule);
  void DemandAll();
  // Some memory must become valid before the next launch.
  bool urgent() const { return !giving_.empty(); }
  // Appends what is to be written: all marks that give validity, and those that take it whose batch
  // is at most `ended_batch`. They count as written then. Neighbours with the same value are one.
  void Take(uint64_t ended_batch, std::vector<ShadowMark>* marks);

  size_t ranges() const { return ranges_.size(); }
  // For tests: the values at one granule; false if it is not adopted.
  bool At(uint64_t granule, uint8_t* written, uint8_t* wanted) const;

 private:
  enum class List : uint8_t { kNone, kGiving, kTaking, kPatient };
  struct Range {
    uint64_t end = 0;
    uint8_t written = 0;
    uint8_t wanted = 0;
    bool kept = false;
    uint64_t batch = 0;  // of `wanted`, if it takes validity away
    uint64_t due = 0;    // not 0: it is patient
    List list = List::kNone;
  };
  using Map = std::map<uint64_t, Range>;

  void Split(uint64_t at);
  void Classify(uint64_t begin, Range& range);
  void Unlist(uint64_t begin, Range& range);
  // Joins the ranges that touch [begin, end] where nothing tells them apart any more.
  void Join(uint64_t begin, uint64_t end);

  Map ranges_;
  // Starts of ranges where `written` is not `wanted`; of the patient ones, the number.
  std::set<uint64_t> giving_, taking_;
  size_t patient_count_ = 0;
  struct Deadline {
    uint64_t due = 0;
    uint64_t begin = 0, end = 0;
  };
  std::deque<Deadline> deadlines_;  // of patient marks, some of them gone; the earliest first
};

}  // namespace ops_debug::shadow
