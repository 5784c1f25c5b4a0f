// What is promised about the order of stream work, rule by rule.
#include "shadow/host/stream_clocks.h"

#include <catch2/catch.hpp>

namespace ops_debug::shadow {
namespace {

constexpr uint64_t kContext = 1, kOtherContext = 2, kEvent = 100, kOtherEvent = 101;

struct Clocks : StreamClocks {
  uint32_t blocking = AddStream(StreamKind::kBlocking, kContext);
  uint32_t other_blocking = AddStream(StreamKind::kBlocking, kContext);
  uint32_t a = AddStream(StreamKind::kNonBlocking, kContext);
  uint32_t b = AddStream(StreamKind::kNonBlocking, kContext);
  uint32_t legacy = AddStream(StreamKind::kLegacy, kContext);

  SubmittedOperation Work(uint32_t slot) { return Submit(slot, OperationKind::kOther); }
  SubmittedOperation Kernel(uint32_t slot) { return Submit(slot, OperationKind::kKernel); }
};

bool Before(const SubmittedOperation& first, const SubmittedOperation& second) {
  return ComesBefore(first.id, second);
}
bool Unordered(const SubmittedOperation& first, const SubmittedOperation& second) {
  return !Before(first, second) && !Before(second, first);
}
bool EarlyBefore(const SubmittedOperation& first, const SubmittedOperation& second) {
  const VectorClock& clock = *second.early_clock;
  return first.id.slot < clock.size() && first.id.number <= clock[first.id.slot];
}

}  // namespace

TEST_CASE("operations of one stream are ordered") {
  Clocks clocks;
  const auto first = clocks.Work(clocks.a), second = clocks.Work(clocks.a);
  CHECK(Before(first, second));
  CHECK(second.id.number == first.id.number + 1);
}

TEST_CASE("two non-blocking streams have no order") {
  Clocks clocks;
  CHECK(Unordered(clocks.Work(clocks.a), clocks.Work(clocks.b)));
}

TEST_CASE("two blocking streams have no order of their own") {
  Clocks clocks;
  CHECK(Unordered(clocks.Work(clocks.blocking), clocks.Work(clocks.other_blocking)));
}

TEST_CASE("the legacy default stream comes after earlier work of blocking streams") {
  Clocks clocks;
  const auto work = clocks.Work(clocks.blocking);
  CHECK(Before(work, clocks.Work(clocks.legacy)));
}

TEST_CASE("later work of blocking streams comes after the legacy default stream") {
  Clocks clocks;
  const auto legacy = clocks.Work(clocks.legacy);
  CHECK(Before(legacy, clocks.Work(clocks.blocking)));
}

TEST_CASE("the legacy default stream orders two blocking streams around it") {
  Clocks clocks;
  const auto first = clocks.Work(clocks.blocking);
  clocks.Work(clocks.legacy);
  CHECK(Before(first, clocks.Work(clocks.other_blocking)));
}

TEST_CASE("non-blocking streams and the legacy default stream have no order") {
  Clocks clocks;
  const auto first = clocks.Work(clocks.a);
  const auto legacy = clocks.Work(clocks.legacy);
  CHECK(Unordered(first, legacy));
  CHECK(Unordered(legacy, clocks.Work(clocks.a)));
}

TEST_CASE("a command of the legacy default stream that touches nothing orders, too") {
  Clocks clocks;
  const auto first = clocks.Work(clocks.blocking);
  clocks.RecordEvent(kEvent, clocks.legacy);
  CHECK(Before(first, clocks.Work(clocks.other_blocking)));
}

TEST_CASE("the legacy default streams of two contexts have no order") {
  Clocks clocks;
  const uint32_t other = clocks.AddStream(StreamKind::kLegacy, kOtherContext);
  const uint32_t stream = clocks.AddStream(StreamKind::kBlocking, kOtherContext);
  const auto here = clocks.Work(clocks.legacy);
  CHECK(Unordered(here, clocks.Work(other)));
  CHECK(Unordered(here, clocks.Work(stream)));
}

TEST_CASE("a context has one legacy default stream") {
  Clocks clocks;
  CHECK(clocks.AddStream(StreamKind::kLegacy, kContext) == clocks.legacy);
}

TEST_CASE("waiting for an event orders behind what was recorded") {
  Clocks clocks;
  const auto first = clocks.Work(clocks.a);
  clocks.RecordEvent(kEvent, clocks.a);
  const auto behind = clocks.Work(clocks.a);
  clocks.WaitEvent(clocks.b, kEvent);
  const auto second = clocks.Work(clocks.b);
  CHECK(Before(first, second));
  CHECK(Unordered(behind, second));
}

TEST_CASE("only what comes after the wait is ordered") {
  Clocks clocks;
  const auto first = clocks.Work(clocks.a);
  clocks.RecordEvent(kEvent, clocks.a);
  const auto early = clocks.Work(clocks.b);
  clocks.WaitEvent(clocks.b, kEvent);
  CHECK(Unordered(first, early));
}

TEST_CASE("waiting for an event that was never recorded orders nothing") {
  Clocks clocks;
  const auto first = clocks.Work(clocks.a);
  clocks.WaitEvent(clocks.b, kEvent);
  clocks.RecordEvent(kEvent, clocks.a);
  CHECK(Unordered(first, clocks.Work(clocks.b)));
}

TEST_CASE("a wait means the latest recording before it") {
  Clocks clocks;
  const auto first = clocks.Work(clocks.a);
  clocks.RecordEvent(kEvent, clocks.a);
  clocks.WaitEvent(clocks.b, kEvent);
  const auto second = clocks.Work(clocks.a);
  clocks.RecordEvent(kEvent, clocks.a);
  const auto reader = clocks.Work(clocks.b);
  CHECK(Before(first, reader));
  CHECK(Unordered(second, reader));
  clocks.WaitEvent(clocks.b, kEvent);
  CHECK(Before(second, clocks.Work(clocks.b)));
}

TEST_CASE("recording an event again elsewhere forgets the first stream") {
  Clocks clocks;
  const auto first = clocks.Work(clocks.a);
  clocks.RecordEvent(kEvent, clocks.a);
  clocks.RecordEvent(kEvent, clocks.legacy);
  clocks.WaitEvent(clocks.b, kEvent);
  CHECK(Unordered(first, clocks.Work(clocks.b)));
}

TEST_CASE("events carry on what their stream waited for") {
  Clocks clocks;
  const auto first = clocks.Work(clocks.a);
  clocks.RecordEvent(kEvent, clocks.a);
  clocks.WaitEvent(clocks.b, kEvent);
  clocks.RecordEvent(kOtherEvent, clocks.b);
  clocks.WaitEvent(clocks.legacy, kOtherEvent);
  CHECK(Before(first, clocks.Work(clocks.legacy)));
}

TEST_CASE("a destroyed event's handle starts anew") {
  Clocks clocks;
  const auto first = clocks.Work(clocks.a);
  clocks.RecordEvent(kEvent, clocks.a);
  clocks.ForgetEvent(kEvent);
  clocks.WaitEvent(clocks.b, kEvent);
  CHECK(Unordered(first, clocks.Work(clocks.b)));
}

TEST_CASE("the host orders what it submits after a wait") {
  Clocks clocks;
  const auto first = clocks.Work(clocks.a);
  const auto unwaited = clocks.Work(clocks.b);
  clocks.HostJoins(clocks.PointOfStream(clocks.a));
  const auto second = clocks.Work(clocks.legacy);
  CHECK(Before(first, second));
  CHECK(Unordered(unwaited, second));
}

TEST_CASE("a wait of the host is for what was submitted before it began") {
  Clocks clocks;
  clocks.Work(clocks.a);
  const OrderPoint point = clocks.PointOfStream(clocks.a);
  const auto meanwhile = clocks.Work(clocks.a);
  clocks.HostJoins(point);
  CHECK(Unordered(meanwhile, clocks.Work(clocks.b)));
}

TEST_CASE("waiting for the legacy default stream is waiting for blocking streams") {
  Clocks clocks;
  const auto first = clocks.Work(clocks.blocking);
  const auto apart = clocks.Work(clocks.b);
  clocks.HostJoins(clocks.PointOfStream(clocks.legacy));
  const auto second = clocks.Work(clocks.a);
  CHECK(Before(first, second));
  CHECK(Unordered(apart, second));
}

TEST_CASE("waiting for an event on the host orders behind its recording") {
  Clocks clocks;
  const auto first = clocks.Work(clocks.a);
  clocks.RecordEvent(kEvent, clocks.a);
  const auto behind = clocks.Work(clocks.a);
  clocks.HostJoins(clocks.PointOfEvent(kEvent));
  const auto second = clocks.Work(clocks.b);
  CHECK(Before(first, second));
  CHECK(Unordered(behind, second));
}

TEST_CASE("waiting for a context is waiting for all of its streams and no others") {
  Clocks clocks;
  const uint32_t elsewhere = clocks.AddStream(StreamKind::kNonBlocking, kOtherContext);
  const auto first = clocks.Work(clocks.a), second = clocks.Work(clocks.b),
             other = clocks.Work(elsewhere);
  clocks.HostJoins(clocks.PointOfContext(kContext));
  const auto after = clocks.Work(clocks.legacy);
  CHECK(Before(first, after));
  CHECK(Before(second, after));
  CHECK(Unordered(other, after));
}

TEST_CASE("work of a removed stream is still waited for") {
  Clocks clocks;
  const auto first = clocks.Work(clocks.blocking);
  clocks.RemoveStream(clocks.blocking);
  CHECK(Before(first, clocks.Work(clocks.legacy)));
}

TEST_CASE("a slot is used again only when its work is known to be done") {
  Clocks clocks;
  const auto first = clocks.Work(clocks.a);
  clocks.RemoveStream(clocks.a);
  const uint32_t fresh = clocks.AddStream(StreamKind::kNonBlocking, kContext);
  CHECK(fresh != clocks.a);
  CHECK(Unordered(first, clocks.Work(fresh)));
  clocks.HostJoins(clocks.PointOfAll());
  const uint32_t again = clocks.AddStream(StreamKind::kNonBlocking, kContext);
  CHECK(again == clocks.a);
  CHECK(clocks.Work(again).id.number > first.id.number);
}

TEST_CASE("a copy between contexts is serialised with all work of both") {
  Clocks clocks;
  const uint32_t elsewhere = clocks.AddStream(StreamKind::kNonBlocking, kOtherContext);
  const auto here_before = clocks.Work(clocks.a), there_before = clocks.Work(elsewhere);
  const auto copy = clocks.SubmitSerialised(clocks.legacy, {kContext, kOtherContext});
  CHECK(Before(here_before, copy));
  CHECK(Before(there_before, copy));
  CHECK(Before(copy, clocks.Work(clocks.b)));
  CHECK(Before(copy, clocks.Work(elsewhere)));
  const uint32_t made_later = clocks.AddStream(StreamKind::kNonBlocking, kOtherContext);
  CHECK(Before(copy, clocks.Work(made_later)));
}

TEST_CASE("an ordinary launch has no early time") {
  Clocks clocks;
  clocks.Kernel(clocks.a);
  CHECK_FALSE(clocks.Kernel(clocks.a).early_clock);
}

TEST_CASE("a programmatic launch may begin before the kernel before it has ended") {
  Clocks clocks;
  const auto copy = clocks.Work(clocks.a);
  const auto primary = clocks.Kernel(clocks.a);
  const auto secondary = clocks.Submit(clocks.a, OperationKind::kProgrammaticKernel);
  REQUIRE(secondary.early_clock);
  CHECK_FALSE(EarlyBefore(primary, secondary));
  CHECK(EarlyBefore(copy, secondary));
  CHECK(Before(primary, secondary));
}

TEST_CASE("a chain of programmatic launches reaches back to its beginning") {
  Clocks clocks;
  const auto first = clocks.Kernel(clocks.a);
  const auto second = clocks.Submit(clocks.a, OperationKind::kProgrammaticKernel);
  const auto third = clocks.Submit(clocks.a, OperationKind::kProgrammaticKernel);
  REQUIRE(third.early_clock);
  CHECK_FALSE(EarlyBefore(second, third));
  CHECK_FALSE(EarlyBefore(first, third));
  const auto last = clocks.Kernel(clocks.a);
  CHECK_FALSE(last.early_clock);
  CHECK(Before(first, last));
}

TEST_CASE("a programmatic launch behind a copy or a wait is an ordinary one") {
  Clocks clocks;
  clocks.Kernel(clocks.a);
  clocks.Work(clocks.a);
  CHECK_FALSE(clocks.Submit(clocks.a, OperationKind::kProgrammaticKernel).early_clock);
  clocks.Work(clocks.b);
  clocks.RecordEvent(kEvent, clocks.b);
  clocks.WaitEvent(clocks.a, kEvent);
  CHECK_FALSE(clocks.Submit(clocks.a, OperationKind::kProgrammaticKernel).early_clock);
}

TEST_CASE("what the host waited for is done for a programmatic launch, too") {
  Clocks clocks;
  const auto elsewhere = clocks.Work(clocks.b);
  const auto primary = clocks.Kernel(clocks.a);
  clocks.HostJoins(clocks.PointOfStream(clocks.b));
  const auto secondary = clocks.Submit(clocks.a, OperationKind::kProgrammaticKernel);
  REQUIRE(secondary.early_clock);
  CHECK(EarlyBefore(elsewhere, secondary));
  CHECK_FALSE(EarlyBefore(primary, secondary));
}

TEST_CASE("a launch completion event stands for what came before the launch") {
  Clocks clocks;
  const auto first = clocks.Work(clocks.a);
  const auto kernel = clocks.Kernel(clocks.a);
  clocks.RecordLaunchBegun(kEvent, clocks.a);
  clocks.WaitEvent(clocks.b, kEvent);
  const auto after = clocks.Work(clocks.b);
  CHECK(Before(first, after));
  CHECK(Unordered(kernel, after));
}

TEST_CASE("a stream that waits for something unseen comes after everything") {
  Clocks clocks;
  const auto early = clocks.Work(clocks.a);
  clocks.WaitUnseen(clocks.b);
  const auto waited = clocks.Work(clocks.b);
  const auto late = clocks.Work(clocks.a);
  CHECK(waited.open);
  CHECK(Before(early, waited));
  CHECK(Before(late, waited));
}

TEST_CASE("an unseen wait travels with events and the legacy default stream") {
  Clocks clocks;
  clocks.WaitUnseen(clocks.blocking);
  CHECK(clocks.Work(clocks.legacy).open);
  clocks.RecordEvent(kEvent, clocks.legacy);
  clocks.WaitEvent(clocks.a, kEvent);
  CHECK(clocks.Work(clocks.a).open);
  CHECK_FALSE(clocks.Work(clocks.b).open);
}

TEST_CASE("the host's wait ends what is unseen and orders all that was submitted") {
  Clocks clocks;
  clocks.WaitUnseen(clocks.b);
  clocks.Work(clocks.b);
  const auto first = clocks.Work(clocks.a);
  clocks.HostJoins(clocks.PointOfStream(clocks.b));
  const auto second = clocks.Work(clocks.b);
  CHECK_FALSE(second.open);
  CHECK(Before(first, second));
  CHECK(Unordered(clocks.Work(clocks.a), second));
}

TEST_CASE("an unseen wait behind an event outlives waiting for the event") {
  Clocks clocks;
  clocks.Work(clocks.b);
  clocks.RecordEvent(kEvent, clocks.b);
  clocks.WaitUnseen(clocks.b);
  clocks.HostJoins(clocks.PointOfEvent(kEvent));
  CHECK(clocks.Work(clocks.b).open);
}

TEST_CASE("an event of another process may bring anything") {
  Clocks clocks;
  clocks.ShareEvent(kEvent);
  clocks.WaitEvent(clocks.a, kEvent);
  CHECK(clocks.Work(clocks.a).open);
}

TEST_CASE("streams of a destroyed context leave nothing pending") {
  Clocks clocks;
  clocks.Work(clocks.a);
  clocks.RemoveContext(kContext);
  CHECK(IsCovered(clocks.PointOfAll().clock, clocks.host_clock()));
  CHECK(clocks.IsRemoved(clocks.a));
}

TEST_CASE("an order keeps the numbers that checks are told") {
  Clocks clocks;
  clocks.Kernel(clocks.a);
  const auto operation = clocks.Submit(clocks.a, OperationKind::kProgrammaticKernel);
  const OperationOrder order = operation.Order(7);
  CHECK(order.token == 7);
  CHECK(order.id.slot == clocks.a);
  REQUIRE(order.clock_size > clocks.a);
  CHECK(order.clock[clocks.a] == order.id.number);
  REQUIRE(order.early_clock != nullptr);
  CHECK((order.early_clock_size <= clocks.a || order.early_clock[clocks.a] < order.id.number));
}

}  // namespace ops_debug::shadow
