// Reads the fault channel of launched modules. A draining thread may meet a kernel that is still
// writing, so records are copied first and believed only if their sequence number stayed the same.
#include "interposer/fault_drain.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <mutex>
#include <optional>
#include <vector>

#include "interposer/event_sender.h"
#include "interposer/exact_checks.h"
#include "interposer/fault_event.h"
#include "interposer/fault_watch.h"
#include "interposer/launch_record.h"
#include "interposer/launch_timing.h"
#include "interposer/numeric_drain.h"
#include "interposer/process.h"
#include "interposer/race_state.h"
#include "interposer/sass_engine.h"
#include "interposer/session.h"
#include "ptx/fatbin.h"

namespace ops_debug::interposer {
namespace {

using shadow::FaultRecord;
using shadow::PublishedFault;

constexpr std::chrono::milliseconds kSummaryInterval{200};

// Instances that were launched since they were last drained idle. Never
// destroyed: hooks run until the very end.
struct Launched {
  std::mutex mutex;
  std::vector<InstancePointer> instances;
  std::atomic<bool> any{false};
};
Launched& TheLaunched() {
  static auto* launched = new Launched;
  return *launched;
}

// Copies a fault that the device may be writing. False: nothing there, or not
// whole yet.
bool ReadPublished(const PublishedFault& shared, PublishedFault* out) {
  const uint64_t before = __atomic_load_n(&shared.sequence, __ATOMIC_ACQUIRE);
  if (before == 0 || before % 2 != 0) return false;
  std::memcpy(out, &shared, sizeof *out);
  __atomic_thread_fence(__ATOMIC_ACQUIRE);
  out->sequence = before;
  return __atomic_load_n(&shared.sequence, __ATOMIC_RELAXED) == before;
}

// Counts of the faulty entries, from the device; empty if it does not answer.
std::vector<FaultRecord> ReadRecords(ModuleInstance& instance,
                                     const std::vector<uint64_t>& entries) {
  std::vector<FaultRecord> records(entries.size());
  ContextState& context = *instance.context;
  const uint64_t span = entries.back() - entries.front() + 1;
  constexpr size_t kFewEntries = 8;
  if (entries.size() <= kFewEntries) {
    for (size_t i = 0; i < entries.size(); i++) {
      if (!context.device.Read(&records[i], instance.records + entries[i] * sizeof(FaultRecord),
                               sizeof(FaultRecord))) {
        return {};
      }
    }
    return records;
  }
  std::vector<FaultRecord> all(span);
  if (!context.device.Read(all.data(), instance.records + entries.front() * sizeof(FaultRecord),
                           span * sizeof(FaultRecord))) {
    return {};
  }
  for (size_t i = 0; i < entries.size(); i++) records[i] = all[entries[i] - entries.front()];
  return records;
}

// Clears what was reported. Only while nothing runs: a kernel might hold the
// lock in a record.
void StartAfresh(ModuleInstance& instance, const std::vector<uint64_t>& entries) {
  ContextState& context = *instance.context;
  bool ok = true;
  for (const uint64_t entry : entries) {
    ok = ok && context.device.Fill(instance.records + entry * sizeof(FaultRecord), 0,
                                   sizeof(FaultRecord));
  }
  if (!context.device.Finish() || !ok) return;
  for (const uint64_t entry : entries) {
    std::memset(&instance.published[entry], 0, sizeof(PublishedFault));
    instance.reported.erase(entry);
  }
}

void ReportCounters(ModuleInstance& instance, uint64_t module_id) {
  shadow::Counters counters{};
  if (!instance.context->device.Read(&counters, instance.counters, sizeof counters)) return;
  if (counters.lost_numeric != 0) {
    SendOnce(DiagnosticEvent{.severity = proto_enums::Severity::kWarning,
                             .text = "more places with numerical faults than there is room for; "
                                     "some are not reported",
                             .hint = "choose kernels with --kernel-name"});
  }
  const uint64_t count = counters.unknown_accesses;
  if (count <= instance.reported_unknown) return;
  Send(UnknownAccessesEvent{.module_id = module_id, .count = count - instance.reported_unknown});
  instance.reported_unknown = count;
}

void DrainInstance(ModuleInstance& instance, DrainDepth depth, bool idle, bool with_counters) {
  const auto module = instance.module.lock();
  if (!module) return;
  std::lock_guard lock(instance.drain_mutex);
  if (!instance.published || (instance.entries == 0 && instance.numeric_slots == 0)) return;
  if (depth == DrainDepth::kHostOnly &&
      ptx::ReadableBytes(instance.published) < instance.entries * sizeof(PublishedFault)) {
    return;
  }
  std::vector<uint64_t> faulty;
  for (uint64_t entry = 0; entry < instance.entries; entry++) {
    if (__atomic_load_n(&instance.published[entry].sequence, __ATOMIC_RELAXED) != 0)
      faulty.push_back(entry);
  }
  if (faulty.empty() && !with_counters && !HasNewNumericFaults(instance)) return;

  const bool device = depth != DrainDepth::kHostOnly && !instance.context->lost;
  std::optional<InternalCalls> calls;
  if (device) calls.emplace(*instance.context);
  const bool reachable = device && calls->ok();
  if (!faulty.empty()) {
    const std::vector<FaultRecord> records =
        reachable ? ReadRecords(instance, faulty) : std::vector<FaultRecord>{};
    for (size_t i = 0; i < faulty.size(); i++) {
      PublishedFault published;
      if (!ReadPublished(instance.published[faulty[i]], &published)) continue;
      ModuleInstance::Reported& reported = instance.reported[faulty[i]];
      const bool fresh = published.sequence != reported.sequence;
      reported.sequence = published.sequence;
      if (records.empty()) {
        if (!fresh) continue;
        // The reader counts it as one, so the difference that comes once the count is known starts
        // from there.
        reported.count++;
        ReportFault(*module, faulty[i], published, 0);
        continue;
      }
      if (records[i].count <= reported.count) continue;
      ReportFault(*module, faulty[i], published, records[i].count - reported.count);
      reported.count = records[i].count;
    }
    if (idle && !records.empty()) StartAfresh(instance, faulty);
  }
  DrainNumericFaults(*module, instance, reachable, with_counters);
  if (with_counters && reachable) ReportCounters(instance, module->id);
}

bool SummaryDue() {
  static std::atomic<std::chrono::steady_clock::rep> last{0};
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  auto before = last.load(std::memory_order_relaxed);
  const auto interval = std::chrono::steady_clock::duration(kSummaryInterval).count();
  return now - before > interval && last.compare_exchange_strong(before, now);
}

void SendSummaries() {
  SendCountedFindings();
  SendLaunchSummaries();
}

void Drain(DrainDepth depth, CUcontext idle_context) {
  Launched& launched = TheLaunched();
  const bool final = depth == DrainDepth::kFinal || depth == DrainDepth::kHostOnly;
  DrainSassFaults(depth);
  if (depth != DrainDepth::kHostOnly)
    DrainRaces(depth == DrainDepth::kIdle ? idle_context : nullptr);
  const bool summary = final || SummaryDue();
  if (summary && depth != DrainDepth::kHostOnly) HarvestLaunchTimes();
  if (!final && !launched.any.load(std::memory_order_acquire)) {
    if (summary) SendSummaries();
    return;
  }
  std::vector<InstancePointer> instances;
  if (final) {
    instances = AllInstances();
  } else {
    std::lock_guard lock(launched.mutex);
    instances = launched.instances;
    if (depth == DrainDepth::kIdle) {
      // Out of the list before it is read: a launch from another thread puts it
      // back.
      std::erase_if(launched.instances, [&](const InstancePointer& instance) {
        if (instance->context->context != idle_context || instance->captured) return false;
        instance->launched = false;
        return true;
      });
      launched.any = !launched.instances.empty();
    }
  }
  for (const InstancePointer& instance : instances) {
    const bool idle = depth == DrainDepth::kIdle && instance->context->context == idle_context &&
                      !instance->captured;
    DrainInstance(*instance, depth, idle, summary && depth != DrainDepth::kHostOnly);
  }
  if (summary) SendSummaries();
}

}  // namespace

void DrainFaults(DrainDepth depth, CUcontext idle_context) noexcept {
  if (!ChecksAnything()) return;
  try {
    Drain(depth, idle_context);
  } catch (...) {
    SendOnce(DiagnosticEvent{.severity = proto_enums::Severity::kError,
                             .text = "no memory to report faults",
                             .hint = "some findings may be missing"});
  }
}

bool ReportStandingFaults(std::chrono::steady_clock::time_point now,
                          std::chrono::steady_clock::duration patience) {
  ReportStandingSassFaults(now, patience);
  Launched& launched = TheLaunched();
  if (!launched.any.load(std::memory_order_acquire)) return false;
  std::vector<InstancePointer> instances;
  {
    std::lock_guard lock(launched.mutex);
    instances = launched.instances;
  }
  for (const InstancePointer& instance : instances) {
    bool standing = false;
    {
      std::lock_guard lock(instance->drain_mutex);
      for (uint64_t entry = 0; instance->published && entry < instance->entries; entry++) {
        const uint64_t sequence =
            __atomic_load_n(&instance->published[entry].sequence, __ATOMIC_RELAXED);
        if (sequence == 0) continue;
        const auto reported = instance->reported.find(entry);
        if (reported != instance->reported.end() && reported->second.sequence == sequence) continue;
        standing = true;
        break;
      }
      standing |= HasNewNumericFaults(*instance);
      if (standing && !instance->standing) instance->standing_since = now;
      if (standing) instance->standing = true;
      if (!standing) instance->standing = false;
      standing = standing && now - instance->standing_since >= patience;
    }
    if (standing) DrainInstance(*instance, DrainDepth::kHostOnly, false, false);
  }
  return true;
}

void ForgetLaunched(CUcontext context) {
  Launched& launched = TheLaunched();
  std::lock_guard lock(launched.mutex);
  std::erase_if(launched.instances, [&](const InstancePointer& instance) {
    if (instance->context->context != context) return false;
    std::lock_guard drain_lock(instance->drain_mutex);
    instance->ForgetChannel();
    return true;
  });
  launched.any = !launched.instances.empty();
}

void NoteLaunch(const InstancePointer& instance, bool captured) {
  instance->context->launches.fetch_add(1, std::memory_order_relaxed);
  if (captured) instance->captured = true;
  if (instance->launched.exchange(true)) return;
  Launched& launched = TheLaunched();
  std::lock_guard lock(launched.mutex);
  launched.instances.push_back(instance);
  launched.any.store(true, std::memory_order_release);
  StartFaultWatch();
}

namespace {

// Device, contexts and pinned memory are the parent's: they are not even mapped in a child.
void ForgetParent() noexcept {
  TheLaunched().instances.clear();
  TheLaunched().any = false;
  for (const InstancePointer& instance : AllInstances()) {
    instance->ForgetChannel();
  }
  for (const ContextPointer& context : AllContextStates()) context->lost = true;
}
[[maybe_unused]] const bool registered = [] {
  AtForkInChild([]() noexcept {
    try {
      ForgetParent();
    } catch (...) {
    }
  });
  return true;
}();

}  // namespace

bool EndsContext(CUresult result) {
  switch (result) {
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
      return true;
    default:
      return false;
  }
}

}  // namespace ops_debug::interposer
