// What a failed call means (CUDA Driver API, "Data types used by CUDA driver": CUresult).
//
// A function is looked at if it is hooked only to be watched (call_failure_hooks.cc) or listed in
// kJudged. Launches are not: launch_path.cc reports those with more to say. Errors that belong to a
// way of asking are expected. Errors inside NVIDIA's own libraries are theirs to handle: they try,
// and turn to something else.
#include "interposer/call_failure.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <tuple>

#include "interposer/context_state.h"
#include "interposer/event_sender.h"
#include "interposer/fault_drain.h"
#include "interposer/launch_failure.h"
#include "interposer/process.h"
#include "interposer/python_stack.h"
#include "interposer/session.h"

namespace ops_debug::interposer {
namespace {

// Functions with handlers whose failure is the program's mistake or a broken device. Base names:
// every variant is meant.
constexpr std::string_view kJudged[] = {
    "cuCtxDestroy",
    "cuCtxSynchronize",
    "cuDevicePrimaryCtxReset",
    "cuEventSynchronize",
    "cuFuncSetAttribute",
    "cuFuncSetCacheConfig",
    "cuGraphDestroy",
    "cuGraphExecChildGraphNodeSetParams",
    "cuGraphExecDestroy",
    "cuGraphExecUpdate",
    "cuGraphInstantiate",
    "cuGraphInstantiateWithFlags",
    "cuGraphInstantiateWithParams",
    "cuGraphLaunch",
    "cuIpcCloseMemHandle",
    "cuIpcOpenMemHandle",
    "cuKernelSetAttribute",
    "cuLibraryLoadData",
    "cuLibraryLoadFromFile",
    "cuLibraryUnload",
    "cuLinkAddData",
    "cuLinkAddFile",
    "cuLinkComplete",
    "cuMemAddressFree",
    "cuMemAddressReserve",
    "cuMemAlloc",
    "cuMemAllocAsync",
    "cuMemAllocFromPoolAsync",
    "cuMemAllocHost",
    "cuMemAllocManaged",
    "cuMemAllocPitch",
    "cuMemFree",
    "cuMemFreeAsync",
    "cuMemFreeHost",
    "cuMemHostAlloc",
    "cuMemHostRegister",
    "cuMemHostUnregister",
    "cuMemMap",
    "cuMemUnmap",
    "cuMemcpy",
    "cuMemcpy2D",
    "cuMemcpyDtoH",
    "cuModuleLoad",
    "cuModuleLoadData",
    "cuModuleLoadDataEx",
    "cuModuleLoadFatBinary",
    "cuModuleUnload",
    "cuStreamBeginCapture",
    "cuStreamBeginCaptureToGraph",
    "cuStreamDestroy",
    "cuStreamEndCapture",
    "cuStreamSynchronize",
};
static_assert(std::ranges::is_sorted(kJudged));

// Answers, not mistakes. An empty name means every function.
struct Exception {
  std::string_view base;
  CUresult error;
  FailureSort sort;
};
constexpr Exception kExceptions[] = {
    // "Not yet": the way to poll.
    {"", CUDA_ERROR_NOT_READY, FailureSort::kExpected},
    // The process is ending; destructors come too late everywhere.
    {"", CUDA_ERROR_DEINITIALIZED, FailureSort::kExpected},
    {"", CUDA_ERROR_CONTEXT_IS_DESTROYED, FailureSort::kExpected},
    // A machine without a device, or a call before cuInit: programs find out like that.
    {"", CUDA_ERROR_NO_DEVICE, FailureSort::kExpected},
    {"", CUDA_ERROR_NOT_INITIALIZED, FailureSort::kExpected},
    // What this device or driver cannot do: programs try and turn to something else.
    {"", CUDA_ERROR_NOT_SUPPORTED, FailureSort::kExpected},
    {"", CUDA_ERROR_NOT_PERMITTED, FailureSort::kExpected},
    {"", CUDA_ERROR_STUB_LIBRARY, FailureSort::kExpected},
    // Already in the state that was asked for.
    {"cuCtxDisablePeerAccess", CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, FailureSort::kExpected},
    {"cuCtxEnablePeerAccess", CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, FailureSort::kExpected},
    {"cuCtxEnablePeerAccess", CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, FailureSort::kExpected},
    {"cuCtxEnablePeerAccess", CUDA_ERROR_TOO_MANY_PEERS, FailureSort::kExpected},
    {"cuMemHostRegister", CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, FailureSort::kExpected},
    {"cuMemHostUnregister", CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, FailureSort::kExpected},
    // "Make a new one": the documented use is to instantiate again.
    {"cuGraphExecUpdate", CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, FailureSort::kExpected},
    // Pools grow until memory ends, free what they can spare, and ask again.
    {"", CUDA_ERROR_OUT_OF_MEMORY, FailureSort::kNote},
    // Code for other devices that may never be launched; a launch of it is a finding of its own.
    {"", CUDA_ERROR_NO_BINARY_FOR_GPU, FailureSort::kNote},
};

// Libraries that are called between the program and the driver, by the start of their file names.
// The run-time API only passes on what the program asked for.
constexpr std::string_view kRuntimeLibrary = "libcudart.so";
constexpr std::string_view kLibrariesThatCope[] = {
    "libcublas",   "libcudnn",   "libcufft", "libcupti",   "libcurand",  "libcusolver",
    "libcusparse", "libcutens",  "libnccl",  "libnpp",     "libnvinfer", "libnvjit",
    "libnvrtc",    "libnvshmem", "libcudss", "libnvgraph", "libnvjpeg",  "libcufile",
};

std::string_view BaseName(std::string_view path) {
  return path.substr(path.rfind('/') + 1);  // npos + 1 is 0
}

bool InsideLibraryThatCopes(const StackTrace& stack) {
  for (const StackFrame& frame : stack) {
    const std::string_view name = BaseName(frame.module);
    if (name.starts_with(kRuntimeLibrary)) continue;
    return std::ranges::any_of(kLibrariesThatCope,
                               [&](std::string_view library) { return name.starts_with(library); });
  }
  return false;
}

std::string Hexadecimal(uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

// What the book knows about device memory that a call was given; empty: nothing wrong with it.
std::string JudgeRange(const char* role, uint64_t address, uint64_t bytes) {
  if (!ChecksAnything()) return {};
  const std::string what = std::string(role) + " " + Hexadecimal(address);
  const auto found = Book().FindContaining(address, /*reserved=*/true);
  if (!found) return {};
  const std::string which =
      "the allocation of " + std::to_string(found->size_bytes) + " bytes (" + found->api + ")";
  if (found->freed) return what + " lies in memory that was freed before: " + which;
  if (address >= found->end() || bytes > found->end() - address) {
    return what + " with " + std::to_string(bytes) + " bytes goes beyond the end of " + which;
  }
  return {};
}

std::string ReasonOfFree(uint64_t address) {
  if (!ChecksAnything()) return {};
  const std::string what = Hexadecimal(address);
  const auto found = Book().FindContaining(address, /*reserved=*/true);
  if (!found) return what + " is not the start of an allocation that the driver knows";
  if (found->freed) {
    return what + " was freed before, with " + found->free_api + " (" +
           std::to_string(found->size_bytes) + " bytes from " + found->api + ")";
  }
  if (found->base != address) {
    return what + " lies " + std::to_string(address - found->base) +
           " bytes behind the start of the allocation that holds it; only its start can be freed";
  }
  return {};
}

// In words, from the arguments of the call.
std::string ReasonFromArguments(const FailedCall& call) {
  const std::string_view base = Info(call.function).base;
  const uint64_t* argument = call.arguments;
  if (base == "cuMemFree" || base == "cuMemFreeAsync") return ReasonOfFree(argument[0]);
  const bool of_function = base == "cuFuncSetAttribute", of_kernel = base == "cuKernelSetAttribute";
  if ((of_function || of_kernel) &&
      argument[of_kernel ? 0 : 1] == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
    int most = 0;
    CUdevice device = 0;
    if (OPS_DEBUG_REAL(cuCtxGetDevice)(&device) == CUDA_SUCCESS &&
        OPS_DEBUG_REAL(cuDeviceGetAttribute)(
            &most, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, device) == CUDA_SUCCESS) {
      return std::to_string(static_cast<int>(argument[of_kernel ? 1 : 2])) +
             " bytes of dynamic shared memory were asked for; static and dynamic together may be " +
             std::to_string(most) + " on this device";
    }
    return {};
  }
  struct Copy {
    std::string_view start;
    int to = -1, from = -1, bytes = -1;  // which arguments are device addresses
    uint64_t unit = 1;
  };
  constexpr Copy kCopies[] = {
      {"cuMemcpyHtoD", 0, -1, 2}, {"cuMemcpyDtoH", -1, 1, 2},   {"cuMemcpyDtoD", 0, 1, 2},
      {"cuMemsetD8", 0, -1, 2},   {"cuMemsetD16", 0, -1, 2, 2}, {"cuMemsetD32", 0, -1, 2, 4},
  };
  for (const Copy& copy : kCopies) {
    if (base != copy.start && base != std::string(copy.start) + "Async") continue;
    const uint64_t bytes = argument[copy.bytes] * copy.unit;
    std::string reason;
    if (copy.to >= 0) reason = JudgeRange("the destination", argument[copy.to], bytes);
    if (reason.empty() && copy.from >= 0)
      reason = JudgeRange("the source", argument[copy.from], bytes);
    return reason;
  }
  return {};
}

std::string ReasonFromError(CUresult result) {
  switch (result) {
    case CUDA_ERROR_INVALID_VALUE:
      return "an argument is not valid";
    case CUDA_ERROR_INVALID_CONTEXT:
      return "no valid context is current in this thread";
    case CUDA_ERROR_INVALID_HANDLE:
      return "a handle is not valid, or belongs to another context";
    case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED:
      return "the call is not allowed while a stream is being captured";
    case CUDA_ERROR_STREAM_CAPTURE_IMPLICIT:
      return "the call would make a captured stream depend on the legacy default stream";
    case CUDA_ERROR_STREAM_CAPTURE_INVALIDATED:
      return "an earlier call has invalidated the capture";
    case CUDA_ERROR_STREAM_CAPTURE_UNJOINED:
      return "other streams have joined the capture and were not joined back to the first one";
    case CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD:
      return "another thread began the capture";
    case CUDA_ERROR_STREAM_CAPTURE_ISOLATION:
    case CUDA_ERROR_CAPTURED_EVENT:
      return "the event was recorded in a capture, and the call is outside of it";
    case CUDA_ERROR_ILLEGAL_ADDRESS:
      return "a kernel that ran before accessed memory that does not exist";
    case CUDA_ERROR_MISALIGNED_ADDRESS:
      return "a kernel that ran before made a misaligned access";
    case CUDA_ERROR_ASSERT:
      return "a device-side assert of a kernel that ran before";
    case CUDA_ERROR_LAUNCH_TIMEOUT:
      return "a kernel that ran before took too long";
    case CUDA_ERROR_FILE_NOT_FOUND:
      return "the file is not there";
    case CUDA_ERROR_INVALID_PTX:
      return "the driver cannot compile the PTX";
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
      return "the PTX is newer than the driver";
    case CUDA_ERROR_INVALID_IMAGE:
      return "this is no code that the driver knows";
    default:
      return EndsContext(result) ? "a kernel that ran before ended the context" : "";
  }
}

// One place of the program where one call failed in one way.
struct Place {
  std::string api, error, reason;
  HostStack stack;
  PythonStackHandle python_stack;
  uint64_t untold = 0;
};
using PlaceKey = std::tuple<DriverFunction, CUresult, std::vector<uintptr_t>>;

// Never destroyed: hooks run until the very end of the process.
struct Failures {
  std::mutex mutex;
  std::map<PlaceKey, Place> places;
  std::atomic<bool> context_ended{false};
};
Failures& TheFailures() {
  static auto* failures = new Failures;
  return *failures;
}
constexpr size_t kMostPlaces = 512;

void Tell(const Place& place, uint64_t count) {
  Send(CallFailedEvent{.api = place.api,
                       .error = place.error,
                       .reason = place.reason,
                       .stack = ResolveHostStack(place.stack),
                       .python_stack = ResolvePythonStack(place.python_stack),
                       .count = count});
}

void TellNote(const FailedCall& call) {
  const std::string api(Info(call.function).base);
  DiagnosticEvent event;
  if (call.result == CUDA_ERROR_OUT_OF_MEMORY) {
    event.text = api + " failed: out of memory";
    event.hint =
        "programs with a memory pool free what they can spare and ask again; checking "
        "itself takes an eighth of the allocated memory, and --quarantine more";
  } else {
    event.text = api + " failed with " + ErrorName(call.result) +
                 ": a module of the program holds no code for this device";
    event.hint = "its kernels cannot be launched here";
  }
  SendOnce(event);
}

void Note(const FailedCall& call) {
  Failures& failures = TheFailures();
  FailureSort sort = SortOf(call.function, call.result);
  if (EndsContext(call.result)) {
    // Every call fails from now on; and a trap is what --on-error trap asked for.
    if (failures.context_ended.exchange(true) || Options().trap_on_error) return;
    sort = FailureSort::kFinding;
  }
  if (sort == FailureSort::kExpected) return;
  if (sort == FailureSort::kNote) {
    TellNote(call);
    return;
  }
  const HostStack stack = CaptureHostStack();
  PlaceKey key{call.function,
               call.result,
               {stack.return_addresses.begin(), stack.return_addresses.begin() + stack.count}};
  {
    std::lock_guard lock(failures.mutex);
    const auto found = failures.places.find(key);
    if (found != failures.places.end()) {
      found->second.untold++;
      return;
    }
    if (failures.places.size() >= kMostPlaces) return;
  }
  if (!EndsContext(call.result) && InsideLibraryThatCopes(ResolveHostStack(stack))) return;
  Place place;
  place.api = Info(call.function).base;
  place.error = ErrorName(call.result);
  place.reason = ReasonFromArguments(call);
  if (place.reason.empty()) place.reason = ReasonFromError(call.result);
  place.stack = stack;
  place.python_stack = CapturePythonStack();
  Tell(place, 1);
  std::lock_guard lock(failures.mutex);
  failures.places.emplace(std::move(key), std::move(place));
}

void Listen(const FailedCall& call) noexcept {
  try {
    Note(call);
  } catch (...) {  // no memory: the program's own error handling has enough to do
  }
}

// Repetitions of what was told before.
void TellRest(EndPhase) noexcept {
  try {
    Failures& failures = TheFailures();
    std::lock_guard lock(failures.mutex);
    for (auto& [key, place] : failures.places) {
      if (place.untold != 0) Tell(place, std::exchange(place.untold, 0));
    }
  } catch (...) {
  }
}

[[maybe_unused]] const bool registered = [] {
  ListenForFailures(&Listen);
  AtProcessEnd(&TellRest);
  AtForkInChild([]() noexcept {
    for (auto& [key, place] : TheFailures().places) place.untold = 0;
  });
  return true;
}();

}  // namespace

FailureSort SortOf(DriverFunction function, CUresult result) {
  const std::string_view base = Info(function).base;
  const Hook* hook = FindHook(function);
  const bool judged = (hook && hook->watch_only) || std::ranges::binary_search(kJudged, base);
  if (!judged || result == CUDA_SUCCESS) return FailureSort::kExpected;
  for (const Exception& exception : kExceptions) {
    if (exception.error == result && (exception.base.empty() || exception.base == base))
      return exception.sort;
  }
  return FailureSort::kFinding;
}

}  // namespace ops_debug::interposer
