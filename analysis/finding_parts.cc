// Field by field (finding_parts.h).
#include "analysis/finding_parts.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <filesystem>

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

// Where toolkits keep their headers: targets/x86_64-linux/include, cuda-13.0/include, and the
// wheels' nvidia/cu13/include.
bool IsToolkitHeader(const std::string& written) {
  // nvcc writes the way from its own folder: toolkit/bin/../include/...
  const std::string path = std::filesystem::path(written).lexically_normal().string();
  const size_t include = path.rfind("/include/");
  if (include == std::string::npos) return false;
  const std::string root = path.substr(0, include);
  const std::string folder = root.substr(root.rfind('/') + 1);
  return root.find("/targets/") != std::string_view::npos || folder.starts_with("cuda") ||
         root.find("/nvidia/cu") != std::string_view::npos || folder == "toolkit";
}

// An author looks for the own line, not for the one in the toolkit that it led to.
void SetToolkitFramesApart(CodePlace& place) {
  const auto own =
      std::find_if(place.frames.begin(), place.frames.end(),
                   [](const SourceLocation& frame) { return !IsToolkitHeader(frame.file); });
  if (own == place.frames.end()) return;
  place.toolkit_frames.assign(place.frames.begin(), own);
  place.frames.erase(place.frames.begin(), own);
}

}  // namespace

Extent3 ToExtent(const proto::Dim3& dim) { return {dim.x(), dim.y(), dim.z()}; }

const char* AccessName(proto::AccessKind kind) {
  switch (kind) {
    case proto::ACCESS_KIND_LOAD:
      return "load";
    case proto::ACCESS_KIND_STORE:
      return "store";
    case proto::ACCESS_KIND_ATOMIC:
      return "atomic";
    default:
      return "";
  }
}

const char* SpaceName(proto::AddressSpace space) {
  switch (space) {
    case proto::ADDRESS_SPACE_GLOBAL:
      return "global";
    case proto::ADDRESS_SPACE_SHARED:
      return "shared";
    case proto::ADDRESS_SPACE_LOCAL:
      return "local";
    case proto::ADDRESS_SPACE_GENERIC:
      return "generic";
    default:
      return "";
  }
}

CodePlace ToCodePlace(const proto::Site& site, const std::string& mangled_kernel) {
  CodePlace place;
  place.kernel = Demangle(mangled_kernel.empty() ? site.function() : mangled_kernel);
  const std::string function = Demangle(site.function());
  if (function != place.kernel) place.function = function;
  for (const proto::SourceFrame& frame : site.frames()) {
    place.frames.push_back(
        {Demangle(frame.function()), frame.file(), frame.line(), frame.column()});
  }
  SetToolkitFramesApart(place);
  return place;
}

void SetPlace(CodePlace place, const proto::Site& site, Finding& finding) {
  finding.kernel = std::move(place.kernel);
  finding.function = std::move(place.function);
  finding.frames = std::move(place.frames);
  finding.toolkit_frames = std::move(place.toolkit_frames);
  finding.instruction = site.instruction();
  finding.ptx_line = site.ptx_line();
  finding.access = AccessName(site.access());
  finding.space = SpaceName(site.space());
  finding.access_bytes = site.access_bytes();
  if (!site.variable().empty()) {
    finding.array = ArrayInfo{Demangle(site.variable()), site.variable_bytes()};
  }
}

void AddToKey(const std::vector<SourceLocation>& frames, std::string& key) {
  for (const SourceLocation& frame : frames) {
    key += frame.file + ':' + std::to_string(frame.line) + '\0';
  }
}

void AddToKey(const std::vector<HostFrame>& stack, const std::vector<PythonFrame>& python_stack,
              std::string& key) {
  for (const PythonFrame& frame : python_stack) {
    key += frame.file + ':' + std::to_string(frame.line) + '\0';
  }
  for (const HostFrame& frame : stack) {
    key += frame.line > 0 ? frame.file + ':' + std::to_string(frame.line)
                          : frame.module + '+' + std::to_string(frame.module_offset);
    key += '\0';
  }
}

std::string PlaceKey(const CodePlace& place, const proto::Site& site) {
  std::string key = place.kernel + '\0' + place.function + '\0';
  AddToKey(place.frames, key);
  if (place.frames.empty()) key += std::to_string(site.ptx_line()) + ' ' + site.instruction();
  return key;
}

bool IsKnown(const proto::Launch& launch) {
  return launch.launch_id() != 0 || launch.grid().x() != 0 || launch.stack().frames_size() != 0;
}

std::string ShortPlace(const std::vector<SourceLocation>& frames, uint32_t ptx_line) {
  if (frames.empty()) return ptx_line > 0 ? "PTX line " + std::to_string(ptx_line) : "";
  const SourceLocation& frame = frames.front();
  return frame.file.substr(frame.file.rfind('/') + 1) + ':' + std::to_string(frame.line);
}

std::string ShortVariable(const std::string& demangled) {
  const size_t scope = demangled.rfind("::");
  return scope == std::string::npos ? demangled : demangled.substr(scope + 2);
}

std::string ByteCount(uint64_t count) {
  return std::to_string(count) + (count == 1 ? " byte" : " bytes");
}

std::string MemoryPlace(uint64_t address, const std::string& space,
                        const std::optional<AllocationInfo>& allocation) {
  if (space == "shared" || space == "local") {
    return "byte " + std::to_string(address) + " of " + space + " memory";
  }
  char text[32];
  std::snprintf(text, sizeof(text), "0x%" PRIx64, address);
  if (!allocation || address < allocation->address ||
      address - allocation->address >= allocation->size_bytes) {
    return "address " + std::string(text);
  }
  const std::string offset = "byte " + std::to_string(address - allocation->address) + " of ";
  if (!allocation->name.empty()) return offset + "variable " + allocation->name;
  const std::string size = " (" + ByteCount(allocation->size_bytes) + ")";
  if (allocation->tensor) {
    const TensorInfo& tensor = *allocation->tensor;
    return offset +
           (tensor.name.empty() ? "a block of " + tensor.framework : "tensor " + tensor.name) +
           size;
  }
  return offset + "allocation #" + std::to_string(allocation->id) + size;
}

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

void AddLaunchToRelated(Finding& finding) {
  if (!finding.launch) return;
  const LaunchInfo& launch = *finding.launch;
  AddRelated(launch.stack, launch.python_stack,
             launch.graph_node ? "the kernel became a node of a graph here"
                               : "the kernel was launched here",
             finding.related);
}

}  // namespace ops_debug::analysis
