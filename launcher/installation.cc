// /proc/self/exe names this program through every link.
#include "launcher/installation.h"

#include <filesystem>

namespace ops_debug::launcher {

Installation FindInstallation() {
  std::error_code error;
  const std::string directory =
      std::filesystem::read_symlink("/proc/self/exe", error).parent_path().string();
  return {directory,
          directory + "/ops-debug-analyzer",
          directory + "/ops-debug-runner",
          directory + "/lib/libops_debug_interposer.so",
          directory + "/emulator",
          directory + "/python",
          directory + "/suppressions.yaml",
          directory + "/ops-debug",
          directory + "/ops-debug-replayer",
          directory + "/ops-debug-compare"};
}

}  // namespace ops_debug::launcher
