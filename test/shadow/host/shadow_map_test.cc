#include "shadow/host/shadow_map.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "shadow/abi/device_abi.h"

namespace ops_debug::shadow {
namespace {

// Device memory as host buffers. Work on the program's stream happens when RunStream is called,
// everything else at once; `unfinished` counts what was queued without Finish.
class FakeDevice : public DeviceOperations {
 public:
  uint64_t Allocate(uint64_t size_bytes) override {
    if (allocations_left == 0) return 0;
    allocations_left--;
    auto memory = std::make_unique<std::byte[]>(size_bytes);
    const auto address = reinterpret_cast<uint64_t>(memory.get());
    blocks[address] = std::move(memory);
    return address;
  }
  void Free(uint64_t address) override { REQUIRE(blocks.erase(address) == 1); }
  bool Fill(uint64_t address, uint8_t value, uint64_t size_bytes) override {
    unfinished++;
    std::memset(reinterpret_cast<void*>(address), value, size_bytes);
    return true;
  }
  bool Write(uint64_t address, const void* data, uint64_t size_bytes) override {
    unfinished++;
    std::memcpy(reinterpret_cast<void*>(address), data, size_bytes);
    return true;
  }
  bool Finish() override {
    unfinished = 0;
    return true;
  }
  bool FillInStream(uint64_t address, uint8_t value, uint64_t size_bytes, void* stream) override {
    last_stream = stream;
    queued.push_back([=] { std::memset(reinterpret_cast<void*>(address), value, size_bytes); });
    return true;
  }
  void RunStream() {
    for (auto& work : queued) work();
    queued.clear();
  }

  std::map<uint64_t, std::unique_ptr<std::byte[]>> blocks;
  std::vector<std::function<void()>> queued;
  void* last_stream = nullptr;
  int allocations_left = 1000;
  int unfinished = 0;
};

// Looks an address up the way the device does (shadow/device/slow_path.cu).
uint8_t Look(const ShadowMap& map, uint64_t address) {
  const uint64_t granule = address >> kShadowGranuleShift;
  uint64_t entry = granule >> (kDirectoryShift - kShadowGranuleShift);
  if (entry > kDirectoryEntries) entry = kDirectoryEntries;
  const auto* directory = reinterpret_cast<const uint64_t*>(map.directory());
  return reinterpret_cast<const uint8_t*>(directory[entry])[granule & (kChunkBytes - 1)];
}

constexpr uint64_t kBase = 0x7f0012340000;

TEST_CASE("untouched addresses are unknown, addresses beyond 47 bits are wild") {
  FakeDevice device;
  ShadowMap map(device);
  REQUIRE(map.Create());
  CHECK(Look(map, 0) == kShadowUnknown);
  CHECK(Look(map, kBase) == kShadowUnknown);
  CHECK(Look(map, (1ull << 47) - 1) == kShadowUnknown);
  CHECK(Look(map, 1ull << 47) == kShadowWild);
  CHECK(Look(map, ~0ull) == kShadowWild);
}

TEST_CASE("a range with a red zone: whole granules, the bytes of the last one, then red") {
  FakeDevice device;
  ShadowMap map(device);
  REQUIRE(map.Create());
  REQUIRE(map.MarkValid(kBase, 4001, 4352));
  CHECK(device.unfinished == 0);
  CHECK(Look(map, kBase - 1) == kShadowUnknown);
  CHECK(Look(map, kBase) == 0);
  CHECK(Look(map, kBase + 3999) == 0);
  CHECK(Look(map, kBase + 4000) == 1);
  CHECK(Look(map, kBase + 4008) == kShadowRedZone);
  CHECK(Look(map, kBase + 4351) == kShadowRedZone);
  CHECK(Look(map, kBase + 4352) == kShadowUnknown);
}

TEST_CASE("a size that is a multiple of the granule has no partial byte") {
  FakeDevice device;
  ShadowMap map(device);
  REQUIRE(map.Create());
  REQUIRE(map.MarkValid(kBase, 4000, 4352));
  CHECK(Look(map, kBase + 3999) == 0);
  CHECK(Look(map, kBase + 4000) == kShadowRedZone);
}

TEST_CASE("without a red zone the last granule is addressable to its end") {
  FakeDevice device;
  ShadowMap map(device);
  REQUIRE(map.Create());
  REQUIRE(map.MarkValid(kBase, 13, 13));
  CHECK(Look(map, kBase + 8) == 0);
  CHECK(Look(map, kBase + 16) == kShadowUnknown);
}

TEST_CASE("a range that crosses chunks is marked in each") {
  FakeDevice device;
  ShadowMap map(device);
  REQUIRE(map.Create());
  constexpr uint64_t kChunkSpan = 1ull << kDirectoryShift;
  const uint64_t border = kBase / kChunkSpan * kChunkSpan + kChunkSpan;
  REQUIRE(map.MarkValid(border - 256, kChunkSpan + 512, kChunkSpan + 1024));
  for (const uint64_t at : std::vector<uint64_t>{border - 256, border - 8, border,
                                                 border + kChunkSpan, border + kChunkSpan + 248}) {
    CAPTURE(at - border);
    CHECK(Look(map, at) == 0);
  }
  CHECK(Look(map, border - 264) == kShadowUnknown);
  CHECK(Look(map, border + kChunkSpan + 256) == kShadowRedZone);
}

TEST_CASE("a large buffer needs chunks of its own only at its ends, in every state") {
  FakeDevice device;
  ShadowMap map(device);
  REQUIRE(map.Create());
  constexpr uint64_t kChunkSpan = 1ull << kDirectoryShift;
  const uint64_t base = kBase / kChunkSpan * kChunkSpan + 4096;
  const uint64_t size = 20 * kChunkSpan + 100;
  const uint64_t before = map.device_bytes();
  REQUIRE(map.MarkValid(base, size, size + 412));
  CHECK(map.device_bytes() <= before + 3 * kChunkBytes);  // two ends, one shared "valid"
  for (uint64_t i = 0; i < 20; i++) CHECK(Look(map, base + i * kChunkSpan) == 0);
  CHECK(Look(map, base + size - 1) == 4);
  CHECK(Look(map, base + size + 8) == kShadowRedZone);
  REQUIRE(map.MarkFreed(base, size + 412));
  CHECK(map.device_bytes() <= before + 4 * kChunkBytes);
  for (uint64_t i = 0; i < 20; i++) CHECK(Look(map, base + i * kChunkSpan) == kShadowFreed);
  REQUIRE(map.MarkUnknown(base, size + 412));
  for (uint64_t i = 0; i < 20; i++) CHECK(Look(map, base + i * kChunkSpan) == kShadowUnknown);
}

TEST_CASE("marking part of a region that was whole keeps the rest of it") {
  FakeDevice device;
  ShadowMap map(device);
  REQUIRE(map.Create());
  constexpr uint64_t kChunkSpan = 1ull << kDirectoryShift;
  const uint64_t base = kBase / kChunkSpan * kChunkSpan;
  REQUIRE(map.MarkValid(base, 2 * kChunkSpan, 2 * kChunkSpan));
  REQUIRE(map.MarkUnknown(base + 4096, 4096));
  CHECK(Look(map, base + 4088) == 0);
  CHECK(Look(map, base + 4096) == kShadowUnknown);
  CHECK(Look(map, base + 8192) == 0);
  CHECK(Look(map, base + kChunkSpan + 4096) == 0);
}

TEST_CASE("freeing a large buffer in stream order leaves it valid until the stream gets there") {
  FakeDevice device;
  ShadowMap map(device);
  REQUIRE(map.Create());
  constexpr uint64_t kChunkSpan = 1ull << kDirectoryShift;
  const uint64_t base = kBase / kChunkSpan * kChunkSpan;
  REQUIRE(map.MarkValid(base, 3 * kChunkSpan, 3 * kChunkSpan));
  REQUIRE(map.MarkFreedInStream(base, 3 * kChunkSpan, nullptr));
  CHECK(device.unfinished == 0);
  for (uint64_t i = 0; i < 3; i++) CHECK(Look(map, base + i * kChunkSpan) == 0);
  device.RunStream();
  for (uint64_t i = 0; i < 3; i++) CHECK(Look(map, base + i * kChunkSpan) == kShadowFreed);
}

TEST_CASE("freed, then unknown again") {
  FakeDevice device;
  ShadowMap map(device);
  REQUIRE(map.Create());
  REQUIRE(map.MarkValid(kBase, 100, 512));
  REQUIRE(map.MarkFreed(kBase, 512));
  CHECK(Look(map, kBase) == kShadowFreed);
  CHECK(Look(map, kBase + 511) == kShadowFreed);
  REQUIRE(map.MarkUnknown(kBase, 512));
  CHECK(Look(map, kBase + 100) == kShadowUnknown);
}

TEST_CASE("a stream-ordered free changes shadow memory only when the stream gets there") {
  FakeDevice device;
  ShadowMap map(device);
  REQUIRE(map.Create());
  REQUIRE(map.MarkValid(kBase, 100, 512));
  int stream = 0;
  REQUIRE(map.MarkFreedInStream(kBase, 512, &stream));
  CHECK(device.last_stream == &stream);
  CHECK(Look(map, kBase) == 0);
  device.RunStream();
  CHECK(Look(map, kBase) == kShadowFreed);
}

TEST_CASE("marking unknown makes no chunk") {
  FakeDevice device;
  ShadowMap map(device);
  REQUIRE(map.Create());
  const size_t blocks = device.blocks.size();
  REQUIRE(map.MarkUnknown(kBase, 1ull << 36));
  CHECK(device.blocks.size() == blocks);
}

TEST_CASE("without memory for shadow nothing is marked and nothing leaks") {
  FakeDevice device;
  device.allocations_left = 2;
  ShadowMap map(device);
  CHECK_FALSE(map.Create());
  CHECK(map.directory() == 0);
  CHECK(device.blocks.empty());
  CHECK_FALSE(map.MarkValid(kBase, 100, 512));

  device.allocations_left = 3;
  REQUIRE(map.Create());
  CHECK_FALSE(map.MarkValid(kBase, 100, 512));
  CHECK(Look(map, kBase) == kShadowUnknown);
}

TEST_CASE("an address that no GPU has cannot be marked") {
  FakeDevice device;
  ShadowMap map(device);
  REQUIRE(map.Create());
  CHECK_FALSE(map.MarkValid(1ull << 47, 8, 8));
}

TEST_CASE("destroying returns all memory") {
  FakeDevice device;
  ShadowMap map(device);
  REQUIRE(map.Create());
  REQUIRE(map.MarkValid(kBase, 100, 512));
  CHECK(map.device_bytes() > 3 * kChunkBytes);
  map.Destroy();
  CHECK(device.blocks.empty());
  CHECK(map.directory() == 0);
}

TEST_CASE("shadow_map: a prepared region's shadow bytes can be written at their address") {
  FakeDevice device;
  ShadowMap map(device);
  REQUIRE(map.Create());
  const uint64_t address = 3ull << kDirectoryShift;
  CHECK(map.ByteAddress(address >> kShadowGranuleShift) == 0);
  REQUIRE(map.MarkValid(address, 2ull << kDirectoryShift, 2ull << kDirectoryShift));
  REQUIRE(map.Prepare(address + 64, (1ull << kDirectoryShift) + 64));
  CHECK(device.unfinished == 0);
  const uint64_t granule = (address + 4096) >> kShadowGranuleShift;
  CHECK(Look(map, address + 4096) == 0);  // what was known stays
  *reinterpret_cast<uint8_t*>(map.ByteAddress(granule)) = kShadowPool;
  CHECK(Look(map, address + 4096) == kShadowPool);
  CHECK(Look(map, address + (1ull << kDirectoryShift)) == 0);
}

}  // namespace
}  // namespace ops_debug::shadow
