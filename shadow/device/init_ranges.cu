// What the host does to memory, for the bits of init.cu: rows of memory that a copy or memset
// writes count as written, fresh memory does not, and a copy from device memory carries the bits of
// its source along. Runs in the stream of the operation, in front of it. Compiled to a module of
// its own (init_ranges_ptx.inc).
#include "shadow/abi/device_abi.h"

using namespace ops_debug::shadow;

static __device__ uint32_t* InitWord(uint64_t directory, uint64_t address) {
  uint64_t entry = address >> kDirectoryShift;
  if (entry > kDirectoryEntries) entry = kDirectoryEntries;
  const uint64_t chunk = reinterpret_cast<const uint64_t*>(directory)[entry];
  return reinterpret_cast<uint32_t*>(
      chunk + ((address >> kShadowGranuleShift) & (kChunkBytes - 1) & ~3ull));
}

// The 32 bits of the bytes from `address` on.
static __device__ uint32_t Bits(uint64_t directory, uint64_t address, uint32_t count) {
  const uint32_t shift = static_cast<uint32_t>(address & 31);
  uint32_t bits = *InitWord(directory, address) >> shift;
  if (shift + count > 32) bits |= *InitWord(directory, address + 31) << (32 - shift);
  return bits;
}

// One thread for each 32 bytes of the target, row by row.
extern "C" __global__ void ops_debug_init_range(InitRange range) {
  const uint64_t thread = blockIdx.x * static_cast<uint64_t>(blockDim.x) + threadIdx.x;
  const uint64_t per_row = (range.width_bytes + 31) / 32 + 1;
  const uint64_t threads = gridDim.x * static_cast<uint64_t>(blockDim.x);
  for (uint64_t i = thread; i < per_row * range.height; i += threads) {
    const uint64_t row = range.address + i / per_row * range.pitch_bytes;
    const uint64_t word_at = (row & ~31ull) + i % per_row * 32;
    const uint64_t first = max(word_at, row), end = min(word_at + 32, row + range.width_bytes);
    if (first >= end) continue;
    const uint32_t count = static_cast<uint32_t>(end - first);
    const uint32_t shift = static_cast<uint32_t>(first & 31);
    const uint32_t mask = (count == 32 ? ~0u : (1u << count) - 1) << shift;
    uint32_t* word = InitWord(range.directory, first);
    uint32_t value = 0;  // written
    if (range.state == kInitUnwritten) value = mask;
    if (range.state == kInitAsSource) {
      const uint64_t from = range.source + i / per_row * range.source_pitch_bytes + (first - row);
      value = Bits(range.source_directory, from, count) << shift & mask;
    }
    // Others may write bytes of the same word at this moment.
    if (*word == 0 && value == 0) continue;
    if (value != mask) atomicAnd(word, ~mask | value);
    if (value != 0) atomicOr(word, value);
  }
}
