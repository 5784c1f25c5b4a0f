// The walk over instructions, where bytes lie, origins and reports; init_registers.cc and
// init_access.cc hold the rules.
#include "emulator/checks/init_check.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "emulator/checks/checks.h"
#include "emulator/machine.h"

namespace ops_debug::emulator {
namespace {

// proto AddressSpace
constexpr uint32_t kGlobalSpace = 1, kSharedSpace = 2, kLocalSpace = 3;

const DeviceOperation& NoOperation() {
  static const DeviceOperation kNone;
  return kNone;
}

// Operations that do something which a wrong guard would make visible.
bool HasEffect(Op op) {
  switch (op) {
    case Op::kStore:
    case Op::kAtomic:
    case Op::kCopyAsync:
    case Op::kCall:
    case Op::kCallIndirect:
    case Op::kReturn:
    case Op::kExit:
    case Op::kTrap:
    case Op::kBarrier:
    case Op::kWarpSync:
    case Op::kShuffle:
    case Op::kVote:
    case Op::kMatch:
    case Op::kReduce:
    case Op::kElect:
    case Op::kExtended:
      return true;
    default:
      return false;
  }
}

}  // namespace

ReadOrigin ReadOrigins::Add(AccessReport read) {
  if (reads_.size() >= kLimit) return 0;
  reads_.push_back(std::move(read));
  return static_cast<ReadOrigin>(reads_.size() - 1);
}

InitCheck::InitCheck(Checks& checks, InitMemory& memory, Launch& launch,
                     std::shared_ptr<const DeviceOperation> operation)
    : checks_(checks), memory_(memory), launch_(launch), operation_(std::move(operation)) {
  ++memory_.running_launches;
}
InitCheck::~InitCheck() = default;

// ---- blocks, frames

InitCheck::BlockBytes& InitCheck::Of(const Block& block) {
  if (last_block_ == &block) return *last_bytes_;
  std::unique_ptr<BlockBytes>& bytes = blocks_[&block];
  if (bytes == nullptr) {
    bytes = std::make_unique<BlockBytes>(block.shared.size_bytes(), block.local.size_bytes());
    // What is not told of (gaps, the system's part) counts as defined.
    bytes->shared.SetDefined(0, bytes->shared.size(), true);
  }
  last_block_ = &block;
  last_bytes_ = bytes.get();
  return *bytes;
}

void InitCheck::StartBlock(Block& block) {
  BlockBytes& bytes = Of(block);
  bytes.shared.SetDefined(0, std::min<size_t>(launch_.total_shared_bytes, bytes.shared.size()),
                          false);
  for (const auto& warp : block.warps) {
    if (warp->split_count == 0) continue;
    Frame& frame = *warp->splits[0].frame;
    Registers(frame).Reset();
    StartLocal(*warp, frame, warp->exists);
  }
}

RegisterDefinedness& InitCheck::Registers(Frame& frame) {
  if (frame.definedness == nullptr)
    frame.definedness = std::make_shared<RegisterDefinedness>(frame.function->frame_bytes);
  return *frame.definedness;
}

uint8_t InitCheck::ShiftOf(const Frame& frame, Ref ref) const {
  const std::vector<uint8_t>& shifts = frame.function->register_shifts;
  const size_t index = ref / kLaneArrayAlignment;
  return index < shifts.size() ? shifts[index] : 2;
}

namespace {

// Offset in local memory behind the variables of `frame`.
uint64_t EndOfVariables(const Frame& frame) {
  const uint32_t bytes = frame.function->local_bytes;
  const bool has_gap = !frame.function->is_entry && bytes >= kFrameGapBytes;
  return frame.local_base + bytes - (has_gap ? kFrameGapBytes : 0);
}

}  // namespace

void InitCheck::StartStack(const Warp& warp, uint32_t lane, uint64_t address, uint64_t bytes) {
  if (bytes > launch_.local_limit_bytes || address > launch_.local_limit_bytes - bytes) return;
  Of(*warp.block).local.SetDefined(RowOf(warp, lane) + address, bytes, false);
}

uint64_t InitCheck::RowOf(const Warp& warp, uint32_t lane) const {
  return (uint64_t{warp.index} * kWarpLanes + lane) * launch_.local_stride_bytes;
}

// Local memory of a function begins undefined.
void InitCheck::StartLocal(Warp& warp, const Frame& frame, uint32_t lanes) {
  if (frame.function->local_bytes == 0) return;
  LocalBytes& local = Of(*warp.block).local;
  ForLanes(lanes, [&](uint32_t lane) {
    local.SetDefined(RowOf(warp, lane) + frame.local_base, frame.function->local_bytes, false);
  });
}

// ---- where bytes lie

// Local memory counts where a function that runs has its variables, and where alloca has given
// some: what lies beyond is out of bounds, not uninitialised.
InitCheck::Bytes InitCheck::Find(const Place& place, Space space, uint64_t address, uint32_t lane,
                                 uint32_t bytes) {
  const Bytes nowhere;
  const Warp& warp = place.warp;
  if ((address & (bytes - 1)) != 0) return nowhere;
  if (space == Space::kGeneric) {
    if (address - kSharedWindow >= kWindowsEnd - kSharedWindow) {
      space = Space::kGlobal;
    } else if (IsSharedGeneric(address)) {
      space = Space::kSharedCluster;
      address -= kSharedWindow;
    } else if (InWindow(address, kLocalWindow)) {
      space = Space::kLocal;
      address &= kWindowMask;
    } else {
      return nowhere;
    }
  }
  const auto within = [&](uint64_t limit) { return bytes <= limit && address <= limit - bytes; };
  switch (space) {
    case Space::kShared:
    case Space::kSharedCluster: {
      Block* block = warp.block;
      if (!within(launch_.shared_limit_bytes)) {
        uint64_t offset = 0;
        block = Machine::SharedBlock(warp, space, address, &offset);
        address = offset;
        if (block == nullptr || !within(launch_.shared_limit_bytes)) return nowhere;
      }
      return {&Of(*block).shared, address, address, kSharedSpace};
    }
    case Space::kLocal: {
      const uint64_t limit = launch_.local_limit_bytes;
      const bool is_dynamic = address >= limit - warp.stack_bytes[lane];
      if (!within(is_dynamic ? limit : EndOfVariables(place.frame))) return nowhere;
      return {&Of(*warp.block).local, RowOf(warp, lane) + address, address, kLocalSpace};
    }
    case Space::kParameter:
      return nowhere;
    default:
      return {nullptr, address, address, kGlobalSpace};
  }
}

InitCheck::Bytes InitCheck::FindPointer(const Block& block, const std::byte* pointer) {
  for (Block* const other : block.cluster->blocks) {
    const auto offset = static_cast<size_t>(pointer - other->shared.data());
    if (offset < other->shared.size_bytes())
      return {&Of(*other).shared, offset, offset, kSharedSpace};
  }
  const auto address = reinterpret_cast<uint64_t>(pointer);
  return {nullptr, address, address, kGlobalSpace};
}

bool InitCheck::Load(const Bytes& from, uint32_t bytes, uint8_t* undefined) const {
  if (from.local != nullptr) return from.local->Load(from.at, bytes, undefined);
  if (from.at % kDefinednessPageBytes + bytes > kDefinednessPageBytes)
    return memory_.LoadRange(from.at, bytes, undefined);
  return memory_.Load(from.at, bytes, undefined);
}

void InitCheck::Store(const Bytes& to, uint32_t bytes, const uint8_t* undefined,
                      ReadOrigin origin) {
  if (to.local != nullptr) return to.local->Store(to.at, bytes, undefined, origin);
  memory_.Store(to.at, bytes, undefined, origin);
}

ReadOrigin InitCheck::OriginAt(const Bytes& from) const {
  return from.local != nullptr ? from.local->OriginAt(from.at) : memory_.OriginAt(from.at);
}

bool InitCheck::LoadBytes(const Place& place, Space space, uint64_t address, uint32_t lane,
                          uint32_t bytes, uint8_t* undefined, ReadOrigin* origins) {
  const Bytes from = Find(place, space, address, lane, bytes);
  if (from.space == 0 || !Load(from, bytes, undefined)) return false;
  if (origins == nullptr) return true;
  ReadOrigin own = 0;
  for (uint32_t i = 0; i < (bytes + 3) / 4; ++i) {
    Bytes word = from;
    word.at += size_t{i} * 4;
    origins[i] = OriginAt(word);
    if (origins[i] != 0) continue;
    if (own == 0) own = NewOrigin(place, from, lane, bytes, undefined, 1);
    origins[i] = own;
  }
  return true;
}

void InitCheck::StoreBytes(const Place& place, Space space, uint64_t address, uint32_t lane,
                           uint32_t bytes, const uint8_t* undefined, ReadOrigin origin) {
  const Bytes to = Find(place, space, address, lane, bytes);
  if (to.space != 0) Store(to, bytes, undefined, origin);
}

// Undefined bits travel with the bytes, without an origin: whoever loads them is the one that reads
// undefined memory.
void InitCheck::AsyncCopy(Warp& warp, uint32_t /*lane*/, const Function* /*function*/,
                          uint32_t /*statement*/, std::byte* to, const std::byte* from,
                          uint64_t bytes) {
  if (to == nullptr || bytes == 0) return;
  const Bytes target = FindPointer(*warp.block, to);
  std::vector<uint8_t> undefined(from != nullptr ? bytes : 0);
  bool any = false;
  if (from != nullptr) {
    const Bytes source = FindPointer(*warp.block, from);
    any = source.local != nullptr ? source.local->Load(source.at, bytes, undefined.data())
                                  : memory_.LoadRange(source.at, bytes, undefined.data());
  }
  if (target.local == nullptr) {
    if (any) return memory_.StoreRange(target.at, bytes, undefined.data());
    return memory_.Define(target.at, bytes);
  }
  target.local->SetDefined(target.at, bytes, false);
  target.local->Store(target.at, bytes, any ? undefined.data() : nullptr, 0);
}

// ---- origins and reports

bool InitCheck::IsTool(const Place& place) {
  return place.frame.function->statements[place.in.statement].is_tool;
}

ReadOrigin InitCheck::NewOrigin(const Place& place, const Bytes& from, uint32_t lane,
                                uint32_t bytes, const uint8_t* undefined, uint32_t access,
                                uint32_t limit) {
  SiteOrigins& known = sites_[{place.frame.function, place.in.statement}];
  if (known.count >= limit) return known.last;
  const DeviceOperation& operation = operation_ != nullptr ? *operation_ : NoOperation();
  AccessReport read = ReportOfThread(launch_, operation, place.warp, lane);
  read.site = checks_.sites().Of(*launch_.program, *place.frame.function, place.in.statement);
  read.access = access;
  read.space = from.space;
  uint32_t first = 0;
  while (first < bytes && undefined[first] == 0) ++first;
  read.address = from.reported + first;
  read.bytes = static_cast<uint32_t>(
      std::count_if(undefined, undefined + bytes, [](uint8_t byte) { return byte != 0; }));
  const ReadOrigin origin = memory_.origins.Add(std::move(read));
  if (origin == 0) {
    checks_.Incomplete(
        "too many reads of uninitialised memory are on their way: later ones are not followed");
    return known.last;
  }
  ++known.count;
  known.last = origin;
  return origin;
}

// Undefined bytes of an access beside defined ones, or single undefined bytes among defined ones:
// padding.
bool InitCheck::LooksCarried(const Bytes& from, uint32_t bytes, const uint8_t* undefined) const {
  constexpr uint64_t kGroupBytes = 8;
  for (uint32_t i = 0; i < bytes; ++i) {
    if (undefined[i] != 0xff) return true;
  }
  if (bytes >= 4) return false;
  const uint64_t group = from.at / kGroupBytes * kGroupBytes;
  for (uint64_t at = group; at < group + kGroupBytes; ++at) {
    const bool is_undefined =
        from.local != nullptr ? from.local->IsUndefined(at) : memory_.IsUndefined(at);
    if (!is_undefined) return true;
  }
  return false;
}

void InitCheck::Use(const Place& place, ReadOrigin origin, const char* use) {
  if (origin == 0 || IsTool(place)) return;
  const AccessReport& read = memory_.origins[origin];
  UninitialisedReport& report = reports_[read.site];
  if (report.read.site != kNoSite) {
    ++report.count;
    return;
  }
  report.read = read;
  report.address = read.address;
  report.bytes = read.bytes;
  report.use = use;
  const SiteId site =
      checks_.sites().Of(*launch_.program, *place.frame.function, place.in.statement);
  if (site != read.site) report.use_site = site;
}

void InitCheck::UseRegister(const Place& place, Ref ref, uint32_t lanes, const char* use) {
  RegisterDefinedness& registers = Registers(place.frame);
  if (!registers.IsUndefined(ref)) return;
  const uint8_t shift = ShiftOf(place.frame, ref);
  uint32_t used = 0;
  ForLanes(lanes, [&](uint32_t lane) {
    if (registers.BitsOf(ref, shift, lane) == 0) return;
    Use(place, registers.OriginOf(ref, lane), use);
    used |= 1u << lane;
  });
  if (!IsTool(place)) registers.Define(ref, shift, used);
}

void InitCheck::UsePredicate(const Place& place, Ref ref, uint32_t lanes, const char* use) {
  RegisterDefinedness& registers = Registers(place.frame);
  const uint32_t used = registers.Predicate(ref) & lanes;
  if (used == 0) return;
  ForLanes(used, [&](uint32_t) { Use(place, registers.PredicateOrigin(ref), use); });
  if (!IsTool(place)) registers.SetPredicate(ref, 0, 0, used);
}

void InitCheck::DefineRegister(Frame& frame, Ref ref, uint32_t lanes) {
  RegisterDefinedness& registers = Registers(frame);
  if (registers.IsUndefined(ref)) registers.Define(ref, ShiftOf(frame, ref), lanes);
}
void InitCheck::DefinePredicate(Frame& frame, Ref ref, uint32_t lanes) {
  if (ref < kNoRef) Registers(frame).SetPredicate(ref, 0, 0, lanes);
}

void InitCheck::EndLaunch() {
  for (auto& [site, report] : reports_) checks_.Add(std::move(report));
  reports_.clear();
  // Nothing undefined is left that came from somewhere.
  if (--memory_.running_launches == 0 && !memory_.KeepsOrigins()) memory_.origins.Clear();
}

// ---- instructions

// What a guarded instruction writes is as undefined as its guard.
void InitCheck::MarkResults(Frame& frame, const Instruction& in, uint32_t lanes,
                            ReadOrigin origin) {
  RegisterDefinedness& registers = Registers(frame);
  const auto mark = [&](Ref ref, uint8_t shift) {
    ForLanes(lanes,
             [&](uint32_t lane) { registers.SetLane(ref, shift, lane, WidthMask(shift), origin); });
  };
  switch (in.op) {
    case Op::kAlu:
    case Op::kSelect:
    case Op::kCarry:
    case Op::kSpecial:
    case Op::kSharedSymbol:
    case Op::kLocalSymbol:
      return mark(in.d, in.width);
    case Op::kCompare:
    case Op::kPredicate:
    case Op::kCompareCombine:
    case Op::kIsSpace:
      registers.SetPredicate(in.d, registers.Predicate(in.d) | lanes, origin, lanes);
      if (in.op == Op::kCompareCombine && in.q != kNoRef)
        registers.SetPredicate(in.q, registers.Predicate(in.q) | lanes, origin, lanes);
      return;
    case Op::kLoad:
    case Op::kLoadParameter:
    case Op::kLoadUniform:
    case Op::kLoadFrame:
      for (uint32_t k = 0; k < in.fn.access->count; ++k)
        mark(in.fn.access->registers[k], in.fn.access->register_shift);
      return;
    default:
      return;
  }
}

void InitCheck::BeforeGuard(Warp& warp, Split& split, const Instruction& in, uint32_t lanes) {
  Frame& frame = *split.frame;
  RegisterDefinedness& registers = Registers(frame);
  undefined_guard_ = registers.Predicate(in.guard) & lanes;
  if (undefined_guard_ == 0) return;
  const bool is_branch = in.op == Op::kBranch || in.op == Op::kBranchTable || in.op == Op::kJump;
  if (is_branch || HasEffect(in.op)) {
    UsePredicate({warp, frame, in}, in.guard, undefined_guard_, is_branch ? "branch" : "predicate");
    undefined_guard_ = 0;
    return;
  }
  guard_origin_ = registers.PredicateOrigin(in.guard);
  MarkResults(frame, in, undefined_guard_, guard_origin_);
}

void InitCheck::BeforeInstruction(Warp& warp, Split& split, const Instruction& in, uint32_t lanes) {
  Frame& frame = *split.frame;
  RegisterDefinedness& registers = Registers(frame);
  const bool is_clean = registers.IsClean();
  const Place place{warp, frame, in};
  switch (in.op) {
    case Op::kAlu:
      if (!is_clean) PassAlu(frame, in, lanes);
      break;
    case Op::kSelect:
      if (!is_clean) PassSelect(frame, in, lanes);
      break;
    case Op::kCompare:
      if (!is_clean) PassCompare(frame, in, lanes);
      break;
    case Op::kPredicate:
    case Op::kCompareCombine:
      if (!is_clean) PassPredicates(frame, in, lanes);
      break;
    case Op::kCarry:
      if (!is_clean) PassCarry(frame, in, lanes);
      break;
    case Op::kIsSpace:
      if (registers.IsUndefined(in.a)) UseRegister(place, in.a, lanes, "address");
      DefinePredicate(frame, in.d, lanes);
      break;
    case Op::kSpecial:
    case Op::kSharedSymbol:
    case Op::kLocalSymbol:
    case Op::kActiveMask:
      if (!is_clean) registers.Define(in.d, in.width, lanes);
      break;
    case Op::kLoadParameter:
    case Op::kLoadUniform:
      for (uint32_t k = 0; k < in.fn.access->count && !is_clean; ++k)
        registers.Define(in.fn.access->registers[k], in.fn.access->register_shift, lanes);
      break;
    case Op::kLoad:
    case Op::kLoadFrame:
      PassLoad(place, lanes);
      break;
    case Op::kStore:
    case Op::kStoreFrame:
      PassStore(place, lanes);
      break;
    case Op::kAtomic:
      PassAtomic(place, lanes);
      break;
    case Op::kCopyAsync:
      UseCopyOperands(place, lanes);
      break;
    case Op::kBranchTable:
      UseRegister(place, in.fn.table->index, lanes, "branch");
      break;
    case Op::kCall:
      PassBuiltin(place, lanes);
      break;
    case Op::kCallIndirect:
      UseRegister(place, in.fn.call->address, lanes, "branch");
      break;
    case Op::kBarrier:
      UseRegister(place, in.fn.barrier->id, lanes, "barrier");
      UseRegister(place, in.fn.barrier->threads, lanes, "barrier");
      UsePredicate(place, in.fn.barrier->predicate, lanes, "barrier");
      break;
    case Op::kWarpSync:
    case Op::kShuffle:
    case Op::kVote:
    case Op::kMatch:
    case Op::kReduce:
    case Op::kElect:
      UseRegister(place, in.fn.warp->members, lanes, "warp mask");
      break;
    case Op::kExtended:
      in.fn.extended->PassDefinedness(*this, warp, split, in, lanes);
      break;
    default:
      break;
  }
  if (in.guard != kNoRef && undefined_guard_ != 0) {
    MarkResults(frame, in, undefined_guard_ & lanes, guard_origin_);
    undefined_guard_ = 0;
  }
}

void InitCheck::CompleteWarpOperation(Warp& warp, Op op, Split* const* splits, uint32_t count,
                                      uint32_t lanes) {
  if (op == Op::kWarpSync) return;
  PassWarpResults(warp, op, splits, count, lanes);
}

}  // namespace ops_debug::emulator
