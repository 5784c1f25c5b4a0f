// Subscription, patching, and the launch's number as the patch's user data.
//
// Measured on driver 580 with the API of CUDA 13.0: a module can be patched after its kernels ran;
// functions that the driver loads later are patched as they are loaded; a captured launch keeps its
// user data in every replay; a launch without user data passes a pointer of the driver's.
//
// The API's callbacks run inside the driver. They take the code book's lock or none, and nobody
// calls the driver or the API while holding that one.
#include "interposer/sass_engine.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "interposer/event_sender.h"
#include "interposer/fault_watch.h"
#include "interposer/process.h"
#include "interposer/sass_code.h"
#include "interposer/sass_faults.h"
#include "interposer/sass_library.h"
#include "interposer/sass_patch_image.h"
#include "interposer/session.h"
#include "shadow/abi/sass_abi.h"

namespace ops_debug::interposer {

#if OPS_DEBUG_HAVE_SANITIZER_API

namespace {

constinit thread_local int t_unpatched_loads = 0;

// Launches that were announced in this thread and that the driver has not begun yet: one, or one
// per device of a cooperative launch.
struct Announced {
  CUfunction function = nullptr;
  uint64_t launch_id = 0;
};
constinit thread_local std::array<Announced, 8> t_announced{};
constinit thread_local size_t t_next_announced = 0;

void Announce(CUfunction function, uint64_t launch_id) {
  for (Announced& announced : t_announced) {
    if (announced.function == function) {
      announced.launch_id = launch_id;
      return;
    }
  }
  t_announced[t_next_announced++ % t_announced.size()] = {function, launch_id};
}

uint64_t TakeAnnounced(CUfunction function) {
  for (Announced& announced : t_announced) {
    if (announced.function == function) {
      announced.function = nullptr;
      return announced.launch_id;
    }
  }
  return 0;
}

// One handle in one context. Handles are used again for other code; `record` tells them apart (it
// stays alive here, so that its address is not).
struct CoveredFunction {
  FunctionPointer record;
  std::string obstacle;  // not empty: its launches are not checked
  CUfunction function = nullptr;
  CUmodule module = nullptr;
};
struct CoveredModule {
  ModulePointer module;
  std::string obstacle;  // empty: patched
};
struct HandleInContext {
  CUfunction handle;
  CUcontext context;
  bool operator==(const HandleInContext&) const = default;
};
struct HashHandle {
  size_t operator()(const HandleInContext& key) const {
    return std::hash<const void*>()(key.handle) * 31 + std::hash<const void*>()(key.context);
  }
};

// Never destroyed: hooks run until the very end of the process.
struct SassEngine {
  std::mutex start_mutex;
  bool started = false;
  std::atomic<bool> on{false};
  std::string obstacle;  // written before `started`
  SanitizerApi api;
  Sanitizer_SubscriberHandle subscriber = nullptr;

  SassCodeBook code;

  // The API wants patching calls one at a time. Also guards the contexts.
  std::mutex patch_mutex;
  struct Context {
    std::unique_ptr<SassFaultChannel> faults;
    std::vector<uint64_t> patch;  // the image, which the API may refer to
    std::string obstacle;
  };
  std::unordered_map<CUcontext, Context> contexts;
  std::unordered_map<CUmodule, CoveredModule> modules;

  // Modules that the driver unloads meanwhile; in a callback nobody may wait for the patch mutex.
  std::mutex unloaded_mutex;
  std::vector<CUmodule> unloaded;

  std::shared_mutex functions_mutex;
  std::unordered_map<HandleInContext, std::shared_ptr<const CoveredFunction>, HashHandle> functions;
};
SassEngine& TheEngine() {
  static auto* engine = new SassEngine;
  return *engine;
}

// Some launches of patched kernels are to go unchecked, so modules may be patched late and launches
// must be told apart.
bool LaunchesAreFiltered() {
  static const bool filtered = [] {
    const SessionOptions& options = Options();
    return !options.kernel_name_pattern.empty() || options.launch_skip != 0 ||
           options.launch_count != UINT64_MAX || options.sample > 1;
  }();
  return filtered;
}

std::string Text(const SanitizerApi& api, SanitizerResult result) {
  const char* text = nullptr;
  if (api.sanitizerGetResultString(result, &text) == SANITIZER_SUCCESS && text) {
    std::string words = text;
    while (!words.empty() && (words.back() == '.' || words.back() == '\n')) words.pop_back();
    return words;
  }
  return "error " + std::to_string(static_cast<int>(result));
}

// ---- Callbacks

void ForgetModule(SassEngine& engine, CUmodule module) {
  {
    std::unique_lock lock(engine.functions_mutex);
    std::erase_if(engine.functions,
                  [&](const auto& entry) { return entry.second->module == module; });
  }
  std::lock_guard lock(engine.unloaded_mutex);
  engine.unloaded.push_back(module);
}

void OnModuleLoaded(SassEngine& engine, const Sanitizer_ResourceModuleData& data) {
  if (t_unpatched_loads > 0 || !data.pCubin || data.cubinSize == 0) return;
  const std::string_view cubin(data.pCubin, data.cubinSize);
  if (reinterpret_cast<uintptr_t>(cubin.data()) % alignof(uint64_t) == 0) {
    engine.code.ModuleLoaded(data.context, data.module, cubin);
  } else {
    std::vector<uint64_t> aligned(cubin.size() / sizeof(uint64_t) + 1);
    std::memcpy(aligned.data(), cubin.data(), cubin.size());
    engine.code.ModuleLoaded(data.context, data.module,
                             {reinterpret_cast<const char*>(aligned.data()), cubin.size()});
  }
}

void OnLaunch(SassEngine& engine, const Sanitizer_LaunchData& data) {
  const uint64_t launch_id = TakeAnnounced(data.function);
  if (launch_id == 0 && !LaunchesAreFiltered()) return;
  const uint64_t user_data = shadow::kSassLaunchTag << shadow::kSassLaunchTagShift |
                             (launch_id & shadow::kSassLaunchIdMask);
  engine.api.sanitizerSetLaunchCallbackData(data.hLaunch, data.function, data.hStream,
                                            reinterpret_cast<const void*>(user_data));
}

void SANITIZERAPI OnCallback(void*, Sanitizer_CallbackDomain domain, Sanitizer_CallbackId id,
                             const void* data) {
  SassEngine& engine = TheEngine();
  try {
    if (domain == SANITIZER_CB_DOMAIN_LAUNCH && id == SANITIZER_CBID_LAUNCH_BEGIN) {
      OnLaunch(engine, *static_cast<const Sanitizer_LaunchData*>(data));
    } else if (domain == SANITIZER_CB_DOMAIN_RESOURCE) {
      if (id == SANITIZER_CBID_RESOURCE_MODULE_LOADED) {
        OnModuleLoaded(engine, *static_cast<const Sanitizer_ResourceModuleData*>(data));
      } else if (id == SANITIZER_CBID_RESOURCE_MODULE_UNLOAD_STARTING) {
        const CUmodule module = static_cast<const Sanitizer_ResourceModuleData*>(data)->module;
        engine.code.ModuleUnloading(module);
        ForgetModule(engine, module);
      } else if (id == SANITIZER_CBID_RESOURCE_CONTEXT_DESTROY_STARTING) {
        // Its faults have been read: the hook of the call came first.
        engine.code.ContextGone(static_cast<const Sanitizer_ResourceContextData*>(data)->context);
      }
    }
  } catch (...) {
    // No memory: the module's functions stay without names, or the launch without its number.
  }
}

// ---- Subscription

// False: `*failure` says why this library does not serve. `*taken`: another tool holds the API.
bool Subscribe(SassEngine& engine, const std::string& path, bool* taken, std::string* failure) {
  *taken = false;
  if (!LoadSanitizerApi(path, &engine.api, failure)) return false;
  const SanitizerResult result =
      engine.api.sanitizerSubscribe(&engine.subscriber, &OnCallback, nullptr);
  if (result != SANITIZER_SUCCESS) {
    *taken = result == SANITIZER_ERROR_MAX_LIMIT_REACHED;
    *failure = path + " refuses: " + Text(engine.api, result);
    UnloadSanitizerApi(&engine.api);
    return false;
  }
  const std::pair<Sanitizer_CallbackDomain, Sanitizer_CallbackId> wanted[] = {
      {SANITIZER_CB_DOMAIN_RESOURCE, SANITIZER_CBID_RESOURCE_MODULE_LOADED},
      {SANITIZER_CB_DOMAIN_RESOURCE, SANITIZER_CBID_RESOURCE_MODULE_UNLOAD_STARTING},
      {SANITIZER_CB_DOMAIN_RESOURCE, SANITIZER_CBID_RESOURCE_CONTEXT_DESTROY_STARTING},
      {SANITIZER_CB_DOMAIN_LAUNCH, SANITIZER_CBID_LAUNCH_BEGIN}};
  for (const auto& [domain, id] : wanted) {
    const SanitizerResult enabled =
        engine.api.sanitizerEnableCallback(1, engine.subscriber, domain, id);
    if (enabled == SANITIZER_SUCCESS) continue;
    *failure = path + " refuses: " + Text(engine.api, enabled);
    engine.api.sanitizerUnsubscribe(engine.subscriber);
    UnloadSanitizerApi(&engine.api);
    return false;
  }
  return true;
}

std::string Start(SassEngine& engine) {
  if (!ChecksMemory()) return "memory is not checked";
  if (Options().emulated) return "the emulator runs PTX only";
  if (!Options().use_sass_engine) return "the engine for machine code is switched off (--engine)";
  const std::vector<std::string> candidates = SanitizerLibraryCandidates(LookAround());
  std::string failures;
  for (const std::string& path : candidates) {
    if (candidates.size() > 1 && access(path.c_str(), R_OK) != 0) continue;
    std::string failure;
    bool taken = false;
    if (Subscribe(engine, path, &taken, &failure)) return "";
    if (taken) {
      return "another tool in the process (compute-sanitizer, a profiler or a debugger) holds "
             "NVIDIA's Sanitizer API, which serves one at a time";
    }
    failures += (failures.empty() ? "" : "; ") + failure;
  }
  if (!failures.empty()) return "NVIDIA's Sanitizer API cannot be used: " + failures;
  return "NVIDIA's Sanitizer API (libsanitizer-public.so) is not on this machine: install a CUDA "
         "toolkit with compute-sanitizer or the Python package nvidia-cuda-sanitizer-api, or name "
         "the library in OPS_DEBUG_SANITIZER_LIBRARY";
}

// ---- Patching

uint32_t CurrentArch() {
  CUdevice device = 0;
  int major = 0, minor = 0;
  if (OPS_DEBUG_REAL(cuCtxGetDevice)(&device) != CUDA_SUCCESS ||
      OPS_DEBUG_REAL(cuDeviceGetAttribute)(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                                           device) != CUDA_SUCCESS ||
      OPS_DEBUG_REAL(cuDeviceGetAttribute)(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
                                           device) != CUDA_SUCCESS) {
    return 0;
  }
  return static_cast<uint32_t>(major * 10 + minor);
}

// Loads the patch into the current context. The patch mutex is held.
std::string PrepareContext(SassEngine& engine, const ContextPointer& context) {
  const auto found = engine.contexts.find(context->context);
  // A context handle may be used again after its context is gone.
  if (found != engine.contexts.end() && found->second.faults &&
      found->second.faults->context() == context) {
    return found->second.obstacle;
  }
  SassEngine::Context& made = engine.contexts[context->context];
  if (made.faults) static_cast<void>(made.faults.release());  // its memory is gone with its context
  made.faults = std::make_unique<SassFaultChannel>(context, engine.code);
  StartFaultWatch();
  made.obstacle = made.faults->failure();
  if (!made.obstacle.empty()) return made.obstacle;
  made.patch = MakeSassPatch(
      CurrentArch(), {.directory = context->shadow.directory(), .channel = made.faults->address()},
      &made.obstacle);
  if (!made.obstacle.empty()) return made.obstacle;
  const SanitizerResult result =
      engine.api.sanitizerAddPatches(made.patch.data(), context->context);
  if (result != SANITIZER_SUCCESS) {
    made.obstacle = "NVIDIA's Sanitizer API does not take the engine's device code (" +
                    Text(engine.api, result) + ")";
  }
  return made.obstacle;
}

// The patch mutex is held, the context current and prepared.
std::string PatchModule(SassEngine& engine, CUmodule module) {
  struct Patch {
    Sanitizer_InstructionId instructions;
    const char* function;
    bool needed;
  };
  constexpr Patch kPatches[] = {
      {SANITIZER_INSTRUCTION_GLOBAL_MEMORY_ACCESS, shadow::kSassGlobalAccess, true},
      {SANITIZER_INSTRUCTION_MEMCPY_ASYNC, shadow::kSassAsyncCopy, false},
      {SANITIZER_INSTRUCTION_BULK_COPY_GLOBAL_TO_SHARED, shadow::kSassBulkRead, false},
      {SANITIZER_INSTRUCTION_BULK_COPY_SHARED_TO_GLOBAL, shadow::kSassBulkWrite, false},
      {SANITIZER_INSTRUCTION_BULK_REDUCTION_SHARED_TO_GLOBAL, shadow::kSassBulkReduce, false},
  };
  if (LaunchesAreFiltered()) {
    // Earlier launches of the module may still run the code that is about to change.
    if (AnyCapture()) return "its module is first needed while a stream is being captured";
    if (OPS_DEBUG_REAL(cuCtxSynchronize)() != CUDA_SUCCESS) return "its context has failed";
  }
  for (const Patch& patch : kPatches) {
    const SanitizerResult result =
        engine.api.sanitizerPatchInstructions(patch.instructions, module, patch.function);
    if (result != SANITIZER_SUCCESS && patch.needed)
      return "NVIDIA's Sanitizer API cannot patch its module (" + Text(engine.api, result) + ")";
  }
  const SanitizerResult result = engine.api.sanitizerPatchModule(module);
  if (result != SANITIZER_SUCCESS)
    return "NVIDIA's Sanitizer API cannot patch its module (" + Text(engine.api, result) + ")";
  return "";
}

// The module's patch, made at first use.
std::string CoverModule(SassEngine& engine, const ContextPointer& context, CUmodule handle,
                        const ModulePointer& module) {
  std::lock_guard lock(engine.patch_mutex);
  {
    std::lock_guard unloaded_lock(engine.unloaded_mutex);
    for (const CUmodule unloaded : engine.unloaded) engine.modules.erase(unloaded);
    engine.unloaded.clear();
  }
  std::string obstacle = PrepareContext(engine, context);
  if (!obstacle.empty()) return obstacle;
  const auto [entry, inserted] = engine.modules.try_emplace(handle);
  CoveredModule& covered = entry->second;
  if (inserted || covered.module != module) {
    covered.module = module;
    covered.obstacle = PatchModule(engine, handle);
    if (!covered.obstacle.empty()) {
      SendOnce(
          DiagnosticEvent{.severity = proto_enums::Severity::kWarning,
                          .text = "a module of machine code is not checked: " + covered.obstacle,
                          .hint = "its kernels are listed as not checked"});
    }
  }
  return covered.obstacle;
}

bool LearnPlace(SassEngine& engine, SassFunction* function) {
  std::lock_guard lock(engine.patch_mutex);
  return engine.api.sanitizerGetFunctionPcAndSize(function->module, function->name.c_str(),
                                                  &function->pc,
                                                  &function->size_bytes) == SANITIZER_SUCCESS &&
         function->pc != 0;
}

// Those of contexts that are there: a channel's memory goes with its context. They themselves live
// for ever. `hasty`: none if another thread is patching.
std::vector<SassFaultChannel*> Channels(SassEngine& engine, bool hasty) {
  std::vector<SassFaultChannel*> channels;
  if (!engine.on.load(std::memory_order_acquire)) return channels;
  std::unique_lock lock(engine.patch_mutex, std::defer_lock);
  if (hasty && !lock.try_lock()) return channels;
  if (!hasty) lock.lock();
  for (const auto& [context, made] : engine.contexts) {
    if (made.faults && FindContextState(context) == made.faults->context())
      channels.push_back(made.faults.get());
  }
  return channels;
}

// Contexts, modules and pinned memory are the parent's: they are not even mapped in a child.
void ForgetParent() noexcept {
  SassEngine& engine = TheEngine();
  for (auto& [context, made] : engine.contexts) static_cast<void>(made.faults.release());
  engine.contexts.clear();
  engine.modules.clear();
  engine.functions.clear();
}
[[maybe_unused]] const bool registered = [] {
  AtForkInChild(&ForgetParent);
  return true;
}();

CoveredFunction Cover(SassEngine& engine, CUfunction handle, const FunctionPointer& record,
                      const ContextPointer& context) {
  CoveredFunction covered;
  covered.record = record;
  if (record && record->module->instrumented) {
    covered.obstacle = "its module holds instrumented PTX, which the other engine checks";
    return covered;
  }
  InternalCalls calls(*context);
  if (!calls.ok()) {
    covered.obstacle = "its context cannot be made current";
    return covered;
  }
  covered.function = handle;
  const bool is_kernel = record && record->module->library && !record->context;
  if (is_kernel && OPS_DEBUG_REAL(cuKernelGetFunction)(
                       &covered.function, reinterpret_cast<CUkernel>(handle)) != CUDA_SUCCESS) {
    covered.obstacle = "the driver does not load it in this context";
    return covered;
  }
  if (OPS_DEBUG_REAL(cuFuncGetModule)(&covered.module, covered.function) != CUDA_SUCCESS) {
    covered.obstacle = "the driver does not say which module it belongs to";
    return covered;
  }
  covered.obstacle =
      CoverModule(engine, context, covered.module, record ? record->module : nullptr);
  if (!covered.obstacle.empty()) return covered;
  SassFunction function;
  function.context = context->context;
  function.module = covered.module;
  if (record) {
    function.name = record->kernel->name;
    function.module_id = record->kernel->module_id;
  }
  if (LearnPlace(engine, &function)) engine.code.Add(std::move(function));
  return covered;
}

}  // namespace

bool StartSassEngine() {
  SassEngine& engine = TheEngine();
  if (engine.on.load(std::memory_order_acquire)) return true;
  std::lock_guard lock(engine.start_mutex);
  if (!engine.started) {
    engine.obstacle = Start(engine);
    engine.started = true;
    engine.on.store(engine.obstacle.empty(), std::memory_order_release);
  }
  return engine.on;
}

std::string SassEngineObstacle() {
  StartSassEngine();
  SassEngine& engine = TheEngine();
  std::lock_guard lock(engine.start_mutex);
  return engine.obstacle;
}

UnpatchedLoad::UnpatchedLoad() { t_unpatched_loads++; }
UnpatchedLoad::~UnpatchedLoad() { t_unpatched_loads--; }

bool SassEngineCovers(CUfunction handle, const ContextPointer& context, CUstream,
                      uint64_t launch_id, std::string* reason) {
  if (!StartSassEngine()) {
    *reason = SassEngineObstacle();
    return false;
  }
  if (!context || context->lost) {
    *reason = "no shadow memory in its context";
    return false;
  }
  SassEngine& engine = TheEngine();
  const FunctionPointer record = FindFunction(handle);
  const HandleInContext key{handle, context->context};
  std::shared_ptr<const CoveredFunction> covered;
  {
    std::shared_lock lock(engine.functions_mutex);
    const auto found = engine.functions.find(key);
    if (found != engine.functions.end() && found->second->record == record) covered = found->second;
  }
  if (!covered) {
    covered = std::make_shared<const CoveredFunction>(Cover(engine, handle, record, context));
    std::unique_lock lock(engine.functions_mutex);
    engine.functions[key] = covered;
  }
  if (!covered->obstacle.empty()) {
    *reason = covered->obstacle;
    return false;
  }
  Announce(covered->function, launch_id);
  return true;
}

void DrainSassFaults(DrainDepth depth) {
  SassEngine& engine = TheEngine();
  // At the very end of the process a thread that is gone may hold the lock.
  for (SassFaultChannel* channel : Channels(engine, depth == DrainDepth::kHostOnly))
    channel->Drain(depth, [&](SassFunction* function) { return LearnPlace(engine, function); });
}

void ReportStandingSassFaults(std::chrono::steady_clock::time_point now,
                              std::chrono::steady_clock::duration patience) {
  for (SassFaultChannel* channel : Channels(TheEngine(), true))
    channel->DrainStanding(now, patience);
}

#else  // OPS_DEBUG_HAVE_SANITIZER_API

bool StartSassEngine() { return false; }

std::string SassEngineObstacle() {
  return "ops-debug was built without the headers of NVIDIA's Sanitizer API (CUDA toolkit, or the "
         "Python package nvidia-cuda-sanitizer-api)";
}

UnpatchedLoad::UnpatchedLoad() = default;
UnpatchedLoad::~UnpatchedLoad() = default;

bool SassEngineCovers(CUfunction, const ContextPointer&, CUstream, uint64_t, std::string* reason) {
  *reason = SassEngineObstacle();
  return false;
}

void DrainSassFaults(DrainDepth) {}

void ReportStandingSassFaults(std::chrono::steady_clock::time_point,
                              std::chrono::steady_clock::duration) {}

#endif  // OPS_DEBUG_HAVE_SANITIZER_API

}  // namespace ops_debug::interposer
