// Copies go through pinned memory, since a copy to pageable memory returns when it is done. The
// pinned memory of a copy that was given up belongs to the driver until its turn has come.
#include "interposer/stream_reader.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <thread>

#include "interposer/call_failure.h"
#include "interposer/exact_checks.h"
#include "interposer/launch_failure.h"

namespace ops_debug::interposer {
namespace {

constexpr uint64_t kStagingBytes = 4 << 20;
// A stream that is stuck keeps one for itself.
constexpr size_t kMostStagings = 8;

}  // namespace

struct StreamReader::Staging {
  std::weak_ptr<ContextState> owner;  // pinned memory and event go with the context
  char* bytes = nullptr;
  CUevent event = nullptr;
  bool given_up = false;
};

StreamReader::Staging* StreamReader::StagingOf(const ContextPointer& context) {
  // Never destroyed: hooks run until the very end of the process.
  static auto& all = *new std::deque<Staging>;
  Staging* free_entry = nullptr;
  size_t stuck = 0;
  for (Staging& staging : all) {
    const ContextPointer owner = staging.owner.lock();
    if (!owner || owner->lost) {
      free_entry = &staging;
    } else if (owner == context) {
      if (!staging.given_up || OPS_DEBUG_REAL(cuEventQuery)(staging.event) == CUDA_SUCCESS) {
        staging.given_up = false;
        return &staging;
      }
      stuck++;
    }
  }
  if (stuck >= kMostStagings) return nullptr;
  Staging made;
  made.owner = context;
  void* bytes = nullptr;
  if (OPS_DEBUG_REAL(cuMemHostAlloc)(&bytes, kStagingBytes, 0) != CUDA_SUCCESS) return nullptr;
  HideFromChecks(reinterpret_cast<uintptr_t>(bytes), kStagingBytes);
  made.bytes = static_cast<char*>(bytes);
  if (OPS_DEBUG_REAL(cuEventCreate)(&made.event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
    OPS_DEBUG_REAL(cuMemFreeHost)(bytes);
    return nullptr;
  }
  if (!free_entry) free_entry = &all.emplace_back();
  *free_entry = std::move(made);
  return free_entry;
}

bool StreamReader::Wait() {
  auto pause = std::chrono::microseconds(5);
  while (true) {
    const CUresult result = OPS_DEBUG_REAL(cuEventQuery)(staging_->event);
    if (result == CUDA_SUCCESS) return true;
    if (result != CUDA_ERROR_NOT_READY) {
      failure_ = "its memory cannot be read (" + ErrorName(result) + ")";
      return false;
    }
    if (Clock::now() >= deadline_) {
      staging_->given_up = true;
      timed_out_ = true;
      failure_ = "its stream was busy with earlier work for too long";
      return false;
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::microseconds(500));
  }
}

bool StreamReader::Read(uint64_t address, uint64_t size_bytes, char* out) {
  if (!failure_.empty()) return false;
  if (!staging_) staging_ = StagingOf(context_);
  if (!staging_) {
    failure_ = "there is no pinned memory to read its memory into";
    return false;
  }
  while (size_bytes != 0) {
    const uint64_t bytes = std::min(size_bytes, kStagingBytes);
    CUresult result =
        OPS_DEBUG_REAL(cuMemcpyDtoHAsync_v2)(staging_->bytes, address, bytes, stream_);
    if (result == CUDA_SUCCESS) result = OPS_DEBUG_REAL(cuEventRecord)(staging_->event, stream_);
    if (result != CUDA_SUCCESS) {
      failure_ = "its memory cannot be read (" + ErrorName(result) + ")";
      return false;
    }
    if (!Wait()) return false;
    std::memcpy(out, staging_->bytes, bytes);
    out += bytes;
    address += bytes;
    size_bytes -= bytes;
  }
  return true;
}

}  // namespace ops_debug::interposer
