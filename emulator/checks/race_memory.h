// The state of race detection that outlives a launch: who has touched which bytes of global memory
// (race_cells.h), who the actors are that records name, and in which order operations come.
//
// Copies and fills are one access each: a page that one covers as a whole keeps it once, and needs
// no cells.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "emulator/checks/checks.h"
#include "emulator/checks/race_cells.h"
#include "emulator/checks/race_sync.h"
#include "emulator/checks/thread_clock.h"

namespace ops_debug::emulator {

// proto MissingOrder.
enum class Missing : uint32_t {
  kUnspecified = 0,
  kBlockBarrier,
  kWarpBarrier,
  kClusterBarrier,
  kGridBarrier,
  kAtomic,
  kAcquire,
  kRelease,
  kScope,
  kCopyWait,
  kMbarrierWait,
  kProxyFence,
  kGridDependency,
  kEvent,
  kHostSync,
  kWgmmaWait,
};

// proto Race.Kind.
enum class RaceKind : uint32_t { kUnspecified, kShared, kGlobal, kWarp, kStream, kAtomics };

// What records have in common that one instruction made in one way.
struct AccessDescription {
  SiteId site = kNoSite;
  AccessKind kind = AccessKind::kLoad;
  AccessOrder order;
  const char* semantics = nullptr;  // other than those of `order`
  uint32_t bytes = 0;
  bool is_operation = false;
  bool is_shared = false;
  bool by_agent = false;

  bool Writes() const { return kind != AccessKind::kLoad; }
};
// "relaxed.gpu", "volatile", "weak".
std::string SemanticsOf(const AccessDescription& description);

// Actors with consecutive numbers: the warps of a launch (or one agent of each), or an operation.
struct Origin {
  ActorId first = 0;
  uint32_t count = 1;
  shadow::OperationId id;
  uint64_t token = 0;
  uint64_t serial = 0;
  bool is_host = false;
  // Of a launch:
  bool is_launch = false;
  bool is_agent = false;
  std::shared_ptr<const std::string> kernel;
  Dim3 grid, cluster, block;
  uint32_t warps_per_block = 1;

  uint32_t cluster_blocks() const { return cluster.x * cluster.y * cluster.z; }
  uint64_t BlockNumber(ActorId actor) const { return (actor - first) / warps_per_block; }
};

// A piece of memory under watch, in cells.
class CellPages {
 public:
  static constexpr uint32_t kPageBytes = 1024;
  static constexpr uint32_t kPageCells = kPageBytes / kCellBytes;
  struct Page {
    std::unique_ptr<Cell[]> cells;
    // Of the whole page, by operations, before everything that the cells tell.
    Record bulk_write;
    std::vector<Record> bulk_reads;
  };

  Page& At(uint64_t address) {
    const uint64_t number = address / kPageBytes;
    if (number == last_number_ && last_ != nullptr) return *last_;
    last_number_ = number;
    last_ = &pages_[number];
    return *last_;
  }
  Cell& CellAt(Page& page, uint64_t address) {
    if (page.cells == nullptr) {
      page.cells = std::make_unique<Cell[]>(kPageCells);
      ++pages_with_cells_;
    }
    return page.cells[address % kPageBytes / kCellBytes];
  }
  void Forget(uint64_t address, uint64_t bytes);
  void Clear();
  // Calls `visit` with the records of writes to the range.
  template <class Visit>
  void ForEachWrite(uint64_t address, uint64_t bytes, Visit visit) const {
    for (uint64_t number = address / kPageBytes; number * kPageBytes < address + bytes; ++number) {
      const auto found = pages_.find(number);
      if (found == pages_.end()) continue;
      const Page& page = found->second;
      if (page.bulk_write.mask() != 0) visit(page.bulk_write);
      for (uint32_t i = 0; page.cells != nullptr && i < kPageCells; ++i) {
        const uint64_t at = number * kPageBytes + uint64_t{i} * kCellBytes;
        if (at + kCellBytes <= address || at >= address + bytes) continue;
        const Cell& cell = page.cells[i];
        if (cell.write.mask() != 0) visit(cell.write);
        if (cell.more == nullptr) continue;
        for (const RecordSet* set : {&cell.more->writes, &cell.more->strong_writes}) {
          for (const Record& record : set->records()) visit(record);
        }
      }
    }
  }
  uint64_t pages_with_cells() const { return pages_with_cells_; }
  void DropCells(Page& page) {
    if (page.cells != nullptr) --pages_with_cells_;
    page.cells.reset();
  }

 private:
  void PushDown(Page& page);

  std::unordered_map<uint64_t, Page> pages_;
  uint64_t last_number_ = 0;
  Page* last_ = nullptr;
  uint64_t pages_with_cells_ = 0;
};

// By address of a word.
using SyncCells = std::unordered_map<uint64_t, SyncCell>;

class RaceMemory : public DeviceObserver {
 public:
  explicit RaceMemory(Checks& checks);
  ~RaceMemory() override;

  // ---- actors and operations
  // Numbers for `origin.count` actors; origin.first is set here.
  ActorId Allocate(Origin origin);
  const Origin& OriginOf(ActorId actor) const;
  // Whether the operation of `before` comes before `operation`.
  static bool ComesBefore(const Origin& before, const DeviceOperation& operation);
  DescriptorId Describe(const AccessDescription& description);
  const AccessDescription& operator[](DescriptorId id) const { return descriptions_[id]; }

  // ---- programmatic dependent launches: what a launch does before it has waited is not ordered
  // behind its predecessor in the stream, if that let it start early (griddepcontrol).
  struct LatestInSlot {
    uint64_t serial = 0;
    bool is_launch = false, lets_start_early = false;
    std::vector<uint64_t> not_before;  // serials of operations that may run beside its beginning
  };
  LatestInSlot* Latest(const DeviceOperation& operation);
  void SetLatest(const DeviceOperation& operation, LatestInSlot latest);

  // ---- global memory
  CellPages& cells() { return cells_; }
  SyncCells& sync_cells() { return sync_cells_; }
  // True while there is room for further cells.
  bool HasRoom();

  AccessReport ReportOf(const Record& record) const;

  // ---- DeviceObserver
  void Read(const DeviceOperation& operation, uint64_t address, uint64_t bytes) override;
  void Write(const DeviceOperation& operation, uint64_t address, uint64_t bytes) override;
  // A hash over who wrote the range last; 0: nobody.
  uint64_t Writers(uint64_t address, uint64_t bytes);
  void Forget(uint64_t address, uint64_t bytes) override;

 private:
  struct OperationJudge;
  void Touch(const DeviceOperation& operation, uint64_t address, uint64_t bytes, bool is_write);
  ActorId ActorOf(const DeviceOperation& operation);

  Checks& checks_;
  std::vector<Origin> origins_;  // by first
  mutable size_t last_origin_ = 0;
  ActorId next_actor_ = 1;
  std::vector<AccessDescription> descriptions_;
  std::unordered_map<uint64_t, DescriptorId> known_descriptions_;
  std::unordered_map<uint32_t, LatestInSlot> latest_;
  CellPages cells_;
  SyncCells sync_cells_;
  uint64_t actor_serial_ = 0;  // of the operation that `operation_actor_` belongs to
  ActorId operation_actor_ = 0;
  // Races of the operation that is being performed, by what it conflicts with.
  std::unordered_map<uint64_t, size_t> reported_;
};

}  // namespace ops_debug::emulator
