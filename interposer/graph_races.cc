// One entry per instantiated graph, with a copy of each node's parameters, in which the part of the
// race checks is filled in anew for each launch.
#include "interposer/graph_races.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "interposer/graph_shape.h"
#include "interposer/launch_parameters.h"
#include "interposer/module_registry.h"
#include "interposer/race_state.h"

namespace ops_debug::interposer {
namespace {

using shadow::RaceLaunch;

constexpr unsigned long long kLaunchedFromDevice = CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH;

void SayNotChecked(const char* which) {
  SendOnce(DiagnosticEvent{
      .severity = proto_enums::Severity::kNote,
      .text = std::string(which) + " are not checked for races and barriers by instrumented code",
      .hint = "the CPU device checks them (--device emulator)"});
}

struct Node {
  GraphKernel place;
  KernelNodeSettings settings;  // without parameters
  FunctionPointer function;     // null: no twin that checks races
  uint64_t launch_id = 0;
  std::vector<std::byte> values;  // the twin's parameters, as the device finds them
  bool has_tickets = false;       // in the instantiated graph

  const shadow::KernelPlan& plan() const { return *function->kernel->plan; }
};

struct Exec {
  std::mutex mutex;  // guards the rest
  CUgraph graph = nullptr;
  bool checked = true;
  std::vector<Node> nodes;
};
using ExecPointer = std::shared_ptr<Exec>;

struct KeptGraph {
  uint32_t users = 0;
  bool destroyed = false;  // by the program
};

// Never destroyed: hooks run until the very end of the process.
struct Execs {
  std::mutex mutex;  // guards the rest
  std::unordered_map<CUgraphExec, ExecPointer> by_handle;
  std::unordered_map<CUgraph, KeptGraph> graphs;
};
Execs& TheExecs() {
  static auto* execs = new Execs;
  return *execs;
}

ExecPointer Find(CUgraphExec exec) {
  Execs& execs = TheExecs();
  std::lock_guard lock(execs.mutex);
  const auto found = execs.by_handle.find(exec);
  return found == execs.by_handle.end() ? nullptr : found->second;
}

// The graph's own memory is given back with its last user.
void Release(CUgraph graph) {
  Execs& execs = TheExecs();
  {
    std::lock_guard lock(execs.mutex);
    const auto found = execs.graphs.find(graph);
    if (found == execs.graphs.end() || --found->second.users != 0) return;
    const bool destroyed = found->second.destroyed;
    execs.graphs.erase(found);
    if (!destroyed) return;
  }
  OPS_DEBUG_REAL(cuGraphDestroy)(graph);
}

// Copies the values of the twin's parameters. False: they are not all there.
bool ReadValues(const shadow::KernelPlan& plan, const KernelNodeSettings& settings,
                std::vector<std::byte>* out) {
  out->assign(plan.launch_parameter_offset + plan.launch_parameter_bytes, std::byte{});
  if (settings.parameters) {
    for (size_t i = 0; i < plan.parameters.size(); i++) {
      std::memcpy(out->data() + plan.parameters[i].offset_bytes, settings.parameters[i],
                  plan.parameters[i].size_bytes);
    }
    std::memcpy(out->data() + plan.launch_parameter_offset,
                settings.parameters[plan.parameters.size()], plan.launch_parameter_bytes);
    return true;
  }
  std::span<const std::byte> buffer;
  if (!ReadExtra(settings.extra, &buffer) || buffer.size() < out->size()) return false;
  std::copy_n(buffer.begin(), out->size(), out->begin());
  return true;
}

void Enter(const KernelNodeSettings& settings, Node* node) {
  node->settings = settings;
  node->has_tickets = false;
  bool is_twin = false;
  node->function =
      FindNodeFunction(settings.function, settings.function ? nullptr : settings.kernel, &is_twin);
  const shadow::KernelPlan* plan = node->function ? node->function->kernel->plan : nullptr;
  if (!is_twin || !plan || !plan->races.checked || !ReadValues(*plan, settings, &node->values)) {
    node->function = nullptr;
    return;
  }
  shadow::LaunchHeader header{};
  std::memcpy(&header, node->values.data() + plan->launch_parameter_offset, sizeof header);
  node->launch_id = header.launch_id;
}

bool ReadSettings(CUgraphNode node, KernelNodeSettings* settings) {
  CUDA_KERNEL_NODE_PARAMS_v2 parameters{};
  if (OPS_DEBUG_REAL(cuGraphKernelNodeGetParams_v2)(node, &parameters) == CUDA_SUCCESS) {
    *settings = SettingsOf(parameters);
    return true;
  }
  CUDA_KERNEL_NODE_PARAMS_v1 old{};
  if (OPS_DEBUG_REAL(cuGraphKernelNodeGetParams)(node, &old) != CUDA_SUCCESS) return false;
  *settings = SettingsOf(old);
  return true;
}

std::vector<Node> NodesOf(const GraphShape& shape) {
  std::vector<Node> nodes;
  for (const GraphKernel& kernel : shape.kernels) {
    Node& node = nodes.emplace_back();
    node.place = kernel;
    KernelNodeSettings settings;
    if (ReadSettings(kernel.node, &settings)) Enter(settings, &node);
  }
  return nodes;
}

bool AnyChecked(const std::vector<Node>& nodes) {
  return std::ranges::any_of(nodes, [](const Node& node) { return node.function != nullptr; });
}

CUresult SetParameters(CUgraphExec exec, Node& node) {
  const shadow::KernelPlan& plan = node.plan();
  std::vector<void*> values;
  for (const ptx::ParameterLayout& parameter : plan.parameters)
    values.push_back(node.values.data() + parameter.offset_bytes);
  values.push_back(node.values.data() + plan.launch_parameter_offset);
  const KernelNodeSettings& settings = node.settings;
  CUDA_KERNEL_NODE_PARAMS_v2 parameters{.func = settings.function,
                                        .gridDimX = settings.grid.x,
                                        .gridDimY = settings.grid.y,
                                        .gridDimZ = settings.grid.z,
                                        .blockDimX = settings.block.x,
                                        .blockDimY = settings.block.y,
                                        .blockDimZ = settings.block.z,
                                        .sharedMemBytes = settings.dynamic_shared_bytes,
                                        .kernelParams = values.data(),
                                        .extra = nullptr,
                                        .kern = settings.kernel,
                                        .ctx = settings.context};
  if (auto set = OPS_DEBUG_REAL(cuGraphExecKernelNodeSetParams_v2))
    return set(exec, node.place.node, &parameters);
  CUDA_KERNEL_NODE_PARAMS_v1 old{};
  static_assert(offsetof(CUDA_KERNEL_NODE_PARAMS_v2, kern) == sizeof old);
  std::memcpy(&old, &parameters, sizeof old);
  return OPS_DEBUG_REAL(cuGraphExecKernelNodeSetParams)(exec, node.place.node, &old);
}

void SetLaunch(CUgraphExec exec, Node& node, const RaceLaunch& launch) {
  if (!node.function || (launch.channel == 0 && !node.has_tickets)) return;
  std::byte* const place =
      node.values.data() + node.plan().launch_parameter_offset + node.plan().races.launch_offset;
  std::memcpy(place, &launch, sizeof launch);
  if (SetParameters(exec, node) == CUDA_SUCCESS) {
    node.has_tickets = launch.channel != 0;
    return;
  }
  // Tickets of an earlier launch must not be used a second time.
  const RaceLaunch none{};
  std::memcpy(place, &none, sizeof none);
  if (node.has_tickets) SetParameters(exec, node);
  node.function = nullptr;
  SayNotChecked("kernels of graphs whose parameters the driver does not let us change");
}

void TakeTickets(CUgraphExec exec, Exec& entry) {
  for (Node& node : entry.nodes) SetLaunch(exec, node, RaceLaunch{});
}

void Disable(CUgraphExec exec, Exec& entry, const char* which) {
  if (!entry.checked) return;
  TakeTickets(exec, entry);
  entry.checked = false;
  SayNotChecked(which);
}

bool SameOrder(const Node& a, const Node& b) {
  const auto kernel = [](const Node& node) {
    return node.function ? node.function->kernel : nullptr;
  };
  return a.place.beside == b.place.beside && kernel(a) == kernel(b);
}

}  // namespace

void RacesGraphInstantiated(CUgraphExec handle, CUgraph graph, unsigned long long flags) {
  if (!ChecksRacesOnDevice() || !handle) return;
  RacesGraphExecDestroyed(handle);  // what had this handle before
  const GraphShape shape = ShapeOf(graph);
  if (shape.has_conditionals) SayNotChecked("kernels inside conditional nodes of graphs");
  if (shape.too_large) SayNotChecked("graphs of so many parallel kernels");
  auto exec = std::make_shared<Exec>();
  exec->graph = graph;
  exec->nodes = NodesOf(shape);
  if (!AnyChecked(exec->nodes)) return;
  if ((flags & kLaunchedFromDevice) != 0)
    return SayNotChecked("graphs that may be launched by the device");
  Execs& execs = TheExecs();
  std::lock_guard lock(execs.mutex);
  execs.graphs[graph].users++;
  execs.by_handle[handle] = std::move(exec);
}

void RacesGraphUpdated(CUgraphExec handle, CUgraph graph) {
  const ExecPointer exec = ChecksRacesOnDevice() ? Find(handle) : nullptr;
  if (!exec) return;
  // The nodes are still named by the graph that was instantiated; which is which, their order
  // tells.
  std::vector<Node> nodes = NodesOf(ShapeOf(graph));
  std::lock_guard lock(exec->mutex);
  const bool paired = std::ranges::equal(nodes, exec->nodes, SameOrder);
  for (size_t i = 0; i < std::min(nodes.size(), exec->nodes.size()); i++)
    nodes[i].place.node = exec->nodes[i].place.node;
  if (paired) {
    exec->nodes = std::move(nodes);
  } else {
    exec->nodes.clear();
    Disable(handle, *exec, "graphs that were updated from one of another shape");
  }
}

void RacesExecNodeSet(CUgraphExec handle, CUgraphNode node, const KernelNodeSettings& settings) {
  const ExecPointer exec = ChecksRacesOnDevice() ? Find(handle) : nullptr;
  if (!exec) return;
  std::lock_guard lock(exec->mutex);
  for (Node& each : exec->nodes) {
    if (each.place.node == node) Enter(settings, &each);
  }
}

void RacesExecChildSet(CUgraphExec handle) {
  const ExecPointer exec = ChecksRacesOnDevice() ? Find(handle) : nullptr;
  if (!exec) return;
  std::lock_guard lock(exec->mutex);
  Disable(handle, *exec, "graphs of which a child graph was replaced");
}

void RacesGraphExecDestroyed(CUgraphExec handle) {
  if (!ChecksRacesOnDevice()) return;
  ExecPointer exec;
  {
    Execs& execs = TheExecs();
    std::lock_guard lock(execs.mutex);
    const auto found = execs.by_handle.find(handle);
    if (found == execs.by_handle.end()) return;
    exec = std::move(found->second);
    execs.by_handle.erase(found);
  }
  Release(exec->graph);
}

GraphEnd RacesGraphDestroyed(CUgraph graph) {
  if (!ChecksRacesOnDevice()) return GraphEnd::kNow;
  Execs& execs = TheExecs();
  std::lock_guard lock(execs.mutex);
  const auto found = execs.graphs.find(graph);
  if (found == execs.graphs.end()) return GraphEnd::kNow;
  return std::exchange(found->second.destroyed, true) ? GraphEnd::kKeptAlready : GraphEnd::kKept;
}

void RacesGraphNodeDestroyed(CUgraphNode node) {
  if (!ChecksRacesOnDevice()) return;
  std::vector<std::pair<CUgraphExec, ExecPointer>> all;
  {
    Execs& execs = TheExecs();
    std::lock_guard lock(execs.mutex);
    all.assign(execs.by_handle.begin(), execs.by_handle.end());
  }
  for (const auto& [handle, exec] : all) {
    std::lock_guard lock(exec->mutex);
    for (Node& each : exec->nodes) {
      if (each.place.node != node) continue;
      SetLaunch(handle, each, RaceLaunch{});
      each.function = nullptr;
    }
  }
}

void TakeTicketsFromGraph(CUgraphExec handle) {
  const ExecPointer exec = ChecksRacesOnDevice() ? Find(handle) : nullptr;
  if (!exec) return;
  std::lock_guard lock(exec->mutex);
  TakeTickets(handle, *exec);
}

std::unique_lock<std::mutex> GiveTicketsToGraph(CUgraphExec handle, ContextState& context,
                                                const OrderedWork* work) {
  const ExecPointer exec = context.races ? Find(handle) : nullptr;
  if (!exec) return {};
  std::lock_guard exec_lock(exec->mutex);
  if (!exec->checked) return {};
  static const shadow::KernelPlan kNothingChecked;
  std::vector<shadow::LaunchParameters> parameters;
  std::vector<RaceRequest> requests;
  parameters.reserve(exec->nodes.size());
  for (const Node& node : exec->nodes) {
    RaceRequest& request = requests.emplace_back();
    request.plan = &kNothingChecked;
    const CUcontext runs_in = node.settings.context ? node.settings.context
                              : node.function       ? node.function->context
                                                    : nullptr;
    if (!node.function || (runs_in && runs_in != context.context)) continue;
    request.plan = &node.plan();
    request.parameters =
        &parameters.emplace_back(std::span(node.values).first(node.plan().launch_parameter_offset));
    request.module = node.function->module.get();
    request.twin = node.settings.function ? node.settings.function
                                          : reinterpret_cast<CUfunction>(node.settings.kernel);
    request.grid = node.settings.grid;
    request.block = node.settings.block;
    request.dynamic_shared_bytes = node.settings.dynamic_shared_bytes;
    request.launch_id = node.launch_id;
    request.order = work && work->active() ? &work->operation() : nullptr;
    request.beside = node.place.beside;
    request.in_parallel = node.place.in_parallel;
  }
  std::vector<RaceLaunch> launches(requests.size());
  std::unique_lock lock =
      context.races->PrepareGraph(requests, work && work->active() ? work->token() : 0, launches);
  const InternalCalls calls(context);
  for (size_t i = 0; i < launches.size(); i++) SetLaunch(handle, exec->nodes[i], launches[i]);
  return lock;
}

}  // namespace ops_debug::interposer
