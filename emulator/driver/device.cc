// Device queries. A device describes itself from its DeviceModel.
#include <array>
#include <cstdio>
#include <cstring>
#include <string>

#include "emulator/driver/limits.h"
#include "emulator/driver/state.h"

namespace ops_debug::emulator {
namespace {

// "domain:bus:device.function": every device is on a bus of its own.
std::string PciBusId(int ordinal) {
  char id[16];
  std::snprintf(id, sizeof(id), "0000:%02x:00.0", unsigned(ordinal) + 1);
  return id;
}

// Stable, so that programs which compare UUIDs see the same devices every time.
std::array<char, 16> Uuid(int ordinal) {
  std::array<char, 16> uuid;
  std::memcpy(uuid.data(), "ops-debug CPU d ", uuid.size());
  uuid.back() = char('0' + ordinal);
  return uuid;
}

int Attribute(const Device& device, CUdevice_attribute attribute) {
  const DeviceModel& model = device.model;
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
  return OnDevice(ordinal, [&](Device& device) -> CUresult {
    return result != nullptr ? body(device) : CUDA_ERROR_INVALID_VALUE;
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
  return InDriver([&](Driver& driver) -> CUresult {
    if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *count = int(driver.devices.size());
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
  return Query(ordinal, uuid, [&](Device& device) {
    const auto bytes = Uuid(device.ordinal);
    static_assert(sizeof(bytes) == sizeof(uuid->bytes));
    std::memcpy(uuid->bytes, bytes.data(), sizeof(uuid->bytes));
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
    *value = Attribute(device, attribute);
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
  return Query(ordinal, id, [&](Device& device) {
    return CopyText(PciBusId(device.ordinal).c_str(), id, length);
  });
}

CUresult cuDeviceGetByPCIBusId(CUdevice* result, const char* id) {
  return InDriver([&](Driver& driver) -> CUresult {
    if (result == nullptr || id == nullptr) return CUDA_ERROR_INVALID_VALUE;
    for (const auto& device : driver.devices) {
      const std::string its_id = PciBusId(device->ordinal);
      // The domain may be left out.
      if (its_id != id && its_id.substr(5) != id) continue;
      *result = device->ordinal;
      return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_DEVICE;
  });
}

// No texture unit limits a linear texture but its addresses.
CUresult cuDeviceGetTexture1DLinearMaxWidth(size_t* width, CUarray_format, unsigned channels,
                                            CUdevice ordinal) {
  return Query(ordinal, width, [&](Device&) -> CUresult {
    if (channels != 1 && channels != 2 && channels != 4) return CUDA_ERROR_INVALID_VALUE;
    *width = size_t{1} << 28;
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetExecAffinitySupport(int* supported, CUexecAffinityType, CUdevice ordinal) {
  return Query(ordinal, supported, [&](Device&) {
    *supported = 0;
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetProperties(CUdevprop* properties, CUdevice ordinal) {
  return Query(ordinal, properties, [&](Device& device) {
    const auto get = [&](CUdevice_attribute attribute) { return Attribute(device, attribute); };
    *properties =
        CUdevprop{.maxThreadsPerBlock = get(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
                  .maxThreadsDim = {get(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X),
                                    get(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y),
                                    get(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z)},
                  .maxGridSize = {get(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X),
                                  get(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y),
                                  get(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z)},
                  .sharedMemPerBlock = get(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK),
                  .totalConstantMemory = get(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY),
                  .SIMDWidth = get(CU_DEVICE_ATTRIBUTE_WARP_SIZE),
                  .memPitch = get(CU_DEVICE_ATTRIBUTE_MAX_PITCH),
                  .regsPerBlock = get(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK),
                  .clockRate = get(CU_DEVICE_ATTRIBUTE_CLOCK_RATE),
                  .textureAlign = get(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT)};
    return CUDA_SUCCESS;
  });
}

CUresult cuFlushGPUDirectRDMAWrites(CUflushGPUDirectRDMAWritesTarget,
                                    CUflushGPUDirectRDMAWritesScope) {
  return InContext([](Device&, CUctx_st&) { return CUDA_SUCCESS; });
}

}  // extern "C"
