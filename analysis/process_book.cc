// Numbers for processes, and the words about how they ended (process_book.h).
#include "analysis/process_book.h"

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstring>
#include <tuple>

namespace ops_debug::analysis {
namespace {

std::string BaseName(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// Ranks are numbers; one that is none comes last.
uint64_t RankNumber(const std::string& rank) {
  uint64_t number = 0;
  const auto parsed = std::from_chars(rank.data(), rank.data() + rank.size(), number);
  const bool whole = parsed.ec == std::errc() && parsed.ptr == rank.data() + rank.size();
  return whole ? number : UINT64_MAX;
}

std::string SignalName(uint32_t signal) {
  const char* name = signal < NSIG ? sigabbrev_np(static_cast<int>(signal)) : nullptr;
  return name != nullptr ? std::string("SIG") + name : "signal " + std::to_string(signal);
}

// "process 77 (./worker, rank 1)".
std::string FullName(const ProcessInfo& process) {
  std::string text = "process " + std::to_string(process.process_id) + " (" + process.executable;
  if (!process.rank.empty()) text += ", rank " + process.rank;
  return text + ')';
}

}  // namespace

std::string ProcessName(const ProcessInfo& process) {
  if (!process.rank.empty()) return "rank " + process.rank;
  return "process " + std::to_string(process.process_id) + " (" + BaseName(process.executable) +
         ')';
}

void ProcessBook::NextRecording() {
  ++recording_;
  current_.clear();
}

uint32_t ProcessBook::NewNumber(uint32_t process_id) {
  const uint32_t number = process_ids_.contains(process_id) ? next_number_++ : process_id;
  process_ids_[number] = process_id;
  return number;
}

uint32_t ProcessBook::NumberOf(uint32_t process_id) {
  const auto found = current_.find(process_id);
  if (found != current_.end()) return found->second.number;
  return (current_[process_id] = {NewNumber(process_id), false}).number;
}

void ProcessBook::Add(uint32_t process_id, const proto::ProcessStart& start) {
  Current& current = current_[process_id];
  if (current.number == 0 || current.announced) {  // a new process, or a new program in an old one
    current.number = NewNumber(process_id);
  }
  current.announced = true;
  Entry& entry = infos_[current.number];
  order_.push_back(current.number);
  ProcessInfo& info = entry.info;
  info.process_id = process_id;
  info.executable = start.executable();
  info.arguments.assign(start.arguments().begin(), start.arguments().end());
  info.device_name = start.device_name();
  info.driver_version = start.driver_version();
  info.emulated = start.emulated();
  info.rank = start.rank();
  info.local_rank = start.local_rank();
  info.world_size = start.world_size();
  info.injected = start.injected();
  info.checks.assign(start.checks().begin(), start.checks().end());
}

void ProcessBook::Add(uint32_t process_id, const proto::ProcessEnd& end) {
  const auto found = infos_.find(NumberOf(process_id));
  if (found == infos_.end()) return;
  found->second.running = end.still_running();
  found->second.info.ended = end.orderly();
  found->second.info.signal = end.signal();
}

void ProcessBook::AddLaunches(uint32_t process_id, uint64_t launches) {
  const auto found = infos_.find(NumberOf(process_id));
  if (found != infos_.end()) found->second.launches += launches;
}

std::vector<uint32_t> ProcessBook::Open() const {
  std::vector<uint32_t> open;
  for (const auto& [process_id, current] : current_) {
    const auto found = infos_.find(current.number);
    if (found == infos_.end()) continue;
    const ProcessInfo& info = found->second.info;
    if (!info.ended && info.signal == 0) open.push_back(process_id);
  }
  return open;
}

const ProcessInfo* ProcessBook::Find(uint32_t number) const {
  const auto found = infos_.find(number);
  return found == infos_.end() ? nullptr : &found->second.info;
}

uint32_t ProcessBook::ProcessIdOf(uint32_t number) const {
  const auto found = process_ids_.find(number);
  return found == process_ids_.end() ? number : found->second;
}

std::vector<ProcessInfo> ProcessBook::Finish() const {
  std::vector<ProcessInfo> processes;
  for (const uint32_t number : order_) processes.push_back(infos_.at(number).info);
  std::stable_sort(processes.begin(), processes.end(),
                   [](const ProcessInfo& a, const ProcessInfo& b) {
                     return RankNumber(a.rank) < RankNumber(b.rank);
                   });
  return processes;
}

std::vector<Remark> ProcessBook::Remarks() const {
  std::vector<Remark> remarks;
  for (const uint32_t number : order_) {
    const Entry& entry = infos_.at(number);
    const ProcessInfo& info = entry.info;
    if (info.ended) continue;
    const std::string launches =
        std::to_string(entry.launches) + (entry.launches == 1 ? " launch" : " launches");
    if (info.signal != 0) {
      remarks.push_back({Severity::kNote,
                         FullName(info) + " was ended by " + SignalName(info.signal) +
                             "; what it had found until then is in this report",
                         ""});
    } else if (entry.running) {
      remarks.push_back({Severity::kWarning,
                         FullName(info) +
                             " was still running when the program ended; what it did "
                             "later is not in this report (seen of it: " +
                             launches + ')',
                         "let the program wait for its children, or run this one under ops-debug "
                         "itself"});
    } else {
      remarks.push_back(
          {Severity::kWarning,
           FullName(info) +
               " did not end in an orderly way (SIGKILL, perhaps): launches "
               "after its last message are not counted, and faults of kernels that it "
               "had not waited for are not known (seen of it: " +
               launches + ')',
           "a kernel's faults are read when the program synchronises, and at its end; only "
           "SIGKILL, or "
           "an end that takes too long, loses any"});
    }
  }
  return remarks;
}

}  // namespace ops_debug::analysis
