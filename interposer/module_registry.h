// Which code is loaded, and what each handle stands for: modules and libraries,
// their kernels, the CUfunction and CUkernel handles that name them, and per
// context the device data of an instrumented module.
//
// A library is context-independent: one handle, an instance of the code in each
// context that uses it. Instances are set up at the first launch in a context,
// because a library may be loaded before any context exists.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "interposer/context_state.h"
#include "interposer/launch_filter.h"
#include "interposer/launch_timing.h"
#include "shadow/abi/device_abi.h"
#include "shadow/abi/precision_abi.h"
#include "shadow/passes/instrument.h"

namespace ops_debug::interposer {

struct LoadedModule;

// What checks a kernel.
enum class Engine : uint8_t {
  kPtx,       // its instrumented twin runs in its place
  kSass,      // its own machine code is patched (sass_engine.h)
  kEmulator,  // the CPU device checks it while it runs (exact_checks.h)
};
inline constexpr size_t kEngineCount = 3;
// As events name it.
const char* EngineName(Engine engine);

// One entry of a module.
struct KernelRecord {
  std::string name;                          // mangled
  const shadow::KernelPlan* plan = nullptr;  // null: the module is not instrumented
  std::string not_checked_reason;            // empty: launches run the twin
  uint64_t module_id = 0;

  // Launches since the last summary.
  std::atomic<uint64_t> checked_launches[kEngineCount]{};
  std::mutex mutex;                                                 // guards the map and the text
  std::map<std::string, uint64_t, std::less<>> unchecked_launches;  // by reason
  std::atomic<bool> in_summary{false};  // waits to be summed up (launch_record.h)

  // Of its nodes in graphs that run the original: whether another engine checks them, and why not.
  // The last one made speaks for all.
  std::atomic<bool> node_covered{false};
  std::atomic<Engine> node_engine{Engine::kSass};
  std::string node_not_checked_reason;

  std::atomic<bool> constants_told{false};  // PrecisionPlan::constants

  KernelFilter filter;
  KernelTiming timing;
};

// The device data of an instrumented module in one context: FaultRecord[],
// Counters and NumericRecord[] on the device, PublishedFault[] and
// PublishedNumeric[] in pinned host memory.
struct ModuleInstance {
  ContextPointer context;
  std::weak_ptr<const LoadedModule> module;
  std::string failure;   // not empty: could not be set up, kernels run unchecked
  uint64_t entries = 0;  // sites * kFaultClasses
  CUdeviceptr records = 0;
  CUdeviceptr counters = 0;
  shadow::PublishedFault* published = nullptr;
  uint32_t numeric_slots = 0;  // 0: numerical faults are not looked for
  CUdeviceptr numeric_records = 0;
  shadow::PublishedNumeric* numeric_published = nullptr;
  std::atomic<bool> launched{false};  // is in the list of instances to drain
  std::atomic<bool> captured{false};  // a graph holds launches of it: may run
                                      // without our seeing a launch

  struct Reported {
    uint64_t sequence = 0;
    uint64_t count = 0;
  };
  std::mutex drain_mutex;                           // guards the rest
  std::unordered_map<uint64_t, Reported> reported;  // by entry
  struct ReportedNumeric {
    bool told = false;
    uint64_t count = 0, executions = 0;
  };
  std::unordered_map<uint32_t, ReportedNumeric> numeric_reported;  // by slot
  uint64_t reported_unknown = 0;
  bool standing = false;  // faults wait to be reported, since:
  std::chrono::steady_clock::time_point standing_since;

  // Nothing can be read any more.
  void ForgetChannel() {
    published = nullptr;
    numeric_published = nullptr;
    entries = numeric_slots = 0;
  }
};
using InstancePointer = std::shared_ptr<ModuleInstance>;

struct LoadedModule {
  uint64_t id = 0;
  CUmodule module = nullptr;  // one of these is set
  CUlibrary library = nullptr;
  bool instrumented = false;
  std::string not_checked_reason;
  uint32_t site_base = 0;           // of its sites among those of all modules (race_state.h)
  shadow::InstrumentedModule code;  // without its text, unless the driver keeps a reference to it
  // The program's own PTX, kept if launches of its kernels may be captured (launch_capture.h).
  std::string own_ptx;
  std::mutex mutex;  // guards the maps
  std::map<std::string, std::unique_ptr<KernelRecord>, std::less<>> kernels;
  std::unordered_map<CUcontext, InstancePointer> instances;

  // The record of an entry, made if needed. Stays valid as long as the module.
  KernelRecord* Kernel(std::string_view name);
};
using ModulePointer = std::shared_ptr<LoadedModule>;

// What a CUfunction or CUkernel handle stands for.
struct FunctionRecord {
  ModulePointer module;
  KernelRecord* kernel = nullptr;
  CUcontext context = nullptr;  // of a CUfunction; null for a CUkernel, which is
                                // launched in the current context
  CUmodule owner = nullptr;     // CUfunction of a module
  CUkernel source = nullptr;    // CUfunction made from this CUkernel
  CUfunction handle = nullptr;
  std::mutex mutex;                // guards the rest
  CUfunction twin = nullptr;       // CUfunction or CUkernel, as the original; fetched at first use
  CUfunction lean_twin = nullptr;  // the same
  InstancePointer instance;        // that the last launch used
};
using FunctionPointer = std::shared_ptr<FunctionRecord>;

uint64_t NextModuleId();

// A variable of the module in the current context.
bool FindGlobal(const LoadedModule& module, const char* name, CUdeviceptr* address, size_t* bytes);

// Modules and libraries by handle.
void RegisterModule(CUmodule handle, CUcontext context, const ModulePointer& module);
void RegisterLibrary(CUlibrary handle, const ModulePointer& module);
ModulePointer FindModule(CUmodule handle);
ModulePointer FindLibrary(CUlibrary handle);
// Forget the handle and all functions that came through it.
void ForgetModule(CUmodule handle);
void ForgetLibrary(CUlibrary handle);
// Forgets the modules of a dying context and the libraries' instances in it.
void ForgetContextModules(CUcontext context);

// Handles of kernels.
void RegisterFunction(CUfunction handle, CUmodule owner, std::string_view name);
void RegisterKernel(CUkernel handle, CUlibrary library, std::string_view name);
void RegisterKernelFunction(CUfunction handle, CUkernel kernel);
// Null if the handle came through no call that we saw.
FunctionPointer FindFunction(CUfunction handle);
// A record for such a handle, under a module of its own with id 0: its launches
// are counted as not checked.
FunctionPointer RegisterStranger(CUfunction handle);

// The twin's handle, of the same sort as the original's; null if it has none.
CUfunction TwinOf(FunctionRecord& function);
CUfunction LeanTwinOf(FunctionRecord& function);
// The original's handle, if `handle` is a twin that was launched; else null. Programs meet twins in
// captured graphs.
CUfunction OriginalOf(CUfunction handle);
bool IsTwinName(const char* name);
// What a kernel node of a graph runs. The driver may name a kernel by another handle than it was
// launched with. Null: a kernel that we never saw.
FunctionPointer FindNodeFunction(CUfunction function, CUkernel kernel, bool* is_twin);
// The handle of `function` of the sort that the program would read from a node: a CUfunction.
CUfunction NodeHandle(const FunctionRecord& function);

// The module's data in a context, set up at first use. Never null; see
// `failure`.
InstancePointer InstanceIn(const ModulePointer& module, const ContextPointer& context);

std::vector<InstancePointer> AllInstances();

// Line of the program's own PTX that became line `loaded_line` of the text that was loaded; 0: of
// code that was added.
uint32_t OriginalLine(const LoadedModule& module, uint32_t loaded_line);

// Frees an instance's memory; its context must be current.
void FreeInstance(ModuleInstance& instance);

}  // namespace ops_debug::interposer
