// Events in, report out: the one path that a live run and `ops-debug report FILE` share. Everything
// a report says must come through Add, so that both print the same bytes.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "analysis/coverage.h"
#include "analysis/host_detector.h"
#include "analysis/host_stack.h"
#include "analysis/init_detector.h"
#include "analysis/memory_detector.h"
#include "analysis/precision_detector.h"
#include "analysis/process_book.h"
#include "analysis/race_detector.h"
#include "analysis/replay_book.h"
#include "analysis/report.h"
#include "analysis/sync_detector.h"
#include "proto/analyzer_link.h"
#include "proto/events.pb.h"

namespace ops_debug::analysis {

class EventAnalysis {
 public:
  // A message as it came from the ring or the log; bytes that are no event are counted as lost.
  void AddMessage(std::span<const std::byte> message);
  void Add(const proto::Event& event);

  // A message that no event could be read from.
  void AddUnreadable() { ++lost_events_; }
  // What comes now is of another log file: its process ids are other processes.
  void NextRecording() { processes_.NextRecording(); }

  // Remarks about the recording itself (a cut log); not part of it.
  void AddRemark(Remark remark);

  bool saw_process() const { return !processes_.empty(); }
  // Process ids of those that have begun and not ended.
  std::vector<uint32_t> OpenProcesses() const { return processes_.Open(); }

  Report Finish();

 private:
  HostSymbolizer symbolizer_;
  MemoryDetector memory_{symbolizer_};
  RaceDetector races_{symbolizer_};
  InitDetector init_{symbolizer_};
  SyncDetector sync_{symbolizer_};
  PrecisionDetector precision_{symbolizer_};
  HostDetector host_{symbolizer_};
  CoverageBook coverage_;
  ReplayBook replays_;
  ProcessBook processes_;
  std::vector<Remark> remarks_;
  uint64_t lost_events_ = 0;
};

// What the launcher needs of a report to choose the exit code.
proto::Verdict VerdictOf(const Report& report);

}  // namespace ops_debug::analysis
