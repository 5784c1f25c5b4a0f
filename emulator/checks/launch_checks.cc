// Passes the machine's hooks on to the observers, one after the other, with the lock held.
#include "emulator/checks/launch_checks.h"

#include <mutex>
#include <utility>

#include "emulator/checks/checks.h"
#include "emulator/machine.h"

namespace ops_debug::emulator {

MemoryPlace PlaceOf(const Warp& warp, const std::byte* pointer) {
  MemoryPlace place;
  place.address = reinterpret_cast<uint64_t>(pointer);
  for (Block* const block : warp.block->cluster->blocks) {
    const auto offset = static_cast<size_t>(pointer - block->shared.data());
    if (offset < block->shared.size_bytes()) return {MemoryPlace::Kind::kShared, block, offset};
  }
  const LaneBuffer& local = warp.block->local;
  if (static_cast<size_t>(pointer - local.data()) < local.size_bytes()) {
    place.kind = MemoryPlace::Kind::kLocal;
    return place;
  }
  const std::vector<std::byte>& parameters = warp.block->launch->parameters;
  if (static_cast<size_t>(pointer - parameters.data()) < parameters.size())
    place.kind = MemoryPlace::Kind::kParameter;
  return place;
}

void LaunchChecks::Add(std::unique_ptr<LaunchObserver> observer) {
  wants_instructions_ = wants_instructions_ || observer->WantsInstructions();
  observers_.push_back(std::move(observer));
}

std::mutex& LaunchChecks::mutex() const { return checks_.mutex(); }

template <class F>
void LaunchChecks::ForEach(F function) {
  const std::lock_guard lock(checks_.mutex());
  for (const auto& observer : observers_) function(*observer);
}

void LaunchChecks::StartBlock(Block& block) {
  ForEach([&](LaunchObserver& observer) { observer.StartBlock(block); });
}
void LaunchChecks::EndBlock(Block& block) {
  ForEach([&](LaunchObserver& observer) { observer.EndBlock(block); });
}
void LaunchChecks::Exit(Warp& warp, uint32_t lanes) {
  ForEach([&](LaunchObserver& observer) { observer.Exit(warp, lanes); });
}
void LaunchChecks::BeforeInstruction(Warp& warp, Split& split, const Instruction& in,
                                     uint32_t lanes) {
  ForEach([&](LaunchObserver& observer) { observer.BeforeInstruction(warp, split, in, lanes); });
}
void LaunchChecks::BeforeGuard(Warp& warp, Split& split, const Instruction& in, uint32_t lanes) {
  ForEach([&](LaunchObserver& observer) { observer.BeforeGuard(warp, split, in, lanes); });
}
void LaunchChecks::Call(Warp& warp, Frame& caller, Frame& callee, uint32_t lanes) {
  ForEach([&](LaunchObserver& observer) { observer.Call(warp, caller, callee, lanes); });
}
void LaunchChecks::Return(Warp& warp, Frame& callee, uint32_t lanes) {
  ForEach([&](LaunchObserver& observer) { observer.Return(warp, callee, lanes); });
}
void LaunchChecks::Access(const WarpAccess& access) {
  ForEach([&](LaunchObserver& observer) { observer.Access(access); });
}
void LaunchChecks::AfterAtomic(const WarpAccess& access) {
  ForEach([&](LaunchObserver& observer) { observer.AfterAtomic(access); });
}
void LaunchChecks::Fence(Warp& warp, uint32_t lanes, const FenceUse& fence) {
  ForEach([&](LaunchObserver& observer) { observer.Fence(warp, lanes, fence); });
}
void LaunchChecks::AsyncCopy(Warp& warp, uint32_t lane, const Function* function,
                             uint32_t statement, std::byte* to, const std::byte* from,
                             uint64_t bytes) {
  ForEach([&](LaunchObserver& observer) {
    observer.AsyncCopy(warp, lane, function, statement, to, from, bytes);
  });
}
void LaunchChecks::ArriveAtBarrier(const BarrierArrival& arrival) {
  ForEach([&](LaunchObserver& observer) { observer.ArriveAtBarrier(arrival); });
}
void LaunchChecks::CompleteBarrier(Block& block, uint32_t id) {
  ForEach([&](LaunchObserver& observer) { observer.CompleteBarrier(block, id); });
}
void LaunchChecks::ArriveAtWarpOperation(const WarpArrival& arrival) {
  ForEach([&](LaunchObserver& observer) { observer.ArriveAtWarpOperation(arrival); });
}
void LaunchChecks::CompleteWarpOperation(Warp& warp, Op op, Split* const* splits, uint32_t count,
                                         uint32_t lanes) {
  ForEach([&](LaunchObserver& observer) {
    observer.CompleteWarpOperation(warp, op, splits, count, lanes);
  });
}
void LaunchChecks::ArriveAtClusterBarrier(Warp& warp, uint32_t lanes, bool release) {
  ForEach([&](LaunchObserver& observer) { observer.ArriveAtClusterBarrier(warp, lanes, release); });
}
void LaunchChecks::CompleteClusterBarrier(Cluster& cluster) {
  ForEach([&](LaunchObserver& observer) { observer.CompleteClusterBarrier(cluster); });
}
void LaunchChecks::LeaveClusterBarrier(Warp& warp, uint32_t lanes, bool acquire) {
  ForEach([&](LaunchObserver& observer) { observer.LeaveClusterBarrier(warp, lanes, acquire); });
}
void LaunchChecks::WaitForGrid(Warp& warp, uint32_t lanes) {
  ForEach([&](LaunchObserver& observer) { observer.WaitForGrid(warp, lanes); });
}
void LaunchChecks::LaunchDependents(Warp& warp, uint32_t lanes) {
  ForEach([&](LaunchObserver& observer) { observer.LaunchDependents(warp, lanes); });
}
void LaunchChecks::Deadlock(const std::vector<Block*>& resident) {
  ForEach([&](LaunchObserver& observer) { observer.Deadlock(resident); });
}
void LaunchChecks::EndLaunch() {
  ForEach([&](LaunchObserver& observer) { observer.EndLaunch(); });
}

}  // namespace ops_debug::emulator
