// One function per kind of fault: it reads the finding's facts and writes what a colleague would
// say.
#include "analysis/memory_words.h"

#include <algorithm>

#include "shadow/abi/device_abi.h"

namespace ops_debug::analysis {
namespace {

std::string Bytes(uint64_t count) {
  return std::to_string(count) + (count == 1 ? " byte" : " bytes");
}

// "4-byte store"; "access" if neither width nor direction is known.
std::string AccessPhrase(const Finding& finding) {
  std::string verb = finding.access.empty() ? "access" : finding.access;
  if (finding.access == "atomic") verb = "atomic access";
  if (finding.access_bytes == 0) return verb;
  return std::to_string(finding.access_bytes) + "-byte " + verb;
}

bool IsKnownFreed(const AllocationInfo& allocation) {
  return allocation.freed && !allocation.free_order_unknown;
}

// "tensor float32[64, 256] (65536 bytes)"; a pool that knows of no tensors hands out blocks.
std::string TensorPhrase(const AllocationInfo& allocation) {
  const TensorInfo& tensor = *allocation.tensor;
  const std::string size = " (" + Bytes(allocation.size_bytes) + ")";
  return tensor.name.empty() ? "block of " + tensor.framework + "'s pool" + size
                             : "tensor " + tensor.name + size;
}

std::string BlockPhrase(const AllocationInfo& allocation) {
  if (!allocation.name.empty()) {
    return "variable " + allocation.name + " (" + Bytes(allocation.size_bytes) + ")";
  }
  if (allocation.tensor) {
    return (IsKnownFreed(allocation) ? "freed " : "") + TensorPhrase(allocation);
  }
  return std::to_string(allocation.size_bytes) + "-byte " +
         (IsKnownFreed(allocation) ? "freed allocation" : "allocation");
}

std::string Article(const AllocationInfo& allocation) {
  if (!allocation.name.empty()) return BlockPhrase(allocation);
  if (allocation.tensor) return "a " + BlockPhrase(allocation);
  // 8, 11, 18 and 80 to 89... begin with a vowel when spoken.
  const std::string digits = std::to_string(allocation.size_bytes);
  const size_t leading = (digits.size() - 1) % 3 + 1;
  const std::string group = digits.substr(0, leading);
  const bool vowel = group[0] == '8' || group == "11" || group == "18";
  return (vowel ? "an " : "a ") + BlockPhrase(allocation);
}

std::string ParameterPhrase(const Finding& finding) {
  if (!finding.parameter) return "the pointer";
  std::string text = "kernel parameter " + std::to_string(finding.parameter->index);
  if (!finding.parameter->type.empty()) text += " (" + finding.parameter->type + ")";
  return text;
}

std::string CapacityPhrase(const AllocationInfo& allocation, uint32_t access_bytes) {
  if (access_bytes == 0 || allocation.size_bytes < access_bytes) return "";
  return "it holds " + std::to_string(allocation.size_bytes / access_bytes) + " elements of " +
         Bytes(access_bytes);
}

// In a segment of a pool, where no tensor is.
void DescribePoolMemory(Finding& finding) {
  finding.kind = "oob-global";
  const AllocationInfo* near = finding.allocation ? &*finding.allocation : nullptr;
  const bool beside_tensor =
      near != nullptr && near->tensor && near->placement != Placement::kInside;
  finding.message = AccessPhrase(finding);
  if (beside_tensor) {
    finding.message += ' ' + DescribePlacement(*near) + ", in memory of " +
                       near->tensor->framework + "'s pool that holds no tensor now";
  } else {
    finding.message += " in memory of a pool that holds no tensor now";
    if (near != nullptr) finding.message += ", " + DescribePlacement(*near);
  }
  finding.advice =
      "bound the index before the access: the pool may give this memory to another tensor at any "
      "moment, whose values are then read or overwritten";
  if (beside_tensor) {
    const std::string capacity = CapacityPhrase(*near, finding.access_bytes);
    if (!capacity.empty()) finding.advice += "; " + capacity;
  }
}

void DescribeGlobal(Finding& finding) {
  finding.kind = "oob-global";
  const std::string access = AccessPhrase(finding);
  if (!finding.allocation) {
    finding.message = access + " outside every allocation";
    finding.advice = "check the address computation and where " + ParameterPhrase(finding) +
                     " comes from: no allocation of this process is near the address";
    return;
  }
  const AllocationInfo& allocation = *finding.allocation;
  if (finding.target_allocation) {
    const AllocationInfo& target = *finding.target_allocation;
    finding.message =
        access + " through a pointer into " + Article(allocation) + " (#" +
        std::to_string(allocation.id) + ") jumps into " + (target.freed ? "freed " : "live ") +
        (target.tensor
             ? TensorPhrase(target)
             : "allocation #" + std::to_string(target.id) + " (" + Bytes(target.size_bytes) + ")");
    finding.advice =
        "the index leaves the buffer by far: check its computation (stride, order of dimensions, "
        "32-bit "
        "overflow) and that the right buffer is passed as " +
        ParameterPhrase(finding);
    return;
  }
  finding.message = access + ' ' + DescribePlacement(allocation);
  const std::string capacity = CapacityPhrase(allocation, finding.access_bytes);
  if (allocation.placement == Placement::kBefore) {
    finding.advice = "check for a negative index or an offset that is subtracted twice";
  } else {
    finding.advice =
        "bound the index before the access (the last block or tile often reaches past the "
        "end), or allocate more";
    if (!capacity.empty()) finding.advice += "; " + capacity;
  }
}

void DescribeArray(Finding& finding, const char* kind, const char* memory) {
  finding.kind = kind;
  const std::string access = AccessPhrase(finding);
  const bool shared = finding.space == "shared";
  const uint64_t dynamic_bytes = finding.launch ? finding.launch->dynamic_shared_bytes : 0;
  if (finding.array && finding.array->size_bytes > 0) {
    const std::string& name = finding.array->name;
    finding.message = access + " outside the " + memory + " array " + name + " (" +
                      Bytes(finding.array->size_bytes) + ")";
    // nvcc and Triton put all local arrays of a function into one variable.
    if (name.rfind("__local_depot", 0) == 0) {
      finding.message = access + " outside the function's local arrays (" +
                        Bytes(finding.array->size_bytes) + " in all)";
    }
    finding.advice = "bound the index, or enlarge the array";
    if (finding.access_bytes > 0 && finding.array->size_bytes >= finding.access_bytes) {
      finding.advice += "; it holds " +
                        std::to_string(finding.array->size_bytes / finding.access_bytes) +
                        " elements of " + Bytes(finding.access_bytes);
    }
  } else if (shared) {
    finding.message = access + " outside the block's shared memory";
    if (finding.array) {
      finding.message = access + " outside the dynamic shared array " + finding.array->name + " (" +
                        Bytes(dynamic_bytes) + " in this launch)";
    }
    finding.advice =
        "bound the index, or pass more dynamic shared memory at the launch (it passes " +
        Bytes(dynamic_bytes) + ")";
  } else {
    finding.message = access + " outside the thread's " + memory + " arrays";
    if (finding.array) finding.message += " (" + finding.array->name + ")";
    finding.advice = "bound the index, or enlarge the array";
  }
}

void DescribeUseAfterFree(Finding& finding) {
  finding.kind = "use-after-free";
  const AllocationInfo* freed = nullptr;
  for (const auto* candidate : {&finding.target_allocation, &finding.allocation}) {
    if (freed == nullptr && candidate->has_value() && (*candidate)->freed) freed = &**candidate;
  }
  finding.message = AccessPhrase(finding) + " inside " +
                    (freed != nullptr ? Article(*freed) : std::string("freed memory"));
  if (freed != nullptr && !freed->free_api.empty()) {
    finding.message += " (freed by " + freed->free_api + ")";
  }
  if (finding.launch && finding.launch->graph_node) {
    finding.advice =
        "a graph uses the addresses that it was made with: keep the memory until its last launch, "
        "or capture (or update) the graph again";
    return;
  }
  if (freed != nullptr && freed->tensor) {
    finding.advice =
        "keep a reference to the tensor until the kernels that use it have run; if they run in "
        "another stream than the one it was made in, synchronise the streams before it is freed";
    if (freed->tensor->framework == "PyTorch") {
      finding.advice += ", or tell the pool (tensor.record_stream(stream))";
    }
    return;
  }
  finding.advice =
      "free the memory only after the kernels that use it: synchronise with their stream first, "
      "or free it in stream order behind them";
}

void DescribeMisaligned(Finding& finding) {
  finding.kind = "misaligned";
  finding.message = AccessPhrase(finding) + " to an address that is not a multiple of " +
                    std::to_string(finding.access_bytes);
  if (finding.address && finding.access_bytes > 0) {
    finding.message += " (" + Bytes(*finding.address % finding.access_bytes) + " beyond one)";
  }
  finding.advice =
      "align pointer and offset to the access, or use narrower accesses (memcpy of the bytes)";
}

void DescribeWild(Finding& finding) {
  finding.kind = "oob-global";
  const uint64_t address = finding.address.value_or(0);
  constexpr uint64_t kNullPage = 1 << 16;
  if (address < kNullPage) {
    finding.message = AccessPhrase(finding) + " through a null pointer" +
                      (address == 0 ? "" : " plus " + Bytes(address));
    finding.advice =
        "check that " + ParameterPhrase(finding) + " was allocated and set before the launch";
  } else {
    finding.message =
        AccessPhrase(finding) + " to a wild address, beyond what the device can address";
    finding.advice = "check where " + ParameterPhrase(finding) +
                     " comes from: uninitialised, overwritten, or an integer taken for a pointer";
  }
}

}  // namespace

Place PlaceOf(uint64_t address, uint64_t access_bytes, uint64_t base, uint64_t size_bytes) {
  const uint64_t end = base + size_bytes;
  if (address >= end) return {Placement::kBehind, address - end};
  if (address >= base) {
    return {access_bytes > end - address ? Placement::kAcrossEnd : Placement::kInside, 0};
  }
  const uint64_t gap = base - address;
  return {Placement::kBefore, gap > access_bytes ? gap - access_bytes : 0};
}

std::string DescribePlacement(const AllocationInfo& allocation) {
  const bool adjacent = allocation.distance_bytes == 0;
  switch (allocation.placement) {
    case Placement::kBehind:
      return (adjacent ? "just" : Bytes(allocation.distance_bytes)) + " past the end of " +
             Article(allocation);
    case Placement::kBefore:
      return (adjacent ? "just" : Bytes(allocation.distance_bytes)) + " before the start of " +
             Article(allocation);
    case Placement::kAcrossEnd:
      return "across the end of " + Article(allocation);
    case Placement::kInside:
      return "inside " + Article(allocation);
    case Placement::kUnknown:
      break;
  }
  return "near " + Article(allocation);
}

void DescribeFault(const proto::Fault& fault, Finding& finding) {
  switch (fault.fault_class()) {
    case proto::FAULT_CLASS_USE_AFTER_FREE:
      DescribeUseAfterFree(finding);
      break;
    case proto::FAULT_CLASS_MISALIGNED:
      DescribeMisaligned(finding);
      break;
    case proto::FAULT_CLASS_WILD_ADDRESS:
      DescribeWild(finding);
      break;
    default:
      if (finding.space == "shared") {
        DescribeArray(finding, "oob-shared", "shared");
      } else if (finding.space == "local") {
        DescribeArray(finding, "oob-local", "local");
      } else if (fault.shadow_value() == shadow::kShadowPool) {
        DescribePoolMemory(finding);
      } else {
        DescribeGlobal(finding);
      }
  }
  if (finding.engine == "sass") {
    finding.advice +=
        "; the access was executed, because machine code cannot be made to skip it: a crash or "
        "wrong values later may be its consequence";
    if (finding.frames.empty()) {
      finding.advice +=
          "; if the kernel is yours, compile it with -lineinfo to see the source line";
    }
  } else if (finding.frames.empty()) {
    finding.advice += "; " + std::string(kLineInfoAdvice);
  }
}

void DescribeInvalidLaunch(const proto::InvalidLaunch& invalid, Finding& finding) {
  finding.kind = "invalid-launch";
  const std::string& error = invalid.error();
  const bool refused = error.find("ILLEGAL_ADDRESS") == std::string::npos &&
                       error.find("MISALIGNED") == std::string::npos &&
                       error.find("LAUNCH_FAILED") == std::string::npos &&
                       error.find("ILLEGAL_INSTRUCTION") == std::string::npos &&
                       error.find("LAUNCH_TIMEOUT") == std::string::npos;
  const std::string from = invalid.api().empty() ? "" : " from " + invalid.api();
  finding.message = refused ? "the driver refused the launch: " : "the launch ended its context: ";
  finding.message +=
      invalid.reason().empty() ? error + from : invalid.reason() + " (" + error + from + ")";
  if (!invalid.reason().empty() && refused) {
    finding.advice =
        "change the launch; the kernel did not run, and whatever it should have "
        "written holds older values";
  } else if (error.find("OUT_OF_RESOURCES") != std::string::npos) {
    finding.advice =
        "use a smaller block, or limit registers (__launch_bounds__) and shared memory";
  } else if (error.find("INVALID_VALUE") != std::string::npos) {
    finding.advice =
        "check grid and block against the device's limits (1024 threads in a block, 65535 blocks "
        "in y and z, none of them 0) and dynamic shared memory against "
        "cudaFuncAttributeMaxDynamicSharedMemorySize";
  } else if (!refused) {
    finding.advice =
        "this access was not checked or failed in the driver; the coverage below tells which "
        "kernels were not checked";
  } else {
    finding.advice =
        "look the error up in the driver API's manual and check the launch's arguments";
  }
}

}  // namespace ops_debug::analysis
