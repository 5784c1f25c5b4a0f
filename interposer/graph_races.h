// Race and barrier checks of kernels in graphs. A kernel's blocks need tickets of their own each
// time they run (race_state.h), and a node's parameters are those of its capture; so right before
// an instantiated graph is launched, its nodes get what this launch needs by
// cuGraphExecKernelNodeSetParams, which changes future launches only (CUDA Driver API, "Graph
// Management"). Nodes are named by the graph that was instantiated, which therefore outlives its
// destruction by the program as long as something that was made from it can be launched.
//
// Not checked, and said so: what runs inside conditional nodes (more than once per launch), graphs
// that device code can launch. Copies and memsets of graphs are not looked at. All of it does
// nothing unless instrumented kernels check races or barriers.
#pragma once

#include <mutex>

#include "interposer/context_state.h"
#include "interposer/driver_table.h"
#include "interposer/event_sender.h"
#include "interposer/stream_order.h"

namespace ops_debug::interposer {

// A kernel node's parameters, whichever of its ABIs they came in.
struct KernelNodeSettings {
  CUfunction function = nullptr;
  CUkernel kernel = nullptr;  // in place of the function
  CUcontext context = nullptr;
  Dim3 grid, block;
  uint32_t dynamic_shared_bytes = 0;
  void** parameters = nullptr;
  void** extra = nullptr;
};
template <class Parameters>
KernelNodeSettings SettingsOf(const Parameters& parameters) {
  KernelNodeSettings settings{
      .function = parameters.func,
      .grid = {parameters.gridDimX, parameters.gridDimY, parameters.gridDimZ},
      .block = {parameters.blockDimX, parameters.blockDimY, parameters.blockDimZ},
      .dynamic_shared_bytes = parameters.sharedMemBytes,
      .parameters = parameters.kernelParams,
      .extra = parameters.extra};
  if constexpr (requires { parameters.kern; }) {
    settings.kernel = parameters.kern;
    settings.context = parameters.ctx;
  }
  return settings;
}

// The graph was instantiated with these flags.
void RacesGraphInstantiated(CUgraphExec exec, CUgraph graph, unsigned long long flags);
// An instantiated graph took over what is in another.
void RacesGraphUpdated(CUgraphExec exec, CUgraph graph);
// The program changed one node of an instantiated graph.
void RacesExecNodeSet(CUgraphExec exec, CUgraphNode node, const KernelNodeSettings& settings);
void RacesExecChildSet(CUgraphExec exec);
void RacesGraphExecDestroyed(CUgraphExec exec);

// The program destroys a graph. kKept: its nodes are still needed, and it is destroyed later.
enum class GraphEnd : uint8_t { kNow, kKept, kKeptAlready };
GraphEnd RacesGraphDestroyed(CUgraph graph);
// The program is about to destroy a node.
void RacesGraphNodeDestroyed(CUgraphNode node);

// An instantiated graph becomes a part of a graph that is being captured, with its parameters as
// they are: they must not hold tickets.
void TakeTicketsFromGraph(CUgraphExec exec);
// Gives all nodes tickets. Hold the lock until the driver has the launch.
std::unique_lock<std::mutex> GiveTicketsToGraph(CUgraphExec exec, ContextState& context,
                                                const OrderedWork* work);

}  // namespace ops_debug::interposer
