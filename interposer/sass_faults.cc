// Reads the hash table that the patch fills. The host looks at one word first: how often a fault
// was published. What was published is copied and believed only if its sequence number stayed the
// same meanwhile; how often it happened lies in device memory and is read while the driver answers.
#include "interposer/sass_faults.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "interposer/allocation_tracking.h"
#include "interposer/fault_event.h"
#include "interposer/launch_record.h"
#include "interposer/session.h"
#include "ptx/fatbin.h"

namespace ops_debug::interposer {
namespace {

using shadow::SassChannel;
using shadow::SassCounters;
using shadow::SassFaultRecord;
using shadow::SassPublishedFault;

constexpr uint64_t kRecordsBytes = sizeof(SassFaultRecord) * shadow::kSassFaultSlots;
constexpr uint64_t kPublishedBytes = sizeof(SassPublishedFault) * shadow::kSassFaultSlots;
constexpr uint64_t kUnknownLaunch = ~0ull;

uint64_t Load(const uint64_t& word) { return __atomic_load_n(&word, __ATOMIC_ACQUIRE); }

bool ReadPublished(const SassPublishedFault& shared, SassPublishedFault* out) {
  const uint64_t before = Load(shared.sequence);
  if (before == 0 || before % 2 != 0) return false;
  std::memcpy(out, &shared, sizeof *out);
  __atomic_thread_fence(__ATOMIC_ACQUIRE);
  out->sequence = before;
  return __atomic_load_n(&shared.sequence, __ATOMIC_RELAXED) == before;
}

proto_enums::AccessKind KindOf(uint32_t flags) {
  constexpr uint32_t kBoth = shadow::kSassRead | shadow::kSassWrite;
  if ((flags & kBoth) == kBoth) return proto_enums::AccessKind::kAtomic;
  return flags & shadow::kSassWrite ? proto_enums::AccessKind::kStore
                                    : proto_enums::AccessKind::kLoad;
}

}  // namespace

SassFaultChannel::SassFaultChannel(const ContextPointer& context, SassCodeBook& code)
    : context_(context), code_(code) {
  failure_ = SetUp();
}

std::string SassFaultChannel::SetUp() {
  ContextState& state = *context_;
  records_ = state.device.Allocate(kRecordsBytes + sizeof(SassChannel));
  if (records_ == 0) return "no device memory for fault records";
  void* host = nullptr;
  CUdeviceptr on_device = 0;
  if (OPS_DEBUG_REAL(cuMemHostAlloc)(&host, kPublishedBytes + sizeof(SassCounters),
                                     CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP) !=
      CUDA_SUCCESS) {
    return "no pinned host memory for fault records";
  }
  std::memset(host, 0, kPublishedBytes + sizeof(SassCounters));
  if (OPS_DEBUG_REAL(cuMemHostGetDevicePointer_v2)(&on_device, host, 0) != CUDA_SUCCESS)
    return "pinned host memory has no device address";
  published_ = static_cast<SassPublishedFault*>(host);
  counters_ = reinterpret_cast<SassCounters*>(static_cast<std::byte*>(host) + kPublishedBytes);
  SassChannel channel{};
  channel.records = records_;
  channel.published = on_device;
  channel.counters = on_device + kPublishedBytes;
  channel.flags = Options().trap_on_error ? shadow::kFlagTrapOnError : 0;
  if (!state.device.Fill(records_, 0, kRecordsBytes) ||
      !state.device.Write(records_ + kRecordsBytes, &channel, sizeof channel) ||
      !state.device.Finish()) {
    return "fault records cannot be written";
  }
  channel_ = records_ + kRecordsBytes;
  return "";
}

FaultEvent SassFaultChannel::MakeEvent(const SassPublishedFault& published,
                                       const std::optional<SassPlace>& place, uint64_t count) {
  FaultEvent event;
  event.engine = "sass";
  event.fault_class =
      EventClassOf(static_cast<shadow::FaultClass>(shadow::SassFaultClass(published.key)));
  event.site.access = KindOf(published.flags);
  event.site.space = proto_enums::AddressSpace::kGlobal;
  event.site.access_bytes = published.access_bytes;
  if (published.flags & shadow::kSassCopy) event.site.instruction = "asynchronous copy";
  if (place) {
    event.site.function = place->function;
    event.site.sass_offset = place->offset;
    for (const ptx::CodeFrame& frame : place->frames)
      event.site.frames.push_back({frame.function, frame.file, frame.line, 0});
    event.module_id = place->module_id;
  }
  LaunchRecord launch;
  if (FindLaunch(published.launch_id, &launch)) {
    event.launch = Describe(launch);
  } else {
    if (published.launch_id != kUnknownLaunch) event.launch.launch_id = published.launch_id;
    if (place) event.launch.kernel = place->kernel;
  }
  event.block = {published.block[0], published.block[1], published.block[2]};
  event.thread = {published.thread[0], published.thread[1], published.thread[2]};
  event.address = published.address;
  event.count = count;
  event.shadow_value = published.shadow_value;
  if (const auto allocation =
          AllocationNear(published.address, published.launch_id, event.fault_class)) {
    event.has_allocation = true;
    event.allocation = Describe(*allocation);
  }
  return event;
}

std::optional<SassPlace> SassFaultChannel::Locate(uint64_t pc, bool ask,
                                                  const LearnFunction& learn) {
  auto place = code_.Find(context_->context, pc);
  if ((place && !place->unloaded) || !ask) return place;
  // A device function that is called by its address, or whose kernel was loaded only after its
  // first launch was announced.
  bool learned = false;
  for (SassFunction& function : code_.SeparateFunctions(context_->context)) {
    if (!learn(&function)) continue;
    code_.Add(std::move(function));
    learned = true;
  }
  return learned ? code_.Find(context_->context, pc) : place;
}

void SassFaultChannel::ReportSlot(uint32_t slot, const SassFaultRecord* record, bool ask,
                                  const LearnFunction& learn) {
  SassPublishedFault published;
  if (!ReadPublished(published_[slot], &published)) return;
  Reported& reported = reported_[slot];
  const bool fresh = published.sequence != reported.sequence;
  uint64_t count = 0;  // the reader takes 0 for "at least one"
  if (record) {
    if (record->count <= reported.count) return;
    count = record->count - reported.count;
  } else if (!fresh) {
    return;
  }
  const auto place = Locate(shadow::SassFaultPc(published.key), ask, learn);
  Send(MakeEvent(published, place, count));
  reported.sequence = published.sequence;
  reported.count = record ? record->count : reported.count + 1;
  if (!place || !place->unloaded || !record) return;
  // Other code may come to lie there: its faults need a slot of their own.
  const uint64_t retired = shadow::kSassRetired;
  if (!context_->device.Write(records_ + slot * sizeof(SassFaultRecord), &retired,
                              sizeof retired) ||
      !context_->device.Finish()) {
    return;
  }
  std::memset(&published_[slot], 0, sizeof(SassPublishedFault));
  reported_.erase(slot);
}

void SassFaultChannel::ReportCounters(bool final) {
  const uint64_t overflow = Load(counters_->overflow);
  if (overflow > reported_overflow_) {
    Send(DiagnosticEvent{
        .severity = proto_enums::Severity::kWarning,
        .text = std::to_string(overflow - reported_overflow_) +
                " bad accesses of kernels without PTX are not among the findings: more than " +
                std::to_string(shadow::kSassFaultSlots) + " instructions are at fault",
        .hint = "repair what is reported and run again"});
    reported_overflow_ = overflow;
  }
  const uint64_t unknown = Load(counters_->unknown_accesses);
  if (final && unknown > reported_unknown_) {
    Send(UnknownAccessesEvent{.module_id = 0, .count = unknown - reported_unknown_});
    reported_unknown_ = unknown;
  }
}

void SassFaultChannel::Drain(DrainDepth depth, const LearnFunction& learn) {
  std::lock_guard lock(mutex_);
  DrainLocked(depth, learn);
}

void SassFaultChannel::DrainStanding(std::chrono::steady_clock::time_point now,
                                     std::chrono::steady_clock::duration patience) {
  std::lock_guard lock(mutex_);
  if (!failure_.empty()) return;
  const uint64_t publications = Load(counters_->publications);
  if (publications == seen_publications_) {
    standing_publications_ = publications;
  } else if (standing_publications_ == seen_publications_) {
    standing_publications_ = publications;
    standing_since_ = now;
  } else if (now - standing_since_ >= patience) {
    DrainLocked(DrainDepth::kHostOnly, [](SassFunction*) { return false; });
    standing_publications_ = seen_publications_;
  }
}

void SassFaultChannel::DrainLocked(DrainDepth depth, const LearnFunction& learn) {
  if (!failure_.empty()) return;
  const bool host_only = depth == DrainDepth::kHostOnly;
  if (host_only && ptx::ReadableBytes(published_) < kPublishedBytes + sizeof(SassCounters)) {
    return;
  }
  const bool final = host_only || depth == DrainDepth::kFinal;
  ReportCounters(final);
  const uint64_t publications = Load(counters_->publications);
  if (publications == seen_publications_ && reported_.empty()) return;
  std::vector<uint32_t> slots;
  if (publications != seen_publications_) {
    for (uint32_t slot = 0; slot < shadow::kSassFaultSlots; slot++) {
      if (__atomic_load_n(&published_[slot].sequence, __ATOMIC_RELAXED) != 0) slots.push_back(slot);
    }
  } else {
    for (const auto& [slot, reported] : reported_) slots.push_back(slot);
    std::sort(slots.begin(), slots.end());
  }
  seen_publications_ = publications;
  if (slots.empty()) return;

  std::optional<InternalCalls> calls;
  if (!host_only && !context_->lost) calls.emplace(*context_);
  bool reachable = calls && calls->ok();
  std::vector<SassFaultRecord> records(slots.back() - slots.front() + 1);
  constexpr size_t kFewSlots = 8;
  if (reachable && slots.size() > kFewSlots) {
    reachable =
        context_->device.Read(records.data(), records_ + slots.front() * sizeof(SassFaultRecord),
                              records.size() * sizeof(SassFaultRecord));
  } else if (reachable) {
    for (const uint32_t slot : slots) {
      reachable = reachable && context_->device.Read(&records[slot - slots.front()],
                                                     records_ + slot * sizeof(SassFaultRecord),
                                                     sizeof(SassFaultRecord));
    }
  }
  for (const uint32_t slot : slots) {
    ReportSlot(slot, reachable ? &records[slot - slots.front()] : nullptr, reachable, learn);
  }
}

}  // namespace ops_debug::interposer
