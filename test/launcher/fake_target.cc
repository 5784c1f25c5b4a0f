// Sends the events that its arguments name, in order, through the ring that the launcher announced:
//
//   start  end  launches:N:CHECKED  fault  race:benign  error:TEXT  many:N  print:TEXT  env:NAME
//   read:BYTES:ADDRESS  deadlock  capture:ID:CONTENTS  not-captured:REASON  stuck:ID:alone  timeout
//   ready  sleep:SECONDS  wait  stubborn  exit:N  signal:N
//
// "ready" prints a line and flushes it; "wait" sleeps until a signal comes; on SIGTERM it exits
// with 9, "stubborn" does not. All launches are launch 1 of one kernel. "capture" writes a file to
// the folder for captured launches and announces it.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "proto/events.pb.h"
#include "proto/ring.h"
#include "proto/session.h"

namespace {

namespace proto = ops_debug::proto;

std::vector<std::string> Split(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ':');) parts.push_back(part);
  return parts;
}

class FakeTarget {
 public:
  explicit FakeTarget(proto::RingProducer* ring) : ring_(ring) {}

  void Do(const std::string& word) {
    std::vector<std::string> parts = Split(word);
    parts.resize(3);
    proto::Event event;
    if (parts[0] == "start") {
      event.mutable_process_start()->set_executable("/bin/fake_target");
      event.mutable_process_start()->set_device_name("fake device");
    } else if (parts[0] == "end") {
      event.mutable_process_end()->set_orderly(true);
    } else if (parts[0] == "launches") {
      event.mutable_launch_summary()->set_kernel("_Z1kPf");
      event.mutable_launch_summary()->set_launches(std::stoull(parts[1]));
      event.mutable_launch_summary()->set_checked_launches(std::stoull(parts[2]));
    } else if (parts[0] == "fault") {
      proto::Fault* fault = event.mutable_fault();
      fault->set_fault_class(proto::FAULT_CLASS_WILD_ADDRESS);
      fault->mutable_launch()->set_kernel("_Z1kPf");
      fault->mutable_launch()->set_launch_id(1);
      fault->set_count(3);
    } else if (parts[0] == "race") {
      proto::Race* race = event.mutable_race();
      race->set_kind(proto::Race::KIND_GLOBAL);
      race->set_same_value(parts[1] == "benign");
      race->set_unproven(parts[1] == "unproven");
      *race->mutable_first()->mutable_launch() = ALaunch();
      *race->mutable_second()->mutable_launch() = ALaunch();
    } else if (parts[0] == "read") {
      proto::UninitialisedRead* read = event.mutable_uninitialised_read();
      *read->mutable_launch() = ALaunch();
      read->mutable_site()->set_space(proto::ADDRESS_SPACE_GLOBAL);
      read->set_bytes(static_cast<uint32_t>(std::stoul(parts[1])));
      read->set_address(std::stoull(parts[2], nullptr, 16));
    } else if (parts[0] == "deadlock") {
      event.mutable_sync_fault()->set_kind(proto::SyncFault::KIND_DEADLOCK);
      *event.mutable_sync_fault()->mutable_launch() = ALaunch();
    } else if (parts[0] == "capture") {
      Capture(parts, event.mutable_launch_captured());
    } else if (parts[0] == "not-captured") {
      *event.mutable_launch_not_captured()->mutable_launch() = ACapturedLaunch();
      event.mutable_launch_not_captured()->set_reason(parts[1]);
    } else if (parts[0] == "stuck") {
      *event.mutable_launch_stuck()->mutable_launch() = ALaunch();
      event.mutable_launch_stuck()->set_capture_id(std::stoull(parts[1]));
      event.mutable_launch_stuck()->set_running_ns(5'000'000'000);
      event.mutable_launch_stuck()->set_alone(parts[2] == "alone");
    } else if (parts[0] == "timeout") {
      event.mutable_call_failed()->set_api("cuStreamSynchronize");
      event.mutable_call_failed()->set_error("CUDA_ERROR_LAUNCH_TIMEOUT");
    } else if (parts[0] == "error") {
      event.mutable_diagnostic()->set_severity(proto::Diagnostic::SEVERITY_ERROR);
      event.mutable_diagnostic()->set_text(parts[1]);
    } else if (parts[0] == "many") {
      for (long i = std::stol(parts[1]); i > 0; --i) Do("launches:1:1");
      return;
    } else {
      DoWithoutEvent(parts);
      return;
    }
    event.set_process_id(static_cast<uint32_t>(getpid()));
    const std::string bytes = event.SerializeAsString();
    if (ring_ != nullptr) {
      ring_->Write(std::as_bytes(std::span(bytes.data(), bytes.size())), proto::WhenFull::kWait);
    }
  }

 private:
  static proto::Launch ALaunch() {
    proto::Launch launch;
    launch.set_launch_id(1);
    launch.set_kernel("_Z1kPf");
    launch.mutable_grid()->set_x(2);
    launch.mutable_block()->set_x(64);
    return launch;
  }
  static proto::CapturedLaunch ACapturedLaunch() {
    proto::CapturedLaunch launch;
    *launch.mutable_launch() = ALaunch();
    launch.add_undecided("cp.async: whether its data has arrived");
    return launch;
  }
  static void Capture(const std::vector<std::string>& parts, proto::LaunchCaptured* captured) {
    const char* folder = std::getenv(proto::kEnvReplayFolder);
    const std::string file = std::string(folder != nullptr ? folder : ".") + "/capture." + parts[1];
    std::ofstream(file) << parts[2];
    captured->set_capture_id(std::stoull(parts[1]));
    captured->set_file(file);
    *captured->add_launches() = ACapturedLaunch();
    proto::Allocation* allocation = captured->add_allocations();
    allocation->set_id(7);
    allocation->set_address(0x1000);
    allocation->set_size_bytes(256);
    allocation->set_api("cuMemAlloc");
  }

  static void DoWithoutEvent(const std::vector<std::string>& parts) {
    if (parts[0] == "print") std::puts(parts[1].c_str());
    if (parts[0] == "ready") std::puts("ready");
    if (parts[0] == "env") {
      const char* value = std::getenv(parts[1].c_str());
      std::printf("%s=%s\n", parts[1].c_str(), value != nullptr ? value : "(unset)");
    }
    std::fflush(stdout);
    if (parts[0] == "sleep") sleep(static_cast<unsigned>(std::stoul(parts[1])));
    if (parts[0] == "wait" || parts[0] == "stubborn") {
      signal(SIGTERM, parts[0] == "wait" ? [](int) { _exit(9); } : SIG_IGN);
      while (true) pause();
    }
    if (parts[0] == "exit") _exit(std::stoi(parts[1]));
    if (parts[0] == "signal") raise(std::stoi(parts[1]));
  }

  proto::RingProducer* ring_;
};

}  // namespace

int main(int argc, char** argv) {
  std::string error;
  std::unique_ptr<proto::RingProducer> ring;
  if (const char* name = std::getenv(proto::kEnvRing))
    ring = proto::RingProducer::Open(name, &error);
  if (!error.empty()) std::fprintf(stderr, "fake_target: %s\n", error.c_str());
  FakeTarget target(ring.get());
  for (int i = 1; i < argc; ++i) target.Do(argv[i]);
  return 0;
}
