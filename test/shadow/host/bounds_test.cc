#include "shadow/host/bounds.h"

#include <catch2/catch.hpp>
#include <cstring>

#include "shadow/abi/device_abi.h"

namespace ops_debug::shadow {
namespace {

// kernel(float* p, int n, struct { char tag; float* q; } s): p at 0, n at 8, s at 16 with q at 24.
struct Launch {
  KernelPlan plan;
  AllocationBook book;
  uint64_t p = 0x10000;
  int n = 5;
  struct Struct {
    char tag = 'x';
    uint64_t q = 0;
  } s;
  void* values[3] = {&p, &n, &s};

  Launch() {
    plan.parameters = {{"p", 0, 8, 8}, {"n", 8, 4, 4}, {"s", 16, 16, 8}};
    plan.parameter_bytes = 32;
    plan.launch_parameter_offset = 32;
    Slot(0, 4, 4);
    Allocation block;
    block.base = 0x10000;
    block.size_bytes = 4000;
    block.reserved_bytes = 4352;
    book.Insert(block);
  }
  void Slot(uint32_t offset, uint32_t access, uint32_t alignment) {
    plan.slots.push_back({offset, access, alignment});
    plan.launch_parameter_bytes = sizeof(LaunchHeader) + plan.slots.size() * sizeof(BoundsEntry);
  }
  std::vector<BoundsEntry> Fill(BoundsSource source = BoundsSource::kAllocations) {
    return Read(LaunchParameters(plan, values), source);
  }
  std::vector<BoundsEntry> Read(const LaunchParameters& parameters, BoundsSource source) {
    std::vector<uint64_t> out(plan.launch_parameter_bytes / 8);
    FillLaunchParameter(plan, parameters, book, source, 42,
                        reinterpret_cast<std::byte*>(out.data()));
    CHECK(out[0] == 42);
    std::vector<BoundsEntry> entries(plan.slots.size());
    std::memcpy(entries.data(), out.data() + 1, entries.size() * sizeof(BoundsEntry));
    return entries;
  }
};

TEST_CASE(
    "an entry holds the allocation's base and the last offset at which the access still fits") {
  Launch launch;
  launch.Slot(0, 16, 16);
  launch.p = 0x10000 + 128;
  const auto entries = launch.Fill();
  CHECK(entries[0].base == 0x10000);
  CHECK(entries[0].last == 3996);
  CHECK(entries[1].base == 0x10000);
  CHECK(entries[1].last == 3984);
}

TEST_CASE("a pointer in a struct parameter is read at its offset") {
  Launch launch;
  launch.Slot(24, 4, 4);
  launch.s.q = 0x10000 + 4000;  // the end pointer still belongs to the allocation
  CHECK(launch.Fill()[1].base == 0x10000);
  launch.s.q = 0x10000 + 4001;
  CHECK(launch.Fill()[1].base == kBoundsUseShadow);
}

TEST_CASE("shadow memory decides for pointers that have no live allocation") {
  Launch launch;
  for (const uint64_t pointer :
       {uint64_t{0}, uint64_t{0xfffc}, uint64_t{0x10000 + 4004}, ~uint64_t{3}}) {
    CAPTURE(pointer);
    launch.p = pointer;
    CHECK(launch.Fill()[0].base == kBoundsUseShadow);
    CHECK(launch.Fill()[0].last == 0);
  }
  launch.p = 0x10000;
  launch.book.MarkFreed(0x10000, "cuMemFree", {});
  CHECK(launch.Fill()[0].base == kBoundsUseShadow);
}

TEST_CASE("shadow memory decides for misaligned pointers and accesses larger than the allocation") {
  Launch launch;
  launch.p = 0x10002;
  CHECK(launch.Fill()[0].base == kBoundsUseShadow);
  launch.p = 0x10000;
  launch.Slot(0, 4096, 1);
  CHECK(launch.Fill()[1].base == kBoundsUseShadow);
}

TEST_CASE("under stream capture every entry asks shadow memory") {
  Launch launch;
  CHECK(launch.Fill(BoundsSource::kShadowOnly)[0].base == kBoundsUseShadow);
}

TEST_CASE("a packed buffer is read like separate parameters, and never past its end") {
  Launch launch;
  launch.Slot(24, 4, 4);
  std::vector<std::byte> packed(32);
  const uint64_t q = 0x10010;
  std::memcpy(packed.data(), &launch.p, 8);
  std::memcpy(packed.data() + 24, &q, 8);
  CHECK(launch.Read(LaunchParameters(packed), BoundsSource::kAllocations)[1].base == 0x10000);
  packed.resize(28);
  CHECK(launch.Read(LaunchParameters(packed), BoundsSource::kAllocations)[1].base ==
        kBoundsUseShadow);
}

TEST_CASE("a slot that lies in no parameter, or across the end of one, asks shadow memory") {
  Launch launch;
  launch.Slot(8, 4, 1);    // n has 4 bytes
  launch.Slot(100, 4, 1);  // no such parameter
  const auto entries = launch.Fill();
  CHECK(entries[1].base == kBoundsUseShadow);
  CHECK(entries[2].base == kBoundsUseShadow);
}

}  // namespace
}  // namespace ops_debug::shadow
