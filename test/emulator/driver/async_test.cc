// Work runs beside the host, in the order that streams, events and the default streams give it; a
// gate in a stream makes that visible.
#include <atomic>
#include <chrono>
#include <thread>

#include "test/emulator/driver/driver_fixture.h"
#include "test/emulator/driver/gate.h"

using namespace ops_debug::emulator::test;  // NOLINT(google-build-using-namespace): test helpers

namespace {

CUstream NewStream(unsigned flags = CU_STREAM_NON_BLOCKING) {
  CUstream stream = nullptr;
  REQUIRE(cuStreamCreate(&stream, flags) == CUDA_SUCCESS);
  return stream;
}

// A word of pinned memory.
class Pinned {
 public:
  Pinned() {
    void* memory = nullptr;
    REQUIRE(cuMemHostAlloc(&memory, 64, 0) == CUDA_SUCCESS);
    word_ = new (memory) std::atomic<unsigned>(0);
  }
  std::atomic<unsigned>& operator*() const { return *word_; }
  void* get() const { return word_; }
  CUdeviceptr address() const { return reinterpret_cast<CUdeviceptr>(word_); }

 private:
  std::atomic<unsigned>* word_ = nullptr;
};

// Long enough for a worker to do what it may, beyond its patience with what is held.
void GiveItTime() { std::this_thread::sleep_for(std::chrono::milliseconds(60)); }

unsigned Read(CUdeviceptr address) {
  unsigned value = 0;
  CHECK(cuMemcpyDtoH(&value, address, 4) == CUDA_SUCCESS);
  return value;
}

}  // namespace

TEST_CASE("a host that does not synchronise reads stale data") {
  Context context;
  Gate gate;
  const CUstream stream = NewStream();
  const CUdeviceptr device = Allocate(4);
  const Pinned pinned;
  CHECK(cuMemsetD32Async(device, 7, 1, stream) == CUDA_SUCCESS);
  gate.Hold(stream);
  CHECK(cuMemcpyDtoHAsync(pinned.get(), device, 4, stream) == CUDA_SUCCESS);
  GiveItTime();
  CHECK(*pinned == 0);
  CHECK(cuStreamQuery(stream) == CUDA_ERROR_NOT_READY);
  gate.Open();
  CHECK(cuStreamSynchronize(stream) == CUDA_SUCCESS);
  CHECK(*pinned == 7);
  CHECK(cuStreamQuery(stream) == CUDA_SUCCESS);
}

TEST_CASE("an asynchronous copy takes pageable memory as it was, pinned memory as it is") {
  Context context;
  Gate gate;
  const CUstream stream = NewStream();
  const CUdeviceptr from_pageable = Allocate(4), from_pinned = Allocate(4);
  unsigned pageable = 1;
  const Pinned pinned;
  *pinned = 1;
  gate.Hold(stream);
  CHECK(cuMemcpyHtoDAsync(from_pageable, &pageable, 4, stream) == CUDA_SUCCESS);
  CHECK(cuMemcpyHtoDAsync(from_pinned, pinned.get(), 4, stream) == CUDA_SUCCESS);
  pageable = 2;
  *pinned = 2;
  gate.Open();
  CHECK(cuStreamSynchronize(stream) == CUDA_SUCCESS);
  CHECK(Read(from_pageable) == 1);
  CHECK(Read(from_pinned) == 2);
}

TEST_CASE("an asynchronous copy to pageable memory returns when it is done") {
  Context context;
  const CUstream stream = NewStream();
  const CUdeviceptr device = Allocate(4);
  unsigned value = 0;
  CHECK(cuMemsetD32Async(device, 9, 1, stream) == CUDA_SUCCESS);
  CHECK(cuMemcpyDtoHAsync(&value, device, 4, stream) == CUDA_SUCCESS);
  CHECK(value == 9);
}

TEST_CASE("a synchronous copy within the device does not wait, one to pinned memory does") {
  Context context;
  Gate gate;
  const CUdeviceptr from = Allocate(4), to = Allocate(4);
  const Pinned pinned;
  gate.Hold(nullptr);
  CHECK(cuMemsetD32(from, 3, 1) == CUDA_SUCCESS);
  CHECK(cuMemcpyDtoD(to, from, 4) == CUDA_SUCCESS);
  CHECK_FALSE(gate.is_open());
  std::thread opener([&] {
    GiveItTime();
    gate.Open();
  });
  CHECK(cuMemcpyDtoH(pinned.get(), to, 4) == CUDA_SUCCESS);
  CHECK(gate.is_open());
  CHECK(*pinned == 3);
  opener.join();
}

TEST_CASE("the legacy default stream waits for blocking streams, not for the others") {
  Context context;
  Gate gate;
  const CUstream blocking = NewStream(CU_STREAM_DEFAULT), other = NewStream();
  const CUdeviceptr device = Allocate(4);
  gate.Hold(other);
  CHECK(cuMemsetD32Async(device, 1, 1, nullptr) == CUDA_SUCCESS);
  CHECK(cuStreamSynchronize(nullptr) == CUDA_SUCCESS);  // would hang if it waited for `other`
  gate.Open();
  Gate second;
  second.Hold(blocking);
  CHECK(cuMemsetD32Async(device, 2, 1, blocking) == CUDA_SUCCESS);
  CHECK(cuMemsetD32Async(device, 3, 1, nullptr) == CUDA_SUCCESS);
  GiveItTime();
  CHECK(cuStreamQuery(nullptr) == CUDA_ERROR_NOT_READY);
  second.Open();
  CHECK(cuStreamSynchronize(nullptr) == CUDA_SUCCESS);
  CHECK(Read(device) == 3);
}

TEST_CASE("blocking streams wait for the legacy default stream") {
  Context context;
  Gate gate;
  const CUstream blocking = NewStream(CU_STREAM_DEFAULT), other = NewStream();
  const CUdeviceptr device = Allocate(8);
  gate.Hold(nullptr);
  CHECK(cuMemsetD32Async(device, 1, 1, blocking) == CUDA_SUCCESS);
  CHECK(cuMemsetD32Async(device + 4, 1, 1, other) == CUDA_SUCCESS);
  CHECK(cuStreamSynchronize(other) == CUDA_SUCCESS);
  CHECK(cuStreamQuery(blocking) == CUDA_ERROR_NOT_READY);
  gate.Open();
  CHECK(cuStreamSynchronize(blocking) == CUDA_SUCCESS);
}

TEST_CASE("a stream waits for the recording that an event had when it was asked to") {
  Context context;
  Gate gate;
  const CUstream held = NewStream(), free_running = NewStream(), waiting = NewStream();
  CUevent event = nullptr;
  REQUIRE(cuEventCreate(&event, CU_EVENT_DEFAULT) == CUDA_SUCCESS);
  gate.Hold(held);
  CHECK(cuEventRecord(event, held) == CUDA_SUCCESS);
  CHECK(cuEventQuery(event) == CUDA_ERROR_NOT_READY);
  CHECK(cuStreamWaitEvent(waiting, event, 0) == CUDA_SUCCESS);
  CHECK(cuEventRecord(event, free_running) == CUDA_SUCCESS);
  CHECK(cuEventSynchronize(event) == CUDA_SUCCESS);
  CHECK(cuStreamQuery(waiting) == CUDA_ERROR_NOT_READY);
  gate.Open();
  CHECK(cuStreamSynchronize(waiting) == CUDA_SUCCESS);
}

TEST_CASE("waiting for an event that was never recorded does not hold a stream up") {
  Context context;
  const CUstream stream = NewStream();
  CUevent event = nullptr;
  REQUIRE(cuEventCreate(&event, CU_EVENT_DEFAULT) == CUDA_SUCCESS);
  CHECK(cuStreamWaitEvent(stream, event, 0) == CUDA_SUCCESS);
  CHECK(cuEventQuery(event) == CUDA_SUCCESS);
  CHECK(cuEventSynchronize(event) == CUDA_SUCCESS);
  CHECK(cuStreamSynchronize(stream) == CUDA_SUCCESS);
}

TEST_CASE("the time between events is not ready before both are reached") {
  Context context;
  Gate gate;
  const CUstream stream = NewStream();
  CUevent start = nullptr, end = nullptr;
  REQUIRE(cuEventCreate(&start, CU_EVENT_DEFAULT) == CUDA_SUCCESS);
  REQUIRE(cuEventCreate(&end, CU_EVENT_DEFAULT) == CUDA_SUCCESS);
  CHECK(cuEventRecord(start, stream) == CUDA_SUCCESS);
  gate.Hold(stream);
  CHECK(cuEventRecord(end, stream) == CUDA_SUCCESS);
  float milliseconds = 0;
  CHECK(cuEventElapsedTime(&milliseconds, start, end) == CUDA_ERROR_NOT_READY);
  GiveItTime();
  gate.Open();
  CHECK(cuEventSynchronize(end) == CUDA_SUCCESS);
  CHECK(cuEventElapsedTime(&milliseconds, start, end) == CUDA_SUCCESS);
  CHECK(milliseconds >= 50.f);
}

TEST_CASE("every thread has a default stream of its own if it asks for it") {
  Context context;
  Gate gate;
  const CUdeviceptr device = Allocate(4);
  gate.Hold(CU_STREAM_PER_THREAD);
  void* function = nullptr;
  CUdriverProcAddressQueryResult found;
  REQUIRE(cuGetProcAddress("cuStreamQuery", &function, 12000,
                           CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &found) == CUDA_SUCCESS);
  const auto query = reinterpret_cast<CUresult (*)(CUstream)>(function);
  CHECK(query(nullptr) == CUDA_ERROR_NOT_READY);
  std::thread([&] {
    CHECK(cuCtxSetCurrent(context.handle()) == CUDA_SUCCESS);
    CHECK(cuMemsetD32Async(device, 4, 1, CU_STREAM_PER_THREAD) == CUDA_SUCCESS);
    CHECK(cuStreamSynchronize(CU_STREAM_PER_THREAD) == CUDA_SUCCESS);
    CHECK(query(nullptr) == CUDA_SUCCESS);
  }).join();
  gate.Open();
  CHECK(cuStreamSynchronize(CU_STREAM_PER_THREAD) == CUDA_SUCCESS);
  CHECK(Read(device) == 4);
}

TEST_CASE("a stream waits for a value that the host or another stream writes") {
  Context context;
  const CUstream waiting = NewStream(), writing = NewStream();
  const CUdeviceptr device = Allocate(4);
  const Pinned flag;
  CHECK(cuStreamWaitValue32(waiting, flag.address(), 5, CU_STREAM_WAIT_VALUE_GEQ) == CUDA_SUCCESS);
  CHECK(cuMemsetD32Async(device, 1, 1, waiting) == CUDA_SUCCESS);
  GiveItTime();
  CHECK(cuStreamQuery(waiting) == CUDA_ERROR_NOT_READY);
  *flag = 5;
  CHECK(cuStreamSynchronize(waiting) == CUDA_SUCCESS);
  CUstreamBatchMemOpParams operations[2] = {};
  operations[0].writeValue = {
      .operation = CU_STREAM_MEM_OP_WRITE_VALUE_32, .address = flag.address() + 4, .value = 6};
  operations[1].writeValue = {
      .operation = CU_STREAM_MEM_OP_WRITE_VALUE_32, .address = flag.address(), .value = 8};
  CHECK(cuStreamWaitValue32(waiting, flag.address(), 8, CU_STREAM_WAIT_VALUE_EQ) == CUDA_SUCCESS);
  CHECK(cuStreamBatchMemOp(writing, 2, operations, 0) == CUDA_SUCCESS);
  CHECK(cuStreamSynchronize(waiting) == CUDA_SUCCESS);
  CHECK(*flag == 8);
}

TEST_CASE("host functions run in stream order on a thread that may not call the driver") {
  Context context;
  const CUstream stream = NewStream();
  const Pinned pinned;
  struct Seen {
    const Pinned& pinned;
    unsigned value = 0;
    CUresult call = CUDA_SUCCESS, callback_status = CUDA_ERROR_UNKNOWN;
    std::thread::id thread;
  } seen{pinned};
  CHECK(cuMemsetD32Async(pinned.address(), 5, 1, stream) == CUDA_SUCCESS);
  CHECK(cuLaunchHostFunc(
            stream,
            [](void* data) {
              auto* s = static_cast<Seen*>(data);
              s->value = *s->pinned;
              s->call = cuCtxSynchronize();
              s->thread = std::this_thread::get_id();
            },
            &seen) == CUDA_SUCCESS);
  CHECK(cuStreamAddCallback(
            stream,
            [](CUstream, CUresult status, void* data) {
              static_cast<Seen*>(data)->callback_status = status;
            },
            &seen, 0) == CUDA_SUCCESS);
  CHECK(cuMemsetD32Async(pinned.address(), 6, 1, stream) == CUDA_SUCCESS);
  CHECK(cuStreamSynchronize(stream) == CUDA_SUCCESS);
  CHECK(seen.value == 5);
  CHECK(seen.call == CUDA_ERROR_NOT_PERMITTED);
  CHECK(seen.callback_status == CUDA_SUCCESS);
  CHECK(seen.thread != std::this_thread::get_id());
}

TEST_CASE("a fault shows at the next synchronisation and stays") {
  bool called = false;
  CUresult status = CUDA_SUCCESS;
  {
    Context context;
    const Module module;
    const CUstream stream = NewStream();
    CUdeviceptr values = Allocate(4);
    long long far = 1 << 20;  // NOLINT(google-runtime-int): the kernel's
    void* parameters[] = {&values, &far};
    Gate gate;
    gate.Hold(stream);
    CHECK(cuLaunchKernel(module.Function("store"), 1, 1, 1, 1, 1, 1, 0, stream, parameters,
                         nullptr) == CUDA_SUCCESS);
    CHECK(cuLaunchHostFunc(
              stream, [](void* flag) { *static_cast<bool*>(flag) = true; }, &called) ==
          CUDA_SUCCESS);
    CHECK(cuStreamAddCallback(
              stream,
              [](CUstream, CUresult result, void* out) { *static_cast<CUresult*>(out) = result; },
              &status, 0) == CUDA_SUCCESS);
    CHECK(cuMemsetD32Async(values, 1, 1, stream) == CUDA_SUCCESS);  // nothing has failed yet
    gate.Open();
    CHECK(cuStreamSynchronize(stream) == CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK(cuMemsetD32Async(values, 1, 1, stream) == CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK(cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS);
  }
  CHECK_FALSE(called);  // but callbacks are told
  CHECK(status == CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_CASE("work of a destroyed stream is still done") {
  Context context;
  Gate gate;
  const CUstream stream = NewStream();
  const CUdeviceptr device = Allocate(4);
  gate.Hold(stream);
  CHECK(cuMemsetD32Async(device, 8, 1, stream) == CUDA_SUCCESS);
  CHECK(cuStreamDestroy(stream) == CUDA_SUCCESS);
  gate.Open();
  CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
  CHECK(Read(device) == 8);
}

TEST_CASE("freeing memory waits for the device") {
  Context context;
  Gate gate;
  const CUstream stream = NewStream();
  const CUdeviceptr device = Allocate(4);
  gate.Hold(stream);
  CHECK(cuMemsetD32Async(device, 8, 1, stream) == CUDA_SUCCESS);
  std::thread opener([&] {
    GiveItTime();
    gate.Open();
  });
  CHECK(cuMemFree(device) == CUDA_SUCCESS);
  CHECK(gate.is_open());
  opener.join();
}

TEST_CASE("destroying a context finishes its work, and gives up what can never go on") {
  Gate gate;
  std::thread opener;
  Pinned* flag = nullptr;
  {
    const Context context;
    flag = new Pinned;
    CHECK(cuStreamWaitValue32(NewStream(), flag->address(), 1, CU_STREAM_WAIT_VALUE_EQ) ==
          CUDA_SUCCESS);
    gate.Hold(NewStream());
    opener = std::thread([&] {
      GiveItTime();
      gate.Open();
    });
  }
  CHECK(gate.is_open());
  opener.join();
  delete flag;
}

TEST_CASE("memory that a stream will free is the same stream's, not another's") {
  Context context;
  Gate gate;
  const CUstream stream = NewStream(), other = NewStream();
  CUdeviceptr first = 0, same = 0, different = 0;
  gate.Hold(stream);
  REQUIRE(cuMemAllocAsync(&first, 4096, stream) == CUDA_SUCCESS);
  CHECK(cuMemFreeAsync(first, stream) == CUDA_SUCCESS);
  CHECK(cuMemAllocAsync(&different, 4096, other) == CUDA_SUCCESS);
  CHECK(different != first);
  CHECK(cuMemAllocAsync(&same, 4096, stream) == CUDA_SUCCESS);
  CHECK(same == first);
  gate.Open();
  CHECK(cuMemsetD32Async(same, 3, 1, stream) == CUDA_SUCCESS);
  CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
  CHECK(Read(same) == 3);  // the earlier free did not take it away
  CHECK(cuMemFreeAsync(same, stream) == CUDA_SUCCESS);
  CHECK(cuMemFreeAsync(different, other) == CUDA_SUCCESS);
}

TEST_CASE("other streams go on beside a held one") {
  Context context;
  Gate gate;
  const CUstream held = NewStream(), other = NewStream();
  const CUdeviceptr device = Allocate(4);
  gate.Hold(held);
  CHECK(cuMemsetD32Async(device, 6, 1, other) == CUDA_SUCCESS);
  CHECK(cuStreamSynchronize(other) == CUDA_SUCCESS);
  CHECK_FALSE(gate.is_open());
  gate.Open();
}
