#include "launcher/last_captures.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "proto/state_folder.h"

namespace ops_debug::launcher {

void NoteCapture(const std::string& folder) {
  const std::string state = proto::StateFolder();
  if (state.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(state, error);
  const std::string path = state + proto::kLastCapturesFile;
  std::string before;
  std::getline(std::ifstream(path, std::ios::binary), before);
  if (before == folder) before.clear();  // it was emptied and is filled anew
  // Whole or not there, also if two runs end at once.
  const std::string partial = path + ".partial-" + std::to_string(getpid());
  std::ofstream(partial, std::ios::binary) << folder << '\n' << before << '\n';
  std::filesystem::rename(partial, path, error);
}

}  // namespace ops_debug::launcher
