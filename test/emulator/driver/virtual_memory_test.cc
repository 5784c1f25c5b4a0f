// Physical memory, reserved addresses and what joins them.
#include <sys/wait.h>
#include <unistd.h>

#include <vector>

#include "test/emulator/driver/driver_fixture.h"

using namespace ops_debug::emulator::test;  // NOLINT(google-build-using-namespace): test helpers

namespace {

CUmemAllocationProp OnDevice0() {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  return properties;
}

size_t Granularity() {
  const CUmemAllocationProp properties = OnDevice0();
  size_t bytes = 0;
  REQUIRE(cuMemGetAllocationGranularity(&bytes, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM) ==
          CUDA_SUCCESS);
  return bytes;
}

CUmemGenericAllocationHandle Create(size_t bytes, CUmemAllocationProp properties = OnDevice0()) {
  CUmemGenericAllocationHandle handle = 0;
  REQUIRE(cuMemCreate(&handle, bytes, &properties, 0) == CUDA_SUCCESS);
  return handle;
}

CUdeviceptr Reserve(size_t bytes) {
  CUdeviceptr address = 0;
  REQUIRE(cuMemAddressReserve(&address, bytes, 0, 0, 0) == CUDA_SUCCESS);
  return address;
}

CUresult Open(CUdeviceptr address, size_t bytes) {
  CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  return cuMemSetAccess(address, bytes, &access, 1);
}

CUresult StoreAt(const Module& module, CUdeviceptr values, long long index) {  // NOLINT
  void* parameters[] = {&values, &index};
  const CUresult status = Launch(module.Function("store"), 1, 1, parameters);
  return status != CUDA_SUCCESS ? status : cuCtxSynchronize();
}

}  // namespace

TEST_CASE("mapped memory works once access is set") {
  Context context;
  Module module;
  const size_t bytes = Granularity();
  const CUmemGenericAllocationHandle handle = Create(bytes);
  const CUdeviceptr address = Reserve(bytes);
  CHECK(address % bytes == 0);
  CHECK(cuMemMap(address, bytes, 0, handle, 0) == CUDA_SUCCESS);
  CHECK(cuMemRelease(handle) == CUDA_SUCCESS);  // the mapping keeps the memory
  CHECK(Open(address, bytes) == CUDA_SUCCESS);
  CHECK(StoreAt(module, address, 3) == CUDA_SUCCESS);
  int out[4] = {};
  CHECK(cuMemcpyDtoH(out, address, sizeof(out)) == CUDA_SUCCESS);
  CHECK(out[3] == 7);
  CHECK(cuMemUnmap(address, bytes) == CUDA_SUCCESS);
  CHECK(cuMemcpyDtoH(out, address, sizeof(out)) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemAddressFree(address, bytes) == CUDA_SUCCESS);
}

TEST_CASE("a kernel cannot touch reserved or mapped memory without access") {
  for (bool mapped : {false, true}) {
    Context context;
    Module module;
    const size_t bytes = Granularity();
    const CUdeviceptr address = Reserve(bytes);
    if (mapped) {
      REQUIRE(cuMemMap(address, bytes, 0, Create(bytes), 0) == CUDA_SUCCESS);
      unsigned long long flags = 9;  // NOLINT(google-runtime-int): ABI
      const CUmemLocation location{CU_MEM_LOCATION_TYPE_DEVICE, 0};
      CHECK(cuMemGetAccess(&flags, &location, address) == CUDA_SUCCESS);
      CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_NONE);
    }
    CHECK(StoreAt(module, address, 0) == CUDA_ERROR_ILLEGAL_ADDRESS);
  }
}

TEST_CASE("two mappings of one handle are one memory") {
  Context context;
  const size_t bytes = Granularity();
  const CUmemGenericAllocationHandle handle = Create(bytes);
  const CUdeviceptr first = Reserve(bytes), second = Reserve(bytes);
  REQUIRE(cuMemMap(first, bytes, 0, handle, 0) == CUDA_SUCCESS);
  REQUIRE(cuMemMap(second, bytes, 0, handle, 0) == CUDA_SUCCESS);
  REQUIRE(Open(first, bytes) == CUDA_SUCCESS);
  REQUIRE(Open(second, bytes) == CUDA_SUCCESS);
  CHECK(cuMemsetD32(first, 0x1234, 16) == CUDA_SUCCESS);
  int out = 0;
  CHECK(cuMemcpyDtoH(&out, second + 60, 4) == CUDA_SUCCESS);
  CHECK(out == 0x1234);
}

TEST_CASE("a range grows by mapping further handles behind it, and copies span them") {
  Context context;
  Module module;
  const size_t bytes = Granularity();
  const CUdeviceptr address = Reserve(4 * bytes);
  for (size_t i = 0; i < 2; ++i) {
    REQUIRE(cuMemMap(address + i * bytes, bytes, 0, Create(bytes), 0) == CUDA_SUCCESS);
  }
  CHECK(Open(address, 2 * bytes) == CUDA_SUCCESS);
  CHECK(Open(address, 3 * bytes) == CUDA_ERROR_INVALID_VALUE);
  CHECK(StoreAt(module, address, static_cast<long long>(bytes / 4)) == CUDA_SUCCESS);  // NOLINT
  CHECK(cuMemsetD8(address + bytes - 64, 1, 128) == CUDA_SUCCESS);
  CHECK(cuMemsetD8(address + 2 * bytes - 64, 1, 128) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemAddressFree(address, 4 * bytes) == CUDA_ERROR_INVALID_VALUE);  // still mapped
  CHECK(cuMemUnmap(address, 2 * bytes) == CUDA_SUCCESS);
  CHECK(cuMemAddressFree(address, 4 * bytes) == CUDA_SUCCESS);
}

TEST_CASE("wrong sizes, offsets and overlaps are refused") {
  Context context;
  const size_t bytes = Granularity();
  const CUmemAllocationProp properties = OnDevice0();
  CUmemGenericAllocationHandle handle = 0;
  CUdeviceptr address = 0;
  CHECK(cuMemCreate(&handle, bytes - 1, &properties, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemAddressReserve(&address, 4096, 0, 0, 0) == CUDA_ERROR_INVALID_VALUE);
  handle = Create(bytes);
  address = Reserve(bytes);
  CHECK(cuMemMap(address, 2 * bytes, 0, handle, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemMap(address, bytes, bytes, handle, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemMap(address, bytes, 0, handle, 0) == CUDA_SUCCESS);
  CHECK(cuMemMap(address, bytes, 0, handle, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemUnmap(address, bytes / 2) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("a handle is found by the address that it is mapped at") {
  Context context;
  const size_t bytes = Granularity();
  const CUmemGenericAllocationHandle handle = Create(bytes);
  const CUdeviceptr address = Reserve(bytes);
  REQUIRE(cuMemMap(address, bytes, 0, handle, 0) == CUDA_SUCCESS);
  CUmemGenericAllocationHandle same = 0;
  CHECK(cuMemRetainAllocationHandle(&same, reinterpret_cast<void*>(address + 100)) == CUDA_SUCCESS);
  CHECK(same == handle);
  CUmemAllocationProp properties{};
  CHECK(cuMemGetAllocationPropertiesFromHandle(&properties, same) == CUDA_SUCCESS);
  CHECK(properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE);
  CHECK(cuMemRelease(handle) == CUDA_SUCCESS);
  CHECK(cuMemRelease(handle) == CUDA_SUCCESS);  // the second reference
  CHECK(cuMemRelease(handle) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("exported memory is the same memory where it is imported") {
  Context context;
  const size_t bytes = Granularity();
  CUmemAllocationProp shared = OnDevice0();
  shared.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  const CUmemGenericAllocationHandle handle = Create(bytes, shared);
  int file = -1;
  REQUIRE(cuMemExportToShareableHandle(&file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                       0) == CUDA_SUCCESS);
  CHECK(cuMemExportToShareableHandle(&file, Create(bytes), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                     0) == CUDA_ERROR_INVALID_VALUE);  // not asked for at creation
  CUmemGenericAllocationHandle imported = 0;
  REQUIRE(cuMemImportFromShareableHandle(&imported,
                                         reinterpret_cast<void*>(static_cast<intptr_t>(file)),
                                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) == CUDA_SUCCESS);
  close(file);
  const CUdeviceptr first = Reserve(bytes), second = Reserve(bytes);
  REQUIRE(cuMemMap(first, bytes, 0, handle, 0) == CUDA_SUCCESS);
  REQUIRE(cuMemMap(second, bytes, 0, imported, 0) == CUDA_SUCCESS);
  REQUIRE(Open(first, bytes) == CUDA_SUCCESS);
  REQUIRE(Open(second, bytes) == CUDA_SUCCESS);
  REQUIRE(cuMemsetD32(first, 77, 4) == CUDA_SUCCESS);
  int out = 0;
  CHECK(cuMemcpyDtoH(&out, second, 4) == CUDA_SUCCESS);
  CHECK(out == 77);
}

TEST_CASE("created memory counts as used until its last reference is gone") {
  Context context;
  const size_t bytes = 4 * Granularity();
  size_t before = 0, during = 0, after = 0, total = 0;
  REQUIRE(cuMemGetInfo(&before, &total) == CUDA_SUCCESS);
  const CUmemGenericAllocationHandle handle = Create(bytes);
  REQUIRE(cuMemGetInfo(&during, &total) == CUDA_SUCCESS);
  CHECK(before - during == bytes);
  CHECK(cuMemRelease(handle) == CUDA_SUCCESS);
  REQUIRE(cuMemGetInfo(&after, &total) == CUDA_SUCCESS);
  CHECK(after == before);
}
