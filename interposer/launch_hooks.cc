// Every call that launches a kernel: run the instrumented twin in its place,
// with one more parameter. Whatever is in the way, the original runs and the
// reason is counted.
#include "interposer/context_state.h"
#include "interposer/event_sender.h"
#include "interposer/fault_drain.h"
#include "interposer/hooks.h"
#include "interposer/launch_parameters.h"
#include "interposer/launch_record.h"
#include "interposer/module_registry.h"

namespace ops_debug::interposer {
namespace {

struct Geometry {
  Dim3 grid, block;
  uint32_t dynamic_shared_bytes = 0;
};

std::string ErrorName(CUresult result) {
  const char* name = nullptr;
  if (OPS_DEBUG_REAL(cuGetErrorName)(result, &name) == CUDA_SUCCESS && name) return name;
  return std::to_string(static_cast<int>(result));
}

LaunchRecord MakeRecord(const FunctionRecord& function, const Geometry& geometry,
                        CUcontext context) {
  LaunchRecord record;
  record.id = NextLaunchId();
  record.module_id = function.kernel->module_id;
  record.kernel = function.kernel->name;
  record.grid = geometry.grid;
  record.block = geometry.block;
  record.dynamic_shared_bytes = geometry.dynamic_shared_bytes;
  record.context = context;
  record.stack = CaptureHostStack();
  return record;
}

// Runs the original; a refusal is an event of its own.
template <class Go>
CUresult LaunchOriginal(const char* api, CUfunction handle, const FunctionPointer& function,
                        const Geometry& geometry, const std::string& reason, void** parameters,
                        void** extra, Go go) {
  const CUresult result = go(handle, parameters, extra);
  if (result == CUDA_SUCCESS) {
    CountUnchecked(function->module, *function->kernel, reason);
  } else if (!EndsContext(result)) {
    Send(InvalidLaunchEvent{.launch = Describe(MakeRecord(*function, geometry, nullptr)),
                            .error = ErrorName(result),
                            .api = api});
  }
  return result;
}

// What a twin needs to run; else why it cannot.
struct Readiness {
  ContextPointer context;
  InstancePointer instance;
  CUfunction twin = nullptr;
  std::string obstacle;
};
Readiness Prepare(const FunctionPointer& function, CUstream stream, DefaultStream default_stream) {
  Readiness ready;
  ready.obstacle = function->kernel->not_checked_reason;
  if (!ready.obstacle.empty()) return ready;
  ready.context = function->context ? ContextStateOf(function->context)
                                    : StreamContextState(stream, default_stream);
  if (!ready.context || ready.context->lost) {
    ready.obstacle = "no shadow memory in its context";
    return ready;
  }
  ready.instance = InstanceIn(function->module, ready.context);
  if (!ready.instance->failure.empty()) {
    ready.obstacle = "its module could not be prepared: " + ready.instance->failure;
    return ready;
  }
  ready.twin = TwinOf(*function);
  if (!ready.twin) ready.obstacle = "the driver does not find the instrumented kernel";
  return ready;
}

// Blocks that can be resident on the current device at once; 0 if the driver does not say.
uint64_t ResidentBlocks(CUfunction function, const Geometry& geometry) {
  const int threads = static_cast<int>(geometry.block.x * geometry.block.y * geometry.block.z);
  int per_multiprocessor = 0, multiprocessors = 0;
  CUdevice device = 0;
  if (OPS_DEBUG_REAL(cuOccupancyMaxActiveBlocksPerMultiprocessor)(
          &per_multiprocessor, function, threads, geometry.dynamic_shared_bytes) != CUDA_SUCCESS ||
      OPS_DEBUG_REAL(cuCtxGetDevice)(&device) != CUDA_SUCCESS ||
      OPS_DEBUG_REAL(cuDeviceGetAttribute)(
          &multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device) != CUDA_SUCCESS) {
    return 0;
  }
  return static_cast<uint64_t>(per_multiprocessor) * static_cast<uint64_t>(multiprocessors);
}

// Blocks that wait for each other must all be resident, or the kernel never ends. Natively they
// are; the twin's registers may take that away.
bool LosesResidency(CUfunction original, CUfunction twin, const Geometry& geometry) {
  const uint64_t blocks = uint64_t{geometry.grid.x} * geometry.grid.y * geometry.grid.z;
  return blocks <= ResidentBlocks(original, geometry) && blocks > ResidentBlocks(twin, geometry);
}

// `go(function, parameters, extra)` makes the program's call.
template <class Go>
CUresult Launch(const char* api, CUfunction handle, const Geometry& geometry, CUstream stream,
                DefaultStream default_stream, void** parameters, void** extra, Go go) {
  if (!ChecksMemory() || !handle) return go(handle, parameters, extra);
  FunctionPointer function = FindFunction(handle);
  if (!function) function = RegisterStranger(handle);
  Readiness ready = Prepare(function, stream, default_stream);
  const auto original = [&](const std::string& reason) {
    return LaunchOriginal(api, handle, function, geometry, reason, parameters, extra, go);
  };
  if (!ready.twin) return original(ready.obstacle);
  if (function->kernel->plan->waits_for_blocks && LosesResidency(handle, ready.twin, geometry)) {
    return original(
        "its blocks wait for each other, and the instrumented kernel's registers do not let all of "
        "them be resident at once");
  }

  // Bounds that are copied into a graph are those of today's allocations; the
  // graph may run when others live there.
  const bool capturing = IsCapturing(ExplicitStream(stream, default_stream));
  LaunchRecord record = MakeRecord(*function, geometry, ready.context->context);
  TwinParameters twin;
  if (!twin.Build(
          *function->kernel->plan, parameters, extra, Book(),
          capturing ? shadow::BoundsSource::kShadowOnly : shadow::BoundsSource::kAllocations,
          record.id)) {
    return original("its launch parameters are incomplete");
  }
  RememberLaunch(std::move(record));  // before it runs: another thread may drain its faults at once
  NoteLaunch(ready.instance, capturing);
  const CUresult result = go(ready.twin, twin.parameters(), twin.extra());
  if (result == CUDA_SUCCESS) {
    CountChecked(function->module, *function->kernel);
    return result;
  }
  // Nothing ran. If the original runs, the twin's needs were in the way; if
  // not, the program hears what it always would.
  return original("the instrumented kernel cannot be launched (" + ErrorName(result) +
                  "): it needs more registers or parameters than the launch leaves");
}

}  // namespace

OPS_DEBUG_HOOK(cuLaunchKernel, CUfunction function, unsigned int grid_x, unsigned int grid_y,
               unsigned int grid_z, unsigned int block_x, unsigned int block_y,
               unsigned int block_z, unsigned int shared_bytes, CUstream stream, void** parameters,
               void** extra) {
  return Launch("cuLaunchKernel", function,
                {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes}, stream,
                real.default_stream(), parameters, extra, [&](CUfunction f, void** p, void** e) {
                  return real(f, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes,
                              stream, p, e);
                });
}
OPS_DEBUG_HOOK_AS(cuLaunchKernel_ptsz, cuLaunchKernel)

OPS_DEBUG_HOOK(cuLaunchKernelEx, const CUlaunchConfig* config, CUfunction function,
               void** parameters, void** extra) {
  if (!config) return real(config, function, parameters, extra);
  return Launch("cuLaunchKernelEx", function,
                {{config->gridDimX, config->gridDimY, config->gridDimZ},
                 {config->blockDimX, config->blockDimY, config->blockDimZ},
                 config->sharedMemBytes},
                config->hStream, real.default_stream(), parameters, extra,
                [&](CUfunction f, void** p, void** e) { return real(config, f, p, e); });
}
OPS_DEBUG_HOOK_AS(cuLaunchKernelEx_ptsz, cuLaunchKernelEx)

OPS_DEBUG_HOOK(cuLaunchCooperativeKernel, CUfunction function, unsigned int grid_x,
               unsigned int grid_y, unsigned int grid_z, unsigned int block_x, unsigned int block_y,
               unsigned int block_z, unsigned int shared_bytes, CUstream stream,
               void** parameters) {
  return Launch("cuLaunchCooperativeKernel", function,
                {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes}, stream,
                real.default_stream(), parameters, nullptr, [&](CUfunction f, void** p, void**) {
                  return real(f, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes,
                              stream, p);
                });
}
OPS_DEBUG_HOOK_AS(cuLaunchCooperativeKernel_ptsz, cuLaunchCooperativeKernel)

}  // namespace ops_debug::interposer
