// Small files by plain system calls: they work in constructors and while a process exits, and a
// fork leaves no stream half written.
#pragma once

#include <dirent.h>
#include <sys/stat.h>

#include <cstdint>
#include <string>

namespace ops_debug::interposer {

// False if the file is missing, no regular file, or cannot be read.
bool ReadWholeFile(const std::string& path, std::string* bytes);

// Makes or overwrites the file. False: `*error` is an errno.
bool WriteWholeFile(const std::string& path, const std::string& bytes, int* error);

inline int64_t ModifiedAt_ns(const struct stat& status) {
  return int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
}

// Calls `visit(name)` for everything in a folder but "." and "..". Nothing if it cannot be read.
template <class Visit>
void ForEachFile(const std::string& folder, Visit visit) {
  DIR* directory = opendir(folder.c_str());
  if (directory == nullptr) return;
  try {
    while (const dirent* entry = readdir(directory)) {
      const char* name = entry->d_name;
      if (name[0] == '.' && (name[1] == '\0' || (name[1] == '.' && name[2] == '\0'))) continue;
      visit(name);
    }
  } catch (...) {
    closedir(directory);
    throw;
  }
  closedir(directory);
}

}  // namespace ops_debug::interposer
