// The analyzer as the launcher sees it: a child that says "ready", later its verdict, and between
// the two may die.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "launcher/child_process.h"
#include "launcher/diagnostics.h"
#include "launcher/installation.h"
#include "launcher/run_options.h"
#include "proto/analyzer_link.h"

namespace ops_debug::launcher {

class AnalyzerProcess {
 public:
  // Starts it on a new ring and waits until the ring exists. `replay_folder`: where captured
  // launches to be replayed arrive; empty: there are none.
  static std::variant<AnalyzerProcess, Problem> StartLive(const Installation& installation,
                                                          const RunOptions& options,
                                                          const std::string& ring_name,
                                                          const std::string& replay_folder,
                                                          bool expects_cuda);
  // Starts it on logs, or folders of logs.
  static std::variant<AnalyzerProcess, Problem> StartOffline(const Installation& installation,
                                                             const ReportOptions& options,
                                                             const std::vector<std::string>& logs);

  pid_t process_id() const { return process_id_; }
  int result_fd() const { return result_.get(); }

  // Waits until the process, which has closed its end, is gone.
  void End();
  // Tells it that the target has ended.
  void EndOfTarget();
  // What the ring is called: it may have found no room under the name that was asked for.
  const std::string& ring_name() const { return ring_name_; }
  // Reads what has arrived; false once the analyzer has closed its end.
  bool ReadMore();
  // A request that it sent while the target runs or its replays go on; to be called until there is
  // none.
  struct Request {
    pid_t hanging_process = 0;        // to be ended: it waits for a launch that can never end
    std::string text;                 // about it
    uint64_t launches_to_replay = 0;  // the report waits for them
  };
  std::optional<Request> TakeRequest();
  // The report is wanted without the replays that are left.
  void SkipReplays();
  // Its last word, after ReadMore returned false.
  std::variant<proto::Verdict, Problem> Outcome() const;

 private:
  static std::variant<AnalyzerProcess, Problem> StartWith(const Installation& installation,
                                                          std::vector<std::string> arguments,
                                                          const ReportOptions& options);
  std::optional<std::string> TakeLine();

  pid_t process_id_ = -1;
  FileDescriptor control_;
  FileDescriptor result_;
  std::string received_;
  std::string ring_name_;
};

// A killed analyzer leaves the empty file that it had opened, and perhaps a part of a report beside
// it: nothing that could be taken for a report.
void RemoveUnfinishedReport(const std::string& output);

}  // namespace ops_debug::launcher
