// Where a run's events go: one file, or a folder with one file per process.
//
// In a folder, each file holds what concerns its process alone, so it can be read alone:
//
//   <program>[.rank<N>].<pid>[.<k>].odlog   k from 2 if such a name is taken (exec, an earlier run)
//   run.<pid of the recorder>.odlog         what concerns no process, such as lost events; made
//                                           only if there is such a thing
//
// Processes that only asked for devices, as launchers of distributed jobs do, get a log only if
// there would be none otherwise.
//
// `ops-debug report FOLDER` reads all of them.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "proto/events.pb.h"
#include "proto/log.h"

namespace ops_debug::analysis {

class RunLog {
 public:
  // A folder if `path` ends in '/' (it is then made) or is one; else a file, which is replaced.
  static absl::StatusOr<std::unique_ptr<RunLog>> Open(const std::string& path);

  // `message` are the bytes of `event`, which may be of a version that we do not know whole.
  absl::Status Append(const proto::Event& event, std::span<const std::byte> message);
  absl::Status FlushIfDue();
  absl::Status Close();

 private:
  struct ProcessLog {
    std::unique_ptr<proto::LogWriter> writer;  // null until there is something worth a file
    std::string stem;                          // of the file's name; empty: not announced yet
    std::vector<std::vector<std::byte>> waiting;
  };

  explicit RunLog(std::string folder) : folder_(std::move(folder)) {}
  absl::Status WriteOut(ProcessLog& log);
  void SetAside(uint32_t process_id);

  std::string folder_;  // empty: one file
  std::unique_ptr<proto::LogWriter> single_;
  std::map<uint32_t, ProcessLog> logs_;  // by process id; 0: of no process
  std::vector<ProcessLog> aside_;        // ended, and did nothing worth a file
  bool any_file_ = false;
};

// The logs that `path` names: itself, or all of a folder in order of their names. Error: no such
// path, or a folder without a log.
absl::StatusOr<std::vector<std::string>> FindLogs(const std::string& path);

}  // namespace ops_debug::analysis
