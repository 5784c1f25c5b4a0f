// What a graph means for the order of stream work. A launch of it is one operation: what happens
// inside is ordered by the graph (branches of it are not compared with each other). Its launches
// come one after the other, in whatever streams they are (CUDA Driver API, cuGraphLaunch). Nodes
// that record or wait for events of the program, that wait for something unseen, or that call host
// functions, reach out of it.
#pragma once

#include "interposer/stream_order.h"

namespace ops_debug::interposer {

// The graph was instantiated, or an instantiated one was updated from `graph`.
void OrderGraphInstantiated(CUgraphExec exec, CUgraph graph);
void OrderGraphDestroyed(CUgraphExec exec);

// One launch; like OrderedWork.
class GraphOrder {
 public:
  GraphOrder(CUgraphExec exec, CUstream explicit_stream);
  void Submitted(CUresult result);
  const OrderedWork* work() const { return work_ ? &*work_ : nullptr; }

 private:
  bool active_ = false;
  CUgraphExec exec_;
  CUstream stream_;
  std::optional<OrderedWork> work_;
};

}  // namespace ops_debug::interposer
