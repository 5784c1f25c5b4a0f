// Each check below names one limit, with the number that was asked for and the one that is allowed.
#include "interposer/launch_failure.h"

#include <algorithm>
#include <optional>

namespace ops_debug::interposer {
namespace {

std::string Number(uint64_t value) { return std::to_string(value); }

// "49152 bytes (48 kB)".
std::string Bytes(uint64_t bytes) {
  std::string text = Number(bytes) + " bytes";
  if (bytes != 0 && bytes % 1024 == 0) text += " (" + Number(bytes / 1024) + " kB)";
  return text;
}

class Examiner {
 public:
  Examiner(CUresult result, const LaunchRequest& request)
      : result_(result), request_(request), function_(FindFunction(request.handle)) {
    if (OPS_DEBUG_REAL(cuCtxGetDevice)(&device_) != CUDA_SUCCESS) device_ = 0;
    threads_ = uint64_t{request.block.x} * request.block.y * request.block.z;
    blocks_ = uint64_t{request.grid.x} * request.grid.y * request.grid.z;
  }

  std::string Examine() {
    if (OfHandles() || OfCapture() || OfCode()) return text_;
    Dimensions();
    Threads();
    SharedMemory();
    Cluster();
    Cooperative();
    Parameters();
    if (text_.empty()) General();
    return text_;
  }

 private:
  void Say(const std::string& sentence) {
    if (!text_.empty()) text_ += "; ";
    text_ += sentence;
  }

  std::optional<uint64_t> Limit(CUdevice_attribute attribute) const {
    int value = 0;
    if (OPS_DEBUG_REAL(cuDeviceGetAttribute)(&value, attribute, device_) != CUDA_SUCCESS ||
        value <= 0) {
      return std::nullopt;
    }
    return static_cast<uint64_t>(value);
  }

  std::optional<uint64_t> OfKernel(CUfunction_attribute attribute) const {
    int value = 0;
    // A handle that came neither from a module nor from a kernel is a CUkernel.
    const bool is_kernel =
        function_ && function_->module->library && !function_->owner && !function_->source;
    const CUresult result =
        is_kernel ? OPS_DEBUG_REAL(cuKernelGetAttribute)(
                        &value, attribute, reinterpret_cast<CUkernel>(request_.handle), device_)
                  : OPS_DEBUG_REAL(cuFuncGetAttribute)(&value, attribute, request_.handle);
    if (result != CUDA_SUCCESS || value < 0) return std::nullopt;
    return static_cast<uint64_t>(value);
  }

  bool OfHandles() {
    CUcontext current = nullptr, of_stream = nullptr;
    OPS_DEBUG_REAL(cuCtxGetCurrent)(&current);
    if (result_ == CUDA_ERROR_INVALID_CONTEXT || !current) {
      Say(current ? "the context that is current in this thread is not valid"
                  : "no context is current in this thread");
      return true;
    }
    if (result_ != CUDA_ERROR_INVALID_HANDLE && result_ != CUDA_ERROR_CONTEXT_IS_DESTROYED)
      return false;
    const CUstream stream = ExplicitStream(request_.stream, request_.default_stream);
    if (stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD) {
      if (OPS_DEBUG_REAL(cuStreamGetCtx)(stream, &of_stream) != CUDA_SUCCESS) {
        Say("the stream is not valid; it may have been destroyed");
        return true;
      }
    } else {
      of_stream = current;
    }
    if (function_ && !function_->context && of_stream != current) {
      Say("the stream belongs to another device or context than the one that is current in this "
          "thread");
    } else if (function_ && function_->context && function_->context != of_stream) {
      Say("the kernel was loaded in another context (or for another device) than the one of the "
          "stream");
    } else {
      Say("the kernel's handle is not valid here; its module may have been unloaded");
    }
    return true;
  }

  bool OfCapture() {
    switch (result_) {
      case CUDA_ERROR_STREAM_CAPTURE_INVALIDATED:
        Say("an earlier call has invalidated the capture that the stream is part of");
        return true;
      case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED:
      case CUDA_ERROR_STREAM_CAPTURE_IMPLICIT:
        Say("the launch is not allowed while a stream is being captured: it would depend on the "
            "legacy default stream");
        return true;
      case CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD:
        Say("another thread began the capture that the stream is part of");
        return true;
      default:
        return false;
    }
  }

  bool OfCode() {
    switch (result_) {
      case CUDA_ERROR_NO_BINARY_FOR_GPU: {
        const auto major = Limit(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
        const auto minor = Limit(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR).value_or(0);
        Say("the program holds no code of this kernel for this device" +
            (major ? " (compute capability " + Number(*major) + "." + Number(minor) + ")" : "") +
            ": compile it with -gencode for it, or add PTX");
        return true;
      }
      case CUDA_ERROR_INVALID_PTX:
      case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
      case CUDA_ERROR_INVALID_IMAGE:
        Say("the driver cannot use the kernel's code, which it loads at its first launch");
        return true;
      default:
        return false;
    }
  }

  void Dimensions() {
    struct Axis {
      const char* name;
      uint32_t grid, block;
      CUdevice_attribute grid_limit, block_limit;
    };
    const Dim3 &grid = request_.grid, &block = request_.block;
    const Axis axes[] = {
        {"x", grid.x, block.x, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X,
         CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X},
        {"y", grid.y, block.y, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y,
         CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y},
        {"z", grid.z, block.z, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z,
         CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z},
    };
    for (const Axis& axis : axes) {
      const std::string in = std::string(" in ") + axis.name;
      if (axis.grid == 0) Say("the grid has 0 blocks" + in);
      if (axis.block == 0) Say("the block has 0 threads" + in);
      if (const auto limit = Limit(axis.grid_limit); limit && axis.grid > *limit) {
        Say("the grid has " + Number(axis.grid) + " blocks" + in + "; the device allows " +
            Number(*limit));
      }
      if (const auto limit = Limit(axis.block_limit); limit && axis.block > *limit) {
        Say("the block has " + Number(axis.block) + " threads" + in + "; the device allows " +
            Number(*limit));
      }
    }
  }

  void Threads() {
    if (threads_ == 0 || !text_.empty()) return;
    const auto of_device = Limit(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
    if (of_device && threads_ > *of_device) {
      Say("the block has " + Number(threads_) + " threads; the device allows " +
          Number(*of_device));
      return;
    }
    const auto of_kernel = OfKernel(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
    if (!of_kernel || *of_kernel == 0 || threads_ <= *of_kernel) return;
    const auto registers = OfKernel(CU_FUNC_ATTRIBUTE_NUM_REGS);
    const auto available = Limit(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK);
    const uint64_t warps = (threads_ + 31) / 32;
    const bool too_many = registers && available && warps * 32 * *registers > *available;
    Say("the block has " + Number(threads_) + " threads; this kernel allows " + Number(*of_kernel) +
        (too_many ? ", because each thread uses " + Number(*registers) +
                        " registers and a block has " + Number(*available)
                  : std::string(" (its __launch_bounds__)")));
  }

  void SharedMemory() {
    const uint64_t wanted = request_.dynamic_shared_bytes;
    const auto allowed = OfKernel(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
    const uint64_t own = OfKernel(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES).value_or(0);
    if (wanted == 0 || !allowed || wanted <= *allowed) return;
    std::string text =
        Bytes(wanted) + " of dynamic shared memory; this kernel may use " + Bytes(*allowed);
    const auto most = Limit(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
    if (most && wanted + own <= *most) {
      text +=
          " unless the program raises that with cudaFuncSetAttribute(kernel, "
          "cudaFuncAttributeMaxDynamicSharedMemorySize, " +
          Number(wanted) + "): the device has up to " + Bytes(*most) + " per block";
    } else if (most) {
      text += ", and the device has at most " + Bytes(*most) + " per block";
      if (own != 0) text += ", of which the kernel's static shared memory takes " + Number(own);
    }
    Say(text);
  }

  void Cluster() {
    const CUlaunchConfig* config = request_.config;
    if (!config || !config->attrs) return;
    for (unsigned int i = 0; i < config->numAttrs; i++) {
      const CUlaunchAttribute& attribute = config->attrs[i];
      if (attribute.id != CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) continue;
      const auto& size = attribute.value.clusterDim;
      const uint64_t blocks = uint64_t{size.x} * size.y * size.z;
      if (blocks == 0) {
        Say("the cluster has 0 blocks");
        continue;
      }
      if (request_.grid.x % size.x || request_.grid.y % size.y || request_.grid.z % size.z) {
        Say("the grid (" + Number(request_.grid.x) + ", " + Number(request_.grid.y) + ", " +
            Number(request_.grid.z) + ") is not a multiple of the cluster (" + Number(size.x) +
            ", " + Number(size.y) + ", " + Number(size.z) + ")");
      }
      constexpr uint64_t kPortable = 8;
      if (blocks > kPortable &&
          OfKernel(CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED).value_or(0) == 0) {
        Say("a cluster of " + Number(blocks) +
            " blocks; 8 are allowed unless the program sets "
            "cudaFuncAttributeNonPortableClusterSizeAllowed");
      } else if (result_ == CUDA_ERROR_INVALID_CLUSTER_SIZE) {
        Say("a cluster of " + Number(blocks) +
            " blocks with this much shared memory and so many threads does not fit the device");
      }
    }
  }

  void Cooperative() {
    if (result_ != CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE) return;
    int per_multiprocessor = 0;
    const auto multiprocessors = Limit(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    if (multiprocessors && OPS_DEBUG_REAL(cuOccupancyMaxActiveBlocksPerMultiprocessor)(
                               &per_multiprocessor, request_.handle, static_cast<int>(threads_),
                               request_.dynamic_shared_bytes) == CUDA_SUCCESS) {
      Say("a cooperative launch of " + Number(blocks_) + " blocks; the device can hold " +
          Number(*multiprocessors * static_cast<uint64_t>(per_multiprocessor)) +
          " of them at once (" + Number(static_cast<uint64_t>(per_multiprocessor)) +
          " on each of " + Number(*multiprocessors) + " multiprocessors)");
    } else {
      Say("a cooperative launch of " + Number(blocks_) +
          " blocks, more than the device can hold at once");
    }
  }

  void Parameters() {
    if (request_.parameters && request_.extra) {
      Say("both kernelParams and extra were given");
      return;
    }
    const shadow::KernelPlan* plan = function_ ? function_->kernel->plan : nullptr;
    if (!plan || plan->parameters.empty()) return;
    std::span<const std::byte> packed;
    if (!request_.parameters && !ReadExtra(request_.extra, &packed)) {
      Say("no parameters were given; the kernel has " + Number(plan->parameters.size()));
    } else if (!request_.parameters && packed.size() < plan->parameter_bytes) {
      Say(Number(packed.size()) + " bytes of parameters; the kernel has " +
          Number(plan->parameter_bytes));
    }
  }

  void General() {
    switch (result_) {
      case CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES:
        Say("the block needs more registers or shared memory than the device has for one");
        break;
      case CUDA_ERROR_OUT_OF_MEMORY:
        Say("no device memory for the kernel's code, stacks or local memory");
        break;
      case CUDA_ERROR_NOT_SUPPORTED:
        Say("the device or driver does not support a launch attribute of this launch");
        break;
      default:
        break;
    }
  }

  const CUresult result_;
  const LaunchRequest& request_;
  const FunctionPointer function_;
  CUdevice device_ = 0;
  uint64_t threads_ = 0, blocks_ = 0;
  std::string text_;
};

}  // namespace

std::string ErrorName(CUresult result) {
  const char* name = nullptr;
  if (OPS_DEBUG_REAL(cuGetErrorName)(result, &name) == CUDA_SUCCESS && name) return name;
  return std::to_string(static_cast<int>(result));
}

std::string LaunchFailureReason(CUresult result, const LaunchRequest& request) {
  return Examiner(result, request).Examine();
}

}  // namespace ops_debug::interposer
