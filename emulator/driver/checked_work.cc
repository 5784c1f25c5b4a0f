// See checked_work.h.
#include "emulator/driver/checked_work.h"

#include <algorithm>
#include <utility>

#include "emulator/checks/race_memory.h"
#include "emulator/driver/memory.h"
#include "emulator/driver/operation.h"
#include "shadow/abi/emulator_checks.h"

namespace ops_debug::emulator {

std::atomic<Checks*> active_checks{nullptr};

namespace {

thread_local std::shared_ptr<const DeviceOperation> next_order;

DeviceOperation CopyOrder(const shadow::OperationOrder& order) {
  DeviceOperation operation;
  operation.id = order.id;
  operation.token = order.token;
  if (order.clock != nullptr) operation.clock.assign(order.clock, order.clock + order.clock_size);
  operation.is_programmatic = order.early_clock != nullptr;
  return operation;
}

// Whether kernels can reach the memory; the program's ordinary memory is not looked at, because
// its reuse cannot be seen.
bool IsOfDevice(Driver& driver, uint64_t address) {
  const std::lock_guard lock(driver.mutex);
  return Classify(driver, address) != MemoryClass::kPageable;
}

struct BeginWork {
  Checks& checks;
  Device& device;
  Operation& operation;

  void operator()(CopyOperation& copy) const {
    const DeviceOperation& order = *operation.order;
    const bool reads = copy.staged == nullptr && IsOfDevice(device.driver, copy.from);
    const bool writes = IsOfDevice(device.driver, copy.to);
    for (uint64_t z = 0; z < copy.depth; ++z) {
      for (uint64_t y = 0; y < copy.height; ++y) {
        const uint64_t to = copy.to + z * copy.to_slice_bytes + y * copy.to_pitch_bytes;
        const uint64_t from = copy.from + z * copy.from_slice_bytes + y * copy.from_pitch_bytes;
        if (reads) checks.Read(order, from, copy.width_bytes);
        if (writes) checks.Write(order, to, copy.width_bytes);
        if (reads && writes) checks.Copy(to, from, copy.width_bytes);
      }
    }
  }
  void operator()(FillOperation& fill) const {
    for (uint64_t y = 0; y < fill.height; ++y) {
      checks.Write(*operation.order, fill.address + y * fill.pitch_bytes,
                   fill.width * fill.element_bytes);
    }
  }
  void operator()(KernelOperation& kernel) const { kernel.order = operation.order; }
  void operator()(AllocateOperation& allocate) const {
    // The pool has ordered the block's new life behind its old one.
    TellAllocated(allocate.address, allocate.size_bytes);
    checks.Touch(*operation.order, allocate.address, allocate.size_bytes);
  }
  void operator()(FreeOperation& free) const {
    // The same stream may have been given the block again by now; that comes after this.
    if (free.size_bytes == 0) return;
    checks.Touch(*operation.order, free.address, free.size_bytes);
    checks.Forget(free.address, free.size_bytes);
    // A use that comes later although nothing orders it behind the free is as wrong as one before.
    checks.Touch(*operation.order, free.address, free.size_bytes);
  }
  // Values in memory that streams wait for and write are flags: no data that could race.
  void operator()(MemoryWriteOperation& write) const {
    checks.CountAsWritten(write.address, write.bytes);
  }
  template <class Other>
  void operator()(Other& /*work*/) const {}
};

// ---- the C interface

void Configure(uint32_t kinds, const shadow::EmulatorReportFunctions* functions) {
  if (functions == nullptr || ActiveChecks() != nullptr) return;
  // Lives until the process ends: workers may use it up to then.
  active_checks.store(new Checks(kinds, *functions), std::memory_order_release);
}

void SetNextOperation(const shadow::OperationOrder* order) {
  next_order =
      order == nullptr ? nullptr : std::make_shared<const DeviceOperation>(CopyOrder(*order));
}

void HostAccess(const shadow::OperationOrder* order, uint64_t address, uint64_t bytes,
                bool is_write) {
  Checks* const checks = ActiveChecks();
  if (checks == nullptr || order == nullptr) return;
  DeviceOperation operation = CopyOrder(*order);
  operation.is_host = true;
  const auto registered = checks->Register(std::move(operation));
  if (is_write) {
    checks->Write(*registered, address, bytes);
  } else {
    checks->Read(*registered, address, bytes);
  }
  checks->Deliver();
}

void Hide(uint64_t address, uint64_t bytes) {
  if (Checks* const checks = ActiveChecks()) checks->Hide(address, bytes);
}

void Renew(uint64_t address, uint64_t bytes) {
  if (Checks* const checks = ActiveChecks()) checks->Renew(address, bytes);
}

void Forget(uint64_t address, uint64_t bytes) {
  if (Checks* const checks = ActiveChecks()) checks->Forget(address, bytes);
}

uint64_t Writers(uint64_t address, uint64_t bytes) {
  Checks* const checks = ActiveChecks();
  return checks == nullptr ? 0 : checks->Writers(address, bytes);
}

}  // namespace

std::shared_ptr<const DeviceOperation> OrderOfNextWork() { return next_order; }

void BeginChecked(Checks& checks, Device& device, Operation& operation) {
  operation.order =
      checks.Register(operation.order == nullptr ? DeviceOperation{} : *operation.order);
  std::visit(BeginWork{checks, device, operation}, operation.work);
}

void EndChecked(Checks& checks, Operation& /*operation*/) { checks.Deliver(); }

}  // namespace ops_debug::emulator

extern "C" __attribute__((visibility("default"))) const ops_debug::shadow::EmulatorChecks*
cuOpsDebugEmulatorChecks(uint32_t version) {
  namespace emulator = ops_debug::emulator;
  static const ops_debug::shadow::EmulatorChecks kChecks{ops_debug::shadow::kEmulatorChecksVersion,
                                                         emulator::Configure,
                                                         emulator::SetNextOperation,
                                                         emulator::HostAccess,
                                                         emulator::Hide,
                                                         emulator::Renew,
                                                         emulator::Forget,
                                                         emulator::Writers};
  return version == ops_debug::shadow::kEmulatorChecksVersion ? &kChecks : nullptr;
}
