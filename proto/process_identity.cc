// Reads /proc/PID/stat. The command name in field 2 may hold spaces and parentheses, so fields are
// counted from the last ')'.
#include "proto/process_identity.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

namespace ops_debug::proto {
namespace {

struct ProcessStat {
  char state = 0;
  uint64_t threads = 0;
  uint64_t start_ticks = 0;
};

bool ReadProcessStat(uint32_t process_id, ProcessStat* stat) {
  char path[32];
  snprintf(path, sizeof(path), "/proc/%u/stat", process_id);
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  char text[1024];
  ssize_t size = 0;
  do {
    size = read(fd, text, sizeof(text) - 1);
  } while (size < 0 && errno == EINTR);
  close(fd);
  if (size <= 0) return false;
  text[size] = '\0';
  const char* field = strrchr(text, ')');
  if (field == nullptr || field[1] != ' ') return false;
  ++field;
  constexpr int kState = 3, kThreads = 20, kStart = 22;
  for (int number = kState; number <= kStart; ++number) {
    field = strchr(field, ' ');
    if (field == nullptr) return false;
    ++field;
    if (number == kState) stat->state = *field;
    if (number == kThreads) stat->threads = strtoull(field, nullptr, 10);
    if (number == kStart) stat->start_ticks = strtoull(field, nullptr, 10);
  }
  return true;
}

}  // namespace

uint64_t ProcessStartTicks(uint32_t process_id) {
  ProcessStat stat;
  return ReadProcessStat(process_id, &stat) ? stat.start_ticks : 0;
}

bool ProcessRuns(uint32_t process_id, uint64_t start_ticks, uint64_t start_ticks_mask) {
  ProcessStat stat;
  if (!ReadProcessStat(process_id, &stat)) {
    // A /proc mounted with hidepid shows nothing; the kernel still tells whether the number is in
    // use.
    return !(kill(static_cast<pid_t>(process_id), 0) != 0 && errno == ESRCH);
  }
  if (stat.state == 'X') return false;
  // A leader that called pthread_exit is a zombie too, but its process has more threads.
  if (stat.state == 'Z' && stat.threads <= 1) return false;
  return ((stat.start_ticks ^ start_ticks) & start_ticks_mask) == 0;
}

uint64_t PidNamespace() {
  struct stat status;
  return stat("/proc/self/ns/pid", &status) == 0 ? static_cast<uint64_t>(status.st_ino) : 0;
}

}  // namespace ops_debug::proto
