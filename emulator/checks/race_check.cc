// Threads and their clocks, and what an access means for the cells that it touches. Flags are in
// race_sync.cc, explanations in race_report.cc.
#include "emulator/checks/race_check.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "emulator/checks/checks.h"
#include "emulator/machine.h"

namespace ops_debug::emulator {

RaceCheck::RaceCheck(Checks& checks, Launch& launch,
                     std::shared_ptr<const DeviceOperation> operation)
    : checks_(checks),
      launch_(launch),
      memory_(*checks.race_memory()),
      operation_(std::move(operation)),
      kernel_(
          std::make_shared<std::string>(launch.program->functions[launch.kernel->function]->name)),
      warps_per_block_(launch.warps_per_block),
      actor_count_(launch.block_count * launch.warps_per_block) {
  if (const RaceMemory::LatestInSlot* const latest = memory_.Latest(*operation_);
      latest != nullptr && operation_->is_programmatic && latest->lets_start_early)
    not_before_ = latest->not_before;
  memory_.SetLatest(*operation_, {operation_->serial, true, false, {}});
  first_actor_ = NewActors(false);
}
RaceCheck::~RaceCheck() = default;

ActorId RaceCheck::NewActors(bool of_agents) {
  Origin origin;
  origin.count = static_cast<uint32_t>(std::min<uint64_t>(actor_count_, 1u << 30));
  origin.id = operation_->id;
  origin.token = operation_->token;
  origin.serial = operation_->serial;
  origin.is_launch = true;
  origin.is_agent = of_agents;
  origin.kernel = kernel_;
  origin.grid = launch_.grid;
  origin.cluster = launch_.cluster;
  origin.block = launch_.block;
  origin.warps_per_block = launch_.warps_per_block;
  return memory_.Allocate(std::move(origin));
}

RaceCheck::BlockState& RaceCheck::StateOf(const Block& block) {
  if (&block == last_block_) return *last_state_;
  last_block_ = &block;
  last_state_ = &blocks_[&block];
  return *last_state_;
}

RaceCheck::Thread& RaceCheck::ThreadOf(const Warp& warp, uint32_t lane) {
  return StateOf(*warp.block).threads[warp.index * kWarpLanes + lane];
}

ActorId RaceCheck::ActorOf(const Warp& warp) const {
  return first_actor_ + static_cast<ActorId>(warp.block->number * warps_per_block_ + warp.index);
}

ActorId RaceCheck::AgentActor(const Warp& warp, Agent agent) const {
  return first_agents_[static_cast<size_t>(agent)] + (ActorOf(warp) - first_actor_);
}

void RaceCheck::StartBlock(Block& block) {
  last_block_ = nullptr;
  BlockState& state = blocks_[&block];
  state = BlockState{};
  state.threads.resize(block.warps.size() * kWarpLanes);
}

void RaceCheck::EndBlock(Block& block) {
  last_block_ = nullptr;
  blocks_.erase(&block);
}

bool RaceCheck::KnowsOf(const Warp& warp, uint32_t lane, const Block& block) {
  const Knowledge& known = ThreadOf(warp, lane).known;
  for (const auto& other : block.warps) {
    for (uint32_t i = 0; i < kWarpLanes; ++i) {
      if (known.all.Of(ActorOf(*other), i) != 0) return true;
    }
  }
  return false;
}

void RaceCheck::EndLaunch() {
  // The same pair of places, once with equal values and once with different ones, is a fault.
  for (auto& [key, report] : reports_) {
    if (!report.same_value) continue;
    const auto& [first, second, origin, same] = key;
    const auto other = reports_.find({first, second, origin, false});
    if (other == reports_.end()) continue;
    other->second.count += report.count;
    report.count = 0;
  }
  for (auto& [key, report] : reports_) {
    if (report.count != 0) checks_.Add(std::move(report));
  }
  reports_.clear();
  blocks_.clear();
  last_block_ = nullptr;
}

// ---- what threads know

Knowledge RaceCheck::Release(const Warp& warp, uint32_t lane) {
  Thread& thread = ThreadOf(warp, lane);
  Knowledge knowledge = thread.known;
  knowledge.all.Add(ActorOf(warp), lane, thread.clock++);
  return knowledge;
}

void RaceCheck::Acquire(const Warp& warp, uint32_t lane, const Knowledge& knowledge) {
  ThreadOf(warp, lane).known.Join(knowledge);
}

RaceCheck::AgentWork RaceCheck::StartAgent(const Warp& warp, uint32_t lane, Agent agent) {
  const auto number = static_cast<size_t>(agent);
  if (first_agents_[number] == 0) first_agents_[number] = NewActors(true);
  Thread& thread = ThreadOf(warp, lane);
  if (thread.agent_clocks == nullptr) thread.agent_clocks = std::make_unique<uint32_t[]>(kAgents);
  AgentWork work;
  work.warp = &warp;
  work.lane = lane;
  work.agent = agent;
  work.clock = ++thread.agent_clocks[number];
  work.known = Release(warp, lane);
  return work;
}

Knowledge RaceCheck::Done(const AgentWork& work) const {
  Knowledge done = work.known;
  done.all.Add(AgentActor(*work.warp, work.agent), work.lane, work.clock);
  return done;
}

void RaceCheck::Exit(Warp& warp, uint32_t lanes) {
  // Lanes that have left count as arrived at every later barrier.
  Gather(StateOf(*warp.block).exited, warp, lanes);
}

void RaceCheck::ArriveAtBarrier(const BarrierArrival& arrival) {
  Gather(StateOf(*arrival.warp->block).barriers[arrival.id], *arrival.warp, arrival.lanes);
}

void RaceCheck::CompleteBarrier(Block& block, uint32_t id) {
  BlockState& state = StateOf(block);
  Gathering& gathering = state.barriers[id];
  if (state.exited.any && block.barriers[id].expected_threads == 0) Join(gathering, state.exited);
  for (const auto& warp : block.warps) {
    uint32_t waiting = 0;
    for (uint32_t i = 0; i < warp->split_count; ++i) {
      const Split& split = warp->splits[i];
      if (split.state == Split::State::kBarrier && split.barrier == id) waiting |= split.lanes;
    }
    if (waiting != 0) Scatter(gathering, *warp, waiting);
  }
  gathering = Gathering{};
}

void RaceCheck::CompleteWarpOperation(Warp& warp, Op op, Split* const* splits, uint32_t count,
                                      uint32_t /*lanes*/) {
  // Only bar.warp.sync orders memory; shuffles, votes and the like do not (PTX ISA 9.0, 9.7.13.4).
  if (op != Op::kWarpSync) return;
  uint32_t masks[kWarpLanes] = {};
  uint32_t rest = 0;
  for (uint32_t i = 0; i < count; ++i) {
    const Split& split = *splits[i];
    const WarpOperation& operation = *split.frame->function->code[split.pc].fn.warp;
    if (operation.is_convergence) return;
    rest |= split.lanes;
    for (uint32_t m = split.lanes; m != 0; m &= m - 1) {
      const auto lane = static_cast<uint32_t>(__builtin_ctz(m));
      masks[lane] = operation.members == kNoRef ? split.lanes
                                                : reinterpret_cast<const uint32_t*>(Machine::At(
                                                      *split.frame, operation.members))[lane];
    }
  }
  // Lanes that name different masks perform different barriers, even in one step.
  while (rest != 0) {
    const uint32_t mask = masks[__builtin_ctz(rest)];
    uint32_t group = 0;
    for (uint32_t m = rest; m != 0; m &= m - 1) {
      const auto lane = static_cast<uint32_t>(__builtin_ctz(m));
      if (masks[lane] == mask) group |= 1u << lane;
    }
    rest &= ~group;
    if ((group & (group - 1)) == 0) continue;
    Gathering gathering;
    Gather(gathering, warp, group);
    Scatter(gathering, warp, group);
  }
}

void RaceCheck::WaitForGrid(Warp& warp, uint32_t lanes) {
  for (uint32_t m = lanes; m != 0; m &= m - 1)
    ThreadOf(warp, static_cast<uint32_t>(__builtin_ctz(m))).has_waited = true;
}

void RaceCheck::LaunchDependents(Warp& warp, uint32_t lanes) {
  RaceMemory::LatestInSlot* const latest = memory_.Latest(*operation_);
  if (latest == nullptr || latest->serial != operation_->serial) return;
  if (!latest->lets_start_early) {
    latest->lets_start_early = true;
    latest->not_before = {operation_->serial};
  }
  if (not_before_.empty()) return;
  // It has not waited for its own predecessor yet, so that may run beside the dependents as well.
  for (uint32_t m = lanes; m != 0; m &= m - 1) {
    if (ThreadOf(warp, static_cast<uint32_t>(__builtin_ctz(m))).has_waited) continue;
    for (const uint64_t serial : not_before_) {
      if (std::find(latest->not_before.begin(), latest->not_before.end(), serial) ==
          latest->not_before.end())
        latest->not_before.push_back(serial);
    }
    return;
  }
}

// ---- accesses

bool RaceCheck::Find(const WarpAccess& access, const std::byte* pointer, Target* target) {
  Block& own = *access.warp->block;
  const auto offset = static_cast<size_t>(pointer - own.shared.data());
  MemoryPlace place;
  if (offset < own.shared.size_bytes()) {
    place = {MemoryPlace::Kind::kShared, &own, offset};
  } else if (access.space == Space::kGlobal) {
    place.address = reinterpret_cast<uint64_t>(pointer);
  } else {
    place = PlaceOf(*access.warp, pointer);
  }
  target->address = place.address;
  if (place.kind == MemoryPlace::Kind::kShared) {
    BlockState& state = blocks_[place.block];
    target->cells = &state.cells;
    target->sync_cells = &state.sync_cells;
    target->is_shared = true;
    return true;
  }
  if (place.kind != MemoryPlace::Kind::kGlobal || checks_.IsHidden(place.address)) return false;
  target->cells = &memory_.cells();
  target->sync_cells = &memory_.sync_cells();
  target->is_shared = false;
  return true;
}

DescriptorId RaceCheck::Describe(const WarpAccess& access, bool is_shared, bool by_agent) {
  AccessDescription description;
  description.site = access.function == nullptr
                         ? kNoSite
                         : checks_.sites().Of(*launch_.program, *access.function, access.statement);
  description.kind = access.kind;
  description.order = access.order;
  description.semantics = access.semantics;
  description.bytes = access.bytes;
  description.is_shared = is_shared;
  description.by_agent = by_agent;
  return memory_.Describe(description);
}

// Whether a plain store leaves the bytes as the last plain store left them.
bool RaceCheck::IsSilent(const Cell& cell, const WarpAccess& access, uint32_t lane,
                         const Target& target, uint64_t cell_begin, const Record& now) {
  if (access.kind != AccessKind::kStore || access.values == nullptr || access.order.strong)
    return false;
  if (!cell.IsWritten(now.mask())) return false;
  for (uint32_t i = 0; i < kCellBytes; ++i) {
    if (((now.mask() >> i) & 1) == 0) continue;
    if (cell.value[i] != access.values[lane][cell_begin + i - target.address]) return false;
  }
  return true;
}

// The thread's own volatile read of the same bytes, with no release or barrier since.
bool RaceCheck::HasJustRead(const Cell& cell, const Record& now) {
  if (cell.more == nullptr) return false;
  for (const Record& read : cell.more->strong_reads.records()) {
    if (read.actor == now.actor && read.clock == now.clock && (read.lanes & now.lanes) != 0 &&
        (read.mask() & now.mask()) != 0)
      return true;
  }
  return false;
}

void RaceCheck::Touch(const Target& target, const WarpAccess& access, uint32_t lane, Record now,
                      Judge& judge) {
  const bool is_write = access.kind != AccessKind::kLoad;
  const DescriptorId descriptor = now.what;
  judge.is_shared = target.is_shared;
  judge.latest = nullptr;
  judge.access_address = target.address;
  judge.lane = lane;
  const uint64_t end = target.address + access.bytes;
  for (uint64_t at = target.address; at < end; at = (at / kCellBytes + 1) * kCellBytes) {
    CellPages::Page& page = target.cells->At(at);
    const uint64_t begin = at % kCellBytes;
    const uint64_t length = std::min<uint64_t>(kCellBytes - begin, end - at);
    now.what = descriptor << Record::kShift | ((1u << length) - 1) << begin;
    if (page.cells == nullptr && !target.is_shared && !memory_.HasRoom()) return;
    Cell& cell = target.cells->CellAt(page, at);
    if (is_write && IsSilent(cell, access, lane, target, at - begin, now))
      now.what |= Record::kSilent;
    if (access.kind == AccessKind::kStore && access.order.is_volatile && HasJustRead(cell, now))
      now.what |= Record::kUpdate;
    judge.now = now;
    judge.cell = &cell;
    judge.page = &page;
    judge.address = at;
    if (page.bulk_write.mask() != 0 && !judge.IsBefore(page.bulk_write))
      judge.Race(page.bulk_write, true);
    if (is_write) {
      for (const Record& read : page.bulk_reads) {
        if (!judge.IsBefore(read)) judge.Race(read, false);
      }
    }
    TouchCell(cell, now, is_write, access.order.strong, judge);
    if (access.kind != AccessKind::kStore || access.values == nullptr) continue;
    for (uint64_t i = begin; i < begin + length; ++i)
      cell.value[i] = access.values[lane][at - begin + i - target.address];
  }
}

void RaceCheck::Access(const WarpAccess& access) {
  if (access.space == Space::kLocal || access.space == Space::kParameter) return;
  Warp& warp = *access.warp;
  const ActorId actor = ActorOf(warp);
  DescriptorId descriptors[2] = {};
  Judge judge{*this, warp};
  judge.access = &access;
  const bool is_write = access.kind != AccessKind::kLoad;
  const bool compares = access.kind == AccessKind::kAtomic && access.in != nullptr &&
                        access.in->op == Op::kAtomic &&
                        access.in->fn.atomic->operation == AtomicOp::kCompareSwap;
  for (uint32_t m = access.lanes; m != 0; m &= m - 1) {
    const auto lane = static_cast<uint32_t>(__builtin_ctz(m));
    Target target;
    if (!Find(access, access.pointers[lane], &target)) continue;
    DescriptorId& descriptor = descriptors[target.is_shared ? 1 : 0];
    if (descriptor == 0) descriptor = Describe(access, target.is_shared, false);
    Thread& thread = ThreadOf(warp, lane);
    judge.known = &thread.known;
    judge.row = nullptr;
    judge.row_actor = 0;
    judge.has_waited = thread.has_waited;
    judge.description = &memory_[descriptor];
    Touch(target, access, lane, {actor, 1u << lane, thread.clock, descriptor}, judge);
    if (!access.order.strong || access.semantics != nullptr) continue;
    if (access.kind == AccessKind::kAtomic)
      CheckFloatOrder(access, target, lane, actor, descriptor);
    if (access.kind != AccessKind::kStore) ReadFlag(target, access.bytes, access.order, warp, lane);
    if (is_write && !compares)
      WriteFlag(target, access.bytes, access.order, access.kind == AccessKind::kAtomic, warp, lane);
  }
  if (!compares) return;
  // Whether a compare-and-swap writes shows afterwards; its operands may be gone then.
  for (uint32_t m = access.lanes; m != 0; m &= m - 1) {
    const auto lane = static_cast<uint32_t>(__builtin_ctz(m));
    std::memcpy(compared_[lane],
                Machine::At(*access.frame, access.in->fn.atomic->operand[0]) +
                    (size_t{lane} << access.in->fn.atomic->memory.element_shift),
                size_t{1} << access.in->fn.atomic->memory.element_shift);
  }
}

void RaceCheck::AfterAtomic(const WarpAccess& access) {
  if (access.in->fn.atomic->operation != AtomicOp::kCompareSwap) return;
  const MemoryAccess& memory = access.in->fn.atomic->memory;
  for (uint32_t m = access.lanes; m != 0; m &= m - 1) {
    const auto lane = static_cast<uint32_t>(__builtin_ctz(m));
    Target target;
    if (!Find(access, access.pointers[lane], &target)) continue;
    if (memory.registers[0] != kNoRef) {
      const size_t bytes = size_t{1} << memory.element_shift;
      const std::byte* const old =
          Machine::At(*access.frame, memory.registers[0]) + (size_t{lane} << memory.register_shift);
      if (std::memcmp(old, compared_[lane], bytes) != 0) continue;
    }
    WriteFlag(target, access.bytes, access.order, true, *access.warp, lane);
  }
}

void RaceCheck::AccessBy(const AgentWork& work, const WarpAccess& access) {
  if (access.bytes == 0) return;
  Target target;
  if (!Find(access, access.pointers[work.lane], &target)) return;
  const DescriptorId descriptor = Describe(access, target.is_shared, true);
  Judge judge{*this, *work.warp};
  judge.access = &access;
  judge.known = &work.known;
  judge.description = &memory_[descriptor];
  judge.by_agent = true;
  judge.by_proxy = work.agent >= Agent::kAsyncProxy;
  judge.has_waited = ThreadOf(*work.warp, work.lane).has_waited;
  Touch(target, access, work.lane,
        {AgentActor(*work.warp, work.agent), 1u << work.lane, work.clock, descriptor}, judge);
}

// ---- order

MemoryScope RaceCheck::Distance(const Warp& warp, ActorId other) const {
  const uint32_t index = other - first_actor_;
  if (index >= actor_count_) return MemoryScope::kDevice;
  const uint64_t number = index / warps_per_block_;
  if (number == warp.block->number) return MemoryScope::kBlock;
  const bool same_cluster =
      number / launch_.cluster_blocks == warp.block->number / launch_.cluster_blocks;
  return same_cluster ? MemoryScope::kCluster : MemoryScope::kDevice;
}

bool RaceCheck::Judge::IsBefore(const Record& record) {
  if (record.mask() == 0) return true;
  proxy_only = false;
  uint32_t lanes = record.lanes;
  if (record.actor == now.actor && !by_agent) {
    lanes &= ~(1u << lane);
    if (lanes == 0) return true;
  }
  if (record.actor != row_actor) {
    row_actor = record.actor;
    row = known->all.Row(record.actor);
  }
  bool is_known = row != nullptr;
  for (uint32_t m = lanes; is_known && m != 0; m &= m - 1)
    is_known = row[__builtin_ctz(m)] >= record.clock;
  if (record.actor - check.first_actor_ < check.actor_count_) {
    if (!by_proxy || !is_known || !check.memory_[record.descriptor()].Writes()) return is_known;
    proxy_only = !known->fenced.Covers(record.actor, lanes, record.clock);
    return !proxy_only;
  }
  if (is_known) return true;
  const Origin& origin = check.memory_.OriginOf(record.actor);
  if (!RaceMemory::ComesBefore(origin, *check.operation_)) return false;
  return has_waited || std::find(check.not_before_.begin(), check.not_before_.end(),
                                 origin.serial) == check.not_before_.end();
}

// `s[t] += s[t + 16]` of a warp that is thought to run in lock step, with volatile instead of
// __syncwarp(). The accesses are strong, so the model calls it no data race, but what a lane reads
// is chance. Flags look different: a fence stands between reading and writing one.
bool RaceCheck::Judge::IsLockStep(const Record& record) const {
  if (record.actor != now.actor || by_agent || !is_shared) return false;
  const AccessDescription& first = check.memory_[record.descriptor()];
  if (!first.order.is_volatile || !description->order.is_volatile) return false;
  if (first.kind == AccessKind::kLoad)
    return description->kind == AccessKind::kStore && now.is_update();
  return first.kind == AccessKind::kStore && record.is_update() &&
         description->kind == AccessKind::kLoad;
}

bool RaceCheck::Judge::AreStrongTogether(const Record& record) const {
  if (IsLockStep(record)) return false;
  const MemoryScope distance = is_shared && check.launch_.cluster_blocks == 1
                                   ? MemoryScope::kBlock
                                   : check.Distance(warp, record.actor);
  return distance <= description->order.scope &&
         distance <= check.memory_[record.descriptor()].order.scope;
}

}  // namespace ops_debug::emulator
