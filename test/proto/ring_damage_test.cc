// Nothing a peer writes is trusted: damaged headers, slots and payload, and claims that are never
// committed.
#include <signal.h>

#include "proto/process_identity.h"
#include "test/proto/ring_fixture.h"

namespace ops_debug::proto {
namespace {

std::string OpenError(const Ring& ring) {
  std::string error;
  const bool refused = RingProducer::Open(ring.name.c_str(), &error) == nullptr;
  return refused ? error : "(opened)";
}

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Claims the record at the head as `process_id` would, and stops there.
void Claim(const RingSegment& segment, uint32_t process_id, uint64_t start_ticks, uint32_t units,
           bool advance_head) {
  const RingPlace head = RingPlace::Unpack(segment.header->head.load());
  const SlotWord word{kSlotClaimed, units, process_id,
                      static_cast<uint32_t>(start_ticks) & SlotWord::kStartMask,
                      SlotLap(head.record, segment.slot_count)};
  segment.SlotOf(head.record).word.store(word.Pack());
  if (advance_head) segment.header->head.store(head.After(units).Pack());
}

TEST_CASE("headers that are no ring of this version are refused") {
  const Ring ring(4096);
  const RingSegment segment = ring.Peek();
  SECTION("magic") {
    segment.header->magic.store(1);
    REQUIRE(Contains(OpenError(ring), "not an event ring"));
  }
  SECTION("version") {
    segment.header->version = kRingVersion + 1;
    REQUIRE(Contains(OpenError(ring), "another version of ops-debug"));
  }
  SECTION("capacity is no power of two") {
    segment.header->capacity_bytes = 5000;
    REQUIRE(Contains(OpenError(ring), "damaged"));
  }
  SECTION("capacity beyond the segment") {
    segment.header->capacity_bytes = 1 << 20;
    REQUIRE(Contains(OpenError(ring), "shorter than its header says"));
  }
  SECTION("no slots") {
    segment.header->slot_count = 0;
    REQUIRE(Contains(OpenError(ring), "damaged"));
  }
  SECTION("another PID namespace") {
    segment.header->pid_namespace += 1;
    REQUIRE(Contains(OpenError(ring), "PID namespace"));
  }
}

TEST_CASE("a segment that is too short for a header is refused") {
  namespace bip = boost::interprocess;
  const std::string name = UniqueName();
  {
    bip::shared_memory_object object(bip::create_only, name.c_str(), bip::read_write);
    object.truncate(16);
  }
  std::string error;
  REQUIRE(RingProducer::Open(name.c_str(), &error) == nullptr);
  REQUIRE(Contains(error, "not an event ring"));
  bip::shared_memory_object::remove(name.c_str());
}

TEST_CASE("the hole of a dead producer is skipped and counted") {
  const Ring ring(4096);
  auto producer = ring.Open();
  const pid_t dead = Fork([] {});
  const uint64_t start_ticks = ProcessStartTicks(static_cast<uint32_t>(dead));
  Wait(dead);
  const bool advance_head = GENERATE(true, false);  // it may die before it moved the head, too
  Claim(ring.Peek(), static_cast<uint32_t>(dead), start_ticks, 3, advance_head);
  REQUIRE(producer->Write(Bytes("behind the hole"), WhenFull::kDrop));
  REQUIRE(ring.NextWithin5Seconds() == "behind the hole");
  REQUIRE(ring.consumer->lost_messages() == 1);
  REQUIRE(ring.consumer->corrupt_records() == 0);
}

TEST_CASE("a dead producer's hole at the very end of the ring's contents is skipped") {
  const Ring ring(4096);
  const pid_t dead = Fork([] {});
  Wait(dead);
  Claim(ring.Peek(), static_cast<uint32_t>(dead), 0, 3, false);
  for (int i = 0; i < 100 && ring.consumer->lost_messages() == 0; ++i) {
    REQUIRE(ring.Next() == "(none)");
    usleep(1000);
  }
  REQUIRE(ring.consumer->lost_messages() == 1);
  auto producer = ring.Open();
  REQUIRE(producer->Write(Bytes("next"), WhenFull::kDrop));
  REQUIRE(ring.Next() == "next");
}

TEST_CASE("a process that got the dead producer's number does not keep its hole alive") {
  const Ring ring(4096);
  auto producer = ring.Open();
  const auto self = static_cast<uint32_t>(getpid());
  Claim(ring.Peek(), self, ProcessStartTicks(self) + 1, 1, true);
  REQUIRE(producer->Write(Bytes("next"), WhenFull::kDrop));
  REQUIRE(ring.NextWithin5Seconds() == "next");
  REQUIRE(ring.consumer->lost_messages() == 1);
}

TEST_CASE("a record that a living producer still writes is waited for") {
  const Ring ring(4096);
  const auto self = static_cast<uint32_t>(getpid());
  Claim(ring.Peek(), self, ProcessStartTicks(self), 1, true);
  auto producer = ring.Open();
  REQUIRE(producer->Write(Bytes("next"), WhenFull::kDrop));
  for (int i = 0; i < 50; ++i) {
    REQUIRE(ring.Next() == "(none)");
    usleep(1000);
  }
  REQUIRE(ring.consumer->lost_messages() == 0);
}

TEST_CASE("damaged payload is skipped and counted, its neighbours survive") {
  const Ring ring(4096);
  auto producer = ring.Open();
  for (const char* text : {"first", "second", "third"})
    producer->Write(Bytes(text), WhenFull::kDrop);
  const RingSegment segment = ring.Peek();
  SECTION("payload bytes") { segment.payload[kRingUnitBytes] ^= std::byte{1}; }
  SECTION("length beyond the record") { segment.slots[1].size_bytes = 4000; }
  SECTION("length beyond the ring") { segment.slots[1].size_bytes = ~0u; }
  SECTION("length zero") { segment.slots[1].size_bytes = 0; }
  SECTION("checksum") { segment.slots[1].checksum += 1; }
  REQUIRE(ring.Next() == "first");
  REQUIRE(ring.Next() == "third");
  REQUIRE(ring.Next() == "(none)");
  REQUIRE(ring.consumer->corrupt_records() == 1);
}

TEST_CASE("after damage to slots or counters the ring starts over, and says so") {
  const Ring ring(4096);
  auto producer = ring.Open();
  for (const char* text : {"first", "second", "third"})
    producer->Write(Bytes(text), WhenFull::kDrop);
  const RingSegment segment = ring.Peek();
  REQUIRE(ring.Next() == "first");
  SECTION("slot of garbage") { segment.slots[1].word.store(0xdeadbeefdeadbeef); }
  SECTION("slot of another lap") { segment.slots[1].word.store(SlotWord{.lap = 7}.Pack()); }
  SECTION("slot set free") { segment.slots[1].word.store(0); }
  SECTION("record longer than the ring") {
    segment.slots[1].word.store(SlotWord{kSlotCommitted, SlotWord::kMaxUnits, 1, 0, 0}.Pack());
  }
  while (ring.Next() != "(none)") {
  }
  REQUIRE(ring.consumer->corrupt_records() == 1);
  REQUIRE(ring.consumer->lost_messages() == 2);
  REQUIRE(producer->Write(Bytes("afterwards"), WhenFull::kDrop));
  REQUIRE(ring.Next() == "afterwards");
}

TEST_CASE("garbage in the head costs messages, never a hang or a crash") {
  const Ring ring(4096);
  auto producer = ring.Open();
  const RingSegment segment = ring.Peek();
  const uint64_t garbage = GENERATE(0x12345678'00000000, 0x00000001'7fffffff, ~0ull, 5ull);
  segment.header->head.store(garbage);
  producer->Write(Bytes("into the void"), WhenFull::kDrop);
  while (ring.Next() != "(none)") {
  }
  REQUIRE(producer->Write(Bytes("afterwards"), WhenFull::kDrop));
  REQUIRE(ring.NextWithin5Seconds() == "afterwards");
}

TEST_CASE("garbage in the tail makes producers drop, never write outside") {
  const Ring ring(4096);
  auto producer = ring.Open();
  ring.Peek().header->tail.store(0x7777777777777777);
  REQUIRE_FALSE(producer->Write(Bytes("x"), WhenFull::kDrop));
  REQUIRE(ring.consumer->lost_messages() == 1);
}

TEST_CASE("an idle consumer mends tail and state, so that producers do not drop for ever") {
  const Ring ring(4096);
  auto producer = ring.Open();
  SECTION("tail") { ring.Peek().header->tail.store(0x7777777777777777); }
  SECTION("state") { ring.Peek().header->state.store(kRingClosed); }
  SECTION("state that does not exist") { ring.Peek().header->state.store(99); }
  REQUIRE_FALSE(producer->Write(Bytes("dropped"), WhenFull::kDrop));
  REQUIRE(ring.Next() == "(none)");
  REQUIRE(producer->Write(Bytes("afterwards"), WhenFull::kDrop));
  REQUIRE(ring.Next() == "afterwards");
  REQUIRE(ring.consumer->corrupt_records() == 1);
}

TEST_CASE("random writes into the segment never crash or hang either side") {
  const Ring ring(4096);
  auto producer = ring.Open();
  const RingSegment segment = ring.Peek();
  uint64_t seed = 42;
  const auto random = [&seed] {
    seed = seed * 6364136223846793005 + 1442695040888963407;
    return static_cast<uint32_t>(seed >> 33);
  };
  auto* bytes = reinterpret_cast<unsigned char*>(segment.header);
  const size_t behind_geometry = offsetof(RingHeader, head);
  const size_t total = RingSegmentBytes(segment.capacity_bytes, segment.slot_count);
  for (int i = 0; i < 3000; ++i) {
    const std::string message(1 + random() % 200, 'm');
    producer->Write(Bytes(message), WhenFull::kDrop);
    if (i % 3 == 0) {
      bytes[behind_geometry + random() % (i % 2 == 0 ? 192 : total - behind_geometry)] =
          static_cast<unsigned char>(random());
    }
    ring.Next();
    ring.Next();
  }
  SUCCEED("survived");
}

TEST_CASE("a peer that writes garbage all the time neither crashes nor hangs the others") {
  const Ring ring(1 << 14);
  auto producer = ring.Open();
  const RingSegment segment = ring.Peek();
  const pid_t hostile = Fork([&] {
    auto* words = reinterpret_cast<volatile uint64_t*>(segment.header);
    const size_t count = RingSegmentBytes(segment.capacity_bytes, segment.slot_count) / 8;
    for (uint64_t seed = 1;; seed = seed * 6364136223846793005 + 1442695040888963407) {
      // Half of it into the header, geometry included.
      words[seed >> 33 & 1 ? (seed >> 34) % (sizeof(RingHeader) / 8) : (seed >> 34) % count] = seed;
    }
  });
  const pid_t writer = Fork([&] {
    while (true) producer->Write(Bytes(std::string(500, 'w')), WhenFull::kDrop);
  });
  const auto start = std::chrono::steady_clock::now();
  auto longest = std::chrono::steady_clock::duration::zero();
  while (std::chrono::steady_clock::now() - start < std::chrono::milliseconds(500)) {
    const auto before = std::chrono::steady_clock::now();
    ring.Next();
    ring.consumer->HasUnread();
    ring.consumer->SkipClaimed();
    longest = std::max(longest, std::chrono::steady_clock::now() - before);
  }
  int status = 0;
  REQUIRE(waitpid(writer, &status, WNOHANG) == 0);  // it has not crashed
  for (const pid_t process : {hostile, writer}) {
    kill(process, SIGKILL);
    Wait(process);
  }
  REQUIRE(longest < std::chrono::seconds(1));
  // Peace: whoever mapped the ring before goes on.
  bool mended = false;
  for (int tries = 0; tries < 1000 && !mended; ++tries) {
    producer->Write(Bytes("afterwards"), WhenFull::kDrop);
    for (int i = 0; i < 1000 && !mended; ++i) mended = ring.Next() == "afterwards";
    ring.consumer->SkipClaimed();
  }
  REQUIRE(mended);
}

}  // namespace
}  // namespace ops_debug::proto
