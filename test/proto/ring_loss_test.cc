// What is written is read or counted as lost, to the message: consumers that stand still, producers
// that are killed or stopped in the middle of a record.
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>

#include <thread>

#include "proto/process_identity.h"
#include "test/proto/ring_fixture.h"

namespace ops_debug::proto {
namespace {

using Clock = std::chrono::steady_clock;

// Shared by a test and the processes it forks.
struct Counters {
  std::atomic<uint64_t> begun{0};     // writes that may have happened
  std::atomic<uint64_t> finished{0};  // writes that have returned
  std::atomic<int64_t> longest_ns{0};
  std::atomic<uint64_t> read{0};
  std::atomic<bool> stop{false};
};

struct SharedCounters {
  Counters* value = new (mmap(nullptr, sizeof(Counters), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Counters;
  ~SharedCounters() { munmap(value, sizeof(Counters)); }
  Counters* operator->() const { return value; }
};

void WriteMany(const std::string& ring, const SharedCounters& counters, int messages) {
  std::string error;
  auto producer = RingProducer::Open(ring.c_str(), &error);
  for (int i = 0; i < messages; ++i) {
    const std::string message(1 + static_cast<size_t>(i) % 300, 'm');
    ++counters->begun;
    const auto start = Clock::now();
    producer->Write(Bytes(message), WhenFull::kDrop);
    const auto taken = (Clock::now() - start) / std::chrono::nanoseconds(1);
    for (int64_t old = counters->longest_ns;
         old < taken && !counters->longest_ns.compare_exchange_weak(old, taken);) {
    }
    ++counters->finished;
  }
}

// Reads until nothing comes any more; gives every dead producer's record its time.
void DrainAll(const Ring& ring, uint64_t* read) {
  for (int quiet = 0; quiet < 100;) {
    if (ring.Next() != "(none)") {
      ++*read;
      quiet = 0;
    } else if (!ring.consumer->HasUnread()) {
      return;
    } else {
      ++quiet;
      usleep(1000);
    }
  }
}

TEST_CASE("a stopped consumer costs messages, all counted, and no producer waits for it") {
  constexpr int kProcesses = 3, kThreads = 2, kMessages = 5000;
  const std::string name = UniqueName();
  const SharedCounters counters;
  int told[2];
  REQUIRE(pipe(told) == 0);
  // The consumer is a process of its own, so that SIGSTOP can hold it anywhere.
  const pid_t consumer = Fork([&] {
    std::string error;
    auto ring = RingConsumer::Create(name.c_str(), 1 << 14, &error);
    if (ring == nullptr || write(told[1], "r", 1) != 1) _exit(1);
    std::vector<std::byte> message;
    while (true) {
      const bool last = counters->stop;  // before the last look
      while (ring->Read(&message)) ++counters->read;
      if (last && !ring->HasUnread()) break;
    }
    const uint64_t result[2] = {ring->lost_messages(), ring->corrupt_records()};
    ring.reset();  // _exit leaves its name behind
    _exit(write(told[1], result, sizeof(result)) == sizeof(result) ? 0 : 1);
  });
  char byte = 0;
  REQUIRE(read(told[0], &byte, 1) == 1);
  std::vector<pid_t> producers;
  for (int i = 0; i < kProcesses; ++i) {
    producers.push_back(Fork([&] {
      std::vector<std::thread> threads;
      for (int k = 0; k < kThreads; ++k) {
        threads.emplace_back([&] { WriteMany(name, counters, kMessages); });
      }
      for (std::thread& thread : threads) thread.join();
    }));
  }
  const uint64_t all = uint64_t{kProcesses} * kThreads * kMessages;
  for (int i = 0; i < 1000 && counters->finished < all; ++i) {
    kill(consumer, i % 2 == 0 ? SIGSTOP : SIGCONT);
    usleep(2000);
  }
  kill(consumer, SIGSTOP);
  for (const pid_t producer : producers)
    REQUIRE(Wait(producer) == 0);  // whatever the consumer does
  counters->stop = true;
  kill(consumer, SIGCONT);
  uint64_t result[2] = {};
  REQUIRE(read(told[0], result, sizeof(result)) == sizeof(result));
  REQUIRE(Wait(consumer) == 0);
  const uint64_t lost = result[0];
  REQUIRE(counters->read + lost == all);
  REQUIRE(lost > 0);
  REQUIRE(counters->read > 0);
  REQUIRE(result[1] == 0);
  // Not a wait for anybody: what remains is the scheduler of a busy machine.
  REQUIRE(counters->longest_ns < 500'000'000);
}

TEST_CASE(
    "producers killed at any moment: each write is read or counted, but for the one in hand") {
  constexpr int kRounds = 100;
  const Ring ring(1 << 13);
  const SharedCounters counters;
  uint64_t read = 0;
  for (int round = 0; round < kRounds; ++round) {
    const pid_t victims[2] = {Fork([&] { WriteMany(ring.name, counters, 1 << 30); }),
                              Fork([&] { WriteMany(ring.name, counters, 1 << 30); })};
    for (int i = 0; i < 30 + round; ++i) read += ring.Next() != "(none)" ? 1 : 0;
    usleep(static_cast<useconds_t>(100 + 61 * round % 2000));
    for (const pid_t victim : victims) kill(victim, SIGKILL);
    for (const pid_t victim : victims) Wait(victim);
    DrainAll(ring, &read);
  }
  const uint64_t accounted = read + ring.consumer->lost_messages();
  INFO(counters->finished << " finished, " << counters->begun << " begun, " << read << " read");
  REQUIRE(ring.consumer->corrupt_records() == 0);
  REQUIRE(accounted >= counters->finished);
  REQUIRE(accounted <= counters->begun);
  REQUIRE(counters->begun - counters->finished <= 2 * kRounds);
  REQUIRE(read > 0);
}

TEST_CASE(
    "a record that a stopped producer holds is given up, counted once, and the next is read") {
  const Ring ring(4096);
  const auto self = static_cast<uint32_t>(getpid());
  const RingSegment segment = ring.Peek();
  const RingPlace head = RingPlace::Unpack(segment.header->head.load());
  const SlotWord claimed{kSlotClaimed, 2, self,
                         static_cast<uint32_t>(ProcessStartTicks(self)) & SlotWord::kStartMask,
                         SlotLap(head.record, segment.slot_count)};
  segment.SlotOf(head.record).word.store(claimed.Pack());
  auto producer = ring.Open();
  REQUIRE(producer->Write(Bytes("behind"), WhenFull::kDrop));
  REQUIRE(ring.Next() == "(none)");
  REQUIRE(ring.consumer->HasUnread());
  REQUIRE(ring.consumer->SkipClaimed());
  REQUIRE(ring.Next() == "behind");
  REQUIRE_FALSE(ring.consumer->SkipClaimed());
  REQUIRE_FALSE(ring.consumer->HasUnread());
  REQUIRE(ring.consumer->lost_messages() == 1);
}

TEST_CASE("a consumer that stands still is waited for once, not again for each message") {
  const Ring ring(4096);
  auto producer = ring.Open();
  while (producer->Write(Bytes(std::string(1000, 'x')), WhenFull::kDrop)) {
  }
  const auto start = Clock::now();
  REQUIRE_FALSE(producer->Write(Bytes(std::string(1000, 'x')), WhenFull::kWait));
  REQUIRE(Clock::now() - start >= std::chrono::milliseconds(1900));
  // It moves a little, and stands still again.
  REQUIRE(ring.Next() == std::string(1000, 'x'));
  const auto again = Clock::now();
  REQUIRE(producer->Write(Bytes(std::string(1000, 'x')), WhenFull::kWait));
  for (int i = 0; i < 10; ++i) {
    REQUIRE_FALSE(producer->Write(Bytes(std::string(1000, 'x')), WhenFull::kWait));
  }
  REQUIRE(Clock::now() - again < std::chrono::seconds(1));
  REQUIRE(ring.consumer->lost_messages() == 12);
}

TEST_CASE("after Close, what was written is read and later writes are nobody's loss") {
  const Ring ring(4096);
  auto producer = ring.Open();
  REQUIRE(producer->Write(Bytes("before"), WhenFull::kDrop));
  ring.consumer->Close();
  const auto start = Clock::now();
  REQUIRE_FALSE(producer->Write(Bytes("after"), WhenFull::kWait));
  REQUIRE(Clock::now() - start < std::chrono::seconds(1));
  REQUIRE(ring.Next() == "before");
  REQUIRE(ring.Next() == "(none)");
}

TEST_CASE("a child in another PID namespace does not claim: its number would name somebody else") {
  if (getuid() != 0) return;  // only root can make a namespace
  const Ring ring(4096);
  auto producer = ring.Open();
  REQUIRE(producer->Write(Bytes("here"), WhenFull::kDrop));
  const pid_t child = Fork([&] {
    if (unshare(CLONE_NEWPID) != 0) _exit(2);
    const pid_t inner = Fork([&] {
      if (getpid() != 1) _exit(3);
      _exit(producer->Write(Bytes("there"), WhenFull::kDrop) ? 4 : 0);
    });
    const int status = Wait(inner);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 5);
  });
  const int status = Wait(child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 2) return;  // a container may forbid it
  // The namespace of /proc is still the old one inside, so the child may also be known there.
  REQUIRE(ring.Next() == "here");
  const uint64_t delivered = ring.Next() == "there" ? 1 : 0;
  REQUIRE(delivered + ring.consumer->lost_messages() == 1);
}

}  // namespace
}  // namespace ops_debug::proto
