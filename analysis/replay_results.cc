// Launches are matched by their order: the replayer submits those of the capture and no other, so
// its launch number n is the n-th of the capture (replay_results.h).
#include "analysis/replay_results.h"

#include <fcntl.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl.h>
#include <google/protobuf/wire_format_lite.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>

#include "proto/capture.pb.h"
#include "proto/log.h"

namespace ops_debug::analysis {
namespace {

// Null: no launch of the capture.
const proto::CapturedLaunch* Original(const proto::LaunchCaptured& captured,
                                      const proto::Launch& replayed) {
  const uint64_t number = replayed.launch_id();
  if (number == 0 || number > static_cast<uint64_t>(captured.launches_size())) return nullptr;
  const proto::CapturedLaunch& launch = captured.launches(static_cast<int>(number - 1));
  return launch.launch().kernel() == replayed.kernel() ? &launch : nullptr;
}

bool TranslateSide(const proto::LaunchCaptured& captured, proto::Access& side) {
  const proto::CapturedLaunch* original = Original(captured, side.launch());
  if (original == nullptr || !side.operation().empty()) return false;
  *side.mutable_launch() = original->launch();
  side.clear_stream();  // the replayer's
  return true;
}

// The innermost of the program's allocations around an address, in place of the replayer's own.
// Addresses of shared and local memory are offsets.
template <class Message>
void TranslateAllocation(const proto::LaunchCaptured& captured, bool is_global, Message& message) {
  const uint64_t address = message.address();
  const proto::Allocation* best = nullptr;
  for (const proto::Allocation& allocation : captured.allocations()) {
    const bool holds =
        address >= allocation.address() && address - allocation.address() < allocation.size_bytes();
    if (holds && (best == nullptr || allocation.size_bytes() < best->size_bytes())) {
      best = &allocation;
    }
  }
  message.clear_allocation();
  if (is_global && best != nullptr) *message.mutable_allocation() = *best;
}

struct Account {
  uint64_t launches = 0, checked = 0, lost = 0;
  std::string not_checked_reason, error;
};

void AddToAccount(const proto::Event& event, Account& account) {
  if (event.has_launch_summary()) {
    const proto::LaunchSummary& summary = event.launch_summary();
    account.launches += summary.launches();
    account.checked += summary.checked_launches();
    if (account.not_checked_reason.empty()) {
      account.not_checked_reason = summary.not_checked_reason();
    }
  } else if (event.has_lost_events()) {
    account.lost += event.lost_events().count();
  } else if (event.has_diagnostic() && account.error.empty() &&
             event.diagnostic().severity() == proto::Diagnostic::SEVERITY_ERROR) {
    account.error = event.diagnostic().text();
  }
}

ReplayEnding EndingOf(const std::string& word) {
  if (word == "complete") return ReplayEnding::kComplete;
  if (word == "deadlock") return ReplayEnding::kDeadlock;
  if (word == "spins") return ReplayEnding::kSpins;
  return ReplayEnding::kFailed;
}

void ReadResultFile(const std::string& capture_file, const std::string& what_happened,
                    ReplayResult& result) {
  std::ifstream file(capture_file + ".result");
  std::string word;
  if (!std::getline(file, word)) {
    result.reason = what_happened;
    return;
  }
  result.ending = EndingOf(word);
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) result.reason += (result.reason.empty() ? "" : "; ") + line;
  }
  if (result.reason.empty()) result.reason = "its replay ended as \"" + word + '"';
}

}  // namespace

bool TranslateReplayed(const proto::LaunchCaptured& captured, proto::Event& event) {
  switch (event.body_case()) {
    case proto::Event::kRace: {
      proto::Race& race = *event.mutable_race();
      const proto::CapturedLaunch* second = Original(captured, race.second().launch());
      if (second == nullptr) return false;
      if (!TranslateSide(captured, *race.mutable_first())) return false;
      if (!TranslateSide(captured, *race.mutable_second())) return false;
      const bool is_global = race.has_allocation() || race.space() == proto::ADDRESS_SPACE_GLOBAL;
      TranslateAllocation(captured, is_global, race);
      race.set_module_id(second->module_id());
      race.set_engine("replay");
      return true;
    }
    case proto::Event::kUninitialisedRead: {
      proto::UninitialisedRead& read = *event.mutable_uninitialised_read();
      const proto::CapturedLaunch* original = Original(captured, read.launch());
      if (original == nullptr) return false;
      *read.mutable_launch() = original->launch();
      const bool is_global =
          read.has_allocation() || read.site().space() == proto::ADDRESS_SPACE_GLOBAL;
      TranslateAllocation(captured, is_global, read);
      read.set_module_id(original->module_id());
      read.set_engine("replay");
      return true;
    }
    case proto::Event::kSyncFault: {
      proto::SyncFault& fault = *event.mutable_sync_fault();
      const proto::CapturedLaunch* original = Original(captured, fault.launch());
      if (original == nullptr) return false;
      *fault.mutable_launch() = original->launch();
      fault.set_module_id(original->module_id());
      fault.set_engine("replay");
      return true;
    }
    default:
      return false;
  }
}

ReplayResult ReadReplay(const std::string& capture_file, const std::string& log_file,
                        uint32_t process_id, const proto::LaunchCaptured& captured,
                        const std::string& what_happened) {
  ReplayResult result;
  ReadResultFile(capture_file, what_happened, result);
  const auto fail = [&result](const std::string& reason) {
    if (result.ending != ReplayEnding::kFailed) result.reason = reason;
    result.ending = ReplayEnding::kFailed;
  };
  auto reader = proto::LogReader::Open(log_file);
  if (!reader.ok()) {
    fail("the log of its replay is missing: " + std::string(reader.status().message()));
    return result;
  }
  Account account;
  std::vector<std::byte> message;
  while ((*reader)->Next(&message)) {
    proto::Event event;
    if (!event.ParseFromArray(message.data(), static_cast<int>(message.size()))) {
      ++account.lost;
      continue;
    }
    AddToAccount(event, account);
    if (!TranslateReplayed(captured, event)) continue;
    event.set_process_id(process_id);
    const bool deadlock =
        event.has_sync_fault() && event.sync_fault().kind() == proto::SyncFault::KIND_DEADLOCK;
    (deadlock && result.ending == ReplayEnding::kSpins ? result.deadlocks : result.events)
        .push_back(std::move(event));
  }
  // A replay that was not watched says nothing by its silence.
  if (!(*reader)->damage().empty()) {
    fail("the log of its replay is damaged: " + (*reader)->damage().front());
  } else if (account.lost > 0) {
    fail(std::to_string(account.lost) + " events of its replay were lost");
  } else if (!account.error.empty()) {
    fail("its replay could not be checked: " + account.error);
  } else if (result.ending == ReplayEnding::kComplete &&
             account.checked < static_cast<uint64_t>(captured.launches_size())) {
    fail("the CPU device could not check it" +
         (account.not_checked_reason.empty() ? std::string() : ": " + account.not_checked_reason));
  }
  return result;
}

std::string ReadCaptureModel(const std::string& capture_file) {
  const int file = open(capture_file.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return "";
  google::protobuf::io::FileInputStream stream(file);
  stream.SetCloseOnDelete(true);
  google::protobuf::io::CodedInputStream input(&stream);
  using google::protobuf::internal::WireFormatLite;
  // The rest of the file may be large; only field headers are looked at.
  while (const uint32_t tag = input.ReadTag()) {
    if (WireFormatLite::GetTagFieldNumber(tag) == proto::Capture::kModelFieldNumber) {
      std::string model;
      uint32_t size = 0;
      constexpr uint32_t kLongest = 256;
      if (!input.ReadVarint32(&size) || size > kLongest || !input.ReadString(&model, size)) {
        return "";
      }
      return model;
    }
    if (!WireFormatLite::SkipField(&input, tag)) return "";
  }
  return "";
}

}  // namespace ops_debug::analysis
