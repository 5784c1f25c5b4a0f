// Streams, events and host callbacks.
#include <thread>

#include "test/emulator/driver/driver_fixture.h"

using namespace ops_debug::emulator::test;  // NOLINT(google-build-using-namespace): test helpers

TEST_CASE("a stream keeps its flags, priority and identity") {
  Context context;
  CUstream first = nullptr, second = nullptr;
  REQUIRE(cuStreamCreateWithPriority(&first, CU_STREAM_NON_BLOCKING, -1) == CUDA_SUCCESS);
  REQUIRE(cuStreamCreate(&second, CU_STREAM_DEFAULT) == CUDA_SUCCESS);
  unsigned flags = 0;
  int priority = 0;
  CHECK(cuStreamGetFlags(first, &flags) == CUDA_SUCCESS);
  CHECK(flags == CU_STREAM_NON_BLOCKING);
  CHECK(cuStreamGetPriority(first, &priority) == CUDA_SUCCESS);
  CHECK(priority == -1);
  unsigned long long a = 0, b = 0;  // NOLINT(google-runtime-int): ABI
  CHECK(cuStreamGetId(first, &a) == CUDA_SUCCESS);
  CHECK(cuStreamGetId(second, &b) == CUDA_SUCCESS);
  CHECK(a != b);
  CUcontext owner = nullptr;
  CHECK(cuStreamGetCtx(first, &owner) == CUDA_SUCCESS);
  CHECK(owner == context.handle());
  CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  CHECK(cuStreamIsCapturing(first, &capturing) == CUDA_SUCCESS);
  CHECK(capturing == CU_STREAM_CAPTURE_STATUS_NONE);
  CHECK(cuStreamDestroy(first) == CUDA_SUCCESS);
  CHECK(cuStreamDestroy(first) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(cuStreamSynchronize(first) == CUDA_ERROR_INVALID_HANDLE);
}

TEST_CASE("events measure the time between them") {
  Context context;
  CUevent start = nullptr, end = nullptr;
  REQUIRE(cuEventCreate(&start, CU_EVENT_DEFAULT) == CUDA_SUCCESS);
  REQUIRE(cuEventCreate(&end, CU_EVENT_DEFAULT) == CUDA_SUCCESS);
  float milliseconds = -1;
  CHECK(cuEventElapsedTime(&milliseconds, start, end) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(cuEventRecord(start, nullptr) == CUDA_SUCCESS);
  std::this_thread::sleep_for(std::chrono::milliseconds(3));
  CHECK(cuEventRecord(end, nullptr) == CUDA_SUCCESS);
  CHECK(cuEventSynchronize(end) == CUDA_SUCCESS);
  CHECK(cuEventElapsedTime(&milliseconds, start, end) == CUDA_SUCCESS);
  CHECK(milliseconds >= 3.f);
  CUevent untimed = nullptr;
  REQUIRE(cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
  CHECK(cuEventRecord(untimed, nullptr) == CUDA_SUCCESS);
  CHECK(cuEventElapsedTime(&milliseconds, start, untimed) == CUDA_ERROR_INVALID_HANDLE);
}

TEST_CASE("a stream waits for an event of another stream") {
  Context context;
  CUstream producer = nullptr, consumer = nullptr;
  CUevent ready = nullptr;
  REQUIRE(cuStreamCreate(&producer, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  REQUIRE(cuStreamCreate(&consumer, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  REQUIRE(cuEventCreate(&ready, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
  const CUdeviceptr address = Allocate(4);
  int value = 0;
  CHECK(cuMemsetD32Async(address, 11, 1, producer) == CUDA_SUCCESS);
  CHECK(cuEventRecord(ready, producer) == CUDA_SUCCESS);
  CHECK(cuStreamWaitEvent(consumer, ready, 0) == CUDA_SUCCESS);
  CHECK(cuMemcpyDtoHAsync(&value, address, 4, consumer) == CUDA_SUCCESS);
  CHECK(cuStreamSynchronize(consumer) == CUDA_SUCCESS);
  CHECK(value == 11);
}

TEST_CASE("kernels and events of one context are refused in a stream of another") {
  Context first;
  CUstream stream = nullptr;
  REQUIRE(cuStreamCreate(&stream, CU_STREAM_DEFAULT) == CUDA_SUCCESS);
  Context second;
  Module module;
  CUevent event = nullptr;
  REQUIRE(cuEventCreate(&event, CU_EVENT_DEFAULT) == CUDA_SUCCESS);
  CHECK(cuLaunchKernel(module.Function("bounded"), 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr) ==
        CUDA_ERROR_INVALID_HANDLE);
  CHECK(cuEventRecord(event, stream) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(cuStreamSynchronize(stream) == CUDA_SUCCESS);
}

TEST_CASE("attributes of a stream are kept and copied") {
  Context context;
  CUstream from = nullptr, to = nullptr;
  REQUIRE(cuStreamCreate(&from, CU_STREAM_DEFAULT) == CUDA_SUCCESS);
  REQUIRE(cuStreamCreate(&to, CU_STREAM_DEFAULT) == CUDA_SUCCESS);
  CUstreamAttrValue value{};
  value.syncPolicy = CU_SYNC_POLICY_YIELD;
  CHECK(cuStreamSetAttribute(from, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value) ==
        CUDA_SUCCESS);
  CHECK(cuStreamCopyAttributes(to, from) == CUDA_SUCCESS);
  value = {};
  CHECK(cuStreamGetAttribute(to, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value) ==
        CUDA_SUCCESS);
  CHECK(value.syncPolicy == CU_SYNC_POLICY_YIELD);
}
