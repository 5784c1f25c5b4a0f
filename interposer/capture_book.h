// Which launches have been captured and which not, and why: the first launch of each shape of a
// kernel, a few shapes of each kernel, and as many files as may wait to be replayed. An attempt
// that failed may succeed at the next launch of its shape, so reasons are told when no more
// attempts are made, or when the process ends. Thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "interposer/event_sender.h"

namespace ops_debug::interposer {

struct KernelRecord;

// Module and kernel: the numbers of modules are not used twice, records are.
using KernelKey = std::pair<uint64_t, const KernelRecord*>;
// Kernel, geometry (grid, block, cluster, dynamic shared memory), kernel that it may overlap with.
using LaunchShape = std::tuple<KernelKey, std::array<uint32_t, 10>, KernelKey>;

class CaptureBook {
 public:
  enum class Turn : uint8_t {
    kNone,  // no attempt is made (any more)
    kTake,  // one is made
    kLast,  // one is made, and no other
  };

  // True if there is nothing to do for launches of this shape.
  bool IsDone(const LaunchShape& shape);
  // True if the memory of this launch is to be searched for unwritten bytes.
  bool TakeProbe(const LaunchShape& shape);
  // Asks for an attempt. On kNone a reason was told if there was one.
  Turn TakeTurn(const LaunchShape& shape, const CapturedLaunchDescription& launch);

  // An attempt was made or could not be made. `last`: there will be no other.
  void Failed(const LaunchShape& shape, const CapturedLaunchDescription& launch,
              const std::string& reason, bool last);
  // The launch is in a file; remembered until the driver has it.
  void Captured(const LaunchShape& shape, uint64_t capture_id, uint64_t bytes,
                const CapturedLaunchDescription& launch, bool host_memory);
  // False: not known (any more).
  bool TakeCaptured(uint64_t capture_id, LaunchDescription* launch, bool* host_memory);

  // Tells why shapes were not captured that are waiting for another attempt.
  void TellTheRest();
  // In the child of a fork.
  void Forget();

 private:
  struct Attempts {
    bool done = false;      // captured, or given up
    bool counted = false;   // among the shapes of its kernel
    bool searched = false;  // for unwritten bytes, often enough
    int attempts = 0;
    int probes = 0;
    std::string reason;  // why the last one failed, until it is told
    CapturedLaunchDescription launch;
  };
  struct Waiting {
    LaunchDescription launch;
    bool host_memory = false;
  };

  // Null: of this kernel no more shapes are looked at. With the lock held.
  Attempts* Find(const LaunchShape& shape);
  bool FolderIsFull();
  // Each reason once per kernel.
  void Tell(const KernelKey& kernel, const CapturedLaunchDescription& launch,
            const std::string& reason);

  std::mutex mutex_;
  std::map<LaunchShape, Attempts> shapes_;
  struct Counts {
    size_t seen = 0, attempted = 0;
  };
  std::map<KernelKey, Counts> counts_;
  std::set<std::pair<KernelKey, std::string>> told_;
  std::unordered_map<uint64_t, Waiting> waiting_;
  uint64_t files_ = 0, bytes_ = 0;  // in the folder, as far as known: others take them away
};

}  // namespace ops_debug::interposer
