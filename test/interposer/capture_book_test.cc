// How often launches are captured: by shape, by kernel, and again after a failure.
#include "interposer/capture_book.h"

#include <catch2/catch.hpp>

namespace ops_debug::interposer {
namespace {

using Turn = CaptureBook::Turn;

LaunchShape Shape(uint32_t grid, uint64_t module = 1) {
  return {{module, nullptr}, {grid, 1, 1, 32, 1, 1, 0, 0, 0, 0}, {}};
}

TEST_CASE("a shape is captured once") {
  CaptureBook book;
  CHECK(!book.IsDone(Shape(1)));
  CHECK(book.TakeTurn(Shape(1), {}) == Turn::kTake);
  book.Captured(Shape(1), 5, 100, {}, true);
  CHECK(book.IsDone(Shape(1)));
  CHECK(book.TakeTurn(Shape(1), {}) == Turn::kNone);
  CHECK(!book.IsDone(Shape(2)));
  LaunchDescription launch;
  bool host_memory = false;
  CHECK(book.TakeCaptured(5, &launch, &host_memory));
  CHECK(host_memory);
  CHECK(!book.TakeCaptured(5, &launch, &host_memory));
}

TEST_CASE("an attempt that failed is repeated, but not for ever") {
  CaptureBook book;
  CHECK(book.TakeTurn(Shape(1), {}) == Turn::kTake);
  book.Failed(Shape(1), {}, "its stream was busy", false);
  CHECK(!book.IsDone(Shape(1)));
  CHECK(book.TakeTurn(Shape(1), {}) == Turn::kTake);
  CHECK(book.TakeTurn(Shape(1), {}) == Turn::kLast);
  book.Failed(Shape(1), {}, "its stream was busy", true);
  CHECK(book.IsDone(Shape(1)));
}

TEST_CASE("of one kernel a few shapes are captured, of another one as many") {
  CaptureBook book;
  for (uint32_t grid = 1; grid <= 4; grid++) CHECK(book.TakeTurn(Shape(grid), {}) == Turn::kTake);
  CHECK(book.TakeTurn(Shape(5), {}) == Turn::kNone);
  CHECK(book.IsDone(Shape(5)));
  CHECK(book.TakeTurn(Shape(5, /*module=*/2), {}) == Turn::kTake);
}

TEST_CASE("memory is searched for unwritten bytes at a few launches of a shape") {
  CaptureBook book;
  int probes = 0;
  while (book.TakeProbe(Shape(1))) probes++;
  CHECK(probes == 4);
  CHECK(book.IsDone(Shape(1)));
}

TEST_CASE("what the last search finds is captured, and then no more") {
  CaptureBook book;
  for (int i = 0; i < 4; i++) CHECK(book.TakeProbe(Shape(1)));
  CHECK(book.TakeTurn(Shape(1), {}) == Turn::kTake);
  book.Captured(Shape(1), 1, 100, {}, false);
  CHECK(book.TakeTurn(Shape(1), {}) == Turn::kNone);
}

TEST_CASE("a kernel of countless shapes is not remembered in all of them") {
  CaptureBook book;
  for (uint32_t grid = 0; grid < 1000; grid++) book.TakeProbe(Shape(grid));
  CHECK(book.IsDone(Shape(2000)));
  CHECK(!book.TakeProbe(Shape(2000)));
}

}  // namespace
}  // namespace ops_debug::interposer
