// cuGetProcAddress: the program asks the driver for functions by name, CUDA version and default
// stream.
//
// The real driver answers first, so status and errors are its own. Which ABI variant it handed out
// is then read off the pointer: usually it is the address of an export, which the table knows. If
// not, the table's versions say which variant it should be, and the driver is asked again for
// exactly that version: the same pointer means the same ABI. Only a variant that has a handler is
// replaced; everything else, and every unknown name, passes through.
#include <algorithm>
#include <string>

#include "interposer/event_sender.h"
#include "interposer/hooks.h"

namespace ops_debug::interposer {
namespace {

struct Request {
  std::string_view name;
  void* real_function;  // the driver's answer
  int cuda_version;
  cuuint64_t flags;

  bool per_thread() const { return (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0; }
};

struct Alias {
  std::string_view name, base;
};
constexpr Alias kAliases[] = {
#define OPS_DEBUG_DRIVER_ALIAS(name, base) {#name, #base},
#include "interposer/driver_table.inc"
#undef OPS_DEBUG_DRIVER_ALIAS
};

bool Means(const DriverFunctionInfo& info, std::string_view name) {
  return info.base == name || std::ranges::any_of(kAliases, [&](const Alias& alias) {
           return alias.name == name && alias.base == info.base;
         });
}

// The hooked variant of the requested name whose export is the pointer that the driver returned.
const Hook* FindByAddress(const Request& request) {
  const Hook* found = nullptr;
  for (const Hook& hook : AllHooks()) {
    const DriverFunctionInfo& info = Info(hook.function);
    if (!Means(info, request.name) || RealAddress(hook.function) != request.real_function) continue;
    // Two variants may share their code; they then differ in nothing but the handler's idea of
    // stream 0.
    const bool stream_fits =
        (info.default_stream == DefaultStream::kPerThread) == request.per_thread();
    if (found == nullptr || stream_fits) found = &hook;
  }
  return found;
}

void* AskDriver(std::string_view name, int cuda_version, cuuint64_t flags) {
  void* function = nullptr;
  CUdriverProcAddressQueryResult status{};
  if (auto ask = OPS_DEBUG_REAL(cuGetProcAddress_v2)) {
    return ask(name.data(), &function, cuda_version, flags, &status) == CUDA_SUCCESS ? function
                                                                                     : nullptr;
  }
  auto ask = OPS_DEBUG_REAL(cuGetProcAddress);
  return ask(name.data(), &function, cuda_version, flags) == CUDA_SUCCESS ? function : nullptr;
}

// The variant that the table names for the request's version, confirmed by the driver.
const Hook* FindByVersion(const Request& request) {
  int driver_version = 0;
  if (OPS_DEBUG_REAL(cuDriverGetVersion)(&driver_version) != CUDA_SUCCESS) return nullptr;
  const int version = std::min({request.cuda_version, driver_version, kTableCudaVersion});
  const DriverFunctionInfo* best = nullptr;
  const auto fits_better = [&](const DriverFunctionInfo& info) {
    if (best == nullptr) return true;
    const bool per_thread = info.default_stream == DefaultStream::kPerThread;
    const bool best_per_thread = best->default_stream == DefaultStream::kPerThread;
    return per_thread != best_per_thread ? per_thread
                                         : info.since_cuda_version > best->since_cuda_version;
  };
  for (const DriverFunctionInfo& info : kDriverFunctions) {
    if (info.base != request.name || info.since_cuda_version == 0 ||
        info.since_cuda_version > version)
      continue;
    if (info.default_stream == DefaultStream::kPerThread && !request.per_thread()) continue;
    if (fits_better(info)) best = &info;
  }
  if (best == nullptr) return nullptr;
  if (AskDriver(request.name, best->since_cuda_version, request.flags) != request.real_function)
    return nullptr;
  return FindHook(static_cast<DriverFunction>(best - kDriverFunctions));
}

bool HasHookedVariant(std::string_view name) {
  return std::ranges::any_of(AllHooks(),
                             [&](const Hook& hook) { return Means(Info(hook.function), name); });
}

bool HasHandler(std::string_view name) {
  return std::ranges::any_of(AllHooks(), [&](const Hook& hook) {
    return !hook.watch_only && Means(Info(hook.function), name);
  });
}

void ReportUnwatched(const Request& request) {
  DiagnosticEvent event;
  event.severity = request.cuda_version > kTableCudaVersion ? proto_enums::Severity::kWarning
                                                            : proto_enums::Severity::kNote;
  event.text = "calls of " + std::string(request.name) +
               " are not watched: the program uses its ABI of CUDA " +
               std::to_string(request.cuda_version / 1000) + "." +
               std::to_string(request.cuda_version % 1000 / 10) + ", which has no handler";
  event.hint = "what these calls load, launch, allocate or free is not checked";
  SendOnce(event);
}

// What the program gets in place of the driver's pointer.
void* Replacement(const Request& request) {
  if (!HasHookedVariant(request.name)) return request.real_function;
  const Hook* hook = FindByAddress(request);
  if (hook == nullptr) hook = FindByVersion(request);
  if (hook == nullptr) {
    if (HasHandler(request.name)) ReportUnwatched(request);
    return request.real_function;
  }
  if (!Serves(hook->function)) return request.real_function;
  return reinterpret_cast<void*>(hook->exported);
}

}  // namespace

OPS_DEBUG_HOOK(cuGetProcAddress_v2, const char* symbol, void** function, int cuda_version,
               cuuint64_t flags, CUdriverProcAddressQueryResult* symbol_status) {
  const CUresult result = real(symbol, function, cuda_version, flags, symbol_status);
  if (result == CUDA_SUCCESS && symbol != nullptr && function != nullptr && *function != nullptr) {
    *function = Replacement({symbol, *function, cuda_version, flags});
  }
  return result;
}

OPS_DEBUG_HOOK(cuGetProcAddress, const char* symbol, void** function, int cuda_version,
               cuuint64_t flags) {
  const CUresult result = real(symbol, function, cuda_version, flags);
  if (result == CUDA_SUCCESS && symbol != nullptr && function != nullptr && *function != nullptr) {
    *function = Replacement({symbol, *function, cuda_version, flags});
  }
  return result;
}

}  // namespace ops_debug::interposer
