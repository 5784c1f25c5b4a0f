// What an instrumented kernel calls when an inline test of add_precision_checks or add_index_checks
// hits: say what happened, count it, and keep the first case. Compiled to PTX by
// scripts/generate_device_code.py, checked in as precision_ptx.inc, appended to instrumented
// modules behind slow_path.cu.
//
// A kernel full of NaN comes here with every warp. So lanes of a warp with the same case are counted
// with one atomic, and only the first of them looks whether it comes before what is published.
#include "shadow/abi/device_abi.h"
#include "shadow/abi/precision_abi.h"
#include "shadow/device/linear_thread.h"

using namespace ops_debug::shadow;

extern "C" {

extern __constant__ ModuleContext __ops_debug_module_context;

// NumericKey, which only the host may call.
static __device__ uint64_t Key(uint32_t site, uint32_t kind) {
  return static_cast<uint64_t>(site) * kNumericKinds + kind;
}

// Kept in local memory: registers that the slow path needs, every thread of the kernel must have.
struct Case {
  uint64_t operands[3];
  uint64_t result;
  uint64_t extra;
};

// Slot of the key, entered if it is new; ~0: the table is full.
static __device__ uint32_t FindSlot(uint64_t key) {
  const uint32_t mask = __ops_debug_module_context.numeric_slots - 1;
  auto* records = reinterpret_cast<NumericRecord*>(__ops_debug_module_context.numeric_records);
  uint32_t slot = static_cast<uint32_t>(key * 0x9e3779b97f4a7c15ull >> 40) & mask;
  for (uint32_t probe = 0; probe <= mask; probe++, slot = (slot + 1) & mask) {
    uint64_t held = *const_cast<const volatile uint64_t*>(&records[slot].key);
    if (held == 0) {
      held = atomicCAS(reinterpret_cast<unsigned long long*>(&records[slot].key), 0ull, key);
      if (held == 0) return slot;
    }
    if (held == key) return slot;
  }
  return ~0u;
}

static __device__ bool Before(uint64_t launch, uint64_t thread, const volatile NumericRecord* record) {
  const uint64_t held_launch = record->first_launch, held_thread = record->first_thread;
  return held_launch == 0 || launch < held_launch ||
         (launch == held_launch && thread < held_thread);
}

// As __ops_debug_report of slow_path.cu.
static __device__ void Publish(uint64_t key, uint32_t slot, const Case& what, uint64_t launch) {
  auto* record =
      reinterpret_cast<NumericRecord*>(__ops_debug_module_context.numeric_records) + slot;
  if (launch == 0) launch = ~0ull;
  const uint64_t thread = LinearThread();
  while (Before(launch, thread, record)) {
    if (atomicCAS(&record->lock, 0u, 1u) != 0) continue;
    __threadfence();
    if (Before(launch, thread, record)) {
      volatile NumericRecord* held = record;
      held->first_launch = launch;
      held->first_thread = thread;
      volatile PublishedNumeric* out =
          reinterpret_cast<PublishedNumeric*>(__ops_debug_module_context.numeric_published) + slot;
      const uint64_t sequence = out->sequence;
      out->sequence = sequence + 1;
      __threadfence_system();
      out->key = key;
      out->launch_id = launch;
      out->operands[0] = what.operands[0];
      out->operands[1] = what.operands[1];
      out->operands[2] = what.operands[2];
      out->result = what.result;
      out->extra = what.extra;
      out->block[0] = blockIdx.x;
      out->block[1] = blockIdx.y;
      out->block[2] = blockIdx.z;
      out->thread[0] = threadIdx.x;
      out->thread[1] = threadIdx.y;
      out->thread[2] = threadIdx.z;
      __threadfence_system();
      out->sequence = sequence + 2;
    }
    __threadfence();
    atomicExch(&record->lock, 0u);
  }
}

// Lanes that execute this together and name the same key count as one. `measured`: `extra` holds the
// bits of a measure, of which the largest is kept, and executions are counted, too; `is_case` may
// then be false.
__device__ __noinline__ void __ops_debug_numeric_count(uint64_t key, bool is_case, bool measured,
                                                       const Case* what, uint64_t launch) {
  if (__ops_debug_module_context.numeric_slots == 0) return;
  const uint32_t slot = FindSlot(key);
  const uint32_t active = __activemask();
  const uint32_t peers = __match_any_sync(active, slot);
  const uint32_t cases = __ballot_sync(active, is_case) & peers;
  uint32_t lane;
  asm("mov.u32 %0, %%laneid;" : "=r"(lane));
  const bool leads = lane == static_cast<uint32_t>(__ffs(peers)) - 1;
  if (slot == ~0u) {
    if (leads) {
      auto* counters = reinterpret_cast<Counters*>(__ops_debug_module_context.counters);
      atomicAdd(reinterpret_cast<unsigned long long*>(&counters->lost_numeric),
                static_cast<unsigned long long>(__popc(cases)));
    }
    return;
  }
  auto* record =
      reinterpret_cast<NumericRecord*>(__ops_debug_module_context.numeric_records) + slot;
  if (leads) {
    if (cases != 0)
      atomicAdd(reinterpret_cast<unsigned long long*>(&record->count),
                static_cast<unsigned long long>(__popc(cases)));
    if (measured)
      atomicAdd(reinterpret_cast<unsigned long long*>(&record->executions),
                static_cast<unsigned long long>(__popc(peers)));
  }
  if (measured && is_case &&
      *const_cast<const volatile uint64_t*>(&record->worst) < what->extra) {
    atomicMax(reinterpret_cast<unsigned long long*>(&record->worst),
              static_cast<unsigned long long>(what->extra));
  }
  // What never was a case is published all the same if it was measured: the host is to hear of it.
  const uint32_t first = cases != 0 ? cases : measured ? peers : 0;
  if (first != 0 && lane == static_cast<uint32_t>(__ffs(first)) - 1) Publish(key, slot, *what, launch);
}

// ---- Values

static __device__ double Float32(uint32_t bits) { return static_cast<double>(__uint_as_float(bits)); }

static __device__ double Half(uint32_t bits) {
  const uint32_t magnitude = (bits & 0x7fff) << 13, sign = (bits & 0x8000) << 16;
  if ((bits & 0x7c00) == 0x7c00) return Float32(sign | magnitude | 0x7f800000);
  return Float32(magnitude) * 0x1p112 * (sign != 0 ? -1 : 1);
}

static __device__ double Value(uint32_t type, uint64_t bits) {
  const uint32_t low = static_cast<uint32_t>(bits);
  switch (type) {
    case kTypeF16:
      return Half(low & 0xffff);
    case kTypeE5m2:
      return Half((low & 0xff) << 8);
    case kTypeBf16:
      return Float32(low << 16);
    case kTypeF64:
      return __longlong_as_double(static_cast<long long>(bits));
    case kTypeE4m3: {
      if ((low & 0x7f) == 0x7f) return __longlong_as_double(0x7ff8000000000000ll);
      return Float32((low & 0x7f) << 20) * 0x1p120 * ((low & 0x80) != 0 ? -1 : 1);
    }
    default:
      return Float32(low);
  }
}

static __device__ bool IsNan(double x) { return x != x; }
static __device__ bool IsInf(double x) {
  return x == __longlong_as_double(0x7ff0000000000000ll) ||
         x == __longlong_as_double(static_cast<long long>(0xfff0000000000000ull));
}
static __device__ double Magnitude(double x) { return x < 0 ? -x : x; }
static __device__ int Exponent(double x) {
  return static_cast<int>(static_cast<unsigned long long>(__double_as_longlong(x)) >> 52 & 0x7ff);
}

// Finite values from here on round to infinity, or beyond the largest (e4m3).
static __device__ double Limit(uint32_t type) {
  switch (type) {
    case kTypeF16:
      return 65520;
    case kTypeE5m2:
      return 61440;
    case kTypeE4m3:
      return 464;
    case kTypeBf16:
      return 0x1.ffp127;
    case kTypeF64:
      return __longlong_as_double(0x7ff0000000000000ll);
    default:
      return 0x1.ffffffp127;
  }
}

static __device__ uint32_t JudgeConversion(double from, double to, uint32_t type) {
  if (IsNan(from)) return IsNan(to) ? kNumericNanPropagated : kNumericVanished;
  if (IsInf(from)) return IsInf(to) || IsNan(to) ? kNumericInfPropagated : kNumericVanished;
  if (IsNan(to) || IsInf(to) || Magnitude(from) >= Limit(type)) return kNumericNarrowingOverflow;
  return from != 0 && to == 0 ? kNumericNarrowingUnderflow : 0;
}

struct Operands {
  double a, b, c, result;
  bool nan, infinite;  // one of the used is
};

static __device__ uint32_t JudgeFinite(uint32_t shape, const Operands& in) {
  const uint32_t operation = shape & 0xff;
  if (in.nan) return kNumericVanished;
  if (in.infinite) {
    return operation == kOperationReciprocal || operation == kOperationReciprocalSquareRoot ||
                   (operation == kOperationDivide && IsInf(in.b))
               ? kNumericVanished
               : 0;
  }
  if ((shape & kNumericUnderflowTested) && in.result == 0) {
    switch (operation) {
      case kOperationMultiply:
        return in.a != 0 && in.b != 0 ? kNumericUnderflow : 0;
      case kOperationFma:
        return in.a != 0 && in.b != 0 && in.c == 0 ? kNumericUnderflow : 0;
      case kOperationDivide:
        return in.a != 0 ? kNumericUnderflow : 0;
      default:
        return kNumericUnderflow;
    }
  }
  if (shape & kNumericStagnationTested) {
    const bool fused = operation == kOperationFma;
    const bool first = shape & kNumericAccumulatorFirst;
    const double accumulator = fused ? in.c : first ? in.a : in.b;
    const double added = fused ? in.a * in.b : first ? in.b : in.a;
    if (in.result == accumulator && added != 0) return kNumericStagnation;
  }
  return 0;
}

static __device__ uint32_t Judge(uint32_t shape, const Operands& in) {
  const uint32_t operation = shape & 0xff;
  switch (operation) {
    case kOperationCompare:
      return in.nan ? kNumericUnorderedComparison : 0;
    case kOperationToInteger:
      // c is the limit: its negative is an integer of the type.
      if (in.nan || in.infinite) return kNumericVanished;
      return Magnitude(in.a) >= in.c && in.a != -in.c ? kNumericNarrowingOverflow : 0;
    case kOperationStore:
      return in.nan ? kNumericNanPropagated : in.infinite ? kNumericInfPropagated : 0;
    case kOperationMinMax:
      if (!in.nan) return 0;
      return IsNan(in.result) ? kNumericNanPropagated : kNumericVanished;
    case kOperationConvert:
      return JudgeConversion(in.a, in.result, shape >> 12 & 0xf);
    default:
      break;
  }
  if (IsNan(in.result)) {
    if (in.nan) return kNumericNanPropagated;
    return operation == kOperationMatrix && in.a != 0 ? kNumericMatrixInput : kNumericNanCreated;
  }
  if (IsInf(in.result)) {
    if (in.infinite) return kNumericInfPropagated;
    if (operation == kOperationMatrix) return in.a != 0 ? kNumericMatrixInput : kNumericOverflow;
    const bool exact = (operation == kOperationDivide && in.b == 0) ||
                       ((operation == kOperationReciprocal || operation == kOperationLog2 ||
                         operation == kOperationReciprocalSquareRoot) &&
                        in.a == 0);
    return exact ? kNumericInfCreated : kNumericOverflow;
  }
  return JudgeFinite(shape, in);
}

static __device__ uint32_t OperandCount(uint32_t operation) {
  switch (operation) {
    case kOperationFma:
      return 3;
    case kOperationAdd:
    case kOperationSubtract:
    case kOperationMultiply:
    case kOperationDivide:
    case kOperationMinMax:
    case kOperationCompare:
      return 2;
    default:
      return 1;
  }
}

static __device__ Operands Decode(uint32_t shape, const Case& what) {
  const uint32_t operation = shape & 0xff, type = shape >> 8 & 0xf;
  Operands out;
  out.result = Value(shape >> 12 & 0xf, what.result);
  out.b = out.c = 0;
  if (operation == kOperationMatrix) {
    // a says whether a lane of the warp holds an exceptional factor.
    out.a = what.operands[0] != 0 ? 1 : 0;
    out.c = Value(shape >> 12 & 0xf, what.operands[2]);
    out.nan = IsNan(out.c);
    out.infinite = IsInf(out.c);
    return out;
  }
  out.a = Value(type, what.operands[0]);
  const uint32_t count = OperandCount(operation);
  if (count > 1) out.b = Value(type, what.operands[1]);
  if (count > 2) out.c = Value(type, what.operands[2]);
  if (operation == kOperationToInteger) out.c = Value(kTypeF64, what.operands[2]);
  out.nan = IsNan(out.a) || IsNan(out.b) || IsNan(out.c);
  out.infinite = IsInf(out.a) || IsInf(out.b) || (count > 2 && IsInf(out.c));
  return out;
}

// Bits of one of the two values of a packed operand.
static __device__ uint64_t Part(uint64_t bits, uint32_t type, uint32_t part) {
  const uint32_t width = type == kTypeE4m3 || type == kTypeE5m2 ? 8 : 16;
  return bits >> (part * width) & ((1u << width) - 1);
}

// A conversion that packs takes two operands, a for the upper half; of a matrix instruction only the
// accumulator comes in pairs.
static __device__ void TakePart(uint32_t shape, uint32_t part, Case* what) {
  const uint32_t operation = shape & 0xff, from = shape >> 8 & 0xf, to = shape >> 12 & 0xf;
  what->result = Part(what->result, to, part);
  if (operation == kOperationMatrix) {
    what->operands[2] = Part(what->operands[2], to, part);
    return;
  }
  if (from == kTypeF32) {
    what->operands[0] = what->operands[part == 1 ? 0 : 1];
    what->operands[1] = 0;
    return;
  }
  for (uint64_t& operand : what->operands) operand = Part(operand, from, part);
}

// For any pass: `kind` has happened at `site`, with these bits.
__device__ __noinline__ void __ops_debug_numeric_report(uint32_t site, uint32_t kind, uint64_t a,
                                                        uint64_t b, uint64_t c, uint64_t result,
                                                        uint64_t extra, uint64_t launch) {
  const Case what{{a, b, c}, result, extra};
  __ops_debug_numeric_count(Key(site, kind), true, false, &what, launch);
}

// The inline test of a result or of operands hit: `shape` is a NumericShape.
__device__ __noinline__ void __ops_debug_numeric(uint32_t site, uint32_t shape, uint64_t a,
                                                 uint64_t b, uint64_t c, uint64_t result,
                                                 uint64_t launch) {
  const uint32_t parts = (shape & kNumericPacked) != 0 ? 2 : 1;
#pragma unroll 1
  for (uint32_t part = 0; part < parts; part++) {
    Case what{{a, b, c}, result, 0};
    if (parts == 2) TakePart(shape, part, &what);
    const uint32_t kind = Judge(shape, Decode(shape, what));
    if (kind == 0) continue;
    __ops_debug_numeric_count(Key(site, kind), true, false, &what, launch);
  }
}

// --precision-trace: every execution comes here. `kind` says what is measured: the relative loss of
// a conversion, the bits that a difference cancels, or nothing (a widening).
__device__ __noinline__ void __ops_debug_numeric_trace(uint32_t site, uint32_t kind, uint32_t shape,
                                                       uint64_t a, uint64_t b, uint64_t result,
                                                       uint64_t launch) {
  const uint32_t from = shape >> 8 & 0xf, to = shape >> 12 & 0xf;
  const uint32_t parts = (shape & kNumericPacked) != 0 ? 2 : 1;
#pragma unroll 1
  for (uint32_t part = 0; part < parts; part++) {
    Case what{{a, b, 0}, result, 0};
    if (parts == 2) TakePart(shape, part, &what);
    const double x = Value(from, what.operands[0]), r = Value(to, what.result);
    double measure = 0;
    if (kind == kNumericNarrowingLoss) {
      if (x != 0 && !IsNan(x) && !IsInf(x) && !IsNan(r) && !IsInf(r))
        measure = Magnitude(r - x) / Magnitude(x);
    } else if (kind == kNumericCancellation) {
      const double y = Value(from, what.operands[1]);
      const double larger = Magnitude(x) > Magnitude(y) ? x : y;
      if (r != 0 && Exponent(larger) != 0x7ff && Exponent(r) < Exponent(larger))
        measure = Exponent(larger) - Exponent(r);
    }
    what.extra = static_cast<uint64_t>(__double_as_longlong(measure));
    __ops_debug_numeric_count(Key(site, kind), kind == kNumericWidenedRounded || measure != 0, true,
                              &what, launch);
  }
}

}  // extern "C"
