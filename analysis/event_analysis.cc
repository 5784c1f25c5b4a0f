// Hands each event to the parts that it concerns (event_analysis.h).
#include "analysis/event_analysis.h"

#include <algorithm>
#include <iterator>

#include "analysis/explained_reads.h"
#include "analysis/merge_findings.h"

namespace ops_debug::analysis {
namespace {

Severity ToSeverity(proto::Diagnostic::Severity severity) {
  switch (severity) {
    case proto::Diagnostic::SEVERITY_ERROR:
      return Severity::kError;
    case proto::Diagnostic::SEVERITY_WARNING:
      return Severity::kWarning;
    default:
      return Severity::kNote;
  }
}

}  // namespace

void EventAnalysis::AddMessage(std::span<const std::byte> message) {
  proto::Event event;
  if (event.ParseFromArray(message.data(), static_cast<int>(message.size()))) {
    Add(event);
  } else {
    AddUnreadable();
  }
}

void EventAnalysis::Add(const proto::Event& event) {
  if (event.has_process_start()) processes_.Add(event.process_id(), event.process_start());
  if (event.has_process_end()) processes_.Add(event.process_id(), event.process_end());
  const uint32_t process = processes_.NumberOf(event.process_id());
  switch (event.body_case()) {
    case proto::Event::kProcessStart:
    case proto::Event::kProcessEnd:
      break;  // taken above: they decide which process the others belong to
    case proto::Event::kModuleLoaded: {
      const proto::ModuleLoaded& module = event.module_loaded();
      coverage_.Add(process, module);
      if (!module.note().empty()) {
        AddRemark({Severity::kNote, module.image() + ": " + module.note(), ""});
      }
      break;
    }
    case proto::Event::kLaunchSummary:
      coverage_.Add(process, event.launch_summary());
      processes_.AddLaunches(event.process_id(), event.launch_summary().launches());
      break;
    case proto::Event::kFault:
      coverage_.AddReport(event.fault().launch().kernel(), event.fault().engine());
      memory_.Add(process, event.fault());
      break;
    case proto::Event::kRace:
      for (const proto::Access* side : {&event.race().first(), &event.race().second()}) {
        coverage_.AddReport(side->launch().kernel(), event.race().engine());
      }
      races_.Add(process, event.race());
      break;
    case proto::Event::kUninitialisedRead: {
      const proto::UninitialisedRead& read = event.uninitialised_read();
      coverage_.AddReport(read.launch().kernel(), read.engine());
      init_.Add(process, read);
      break;
    }
    case proto::Event::kSyncFault:
      coverage_.AddReport(event.sync_fault().launch().kernel(), event.sync_fault().engine());
      sync_.Add(process, event.sync_fault());
      break;
    case proto::Event::kRedundantSync:
      sync_.Add(process, event.redundant_sync());
      break;
    case proto::Event::kNumericalFault: {
      const proto::NumericalFault& fault = event.numerical_fault();
      coverage_.AddReport(fault.launch().kernel(), fault.engine());
      precision_.Add(process, fault);
      break;
    }
    case proto::Event::kInvalidLaunch:
      memory_.Add(process, event.invalid_launch());
      break;
    case proto::Event::kCallFailed:
      host_.Add(process, event.call_failed());
      break;
    case proto::Event::kLeak:
      host_.Add(process, event.leak());
      break;
    case proto::Event::kUnknownAccesses:
      coverage_.Add(event.unknown_accesses());
      break;
    case proto::Event::kLostEvents:
      lost_events_ += event.lost_events().count();
      break;
    case proto::Event::kDiagnostic: {
      const proto::Diagnostic& diagnostic = event.diagnostic();
      AddRemark({ToSeverity(diagnostic.severity()), diagnostic.text(), diagnostic.hint()});
      break;
    }
    case proto::Event::kLaunchCaptured:
      replays_.Add(process, event.launch_captured());
      break;
    case proto::Event::kLaunchNotCaptured:
      replays_.Add(process, event.launch_not_captured());
      break;
    case proto::Event::kReplayEnded:
      replays_.Add(process, event.replay_ended());
      break;
    case proto::Event::kLaunchStuck:  // replays.h: what it proves is told by other events
      break;
    case proto::Event::BODY_NOT_SET:  // of a newer version
      break;
  }
}

void EventAnalysis::AddRemark(Remark remark) {
  // Every process of a run may say the same thing.
  if (std::find(remarks_.begin(), remarks_.end(), remark) == remarks_.end()) {
    remarks_.push_back(std::move(remark));
  }
}

Report EventAnalysis::Finish() {
  Report report;
  report.coverage = coverage_.Finish();
  report.coverage.processes = processes_.Finish();
  for (Remark& remark : processes_.Remarks()) AddRemark(std::move(remark));
  RaceDetector::Findings races = races_.Finish([this](uint32_t process, const proto::Race& race) {
    return replays_.Decides(process, race);
  });
  report.coverage.replays = replays_.Finish();
  report.coverage.replays.decided_pairs = races.decided;
  std::vector<Finding> findings = memory_.Finish();
  for (std::vector<Finding> part : {std::move(races.proven), init_.Finish(), sync_.FinishFaults(),
                                    precision_.Finish(), host_.Finish(), sync_.FinishRedundant()}) {
    std::move(part.begin(), part.end(), std::back_inserter(findings));
  }
  RemoveExplainedReads(findings);
  RemoveAccessesOfWrappedIndexes(findings);
  report.findings = MergeProcesses(std::move(findings), processes_);
  report.conversions = precision_.Conversions();
  report.unproven = MergeProcesses(std::move(races.unproven), processes_);
  report.remarks = remarks_;
  report.lost_events = lost_events_;
  return report;
}

proto::Verdict VerdictOf(const Report& report) {
  proto::Verdict verdict;
  verdict.findings = CountErrors(report.findings);
  verdict.launches = report.coverage.Launches();
  verdict.checked_launches = report.coverage.CheckedLaunches();
  for (const Remark& remark : report.remarks) {
    if (remark.severity == Severity::kError) ++verdict.tool_errors;
  }
  verdict.lost_events = report.lost_events;
  verdict.processes = report.coverage.processes.size();
  return verdict;
}

}  // namespace ops_debug::analysis
