// Says each line once. Written with one write(2), so lines of several threads do not mix.
#include "emulator/driver/messages.h"

#include <unistd.h>

#include <mutex>
#include <string>
#include <unordered_set>

namespace ops_debug::emulator {

void Say(std::string_view message) noexcept {
  try {
    // Both outlive the process's static destructors: programs call the driver from atexit handlers.
    static std::mutex& mutex = *new std::mutex;
    static std::unordered_set<std::string>& said = *new std::unordered_set<std::string>;
    const std::lock_guard<std::mutex> lock(mutex);
    if (!said.emplace(message).second) return;
    std::string line = "ops-debug emulator: ";
    line += message;
    line += '\n';
    const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
    static_cast<void>(written);  // nobody is left to tell
  } catch (...) {
    // Out of memory: the caller's error code still tells the story.
  }
}

}  // namespace ops_debug::emulator
