// Parses, instruments and prints an image's PTX and loads the result; every step that fails falls
// back to the image as it was and records the reason.
#include "interposer/module_load.h"

#include <cxxabi.h>
#include <fnmatch.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "interposer/event_sender.h"
#include "interposer/session.h"

namespace ops_debug::interposer {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kLogBytes = 8192;
constexpr size_t kLogBytesShown = 600;

uint64_t NanosecondsSince(Clock::time_point start) {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count());
}

std::string ErrorName(CUresult result) {
  const char* name = nullptr;
  if (OPS_DEBUG_REAL(cuGetErrorName)(result, &name) == CUDA_SUCCESS && name) return name;
  return "CUDA error " + std::to_string(static_cast<int>(result));
}

std::string Demangle(const std::string& mangled) {
  int status = 0;
  char* text = abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status);
  std::string out = text ? text : mangled;
  std::free(text);  // NOLINT(cppcoreguidelines-no-malloc): that is how
                    // __cxa_demangle returns it
  return out;
}

// Patterns match the mangled name, the demangled one, or the demangled one
// without its parameter list.
bool Selected(const std::string& name) {
  const auto& patterns = Options().kernel_patterns;
  if (patterns.empty()) return true;
  const std::string demangled = Demangle(name);
  std::string bare = demangled.substr(0, demangled.find('('));
  if (const size_t space = bare.rfind(' '); space != std::string::npos) bare.erase(0, space + 1);
  for (const std::string& pattern : patterns) {
    for (const std::string& candidate : {name, demangled, bare}) {
      if (fnmatch(pattern.c_str(), candidate.c_str(), 0) == 0) return true;
    }
  }
  return false;
}

void Dump(uint64_t module_id, const std::string& ptx) {
  const std::string& directory = Options().dump_directory;
  if (directory.empty()) return;
  const std::string path =
      directory + "/module-" + std::to_string(getpid()) + "-" + std::to_string(module_id) + ".ptx";
  std::FILE* file = std::fopen(path.c_str(), "we");
  const bool written = file && std::fwrite(ptx.data(), 1, ptx.size(), file) == ptx.size();
  if ((file && std::fclose(file) != 0) || !written) {
    SendOnce(DiagnosticEvent{.severity = proto_enums::Severity::kWarning,
                             .text = "cannot write rewritten PTX to " + directory,
                             .hint = "the directory must exist and be writable by the program"});
  }
}

// Fills in what launches need: one record per entry.
void EnterKernels(LoadedModule& module) {
  for (const shadow::KernelPlan& plan : module.code.kernels) {
    KernelRecord* kernel = module.Kernel(plan.name);
    kernel->plan = &plan;
    if (plan.twin.empty()) {
      kernel->not_checked_reason =
          plan.reason.empty() ? "no instrumented version was made" : plan.reason;
    } else if (!Selected(plan.name)) {
      kernel->not_checked_reason = "not selected (--kernels)";
    } else {
      kernel->not_checked_reason.clear();
    }
  }
}

ModuleLoadedEvent Describe(LoadedModule& module) {
  ModuleLoadedEvent event;
  event.module_id = module.id;
  event.not_checked_reason = module.not_checked_reason;
  if (!module.instrumented) return event;
  for (const shadow::KernelPlan& plan : module.code.kernels) {
    const KernelRecord* kernel = module.Kernel(plan.name);
    LoadedKernel& out = event.kernels.emplace_back();
    out.name = plan.name;
    out.checked = kernel->not_checked_reason.empty();
    out.reason = kernel->not_checked_reason;
    out.checked_accesses = plan.checked_accesses;
    for (const shadow::UncheckedAccess& access : plan.unchecked) {
      out.unchecked.push_back({access.instruction, access.reason, access.count});
    }
  }
  return event;
}

}  // namespace

bool RewritesImages() {
  static const bool rewrites = Options().check_memory || Options().null_rewrite;
  return rewrites;
}

OptionsWithLog::OptionsWithLog(unsigned int count, CUjit_option* options, void** values) {
  if (options && values) {
    options_.assign(options, options + count);
    values_.assign(values, values + count);
  }
  for (size_t i = 0; i < options_.size(); i++) {
    if (options_[i] == CU_JIT_ERROR_LOG_BUFFER) log_ = static_cast<const char*>(values_[i]);
    if (options_[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES)
      log_bytes_ = reinterpret_cast<uintptr_t>(values_[i]);
  }
  if (log_ && log_bytes_ != 0) return;  // the program has a log of its own
  buffer_.resize(kLogBytes);
  log_ = buffer_.data();
  log_bytes_ = buffer_.size();
  options_.push_back(CU_JIT_ERROR_LOG_BUFFER);
  values_.push_back(buffer_.data());
  options_.push_back(CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);
  values_.push_back(reinterpret_cast<void*>(uintptr_t{kLogBytes}));
}

std::string OptionsWithLog::log() const {
  std::string text(log_, strnlen(log_, log_bytes_));
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.substr(0, kLogBytesShown);
}

ImageTarget CurrentTarget() {
  CUdevice device = 0;
  if (OPS_DEBUG_REAL(cuCtxGetDevice)(&device) != CUDA_SUCCESS) device = 0;
  int major = 0, minor = 0;
  if (OPS_DEBUG_REAL(cuDeviceGetAttribute)(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                                           device) != CUDA_SUCCESS ||
      OPS_DEBUG_REAL(cuDeviceGetAttribute)(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
                                           device) != CUDA_SUCCESS) {
    return {};
  }
  return {static_cast<uint32_t>(major * 10 + minor)};
}

ModulePointer Load(const LoadCall& call, CUresult* result) {
  auto module = std::make_shared<LoadedModule>();
  module->id = NextModuleId();
  module->not_checked_reason = call.image.not_checked_reason;
  uint64_t rewrite_duration_ns = 0;
  uint64_t load_duration_ns = 0;
  bool loaded = false;

  if (call.image.ptx) {
    const bool null_rewrite = Options().null_rewrite;
    const auto start = Clock::now();
    ptx::Result<shadow::InstrumentedModule> code = shadow::Instrument(
        *call.image.ptx, null_rewrite ? shadow::Rewrite::kNull : shadow::Rewrite::kMemoryChecks);
    rewrite_duration_ns = NanosecondsSince(start);
    if (!code.ok()) {
      module->not_checked_reason = "its PTX cannot be rewritten: " + code.error().ToString();
      Send(DiagnosticEvent{
          .severity = proto_enums::Severity::kWarning,
          .text = call.image.description + " cannot be rewritten, line " + code.error().ToString(),
          .hint = "the program's own code runs, unchecked"});
    } else {
      module->code = std::move(*code);
      Dump(module->id, module->code.ptx);
      const auto load_start = Clock::now();
      *result = call.load_text(module->code.ptx.c_str(), nullptr);
      std::string log;
      if (*result != CUDA_SUCCESS) *result = call.load_text(module->code.ptx.c_str(), &log);
      load_duration_ns = NanosecondsSince(load_start);
      loaded = *result == CUDA_SUCCESS;
      if (loaded && null_rewrite) {
        module->not_checked_reason = "null rewrite: nothing was added";
      } else if (loaded) {
        module->instrumented = true;
        EnterKernels(*module);
      } else {
        module->not_checked_reason =
            "the driver rejects the rewritten PTX (" + ErrorName(*result) + ")";
        if (!log.empty()) module->not_checked_reason += ": " + log;
      }
      if (!call.keep_text || !loaded) std::string().swap(module->code.ptx);
    }
  }
  if (!loaded) {
    module->code = {};
    const auto start = Clock::now();
    *result = call.load_original();
    load_duration_ns = NanosecondsSince(start);
    if (*result != CUDA_SUCCESS) return nullptr;
  }

  ModuleLoadedEvent event = Describe(*module);
  event.api = call.api;
  event.image = call.image.description;
  event.note = call.image.note;
  if (call.image.ptx) {
    event.ptx_version = FindDirective(*call.image.ptx, ".version");
    event.target = FindDirective(*call.image.ptx, ".target");
  }
  event.rewrite_duration_ns = rewrite_duration_ns;
  event.load_duration_ns = load_duration_ns;
  Send(event);
  return module;
}

}  // namespace ops_debug::interposer
