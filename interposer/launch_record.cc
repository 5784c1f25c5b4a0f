// A ring of recent launches and counters per kernel. Stacks are stored as addresses and resolved
// only when a fault asks for them.
#include "interposer/launch_record.h"

#include <array>
#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

namespace ops_debug::interposer {
namespace {

// Never destroyed: hooks run until the very end of the process.
struct Recent {
  std::mutex mutex;
  std::vector<LaunchRecord> ring{kRememberedLaunches};
};
Recent& TheRecent() {
  static auto* recent = new Recent;
  return *recent;
}

struct Summaries {
  std::mutex mutex;
  std::vector<std::pair<ModulePointer, KernelRecord*>>
      waiting;  // the module keeps the record alive
};
Summaries& TheSummaries() {
  static auto* summaries = new Summaries;
  return *summaries;
}

void EnterSummary(const ModulePointer& module, KernelRecord& kernel) {
  if (kernel.in_summary.exchange(true)) return;
  Summaries& summaries = TheSummaries();
  std::lock_guard lock(summaries.mutex);
  summaries.waiting.emplace_back(module, &kernel);
}

}  // namespace

uint64_t NextLaunchId() {
  static std::atomic<uint64_t> next{1};
  return next++;
}

void RememberLaunch(LaunchRecord record) {
  Recent& recent = TheRecent();
  std::lock_guard lock(recent.mutex);
  recent.ring[record.id % kRememberedLaunches] = std::move(record);
}

bool FindLaunch(uint64_t id, LaunchRecord* record) {
  if (id == 0) return false;
  Recent& recent = TheRecent();
  std::lock_guard lock(recent.mutex);
  const LaunchRecord& held = recent.ring[id % kRememberedLaunches];
  if (held.id != id) return false;
  *record = held;
  return true;
}

LaunchDescription Describe(const LaunchRecord& record) {
  LaunchDescription description;
  description.launch_id = record.id;
  description.kernel = record.kernel;
  description.grid = record.grid;
  description.block = record.block;
  description.dynamic_shared_bytes = record.dynamic_shared_bytes;
  description.stack = ResolveHostStack(record.stack);
  return description;
}

void CountChecked(const ModulePointer& module, KernelRecord& kernel) {
  kernel.checked_launches.fetch_add(1, std::memory_order_relaxed);
  EnterSummary(module, kernel);
}

void CountUnchecked(const ModulePointer& module, KernelRecord& kernel, const std::string& reason) {
  {
    std::lock_guard lock(kernel.mutex);
    kernel.unchecked_launches[reason]++;
  }
  EnterSummary(module, kernel);
}

void SendLaunchSummaries() {
  std::vector<std::pair<ModulePointer, KernelRecord*>> waiting;
  {
    Summaries& summaries = TheSummaries();
    std::lock_guard lock(summaries.mutex);
    waiting.swap(summaries.waiting);
  }
  for (const auto& [module, kernel] : waiting) {
    kernel->in_summary = false;  // before the counts are taken: what comes later
                                 // enters the list again
    LaunchSummaryEvent event;
    event.module_id = kernel->module_id;
    event.kernel = kernel->name;
    event.launches = event.checked_launches = kernel->checked_launches.exchange(0);
    if (event.launches != 0) Send(event);
    std::map<std::string, uint64_t> unchecked;
    {
      std::lock_guard lock(kernel->mutex);
      unchecked.swap(kernel->unchecked_launches);
    }
    for (const auto& [reason, count] : unchecked) {
      event.launches = count;
      event.checked_launches = 0;
      event.not_checked_reason = reason;
      Send(event);
    }
  }
}

}  // namespace ops_debug::interposer
