// Cells for race checks: on demand, within a budget, zero when memory changes hands.
#include "shadow/host/race_cells.h"

#include <catch2/catch.hpp>
#include <cstddef>
#include <cstring>
#include <map>
#include <memory>

#include "shadow/abi/race_abi.h"

namespace ops_debug::shadow {
namespace {

// Device memory as host buffers; everything happens at once.
class FakeDevice : public DeviceOperations {
 public:
  uint64_t Allocate(uint64_t size_bytes) override {
    if (size_bytes > largest) return 0;
    auto memory = std::make_unique<std::byte[]>(size_bytes);
    std::memset(memory.get(), 0xee, size_bytes);
    const auto address = reinterpret_cast<uint64_t>(memory.get());
    blocks[address] = std::move(memory);
    return address;
  }
  void Free(uint64_t address) override { REQUIRE(blocks.erase(address) == 1); }
  bool Fill(uint64_t address, uint8_t value, uint64_t size_bytes) override {
    std::memset(reinterpret_cast<void*>(address), value, size_bytes);
    return true;
  }
  bool Write(uint64_t address, const void* data, uint64_t size_bytes) override {
    std::memcpy(reinterpret_cast<void*>(address), data, size_bytes);
    return true;
  }
  bool Finish() override { return true; }
  bool FillInStream(uint64_t address, uint8_t value, uint64_t size_bytes, void* stream) override {
    last_stream = stream;
    return Fill(address, value, size_bytes);
  }

  std::map<uint64_t, std::unique_ptr<std::byte[]>> blocks;
  uint64_t largest = ~0ull;
  void* last_stream = nullptr;
};

constexpr uint64_t kBudget = 64ull << 20;
constexpr uint64_t kSomewhere = 0x7f0000000000;

// As the device looks it up; null: no cell.
RaceCell* CellOf(const RaceCells& cells, uint64_t address) {
  const auto* directory = reinterpret_cast<const uint64_t*>(cells.directory());
  const auto* table = reinterpret_cast<const uint64_t*>(directory[address >> kRaceDirectoryShift]);
  const uint64_t chunk = table[(address >> kRaceChunkShift) & (kRaceTableEntries - 1)];
  if (chunk == 0) return nullptr;
  return reinterpret_cast<RaceCell*>(chunk) + ((address >> 2) & (kRaceChunkWords - 1));
}

}  // namespace

TEST_CASE("memory has no cells until a launch needs them, and then zero ones") {
  FakeDevice device;
  RaceCells cells(device, kBudget);
  REQUIRE(cells.Create());
  CHECK(CellOf(cells, kSomewhere) == nullptr);
  REQUIRE(cells.Cover(kSomewhere + 100, 4));
  REQUIRE(CellOf(cells, kSomewhere) != nullptr);
  CHECK(CellOf(cells, kSomewhere + 100)->write == 0);
  CHECK(CellOf(cells, kSomewhere + (1ull << kRaceChunkShift)) == nullptr);
}

TEST_CASE("a range over several chunks and tables is covered whole") {
  FakeDevice device;
  RaceCells cells(device, kBudget);
  REQUIRE(cells.Create());
  const uint64_t border =
      (kSomewhere >> kRaceDirectoryShift << kRaceDirectoryShift) + (1ull << kRaceDirectoryShift);
  const uint64_t chunk = 1ull << kRaceChunkShift;
  REQUIRE(cells.Cover(border - 3 * chunk, 6 * chunk));
  for (int i = -3; i < 3; i++)
    CHECK(CellOf(cells, border + static_cast<uint64_t>(i) * chunk) != nullptr);
}

TEST_CASE("cells of memory that was covered before keep what they hold") {
  FakeDevice device;
  RaceCells cells(device, kBudget);
  REQUIRE(cells.Create());
  REQUIRE(cells.Cover(kSomewhere, 4));
  CellOf(cells, kSomewhere)->write = 5;
  REQUIRE(cells.Cover(kSomewhere, 1 << 20));
  CHECK(CellOf(cells, kSomewhere)->write == 5);
}

TEST_CASE("memory beyond the budget has no cells, and is counted") {
  FakeDevice device;
  RaceCells cells(device, 4 * kRaceChunkBytes);
  REQUIRE(cells.Create());
  CHECK_FALSE(cells.Cover(kSomewhere, 64ull << kRaceChunkShift));
  CHECK(cells.uncovered_bytes() > 0);
  CHECK_FALSE(cells.Cover(kSomewhere + (60ull << kRaceChunkShift), 4));
}

TEST_CASE("large memory comes in pieces if the device has none in one") {
  FakeDevice device;
  RaceCells cells(device, kBudget);
  REQUIRE(cells.Create());
  device.largest = 2 * kRaceChunkBytes;
  CHECK(cells.Cover(kSomewhere, 16ull << kRaceChunkShift));
  CHECK(CellOf(cells, kSomewhere + (15ull << kRaceChunkShift)) != nullptr);
}

TEST_CASE("another allocation starts with fresh cells, its neighbours keep theirs") {
  FakeDevice device;
  RaceCells cells(device, kBudget);
  REQUIRE(cells.Create());
  REQUIRE(cells.Cover(kSomewhere, 4096));
  for (uint64_t at : {0, 256, 511, 512})
    CellOf(cells, kSomewhere + at)->write = CellOf(cells, kSomewhere + at)->read = 7;
  int stream = 0;
  REQUIRE(cells.Renew(kSomewhere + 256, 256, &stream));
  CHECK(device.last_stream == &stream);
  CHECK(CellOf(cells, kSomewhere)->write == 7);
  CHECK(CellOf(cells, kSomewhere + 256)->write == 0);
  CHECK(CellOf(cells, kSomewhere + 511)->read == 0);
  CHECK(CellOf(cells, kSomewhere + 512)->write == 7);
}

TEST_CASE("slots for shared memory grow, and shrink only for want of memory") {
  FakeDevice device;
  RaceCells cells(device, kBudget);
  REQUIRE(cells.Create());
  CHECK_FALSE(cells.HasShared(1, 16, false));
  REQUIRE(cells.GrowShared(3, 16, false));
  CHECK(cells.shared().slots == 4);
  CHECK(cells.shared().words == 16);
  CHECK(cells.HasShared(4, 16, false));
  CHECK_FALSE(cells.HasShared(4, 16, true));
  REQUIRE(cells.GrowShared(2, 64, true));
  CHECK(cells.shared().slots == 4);
  CHECK(cells.shared().words == 64);
  CHECK(cells.shared().named_barriers != 0);
  device.largest = 8 * 64 * kBytesPerWord + 8 * kNamedWords * sizeof(uint64_t);
  REQUIRE(cells.GrowShared(64, 64, true));
  CHECK(cells.shared().slots < 64);
}

TEST_CASE("when tickets start again, nothing remembers the old ones") {
  FakeDevice device;
  RaceCells cells(device, kBudget);
  REQUIRE(cells.Create());
  REQUIRE(cells.Cover(kSomewhere, 4));
  REQUIRE(cells.GrowShared(1, 16, false));
  CellOf(cells, kSomewhere)->read = 9;
  reinterpret_cast<RaceCell*>(cells.shared().cells)[15].write = 9;
  auto* channel = reinterpret_cast<RaceChannel*>(cells.channel());
  channel->sync_ring[5] = 9;
  channel->block_sync[5] = 9;
  channel->conflicts = 2;
  REQUIRE(cells.ClearAll());
  CHECK(CellOf(cells, kSomewhere)->read == 0);
  CHECK(reinterpret_cast<RaceCell*>(cells.shared().cells)[15].write == 0);
  CHECK(channel->sync_ring[5] == 0);
  CHECK(channel->block_sync[5] == 0);
  CHECK(channel->conflicts == 2);
}

TEST_CASE("without memory for the channel there is nothing, and nothing is left behind") {
  FakeDevice device;
  device.largest = 1024;
  RaceCells cells(device, kBudget);
  CHECK_FALSE(cells.Create());
  CHECK(device.blocks.empty());
  CHECK_FALSE(cells.Cover(kSomewhere, 4));
}

}  // namespace ops_debug::shadow
