// Preparing a launch costs a few look-ups when nothing is new: tickets are a counter, cells were
// made by earlier launches, and with one stream there is no order to look up.
#include "interposer/race_state.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstddef>
#include <thread>
#include <utility>
#include <vector>

#include "interposer/allocation_tracking.h"
#include "interposer/context_state.h"
#include "interposer/race_event.h"
#include "interposer/sass_engine.h"
#include "interposer/session.h"
#include "shadow/host/own_proof.h"

namespace ops_debug::interposer {
namespace {

#include "shadow/device/race_range_ptx.inc"

using shadow::RaceChannel;
using shadow::RaceLaunch;
using shadow::RaceRecord;
using shadow::TicketRange;

// Cells may take this part of the memory that is free when the first launch comes.
constexpr uint64_t kBudgetShare = 2;
constexpr uint64_t kLeastBudgetBytes = 64ull << 20;
// Launches that are looked at for their order: what is older is long done.
constexpr size_t kMostLaunches = 4096;
constexpr uint32_t kMostRanges = 64;
constexpr uint32_t kReservedSharedBytes = 1024;

uint64_t Blocks(const Dim3& grid) { return uint64_t{grid.x} * grid.y * grid.z; }

shadow::LaunchShape ShapeOf(const RaceRequest& request) {
  return {.grid = {request.grid.x, request.grid.y, request.grid.z},
          .block = {request.block.x, request.block.y, request.block.z}};
}

}  // namespace

bool ChecksRacesOnDevice() noexcept {
  const SessionOptions& options = Options();
  return (options.check_races || options.check_sync) && !options.exact_checks &&
         !options.null_rewrite && options.use_ptx_engine;
}

RaceState::RaceState(ContextState& context) : context_(context) {}

bool RaceState::Ready() {
  if (cells_) return true;
  if (failed_) return false;
  InternalCalls calls(context_);
  size_t free = 0, total = 0;
  if (!calls.ok() || OPS_DEBUG_REAL(cuMemGetInfo_v2)(&free, &total) != CUDA_SUCCESS) free = 0;
  auto cells = std::make_unique<shadow::RaceCells>(
      context_.device, std::max<uint64_t>(free / kBudgetShare, kLeastBudgetBytes));
  ranges_ = context_.device.Allocate(sizeof(TicketRange) * kMostRanges * kRangeSlots);
  if (!calls.ok() || ranges_ == 0 || !cells->Create()) {
    failed_ = true;
    SendOnce(DiagnosticEvent{.severity = proto_enums::Severity::kError,
                             .text = "no device memory for race checks; kernels of this context "
                                     "are not checked for races and barriers",
                             .hint = "12 MiB plus eight times the memory that kernels touch must "
                                     "be free"});
    return false;
  }
  cells_ = std::move(cells);
  return true;
}

bool RaceState::WaitUntilIdle() {
  if (AnyCapture()) return false;
  // What runs may be waiting for what the program does next, so nobody waits for it without bound.
  constexpr auto kPatience = std::chrono::seconds(2);
  constexpr auto kPause = std::chrono::microseconds(200);
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  for (const KnownStreamHandle& known : StreamsWithWork()) {
    while (OPS_DEBUG_REAL(cuStreamQuery)(known.stream) == CUDA_ERROR_NOT_READY) {
      if (std::chrono::steady_clock::now() >= deadline) return false;
      std::this_thread::sleep_for(kPause);
    }
  }
  return OPS_DEBUG_REAL(cuCtxSynchronize)() == CUDA_SUCCESS;
}

std::unique_lock<std::mutex> RaceState::Prepare(const RaceRequest& request, RaceLaunch* out) {
  std::unique_lock lock(mutex_);
  PrepareOne(request, {}, 0, out);
  return lock;
}

void RaceState::PrepareOne(const RaceRequest& request, std::span<const TicketRange> beside,
                           uint64_t graph_token, RaceLaunch* out) {
  *out = {};
  if (!request.plan->races.checked || !Ready()) return;
  InternalCalls calls(context_);
  if (!calls.ok() || !TakeTickets(Blocks(request.grid), out)) {
    *out = {};
    return;
  }
  out->channel = cells_->channel();
  out->site_base = request.module->site_base;
  GiveGlobalCells(request, out);
  const shadow::RacePlan& plan = request.plan->races;
  const bool lean = request.lean_serves != nullptr && (out->tracked & ~plan.lean_tracked) == 0 &&
                    SharedIsProved(request);
  if (lean) *request.lean_serves = true;
  if (!lean || plan.lean_uses_shared) GiveSharedCells(request, out);
  if (lean ? !plan.lean_checks
           : !plan.uses_shared && !plan.reaches_elsewhere && plan.variables.empty() &&
                 plan.sync_sites == 0 && out->tracked == 0) {
    // Nothing can race: the twin then skips what prepares its checks, too.
    next_ticket_ = out->first_ticket;
    *out = {};
    return;
  }
  Order(request.order, beside, out);
  launches_.push_back({out->first_ticket, static_cast<uint32_t>(Blocks(request.grid)),
                       request.launch_id, request.grid, request.block,
                       request.order ? request.order->id : shadow::OperationId{},
                       /*is_kernel=*/true, graph_token});
}

bool RaceState::TakeTickets(uint64_t blocks, RaceLaunch* out) {
  if (blocks == 0) return false;
  if (blocks >= shadow::kLastTicket) {
    SendOnce(DiagnosticEvent{.severity = proto_enums::Severity::kWarning,
                             .text = "launches of more than 16,777,214 blocks are not checked for "
                                     "races",
                             .hint = ""});
    return false;
  }
  if (!MakeRoomForTickets(blocks)) return false;
  out->first_ticket = next_ticket_;
  next_ticket_ += static_cast<uint32_t>(blocks);
  return true;
}

bool RaceState::MakeRoomForTickets(uint64_t blocks) {
  if (next_ticket_ + blocks <= shadow::kLastTicket) return true;
  // Tickets start again, so no cell may remember the old ones.
  if (!WaitUntilIdle() || !cells_->ClearAll()) return false;
  launches_.clear();
  next_ticket_ = 1;
  return true;
}

uint32_t RaceState::SharedBytes(CUfunction twin) {
  const auto found = shared_bytes_.find(twin);
  if (found != shared_bytes_.end()) return found->second;
  int bytes = 0;
  CUdevice device = 0;
  if (OPS_DEBUG_REAL(cuFuncGetAttribute)(&bytes, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, twin) !=
          CUDA_SUCCESS &&
      (OPS_DEBUG_REAL(cuCtxGetDevice)(&device) != CUDA_SUCCESS ||
       OPS_DEBUG_REAL(cuKernelGetAttribute)(&bytes, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES,
                                            reinterpret_cast<CUkernel>(twin),
                                            device) != CUDA_SUCCESS)) {
    bytes = 48 * 1024;  // more is never static
  }
  return shared_bytes_[twin] = static_cast<uint32_t>(std::max(bytes, 0));
}

void RaceState::GiveSharedCells(const RaceRequest& request, RaceLaunch* out) {
  const shadow::RacePlan& plan = request.plan->races;
  if (!plan.uses_shared && !plan.named_barriers) return;
  const uint32_t bytes =
      SharedBytes(request.twin) + request.dynamic_shared_bytes + kReservedSharedBytes;
  const uint32_t words = (bytes + 3) / 4;
  int per_multiprocessor = 1, multiprocessors = 1;
  CUdevice device = 0;
  const int threads = static_cast<int>(request.block.x * request.block.y * request.block.z);
  if (OPS_DEBUG_REAL(cuOccupancyMaxActiveBlocksPerMultiprocessor)(
          &per_multiprocessor, request.twin, threads, request.dynamic_shared_bytes) !=
      CUDA_SUCCESS) {
    per_multiprocessor = 1;
  }
  if (OPS_DEBUG_REAL(cuCtxGetDevice)(&device) != CUDA_SUCCESS ||
      OPS_DEBUG_REAL(cuDeviceGetAttribute)(
          &multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device) != CUDA_SUCCESS) {
    multiprocessors = 1;
  }
  const uint64_t resident = std::max<uint64_t>(
      1, static_cast<uint64_t>(per_multiprocessor) * static_cast<uint64_t>(multiprocessors));
  const auto slots = static_cast<uint32_t>(
      std::bit_ceil(std::min<uint64_t>(2 * resident, std::max<uint64_t>(1, Blocks(request.grid)))));
  // A context whose memory was too short for so many stays with what it has.
  if (!cells_->HasShared(slots, words, plan.named_barriers)) {
    const shadow::SharedCells now = cells_->shared();
    const bool smaller_will_do =
        now.cells != 0 && now.words >= words && (!plan.named_barriers || now.named_barriers != 0);
    if (WaitUntilIdle()) {
      if (!cells_->GrowShared(slots, words, plan.named_barriers)) {
        SendOnce(DiagnosticEvent{.severity = proto_enums::Severity::kWarning,
                                 .text = "no device memory for cells of shared memory; kernels are "
                                         "not checked for races in shared memory",
                                 .hint = ""});
      }
    } else if (!smaller_will_do) {
      SendOnce(DiagnosticEvent{.severity = proto_enums::Severity::kWarning,
                               .text = "cells of shared memory could not be made while other work "
                                       "runs: some launches are not checked for races in shared "
                                       "memory",
                               .hint = "launch the kernel that needs most shared memory first"});
      return;
    }
  }
  const shadow::SharedCells shared = cells_->shared();
  if (shared.cells == 0 || shared.words < words) return;
  out->shared_words = shared.words;
  out->shared_slot_bytes = uint64_t{shared.words} * shadow::kBytesPerWord;
  out->slot_mask = shared.slots - 1;
  out->shared_cells = shared.cells;
  out->named_barriers = shared.named_barriers;
}

bool RaceState::SharedIsProved(const RaceRequest& request) {
  return std::ranges::all_of(request.plan->races.lean_shared, [&](const auto& forms) {
    return ThreadsStayApart(forms, ShapeOf(request), *request.parameters,
                            shadow::Among::kThreadsOfBlock);
  });
}

bool RaceState::CoverAll() {
  const uint64_t version = AllocationVersion();
  if (version == covered_version_) return true;
  bool covered = true;
  for (const shadow::Allocation& allocation : Book().Live()) {
    if (allocation.size_bytes != 0 && allocation.context == context_.context)
      covered = cells_->Cover(allocation.base, allocation.size_bytes) && covered;
  }
  covered_version_ = version;
  return covered;
}

bool RaceState::CoverVariables(const RaceRequest& request) {
  const std::vector<std::string>& names = request.plan->races.variables;
  const uint64_t version = AllocationVersion();
  if (names.empty() || covered_variables_[request.module->id] == version) return true;
  bool covered = true;
  for (const shadow::Allocation& allocation : Book().Live()) {
    if (allocation.owner != request.module->id || allocation.context != context_.context) continue;
    covered = cells_->Cover(allocation.base, allocation.size_bytes) && covered;
  }
  covered_variables_[request.module->id] = version;
  return covered;
}

void RaceState::GiveGlobalCells(const RaceRequest& request, RaceLaunch* out) {
  const shadow::RacePlan& plan = request.plan->races;
  if (!plan.uses_global || Options().races_in_shared_only) return;
  out->directory = cells_->directory();
  bool covered = CoverVariables(request);
  // Whatever a pointer in memory may lead to.
  if (plan.reaches_elsewhere) covered = CoverAll() && covered;
  struct Target {
    bool known = false;
    shadow::AllocationRange range;

    bool MayMeet(const Target& other) const {
      return !known || !other.known ||
             (range.base < other.range.base + other.range.size_bytes &&
              other.range.base < range.base + range.size_bytes);
    }
  };
  std::vector<Target> targets(plan.slots.size());
  for (size_t i = 0; i < plan.slots.size(); i++) {
    uint64_t pointer = 0;
    targets[i].known = request.parameters->ReadPointer(plan.slots[i].parameter_offset, &pointer) &&
                       Book().FindLive(pointer, &targets[i].range);
  }
  // With several streams, a later launch may write what this one reads.
  const bool one_stream = (!request.order || !SeveralStreams()) && !request.in_parallel;
  for (size_t i = 0; i < plan.slots.size() && i < 32; i++) {
    const shadow::RaceSlot& slot = plan.slots[i];
    bool written = slot.writes || plan.writes_elsewhere;
    bool alone = !plan.reaches_elsewhere;
    for (size_t k = 0; k < plan.slots.size(); k++) {
      if (k == i || !targets[i].MayMeet(targets[k])) continue;
      alone = false;
      written = written || plan.slots[k].writes;
    }
    if (one_stream &&
        (!written || (alone && ThreadsStayApart(slot.forms, ShapeOf(request), *request.parameters,
                                                shadow::Among::kAllThreads))))
      continue;
    out->tracked |= 1u << i;
    if (targets[i].known)
      covered = cells_->Cover(targets[i].range.base, targets[i].range.size_bytes) && covered;
  }
  if (!covered) SayUncovered();
}

void RaceState::SayUncovered() {
  SendOnce(DiagnosticEvent{
      .severity = proto_enums::Severity::kWarning,
      .text =
          "race checks need eight times the memory that kernels touch, which is more than there "
          "is: some global memory is not checked for races",
      .hint = "check one kernel at a time (--kernel-name), or smaller inputs"});
}

void RaceState::Order(const shadow::SubmittedOperation* order, std::span<const TicketRange> beside,
                      RaceLaunch* out) {
  out->ordered_below = out->first_ticket;
  if (!order && beside.empty()) return;
  if (order && order->open) {
    // It comes after something unseen, which may have been submitted later than it: everything that
    // it finds counts as done, its own launch's other blocks, too.
    out->ordered_below = shadow::kLastTicket + 1;
    SendOnce(DiagnosticEvent{.severity = proto_enums::Severity::kNote,
                             .text =
                                 "a stream waits for a value in memory, an external semaphore "
                                 "or the like: until the program has waited for it, its kernels "
                                 "are not checked for races in global memory",
                             .hint = "the CPU device checks them (--device emulator)"});
    return;
  }
  std::vector<TicketRange> ranges;
  const size_t looked_at = order ? std::min(launches_.size(), kMostLaunches) : 0;
  for (size_t i = launches_.size() - looked_at; i < launches_.size(); i++) {
    const Launch& earlier = launches_[i];
    if (earlier.operation.number == 0 || ComesBefore(earlier.operation, *order)) continue;
    const TicketRange range{earlier.first_ticket, earlier.first_ticket + earlier.blocks - 1};
    if (!ranges.empty() && ranges.back().last + 1 == range.first) {
      ranges.back().last = range.last;
    } else {
      ranges.push_back(range);
    }
  }
  // Launches that are remembered for nothing but their names.
  constexpr size_t kMostRemembered = 65536;
  while (launches_.size() > kMostRemembered) launches_.pop_front();
  ranges.insert(ranges.end(), beside.begin(), beside.end());
  if (ranges.empty()) return;
  if (ranges.size() > kMostRanges) ranges.erase(ranges.begin(), ranges.end() - kMostRanges);
  if (!UploadRanges(ranges, out)) return;
  out->ordered_below = ranges.front().first;
  out->unordered_count = static_cast<uint32_t>(ranges.size());
}

bool RaceState::MakeRoomForRanges(uint64_t lists) {
  if (next_range_slot_ + lists <= kRangeSlots) return true;
  // Those who read the first ones must be done.
  if (!WaitUntilIdle()) return false;
  next_range_slot_ = 0;
  latest_ranges_place_ = 0;
  return true;
}

bool RaceState::UploadRanges(const std::vector<TicketRange>& ranges, RaceLaunch* out) {
  const auto same = [](const TicketRange& a, const TicketRange& b) {
    return a.first == b.first && a.last == b.last;
  };
  if (latest_ranges_place_ != 0 && std::ranges::equal(ranges, latest_ranges_, same)) {
    out->unordered = latest_ranges_place_;
    return true;
  }
  if (!MakeRoomForRanges(1)) return false;
  const uint64_t place = ranges_ + uint64_t{next_range_slot_++} * kMostRanges * sizeof(TicketRange);
  if (!context_.device.Write(place, ranges.data(), ranges.size() * sizeof(TicketRange)) ||
      !context_.device.Finish()) {
    return false;
  }
  out->unordered = latest_ranges_place_ = place;
  latest_ranges_ = ranges;
  return true;
}

bool RaceState::LoadRangeKernel() {
  if (range_kernel_ || range_kernel_failed_) return range_kernel_ != nullptr;
  const UnpatchedLoad unpatched;
  range_kernel_failed_ =
      OPS_DEBUG_REAL(cuModuleLoadData)(&module_, kRaceRangePtx) != CUDA_SUCCESS ||
      OPS_DEBUG_REAL(cuModuleGetFunction)(&range_kernel_, module_, shadow::kRaceRangeKernel) !=
          CUDA_SUCCESS;
  if (range_kernel_failed_) {
    range_kernel_ = nullptr;
    SendOnce(DiagnosticEvent{.severity = proto_enums::Severity::kWarning,
                             .text = "the kernel that stands for copies in race checks cannot be "
                                     "loaded: races between copies and kernels are not found",
                             .hint = ""});
  }
  return range_kernel_ != nullptr;
}

void RaceState::Touch(const RangeAccess& access, const shadow::OperationOrder& order,
                      CUstream explicit_stream) {
  // With one stream everything is ordered. Rows beyond this many are not looked at.
  constexpr uint64_t kMostRows = 256;
  if (!SeveralStreams() || access.width_bytes == 0 || access.height == 0) return;
  const bool rows = access.height > 1 && access.pitch_bytes != access.width_bytes;
  if (rows && access.height > kMostRows) return;
  const uint64_t count = rows ? access.height : 1;
  const uint64_t bytes = rows ? access.width_bytes : access.width_bytes * access.height;
  std::lock_guard lock(mutex_);
  if (failed_ || !Ready()) return;
  InternalCalls calls(context_);
  RaceLaunch launch{};
  if (!calls.ok() || !LoadRangeKernel() || !TakeTickets(1, &launch)) return;
  launch.channel = cells_->channel();
  launch.directory = cells_->directory();
  shadow::SubmittedOperation operation;
  operation.id = order.id;
  operation.clock.assign(order.clock, order.clock + order.clock_size);
  Order(&operation, {}, &launch);
  launches_.push_back(
      {launch.first_ticket, 1, order.token, {1, 1, 1}, {1, 1, 1}, order.id, /*is_kernel=*/false});
  bool covered = true;
  for (uint64_t row = 0; row < count; row++) {
    shadow::RaceRange range{};
    range.launch = launch;
    range.launch_id = order.token;
    range.begin = access.address + row * access.pitch_bytes;
    range.end = range.begin + bytes;
    range.is_write = access.is_write ? 1 : 0;
    // Host memory that no device uses has no cells.
    if (!Book().FindContaining(range.begin)) continue;
    covered = cells_->Cover(range.begin, bytes) && covered;
    void* parameters[] = {&range};
    constexpr uint64_t kBytesPerBlock = 1024, kMostBlocks = 132;
    const auto blocks =
        static_cast<unsigned>(std::clamp<uint64_t>(bytes / kBytesPerBlock, 1, kMostBlocks));
    if (OPS_DEBUG_REAL(cuLaunchKernel)(range_kernel_, blocks, 1, 1, 256, 1, 1, 0, explicit_stream,
                                       parameters, nullptr) != CUDA_SUCCESS) {
      return;
    }
  }
  if (!covered) SayUncovered();
}

void TouchForRaces(std::span<const RangeAccess> accesses, const shadow::OperationOrder& order,
                   CUstream explicit_stream) {
  if (!Options().check_races) return;
  for (const ContextPointer& context : AllContextStates()) {
    if (!context->races || context->lost) continue;
    for (const RangeAccess& access : accesses)
      context->races->Touch(access, order, explicit_stream);
  }
}

void RaceState::Renew(uint64_t address, uint64_t size_bytes, CUstream stream) {
  std::lock_guard lock(mutex_);
  if (!cells_) return;
  InternalCalls calls(context_);
  if (!calls.ok() || !cells_->Renew(address, size_bytes, stream)) failed_ = true;
}

const RaceState::Launch* RaceState::LaunchOfTicket(uint32_t ticket) const {
  const auto behind = std::upper_bound(
      launches_.begin(), launches_.end(), ticket,
      [](uint32_t value, const Launch& launch) { return value < launch.first_ticket; });
  if (behind == launches_.begin()) return nullptr;
  const Launch& launch = *std::prev(behind);
  return ticket - launch.first_ticket < launch.blocks ? &launch : nullptr;
}

void RaceState::Drain(bool idle) {
  std::lock_guard lock(mutex_);
  if (!cells_ || context_.lost) return;
  InternalCalls calls(context_);
  if (!calls.ok()) return;
  uint64_t totals[2] = {};  // overflow, conflicts
  const uint64_t channel = cells_->channel();
  static_assert(offsetof(RaceChannel, conflicts) == offsetof(RaceChannel, overflow) + 8);
  if (!context_.device.Read(totals, channel + offsetof(RaceChannel, overflow), sizeof totals))
    return;
  if (totals[0] > seen_overflow_) {
    seen_overflow_ = totals[0];
    SendOnce(DiagnosticEvent{.severity = proto_enums::Severity::kWarning,
                             .text = "more different conflicts than the device's table holds: some "
                                     "races are not listed",
                             .hint = "repair those that are, then run again"});
  }
  if (totals[1] == seen_conflicts_) return;
  seen_conflicts_ = totals[1];
  std::vector<RaceRecord> records(shadow::kRaceRecords);
  constexpr size_t kBytes = shadow::kRaceRecords * sizeof(RaceRecord);
  if (!context_.device.Read(records.data(), channel + offsetof(RaceChannel, records), kBytes))
    return;
  size_t used = 0;
  for (uint32_t i = 0; i < records.size(); i++) {
    const RaceRecord& record = records[i];
    used += record.key != 0 ? 1 : 0;
    if (record.key == 0 || record.state != 2) continue;
    Reported& reported = reported_[i];
    if (reported.key != record.key) reported = {record.key, 0};
    const uint64_t count = std::max<uint64_t>(record.count, 1);
    if (count <= reported.count) continue;
    Report(record, count - reported.count);
    reported.count = count;
  }
  // Room for others; who is in the table already stays there as long as there is.
  if (idle && used > shadow::kRaceRecords / 2 &&
      context_.device.Fill(channel + offsetof(RaceChannel, records), 0, kBytes) &&
      context_.device.Finish()) {
    reported_.clear();
  }
}

void RaceState::Report(const RaceRecord& record, uint64_t count) {
  const auto place = [&](uint32_t ticket, uint32_t thread) {
    RacePlace out;
    out.ticket = ticket;
    if (const Launch* launch = LaunchOfTicket(ticket)) {
      out.known = true;
      out.is_kernel = launch->is_kernel;
      out.launch_id = launch->launch_id;
      out.graph_token = launch->graph_token;
      const uint32_t block = ticket - launch->first_ticket;
      out.block = {block % launch->grid.x, block / launch->grid.x % launch->grid.y,
                   block / launch->grid.x / launch->grid.y};
      out.thread = {thread % launch->block.x, thread / launch->block.x % launch->block.y,
                    thread / launch->block.x / launch->block.y};
    }
    return out;
  };
  const RacePlace first = place(record.first_ticket, record.first_thread);
  const RacePlace second = place(record.second_ticket, record.second_thread);
  // Two copies or the like: the host has told (stream_order_ranges.h).
  if (first.known && second.known && !first.is_kernel && !second.is_kernel) return;
  ReportRaceRecord(record, count, first, second);
}

void DrainRaces(CUcontext idle_context) noexcept {
  if (!ChecksRacesOnDevice()) return;
  try {
    for (const ContextPointer& context : AllContextStates()) {
      if (context->races) context->races->Drain(context->context == idle_context);
    }
  } catch (...) {
    SendOnce(DiagnosticEvent{.severity = proto_enums::Severity::kError,
                             .text = "no memory to report races",
                             .hint = "some findings may be missing"});
  }
}

}  // namespace ops_debug::interposer
