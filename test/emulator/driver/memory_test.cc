// Allocations, copies, memsets and pointers.
#include <cstring>
#include <numeric>
#include <vector>

#include "test/emulator/driver/driver_fixture.h"

using namespace ops_debug::emulator::test;  // NOLINT(google-build-using-namespace): test helpers

TEST_CASE("a copy to the device and back gives the same bytes") {
  Context context;
  std::vector<int> in(1000), out(1000);
  std::iota(in.begin(), in.end(), 5);
  const CUdeviceptr address = Allocate(4000);
  CHECK(address % 256 == 0);
  CHECK(cuMemcpyHtoD(address, in.data(), 4000) == CUDA_SUCCESS);
  CHECK(cuMemcpyDtoH(out.data(), address, 4000) == CUDA_SUCCESS);
  CHECK(in == out);
  CHECK(cuMemFree(address) == CUDA_SUCCESS);
}

TEST_CASE("copies outside an allocation are refused") {
  Context context;
  const CUdeviceptr address = Allocate(4000);
  std::vector<char> host(8192);
  CHECK(cuMemcpyHtoD(address, host.data(), 4001) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemcpyHtoD(address + 3999, host.data(), 1) == CUDA_SUCCESS);
  CHECK(cuMemcpyHtoD(address + 4000, host.data(), 1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemcpyDtoH(host.data(), 64, 16) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemFree(address) == CUDA_SUCCESS);
  CHECK(cuMemcpyDtoH(host.data(), address, 16) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("freeing what is not allocated is refused") {
  Context context;
  const CUdeviceptr address = Allocate(4000);
  CHECK(cuMemFree(address + 256) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemFree(address) == CUDA_SUCCESS);
  CHECK(cuMemFree(address) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemFree(0) == CUDA_SUCCESS);
}

TEST_CASE("an allocation larger than the device fails") {
  Context context;
  size_t free_bytes = 0, total_bytes = 0;
  REQUIRE(cuMemGetInfo(&free_bytes, &total_bytes) == CUDA_SUCCESS);
  CHECK(free_bytes <= total_bytes);
  CUdeviceptr address = 0;
  CHECK(cuMemAlloc(&address, total_bytes + 1) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(cuMemAlloc(&address, 0) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("memsets fill lines and rows and keep the rest") {
  Context context;
  const CUdeviceptr address = Allocate(64);
  std::vector<unsigned char> out(64);
  CHECK(cuMemsetD8(address, 1, 64) == CUDA_SUCCESS);
  CHECK(cuMemsetD32(address, 0x02020202, 4) == CUDA_SUCCESS);
  CHECK(cuMemsetD2D8(address + 32, 8, 3, 2, 4) == CUDA_SUCCESS);
  CHECK(cuMemcpyDtoH(out.data(), address, 64) == CUDA_SUCCESS);
  for (size_t i = 0; i < 64; ++i) {
    const int expected = i < 16 ? 2 : i >= 32 && i % 8 < 2 ? 3 : 1;
    CHECK(int(out[i]) == expected);
  }
  CHECK(cuMemsetD32(address + 2, 0, 1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemsetD8(address, 0, 65) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("a pitched copy moves rows and leaves the padding") {
  Context context;
  CUdeviceptr address = 0;
  size_t pitch = 0;
  REQUIRE(cuMemAllocPitch(&address, &pitch, 12, 3, 4) == CUDA_SUCCESS);
  CHECK(pitch >= 12);
  REQUIRE(cuMemsetD8(address, 9, pitch * 3) == CUDA_SUCCESS);
  const char rows[3][12] = {"first row..", "second row.", "third row.."};
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = rows;
  copy.srcPitch = 12;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = address;
  copy.dstPitch = pitch;
  copy.WidthInBytes = 12;
  copy.Height = 3;
  CHECK(cuMemcpy2D(&copy) == CUDA_SUCCESS);
  std::vector<char> out(pitch * 3);
  CHECK(cuMemcpyDtoH(out.data(), address, out.size()) == CUDA_SUCCESS);
  CHECK(std::string(out.data() + pitch) == "second row.");
  CHECK(out[12] == 9);
  copy.Height = 4;
  CHECK(cuMemcpy2D(&copy) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("pinned, managed and registered memory answer as what they are") {
  Context context;
  void* pinned = nullptr;
  REQUIRE(cuMemHostAlloc(&pinned, 4096, CU_MEMHOSTALLOC_DEVICEMAP) == CUDA_SUCCESS);
  unsigned type = 0, managed = 0;
  CHECK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CUdeviceptr(pinned)) ==
        CUDA_SUCCESS);
  CHECK(type == CU_MEMORYTYPE_HOST);
  CUdeviceptr device_pointer = 0;
  CHECK(cuMemHostGetDevicePointer(&device_pointer, pinned, 0) == CUDA_SUCCESS);
  CHECK(device_pointer == CUdeviceptr(pinned));
  CHECK(cuMemFree(device_pointer) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemFreeHost(pinned) == CUDA_SUCCESS);

  CUdeviceptr shared = 0;
  REQUIRE(cuMemAllocManaged(&shared, 4096, CU_MEM_ATTACH_GLOBAL) == CUDA_SUCCESS);
  *reinterpret_cast<int*>(shared) = 1;  // the host may write it
  CHECK(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, shared) == CUDA_SUCCESS);
  CHECK(managed == 1);

  std::vector<int> host(1024, 3);
  REQUIRE(cuMemHostRegister(host.data(), 4096, CU_MEMHOSTREGISTER_DEVICEMAP) == CUDA_SUCCESS);
  CHECK(cuMemHostRegister(host.data() + 8, 64, 0) == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  Module module;
  int count = 1024, amount = 4;
  CUdeviceptr values = CUdeviceptr(host.data());
  void* parameters[] = {&values, &count, &amount};
  CHECK(Launch(module.Function("add"), 4, 256, parameters) == CUDA_SUCCESS);
  CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
  CHECK(host[1023] == 7);
  CHECK(cuMemHostUnregister(host.data()) == CUDA_SUCCESS);
  CHECK(cuMemHostUnregister(host.data()) == CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

TEST_CASE("a pointer of the host's own is unknown to single and plural queries") {
  Context context;
  int local = 0;
  unsigned type = 77;
  const CUdeviceptr pointer = CUdeviceptr(&local);
  CHECK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer) ==
        CUDA_ERROR_INVALID_VALUE);
  CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE};
  void* values[] = {&type};
  CHECK(cuPointerGetAttributes(1, attributes, values, pointer) == CUDA_SUCCESS);
  CHECK(type == 0);
}

TEST_CASE("an address range is the whole allocation") {
  Context context;
  const CUdeviceptr address = Allocate(5000);
  CUdeviceptr base = 0;
  size_t bytes = 0;
  CHECK(cuMemGetAddressRange(&base, &bytes, address + 4999) == CUDA_SUCCESS);
  CHECK(base == address);
  CHECK(bytes == 5000);
}

TEST_CASE("memory freed in stream order stays with the pool until a synchronisation") {
  Context context;
  CUmemoryPool pool = nullptr;
  REQUIRE(cuDeviceGetDefaultMemPool(&pool, 0) == CUDA_SUCCESS);
  cuuint64_t used = 0, reserved = 0;
  const auto look = [&] {
    CHECK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used) == CUDA_SUCCESS);
    CHECK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved) ==
          CUDA_SUCCESS);
  };
  CUdeviceptr first = 0, second = 0;
  REQUIRE(cuMemAllocAsync(&first, 4000, nullptr) == CUDA_SUCCESS);
  look();
  CHECK(used == 4000);
  CHECK(cuMemFreeAsync(first, nullptr) == CUDA_SUCCESS);
  look();
  CHECK(used == 0);
  CHECK(reserved == 4000);
  REQUIRE(cuMemAllocAsync(&second, 4000, nullptr) == CUDA_SUCCESS);
  CHECK(second == first);
  CHECK(cuMemFreeAsync(second, nullptr) == CUDA_SUCCESS);
  CHECK(cuMemFreeAsync(second, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
  look();
  CHECK(reserved == 0);
}

TEST_CASE("a pool keeps memory up to its release threshold") {
  Context context;
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemoryPool pool = nullptr;
  REQUIRE(cuMemPoolCreate(&pool, &properties) == CUDA_SUCCESS);
  cuuint64_t threshold = 8000, reserved = 0;
  CHECK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold) == CUDA_SUCCESS);
  CUdeviceptr address = 0;
  REQUIRE(cuMemAllocFromPoolAsync(&address, 4000, pool, nullptr) == CUDA_SUCCESS);
  CHECK(cuMemFreeAsync(address, nullptr) == CUDA_SUCCESS);
  CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
  CHECK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved) ==
        CUDA_SUCCESS);
  CHECK(reserved == 4000);
  CHECK(cuMemPoolTrimTo(pool, 0) == CUDA_SUCCESS);
  CHECK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved) ==
        CUDA_SUCCESS);
  CHECK(reserved == 0);
  CHECK(cuMemPoolDestroy(pool) == CUDA_SUCCESS);
}
