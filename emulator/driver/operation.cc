// What operations do, and how they get into their stream: the implicit synchronisation of the
// legacy default stream (CUDA Driver API, "Stream synchronization behavior") becomes points that
// an operation comes after.
#include "emulator/driver/operation.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <exception>

#include "emulator/driver/capture.h"
#include "emulator/driver/checked_work.h"
#include "emulator/driver/kernel_run.h"
#include "emulator/driver/memory.h"
#include "emulator/driver/work_scheduler.h"

namespace ops_debug::emulator {
namespace {

CUresult Do(Device&, std::monostate&) { return CUDA_SUCCESS; }

CUresult Do(Device& device, KernelOperation& kernel) { return RunKernel(device, kernel); }

CUresult Do(Device&, CopyOperation& copy) {
  for (uint64_t z = 0; z < copy.depth; ++z) {
    for (uint64_t y = 0; y < copy.height; ++y) {
      const uint64_t to = copy.to + z * copy.to_slice_bytes + y * copy.to_pitch_bytes;
      const uint64_t from = copy.from + z * copy.from_slice_bytes + y * copy.from_pitch_bytes;
      std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from),
                   copy.width_bytes);
    }
  }
  return CUDA_SUCCESS;
}

template <class Element>
void FillRows(const FillOperation& fill) {
  for (uint64_t y = 0; y < fill.height; ++y) {
    std::fill_n(reinterpret_cast<Element*>(fill.address + y * fill.pitch_bytes), fill.width,
                Element(fill.value));
  }
}

CUresult Do(Device&, FillOperation& fill) {
  switch (fill.element_bytes) {
    case 1:
      FillRows<uint8_t>(fill);
      break;
    case 2:
      FillRows<uint16_t>(fill);
      break;
    default:
      FillRows<uint32_t>(fill);
      break;
  }
  return CUDA_SUCCESS;
}

// On the thread of host functions; waits for it. Streams' own host functions do not come here: the
// scheduler lets other work go on beside them.
CUresult Do(Device& device, HostOperation& host) {
  std::mutex mutex;
  std::condition_variable returned;
  bool has_returned = false;
  device.driver.scheduler->host_thread().Queue([&] {
    CallHost(host, CUDA_SUCCESS);
    const std::lock_guard<std::mutex> lock(mutex);
    has_returned = true;
    returned.notify_one();
  });
  std::unique_lock<std::mutex> lock(mutex);
  returned.wait(lock, [&] { return has_returned; });
  return CUDA_SUCCESS;
}

CUresult Do(Device&, EventRecordOperation& record) {
  if (record.mark != nullptr) record.mark->time = std::chrono::steady_clock::now();
  return CUDA_SUCCESS;
}

CUresult Do(Device&, EventWaitOperation&) { return CUDA_SUCCESS; }

CUresult Do(Device&, AllocateOperation&) { return CUDA_SUCCESS; }

CUresult Do(Device& device, FreeOperation& free) {
  const std::lock_guard<std::recursive_mutex> lock(device.driver.mutex);
  FinishStreamFree(device.driver, free.address, free.id);
  return CUDA_SUCCESS;
}

CUresult Do(Device&, MemoryWaitOperation&) { return CUDA_SUCCESS; }  // the scheduler has waited

CUresult Do(Device&, MemoryWriteOperation& write) {
  if (write.bytes == 8) {
    __atomic_store_n(reinterpret_cast<uint64_t*>(write.address), write.value, __ATOMIC_RELEASE);
  } else {
    __atomic_store_n(reinterpret_cast<uint32_t*>(write.address), uint32_t(write.value),
                     __ATOMIC_RELEASE);
  }
  return CUDA_SUCCESS;
}

CUresult Do(Device& device, std::shared_ptr<StreamWork>& work) { return work->Perform(device); }

// In a context that a kernel has broken, only what keeps the books is still done.
bool IsDoneInBrokenContext(const Operation& operation) {
  return std::holds_alternative<EventRecordOperation>(operation.work) ||
         std::holds_alternative<FreeOperation>(operation.work);
}

// Copies a pageable source now, row behind row.
void Stage(CopyOperation& copy) {
  auto rows = std::make_shared<std::vector<std::byte>>(copy.width_bytes * copy.height * copy.depth);
  for (uint64_t z = 0; z < copy.depth; ++z) {
    for (uint64_t y = 0; y < copy.height; ++y) {
      std::memcpy(rows->data() + (z * copy.height + y) * copy.width_bytes,
                  reinterpret_cast<const void*>(copy.from + z * copy.from_slice_bytes +
                                                y * copy.from_pitch_bytes),
                  copy.width_bytes);
    }
  }
  copy.from = reinterpret_cast<uint64_t>(rows->data());
  copy.from_pitch_bytes = copy.width_bytes;
  copy.from_slice_bytes = copy.width_bytes * copy.height;
  copy.staged = std::move(rows);
}

}  // namespace

CUresult Perform(Device& device, Operation& operation) {
  const bool is_broken =
      operation.context != nullptr && operation.context->sticky_error != CUDA_SUCCESS;
  if (is_broken && !IsDoneInBrokenContext(operation)) return CUDA_SUCCESS;
  Checks* const checks = ActiveChecks();
  if (checks != nullptr) BeginChecked(*checks, device, operation);
  const CUresult status = std::visit([&](auto& work) { return Do(device, work); }, operation.work);
  if (checks != nullptr) EndChecked(*checks, operation);
  return status;
}

void CallHost(const HostOperation& host, CUresult status) {
  if (host.callback != nullptr) {
    host.callback(host.stream, status, host.user_data);
  } else if (status == CUDA_SUCCESS) {  // host functions are not called in a broken context
    host.function(host.user_data);
  }
}

std::vector<StreamPoint> LatestPoints(CUctx_st& context, const CUstream_st& stream) {
  WorkScheduler& scheduler = *context.device->driver.scheduler;
  std::vector<StreamPoint> points;
  if (&stream == &stream.context->legacy_stream) points = scheduler.BlockingWork(*stream.context);
  points.push_back(scheduler.Latest(stream.order));
  return points;
}

CUresult Submit(Device& device, CUctx_st& context, CUstream handle, Operation operation,
                StreamPoint* point) {
  CUstream_st* stream = FindStream(device.driver, context, handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  CUctx_st& owner = *stream->context;
  if (owner.sticky_error != CUDA_SUCCESS) return owner.sticky_error;
  const std::optional<CUresult> captured =
      CaptureOperation(*owner.device, owner, *stream, operation);
  if (captured) return *captured;

  WorkScheduler& scheduler = *device.driver.scheduler;
  if (stream == &owner.legacy_stream) {
    for (StreamPoint& before : scheduler.BlockingWork(owner)) {
      operation.after.push_back(std::move(before));
    }
  } else if ((stream->flags & CU_STREAM_NON_BLOCKING) == 0) {
    operation.after.push_back(scheduler.Latest(owner.legacy_stream.order));
  }
  if (auto* wait = std::get_if<EventWaitOperation>(&operation.work)) {
    if (wait->event->mark != nullptr) operation.after.push_back(wait->event->mark->point);
  } else if (auto* record = std::get_if<EventRecordOperation>(&operation.work)) {
    if (record->mark == nullptr) record->mark = std::make_shared<EventMark>();
    record->mark->context = &owner;
    record->event->mark = record->mark;
  } else if (auto* copy = std::get_if<CopyOperation>(&operation.work)) {
    if (copy->stages_source) Stage(*copy);
  }
  const StreamPoint behind = Enqueue(owner, stream->order, std::move(operation));
  if (point != nullptr) *point = behind;
  return CUDA_SUCCESS;
}

std::shared_ptr<StreamOrder> NewOrder(CUctx_st& context) {
  return std::make_shared<StreamOrder>(&context, /*is_blocking=*/false);
}

StreamPoint Enqueue(CUctx_st& context, const std::shared_ptr<StreamOrder>& order,
                    Operation operation) {
  operation.context = &context;
  if (operation.order == nullptr && ActiveChecks() != nullptr) operation.order = OrderOfNextWork();
  return context.device->driver.scheduler->Add(order, std::move(operation));
}

void WaitForPoints(const std::vector<StreamPoint>& points) { TheDriver().scheduler->Wait(points); }

void WaitForContext(const CUctx_st& context) { TheDriver().scheduler->WaitForContext(context); }

void WaitForDevice(const Device& device) { device.driver.scheduler->WaitForDevice(device); }

bool ArePointsReached(const std::vector<StreamPoint>& points) {
  return TheDriver().scheduler->AreReached(points);
}

}  // namespace ops_debug::emulator
