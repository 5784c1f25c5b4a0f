// The consumer's side of the ring; ring_layout.h tells how it works. Its own place in the ring is
// private: the shared tail is only what it tells producers.
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <boost/interprocess/file_mapping.hpp>
#include <boost/interprocess/shared_memory_object.hpp>
#include <chrono>
#include <exception>
#include <new>
#include <utility>

#include "proto/process_identity.h"
#include "proto/ring.h"
#include "proto/ring_segment.h"

namespace ops_debug::proto {
namespace {

namespace bip = boost::interprocess;
using Clock = std::chrono::steady_clock;

// A healthy producer commits within microseconds; asking /proc sooner would only cost time.
constexpr std::chrono::milliseconds kHolePatience{2};
constexpr std::chrono::milliseconds kHoleCheckInterval{20};

std::string Explain(const char* name, int error_number, size_t segment_bytes) {
  std::string text = "cannot create shared memory \"" + std::string(name) + "\" (" +
                     std::to_string(segment_bytes >> 20) + " MiB): " + strerror(error_number);
  switch (error_number) {
    case EACCES:
    case EPERM:
    case EROFS:
      return text + "; this user needs write permission on /dev/shm (usually mode 1777)";
    case ENOENT:
    case ENOSYS:
      return text + "; mount a tmpfs on /dev/shm";
    case EFBIG:
      return text + "; raise the limit on file sizes (ulimit -f), which holds for memory, too";
    case ENOSPC:
    case ENOMEM:
      return text + "; free or enlarge /dev/shm (in a container: docker run --shm-size=64m)";
    case EEXIST:
      return text + "; choose another name or remove the old segment from /dev/shm";
    default:
      return text;
  }
}

int Reserve(int fd, size_t size_bytes) {
  int fault = 0;
  do {
    fault = posix_fallocate(fd, 0, static_cast<off_t>(size_bytes));
  } while (fault == EINTR);
  return fault;
}

// A segment that was created but not finished goes away again.
struct NewName {
  const char* name;
  bool keep = false;
  ~NewName() {
    if (!keep) bip::shared_memory_object::remove(name);
  }
};

uint64_t RoundUpToPowerOfTwo(uint64_t value) {
  uint64_t result = 1;
  while (result < value) result *= 2;
  return result;
}

struct RingShape {
  uint64_t capacity_bytes;
  uint32_t slots;
  size_t segment_bytes;
};

RingShape ShapeFor(size_t capacity_bytes) {
  const uint64_t capacity = RoundUpToPowerOfTwo(
      capacity_bytes < kRingMinCapacityBytes ? kRingMinCapacityBytes : capacity_bytes);
  const auto slots = static_cast<uint32_t>(capacity / kRingBytesPerSlot);
  return {capacity, slots, RingSegmentBytes(capacity, slots)};
}

struct OwnedFile {
  int fd;
  ~OwnedFile() {
    if (fd >= 0) close(fd);
  }
};

}  // namespace

struct RingConsumer::Impl {
  std::string name;
  int file = -1;  // of a nameless segment: producers open it through /proc
  RingSegment segment;
  RingPlace place;  // of the next record to read
  bool closed = false;
  uint64_t lost_here = 0;
  uint64_t corrupt = 0;
  bool waits_for_hole = false;
  Clock::time_point next_hole_check;

  // Frees the record at `place` and moves on. The head may still stand at it if the owner died
  // right after its claim.
  void Release(uint32_t units) {
    const RingPlace next = place.After(units);
    uint64_t head = place.Pack();
    segment.header->head.compare_exchange_strong(head, next.Pack(), std::memory_order_acq_rel);
    const SlotWord free{.lap = SlotLap(place.record + segment.slot_count, segment.slot_count)};
    segment.SlotOf(place.record).word.store(free.Pack(), std::memory_order_release);
    place = next;
    segment.header->tail.store(next.Pack(), std::memory_order_release);
    waits_for_hole = false;
  }

  // Shared state contradicts itself: somebody wrote into the segment. Starts over at our own place;
  // unread records are lost, and producers in the middle of a record fail their commit. How many
  // there were, the head or the slots tell, whichever is whole.
  void Repair() {
    ++corrupt;
    const RingPlace head = RingPlace::Unpack(segment.header->head.load(std::memory_order_acquire));
    uint32_t unread = head.record - place.record;
    if (unread > segment.slot_count) unread = 0;
    uint32_t taken = 0;
    for (uint32_t i = 0; i < segment.slot_count; ++i) {
      const SlotWord free{.lap = SlotLap(place.record + i, segment.slot_count)};
      const SlotWord old = SlotWord::Unpack(
          segment.SlotOf(place.record + i).word.exchange(free.Pack(), std::memory_order_acq_rel));
      if (old.lap == free.lap && old.state != kSlotFree) ++taken;
    }
    lost_here += unread > taken ? unread : taken;
    segment.header->head.store(place.Pack(), std::memory_order_release);
    segment.header->tail.store(place.Pack(), std::memory_order_release);
    waits_for_hole = false;
  }

  // An empty ring whose tail or state is not what we stored: producers would drop for ever.
  void RestoreHeader() {
    RingHeader& header = *segment.header;
    const uint32_t state = closed ? kRingClosed : kRingOpen;
    if (header.tail.load(std::memory_order_relaxed) == place.Pack() &&
        header.state.load(std::memory_order_relaxed) == state) {
      return;
    }
    ++corrupt;
    header.tail.store(place.Pack(), std::memory_order_release);
    header.state.store(state, std::memory_order_release);
  }

  void Format(uint64_t capacity, uint32_t slots) {
    segment.Place(capacity, slots);
    new (segment.header) RingHeader{};
    for (uint32_t i = 0; i < slots; ++i) new (&segment.slots[i]) RingSlot{};
    RingHeader& header = *segment.header;
    header.version = kRingVersion;
    header.header_bytes = sizeof(RingHeader);
    header.capacity_bytes = capacity;
    header.slot_count = slots;
    header.consumer_process_id = static_cast<uint32_t>(getpid());
    header.consumer_start_ticks = ProcessStartTicks(header.consumer_process_id);
    header.pid_namespace = PidNamespace();
    header.state.store(kRingOpen, std::memory_order_relaxed);
    header.magic.store(kRingMagic, std::memory_order_release);
  }

  // Whether the claimed record at `place` will never be committed.
  bool IsHole(const SlotWord& word) {
    const Clock::time_point now = Clock::now();
    if (!waits_for_hole) {
      waits_for_hole = true;
      next_hole_check = now + kHolePatience;
      return false;
    }
    if (now < next_hole_check) return false;
    next_hole_check = now + kHoleCheckInterval;
    return !ProcessRuns(word.process_id, word.start_ticks, SlotWord::kStartMask);
  }
};

RingConsumer::RingConsumer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

RingConsumer::~RingConsumer() {
  Close();
  if (impl_->file >= 0) {
    close(impl_->file);
  } else {
    bip::shared_memory_object::remove(impl_->name.c_str());
  }
}

std::unique_ptr<RingConsumer> RingConsumer::Create(const char* name, size_t capacity_bytes,
                                                   std::string* error) {
  if (capacity_bytes > kRingMaxCapacityBytes) {
    *error = "an event ring holds at most " + std::to_string(kRingMaxCapacityBytes) + " bytes";
    return nullptr;
  }
  const auto [capacity, slots, segment_bytes] = ShapeFor(capacity_bytes);
  try {
    auto impl = std::make_unique<Impl>();
    impl->name = name;
    bip::shared_memory_object object(bip::create_only, name, bip::read_write,
                                     bip::permissions(0600));
    NewName new_name{name};
    // ftruncate alone makes a sparse file: a full /dev/shm would then kill us with SIGBUS at the
    // first touch.
    const int fault = Reserve(object.get_mapping_handle().handle, segment_bytes);
    if (fault != 0) {
      *error = Explain(name, fault, segment_bytes);
      return nullptr;
    }
    impl->segment.region = bip::mapped_region(object, bip::read_write);
    impl->Format(capacity, slots);
    new_name.keep = true;
    return std::unique_ptr<RingConsumer>(new RingConsumer(std::move(impl)));
  } catch (const bip::interprocess_exception& exception) {
    *error = Explain(name, exception.get_native_error(), segment_bytes);
    return nullptr;
  } catch (const std::exception& exception) {
    *error = exception.what();
    return nullptr;
  }
}

std::unique_ptr<RingConsumer> RingConsumer::CreateNameless(size_t capacity_bytes,
                                                           std::string* error) {
  if (capacity_bytes > kRingMaxCapacityBytes) capacity_bytes = kRingMaxCapacityBytes;
  const auto [capacity, slots, segment_bytes] = ShapeFor(capacity_bytes);
  const auto fail = [&](const std::string& what, int fault) {
    *error =
        "cannot " + what + " (" + std::to_string(segment_bytes >> 10) + " KiB): " + strerror(fault);
    return nullptr;
  };
  try {
    auto impl = std::make_unique<Impl>();
    OwnedFile file{memfd_create("ops-debug-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
    if (file.fd < 0) return fail("create nameless shared memory", errno);
    if (const int fault = Reserve(file.fd, segment_bytes); fault != 0) {
      return fail("reserve nameless shared memory", fault);
    }
    // A file that can be shortened is a file whose users can be killed with SIGBUS.
    fcntl(file.fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    impl->name = "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(file.fd);
    impl->segment.region =
        bip::mapped_region(bip::file_mapping(impl->name.c_str(), bip::read_write), bip::read_write);
    impl->Format(capacity, slots);
    impl->file = std::exchange(file.fd, -1);
    return std::unique_ptr<RingConsumer>(new RingConsumer(std::move(impl)));
  } catch (const bip::interprocess_exception& exception) {
    return fail("map nameless shared memory", exception.get_native_error());
  } catch (const std::exception& exception) {
    *error = exception.what();
    return nullptr;
  }
}

const std::string& RingConsumer::name() const { return impl_->name; }

bool RingConsumer::Read(std::vector<std::byte>* message) {
  Impl& impl = *impl_;
  RingSegment& segment = impl.segment;
  // A bound, so that no peer that keeps writing nonsense can hold us here.
  for (uint32_t tries = 0; tries < segment.slot_count; ++tries) {
    // The head first: if it is past a record, that record's slot was claimed before.
    const uint64_t head = segment.header->head.load(std::memory_order_acquire);
    RingSlot& slot = segment.SlotOf(impl.place.record);
    const SlotWord word = SlotWord::Unpack(slot.word.load(std::memory_order_acquire));
    const uint32_t lap = SlotLap(impl.place.record, segment.slot_count);
    if (word.lap == lap && word.state == kSlotFree && head == impl.place.Pack()) {
      impl.RestoreHeader();
      return false;
    }
    if (word.lap != lap || word.state == kSlotFree || word.state > kSlotCommitted ||
        word.units < 1 || word.units > segment.max_units()) {
      impl.Repair();
      return false;
    }
    if (word.state == kSlotClaimed) {
      if (!impl.IsHole(word)) return false;
      // The owner may have committed between our load and its death.
      if (SlotWord::Unpack(slot.word.load(std::memory_order_acquire)).state == kSlotClaimed) {
        ++impl.lost_here;
        impl.Release(word.units);
      }
      continue;
    }
    const uint32_t size_bytes = slot.size_bytes;
    const uint32_t checksum = slot.checksum;
    if ((uint64_t{size_bytes} + kRingUnitBytes - 1) / kRingUnitBytes == word.units) {
      message->resize(size_bytes);
      segment.CopyOut(impl.place.unit, message->data(), size_bytes);
      impl.Release(word.units);
      if (RingChecksum(message->data(), size_bytes) == checksum) return true;
    } else {
      impl.Release(word.units);
    }
    ++impl.corrupt;
  }
  return false;
}

bool RingConsumer::HasUnread() const {
  const RingSlot& slot = impl_->segment.SlotOf(impl_->place.record);
  return SlotWord::Unpack(slot.word.load(std::memory_order_acquire)).state != kSlotFree;
}

bool RingConsumer::SkipClaimed() {
  Impl& impl = *impl_;
  const RingSlot& slot = impl.segment.SlotOf(impl.place.record);
  const SlotWord word = SlotWord::Unpack(slot.word.load(std::memory_order_acquire));
  if (word.state != kSlotClaimed ||
      word.lap != SlotLap(impl.place.record, impl.segment.slot_count) || word.units < 1 ||
      word.units > impl.segment.max_units()) {
    return false;
  }
  ++impl.lost_here;
  impl.Release(word.units);
  return true;
}

void RingConsumer::Close() {
  impl_->closed = true;
  impl_->segment.header->state.store(kRingClosed, std::memory_order_release);
}

uint32_t RingConsumer::unmapped_producers() const {
  const uint32_t told = impl_->segment.header->unmapped_producers.load(std::memory_order_relaxed);
  // More than there can be processes: somebody wrote over it.
  return told < 1u << SlotWord::kProcessBits ? told : 0;
}

uint64_t RingConsumer::lost_messages() const {
  return impl_->segment.header->lost_messages.load(std::memory_order_relaxed) + impl_->lost_here;
}

uint64_t RingConsumer::corrupt_records() const { return impl_->corrupt; }

}  // namespace ops_debug::proto
