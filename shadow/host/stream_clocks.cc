#include "shadow/host/stream_clocks.h"

#include <algorithm>

namespace ops_debug::shadow {
namespace {

// Slots that an open stream's work is taken to come after although they do not exist yet.
constexpr size_t kSpareSlots = 1024;

bool Covers(const VectorClock& clock, uint32_t slot, uint64_t number) {
  return number == 0 || (slot < clock.size() && clock[slot] >= number);
}

void Raise(VectorClock& clock, uint32_t slot, uint64_t number) {
  if (clock.size() <= slot) clock.resize(slot + size_t{1}, 0);
  clock[slot] = std::max(clock[slot], number);
}

}  // namespace

void Join(VectorClock& clock, const VectorClock& other) {
  if (clock.size() < other.size()) clock.resize(other.size(), 0);
  for (size_t i = 0; i < other.size(); i++) clock[i] = std::max(clock[i], other[i]);
}

bool IsCovered(const VectorClock& clock, const VectorClock& other) {
  for (size_t i = 0; i < clock.size(); i++) {
    if (clock[i] > (i < other.size() ? other[i] : 0)) return false;
  }
  return true;
}

OperationOrder SubmittedOperation::Order(uint64_t token) const {
  OperationOrder order;
  order.id = id;
  order.token = token;
  order.clock = clock.data();
  order.clock_size = clock.size();
  if (early_clock) {
    order.early_clock = early_clock->data();
    order.early_clock_size = early_clock->size();
  }
  return order;
}

bool ComesBefore(const OperationId& before, const SubmittedOperation& operation) {
  return before.slot == operation.id.slot || Covers(operation.clock, before.slot, before.number);
}

uint32_t StreamClocks::AddStream(StreamKind kind, uint64_t context) {
  if (kind == StreamKind::kLegacy) {
    const auto found = legacy_.find(context);
    if (found != legacy_.end()) return found->second;
  }
  uint32_t slot = 0;
  for (uint32_t i = 1; i < streams_.size() && slot == 0; i++) {
    if (streams_[i].removed && Covers(host_, i, streams_[i].number)) slot = i;
  }
  if (slot == 0) {
    slot = static_cast<uint32_t>(streams_.size());
    streams_.emplace_back();
  }
  Stream& stream = streams_[slot];
  const uint64_t number = stream.number;  // goes on: numbers of a slot only grow
  stream = {};
  stream.kind = kind;
  stream.context = context;
  stream.number = number;
  if (const auto found = serialised_.find(context); found != serialised_.end())
    stream.clock = found->second;
  if (kind == StreamKind::kLegacy) legacy_[context] = slot;
  return slot;
}

void StreamClocks::RemoveStream(uint32_t slot) {
  if (slot == kHostSlot || slot >= streams_.size()) return;
  Stream& stream = streams_[slot];
  stream.removed = true;
  stream.begin_of_kernel.reset();
  if (stream.kind == StreamKind::kLegacy) legacy_.erase(stream.context);
}

void StreamClocks::RemoveContext(uint64_t context) {
  serialised_.erase(context);
  for (uint32_t slot = 1; slot < streams_.size(); slot++) {
    if (streams_[slot].removed || streams_[slot].context != context) continue;
    // Nothing of it runs any more.
    Raise(host_, slot, streams_[slot].number);
    RemoveStream(slot);
  }
}

void StreamClocks::Open(uint32_t slot, Stream& stream) {
  stream.open = true;
  Raise(stream.clock, slot, ++stream.number);
}

// What has been submitted to a removed stream still runs: it keeps taking part in the legacy
// stream's synchronisation, and in what the host waits for.
StreamClocks::Stream& StreamClocks::Touch(uint32_t slot) {
  Stream& stream = streams_[slot];
  bool opens = false;
  if (stream.kind == StreamKind::kLegacy) {
    for (uint32_t i = 1; i < streams_.size(); i++) {
      const Stream& other = streams_[i];
      if (other.kind != StreamKind::kBlocking || other.context != stream.context) continue;
      Join(stream.clock, other.clock);
      opens |= other.open;
    }
  } else if (stream.kind == StreamKind::kBlocking) {
    const auto legacy = legacy_.find(stream.context);
    if (legacy != legacy_.end()) {
      const Stream& other = streams_[legacy->second];
      if (!IsCovered(other.clock, stream.clock)) {
        // It waits for something beside the kernel before it.
        stream.begin_of_kernel.reset();
        Join(stream.clock, other.clock);
      }
      opens = other.open;
    }
  }
  if (opens && !stream.open) Open(slot, stream);
  Join(stream.clock, host_);
  return stream;
}

SubmittedOperation StreamClocks::Number(uint32_t slot, Stream& stream) {
  stream.number++;
  Raise(stream.clock, slot, stream.number);
  SubmittedOperation operation;
  operation.id = {.slot = slot, .reserved = 0, .number = stream.number};
  operation.clock = stream.clock;
  operation.open = stream.open;
  if (stream.open) operation.clock.assign(streams_.size() + kSpareSlots, UINT64_MAX);
  return operation;
}

SubmittedOperation StreamClocks::Submit(uint32_t slot, OperationKind kind) {
  Stream& stream = Touch(slot);
  std::optional<VectorClock> early;
  if (kind == OperationKind::kProgrammaticKernel && stream.begin_of_kernel && !stream.open) {
    early = std::move(stream.begin_of_kernel);
    Join(*early, host_);
  }
  VectorClock begin = early ? *early : stream.clock;
  SubmittedOperation operation = Number(slot, stream);
  operation.early_clock = std::move(early);
  if (kind == OperationKind::kOther) {
    stream.begin_of_kernel.reset();
  } else {
    stream.begin_of_kernel = std::move(begin);
  }
  return operation;
}

SubmittedOperation StreamClocks::SubmitSerialised(uint32_t slot,
                                                  const std::vector<uint64_t>& contexts) {
  Stream& stream = Touch(slot);
  const auto takes_part = [&](const Stream& other) {
    return &other != &streams_[kHostSlot] &&
           std::find(contexts.begin(), contexts.end(), other.context) != contexts.end();
  };
  bool opens = false;
  for (const Stream& other : streams_) {
    if (!takes_part(other)) continue;
    Join(stream.clock, other.clock);
    opens |= other.open;
  }
  if (opens) Open(slot, stream);
  SubmittedOperation operation = Number(slot, stream);
  stream.begin_of_kernel.reset();
  for (Stream& other : streams_) {
    if (!takes_part(other)) continue;
    Join(other.clock, stream.clock);
    other.begin_of_kernel.reset();
  }
  for (const uint64_t context : contexts) Join(serialised_[context], stream.clock);
  return operation;
}

SubmittedOperation StreamClocks::RecordEvent(uint64_t event, uint32_t slot) {
  Stream& stream = Touch(slot);
  // A launch behind it comes after it, not only after the kernel before it.
  stream.begin_of_kernel.reset();
  // A command like others: who waits for it may learn no more than that it is done.
  SubmittedOperation recording = Number(slot, stream);
  Event& recorded = events_[event];
  recorded.clock = stream.clock;
  recorded.open = stream.open;
  return recording;
}

void StreamClocks::RecordLaunchBegun(uint64_t event, uint32_t slot) {
  const Stream& stream = streams_[slot];
  Event& recorded = events_[event];
  recorded.clock = stream.begin_of_kernel ? *stream.begin_of_kernel : stream.clock;
  recorded.open = stream.open;
}

void StreamClocks::WaitEvent(uint32_t slot, uint64_t event) {
  Stream& stream = Touch(slot);
  const auto found = events_.find(event);
  if (found == events_.end()) return;
  stream.begin_of_kernel.reset();
  Join(stream.clock, found->second.clock);
  if (found->second.open || found->second.shared) Open(slot, stream);
}

void StreamClocks::ShareEvent(uint64_t event) { events_[event].shared = true; }

void StreamClocks::ForgetEvent(uint64_t event) { events_.erase(event); }

void StreamClocks::WaitUnseen(uint32_t slot) {
  Stream& stream = Touch(slot);
  stream.begin_of_kernel.reset();
  Open(slot, stream);
}

void StreamClocks::WaitPoint(uint32_t slot, const OrderPoint& point) {
  Stream& stream = Touch(slot);
  stream.begin_of_kernel.reset();
  Join(stream.clock, point.clock);
  if (point.open) Open(slot, stream);
}

OrderPoint StreamClocks::PointOfStream(uint32_t slot) {
  // Waiting for the legacy default stream is waiting for what it comes after, too.
  Stream& stream = Touch(slot);
  return {.clock = stream.clock, .open = stream.open, .slot = slot};
}

OrderPoint StreamClocks::PointOfEvent(uint64_t event) const {
  const auto found = events_.find(event);
  if (found == events_.end()) return {};
  return {.clock = found->second.clock, .open = found->second.open || found->second.shared};
}

OrderPoint StreamClocks::PointOfContext(uint64_t context) const {
  OrderPoint point;
  for (uint32_t slot = 1; slot < streams_.size(); slot++) {
    if (streams_[slot].context != context) continue;
    Join(point.clock, streams_[slot].clock);
    point.open |= streams_[slot].open;
  }
  return point;
}

OrderPoint StreamClocks::PointOfAll() const { return {.clock = Everything()}; }

VectorClock StreamClocks::Everything() const {
  VectorClock clock = host_;
  for (const Stream& stream : streams_) Join(clock, stream.clock);
  return clock;
}

void StreamClocks::HostJoins(const OrderPoint& point) {
  if (point.open) {
    // What the unseen wait was for may be anything.
    Join(host_, Everything());
  } else {
    Join(host_, point.clock);
  }
  for (uint32_t slot = 1; slot < streams_.size(); slot++) {
    Stream& stream = streams_[slot];
    // All of its work is done, and so is what it waited for.
    if (stream.open && (point.slot == slot || point.slot == UINT32_MAX) && stream.number != 0 &&
        Covers(point.clock, slot, stream.number)) {
      stream.open = false;
    }
  }
}

}  // namespace ops_debug::shadow
