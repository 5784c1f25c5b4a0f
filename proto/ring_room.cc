// Tries places from the best to the worst (ring_room.h). A file-size limit (ulimit -f) holds for
// every kind of shared memory, so size is the last thing to give way.
#include "proto/ring_room.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "proto/process_identity.h"
#include "proto/ring_layout.h"

namespace ops_debug::proto {
namespace {

constexpr size_t kSmallestRing_bytes = 32 << 10;
constexpr char kNamePrefix[] = "ops-debug-";

std::string Size(size_t bytes) {
  return bytes >= 1 << 20 ? std::to_string(bytes >> 20) + " MiB"
                          : std::to_string(bytes >> 10) + " KiB";
}

// Process id in "ops-debug-PID-..."; 0: no name of ours.
uint32_t LauncherIn(const char* name) {
  if (std::strncmp(name, kNamePrefix, sizeof(kNamePrefix) - 1) != 0) return 0;
  char* end = nullptr;
  const unsigned long number = std::strtoul(name + sizeof(kNamePrefix) - 1, &end, 10);
  return *end == '-' && number <= UINT32_MAX ? static_cast<uint32_t>(number) : 0;
}

bool Exists(uint32_t process_id) { return ProcessStartTicks(process_id) != 0; }

// Reads, never maps: whoever made the file may still shorten it.
bool IsDead(int folder, const char* name) {
  const int file = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) return false;
  struct stat status {};
  alignas(RingHeader) std::byte bytes[sizeof(RingHeader)] = {};
  const bool ours = fstat(file, &status) == 0 && S_ISREG(status.st_mode) &&
                    status.st_uid == geteuid() &&
                    pread(file, bytes, sizeof(bytes), 0) == static_cast<ssize_t>(sizeof(bytes));
  close(file);
  if (!ours) return false;
  const auto& header = *reinterpret_cast<const RingHeader*>(bytes);
  return header.magic.load() == kRingMagic && header.pid_namespace == PidNamespace() &&
         !ProcessRuns(header.consumer_process_id, header.consumer_start_ticks);
}

}  // namespace

std::unique_ptr<RingConsumer> CreateRingWhereRoom(const std::string& name, size_t capacity_bytes,
                                                  std::string* note, std::string* error) {
  std::string first_error;
  for (size_t capacity = capacity_bytes; capacity >= kSmallestRing_bytes; capacity /= 4) {
    auto ring = RingConsumer::Create(name.c_str(), capacity, error);
    if (first_error.empty()) first_error = *error;
    // What happened; the advice behind it is for runs that fail.
    const std::string happened = first_error.substr(0, first_error.find("; "));
    const std::string less = "the event ring has " + Size(capacity) + " instead of " +
                             Size(capacity_bytes) + ", so events may be lost (they are counted): ";
    if (ring != nullptr) {
      if (capacity < capacity_bytes) *note = less + happened;
      return ring;
    }
    std::string nameless_error;
    ring = RingConsumer::CreateNameless(capacity, &nameless_error);
    if (ring != nullptr) {
      *note = capacity < capacity_bytes ? less + happened
                                        : "the event ring is in nameless memory: " + happened;
      return ring;
    }
  }
  *error = first_error;
  return nullptr;
}

int RemoveDeadRings(const std::string& folder) {
  DIR* list = opendir(folder.c_str());
  if (list == nullptr) return 0;
  int removed = 0;
  while (const dirent* entry = readdir(list)) {
    const uint32_t launcher = LauncherIn(entry->d_name);
    if (launcher == 0 || Exists(launcher) || !IsDead(dirfd(list), entry->d_name)) continue;
    if (unlinkat(dirfd(list), entry->d_name, 0) == 0) ++removed;
  }
  closedir(list);
  return removed;
}

}  // namespace ops_debug::proto
