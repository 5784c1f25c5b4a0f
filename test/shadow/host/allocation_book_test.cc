#include "shadow/host/allocation_book.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <thread>

namespace ops_debug::shadow {
namespace {

using Place = NearestAllocation::Place;

Allocation Block(uint64_t base, uint64_t size, uint64_t reserved = 0) {
  Allocation allocation;
  allocation.base = base;
  allocation.size_bytes = size;
  allocation.reserved_bytes = reserved;
  allocation.api = "cuMemAlloc";
  return allocation;
}

TEST_CASE("an address inside an allocation finds it, its red zone only when asked for") {
  AllocationBook book;
  book.Insert(Block(0x1000, 100, 512));
  CHECK(book.FindContaining(0x1000)->size_bytes == 100);
  CHECK(book.FindContaining(0x1063).has_value());
  CHECK_FALSE(book.FindContaining(0x1064).has_value());
  CHECK(book.FindContaining(0x1064, /*reserved=*/true).has_value());
  CHECK_FALSE(book.FindContaining(0x1200, /*reserved=*/true).has_value());
  CHECK_FALSE(book.FindContaining(0xfff).has_value());
}

TEST_CASE("ids count from 1 and are not used again") {
  AllocationBook book;
  CHECK(book.Insert(Block(0x1000, 16)) == 1);
  book.Remove(0x1000);
  CHECK(book.Insert(Block(0x1000, 16)) == 2);
}

TEST_CASE("a freed allocation keeps its stacks and stays findable") {
  AllocationBook book;
  Allocation block = Block(0x1000, 64, 320);
  block.allocation_stack = {1, 2};
  book.Insert(block);
  REQUIRE(book.MarkFreed(0x1000, "cuMemFree", {3}));
  const auto found = book.FindContaining(0x1010);
  REQUIRE(found.has_value());
  CHECK(found->freed);
  CHECK(found->allocation_stack == HostStack{1, 2});
  CHECK(found->free_stack == HostStack{3});
  CHECK(std::string(found->free_api) == "cuMemFree");
}

TEST_CASE("only the start of a live allocation can be freed, and once") {
  AllocationBook book;
  book.Insert(Block(0x1000, 64));
  CHECK_FALSE(book.MarkFreed(0x1008, "cuMemFree", {}));
  CHECK(book.MarkFreed(0x1000, "cuMemFree", {}));
  CHECK_FALSE(book.MarkFreed(0x1000, "cuMemFree", {}));
}

TEST_CASE("a pointer belongs to the allocation that holds it, else to the one that ends there") {
  AllocationBook book;
  book.Insert(Block(0x1000, 0x100));
  book.Insert(Block(0x1100, 0x100));
  book.Insert(Block(0x2000, 0x100));
  AllocationRange range;
  REQUIRE(book.FindLive(0x10ff, &range));
  CHECK(range.base == 0x1000);
  REQUIRE(book.FindLive(0x1100, &range));  // end of the first, start of the second: the start wins
  CHECK(range.base == 0x1100);
  REQUIRE(book.FindLive(0x1200, &range));
  CHECK(range.base == 0x1100);
  CHECK_FALSE(book.FindLive(0x1201, &range));
  CHECK_FALSE(book.FindLive(0xfff, &range));
}

TEST_CASE("a freed allocation gives no bounds") {
  AllocationBook book;
  book.Insert(Block(0x1000, 0x100));
  book.MarkFreed(0x1000, "cuMemFree", {});
  AllocationRange range;
  CHECK_FALSE(book.FindLive(0x1000, &range));
  CHECK_FALSE(book.FindLive(0x1080, &range));
}

TEST_CASE("nearest: inside, in front, behind, and a red zone belongs to what it follows") {
  AllocationBook book;
  CHECK_FALSE(book.FindNearest(0x1000).has_value());
  book.Insert(Block(0x1000, 0x100, 0x300));
  book.Insert(Block(0x1400, 0x100));
  struct Case {
    uint64_t address, base, distance;
    Place place;
  };
  for (const Case& c :
       {Case{0x1010, 0x1000, 0x10, Place::kInside}, Case{0xff0, 0x1000, 0x10, Place::kBefore},
        Case{0x1100, 0x1000, 0, Place::kBehind}, Case{0x12f0, 0x1000, 0x1f0, Place::kBehind},
        Case{0x13f8, 0x1400, 0x8, Place::kBefore}, Case{0x1504, 0x1400, 4, Place::kBehind}}) {
    CAPTURE(c.address);
    const auto nearest = book.FindNearest(c.address);
    REQUIRE(nearest.has_value());
    CHECK(nearest->allocation.base == c.base);
    CHECK(nearest->place == c.place);
    CHECK(nearest->distance_bytes == c.distance);
  }
}

TEST_CASE("an allocation that overlaps stale entries replaces them") {
  AllocationBook book;
  book.Insert(Block(0x1000, 0x100));
  book.Insert(Block(0x1100, 0x100));
  book.Insert(Block(0x1200, 0x100));
  book.Insert(Block(0x1080, 0x100));
  CHECK(book.size() == 2);
  CHECK_FALSE(book.FindStart(0x1000).has_value());
  CHECK(book.FindStart(0x1200).has_value());
}

TEST_CASE("a destroyed context takes its allocations with it") {
  AllocationBook book;
  int context_a = 0, context_b = 0;
  Allocation block = Block(0x1000, 16);
  block.context = &context_a;
  book.Insert(block);
  block.base = 0x2000;
  block.context = &context_b;
  book.Insert(block);
  book.RemoveContext(&context_a);
  CHECK_FALSE(book.FindStart(0x1000).has_value());
  CHECK(book.FindStart(0x2000).has_value());
}

TEST_CASE(
    "touching mappings of one reservation are one allocation; unmapping the middle leaves two") {
  AllocationBook book;
  const auto map = [&](uint64_t base, uint64_t size, uint64_t reservation) {
    Allocation mapping = Block(base, size);
    mapping.reservation = reservation;
    book.InsertMapped(mapping);
  };
  map(0x10000, 0x1000, 0x10000);
  map(0x12000, 0x1000, 0x10000);
  map(0x11000, 0x1000, 0x10000);  // closes the gap
  map(0x13000, 0x1000, 0x13000);  // another reservation
  CHECK(book.size() == 2);
  CHECK(book.FindStart(0x10000)->size_bytes == 0x3000);
  book.RemoveMapped(0x11000, 0x1000);
  CHECK(book.FindStart(0x10000)->size_bytes == 0x1000);
  CHECK(book.FindStart(0x12000)->size_bytes == 0x1000);
  CHECK_FALSE(book.FindContaining(0x11800).has_value());
  book.RemoveMapped(0x10000, 0x4000);
  CHECK(book.size() == 0);
}

TEST_CASE("threads may insert, look up and remove at once") {
  AllocationBook book;
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; t++) {
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < 2000; i++) {
        const uint64_t base = (t << 32) + 0x1000 + i % 7 * 0x1000;
        book.Insert(Block(base, 0x100, 0x200));
        AllocationRange range;
        if (!book.FindLive(base + 0x80, &range) || range.base != base) wrong++;
        if (!book.MarkFreed(base, "cuMemFree", {})) wrong++;
        if (!book.Remove(base)) wrong++;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(book.size() == 0);
}

}  // namespace
}  // namespace ops_debug::shadow
