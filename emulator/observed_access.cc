// Memory accesses of observed warps: in a chosen schedule they go through weak memory; while the
// machine looks for a deadlock, it counts what changes memory and remembers what a loop reads.
#include <algorithm>
#include <cstring>

#include "emulator/lane_elements.h"
#include "emulator/machine.h"

namespace ops_debug::emulator {
namespace {

// One row of elements per lane, on the way between memory and registers.
struct Rows {
  static constexpr size_t kRowBytes = 128;  // eight elements of 16 bytes
  alignas(16) std::byte bytes[kWarpLanes][kRowBytes];
  std::byte* pointers[kWarpLanes];
  Rows() {
    for (uint32_t i = 0; i < kWarpLanes; ++i) pointers[i] = bytes[i];
  }
};

bool StoreDirectly(std::byte* target, const std::byte* value, uint32_t bytes) {
  if (std::memcmp(target, value, bytes) == 0) return false;
  switch (bytes) {
    case 1:
      __atomic_store_n(reinterpret_cast<uint8_t*>(target), static_cast<uint8_t>(*value),
                       __ATOMIC_RELAXED);
      break;
    case 2: {
      uint16_t word = 0;
      std::memcpy(&word, value, sizeof(word));
      __atomic_store_n(reinterpret_cast<uint16_t*>(target), word, __ATOMIC_RELAXED);
      break;
    }
    case 4: {
      uint32_t word = 0;
      std::memcpy(&word, value, sizeof(word));
      __atomic_store_n(reinterpret_cast<uint32_t*>(target), word, __ATOMIC_RELAXED);
      break;
    }
    case 8: {
      uint64_t word = 0;
      std::memcpy(&word, value, sizeof(word));
      __atomic_store_n(reinterpret_cast<uint64_t*>(target), word, __ATOMIC_RELAXED);
      break;
    }
    default:
      std::memcpy(target, value, bytes);
  }
  return true;
}

// To the model a vector access is one access per element, in any order. Hardware does not part an
// aligned piece of 16 bytes, and libraries rely on that: the tile states of cub's scans are read
// with ld.relaxed.gpu.v2.u32. Weak accesses come in pieces of 8 bytes, of which each may be late.
uint32_t PieceBytes(const MemoryAccess& access) {
  const uint32_t element = 1u << access.element_shift;
  return std::max(element, std::min(access.access_bytes(), access.strong ? 16u : 8u));
}

bool IsAmong(Ref ref, const Ref* refs, uint32_t count) {
  return std::find(refs, refs + count, ref) != refs + count;
}

bool IsAmong(Ref ref, const std::vector<Slot>& slots) {
  for (const Slot& slot : slots) {
    if (slot.is_register && slot.ref == ref) return true;
  }
  return false;
}

// Whether an instruction of `function` may read register `ref`.
bool ReadsRegister(const Function& function, Ref ref) {
  if (IsAmong(ref, function.results)) return true;
  for (const Instruction& in : function.code) {
    for (const Ref source : {in.a, in.b, in.c, in.q, in.guard}) {
      if (source == ref) return true;
    }
    switch (in.op) {
      case Op::kStore:
      case Op::kStoreFrame:
        if (IsAmong(ref, in.fn.access->registers, in.fn.access->count)) return true;
        break;
      case Op::kAtomic:
        if (in.fn.atomic->swap == ref || in.fn.atomic->swap_high == ref ||
            IsAmong(ref, in.fn.atomic->operand, in.fn.atomic->memory.count))
          return true;
        break;
      case Op::kCopyAsync:
        for (const Ref source :
             {in.fn.copy->shared_address, in.fn.copy->source_bytes, in.fn.copy->ignore_source}) {
          if (source == ref) return true;
        }
        break;
      case Op::kBarrier:
        for (const Ref source :
             {in.fn.barrier->id, in.fn.barrier->threads, in.fn.barrier->predicate}) {
          if (source == ref) return true;
        }
        break;
      case Op::kWarpSync:
      case Op::kShuffle:
      case Op::kVote:
      case Op::kMatch:
      case Op::kReduce:
      case Op::kElect:
        for (const Ref source :
             {in.fn.warp->members, in.fn.warp->a, in.fn.warp->b, in.fn.warp->c}) {
          if (source == ref) return true;
        }
        break;
      case Op::kCall:
      case Op::kCallIndirect:
        if (in.fn.call->address == ref || IsAmong(ref, in.fn.call->arguments)) return true;
        break;
      case Op::kExtended:
        if (in.fn.extended->HoldsRegisters()) return true;
        break;
      case Op::kBranchTable:
        if (in.fn.table->index == ref) return true;
        break;
      default:
        break;
    }
  }
  return false;
}

}  // namespace

void Machine::NoteSpin(Warp& warp, const Frame& frame, const Instruction& in,
                       const std::byte* pointer, uint32_t bytes) {
  bool is_shared = false;
  for (const Block* block : warp.block->cluster->blocks) {
    is_shared = is_shared ||
                static_cast<size_t>(pointer - block->shared.data()) < block->shared.size_bytes();
  }
  warp.spin = {frame.function, in.statement, bytes, pointer, is_shared};
}

// So that a counter's values do not make states differ that are the same.
void Machine::ForgetResult(Frame& frame, const Instruction& in) {
  const MemoryAccess& memory = in.fn.atomic->memory;
  for (uint32_t k = 0; k < memory.count; ++k) {
    if (memory.registers[k] != kNoRef)
      std::memset(At(frame, memory.registers[k]), 0, size_t{kWarpLanes} << memory.element_shift);
  }
}

bool Machine::ResultIsUsed(const Function& function, const Instruction& in) {
  const auto known = used_results_.find(&in);
  if (known != used_results_.end()) return known->second;
  bool used = false;
  const AtomicAccess& atomic = *in.fn.atomic;
  for (uint32_t k = 0; k < atomic.memory.count && !used; ++k) {
    if (atomic.memory.registers[k] != kNoRef)
      used = ReadsRegister(function, atomic.memory.registers[k]);
  }
  used_results_[&in] = used;
  return used;
}

bool Machine::LoadObserved(Warp& warp, Frame& frame, const Instruction& in, uint32_t active) {
  const MemoryAccess& access = *in.fn.access;
  const uint32_t bytes = access.access_bytes();
  const uint32_t element = 1u << access.element_shift;
  const uint32_t piece = PieceBytes(access);
  alignas(kLaneArrayAlignment) uint64_t addresses[kWarpLanes];
  (access.address_is_32bit ? lanes_.add_offset32 : lanes_.add_offset64)(addresses, At(frame, in.a),
                                                                        access.offset);
  const Space space = SettleSpace(access.space, addresses, active);
  std::byte* pointers[kWarpLanes];
  if (!Resolve(warp, space, addresses, active, bytes, false, pointers)) return false;
  if (access.strong) synchronising_ = true;
  Rows rows;
  for (uint32_t m = active; m != 0; m &= m - 1) {
    const auto lane = static_cast<uint32_t>(__builtin_ctz(m));
    const std::byte* const source = pointers[lane];
    if (space == Space::kLocal || IsLocal(warp, source)) {
      std::memcpy(rows.pointers[lane], source, bytes);
      continue;
    }
    launch_.reads.Add(source, bytes);
    for (uint32_t offset = 0; offset < bytes; offset += piece) {
      if (weak_ != nullptr) {
        weak_->Load(warp, lane, source + offset, piece, access.acquire,
                    rows.pointers[lane] + offset);
      } else {
        std::memcpy(rows.pointers[lane] + offset, source + offset, piece);
      }
    }
  }
  Tell(warp, frame, in, active, AccessKind::kLoad, access, space, pointers, rows.pointers);
  const auto first = static_cast<uint32_t>(__builtin_ctz(active));
  if (space != Space::kLocal && !IsLocal(warp, pointers[first]))
    NoteSpin(warp, frame, in, pointers[first], element);
  for (uint32_t k = 0; k < access.count; ++k) {
    if (access.registers[k] == kNoRef) continue;
    GatherElement(access, rows.pointers, static_cast<size_t>(k) << access.element_shift,
                  At(frame, access.registers[k]), active);
  }
  if (access.acquire) std::atomic_thread_fence(std::memory_order_acquire);
  return true;
}

namespace {

WarpAccess Describe(Warp& warp, Frame& frame, const Instruction& in, uint32_t lanes,
                    AccessKind kind, const MemoryAccess& access, Space space,
                    const std::byte* const* pointers) {
  WarpAccess told;
  told.warp = &warp;
  told.function = frame.function;
  told.frame = &frame;
  told.in = &in;
  told.statement = in.statement;
  told.lanes = lanes;
  told.kind = kind;
  told.space = space;
  told.bytes = access.access_bytes();
  told.pointers = pointers;
  told.order = {access.strong, access.acquire, access.release, access.is_volatile, access.scope};
  return told;
}

}  // namespace

void Machine::Tell(Warp& warp, Frame& frame, const Instruction& in, uint32_t lanes, AccessKind kind,
                   const MemoryAccess& access, Space space, const std::byte* const* pointers,
                   const std::byte* const* values) {
  LaunchChecks* const checks = ChecksOf(frame, in);
  if (checks == nullptr) return;
  WarpAccess told = Describe(warp, frame, in, lanes, kind, access, space, pointers);
  told.values = values;
  checks->Access(told);
}

void Machine::TellAfterAtomic(Warp& warp, Frame& frame, const Instruction& in, uint32_t lanes,
                              Space space, const std::byte* const* pointers) {
  LaunchChecks* const checks = ChecksOf(frame, in);
  if (checks == nullptr) return;
  checks->AfterAtomic(
      Describe(warp, frame, in, lanes, AccessKind::kAtomic, in.fn.atomic->memory, space, pointers));
}

void Machine::TellArrival(Warp& warp, Frame& frame, const Instruction& in, uint32_t lanes) {
  LaunchChecks* const checks = ChecksOf(frame, in);
  if (checks == nullptr) return;
  WarpArrival arrival;
  arrival.warp = &warp;
  arrival.function = frame.function;
  arrival.in = &in;
  arrival.statement = in.statement;
  arrival.lanes = lanes;
  if (in.fn.warp->members != kNoRef)
    arrival.members = reinterpret_cast<const uint32_t*>(At(frame, in.fn.warp->members));
  checks->ArriveAtWarpOperation(arrival);
}

void Machine::LoadUniformObserved(Warp& warp, Frame& frame, const Instruction& in,
                                  uint32_t active) {
  const auto* source = reinterpret_cast<const std::byte*>(in.immediate);
  launch_.reads.Add(source, in.fn.access->access_bytes());
  if (weak_ == nullptr && launch_.checks == nullptr)
    return LoadUniform(in, frame, active | warp.gone(), source);
  const MemoryAccess& access = *in.fn.access;
  Rows rows;
  if (weak_ == nullptr) {
    const std::byte* pointers[kWarpLanes];
    const std::byte* values[kWarpLanes];
    for (uint32_t i = 0; i < kWarpLanes; ++i) {
      pointers[i] = source;
      values[i] = rows.pointers[0];
    }
    std::memcpy(rows.pointers[0], source, access.access_bytes());
    Tell(warp, frame, in, active, AccessKind::kLoad, access, Space::kGlobal, pointers, values);
    return LoadUniform(in, frame, active | warp.gone(), rows.pointers[0]);
  }
  for (uint32_t m = active; m != 0; m &= m - 1) {
    const auto lane = static_cast<uint32_t>(__builtin_ctz(m));
    const uint32_t piece = PieceBytes(access);
    for (uint32_t offset = 0; offset < access.access_bytes(); offset += piece)
      weak_->Load(warp, lane, source + offset, piece, false, rows.pointers[lane] + offset);
  }
  const std::byte* pointers[kWarpLanes];
  std::fill(std::begin(pointers), std::end(pointers), source);
  Tell(warp, frame, in, active, AccessKind::kLoad, access, Space::kGlobal, pointers, rows.pointers);
  for (uint32_t k = 0; k < access.count; ++k) {
    if (access.registers[k] == kNoRef) continue;
    GatherElement(access, rows.pointers, static_cast<size_t>(k) << access.element_shift,
                  At(frame, access.registers[k]), active);
  }
}

bool Machine::StoreObserved(Warp& warp, Frame& frame, const Instruction& in, uint32_t active) {
  const MemoryAccess& access = *in.fn.access;
  const uint32_t bytes = access.access_bytes();
  const uint32_t piece = PieceBytes(access);
  alignas(kLaneArrayAlignment) uint64_t addresses[kWarpLanes];
  (access.address_is_32bit ? lanes_.add_offset32 : lanes_.add_offset64)(addresses, At(frame, in.a),
                                                                        access.offset);
  const Space space = SettleSpace(access.space, addresses, active);
  std::byte* pointers[kWarpLanes];
  if (!Resolve(warp, space, addresses, active, bytes, true, pointers)) return false;
  if (access.release) {
    std::atomic_thread_fence(std::memory_order_release);
    if (weak_ != nullptr) weak_->Release(warp, active, access.block_scope);
  }
  Rows rows;
  for (uint32_t k = 0; k < access.count; ++k) {
    ScatterElement(access, rows.pointers, static_cast<size_t>(k) << access.element_shift,
                   At(frame, access.registers[k]), active);
  }
  Tell(warp, frame, in, active, AccessKind::kStore, access, space, pointers, rows.pointers);
  for (uint32_t m = active; m != 0; m &= m - 1) {
    const auto lane = static_cast<uint32_t>(__builtin_ctz(m));
    const bool is_local = space == Space::kLocal || IsLocal(warp, pointers[lane]);
    for (uint32_t offset = 0; offset < bytes; offset += piece) {
      std::byte* const target = pointers[lane] + offset;
      const std::byte* const value = rows.pointers[lane] + offset;
      if (weak_ != nullptr && !is_local) {
        weak_->Store(warp, lane, target, piece, value);
      } else if (StoreDirectly(target, value, piece)) {
        if (is_local) {
          ++warp.local_changes;
        } else if (launch_.reads.Contains(target, piece)) {
          launch_.changes.fetch_add(1, std::memory_order_relaxed);
        }
      }
    }
  }
  return true;
}

bool Machine::AtomicObserved(Warp& warp, Frame& frame, const Instruction& in, uint32_t active) {
  const MemoryAccess& memory = in.fn.atomic->memory;
  const uint32_t bytes = memory.access_bytes();
  alignas(kLaneArrayAlignment) uint64_t addresses[kWarpLanes];
  (memory.address_is_32bit ? lanes_.add_offset32 : lanes_.add_offset64)(addresses, At(frame, in.a),
                                                                        memory.offset);
  const Space space = SettleSpace(memory.space, addresses, active);
  std::byte* pointers[kWarpLanes];
  if (!Resolve(warp, space, addresses, active, bytes, true, pointers)) return false;
  const auto first = static_cast<uint32_t>(__builtin_ctz(active));
  const bool is_used = ResultIsUsed(*frame.function, in);
  Tell(warp, frame, in, active, AccessKind::kAtomic, memory, space, pointers, nullptr);
  if (is_used) {
    NoteSpin(warp, frame, in, pointers[first], 1u << memory.element_shift);
    for (uint32_t m = active; m != 0; m &= m - 1)
      launch_.reads.Add(pointers[__builtin_ctz(m)], bytes);
  }
  if (weak_ != nullptr) {
    if (memory.release) weak_->Release(warp, active, memory.block_scope);
    for (uint32_t m = active; m != 0; m &= m - 1) {
      const auto lane = static_cast<uint32_t>(__builtin_ctz(m));
      if (!IsLocal(warp, pointers[lane])) weak_->BeginAtomic(warp, lane, pointers[lane], bytes);
    }
    if (!Atomic(warp, frame, in, active)) return false;
    if (!is_used) ForgetResult(frame, in);
    weak_->EndAtomics(warp);
    TellAfterAtomic(warp, frame, in, active, space, pointers);
    if (memory.acquire) weak_->Acquire(warp, active);
    return true;
  }
  Rows before;
  const auto copy = bytes < Rows::kRowBytes ? bytes : Rows::kRowBytes;
  for (uint32_t m = active; m != 0; m &= m - 1) {
    const auto lane = static_cast<uint32_t>(__builtin_ctz(m));
    std::memcpy(before.pointers[lane], pointers[lane], copy);
  }
  if (!Atomic(warp, frame, in, active)) return false;
  TellAfterAtomic(warp, frame, in, active, space, pointers);
  if (!is_used) ForgetResult(frame, in);
  for (uint32_t m = active; m != 0; m &= m - 1) {
    const auto lane = static_cast<uint32_t>(__builtin_ctz(m));
    if (std::memcmp(before.pointers[lane], pointers[lane], copy) == 0) continue;
    if (!launch_.reads.Contains(pointers[lane], bytes)) continue;
    launch_.changes.fetch_add(1, std::memory_order_relaxed);
    break;
  }
  return true;
}

}  // namespace ops_debug::emulator
