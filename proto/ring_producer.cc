// The producer's side of the ring; ring_layout.h tells how it works. Runs inside the target.
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <boost/interprocess/file_mapping.hpp>
#include <boost/interprocess/shared_memory_object.hpp>
#include <cerrno>
#include <cstring>
#include <exception>

#include "proto/process_identity.h"
#include "proto/ring.h"
#include "proto/ring_segment.h"

namespace ops_debug::proto {
namespace {

namespace bip = boost::interprocess;

constexpr uint64_t kWaitLimit_ns = 2'000'000'000;
// All waits of a process together: so much, and of the time since it opened the ring one part in
// kWaitShare. A consumer that is slow for ever costs messages then, not the program's time.
constexpr uint64_t kWaitAllowance_ns = 2'000'000'000;
constexpr uint64_t kWaitShare = 20;
constexpr uint64_t kConsumerCheckInterval_ns = 100'000'000;
constexpr long kFirstNap_ns = 20'000;
constexpr long kLongestNap_ns = 1'000'000;
// Compare-and-swap failures in a row that no real contention reaches: the header was overwritten.
constexpr uint32_t kMaxAttempts = 1u << 16;

uint64_t Now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

// Maps `size_bytes` of the segment; 0: all of it. Throws interprocess_exception.
bip::mapped_region MapSegment(const char* name, size_t size_bytes) {
  if (std::strncmp(name, "/proc/", 6) == 0) {
    return bip::mapped_region(bip::file_mapping(name, bip::read_write), bip::read_write, 0,
                              size_bytes);
  }
  return bip::mapped_region(bip::shared_memory_object(bip::open_only, name, bip::read_write),
                            bip::read_write, 0, size_bytes);
}

bool IsPowerOfTwo(uint64_t value) { return value != 0 && (value & (value - 1)) == 0; }

const char* FindDefect(const RingHeader& header, size_t segment_bytes) {
  if (header.magic.load(std::memory_order_acquire) != kRingMagic) return "it is not an event ring";
  if (header.version != kRingVersion || header.header_bytes != sizeof(RingHeader)) {
    return "it belongs to another version of ops-debug";
  }
  const uint64_t capacity = header.capacity_bytes;
  const uint32_t slots = header.slot_count;
  if (!IsPowerOfTwo(capacity) || capacity < kRingMinCapacityBytes ||
      capacity > kRingMaxCapacityBytes || !IsPowerOfTwo(slots) || slots > capacity) {
    return "its header is damaged";
  }
  if (RingSegmentBytes(capacity, slots) > segment_bytes)
    return "it is shorter than its header says";
  return nullptr;
}

// Tells the consumer that this process could not map the ring: one page may still be had.
void TellUnmapped(const char* name) {
  try {
    const bip::mapped_region page = MapSegment(name, sizeof(RingHeader));
    auto* header = static_cast<RingHeader*>(page.get_address());
    if (FindDefect(*header, SIZE_MAX) == nullptr) header->unmapped_producers.fetch_add(1);
  } catch (const std::exception&) {  // not even that: nobody will know
  }
}

}  // namespace

struct RingProducer::Impl {
  // kTaken: the consumer gave the record up meanwhile, and has counted it.
  enum class Outcome { kWritten, kFull, kFailed, kTaken };

  RingSegment segment;
  // Only processes of the consumer's PID namespace may claim: in another one, the number in a claim
  // names nobody, or somebody else.
  std::atomic<bool> foreign{false};
  // Of the consumer, as the header told when the ring was opened.
  uint64_t pid_namespace = 0;
  uint32_t consumer_process_id = 0;
  uint64_t consumer_start_ticks = 0;
  // This process as slot words name it. Both in one word: a fork's child renews them while other
  // threads may write.
  std::atomic<uint64_t> identity{0};
  std::atomic<bool> consumer_gone{false};
  const uint64_t opened_ns = Now_ns();
  std::atomic<uint64_t> waited_ns{0};

  // How long a wait that ends at `now_ns` may have been.
  uint64_t WaitLimit_ns(uint64_t now_ns) const {
    const uint64_t allowed = kWaitAllowance_ns + (now_ns - opened_ns) / kWaitShare;
    const uint64_t waited = waited_ns.load(std::memory_order_relaxed);
    return waited >= allowed ? 0 : std::min(kWaitLimit_ns, allowed - waited);
  }

  // Process id above, low bits of the start time below; renewed in the child of a fork.
  uint64_t Identity() {
    const auto self = static_cast<uint32_t>(getpid());
    uint64_t known = identity.load(std::memory_order_relaxed);
    if (static_cast<uint32_t>(known >> 32) == self) return known;
    // Without /proc (after a chroot) nothing is known, and the namespace is most likely the old
    // one.
    const uint64_t here = PidNamespace();
    foreign.store(here != 0 && here != pid_namespace, std::memory_order_relaxed);
    known = uint64_t{self} << 32 | (ProcessStartTicks(self) & SlotWord::kStartMask);
    identity.store(known, std::memory_order_relaxed);
    return known;
  }

  bool ConsumerRuns() const { return ProcessRuns(consumer_process_id, consumer_start_ticks); }

  bool Lose() {
    segment.header->lost_messages.fetch_add(1, std::memory_order_relaxed);
    return false;
  }

  Outcome TryWrite(std::span<const std::byte> message);
};

RingProducer::Impl::Outcome RingProducer::Impl::TryWrite(std::span<const std::byte> message) {
  RingHeader& header = *segment.header;
  const auto units = static_cast<uint32_t>((message.size() + kRingUnitBytes - 1) / kRingUnitBytes);
  const uint64_t self = Identity();
  if (foreign.load(std::memory_order_relaxed)) return Outcome::kFailed;
  for (uint32_t attempt = 0; attempt < kMaxAttempts; ++attempt) {
    uint64_t head_word = header.head.load(std::memory_order_acquire);
    const RingPlace head = RingPlace::Unpack(head_word);
    const RingPlace tail = RingPlace::Unpack(header.tail.load(std::memory_order_acquire));
    const uint32_t used_records = head.record - tail.record;
    const uint32_t used_units = head.unit - tail.unit;
    if (used_records > segment.slot_count || used_units > segment.capacity_units()) {
      continue;  // the tail has passed the head that we read: read again
    }
    if (used_records == segment.slot_count || segment.capacity_units() - used_units < units) {
      return Outcome::kFull;
    }
    RingSlot& slot = segment.SlotOf(head.record);
    const uint32_t lap = SlotLap(head.record, segment.slot_count);
    SlotWord word{.lap = lap};
    uint64_t found = word.Pack();
    word = {kSlotClaimed, units, static_cast<uint32_t>(self >> 32),
            static_cast<uint32_t>(self) & SlotWord::kStartMask, lap};
    const uint64_t claimed = word.Pack();
    if (slot.word.compare_exchange_strong(found, claimed, std::memory_order_acq_rel,
                                          std::memory_order_acquire)) {
      header.head.compare_exchange_strong(head_word, head.After(units).Pack(),
                                          std::memory_order_acq_rel);
      segment.CopyIn(head.unit, message.data(), message.size());
      slot.size_bytes = static_cast<uint32_t>(message.size());
      slot.checksum = RingChecksum(message.data(), message.size());
      word.state = kSlotCommitted;
      uint64_t expected = claimed;
      // Fails only if the consumer repaired a damaged ring or lost patience meanwhile.
      return slot.word.compare_exchange_strong(expected, word.Pack(), std::memory_order_release,
                                               std::memory_order_relaxed)
                 ? Outcome::kWritten
                 : Outcome::kTaken;
    }
    const SlotWord other = SlotWord::Unpack(found);
    if (other.lap == lap && other.state != kSlotFree && other.units >= 1 &&
        other.units <= segment.max_units()) {
      header.head.compare_exchange_strong(head_word, head.After(other.units).Pack(),
                                          std::memory_order_acq_rel);
    }
  }
  return Outcome::kFailed;
}

RingProducer::RingProducer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RingProducer::~RingProducer() = default;

std::unique_ptr<RingProducer> RingProducer::Open(const char* name, std::string* error) {
  try {
    auto impl = std::make_unique<Impl>();
    const std::string where = "event ring \"" + std::string(name) + "\": ";
    try {
      impl->segment.region = MapSegment(name, 0);
    } catch (const bip::interprocess_exception& exception) {
      *error = where + exception.what();
      if (exception.get_native_error() == ENOMEM || exception.get_native_error() == EAGAIN) {
        TellUnmapped(name);
      }
      return nullptr;
    }
    if (impl->segment.region.get_size() < sizeof(RingHeader)) {
      *error = where + "it is not an event ring";
      return nullptr;
    }
    const auto& header = *static_cast<const RingHeader*>(impl->segment.region.get_address());
    // Read once into locals: a peer could change the header between the check and the use.
    const uint64_t capacity = header.capacity_bytes;
    const uint32_t slots = header.slot_count;
    const char* defect = FindDefect(header, impl->segment.region.get_size());
    if (defect != nullptr || capacity != header.capacity_bytes || slots != header.slot_count) {
      *error = where + (defect != nullptr ? defect : "its header is damaged");
      return nullptr;
    }
    impl->pid_namespace = header.pid_namespace;
    impl->consumer_process_id = header.consumer_process_id;
    impl->consumer_start_ticks = header.consumer_start_ticks;
    if (impl->pid_namespace != PidNamespace()) {
      *error = where + "it was made in another PID namespace (container)";
      return nullptr;
    }
    impl->segment.Place(capacity, slots);
    return std::unique_ptr<RingProducer>(new RingProducer(std::move(impl)));
  } catch (const std::exception& exception) {
    try {
      *error = exception.what();
    } catch (...) {  // out of memory while telling of it: the null result must do
    }
    return nullptr;
  }
}

bool RingProducer::Write(std::span<const std::byte> message, WhenFull when_full) {
  Impl& impl = *impl_;
  const RingHeader& header = *impl.segment.header;
  if (message.empty() || message.size() > RingMaxMessageBytes(impl.segment.capacity_bytes)) {
    return impl.Lose();
  }
  uint64_t start_ns = 0;
  uint64_t next_check_ns = 0;
  long nap_ns = kFirstNap_ns;
  bool written = false;
  while (true) {
    Impl::Outcome outcome = Impl::Outcome::kFailed;
    if (header.state.load(std::memory_order_acquire) == kRingOpen) outcome = impl.TryWrite(message);
    if (outcome != Impl::Outcome::kFull) {
      if (outcome == Impl::Outcome::kFailed) impl.Lose();
      written = outcome == Impl::Outcome::kWritten;
      break;
    }
    const bool may_wait = when_full == WhenFull::kWait && !impl.consumer_gone.load();
    const uint64_t now_ns = may_wait ? Now_ns() : 0;
    if (may_wait && start_ns == 0) start_ns = next_check_ns = now_ns;
    if (may_wait && now_ns >= next_check_ns) {
      next_check_ns = now_ns + kConsumerCheckInterval_ns;
      // A killed consumer cannot say goodbye; without this every write would wait in vain.
      if (!impl.ConsumerRuns()) impl.consumer_gone.store(true);
    }
    if (!may_wait || now_ns - start_ns >= impl.WaitLimit_ns(now_ns)) {
      impl.Lose();
      break;
    }
    const timespec nap{0, nap_ns};
    nanosleep(&nap, nullptr);
    if (nap_ns < kLongestNap_ns) nap_ns *= 2;
  }
  if (start_ns != 0) impl.waited_ns.fetch_add(Now_ns() - start_ns, std::memory_order_relaxed);
  return written;
}

uint32_t RingChecksum(const std::byte* data, size_t size_bytes) {
  constexpr uint64_t kPrime = 0x100000001b3;
  uint64_t hash = 0xcbf29ce484222325 ^ size_bytes;
  while (size_bytes >= sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, data, sizeof(word));
    hash = (hash ^ word) * kPrime;
    hash ^= hash >> 32;
    data += sizeof(word);
    size_bytes -= sizeof(word);
  }
  uint64_t rest = 0;
  std::memcpy(&rest, data, size_bytes);
  hash = (hash ^ rest) * kPrime;
  return static_cast<uint32_t>(hash ^ hash >> 32);
}

}  // namespace ops_debug::proto
