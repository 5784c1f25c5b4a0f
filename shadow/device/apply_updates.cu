// Writes a table of updates into shadow memory (device_abi.h: ShadowUpdate). The table travels in
// the launch parameters, so the host may forget it as soon as the launch is made. Compiled to PTX
// by scripts/generate_device_code.py, checked in as apply_updates_ptx.inc, loaded once per context.
#include "shadow/abi/device_abi.h"

using namespace ops_debug::shadow;

static __device__ void Apply(const ShadowUpdate& update) {
  uint8_t* const bytes = reinterpret_cast<uint8_t*>(update.address);
  const uint32_t head = min(update.count, static_cast<uint32_t>(-update.address & 15));
  const uint32_t vectors = (update.count - head) / 16;
  const uint32_t word = update.value * 0x01010101u;
  for (uint32_t i = threadIdx.x; i < head; i += blockDim.x) bytes[i] = update.value;
  uint4* const middle = reinterpret_cast<uint4*>(bytes + head);
  for (uint32_t i = threadIdx.x; i < vectors; i += blockDim.x) {
    middle[i] = make_uint4(word, word, word, word);
  }
  for (uint32_t i = head + vectors * 16 + threadIdx.x; i < update.count; i += blockDim.x) {
    bytes[i] = update.value;
  }
}

extern "C" __global__ void ops_debug_apply_few_updates(
    const __grid_constant__ ShadowUpdateTable<kFewUpdates> table) {
  Apply(table.updates[blockIdx.x]);
}

extern "C" __global__ void ops_debug_apply_many_updates(
    const __grid_constant__ ShadowUpdateTable<kManyUpdates> table) {
  Apply(table.updates[blockIdx.x]);
}
