// What the interposer keeps per CUDA context: a stream of its own, shadow
// memory, quarantine. Plus the rules for driver calls that the program did not
// make: which context is current, and how they stay legal while streams are
// captured.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "interposer/driver_table.h"
#include "shadow/host/allocation_book.h"
#include "shadow/host/quarantine.h"
#include "shadow/host/shadow_map.h"

namespace ops_debug::interposer {

// True if this process checks memory: the state below is kept only then.
bool ChecksMemory();

// The one book of the process; it lives until the process is gone.
shadow::AllocationBook& Book();

// Device operations on one stream, by the real driver. The context must be
// current (InternalCalls).
class DriverDevice : public shadow::DeviceOperations {
 public:
  explicit DriverDevice(CUstream stream) : stream_(stream) {}
  uint64_t Allocate(uint64_t size_bytes) override;
  void Free(uint64_t address) override;
  bool Fill(uint64_t address, uint8_t value, uint64_t size_bytes) override;
  bool Write(uint64_t address, const void* data, uint64_t size_bytes) override;
  bool Finish() override;
  bool FillInStream(uint64_t address, uint8_t value, uint64_t size_bytes, void* stream) override;
  // Complete on return.
  bool Read(void* data, uint64_t address, uint64_t size_bytes);

 private:
  CUstream stream_;
};

class InitState;
class RaceState;
class ShadowUpdates;

struct ContextState {
  ContextState(CUcontext handle, CUstream stream, uint64_t quarantine_bytes);
  ~ContextState();

  const CUcontext context;
  const CUstream stream;  // ours, non-blocking
  DriverDevice device;
  shadow::ShadowMap shadow;
  const std::unique_ptr<ShadowUpdates> updates;  // of memory pools (shadow_updates.h)
  const std::unique_ptr<RaceState> races;        // null: kernels do not look for races themselves
  const std::unique_ptr<InitState> init;  // the same for reads of memory that was never written
  std::mutex quarantine_mutex;
  shadow::Quarantine quarantine;
  // Set when shadow memory could not be kept up to date, or the context is
  // gone: kernels then run unchecked.
  std::atomic<bool> lost{false};
  // Launches of instrumented kernels; a drain compares before and after to know
  // that nothing ran meanwhile.
  std::atomic<uint64_t> launches{0};
};
using ContextPointer = std::shared_ptr<ContextState>;

// The state of the context that is current in this thread, made at first use.
// Null: no context is current, memory is not checked, or the state could not be
// made (a Diagnostic says why).
ContextPointer CurrentContextState();
// The same for the context of a stream (in either default-stream convention).
ContextPointer StreamContextState(CUstream stream, DefaultStream default_stream);
// The same for a context that is known, and need not be current.
ContextPointer ContextStateOf(CUcontext context);
// Null if there is none yet.
ContextPointer FindContextState(CUcontext context);
std::vector<ContextPointer> AllContextStates();
// Forgets the state; device memory and streams of a dying context go with it.
void DropContextState(CUcontext context);

// Brackets driver calls of our own: makes `context` current if it is not, and
// lets "unsafe" calls through while some stream is being captured (even one
// whose capture we did not see begin).
class InternalCalls {
 public:
  explicit InternalCalls(CUcontext context);
  explicit InternalCalls(const ContextState& state) : InternalCalls(state.context) {}
  ~InternalCalls();
  InternalCalls(const InternalCalls&) = delete;
  InternalCalls& operator=(const InternalCalls&) = delete;
  bool ok() const { return ok_; }

 private:
  bool ok_ = false;
  bool pushed_ = false;
  std::optional<RelaxedCapture> relaxed_;
};

// The stream that 0 means, spelled out, so that it can be given to any variant
// of a call.
CUstream ExplicitStream(CUstream stream, DefaultStream default_stream);
bool IsCapturing(CUstream explicit_stream);
// True while any stream of the process is being captured.
bool AnyCapture();

}  // namespace ops_debug::interposer
