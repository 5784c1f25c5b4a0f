// What the ring promises while nobody damages it: order, losses counted, many processes, producers
// that are killed.
#include "proto/ring.h"

#include <signal.h>
#include <sys/resource.h>

#include <map>
#include <thread>

#include "proto/process_identity.h"
#include "test/proto/ring_fixture.h"

namespace ops_debug::proto {
namespace {

TEST_CASE("messages of every length come out as they went in, in order") {
  const Ring ring(1 << 16);
  auto producer = ring.Open();
  for (size_t size = 1; size < 3000; size = size * 3 / 2 + 1) {
    const std::string message(size, static_cast<char>('a' + size % 26));
    REQUIRE(producer->Write(Bytes(message), WhenFull::kDrop));
    REQUIRE(ring.Next() == message);
  }
  REQUIRE(ring.Next() == "(none)");
  REQUIRE(ring.consumer->lost_messages() == 0);
}

TEST_CASE("records wrap around the end of the ring") {
  const Ring ring(4096);
  auto producer = ring.Open();
  for (int i = 0; i < 5000; ++i) {
    const std::string message = std::to_string(i) + std::string(i % 900, '.');
    REQUIRE(producer->Write(Bytes(message), WhenFull::kDrop));
    REQUIRE(ring.Next() == message);
  }
  REQUIRE(ring.consumer->corrupt_records() == 0);
}

TEST_CASE("a full ring drops bulk data, counts it and keeps what it has") {
  const Ring ring(4096);
  auto producer = ring.Open();
  int written = 0;
  while (producer->Write(Bytes(std::string(100, 'x')), WhenFull::kDrop)) ++written;
  REQUIRE(written == 4096 / 112);
  REQUIRE_FALSE(producer->Write(Bytes(std::string(100, 'x')), WhenFull::kDrop));
  REQUIRE(ring.consumer->lost_messages() == 2);
  int read = 0;
  while (ring.Next() == std::string(100, 'x')) ++read;
  REQUIRE(read == written);
}

TEST_CASE("slots can run out before bytes do") {
  const Ring ring(4096);
  auto producer = ring.Open();
  int written = 0;
  while (producer->Write(Bytes("x"), WhenFull::kDrop)) ++written;
  REQUIRE(written == 4096 / kRingBytesPerSlot);
}

TEST_CASE("messages larger than a quarter of the ring are lost") {
  const Ring ring(4096);
  auto producer = ring.Open();
  REQUIRE(producer->Write(Bytes(std::string(1024, 'x')), WhenFull::kDrop));
  REQUIRE_FALSE(producer->Write(Bytes(std::string(1025, 'x')), WhenFull::kWait));
  REQUIRE_FALSE(producer->Write({}, WhenFull::kWait));
  REQUIRE(ring.consumer->lost_messages() == 2);
}

TEST_CASE("a waiting producer goes on when the consumer makes room") {
  const Ring ring(4096);
  auto producer = ring.Open();
  while (producer->Write(Bytes(std::string(1000, 'x')), WhenFull::kDrop)) {
  }
  bool written = false;
  std::thread writer([&] { written = producer->Write(Bytes("late"), WhenFull::kWait); });
  usleep(20'000);
  while (ring.Next() == std::string(1000, 'x')) {
  }
  writer.join();
  REQUIRE(written);
  REQUIRE(ring.consumer->lost_messages() == 1);  // the one that found the ring full
}

TEST_CASE("a producer does not wait for a consumer that was killed") {
  const std::string name = UniqueName();
  int ready[2];
  REQUIRE(pipe(ready) == 0);
  const pid_t consumer = Fork([&] {
    std::string error;
    auto ring = RingConsumer::Create(name.c_str(), 4096, &error);
    if (ring != nullptr && write(ready[1], "r", 1) == 1) pause();
  });
  char byte = 0;
  REQUIRE(read(ready[0], &byte, 1) == 1);
  std::string error;
  auto producer = RingProducer::Open(name.c_str(), &error);
  REQUIRE(producer != nullptr);
  while (producer->Write(Bytes(std::string(1000, 'x')), WhenFull::kDrop)) {
  }
  kill(consumer, SIGKILL);
  Wait(consumer);
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 100; ++i) {
    REQUIRE_FALSE(producer->Write(Bytes(std::string(1000, 'x')), WhenFull::kWait));
  }
  REQUIRE(std::chrono::steady_clock::now() - start < std::chrono::seconds(1));
  boost::interprocess::shared_memory_object::remove(name.c_str());
}

TEST_CASE("after the consumer has gone orderly, writes drop at once and the name is free") {
  Ring ring(4096);
  auto producer = ring.Open();
  ring.consumer.reset();
  REQUIRE_FALSE(producer->Write(Bytes("x"), WhenFull::kWait));
  std::string error;
  REQUIRE(RingProducer::Open(ring.name.c_str(), &error) == nullptr);
  REQUIRE(error.find("No such file") != std::string::npos);
}

TEST_CASE("a producer inherited through fork writes as the child") {
  const Ring ring(4096);
  auto producer = ring.Open();
  REQUIRE(producer->Write(Bytes("parent"), WhenFull::kDrop));
  const pid_t child = Fork([&] { producer->Write(Bytes("child"), WhenFull::kDrop); });
  Wait(child);
  const RingSegment segment = ring.Peek();
  REQUIRE(SlotWord::Unpack(segment.slots[0].word).process_id == static_cast<uint32_t>(getpid()));
  REQUIRE(SlotWord::Unpack(segment.slots[1].word).process_id == static_cast<uint32_t>(child));
  REQUIRE(ring.Next() == "parent");
  REQUIRE(ring.Next() == "child");
}

TEST_CASE("many processes and threads: nothing lost, nothing torn, each in its order") {
  constexpr int kProcesses = 4, kThreads = 2, kMessages = 20'000;
  const Ring ring(1 << 16);
  std::vector<pid_t> children;
  for (int process = 0; process < kProcesses; ++process) {
    children.push_back(Fork([&] {
      std::string error;
      auto producer = RingProducer::Open(ring.name.c_str(), &error);
      std::vector<std::thread> threads;
      for (int thread = 0; thread < kThreads; ++thread) {
        threads.emplace_back([&, thread] {
          const std::string who = std::to_string(process * kThreads + thread) + " ";
          for (int i = 0; i < kMessages; ++i) {
            std::string message = who + std::to_string(i) + " ";
            message.resize(message.size() + i % 300, 'z');
            if (!producer->Write(Bytes(message), WhenFull::kWait)) _exit(1);
          }
        });
      }
      for (std::thread& thread : threads) thread.join();
    }));
  }
  std::map<int, int> next;
  int read = 0, torn = 0, disorder = 0;
  while (read < kProcesses * kThreads * kMessages) {
    const std::string message = ring.NextWithin5Seconds();
    if (message == "(none)") break;
    int who = -1, number = -1, consumed = 0;
    const int fields = sscanf(message.c_str(), "%d %d %n", &who, &number, &consumed);
    const size_t body = message.size() - static_cast<size_t>(consumed);
    if (fields != 2 || body != static_cast<size_t>(number % 300)) ++torn;
    if (next[who]++ != number) ++disorder;
    ++read;
  }
  for (const pid_t child : children) REQUIRE(Wait(child) == 0);
  REQUIRE(read == kProcesses * kThreads * kMessages);
  REQUIRE(torn == 0);
  REQUIRE(disorder == 0);
  REQUIRE(ring.consumer->lost_messages() == 0);
  REQUIRE(ring.consumer->corrupt_records() == 0);
}

TEST_CASE("producers that are killed at any moment cost at most the record in their hands") {
  constexpr int kRounds = 150;
  const Ring ring(1 << 14);
  auto survivor = ring.Open();
  int survivors_read = 0;
  for (int round = 0; round < kRounds; ++round) {
    const pid_t victim = Fork([&] {
      std::string error;
      auto producer = RingProducer::Open(ring.name.c_str(), &error);
      const std::string message(2000, 'v');
      while (true) producer->Write(Bytes(message), WhenFull::kWait);
    });
    for (int i = 0; i < 20 + round % 40; ++i) ring.Next();
    usleep(static_cast<useconds_t>(500 + 37 * round % 3000));
    kill(victim, SIGKILL);
    Wait(victim);
    // The victim may have left the ring full behind a hole; draining gets past it.
    bool drained = false;
    for (int tries = 0; tries < 200 && !drained; ++tries) {
      while (ring.Next() != "(none)") {
      }
      const RingSegment segment = ring.Peek();
      drained = segment.header->head.load() == segment.header->tail.load();
      if (!drained) usleep(1000);
    }
    REQUIRE(drained);
    REQUIRE(survivor->Write(Bytes("survivor"), WhenFull::kDrop));
    if (ring.NextWithin5Seconds() == "survivor") ++survivors_read;
  }
  REQUIRE(survivors_read == kRounds);
  REQUIRE(ring.consumer->corrupt_records() == 0);
  REQUIRE(ring.consumer->lost_messages() <= kRounds);
}

TEST_CASE("a second ring of the same name is refused with advice") {
  const Ring ring(4096);
  std::string error;
  REQUIRE(RingConsumer::Create(ring.name.c_str(), 4096, &error) == nullptr);
  REQUIRE(error.find("File exists; choose another name") != std::string::npos);
}

TEST_CASE("a ring without room in /dev/shm is refused with advice, and leaves nothing behind") {
  // A file size limit makes the reservation fail as a full file system does.
  const pid_t child = Fork([&] {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1 << 20, 1 << 20};
    setrlimit(RLIMIT_FSIZE, &limit);
    const std::string name = UniqueName();
    std::string error;
    const bool refused = RingConsumer::Create(name.c_str(), 64 << 20, &error) == nullptr;
    const bool advised = error.find("ulimit -f") != std::string::npos;
    const bool gone = !boost::interprocess::shared_memory_object::remove(name.c_str());
    _exit(refused && advised && gone ? 0 : 1);
  });
  REQUIRE(Wait(child) == 0);
}

TEST_CASE("another user's ring cannot be opened") {
  if (getuid() != 0) return;  // only root can become somebody else
  const Ring ring(4096);
  const pid_t child = Fork([&] {
    if (setuid(65534) != 0) _exit(2);
    std::string error;
    const bool refused = RingProducer::Open(ring.name.c_str(), &error) == nullptr;
    _exit(refused && error.find("Permission denied") != std::string::npos ? 0 : 1);
  });
  REQUIRE(Wait(child) == 0);
}

TEST_CASE("a process is known by its start time, and a zombie does not run") {
  const auto self = static_cast<uint32_t>(getpid());
  const uint64_t start = ProcessStartTicks(self);
  REQUIRE(start != 0);
  REQUIRE(ProcessRuns(self, start));
  REQUIRE_FALSE(ProcessRuns(self, start + 1));
  const pid_t child = Fork([] { pause(); });
  const auto id = static_cast<uint32_t>(child);
  const uint64_t child_start = ProcessStartTicks(id);
  REQUIRE(ProcessRuns(id, child_start));
  kill(child, SIGKILL);
  siginfo_t info{};
  REQUIRE(waitid(P_PID, id, &info, WEXITED | WNOWAIT) == 0);  // dead but not reaped
  REQUIRE_FALSE(ProcessRuns(id, child_start));
  Wait(child);
  REQUIRE_FALSE(ProcessRuns(id, child_start));
}

}  // namespace
}  // namespace ops_debug::proto
