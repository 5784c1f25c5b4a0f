// Ordinary driver calls in the ordinary order; nothing here knows that a tool may be watching.
#include "runner/device.h"

#include <array>
#include <chrono>

#include "absl/status/status.h"
#include "runner/tensor_data.h"
#include "runner/text.h"

namespace ops_debug::runner {
namespace {

// Launch resources, released in reverse order whatever happens.
struct Resources {
  const Driver& driver;
  CUmodule module = nullptr;
  std::vector<CUdeviceptr> buffers;

  ~Resources() {
    for (auto it = buffers.rbegin(); it != buffers.rend(); ++it) driver.cuMemFree(*it);
    if (module != nullptr) driver.cuModuleUnload(module);
  }
};

absl::Status Failed(const Driver& driver, const char* call, CUresult result) {
  return absl::AbortedError(driver.Describe(call, result));
}

absl::Status LoadModule(const Driver& driver, const std::string& ptx, CUmodule* module) {
  std::array<char, 8192> log{};
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log.data(), reinterpret_cast<void*>(log.size() - 1)};
  const CUresult result = driver.cuModuleLoadDataEx(module, ptx.c_str(), 2, options, values);
  if (result == CUDA_SUCCESS) return absl::OkStatus();
  std::string text = driver.Describe("cuModuleLoadDataEx", result);
  if (log[0] != '\0') StrAppend(&text, "\n", log.data());
  if (result == CUDA_ERROR_UNSUPPORTED_PTX_VERSION) {
    StrAppend(&text,
              "\n  hint: nvcc is newer than the driver: set CUDA_HOME to a toolkit that the driver "
              "supports");
  }
  return absl::FailedPreconditionError(text);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> Device::Open() {
  absl::StatusOr<Driver> driver = LoadDriver();
  if (!driver.ok()) return driver.status();
  std::unique_ptr<Device> device(new Device(*driver));
  const Driver& cuda = device->driver_;
  if (CUresult r = cuda.cuInit(0); r != CUDA_SUCCESS) {
    return absl::FailedPreconditionError(
        StrCat(cuda.Describe("cuInit", r),
               "\n  hint: without a GPU, let ops-debug use its CPU device: --device emulator"));
  }
  if (CUresult r = cuda.cuDeviceGet(&device->device_, 0); r != CUDA_SUCCESS) {
    return absl::FailedPreconditionError(cuda.Describe("cuDeviceGet", r));
  }
  std::array<char, 256> name{};
  cuda.cuDeviceGetName(name.data(), static_cast<int>(name.size()) - 1, device->device_);
  device->name_ = name.data();
  int major = 0;
  int minor = 0;
  cuda.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device->device_);
  cuda.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device->device_);
  if (major == 0)
    return absl::FailedPreconditionError("the device does not tell its compute capability");
  device->compute_capability_ = 10 * major + minor;
  CUcontext context = nullptr;
  if (CUresult r = cuda.cuDevicePrimaryCtxRetain(&context, device->device_); r != CUDA_SUCCESS) {
    return absl::FailedPreconditionError(cuda.Describe("cuDevicePrimaryCtxRetain", r));
  }
  device->retained_ = true;
  if (CUresult r = cuda.cuCtxSetCurrent(context); r != CUDA_SUCCESS) {
    return absl::FailedPreconditionError(cuda.Describe("cuCtxSetCurrent", r));
  }
  return device;
}

Device::~Device() {
  if (retained_) driver_.cuDevicePrimaryCtxRelease(device_);
}

absl::StatusOr<LaunchResult> Device::Launch(const std::string& ptx, const LaunchPlan& plan,
                                            uint64_t seed, bool copy_outputs,
                                            const std::vector<std::vector<std::byte>>& given) {
  Resources resources{driver_, nullptr, {}};
  if (absl::Status status = LoadModule(driver_, ptx, &resources.module); !status.ok())
    return status;
  CUfunction function = nullptr;
  if (CUresult r =
          driver_.cuModuleGetFunction(&function, resources.module, plan.entry.mangled.c_str());
      r != CUDA_SUCCESS) {
    return Failed(driver_, "cuModuleGetFunction", r);
  }
  constexpr uint32_t kSharedBytesWithoutOptIn = 48 * 1024;
  if (plan.shared_bytes > kSharedBytesWithoutOptIn) {
    if (CUresult r =
            driver_.cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                       static_cast<int>(plan.shared_bytes));
        r != CUDA_SUCCESS) {
      return Failed(driver_, "cuFuncSetAttribute(MAX_DYNAMIC_SHARED_SIZE_BYTES)", r);
    }
  }

  const uint64_t index_limit = IndexLimit(plan);
  std::vector<CUdeviceptr> pointers(plan.arguments.size(), 0);
  std::vector<void*> parameters(plan.arguments.size(), nullptr);
  // A parameter's bytes are read, never written; cuLaunchKernel just is not const-correct.
  for (size_t i = 0; i < plan.arguments.size(); ++i) {
    const ArgumentPlan& argument = plan.arguments[i];
    if (!argument.is_buffer) {
      parameters[i] = const_cast<std::byte*>(argument.value.data());
      continue;
    }
    if (CUresult r = driver_.cuMemAlloc(&pointers[i], argument.size_bytes); r != CUDA_SUCCESS) {
      return Failed(driver_, StrCat("cuMemAlloc of ", argument.size_bytes, " bytes").c_str(), r);
    }
    resources.buffers.push_back(pointers[i]);
    parameters[i] = &pointers[i];
    const bool is_given = i < given.size() && given[i].size() == argument.size_bytes;
    const std::vector<std::byte> made =
        is_given ? std::vector<std::byte>() : MakeContents(argument, i, seed, index_limit);
    const std::vector<std::byte>& contents = is_given ? given[i] : made;
    if (CUresult r = driver_.cuMemcpyHtoD(pointers[i], contents.data(), contents.size());
        r != CUDA_SUCCESS) {
      return Failed(driver_, "cuMemcpyHtoD", r);
    }
  }

  LaunchResult result;
  const auto start = std::chrono::steady_clock::now();
  if (CUresult r = driver_.cuLaunchKernel(function, plan.grid[0], plan.grid[1], plan.grid[2],
                                          plan.block[0], plan.block[1], plan.block[2],
                                          plan.shared_bytes, nullptr, parameters.data(), nullptr);
      r != CUDA_SUCCESS) {
    return Failed(driver_, "cuLaunchKernel", r);
  }
  if (CUresult r = driver_.cuCtxSynchronize(); r != CUDA_SUCCESS) {
    return Failed(driver_, "cuCtxSynchronize after the launch", r);
  }
  result.duration_ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();

  result.contents.resize(plan.arguments.size());
  for (size_t i = 0; copy_outputs && i < plan.arguments.size(); ++i) {
    const ArgumentPlan& argument = plan.arguments[i];
    if (!argument.is_buffer || !argument.is_output) continue;
    result.contents[i].resize(argument.size_bytes);
    if (CUresult r =
            driver_.cuMemcpyDtoH(result.contents[i].data(), pointers[i], argument.size_bytes);
        r != CUDA_SUCCESS) {
      return Failed(driver_, "cuMemcpyDtoH", r);
    }
  }
  return result;
}

}  // namespace ops_debug::runner
