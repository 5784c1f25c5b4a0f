// One StreamClocks for the process, under one lock that is held for lookups and arithmetic only.
// Streams are registered when they are first seen: what a stream is (blocking or not, of which
// context) can be asked of the driver.
#include "interposer/stream_order.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "interposer/context_state.h"
#include "interposer/exact_checks.h"
#include "interposer/launch_record.h"
#include "interposer/pinned_memory.h"
#include "interposer/process.h"
#include "interposer/python_stack.h"
#include "interposer/session.h"
#include "interposer/stream_order_ranges.h"

namespace ops_debug::interposer {
namespace {

using shadow::OperationKind;
using shadow::OrderPoint;
using shadow::StreamClocks;
using shadow::StreamKind;

constexpr size_t kRememberedWork = 8192;
constexpr size_t kMostPlaces = 4096;

// A thread's own default stream, or a context's legacy one (thread 0).
using DefaultKey = std::pair<CUcontext, pid_t>;

struct KnownStream {
  uint32_t slot = 0;
  StreamDescription description;
};

// What reports say about a piece of work.
struct WorkRecord {
  uint64_t token = 0;  // 0: empty
  bool is_kernel = false;
  const char* api = "";
  StreamDescription stream;
  std::vector<RangeAccess> accesses;
  SharedHostStack stack;
  PythonStackHandle python_stack;
};

// Where the program waits.
struct WaitingPlace {
  const char* api = "";
  SharedHostStack stack;
  PythonStackHandle python_stack;
};

// Never destroyed: hooks run until the very end of the process.
struct Order {
  std::mutex mutex;  // guards the rest
  StreamClocks clocks;
  std::unordered_map<CUstream, KnownStream> streams;
  std::map<DefaultKey, KnownStream> default_streams;
  uint64_t next_stream_number = 1;
  std::vector<WorkRecord> recent = std::vector<WorkRecord>(kRememberedWork);
  shadow::SyncAudit audit;
  std::unordered_map<uint64_t, WaitingPlace> places;
};
Order& TheOrder() {
  static auto* order = new Order;
  return *order;
}

constinit std::atomic<WorkListener> g_listener{nullptr};
constinit std::atomic<uint32_t> g_streams{0};  // that were ever known

uint64_t Name(const void* handle) { return reinterpret_cast<uintptr_t>(handle); }

uint64_t Now() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch())
                                   .count());
}

// What the driver says about a stream; asked without our lock.
struct StreamFacts {
  bool known = false;
  bool is_default = false;
  CUcontext context = nullptr;
  StreamKind kind = StreamKind::kBlocking;
  pid_t thread = 0;
  CUdevice device = 0;
};

StreamFacts AskAbout(CUstream stream) {
  StreamFacts facts;
  facts.is_default = stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
  if (facts.is_default) {
    if (OPS_DEBUG_REAL(cuCtxGetCurrent)(&facts.context) != CUDA_SUCCESS || !facts.context)
      return facts;
    OPS_DEBUG_REAL(cuCtxGetDevice)(&facts.device);
    if (stream == CU_STREAM_LEGACY) {
      facts.kind = StreamKind::kLegacy;
    } else {
      facts.thread = gettid();
    }
    facts.known = true;
    return facts;
  }
  {
    Order& order = TheOrder();
    std::lock_guard lock(order.mutex);
    facts.known = order.streams.contains(stream);
  }
  if (facts.known) return facts;
  unsigned int flags = 0;
  // To ask a captured stream for its flags invalidates the capture, in every mode (driver 580).
  if (IsCapturing(stream) ||
      OPS_DEBUG_REAL(cuStreamGetCtx)(stream, &facts.context) != CUDA_SUCCESS ||
      OPS_DEBUG_REAL(cuStreamGetFlags)(stream, &flags) != CUDA_SUCCESS) {
    return facts;
  }
  if (flags & CU_STREAM_NON_BLOCKING) facts.kind = StreamKind::kNonBlocking;
  facts.known = true;
  return facts;
}

// Equal for waits at one place of the program; never 0.
uint64_t PlaceOf(const WaitingPlace& place) {
  uint64_t hash = 0xcbf29ce484222325u;
  const auto mix = [&](uint64_t value) { hash = (hash ^ value) * 0x100000001b3u; };
  mix(Name(place.api));
  for (uint32_t i = 0; place.stack && i < place.stack->count; i++)
    mix(place.stack->return_addresses[i]);
  for (uint32_t i = 0; i < place.python_stack.count; i++) mix(place.python_stack.lines[i]);
  return hash | 1;
}

std::string NumberedName(uint64_t number, StreamKind kind) {
  return "stream " + std::to_string(number) +
         (kind == StreamKind::kNonBlocking ? " (non-blocking)" : "");
}

// With the lock held; null if the driver does not know the stream.
const KnownStream* Find(Order& order, CUstream stream, const StreamFacts& facts) {
  if (!facts.known) return nullptr;
  KnownStream* entry = nullptr;
  if (facts.is_default) {
    const auto [at, is_new] =
        order.default_streams.try_emplace(DefaultKey{facts.context, facts.thread});
    if (!is_new) return &at->second;
    entry = &at->second;
    if (facts.kind == StreamKind::kLegacy) {
      entry->description.name = "legacy default stream";
    } else {
      entry->description.number = order.next_stream_number++;
      entry->description.name =
          "per-thread default stream of thread " + std::to_string(facts.thread);
    }
    if (facts.device != 0) entry->description.name += " on device " + std::to_string(facts.device);
  } else {
    const auto [at, is_new] = order.streams.try_emplace(stream);
    if (!is_new) return &at->second;
    entry = &at->second;
    entry->description.number = order.next_stream_number++;
    entry->description.name = NumberedName(entry->description.number, facts.kind);
  }
  g_streams++;
  entry->slot = order.clocks.AddStream(facts.kind, Name(facts.context));
  return entry;
}

// body(order, stream) with the lock held, if the stream is known.
template <class Body>
void WithStream(CUstream stream, Body body) {
  const StreamFacts facts = AskAbout(stream);
  Order& order = TheOrder();
  std::lock_guard lock(order.mutex);
  if (const KnownStream* known = Find(order, stream, facts)) body(order, *known);
}

// Launches are numbered for people; the tokens of other operations lie far above their numbers.
uint64_t NextOperationToken() {
  static std::atomic<uint64_t> next{1};
  return 1ull << 63 | next++;
}

}  // namespace

bool ChecksStreamOrder() noexcept {
  static const bool checks = [] {
    const SessionOptions& options = Options();
    // On the device, copies and memsets make memory initialised where their streams get to them.
    return options.active && !options.null_rewrite &&
           (options.check_races || (options.check_init && !options.exact_checks));
  }();
  return checks;
}

bool SeveralStreams() noexcept { return g_streams.load(std::memory_order_relaxed) > 1; }

void ListenForWork(WorkListener listener) noexcept { g_listener = listener; }

OrderedWork::OrderedWork(WorkDescription description, CUstream stream) {
  if (!ChecksStreamOrder() || IsCapturing(stream)) return;
  WorkRecord record;
  record.token = token_ = description.token != 0 ? description.token : NextOperationToken();
  record.is_kernel = description.kind != OperationKind::kOther;
  record.api = description.api;
  if (!record.is_kernel) {  // a launch keeps its own
    record.stack = CachedHostStack(Name(description.api));
    record.python_stack = CapturePythonStack();
  }
  stream_ = stream;
  accesses_ = std::move(description.accesses);
  record.accesses = accesses_;
  std::vector<uint64_t> contexts;
  for (const CUcontext context : description.serialised_with) contexts.push_back(Name(context));
  WithStream(stream, [&](Order& order, const KnownStream& known) {
    operation_ = contexts.empty() ? order.clocks.Submit(known.slot, description.kind)
                                  : order.clocks.SubmitSerialised(known.slot, contexts);
    record.stream = known.description;
    std::swap(order.recent[token_ % kRememberedWork], record);
    order.audit.Submitted(operation_, description.effect);
    active_ = true;
  });
  if (!active_) return;
  if (description.kind == OperationKind::kOther) NoteWorkWrites(accesses_, operation_.id);
  if (description.pinned) RememberPinned(*description.pinned, token_, operation_.id);
  const shadow::OperationOrder given = this->order();
  if (const auto* checks = ExactChecks()) checks->set_next_operation(&given);
  if (const WorkListener listener = g_listener.load(std::memory_order_acquire))
    listener(/*before=*/true, stream_, given, accesses_);
}

void OrderedWork::Submitted(CUresult result) {
  if (!active_ || submitted_) return;
  submitted_ = true;
  if (const auto* checks = ExactChecks()) checks->set_next_operation(nullptr);
  const WorkListener listener = g_listener.load(std::memory_order_acquire);
  if (result != CUDA_SUCCESS) return;
  CompareRanges(accesses_, operation_, token_);
  if (listener) listener(/*before=*/false, stream_, order(), accesses_);
}

OrderedWork::~OrderedWork() { Submitted(CUDA_ERROR_UNKNOWN); }

namespace {

bool IsProgrammatic(const CUlaunchConfig* config) {
  for (unsigned int i = 0; config && config->attrs && i < config->numAttrs; i++) {
    const CUlaunchAttribute& attribute = config->attrs[i];
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
        attribute.value.programmaticStreamSerializationAllowed != 0) {
      return true;
    }
  }
  return false;
}

}  // namespace

LaunchOrder::LaunchOrder(const char* api, uint64_t launch_id, CUstream stream,
                         const CUlaunchConfig* config)
    : OrderedWork({.api = api,
                   .kind = IsProgrammatic(config) ? OperationKind::kProgrammaticKernel
                                                  : OperationKind::kKernel,
                   .token = launch_id,
                   .effect = shadow::WorkEffect::kKernel},
                  stream),
      launch_stream_(stream),
      config_(config) {}

// A programmatic event may be waited for before the kernel has ended, but what waits for it is then
// taken to come after all of the kernel: when it was triggered is the kernel's own affair.
void LaunchOrder::Submitted(CUresult result) {
  OrderedWork::Submitted(result);
  if (!active() || result != CUDA_SUCCESS || !config_ || !config_->attrs) return;
  for (unsigned int i = 0; i < config_->numAttrs; i++) {
    const CUlaunchAttribute& attribute = config_->attrs[i];
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT) {
      OrderEventRecorded(attribute.value.programmaticEvent.event, launch_stream_, 0);
    } else if (attribute.id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT) {
      WithStream(launch_stream_, [&](Order& order, const KnownStream& known) {
        order.clocks.RecordLaunchBegun(Name(attribute.value.launchCompletionEvent.event),
                                       known.slot);
      });
    }
  }
}

HostWait HostWait::ForStream(const char* api, CUstream explicit_stream) {
  HostWait wait;
  if (!ChecksStreamOrder() || IsCapturing(explicit_stream)) return wait;
  WithStream(explicit_stream, [&](Order& order, const KnownStream& known) {
    wait.point_ = order.clocks.PointOfStream(known.slot);
    wait.active_ = true;
  });
  if (wait.active_) wait.Begin(api);
  return wait;
}

HostWait HostWait::ForEvent(const char* api, CUevent event) {
  HostWait wait;
  if (!ChecksStreamOrder()) return wait;
  {
    Order& order = TheOrder();
    std::lock_guard lock(order.mutex);
    wait.point_ = order.clocks.PointOfEvent(Name(event));
  }
  wait.active_ = true;
  wait.Begin(api);
  return wait;
}

HostWait HostWait::ForContext(const char* api, CUcontext context) {
  HostWait wait;
  if (!ChecksStreamOrder()) return wait;
  if (!context && OPS_DEBUG_REAL(cuCtxGetCurrent)(&context) != CUDA_SUCCESS) return wait;
  {
    Order& order = TheOrder();
    std::lock_guard lock(order.mutex);
    wait.point_ = order.clocks.PointOfContext(Name(context));
  }
  wait.active_ = true;
  wait.Begin(api);
  return wait;
}

HostWait HostWait::ForAll() {
  HostWait wait;
  if (!ChecksStreamOrder()) return wait;
  Order& order = TheOrder();
  std::lock_guard lock(order.mutex);
  wait.point_ = order.clocks.PointOfAll();
  wait.active_ = true;
  wait.promised_ = false;
  wait.blocking_ = BlockingCall::Begin();
  return wait;
}

HostWait HostWait::ForWork(const OrderedWork& work, bool promised) {
  HostWait wait;
  if (!work.active()) return wait;
  wait.promised_ = promised;
  wait.point_.clock = work.operation().clock;
  wait.point_.open = work.is_open();
  wait.point_.slot = work.operation().id.slot;
  wait.active_ = true;
  return wait;
}

void HostWait::Begin(const char* api) {
  if (!api) return;
  api_ = api;
  blocking_ = BlockingCall::Begin();
  begin_ns_ = Now();
}

void HostWait::Done(CUresult result) {
  blocking_.End();
  if (!active_ || result != CUDA_SUCCESS) return;
  active_ = false;
  ComparePinnedSources(point_, api_);
  uint64_t place = 0, duration_ns = 0;
  WaitingPlace here;
  bool written = true;
  if (api_) {
    duration_ns = Now() - begin_ns_;
    here = {api_, CachedHostStack(Name(api_)), CapturePythonStack()};
    place = PlaceOf(here);
    written = HostVisibleWritten();
  }
  Order& order = TheOrder();
  std::lock_guard lock(order.mutex);
  if (place != 0 && order.places.size() < kMostPlaces) {
    order.places.try_emplace(place, std::move(here));
  }
  if (promised_) {
    order.audit.Waited(
        place, point_, [&] { return written; }, duration_ns);
  } else {
    order.audit.Interrupted();
  }
  order.clocks.HostJoins(point_);
}

void OrderEventRecorded(CUevent event, CUstream explicit_stream, unsigned int flags) {
  if (!ChecksStreamOrder()) return;
  // In a capture the event stands for a node, except if it is recorded whenever the graph runs.
  if (IsCapturing(explicit_stream)) {
    if (!(flags & CU_EVENT_RECORD_EXTERNAL)) OrderEventDestroyed(event);
    return;
  }
  WithStream(explicit_stream, [&](Order& order, const KnownStream& known) {
    order.audit.Submitted(order.clocks.RecordEvent(Name(event), known.slot),
                          shadow::WorkEffect::kOther);
  });
}

void OrderEventAwaited(CUstream explicit_stream, CUevent event, unsigned int) {
  if (!ChecksStreamOrder() || IsCapturing(explicit_stream)) return;
  WithStream(explicit_stream, [&](Order& order, const KnownStream& known) {
    order.clocks.WaitEvent(known.slot, Name(event));
  });
}

void OrderEventShared(CUevent event) {
  if (!ChecksStreamOrder()) return;
  Order& order = TheOrder();
  std::lock_guard lock(order.mutex);
  order.clocks.ShareEvent(Name(event));
}

void OrderEventDestroyed(CUevent event) {
  if (!ChecksStreamOrder()) return;
  Order& order = TheOrder();
  std::lock_guard lock(order.mutex);
  order.clocks.ForgetEvent(Name(event));
}

std::vector<KnownStreamHandle> StreamsWithWork() {
  std::vector<KnownStreamHandle> streams;
  Order& order = TheOrder();
  std::lock_guard lock(order.mutex);
  for (const auto& [stream, known] : order.streams) streams.push_back({stream});
  size_t threads = 0;
  for (const auto& [key, known] : order.default_streams) {
    if (key.second != 0) {
      threads++;
    } else {
      streams.push_back({CU_STREAM_LEGACY});
    }
  }
  if (threads != 0) streams.push_back({CU_STREAM_PER_THREAD, threads == 1});
  return streams;
}

void OrderStreamCreated(CUstream stream) {
  if (ChecksStreamOrder()) WithStream(stream, [](Order&, const KnownStream&) {});
}

void OrderStreamDestroyed(CUstream stream) {
  if (!ChecksStreamOrder()) return;
  Order& order = TheOrder();
  std::lock_guard lock(order.mutex);
  const auto found = order.streams.find(stream);
  if (found == order.streams.end()) return;
  order.clocks.RemoveStream(found->second.slot);
  order.streams.erase(found);
}

void OrderContextDestroyed(CUcontext context) {
  if (!ChecksStreamOrder()) return;
  Order& order = TheOrder();
  std::lock_guard lock(order.mutex);
  order.clocks.RemoveContext(Name(context));
  std::erase_if(order.default_streams,
                [&](const auto& entry) { return entry.first.first == context; });
  // Handles of its streams may name others from now on.
  std::erase_if(order.streams,
                [&](const auto& entry) { return order.clocks.IsRemoved(entry.second.slot); });
}

void OrderUnseenWait(CUstream explicit_stream) {
  if (!ChecksStreamOrder() || IsCapturing(explicit_stream)) return;
  WithStream(explicit_stream,
             [](Order& order, const KnownStream& known) { order.clocks.WaitUnseen(known.slot); });
}

void OrderStreamAfter(CUstream explicit_stream, const OrderPoint& point) {
  WithStream(explicit_stream, [&](Order& order, const KnownStream& known) {
    order.clocks.WaitPoint(known.slot, point);
  });
}

OrderPoint StreamPointNow(CUstream explicit_stream) {
  OrderPoint point;
  WithStream(explicit_stream, [&](Order& order, const KnownStream& known) {
    point = order.clocks.PointOfStream(known.slot);
  });
  return point;
}

void HostKnowsDone(const OrderPoint& point) {
  ComparePinnedSources(point, nullptr);
  Order& order = TheOrder();
  std::lock_guard lock(order.mutex);
  order.audit.Interrupted();
  order.clocks.HostJoins(point);
}

void HostKnowsAllDone() {
  OrderPoint point;
  {
    Order& order = TheOrder();
    std::lock_guard lock(order.mutex);
    point = order.clocks.PointOfAll();
  }
  HostKnowsDone(point);
}

shadow::VectorClock HostClock() {
  Order& order = TheOrder();
  std::lock_guard lock(order.mutex);
  return order.clocks.host_clock();
}

void OrderTimesCompared() {
  if (!ChecksStreamOrder()) return;
  Order& order = TheOrder();
  std::lock_guard lock(order.mutex);
  order.audit.Interrupted();
}

namespace {

bool Touches(const RangeAccess& range, uint64_t address) {
  if (range.height == 0 || range.width_bytes == 0) return false;
  const uint64_t extent = (range.height - 1) * range.pitch_bytes + range.width_bytes;
  return address - range.address < extent;
}

}  // namespace

bool DescribeOperation(uint64_t token, AccessDescription* access) {
  if (token == 0) return false;
  WorkRecord record;
  {
    Order& order = TheOrder();
    std::lock_guard lock(order.mutex);
    record = order.recent[token % kRememberedWork];
  }
  if (record.token != token) return false;
  access->stream = record.stream;
  if (record.is_kernel) return true;
  access->operation = record.api;
  if (record.stack) access->stack = ResolveHostStack(*record.stack);
  access->python_stack = ResolvePythonStack(record.python_stack);
  // A free is neither load nor store.
  const bool frees = std::string_view(record.api).starts_with("cuMemFree");
  if (!access->has_site && !frees) {
    for (const RangeAccess& range : record.accesses) {
      if (!Touches(range, access->address)) continue;
      access->has_site = true;
      access->site.space = proto_enums::AddressSpace::kGlobal;
      access->site.access =
          range.is_write ? proto_enums::AccessKind::kStore : proto_enums::AccessKind::kLoad;
    }
  }
  return true;
}

namespace {

const char* Reason(shadow::RedundantBecause reason) {
  switch (reason) {
    case shadow::RedundantBecause::kNothingNew:
      return "everything that it waits for had been waited for before";
    case shadow::RedundantBecause::kStagedCopy:
      return "it waits only for synchronous copies of pageable memory, whose source was free to "
             "use when they returned; all work until the next wait is in a stream that comes after "
             "them";
    case shadow::RedundantBecause::kCopyBehind:
      return "until the next wait there are only copies to the host, in a stream that comes after "
             "everything that it waits for, which wrote nothing that the host can see";
  }
  return "";
}

void SendRedundantWaits(EndPhase phase) {
  if (phase != EndPhase::kDriverUsable || !ChecksStreamOrder()) return;
  std::vector<std::pair<shadow::SyncAudit::Place, WaitingPlace>> found;
  {
    Order& order = TheOrder();
    std::lock_guard lock(order.mutex);
    for (const shadow::SyncAudit::Place& place : order.audit.Redundant()) {
      const auto at = order.places.find(place.place);
      if (at != order.places.end()) found.emplace_back(place, at->second);
    }
    order.audit = {};  // the process may go on after an exec that failed
  }
  for (const auto& [place, where] : found) {
    RedundantSyncEvent event;
    event.api = where.api;
    if (where.stack) event.stack = ResolveHostStack(*where.stack);
    event.python_stack = ResolvePythonStack(where.python_stack);
    event.count = place.count;
    event.reason = Reason(place.reason);
    event.duration_ns = place.duration_ns;
    Send(event);
  }
}

[[maybe_unused]] const bool registered = [] {
  AtProcessEnd(&SendRedundantWaits);
  return true;
}();

}  // namespace
}  // namespace ops_debug::interposer
