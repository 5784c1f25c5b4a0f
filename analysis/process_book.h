// Who ran. Process ids do not tell: a program that calls exec goes on under its id as another one,
// ids are used again, and the logs of several machines share them. So every run of a program gets
// a number of its own; detectors see only that, and findings get their process id back at the end.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "analysis/report.h"
#include "proto/events.pb.h"

namespace ops_debug::analysis {

class ProcessBook {
 public:
  // Events from now on come from another recording: its process ids say nothing about earlier ones.
  void NextRecording();

  // The number under which the process goes now. It is the process id as long as that names one
  // program only, so most reports never see another number.
  uint32_t NumberOf(uint32_t process_id);

  void Add(uint32_t process_id, const proto::ProcessStart& start);
  void Add(uint32_t process_id, const proto::ProcessEnd& end);
  // What it has of launches: a process that ends by a signal may owe the rest.
  void AddLaunches(uint32_t process_id, uint64_t launches);

  bool empty() const { return infos_.empty(); }
  // That announced themselves and did not say goodbye, of the recording in hand.
  std::vector<uint32_t> Open() const;

  // Null if the number belongs to no process that announced itself.
  const ProcessInfo* Find(uint32_t number) const;
  uint32_t ProcessIdOf(uint32_t number) const;
  // In order of rank, then of appearance.
  std::vector<ProcessInfo> Finish() const;
  // About processes that ended otherwise than in an orderly way.
  std::vector<Remark> Remarks() const;

 private:
  struct Entry {
    ProcessInfo info;
    uint64_t launches = 0;
    bool running = false;  // when the recording ended
  };
  struct Current {
    uint32_t number = 0;
    bool announced = false;
  };

  uint32_t NewNumber(uint32_t process_id);

  uint32_t recording_ = 0;
  std::map<uint32_t, Current> current_;       // by process id, of the recording in hand
  std::map<uint32_t, uint32_t> process_ids_;  // by number
  std::map<uint32_t, Entry> infos_;           // by number, of processes that announced themselves
  std::vector<uint32_t> order_;
  uint32_t next_number_ = 1u << 30;  // above every process id (PID_MAX_LIMIT is 2^22)
};

// "rank 3", or "process 77 (worker)".
std::string ProcessName(const ProcessInfo& process);

}  // namespace ops_debug::analysis
