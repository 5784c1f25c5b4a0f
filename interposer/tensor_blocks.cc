// Blocks of pools: book first, then shadow memory. Runs inside the pool's own lock, a thousand
// times per training step, so nothing here waits for the device or calls the driver; the exception
// is the first block of a segment.
#include "interposer/tensor_blocks.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "interposer/allocation_tracking.h"
#include "interposer/context_state.h"
#include "interposer/event_sender.h"
#include "interposer/exact_checks.h"
#include "interposer/launch_record.h"
#include "interposer/process_state.h"
#include "interposer/python_stack.h"
#include "interposer/session.h"
#include "interposer/shadow_updates.h"
#include "interposer/stack_cache.h"

namespace ops_debug::interposer {
namespace {

std::atomic<TensorQuestion> g_question{nullptr};

// What a handler may rely on (hooks.h), for functions that are not the driver's.
class HandlerScope {
 public:
  HandlerScope() : active_(EnterHandler()) {}
  ~HandlerScope() {
    if (active_) LeaveHandler();
  }
  HandlerScope(const HandlerScope&) = delete;
  HandlerScope& operator=(const HandlerScope&) = delete;
  bool active() const { return active_; }

 private:
  bool active_;
};

// The native stack stands in in programs without Python. (In programs with Python it would be that
// of the backward pass's threads: costly to walk, and the same for all.)
enum class StackOf : uint64_t { kHandOut = 1, kGiveBack = 2 };
shadow::HostStack NativeStack(const shadow::CodeLines& lines, StackOf what) {
  if (lines.count != 0 || PythonReadable()) return {};
  const SharedHostStack stack = CachedHostStack(static_cast<uint64_t>(what));
  return {stack->return_addresses.begin(), stack->return_addresses.begin() + stack->count};
}

void ReportNoMemory() noexcept {
  try {
    SendOnce(DiagnosticEvent{.severity = proto_enums::Severity::kError,
                             .text = "no memory to keep the blocks of a memory pool",
                             .hint = "findings may be wrong from here on"});
  } catch (...) {
  }
}

}  // namespace

bool TracksTensors() noexcept {
  static const bool tracks = ChecksAnything() && Options().track_tensors;
  return tracks;
}

shadow::CodeLines CapturePythonLines() noexcept {
  const PythonStackHandle stack = CapturePythonStack();
  shadow::CodeLines lines;
  static_assert(std::tuple_size_v<decltype(lines.numbers)> == PythonStackHandle::kMaxFrames);
  lines.count = stack.count;
  lines.numbers = stack.lines;
  return lines;
}

void BlockHandedOut(const BlockReport& report) noexcept {
  if (!TracksTensors() || report.address == 0 || report.reserved_bytes == 0) return;
  HandlerScope scope;
  if (!scope.active()) return;
  try {
    shadow::PoolBlock block;
    block.base = report.address;
    block.reserved_bytes = report.reserved_bytes;
    const bool known = report.size_bytes != 0 && report.size_bytes <= report.reserved_bytes;
    block.size_bytes = known ? report.size_bytes : report.reserved_bytes;
    block.born = LatestLaunchId() + 1;  // the first launch that can use it
    block.api = report.pool;
    block.tensor = report.tensor;
    block.tensor.allocation_lines = CapturePythonLines();
    block.allocation_stack = NativeStack(block.tensor.allocation_lines, StackOf::kHandOut);
    const uint64_t size_bytes = block.size_bytes;
    const auto segment = Book().HandOut(std::move(block), report.for_graph);
    if (!segment) return;
    const ContextPointer state = FindContextState(static_cast<CUcontext>(segment->context));
    if (!state || state->lost) return;
    RenewForChecks(report.address, report.reserved_bytes);
    if (!ChecksMemory()) return;
    if (segment->first_block &&
        !state->updates->AdoptSegment(segment->base, segment->size_bytes, report.reports_all)) {
      return;
    }
    for (const shadow::PoolBlock& live : segment->now_of_graphs) {
      state->updates->Keep(live.base, live.size_bytes);
    }
    state->updates->HandedOut(report.address, size_bytes, report.reserved_bytes,
                              segment->graph_pool);
  } catch (...) {
    ReportNoMemory();
  }
}

void BlockGivenBack(uint64_t address, bool under_capture) noexcept {
  if (!TracksTensors() || address == 0) return;
  HandlerScope scope;
  if (!scope.active()) return;
  try {
    const shadow::CodeLines lines = CapturePythonLines();
    const auto block =
        Book().GiveBack(address, LatestLaunchId(), lines, NativeStack(lines, StackOf::kGiveBack));
    if (!block) return;
    const ContextPointer state = FindContextState(static_cast<CUcontext>(block->context));
    if (!state || state->lost || !ChecksMemory()) return;
    if (under_capture) {
      state->updates->Keep(address, block->size_bytes);
    } else {
      state->updates->GivenBack(address, block->size_bytes, block->reserved_bytes);
    }
  } catch (...) {
    ReportNoMemory();
  }
}

void AnswerTensorBeingAllocated(TensorQuestion question) noexcept { g_question = question; }

std::shared_ptr<const shadow::TensorInfo> TensorBeingAllocated(uint64_t size_bytes) noexcept {
  const TensorQuestion question = g_question.load(std::memory_order_relaxed);
  if (!question || !TracksTensors()) return nullptr;
  try {
    auto tensor = std::make_shared<shadow::TensorInfo>();
    if (!question(size_bytes, tensor.get())) return nullptr;
    tensor->allocation_lines = CapturePythonLines();
    return tensor;
  } catch (...) {
    return nullptr;
  }
}

}  // namespace ops_debug::interposer
