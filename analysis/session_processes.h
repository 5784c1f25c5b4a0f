// Which processes of a run still exist. The analyzer knows those that announced themselves; others
// (a daemon that has not begun yet, a child that will never use CUDA) are known by the environment
// they were started with, which the kernel shows to their user: it names the run's event ring.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ops_debug::analysis {

struct SessionProcess {
  uint32_t process_id = 0;
  std::string name;  // as the kernel knows it
};

// Whether the process still runs; one that waits for its parent to fetch its exit code does not.
bool IsRunning(uint32_t process_id);

// All running processes whose environment names this ring, but the caller. One look at a table that
// changes meanwhile: a process that forks and ends during it can hide behind its own child.
std::vector<SessionProcess> FindSessionProcesses(const std::string& ring_name);

// The process or thread id that was given out last (proc(5): /proc/loadavg); empty: not known.
// While it stays the same, nothing was forked.
std::string LastProcessId();

}  // namespace ops_debug::analysis
