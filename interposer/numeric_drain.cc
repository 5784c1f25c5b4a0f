// A draining thread may meet a kernel that is still writing, so what was published is copied first
// and believed only if its sequence number stayed the same.
#include "interposer/numeric_drain.h"

#include <bit>
#include <cstring>
#include <vector>

#include "interposer/event_sender.h"
#include "interposer/numeric_event.h"

namespace ops_debug::interposer {
namespace {

using shadow::NumericRecord;
using shadow::PublishedNumeric;

bool ReadPublished(const PublishedNumeric& shared, PublishedNumeric* out) {
  const uint64_t before = __atomic_load_n(&shared.sequence, __ATOMIC_ACQUIRE);
  if (before == 0 || before % 2 != 0) return false;
  std::memcpy(out, &shared, sizeof *out);
  __atomic_thread_fence(__ATOMIC_ACQUIRE);
  out->sequence = before;
  return __atomic_load_n(&shared.sequence, __ATOMIC_RELAXED) == before;
}

bool IsPublished(const PublishedNumeric& slot) {
  return __atomic_load_n(&slot.sequence, __ATOMIC_RELAXED) != 0;
}

bool IsMeasured(uint64_t key) {
  switch (key % shadow::kNumericKinds) {
    case shadow::kNumericNarrowingLoss:
    case shadow::kNumericWidenedRounded:
    case shadow::kNumericCancellation:
      return true;
    default:
      return false;
  }
}

void ReportSlot(const LoadedModule& module, const PublishedNumeric& published,
                const NumericRecord* record, ModuleInstance::ReportedNumeric* reported) {
  const bool first = !reported->told;
  NumericCounts counts;
  if (record != nullptr) {
    if (!first && record->count == reported->count && record->executions == reported->executions)
      return;
    counts.count = record->count - reported->count;
    counts.executions = record->executions - reported->executions;
    counts.worst = std::bit_cast<double>(record->worst);
    *reported = {true, record->count, record->executions};
  } else {
    if (!first) return;
    if (IsMeasured(published.key)) counts.worst = std::bit_cast<double>(published.extra);
    // The reader counts it as one, so the difference that comes once the count is known starts from
    // there.
    *reported = {true, 1, 0};
  }
  ReportNumericFault(module, published, counts);
}

}  // namespace

bool HasNewNumericFaults(const ModuleInstance& instance) {
  for (uint32_t slot = 0; instance.numeric_published && slot < instance.numeric_slots; slot++) {
    if (IsPublished(instance.numeric_published[slot]) && !instance.numeric_reported.contains(slot))
      return true;
  }
  return false;
}

void DrainNumericFaults(const LoadedModule& module, ModuleInstance& instance, bool reachable,
                        bool counts) {
  std::vector<uint32_t> slots;
  for (uint32_t slot = 0; instance.numeric_published && slot < instance.numeric_slots; slot++) {
    if (!IsPublished(instance.numeric_published[slot])) continue;
    if (counts || !instance.numeric_reported.contains(slot)) slots.push_back(slot);
  }
  if (slots.empty()) return;
  std::vector<NumericRecord> records;
  if (reachable) {
    records.resize(instance.numeric_slots);
    if (!instance.context->device.Read(records.data(), instance.numeric_records,
                                       records.size() * sizeof(NumericRecord))) {
      records.clear();
    }
  }
  for (const uint32_t slot : slots) {
    PublishedNumeric published;
    if (!ReadPublished(instance.numeric_published[slot], &published)) continue;
    ReportSlot(module, published, records.empty() ? nullptr : &records[slot],
               &instance.numeric_reported[slot]);
  }
}

}  // namespace ops_debug::interposer
