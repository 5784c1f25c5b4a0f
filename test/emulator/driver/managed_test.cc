// What programs say about managed memory and ask for again.
#include "test/emulator/driver/driver_fixture.h"

using namespace ops_debug::emulator::test;  // NOLINT(google-build-using-namespace): test helpers

namespace {

constexpr size_t kBytes = 8192;

int Ask(CUmem_range_attribute attribute, CUdeviceptr address, size_t bytes) {
  int value = -99;
  CHECK(cuMemRangeGetAttribute(&value, sizeof(value), attribute, address, bytes) == CUDA_SUCCESS);
  return value;
}

CUdeviceptr Managed() {
  CUdeviceptr address = 0;
  REQUIRE(cuMemAllocManaged(&address, kBytes, CU_MEM_ATTACH_GLOBAL) == CUDA_SUCCESS);
  return address;
}

const CUmemLocation kDevice0 = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
const CUmemLocation kHost = {CU_MEM_LOCATION_TYPE_HOST, 0};

}  // namespace

TEST_CASE("advice on a range is what asking for the range gives") {
  Context context;
  const CUdeviceptr address = Managed();
  CHECK(Ask(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, address, kBytes) == 0);
  CHECK(cuMemAdvise(address, 4096, CU_MEM_ADVISE_SET_READ_MOSTLY, kDevice0) == CUDA_SUCCESS);
  CHECK(Ask(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, address, 4096) == 1);
  CHECK(Ask(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, address + 4096, 4096) == 0);
  CHECK(Ask(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, address, kBytes) == 0);  // not all of it
  CHECK(Ask(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, address, kBytes) == CU_DEVICE_INVALID);
  CHECK(cuMemAdvise(address, kBytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, kHost) == CUDA_SUCCESS);
  CHECK(Ask(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, address, kBytes) == CU_DEVICE_CPU);
}

TEST_CASE("a prefetch is remembered and needs managed memory") {
  Context context;
  const CUdeviceptr address = Managed();
  CHECK(cuMemPrefetchAsync(address, kBytes, kDevice0, 0, nullptr) == CUDA_SUCCESS);
  CHECK(Ask(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, address, kBytes) == 0);
  CHECK(cuMemPrefetchAsync(Allocate(64), 64, kDevice0, 0, nullptr) == CUDA_ERROR_INVALID_VALUE);
  const CUmemLocation nowhere = {CU_MEM_LOCATION_TYPE_DEVICE, 9};
  CHECK(cuMemPrefetchAsync(address, kBytes, nowhere, 0, nullptr) == CUDA_ERROR_INVALID_DEVICE);
}

TEST_CASE("the devices that access a range are listed") {
  Context context;
  const CUdeviceptr address = Managed();
  CHECK(cuMemAdvise(address, kBytes, CU_MEM_ADVISE_SET_ACCESSED_BY, kDevice0) == CUDA_SUCCESS);
  CHECK(cuMemAdvise(address, kBytes, CU_MEM_ADVISE_SET_ACCESSED_BY, kHost) == CUDA_SUCCESS);
  int ordinals[3] = {};
  CHECK(cuMemRangeGetAttribute(ordinals, sizeof(ordinals), CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY,
                               address, kBytes) == CUDA_SUCCESS);
  CHECK(ordinals[0] == CU_DEVICE_CPU);
  CHECK(ordinals[1] == 0);
  CHECK(ordinals[2] == CU_DEVICE_INVALID);
}

TEST_CASE("a batch of prefetches goes to several places") {
  Context context;
  CUdeviceptr addresses[] = {Managed(), Managed(), Managed()};
  size_t sizes[] = {kBytes, kBytes, kBytes};
  CUmemLocation locations[] = {kDevice0, kHost};
  size_t first_of[] = {0, 2};
  CHECK(cuMemPrefetchBatchAsync(addresses, sizes, 3, locations, first_of, 2, 0, nullptr) ==
        CUDA_SUCCESS);
  CHECK(Ask(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, addresses[1], kBytes) == 0);
  CHECK(Ask(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, addresses[2], kBytes) == CU_DEVICE_CPU);
  CHECK(cuMemDiscardBatchAsync(addresses, sizes, 3, 0, nullptr) == CUDA_SUCCESS);
}
