// The name says whose folder it is: ops-debug-replay-PID-START-NAMESPACE-XXXXXX, with the start
// time of the launcher's process, since the kernel hands out process ids again.
#include "launcher/replay_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "proto/process_identity.h"

namespace ops_debug::launcher {
namespace {

namespace fs = std::filesystem;

bool IsDead(const fs::path& folder) {
  uint32_t process_id = 0;
  uint64_t start_ticks = 0, pid_namespace = 0;
  int end = 0;
  const std::string name = folder.filename().string();
  const int fields =
      std::sscanf(name.c_str(), "ops-debug-replay-%" SCNu32 "-%" SCNu64 "-%" SCNu64 "-%n",
                  &process_id, &start_ticks, &pid_namespace, &end);
  if (fields != 3 || end == 0 || pid_namespace != proto::PidNamespace()) return false;
  struct stat status {};
  if (lstat(folder.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) return false;
  return status.st_uid == geteuid() && !proto::ProcessRuns(process_id, start_ticks);
}

}  // namespace

ReplayFolder::~ReplayFolder() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

bool ReplayFolder::Create(const std::string& parent) {
  const auto self = static_cast<uint32_t>(getpid());
  std::string path = parent + "/ops-debug-replay-" + std::to_string(self) + '-' +
                     std::to_string(proto::ProcessStartTicks(self)) + '-' +
                     std::to_string(proto::PidNamespace()) + "-XXXXXX";
  if (mkdtemp(path.data()) == nullptr) return false;
  path_ = path;
  return true;
}

int RemoveDeadReplayFolders(const std::string& parent) {
  std::error_code error;
  int removed = 0;
  for (fs::directory_iterator entry(parent, error), end; !error && entry != end;
       entry.increment(error)) {
    if (!IsDead(entry->path())) continue;
    std::error_code ignored;
    if (fs::remove_all(entry->path(), ignored) != static_cast<std::uintmax_t>(-1)) ++removed;
  }
  return removed;
}

}  // namespace ops_debug::launcher
