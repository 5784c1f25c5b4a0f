// A small caching allocator that behaves like PyTorch's where a checker can see it: first fit with
// splitting, a free list per stream, blocks that other streams use are kept until these have come
// so far, private memory for graphs, segments by cudaMalloc or by mapping one after the other.
#include <cuda.h>

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>

#include "torch_like.h"

namespace c10::cuda {
namespace {

constexpr size_t kRound = 512;
constexpr size_t kSegmentBytes = 2 << 20;

std::vector<cudaStream_t> streams{nullptr};
size_t current = 0;
bool use_graph_pool = false;

void Check(cudaError_t result) {
  if (result != cudaSuccess) throw std::runtime_error(cudaGetErrorString(result));
}
void Check(CUresult result) {
  if (result != CUDA_SUCCESS) throw std::runtime_error("driver call failed");
}

bool Captures(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  Check(cudaStreamIsCapturing(stream, &status));
  return status != cudaStreamCaptureStatusNone;
}

bool Done(cudaEvent_t event) {
  const cudaError_t result = cudaEventQuery(event);
  if (result == cudaErrorNotReady) {
    cudaGetLastError();  // no error, so nobody shall find it
    return false;
  }
  Check(result);
  return true;
}

struct Block {
  size_t bytes = 0;
  bool free = true;
  std::pair<cudaStream_t, bool> pool;  // stream, or private to graphs
  std::set<cudaStream_t> users;
  std::vector<cudaEvent_t> waits;
};

class Caching : public Allocator {
 public:
  explicit Caching(Segments segments) : segments_(segments) {}

  void* allocate(size_t bytes) override {
    const cudaStream_t stream = getCurrentCUDAStream(0).stream();
    const bool captures = Captures(stream);
    if (!captures) Reclaim();
    const size_t rounded = (bytes + kRound - 1) / kRound * kRound;
    const bool is_private = captures || use_graph_pool;
    const std::pair<cudaStream_t, bool> pool{is_private ? nullptr : stream, is_private};
    auto at = Fit(pool, rounded);
    if (at == blocks_.end()) {
      AddSegment(pool, (rounded + kSegmentBytes - 1) / kSegmentBytes * kSegmentBytes);
      at = Fit(pool, rounded);
    }
    Block& block = at->second;
    if (block.bytes > rounded) {
      Block rest;
      rest.bytes = block.bytes - rounded;
      rest.pool = pool;
      blocks_[at->first + rounded] = rest;
      block.bytes = rounded;
    }
    block.free = false;
    reportMemoryUsageToProfiler(reinterpret_cast<void*>(at->first),
                                static_cast<int64_t>(block.bytes), 0, 0, Device{});
    return reinterpret_cast<void*>(at->first);
  }

  void free(void* address) override {
    const auto at = blocks_.find(reinterpret_cast<uintptr_t>(address));
    Block& block = at->second;
    const auto bytes = static_cast<int64_t>(block.bytes);
    for (const cudaStream_t user : block.users) {
      cudaEvent_t event;
      Check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
      Check(cudaEventRecord(event, user));
      block.waits.push_back(event);
    }
    block.users.clear();
    if (block.waits.empty()) Release(at);
    reportMemoryUsageToProfiler(address, -bytes, 0, 0, Device{});
  }

  void Record(void* address, cudaStream_t stream) {
    blocks_.at(reinterpret_cast<uintptr_t>(address)).users.insert(stream);
  }

  void EmptyCache() {
    Check(cudaDeviceSynchronize());
    Reclaim();
    for (auto segment = owned_.begin(); segment != owned_.end();) {
      const auto at = blocks_.find(segment->first);
      const bool whole =
          at != blocks_.end() && at->second.free && at->second.bytes == segment->second;
      if (!whole || segments_ == Segments::kExpandable) {
        ++segment;
        continue;
      }
      Check(cudaFree(reinterpret_cast<void*>(segment->first)));
      blocks_.erase(at);
      segment = owned_.erase(segment);
    }
    if (segments_ == Segments::kExpandable) Unmap();
  }

 private:
  using Blocks = std::map<uintptr_t, Block>;

  Blocks::iterator Fit(const std::pair<cudaStream_t, bool>& pool, size_t bytes) {
    return std::find_if(blocks_.begin(), blocks_.end(), [&](const auto& entry) {
      return entry.second.free && entry.second.pool == pool && entry.second.bytes >= bytes;
    });
  }

  void AddSegment(const std::pair<cudaStream_t, bool>& pool, size_t bytes) {
    uintptr_t base = 0;
    if (segments_ == Segments::kMalloc) {
      // As PyTorch does it while a graph is captured.
      cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
      Check(cudaThreadExchangeStreamCaptureMode(&mode));
      Check(cudaMalloc(reinterpret_cast<void**>(&base), bytes));
      Check(cudaThreadExchangeStreamCaptureMode(&mode));
      owned_[base] = bytes;
    } else {
      base = Map(bytes);
    }
    Block block;
    block.bytes = bytes;
    block.pool = pool;
    const auto at = blocks_.emplace(base, block).first;
    if (segments_ == Segments::kExpandable) Release(at);  // joins the free block in front
  }

  uintptr_t Map(size_t bytes) {
    if (reserved_ == 0) Check(cuMemAddressReserve(&reserved_, 64 * kSegmentBytes, 0, 0, 0));
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUmemGenericAllocationHandle handle;
    Check(cuMemCreate(&handle, bytes, &properties, 0));
    const CUdeviceptr address = reserved_ + mapped_;
    Check(cuMemMap(address, bytes, 0, handle, 0));
    CUmemAccessDesc access{};
    access.location = properties.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    Check(cuMemSetAccess(address, bytes, &access, 1));
    handles_.push_back({address, bytes, handle});
    mapped_ += bytes;
    return address;
  }

  // From the end, as far as nothing lives there.
  void Unmap() {
    while (!handles_.empty()) {
      const auto [address, bytes, handle] = handles_.back();
      auto at = std::prev(blocks_.upper_bound(address));
      if (!at->second.free || at->first + at->second.bytes != address + bytes) return;
      if (at->first < address) {
        at->second.bytes = address - at->first;
      } else {
        blocks_.erase(at);
      }
      Check(cuMemUnmap(address, bytes));
      Check(cuMemRelease(handle));
      mapped_ -= bytes;
      handles_.pop_back();
    }
  }

  void Release(Blocks::iterator at) {
    at->second.free = true;
    const auto joins = [](Blocks::iterator low, Blocks::iterator high) {
      return low->second.free && high->second.free && low->second.pool == high->second.pool &&
             low->second.waits.empty() && high->second.waits.empty() &&
             low->first + low->second.bytes == high->first;
    };
    if (const auto next = std::next(at); next != blocks_.end() && joins(at, next)) {
      at->second.bytes += next->second.bytes;
      blocks_.erase(next);
    }
    if (at != blocks_.begin()) {
      const auto before = std::prev(at);
      if (joins(before, at)) {
        before->second.bytes += at->second.bytes;
        blocks_.erase(at);
      }
    }
  }

  void Reclaim() {
    for (auto at = blocks_.begin(); at != blocks_.end(); ++at) {
      auto& waits = at->second.waits;
      if (waits.empty() ||
          !std::all_of(waits.begin(), waits.end(), [](cudaEvent_t event) { return Done(event); })) {
        continue;
      }
      waits.clear();
      Release(at);
      at = blocks_.begin();
    }
  }

  struct Mapping {
    CUdeviceptr address;
    size_t bytes;
    CUmemGenericAllocationHandle handle;
  };
  const Segments segments_;
  Blocks blocks_;
  std::map<uintptr_t, size_t> owned_;
  CUdeviceptr reserved_ = 0;
  size_t mapped_ = 0;
  std::vector<Mapping> handles_;
};

Caching* the_allocator = nullptr;

}  // namespace

cudaStream_t CUDAStream::stream() const { return streams[static_cast<size_t>(id_)]; }
CUDAStream getCurrentCUDAStream(int8_t) { return CUDAStream(static_cast<int64_t>(current)); }
void SetCurrentStream(cudaStream_t stream) {
  const auto found = std::find(streams.begin(), streams.end(), stream);
  current = static_cast<size_t>(found - streams.begin());
  if (found == streams.end()) streams.push_back(stream);
}
Allocator* CachingAllocator(Segments segments) {
  if (!the_allocator) the_allocator = new Caching(segments);
  return the_allocator;
}
void RecordStream(void* address, cudaStream_t stream) { the_allocator->Record(address, stream); }
void UseGraphPool(bool on) { use_graph_pool = on; }
void EmptyCache() { the_allocator->EmptyCache(); }

}  // namespace c10::cuda
