// Nodes of graphs under the run-time's names: kernels are named by the host address of their
// __global__ function, copies by cudaMemcpy3DParms, variables by their host address.
#include "emulator/cudart/graph_node.h"

#include <cstring>

#include "emulator/cudart/copy_box.h"
#include "emulator/cudart/forward.h"
#include "emulator/cudart/registry.h"

namespace ops_debug::emulator::cudart {

// ---- Layouts that the two APIs share.
static_assert(sizeof(cudaHostNodeParams) == sizeof(CUDA_HOST_NODE_PARAMS));
static_assert(sizeof(cudaMemsetParams) == sizeof(CUDA_MEMSET_NODE_PARAMS));
static_assert(offsetof(cudaMemsetParams, height) == offsetof(CUDA_MEMSET_NODE_PARAMS, height));
static_assert(sizeof(cudaMemAllocNodeParams) == sizeof(CUDA_MEM_ALLOC_NODE_PARAMS));
static_assert(offsetof(cudaMemAllocNodeParams, dptr) == offsetof(CUDA_MEM_ALLOC_NODE_PARAMS, dptr));
static_assert(sizeof(cudaGraphNodeParams) == sizeof(CUgraphNodeParams));
static_assert(sizeof(cudaMemAllocNodeParamsV2) == sizeof(CUDA_MEM_ALLOC_NODE_PARAMS_v2));
static_assert(sizeof(cudaKernelNodeAttrValue) == sizeof(CUkernelNodeAttrValue));

namespace {

// `P`: either version of the run-time's kernel parameters.
template <class P>
cudaError_t KernelToDriver(const DriverCalls& driver, const P& from, CUDA_KERNEL_NODE_PARAMS* to) {
  *to = {};
  const cudaError_t error = FindKernel(driver, from.func, &to->kern);
  if (error != cudaSuccess) return error;
  to->gridDimX = from.gridDim.x;
  to->gridDimY = from.gridDim.y;
  to->gridDimZ = from.gridDim.z;
  to->blockDimX = from.blockDim.x;
  to->blockDimY = from.blockDim.y;
  to->blockDimZ = from.blockDim.z;
  to->sharedMemBytes = from.sharedMemBytes;
  to->kernelParams = from.kernelParams;
  to->extra = from.extra;
  return cudaSuccess;
}

cudaKernelNodeParams KernelFromDriver(const DriverCalls& driver,
                                      const CUDA_KERNEL_NODE_PARAMS& from) {
  cudaKernelNodeParams to{};
  to.func = const_cast<void*>(FindHostFunction(driver, from.kern, from.func));
  to.gridDim = dim3(from.gridDimX, from.gridDimY, from.gridDimZ);
  to.blockDim = dim3(from.blockDimX, from.blockDimY, from.blockDimZ);
  to.sharedMemBytes = from.sharedMemBytes;
  to.kernelParams = from.kernelParams;
  to.extra = from.extra;
  return to;
}

CUcontext Current(const DriverCalls& driver) {
  CUcontext context = nullptr;
  driver.cuCtxGetCurrent(&context);
  return context;
}

// A line of memory as a box.
cudaMemcpy3DParms Line(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  cudaMemcpy3DParms line{};
  line.dstPtr = {to, bytes, bytes, 1};
  line.srcPtr = {const_cast<void*>(from), bytes, bytes, 1};
  line.extent = {bytes, 1, 1};
  line.kind = kind;
  return line;
}

// body(const DriverCalls&, const CUDA_MEMCPY3D&, CUcontext).
template <class Body>
cudaError_t WithCopy(const cudaMemcpy3DParms* parameters, Body body) {
  if (parameters == nullptr) return Report(cudaErrorInvalidValue);
  return WithContext([&](const DriverCalls& driver) -> cudaError_t {
    CUDA_MEMCPY3D copy{};
    const cudaError_t error = ToDriver(driver, *parameters, &copy);
    if (error != cudaSuccess) return error;
    return static_cast<cudaError_t>(body(driver, copy, Current(driver)));
  });
}

// The same for a copy to a variable (`from` is memory) or from one (`to` is).
template <class Body>
cudaError_t WithSymbol(const void* symbol, size_t offset, void* to, const void* from, size_t bytes,
                       cudaMemcpyKind kind, Body body) {
  void* variable = nullptr;
  const cudaError_t error = WithContext([&](const DriverCalls& driver) -> cudaError_t {
    CUdeviceptr address = 0;
    size_t size = 0;
    const cudaError_t found = FindSymbol(driver, symbol, &address, &size);
    if (found != cudaSuccess) return found;
    if (offset > size || bytes > size - offset) return cudaErrorInvalidValue;
    variable = reinterpret_cast<void*>(address + offset);
    return cudaSuccess;
  });
  if (error != cudaSuccess) return error;
  const cudaMemcpy3DParms line =
      to != nullptr ? Line(to, variable, bytes, kind) : Line(variable, from, bytes, kind);
  return WithCopy(&line, body);
}

template <class Body>
cudaError_t WithKernelParams(const cudaKernelNodeParams* parameters, Body body) {
  if (parameters == nullptr) return Report(cudaErrorInvalidValue);
  return WithContext([&](const DriverCalls& driver) -> cudaError_t {
    CUDA_KERNEL_NODE_PARAMS kernel{};
    const cudaError_t error = KernelToDriver(driver, *parameters, &kernel);
    return error != cudaSuccess ? error : static_cast<cudaError_t>(body(driver, kernel));
  });
}

// How a node of any kind is added to a graph: behind these nodes.
struct Place {
  cudaGraphNode_t* node;
  cudaGraph_t graph;
  const cudaGraphNode_t* dependencies;
  size_t count;
};

cudaError_t AddCopy(const Place& place, const cudaMemcpy3DParms* parameters) {
  return WithCopy(parameters,
                  [&](const DriverCalls& driver, const CUDA_MEMCPY3D& copy, CUcontext context) {
                    return driver.cuGraphAddMemcpyNode(place.node, place.graph, place.dependencies,
                                                       place.count, &copy, context);
                  });
}

auto SetCopy(cudaGraphNode_t node) {
  return [node](const DriverCalls& driver, const CUDA_MEMCPY3D& copy, CUcontext) {
    return driver.cuGraphMemcpyNodeSetParams(node, &copy);
  };
}

auto SetCopy(cudaGraphExec_t executable, cudaGraphNode_t node) {
  return [=](const DriverCalls& driver, const CUDA_MEMCPY3D& copy, CUcontext context) {
    return driver.cuGraphExecMemcpyNodeSetParams(executable, node, &copy, context);
  };
}

cudaError_t ToDriver(const DriverCalls& driver, const cudaGraphNodeParams& from,
                     CUgraphNodeParams* to) {
  std::memset(static_cast<void*>(to), 0, sizeof(*to));
  to->type = static_cast<CUgraphNodeType>(from.type);
  switch (from.type) {
    case cudaGraphNodeTypeKernel: {
      CUDA_KERNEL_NODE_PARAMS kernel{};
      const cudaError_t error = KernelToDriver(driver, from.kernel, &kernel);
      static_assert(sizeof(kernel) == sizeof(to->kernel));
      std::memcpy(&to->kernel, &kernel, sizeof(kernel));
      return error;
    }
    case cudaGraphNodeTypeMemcpy:
      to->memcpy.copyCtx = Current(driver);
      return ToDriver(driver, from.memcpy.copyParams, &to->memcpy.copyParams);
    case cudaGraphNodeTypeMemset:
      std::memcpy(&to->memset, &from.memset, sizeof(from.memset));
      to->memset.ctx = Current(driver);
      return cudaSuccess;
    case cudaGraphNodeTypeConditional:
      std::memcpy(&to->conditional, &from.conditional, sizeof(from.conditional));
      to->conditional.ctx = Current(driver);
      return cudaSuccess;
    default:
      std::memcpy(&to->reserved1, &from.reserved1, sizeof(to->reserved1));
      return cudaSuccess;
  }
}

}  // namespace

cudaError_t AddNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                    const cudaGraphEdgeData* data, size_t count, cudaGraphNodeParams* parameters) {
  if (parameters == nullptr) return Report(cudaErrorInvalidValue);
  return WithContext([&](const DriverCalls& driver) -> cudaError_t {
    CUgraphNodeParams converted;
    const cudaError_t error = ToDriver(driver, *parameters, &converted);
    if (error != cudaSuccess) return error;
    const CUresult status =
        driver.cuGraphAddNode(node, graph, dependencies,
                              reinterpret_cast<const CUgraphEdgeData*>(data), count, &converted);
    // Results come back in the parameters.
    if (status == CUDA_SUCCESS && parameters->type == cudaGraphNodeTypeMemAlloc)
      parameters->alloc.dptr = reinterpret_cast<void*>(converted.alloc.dptr);
    if (status == CUDA_SUCCESS && parameters->type == cudaGraphNodeTypeConditional)
      parameters->conditional.phGraph_out = converted.conditional.phGraph_out;
    return static_cast<cudaError_t>(status);
  });
}

}  // namespace ops_debug::emulator::cudart

using namespace ops_debug::emulator::cudart;  // NOLINT(google-build-using-namespace): entry points

extern "C" {

cudaError_t cudaGraphNodeSetParams(cudaGraphNode_t node, cudaGraphNodeParams* parameters) {
  if (parameters == nullptr) return Report(cudaErrorInvalidValue);
  return WithContext([&](const DriverCalls& driver) -> cudaError_t {
    CUgraphNodeParams converted;
    const cudaError_t error = ToDriver(driver, *parameters, &converted);
    if (error != cudaSuccess) return error;
    return static_cast<cudaError_t>(driver.cuGraphNodeSetParams(node, &converted));
  });
}

cudaError_t cudaGraphExecNodeSetParams(cudaGraphExec_t executable, cudaGraphNode_t node,
                                       cudaGraphNodeParams* parameters) {
  if (parameters == nullptr) return Report(cudaErrorInvalidValue);
  return WithContext([&](const DriverCalls& driver) -> cudaError_t {
    CUgraphNodeParams converted;
    const cudaError_t error = ToDriver(driver, *parameters, &converted);
    if (error != cudaSuccess) return error;
    return static_cast<cudaError_t>(driver.cuGraphExecNodeSetParams(executable, node, &converted));
  });
}

// ---- Kernels

cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                   const cudaGraphNode_t* dependencies, size_t count,
                                   const cudaKernelNodeParams* parameters) {
  return WithKernelParams(
      parameters, [&](const DriverCalls& driver, const CUDA_KERNEL_NODE_PARAMS& kernel) {
        return driver.cuGraphAddKernelNode(node, graph, dependencies, count, &kernel);
      });
}

cudaError_t cudaGraphKernelNodeGetParams(cudaGraphNode_t node, cudaKernelNodeParams* parameters) {
  if (parameters == nullptr) return Report(cudaErrorInvalidValue);
  return WithContext([&](const DriverCalls& driver) {
    CUDA_KERNEL_NODE_PARAMS kernel{};
    const CUresult status = driver.cuGraphKernelNodeGetParams(node, &kernel);
    if (status == CUDA_SUCCESS) *parameters = KernelFromDriver(driver, kernel);
    return status;
  });
}

cudaError_t cudaGraphKernelNodeSetParams(cudaGraphNode_t node,
                                         const cudaKernelNodeParams* parameters) {
  return WithKernelParams(parameters,
                          [&](const DriverCalls& driver, const CUDA_KERNEL_NODE_PARAMS& kernel) {
                            return driver.cuGraphKernelNodeSetParams(node, &kernel);
                          });
}

cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t executable, cudaGraphNode_t node,
                                             const cudaKernelNodeParams* parameters) {
  return WithKernelParams(parameters,
                          [&](const DriverCalls& driver, const CUDA_KERNEL_NODE_PARAMS& kernel) {
                            return driver.cuGraphExecKernelNodeSetParams(executable, node, &kernel);
                          });
}

cudaError_t cudaGraphKernelNodeGetAttribute(cudaGraphNode_t node, cudaKernelNodeAttrID attribute,
                                            cudaKernelNodeAttrValue* value) {
  return Forward<&DriverCalls::cuGraphKernelNodeGetAttribute>(node, attribute, value);
}

cudaError_t cudaGraphKernelNodeSetAttribute(cudaGraphNode_t node, cudaKernelNodeAttrID attribute,
                                            const cudaKernelNodeAttrValue* value) {
  return Forward<&DriverCalls::cuGraphKernelNodeSetAttribute>(node, attribute, value);
}

cudaError_t cudaGraphKernelNodeCopyAttributes(cudaGraphNode_t to, cudaGraphNode_t from) {
  return Forward<&DriverCalls::cuGraphKernelNodeCopyAttributes>(to, from);
}

// ---- Copies

cudaError_t cudaGraphAddMemcpyNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                   const cudaGraphNode_t* dependencies, size_t count,
                                   const cudaMemcpy3DParms* parameters) {
  return AddCopy({node, graph, dependencies, count}, parameters);
}

cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t* node, cudaGraph_t graph,
                                     const cudaGraphNode_t* dependencies, size_t count, void* to,
                                     const void* from, size_t bytes, cudaMemcpyKind kind) {
  const cudaMemcpy3DParms line = Line(to, from, bytes, kind);
  return AddCopy({node, graph, dependencies, count}, &line);
}

cudaError_t cudaGraphAddMemcpyNodeToSymbol(cudaGraphNode_t* node, cudaGraph_t graph,
                                           const cudaGraphNode_t* dependencies, size_t count,
                                           const void* symbol, const void* from, size_t bytes,
                                           size_t offset, cudaMemcpyKind kind) {
  return WithSymbol(symbol, offset, nullptr, from, bytes, kind,
                    [&](const DriverCalls& driver, const CUDA_MEMCPY3D& copy, CUcontext context) {
                      return driver.cuGraphAddMemcpyNode(node, graph, dependencies, count, &copy,
                                                         context);
                    });
}

cudaError_t cudaGraphAddMemcpyNodeFromSymbol(cudaGraphNode_t* node, cudaGraph_t graph,
                                             const cudaGraphNode_t* dependencies, size_t count,
                                             void* to, const void* symbol, size_t bytes,
                                             size_t offset, cudaMemcpyKind kind) {
  return WithSymbol(symbol, offset, to, nullptr, bytes, kind,
                    [&](const DriverCalls& driver, const CUDA_MEMCPY3D& copy, CUcontext context) {
                      return driver.cuGraphAddMemcpyNode(node, graph, dependencies, count, &copy,
                                                         context);
                    });
}

cudaError_t cudaGraphMemcpyNodeGetParams(cudaGraphNode_t node, cudaMemcpy3DParms* parameters) {
  if (parameters == nullptr) return Report(cudaErrorInvalidValue);
  return WithContext([&](const DriverCalls& driver) {
    CUDA_MEMCPY3D copy{};
    const CUresult status = driver.cuGraphMemcpyNodeGetParams(node, &copy);
    if (status == CUDA_SUCCESS) *parameters = FromDriver(driver, copy);
    return status;
  });
}

cudaError_t cudaGraphMemcpyNodeSetParams(cudaGraphNode_t node,
                                         const cudaMemcpy3DParms* parameters) {
  return WithCopy(parameters, SetCopy(node));
}

cudaError_t cudaGraphMemcpyNodeSetParams1D(cudaGraphNode_t node, void* to, const void* from,
                                           size_t bytes, cudaMemcpyKind kind) {
  const cudaMemcpy3DParms line = Line(to, from, bytes, kind);
  return WithCopy(&line, SetCopy(node));
}

cudaError_t cudaGraphMemcpyNodeSetParamsToSymbol(cudaGraphNode_t node, const void* symbol,
                                                 const void* from, size_t bytes, size_t offset,
                                                 cudaMemcpyKind kind) {
  return WithSymbol(symbol, offset, nullptr, from, bytes, kind, SetCopy(node));
}

cudaError_t cudaGraphMemcpyNodeSetParamsFromSymbol(cudaGraphNode_t node, void* to,
                                                   const void* symbol, size_t bytes, size_t offset,
                                                   cudaMemcpyKind kind) {
  return WithSymbol(symbol, offset, to, nullptr, bytes, kind, SetCopy(node));
}

cudaError_t cudaGraphExecMemcpyNodeSetParams(cudaGraphExec_t executable, cudaGraphNode_t node,
                                             const cudaMemcpy3DParms* parameters) {
  return WithCopy(parameters, SetCopy(executable, node));
}

cudaError_t cudaGraphExecMemcpyNodeSetParams1D(cudaGraphExec_t executable, cudaGraphNode_t node,
                                               void* to, const void* from, size_t bytes,
                                               cudaMemcpyKind kind) {
  const cudaMemcpy3DParms line = Line(to, from, bytes, kind);
  return WithCopy(&line, SetCopy(executable, node));
}

cudaError_t cudaGraphExecMemcpyNodeSetParamsToSymbol(cudaGraphExec_t executable,
                                                     cudaGraphNode_t node, const void* symbol,
                                                     const void* from, size_t bytes, size_t offset,
                                                     cudaMemcpyKind kind) {
  return WithSymbol(symbol, offset, nullptr, from, bytes, kind, SetCopy(executable, node));
}

cudaError_t cudaGraphExecMemcpyNodeSetParamsFromSymbol(cudaGraphExec_t executable,
                                                       cudaGraphNode_t node, void* to,
                                                       const void* symbol, size_t bytes,
                                                       size_t offset, cudaMemcpyKind kind) {
  return WithSymbol(symbol, offset, to, nullptr, bytes, kind, SetCopy(executable, node));
}

// ---- Fills

cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                   const cudaGraphNode_t* dependencies, size_t count,
                                   const cudaMemsetParams* parameters) {
  return WithContext([&](const DriverCalls& driver) {
    return driver.cuGraphAddMemsetNode(node, graph, dependencies, count,
                                       reinterpret_cast<const CUDA_MEMSET_NODE_PARAMS*>(parameters),
                                       Current(driver));
  });
}

cudaError_t cudaGraphMemsetNodeGetParams(cudaGraphNode_t node, cudaMemsetParams* parameters) {
  return Forward<&DriverCalls::cuGraphMemsetNodeGetParams>(node, parameters);
}

cudaError_t cudaGraphMemsetNodeSetParams(cudaGraphNode_t node, const cudaMemsetParams* parameters) {
  return Forward<&DriverCalls::cuGraphMemsetNodeSetParams>(node, parameters);
}

cudaError_t cudaGraphExecMemsetNodeSetParams(cudaGraphExec_t executable, cudaGraphNode_t node,
                                             const cudaMemsetParams* parameters) {
  return WithContext([&](const DriverCalls& driver) {
    return driver.cuGraphExecMemsetNodeSetParams(
        executable, node, reinterpret_cast<const CUDA_MEMSET_NODE_PARAMS*>(parameters),
        Current(driver));
  });
}

// ---- Host functions, child graphs, empty nodes, events

cudaError_t cudaGraphAddHostNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                 const cudaGraphNode_t* dependencies, size_t count,
                                 const cudaHostNodeParams* parameters) {
  return Forward<&DriverCalls::cuGraphAddHostNode>(node, graph, dependencies, count, parameters);
}

cudaError_t cudaGraphHostNodeGetParams(cudaGraphNode_t node, cudaHostNodeParams* parameters) {
  return Forward<&DriverCalls::cuGraphHostNodeGetParams>(node, parameters);
}

cudaError_t cudaGraphHostNodeSetParams(cudaGraphNode_t node, const cudaHostNodeParams* parameters) {
  return Forward<&DriverCalls::cuGraphHostNodeSetParams>(node, parameters);
}

cudaError_t cudaGraphExecHostNodeSetParams(cudaGraphExec_t executable, cudaGraphNode_t node,
                                           const cudaHostNodeParams* parameters) {
  return Forward<&DriverCalls::cuGraphExecHostNodeSetParams>(executable, node, parameters);
}

cudaError_t cudaGraphAddChildGraphNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                       const cudaGraphNode_t* dependencies, size_t count,
                                       cudaGraph_t child) {
  return Forward<&DriverCalls::cuGraphAddChildGraphNode>(node, graph, dependencies, count, child);
}

cudaError_t cudaGraphChildGraphNodeGetGraph(cudaGraphNode_t node, cudaGraph_t* graph) {
  return Forward<&DriverCalls::cuGraphChildGraphNodeGetGraph>(node, graph);
}

cudaError_t cudaGraphExecChildGraphNodeSetParams(cudaGraphExec_t executable, cudaGraphNode_t node,
                                                 cudaGraph_t child) {
  return Forward<&DriverCalls::cuGraphExecChildGraphNodeSetParams>(executable, node, child);
}

cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                  const cudaGraphNode_t* dependencies, size_t count) {
  return Forward<&DriverCalls::cuGraphAddEmptyNode>(node, graph, dependencies, count);
}

cudaError_t cudaGraphAddEventRecordNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                        const cudaGraphNode_t* dependencies, size_t count,
                                        cudaEvent_t event) {
  return Forward<&DriverCalls::cuGraphAddEventRecordNode>(node, graph, dependencies, count, event);
}

cudaError_t cudaGraphEventRecordNodeGetEvent(cudaGraphNode_t node, cudaEvent_t* event) {
  return Forward<&DriverCalls::cuGraphEventRecordNodeGetEvent>(node, event);
}

cudaError_t cudaGraphEventRecordNodeSetEvent(cudaGraphNode_t node, cudaEvent_t event) {
  return Forward<&DriverCalls::cuGraphEventRecordNodeSetEvent>(node, event);
}

cudaError_t cudaGraphExecEventRecordNodeSetEvent(cudaGraphExec_t executable, cudaGraphNode_t node,
                                                 cudaEvent_t event) {
  return Forward<&DriverCalls::cuGraphExecEventRecordNodeSetEvent>(executable, node, event);
}

cudaError_t cudaGraphAddEventWaitNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                      const cudaGraphNode_t* dependencies, size_t count,
                                      cudaEvent_t event) {
  return Forward<&DriverCalls::cuGraphAddEventWaitNode>(node, graph, dependencies, count, event);
}

cudaError_t cudaGraphEventWaitNodeGetEvent(cudaGraphNode_t node, cudaEvent_t* event) {
  return Forward<&DriverCalls::cuGraphEventWaitNodeGetEvent>(node, event);
}

cudaError_t cudaGraphEventWaitNodeSetEvent(cudaGraphNode_t node, cudaEvent_t event) {
  return Forward<&DriverCalls::cuGraphEventWaitNodeSetEvent>(node, event);
}

cudaError_t cudaGraphExecEventWaitNodeSetEvent(cudaGraphExec_t executable, cudaGraphNode_t node,
                                               cudaEvent_t event) {
  return Forward<&DriverCalls::cuGraphExecEventWaitNodeSetEvent>(executable, node, event);
}

// ---- Memory

cudaError_t cudaGraphAddMemAllocNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                     const cudaGraphNode_t* dependencies, size_t count,
                                     cudaMemAllocNodeParams* parameters) {
  return Forward<&DriverCalls::cuGraphAddMemAllocNode>(node, graph, dependencies, count,
                                                       parameters);
}

cudaError_t cudaGraphMemAllocNodeGetParams(cudaGraphNode_t node,
                                           cudaMemAllocNodeParams* parameters) {
  return Forward<&DriverCalls::cuGraphMemAllocNodeGetParams>(node, parameters);
}

cudaError_t cudaGraphAddMemFreeNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                    const cudaGraphNode_t* dependencies, size_t count,
                                    void* pointer) {
  return Forward<&DriverCalls::cuGraphAddMemFreeNode>(node, graph, dependencies, count, pointer);
}

cudaError_t cudaGraphMemFreeNodeGetParams(cudaGraphNode_t node, void* pointer) {
  return Forward<&DriverCalls::cuGraphMemFreeNodeGetParams>(node, pointer);
}

}  // extern "C"
