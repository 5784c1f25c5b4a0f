// An operation of a stream that is no kernel (a copy, a memset) as cells see it: a read or a write
// of a range. The host launches this kernel in front of the operation, in its stream, with one
// ticket; all threads stand for one. A module of its own: race_range_ptx.inc.
#include "shadow/device/race.cu"

extern "C" __global__ void ops_debug_race_range(RaceRange range) {
  RaceThread t;
  t.launch = range.launch;
  t.launch_id = range.launch_id;
  t.stamp = t.interval = static_cast<uint64_t>(range.launch.first_ticket) << kTicketShift;
  t.cells = t.named = 0;
  t.warp_mask = ~0u;
  t.narrow_bits = 1;
  t.done = 0;
  t.blocks = 1;
  const uint64_t first = blockIdx.x * static_cast<uint64_t>(blockDim.x) + threadIdx.x;
  const uint64_t threads = gridDim.x * static_cast<uint64_t>(blockDim.x);
  for (uint64_t word = (range.begin & ~3ull) + 4 * first; word < range.end; word += 4 * threads) {
    Place place;
    if (!FindPlace(&t, word, false, &place)) continue;
    const uint64_t bytes = Bytes(range.begin, range.end, word);
    if (range.is_write) {
      WriteWord(&t, place, bytes, kWriteUnknown, 0, 0);
    } else {
      ReadWord(&t, place, bytes, kWriteWeak, 0);
    }
  }
}
