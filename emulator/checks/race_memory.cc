// See race_memory.h.
#include "emulator/checks/race_memory.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace ops_debug::emulator {
namespace {

// Cells take ten times the memory that they watch.
constexpr uint64_t kMaxPagesWithCells = (3ull << 30) / (CellPages::kPageCells * sizeof(Cell));
constexpr ActorId kLastActor = ~0u - (1u << 16);

}  // namespace

std::string SemanticsOf(const AccessDescription& description) {
  if (description.is_operation) return {};
  if (description.semantics != nullptr) return description.semantics;
  if (!description.order.strong) return "weak";
  if (description.order.is_volatile) return "volatile";
  const AccessOrder& order = description.order;
  std::string text = order.acquire && order.release ? "acq_rel"
                     : order.acquire                ? "acquire"
                     : order.release                ? "release"
                                                    : "relaxed";
  switch (order.scope) {
    case MemoryScope::kBlock:
      return text + ".cta";
    case MemoryScope::kCluster:
      return text + ".cluster";
    case MemoryScope::kDevice:
      return text + ".gpu";
    case MemoryScope::kSystem:
      return text + ".sys";
  }
  return text;
}

// What holds for the whole page becomes part of every cell.
void CellPages::PushDown(Page& page) {
  if (page.bulk_write.mask() == 0 && page.bulk_reads.empty()) return;
  for (uint32_t i = 0; i < kPageCells; ++i) {
    Cell& cell = CellAt(page, uint64_t{i} * kCellBytes);
    const auto keep = [](const Record&) { return false; };
    if (page.bulk_write.mask() != 0) {
      if (cell.write.mask() == 0) {
        cell.write = page.bulk_write;
      } else {
        cell.EnsureMore().writes.Add(page.bulk_write, keep);
      }
    }
    for (const Record& read : page.bulk_reads) cell.EnsureMore().reads.Add(read, keep);
  }
  page.bulk_write = Record{};
  page.bulk_reads.clear();
}

void CellPages::Forget(uint64_t address, uint64_t bytes) {
  last_ = nullptr;
  const uint64_t end = address + bytes;
  if (bytes == 0 || end < address) return;
  const auto forget_in = [&](uint64_t number, Page& page) {
    const uint64_t begin = number * kPageBytes;
    PushDown(page);
    if (page.cells == nullptr) return;
    for (uint32_t i = 0; i < kPageCells; ++i) {
      const uint64_t at = begin + uint64_t{i} * kCellBytes;
      if (at + kCellBytes > address && at < end) page.cells[i] = Cell{};
    }
  };
  const auto is_whole = [&](uint64_t number) {
    return number * kPageBytes >= address && (number + 1) * kPageBytes <= end;
  };
  const uint64_t first = address / kPageBytes, last = (end - 1) / kPageBytes;
  if (last - first >= pages_.size()) {
    for (auto at = pages_.begin(); at != pages_.end();) {
      if (at->first >= first && at->first <= last && is_whole(at->first)) {
        DropCells(at->second);
        at = pages_.erase(at);
        continue;
      }
      if (at->first >= first && at->first <= last) forget_in(at->first, at->second);
      ++at;
    }
    return;
  }
  for (uint64_t number = first; number <= last; ++number) {
    const auto found = pages_.find(number);
    if (found == pages_.end()) continue;
    if (is_whole(number)) {
      DropCells(found->second);
      pages_.erase(found);
    } else {
      forget_in(number, found->second);
    }
  }
}

void CellPages::Clear() {
  pages_.clear();
  last_ = nullptr;
  pages_with_cells_ = 0;
}

RaceMemory::RaceMemory(Checks& checks) : checks_(checks) { descriptions_.emplace_back(); }
RaceMemory::~RaceMemory() = default;

ActorId RaceMemory::Allocate(Origin origin) {
  if (origin.count > kLastActor - next_actor_) {
    // Numbers begin anew; what records say of the old ones would be wrong.
    checks_.Incomplete(
        "races with earlier kernels are not seen any more: the process has run more threads than "
        "race detection can number");
    cells_.Clear();
    sync_cells_.clear();
    origins_.clear();
    last_origin_ = 0;
    next_actor_ = 1;
  }
  origin.first = next_actor_;
  next_actor_ += origin.count;
  origins_.push_back(std::move(origin));
  return origins_.back().first;
}

const Origin& RaceMemory::OriginOf(ActorId actor) const {
  const Origin* at = &origins_[std::min(last_origin_, origins_.size() - 1)];
  if (actor - at->first < at->count) return *at;
  const auto behind =
      std::upper_bound(origins_.begin(), origins_.end(), actor,
                       [](ActorId id, const Origin& origin) { return id < origin.first; });
  last_origin_ =
      behind == origins_.begin() ? 0 : static_cast<size_t>(std::prev(behind) - origins_.begin());
  return origins_[last_origin_];
}

bool RaceMemory::ComesBefore(const Origin& before, const DeviceOperation& operation) {
  if (before.serial == operation.serial) return false;
  if (before.id.number == 0 || operation.id.number == 0) return true;
  if (before.id.slot == operation.id.slot) {
    const bool are_nodes = before.id.number == operation.id.number && before.id.reserved != 0 &&
                           operation.id.reserved != 0 && operation.ancestors != nullptr;
    return !are_nodes || (before.id.reserved < operation.ancestors->size() &&
                          (*operation.ancestors)[before.id.reserved]);
  }
  return before.id.slot < operation.clock.size() &&
         before.id.number <= operation.clock[before.id.slot];
}

DescriptorId RaceMemory::Describe(const AccessDescription& description) {
  uint64_t key = description.site;
  key = key << 2 | static_cast<uint64_t>(description.kind);
  key = key << 2 | uint64_t{description.is_operation} << 1 | uint64_t{description.is_shared};
  key = key << 28 | (reinterpret_cast<uintptr_t>(description.semantics) & 0xfffffffu);
  const auto [known, is_new] =
      known_descriptions_.emplace(key, static_cast<DescriptorId>(descriptions_.size()));
  if (is_new) descriptions_.push_back(description);
  return known->second;
}

RaceMemory::LatestInSlot* RaceMemory::Latest(const DeviceOperation& operation) {
  const auto found = latest_.find(operation.id.slot);
  return operation.id.number == 0 || found == latest_.end() ? nullptr : &found->second;
}

void RaceMemory::SetLatest(const DeviceOperation& operation, LatestInSlot latest) {
  if (operation.id.number != 0) latest_[operation.id.slot] = std::move(latest);
}

bool RaceMemory::HasRoom() {
  if (cells_.pages_with_cells() < kMaxPagesWithCells) return true;
  checks_.Incomplete(
      "the state of race detection has reached 3 GiB: races in further memory are not seen");
  return false;
}

AccessReport RaceMemory::ReportOf(const Record& record) const {
  const Origin& origin = OriginOf(record.actor);
  const AccessDescription& description = descriptions_[record.descriptor()];
  AccessReport report;
  report.site = description.site;
  report.access = static_cast<uint32_t>(description.kind) + 1;
  report.space = description.is_shared ? 2 : 1;
  report.operation = origin.id;
  report.token = origin.token;
  report.bytes = description.bytes;
  report.semantics = SemanticsOf(description);
  report.from_operation = !origin.is_launch;
  if (!origin.is_launch) return report;
  report.kernel = *origin.kernel;
  const uint64_t number = origin.BlockNumber(record.actor);
  const uint32_t blocks = origin.cluster_blocks();
  const uint64_t cluster = number / blocks;
  const auto rank = static_cast<uint32_t>(number % blocks);
  const uint64_t row = origin.grid.x / origin.cluster.x;
  const uint64_t plane = row * (origin.grid.y / origin.cluster.y);
  const Dim3& size = origin.cluster;
  report.block[0] = static_cast<uint32_t>(cluster % row) * size.x + rank % size.x;
  report.block[1] = static_cast<uint32_t>(cluster % plane / row) * size.y + rank / size.x % size.y;
  report.block[2] = static_cast<uint32_t>(cluster / plane) * size.z + rank / size.x / size.y;
  const uint32_t warp = (record.actor - origin.first) % origin.warps_per_block;
  const uint32_t thread =
      warp * kWarpLanes +
      static_cast<uint32_t>(record.lanes == 0 ? 0 : __builtin_ctz(record.lanes));
  report.thread[0] = thread % origin.block.x;
  report.thread[1] = thread / origin.block.x % origin.block.y;
  report.thread[2] = thread / origin.block.x / origin.block.y;
  return report;
}

// ---- operations

ActorId RaceMemory::ActorOf(const DeviceOperation& operation) {
  if (actor_serial_ == operation.serial && operation_actor_ != 0) return operation_actor_;
  Origin origin;
  origin.id = operation.id;
  origin.token = operation.token;
  origin.serial = operation.serial;
  origin.is_host = operation.is_host;
  actor_serial_ = operation.serial;
  operation_actor_ = Allocate(std::move(origin));
  reported_.clear();
  LatestInSlot latest;
  latest.serial = operation.serial;
  SetLatest(operation, std::move(latest));
  return operation_actor_;
}

struct RaceMemory::OperationJudge {
  RaceMemory& memory;
  const DeviceOperation& operation;
  uint64_t address = 0;
  Record now;
  bool is_write = false;

  bool IsBefore(const Record& record) const {
    return record.actor == now.actor || ComesBefore(memory.OriginOf(record.actor), operation);
  }
  static bool AreStrongTogether(const Record&) { return false; }
  void Race(const Record& record, bool /*record_writes*/) {
    const Origin& origin = memory.OriginOf(record.actor);
    const uint64_t key = uint64_t{origin.first} << 32 | record.descriptor();
    const auto [known, is_new] = memory.reported_.emplace(key, 0);
    if (!is_new) return;
    RaceReport report;
    report.kind = static_cast<uint32_t>(RaceKind::kStream);
    report.first = memory.ReportOf(record);
    report.first.address = address;
    report.second = memory.ReportOf(now);
    report.second.address = address;
    report.address = address;
    report.bytes = report.first.bytes = report.second.bytes =
        static_cast<uint32_t>(__builtin_popcount(record.mask() & now.mask()));
    report.missing = static_cast<uint32_t>(operation.is_host || origin.is_host ? Missing::kHostSync
                                                                               : Missing::kEvent);
    memory.checks_.Add(std::move(report));
  }
};

void RaceMemory::Touch(const DeviceOperation& operation, uint64_t address, uint64_t bytes,
                       bool is_write) {
  if (bytes == 0) return;
  AccessDescription description;
  description.kind = is_write ? AccessKind::kStore : AccessKind::kLoad;
  description.is_operation = true;
  const DescriptorId descriptor = Describe(description);
  Record now;
  now.actor = ActorOf(operation);
  now.lanes = 1;
  now.clock = 1;
  now.what = descriptor << Record::kShift | Record::kMask;
  OperationJudge judge{*this, operation, address, now, is_write};
  const auto check = [&](const Record& record, bool record_writes) {
    if (record.mask() != 0 && (record_writes || is_write) && !judge.IsBefore(record))
      judge.Race(record, record_writes);
  };
  for (uint64_t at = address; at < address + bytes;) {
    CellPages::Page& page = cells_.At(at);
    const uint64_t page_begin = at / CellPages::kPageBytes * CellPages::kPageBytes;
    const uint64_t end = std::min(address + bytes, page_begin + CellPages::kPageBytes);
    judge.address = at;
    check(page.bulk_write, true);
    for (const Record& record : page.bulk_reads) check(record, false);
    if (at == page_begin && end == page_begin + CellPages::kPageBytes &&
        (is_write || page.cells == nullptr)) {
      for (uint32_t i = 0; page.cells != nullptr && i < CellPages::kPageCells; ++i) {
        judge.address = page_begin + uint64_t{i} * kCellBytes;
        TouchCell(page.cells[i], now, is_write, false, judge);
      }
      if (is_write) {
        cells_.DropCells(page);
        page.bulk_reads.clear();
        page.bulk_write = now;
      } else {
        std::erase_if(page.bulk_reads, [&](const Record& read) { return judge.IsBefore(read); });
        page.bulk_reads.push_back(now);
      }
      at = end;
      continue;
    }
    for (; at < end; at = (at / kCellBytes + 1) * kCellBytes) {
      const uint64_t begin = at % kCellBytes;
      const uint64_t length = std::min<uint64_t>(kCellBytes - begin, end - at);
      judge.now.what = descriptor << Record::kShift | ((1u << length) - 1) << begin;
      judge.address = at;
      if (page.cells == nullptr && !HasRoom()) {
        at = end;
        break;
      }
      TouchCell(cells_.CellAt(page, at), judge.now, is_write, false, judge);
    }
    judge.now = now;
  }
}

void RaceMemory::Read(const DeviceOperation& operation, uint64_t address, uint64_t bytes) {
  Touch(operation, address, bytes, false);
}

void RaceMemory::Write(const DeviceOperation& operation, uint64_t address, uint64_t bytes) {
  Touch(operation, address, bytes, true);
}

uint64_t RaceMemory::Writers(uint64_t address, uint64_t bytes) {
  uint64_t hash = 0;
  cells_.ForEachWrite(address, bytes, [&](const Record& record) {
    const Origin& origin = OriginOf(record.actor);
    hash = (hash ^ (uint64_t{origin.id.slot} << 48 ^ origin.id.number ^ origin.serial)) *
           0x9e37'79b9'7f4a'7c15ull;
    hash ^= hash >> 29;
  });
  return hash;
}

void RaceMemory::Forget(uint64_t address, uint64_t bytes) {
  cells_.Forget(address, bytes);
  if (sync_cells_.size() < bytes / kCellBytes) {
    std::erase_if(sync_cells_, [&](const auto& entry) { return entry.first - address < bytes; });
    return;
  }
  for (uint64_t at = address; at < address + bytes; at += kCellBytes) sync_cells_.erase(at);
}

}  // namespace ops_debug::emulator
