// Device memory behind race checks in one context (race_abi.h): the channel with its records, cells
// of global memory in chunks that are made where a launch needs them, and the slots that stand for
// the shared memory of resident blocks. Cells take eight times the memory that they describe, so
// there is a budget; memory beyond it is not checked, and says so. Thread-safe.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "shadow/host/device_operations.h"

namespace ops_debug::shadow {

// Slots for shared memory as they are now.
struct SharedCells {
  uint64_t cells = 0;  // device address; 0: none
  uint64_t named_barriers = 0;
  uint32_t slots = 0;  // a power of two
  uint32_t words = 0;  // of each
};

class RaceCells {
 public:
  // `device` must outlive it; `budget_bytes` is for all of its memory but the channel.
  RaceCells(DeviceOperations& device, uint64_t budget_bytes)
      : device_(device), budget_bytes_(budget_bytes) {}
  RaceCells(const RaceCells&) = delete;
  RaceCells& operator=(const RaceCells&) = delete;

  // Channel and directory (11 MiB), all zero. False: no memory.
  bool Create();
  uint64_t channel() const { return channel_; }
  uint64_t directory() const { return directory_; }

  // Gives the range cells, zero at first. False: some part of it has none, for want of memory.
  bool Cover(uint64_t address, uint64_t size_bytes);
  // Nobody has touched the range: it is another allocation's now. Without effect where there are no
  // cells. `stream`: in its order; null: at once.
  bool Renew(uint64_t address, uint64_t size_bytes, void* stream);

  // Whether so many slots of so many words are there. If not, Grow makes them, with the contents
  // gone: nothing may run then. Fewer slots than asked for if memory is short.
  bool HasShared(uint32_t slots, uint32_t words, bool named_barriers) const;
  bool GrowShared(uint32_t slots, uint32_t words, bool named_barriers);
  SharedCells shared() const;

  // Everything as at the beginning, but for the records. Nothing may run.
  bool ClearAll();

  // Memory that has no cells because the budget is used up, in bytes.
  uint64_t uncovered_bytes() const;
  uint64_t device_bytes() const;

 private:
  uint64_t TableOf(uint64_t region);
  bool Fits(uint64_t bytes) const { return used_bytes_ + bytes <= budget_bytes_; }
  // False: not even the smallest piece fits.
  bool MakeChunks(uint64_t first, uint64_t end);

  DeviceOperations& device_;
  const uint64_t budget_bytes_;
  mutable std::mutex mutex_;
  uint64_t channel_ = 0, directory_ = 0, empty_table_ = 0;
  uint64_t used_bytes_ = 0, uncovered_bytes_ = 0;
  std::unordered_map<uint64_t, uint64_t> tables_;  // by region: device address
  std::unordered_map<uint64_t, uint64_t> chunks_;  // by address >> kRaceChunkShift; 0: refused
  struct Piece {
    uint64_t address = 0, bytes = 0;
  };
  std::vector<Piece> pieces_;  // of memory that holds chunks
  SharedCells shared_;
};

}  // namespace ops_debug::shadow
