// The device operations that shadow memory needs, so that it can be tested without a driver.
#pragma once

#include <cstdint>

namespace ops_debug::shadow {

class DeviceOperations {
 public:
  virtual ~DeviceOperations() = default;
  // Device memory, at least 256-byte aligned; 0 if there is none.
  virtual uint64_t Allocate(uint64_t size_bytes) = 0;
  virtual void Free(uint64_t address) = 0;
  // Queued on a stream of our own, in order. `data` may be reused at once after Write returns.
  virtual bool Fill(uint64_t address, uint8_t value, uint64_t size_bytes) = 0;
  virtual bool Write(uint64_t address, const void* data, uint64_t size_bytes) = 0;
  // Waits for what Fill and Write queued.
  virtual bool Finish() = 0;
  // Queued on a stream of the program.
  virtual bool FillInStream(uint64_t address, uint8_t value, uint64_t size_bytes, void* stream) = 0;
};

}  // namespace ops_debug::shadow
