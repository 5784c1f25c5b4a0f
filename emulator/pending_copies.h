// Asynchronous copies that have been started and not yet performed.
//
// Hardware performs them at any time between the instruction and the wait for it. Here that is as
// late as the program's own waits allow: when a thread waits for the copy's group or asks for the
// phase of its mbarrier, when a block has nothing else to do, and when it ends. The source is read
// then too. So a program that forgets a wait, or overwrites a source too early, sees it in its
// results, and one that waits as PTX asks cannot tell the difference.
//
// One object per cluster: its blocks share a host thread, and copies cross between them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "emulator/checks/agent_work.h"
#include "emulator/isa/lane_ops.h"

namespace ops_debug::emulator {

class AsyncOrder;
struct Block;
struct Function;
struct Warp;

// What one bulk or tensor copy, reduction or asynchronous store does. Its addresses were checked
// when the instruction was executed.
class Transfer {
 public:
  Transfer() = default;
  virtual ~Transfer() = default;
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;
  // Takes the source into memory of its own; afterwards the source may change.
  virtual void Read() = 0;
  virtual void Write() = 0;

  // For checks: the pieces in which bytes travel. `from` null: no memory is read for it.
  using Piece = std::function<void(std::byte* to, const std::byte* from, uint64_t bytes)>;
  virtual void ForEachPiece(const Piece& piece) const = 0;
  virtual bool reduces() const { return false; }  // combines with what is there, atomically
  bool by_proxy() const { return by_proxy_; }     // the async proxy does it; else the generic one
  void set_by_proxy(bool by_proxy) { by_proxy_ = by_proxy; }

 private:
  bool by_proxy_ = true;
};

// Where a copy was started, for checks.
struct CopyOrigin {
  uint32_t lane = 0;
  const Function* function = nullptr;
  uint32_t statement = 0;
  AgentWork work;   // if races are checked
  AgentWork reads;  // in a bulk group: `work` is the writes then
};

// An mbarrier: eight bytes at `offset` in the shared memory of `block`.
struct MbarrierPlace {
  Block* block = nullptr;
  uint32_t offset = 0;
  bool operator==(const MbarrierPlace&) const = default;
  std::byte* word() const;
};

// One cp.async of a warp.
struct CopyRow {
  uint32_t lanes = 0;
  uint32_t bytes = 0;  // written per lane
  std::byte* target[kWarpLanes];
  const std::byte* source[kWarpLanes];
  uint8_t copied[kWarpLanes];  // bytes from the source; the rest is zero
  // Where it was started, and the work of each lane if races are checked (else empty).
  const Function* function = nullptr;
  uint32_t statement = 0;
  std::vector<AgentWork> works;
};

class PendingCopies {
 public:
  PendingCopies(uint32_t blocks, uint32_t warps_per_block);
  ~PendingCopies();

  // ---- bulk copies
  // Completes `bytes` of the transaction count of `mbarrier`.
  void Start(Warp& warp, uint32_t lane, std::unique_ptr<Transfer> transfer, MbarrierPlace mbarrier,
             uint32_t bytes);
  // Belongs to the bulk group that the thread commits next.
  void StartInGroup(Warp& warp, uint32_t lane, std::unique_ptr<Transfer> transfer);
  void CommitBulkGroup(const Warp& warp, uint32_t lanes);
  // Until at most `groups` of each thread's groups are pending; with `read_only` only their sources
  // are done with.
  void WaitForBulkGroups(const Warp& warp, uint32_t lanes, uint32_t groups, bool read_only);

  // ---- cp.async
  void Start(const Warp& warp, const CopyRow& row);
  void CommitGroup(const Warp& warp, uint32_t lanes);
  void WaitForGroups(const Warp& warp, uint32_t lanes, uint32_t groups);
  void WaitForAll(const Warp& warp, uint32_t lanes);
  // An arrival at `mbarrier` once all earlier cp.async of the thread are complete.
  void ArriveLater(const Warp& warp, uint32_t lane, MbarrierPlace mbarrier);

  // ---- completion
  bool HasFor(MbarrierPlace mbarrier) const;
  // Performs everything that completes on `mbarrier`. What was wrong with it, empty if nothing.
  std::string CompleteFor(MbarrierPlace mbarrier);
  // Performs what the threads of `block` have started; false if that is nothing.
  bool PerformAllOf(const Block& block);
  // For the next cluster that takes this one's place.
  void Reset();

 private:
  struct Bulk {
    std::unique_ptr<Transfer> transfer;
    MbarrierPlace mbarrier;  // block null: in a group
    uint32_t bytes = 0;
    Warp* warp = nullptr;
    uint32_t lane = 0;
    uint64_t group = 0;
    bool is_read = false;
    CopyOrigin origin;
    // Performed, but kept for the checks until its thread waits for its group.
    bool IsDone() const { return transfer == nullptr; }
    bool awaits_wait = false;
  };
  struct Row {
    CopyRow copy;
    uint64_t group = 0;
    uint64_t serial = 0;
    bool is_performed = false;  // kept for the checks until its threads wait for its group
  };
  struct Arrival {
    MbarrierPlace mbarrier;
    const Warp* warp = nullptr;
    uint32_t lane = 0;
    uint64_t serial = 0;  // after the rows before it
  };
  // What a warp's threads have started.
  struct WarpCopies {
    std::vector<Row> rows;
    uint64_t committed[kWarpLanes] = {};
    uint64_t bulk_committed[kWarpLanes] = {};
    // Of copies whose completion an mbarrier was told of; for checks.
    std::vector<AgentWork> arrived;
  };

  WarpCopies& Of(const Warp& warp);
  static CopyOrigin OriginOf(Warp& warp, uint32_t lane, const Transfer& transfer,
                             const MbarrierPlace* mbarrier);
  static void Perform(const Warp& warp, const CopyRow& copy, uint32_t lanes);
  // Performs rows of a group below limit[lane] that came before `serial`. The knowledge of their
  // lanes' copies goes to the lanes, or to `mbarrier`.
  static void PerformRows(const Warp& warp, WarpCopies& copies, uint32_t lanes,
                          const uint64_t* limit, uint64_t serial,
                          const MbarrierPlace* mbarrier = nullptr);
  static void TellDone(AsyncOrder& order, const Warp& warp, WarpCopies& copies, uint32_t lanes,
                       const AgentWork* const* latest, const MbarrierPlace* mbarrier);
  static std::string Finish(Bulk& bulk);
  void ForgetDone();
  std::string Finish(const Arrival& arrival);

  uint32_t warps_per_block_;
  std::vector<WarpCopies> warps_;  // by rank and warp
  std::vector<Bulk> bulk_;         // in the order of their start
  std::vector<Arrival> arrivals_;
  uint64_t next_serial_ = 0;
};

}  // namespace ops_debug::emulator
