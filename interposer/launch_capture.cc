// One launch is captured at a time. Everything is read through the launch's own stream, in front of
// it, so the program sees nothing but a launch that takes longer.
#include "interposer/launch_capture.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "interposer/capture_book.h"
#include "interposer/capture_file.h"
#include "interposer/captured_memory.h"
#include "interposer/fault_event.h"
#include "interposer/init_state.h"
#include "interposer/kernel_text.h"
#include "interposer/launch_path.h"
#include "interposer/module_load.h"
#include "interposer/process.h"
#include "interposer/session.h"
#include "interposer/stream_reader.h"
#include "interposer/stuck_launches.h"

namespace ops_debug::interposer {
namespace {

using Clock = std::chrono::steady_clock;

// A stream is waited for as long as this; once one was not done by then, others get less.
constexpr Clock::duration kPatience = std::chrono::seconds(10);
constexpr Clock::duration kLittlePatience = std::chrono::seconds(1);
constexpr size_t kMostChained = 4;       // launches of one capture
constexpr size_t kMostAllocations = 32;  // that are described

// A captured launch whose successor may begin before it ends.
struct Predecessor {
  std::weak_ptr<ContextState> context;
  CUstream stream = nullptr;
  shadow::OperationId operation;
  std::shared_ptr<const Capture> capture;
  std::vector<shadow::Allocation> allocations;
  KernelKey kernel;
};

// Never destroyed: hooks run until the very end of the process.
struct Captures {
  CaptureBook book;
  std::timed_mutex one_at_a_time;  // guards the rest
  Predecessor predecessor;
  ModulePointer text_owner;  // whose entries `text` knows
  std::optional<KernelText> text;
};
Captures& TheCaptures() {
  static auto* captures = new Captures;
  return *captures;
}

std::atomic<bool> g_timed_out{false};
std::atomic<bool> g_saved{false};        // or somebody else has
std::atomic<bool> g_save_missed{false};  // and the reason told
std::atomic<uint64_t> g_next_capture{1};

[[maybe_unused]] const bool registered = [] {
  AtProcessEnd([](EndPhase) {
    try {
      if (CapturesLaunches()) TheCaptures().book.TellTheRest();
    } catch (...) {
    }
  });
  // What the parent could not capture is the parent's to tell.
  AtForkInChild([]() noexcept { TheCaptures().book.Forget(); });
  return true;
}();

const CUlaunchAttribute* FindAttribute(const LaunchRequest& request, CUlaunchAttributeID id) {
  const CUlaunchConfig* config = request.config;
  for (unsigned int i = 0; config && config->attrs && i < config->numAttrs; i++) {
    if (config->attrs[i].id == id) return &config->attrs[i];
  }
  return nullptr;
}

bool IsProgrammatic(const LaunchRequest& request) {
  const CUlaunchAttribute* attribute =
      FindAttribute(request, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
  return attribute && attribute->value.programmaticStreamSerializationAllowed != 0;
}

bool IsCooperative(const LaunchRequest& request) {
  const CUlaunchAttribute* attribute = FindAttribute(request, CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
  return (attribute && attribute->value.cooperative != 0) ||
         std::strcmp(request.api, "cuLaunchCooperativeKernel") == 0;
}

Dim3 ClusterOf(const LaunchRequest& request) {
  const CUlaunchAttribute* attribute =
      FindAttribute(request, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
  if (!attribute) return {};
  return {attribute->value.clusterDim.x, attribute->value.clusterDim.y,
          attribute->value.clusterDim.z};
}

// Successors may begin early only if it tells them so.
bool LetsSuccessorsBegin(const shadow::KernelPlan& plan) {
  return std::any_of(plan.undecided.begin(), plan.undecided.end(), [](const std::string& text) {
    return text.find("griddepcontrol") != std::string::npos;
  });
}

bool MayReadUnwritten(const shadow::KernelPlan& plan) {
  return Options().check_init &&
         (plan.unwritten_reads.elsewhere || !plan.unwritten_reads.parameter_offsets.empty());
}

// Gathers one capture.
class Gathering {
 public:
  // The context of the launch must be current.
  explicit Gathering(const LaunchToCapture& launch)
      : launch_(launch),
        plan_(*launch.function->kernel->plan),
        reader_(launch.context, launch.stream,
                Clock::now() + (g_timed_out ? kLittlePatience : kPatience)) {}

  // True if memory that the kernel reads has bytes that were never written.
  bool FindsUnwritten() {
    if (plan_.unwritten_reads.elsewhere) {
      return Run(nullptr, {}, TheCaptures()) &&
             std::any_of(capture_.memory.begin(), capture_.memory.end(),
                         [](const CapturedMemory& memory) { return !memory.unwritten.empty(); });
    }
    std::string parameters;
    if (!PackParameters(plan_, launch_.request, &parameters)) return false;
    const shadow::LaunchParameters values(std::as_bytes(std::span(parameters)));
    for (const uint32_t offset : plan_.unwritten_reads.parameter_offsets) {
      uint64_t pointer = 0;
      if (values.ReadPointer(offset, &pointer) &&
          HasUnwritten(*launch_.context, reader_, pointer, Options().replay_memory_bytes)) {
        return true;
      }
    }
    return false;
  }

  // `behind`: captured launches that this one may overlap with, or null. False: `reason`.
  bool Run(const Predecessor* behind, const CapturedLaunchDescription& description, Captures& all) {
    CapturedLaunch captured;
    captured.description = description;
    captured.cluster = ClusterOf(launch_.request);
    captured.cooperative = IsCooperative(launch_.request);
    captured.programmatic = behind != nullptr;
    if (!PackParameters(plan_, launch_.request, &captured.parameters)) {
      reason_ = "its launch parameters are incomplete";
      return false;
    }
    capture_ = behind ? *behind->capture : Capture{};
    allocations_ = behind ? behind->allocations : std::vector<shadow::Allocation>();
    capture_.model = "sm_" + std::to_string(CurrentTarget().arch);
    CapturedModule& module = AddModule(all);
    CapturedReach reach(launch_.context, reader_, Options().replay_memory_bytes, &capture_);
    const bool complete =
        AddVariables(module, reach) && reach.AddParameters(captured.parameters) && reach.Finish();
    if (reader_.timed_out()) g_timed_out = true;
    if (!complete) {
      reason_ = reach.failure();
      return false;
    }
    const std::vector<shadow::Allocation> found = reach.allocations();
    allocations_.insert(allocations_.end(), found.begin(), found.end());
    capture_.launches.push_back(std::move(captured));
    return true;
  }

  const std::string& reason() const { return reason_; }
  Capture& capture() { return capture_; }
  std::vector<shadow::Allocation>& allocations() { return allocations_; }

 private:
  // With the text that the captured kernels of the module need.
  CapturedModule& AddModule(Captures& all) {
    const ModulePointer& loaded = launch_.function->module;
    if (all.text_owner != loaded) {
      all.text.emplace(loaded->own_ptx);
      all.text_owner = loaded;
    }
    std::vector<std::string> kernels{plan_.name};
    for (const CapturedLaunch& earlier : capture_.launches) {
      if (earlier.description.module_id == loaded->id)
        kernels.push_back(earlier.description.launch.kernel);
    }
    const auto found =
        std::find_if(capture_.modules.begin(), capture_.modules.end(),
                     [&](const CapturedModule& module) { return module.id == loaded->id; });
    CapturedModule& module =
        found == capture_.modules.end() ? capture_.modules.emplace_back() : *found;
    module.id = loaded->id;
    module.ptx = all.text->Of(kernels);
    return module;
  }

  // A variable that the driver does not find is not used: its compiler has dropped it.
  bool AddVariables(CapturedModule& module, CapturedReach& reach) {
    const LoadedModule& loaded = *launch_.function->module;
    if (loaded.code.globals.empty()) return true;
    const auto names = NamesIn(module.ptx);
    for (const shadow::ModuleVariable& variable : loaded.code.globals) {
      CUdeviceptr address = 0;
      size_t bytes = 0;
      if (!names.contains(variable.name) ||
          !FindGlobal(loaded, variable.name.c_str(), &address, &bytes)) {
        continue;
      }
      if (!reach.AddVariable(module, variable.name, address, bytes)) return false;
    }
    return true;
  }

  const LaunchToCapture& launch_;
  const shadow::KernelPlan& plan_;
  StreamReader reader_;
  Capture capture_;
  std::vector<shadow::Allocation> allocations_;
  std::string reason_;
};

CapturedLaunchDescription DescribeCaptured(const LaunchRecord& record, bool overlaps) {
  const KernelRecord& kernel = *record.function->kernel;
  CapturedLaunchDescription description;
  description.launch = Describe(record);
  description.module_id = kernel.module_id;
  description.undecided = kernel.plan->undecided;
  if (!description.undecided.empty()) return description;
  description.undecided.emplace_back(
      overlaps ? "programmatic dependent launch: whether it waits for the launch before it"
               : "memory that was never written: whether what is read of it matters");
  return description;
}

LaunchShape ShapeOf(const LaunchToCapture& launch, const KernelKey& before) {
  const LaunchRequest& request = launch.request;
  const KernelRecord& kernel = *launch.function->kernel;
  const Dim3 cluster = ClusterOf(request);
  return {{kernel.module_id, &kernel},
          {request.grid.x, request.grid.y, request.grid.z, request.block.x, request.block.y,
           request.block.z, cluster.x, cluster.y, cluster.z, request.dynamic_shared_bytes},
          before};
}

// Why no attempt is made now; null: one is.
const char* ObstacleTo(const LaunchToCapture& launch) {
  if (launch.node) return "it is a node of a graph, and graphs are not replayed";
  if (AnyCapture()) return "a stream was being captured when it was launched";
  if (std::strcmp(launch.request.api, "cuLaunchCooperativeKernelMultiDevice") == 0)
    return "it is a part of one launch on several devices";
  if (!launch.context || launch.context->lost) return "its context is not known";
  if (launch.function->module->own_ptx.empty()) return "its PTX is not kept";
  return nullptr;
}

// The launch right before this one in its stream, if that was captured.
const Predecessor* FindPredecessor(const Captures& all, const LaunchToCapture& launch) {
  const Predecessor& last = all.predecessor;
  if (!launch.order || !last.capture || !IsProgrammatic(launch.request)) return nullptr;
  const bool adjacent = last.context.lock() == launch.context && last.stream == launch.stream &&
                        last.operation.slot == launch.order->id.slot &&
                        last.operation.number + 1 == launch.order->id.number;
  return adjacent && last.capture->launches.size() < kMostChained ? &last : nullptr;
}

// Writes the file and tells of it. 0: `*reason`.
uint64_t Finish(Captures& all, const LaunchToCapture& launch, const LaunchShape& shape,
                Gathering& gathering, std::string* reason) {
  LaunchCapturedEvent event;
  event.capture_id = g_next_capture++;
  event.file = Options().replay_folder + "/" + std::to_string(getpid()) + "-" +
               std::to_string(event.capture_id) + ".capture";
  int error = 0;
  if (!WriteCapture(gathering.capture(), event.file, &event.bytes, &error)) {
    *reason = "the capture cannot be written: " + std::string(std::strerror(error));
    return 0;
  }
  bool host_memory = false;
  for (const CapturedMemory& memory : gathering.capture().memory) host_memory |= memory.host;
  for (const CapturedLaunch& captured : gathering.capture().launches)
    event.launches.push_back(captured.description);
  for (const shadow::Allocation& allocation : gathering.allocations()) {
    if (event.allocations.size() == kMostAllocations) break;
    event.allocations.push_back(Describe(allocation));
  }
  all.book.Captured(shape, event.capture_id, event.bytes, event.launches.back(), host_memory);
  Send(event);
  all.predecessor = {};
  if (launch.order && LetsSuccessorsBegin(*launch.function->kernel->plan)) {
    all.predecessor = {launch.context,
                       launch.stream,
                       launch.order->id,
                       std::make_shared<const Capture>(std::move(gathering.capture())),
                       std::move(gathering.allocations()),
                       std::get<0>(shape)};
  }
  return event.capture_id;
}

uint64_t Attend(const LaunchToCapture& launch, const std::function<LaunchRecord()>& record) {
  const shadow::KernelPlan& plan = *launch.function->kernel->plan;
  Captures& all = TheCaptures();
  const auto fail_for_now = [&](const char* reason) {
    if (!plan.undecided.empty())
      all.book.Failed(ShapeOf(launch, {}), DescribeCaptured(record(), false), reason, false);
    return 0;
  };
  if (const char* obstacle = ObstacleTo(launch)) return fail_for_now(obstacle);
  const std::unique_lock one_at_a_time(all.one_at_a_time, kPatience);
  if (!one_at_a_time) return fail_for_now("other launches were being captured for too long");
  InternalCalls calls(*launch.context);
  if (!calls.ok()) return fail_for_now("its context cannot be made current");
  const Predecessor* const behind = FindPredecessor(all, launch);
  const LaunchShape shape = ShapeOf(launch, behind ? behind->kernel : KernelKey{});
  Gathering gathering(launch);
  if (!behind && plan.undecided.empty() &&
      (!MayReadUnwritten(plan) || !all.book.TakeProbe(shape) || !gathering.FindsUnwritten())) {
    return 0;
  }
  const CapturedLaunchDescription description = DescribeCaptured(record(), behind != nullptr);
  const CaptureBook::Turn turn = all.book.TakeTurn(shape, description);
  if (turn == CaptureBook::Turn::kNone) return 0;
  std::string reason;
  if (gathering.Run(behind, description, all)) {
    if (const uint64_t id = Finish(all, launch, shape, gathering, &reason)) return id;
  } else {
    reason = gathering.reason();
  }
  all.book.Failed(shape, description, reason, turn == CaptureBook::Turn::kLast);
  return 0;
}

// Why it was not written; empty: it was, or another process has.
std::string Save(const LaunchToCapture& launch, const std::function<LaunchRecord()>& record) {
  const std::string& path = Options().capture_launch;
  if (access(path.c_str(), F_OK) == 0) {
    g_saved = true;
    return {};
  }
  if (const char* obstacle = ObstacleTo(launch)) return obstacle;
  if (!launch.function->kernel->plan) return "its PTX is not known";
  Captures& all = TheCaptures();
  const std::unique_lock one_at_a_time(all.one_at_a_time, kPatience);
  if (!one_at_a_time) return "other launches were being captured for too long";
  if (g_saved) return {};
  InternalCalls calls(*launch.context);
  if (!calls.ok()) return "its context cannot be made current";
  Gathering gathering(launch);
  const CapturedLaunchDescription description = DescribeCaptured(record(), false);
  if (!gathering.Run(nullptr, description, all)) return gathering.reason();
  uint64_t bytes = 0;
  int error = 0;
  if (!WriteCapture(gathering.capture(), path, &bytes, &error))
    return "the file cannot be written: " + std::string(std::strerror(error));
  g_saved = true;
  Send(DiagnosticEvent{.severity = proto_enums::Severity::kNote,
                       .text = "launch " + std::to_string(description.launch.launch_id) + " of " +
                               description.launch.kernel + " was saved to " + path + " (" +
                               std::to_string(bytes) + " bytes)",
                       .hint = "run it again: ops-debug replay " + path});
  return {};
}

}  // namespace

bool PackParameters(const shadow::KernelPlan& plan, const LaunchRequest& request,
                    std::string* out) {
  out->assign(plan.parameter_bytes, '\0');
  std::span<const std::byte> buffer;
  if (!request.parameters && ReadExtra(request.extra, &buffer)) {
    if (buffer.size() < plan.parameter_bytes) return false;
    std::memcpy(out->data(), buffer.data(), out->size());
    return true;
  }
  for (size_t i = 0; i < plan.parameters.size(); i++) {
    const ptx::ParameterLayout& parameter = plan.parameters[i];
    if (!request.parameters || !request.parameters[i] ||
        uint64_t{parameter.offset_bytes} + parameter.size_bytes > out->size()) {
      return false;
    }
    std::memcpy(out->data() + parameter.offset_bytes, request.parameters[i], parameter.size_bytes);
  }
  return true;
}

bool CapturesLaunches() noexcept {
  static const bool captures = [] {
    const SessionOptions& options = Options();
    return options.active && !options.replay_folder.empty() && !options.null_rewrite &&
           !options.exact_checks && options.use_ptx_engine &&
           (options.check_races || options.check_sync || options.check_init);
  }();
  return captures;
}

bool SavesLaunch() noexcept { return !Options().capture_launch.empty() && !g_saved; }

void SaveLaunch(const LaunchToCapture& launch,
                const std::function<LaunchRecord()>& record) noexcept {
  try {
    const std::string why = Save(launch, record);
    if (why.empty() || g_save_missed.exchange(true)) return;
    Send(DiagnosticEvent{
        .severity = proto_enums::Severity::kWarning,
        .text = "a launch of " + launch.function->kernel->name + " could not be saved: " + why,
        .hint = "the next launch is tried; --kernel-name and --launch-skip choose "
                "another, --replay-memory how much memory it may reach"});
  } catch (...) {
  }
}

bool NeedsCapture(const LaunchRequest& request, const KernelRecord& kernel) noexcept {
  return CapturesLaunches() && kernel.plan &&
         (!kernel.plan->undecided.empty() || MayReadUnwritten(*kernel.plan) ||
          (request.config && IsProgrammatic(request)));
}

uint64_t CaptureLaunch(const LaunchToCapture& launch,
                       const std::function<LaunchRecord()>& record) noexcept {
  try {
    // Most launches are of shapes that have had their turn.
    if (!IsProgrammatic(launch.request) && TheCaptures().book.IsDone(ShapeOf(launch, {}))) return 0;
    return Attend(launch, record);
  } catch (...) {
    SendOnce(DiagnosticEvent{.severity = proto_enums::Severity::kWarning,
                             .text = "no memory to capture launches for a replay",
                             .hint = "what instrumented kernels cannot decide stays open"});
    return 0;
  }
}

void CapturedLaunchSubmitted(uint64_t capture_id, const ContextPointer& context,
                             CUstream explicit_stream) noexcept {
  try {
    LaunchDescription launch;
    bool host_memory = false;
    if (!TheCaptures().book.TakeCaptured(capture_id, &launch, &host_memory)) return;
    WatchLaunch({.capture_id = capture_id,
                 .launch = std::move(launch),
                 .context = context,
                 .stream = explicit_stream,
                 .host_memory = host_memory});
  } catch (...) {
  }
}

}  // namespace ops_debug::interposer
