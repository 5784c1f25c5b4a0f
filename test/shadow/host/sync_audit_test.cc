// Which waits are called redundant, and which are left alone.
#include "shadow/host/sync_audit.h"

#include <catch2/catch.hpp>

namespace ops_debug::shadow {
namespace {

constexpr uint64_t kFirstPlace = 11, kSecondPlace = 12;

// A program with streams and waits, told to clocks and audit as the interposer does.
struct Program {
  StreamClocks clocks;
  SyncAudit audit;
  uint32_t stream = clocks.AddStream(StreamKind::kNonBlocking, 1);
  uint32_t other = clocks.AddStream(StreamKind::kNonBlocking, 1);
  bool host_memory_written = false;

  void Work(WorkEffect effect, uint32_t slot) {
    audit.Submitted(clocks.Submit(slot, OperationKind::kOther), effect);
  }
  void Work(WorkEffect effect) { Work(effect, stream); }
  void Wait(uint64_t place, uint32_t slot) {
    const OrderPoint point = clocks.PointOfStream(slot);
    audit.Waited(
        place, point, [&] { return host_memory_written; }, 5);
    clocks.HostJoins(point);
  }
  void Wait(uint64_t place) { Wait(place, stream); }
  void WaitForAll(uint64_t place) {
    const OrderPoint point = clocks.PointOfContext(1);
    audit.Waited(
        place, point, [&] { return host_memory_written; }, 5);
    clocks.HostJoins(point);
  }
};

}  // namespace

TEST_CASE("a second wait for the same work is redundant") {
  Program program;
  for (int i = 0; i < 3; i++) {
    program.Work(WorkEffect::kKernel);
    program.Wait(kFirstPlace);
    program.WaitForAll(kSecondPlace);
  }
  const auto found = program.audit.Redundant();
  REQUIRE(found.size() == 1);
  CHECK(found[0].place == kSecondPlace);
  CHECK(found[0].count == 3);
  CHECK(found[0].duration_ns == 15);
  CHECK(found[0].reason == RedundantBecause::kNothingNew);
}

TEST_CASE("a place that is needed once is not redundant") {
  Program program;
  for (int i = 0; i < 3; i++) {
    program.Work(WorkEffect::kKernel);
    program.Wait(kFirstPlace);
    if (i == 1) program.Work(WorkEffect::kKernel, program.other);
    program.WaitForAll(kSecondPlace);
  }
  CHECK(program.audit.Redundant().empty());
}

TEST_CASE("one redundant wait alone is no pattern") {
  Program program;
  program.Work(WorkEffect::kKernel);
  program.Wait(kFirstPlace);
  program.Wait(kSecondPlace);
  CHECK(program.audit.Redundant().empty());
}

TEST_CASE("waiting before anything was submitted is not counted") {
  Program program;
  program.WaitForAll(kFirstPlace);
  program.WaitForAll(kFirstPlace);
  CHECK(program.audit.Redundant().empty());
}

TEST_CASE("a wait behind a synchronous copy with all work in its stream is redundant") {
  Program program;
  for (int i = 0; i < 2; i++) {
    program.Work(WorkEffect::kStagedCopy);
    program.WaitForAll(kFirstPlace);
    program.Work(WorkEffect::kKernel);
    program.Wait(kSecondPlace);
  }
  const auto found = program.audit.Redundant();
  REQUIRE(found.size() == 1);
  CHECK(found[0].place == kFirstPlace);
  CHECK(found[0].reason == RedundantBecause::kStagedCopy);
}

TEST_CASE("a wait behind a synchronous copy is needed by work in another stream") {
  Program program;
  for (int i = 0; i < 2; i++) {
    program.Work(WorkEffect::kStagedCopy);
    program.WaitForAll(kFirstPlace);
    program.Work(WorkEffect::kKernel, program.other);
    program.WaitForAll(kSecondPlace);
  }
  CHECK(program.audit.Redundant().empty());
}

TEST_CASE("work of another stream that the last stream waited for is in its order") {
  Program program;
  for (int i = 0; i < 2; i++) {
    program.Work(WorkEffect::kDeviceOnly, program.other);
    program.clocks.WaitPoint(program.stream, program.clocks.PointOfStream(program.other));
    program.Work(WorkEffect::kKernel);
    program.WaitForAll(kFirstPlace);
    program.Work(WorkEffect::kCopyToHost);
    program.Wait(kSecondPlace);
  }
  const auto found = program.audit.Redundant();
  REQUIRE(found.size() == 1);
  CHECK(found[0].place == kFirstPlace);
}

TEST_CASE("work of another stream without order is what a wait is needed for") {
  Program program;
  for (int i = 0; i < 2; i++) {
    program.Work(WorkEffect::kDeviceOnly, program.other);
    program.Work(WorkEffect::kKernel);
    program.WaitForAll(kFirstPlace);
    program.Work(WorkEffect::kCopyToHost);
    program.Wait(kSecondPlace);
  }
  CHECK(program.audit.Redundant().empty());
}

TEST_CASE("a later wait for another stream takes nothing off the first") {
  Program program;
  for (int i = 0; i < 2; i++) {
    program.Work(WorkEffect::kStagedCopy);
    program.Wait(kFirstPlace);
    program.Work(WorkEffect::kKernel);
    program.Wait(kSecondPlace, program.other);
    program.WaitForAll(kSecondPlace + 1);
  }
  const auto found = program.audit.Redundant();
  REQUIRE(found.size() == 1);  // the other stream is empty
  CHECK(found[0].place == kSecondPlace);
}

TEST_CASE("nothing is said about a wait behind which nothing else came") {
  Program program;
  for (int i = 0; i < 2; i++) {
    program.Work(WorkEffect::kStagedCopy);
    program.WaitForAll(kFirstPlace);
    program.audit.Interrupted();
  }
  CHECK(program.audit.Redundant().empty());
}

TEST_CASE("a wait between a kernel and the copy of its result is redundant") {
  Program program;
  for (int i = 0; i < 2; i++) {
    program.Work(WorkEffect::kKernel);
    program.Work(WorkEffect::kKernel);
    program.Wait(kFirstPlace);
    program.Work(WorkEffect::kCopyToHost);
    program.Wait(kSecondPlace);
  }
  const auto found = program.audit.Redundant();
  REQUIRE(found.size() == 1);
  CHECK(found[0].place == kFirstPlace);
  CHECK(found[0].reason == RedundantBecause::kCopyBehind);
}

TEST_CASE("the host may read what a kernel wrote to its memory") {
  Program program;
  program.host_memory_written = true;
  for (int i = 0; i < 2; i++) {
    program.Work(WorkEffect::kKernel);
    program.Wait(kFirstPlace);
    program.Work(WorkEffect::kCopyToHost);
    program.Wait(kSecondPlace);
  }
  CHECK(program.audit.Redundant().empty());
}

TEST_CASE("the host may read what was copied to it before the wait") {
  Program program;
  for (int i = 0; i < 2; i++) {
    program.Work(WorkEffect::kKernel);
    program.Work(WorkEffect::kCopyToHost);
    program.Wait(kFirstPlace);
    program.Work(WorkEffect::kCopyToHost);
    program.Wait(kSecondPlace);
  }
  CHECK(program.audit.Redundant().empty());
}

TEST_CASE("a kernel behind a wait may depend on what the host did meanwhile") {
  Program program;
  for (int i = 0; i < 2; i++) {
    program.Work(WorkEffect::kKernel);
    program.Wait(kFirstPlace);
    program.Work(WorkEffect::kKernel);
    program.Work(WorkEffect::kCopyToHost);
    program.Wait(kSecondPlace);
  }
  CHECK(program.audit.Redundant().empty());
}

TEST_CASE("what the host does on its own ends the question") {
  Program program;
  for (int i = 0; i < 2; i++) {
    program.Work(WorkEffect::kKernel);
    program.Wait(kFirstPlace);
    program.audit.Interrupted();
    program.Work(WorkEffect::kCopyToHost);
    program.Wait(kSecondPlace);
  }
  CHECK(program.audit.Redundant().empty());
}

TEST_CASE("waiting for something unseen is never redundant") {
  Program program;
  for (int i = 0; i < 2; i++) {
    program.Work(WorkEffect::kKernel);
    program.Wait(kFirstPlace);
    program.clocks.WaitUnseen(program.stream);
    program.Wait(kSecondPlace);
  }
  CHECK(program.audit.Redundant().empty());
}

}  // namespace ops_debug::shadow
