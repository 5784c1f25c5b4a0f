// What the host knows to be written.
#include "shadow/host/written_ranges.h"

#include <catch2/catch.hpp>

namespace ops_debug::shadow {
namespace {

using Answer = WrittenRanges::Answer;

TEST_CASE("fresh memory is written when all of its bytes were, in any order") {
  WrittenRanges ranges;
  ranges.Allocated(0x1000, 256);
  CHECK(ranges.WhollyWritten(0x1000) == Answer::kUnknown);
  ranges.Written(0x1080, 128);
  ranges.Written(0x1000, 127);
  CHECK(ranges.WhollyWritten(0x1010) == Answer::kUnknown);
  CHECK(ranges.AreWritten(0x1080, 128));
  CHECK_FALSE(ranges.AreWritten(0x107f, 2));
  ranges.Written(0x107f, 1);
  CHECK(ranges.WhollyWritten(0x1000) == Answer::kWritten);
  CHECK(ranges.WhollyWritten(0x10ff) == Answer::kWritten);
  CHECK(ranges.WhollyWritten(0x1100) == Answer::kNotAllocated);
}

TEST_CASE("memory that is allocated again is fresh, its neighbours are not") {
  WrittenRanges ranges;
  ranges.Allocated(0x1000, 256);
  ranges.Allocated(0x1100, 256);
  ranges.Written(0x0, 0x10000);
  ranges.Allocated(0x1000, 128);
  CHECK(ranges.WhollyWritten(0x1000) == Answer::kUnknown);
  CHECK(ranges.WhollyWritten(0x1080) == Answer::kNotAllocated);
  CHECK(ranges.WhollyWritten(0x1100) == Answer::kWritten);
}

TEST_CASE("what may be unwritten again is not known, but a later write makes it so") {
  WrittenRanges ranges;
  ranges.Allocated(0x1000, 256);
  ranges.Written(0x1000, 256);
  ranges.Unknown(0x1010, 16, false);
  CHECK(ranges.WhollyWritten(0x1000) == Answer::kUnknown);
  CHECK(ranges.AreWritten(0x1000, 16));
  CHECK(ranges.AreWritten(0x1020, 0xe0));
  CHECK_FALSE(ranges.AreWritten(0x1010, 1));
  ranges.Written(0x1010, 16);
  CHECK(ranges.WhollyWritten(0x1000) == Answer::kWritten);
}

TEST_CASE("what a graph may unwrite at any time is never known until it is allocated again") {
  WrittenRanges ranges;
  ranges.Allocated(0x1000, 256);
  ranges.Unknown(0x1000, 1, true);
  ranges.AllWritten();
  CHECK(ranges.WhollyWritten(0x1000) == Answer::kUnknown);
  CHECK_FALSE(ranges.AreWritten(0x1080, 1));
  ranges.Allocated(0x1000, 256);
  ranges.AllWritten();
  CHECK(ranges.WhollyWritten(0x1000) == Answer::kWritten);
}

TEST_CASE("memory that nobody allocated counts as written") {
  WrittenRanges ranges;
  CHECK(ranges.AreWritten(0, UINT64_MAX));
  ranges.Allocated(0x1000, 256);
  CHECK_FALSE(ranges.AreWritten(0, UINT64_MAX));
  CHECK(ranges.AreWritten(0x1100, 256));
}

TEST_CASE("memory that is written in a great many pieces is given up, not claimed") {
  WrittenRanges ranges;
  ranges.Allocated(0x1000, 0x10000);
  for (uint64_t i = 0; i < 0x8000; i++) ranges.Written(0x1000 + 2 * i, 1);
  CHECK_FALSE(ranges.AreWritten(0x1000, 2));
  CHECK(ranges.WhollyWritten(0x1000) == Answer::kUnknown);
  ranges.Written(0x1000, 0x10000);
  CHECK(ranges.WhollyWritten(0x1000) == Answer::kWritten);
}

}  // namespace
}  // namespace ops_debug::shadow
