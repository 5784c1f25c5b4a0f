// The tables behind module_registry.h, under one lock. Records are shared pointers, so that a
// launch in one thread survives an unload in another.
#include "interposer/module_registry.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <set>
#include <shared_mutex>

#include "interposer/exact_checks.h"
#include "interposer/init_state.h"
#include "interposer/session.h"

namespace ops_debug::interposer {
namespace {

struct ModuleHandle {
  ModulePointer module;
  CUcontext context = nullptr;
};

// Never destroyed: hooks run until the very end of the process.
struct Registry {
  std::shared_mutex mutex;
  std::unordered_map<CUmodule, ModuleHandle> modules;
  std::unordered_map<CUlibrary, ModulePointer> libraries;
  std::unordered_map<CUfunction, FunctionPointer> functions;  // CUkernel handles too
  std::unordered_map<CUfunction, CUfunction> originals;       // by twin
};
Registry& TheRegistry() {
  static auto* registry = new Registry;
  return *registry;
}

CUfunction AsFunction(CUkernel kernel) { return reinterpret_cast<CUfunction>(kernel); }

CUcontext CurrentContext() {
  CUcontext context = nullptr;
  OPS_DEBUG_REAL(cuCtxGetCurrent)(&context);
  return context;
}

template <class Predicate>
void EraseFunctions(Registry& registry, Predicate belongs) {
  std::set<CUfunction> gone;
  for (auto at = registry.functions.begin(); at != registry.functions.end();) {
    if (!belongs(*at->second)) {
      ++at;
      continue;
    }
    gone.insert(at->second->handle);
    at = registry.functions.erase(at);
  }
  if (gone.empty()) return;
  std::erase_if(registry.originals,
                [&](const auto& entry) { return gone.count(entry.second) != 0; });
}

}  // namespace

bool FindGlobal(const LoadedModule& module, const char* name, CUdeviceptr* address, size_t* bytes) {
  const CUresult result =
      module.library ? OPS_DEBUG_REAL(cuLibraryGetGlobal)(address, bytes, module.library, name)
                     : OPS_DEBUG_REAL(cuModuleGetGlobal_v2)(address, bytes, module.module, name);
  return result == CUDA_SUCCESS;
}

namespace {

// Module-scope variables whose size is known are allocations like others:
// bounds and neighbours need them.
void EnterVariables(const LoadedModule& module, ContextState& state) {
  for (const shadow::ModuleVariable& variable : module.code.globals) {
    CUdeviceptr address = 0;
    size_t bytes = 0;
    if (!FindGlobal(module, variable.name.c_str(), &address, &bytes) || address == 0 || bytes == 0)
      continue;
    shadow::Allocation allocation;
    allocation.base = address;
    allocation.size_bytes = allocation.reserved_bytes = bytes;
    allocation.kind = shadow::AllocationKind::kModuleVariable;
    allocation.api = "module variable";
    allocation.name = variable.name;
    allocation.owner = module.id;
    allocation.context = state.context;
    Book().Insert(std::move(allocation));
    if (ChecksMemory() && !state.shadow.MarkValid(address, bytes, bytes)) state.lost = true;
  }
}

// Of the table of numerical faults. A site breaks few rules of the many that there are.
uint32_t NumericSlots(size_t sites) {
  if (sites == 0) return 0;
  const uint64_t wanted = std::bit_ceil(uint64_t{sites} * 4);
  return static_cast<uint32_t>(
      std::clamp<uint64_t>(wanted, shadow::kNumericSlotsLeast, shadow::kNumericSlotsMost));
}

std::string SetUp(const LoadedModule& module, ContextState& state, ModuleInstance* instance) {
  InternalCalls calls(state);
  if (!calls.ok()) return "its context cannot be made current";
  if (!module.instrumented) {
    EnterVariables(module, state);
    return "";
  }
  CUdeviceptr symbol = 0;
  size_t symbol_bytes = 0;
  if (!FindGlobal(module, shadow::kModuleContextSymbol, &symbol, &symbol_bytes) ||
      symbol_bytes < sizeof(shadow::ModuleContext)) {
    return "the driver does not find the rewritten module's own variable";
  }
  instance->entries = module.code.sites.size() * shadow::kFaultClasses;
  const uint64_t slots = std::max<uint64_t>(instance->entries, 1);
  const uint64_t records_bytes = slots * sizeof(shadow::FaultRecord);
  const uint32_t numeric_slots = NumericSlots(module.code.numeric_sites.size());
  const uint64_t device_bytes =
      records_bytes + sizeof(shadow::Counters) + numeric_slots * sizeof(shadow::NumericRecord);
  const uint64_t faults_bytes = slots * sizeof(shadow::PublishedFault);
  const uint64_t published_bytes = faults_bytes + numeric_slots * sizeof(shadow::PublishedNumeric);
  instance->records = state.device.Allocate(device_bytes);
  if (instance->records == 0) return "no device memory for fault records";
  instance->counters = instance->records + records_bytes;
  void* published = nullptr;
  CUdeviceptr published_device = 0;
  if (OPS_DEBUG_REAL(cuMemHostAlloc)(&published, published_bytes,
                                     CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP) !=
      CUDA_SUCCESS) {
    return "no pinned host memory for fault records";
  }
  std::memset(published, 0, published_bytes);
  HideFromChecks(reinterpret_cast<uint64_t>(published), published_bytes);
  HideFromChecks(symbol, symbol_bytes);
  instance->published = static_cast<shadow::PublishedFault*>(published);
  if (numeric_slots != 0) {
    instance->numeric_slots = numeric_slots;
    instance->numeric_records = instance->counters + sizeof(shadow::Counters);
    instance->numeric_published = reinterpret_cast<shadow::PublishedNumeric*>(
        static_cast<std::byte*>(published) + faults_bytes);
  }
  if (OPS_DEBUG_REAL(cuMemHostGetDevicePointer_v2)(&published_device, published, 0) !=
      CUDA_SUCCESS) {
    return "pinned host memory has no device address";
  }
  shadow::ModuleContext context{};
  context.directory = state.shadow.directory();
  context.records = instance->records;
  context.published = published_device;
  context.counters = instance->counters;
  context.flags = Options().trap_on_error ? shadow::kFlagTrapOnError : 0;
  context.abi_version = shadow::kAbiVersion;
  context.numeric_records = instance->numeric_records;
  context.numeric_published = numeric_slots != 0 ? published_device + faults_bytes : 0;
  context.numeric_slots = numeric_slots;
  if (state.init) {
    context.init_directory = state.init->directory();
    if (context.init_directory == 0) return "no device memory for the state of unwritten memory";
  }
  if (!state.device.Fill(instance->records, 0, device_bytes) ||
      !state.device.Write(symbol, &context, sizeof context) || !state.device.Finish()) {
    return "the rewritten module's own variable cannot be written";
  }
  EnterVariables(module, state);
  return "";
}

}  // namespace

const char* EngineName(Engine engine) {
  switch (engine) {
    case Engine::kPtx:
      return "ptx";
    case Engine::kSass:
      return "sass";
    case Engine::kEmulator:
      return "emulator";
  }
  return "";
}

uint32_t OriginalLine(const LoadedModule& module, uint32_t loaded_line) {
  if (!module.instrumented) return loaded_line;
  const std::vector<uint32_t>& lines = module.code.original_lines;
  return loaded_line == 0 || loaded_line > lines.size() ? 0 : lines[loaded_line - 1];
}

uint64_t NextModuleId() {
  static std::atomic<uint64_t> next{1};
  return next++;
}

KernelRecord* LoadedModule::Kernel(std::string_view name) {
  std::lock_guard lock(mutex);
  const auto found = kernels.find(name);
  if (found != kernels.end()) return found->second.get();
  auto record = std::make_unique<KernelRecord>();
  record->name = name;
  record->module_id = id;
  record->not_checked_reason =
      not_checked_reason.empty() ? "not in the module's PTX" : not_checked_reason;
  return kernels.emplace(std::string(name), std::move(record)).first->second.get();
}

void RegisterModule(CUmodule handle, CUcontext context, const ModulePointer& module) {
  Registry& registry = TheRegistry();
  std::unique_lock lock(registry.mutex);
  registry.modules[handle] = {module, context};
}
void RegisterLibrary(CUlibrary handle, const ModulePointer& module) {
  Registry& registry = TheRegistry();
  std::unique_lock lock(registry.mutex);
  registry.libraries[handle] = module;
}

ModulePointer FindModule(CUmodule handle) {
  Registry& registry = TheRegistry();
  std::shared_lock lock(registry.mutex);
  const auto found = registry.modules.find(handle);
  return found == registry.modules.end() ? nullptr : found->second.module;
}
ModulePointer FindLibrary(CUlibrary handle) {
  Registry& registry = TheRegistry();
  std::shared_lock lock(registry.mutex);
  const auto found = registry.libraries.find(handle);
  return found == registry.libraries.end() ? nullptr : found->second;
}

void ForgetModule(CUmodule handle) {
  Registry& registry = TheRegistry();
  std::unique_lock lock(registry.mutex);
  registry.modules.erase(handle);
  EraseFunctions(registry,
                 [&](const FunctionRecord& function) { return function.owner == handle; });
}

void ForgetLibrary(CUlibrary handle) {
  Registry& registry = TheRegistry();
  std::unique_lock lock(registry.mutex);
  const auto found = registry.libraries.find(handle);
  if (found == registry.libraries.end()) return;
  const ModulePointer module = found->second;
  registry.libraries.erase(found);
  EraseFunctions(registry,
                 [&](const FunctionRecord& function) { return function.module == module; });
  for (auto at = registry.modules.begin(); at != registry.modules.end();) {
    at = at->second.module == module ? registry.modules.erase(at) : std::next(at);
  }
}

void ForgetContextModules(CUcontext context) {
  Registry& registry = TheRegistry();
  std::unique_lock lock(registry.mutex);
  EraseFunctions(registry,
                 [&](const FunctionRecord& function) { return function.context == context; });
  for (auto at = registry.modules.begin(); at != registry.modules.end();) {
    at = at->second.context == context ? registry.modules.erase(at) : std::next(at);
  }
  // A plain module's instance dies with its last reference; a library lives on.
  for (const auto& [handle, library] : registry.libraries) {
    std::lock_guard module_lock(library->mutex);
    library->instances.erase(context);
  }
}

// Asking twice gives one handle: its record, and the twin in it, stays. But a
// handle that was launched before we knew its module, or that the driver uses
// again, gets a new one.
static void Enter(CUfunction handle, FunctionPointer record) {
  record->handle = handle;
  Registry& registry = TheRegistry();
  std::unique_lock lock(registry.mutex);
  FunctionPointer& slot = registry.functions[handle];
  if (!slot || slot->module != record->module || slot->kernel != record->kernel)
    slot = std::move(record);
}

void RegisterFunction(CUfunction handle, CUmodule owner, std::string_view name) {
  auto record = std::make_shared<FunctionRecord>();
  {
    Registry& registry = TheRegistry();
    std::shared_lock lock(registry.mutex);
    const auto found = registry.modules.find(owner);
    if (found == registry.modules.end()) return;
    record->module = found->second.module;
    record->context = found->second.context;
  }
  record->kernel = record->module->Kernel(name);
  record->owner = owner;
  Enter(handle, std::move(record));
}

void RegisterKernel(CUkernel handle, CUlibrary library, std::string_view name) {
  auto record = std::make_shared<FunctionRecord>();
  record->module = FindLibrary(library);
  if (!record->module) return;
  record->kernel = record->module->Kernel(name);
  Enter(AsFunction(handle), std::move(record));
}

void RegisterKernelFunction(CUfunction handle, CUkernel kernel) {
  const FunctionPointer source = FindFunction(AsFunction(kernel));
  if (!source || handle == AsFunction(kernel)) return;
  auto record = std::make_shared<FunctionRecord>();
  record->module = source->module;
  record->kernel = source->kernel;
  record->context = CurrentContext();
  record->source = kernel;
  Enter(handle, std::move(record));
}

FunctionPointer RegisterStranger(CUfunction handle) {
  static const ModulePointer* strangers = [] {
    auto module = std::make_shared<LoadedModule>();
    module->not_checked_reason =
        "its module was loaded in a way that ops-debug does not see (before it "
        "was active, or by a CUDA 11 run-time)";
    return new ModulePointer(std::move(module));
  }();
  const char* name = nullptr;
  auto record = std::make_shared<FunctionRecord>();
  record->module = *strangers;
  record->kernel = (*strangers)
                       ->Kernel(OPS_DEBUG_REAL(cuFuncGetName)(&name, handle) == CUDA_SUCCESS && name
                                    ? name
                                    : "(unknown kernel)");
  Enter(handle, record);
  return record;
}

FunctionPointer FindFunction(CUfunction handle) {
  Registry& registry = TheRegistry();
  std::shared_lock lock(registry.mutex);
  const auto found = registry.functions.find(handle);
  return found == registry.functions.end() ? nullptr : found->second;
}

bool IsTwinName(const char* name) {
  static const std::string suffix = shadow::TwinName("");
  const std::string_view view = name ? name : "";
  return view.size() > suffix.size() && view.substr(view.size() - suffix.size()) == suffix;
}

static CUfunction FetchTwin(const FunctionRecord& function, const char* name) {
  std::optional<InternalCalls> calls;
  if (function.context) calls.emplace(function.context);
  CUfunction twin = nullptr;
  if (function.owner) {
    return OPS_DEBUG_REAL(cuModuleGetFunction)(&twin, function.owner, name) == CUDA_SUCCESS
               ? twin
               : nullptr;
  }
  CUkernel kernel = nullptr;
  if (OPS_DEBUG_REAL(cuLibraryGetKernel)(&kernel, function.module->library, name) != CUDA_SUCCESS)
    return nullptr;
  if (!function.source) return AsFunction(kernel);
  return OPS_DEBUG_REAL(cuKernelGetFunction)(&twin, kernel) == CUDA_SUCCESS ? twin : nullptr;
}

namespace {

CUfunction FetchOnce(FunctionRecord& function, const std::string& name, CUfunction* twin) {
  if (name.empty()) return nullptr;
  std::lock_guard lock(function.mutex);
  if (*twin) return *twin;
  *twin = FetchTwin(function, name.c_str());
  if (*twin) {
    Registry& registry = TheRegistry();
    std::unique_lock registry_lock(registry.mutex);
    registry.originals[*twin] = function.handle;
  }
  return *twin;
}

}  // namespace

CUfunction TwinOf(FunctionRecord& function) {
  const shadow::KernelPlan* plan = function.kernel->plan;
  return plan ? FetchOnce(function, plan->twin, &function.twin) : nullptr;
}

CUfunction LeanTwinOf(FunctionRecord& function) {
  const shadow::KernelPlan* plan = function.kernel->plan;
  return plan ? FetchOnce(function, plan->lean_twin, &function.lean_twin) : nullptr;
}

CUfunction OriginalOf(CUfunction handle) {
  Registry& registry = TheRegistry();
  std::shared_lock lock(registry.mutex);
  const auto found = registry.originals.find(handle);
  return found == registry.originals.end() ? nullptr : found->second;
}

namespace {

bool BelongsTo(CUmodule module, const FunctionRecord& function) {
  if (function.owner) return function.owner == module;
  CUmodule of_library = nullptr;
  return function.module->library &&
         OPS_DEBUG_REAL(cuLibraryGetModule)(&of_library, function.module->library) ==
             CUDA_SUCCESS &&
         of_library == module;
}

// By name and module: slow, but a handle is asked about once.
FunctionPointer FindByName(CUfunction handle, bool* is_twin) {
  const char* name = nullptr;
  CUmodule module = nullptr;
  if (!handle || OPS_DEBUG_REAL(cuFuncGetName)(&name, handle) != CUDA_SUCCESS || !name ||
      OPS_DEBUG_REAL(cuFuncGetModule)(&module, handle) != CUDA_SUCCESS) {
    return nullptr;
  }
  *is_twin = IsTwinName(name);
  std::vector<FunctionPointer> candidates;
  Registry& registry = TheRegistry();
  {
    std::shared_lock lock(registry.mutex);
    for (const auto& [known, function] : registry.functions) {
      const shadow::KernelPlan* plan = function->kernel->plan;
      if (*is_twin ? plan && (plan->twin == name || plan->lean_twin == name)
                   : function->kernel->name == name)
        candidates.push_back(function);
    }
  }
  for (const FunctionPointer& function : candidates) {
    if (!BelongsTo(module, *function)) continue;
    if (*is_twin) {
      std::unique_lock lock(registry.mutex);
      registry.originals[handle] = function->handle;
    }
    return function;
  }
  return nullptr;
}

}  // namespace

FunctionPointer FindNodeFunction(CUfunction function, CUkernel kernel, bool* is_twin) {
  for (const CUfunction handle : {function, AsFunction(kernel)}) {
    if (!handle) continue;
    const CUfunction original = OriginalOf(handle);
    *is_twin = original != nullptr;
    if (FunctionPointer found = FindFunction(original ? original : handle)) return found;
  }
  return FindByName(function, is_twin);
}

CUfunction NodeHandle(const FunctionRecord& function) {
  if (function.owner || function.source || !function.module->library) return function.handle;
  CUfunction handle = nullptr;
  return OPS_DEBUG_REAL(cuKernelGetFunction)(
             &handle, reinterpret_cast<CUkernel>(function.handle)) == CUDA_SUCCESS
             ? handle
             : nullptr;
}

InstancePointer InstanceIn(const ModulePointer& module, const ContextPointer& context) {
  std::lock_guard lock(module->mutex);
  InstancePointer& instance = module->instances[context->context];
  if (!instance) {
    auto made = std::make_shared<ModuleInstance>();
    made->context = context;
    made->module = module;
    made->failure = SetUp(*module, *context, made.get());
    instance = std::move(made);
  }
  return instance;
}

std::vector<InstancePointer> AllInstances() {
  std::set<ModulePointer> modules;
  Registry& registry = TheRegistry();
  {
    std::shared_lock lock(registry.mutex);
    for (const auto& [handle, entry] : registry.modules) modules.insert(entry.module);
    for (const auto& [handle, module] : registry.libraries) modules.insert(module);
  }
  std::vector<InstancePointer> all;
  for (const ModulePointer& module : modules) {
    std::lock_guard lock(module->mutex);
    for (const auto& [context, instance] : module->instances) all.push_back(instance);
  }
  return all;
}

void FreeInstance(ModuleInstance& instance) {
  std::lock_guard lock(instance.drain_mutex);
  if (instance.records != 0) OPS_DEBUG_REAL(cuMemFree_v2)(instance.records);
  if (instance.published) OPS_DEBUG_REAL(cuMemFreeHost)(instance.published);
  instance.records = instance.counters = instance.numeric_records = 0;
  instance.ForgetChannel();
}

}  // namespace ops_debug::interposer
