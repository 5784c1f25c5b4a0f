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

SessionOptions ReadEnvironment() {
  SessionOptions options;
  options.ring = Environment(proto::kEnvRing);
  options.active = !options.ring.empty();
  if (!options.active) return options;
  const std::vector<std::string> checks = SplitAtCommas(Environment(proto::kEnvChecks));
  options.check_memory = checks.empty();
  for (const std::string& check : checks) options.check_memory |= check == "memory";
  options.null_rewrite = Environment(proto::kEnvRewrite) == "null";
  options.trap_on_error = Environment(proto::kEnvOnError) == "trap";
  const std::string_view quarantine = Environment(proto::kEnvQuarantineBytes);
  uint64_t quarantine_bytes = 0;
  const auto parsed =
      std::from_chars(quarantine.data(), quarantine.data() + quarantine.size(), quarantine_bytes);
  if (parsed.ec == std::errc() && parsed.ptr == quarantine.data() + quarantine.size()) {
    options.quarantine_bytes = quarantine_bytes;
  }
  options.kernel_patterns = SplitAtCommas(Environment(proto::kEnvKernels));
  options.dump_directory = Environment(proto::kEnvDumpPtx);
  options.emulated = Environment(proto::kEnvEmulator) == "1";
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
// Processes without a session (every shell and tool that inherits LD_PRELOAD) do nothing at all.
__attribute__((constructor)) static void ReadOptionsEarly() {
  if (std::getenv(proto::kEnvRing) != nullptr) Options();
}

}  // namespace ops_debug::interposer
