// Which waits of the host order nothing. A wait is called redundant only when that is certain from
// what is seen, for one of three reasons:
//
// - Nothing new: all that it waits for was waited for before.
// - Synchronous copies from pageable memory are all that it waits for. Such a copy returns when the
//   source may be used again, and brings nothing to the host; if all later work until the next wait
//   is in a stream that comes after the copies anyway, that order is enough.
// - Between it and the next wait there are only copies to the host, in a stream that comes after
//   everything that it waited for anyway, none of which wrote anything that the host can see.
//
// A place is reported if it waited at least kFewestWaits times and was redundant every time: a wait
// that is needed only sometimes is needed.
//
// Pure bookkeeping, not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <unordered_map>
#include <vector>

#include "shadow/host/stream_clocks.h"

namespace ops_debug::shadow {

// What a piece of work can do to the host.
enum class WorkEffect : uint8_t {
  kOther,       // not known, or the host sees it
  kKernel,      // whatever a kernel does
  kDeviceOnly,  // reads and writes device memory only
  kStagedCopy,  // the same: a synchronous copy of pageable memory to the device
  kCopyToHost,  // from device to host memory
};

enum class RedundantBecause : uint8_t { kNothingNew, kStagedCopy, kCopyBehind };

class SyncAudit {
 public:
  static constexpr uint64_t kFewestWaits = 2;

  void Submitted(const SubmittedOperation& operation, WorkEffect effect);

  // The host has waited for `point`, and may rely on it. `place` 0: not by a call that only waits.
  // `host_memory_written()` is asked if it matters: may kernels have written what the host can see
  // since the wait before?
  void Waited(uint64_t place, const OrderPoint& point,
              const std::function<bool()>& host_memory_written, uint64_t duration_ns);
  // The program is up to something that is not followed: what is open stays unproven.
  void Interrupted() { candidate_ = {}; }

  struct Place {
    uint64_t place = 0;
    uint64_t count = 0;
    uint64_t duration_ns = 0;
    RedundantBecause reason = RedundantBecause::kNothingNew;
  };
  std::vector<Place> Redundant() const;

 private:
  struct Pending {
    OperationId id;
    WorkEffect effect;
  };
  struct Candidate {
    uint64_t place = 0;  // 0: none
    RedundantBecause reason = RedundantBecause::kNothingNew;
    uint32_t slot = 0;      // that all later work must be in
    uint64_t follower = 0;  // number of the first of it
    uint64_t duration_ns = 0;
  };
  struct Counts {
    uint64_t waits = 0;
    uint64_t redundant = 0;
    uint64_t duration_ns = 0;
    RedundantBecause reason = RedundantBecause::kNothingNew;
  };

  void Judge(uint64_t place, const OrderPoint& point,
             const std::function<bool()>& host_memory_written, uint64_t duration_ns);
  void Confirm(uint64_t place, RedundantBecause reason, uint64_t duration_ns);

  VectorClock done_;                                  // what the host has waited for
  std::vector<Pending> pending_;                      // the rest
  bool overflowed_ = false;                           // some of it is missing
  std::unordered_map<uint32_t, VectorClock> latest_;  // operation of each slot
  Candidate candidate_;
  std::unordered_map<uint64_t, Counts> places_;
};

}  // namespace ops_debug::shadow
