// Runs a program under the preloaded library and collects its output, exit status and events.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "proto/events.pb.h"
#include "proto/ring.h"

namespace ops_debug::interposer {

struct Run {
  std::string output;
  int exit_status = -1;
  std::vector<proto::Event> events;

  std::vector<proto::Event> Of(proto::Event::BodyCase kind) const {
    std::vector<proto::Event> found;
    for (const proto::Event& event : events) {
      if (event.body_case() == kind) found.push_back(event);
    }
    return found;
  }
  bool HasDiagnostic(const std::string& part) const {
    for (const proto::Event& event : events) {
      if (event.has_diagnostic() && event.diagnostic().text().find(part) != std::string::npos)
        return true;
    }
    return false;
  }
};

inline std::vector<proto::Event> ReadAll(proto::RingConsumer& ring) {
  std::vector<proto::Event> events;
  std::vector<std::byte> message;
  while (ring.Read(&message)) {
    proto::Event event;
    if (event.ParseFromArray(message.data(), static_cast<int>(message.size())))
      events.push_back(event);
  }
  return events;
}

inline std::string UniqueRingName() {
  static int counter = 0;
  return "/ops_debug_hooks_test_" + std::to_string(getpid()) + "_" + std::to_string(++counter);
}

// `command` is a program and its arguments; `preload` follows the interposer in LD_PRELOAD; no ring
// if `session` is false.
inline Run RunUnder(const std::string& interposer, const std::string& command,
                    const std::string& library_path, const std::string& preload = "",
                    bool session = true, const std::string& more_environment = "") {
  Run run;
  std::string error;
  const std::string name = UniqueRingName();
  auto ring = proto::RingConsumer::Create(name.c_str(), 1 << 20, &error);
  if (ring == nullptr) {
    run.output = "no ring: " + error;
    return run;
  }
  std::string line = "LD_LIBRARY_PATH=" + library_path + " LD_PRELOAD=" + interposer;
  if (!preload.empty()) line += ":" + preload;
  if (session) line += " OPS_DEBUG_RING=" + name;
  line += " " + more_environment + " " + command + " 2>&1";
  FILE* pipe = popen(line.c_str(), "r");
  char buffer[4096];
  while (size_t count = std::fread(buffer, 1, sizeof(buffer), pipe))
    run.output.append(buffer, count);
  const int status = pclose(pipe);
  run.exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  run.events = ReadAll(*ring);
  return run;
}

}  // namespace ops_debug::interposer
