// Every aligned word of the parameters may be a pointer. Sizes come from the rewritten kernel's
// plan or, for machine code, from the driver (cuFuncGetParamInfo, CUDA 12.4); where it cannot say,
// no release waits any longer. A large structure is a table that is rarely filled to its end, and
// holds what earlier launches left there (PyTorch's foreach kernels: 4 KiB): it is not read.
#include "interposer/launch_pointers.h"

#include <cstring>
#include <mutex>
#include <shared_mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "interposer/shadow_updates.h"

namespace ops_debug::interposer {
namespace {

constexpr uint32_t kLargestParameter = 1024;

struct Sizes {
  bool known = false;
  std::vector<uint32_t> bytes;  // one per parameter
};

Sizes AskDriver(const FunctionRecord& function, CUfunction handle) {
  Sizes sizes;
  if (const shadow::KernelPlan* plan = function.kernel->plan) {
    for (const ptx::ParameterLayout& parameter : plan->parameters) {
      sizes.bytes.push_back(parameter.size_bytes);
    }
    sizes.known = true;
    return sizes;
  }
  const bool is_kernel = function.context == nullptr;
  auto of_function = OPS_DEBUG_REAL(cuFuncGetParamInfo);
  auto of_kernel = OPS_DEBUG_REAL(cuKernelGetParamInfo);
  if (is_kernel ? !of_kernel : !of_function) return sizes;
  constexpr size_t kMaxParameters = 4096;
  for (size_t i = 0; i < kMaxParameters; i++) {
    size_t offset = 0, bytes = 0;
    const CUresult result = is_kernel
                                ? of_kernel(reinterpret_cast<CUkernel>(handle), i, &offset, &bytes)
                                : of_function(handle, i, &offset, &bytes);
    if (result == CUDA_ERROR_INVALID_VALUE) {  // behind the last one
      sizes.known = true;
      break;
    }
    if (result != CUDA_SUCCESS) break;
    sizes.bytes.push_back(static_cast<uint32_t>(bytes));
  }
  return sizes;
}

// By kernel record, which lives as long as its module; a record that takes the place of another has
// another module id.
struct Known {
  uint64_t module_id = 0;
  Sizes sizes;
};
struct KnownSizes {
  std::shared_mutex mutex;
  std::unordered_map<const KernelRecord*, Known> by_kernel;
};
KnownSizes& TheKnownSizes() {
  static auto* sizes = new KnownSizes;
  return *sizes;
}

const Sizes* SizesOf(const FunctionRecord& function, CUfunction handle, Sizes* storage) {
  KnownSizes& known = TheKnownSizes();
  const KernelRecord* kernel = function.kernel;
  {
    std::shared_lock lock(known.mutex);
    const auto found = known.by_kernel.find(kernel);
    if (found != known.by_kernel.end() && found->second.module_id == kernel->module_id) {
      return &found->second.sizes;  // entries are never erased, and replaced only for dead kernels
    }
  }
  *storage = AskDriver(function, handle);
  // Kernels of no module that we know share records of their own; their handles may differ.
  if (kernel->module_id != 0) {
    std::unique_lock lock(known.mutex);
    known.by_kernel[kernel] = {kernel->module_id, *storage};
  }
  return storage;
}

// Collects pointers into pools.
class Mentions {
 public:
  explicit Mentions(ShadowUpdates& updates) : updates_(updates) {}
  ~Mentions() { Flush(); }
  Mentions(const Mentions&) = delete;
  Mentions& operator=(const Mentions&) = delete;

  void Scan(const std::byte* bytes, size_t size) {
    for (; size >= sizeof(uint64_t); bytes += sizeof(uint64_t), size -= sizeof(uint64_t)) {
      uint64_t word;
      std::memcpy(&word, bytes, sizeof word);
      if (!updates_.MayHold(word)) continue;
      addresses_[count_++] = word;
      if (count_ == std::size(addresses_)) Flush();
    }
  }

 private:
  void Flush() {
    if (count_ != 0) updates_.Demand({addresses_, count_});
    count_ = 0;
  }

  ShadowUpdates& updates_;
  uint64_t addresses_[64];
  size_t count_ = 0;
};

}  // namespace

void PrepareShadow(ContextState& state, CUstream explicit_stream, const FunctionRecord& function,
                   const LaunchRequest& request) {
  ShadowUpdates& updates = *state.updates;
  std::span<const std::byte> packed;
  if (updates.patient()) {
    Mentions mentions(updates);
    Sizes storage;
    if (request.parameters) {
      const Sizes* sizes = SizesOf(function, request.handle, &storage);
      if (!sizes->known) updates.DemandAll();
      for (size_t i = 0; i < sizes->bytes.size() && request.parameters[i]; i++) {
        if (sizes->bytes[i] > kLargestParameter) continue;
        mentions.Scan(static_cast<const std::byte*>(request.parameters[i]), sizes->bytes[i]);
      }
    } else if (ReadExtra(request.extra, &packed)) {
      mentions.Scan(packed.data(), packed.size());
    }
  }
  updates.Apply(explicit_stream);
}

}  // namespace ops_debug::interposer
