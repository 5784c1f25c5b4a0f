// Rewrites a PTX module for checking: the pipeline over the passes in this folder, and the
// plan that the host needs to launch what came out. Every original entry stays as it was; an
// instrumented twin is added beside it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ptx/ir.h"
#include "ptx/result.h"
#include "shadow/passes/index_form.h"

namespace ops_debug::shadow {

// "matmul" -> "matmul$ops_debug".
std::string TwinName(std::string_view name);
// "matmul" -> "matmul$lean$ops_debug".
std::string LeanTwinName(std::string_view name);

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
  // A read that is tested for memory that was never written (kUninitialisedClass): what its value
  // comes to matter for ("branch", "address", "stored"), and where.
  bool init = false;
  std::string use;
  uint32_t use_ptx_line = 0;
  std::vector<SourceFrame> use_frames;
};

// Where an operand was made, if that is one place and no instruction that is checked itself.
struct NumericOrigin {
  uint32_t operand = 0;  // 0: a, 1: b, 2: c
  Site site;
};

// An instruction that is checked for numerical faults. Its index in
// InstrumentedModule::numeric_sites is the site number of precision_abi.h.
struct NumericSite {
  Site site;                               // of the instruction; nothing about memory
  std::vector<std::string> operand_types;  // of a, b, c as they are published: "f16", "s32"
  std::string result_type;                 // empty: it has no result that is published
  std::vector<NumericOrigin> origins;
  // Of kNumericConstantWidened, which is found here, not by the device: the bits of the constant in
  // float, and of the double that it became.
  uint64_t constant_bits = 0, widened_bits = 0;
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

// A pointer parameter that memory is reached through, as far as races go.
struct RaceSlot {
  uint32_t parameter_offset = 0;  // of the pointer in the parameter buffer
  bool reads = false, writes = false;
  // Where each access through it goes, if that is known of all of them: the host proves for a
  // launch that threads do not meet in it (own_proof.h), and leaves it untracked then if no other
  // slot leads to the same allocation. Empty: not known.
  std::vector<IndexForm> forms;
};

// How a twin checks races (race_abi.h).
struct RacePlan {
  bool checked = false;
  std::string reason;           // why not
  uint32_t launch_offset = 0;   // of the RaceLaunch in the launch parameter
  std::vector<RaceSlot> slots;  // at most 32; slot i is bit i of RaceLaunch::tracked
  // Global memory is reached, or written, through pointers of unknown origin.
  bool reaches_elsewhere = false, writes_elsewhere = false;
  std::vector<std::string> variables;  // of the module, in .global, that it names; they need cells
  bool uses_shared = false;            // needs RaceLaunch::shared_cells
  bool uses_global = false;            // needs RaceLaunch::directory
  bool named_barriers = false;         // needs RaceLaunch::named_barriers
  uint32_t sync_sites = 0;             // barriers and the like that are checked themselves
  uint32_t checked_accesses = 0, proved_accesses = 0;  // of the text; proved: nothing is executed
  std::vector<UncheckedAccess> unchecked;
  // A second twin (KernelPlan::lean_twin) leaves out what proofs make needless for most launches:
  // checks of slots that are not in `lean_tracked`, and of shared memory as far as, by group, no
  // thread of a block goes where another one does. It serves launches of which that is true.
  uint32_t lean_tracked = 0;
  std::vector<std::vector<IndexForm>> lean_shared;
  bool lean_checks = false;       // it checks something, so it needs a RaceLaunch
  bool lean_uses_shared = false;  // as uses_shared
};

// How a twin finds reads of memory that was never written (add_init_checks.h).
struct InitPlan {
  bool checked = false;
  uint32_t checked_loads = 0, marked_stores = 0;
  uint32_t not_followed = 0;   // loads whose value goes where registers do not show it
  bool writes_unseen = false;  // through pointers to functions, tensor maps...: after such a launch
                               // all memory counts as written
  // Pointer parameters (offsets in the parameter buffer, at most 32) whose reads are looked up only
  // if bit i of the 8 bytes at `written_offset` of the launch parameter is clear: the host sets it
  // where it knows the pointer's allocation to be wholly written.
  std::vector<uint32_t> slots;
  uint32_t written_offset = 0;
};

// How a twin finds numerical faults (add_precision_checks.h, add_index_checks.h).
struct PrecisionPlan {
  bool checked = false;
  uint32_t checked_instructions = 0;
  uint32_t indexes = 0;             // instructions of index arithmetic that are checked
  std::vector<uint32_t> constants;  // numeric sites of widened constants, told at the first launch
  std::vector<UncheckedAccess> unchecked;  // by instruction
};

// Where a kernel reads global memory. The twin judges reads whose value surely matters, in whole
// elements (add_init_checks.h): a launch that finds some of this memory unwritten is to be decided
// exactly.
struct UnwrittenReads {
  std::vector<uint32_t> parameter_offsets;  // of the pointers in the parameter buffer, sorted
  bool elsewhere = false;                   // through pointers of other origin, too
};

struct KernelPlan {
  std::string name;
  std::string twin;       // empty: the kernel has no twin, `reason` says why
  std::string lean_twin;  // same parameters; empty: there is none (RacePlan::lean_tracked)
  std::string reason;
  std::vector<ptx::ParameterLayout> parameters;  // of the original; without names
  uint32_t parameter_bytes = 0;                  // of the original
  uint32_t launch_parameter_offset = 0;          // of the twin's extra parameter
  // sizeof(LaunchHeader) + slots * sizeof(BoundsEntry), and with races a RaceLaunch behind it.
  uint32_t launch_parameter_bytes = 0;
  std::vector<BoundsSlot> slots;
  uint32_t checked_accesses = 0;
  std::vector<UncheckedAccess> unchecked;
  // Spins on global memory: its blocks may have to be resident together, as many as the original's.
  bool waits_for_blocks = false;
  RacePlan races;
  InitPlan init;
  PrecisionPlan precision;
  // What the twin cannot decide about races, barriers and initialisation (undecided.h), in words,
  // each once: "cp.async: whether its data has arrived before it is read". Empty: it decides all.
  std::vector<std::string> undecided;
  // With Checks::init. A launch with unwritten bytes in that memory counts as undecided as well.
  UnwrittenReads unwritten_reads;
};

// A module-scope `.global` or `.const` array whose size the PTX tells.
struct ModuleVariable {
  std::string name;
  uint64_t size_bytes = 0;
};

struct InstrumentedModule {
  std::string ptx;
  // For each line of `ptx` (index 0: line 1) the line of the program's text that it was; 0: added.
  std::vector<uint32_t> original_lines;
  std::vector<Site> sites;
  std::vector<NumericSite> numeric_sites;
  std::vector<KernelPlan> kernels;
  std::vector<ModuleVariable> globals;
};

enum class Rewrite : uint8_t {
  kMemoryChecks,  // what `Checks` says
  kNull,          // parse and print, nothing added: what loading PTX in place of SASS costs
};

// What the twins check.
struct Checks {
  bool memory = true;
  bool races = false;            // conflicts in shared and global memory (add_race_checks.h)
  bool sync = false;             // barriers that not all threads reach
  bool init = false;             // reads of memory that nobody has written
  bool precision = false;        // NaN, infinities, overflow, loss (add_precision_checks.h)
  bool precision_trace = false;  // and every conversion is measured
  bool indexes = false;          // 32-bit arithmetic that wraps on its way to an address
};

// `ptx` is module text as the program loads it. Errors: syntax (with place), or a construct that
// cannot be rewritten.
ptx::Result<InstrumentedModule> Instrument(std::string_view ptx, Rewrite rewrite,
                                           const Checks& checks = {});

// What a module holds that runs as it is: `kernels` without twins, and `globals`. No text.
ptx::Result<InstrumentedModule> Inspect(std::string_view ptx);

}  // namespace ops_debug::shadow
