// Memory that is valid without red zone or quarantine: pinned and registered
// host memory, VMM mappings, and memory that another process exported.
#include <map>
#include <mutex>

#include "interposer/allocation_tracking.h"
#include "interposer/hooks.h"
#include "interposer/init_state.h"
#include "interposer/pinned_memory.h"
#include "interposer/session.h"
#include "interposer/shadow_updates.h"

namespace ops_debug::interposer {
namespace {

using shadow::Allocation;
using shadow::AllocationKind;

void TrackPlain(uint64_t base, uint64_t size_bytes, AllocationKind kind, const char* api,
                uint64_t reservation = 0) {
  if (base == 0 || size_bytes == 0) return;
  const ContextPointer state = CurrentContextState();
  if (!state || state->lost) return;
  Allocation allocation;
  allocation.base = base;
  allocation.size_bytes = size_bytes;
  allocation.reserved_bytes = size_bytes;
  allocation.kind = kind;
  allocation.api = api;
  allocation.reservation = reservation;
  Track(*state, std::move(allocation));
}

// Kernels see host memory at the address that the driver gives for it, on most
// systems its own.
void TrackHost(void* host, uint64_t size_bytes, const char* api) {
  if (!ChecksAnything()) return;
  CUdeviceptr device = 0;
  if (OPS_DEBUG_REAL(cuMemHostGetDevicePointer_v2)(&device, host, 0) != CUDA_SUCCESS) {
    device = reinterpret_cast<CUdeviceptr>(host);
  }
  TrackPlain(device, size_bytes, AllocationKind::kHost, api);
  NoteHostVisible(device, size_bytes);
}

// Call while the memory still exists; forget afterwards, if the driver agreed.
std::optional<Allocation> FindHost(void* host) {
  if (!ChecksAnything() || !host) return std::nullopt;
  CUdeviceptr device = 0;
  if (OPS_DEBUG_REAL(cuMemHostGetDevicePointer_v2)(&device, host, 0) != CUDA_SUCCESS) {
    device = reinterpret_cast<CUdeviceptr>(host);
  }
  auto found = Book().FindStart(device);
  return found && found->kind == AllocationKind::kHost ? found : std::nullopt;
}

void ForgetFound(const std::optional<Allocation>& allocation) {
  if (allocation)
    Forget(FindContextState(static_cast<CUcontext>(allocation->context)).get(), *allocation);
}

// Address reservations, so that touching mappings of one reservation count as
// one allocation and others do not.
struct Reservations {
  std::mutex mutex;
  std::map<uint64_t, uint64_t> bytes_by_base;
};
Reservations& TheReservations() {
  static auto* reservations = new Reservations;
  return *reservations;
}
uint64_t ReservationOf(uint64_t address) {
  Reservations& reservations = TheReservations();
  std::lock_guard lock(reservations.mutex);
  auto after = reservations.bytes_by_base.upper_bound(address);
  if (after == reservations.bytes_by_base.begin()) return address;
  const auto& [base, bytes] = *std::prev(after);
  return address - base < bytes ? base : address;
}

}  // namespace

OPS_DEBUG_HOOK(cuMemAllocHost_v2, void** host, size_t size_bytes) {
  const CUresult result = real(host, size_bytes);
  if (result == CUDA_SUCCESS) TrackHost(*host, size_bytes, "cuMemAllocHost");
  return result;
}

OPS_DEBUG_HOOK(cuMemHostAlloc, void** host, size_t size_bytes, unsigned int flags) {
  const CUresult result = real(host, size_bytes, flags);
  if (result == CUDA_SUCCESS) TrackHost(*host, size_bytes, "cuMemHostAlloc");
  return result;
}

OPS_DEBUG_HOOK(cuMemHostRegister_v2, void* host, size_t size_bytes, unsigned int flags) {
  const CUresult result = real(host, size_bytes, flags);
  if (result == CUDA_SUCCESS) TrackHost(host, size_bytes, "cuMemHostRegister");
  return result;
}
OPS_DEBUG_HOOK_AS(cuMemHostRegister, cuMemHostRegister_v2)

namespace {

// Devices no longer use it when it is given back: not promised, but so.
template <class Real>
CUresult GiveBackHost(Real& real, void* host) {
  const auto found = FindHost(host);
  shadow::VectorClock known;
  if (ChecksStreamOrder()) known = HostClock();
  HostWait wait = HostWait::ForAll();
  const CUresult result = real(host);
  if (result == CUDA_SUCCESS && found && ChecksStreamOrder()) {
    PinnedGivenBack(found->base, found->size_bytes, known, Info(real.function()).base.data());
  }
  wait.Done(result);
  if (result == CUDA_SUCCESS && found) ForgetHostVisible(found->base);
  if (result == CUDA_SUCCESS) ForgetFound(found);
  return result;
}

}  // namespace

OPS_DEBUG_HOOK(cuMemFreeHost, void* host) { return GiveBackHost(real, host); }
OPS_DEBUG_HOOK(cuMemHostUnregister, void* host) { return GiveBackHost(real, host); }

OPS_DEBUG_HOOK(cuMemAddressReserve, CUdeviceptr* address, size_t size_bytes, size_t alignment,
               CUdeviceptr wanted, unsigned long long flags) {
  const CUresult result = real(address, size_bytes, alignment, wanted, flags);
  if (result == CUDA_SUCCESS && ChecksAnything()) {
    Reservations& reservations = TheReservations();
    std::lock_guard lock(reservations.mutex);
    reservations.bytes_by_base[*address] = size_bytes;
  }
  return result;
}

OPS_DEBUG_HOOK(cuMemAddressFree, CUdeviceptr address, size_t size_bytes) {
  const CUresult result = real(address, size_bytes);
  if (result == CUDA_SUCCESS && ChecksAnything()) {
    Reservations& reservations = TheReservations();
    std::lock_guard lock(reservations.mutex);
    reservations.bytes_by_base.erase(address);
  }
  return result;
}

OPS_DEBUG_HOOK(cuMemMap, CUdeviceptr address, size_t size_bytes, size_t offset,
               CUmemGenericAllocationHandle handle, unsigned long long flags) {
  const CUresult result = real(address, size_bytes, offset, handle, flags);
  if (result == CUDA_SUCCESS && ChecksAnything()) {
    const uint64_t reservation = ReservationOf(address);
    TrackPlain(address, size_bytes, AllocationKind::kMapped, "cuMemMap", reservation);
  }
  return result;
}

OPS_DEBUG_HOOK(cuMemUnmap, CUdeviceptr address, size_t size_bytes) {
  const auto found = ChecksAnything() ? Book().FindContaining(address) : std::nullopt;
  const CUresult result = real(address, size_bytes);
  if (result == CUDA_SUCCESS && found && found->kind == AllocationKind::kMapped) {
    Book().RemoveMapped(address, size_bytes);
    const ContextPointer state = FindContextState(static_cast<CUcontext>(found->context));
    if (state && !state->lost && ChecksMemory()) {
      state->updates->DropSegment(address, size_bytes);
      InternalCalls calls(*state);
      if (!calls.ok() || !state->shadow.MarkUnknown(address, size_bytes)) state->lost = true;
    }
  }
  return result;
}

OPS_DEBUG_HOOK(cuIpcGetMemHandle, CUipcMemHandle* handle, CUdeviceptr address) {
  const CUresult result = real(handle, address);
  if (result == CUDA_SUCCESS) AllMemoryWritten("other processes may write it (cuIpcGetMemHandle)");
  return result;
}

OPS_DEBUG_HOOK(cuIpcOpenMemHandle_v2, CUdeviceptr* address, CUipcMemHandle handle,
               unsigned int flags) {
  const CUresult result = real(address, handle, flags);
  if (result == CUDA_SUCCESS && ChecksAnything()) {
    CUdeviceptr base = 0;
    size_t bytes = 0;
    if (OPS_DEBUG_REAL(cuMemGetAddressRange_v2)(&base, &bytes, *address) == CUDA_SUCCESS) {
      TrackPlain(base, bytes, AllocationKind::kImported, "cuIpcOpenMemHandle");
    }
  }
  return result;
}
OPS_DEBUG_HOOK_AS(cuIpcOpenMemHandle, cuIpcOpenMemHandle_v2)

OPS_DEBUG_HOOK(cuIpcCloseMemHandle, CUdeviceptr address) {
  const auto found = ChecksAnything() ? Book().FindContaining(address) : std::nullopt;
  const CUresult result = real(address);
  if (result == CUDA_SUCCESS && found && found->kind == AllocationKind::kImported)
    ForgetFound(found);
  return result;
}

}  // namespace ops_debug::interposer
