// Parses, instruments and prints an image's PTX and loads the result; every step that fails falls
// back to the image as it was and records the reason.
#include "interposer/module_load.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>

#include "interposer/event_sender.h"
#include "interposer/exact_checks.h"
#include "interposer/local_assembler.h"
#include "interposer/race_state.h"
#include "interposer/sass_engine.h"
#include "interposer/session.h"
#include "interposer/twin_registers.h"

namespace ops_debug::interposer {
namespace {

using Clock = std::chrono::steady_clock;

uint64_t NanosecondsSince(Clock::time_point start) {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count());
}

std::string ErrorName(CUresult result) {
  const char* name = nullptr;
  if (OPS_DEBUG_REAL(cuGetErrorName)(result, &name) == CUDA_SUCCESS && name) return name;
  return "CUDA error " + std::to_string(static_cast<int>(result));
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

// What instrumented kernels look for; the rest is the CPU device's own (exact_checks.h).
shadow::Checks ChecksOfKernels() {
  const SessionOptions& options = Options();
  shadow::Checks checks;
  checks.memory = options.check_memory;
  checks.precision = checks.indexes = options.check_precision;
  checks.precision_trace = options.precision_trace;
  if (options.exact_checks) return checks;
  checks.races = options.check_races;
  checks.sync = options.check_sync;
  checks.init = options.check_init;
  return checks;
}

// A launch of any of its kernels may be captured. A small text costs nothing to keep: its launches
// may be captured because of how they are made, whatever the kernels are.
bool MayBeCaptured(const shadow::InstrumentedModule& code, const std::string& ptx) {
  constexpr size_t kSmallText = 4 << 20;
  if (!Options().capture_launch.empty()) return true;
  if (Options().replay_folder.empty()) return false;
  return ptx.size() <= kSmallText ||
         std::any_of(code.kernels.begin(), code.kernels.end(),
                     [](const shadow::KernelPlan& plan) { return !plan.undecided.empty(); });
}

// Fills in what launches need: one record per entry.
void EnterKernels(LoadedModule& module) {
  for (const shadow::KernelPlan& plan : module.code.kernels) {
    KernelRecord* kernel = module.Kernel(plan.name);
    kernel->plan = &plan;
    if (plan.twin.empty()) {
      kernel->not_checked_reason =
          plan.reason.empty() ? "no instrumented version was made" : plan.reason;
    } else {
      kernel->not_checked_reason.clear();
    }
  }
}

ModuleLoadedEvent Describe(LoadedModule& module) {
  ModuleLoadedEvent event;
  event.module_id = module.id;
  event.not_checked_reason = module.not_checked_reason;
  if (!InstrumentsKernels() && ExactChecks() && module.not_checked_reason.empty()) {
    for (const shadow::KernelPlan& plan : module.code.kernels) {
      LoadedKernel& out = event.kernels.emplace_back();
      out.name = plan.name;
      out.checked = true;
      out.engine = EngineName(Engine::kEmulator);
    }
  }
  if (!module.instrumented) return event;
  for (const shadow::KernelPlan& plan : module.code.kernels) {
    const KernelRecord* kernel = module.Kernel(plan.name);
    LoadedKernel& out = event.kernels.emplace_back();
    out.name = plan.name;
    out.checked = kernel->not_checked_reason.empty();
    if (out.checked) out.engine = "ptx";
    out.reason = kernel->not_checked_reason;
    out.checked_accesses = plan.checked_accesses;
    for (const shadow::UncheckedAccess& access : plan.unchecked) {
      out.unchecked.push_back({access.instruction, access.reason, access.count});
    }
    for (const shadow::UncheckedAccess& access : plan.races.unchecked) {
      out.unchecked.push_back({access.instruction, "races: " + access.reason, access.count});
    }
    for (const shadow::UncheckedAccess& access : plan.precision.unchecked) {
      out.unchecked.push_back({access.instruction, "numbers: " + access.reason, access.count});
    }
  }
  return event;
}

}  // namespace

bool WatchesImages() {
  static const bool watches = ChecksAnything() || Options().null_rewrite;
  return watches;
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

namespace {

// What a load has made, kept while a second one goes to the same place.
class Handle {
 public:
  explicit Handle(const LoadCall& call)
      : module_(call.module ? *call.module : nullptr),
        library_(call.library ? *call.library : nullptr) {
    OPS_DEBUG_REAL(cuCtxGetCurrent)(&context_);
  }

  // Threads that a block of this kernel may have; 0: not known. Without a context a library is not
  // on any device yet, and must not be brought there by us.
  int MaxThreads(const char* name) const {
    if (!context_) return 0;
    const InternalCalls calls(context_);
    constexpr CUfunction_attribute kAttribute = CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK;
    int threads = 0;
    CUdevice device = 0;
    CUfunction function = nullptr;
    CUkernel kernel = nullptr;
    const bool known =
        module_
            ? OPS_DEBUG_REAL(cuModuleGetFunction)(&function, module_, name) == CUDA_SUCCESS &&
                  OPS_DEBUG_REAL(cuFuncGetAttribute)(&threads, kAttribute, function) == CUDA_SUCCESS
            : OPS_DEBUG_REAL(cuLibraryGetKernel)(&kernel, library_, name) == CUDA_SUCCESS &&
                  OPS_DEBUG_REAL(cuCtxGetDevice)(&device) == CUDA_SUCCESS &&
                  OPS_DEBUG_REAL(cuKernelGetAttribute)(&threads, kAttribute, kernel, device) ==
                      CUDA_SUCCESS;
    return known ? threads : 0;
  }
  void Unload() const {
    if (module_) OPS_DEBUG_REAL(cuModuleUnload)(module_);
    if (library_) OPS_DEBUG_REAL(cuLibraryUnload)(library_);
  }
  void Restore(const LoadCall& call) const {
    if (call.module) *call.module = module_;
    if (call.library) *call.library = library_;
  }

 private:
  CUmodule module_;
  CUlibrary library_;
  CUcontext context_ = nullptr;
};

struct TextLoad {
  CUresult result = CUDA_ERROR_UNKNOWN;
  std::string why;   // if it failed
  std::string note;  // how it was loaded, if not simply by the driver
};

// Hands rewritten text to the driver. A second attempt after a failure asks for the reason. Text
// that is newer than the driver's compiler goes through a local one; module.code.ptx is then its
// cubin.
TextLoad LoadText(const LoadCall& call, LoadedModule& module) {
  const UnpatchedLoad unpatched;
  std::string* const text = &module.code.ptx;
  const AssemblerOptions* const assembled = call.image.assembled ? &*call.image.assembled : nullptr;
  TextLoad load;
  const auto attempt = [&](bool want_log, const std::string* other_text = nullptr) {
    // Rewritten text is several times as long as the program's, so its compilation is spread over
    // the processors where the driver knows how.
    static std::atomic<bool> in_parallel{!Options().emulated};
    for (const bool parallel : {true, false}) {
      if (parallel && (!in_parallel || want_log)) continue;
      JitOptions options(call.option_count, call.options, call.option_values, assembled, want_log);
      if (parallel) options.CompileInParallel();
      load.result = call.load_text((other_text ? other_text : text)->c_str(), options);
      options.ReturnValues();
      if (parallel && load.result == CUDA_ERROR_INVALID_VALUE) {
        in_parallel = false;
        continue;
      }
      return options.log();
    }
    return std::string();
  };
  attempt(false);
  if (load.result == CUDA_SUCCESS) {
    const Handle first(call);
    const std::vector<RegisterCap> caps = TwinsThatFitLess(
        *text, module.code.kernels, [&](const char* name) { return first.MaxThreads(name); });
    if (caps.empty()) return load;
    std::string capped = CapRegisters(*text, caps);
    attempt(false, &capped);
    if (load.result == CUDA_SUCCESS) {
      first.Unload();
      *text = std::move(capped);
    } else {
      first.Restore(call);
      load.result = CUDA_SUCCESS;
    }
    return load;
  }
  if (load.result == CUDA_ERROR_UNSUPPORTED_PTX_VERSION) {
    std::string why;
    std::string cubin = AssembleLocally(*text, CurrentTarget().arch,
                                        assembled ? *assembled : AssemblerOptions{}, &why);
    if (cubin.empty()) {
      load.why = "its PTX is newer than the driver's compiler, and " + why;
      return load;
    }
    *text = std::move(cubin);
    load.note = "PTX newer than the driver: compiled by a local ptxas";
  }
  const std::string log = attempt(true);
  if (load.result == CUDA_SUCCESS) return load;
  load.why = "the driver rejects the rewritten PTX (" + ErrorName(load.result) + ")";
  if (!log.empty()) load.why += ": " + log;
  return load;
}

}  // namespace

ModulePointer Load(const LoadCall& call, CUresult* result) {
  auto module = std::make_shared<LoadedModule>();
  module->id = NextModuleId();
  module->not_checked_reason = call.image.not_checked_reason;
  uint64_t rewrite_duration_ns = 0;
  uint64_t load_duration_ns = 0;
  bool loaded = false;
  std::string note = call.image.note;

  if (call.image.ptx && !InstrumentsKernels() && !Options().null_rewrite) {
    // The program's own code runs; the CPU device checks it. Names serve reports.
    if (auto code = shadow::Inspect(*call.image.ptx); code.ok()) {
      module->code = std::move(*code);
      for (const shadow::KernelPlan& plan : module->code.kernels)
        module->Kernel(plan.name)->not_checked_reason.clear();
    }
    const auto start = Clock::now();
    *result = call.load_original();
    load_duration_ns = NanosecondsSince(start);
    if (*result != CUDA_SUCCESS) return nullptr;
    loaded = true;
  } else if (call.image.ptx && !Options().use_ptx_engine) {
    module->not_checked_reason = "the PTX engine is off (--engine sass)";
  } else if (call.image.ptx) {
    const bool null_rewrite = Options().null_rewrite;
    const auto start = Clock::now();
    ptx::Result<shadow::InstrumentedModule> code = shadow::Instrument(
        *call.image.ptx, null_rewrite ? shadow::Rewrite::kNull : shadow::Rewrite::kMemoryChecks,
        ChecksOfKernels());
    rewrite_duration_ns = NanosecondsSince(start);
    if (!code.ok()) {
      module->not_checked_reason = "its PTX cannot be rewritten: " + code.error().ToString();
      Send(DiagnosticEvent{
          .severity = proto_enums::Severity::kWarning,
          .text = call.image.description + " cannot be rewritten, line " + code.error().ToString(),
          .hint = "the program's own code runs, unchecked by this engine"});
    } else {
      module->code = std::move(*code);
      Dump(module->id, module->code.ptx);
      const auto load_start = Clock::now();
      TextLoad load = LoadText(call, *module);
      load_duration_ns = NanosecondsSince(load_start);
      *result = load.result;
      loaded = *result == CUDA_SUCCESS;
      if (!loaded) {
        module->not_checked_reason = load.why;
      } else if (null_rewrite) {
        module->not_checked_reason = "null rewrite: nothing was added";
      } else {
        module->instrumented = true;
        EnterKernels(*module);
        if (MayBeCaptured(module->code, *call.image.ptx)) module->own_ptx = *call.image.ptx;
        if (ChecksRacesOnDevice()) EnterRaceSites(module);
      }
      if (!load.note.empty()) note += (note.empty() ? "" : "; ") + load.note;
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
  event.note = note;
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
