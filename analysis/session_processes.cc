// proc(5): /proc/PID/stat, /proc/PID/environ, /proc/loadavg (session_processes.h).
#include "analysis/session_processes.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "proto/session.h"

namespace ops_debug::analysis {
namespace {

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

}  // namespace

bool IsRunning(uint32_t process_id) {
  const std::string text = ReadFile("/proc/" + std::to_string(process_id) + "/stat");
  // "77 (name) S ...", and the name may hold anything.
  const size_t name_end = text.rfind(") ");
  return name_end != std::string::npos && text.size() > name_end + 2 &&
         std::strchr("ZX", text[name_end + 2]) == nullptr;
}

std::vector<SessionProcess> FindSessionProcesses(const std::string& ring_name) {
  std::vector<SessionProcess> processes;
  const std::string wanted = std::string(proto::kEnvRing) + '=' + ring_name;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const std::string number = entry.path().filename().string();
    uint32_t process_id = 0;
    const auto parsed = std::from_chars(number.data(), number.data() + number.size(), process_id);
    if (parsed.ec != std::errc() || parsed.ptr != number.data() + number.size()) continue;
    if (process_id == static_cast<uint32_t>(getpid())) continue;
    // Entries end with a zero byte; the first has none in front.
    const std::string environment = '\0' + ReadFile(entry.path().string() + "/environ");
    if (environment.find('\0' + wanted + '\0') == std::string::npos) continue;
    if (!IsRunning(process_id)) continue;
    std::string name = ReadFile(entry.path().string() + "/comm");
    name.resize(std::strcspn(name.c_str(), "\n"));
    processes.push_back({process_id, name});
  }
  return processes;
}

std::string LastProcessId() {
  std::string text = ReadFile("/proc/loadavg");
  text.resize(std::min(text.size(), text.find_last_not_of('\n') + 1));
  const size_t blank = text.rfind(' ');
  return blank == std::string::npos ? "" : text.substr(blank + 1);
}

}  // namespace ops_debug::analysis
