#include "shadow/host/pool_marks.h"

#include <catch2/catch.hpp>
#include <random>

#include "shadow/abi/device_abi.h"

namespace ops_debug::shadow {
namespace {

using Marks = std::vector<ShadowMark>;

Marks Take(PoolMarks& marks, uint64_t ended_batch = UINT64_MAX) {
  Marks out;
  marks.Take(ended_batch, &out);
  return out;
}

uint8_t Written(const PoolMarks& marks, uint64_t granule) {
  uint8_t written = 0, wanted = 0;
  REQUIRE(marks.At(granule, &written, &wanted));
  return written;
}

TEST_CASE("pool_marks: what shadow memory says already is not written") {
  PoolMarks marks;
  marks.Adopt(100, 200, 0);
  CHECK_FALSE(marks.dirty());
  marks.Want(110, 120, 0, 1);
  CHECK(Take(marks).empty());
}

TEST_CASE("pool_marks: a block that is given back and handed out again costs nothing") {
  PoolMarks marks;
  marks.Adopt(100, 200, 0);
  marks.Want(110, 130, kShadowFreed, 1);
  CHECK(marks.dirty());
  marks.Want(110, 130, 0, 1);
  CHECK_FALSE(marks.dirty());
  CHECK(Take(marks).empty());
  CHECK(marks.ranges() == 1);
}

TEST_CASE("pool_marks: neighbours with the same value are written as one") {
  PoolMarks marks;
  marks.Adopt(100, 200, kShadowPool);
  marks.Want(100, 110, 0, 1);
  marks.Want(110, 120, 0, 2);
  CHECK(marks.urgent());
  CHECK(Take(marks) == Marks{{100, 20, 0}});
  CHECK_FALSE(marks.dirty());
}

TEST_CASE("pool_marks: only what a range keeps of its latest mark is written") {
  PoolMarks marks;
  marks.Adopt(0, 64, kShadowPool);
  marks.Want(0, 64, 0, 1);
  marks.Want(16, 32, kShadowPool, 1);
  marks.Want(20, 21, 5, 1);
  CHECK(Take(marks) == Marks{{0, 16, 0}, {20, 1, 5}, {32, 32, 0}});
}

TEST_CASE("pool_marks: taking validity waits for its batch, giving does not") {
  PoolMarks marks;
  marks.Adopt(0, 32, 0);
  marks.Adopt(32, 64, kShadowFreed);
  marks.Want(0, 8, kShadowFreed, 3);
  marks.Want(40, 48, 0, 3);
  CHECK(Take(marks, 2) == Marks{{40, 8, 0}});
  CHECK(Written(marks, 4) == 0);
  CHECK(marks.dirty());
  CHECK(Take(marks, 3) == Marks{{0, 8, kShadowFreed}});
}

TEST_CASE("pool_marks: a release of memory that was handed out meanwhile is dropped") {
  PoolMarks marks;
  marks.Adopt(0, 64, 0);
  marks.Want(0, 32, kShadowFreed, 1);
  marks.Want(8, 16, 0, 2);             // a new block inside
  marks.Want(8, 16, kShadowFreed, 2);  // given back, but its batch is a later one
  CHECK(Take(marks, 1) == Marks{{0, 8, kShadowFreed}, {16, 16, kShadowFreed}});
  CHECK(Written(marks, 10) == 0);
  CHECK(Take(marks, 2) == Marks{{8, 8, kShadowFreed}});
}

TEST_CASE("pool_marks: a partial granule that loses bytes takes validity, one that gains gives") {
  PoolMarks marks;
  marks.Adopt(0, 8, 0);
  marks.Want(0, 1, 5, 9);
  CHECK_FALSE(marks.urgent());
  CHECK(Take(marks, 8).empty());
  CHECK(Take(marks, 9) == Marks{{0, 1, 5}});
  marks.Want(0, 1, 7, 9);
  CHECK(marks.urgent());
  CHECK(Take(marks, 8) == Marks{{0, 1, 7}});
}

TEST_CASE("pool_marks: a patient mark waits for its time") {
  PoolMarks marks;
  marks.Adopt(0, 64, 0);
  marks.Want(0, 8, kShadowFreed, 1, /*due=*/100);
  CHECK(marks.patient());
  CHECK_FALSE(marks.dirty());
  CHECK(Take(marks).empty());
  marks.Expire(99);
  CHECK_FALSE(marks.dirty());
  marks.Expire(100);
  CHECK(marks.dirty());
  CHECK_FALSE(marks.patient());
  CHECK(Take(marks) == Marks{{0, 8, kShadowFreed}});
}

TEST_CASE("pool_marks: memory that is taken again has no time to wait for") {
  PoolMarks marks;
  marks.Adopt(0, 64, 0);
  marks.Want(0, 8, kShadowFreed, 1, 100);
  marks.Want(0, 8, 0, 1);
  marks.Expire(1000);
  CHECK_FALSE(marks.dirty());
}

TEST_CASE("pool_marks: asking for patient marks brings those that touch") {
  PoolMarks marks;
  marks.Adopt(0, 64, 0);
  marks.Want(0, 8, kShadowFreed, 1, 100);
  marks.Want(8, 16, kShadowFreed, 2, 120);
  marks.Want(32, 40, kShadowFreed, 2, 120);
  CHECK_FALSE(marks.Demand(20));
  CHECK(marks.Demand(3));
  CHECK(Take(marks) == Marks{{0, 16, kShadowFreed}});
  marks.DemandAll();
  CHECK(Take(marks) == Marks{{32, 8, kShadowFreed}});
}

TEST_CASE("pool_marks: memory of captured graphs stays valid until it is dropped") {
  PoolMarks marks;
  marks.Adopt(0, 64, kShadowPool);
  marks.Keep(8, 16);
  CHECK(Take(marks) == Marks{{8, 8, 0}});
  marks.Want(0, 32, kShadowFreed, 1);
  CHECK(Take(marks) == Marks{{0, 8, kShadowFreed}, {16, 16, kShadowFreed}});
  CHECK(marks.Drop(0, 64));
  CHECK_FALSE(marks.Drop(0, 64));
  marks.Adopt(0, 64, 0);
  marks.Want(8, 16, kShadowFreed, 1);
  CHECK(Take(marks) == Marks{{8, 8, kShadowFreed}});
}

TEST_CASE("pool_marks: nothing is written to memory that was dropped") {
  PoolMarks marks;
  marks.Adopt(0, 64, 0);
  marks.Want(0, 64, kShadowFreed, 1);
  marks.Drop(16, 32);
  CHECK(Take(marks) == Marks{{0, 16, kShadowFreed}, {32, 32, kShadowFreed}});
  marks.Want(16, 32, 0, 1);
  CHECK(Take(marks).empty());
}

// Against arrays, with random calls: after everything was taken, written is wanted.
TEST_CASE("pool_marks: agrees with a model under random use") {
  constexpr uint64_t kSize = 256;
  std::mt19937 random(7);
  const auto number = [&](uint64_t below) { return random() % below; };
  PoolMarks marks;
  marks.Adopt(0, kSize, kShadowPool);
  std::vector<uint8_t> written(kSize, kShadowPool), wanted(kSize, kShadowPool);
  const uint8_t values[] = {0, 3, 6, kShadowPool, kShadowFreed};
  for (uint64_t step = 1; step < 20000; step++) {
    uint64_t begin = number(kSize), end = begin + 1 + number(40);
    if (end > kSize) end = kSize;
    const uint8_t value = values[number(std::size(values))];
    marks.Want(begin, end, value, step, number(3) == 0 ? step + number(50) : 0);
    for (uint64_t i = begin; i < end; i++) wanted[i] = value;
    if (number(8) == 0) marks.Demand(number(kSize));
    marks.Expire(step);
    const bool all = number(16) == 0;
    if (all) marks.DemandAll();
    for (const ShadowMark& mark : Take(marks, all ? UINT64_MAX : number(step))) {
      for (uint64_t i = mark.granule; i < mark.granule + mark.count; i++) {
        written[i] = mark.value;
        REQUIRE(mark.value == wanted[i]);
      }
    }
    for (uint64_t i = 0; i < kSize; i++) {
      uint8_t now = 0, want = 0;
      REQUIRE(marks.At(i, &now, &want));
      REQUIRE(now == written[i]);
      REQUIRE(want == wanted[i]);
      if (all) REQUIRE(now == want);
    }
  }
}

}  // namespace
}  // namespace ops_debug::shadow
