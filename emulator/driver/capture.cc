// Stream capture: work submitted to a capturing stream becomes nodes of a graph. A capture is a set
// of streams; each of them has the nodes that its next node depends on. Recording an event
// remembers them, waiting for that event adds them to another stream, which joins the capture. What
// would tie captured work to other work is an error and makes the capture invalid (CUDA driver API,
// "Stream Management" and "Graph Management").
#include "emulator/driver/capture.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "emulator/driver/graph.h"
#include "emulator/driver/memory.h"

namespace ops_debug::emulator {

std::vector<Operation>*& RecordingSink() {
  constinit thread_local std::vector<Operation>* sink = nullptr;
  return sink;
}

namespace {

struct Capture {
  uint64_t id = 0;
  CUgraph graph = nullptr;
  bool owns_graph = true;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  uint64_t thread = 0;
  const CUstream_st* origin = nullptr;
  bool valid = true;
};

struct StreamState {
  std::shared_ptr<Capture> capture;
  std::vector<GraphEdge> dependencies;  // of the next node
  // What the last query gave out.
  std::vector<CUgraphNode> shown_nodes;
  std::vector<CUgraphEdgeData> shown_edges;
};

struct EventState {
  std::weak_ptr<Capture> capture;
  std::vector<GraphEdge> dependencies;
};

struct CaptureBook {
  std::map<const CUstream_st*, StreamState> streams;
  std::map<const CUevent_st*, EventState> events;
};

CaptureBook& TheBook() {
  static CaptureBook& book = *new CaptureBook;
  return book;
}

StreamState* Find(const CUstream_st& stream) {
  auto& streams = TheBook().streams;
  const auto found = streams.find(&stream);
  return found != streams.end() ? &found->second : nullptr;
}

CUresult Invalidate(Capture& capture, CUresult error) {
  capture.valid = false;
  return error;
}

CUstreamCaptureMode& ThreadMode() {
  constinit thread_local CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  return mode;
}

void Unite(std::vector<GraphEdge>& edges, const std::vector<GraphEdge>& more) {
  for (const GraphEdge& edge : more) {
    const bool known = std::any_of(edges.begin(), edges.end(),
                                   [&](const GraphEdge& e) { return e.node == edge.node; });
    if (!known) edges.push_back(edge);
  }
}

// Edges whose nodes are still there.
std::vector<GraphEdge> Live(const std::vector<GraphEdge>& edges) {
  std::vector<GraphEdge> live = edges;
  std::erase_if(live, [](const GraphEdge& edge) { return FindNode(edge.node) == nullptr; });
  return live;
}

CUresult AddContent(StreamState& state, NodeContent content) {
  const std::vector<GraphEdge> dependencies = Live(state.dependencies);
  CUgraphNode node = nullptr;
  const CUresult status = AddNode(state.capture->graph, dependencies.data(), dependencies.size(),
                                  std::move(content), &node);
  if (status == CUDA_SUCCESS) state.dependencies = {{node, {}}};
  return status;
}

CUresult AddParams(StreamState& state, CUgraphNodeParams params) {
  NodeContent content;
  const CUresult status = MakeContent(state.capture->graph, &params, {}, &content);
  if (status != CUDA_SUCCESS) return Invalidate(*state.capture, status);
  return AddContent(state, std::move(content));
}

// Stream-ordered allocation: the pool has already chosen the address. It becomes the graph's.
CUresult CaptureAllocation(StreamState& state, Device& device, CUctx_st& context,
                           const AllocateOperation& work) {
  auto allocation = std::make_shared<GraphAllocation>(device, context, 0);
  auto& allocations = device.driver.allocations;
  const auto record = allocations.find(work.address);
  if (record == allocations.end()) return CUDA_ERROR_INVALID_VALUE;
  if (record->second.pool != nullptr) record->second.pool->used_bytes -= work.size_bytes;
  allocations.erase(record);
  allocation->Adopt(work.address, work.size_bytes);
  TheGraphBook().allocations[work.address] = allocation;
  NodeContent content;
  content.params.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
  auto& params = content.params.alloc;
  params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  params.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, device.ordinal};
  params.bytesize = work.size_bytes;
  params.dptr = work.address;
  content.allocation = allocation;
  Operation operation;
  operation.work = AllocateWork(std::move(allocation));
  content.operations.push_back(std::move(operation));
  return AddContent(state, std::move(content));
}

// A wait for an event of a capture, in a stream that is capturing or joins now.
CUresult CaptureWait(const CUstream_st& stream, StreamState* state, const EventState* event) {
  const std::shared_ptr<Capture> capture =
      event != nullptr ? event->capture.lock() : std::shared_ptr<Capture>();
  if (capture == nullptr) {
    return Invalidate(*state->capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  }
  if (!capture->valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (state != nullptr && state->capture != capture) {
    state->capture->valid = false;
    return Invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
  }
  if (&stream == &stream.context->legacy_stream)
    return Invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  StreamState& joined = TheBook().streams[&stream];
  joined.capture = capture;
  Unite(joined.dependencies, event->dependencies);
  return CUDA_SUCCESS;
}

// Work in the legacy stream would wait for the blocking streams that are capturing.
CUresult RefuseImplicit(const CUstream_st& stream, bool invalidates = true) {
  if (&stream != &stream.context->legacy_stream) return CUDA_SUCCESS;
  CUresult status = CUDA_SUCCESS;
  for (auto& [capturing, state] : TheBook().streams) {
    if (capturing->context != stream.context || !state.capture->valid ||
        (capturing->flags & CU_STREAM_NON_BLOCKING) != 0) {
      continue;
    }
    status = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    if (invalidates) state.capture->valid = false;
  }
  return status;
}

}  // namespace

bool IsCapturing(const CUstream_st& stream) { return Find(stream) != nullptr; }

std::optional<CUresult> CaptureOperation(Device& device, CUctx_st& context, CUstream_st& stream,
                                         Operation& operation) {
  if (RecordingSink() != nullptr) {
    RecordingSink()->push_back(std::move(operation));
    return CUDA_SUCCESS;
  }
  CaptureBook& book = TheBook();
  if (book.streams.empty() && book.events.empty()) return std::nullopt;
  StreamState* state = Find(stream);
  const auto* wait = std::get_if<EventWaitOperation>(&operation.work);
  const auto* record = std::get_if<EventRecordOperation>(&operation.work);
  const EventState* event = nullptr;
  if (wait != nullptr) {
    const auto found = book.events.find(wait->event);
    if (found != book.events.end()) event = &found->second;
  }
  if (state == nullptr) {
    if (event != nullptr && !event->capture.expired()) return CaptureWait(stream, nullptr, event);
    const CUresult implicit = RefuseImplicit(stream);
    if (implicit != CUDA_SUCCESS) return implicit;
    if (record != nullptr) book.events.erase(record->event);
    return std::nullopt;
  }
  if (!state->capture->valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (wait != nullptr && (wait->flags & CU_EVENT_WAIT_EXTERNAL) == 0)
    return CaptureWait(stream, state, event);
  if (record != nullptr && (record->flags & CU_EVENT_RECORD_EXTERNAL) == 0) {
    book.events[record->event] = {state->capture, state->dependencies};
    return CUDA_SUCCESS;
  }
  if (const auto* host = std::get_if<HostOperation>(&operation.work);
      host != nullptr && host->callback != nullptr) {
    return Invalidate(*state->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  }
  if (const auto* allocate = std::get_if<AllocateOperation>(&operation.work))
    return CaptureAllocation(*state, device, context, *allocate);
  if (const auto* free = std::get_if<FreeOperation>(&operation.work)) {
    CUgraphNodeParams params{};
    params.type = CU_GRAPH_NODE_TYPE_MEM_FREE;
    params.free.dptr = free->address;
    return AddParams(*state, params);
  }
  // Nothing to do but to keep the order, which the capture keeps anyway.
  if (std::holds_alternative<std::monostate>(operation.work)) return CUDA_SUCCESS;
  return AddContent(*state, ContentOf(std::move(operation)));
}

CUresult CaptureGraph(CUstream_st& stream, CUgraph graph) {
  StreamState* state = Find(stream);
  if (state == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (!state->capture->valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_GRAPH;
  params.graph.graph = graph;
  return AddParams(*state, params);
}

CUresult RefuseWaiting(const CUstream_st& stream) {
  const StreamState* state = Find(stream);
  if (state != nullptr) {
    return Invalidate(*state->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  }
  const CUresult status = RefuseImplicit(stream);
  return status == CUDA_SUCCESS ? RefuseUnsafe() : status;
}

CUresult RefuseAskingForFlags(const CUstream_st& stream) {
  const StreamState* state = Find(stream);
  return state == nullptr ? CUDA_SUCCESS
                          : Invalidate(*state->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

CUresult RefuseWaiting(const CUevent_st& event) {
  const auto found = TheBook().events.find(&event);
  if (found == TheBook().events.end()) return RefuseUnsafe();
  const std::shared_ptr<Capture> capture = found->second.capture.lock();
  if (capture == nullptr) return RefuseUnsafe();
  return Invalidate(*capture, CUDA_ERROR_CAPTURED_EVENT);
}

CUresult RefuseWaiting(const CUctx_st& context) {
  CUresult status = CUDA_SUCCESS;
  for (auto& [stream, state] : TheBook().streams) {
    if (stream->context != &context) continue;
    status = Invalidate(*state.capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  }
  return status;
}

CUresult RefuseUnsafe() {
  const CUstreamCaptureMode mode = ThreadMode();
  if (mode == CU_STREAM_CAPTURE_MODE_RELAXED || RecordingSink() != nullptr) return CUDA_SUCCESS;
  CUresult status = CUDA_SUCCESS;
  for (auto& [stream, state] : TheBook().streams) {
    const Capture& capture = *state.capture;
    const bool own =
        capture.thread == ThreadNumber() && capture.mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    const bool global =
        mode == CU_STREAM_CAPTURE_MODE_GLOBAL && capture.mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (own || global) status = Invalidate(*state.capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  }
  return status;
}

void ForgetStream(const CUstream_st& stream) {
  StreamState* state = Find(stream);
  if (state == nullptr) return;
  const std::shared_ptr<Capture> capture = state->capture;
  capture->valid = false;
  TheBook().streams.erase(&stream);
  // Without its origin nobody can end the capture.
  if (capture->origin != &stream) return;
  std::erase_if(TheBook().streams,
                [&](const auto& entry) { return entry.second.capture == capture; });
  if (capture->owns_graph) DestroyGraph(capture->graph);
}

void ForgetEvent(const CUevent_st& event) { TheBook().events.erase(&event); }

void ForgetCapturesOf(const CUctx_st& context) {
  std::vector<const CUstream_st*> streams;
  for (const auto& [stream, state] : TheBook().streams) {
    if (stream->context == &context) streams.push_back(stream);
  }
  for (const CUstream_st* stream : streams) ForgetStream(*stream);
  std::erase_if(TheBook().events,
                [&](const auto& entry) { return entry.first->context == &context; });
}

namespace {

// body(CUstream_st&) for a stream of the current context.
template <class Body>
CUresult WithStream(CUstream handle, Body body) {
  return InContext([&](Device& device, CUctx_st& context) -> CUresult {
    CUstream_st* stream = FindStream(device.driver, context, handle);
    return stream != nullptr ? body(*stream) : CUDA_ERROR_INVALID_HANDLE;
  });
}

CUresult Begin(CUstream handle, CUstreamCaptureMode mode, CUgraph graph,
               const std::vector<GraphEdge>& dependencies) {
  return WithStream(handle, [&](CUstream_st& stream) -> CUresult {
    if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED)
      return CUDA_ERROR_INVALID_VALUE;
    if (&stream == &stream.context->legacy_stream) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (Find(stream) != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
    if (graph != nullptr) {
      if (TheGraphBook().graphs.Find(graph) == nullptr) return CUDA_ERROR_INVALID_VALUE;
      const CUresult status = CheckEdges(graph, dependencies.data(), dependencies.size());
      if (status != CUDA_SUCCESS) return status;
    }
    auto capture = std::make_shared<Capture>();
    capture->id = TheGraphBook().next_id++;
    capture->owns_graph = graph == nullptr;
    capture->graph = graph != nullptr ? graph : NewGraph();
    capture->mode = mode;
    capture->thread = ThreadNumber();
    capture->origin = &stream;
    TheBook().streams[&stream] = {.capture = std::move(capture), .dependencies = dependencies};
    return CUDA_SUCCESS;
  });
}

// True if all that the capture's other streams did leads to the origin's last nodes.
bool IsJoined(const Capture& capture, const StreamState& origin) {
  std::set<CUgraphNode> seen;
  std::vector<CUgraphNode> open;
  for (const GraphEdge& edge : Live(origin.dependencies)) open.push_back(edge.node);
  while (!open.empty()) {
    const CUgraphNode node = open.back();
    open.pop_back();
    if (!seen.insert(node).second) continue;
    for (const GraphEdge& edge : node->dependencies) open.push_back(edge.node);
  }
  for (const auto& [stream, state] : TheBook().streams) {
    if (state.capture.get() != &capture) continue;
    for (const GraphEdge& edge : Live(state.dependencies)) {
      if (!seen.contains(edge.node)) return false;
    }
  }
  return true;
}

CUresult End(CUstream handle, CUgraph* result) {
  return WithStream(handle, [&](CUstream_st& stream) -> CUresult {
    if (result == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *result = nullptr;
    StreamState* state = Find(stream);
    if (state == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
    const std::shared_ptr<Capture> capture = state->capture;
    if (capture->origin != &stream)
      return Invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != ThreadNumber())
      return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    CUresult status = CUDA_SUCCESS;
    if (!capture->valid) {
      status = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    } else if (!IsJoined(*capture, *state)) {
      status = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    }
    std::erase_if(TheBook().streams,
                  [&](const auto& entry) { return entry.second.capture == capture; });
    std::erase_if(TheBook().events, [&](const auto& entry) {
      const auto of_event = entry.second.capture.lock();
      return of_event == nullptr || of_event == capture;
    });
    if (status == CUDA_SUCCESS) {
      *result = capture->graph;
    } else if (capture->owns_graph) {
      DestroyGraph(capture->graph);
    }
    return status;
  });
}

CUresult Info(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
              const CUgraphNode** nodes, const CUgraphEdgeData** edges, size_t* count,
              bool gives_edges) {
  return WithStream(handle, [&](CUstream_st& stream) -> CUresult {
    if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
    StreamState* state = Find(stream);
    if (state == nullptr) {
      const CUresult implicit = RefuseImplicit(stream, /*invalidates=*/false);
      if (implicit != CUDA_SUCCESS) return implicit;
      *status = CU_STREAM_CAPTURE_STATUS_NONE;
      return CUDA_SUCCESS;
    }
    *status = state->capture->valid ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                    : CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    if (!state->capture->valid) return CUDA_SUCCESS;
    state->shown_nodes.clear();
    state->shown_edges.clear();
    for (const GraphEdge& edge : Live(state->dependencies)) {
      if (!gives_edges && nodes != nullptr && edge.data.type != 0) return CUDA_ERROR_LOSSY_QUERY;
      state->shown_nodes.push_back(edge.node);
      state->shown_edges.push_back(edge.data);
    }
    if (id != nullptr) *id = state->capture->id;
    if (graph != nullptr) *graph = state->capture->graph;
    if (nodes != nullptr) *nodes = state->shown_nodes.data();
    if (edges != nullptr) *edges = state->shown_edges.data();
    if (count != nullptr) *count = state->shown_nodes.size();
    return CUDA_SUCCESS;
  });
}

CUresult Update(CUstream handle, const CUgraphNode* nodes, const CUgraphEdgeData* data,
                size_t count, unsigned flags) {
  return WithStream(handle, [&](CUstream_st& stream) -> CUresult {
    StreamState* state = Find(stream);
    if (state == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
    if (!state->capture->valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES || (count != 0 && nodes == nullptr))
      return CUDA_ERROR_INVALID_VALUE;
    const std::vector<GraphEdge> edges = EdgesOf(nodes, data, count);
    const CUresult status = CheckEdges(state->capture->graph, edges.data(), edges.size());
    if (status != CUDA_SUCCESS) return status;
    if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES) state->dependencies.clear();
    Unite(state->dependencies, edges);
    return CUDA_SUCCESS;
  });
}

}  // namespace
}  // namespace ops_debug::emulator

using namespace ops_debug::emulator;  // NOLINT(google-build-using-namespace): entry points only

extern "C" {

CUresult cuStreamBeginCapture(CUstream stream) {
  return Begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL, nullptr, {});
}

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
  return Begin(stream, mode, nullptr, {});
}

CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode* nodes,
                                     const CUgraphEdgeData* data, size_t count,
                                     CUstreamCaptureMode mode) {
  if (graph == nullptr || (count != 0 && nodes == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  return Begin(stream, mode, graph, EdgesOf(nodes, data, count));
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) { return End(stream, graph); }

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  return Info(stream, status, nullptr, nullptr, nullptr, nullptr, nullptr, true);
}

CUresult cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id) {
  return Info(stream, status, id, nullptr, nullptr, nullptr, nullptr, true);
}

CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id,
                                   CUgraph* graph, const CUgraphNode** nodes, size_t* count) {
  return Info(stream, status, id, graph, nodes, nullptr, count, /*gives_edges=*/false);
}

CUresult cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id,
                                   CUgraph* graph, const CUgraphNode** nodes,
                                   const CUgraphEdgeData** edges, size_t* count) {
  return Info(stream, status, id, graph, nodes, edges, count, edges != nullptr);
}

CUresult cuStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode* nodes, size_t count,
                                           unsigned int flags) {
  return Update(stream, nodes, nullptr, count, flags);
}

CUresult cuStreamUpdateCaptureDependencies_v2(CUstream stream, CUgraphNode* nodes,
                                              const CUgraphEdgeData* data, size_t count,
                                              unsigned int flags) {
  return Update(stream, nodes, data, count, flags);
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  if (mode == nullptr || *mode < CU_STREAM_CAPTURE_MODE_GLOBAL ||
      *mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::swap(*mode, ThreadMode());
  return CUDA_SUCCESS;
}

}  // extern "C"

OPS_DEBUG_PER_THREAD(cuStreamBeginCapture, ptsz, 1)
OPS_DEBUG_PER_THREAD(cuStreamBeginCapture_v2, ptsz, 2)
OPS_DEBUG_PER_THREAD(cuStreamBeginCaptureToGraph, ptsz, 6)
OPS_DEBUG_PER_THREAD(cuStreamEndCapture, ptsz, 2)
OPS_DEBUG_PER_THREAD(cuStreamIsCapturing, ptsz, 2)
OPS_DEBUG_PER_THREAD(cuStreamGetCaptureInfo, ptsz, 3)
OPS_DEBUG_PER_THREAD(cuStreamGetCaptureInfo_v2, ptsz, 6)
OPS_DEBUG_PER_THREAD(cuStreamGetCaptureInfo_v3, ptsz, 7)
OPS_DEBUG_PER_THREAD(cuStreamUpdateCaptureDependencies, ptsz, 4)
OPS_DEBUG_PER_THREAD(cuStreamUpdateCaptureDependencies_v2, ptsz, 5)
