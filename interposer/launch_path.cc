// The order of the questions: did the user leave this launch out; is there a twin and can it run
// here; else, does the second engine check the original. Each "no" carries its reason.
#include "interposer/launch_path.h"

#include <cstring>
#include <span>

#include "interposer/exact_checks.h"
#include "interposer/fault_drain.h"
#include "interposer/init_state.h"
#include "interposer/launch_capture.h"
#include "interposer/launch_failure.h"
#include "interposer/launch_pointers.h"
#include "interposer/numeric_event.h"
#include "interposer/pinned_memory.h"
#include "interposer/race_state.h"
#include "interposer/sass_engine.h"
#include "interposer/session.h"

namespace ops_debug::interposer {
namespace {

// Blocks that can be resident on the current device at once; 0 if the driver does not say.
uint64_t ResidentBlocks(CUfunction function, const LaunchRequest& request) {
  const int threads = static_cast<int>(request.block.x * request.block.y * request.block.z);
  int per_multiprocessor = 0, multiprocessors = 0;
  CUdevice device = 0;
  if (OPS_DEBUG_REAL(cuOccupancyMaxActiveBlocksPerMultiprocessor)(
          &per_multiprocessor, function, threads, request.dynamic_shared_bytes) != CUDA_SUCCESS ||
      OPS_DEBUG_REAL(cuCtxGetDevice)(&device) != CUDA_SUCCESS ||
      OPS_DEBUG_REAL(cuDeviceGetAttribute)(
          &multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device) != CUDA_SUCCESS) {
    return 0;
  }
  return static_cast<uint64_t>(per_multiprocessor) * static_cast<uint64_t>(multiprocessors);
}

// Blocks that wait for each other must all be resident, or the kernel never ends. Natively they
// are; the twin's registers may take that away.
bool LosesResidency(CUfunction twin, const LaunchRequest& request) {
  const uint64_t blocks = uint64_t{request.grid.x} * request.grid.y * request.grid.z;
  return blocks <= ResidentBlocks(request.handle, request) &&
         blocks > ResidentBlocks(twin, request);
}

ContextPointer ContextOf(const FunctionRecord& function, const LaunchRequest& request) {
  if (function.context) return ContextStateOf(function.context);
  if (request.node_context) return ContextStateOf(request.node_context);
  return request.added_node ? CurrentContextState()
                            : StreamContextState(request.stream, request.default_stream);
}

// A program that fails in a loop must not flood the ring.
bool MayReportFailure() {
  constexpr uint64_t kMostReports = 1000;
  static std::atomic<uint64_t> reports{0};
  return reports.fetch_add(1, std::memory_order_relaxed) < kMostReports;
}

}  // namespace

LaunchPath::LaunchPath(const LaunchRequest& request)
    : request_(request),
      stream_(ExplicitStream(request.stream, request.default_stream)),
      function_(FindFunction(request.handle)),
      id_(NextLaunchId()) {
  if (!function_) function_ = RegisterStranger(request.handle);
  kernel_ = function_->kernel;
  // Bounds that are copied into a graph are those of today's allocations; the graph may run when
  // others live there.
  node_ = request.added_node || IsCapturing(stream_);
  if (!node_) order_.emplace(request.api, id_, stream_, request.config);
  if (const char* left_out = FilterLaunch(kernel_->filter, kernel_->name)) {
    reason_ = left_out;
    left_out_ = true;
  } else if (!InstrumentsKernels()) {
    Cover();
  } else {
    reason_ = FindTwin();
    SaveToFile();
    BeginTensorCapture();
    CaptureForReplay();
    if (reason_.empty()) {
      if (!twin_parameters_.Build(
              *kernel_->plan, request.parameters, request.extra, Book(),
              node_ ? shadow::BoundsSource::kShadowOnly : shadow::BoundsSource::kAllocations,
              id_)) {
        reason_ = "its launch parameters are incomplete";
      } else {
        // Before it runs: another thread may drain its faults at once.
        Remember();
        NoteLaunch(instance_, node_);
        ReportWidenedConstants(*function_->module, *kernel_, id_);
        if (!request.added_node) PrepareShadow(*context_, stream_, *function_, request);
        PrepareRaceChecks();
        PrepareInitChecks();
      }
    }
    if (!reason_.empty()) {
      twin_ = nullptr;
      Cover();
    }
  }
  NoteUnseenWrites();
  NoteHostMemoryWrites();
  // The CPU device names each launch in what it finds.
  if (const shadow::EmulatorChecks* exact = ExactChecks()) {
    Remember();
    if (!node_ && !(order_ && order_->active())) {
      shadow::OperationOrder order;
      order.token = id_;
      exact->set_next_operation(&order);
      told_token_ = true;
    }
  }
  if (!request.added_node) timer_.emplace(function_->module, *kernel_, stream_, node_);
}

std::string_view LaunchPath::FindTwin() {
  if (!kernel_->not_checked_reason.empty()) return kernel_->not_checked_reason;
  if (!Options().use_ptx_engine) return "the engine for PTX is switched off (--engine)";
  if (*request_.obstacle) return request_.obstacle;
  context_ = ContextOf(*function_, request_);
  if (!context_ || context_->lost) return "no shadow memory in its context";
  {
    std::lock_guard lock(function_->mutex);
    if (function_->twin && function_->instance && function_->instance->context == context_) {
      instance_ = function_->instance;
      twin_ = function_->twin;
    }
  }
  if (!twin_) {
    instance_ = InstanceIn(function_->module, context_);
    if (!instance_->failure.empty()) {
      failure_ = "its module could not be prepared: " + instance_->failure;
      return failure_;
    }
    twin_ = TwinOf(*function_);
    if (!twin_) return "the driver does not find the instrumented kernel";
    std::lock_guard lock(function_->mutex);
    function_->instance = instance_;
  }
  if (kernel_->plan->waits_for_blocks && LosesResidency(twin_, request_)) {
    return "its blocks wait for each other, and the instrumented kernel's registers do not let all "
           "of them be resident at once";
  }
  return {};
}

void LaunchPath::Cover() {
  covered_.reset();
  if (!context_) context_ = ContextOf(*function_, request_);
  if (!InstrumentsKernels()) {
    if (!ExactChecks()) {
      reason_ = "the CPU device offers no checks of its own";
      return;
    }
    covered_ = Engine::kEmulator;
    if (!context_) return;
    InstanceIn(function_->module, context_);  // its variables are allocations
    context_->launches.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  if (ExactChecks() && !reason_.empty()) {
    failure_ = "its memory accesses are not checked: " + std::string(reason_);
    reason_ = failure_;
  }
  if (!Options().use_sass_engine) return;
  std::string obstacle;
  if (context_ && SassEngineCovers(request_.handle, context_, stream_, id_, &obstacle)) {
    covered_ = Engine::kSass;
    Remember();
    context_->launches.fetch_add(1, std::memory_order_relaxed);
    if (!request_.added_node) PrepareShadow(*context_, stream_, *function_, request_);
  } else if (!obstacle.empty()) {
    failure_ = std::string(reason_) + "; its machine code is not checked: " + obstacle;
    reason_ = failure_;
  }
}

void LaunchPath::NoteUnseenWrites() {
  if (!ChecksInitOnDevice()) return;
  const bool seen = twin_ && kernel_->plan->init.checked && !kernel_->plan->init.writes_unseen;
  if (seen) return;
  if (!context_) context_ = ContextOf(*function_, request_);
  if (!context_ || context_->lost || !context_->init) return;
  const std::string because =
      twin_ ? "kernel " + kernel_->name + " writes through what cannot be followed"
            : "kernel " + kernel_->name + " runs unchecked";
  // What is captured runs later, and its launches say so then (cuGraphLaunch).
  if (!node_) context_->init->AllWritten(stream_, because);
}

void LaunchPath::CaptureForReplay() {
  if (!NeedsCapture(request_, *kernel_)) return;
  const bool ordered = order_ && order_->active();
  capture_id_ = CaptureLaunch({.request = request_,
                               .function = function_,
                               .context = context_,
                               .stream = stream_,
                               .node = node_,
                               .order = ordered ? &order_->operation() : nullptr},
                              [this] { return MakeRecord(); });
}

void LaunchPath::SaveToFile() {
  if (!SavesLaunch()) return;
  if (!context_) context_ = ContextOf(*function_, request_);
  SaveLaunch({.request = request_,
              .function = function_,
              .context = context_,
              .stream = stream_,
              .node = node_},
             [this] { return MakeRecord(); });
}

void LaunchPath::BeginTensorCapture() {
  if (!CapturesTensors()) return;
  if (!context_) context_ = ContextOf(*function_, request_);
  tensors_ = TensorCapture::Begin({.request = request_,
                                   .function = function_,
                                   .context = context_,
                                   .stream = stream_,
                                   .node = node_},
                                  [this] { return MakeRecord(); });
}

void LaunchPath::NoteHostMemoryWrites() {
  if (!order_ || !order_->active()) return;
  const shadow::KernelPlan* plan = kernel_->plan;
  std::span<const std::byte> buffer;
  const bool packed = !request_.parameters && ReadExtra(request_.extra, &buffer);
  if (!packed && !request_.parameters) plan = nullptr;
  NoteKernelWrites(plan,
                   packed || !plan ? shadow::LaunchParameters(buffer)
                                   : shadow::LaunchParameters(*plan, request_.parameters),
                   order_->operation().id);
}

void LaunchPath::PrepareRaceChecks() {
  const shadow::KernelPlan& plan = *kernel_->plan;
  // A graph's nodes get what they need when it is launched (graph_races.h).
  if (node_ || !context_->races || !plan.races.checked) return;
  std::span<const std::byte> buffer;
  const bool packed = !request_.parameters && ReadExtra(request_.extra, &buffer);
  const shadow::LaunchParameters parameters =
      packed ? shadow::LaunchParameters(buffer)
             : shadow::LaunchParameters(plan, request_.parameters);
  const bool ordered = order_ && order_->active();
  shadow::RaceLaunch launch;
  const CUfunction lean = LeanTwinOf(*function_);
  bool lean_serves = false;
  race_lock_ = context_->races->Prepare({.plan = &plan,
                                         .parameters = &parameters,
                                         .module = function_->module.get(),
                                         .twin = twin_,
                                         .grid = request_.grid,
                                         .block = request_.block,
                                         .dynamic_shared_bytes = request_.dynamic_shared_bytes,
                                         .launch_id = id_,
                                         .order = ordered ? &order_->operation() : nullptr,
                                         .lean_serves = lean ? &lean_serves : nullptr},
                                        &launch);
  if (lean_serves) twin_ = lean;
  std::memcpy(twin_parameters_.launch_parameter() + plan.races.launch_offset, &launch,
              sizeof launch);
}

// What is added or captured runs later, and looks everything up.
void LaunchPath::PrepareInitChecks() {
  const shadow::KernelPlan& plan = *kernel_->plan;
  if (node_ || !context_->init || plan.init.slots.empty()) return;
  std::span<const std::byte> buffer;
  const bool packed = !request_.parameters && ReadExtra(request_.extra, &buffer);
  const uint64_t written = context_->init->WhollyWritten(
      plan.init.slots, packed ? shadow::LaunchParameters(buffer)
                              : shadow::LaunchParameters(plan, request_.parameters));
  std::memcpy(twin_parameters_.launch_parameter() + plan.init.written_offset, &written,
              sizeof written);
}

void LaunchPath::Remember() {
  if (remembered_) return;
  remembered_ = true;
  RememberLaunch(MakeRecord());
}

LaunchRecord LaunchPath::MakeRecord() {
  LaunchRecord record;
  record.id = id_;
  record.left_out = left_out_;
  record.function = function_;
  record.grid = request_.grid;
  record.block = request_.block;
  record.dynamic_shared_bytes = request_.dynamic_shared_bytes;
  record.graph_node = node_;
  record.context = context_ ? context_->context : nullptr;
  record.stack = CachedHostStack(reinterpret_cast<uintptr_t>(kernel_));
  record.python_stack = CapturePythonStack();
  return record;
}

LaunchPath::~LaunchPath() {
  if (told_token_) ExactChecks()->set_next_operation(nullptr);
}

bool LaunchPath::TwinLaunched(CUresult result) {
  if (race_lock_) race_lock_.unlock();
  if (result == CUDA_SUCCESS) {
    if (order_) order_->Submitted(result);
    if (capture_id_ != 0) CapturedLaunchSubmitted(capture_id_, context_, stream_);
    if (!node_) CountChecked(function_->module, *kernel_, Engine::kPtx);
    if (timer_) timer_->Finish();
    if (tensors_) tensors_->Finish();
    return true;
  }
  if (EndsContext(result)) return true;
  // Nothing ran. If the original runs, the twin's needs were in the way; if
  // not, the program hears what it always would.
  failure_ = "the instrumented kernel cannot be launched (" + ErrorName(result) +
             "): it needs more registers or parameters than the launch leaves";
  reason_ = failure_;
  twin_ = nullptr;
  Cover();
  NoteUnseenWrites();
  if (timer_) timer_.emplace(function_->module, *kernel_, stream_, node_);
  return false;
}

void LaunchPath::GiveUpTwin(std::string_view reason) {
  if (!twin_) return;
  if (race_lock_) race_lock_.unlock();
  twin_ = nullptr;
  reason_ = reason;
  Cover();
  NoteUnseenWrites();
}

void LaunchPath::OriginalLaunched(CUresult result) {
  if (result != CUDA_SUCCESS) {
    // The documented answer to "can this be changed in an instantiated graph?".
    if (result == CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE) return;
    // Threads that still launch while the process exits: the driver is gone, nobody is to blame.
    if (result == CUDA_ERROR_DEINITIALIZED) return;
    if (EndsContext(result) || !MayReportFailure()) return;
    Send(InvalidLaunchEvent{.launch = Describe(MakeRecord()),
                            .error = ErrorName(result),
                            .api = request_.api,
                            .reason = LaunchFailureReason(result, request_)});
    return;
  }
  if (order_) order_->Submitted(result);
  if (capture_id_ != 0) CapturedLaunchSubmitted(capture_id_, context_, stream_);
  if (timer_) timer_->Finish();
  if (tensors_) tensors_->Finish();
  if (node_) {
    kernel_->node_covered = covered_.has_value();
    if (covered_) kernel_->node_engine = *covered_;
    std::lock_guard lock(kernel_->mutex);
    kernel_->node_not_checked_reason = reason_;
  } else if (covered_) {
    CountChecked(function_->module, *kernel_, *covered_);
  } else {
    CountUnchecked(function_->module, *kernel_, reason_);
  }
}

}  // namespace ops_debug::interposer
