// What python/ops_debug calls by ctypes when a pool that lives in Python (CuPy, RMM) hands out a
// block or takes one back. Plain C; the names are part of no stable interface.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>
#include <unordered_set>

#include "interposer/context_state.h"
#include "interposer/tensor_blocks.h"

namespace ops_debug::interposer {
namespace {

// A copy that lives as long as the process; there are few different ones.
const char* Intern(const char* text) {
  if (!text || text[0] == '\0') return "";
  static auto* mutex = new std::mutex;
  static auto* texts = new std::unordered_set<std::string>;
  std::lock_guard lock(*mutex);
  return texts->emplace(text).first->c_str();
}

}  // namespace

extern "C" {

// 1 if reports are wanted in this process.
__attribute__((visibility("default"))) int ops_debug_tracks_blocks() {
  return TracksTensors() ? 1 : 0;
}

__attribute__((visibility("default"))) void ops_debug_block_handed_out(uint64_t address,
                                                                       uint64_t size_bytes,
                                                                       uint64_t reserved_bytes,
                                                                       const char* framework,
                                                                       const char* pool) {
  try {
    BlockReport report;
    report.address = address;
    report.size_bytes = size_bytes;
    report.reserved_bytes = reserved_bytes;
    report.pool = Intern(pool);
    report.tensor.framework = Intern(framework);
    report.reports_all = false;  // a thread that Python does not know may use the pool as well
    // These pools do not say which stream a block belongs to.
    report.for_graph = AnyCapture();
    BlockHandedOut(report);
  } catch (...) {
  }
}

__attribute__((visibility("default"))) void ops_debug_block_given_back(uint64_t address) {
  BlockGivenBack(address);
}

}  // extern "C"
}  // namespace ops_debug::interposer
