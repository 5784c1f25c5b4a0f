// The folder of captured launches of one run (proto/capture.proto). It lives as long as the run.
#pragma once

#include <string>

namespace ops_debug::launcher {

class ReplayFolder {
 public:
  ReplayFolder() = default;
  ~ReplayFolder();  // removed with all that it holds
  ReplayFolder(const ReplayFolder&) = delete;
  ReplayFolder& operator=(const ReplayFolder&) = delete;

  // In `parent`. False, and errno: there is no room for it.
  bool Create(const std::string& parent);
  const std::string& path() const { return path_; }  // empty: none was created

 private:
  std::string path_;
};

// Removes folders from `parent` whose launchers were killed: of this user and this PID namespace.
// Returns how many.
int RemoveDeadReplayFolders(const std::string& parent);

}  // namespace ops_debug::launcher
