// See capture.h.
#include "replayer/capture.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <limits>
#include <set>
#include <string_view>
#include <utility>

#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl.h"

namespace ops_debug::replayer {
namespace {

constexpr uint64_t kPageBytes = 4096;
constexpr uint64_t kAddressSpaceBytes = 1ull << 47;
constexpr size_t kTensorMapBytes = 128;
constexpr uint32_t kMaxRank = 5;

Outcome Damaged(std::string reason) {
  return {OutcomeKind::kDamaged, "the capture is damaged: " + std::move(reason)};
}

std::string Hex(uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof(text), "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

bool IsShape(const proto::CaptureDim& dim) { return dim.x() != 0 && dim.y() != 0 && dim.z() != 0; }

// What lies at an address: blocks and variables.
std::vector<AddressRange> Places(const proto::Capture& capture) {
  std::vector<AddressRange> places;
  for (const proto::CaptureMemory& memory : capture.memory())
    places.push_back({memory.address(), memory.address() + memory.content().size()});
  for (const proto::CaptureModule& module : capture.modules()) {
    for (const proto::CaptureVariable& variable : module.variables())
      places.push_back({variable.address(), variable.address() + variable.content().size()});
  }
  std::sort(places.begin(), places.end(),
            [](const AddressRange& a, const AddressRange& b) { return a.begin < b.begin; });
  return places;
}

Outcome CheckPlaces(const proto::Capture& capture) {
  uint64_t end = 0;
  for (const AddressRange& place : Places(capture)) {
    if (place.begin < kPageBytes || place.end <= place.begin || place.end > kAddressSpaceBytes)
      return Damaged("no memory of a process can lie at " + Hex(place.begin));
    if (place.begin < end) return Damaged("two blocks of memory hold " + Hex(place.begin));
    end = place.end;
  }
  return {};
}

Outcome CheckUnwritten(const proto::CaptureMemory& memory) {
  uint64_t end = 0;
  for (const proto::CaptureRange& range : memory.unwritten()) {
    if (range.offset() < end || range.offset() > memory.content().size() ||
        range.size() > memory.content().size() - range.offset())
      return Damaged("unwritten bytes outside of their block at " + Hex(memory.address()));
    end = range.offset() + range.size();
  }
  return {};
}

Outcome CheckLaunch(const proto::Capture& capture, int index, const std::set<uint64_t>& modules) {
  const proto::CaptureLaunch& launch = capture.launches(index);
  if (!modules.contains(launch.module_id())) {
    return Damaged("the module of kernel " + launch.kernel() + " is missing");
  }
  if (!IsShape(launch.grid()) || !IsShape(launch.block()) ||
      (launch.has_cluster() && !IsShape(launch.cluster())))
    return Damaged("the launch of " + launch.kernel() + " has no shape");
  for (const uint32_t before : launch.after()) {
    if (before >= static_cast<uint32_t>(index))
      return Damaged("the launch of " + launch.kernel() + " comes after a later one");
  }
  return {};
}

Outcome CheckTensorMap(const proto::CaptureTensorMap& map) {
  const int rank = static_cast<int>(map.rank());
  if (map.opaque().size() != kTensorMapBytes || map.rank() == 0 || map.rank() > kMaxRank ||
      map.global_dim_size() != rank || map.global_strides_size() != rank - 1 ||
      map.box_dim_size() != rank || map.element_strides_size() != rank)
    return Damaged("a tensor map of " + Hex(map.address()) + " is not complete");
  return {};
}

}  // namespace

Outcome CheckCapture(const proto::Capture& capture) {
  if (capture.launches().empty()) return Damaged("it holds no launch");
  std::set<uint64_t> modules;
  for (const proto::CaptureModule& module : capture.modules()) modules.insert(module.module_id());
  for (int i = 0; i < capture.launches_size(); ++i) {
    if (Outcome outcome = CheckLaunch(capture, i, modules); !outcome.ok()) return outcome;
  }
  for (const proto::CaptureMemory& memory : capture.memory()) {
    if (Outcome outcome = CheckUnwritten(memory); !outcome.ok()) return outcome;
  }
  for (const proto::CaptureTensorMap& map : capture.tensor_maps()) {
    if (Outcome outcome = CheckTensorMap(map); !outcome.ok()) return outcome;
  }
  return CheckPlaces(capture);
}

Outcome ReadCapture(const std::string& path, proto::Capture* capture) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return {OutcomeKind::kDamaged, "the capture cannot be read: " + path};
  google::protobuf::io::IstreamInputStream stream(&file, 1 << 20);
  google::protobuf::io::CodedInputStream coded(&stream);
  coded.SetTotalBytesLimit(std::numeric_limits<int>::max());
  if (!capture->ParseFromCodedStream(&coded) || !coded.ConsumedEntireMessage())
    return Damaged("it does not end where it should, or holds more than 2 GiB");
  return CheckCapture(*capture);
}

std::vector<AddressRange> PagesOf(const proto::Capture& capture) {
  std::vector<AddressRange> pages;
  for (const AddressRange& place : Places(capture)) {
    const uint64_t begin = place.begin & ~(kPageBytes - 1);
    const uint64_t end = (place.end + kPageBytes - 1) & ~(kPageBytes - 1);
    if (pages.empty() || pages.back().end < begin) {
      pages.push_back({begin, end});
    } else {
      pages.back().end = std::max(pages.back().end, end);
    }
  }
  return pages;
}

}  // namespace ops_debug::replayer
