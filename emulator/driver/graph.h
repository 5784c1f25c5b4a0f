// Graphs of work: nodes with copies of their parameters, edges, and executable snapshots of both.
//
// A node holds the parameters as queries give them back and the operations (operation.h) that
// running it performs. The operations are made by the very entry points that submit such work to a
// stream: RecordOperations calls them with a sink in place of the queue, so a node is checked as a
// call is. Everything here is guarded by the driver's lock.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "emulator/driver/operation.h"

struct CUuserObject_st {
  CUhostFn destroy = nullptr;
  void* pointer = nullptr;
  unsigned references = 0;
};

namespace ops_debug::emulator {

// References that a graph and its executable copies hold on user objects; given back when the last
// of them is gone.
class UserObjectReferences {
 public:
  UserObjectReferences() = default;
  ~UserObjectReferences();
  UserObjectReferences(const UserObjectReferences&) = delete;
  UserObjectReferences& operator=(const UserObjectReferences&) = delete;
  std::map<CUuserObject_st*, unsigned> counts;
};
// The same references once more.
std::shared_ptr<UserObjectReferences> CopyReferences(const UserObjectReferences& references);
// Drops `count` references; at zero the object's destroy function is called.
CUresult ReleaseUserObject(CUuserObject object, unsigned count);

// Memory of an allocation node: its address is fixed when the node is made, kernels may touch it
// between the node and the free.
struct GraphAllocation {
  // `bytes` of fresh memory; 0: none yet, see Adopt.
  GraphAllocation(Device& its_device, CUctx_st& its_context, uint64_t bytes);
  ~GraphAllocation();
  GraphAllocation(const GraphAllocation&) = delete;
  GraphAllocation& operator=(const GraphAllocation&) = delete;
  // Takes over memory that a pool gave.
  void Adopt(uint64_t its_address, uint64_t bytes);
  Device& device;
  CUctx_st* context;
  uint64_t address = 0, size_bytes = 0;
  bool live = false;  // between allocation and free
};

// The word that a conditional handle leads to, in device memory: the handle is its address.
struct Condition {
  Condition(Device& its_device, unsigned value, bool assign);
  ~Condition();
  Condition(const Condition&) = delete;
  Condition& operator=(const Condition&) = delete;
  Device& device;
  uint64_t address = 0;
  unsigned default_value = 0;
  bool assign_default = false;  // at every launch
};

using AttributeList = std::map<CUlaunchAttributeID, CUlaunchAttributeValue>;

// What a node does. Copies name the same child graphs and share allocations; CloneGraph makes new
// child graphs.
struct NodeContent {
  // As passed or as a query would give it; pointers in it lead nowhere: see Describe.
  CUgraphNodeParams params{};
  std::vector<Operation> operations;  // in order
  AttributeList attributes;           // of a kernel
  std::vector<CUgraph> children;      // the child graph, or the bodies of a conditional
  std::vector<CUstreamBatchMemOpParams> memory_operations;
  std::shared_ptr<GraphAllocation> allocation;  // of allocation and free nodes
  std::vector<CUmemAccessDesc> access;
  std::shared_ptr<Condition> condition;
  // What pointers of `params` lead to when a query gives them out.
  std::vector<void*> parameter_pointers;
};

struct GraphEdge {
  CUgraphNode node = nullptr;
  CUgraphEdgeData data{};
};

}  // namespace ops_debug::emulator

struct CUgraphNode_st {
  CUgraph graph = nullptr;
  uint64_t id = 0;
  CUgraphNode original = nullptr;  // in the graph that this one was cloned from
  ops_debug::emulator::NodeContent content;
  std::vector<ops_debug::emulator::GraphEdge> dependencies, dependents;
};

struct CUgraph_st {
  uint64_t id = 0;
  CUgraphNode owner = nullptr;                         // the node whose child graph or body this is
  CUgraph original = nullptr;                          // that this one was cloned from
  std::vector<std::unique_ptr<CUgraphNode_st>> nodes;  // in order of creation
  std::vector<std::shared_ptr<ops_debug::emulator::Condition>> conditions;
  std::shared_ptr<ops_debug::emulator::UserObjectReferences> user_objects =
      std::make_shared<ops_debug::emulator::UserObjectReferences>();
};

namespace ops_debug::emulator {

struct ExecutableGraph;

// One node of an executable graph.
struct ExecutableNode {
  CUgraphNode source = nullptr;  // names the node in calls; may be gone
  NodeContent content;
  bool enabled = true;
  std::vector<size_t> dependencies;  // indices of earlier nodes
  bool has_dependents = false;
  std::vector<std::shared_ptr<ExecutableGraph>> children;
};

// Nodes in an order in which they can run one after another.
struct ExecutableGraph {
  std::vector<ExecutableNode> nodes;
  std::vector<std::shared_ptr<Condition>> conditions;
  std::shared_ptr<UserObjectReferences> user_objects;
};

}  // namespace ops_debug::emulator

struct CUgraphExec_st {
  CUctx_st* context = nullptr;
  cuuint64_t flags = 0;
  std::shared_ptr<ops_debug::emulator::ExecutableGraph> graph;
  std::vector<ops_debug::emulator::StreamPoint> last_launch;
};

namespace ops_debug::emulator {

struct GraphBook {
  HandleTable<CUgraph_st> graphs;
  HandleTable<CUgraphExec_st> executables;
  HandleTable<CUuserObject_st> user_objects;
  std::map<uint64_t, std::weak_ptr<GraphAllocation>> allocations;  // by address
  // Allocated by a launch and not freed yet: they outlive their graphs.
  std::map<uint64_t, std::shared_ptr<GraphAllocation>> live_allocations;
  std::map<uint64_t, std::weak_ptr<Condition>> conditions;  // by handle
  uint64_t used_bytes = 0, used_high_bytes = 0;
  uint64_t reserved_bytes = 0, reserved_high_bytes = 0;
  uint64_t next_id = 1;
  // What launches that may not have ended use; let go under the driver's lock once they have.
  struct Flight {
    std::vector<StreamPoint> points;
    std::shared_ptr<ExecutableGraph> graph;
  };
  std::vector<Flight> flights;
  // Live nodes, to tell handles from garbage.
  std::map<const void*, CUgraphNode> nodes;
};
GraphBook& TheGraphBook();

// nullptr if `handle` is none.
CUgraphNode FindNode(CUgraphNode handle);

// ---- Building (graph.cc)
CUgraph NewGraph();
CUresult AddNode(CUgraph graph, const GraphEdge* dependencies, size_t count, NodeContent content,
                 CUgraphNode* node);
CUresult CheckEdges(CUgraph graph, const GraphEdge* edges, size_t count);
void AddEdge(CUgraphNode from, CUgraphNode to, const CUgraphEdgeData& data);
CUgraph CloneGraph(CUgraph graph);
void DestroyGraph(CUgraph graph);
// Nodes in an order that respects the edges; empty with nodes left over: there is a cycle.
std::vector<CUgraphNode> SortNodes(const CUgraph_st& graph);
// Pairs a caller's arrays; `data` may be null.
std::vector<GraphEdge> EdgesOf(const CUgraphNode* nodes, const CUgraphEdgeData* data, size_t count);

// ---- Contents (graph_content.cc)
// Runs `call` so that the stream work that it submits is collected instead of queued.
CUresult RecordOperations(const std::function<CUresult()>& call,
                          std::vector<Operation>* operations);
// Checks `params` and makes the content of a node of `graph`; out-parameters in it are filled.
CUresult MakeContent(CUgraph graph, CUgraphNodeParams* params, const AttributeList& attributes,
                     NodeContent* content);
// The content of a captured operation.
NodeContent ContentOf(Operation operation);
// `params` with pointers that stay valid as long as the content.
CUgraphNodeParams Describe(NodeContent& content);
// True if a node of an executable graph may change from `from` to `to`; `*result` says why not.
bool MayReplace(const NodeContent& from, const NodeContent& to, CUgraphExecUpdateResult* result);

// ---- Execution (graph_exec.cc)
CUresult MakeExecutable(CUgraph graph, std::shared_ptr<ExecutableGraph>* result);
CUgraph GraphOf(const ExecutableGraph& graph);

// ---- Memory nodes (graph_memory.cc)
std::shared_ptr<StreamWork> AllocateWork(std::shared_ptr<GraphAllocation> allocation);
std::shared_ptr<StreamWork> FreeWork(std::shared_ptr<GraphAllocation> allocation);
void SetLive(GraphAllocation& allocation, bool live);
// For cuMemFree and cuMemFreeAsync of memory that a graph allocated; false if there is none.
bool FreeGraphMemory(uint64_t address);
bool IsGraphMemory(uint64_t address);  // takes the driver's lock itself
std::shared_ptr<GraphAllocation> FindGraphMemory(uint64_t address);

}  // namespace ops_debug::emulator
