// What graphs own beside their nodes: memory of allocation nodes, condition words and user objects.
//
// An allocation node's address is fixed when the node is made, as on a GPU; here its memory is set
// aside from then on, too. The node opens its pages to kernels and the free node closes them again,
// so a use outside of the allocation's life faults.
#include <algorithm>

#include "emulator/driver/checked_work.h"
#include "emulator/driver/graph.h"
#include "emulator/driver/memory.h"
#include "emulator/driver/work_scheduler.h"

namespace ops_debug::emulator {

GraphAllocation::GraphAllocation(Device& its_device, CUctx_st& its_context, uint64_t bytes)
    : device(its_device), context(&its_context) {
  if (bytes != 0) Adopt(device.memory.Allocate(bytes), bytes);
}

void GraphAllocation::Adopt(uint64_t its_address, uint64_t bytes) {
  if (its_address == 0) return;
  address = its_address;
  size_bytes = bytes;
  device.memory.SetAllocationAccessible(address, false);
  GraphBook& book = TheGraphBook();
  book.reserved_bytes += size_bytes;
  book.reserved_high_bytes = std::max(book.reserved_high_bytes, book.reserved_bytes);
}

GraphAllocation::~GraphAllocation() {
  if (address == 0) return;
  device.memory.Free(address);
  GraphBook& book = TheGraphBook();
  book.reserved_bytes -= size_bytes;
  book.allocations.erase(address);
}

void SetLive(GraphAllocation& allocation, bool live) {
  if (allocation.live == live) return;
  allocation.live = live;
  allocation.device.memory.SetAllocationAccessible(allocation.address, live);
  if (live) TellAllocated(allocation.address, allocation.size_bytes);
  GraphBook& book = TheGraphBook();
  if (live) {
    book.used_bytes += allocation.size_bytes;
    book.used_high_bytes = std::max(book.used_high_bytes, book.used_bytes);
    if (const auto known = book.allocations.find(allocation.address);
        known != book.allocations.end()) {
      book.live_allocations[allocation.address] = known->second.lock();
    }
  } else {
    book.used_bytes -= allocation.size_bytes;
    book.live_allocations.erase(allocation.address);
  }
}

namespace {

class LifeWork : public StreamWork {
 public:
  LifeWork(std::shared_ptr<GraphAllocation> allocation, bool live)
      : allocation_(std::move(allocation)), live_(live) {}

  CUresult Perform(Device& device) override {
    const std::lock_guard<std::recursive_mutex> lock(device.driver.mutex);
    SetLive(*allocation_, live_);
    return CUDA_SUCCESS;
  }

 private:
  std::shared_ptr<GraphAllocation> allocation_;
  bool live_;
};

}  // namespace

std::shared_ptr<StreamWork> AllocateWork(std::shared_ptr<GraphAllocation> allocation) {
  return std::make_shared<LifeWork>(std::move(allocation), true);
}

std::shared_ptr<StreamWork> FreeWork(std::shared_ptr<GraphAllocation> allocation) {
  return std::make_shared<LifeWork>(std::move(allocation), false);
}

std::shared_ptr<GraphAllocation> FindGraphMemory(uint64_t address) {
  const auto found = TheGraphBook().allocations.find(address);
  return found != TheGraphBook().allocations.end() ? found->second.lock() : nullptr;
}

bool FreeGraphMemory(uint64_t address) {
  const std::shared_ptr<GraphAllocation> allocation = FindGraphMemory(address);
  if (allocation == nullptr || !allocation->live) return false;
  SetLive(*allocation, false);
  return true;
}

bool IsGraphMemory(uint64_t address) {
  if (!Initialised()) return false;
  const std::lock_guard<std::recursive_mutex> lock(TheDriver().mutex);
  return FindGraphMemory(address) != nullptr;
}

// ---- Conditions

Condition::Condition(Device& its_device, unsigned value, bool assign)
    : device(its_device), default_value(value), assign_default(assign) {
  address = device.memory.Allocate(sizeof(uint64_t));
  if (address != 0) *reinterpret_cast<uint32_t*>(address) = value;
}

Condition::~Condition() {
  if (address == 0) return;
  TheGraphBook().conditions.erase(address);
  device.memory.Free(address);
}

// ---- User objects

CUresult ReleaseUserObject(CUuserObject handle, unsigned count) {
  CUuserObject_st* object = TheGraphBook().user_objects.Find(handle);
  if (object == nullptr || count == 0 || count > object->references)
    return CUDA_ERROR_INVALID_VALUE;
  object->references -= count;
  if (object->references != 0) return CUDA_SUCCESS;
  const CUhostFn destroy = object->destroy;
  void* const pointer = object->pointer;
  TheGraphBook().user_objects.Remove(object);
  // On the thread that is kept for host functions: it may not call CUDA, and may take its time.
  TheDriver().scheduler->host_thread().Queue([destroy, pointer] { destroy(pointer); });
  return CUDA_SUCCESS;
}

std::shared_ptr<UserObjectReferences> CopyReferences(const UserObjectReferences& references) {
  auto copy = std::make_shared<UserObjectReferences>();
  copy->counts = references.counts;
  for (const auto& [object, count] : copy->counts) object->references += count;
  return copy;
}

UserObjectReferences::~UserObjectReferences() {
  for (const auto& [object, count] : counts) ReleaseUserObject(object, count);
}

}  // namespace ops_debug::emulator

using namespace ops_debug::emulator;  // NOLINT(google-build-using-namespace): entry points only

extern "C" {

CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle* handle, CUgraph graph_handle,
                                        CUcontext context_handle, unsigned int default_value,
                                        unsigned int flags) {
  return InContext([&](Device& device, CUctx_st& current) -> CUresult {
    CUctx_st* context =
        context_handle != nullptr ? device.driver.contexts.Find(context_handle) : &current;
    CUgraph_st* graph = TheGraphBook().graphs.Find(graph_handle);
    if (handle == nullptr || graph == nullptr || context == nullptr ||
        (flags & ~unsigned(CU_GRAPH_COND_ASSIGN_DEFAULT)) != 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    auto condition = std::make_shared<Condition>(*context->device, default_value,
                                                 (flags & CU_GRAPH_COND_ASSIGN_DEFAULT) != 0);
    if (condition->address == 0) return CUDA_ERROR_OUT_OF_MEMORY;
    *handle = condition->address;
    TheGraphBook().conditions[condition->address] = condition;
    graph->conditions.push_back(std::move(condition));
    return CUDA_SUCCESS;
  });
}

// Memory that graphs hold belongs to their nodes: nothing is kept beside it.
CUresult cuDeviceGraphMemTrim(CUdevice ordinal) {
  return OnDevice(ordinal, [](Device&) { return CUDA_SUCCESS; });
}

CUresult cuDeviceGetGraphMemAttribute(CUdevice ordinal, CUgraphMem_attribute attribute,
                                      void* value) {
  return OnDevice(ordinal, [&](Device&) -> CUresult {
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const GraphBook& book = TheGraphBook();
    auto& result = *static_cast<cuuint64_t*>(value);
    switch (attribute) {
      case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
        result = book.used_bytes;
        return CUDA_SUCCESS;
      case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
        result = book.used_high_bytes;
        return CUDA_SUCCESS;
      case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
        result = book.reserved_bytes;
        return CUDA_SUCCESS;
      case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
        result = book.reserved_high_bytes;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
  });
}

// The marks can only be reset.
CUresult cuDeviceSetGraphMemAttribute(CUdevice ordinal, CUgraphMem_attribute attribute,
                                      void* value) {
  return OnDevice(ordinal, [&](Device&) -> CUresult {
    if (value == nullptr || *static_cast<const cuuint64_t*>(value) != 0)
      return CUDA_ERROR_INVALID_VALUE;
    GraphBook& book = TheGraphBook();
    switch (attribute) {
      case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
        book.used_high_bytes = book.used_bytes;
        return CUDA_SUCCESS;
      case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
        book.reserved_high_bytes = book.reserved_bytes;
        return CUDA_SUCCESS;
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
  });
}

CUresult cuUserObjectCreate(CUuserObject* result, void* pointer, CUhostFn destroy,
                            unsigned int references, unsigned int flags) {
  return OnDevice([&](Device&) -> CUresult {
    if (result == nullptr || destroy == nullptr || references == 0 ||
        flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    auto object = std::make_unique<CUuserObject_st>();
    *object = {.destroy = destroy, .pointer = pointer, .references = references};
    *result = TheGraphBook().user_objects.Add(std::move(object));
    return CUDA_SUCCESS;
  });
}

CUresult cuUserObjectRetain(CUuserObject handle, unsigned int count) {
  return OnDevice([&](Device&) -> CUresult {
    CUuserObject_st* object = TheGraphBook().user_objects.Find(handle);
    if (object == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
    object->references += count;
    return CUDA_SUCCESS;
  });
}

CUresult cuUserObjectRelease(CUuserObject handle, unsigned int count) {
  return OnDevice([&](Device&) { return ReleaseUserObject(handle, count); });
}

CUresult cuGraphRetainUserObject(CUgraph graph_handle, CUuserObject handle, unsigned int count,
                                 unsigned int flags) {
  return OnDevice([&](Device&) -> CUresult {
    CUgraph_st* graph = TheGraphBook().graphs.Find(graph_handle);
    CUuserObject_st* object = TheGraphBook().user_objects.Find(handle);
    if (graph == nullptr || object == nullptr || count == 0 ||
        (flags & ~unsigned(CU_GRAPH_USER_OBJECT_MOVE)) != 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (flags == 0) object->references += count;  // else the caller's references change hands
    graph->user_objects->counts[object] += count;
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphReleaseUserObject(CUgraph graph_handle, CUuserObject handle, unsigned int count) {
  return OnDevice([&](Device&) -> CUresult {
    CUgraph_st* graph = TheGraphBook().graphs.Find(graph_handle);
    if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
    auto& counts = graph->user_objects->counts;
    const auto held = counts.find(TheGraphBook().user_objects.Find(handle));
    if (held == counts.end() || count == 0 || count > held->second) return CUDA_ERROR_INVALID_VALUE;
    held->second -= count;
    if (held->second == 0) counts.erase(held);
    return ReleaseUserObject(handle, count);
  });
}

}  // extern "C"
