// Everything is enqueued where the operation itself will be, in front of it: a kernel behind it in
// the stream then finds the bits as it finds the memory.
#include "interposer/init_state.h"

#include <algorithm>
#include <atomic>
#include <span>
#include <string_view>

#include "interposer/context_state.h"
#include "interposer/event_sender.h"
#include "interposer/race_state.h"
#include "interposer/sass_engine.h"
#include "interposer/session.h"
#include "interposer/stream_order.h"

namespace ops_debug::interposer {
namespace {

#include "shadow/device/init_ranges_ptx.inc"

constexpr uint8_t kAllWritten = 0x00, kNoneWritten = 0xff;

bool IsFollowed(const shadow::Allocation& allocation) {
  const bool device = allocation.kind == shadow::AllocationKind::kDevice ||
                      allocation.kind == shadow::AllocationKind::kStreamOrdered;
  return device && std::string_view(allocation.api) != "cuMemAllocManaged";
}

void NoteWritten(CUstream explicit_stream, std::span<const RangeAccess> accesses);

// Copies and memsets of the program (stream_order.h), before the driver hears of them.
void OnWork(bool before, CUstream explicit_stream, const shadow::OperationOrder& order,
            std::span<const RangeAccess> accesses) noexcept {
  if (!before) return;
  try {
    TouchForRaces(accesses, order, explicit_stream);
    NoteWritten(explicit_stream, accesses);
  } catch (...) {
    AllMemoryWritten("there was no memory to keep up with copies");
  }
}

void NoteWritten(CUstream explicit_stream, std::span<const RangeAccess> accesses) {
  const RangeAccess* source = nullptr;
  size_t writes = 0, reads = 0;
  for (const RangeAccess& access : accesses) {
    if (access.is_write) {
      writes++;
    } else {
      reads++;
      source = &access;
    }
  }
  if (writes == 0) return;
  for (const ContextPointer& context : AllContextStates()) {
    if (!context->init || context->lost) continue;
    for (const RangeAccess& access : accesses) {
      if (!access.is_write) continue;
      const bool copy = writes == 1 && reads == 1 && source->width_bytes == access.width_bytes &&
                        source->height == access.height;
      if (copy) {
        context->init->Copied(access.address, access.pitch_bytes, source->address,
                              source->pitch_bytes, access.width_bytes, access.height,
                              explicit_stream);
      } else {
        context->init->Written(access.address, access.width_bytes, access.height,
                               access.pitch_bytes, explicit_stream);
      }
    }
  }
}

}  // namespace

void ListenForHostWork() noexcept { ListenForWork(&OnWork); }

bool ChecksInitOnDevice() noexcept {
  const SessionOptions& options = Options();
  return options.check_init && !options.exact_checks && !options.null_rewrite &&
         options.use_ptx_engine;
}

InitState::InitState(ContextState& context)
    : context_(context), map_(context.device, kAllWritten, kAllWritten) {}

bool InitState::Ready() {
  if (ready_) return true;
  if (failed_) return false;
  InternalCalls calls(context_);
  const UnpatchedLoad unpatched;
  ready_ = calls.ok() &&
           OPS_DEBUG_REAL(cuModuleLoadData)(&module_, kInitRangesPtx) == CUDA_SUCCESS &&
           OPS_DEBUG_REAL(cuModuleGetFunction)(&kernel_, module_, shadow::kInitRangeKernel) ==
               CUDA_SUCCESS &&
           map_.Create();
  if (!ready_) {
    failed_ = true;
    SendOnce(DiagnosticEvent{
        .severity = proto_enums::Severity::kError,
        .text = "no device memory for the state of unwritten memory; kernels of this context are "
                "not checked for uninitialised reads",
        .hint = "32 MiB plus an eighth of the allocated memory must be free"});
  }
  return ready_;
}

void InitState::Lose() {
  if (failed_) return;
  failed_ = true;
  // As far as this still works: a broken context runs nothing more.
  map_.MarkAllInStream(kAllWritten, context_.stream);
  context_.device.Finish();
  SendOnce(DiagnosticEvent{.severity = proto_enums::Severity::kError,
                           .text = "the state of unwritten memory could not be kept up to date; "
                                   "uninitialised reads are not looked for any more",
                           .hint = "the device is out of memory, or an earlier CUDA error has "
                                   "broken the context"});
}

uint64_t InitState::directory() {
  std::lock_guard lock(mutex_);
  return Ready() ? map_.directory() : 0;
}

void InitState::Allocated(const shadow::Allocation& allocation) {
  if (!IsFollowed(allocation) || allocation.size_bytes == 0) return;
  // Kernels of one device may write memory of another, whose bits they do not know.
  static std::atomic<bool> several{false};
  if (several.load(std::memory_order_relaxed)) return;
  if (AllContextStates().size() > 1 && !several.exchange(true)) {
    AllMemoryWritten("the process uses several contexts");
    return;
  }
  std::lock_guard lock(mutex_);
  if (!Ready() || failed_) return;
  InternalCalls calls(context_);
  const uint64_t base = allocation.base, size = allocation.size_bytes;
  // Kernels change the bits, so chunks must be the region's own.
  if (!calls.ok() || !map_.Prepare(base, size)) {
    SendOnce(DiagnosticEvent{.severity = proto_enums::Severity::kWarning,
                             .text = "no device memory for the state of some allocations: reads of "
                                     "unwritten bytes in them are not found",
                             .hint = "an eighth of the allocated memory must be free"});
    return;
  }
  any_unwritten_ = true;
  known_.Allocated(base, size);
  if (allocation.stream) {
    Launch({.directory = map_.directory(),
            .address = base,
            .width_bytes = size,
            .height = 1,
            .pitch_bytes = size,
            .source_directory = 0,
            .source = 0,
            .source_pitch_bytes = 0,
            .state = shadow::kInitUnwritten,
            .reserved = 0},
           static_cast<CUstream>(allocation.stream));
    return;
  }
  if (!map_.Mark(base, size, kNoneWritten)) Lose();
}

void InitState::Launch(const shadow::InitRange& range, CUstream explicit_stream) {
  if (range.width_bytes == 0 || range.height == 0) return;
  constexpr uint64_t kThreads = 128, kMostBlocks = 4096;
  const uint64_t threads = (range.width_bytes / 32 + 2) * range.height;
  const auto blocks =
      static_cast<unsigned>(std::min((threads + kThreads - 1) / kThreads, kMostBlocks));
  shadow::InitRange copy = range;
  void* parameters[] = {&copy};
  if (OPS_DEBUG_REAL(cuLaunchKernel)(kernel_, blocks, 1, 1, kThreads, 1, 1, 0, explicit_stream,
                                     parameters, nullptr) != CUDA_SUCCESS) {
    Lose();
  }
}

void InitState::Written(uint64_t address, uint64_t width_bytes, uint64_t height,
                        uint64_t pitch_bytes, CUstream explicit_stream) {
  std::lock_guard lock(mutex_);
  if (!ready_ || failed_ || !any_unwritten_) return;
  InternalCalls calls(context_);
  if (!calls.ok()) return Lose();
  const bool at_once = explicit_stream == nullptr;
  // What is captured has not run.
  const bool whole = height == 1 || pitch_bytes == width_bytes;
  if (whole && (at_once || !IsCapturing(explicit_stream)))
    known_.Written(address, width_bytes * height);
  Launch({.directory = map_.directory(),
          .address = address,
          .width_bytes = width_bytes,
          .height = height,
          .pitch_bytes = pitch_bytes,
          .source_directory = 0,
          .source = 0,
          .source_pitch_bytes = 0,
          .state = shadow::kInitWritten,
          .reserved = 0},
         at_once ? context_.stream : explicit_stream);
  if (at_once) context_.device.Finish();
}

void InitState::Copied(uint64_t to, uint64_t to_pitch_bytes, uint64_t from,
                       uint64_t from_pitch_bytes, uint64_t width_bytes, uint64_t height,
                       CUstream explicit_stream) {
  std::lock_guard lock(mutex_);
  if (!ready_ || failed_ || !any_unwritten_) return;
  InternalCalls calls(context_);
  if (!calls.ok()) return Lose();
  // Where the target has no bits of its own, none can be set.
  const auto target = Book().FindContaining(to);
  const bool followed = target && target->context == context_.context && IsFollowed(*target);
  NoteCopied(to, to_pitch_bytes, from, from_pitch_bytes, width_bytes, height,
             IsCapturing(explicit_stream));
  Launch({.directory = map_.directory(),
          .address = to,
          .width_bytes = width_bytes,
          .height = height,
          .pitch_bytes = to_pitch_bytes,
          .source_directory = map_.directory(),
          .source = from,
          .source_pitch_bytes = from_pitch_bytes,
          .state = followed ? shadow::kInitAsSource : shadow::kInitWritten,
          .reserved = 0},
         explicit_stream);
}

void InitState::NoteCopied(uint64_t to, uint64_t to_pitch_bytes, uint64_t from,
                           uint64_t from_pitch_bytes, uint64_t width_bytes, uint64_t height,
                           bool captured) {
  if (width_bytes == 0 || height == 0) return;
  const uint64_t to_bytes = to_pitch_bytes * (height - 1) + width_bytes;
  const uint64_t from_bytes = from_pitch_bytes * (height - 1) + width_bytes;
  if (captured || !known_.AreWritten(from, from_bytes)) {
    known_.Unknown(to, to_bytes, captured);
  } else if (height == 1 || to_pitch_bytes == width_bytes) {
    known_.Written(to, to_bytes);
  }
}

uint32_t InitState::WhollyWritten(const std::vector<uint32_t>& parameter_offsets,
                                  const shadow::LaunchParameters& parameters) {
  uint32_t written = 0;
  std::lock_guard lock(mutex_);
  if (!ready_ || failed_) return 0;
  for (size_t i = 0; i < parameter_offsets.size() && i < 32; i++) {
    uint64_t pointer = 0;
    if (!parameters.ReadPointer(parameter_offsets[i], &pointer)) continue;
    if (known_.WhollyWritten(pointer) == shadow::WrittenRanges::Answer::kWritten)
      written |= 1u << i;
  }
  return written;
}

std::vector<InitState::Bits> InitState::BitsOf(uint64_t address, uint64_t size_bytes) {
  std::vector<Bits> pieces;
  std::lock_guard lock(mutex_);
  if (!ready_ || failed_ || !any_unwritten_ || size_bytes == 0) return pieces;
  constexpr uint64_t kRegionGranules = 1ull
                                       << (shadow::kDirectoryShift - shadow::kShadowGranuleShift);
  const uint64_t end = ((address + size_bytes - 1) >> shadow::kShadowGranuleShift) + 1;
  for (uint64_t granule = address >> shadow::kShadowGranuleShift; granule < end;) {
    const uint64_t next = std::min(end, (granule / kRegionGranules + 1) * kRegionGranules);
    if (const uint64_t place = map_.ByteAddress(granule))
      pieces.push_back({granule << shadow::kShadowGranuleShift, place, next - granule});
    granule = next;
  }
  return pieces;
}

void InitState::AllWritten(CUstream explicit_stream, const std::string& because) {
  std::lock_guard lock(mutex_);
  if (!ready_ || failed_ || !any_unwritten_) return;
  any_unwritten_ = false;
  known_.AllWritten();
  InternalCalls calls(context_);
  if (!calls.ok() || !map_.MarkAllInStream(kAllWritten, explicit_stream)) return Lose();
  static std::atomic<bool> said{false};
  if (said.exchange(true)) return;
  SendOnce(DiagnosticEvent{
      .severity = proto_enums::Severity::kNote,
      .text = "memory that was allocated before counts as written, because " + because,
      .hint = "uninitialised reads of it are not found; the CPU device "
              "follows everything (--device emulator)"});
}

void AllMemoryWritten(const std::string& because) noexcept {
  if (!ChecksInitOnDevice()) return;
  try {
    for (const ContextPointer& context : AllContextStates()) {
      if (!context->init || context->lost) continue;
      context->init->AllWritten(context->stream, because);
      InternalCalls calls(*context);
      if (calls.ok()) context->device.Finish();
    }
  } catch (...) {
    SendOnce(DiagnosticEvent{.severity = proto_enums::Severity::kError,
                             .text = "no memory to keep the state of unwritten memory",
                             .hint = "uninitialised reads may be reported wrongly from here on"});
  }
}

}  // namespace ops_debug::interposer
