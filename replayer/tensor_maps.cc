// See tensor_maps.h. PTX wants tensor maps at multiples of 64 bytes (PTX ISA 9.0, section 5.5.8),
// so there are few places to look at.
#include "replayer/tensor_maps.h"

#include <cstring>

namespace ops_debug::replayer {
namespace {

constexpr uint64_t kTensorMapBytes = 128;

// Of the words that differ between maps: address, sizes, strides lie in the first half.
uint64_t KeyOf(const char* opaque) {
  uint64_t key = 0;
  for (size_t at = 0; at < kTensorMapBytes / 2; at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, opaque + at, sizeof(word));
    key = (key ^ word) * 0x9e37'79b9'7f4a'7c15ull;
    key ^= key >> 29;
  }
  return key;
}

}  // namespace

TensorMaps::TensorMaps(const Driver& driver, const proto::Capture& capture)
    : driver_(driver),
      capture_(capture),
      encoded_(static_cast<size_t>(capture.tensor_maps_size())) {
  for (int i = 0; i < capture.tensor_maps_size(); ++i)
    index_.emplace(KeyOf(capture.tensor_maps(i).opaque().data()), static_cast<size_t>(i));
}

Outcome TensorMaps::Replace(uint64_t address, uint64_t alignment, std::string* bytes) {
  if (index_.empty()) return {};
  for (uint64_t at = (0 - address) % alignment;
       at <= bytes->size() && bytes->size() - at >= kTensorMapBytes;) {
    const char* const place = bytes->data() + at;
    uint64_t step = alignment;
    const auto [first, last] = index_.equal_range(KeyOf(place));
    for (auto it = first; it != last; ++it) {
      const std::string& opaque = capture_.tensor_maps(static_cast<int>(it->second)).opaque();
      if (std::memcmp(place, opaque.data(), kTensorMapBytes) != 0) continue;
      if (Outcome outcome = Encode(it->second); !outcome.ok()) return outcome;
      bytes->replace(at, kTensorMapBytes, encoded_[it->second]);
      step = kTensorMapBytes;
      break;
    }
    at += step;
  }
  return {};
}

Outcome TensorMaps::Encode(size_t index) {
  std::string& encoded = encoded_[index];
  if (!encoded.empty()) return {};
  const proto::CaptureTensorMap& map = capture_.tensor_maps(static_cast<int>(index));
  const std::vector<cuuint64_t> sizes(map.global_dim().begin(), map.global_dim().end());
  const std::vector<cuuint64_t> strides(map.global_strides().begin(), map.global_strides().end());
  CUtensorMap result{};
  const CUresult status = driver_.cuTensorMapEncodeTiled(
      &result, static_cast<CUtensorMapDataType>(map.data_type()), map.rank(),
      reinterpret_cast<void*>(map.address()), sizes.data(), strides.data(), map.box_dim().data(),
      map.element_strides().data(), static_cast<CUtensorMapInterleave>(map.interleave()),
      static_cast<CUtensorMapSwizzle>(map.swizzle()),
      static_cast<CUtensorMapL2promotion>(map.l2_promotion()),
      static_cast<CUtensorMapFloatOOBfill>(map.oob_fill()));
  if (status != CUDA_SUCCESS) {
    // It was made on another device, which knows more kinds of them.
    Outcome outcome = driver_.Failed("cuTensorMapEncodeTiled", status);
    outcome.kind = OutcomeKind::kUnsupported;
    outcome.reason = "the CPU device has no such tensor map: " + outcome.reason;
    return outcome;
  }
  encoded.assign(reinterpret_cast<const char*>(&result), sizeof(result));
  return {};
}

}  // namespace ops_debug::replayer
