// Rewrites a PTX module for memory checking: the pipeline over the passes in this folder, and the
// plan that the host needs to launch what came out. Every original entry stays as it was; an
// instrumented twin is added beside it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ptx/ir.h"
#include "ptx/result.h"

namespace ops_debug::shadow {

// "matmul" -> "matmul$ops_debug".
std::string TwinName(std::string_view name);

enum class AccessKind : uint8_t { kLoad, kStore, kAtomic };
enum class AccessSpace : uint8_t { kGlobal, kShared, kLocal, kGeneric };

struct SourceFrame {
  std::string function;  // of the frame, if the line info names it
  std::string file;
  uint32_t line = 0;
  uint32_t column = 0;
};

// One instrumented memory instruction. Its index in InstrumentedModule::sites is the site number of
// device_abi.h.
struct Site {
  std::string function;  // mangled entry or .func that holds it
  AccessKind kind = AccessKind::kLoad;
  AccessSpace space = AccessSpace::kGlobal;
  uint32_t access_bytes = 0;
  uint32_t ptx_line = 0;            // in the text that was loaded
  std::string instruction;          // as written, one line
  std::vector<SourceFrame> frames;  // innermost first; empty without line info
  int32_t parameter_offset =
      -1;  // byte offset of the pointer in the parameter buffer, -1 if not known
  int32_t parameter_index = -1;  // index of the parameter that holds it
  std::string variable;          // shared, local or global array that the address was derived from
  uint64_t variable_bytes = 0;   // its size, 0 if not known (dynamic shared memory)
};

// One BoundsEntry that the host fills before each launch.
struct BoundsSlot {
  uint32_t parameter_offset = 0;  // of the pointer in the parameter buffer
  uint32_t access_bytes = 0;
  uint32_t alignment_bytes =
      1;  // the pointer must be a multiple of this, else use kBoundsUseShadow
};

// A memory instruction that no pass can check yet, by name, so that coverage tells the truth.
struct UncheckedAccess {
  std::string instruction;  // "cp.async.bulk.tensor.2d..."
  std::string reason;
  uint32_t count = 0;
};

struct KernelPlan {
  std::string name;
  std::string twin;  // empty: the kernel has no twin, `reason` says why
  std::string reason;
  std::vector<ptx::ParameterLayout> parameters;  // of the original; without names
  uint32_t parameter_bytes = 0;                  // of the original
  uint32_t launch_parameter_offset = 0;          // of the twin's extra parameter
  uint32_t launch_parameter_bytes = 0;  // sizeof(LaunchHeader) + slots * sizeof(BoundsEntry)
  std::vector<BoundsSlot> slots;
  uint32_t checked_accesses = 0;
  std::vector<UncheckedAccess> unchecked;
  // Spins on global memory: its blocks may have to be resident together, as many as the original's.
  bool waits_for_blocks = false;
};

// A module-scope `.global` or `.const` array whose size the PTX tells.
struct ModuleVariable {
  std::string name;
  uint64_t size_bytes = 0;
};

struct InstrumentedModule {
  std::string ptx;
  std::vector<Site> sites;
  std::vector<KernelPlan> kernels;
  std::vector<ModuleVariable> globals;
};

enum class Rewrite : uint8_t {
  kMemoryChecks,
  kNull,  // parse and print, nothing added: what loading PTX in place of SASS costs
};

// `ptx` is module text as the program loads it. Errors: syntax (with place), or a construct that
// cannot be rewritten.
ptx::Result<InstrumentedModule> Instrument(std::string_view ptx, Rewrite rewrite);

}  // namespace ops_debug::shadow
