// Limits are there to keep a program with thousands of kernels going; a usual one meets none.
#include "interposer/capture_book.h"

#include <sys/stat.h>

#include <vector>

#include "interposer/files.h"
#include "interposer/session.h"

namespace ops_debug::interposer {
namespace {

constexpr int kMostAttempts = 3;           // for one shape
constexpr int kMostProbes = 4;             // of one shape's memory for unwritten bytes
constexpr size_t kMostShapes = 4;          // of one kernel that are captured
constexpr size_t kMostSeen = 64;           // of one kernel that are remembered
constexpr uint64_t kMostFiles = 1024;      // that wait to be replayed
constexpr uint64_t kMostBytesFactor = 16;  // their sizes, in limits of one capture

}  // namespace

CaptureBook::Attempts* CaptureBook::Find(const LaunchShape& shape) {
  const auto found = shapes_.find(shape);
  if (found != shapes_.end()) return &found->second;
  if (++counts_[std::get<0>(shape)].seen > kMostSeen) return nullptr;
  return &shapes_[shape];
}

bool CaptureBook::IsDone(const LaunchShape& shape) {
  std::lock_guard lock(mutex_);
  const auto found = shapes_.find(shape);
  if (found != shapes_.end()) return found->second.done || found->second.searched;
  const auto counts = counts_.find(std::get<0>(shape));
  return counts != counts_.end() && counts->second.seen >= kMostSeen;
}

bool CaptureBook::TakeProbe(const LaunchShape& shape) {
  std::lock_guard lock(mutex_);
  Attempts* const attempts = Find(shape);
  if (!attempts || attempts->done || attempts->searched) return false;
  attempts->searched = ++attempts->probes >= kMostProbes;
  return true;
}

// The folder is looked at only when what was put there may be too much.
bool CaptureBook::FolderIsFull() {
  const auto full = [this] {
    return files_ >= kMostFiles || bytes_ / kMostBytesFactor >= Options().replay_memory_bytes;
  };
  if (!full()) return false;
  files_ = bytes_ = 0;
  const std::string& folder = Options().replay_folder;
  ForEachFile(folder, [&](const char* name) {
    struct stat status {};
    if (stat((folder + "/" + name).c_str(), &status) != 0) return;
    files_++;
    bytes_ += static_cast<uint64_t>(status.st_size);
  });
  return full();
}

CaptureBook::Turn CaptureBook::TakeTurn(const LaunchShape& shape,
                                        const CapturedLaunchDescription& launch) {
  std::string reason;
  {
    std::lock_guard lock(mutex_);
    Attempts* const attempts = Find(shape);
    if (!attempts || attempts->done) return Turn::kNone;
    size_t& attempted = counts_[std::get<0>(shape)].attempted;
    if (!attempts->counted && attempted >= kMostShapes) {
      attempts->done = true;
      reason = "launches of " + std::to_string(kMostShapes) + " other shapes of it were captured";
    } else if (FolderIsFull()) {
      attempts->reason = "too many launches wait to be replayed";
      attempts->launch = launch;
      return Turn::kNone;
    } else {
      if (!attempts->counted) attempted++;
      attempts->counted = true;
      return ++attempts->attempts >= kMostAttempts ? Turn::kLast : Turn::kTake;
    }
  }
  Tell(std::get<0>(shape), launch, reason);
  return Turn::kNone;
}

void CaptureBook::Failed(const LaunchShape& shape, const CapturedLaunchDescription& launch,
                         const std::string& reason, bool last) {
  {
    std::lock_guard lock(mutex_);
    Attempts* const attempts = Find(shape);
    if (!attempts || attempts->done) return;
    attempts->done = last;
    attempts->reason = last ? std::string() : reason;
    attempts->launch = launch;
    if (!last) return;
  }
  Tell(std::get<0>(shape), launch, reason);
}

void CaptureBook::Captured(const LaunchShape& shape, uint64_t capture_id, uint64_t bytes,
                           const CapturedLaunchDescription& launch, bool host_memory) {
  std::lock_guard lock(mutex_);
  if (Attempts* const attempts = Find(shape)) {
    attempts->done = true;
    attempts->reason.clear();
  }
  files_++;
  bytes_ += bytes;
  waiting_[capture_id] = {launch.launch, host_memory};
}

bool CaptureBook::TakeCaptured(uint64_t capture_id, LaunchDescription* launch, bool* host_memory) {
  std::lock_guard lock(mutex_);
  const auto found = waiting_.find(capture_id);
  if (found == waiting_.end()) return false;
  *launch = std::move(found->second.launch);
  *host_memory = found->second.host_memory;
  waiting_.erase(found);
  return true;
}

void CaptureBook::Tell(const KernelKey& kernel, const CapturedLaunchDescription& launch,
                       const std::string& reason) {
  {
    std::lock_guard lock(mutex_);
    if (!told_.emplace(kernel, reason).second) return;
  }
  Send(LaunchNotCapturedEvent{.launch = launch, .reason = reason});
}

void CaptureBook::TellTheRest() {
  struct Untold {
    KernelKey kernel;
    CapturedLaunchDescription launch;
    std::string reason;
  };
  std::vector<Untold> untold;
  {
    std::lock_guard lock(mutex_);
    for (auto& [shape, attempts] : shapes_) {
      if (attempts.reason.empty()) continue;
      untold.push_back({std::get<0>(shape), attempts.launch, attempts.reason});
      attempts.reason.clear();
    }
  }
  for (const Untold& one : untold) Tell(one.kernel, one.launch, one.reason);
}

void CaptureBook::Forget() {
  shapes_.clear();
  counts_.clear();
  waiting_.clear();
}

}  // namespace ops_debug::interposer
