// Peer access. A context that has enabled it may use the other context's memory in its kernels; the
// page map of a device knows its own memory only, so everything else goes through
// DeviceMemory::Accessible, which asks the peers. Copies between devices need no peer access.
#include "emulator/driver/peer.h"

namespace ops_debug::emulator {
namespace {

// Whether any context of `device` may use memory of `other`.
bool MayAccess(Driver& driver, const Device& device, const Device& other) {
  bool may = false;
  driver.contexts.ForEach([&](CUctx_st& context) {
    if (context.device != &device) return;
    for (const CUctx_st* peer : context.peers) may = may || peer->device == &other;
  });
  return may;
}

void UpdateAccess(Driver& driver, Device& device, const Device& other) {
  device.memory.SetPeer(other.memory, MayAccess(driver, device, other));
}

CUresult AnswerPeer(CUdevice ordinal, CUdevice peer, int* value, int answer) {
  return OnDevice(ordinal, [&](Device&) -> CUresult {
    if (!IsDevice(peer)) return CUDA_ERROR_INVALID_DEVICE;
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *value = ordinal != peer ? answer : 0;  // a device is no peer of itself
    return CUDA_SUCCESS;
  });
}

}  // namespace

void ForgetPeer(Driver& driver, CUctx_st& context) {
  const std::set<CUctx_st*> peers = std::move(context.peers);
  context.peers.clear();
  for (const CUctx_st* peer : peers) UpdateAccess(driver, *context.device, *peer->device);
  driver.contexts.ForEach([&](CUctx_st& other) {
    if (other.peers.erase(&context) != 0) UpdateAccess(driver, *other.device, *context.device);
  });
}

}  // namespace ops_debug::emulator

using namespace ops_debug::emulator;  // NOLINT(google-build-using-namespace): entry points only

extern "C" {

CUresult cuDeviceCanAccessPeer(int* can, CUdevice ordinal, CUdevice peer) {
  return AnswerPeer(ordinal, peer, can, 1);
}

CUresult cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute attribute, CUdevice ordinal,
                                 CUdevice peer) {
  if (ordinal == peer) return CUDA_ERROR_INVALID_DEVICE;
  switch (attribute) {
    case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:
      return AnswerPeer(ordinal, peer, value, 0);
    case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
    case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
      return AnswerPeer(ordinal, peer, value, 1);
    case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED:
      return AnswerPeer(ordinal, peer, value, 0);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult cuCtxEnablePeerAccess(CUcontext handle, unsigned int flags) {
  return InContext([&](Device& device, CUctx_st& context) -> CUresult {
    CUctx_st* peer = device.driver.contexts.Find(handle);
    if (peer == nullptr || peer->device == &device) return CUDA_ERROR_INVALID_CONTEXT;
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    if (!context.peers.insert(peer).second) return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    UpdateAccess(device.driver, device, *peer->device);
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxDisablePeerAccess(CUcontext handle) {
  return InContext([&](Device& device, CUctx_st& context) -> CUresult {
    CUctx_st* peer = device.driver.contexts.Find(handle);
    if (peer == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (context.peers.erase(peer) == 0) return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
    UpdateAccess(device.driver, device, *peer->device);
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
