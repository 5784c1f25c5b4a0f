// The session of this process: options from the environment, and the ring, opened when there is
// something to send.
//
// Nothing here is ever destroyed: hooks run until the last instruction of the process. No locks are
// held across a fork: state is published by compare-and-swap, and the loser of a race frees what it
// made.
#include "interposer/session.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <memory>
#include <string_view>

#include "proto/session.h"

namespace ops_debug::interposer {
namespace {

std::string_view Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

std::vector<std::string> SplitAtCommas(std::string_view text) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    if (comma > 0) parts.emplace_back(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return parts;
}

// Leaves `*value` as it is if the variable is unset or no number.
void ReadNumber(const char* name, uint64_t* value) {
  const std::string_view text = Environment(name);
  uint64_t number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  if (parsed.ec == std::errc() && parsed.ptr == text.data() + text.size()) *value = number;
}

SessionOptions ReadEnvironment() {
  SessionOptions options;
  options.ring = Environment(proto::kEnvRing);
  options.active = !options.ring.empty();
  if (!options.active) return options;
  const std::vector<std::string> checks = SplitAtCommas(Environment(proto::kEnvChecks));
  options.check_memory = checks.empty();
  for (const std::string& check : checks) {
    options.check_memory |= check == "memory" || check == "all";
    options.check_races |= check == "race" || check == "all";
    options.check_sync |= check == "sync" || check == "all";
    options.check_init |= check == "init" || check == "all";
    options.check_precision |= check == "precision" || check == "all";
  }
  options.precision_trace = Environment(proto::kEnvPrecisionTrace) == "1";
  options.null_rewrite = Environment(proto::kEnvRewrite) == "null";
  options.trap_on_error = Environment(proto::kEnvOnError) == "trap";
  ReadNumber(proto::kEnvQuarantineBytes, &options.quarantine_bytes);
  options.dump_directory = Environment(proto::kEnvDumpPtx);
  options.emulated = Environment(proto::kEnvEmulator) == "1";
  const std::string_view engine = Environment(proto::kEnvEngine);
  options.use_ptx_engine = engine != "sass";
  options.exact_checks = options.emulated && engine != "ptx" &&
                         (options.check_races || options.check_sync || options.check_init);
  options.use_sass_engine = engine != "ptx" && !options.emulated;
  options.ptx_store = Environment(proto::kEnvPtxStore);
  options.track_tensors = Environment(proto::kEnvTensors) != "0";
  options.kernel_name_pattern = Environment(proto::kEnvKernelName);
  ReadNumber(proto::kEnvLaunchSkip, &options.launch_skip);
  ReadNumber(proto::kEnvLaunchCount, &options.launch_count);
  ReadNumber(proto::kEnvSample, &options.sample);
  options.sample = std::max<uint64_t>(options.sample, 1);
  options.leak_check = Environment(proto::kEnvLeakCheck) == "1";
  options.library = Environment(proto::kEnvLibrary);
  options.replay_folder = Environment(proto::kEnvReplayFolder);
  ReadNumber(proto::kEnvReplayMemory, &options.replay_memory_bytes);
  options.capture_launch = Environment(proto::kEnvCaptureLaunch);
  options.capture_tensors = Environment(proto::kEnvCaptureTensors);
  options.capture_folder = Environment(proto::kEnvCaptureFolder);
  ReadNumber(proto::kEnvCaptureBytes, &options.capture_bytes);
  options.races_in_shared_only = Environment(proto::kEnvRaceMemory) == "shared";
  return options;
}

constinit std::atomic<const SessionOptions*> g_options{nullptr};

// Answers when there is no memory for the real ones. A union, so that nothing destroys it.
union PassiveOptions {
  SessionOptions options;
  constexpr PassiveOptions() : options() {}
  ~PassiveOptions() {}
};
constinit PassiveOptions g_passive;

struct Channel {
  std::unique_ptr<proto::RingProducer>
      ring;  // null: could not be opened. A child of a fork goes on with it.
  std::atomic<bool> consumer_is_slow{false};
};

constinit std::atomic<Channel*> g_channel{nullptr};

Channel& CurrentChannel() {
  Channel* channel = g_channel.load(std::memory_order_acquire);
  if (channel != nullptr) return *channel;
  auto fresh = std::make_unique<Channel>();
  std::string error;
  if (Options().active) fresh->ring = proto::RingProducer::Open(Options().ring.c_str(), &error);
  if (g_channel.compare_exchange_strong(channel, fresh.get(), std::memory_order_acq_rel)) {
    return *fresh.release();
  }
  return *channel;
}

}  // namespace

const SessionOptions& Options() noexcept {
  const SessionOptions* options = g_options.load(std::memory_order_acquire);
  if (options != nullptr) return *options;
  try {
    auto fresh = std::make_unique<SessionOptions>(ReadEnvironment());
    if (g_options.compare_exchange_strong(options, fresh.get(), std::memory_order_acq_rel)) {
      return *fresh.release();
    }
    return *options;
  } catch (...) {
    return g_passive.options;
  }
}

bool ChecksAnything() noexcept {
  const SessionOptions& options = Options();
  return !options.null_rewrite &&
         (options.check_memory || options.check_races || options.check_sync || options.check_init ||
          options.check_precision);
}

bool SessionOpen() noexcept {
  try {
    return Options().active && CurrentChannel().ring != nullptr;
  } catch (...) {
    return false;
  }
}

bool WriteEvent(std::span<const std::byte> event, proto::WhenFull when_full) noexcept {
  try {
    if (!Options().active) return false;
    Channel& channel = CurrentChannel();
    if (channel.ring == nullptr) return false;
    // One wait for a consumer that does not come is enough; from then on do not slow the program
    // down any more.
    if (channel.consumer_is_slow.load(std::memory_order_relaxed))
      when_full = proto::WhenFull::kDrop;
    const bool written = channel.ring->Write(event, when_full);
    channel.consumer_is_slow.store(!written, std::memory_order_relaxed);
    return written;
  } catch (...) {
    return false;
  }
}

// The program may change its environment later; what the launcher said is what stands there now.
// And it may lock itself in (chroot, another user, a limit on open files or memory): the ring is
// mapped while that is still allowed. Processes without a session do nothing at all; in a session,
// every shell and tool pays a fifth of a millisecond for it.
__attribute__((constructor)) static void OpenSessionEarly() {
  if (std::getenv(proto::kEnvRing) != nullptr) SessionOpen();
}

}  // namespace ops_debug::interposer
