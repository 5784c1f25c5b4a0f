#include "test/interposer/handlers/fake_driver.h"

#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <regex>
#include <set>

#include "shadow/abi/device_abi.h"

#pragma GCC visibility push(default)
namespace ops_debug::interposer::fake {

Driver& TheDriver() {
  static auto* driver = new Driver;
  return *driver;
}

struct Stream {
  std::deque<std::function<void()>> queue;
  bool capturing = false;
};
struct Event {
  Stream* stream = nullptr;
  bool done = true;
};
struct Module;
struct Function {
  std::string name;
  Module* module;
};
struct Module {
  std::map<std::string, std::unique_ptr<Function>> functions;
  std::map<std::string, std::vector<uint64_t>> variables;
};

static Stream g_legacy;
static std::set<Stream*> g_streams;
static Module* g_last_module = nullptr;
// Outlives the thread's other objects: the exit hook still asks for the current context.
static std::vector<CUcontext>& Contexts() {
  static thread_local auto* contexts = new std::vector<CUcontext>;
  return *contexts;
}
constexpr uintptr_t kContext = 0xC0;

static Stream* Find(CUstream stream) {
  if (stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD)
    return &g_legacy;
  return reinterpret_cast<Stream*>(stream);
}
static void RunAll(Stream* stream) {
  while (!stream->queue.empty()) {
    auto work = std::move(stream->queue.front());
    stream->queue.pop_front();
    work();
  }
}
void Run(CUstream stream) { RunAll(Find(stream)); }
CUdeviceptr Variable(const std::string& name) {
  return reinterpret_cast<CUdeviceptr>(g_last_module->variables.at(name).data());
}

static CUresult Allocate(CUdeviceptr* address, size_t bytes) {
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  Driver& driver = TheDriver();
  // Whether a block needs a new chunk of shadow memory depends on where malloc puts it: chunks are
  // free, so that what a test sees does not.
  const uint64_t counted = bytes == shadow::kChunkBytes ? 0 : bytes;
  if (counted > driver.free_bytes) return CUDA_ERROR_OUT_OF_MEMORY;
  void* memory = std::aligned_alloc(512, (bytes + 511) / 512 * 512);
  *address = reinterpret_cast<CUdeviceptr>(memory);
  driver.free_bytes -= counted;
  driver.allocations[*address] = bytes;
  return CUDA_SUCCESS;
}
static CUresult Free(CUdeviceptr address) {
  Driver& driver = TheDriver();
  const auto found = driver.allocations.find(address);
  if (found == driver.allocations.end()) return CUDA_ERROR_INVALID_VALUE;
  if (found->second != shadow::kChunkBytes) driver.free_bytes += found->second;
  driver.allocations.erase(found);
  std::free(reinterpret_cast<void*>(address));
  return CUDA_SUCCESS;
}
static CUresult Range(CUdeviceptr address, CUdeviceptr* base, size_t* bytes) {
  for (const auto& [start, size] : TheDriver().allocations) {
    if (address < start || address >= start + size) continue;
    *base = start;
    *bytes = size;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_NOT_FOUND;
}

static CUresult Load(const char* text, Module** out) {
  Driver& driver = TheDriver();
  if (!driver.rejected.empty() && std::strstr(text, driver.rejected.c_str()))
    return driver.rejected_with;
  driver.module_texts.emplace_back(text);
  auto* module = new Module;
  const std::string code = text;
  const std::regex entry(R"(\.entry\s+([\w$]+))");
  for (std::sregex_iterator at(code.begin(), code.end(), entry), end; at != end; ++at) {
    const std::string name = (*at)[1];
    module->functions[name] = std::make_unique<Function>(Function{name, module});
  }
  const std::regex variable(
      R"(\.(?:global|const)\s+(?:\.align\s+\d+\s+)?\.[bu]\d+\s+([\w$]+)\[(\d+)\])");
  for (std::sregex_iterator at(code.begin(), code.end(), variable), end; at != end; ++at) {
    module->variables[(*at)[1]].resize((std::stoul((*at)[2]) + 7) / 8);
  }
  *out = g_last_module = module;
  return CUDA_SUCCESS;
}
static CUresult FindFunction(Module* module, const char* name, Function** out) {
  const auto found = module->functions.find(name);
  if (found == module->functions.end()) return CUDA_ERROR_NOT_FOUND;
  *out = found->second.get();
  return CUDA_SUCCESS;
}
static CUresult FindVariable(Module* module, const char* name, CUdeviceptr* address,
                             size_t* bytes) {
  const auto found = module->variables.find(name);
  if (found == module->variables.end()) return CUDA_ERROR_NOT_FOUND;
  *address = reinterpret_cast<CUdeviceptr>(found->second.data());
  *bytes = found->second.size() * 8;
  return CUDA_SUCCESS;
}
static CUresult LaunchOn(Function* function, CUstream stream, void** parameters, void** extra) {
  Driver& driver = TheDriver();
  if (driver.instant_launches) return CUDA_SUCCESS;
  const bool twin = function->name.find("$ops_debug") != std::string::npos;
  const CUresult result = twin ? driver.twin_result : driver.original_result;
  if (result != CUDA_SUCCESS) return result;
  const Launch launch{function->name, parameters, extra, stream,
                      reinterpret_cast<CUfunction>(function)};
  driver.launches.push_back(launch);
  if (driver.on_launch) driver.on_launch(launch);
  return CUDA_SUCCESS;
}

}  // namespace ops_debug::interposer::fake

namespace fake = ops_debug::interposer::fake;
using fake::Find;

static fake::Module* AsModule(const void* handle) {
  return const_cast<fake::Module*>(static_cast<const fake::Module*>(handle));
}
static fake::Function* AsFunction(const void* handle) {
  return const_cast<fake::Function*>(static_cast<const fake::Function*>(handle));
}

extern "C" {

CUresult cuInit(unsigned) { return CUDA_SUCCESS; }
CUresult cuDriverGetVersion(int* version) {
  *version = 13000;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGet(CUdevice* device, int) {
  *device = 0;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetName(char* name, int length, CUdevice) {
  strncpy(name, "Fake Device", static_cast<size_t>(length));
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
  *value = attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR            ? 9
           : attribute == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN ? 232448
           : attribute == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT              ? 1
                                                                                : 0;
  return CUDA_SUCCESS;
}
CUresult cuGetErrorName(CUresult error, const char** name) {
  *name = error == CUDA_ERROR_INVALID_PTX               ? "CUDA_ERROR_INVALID_PTX"
          : error == CUDA_ERROR_INVALID_VALUE           ? "CUDA_ERROR_INVALID_VALUE"
          : error == CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES ? "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"
                                                        : "CUDA_ERROR_OTHER";
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice) {
  *context = reinterpret_cast<CUcontext>(fake::kContext);
  return CUDA_SUCCESS;
}
CUresult cuCtxSetCurrent(CUcontext context) {
  if (!fake::Contexts().empty()) fake::Contexts().pop_back();
  if (context) fake::Contexts().push_back(context);
  return CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext* context) {
  *context = fake::Contexts().empty() ? nullptr : fake::Contexts().back();
  return CUDA_SUCCESS;
}
CUresult cuCtxPushCurrent_v2(CUcontext context) {
  fake::Contexts().push_back(context);
  return CUDA_SUCCESS;
}
CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  *context = fake::Contexts().back();
  fake::Contexts().pop_back();
  return CUDA_SUCCESS;
}
CUresult cuCtxGetDevice(CUdevice* device) {
  *device = 0;
  return fake::Contexts().empty() ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}
CUresult cuCtxSynchronize() {
  fake::TheDriver().context_synchronizations++;
  fake::RunAll(&fake::g_legacy);
  for (fake::Stream* stream : fake::g_streams) fake::RunAll(stream);
  return CUDA_SUCCESS;
}
CUresult cuCtxDestroy_v2(CUcontext) { return CUDA_SUCCESS; }

CUresult cuStreamCreate(CUstream* stream, unsigned) {
  auto* made = new fake::Stream;
  fake::g_streams.insert(made);
  *stream = reinterpret_cast<CUstream>(made);
  return CUDA_SUCCESS;
}
CUresult cuStreamDestroy_v2(CUstream) { return CUDA_SUCCESS; }
CUresult cuStreamSynchronize(CUstream stream) {
  fake::Run(stream);
  return CUDA_SUCCESS;
}
CUresult cuStreamGetCtx(CUstream, CUcontext* context) { return cuCtxGetCurrent(context); }
CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  *status =
      Find(stream)->capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}
CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode) {
  Find(stream)->capturing = true;
  return CUDA_SUCCESS;
}
CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  Find(stream)->capturing = false;
  *graph = nullptr;
  return CUDA_SUCCESS;
}
CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode*) { return CUDA_SUCCESS; }

CUresult cuEventCreate(CUevent* event, unsigned) {
  *event = reinterpret_cast<CUevent>(new fake::Event);
  return CUDA_SUCCESS;
}
CUresult cuEventDestroy_v2(CUevent) { return CUDA_SUCCESS; }
CUresult cuEventRecord(CUevent handle, CUstream stream) {
  auto* event = reinterpret_cast<fake::Event*>(handle);
  event->stream = Find(stream);
  event->done = false;
  event->stream->queue.push_back([event] { event->done = true; });
  return CUDA_SUCCESS;
}
CUresult cuEventQuery(CUevent handle) {
  return reinterpret_cast<fake::Event*>(handle)->done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
CUresult cuEventSynchronize(CUevent handle) {
  auto* event = reinterpret_cast<fake::Event*>(handle);
  if (!event->done) fake::RunAll(event->stream);
  return CUDA_SUCCESS;
}
CUresult cuStreamWaitEvent(CUstream stream, CUevent handle, unsigned) {
  auto* event = reinterpret_cast<fake::Event*>(handle);
  Find(stream)->queue.push_back([event] {
    if (!event->done) fake::RunAll(event->stream);
  });
  return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr* address, size_t bytes) {
  return fake::Allocate(address, bytes);
}
CUresult cuMemAllocManaged(CUdeviceptr* address, size_t bytes, unsigned) {
  return fake::Allocate(address, bytes);
}
CUresult cuMemAllocAsync(CUdeviceptr* address, size_t bytes, CUstream) {
  return fake::Allocate(address, bytes);
}
CUresult cuMemAllocPitch_v2(CUdeviceptr* address, size_t* pitch, size_t width, size_t height,
                            unsigned) {
  *pitch = (width + 511) / 512 * 512;
  return fake::Allocate(address, *pitch * height);
}
CUresult cuMemFree_v2(CUdeviceptr address) {
  return address == 0 ? CUDA_SUCCESS : fake::Free(address);
}
CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
  if (fake::TheDriver().allocations.count(address) == 0) return CUDA_ERROR_INVALID_VALUE;
  Find(stream)->queue.push_back([address] { fake::Free(address); });
  return CUDA_SUCCESS;
}
CUresult cuMemHostAlloc(void** host, size_t bytes, unsigned) {
  *host = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  return CUDA_SUCCESS;
}
CUresult cuMemAllocHost_v2(void** host, size_t bytes) { return cuMemHostAlloc(host, bytes, 0); }
CUresult cuMemFreeHost(void* host) {
  std::free(host);
  return CUDA_SUCCESS;
}
CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* device, void* host, unsigned) {
  *device = reinterpret_cast<CUdeviceptr>(host);
  return CUDA_SUCCESS;
}
CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* bytes, CUdeviceptr address) {
  return fake::Range(address, base, bytes);
}
CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr address) {
  CUdeviceptr base = 0;
  size_t bytes = 0;
  if (fake::Range(address, &base, &bytes) != CUDA_SUCCESS) return CUDA_ERROR_INVALID_VALUE;
  if (attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE) *static_cast<size_t*>(data) = bytes;
  if (attribute == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR) *static_cast<CUdeviceptr*>(data) = base;
  return CUDA_SUCCESS;
}

CUresult cuMemsetD8Async(CUdeviceptr address, unsigned char value, size_t bytes, CUstream stream) {
  Find(stream)->queue.push_back(
      [=] { std::memset(reinterpret_cast<void*>(address), value, bytes); });
  return CUDA_SUCCESS;
}
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  const auto* begin = static_cast<const char*>(from);
  Find(stream)->queue.push_back([to, copy = std::string(begin, bytes)] {
    std::memcpy(reinterpret_cast<void*>(to), copy.data(), copy.size());
  });
  return CUDA_SUCCESS;
}
CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  Find(stream)->queue.push_back(
      [=] { std::memcpy(to, reinterpret_cast<const void*>(from), bytes); });
  return CUDA_SUCCESS;
}
CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes) {
  fake::RunAll(&fake::g_legacy);
  std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
  return CUDA_SUCCESS;
}

CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned count,
                            CUjit_option* options, void** values) {
  const auto* text = static_cast<const char*>(image);
  if (std::memcmp(text,
                  "\x7f"
                  "ELF",
                  4) == 0)
    text = "";
  const CUresult result = fake::Load(text, reinterpret_cast<fake::Module**>(module));
  if (result == CUDA_SUCCESS) {
    auto& given = fake::TheDriver().module_options.emplace_back();
    for (unsigned i = 0; i < count; i++) given.emplace_back(options[i], values[i]);
  }
  for (unsigned i = 0; i < count && result != CUDA_SUCCESS; i++) {
    if (options[i] == CU_JIT_ERROR_LOG_BUFFER)
      strcpy(static_cast<char*>(values[i]), "ptxas: line 7: no such thing\n");
  }
  return result;
}
CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  return cuModuleLoadDataEx(module, image, 0, nullptr, nullptr);
}
CUresult cuModuleUnload(CUmodule) { return CUDA_SUCCESS; }

// The result of any link is the same ELF file.
CUresult cuLinkCreate_v2(unsigned, CUjit_option*, void**, CUlinkState* state) {
  static int link;
  *state = reinterpret_cast<CUlinkState>(&link);
  return CUDA_SUCCESS;
}
CUresult cuLinkAddData_v2(CUlinkState, CUjitInputType, void*, size_t, const char*, unsigned,
                          CUjit_option*, void**) {
  return CUDA_SUCCESS;
}
CUresult cuLinkComplete(CUlinkState, void** cubin, size_t* bytes) {
  *cubin = fake::TheDriver().linked_cubin.data();
  if (bytes != nullptr) *bytes = fake::TheDriver().linked_cubin.size();
  return CUDA_SUCCESS;
}
CUresult cuLinkDestroy(CUlinkState) { return CUDA_SUCCESS; }
CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  return fake::FindFunction(AsModule(module), name, reinterpret_cast<fake::Function**>(function));
}
CUresult cuModuleGetGlobal_v2(CUdeviceptr* address, size_t* bytes, CUmodule module,
                              const char* name) {
  return fake::FindVariable(AsModule(module), name, address, bytes);
}
CUresult cuModuleGetFunctionCount(unsigned* count, CUmodule module) {
  *count = static_cast<unsigned>(AsModule(module)->functions.size());
  return CUDA_SUCCESS;
}
CUresult cuModuleEnumerateFunctions(CUfunction* functions, unsigned room, CUmodule module) {
  for (const auto& [name, function] : AsModule(module)->functions) {
    if (room-- == 0) break;
    *functions++ = reinterpret_cast<CUfunction>(function.get());
  }
  return CUDA_SUCCESS;
}
CUresult cuFuncGetName(const char** name, CUfunction function) {
  *name = AsFunction(function)->name.c_str();
  return CUDA_SUCCESS;
}
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction function, int,
                                                     size_t) {
  const bool twin = AsFunction(function)->name.ends_with("$ops_debug");
  *blocks = twin ? fake::TheDriver().resident_twin_blocks : fake::TheDriver().resident_blocks;
  return CUDA_SUCCESS;
}
CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  if (fake::TheDriver().attribute_result != CUDA_SUCCESS) return fake::TheDriver().attribute_result;
  fake::TheDriver().attributes.push_back(AsFunction(function)->name + " " +
                                         std::to_string(attribute) + " " + std::to_string(value));
  return CUDA_SUCCESS;
}

CUresult cuLibraryLoadData(CUlibrary* library, const void* image, CUjit_option* options,
                           void** values, unsigned count, CUlibraryOption*, void**, unsigned) {
  return cuModuleLoadDataEx(reinterpret_cast<CUmodule*>(library), image, count, options, values);
}
CUresult cuLibraryUnload(CUlibrary) { return CUDA_SUCCESS; }
CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary library, const char* name) {
  return fake::FindFunction(AsModule(library), name, reinterpret_cast<fake::Function**>(kernel));
}
CUresult cuLibraryGetGlobal(CUdeviceptr* address, size_t* bytes, CUlibrary library,
                            const char* name) {
  return fake::FindVariable(AsModule(library), name, address, bytes);
}
// As in a real driver, another handle than the kernel's.
CUresult cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
  *function = reinterpret_cast<CUfunction>(new fake::Function(*AsFunction(kernel)));
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned, unsigned, unsigned, unsigned, unsigned,
                        unsigned, unsigned, CUstream stream, void** parameters, void** extra) {
  return fake::LaunchOn(AsFunction(function), stream, parameters, extra);
}
// As if the last launch had been captured into this node.
CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode, CUDA_KERNEL_NODE_PARAMS_v2* parameters) {
  *parameters = {};
  parameters->func = fake::TheDriver().launches.back().function;
  if (fake::TheDriver().nodes_have_other_handles) {
    parameters->func =
        reinterpret_cast<CUfunction>(new fake::Function(*AsFunction(parameters->func)));
  }
  return CUDA_SUCCESS;
}
CUresult cuFuncGetModule(CUmodule* module, CUfunction function) {
  *module = reinterpret_cast<CUmodule>(AsFunction(function)->module);
  return CUDA_SUCCESS;
}
CUresult cuLibraryGetModule(CUmodule* module, CUlibrary library) {
  *module = reinterpret_cast<CUmodule>(library);
  return CUDA_SUCCESS;
}
// A node is kept as a launch.
CUresult cuGraphAddKernelNode_v2(CUgraphNode* node, CUgraph, const CUgraphNode*, size_t,
                                 const CUDA_KERNEL_NODE_PARAMS_v2* parameters) {
  *node = nullptr;
  const CUfunction function =
      parameters->func ? parameters->func : reinterpret_cast<CUfunction>(parameters->kern);
  return fake::LaunchOn(AsFunction(function), nullptr, parameters->kernelParams, parameters->extra);
}
CUresult cuLaunchGrid(CUfunction function, int, int) {
  return fake::LaunchOn(AsFunction(function), nullptr, nullptr, nullptr);
}
CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS* launches, unsigned count,
                                              unsigned) {
  for (unsigned i = 0; i < count; i++) {
    const CUresult result = fake::LaunchOn(AsFunction(launches[i].function), launches[i].hStream,
                                           launches[i].kernelParams, nullptr);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}
CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** parameters,
                          void** extra) {
  return fake::LaunchOn(AsFunction(function), config->hStream, parameters, extra);
}
}
#pragma GCC visibility pop
