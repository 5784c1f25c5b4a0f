// See shadow_updates.h for the order that is kept.
#include "interposer/shadow_updates.h"

#include <algorithm>

#include "interposer/context_state.h"
#include "interposer/event_sender.h"
#include "interposer/launch_record.h"
#include "interposer/sass_engine.h"

namespace ops_debug::interposer {
namespace {

#include "shadow/device/apply_updates_ptx.inc"

using shadow::ShadowMark;
using shadow::ShadowUpdate;

constexpr unsigned int kThreadsPerUpdate = 128;
constexpr uint64_t kPatientLaunches = 16384;
// Larger ranges are worth a memset of the driver's, which uses the whole device.
constexpr uint64_t kLargestUpdate = 64 * 1024;
// With several active streams: how many releases, or launches, a batch collects.
constexpr uint64_t kReleasesPerBatch = 32;
constexpr uint64_t kLaunchesPerBatch = 64;
// A launch follows its call of Apply at once, but in a thread that may be held up meanwhile: a
// stream counts as active until so many launches have been made elsewhere.
constexpr uint64_t kLaunchesUntilIdle = 1000;

uint64_t GranuleOf(uint64_t address) { return address >> shadow::kShadowGranuleShift; }
uint64_t GranuleBehind(uint64_t end) { return (end + 7) >> shadow::kShadowGranuleShift; }

// `table` is the launch's only parameter.
template <uint32_t kCount>
CUresult LaunchTable(CUfunction function, CUstream stream, const ShadowUpdate* updates,
                     uint32_t count) {
  shadow::ShadowUpdateTable<kCount> table;
  std::copy_n(updates, count, table.updates);
  void* parameters[] = {&table};
  return OPS_DEBUG_REAL(cuLaunchKernel)(function, count, 1, 1, kThreadsPerUpdate, 1, 1, 0, stream,
                                        parameters, nullptr);
}

}  // namespace

void ApplyShadowUpdates(ContextState& state, CUstream explicit_stream) {
  state.updates->Apply(explicit_stream);
}

void ApplyAllShadowUpdates(ContextState& state, CUstream explicit_stream) {
  state.updates->DemandAll();
  state.updates->Apply(explicit_stream);
}

void ShadowUpdates::Lose() {
  if (state_.lost.exchange(true)) return;
  SendOnce(DiagnosticEvent{.severity = proto_enums::Severity::kError,
                           .text = "shadow memory of a memory pool could not be updated; further "
                                   "kernels of this context run unchecked",
                           .hint = "the device is out of memory, or an earlier CUDA error has "
                                   "broken the context"});
}

bool ShadowUpdates::Ready() {
  if (many_) return true;
  if (failed_) return false;
  InternalCalls calls(state_);
  UnpatchedLoad unpatched;
  const bool ok =
      calls.ok() && OPS_DEBUG_REAL(cuStreamCreate)(&own_, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS &&
      OPS_DEBUG_REAL(cuEventCreate)(&own_event_, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS &&
      OPS_DEBUG_REAL(cuModuleLoadData)(&module_, kApplyUpdatesPtx) == CUDA_SUCCESS &&
      OPS_DEBUG_REAL(cuModuleGetFunction)(&few_, module_, shadow::kApplyFewUpdates) ==
          CUDA_SUCCESS &&
      OPS_DEBUG_REAL(cuModuleGetFunction)(&many_, module_, shadow::kApplyManyUpdates) ==
          CUDA_SUCCESS;
  if (!ok) {
    failed_ = true;
    many_ = nullptr;
    SendOnce(DiagnosticEvent{.severity = proto_enums::Severity::kWarning,
                             .text = "the kernel that keeps shadow memory of memory pools up to "
                                     "date cannot be loaded; their blocks have no bounds",
                             .hint = "overflows inside a pool's segment are not found"});
  }
  return ok;
}

bool ShadowUpdates::AdoptSegment(uint64_t address, uint64_t size_bytes, bool empty) {
  std::lock_guard lock(mutex_);
  if (!Ready()) return false;
  {
    InternalCalls calls(state_);
    if (!calls.ok() || !state_.shadow.Prepare(address, size_bytes)) return false;
  }
  const uint64_t first = GranuleOf(address), end = GranuleBehind(address + size_bytes);
  marks_.Adopt(first, end, 0);
  if (empty) marks_.Want(first, end, shadow::kShadowPool, open_batch_);
  const uint64_t low = low_ == 0 ? address : std::min<uint64_t>(low_, address);
  const uint64_t high = std::max(low_ + span_, address + size_bytes);
  low_ = low;
  span_ = high - low;
  dirty_ = true;
  used_ = true;
  return true;
}

void ShadowUpdates::DropSegment(uint64_t address, uint64_t size_bytes) {
  if (!used_.load(std::memory_order_acquire) || size_bytes == 0) return;
  std::vector<CUevent> running;
  {
    std::lock_guard lock(mutex_);
    if (!marks_.Drop(GranuleOf(address), GranuleBehind(address + size_bytes))) return;
    for (const ActiveStream& stream : active_) {
      if (stream.has_update) running.push_back(stream.update);
    }
    if (version_ != 0) running.push_back(own_event_);
  }
  // Rarely anything still runs: the program has waited for the memory before it frees it.
  InternalCalls calls(state_);
  if (!calls.ok()) return;
  for (CUevent event : running) OPS_DEBUG_REAL(cuEventSynchronize)(event);
}

void ShadowUpdates::HandedOut(uint64_t address, uint64_t size_bytes, uint64_t reserved_bytes,
                              bool for_graph) {
  const uint64_t end = address + size_bytes;
  const uint64_t first = GranuleOf(address), full = GranuleOf(end), behind = GranuleBehind(end);
  std::lock_guard lock(mutex_);
  if (for_graph) {
    marks_.Keep(first, behind);
  } else {
    marks_.Want(first, full, 0, open_batch_);
    if (behind > full) marks_.Want(full, behind, static_cast<uint8_t>(end % 8), open_batch_);
  }
  marks_.Want(behind, GranuleBehind(address + reserved_bytes), shadow::kShadowPool, open_batch_);
  MarksChanged();
}

void ShadowUpdates::Keep(uint64_t address, uint64_t size_bytes) {
  std::lock_guard lock(mutex_);
  marks_.Keep(GranuleOf(address), GranuleBehind(address + size_bytes));
  MarksChanged();
}

void ShadowUpdates::MarksChanged() {
  if (marks_.patient()) marks_.Expire(LatestLaunchId());
  patient_.store(marks_.patient(), std::memory_order_release);
  if (marks_.dirty()) dirty_.store(true, std::memory_order_release);
}

void ShadowUpdates::Demand(std::span<const uint64_t> addresses) {
  std::lock_guard lock(mutex_);
  bool any = false;
  for (const uint64_t address : addresses) any |= marks_.Demand(GranuleOf(address));
  if (!any) return;
  demanded_ = true;
  MarksChanged();
}

void ShadowUpdates::DemandAll() {
  if (!used_.load(std::memory_order_acquire)) return;
  std::lock_guard lock(mutex_);
  marks_.DemandAll();
  demanded_ = true;
  MarksChanged();
}

void ShadowUpdates::GivenBack(uint64_t address, uint64_t size_bytes, uint64_t reserved_bytes) {
  const uint64_t behind = GranuleBehind(address + size_bytes);
  std::lock_guard lock(mutex_);
  marks_.Want(GranuleOf(address), behind, shadow::kShadowFreed, open_batch_,
              LatestLaunchId() + kPatientLaunches);
  marks_.Want(behind, GranuleBehind(address + reserved_bytes), shadow::kShadowPool, open_batch_);
  open_releases_++;
  MarksChanged();
}

CUevent ShadowUpdates::NewEvent() {
  CUevent event = nullptr;
  if (!spare_events_.empty()) {
    event = spare_events_.back();
    spare_events_.pop_back();
  } else if (OPS_DEBUG_REAL(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
    Lose();
  }
  return event;
}

bool ShadowUpdates::WaitForOwn(ActiveStream& stream) {
  if (stream.seen_version == version_) return true;
  if (OPS_DEBUG_REAL(cuStreamWaitEvent)(stream.stream, own_event_, 0) != CUDA_SUCCESS) {
    return false;
  }
  stream.seen_version = version_;
  return true;
}

// The entry of a stream, made if it was not active. What other streams' updates have written must
// be written before this stream's kernels look.
ShadowUpdates::ActiveStream* ShadowUpdates::Enter(CUstream stream) {
  const std::thread::id thread =
      stream == CU_STREAM_PER_THREAD ? std::this_thread::get_id() : std::thread::id();
  for (ActiveStream& active : active_) {
    if (active.stream == stream && active.thread == thread) return &active;
  }
  bool waits = false;
  for (ActiveStream& other : active_) {
    if (only_ == other.stream) other.launches = launches_;  // it did not come here for each launch
    if (!other.has_update) continue;
    if (OPS_DEBUG_REAL(cuStreamWaitEvent)(own_, other.update, 0) != CUDA_SUCCESS) return nullptr;
    other.has_update = false;
    waits = true;
  }
  if (waits) {
    if (OPS_DEBUG_REAL(cuEventRecord)(own_event_, own_) != CUDA_SUCCESS) return nullptr;
    version_++;
  }
  ActiveStream entry;
  entry.stream = stream;
  entry.thread = thread;
  entry.update = NewEvent();
  if (!entry.update) return nullptr;
  active_.push_back(entry);
  return &active_.back();
}

bool ShadowUpdates::Launch(CUstream stream, const std::vector<ShadowUpdate>& updates) {
  for (size_t at = 0; at < updates.size();) {
    const size_t left = updates.size() - at;
    CUresult result;
    size_t count;
    if (left <= shadow::kFewUpdates) {
      count = left;
      result = LaunchTable<shadow::kFewUpdates>(few_, stream, &updates[at],
                                                static_cast<uint32_t>(count));
    } else {
      count = std::min<size_t>(left, shadow::kManyUpdates);
      result = LaunchTable<shadow::kManyUpdates>(many_, stream, &updates[at],
                                                 static_cast<uint32_t>(count));
    }
    if (result != CUDA_SUCCESS) return false;
    at += count;
  }
  return true;
}

// Writes scratch_.
bool ShadowUpdates::WriteMarks(CUstream stream) {
  std::vector<ShadowUpdate> updates;
  updates.reserve(scratch_.size());
  for (const ShadowMark& mark : scratch_) {
    uint64_t granule = mark.granule, left = mark.count;
    while (left != 0) {
      const uint64_t in_chunk = shadow::kChunkBytes - (granule & (shadow::kChunkBytes - 1));
      const uint64_t count = std::min(left, in_chunk);
      const uint64_t address = state_.shadow.ByteAddress(granule);
      if (address == 0) return false;
      if (count <= kLargestUpdate) {
        updates.push_back({address, static_cast<uint32_t>(count), mark.value});
      } else if (OPS_DEBUG_REAL(cuMemsetD8Async)(address, mark.value, count, stream) !=
                 CUDA_SUCCESS) {
        return false;
      }
      granule += count;
      left -= count;
    }
  }
  return Launch(stream, updates);
}

// Records an event on every active stream: when all have ended, so has everything that could use
// the memory released so far.
void ShadowUpdates::CloseBatch() {
  // Recording in a stream that captures would put the event into the graph; another thread's
  // per-thread stream cannot be named.
  if (AnyCapture()) return;
  for (const ActiveStream& stream : active_) {
    if (stream.thread != std::thread::id() && stream.thread != std::this_thread::get_id()) return;
  }
  Batch batch;
  batch.number = open_batch_;
  batch.recorded = std::move(leftover_);
  leftover_.clear();
  for (const ActiveStream& stream : active_) {
    CUevent event = NewEvent();
    if (!event) return;
    if (OPS_DEBUG_REAL(cuEventRecord)(event, stream.stream) != CUDA_SUCCESS) {
      Lose();
      return;
    }
    batch.recorded.push_back({stream.stream, stream.launches, event});
  }
  closed_.push_back(std::move(batch));
  open_batch_++;
  open_releases_ = open_launches_ = 0;
}

void ShadowUpdates::PollBatches() {
  while (!closed_.empty()) {
    Batch& batch = closed_.front();
    while (!batch.recorded.empty()) {
      const Batch::Recorded recorded = batch.recorded.back();
      const CUresult result = OPS_DEBUG_REAL(cuEventQuery)(recorded.event);
      if (result == CUDA_ERROR_NOT_READY) return;
      if (result != CUDA_SUCCESS) {
        Lose();
        return;
      }
      batch.recorded.pop_back();
      spare_events_.push_back(recorded.event);
      // Its updates have ended with it.
      std::erase_if(active_, [&](const ActiveStream& stream) {
        if (stream.stream != recorded.stream || stream.launches != recorded.launches ||
            launches_ - stream.launches < kLaunchesUntilIdle) {
          return false;
        }
        spare_events_.push_back(stream.update);
        return true;
      });
    }
    ended_batch_ = batch.number;
    closed_.erase(closed_.begin());
  }
}

// Asks the other active streams whether they are idle. A launch follows its call of Apply, so a
// stream that another thread has used a moment ago may only look so.
void ShadowUpdates::DropIdleStreams(CUstream except) {
  if (AnyCapture()) return;
  std::erase_if(active_, [&](const ActiveStream& stream) {
    const bool settled = stream.caller == std::this_thread::get_id() ||
                         launches_ - stream.launches >= kLaunchesUntilIdle;
    if (stream.stream == except || stream.thread != std::thread::id() || !settled ||
        OPS_DEBUG_REAL(cuStreamQuery)(stream.stream) != CUDA_SUCCESS) {
      return false;
    }
    spare_events_.push_back(stream.update);
    return true;
  });
}

void ShadowUpdates::Apply(CUstream explicit_stream) {
  if (!used_.load(std::memory_order_acquire)) return;
  if (only_.load(std::memory_order_acquire) == explicit_stream &&
      explicit_stream != CU_STREAM_PER_THREAD && !dirty_.load(std::memory_order_acquire)) {
    return;
  }
  if (state_.lost || IsCapturing(explicit_stream)) return;
  std::lock_guard lock(mutex_);
  InternalCalls calls(state_);
  if (!calls.ok()) return;
  PollBatches();
  if (demanded_ && !active_.empty()) {
    DropIdleStreams(explicit_stream);
    PollBatches();
  }
  ActiveStream* stream = Enter(explicit_stream);
  if (!stream) return Lose();
  stream->launches = ++launches_;
  stream->caller = std::this_thread::get_id();
  bool ok = WaitForOwn(*stream);
  scratch_.clear();
  const bool alone = active_.size() == 1 && closed_.empty() && leftover_.empty();
  if (alone) {
    // Everything that was enqueued before runs before, in this very stream.
    marks_.Take(UINT64_MAX, &scratch_);
    open_releases_ = open_launches_ = 0;
    if (!scratch_.empty()) {
      ok = ok && WriteMarks(explicit_stream) &&
           OPS_DEBUG_REAL(cuEventRecord)(stream->update, explicit_stream) == CUDA_SUCCESS;
      stream->has_update = true;
    }
    dirty_ = false;
  } else {
    open_launches_++;
    marks_.Take(ended_batch_, &scratch_);
    if (!scratch_.empty()) {
      ok =
          ok && WriteMarks(own_) && OPS_DEBUG_REAL(cuEventRecord)(own_event_, own_) == CUDA_SUCCESS;
      version_++;
      ok = ok && WaitForOwn(*stream);
    }
    if (open_releases_ >= kReleasesPerBatch || open_launches_ >= kLaunchesPerBatch || demanded_ ||
        !leftover_.empty()) {
      CloseBatch();
    }
  }
  demanded_ = false;
  only_ = alone ? explicit_stream : nullptr;
  if (!ok) Lose();
}

void ShadowUpdates::StreamEnds(CUstream stream) {
  if (!used_.load(std::memory_order_acquire) || state_.lost) return;
  std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(active_, stream, &ActiveStream::stream);
  if (found == active_.end()) return;
  InternalCalls calls(state_);
  if (!calls.ok()) return;
  only_ = nullptr;
  bool ok = true;
  if (found->has_update) {
    ok = OPS_DEBUG_REAL(cuStreamWaitEvent)(own_, found->update, 0) == CUDA_SUCCESS &&
         OPS_DEBUG_REAL(cuEventRecord)(own_event_, own_) == CUDA_SUCCESS;
    version_++;
  }
  CUevent event = IsCapturing(stream) ? nullptr : NewEvent();
  if (event) {
    ok = ok && OPS_DEBUG_REAL(cuEventRecord)(event, stream) == CUDA_SUCCESS;
    leftover_.push_back({nullptr, 0, event});
  }
  spare_events_.push_back(found->update);
  active_.erase(found);
  if (!ok) Lose();
}

}  // namespace ops_debug::interposer
