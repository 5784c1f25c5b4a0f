// See placement.h.
#include "emulator/driver/placement.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <string>
#include <utility>

#include "emulator/code.h"
#include "shadow/abi/emulator_placement.h"

namespace ops_debug::emulator {
namespace {

// Of all programs together: Program::Impl::FunctionAddress.
constexpr uint64_t kCodeBytes = 1ull << 40;

std::atomic<bool> is_replay{false};
thread_local uint64_t next_place = 0;

// Never destroyed: programs call the driver from atexit handlers.
struct Failure {
  std::mutex mutex;
  uint32_t kind = shadow::kEmulatorNoFailure;
  std::string text;
};
Failure& FirstFailure() {
  static Failure& failure = *new Failure;
  return failure;
}

Program::VariablePlaces& VariablePlacesOfThread() {
  thread_local Program::VariablePlaces places;
  return places;
}

uint32_t KindOf(const LaunchError& error) {
  switch (error.code) {
    case LaunchError::Code::kUnsupportedInstruction:
      return shadow::kEmulatorUnsupported;
    case LaunchError::Code::kDeadlock:
      return error.spins_globally ? shadow::kEmulatorGlobalSpin : shadow::kEmulatorDeadlock;
    case LaunchError::Code::kHostWait:
      return shadow::kEmulatorHostWait;
    default:
      return shadow::kEmulatorFault;
  }
}

// ---- the C interface

void BeginReplay() { is_replay.store(true); }

void PlaceNextAllocation(uint64_t address) { next_place = address; }

void PlaceVariable(const char* name, uint64_t address) {
  try {
    VariablePlacesOfThread()[name] = address;
  } catch (...) {
    // It lies elsewhere then, which whoever asks for its address sees.
  }
}

bool IsFunctionAddress(uint64_t address) { return address - kCodeBase < kCodeBytes; }

uint32_t GetFailure(char* text, size_t text_bytes) {
  Failure& failure = FirstFailure();
  const std::lock_guard lock(failure.mutex);
  if (text != nullptr && text_bytes != 0) {
    const size_t bytes = std::min(text_bytes - 1, failure.text.size());
    std::memcpy(text, failure.text.data(), bytes);
    text[bytes] = '\0';
  }
  return failure.kind;
}

}  // namespace

bool IsReplay() { return is_replay.load(std::memory_order_relaxed); }

uint64_t TakeNextPlace() { return std::exchange(next_place, 0); }

Program::VariablePlaces TakeVariablePlaces() {
  return IsReplay() ? std::exchange(VariablePlacesOfThread(), {}) : Program::VariablePlaces{};
}

void NoteFailure(const LaunchError& error) {
  Failure& failure = FirstFailure();
  const std::lock_guard lock(failure.mutex);
  if (failure.kind != shadow::kEmulatorNoFailure) return;
  failure.kind = KindOf(error);
  failure.text = error.message;
}

}  // namespace ops_debug::emulator

extern "C" __attribute__((visibility("default"))) const ops_debug::shadow::EmulatorPlacement*
cuOpsDebugEmulatorPlacement(uint32_t version) {
  namespace emulator = ops_debug::emulator;
  static const ops_debug::shadow::EmulatorPlacement kPlacement{
      ops_debug::shadow::kEmulatorPlacementVersion,
      emulator::BeginReplay,
      emulator::PlaceNextAllocation,
      emulator::PlaceVariable,
      emulator::IsFunctionAddress,
      emulator::GetFailure};
  return version == ops_debug::shadow::kEmulatorPlacementVersion ? &kPlacement : nullptr;
}
