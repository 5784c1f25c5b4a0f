// Decoded code: what the executor runs. A PTX function becomes a flat array of fixed-size
// instructions whose operands are byte offsets into a warp's register frame. Instructions that PTX
// composes (saturation, odd register widths, packing) become several simple ones; only the last of
// them counts as an executed instruction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "emulator/isa/lane_ops.h"

namespace ops_debug::emulator {

// ---- Address map
// Generic addresses of shared, local and kernel-parameter memory lie in windows that no host
// mapping can occupy (the lower half of the address space ends at 2^47), so a global pointer is
// never mistaken for one.
inline constexpr uint32_t kWindowShift = 24;  // 16 MiB each, as on a GPU
inline constexpr uint64_t kWindowMask = (1ull << kWindowShift) - 1;
inline constexpr uint64_t kSharedWindow = 0x8000'0000'0000ull;
inline constexpr uint64_t kLocalWindow = 0x8000'4000'0000ull;
inline constexpr uint64_t kParameterWindow = 0x8000'8000'0000ull;
inline constexpr uint64_t kWindowsEnd = 0x8001'0000'0000ull;
// Function addresses: kCodeBase + program number << 24 + function index << 4.
inline constexpr uint64_t kCodeBase = 0x9000'0000'0000ull;

// Shared memory of the blocks of a cluster (.shared::cluster): bits 24 and up of a shared address
// name the block: 0 is the executing one, rank + 1 the block of that rank (mapa makes such
// addresses). Generic: kSharedWindow + that. The generic address of a block's own variable names
// its rank in launches with clusters, so that it means the same to every block
// (cluster_address.cc).
inline constexpr uint32_t kMaxClusterBlocks = 16;
inline bool IsSharedGeneric(uint64_t address) {
  return address - kSharedWindow < (uint64_t{kMaxClusterBlocks} + 1) << kWindowShift;
}

inline bool InWindow(uint64_t address, uint64_t window) {
  return (address >> kWindowShift) == (window >> kWindowShift);
}

// Local memory between a frame's variables and the next frame, so that a small overflow of an array
// (silent on a GPU, where parameters travel in registers) does not destroy a callee's parameters.
inline constexpr uint64_t kFrameGapBytes = 256;

// ---- Operands
// Byte offset of a lane array (or of a 32-bit predicate mask) in the frame; with kConstantBit in
// the function's constants.
using Ref = uint32_t;
inline constexpr Ref kConstantBit = 0x8000'0000u;
inline constexpr Ref kNoRef = 0x7fff'ffffu;

enum class Op : uint8_t {
  kAlu,             // fn.alu(d, a, b, c, immediate)
  kCompare,         // predicate d = fn.compare(a, b)
  kCompareCombine,  // as setp with a boolean operator: d, q, predicate source c; extra = CombineOp
  kSelect,          // d = predicate c ? a : b
  kPredicate,       // predicate d = extra(PredicateOp) of a, b
  kCarry,           // fn.carry(d, a, b, c); extra: bit 0 = carry in, bit 1 = carry out
  kSpecial,         // d = special register `extra`
  kSharedSymbol,  // d = shared address of variable `immediate` in the running kernel, + offset (b64
                  // or b32)
  kLocalSymbol,   // d = frame's local base + immediate
  kIsSpace,       // predicate d = a lies in space `extra`
  kLoadParameter,  // kernel parameter at byte `immediate`: uniform; extra = elements
  kLoadUniform,    // module variable at address `immediate`: uniform, cannot fail
  kLoadFrame,      // parameters of device functions, in local memory at frame base + access->offset
  kStoreFrame,
  kLoad,
  kStore,
  kAtomic,
  kCopyAsync,
  kNop,
  // Control.
  kBranch,  // guard = condition
  kJump,    // inserted by the layout, not counted
  kBranchTable,
  kCall,
  kCallIndirect,
  kReturn,
  kExit,
  kTrap,
  kUnsupported,
  // Synchronisation.
  kBarrier,  // bar / barrier
  kWarpSync,
  kShuffle,
  kVote,
  kMatch,
  kReduce,
  kActiveMask,
  kElect,
  kFence,
  kNanosleep,
  kExtended,  // fn.extended (extended_operation.h)
};

// Instruction::extra of kNop: griddepcontrol.
inline constexpr uint8_t kWaitForGrid = 1;
inline constexpr uint8_t kLaunchDependents = 2;

// Instruction::extra of kFence: .cta orders for the block only. Its immediate is a FenceUse
// (checks/launch_checks.h).
inline constexpr uint8_t kFenceOfDevice = 0;
inline constexpr uint8_t kFenceOfBlock = 1;

class ExtendedOperation;

enum class PredicateOp : uint8_t { kMove, kNot, kAnd, kOr, kXor };
enum class Space : uint8_t {
  kGeneric,
  kGlobal,
  kShared,
  kLocal,
  kParameter,
  kConst,
  kSharedCluster,  // shared memory of any block of the cluster
};

// Shared memory of each block that the system keeps for itself, since sm_80. Kernels that ask where
// it lies find it behind their own.
inline constexpr uint32_t kReservedSharedBytes = 1024;

enum class Special : uint8_t {
  kTidX,
  kTidY,
  kTidZ,
  kNtidX,
  kNtidY,
  kNtidZ,
  kCtaidX,
  kCtaidY,
  kCtaidZ,
  kNctaidX,
  kNctaidY,
  kNctaidZ,
  kLaneId,
  kWarpId,
  kWarpCount,
  kSmId,
  kSmCount,
  kGridId,
  kLaneMaskEq,
  kLaneMaskLe,
  kLaneMaskLt,
  kLaneMaskGe,
  kLaneMaskGt,
  kClock,
  kClockHigh,
  kClock64,
  kGlobalTimer,
  kGlobalTimerLow,
  kGlobalTimerHigh,
  kDynamicSharedBytes,
  kTotalSharedBytes,
  kAggregateSharedBytes,  // with what the system reserves
  kReservedSharedBegin,   // also %reserved_smem_offset_0
  kReservedShared1,
  kReservedSharedEnd,  // also ..._cap
  kGridWorkspaceHigh,
  kGridWorkspaceLow,
  kZero,
  kOne,
  kClusterIdX,
  kClusterIdY,
  kClusterIdZ,
  kClusterCountX,  // %nclusterid
  kClusterCountY,
  kClusterCountZ,
  kClusterCtaidX,
  kClusterCtaidY,
  kClusterCtaidZ,
  kClusterNctaidX,
  kClusterNctaidY,
  kClusterNctaidZ,
  kClusterRank,
  kClusterBlocks,
  kIsExplicitCluster,
};

// Who takes part in the order that an access or a fence makes (PTX ISA 9.0, 8.5), smallest first.
enum class MemoryScope : uint8_t { kBlock, kCluster, kDevice, kSystem };

struct MemoryAccess {
  Space space = Space::kGlobal;
  uint8_t element_shift = 2;   // log2 bytes of one element in memory
  uint8_t register_shift = 2;  // log2 bytes of its register lane
  uint8_t count = 1;           // vector elements
  bool sign_extend = false;
  bool strong = false;  // volatile, relaxed, acquire, release, mmio: one atomic access per lane
  bool acquire = false;
  bool release = false;
  bool block_scope = false;  // .cta; other scopes reach further
  bool is_volatile = false;  // .volatile or .mmio: relaxed, in the scope of the system
  MemoryScope scope = MemoryScope::kDevice;
  bool address_is_32bit = false;
  Ref registers[8] = {};  // kNoRef: `_`
  int64_t offset = 0;
  AluFn resize = nullptr;  // between element and register lanes, if their widths differ
  uint32_t access_bytes() const { return static_cast<uint32_t>(count) << element_shift; }
};

enum class AtomicOp : uint8_t {
  kAdd,
  kMin,
  kMax,
  kAnd,
  kOr,
  kXor,
  kExchange,
  kCompareSwap,
  kIncrement,
  kDecrement,
};
enum class ScalarType : uint8_t {
  kB8,
  kB16,
  kB32,
  kB64,
  kU16,
  kU32,
  kU64,
  kS16,
  kS32,
  kS64,
  kF16,
  kF16x2,
  kBf16,
  kBf16x2,
  kF32,
  kF64,
  kB128,  // two 64-bit elements: exchange and compare-and-swap
};

struct AtomicAccess {
  MemoryAccess memory;  // registers: destinations (kNoRef for red)
  AtomicOp operation = AtomicOp::kAdd;
  ScalarType type = ScalarType::kU32;
  Ref operand[8] = {};     // one per vector element
  Ref swap = kNoRef;       // second operand of cas
  Ref swap_high = kNoRef;  // its upper half, of kB128
};

struct AsyncCopy {
  MemoryAccess source;     // global
  Ref shared_address = 0;  // destination
  bool shared_is_32bit = false;
  int64_t shared_offset = 0;
  Ref source_bytes = kNoRef;   // 32-bit lanes; the rest is zero-filled
  Ref ignore_source = kNoRef;  // predicate
};

enum class BarrierKind : uint8_t { kSync, kArrive, kReduceAnd, kReduceOr, kReducePopc };
struct BarrierUse {
  BarrierKind kind = BarrierKind::kSync;
  Ref id = 0;            // 32-bit lanes
  Ref threads = kNoRef;  // 32-bit lanes
  Ref predicate = kNoRef;
  bool negate_predicate = false;
  bool aligned = true;  // bar, barrier.aligned: all lanes of a warp must execute it together
};

enum class VoteKind : uint8_t { kAll, kAny, kUniform, kBallot };
enum class ShuffleKind : uint8_t { kUp, kDown, kButterfly, kIndex };
enum class ReduceKind : uint8_t { kAdd, kMin, kMax, kAnd, kOr, kXor };

// Operations that name lanes (shfl, vote, match, redux, bar.warp.sync, elect).
struct WarpOperation {
  Ref members =
      kNoRef;  // 32-bit lanes; kNoRef: the lanes that execute it together (forms without .sync)
  Ref d = kNoRef;
  Ref predicate = kNoRef;  // second result
  Ref a = kNoRef, b = kNoRef, c = kNoRef;
  uint8_t width = 2;    // log2 bytes of a
  bool negate = false;  // vote: !predicate
  bool all = false;     // match.all
  // In front of an .aligned instruction (Decoder::EmitConvergence): orders no memory.
  bool is_convergence = false;
  bool is_signed = false;
  VoteKind vote = VoteKind::kAll;
  ShuffleKind shuffle = ShuffleKind::kUp;
  ReduceKind reduce = ReduceKind::kAdd;
};

// Functions without a body that the device run-time provides.
enum class Builtin : uint8_t {
  kNone,
  kPrintf,
  kAssertFail,
  kMalloc,
  kFree,
  kSetConditional,  // cudaGraphSetConditional
  kUnknown
};

// An argument or result: bytes of local memory at an offset from the frame base, or a register.
struct Slot {
  bool is_register = false;
  Ref ref = 0;
  uint8_t width = 2;
  uint32_t offset = 0;
  uint32_t bytes = 0;
};

struct CallSite {
  int32_t function = -1;  // index in the program; -1: through `address`
  Ref address = 0;
  std::vector<Slot> arguments, results;
};

struct BranchTargets {
  Ref index = 0;
  std::vector<uint32_t> targets;
};

struct Instruction {
  Op op = Op::kNop;
  uint8_t width = 2;  // log2 bytes of a destination lane
  uint8_t extra = 0;
  uint8_t counted = 1;
  uint8_t flow = 0;  // of undefined bits: Flow (checks/definedness_flow.h)
  Ref guard = kNoRef;
  uint32_t guard_flip = 0;  // ~0: negated
  Ref d = kNoRef, a = kNoRef, b = kNoRef, c = kNoRef;
  union {
    AluFn alu = nullptr;
    CompareFn compare;
    CarryFn carry;
    const MemoryAccess* access;
    const AtomicAccess* atomic;
    const AsyncCopy* copy;
    const BarrierUse* barrier;
    const WarpOperation* warp;
    const CallSite* call;
    const BranchTargets* table;
    const ExtendedOperation* extended;
  } fn;
  union {
    uint64_t immediate = 0;
    uint32_t target;
  };
  Ref q = kNoRef;          // second predicate of setp
  uint32_t statement = 0;  // index into Function::statements
  uint32_t ordinal = 0;    // counted instructions before this one
};

// Where an instruction came from.
struct SourcePlace {
  uint32_t ptx_line = 0, ptx_column = 0;
  uint32_t loc = 0;      // index into the ptx::Function's locs
  bool is_tool = false;  // instrumentation added it (shadow/abi/emulator_checks.h)
};

struct Function {
  std::string name;
  bool is_entry = false;
  bool has_body = false;
  Builtin builtin = Builtin::kNone;
  std::vector<Instruction> code;
  std::vector<SourcePlace> statements;
  uint32_t frame_bytes = 0;
  uint32_t local_bytes = 0;               // parameters, call arguments and .local variables
  std::vector<Slot> parameters, results;  // of a device function
  std::vector<std::byte> constants;       // lane arrays; read through constant_base
  const std::byte* constant_base = nullptr;
  const void* source = nullptr;  // the ptx::Function
  // log2 bytes of a lane, of the register at each multiple of kLaneArrayAlignment in the frame.
  std::vector<uint8_t> register_shifts;
  mutable std::vector<uint32_t> sites;  // by statement; belongs to checks/sites.cc
  // Side tables that instructions point into.
  std::vector<std::unique_ptr<MemoryAccess>> accesses;
  std::vector<std::unique_ptr<AtomicAccess>> atomics;
  std::vector<std::unique_ptr<AsyncCopy>> copies;
  std::vector<std::unique_ptr<BarrierUse>> barriers;
  std::vector<std::unique_ptr<WarpOperation>> warp_operations;
  std::vector<std::unique_ptr<CallSite>> calls;
  std::vector<std::unique_ptr<BranchTargets>> tables;
  std::vector<std::shared_ptr<const ExtendedOperation>>
      extended;  // shared: deletes incomplete type
};

// Orders the blocks of `function` so that running the lowest program counter first reconverges
// diverged lanes, and patches all targets. Targets are indices into `code`; a target equal to its
// size means the end of the function.
void LayOutCode(Function& function);

}  // namespace ops_debug::emulator
