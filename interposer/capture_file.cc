// Encodes a capture with protozero. The file is written under another name first.
#include "interposer/capture_file.h"

#include <sys/resource.h>

#include <cerrno>
#include <cstdio>
#include <protozero/pbf_builder.hpp>

#include "interposer/capture_fields.h"
#include "interposer/files.h"

namespace ops_debug::interposer {
namespace {

namespace tags = proto_fields;
using protozero::pbf_builder;

void Encode(pbf_builder<tags::Capture>& out, const CapturedModule& module) {
  using F = tags::CaptureModule;
  pbf_builder<F> part(out, tags::Capture::kModules);
  part.add_uint64(F::kModuleId, module.id);
  part.add_bytes(F::kPtx, module.ptx);
  for (const CapturedVariable& variable : module.variables) {
    using V = tags::CaptureVariable;
    pbf_builder<V> entry(part, F::kVariables);
    entry.add_string(V::kName, variable.name);
    entry.add_uint64(V::kAddress, variable.address);
    entry.add_bytes(V::kContent, variable.content);
  }
}

void Encode(pbf_builder<tags::Capture>& out, const CapturedMemory& memory) {
  using F = tags::CaptureMemory;
  pbf_builder<F> part(out, tags::Capture::kMemory);
  part.add_uint64(F::kAddress, memory.address);
  part.add_bytes(F::kContent, memory.content);
  for (const CapturedRange& range : memory.unwritten) {
    pbf_builder<tags::CaptureRange> entry(part, F::kUnwritten);
    entry.add_uint64(tags::CaptureRange::kOffset, range.offset);
    entry.add_uint64(tags::CaptureRange::kSize, range.size);
  }
  part.add_bool(F::kHost, memory.host);
}

void Put(pbf_builder<tags::CaptureLaunch>& out, tags::CaptureLaunch tag, const Dim3& value) {
  pbf_builder<tags::CaptureDim> part(out, tag);
  part.add_uint32(tags::CaptureDim::kX, value.x);
  part.add_uint32(tags::CaptureDim::kY, value.y);
  part.add_uint32(tags::CaptureDim::kZ, value.z);
}

void Encode(pbf_builder<tags::Capture>& out, const CapturedLaunch& launch) {
  using F = tags::CaptureLaunch;
  const LaunchDescription& description = launch.description.launch;
  pbf_builder<F> part(out, tags::Capture::kLaunches);
  part.add_uint64(F::kLaunchId, description.launch_id);
  part.add_uint64(F::kModuleId, launch.description.module_id);
  part.add_string(F::kKernel, description.kernel);
  Put(part, F::kGrid, description.grid);
  Put(part, F::kBlock, description.block);
  if (launch.cluster.x != 0) Put(part, F::kCluster, launch.cluster);
  part.add_uint32(F::kDynamicSharedBytes, description.dynamic_shared_bytes);
  part.add_bytes(F::kParameters, launch.parameters);
  part.add_bool(F::kCooperative, launch.cooperative);
  part.add_bool(F::kProgrammatic, launch.programmatic);
  part.add_bool(F::kAfterAll, true);  // one stream
}

void Encode(pbf_builder<tags::Capture>& out, const TensorMapRecord& map) {
  using F = tags::CaptureTensorMap;
  pbf_builder<F> part(out, tags::Capture::kTensorMaps);
  part.add_bytes(F::kOpaque, reinterpret_cast<const char*>(map.opaque.data()), map.opaque.size());
  part.add_uint32(F::kDataType, map.data_type);
  part.add_uint32(F::kRank, map.rank);
  part.add_uint64(F::kAddress, map.address);
  part.add_packed_uint64(F::kGlobalDim, map.global_dim.begin(), map.global_dim.end());
  part.add_packed_uint64(F::kGlobalStrides, map.global_strides.begin(), map.global_strides.end());
  part.add_packed_uint32(F::kBoxDim, map.box_dim.begin(), map.box_dim.end());
  part.add_packed_uint32(F::kElementStrides, map.element_strides.begin(),
                         map.element_strides.end());
  part.add_uint32(F::kInterleave, map.interleave);
  part.add_uint32(F::kSwizzle, map.swizzle);
  part.add_uint32(F::kL2Promotion, map.l2_promotion);
  part.add_uint32(F::kOobFill, map.oob_fill);
}

size_t SizeOf(const Capture& capture) {
  size_t bytes = 1 << 16;
  for (const CapturedModule& module : capture.modules) {
    bytes += module.ptx.size();
    for (const CapturedVariable& variable : module.variables) bytes += variable.content.size();
  }
  for (const CapturedMemory& memory : capture.memory)
    bytes += memory.content.size() + 24 * memory.unwritten.size() + 64;
  return bytes;
}

}  // namespace

bool WriteCapture(const Capture& capture, const std::string& path, uint64_t* bytes, int* error) {
  std::string encoded;
  encoded.reserve(SizeOf(capture));
  pbf_builder<tags::Capture> out(encoded);
  out.add_string(tags::Capture::kModel, capture.model);
  for (const CapturedModule& module : capture.modules) Encode(out, module);
  for (const CapturedMemory& memory : capture.memory) Encode(out, memory);
  for (const CapturedLaunch& launch : capture.launches) Encode(out, launch);
  for (const TensorMapRecord& map : capture.tensor_maps) Encode(out, map);
  // Beyond its limit a write raises a signal that ends the program.
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < encoded.size()) {
    *error = EFBIG;
    return false;
  }
  *bytes = encoded.size();
  const std::string unfinished = path + ".unfinished";
  if (!WriteWholeFile(unfinished, encoded, error)) {
    std::remove(unfinished.c_str());
    return false;
  }
  if (std::rename(unfinished.c_str(), path.c_str()) == 0) return true;
  *error = errno;
  std::remove(unfinished.c_str());
  return false;
}

}  // namespace ops_debug::interposer
