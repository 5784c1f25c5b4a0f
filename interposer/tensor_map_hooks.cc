// Remembers what tensor maps were made from, by the bytes that they became. A program makes few and
// uses them often; of one that makes them for each launch, the latest are kept.
#include <algorithm>
#include <cstring>
#include <deque>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "interposer/hooks.h"
#include "interposer/session.h"
#include "interposer/tensor_maps.h"

namespace ops_debug::interposer {
namespace {

constexpr size_t kMostRemembered = 16384;
constexpr uint32_t kMaxRank = 5;

// The first words of a map hold its address: maps that share them are few.
using FirstWords = std::array<uint64_t, 2>;
struct HashFirstWords {
  size_t operator()(const FirstWords& words) const {
    return static_cast<size_t>(words[0] * 0x9e3779b97f4a7c15u ^ words[1]);
  }
};
FirstWords FirstWordsOf(const void* opaque) {
  FirstWords words;
  std::memcpy(words.data(), opaque, sizeof words);
  return words;
}

// Never destroyed: hooks run until the very end of the process.
struct TensorMaps {
  std::mutex mutex;
  std::unordered_multimap<FirstWords, TensorMapRecord, HashFirstWords> by_words;
  std::deque<FirstWords> order;  // oldest first
};
TensorMaps& TheTensorMaps() {
  static auto* maps = new TensorMaps;
  return *maps;
}

bool Remembers() { return !Options().replay_folder.empty(); }

void Remember(const CUtensorMap* made, TensorMapRecord record) {
  std::memcpy(record.opaque.data(), made->opaque, kTensorMapBytes);
  const FirstWords words = FirstWordsOf(made->opaque);
  TensorMaps& maps = TheTensorMaps();
  std::lock_guard lock(maps.mutex);
  const auto [begin, end] = maps.by_words.equal_range(words);
  for (auto at = begin; at != end; ++at) {
    if (at->second.opaque == record.opaque) {
      at->second = std::move(record);
      return;
    }
  }
  maps.by_words.emplace(words, std::move(record));
  maps.order.push_back(words);
  if (maps.order.size() <= kMostRemembered) return;
  if (const auto oldest = maps.by_words.find(maps.order.front()); oldest != maps.by_words.end())
    maps.by_words.erase(oldest);
  maps.order.pop_front();
}

}  // namespace

void FindTensorMaps(std::span<const char> bytes, uint64_t address, size_t alignment,
                    std::vector<TensorMapRecord>* maps) {
  TensorMaps& all = TheTensorMaps();
  std::lock_guard lock(all.mutex);
  if (all.by_words.empty()) return;
  std::unordered_set<uint64_t> first;
  for (const auto& [words, record] : all.by_words) first.insert(words[0]);
  const size_t skip = (alignment - address % alignment) % alignment;
  for (size_t at = skip; at + kTensorMapBytes <= bytes.size(); at += alignment) {
    const FirstWords words = FirstWordsOf(bytes.data() + at);
    if (!first.contains(words[0])) continue;
    const auto [begin, end] = all.by_words.equal_range(words);
    for (auto found = begin; found != end; ++found) {
      const TensorMapRecord& record = found->second;
      if (std::memcmp(record.opaque.data(), bytes.data() + at, kTensorMapBytes) != 0) continue;
      const bool known = std::any_of(maps->begin(), maps->end(), [&](const TensorMapRecord& other) {
        return other.opaque == record.opaque;
      });
      if (!known) maps->push_back(record);
    }
  }
}

OPS_DEBUG_HOOK(cuTensorMapEncodeTiled, CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank,
               void* address, const cuuint64_t* sizes, const cuuint64_t* strides,
               const cuuint32_t* box, const cuuint32_t* element_strides,
               CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
               CUtensorMapL2promotion l2_promotion, CUtensorMapFloatOOBfill fill) {
  const CUresult result = real(map, type, rank, address, sizes, strides, box, element_strides,
                               interleave, swizzle, l2_promotion, fill);
  if (result != CUDA_SUCCESS || !Remembers() || rank == 0 || rank > kMaxRank) return result;
  TensorMapRecord record{.api = "cuTensorMapEncodeTiled",
                         .tiled = true,
                         .data_type = static_cast<uint32_t>(type),
                         .rank = rank,
                         .address = reinterpret_cast<uintptr_t>(address),
                         .global_dim = {sizes, sizes + rank},
                         .box_dim = {box, box + rank},
                         .element_strides = {element_strides, element_strides + rank},
                         .interleave = static_cast<uint32_t>(interleave),
                         .swizzle = static_cast<uint32_t>(swizzle),
                         .l2_promotion = static_cast<uint32_t>(l2_promotion),
                         .oob_fill = static_cast<uint32_t>(fill)};
  if (rank > 1) record.global_strides.assign(strides, strides + rank - 1);
  Remember(map, std::move(record));
  return result;
}

OPS_DEBUG_HOOK(cuTensorMapEncodeIm2col, CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank,
               void* address, const cuuint64_t* sizes, const cuuint64_t* strides, const int* lower,
               const int* upper, cuuint32_t channels, cuuint32_t pixels,
               const cuuint32_t* element_strides, CUtensorMapInterleave interleave,
               CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2_promotion,
               CUtensorMapFloatOOBfill fill) {
  const CUresult result = real(map, type, rank, address, sizes, strides, lower, upper, channels,
                               pixels, element_strides, interleave, swizzle, l2_promotion, fill);
  if (result == CUDA_SUCCESS && Remembers()) {
    Remember(map, {.api = "cuTensorMapEncodeIm2col",
                   .rank = rank,
                   .address = reinterpret_cast<uintptr_t>(address)});
  }
  return result;
}

OPS_DEBUG_HOOK(cuTensorMapEncodeIm2colWide, CUtensorMap* map, CUtensorMapDataType type,
               cuuint32_t rank, void* address, const cuuint64_t* sizes, const cuuint64_t* strides,
               int lower, int upper, cuuint32_t channels, cuuint32_t pixels,
               const cuuint32_t* element_strides, CUtensorMapInterleave interleave,
               CUtensorMapIm2ColWideMode mode, CUtensorMapSwizzle swizzle,
               CUtensorMapL2promotion l2_promotion, CUtensorMapFloatOOBfill fill) {
  const CUresult result =
      real(map, type, rank, address, sizes, strides, lower, upper, channels, pixels,
           element_strides, interleave, mode, swizzle, l2_promotion, fill);
  if (result == CUDA_SUCCESS && Remembers()) {
    Remember(map, {.api = "cuTensorMapEncodeIm2colWide",
                   .rank = rank,
                   .address = reinterpret_cast<uintptr_t>(address)});
  }
  return result;
}

OPS_DEBUG_HOOK(cuTensorMapReplaceAddress, CUtensorMap* map, void* address) {
  std::vector<TensorMapRecord> before;
  if (map && Remembers()) {
    FindTensorMaps({reinterpret_cast<const char*>(map->opaque), kTensorMapBytes}, 0,
                   kTensorMapBytes, &before);
  }
  const CUresult result = real(map, address);
  if (result == CUDA_SUCCESS && !before.empty()) {
    before.front().address = reinterpret_cast<uintptr_t>(address);
    Remember(map, std::move(before.front()));
  }
  return result;
}

}  // namespace ops_debug::interposer
