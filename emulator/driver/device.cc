// Device queries. There is one device, ordinal 0; it describes itself from its DeviceModel.
#include <cstdio>
#include <cstring>

#include "emulator/driver/limits.h"
#include "emulator/driver/state.h"

namespace ops_debug::emulator {
namespace {

constexpr char kPciBusId[] = "0000:00:00.0";
// "ops-debug CPU dv": stable, so that programs which compare UUIDs see the same device every time.
constexpr char kUuid[] = "ops-debug CPU dv";

int Attribute(const DeviceModel& model, CUdevice_attribute attribute) {
  switch (attribute) {
#define OPS_DEBUG_ATTRIBUTE(name, value) \
  case CU_DEVICE_ATTRIBUTE_##name:       \
    return value;
#include "emulator/driver/device_attributes.inc"
#undef OPS_DEBUG_ATTRIBUTE
    default:
      return 0;
  }
}

// body(Device&) for a valid ordinal and a result pointer that is not null.
template <class Body>
CUresult Query(CUdevice ordinal, const void* result, Body body) {
  return OnDevice([&](Device& device) -> CUresult {
    if (!IsDevice(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
    if (result == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return body(device);
  });
}

CUresult CopyText(const char* text, char* out, int length) {
  if (length <= 0) return CUDA_ERROR_INVALID_VALUE;
  std::snprintf(out, size_t(length), "%s", text);
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace ops_debug::emulator

using namespace ops_debug::emulator;  // NOLINT(google-build-using-namespace): entry points only

extern "C" {

CUresult cuDeviceGetCount(int* count) {
  return OnDevice([&](Device&) -> CUresult {
    if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *count = 1;
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  return Query(ordinal, device, [&](Device&) {
    *device = ordinal;
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetName(char* name, int length, CUdevice ordinal) {
  return Query(ordinal, name,
               [&](Device& device) { return CopyText(device.model.name.c_str(), name, length); });
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice ordinal) {
  return Query(ordinal, uuid, [&](Device&) {
    static_assert(sizeof(kUuid) == sizeof(uuid->bytes) + 1);
    std::memcpy(uuid->bytes, kUuid, sizeof(uuid->bytes));
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice ordinal) {
  return cuDeviceGetUuid_v2(uuid, ordinal);
}

CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice ordinal) {
  return Query(ordinal, bytes, [&](Device& device) {
    *bytes = device.total_memory_bytes;
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice ordinal) {
  return Query(ordinal, value, [&](Device& device) -> CUresult {
    if (attribute <= 0 || attribute >= CU_DEVICE_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
    *value = Attribute(device.model, attribute);
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice ordinal) {
  return Query(ordinal, major, [&](Device& device) -> CUresult {
    if (minor == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *major = int(device.model.compute_major);
    *minor = int(device.model.compute_minor);
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetPCIBusId(char* id, int length, CUdevice ordinal) {
  return Query(ordinal, id, [&](Device&) { return CopyText(kPciBusId, id, length); });
}

CUresult cuDeviceGetByPCIBusId(CUdevice* device, const char* id) {
  return OnDevice([&](Device&) -> CUresult {
    if (device == nullptr || id == nullptr) return CUDA_ERROR_INVALID_VALUE;
    // "domain:bus:device.function", the domain is optional.
    const bool ours = std::strcmp(id, kPciBusId) == 0 || std::strcmp(id, kPciBusId + 5) == 0;
    if (!ours) return CUDA_ERROR_INVALID_DEVICE;
    *device = 0;
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceCanAccessPeer(int* can, CUdevice ordinal, CUdevice peer) {
  return Query(ordinal, can, [&](Device&) -> CUresult {
    if (!IsDevice(peer)) return CUDA_ERROR_INVALID_DEVICE;
    *can = 0;  // a device is no peer of itself
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute, CUdevice ordinal,
                                 CUdevice peer) {
  return Query(ordinal, value, [&](Device&) -> CUresult {
    if (!IsDevice(peer) || peer == ordinal) return CUDA_ERROR_INVALID_DEVICE;
    *value = 0;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxEnablePeerAccess(CUcontext, unsigned int) {
  return InContext([](Device&, CUctx_st&) { return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED; });
}

CUresult cuCtxDisablePeerAccess(CUcontext) {
  return InContext([](Device&, CUctx_st&) { return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED; });
}

CUresult cuFlushGPUDirectRDMAWrites(CUflushGPUDirectRDMAWritesTarget,
                                    CUflushGPUDirectRDMAWritesScope) {
  return InContext([](Device&, CUctx_st&) { return CUDA_SUCCESS; });
}

}  // extern "C"
