#include <catch2/catch.hpp>

#include "shadow/host/allocation_book.h"

namespace ops_debug::shadow {
namespace {

constexpr uint64_t kSegment = 0x10000, kSegmentBytes = 0x10000;

void EnterSegment(AllocationBook& book, uint64_t base = kSegment, uint64_t bytes = kSegmentBytes) {
  Allocation segment;
  segment.base = base;
  segment.size_bytes = bytes;
  segment.reserved_bytes = bytes + 256;
  segment.api = "cuMemAlloc";
  book.Insert(segment);
}

PoolBlock Block(uint64_t offset, uint64_t size_bytes, uint64_t reserved_bytes, uint64_t born = 1) {
  PoolBlock block;
  block.base = kSegment + offset;
  block.size_bytes = size_bytes;
  block.reserved_bytes = reserved_bytes;
  block.born = born;
  block.tensor.framework = "PyTorch";
  return block;
}

bool Live(const AllocationBook& book, uint64_t offset, uint64_t* base, uint64_t* bytes) {
  AllocationRange range;
  if (!book.FindLive(kSegment + offset, &range)) return false;
  *base = range.base - kSegment;
  *bytes = range.size_bytes;
  return true;
}

TEST_CASE("pool_blocks: bounds of a pointer into a segment are those of its block") {
  AllocationBook book;
  EnterSegment(book);
  const auto segment = book.HandOut(Block(0x400, 1000, 1024));
  REQUIRE(segment);
  CHECK(segment->base == kSegment);
  CHECK(segment->first_block);
  CHECK_FALSE(book.HandOut(Block(0x800, 100, 512))->first_block);
  uint64_t base = 0, bytes = 0;
  REQUIRE(Live(book, 0x400, &base, &bytes));
  CHECK((base == 0x400 && bytes == 1000));
  REQUIRE(Live(book, 0x5ff, &base, &bytes));  // a view
  CHECK((base == 0x400 && bytes == 1000));
  REQUIRE(Live(book, 0x400 + 1000, &base, &bytes));  // behind the last element
  CHECK((base == 0x400 && bytes == 1000));
  REQUIRE(Live(book, 0x800, &base, &bytes));  // where one ends, the next begins
  CHECK((base == 0x800 && bytes == 100));
  CHECK_FALSE(Live(book, 0, &base, &bytes));
  CHECK_FALSE(Live(book, 0x400 + 1001, &base, &bytes));
  CHECK_FALSE(Live(book, 0x2000, &base, &bytes));
}

TEST_CASE("pool_blocks: a block given back has no bounds and keeps its name") {
  AllocationBook book;
  EnterSegment(book);
  book.HandOut(Block(0x400, 1000, 1024));
  CodeLines lines;
  lines.count = 1;
  lines.numbers[0] = 42;
  const auto block = book.GiveBack(kSegment + 0x400, 9, lines, {});
  REQUIRE(block);
  CHECK(block->size_bytes == 1000);
  CHECK_FALSE(book.GiveBack(kSegment + 0x400, 9, lines, {}));
  uint64_t base = 0, bytes = 0;
  CHECK_FALSE(Live(book, 0x400, &base, &bytes));
  const auto found = book.FindInnermost(kSegment + 0x500);
  REQUIRE(found);
  CHECK(found->freed);
  REQUIRE(found->tensor);
  CHECK(found->tensor->free_lines.numbers[0] == 42);
  CHECK(found->segment_base == kSegment);
}

TEST_CASE("pool_blocks: what nobody has taken of a freed block still names it") {
  AllocationBook book;
  EnterSegment(book);
  book.HandOut(Block(0x400, 0x1000, 0x1000));
  book.GiveBack(kSegment + 0x400, 2, {}, {});
  book.HandOut(Block(0x800, 0x200, 0x200, 3));
  CHECK(book.live_blocks() == 1);
  const auto front = book.FindInnermost(kSegment + 0x500);
  const auto middle = book.FindInnermost(kSegment + 0x900);
  const auto rear = book.FindInnermost(kSegment + 0x1300);
  REQUIRE((front && middle && rear));
  CHECK((front->freed && front->size_bytes == 0x1000));
  CHECK((!middle->freed && middle->size_bytes == 0x200));
  CHECK((rear->freed && rear->base == kSegment + 0x400));
}

TEST_CASE("pool_blocks: a fault is about the block that was there when the launch was made") {
  AllocationBook book;
  EnterSegment(book);
  book.HandOut(Block(0x400, 1000, 1024, 5));
  book.GiveBack(kSegment + 0x400, 8, {}, {});
  book.HandOut(Block(0x400, 900, 1024, 9));
  CHECK(book.FindInnermostStart(kSegment + 0x400, 1000, 7)->size_bytes == 1000);
  CHECK(book.FindInnermostStart(kSegment + 0x400, 900, 20)->size_bytes == 900);
  CHECK(book.FindInnermostStart(kSegment + 0x400, 0, 20)->size_bytes == 900);
  const auto then = book.FindNearest(kSegment + 0x400 + 1000, 7);
  REQUIRE(then);
  CHECK(then->allocation.size_bytes == 1000);
  CHECK(then->place == NearestAllocation::Place::kBehind);
  CHECK(book.FindNearest(kSegment + 0x400 + 950, 20)->allocation.size_bytes == 900);
}

TEST_CASE("pool_blocks: an address in a gap is named by the nearer block") {
  AllocationBook book;
  EnterSegment(book);
  book.HandOut(Block(0x400, 1000, 1024));
  book.HandOut(Block(0x2000, 64, 512));
  auto nearest = book.FindNearest(kSegment + 0x900);
  CHECK(nearest->allocation.size_bytes == 1000);
  CHECK(nearest->place == NearestAllocation::Place::kBehind);
  nearest = book.FindNearest(kSegment + 0x1f00);
  CHECK(nearest->allocation.size_bytes == 64);
  CHECK(nearest->place == NearestAllocation::Place::kBefore);
  CHECK(nearest->distance_bytes == 0x100);
  CHECK(book.FindContaining(kSegment + 0x900)->api == std::string("cuMemAlloc"));
}

TEST_CASE("pool_blocks: blocks end with their segment") {
  AllocationBook book;
  EnterSegment(book);
  book.HandOut(Block(0x400, 1000, 1024));
  SECTION("freed into quarantine") {
    CHECK(book.MarkFreed(kSegment, "cuMemFree", {}));
    CHECK_FALSE(book.IsPool(kSegment));
    CHECK(book.FindNearest(kSegment + 0x410)->allocation.api == std::string("cuMemAlloc"));
  }
  SECTION("given to the driver") { book.Remove(kSegment); }
  SECTION("taken by another allocation") { EnterSegment(book, kSegment, 0x800); }
  CHECK(book.live_blocks() == 0);
  uint64_t base = 0, bytes = 0;
  const bool live = Live(book, 0x400, &base, &bytes);
  CHECK((!live || base == 0));
  CHECK_FALSE(book.GiveBack(kSegment + 0x400, 2, {}, {}));
}

TEST_CASE("pool_blocks: memory that nobody allocated has no blocks") {
  AllocationBook book;
  EnterSegment(book);
  CHECK_FALSE(book.HandOut(Block(0x20000, 64, 512)));
  CHECK_FALSE(book.HandOut(Block(kSegmentBytes - 0x100, 64, 512)));  // reaches beyond
  CHECK_FALSE(book.IsPool(kSegment));
}

TEST_CASE("pool_blocks: a segment that grows keeps its blocks, one that shrinks keeps the rest") {
  AllocationBook book;
  const auto map = [&](uint64_t base, uint64_t bytes) {
    Allocation mapping;
    mapping.base = base;
    mapping.size_bytes = mapping.reserved_bytes = bytes;
    mapping.kind = AllocationKind::kMapped;
    mapping.reservation = kSegment;
    book.InsertMapped(mapping);
  };
  map(kSegment, 0x4000);
  book.HandOut(Block(0x400, 1000, 1024));
  map(kSegment + 0x4000, 0x4000);
  CHECK(book.IsPool(kSegment + 0x5000));
  CHECK(book.HandOut(Block(0x3e00, 0x1000, 0x1000)));  // over the seam
  CHECK(book.live_blocks() == 2);
  book.RemoveMapped(kSegment + 0x4000, 0x4000);
  uint64_t base = 0, bytes = 0;
  CHECK(Live(book, 0x400, &base, &bytes));
  CHECK(book.IsPool(kSegment));
  CHECK_FALSE(book.IsPool(kSegment + 0x5000));
}

}  // namespace
}  // namespace ops_debug::shadow
