// What instrumented kernels and the host agree on about numerical faults (add_precision_checks.h,
// add_index_checks.h): which kinds there are, and the table in which each (site, kind) is counted
// and its first case kept. Plain data, compiled by the host compiler and by nvcc
// (shadow/device/precision.cu). Part of the contract of device_abi.h: kAbiVersion covers it.
//
// A site can break most rules in many ways and nearly always breaks none, so the table is not
// indexed by site: it is a hash table with open addressing (Knuth, TAOCP 3, 6.4, algorithm L) whose
// keys threads enter as they come. ModuleContext says where it is and how many slots it has, a
// power of two. Slot i of the records belongs to slot i of what is published.
#pragma once

#include <stdint.h>  // NOLINT(modernize-deprecated-headers): also compiled as device code

namespace ops_debug::shadow {

// The numbers are those of NumericalFault.Kind in proto/events.proto.
enum NumericKind : uint32_t {
  kNumericNanCreated = 1,
  kNumericInfCreated = 2,
  kNumericOverflow = 3,
  kNumericUnderflow = 4,
  kNumericNanPropagated = 5,
  kNumericInfPropagated = 6,
  kNumericVanished = 7,
  kNumericNarrowingOverflow = 8,
  kNumericNarrowingUnderflow = 9,
  kNumericNarrowingLoss = 10,
  kNumericWidenedRounded = 11,
  kNumericStagnation = 12,
  kNumericCancellation = 13,
  kNumericConstantWidened = 14,
  kNumericIndexOverflow = 15,
  kNumericUnorderedComparison = 16,
  kNumericShadowDifference = 17,
  kNumericMatrixInput = 18,
};
constexpr uint32_t kNumericKinds = 32;  // more than any kind: the radix of keys

// Of site `site` (an index into InstrumentedModule::numeric_sites). Never 0.
constexpr uint64_t NumericKey(uint32_t site, uint32_t kind) {
  return static_cast<uint64_t>(site) * kNumericKinds + kind;
}

// In device memory, zero at start.
struct NumericRecord {
  uint64_t key;           // NumericKey; 0: free
  uint64_t count;         // cases, all threads
  uint64_t executions;    // of the instruction, if they are counted
  uint64_t worst;         // bits of the largest measure (a double that is not negative)
  uint64_t first_launch;  // launch id of the case held in PublishedNumeric, 0 = none
  uint64_t first_thread;
  uint32_t lock;
  uint32_t reserved;
};

// The first case of one (site, kind): the lowest thread of the earliest launch, its earliest. In
// pinned host memory, so it survives a context that dies. `sequence` is odd while the device writes
// (a seqlock), 0 = nothing published.
struct PublishedNumeric {
  uint64_t sequence;
  uint64_t key;
  uint64_t launch_id;    // ~0: not known
  uint64_t operands[3];  // bits, right-aligned; of packed operands the half that the case is about
  uint64_t result;
  uint64_t extra;  // kNumericIndexOverflow: the exact value; else bits of a double: the measure
  uint32_t block[3];
  uint32_t thread[3];
};

constexpr uint32_t kNumericSlotsLeast = 64;
constexpr uint32_t kNumericSlotsMost = 4096;

// ---- What the slow path is told of an instruction: NumericShape, packed into 32 bits
enum NumericOperation : uint32_t {
  kOperationAdd = 0,
  kOperationSubtract = 1,
  kOperationMultiply = 2,
  kOperationFma = 3,
  kOperationDivide = 4,
  kOperationReciprocal = 5,
  kOperationSquareRoot = 6,
  kOperationReciprocalSquareRoot = 7,
  kOperationLog2 = 8,
  kOperationExp2 = 9,
  kOperationOther = 10,    // of one operand: sin, cos, tanh
  kOperationMinMax = 11,   // and
  kOperationCompare = 12,  // of two operands; no result
  kOperationConvert = 13,  // between types of floating point
  kOperationToInteger = 14,
  kOperationMatrix = 15,  // c and the result: one element of the accumulator
  kOperationStore = 16,   // of a, to global memory; also what an atomic adds; no result
};
enum NumericType : uint32_t {
  kTypeF16 = 0,
  kTypeBf16 = 1,
  kTypeF32 = 2,
  kTypeF64 = 3,
  kTypeE4m3 = 4,
  kTypeE5m2 = 5,
  kTypeTf32 = 6,
  kTypeInteger = 7,
};
// Operands have `operand_type`, the result `result_type`. With kNumericPacked two values lie in
// the operands and in the result, which are told apart.
constexpr uint32_t kNumericPacked = 1u << 16;
constexpr uint32_t kNumericStagnationTested = 1u << 17;  // an accumulation: it may stand still
constexpr uint32_t kNumericUnderflowTested = 1u << 18;
constexpr uint32_t kNumericAccumulatorFirst = 1u << 19;  // of add: a is the accumulator, else b
constexpr uint32_t NumericShape(NumericOperation operation, NumericType operand_type,
                                NumericType result_type) {
  return operation | operand_type << 8 | result_type << 12;
}

static_assert(sizeof(NumericRecord) == 56 && sizeof(PublishedNumeric) == 88);

}  // namespace ops_debug::shadow
