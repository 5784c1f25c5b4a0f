// Flags, fences and barriers: how threads come to know of each other. See race_sync.h.
#include "emulator/checks/race_sync.h"

#include <algorithm>
#include <utility>

#include "emulator/checks/race_check.h"
#include "emulator/machine.h"

namespace ops_debug::emulator {
namespace {

// Enough to explain most faults; nothing depends on them.
constexpr size_t kKeptWriters = 16;
constexpr uint32_t kDistances = kScopes;

size_t Number(MemoryScope scope) { return static_cast<size_t>(scope); }

void Note(SyncWriters& writers, const SyncWriter& writer) {
  auto changed = std::make_shared<std::vector<SyncWriter>>();
  if (writers != nullptr) *changed = *writers;
  std::erase_if(*changed, [&](const SyncWriter& known) {
    return known.actor == writer.actor && known.lane == writer.lane;
  });
  if (changed->size() >= kKeptWriters) changed->erase(changed->begin());
  changed->push_back(writer);
  writers = std::move(changed);
}

void Remember(SyncWriters (&flags)[kKeptFlags], const SyncWriters& writers) {
  if (writers == nullptr) return;
  size_t at = 0;
  while (at + 1 < kKeptFlags && flags[at] != writers) ++at;
  for (; at > 0; --at) flags[at] = flags[at - 1];
  flags[0] = writers;
}

}  // namespace

// ---- fences

Knowledge RaceCheck::ReleasedBy(const Thread& thread, uint32_t scope, ActorId actor,
                                uint32_t lane) const {
  const ThreadSync& sync = *thread.sync;
  Knowledge knowledge = sync.passed[scope];
  if (sync.released[scope].any) {
    knowledge.Join(sync.released[scope].known);
    knowledge.all.Add(actor, lane, sync.released[scope].clock);
  }
  return knowledge;
}

void RaceCheck::Fence(Warp& warp, uint32_t lanes, const FenceUse& fence) {
  if (fence.proxy == FenceProxy::kAsync) {
    // What is known now becomes visible to the async proxy.
    for (uint32_t m = lanes; m != 0; m &= m - 1) {
      const auto lane = static_cast<uint32_t>(__builtin_ctz(m));
      Thread& thread = ThreadOf(warp, lane);
      thread.known.fenced = thread.known.all;
      thread.known.fenced.Add(ActorOf(warp), lane, thread.clock++);
    }
    return;
  }
  if (fence.proxy == FenceProxy::kOther) return;
  for (uint32_t m = lanes; m != 0; m &= m - 1) {
    Thread& thread = ThreadOf(warp, static_cast<uint32_t>(__builtin_ctz(m)));
    ThreadSync& sync = thread.EnsureSync();
    if (fence.order != FenceOrder::kRelease) {
      sync.acquires = true;
      for (uint32_t distance = 0; distance < kDistances; ++distance) {
        if (distance <= Number(fence.scope)) {
          thread.known.Join(sync.seen[distance]);
        } else {
          sync.narrow.Join(sync.seen[distance].all);
        }
      }
    }
    if (fence.order != FenceOrder::kAcquire)
      sync.released[Number(fence.scope)] = {true, thread.clock++, thread.known};
  }
}

// ---- flags

void RaceCheck::ReadFlag(const Target& target, uint32_t bytes, const AccessOrder& order,
                         const Warp& warp, uint32_t lane) {
  Thread& thread = ThreadOf(warp, lane);
  const SyncCell* previous = nullptr;
  for (uint64_t at = target.address / kCellBytes * kCellBytes; at < target.address + bytes;
       at += kCellBytes) {
    const auto found = target.sync_cells->find(at);
    if (found == target.sync_cells->end()) continue;
    const SyncCell& cell = found->second;
    // The words of one wide flag say the same.
    const bool is_repeated =
        previous != nullptr && previous->messages.size() == cell.messages.size() &&
        (cell.messages.empty() ||
         previous->messages.back().known.all.SameAs(cell.messages.back().known.all));
    previous = &cell;
    if (is_repeated) continue;
    for (const SyncMessage& message : cell.messages) {
      const MemoryScope distance = Distance(warp, message.actor);
      ThreadSync& sync = thread.EnsureSync();
      if (distance > message.scope || distance > message.write_scope || distance > order.scope) {
        sync.narrow.Join(message.known.all);
      } else if (order.acquire) {
        sync.acquires = true;
        thread.known.Join(message.known);
      } else if (!sync.latest_seen.SameAs(message.known.all)) {
        sync.seen[Number(distance)].Join(message.known);
        sync.latest_seen = message.known.all;
      }
    }
    if (order.acquire) thread.EnsureSync().acquires = true;
    Remember(thread.EnsureSync().writers, cell.writers);
  }
}

void RaceCheck::Leave(SyncCell& cell, SyncMessage message) {
  const bool of_device =
      message.scope >= MemoryScope::kDevice && message.write_scope >= MemoryScope::kDevice;
  for (SyncMessage& known : cell.messages) {
    if (known.scope != message.scope || known.write_scope != message.write_scope) continue;
    const bool same_block = (known.actor - first_actor_) / warps_per_block_ ==
                            (message.actor - first_actor_) / warps_per_block_;
    if (!of_device && !same_block) continue;
    message.known.Join(known.known);
    known = std::move(message);
    return;
  }
  cell.messages.push_back(std::move(message));
}

void RaceCheck::WriteFlag(const Target& target, uint32_t bytes, const AccessOrder& order,
                          bool is_update, const Warp& warp, uint32_t lane) {
  Thread& thread = ThreadOf(warp, lane);
  const ActorId actor = ActorOf(warp);
  const SyncWriter writer{actor, lane, thread.clock, thread.known.all};
  std::vector<SyncMessage> messages;
  if (order.release) {
    messages.push_back({order.scope, order.scope, actor, lane, Release(warp, lane)});
  }
  for (uint32_t scope = 0; thread.sync != nullptr && scope < kScopes; ++scope) {
    if (!thread.sync->released[scope].any && thread.sync->passed[scope].empty()) continue;
    messages.push_back({static_cast<MemoryScope>(scope), order.scope, actor, lane,
                        ReleasedBy(thread, scope, actor, lane)});
  }
  for (uint64_t at = target.address / kCellBytes * kCellBytes; at < target.address + bytes;
       at += kCellBytes) {
    SyncCell& cell = (*target.sync_cells)[at];
    if (!is_update) {
      // A later store of the same thread continues what it has released here before.
      std::erase_if(cell.messages, [&](const SyncMessage& message) {
        return message.actor != actor || message.lane != lane;
      });
      cell.writers.reset();
    }
    for (const SyncMessage& message : messages) Leave(cell, message);
    Note(cell.writers, writer);
  }
}

// ---- barriers

void RaceCheck::Join(Gathering& into, const Gathering& other) {
  into.any = into.any || other.any;
  into.known.Join(other.known);
  if (!other.has_sync) return;
  into.has_sync = true;
  for (uint32_t i = 0; i < kScopes; ++i) {
    into.passed[i].Join(other.passed[i]);
    into.seen[i].Join(other.seen[i]);
  }
  into.acquires = into.acquires || other.acquires;
  into.narrow.Join(other.narrow);
  for (const SyncWriters& writers : other.writers) Remember(into.writers, writers);
}

void RaceCheck::Gather(Gathering& gathering, Warp& warp, uint32_t lanes) {
  const ActorId actor = ActorOf(warp);
  uint32_t clocks[kWarpLanes];
  const Knowledge* previous = nullptr;  // lanes mostly know the same
  gathering.any = true;
  for (uint32_t m = lanes; m != 0; m &= m - 1) {
    const auto lane = static_cast<uint32_t>(__builtin_ctz(m));
    Thread& thread = ThreadOf(warp, lane);
    if (previous == nullptr || !previous->SameAs(thread.known)) gathering.known.Join(thread.known);
    previous = &thread.known;
    clocks[lane] = thread.clock++;
    if (thread.sync == nullptr) continue;
    gathering.has_sync = true;
    for (uint32_t i = 0; i < kScopes; ++i) {
      if (thread.sync->released[i].any || !thread.sync->passed[i].empty())
        gathering.passed[i].Join(ReleasedBy(thread, i, actor, lane));
      gathering.seen[i].Join(thread.sync->seen[i]);
    }
    gathering.acquires = gathering.acquires || thread.sync->acquires;
    gathering.narrow.Join(thread.sync->narrow);
    for (const SyncWriters& writers : thread.sync->writers)
      if (writers != nullptr && writers != gathering.writers[0])
        Remember(gathering.writers, writers);
  }
  gathering.known.all.Add(actor, lanes, clocks);
}

void RaceCheck::Scatter(const Gathering& gathering, Warp& warp, uint32_t lanes) {
  for (uint32_t m = lanes; m != 0; m &= m - 1) {
    Thread& thread = ThreadOf(warp, static_cast<uint32_t>(__builtin_ctz(m)));
    // It has been gathered, so this is all that the thread knows, and more.
    thread.known = gathering.known;
    if (!gathering.has_sync) continue;
    ThreadSync& sync = thread.EnsureSync();
    for (uint32_t i = 0; i < kScopes; ++i) {
      sync.passed[i] = gathering.passed[i];
      sync.seen[i] = gathering.seen[i];
      sync.released[i].any = false;
    }
    sync.acquires = gathering.acquires;
    sync.narrow = gathering.narrow;
    std::copy(std::begin(gathering.writers), std::end(gathering.writers), sync.writers);
  }
}

}  // namespace ops_debug::emulator
