// Runs PTX kernels under the check of uninitialised reads and keeps what it says.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "emulator/checks/checks.h"
#include "emulator/executor.h"

namespace ops_debug::emulator {

struct Finding {
  std::string read, use, used_at;  // instructions as written; used_at empty: the read itself
  uint32_t access = 0, space = 0;  // proto AccessKind, AddressSpace
  uint64_t address = 0;
  uint32_t bytes = 0;
  uint64_t count = 0;
  uint32_t thread = 0;
  std::string kernel;
};

inline constexpr uint32_t kGlobal = 1, kShared = 2, kLocal = 3;
inline constexpr uint64_t kRawBytes = 8192;

// Kernels get three pointers: %rd1 = out (zeroed), %rd2 = raw (8 KiB that nobody has written),
// %rd4 = good (words 0, 1, 2...). %r1 = %tid.x, %rd3 = this thread's eight bytes of out, %rd5 its
// four bytes of raw. One session at a time: findings come through plain functions.
class InitSession {
 public:
  InitSession();

  uint64_t raw() const { return raw_; }
  uint64_t out() const { return out_; }
  Checks& checks() { return checks_; }
  void Write(uint64_t address, uint64_t bytes) { checks_.Write(*operation_, address, bytes); }
  // All findings of the session so far.
  const std::vector<Finding>& Run(const std::string& body, uint32_t threads = 32,
                                  const std::string& preamble = {}, uint32_t blocks = 1);

 private:
  uint64_t Allocate(uint64_t bytes);

  DeviceMemory memory_;
  Checks checks_;
  std::shared_ptr<const DeviceOperation> operation_;
  std::vector<std::unique_ptr<Program>> programs_;
  uint64_t out_ = 0, raw_ = 0, good_ = 0;
};

// The uses that a session of one run finds, with blanks between them.
std::string Uses(const std::string& body, uint32_t threads = 32, const std::string& preamble = {});
// The same, where only the first `written` bytes of raw have been written.
std::string UsesWithWritten(uint64_t written, const std::string& body);

}  // namespace ops_debug::emulator
