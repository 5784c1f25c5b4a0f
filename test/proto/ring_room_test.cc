// The ring finds room: a small, full or forbidden /dev/shm, limits on files and address space, and
// what runs that were killed left behind.
#include "proto/ring_room.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "test/proto/ring_fixture.h"

namespace ops_debug::proto {
namespace {

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Exit codes of the children below.
constexpr int kGood = 0, kNoNamespace = 77;

// Replaces /dev/shm by a mount of this process alone.
void MountSharedMemory(const char* options) {
  if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      mount("tmpfs", "/dev/shm", "tmpfs", 0, options) != 0) {
    _exit(kNoNamespace);
  }
}

// One message goes from a process of its own to `ring`.
bool Carries(RingConsumer& ring) {
  const pid_t child = Fork([&] {
    std::string error;
    auto producer = RingProducer::Open(ring.name().c_str(), &error);
    _exit(producer != nullptr && producer->Write(Bytes("hello"), WhenFull::kDrop) ? 0 : 1);
  });
  std::vector<std::byte> message;
  return Wait(child) == 0 && ring.Read(&message) && message.size() == 5;
}

// Runs `body` in a child, whose objects are destroyed; returns what it returned.
template <class Body>
int RunInChild(Body body) {
  const int status = Wait(Fork([&] { _exit(body()); }));
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_CASE("with room in /dev/shm the ring goes there, and nothing is remarked on") {
  const std::string name = UniqueName();
  std::string note, error;
  const auto ring = CreateRingWhereRoom(name, 1 << 20, &note, &error);
  REQUIRE(ring != nullptr);
  REQUIRE(ring->name() == name);
  REQUIRE(note == "");
  REQUIRE(Carries(*ring));
}

TEST_CASE("a /dev/shm that is too small: the ring goes to nameless memory, and says so") {
  if (getuid() != 0) return;  // only root can mount
  const int code = RunInChild([] {
    MountSharedMemory("size=256k,mode=1777");
    std::string note, error;
    const auto ring = CreateRingWhereRoom("ops-debug-1-test", 8 << 20, &note, &error);
    if (ring == nullptr) return 1;
    if (ring->name()[0] != '/') return 2;
    if (!Contains(note, "No space left") || !Contains(note, "nameless")) return 3;
    if (!std::filesystem::is_empty("/dev/shm")) return 4;
    return Carries(*ring) ? kGood : 5;
  });
  if (code == kNoNamespace) return;
  REQUIRE(code == kGood);
}

TEST_CASE("a /dev/shm that may not be written: the same") {
  if (getuid() != 0) return;
  const int code = RunInChild([] {
    MountSharedMemory("size=64m,mode=0700");
    if (setuid(65534) != 0) return kNoNamespace;
    // A process that changed its user is not open to others of that user, as one started by it is.
    prctl(PR_SET_DUMPABLE, 1);
    std::string note, error;
    const auto ring = CreateRingWhereRoom("ops-debug-1-test", 8 << 20, &note, &error);
    if (ring == nullptr) return 1;
    if (!Contains(note, "Permission denied")) return 2;
    return Carries(*ring) ? kGood : 3;
  });
  if (code == kNoNamespace) return;
  REQUIRE(code == kGood);
}

TEST_CASE("a limit on file sizes makes the ring smaller, and the note says how small") {
  const int code = RunInChild([] {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1 << 20, 1 << 20};
    setrlimit(RLIMIT_FSIZE, &limit);
    std::string note, error;
    const auto ring = CreateRingWhereRoom(UniqueName(), 8 << 20, &note, &error);
    if (ring == nullptr) return 1;
    if (!Contains(note, "the event ring has 512 KiB instead of 8 MiB")) return 2;
    return Carries(*ring) ? kGood : 3;
  });
  REQUIRE(code == kGood);
}

TEST_CASE("with no room at all the error of the first place is told") {
  const int code = RunInChild([] {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{4096, 4096};
    setrlimit(RLIMIT_FSIZE, &limit);
    std::string note, error;
    if (CreateRingWhereRoom(UniqueName(), 8 << 20, &note, &error) != nullptr) return 1;
    return Contains(error, "cannot create shared memory") ? kGood : 2;
  });
  REQUIRE(code == kGood);
}

TEST_CASE("nobody can shorten nameless memory under its users' feet") {
  std::string error;
  const auto ring = RingConsumer::CreateNameless(1 << 16, &error);
  REQUIRE(ring != nullptr);
  const int file = open(ring->name().c_str(), O_RDWR | O_CLOEXEC);
  REQUIRE(file >= 0);
  REQUIRE(ftruncate(file, 0) != 0);
  close(file);
  REQUIRE(Carries(*ring));
}

TEST_CASE("a nameless ring that is gone cannot be opened") {
  std::string error;
  auto ring = RingConsumer::CreateNameless(1 << 16, &error);
  const std::string name = ring->name();
  ring.reset();
  REQUIRE(RingProducer::Open(name.c_str(), &error) == nullptr);
}

TEST_CASE("a producer without address space for the ring is counted by the consumer") {
  const Ring ring(8 << 20);
  const pid_t child = Fork([&] {
    // What is mapped already, and little more.
    std::ifstream status("/proc/self/statm");
    uint64_t pages = 0;
    status >> pages;
    const rlimit limit{pages * 4096 + (2 << 20), pages * 4096 + (2 << 20)};
    setrlimit(RLIMIT_AS, &limit);
    std::string error;
    _exit(RingProducer::Open(ring.name.c_str(), &error) == nullptr ? 0 : 1);
  });
  REQUIRE(Wait(child) == 0);
  REQUIRE(ring.consumer->unmapped_producers() == 1);
}

TEST_CASE("rings of runs that were killed as a whole are removed, others stay") {
  const std::filesystem::path folder = "/dev/shm";
  const pid_t dead = Fork([] {});
  Wait(dead);
  const std::string of_dead = "ops-debug-" + std::to_string(dead) + "-left";
  const std::string of_living = "ops-debug-" + std::to_string(getpid()) + "-used";
  const std::string foreign = "ops-debug-" + std::to_string(dead) + "-foreign";
  const pid_t consumer = Fork([&] {
    std::string error;
    auto ring = RingConsumer::Create(of_dead.c_str(), 4096, &error);
    kill(getpid(), SIGKILL);
  });
  Wait(consumer);
  std::string error;
  const auto used = RingConsumer::Create(of_living.c_str(), 4096, &error);
  std::ofstream(folder / foreign) << std::string(512, 'x');
  REQUIRE(std::filesystem::exists(folder / of_dead));
  REQUIRE(RemoveDeadRings(folder.string()) >= 1);  // other tests may have left some, too
  REQUIRE_FALSE(std::filesystem::exists(folder / of_dead));
  REQUIRE(std::filesystem::exists(folder / of_living));
  REQUIRE(std::filesystem::exists(folder / foreign));
  std::filesystem::remove(folder / foreign);
}

TEST_CASE("a ring whose launcher was killed but whose consumer lives is left alone") {
  const pid_t dead = Fork([] {});
  Wait(dead);
  const std::string name = "ops-debug-" + std::to_string(dead) + "-alive";
  std::string error;
  const auto ring = RingConsumer::Create(name.c_str(), 4096, &error);
  RemoveDeadRings("/dev/shm");
  REQUIRE(std::filesystem::exists("/dev/shm/" + name));
}

}  // namespace
}  // namespace ops_debug::proto
