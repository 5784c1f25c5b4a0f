// A program started with descriptor 0, 1 or 2 closed gets those numbers for its own files, and then
// prints into them. Called first in main() of our programs; a program that they start finds the
// descriptors closed again, as without us.
#pragma once

#include <fcntl.h>
#include <unistd.h>

namespace ops_debug::proto {

inline void OccupyStandardStreams() {
  int fd = -1;
  do {
    fd = open("/dev/null", O_RDWR | O_CLOEXEC);
  } while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd >= 0) close(fd);
}

}  // namespace ops_debug::proto
