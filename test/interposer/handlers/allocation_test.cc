// What a program sees of its allocations under the tool, and what shadow memory and the book say
// about them.
#include <catch2/catch.hpp>
#include <cstring>

#include "interposer/allocation_tracking.h"
#include "interposer/context_state.h"
#include "shadow/abi/device_abi.h"
#include "test/interposer/handlers/fake_driver.h"
#include "test/interposer/handlers/session.h"

namespace ops_debug::interposer::handlers_test {
namespace {

using fake::TheDriver;

uint8_t Shadow(CUdeviceptr address) {
  const uint64_t granule = address >> shadow::kShadowGranuleShift;
  const auto* directory =
      reinterpret_cast<const uint64_t*>(CurrentContextState()->shadow.directory());
  const uint64_t chunk =
      directory[granule >> (shadow::kDirectoryShift - shadow::kShadowGranuleShift)];
  return reinterpret_cast<const uint8_t*>(chunk)[granule & (shadow::kChunkBytes - 1)];
}

TEST_CASE("an allocation gets a red zone behind it and keeps its alignment") {
  StartTest();
  CUdeviceptr p = 0;
  REQUIRE(cuMemAlloc_v2(&p, 4001) == CUDA_SUCCESS);
  CHECK(p % 256 == 0);
  CHECK(TheDriver().allocations.at(p) == 4352);
  CHECK(Shadow(p) == 0);
  CHECK(Shadow(p + 3999) == 0);
  CHECK(Shadow(p + 4000) == 1);
  CHECK(Shadow(p + 4008) == shadow::kShadowRedZone);
  CHECK(Shadow(p + 4351) == shadow::kShadowRedZone);
  const auto entry = Book().FindStart(p);
  REQUIRE(entry.has_value());
  CHECK(entry->size_bytes == 4001);
  CHECK(std::string(entry->api) == "cuMemAlloc");
  CHECK_FALSE(entry->allocation_stack.empty());
  REQUIRE(cuMemFree_v2(p) == CUDA_SUCCESS);
}

TEST_CASE("a size of 0 is refused as without the tool") {
  StartTest();
  CUdeviceptr p = 0;
  CHECK(cuMemAlloc_v2(&p, 0) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("a freed block is marked, kept from reuse, and given back when the budget is used up") {
  StartTest();
  CUdeviceptr p = 0, q = 0;
  REQUIRE(cuMemAlloc_v2(&p, 60000) == CUDA_SUCCESS);
  REQUIRE(cuMemAlloc_v2(&q, 60000) == CUDA_SUCCESS);
  const int waits = TheDriver().context_synchronizations;
  REQUIRE(cuMemFree_v2(p) == CUDA_SUCCESS);
  CHECK(TheDriver().context_synchronizations ==
        waits + 1);  // the driver's cuMemFree waits, so must ours
  CHECK(Shadow(p) == shadow::kShadowFreed);
  CHECK(TheDriver().allocations.count(p) == 1);
  CHECK(Book().FindStart(p)->freed);
  REQUIRE(cuMemFree_v2(q) == CUDA_SUCCESS);  // 2 * 60416 > 100000
  CHECK(TheDriver().allocations.count(p) == 0);
  CHECK(Shadow(p) == shadow::kShadowUnknown);
  CHECK_FALSE(Book().FindStart(p).has_value());
  CHECK(TheDriver().allocations.count(q) == 1);
}

TEST_CASE("freeing twice, or the middle of a block, is the error that it always was") {
  StartTest();
  CUdeviceptr p = 0;
  REQUIRE(cuMemAlloc_v2(&p, 1000) == CUDA_SUCCESS);
  CHECK(cuMemFree_v2(p + 256) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemFree_v2(p) == CUDA_SUCCESS);
  CHECK(cuMemFree_v2(p) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemFreeAsync(p, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemFree_v2(0) == CUDA_SUCCESS);
  CHECK(cuMemFree_v2(12345 * 256) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("when memory is short the quarantine goes first, then the red zone") {
  StartTest();
  CUdeviceptr p = 0, q = 0, r = 0;
  REQUIRE(cuMemAlloc_v2(&p, 50000) == CUDA_SUCCESS);
  REQUIRE(cuMemFree_v2(p) == CUDA_SUCCESS);
  TheDriver().free_bytes = 10000;
  REQUIRE(cuMemAlloc_v2(&q, 40000) == CUDA_SUCCESS);  // only with what was in quarantine
  CHECK(TheDriver().allocations.count(p) == (q == p ? 1 : 0));
  CHECK(TheDriver().allocations.at(q) == 40448);
  TheDriver().free_bytes = 5000;
  REQUIRE(cuMemAlloc_v2(&r, 5000) == CUDA_SUCCESS);  // exactly fits, without a red zone
  CHECK(TheDriver().allocations.at(r) == 5000);
  CHECK(Shadow(r + 4999) == 0);
  CHECK(cuMemAlloc_v2(&p, 5001) == CUDA_ERROR_OUT_OF_MEMORY);
  TheDriver().free_bytes = 1u << 30;
  cuMemFree_v2(q);
  cuMemFree_v2(r);
}

TEST_CASE("pitch padding is valid, the red zone follows the last row") {
  StartTest();
  CUdeviceptr p = 0;
  size_t pitch = 0;
  REQUIRE(cuMemAllocPitch_v2(&p, &pitch, 1000, 3, 4) == CUDA_SUCCESS);
  CHECK(pitch == 1024);
  CHECK(Shadow(p + 1016) == 0);
  CHECK(Shadow(p + 3 * 1024 - 1) == 0);
  CHECK(Shadow(p + 3 * 1024) == shadow::kShadowRedZone);
  CHECK(std::string(Book().FindStart(p)->api) == "cuMemAllocPitch");
  CHECK(cuMemFree_v2(p) == CUDA_SUCCESS);
}

TEST_CASE("range queries answer as without the tool") {
  StartTest();
  CUdeviceptr p = 0, base = 0;
  size_t size = 0;
  REQUIRE(cuMemAlloc_v2(&p, 1000) == CUDA_SUCCESS);
  REQUIRE(cuMemGetAddressRange_v2(&base, &size, p + 10) == CUDA_SUCCESS);
  CHECK(base == p);
  CHECK(size == 1000);
  size = 0;
  REQUIRE(cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, p) == CUDA_SUCCESS);
  CHECK(size == 1000);
  CHECK(cuMemGetAddressRange_v2(&base, &size, p + 1000) == CUDA_ERROR_NOT_FOUND);
  REQUIRE(cuMemFree_v2(p) == CUDA_SUCCESS);
  CHECK(cuMemGetAddressRange_v2(&base, &size, p) == CUDA_ERROR_NOT_FOUND);
  CHECK(cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, p) ==
        CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("a stream-ordered free marks the block when the stream gets there") {
  StartTest();
  CUstream stream = nullptr;
  cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
  CUdeviceptr p = 0;
  REQUIRE(cuMemAllocAsync(&p, 4000, stream) == CUDA_SUCCESS);
  CHECK(Shadow(p) == 0);
  const int waits = TheDriver().context_synchronizations;
  REQUIRE(cuMemFreeAsync(p, stream) == CUDA_SUCCESS);
  CHECK(TheDriver().context_synchronizations == waits);
  CHECK(Shadow(p) == 0);  // kernels launched before may still use it
  CHECK(Book().FindStart(p)->freed);
  cuStreamSynchronize(stream);
  CHECK(Shadow(p) == shadow::kShadowFreed);
  CHECK(cuMemFreeAsync(p, stream) == CUDA_ERROR_INVALID_VALUE);
  // Leaves quarantine on a stream of ours, behind the event.
  for (CUdeviceptr& big : std::array<CUdeviceptr, 2>{}) {
    REQUIRE(cuMemAllocAsync(&big, 90000, stream) == CUDA_SUCCESS);
    REQUIRE(cuMemFreeAsync(big, stream) == CUDA_SUCCESS);
  }
  cuCtxSynchronize();
  CHECK(TheDriver().allocations.count(p) == 0);
  CHECK(Shadow(p) == shadow::kShadowUnknown);
}

TEST_CASE("allocations and frees inside a stream capture go through untouched") {
  StartTest();
  CUstream stream = nullptr;
  cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
  CUgraph graph = nullptr;
  CUdeviceptr p = 0;
  REQUIRE(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
  REQUIRE(cuMemAllocAsync(&p, 4000, stream) == CUDA_SUCCESS);
  CHECK(TheDriver().allocations.at(p) == 4000);
  CHECK_FALSE(Book().FindStart(p).has_value());
  CHECK(cuMemFreeAsync(p, stream) == CUDA_SUCCESS);
  REQUIRE(cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
}

TEST_CASE("freeing while a stream is captured does not wait for the device") {
  StartTest();
  CUstream stream = nullptr;
  cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
  CUgraph graph = nullptr;
  CUdeviceptr p = 0;
  REQUIRE(cuMemAlloc_v2(&p, 4000) == CUDA_SUCCESS);
  REQUIRE(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
  const int waits = TheDriver().context_synchronizations;
  CHECK(cuMemFree_v2(p) == CUDA_SUCCESS);
  CHECK(TheDriver().context_synchronizations == waits);
  CHECK(TheDriver().allocations.count(p) == 0);
  CHECK(Shadow(p) == shadow::kShadowUnknown);
  REQUIRE(cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
}

TEST_CASE("pinned host memory is valid and leaves without quarantine") {
  StartTest();
  void* host = nullptr;
  REQUIRE(cuMemAllocHost_v2(&host, 5000) == CUDA_SUCCESS);
  const auto p = reinterpret_cast<CUdeviceptr>(host);
  CHECK(Shadow(p + 4999) == 0);
  CHECK(Book().FindStart(p)->size_bytes == 5000);
  REQUIRE(cuMemFreeHost(host) == CUDA_SUCCESS);
  CHECK(Shadow(p) == shadow::kShadowUnknown);
  CHECK_FALSE(Book().FindStart(p).has_value());
}

TEST_CASE("without a current context calls pass through") {
  StartTest();
  cuCtxSetCurrent(nullptr);
  CUdeviceptr p = 0;
  REQUIRE(cuMemAlloc_v2(&p, 1000) == CUDA_SUCCESS);
  CHECK(TheDriver().allocations.at(p) == 1000);
  CHECK(cuMemFree_v2(p) == CUDA_SUCCESS);
  CHECK(TheDriver().allocations.count(p) == 0);
}

}  // namespace
}  // namespace ops_debug::interposer::handlers_test
