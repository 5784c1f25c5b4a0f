// Field by field (finding_parts.h).
#include "analysis/finding_parts.h"

#include <algorithm>

#include "analysis/demangle.h"
#include "analysis/memory_words.h"

namespace ops_debug::analysis {
namespace {

// "float32[64, 256]".
std::string TensorName(const proto::Tensor& tensor) {
  if (tensor.dtype().empty() && tensor.shape().empty()) return "";
  std::string name = (tensor.dtype().empty() ? "tensor" : tensor.dtype()) + '[';
  for (int i = 0; i < tensor.shape_size(); ++i) {
    name += (i > 0 ? ", " : "") + std::to_string(tensor.shape(i));
  }
  return name + ']';
}

TensorInfo ToTensor(const proto::Tensor& tensor) {
  TensorInfo info;
  info.framework = tensor.framework().empty() ? "the framework" : tensor.framework();
  info.name = TensorName(tensor);
  info.dtype = tensor.dtype();
  info.shape.assign(tensor.shape().begin(), tensor.shape().end());
  info.allocation_stack = ToPythonStack(tensor.allocation_stack());
  info.free_stack = ToPythonStack(tensor.free_stack());
  info.segment_address = tensor.segment_address();
  info.segment_bytes = tensor.segment_bytes();
  return info;
}

}  // namespace

Extent3 ToExtent(const proto::Dim3& dim) { return {dim.x(), dim.y(), dim.z()}; }

std::vector<PythonFrame> ToPythonStack(const ProtoPythonStack& stack) {
  std::vector<PythonFrame> frames;
  frames.reserve(static_cast<size_t>(stack.size()));
  for (const proto::PythonFrame& frame : stack) {
    frames.push_back({frame.function(), frame.file(), frame.line()});
  }
  return frames;
}

LaunchInfo ToLaunch(const proto::Launch& launch, HostSymbolizer& symbolizer) {
  LaunchInfo info;
  info.number = launch.launch_id();
  info.grid = ToExtent(launch.grid());
  info.block = ToExtent(launch.block());
  info.dynamic_shared_bytes = launch.dynamic_shared_bytes();
  info.graph_node = launch.graph_node();
  info.stack = symbolizer.Resolve(launch.stack(), Demangle(launch.kernel()));
  info.python_stack = ToPythonStack(launch.python_stack());
  return info;
}

AllocationInfo ToAllocation(const proto::Allocation& allocation, uint64_t address,
                            uint64_t access_bytes, HostSymbolizer& symbolizer) {
  AllocationInfo info;
  info.id = allocation.id();
  info.address = allocation.address();
  info.size_bytes = allocation.size_bytes();
  info.api = allocation.api();
  info.name = Demangle(allocation.name());
  info.freed = allocation.freed();
  info.free_api = allocation.free_api();
  info.allocation_stack = symbolizer.Resolve(allocation.allocation_stack());
  info.free_stack = symbolizer.Resolve(allocation.free_stack());
  if (allocation.has_tensor()) info.tensor = ToTensor(allocation.tensor());
  if (access_bytes > 0) {
    const Place place = PlaceOf(address, access_bytes, info.address, info.size_bytes);
    info.placement = place.placement;
    info.distance_bytes = place.distance_bytes;
  }
  return info;
}

void AddRelated(const std::vector<HostFrame>& stack, const std::vector<PythonFrame>& python_stack,
                const std::string& message, std::vector<RelatedPlace>& related) {
  if (const PythonFrame* own = OwnFrame(python_stack)) {
    related.push_back({own->file, own->line, message});
    return;
  }
  const auto place = std::find_if(stack.begin(), stack.end(),
                                  [](const HostFrame& frame) { return frame.line > 0; });
  if (place != stack.end()) related.push_back({place->file, place->line, message});
}

void AddRelated(const AllocationInfo& allocation, std::vector<RelatedPlace>& related) {
  const bool tensor = allocation.tensor.has_value();
  const std::string name = tensor && !allocation.tensor->name.empty()
                               ? "tensor " + allocation.tensor->name
                               : "allocation #" + std::to_string(allocation.id);
  AddRelated(allocation.allocation_stack,
             tensor ? allocation.tensor->allocation_stack : std::vector<PythonFrame>(),
             name + " was made here", related);
  AddRelated(allocation.free_stack,
             tensor ? allocation.tensor->free_stack : std::vector<PythonFrame>(),
             name + " was freed here", related);
}

}  // namespace ops_debug::analysis
