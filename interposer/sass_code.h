// Which machine code lies where: from a program counter that the second engine reports to function,
// offset and source lines. Modules enter when the driver loads them (that is when their cubins can
// be read), functions when they are first launched. Thread-safe; makes no driver calls, so that the
// API's callbacks may use it.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "interposer/driver_api.h"
#include "ptx/cubin.h"

namespace ops_debug::interposer {

// A function of a module: a kernel, or a device function with a section of its own.
struct SassFunction {
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  std::string name;        // mangled
  uint64_t module_id = 0;  // of LoadedModule; 0: not known
  uint64_t pc = 0;
  uint64_t size_bytes = 0;
};

struct SassPlace {
  std::string kernel;    // the function whose code this is; a kernel if the code was inlined there
  std::string function;  // the innermost device function that is a function of its own
  uint64_t offset = 0;   // from the start of `function`
  uint64_t module_id = 0;
  std::vector<ptx::CodeFrame> frames;  // innermost first; empty without line information
  bool unloaded = false;               // the module is gone
};

class SassCodeBook {
 public:
  void ModuleLoaded(CUcontext context, CUmodule module, std::string_view cubin);
  // Its functions stay known, for faults that were not read yet, but come last.
  void ModuleUnloading(CUmodule module);
  // Goes with all its functions.
  void ContextGone(CUcontext context);

  void Add(SassFunction function);
  std::optional<SassPlace> Find(CUcontext context, uint64_t pc) const;
  // Device functions that have sections of their own, of modules that have launched functions; for
  // program counters that Find does not know.
  std::vector<SassFunction> SeparateFunctions(CUcontext context) const;

 private:
  struct Entry : SassFunction {
    std::shared_ptr<const ptx::CubinCode> code;  // null: the cubin could not be read
    bool unloaded = false;
  };
  struct Module {
    CUcontext context = nullptr;
    std::shared_ptr<const ptx::CubinCode> code;
  };
  // The cubin of a function: its module's. The driver's handle of a library's module may be another
  // than the one that the API named; then the function's name and size decide.
  std::shared_ptr<const ptx::CubinCode> CodeOf(const SassFunction& function) const;

  mutable std::mutex mutex_;
  std::unordered_map<CUmodule, Module> modules_;
  std::vector<Entry> functions_;
};

}  // namespace ops_debug::interposer
