// What the nodes of graphs do: made from parameters or from a captured operation, and described to
// queries.
#include <algorithm>
#include <cstring>
#include <variant>

#include "emulator/driver/capture.h"
#include "emulator/driver/function.h"
#include "emulator/driver/graph.h"
#include "emulator/driver/memory.h"
#include "emulator/driver/messages.h"

namespace ops_debug::emulator {

CUresult RecordOperations(const std::function<CUresult()>& call,
                          std::vector<Operation>* operations) {
  std::vector<Operation>* const outer = std::exchange(RecordingSink(), operations);
  const CUresult status = call();
  RecordingSink() = outer;
  return status;
}

namespace {

// Makes `context` current for a while.
class ContextScope {
 public:
  explicit ContextScope(CUctx_st* context) : pushed_(context != nullptr) {
    if (pushed_) pushed_ = ContextStack().Push(context);
  }
  ~ContextScope() {
    if (pushed_) ContextStack().Pop();
  }
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  bool pushed_;
};

CUresult MakeKernel(CUDA_KERNEL_NODE_PARAMS_v3& kernel, const AttributeList& attributes,
                    NodeContent* content) {
  CUctx_st* context = kernel.ctx;
  CUfunction handle = kernel.func;
  if (handle == nullptr) {
    handle = reinterpret_cast<CUfunction>(kernel.kern);
  } else if (const CUfunc_st* function = TheDriver().functions.Find(handle)) {
    context = function->module->context;
  }
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<CUlaunchAttribute> list;
  for (const auto& [id, value] : attributes) {
    CUlaunchAttribute attribute{};
    attribute.id = id;
    attribute.value = value;
    list.push_back(attribute);
  }
  CUlaunchConfig config{};
  config.gridDimX = kernel.gridDimX;
  config.gridDimY = kernel.gridDimY;
  config.gridDimZ = kernel.gridDimZ;
  config.blockDimX = kernel.blockDimX;
  config.blockDimY = kernel.blockDimY;
  config.blockDimZ = kernel.blockDimZ;
  config.sharedMemBytes = kernel.sharedMemBytes;
  config.attrs = list.data();
  config.numAttrs = unsigned(list.size());
  const ContextScope scope(context);
  const CUresult status = RecordOperations(
      [&] { return cuLaunchKernelEx(&config, handle, kernel.kernelParams, kernel.extra); },
      &content->operations);
  content->attributes = attributes;
  return status;
}

CUresult MakeFill(const CUDA_MEMSET_NODE_PARAMS_v2& fill, NodeContent* content) {
  const ContextScope scope(fill.ctx);
  const size_t pitch = fill.height == 1 ? fill.width * fill.elementSize : fill.pitch;
  const auto call = [&]() -> CUresult {
    switch (fill.elementSize) {
      case 1:
        return cuMemsetD2D8Async(fill.dst, pitch, static_cast<unsigned char>(fill.value),
                                 fill.width, fill.height, nullptr);
      case 2:
        return cuMemsetD2D16Async(fill.dst, pitch, static_cast<uint16_t>(fill.value), fill.width,
                                  fill.height, nullptr);
      case 4:
        return cuMemsetD2D32Async(fill.dst, pitch, fill.value, fill.width, fill.height, nullptr);
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
  };
  return RecordOperations(call, &content->operations);
}

CUresult MakeChild(CUDA_CHILD_GRAPH_NODE_PARAMS& child, CUgraph parent, NodeContent* content) {
  CUgraph_st* graph = TheGraphBook().graphs.Find(child.graph);
  if (graph == nullptr || graph == parent || graph->owner != nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  const bool moves = child.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
  if (!graph->conditions.empty()) return CUDA_ERROR_NOT_SUPPORTED;
  for (const auto& node : graph->nodes) {
    if (!moves && node->content.allocation != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  }
  content->children = {moves ? graph : CloneGraph(graph)};
  return CUDA_SUCCESS;
}

CUresult MakeEvent(CUevent handle, bool records, NodeContent* content) {
  CUevent_st* event = TheDriver().events.Find(handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Operation operation;
  if (records) {
    operation.work = EventRecordOperation{.event = event};
  } else {
    operation.work = EventWaitOperation{.event = event};
  }
  content->operations.push_back(std::move(operation));
  return CUDA_SUCCESS;
}

CUresult MakeAllocation(CUDA_MEM_ALLOC_NODE_PARAMS_v2& alloc, NodeContent* content) {
  if (alloc.bytesize == 0 || alloc.poolProps.allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
      alloc.poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
      (alloc.accessDescCount != 0 && alloc.accessDescs == nullptr)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Device* device = TheDriver().FindDevice(alloc.poolProps.location.id);
  CUctx_st* context = CurrentContext();
  if (device == nullptr || context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (alloc.poolProps.handleTypes != CU_MEM_HANDLE_TYPE_NONE) return CUDA_ERROR_NOT_SUPPORTED;
  auto allocation = std::make_shared<GraphAllocation>(*device, *context, alloc.bytesize);
  if (allocation->address == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  TheGraphBook().allocations[allocation->address] = allocation;
  alloc.dptr = allocation->address;
  content->access.assign(alloc.accessDescs, alloc.accessDescs + alloc.accessDescCount);
  content->allocation = allocation;
  Operation operation;
  operation.work = AllocateWork(std::move(allocation));
  content->operations.push_back(std::move(operation));
  return CUDA_SUCCESS;
}

CUresult MakeFree(CUdeviceptr address, CUgraph graph, NodeContent* content) {
  const std::shared_ptr<GraphAllocation> allocation = FindGraphMemory(address);
  if (allocation == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (const auto& node : graph->nodes) {
    if (node->content.params.type == CU_GRAPH_NODE_TYPE_MEM_FREE &&
        node->content.allocation == allocation) {
      return CUDA_ERROR_INVALID_VALUE;  // freed twice
    }
  }
  content->allocation = allocation;
  Operation operation;
  operation.work = FreeWork(allocation);
  content->operations.push_back(std::move(operation));
  return CUDA_SUCCESS;
}

CUresult MakeConditional(CUDA_CONDITIONAL_NODE_PARAMS& conditional, CUgraph graph,
                         NodeContent* content) {
  const auto known = TheGraphBook().conditions.find(conditional.handle);
  const std::shared_ptr<Condition> condition =
      known != TheGraphBook().conditions.end() ? known->second.lock() : nullptr;
  const bool size_fits =
      conditional.type == CU_GRAPH_COND_TYPE_WHILE ? conditional.size == 1
      : conditional.type == CU_GRAPH_COND_TYPE_IF
          ? conditional.size == 1 || conditional.size == 2
          : conditional.type == CU_GRAPH_COND_TYPE_SWITCH && conditional.size >= 1;
  if (condition == nullptr || !size_fits ||
      std::find(graph->conditions.begin(), graph->conditions.end(), condition) ==
          graph->conditions.end()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  content->condition = condition;
  for (unsigned i = 0; i < conditional.size; ++i) {
    CUgraph body = NewGraph();
    body->conditions = graph->conditions;  // nested conditionals use the graph's handles
    content->children.push_back(body);
  }
  // The array moves with the content.
  conditional.phGraph_out = content->children.data();
  return CUDA_SUCCESS;
}

CUresult MakeMemoryOperations(const CUDA_BATCH_MEM_OP_NODE_PARAMS_v2& batch, NodeContent* content) {
  if (batch.count != 0 && batch.paramArray == nullptr) return CUDA_ERROR_INVALID_VALUE;
  content->memory_operations.assign(batch.paramArray, batch.paramArray + batch.count);
  const ContextScope scope(batch.ctx);
  return RecordOperations(
      [&] {
        return cuStreamBatchMemOp_v2(nullptr, batch.count, content->memory_operations.data(),
                                     batch.flags);
      },
      &content->operations);
}

}  // namespace

CUresult MakeContent(CUgraph graph, CUgraphNodeParams* params, const AttributeList& attributes,
                     NodeContent* content) {
  CUresult status = CUDA_SUCCESS;
  switch (params->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      status = MakeKernel(params->kernel, attributes, content);
      break;
    case CU_GRAPH_NODE_TYPE_MEMCPY: {
      const ContextScope scope(params->memcpy.copyCtx);
      status =
          RecordOperations([&] { return cuMemcpy3DAsync_v2(&params->memcpy.copyParams, nullptr); },
                           &content->operations);
      break;
    }
    case CU_GRAPH_NODE_TYPE_MEMSET:
      status = MakeFill(params->memset, content);
      break;
    case CU_GRAPH_NODE_TYPE_HOST: {
      if (params->host.fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
      Operation operation;
      operation.work =
          HostOperation{.function = params->host.fn, .user_data = params->host.userData};
      content->operations.push_back(std::move(operation));
      break;
    }
    case CU_GRAPH_NODE_TYPE_GRAPH:
      status = MakeChild(params->graph, graph, content);
      break;
    case CU_GRAPH_NODE_TYPE_EMPTY:
      break;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      status = MakeEvent(params->eventWait.event, /*records=*/false, content);
      break;
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      status = MakeEvent(params->eventRecord.event, /*records=*/true, content);
      break;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      status = MakeAllocation(params->alloc, content);
      break;
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      status = MakeFree(params->free.dptr, graph, content);
      break;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      status = MakeMemoryOperations(params->memOp, content);
      break;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      status = MakeConditional(params->conditional, graph, content);
      break;
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
      Say("graph nodes of external semaphores are not supported by this device");
      return CUDA_ERROR_NOT_SUPPORTED;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  content->params = *params;
  return status;
}

namespace {

CUmemorytype TypeOf(uint64_t address) {
  const auto found = TheDriver().FindAllocation(address, 1);
  if (found != TheDriver().allocations.end()) {
    const AllocationKind kind = found->second.kind;
    const bool is_host =
        kind == AllocationKind::kPinnedHost || kind == AllocationKind::kRegisteredHost;
    return is_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
  }
  for (const auto& device : TheDriver().devices) {
    if (device->memory.Find(address, nullptr, nullptr)) return CU_MEMORYTYPE_DEVICE;
  }
  return CU_MEMORYTYPE_HOST;
}

// How a box of plain memory reads as the driver's parameters.
CUDA_MEMCPY3D ParametersOf(const CopyOperation& copy) {
  CUDA_MEMCPY3D params{};
  params.srcMemoryType = TypeOf(copy.from);
  params.dstMemoryType = TypeOf(copy.to);
  params.srcHost = reinterpret_cast<const void*>(copy.from);
  params.srcDevice = copy.from;
  params.dstHost = reinterpret_cast<void*>(copy.to);
  params.dstDevice = copy.to;
  const auto rows = [&](uint64_t pitch, uint64_t slice) {
    return pitch != 0 && slice != 0 ? slice / pitch : copy.height;
  };
  params.srcPitch = copy.from_pitch_bytes != 0 ? copy.from_pitch_bytes : copy.width_bytes;
  params.dstPitch = copy.to_pitch_bytes != 0 ? copy.to_pitch_bytes : copy.width_bytes;
  params.srcHeight = rows(params.srcPitch, copy.from_slice_bytes);
  params.dstHeight = rows(params.dstPitch, copy.to_slice_bytes);
  params.WidthInBytes = copy.width_bytes;
  params.Height = copy.height;
  params.Depth = copy.depth;
  return params;
}

struct Describer {
  NodeContent& content;
  CUgraphNodeParams& params = content.params;

  void operator()(const std::monostate&) const { params.type = CU_GRAPH_NODE_TYPE_EMPTY; }
  void operator()(const KernelOperation& kernel) const {
    params.type = CU_GRAPH_NODE_TYPE_KERNEL;
    params.kernel.func = kernel.function;
    params.kernel.gridDimX = kernel.grid.x;
    params.kernel.gridDimY = kernel.grid.y;
    params.kernel.gridDimZ = kernel.grid.z;
    params.kernel.blockDimX = kernel.block.x;
    params.kernel.blockDimY = kernel.block.y;
    params.kernel.blockDimZ = kernel.block.z;
    params.kernel.sharedMemBytes = kernel.dynamic_shared_bytes;
    params.kernel.ctx = kernel.function->module->context;
    CUlaunchAttributeValue value{};
    if (kernel.cooperative) {
      value.cooperative = 1;
      content.attributes[CU_LAUNCH_ATTRIBUTE_COOPERATIVE] = value;
    }
    if (kernel.explicit_cluster) {
      value = {};
      value.clusterDim = {kernel.cluster.x, kernel.cluster.y, kernel.cluster.z};
      content.attributes[CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION] = value;
    }
  }
  void operator()(const CopyOperation& copy) const {
    params.type = CU_GRAPH_NODE_TYPE_MEMCPY;
    params.memcpy.copyParams = ParametersOf(copy);
  }
  void operator()(const FillOperation& fill) const {
    params.type = CU_GRAPH_NODE_TYPE_MEMSET;
    params.memset.dst = fill.address;
    params.memset.pitch = fill.pitch_bytes;
    params.memset.value = fill.value;
    params.memset.elementSize = fill.element_bytes;
    params.memset.width = fill.width;
    params.memset.height = fill.height;
  }
  void operator()(const HostOperation& host) const {
    params.type = CU_GRAPH_NODE_TYPE_HOST;
    params.host.fn = host.function;
    params.host.userData = host.user_data;
  }
  void operator()(const EventRecordOperation& record) const {
    params.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD;
    params.eventRecord.event = record.event;
  }
  void operator()(const EventWaitOperation& wait) const {
    params.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT;
    params.eventWait.event = wait.event;
  }
  void operator()(const AllocateOperation&) const { params.type = CU_GRAPH_NODE_TYPE_EMPTY; }
  void operator()(const FreeOperation&) const { params.type = CU_GRAPH_NODE_TYPE_EMPTY; }
  void operator()(const MemoryWaitOperation& wait) const {
    CUstreamBatchMemOpParams entry{};
    entry.operation =
        wait.bytes == 8 ? CU_STREAM_MEM_OP_WAIT_VALUE_64 : CU_STREAM_MEM_OP_WAIT_VALUE_32;
    entry.waitValue.address = wait.address;
    entry.waitValue.value64 = wait.value;
    entry.waitValue.flags = wait.flags;
    AddEntry(entry);
  }
  void operator()(const MemoryWriteOperation& write) const {
    CUstreamBatchMemOpParams entry{};
    entry.operation =
        write.bytes == 8 ? CU_STREAM_MEM_OP_WRITE_VALUE_64 : CU_STREAM_MEM_OP_WRITE_VALUE_32;
    entry.writeValue.address = write.address;
    entry.writeValue.value64 = write.value;
    AddEntry(entry);
  }
  void operator()(const std::shared_ptr<StreamWork>&) const {
    params.type = CU_GRAPH_NODE_TYPE_EMPTY;
  }

 private:
  void AddEntry(const CUstreamBatchMemOpParams& entry) const {
    params.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
    content.memory_operations.push_back(entry);
    params.memOp.count = unsigned(content.memory_operations.size());
  }
};

}  // namespace

NodeContent ContentOf(Operation operation) {
  NodeContent content;
  std::visit(Describer{content}, operation.work);
  content.operations.push_back(std::move(operation));
  return content;
}

CUgraphNodeParams Describe(NodeContent& content) {
  CUgraphNodeParams& params = content.params;
  switch (params.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
      auto& kernel = std::get<KernelOperation>(content.operations.front().work);
      content.parameter_pointers.clear();
      // Its module may be gone.
      if (TheDriver().functions.Find(kernel.function) == nullptr) break;
      for (uint32_t offset : Attributes(*kernel.function).parameter_offsets)
        content.parameter_pointers.push_back(kernel.parameters.data() + offset);
      params.kernel.kernelParams =
          content.parameter_pointers.empty() ? nullptr : content.parameter_pointers.data();
      params.kernel.extra = nullptr;
      if (params.kernel.func == nullptr && params.kernel.kern == nullptr)
        params.kernel.func = kernel.function;
      break;
    }
    case CU_GRAPH_NODE_TYPE_GRAPH:
      if (!content.children.empty()) params.graph.graph = content.children.front();
      break;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      params.alloc.accessDescs = content.access.empty() ? nullptr : content.access.data();
      break;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      params.memOp.paramArray = content.memory_operations.data();
      break;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      params.conditional.phGraph_out = content.children.data();
      break;
    default:
      break;
  }
  return params;
}

bool MayReplace(const NodeContent& from, const NodeContent& to, CUgraphExecUpdateResult* result) {
  if (from.params.type != to.params.type) {
    *result = CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
    return false;
  }
  switch (from.params.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
      const auto& old_kernel = std::get<KernelOperation>(from.operations.front().work);
      const auto& new_kernel = std::get<KernelOperation>(to.operations.front().work);
      if (old_kernel.function->module->context != new_kernel.function->module->context) {
        *result = CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE;
        return false;
      }
      if (old_kernel.cooperative != new_kernel.cooperative) {
        *result = CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED;
        return false;
      }
      break;
    }
    // Memory nodes and conditionals keep what they lead to.
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      if (from.allocation != to.allocation) {
        *result = CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
        return false;
      }
      break;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      if (from.condition != to.condition) {
        *result = CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
        return false;
      }
      break;
    case CU_GRAPH_NODE_TYPE_MEMCPY: {
      const CUDA_MEMCPY3D& a = from.params.memcpy.copyParams;
      const CUDA_MEMCPY3D& b = to.params.memcpy.copyParams;
      const auto is_array = [](CUmemorytype type) { return type == CU_MEMORYTYPE_ARRAY; };
      if (is_array(a.srcMemoryType) != is_array(b.srcMemoryType) ||
          is_array(a.dstMemoryType) != is_array(b.dstMemoryType)) {
        *result = CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
        return false;
      }
      break;
    }
    default:
      break;
  }
  return true;
}

}  // namespace ops_debug::emulator
