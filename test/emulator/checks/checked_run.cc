#include "test/emulator/checks/checked_run.h"

#include "emulator/checks/checks.h"

namespace ops_debug::emulator {
namespace {

CheckedRun* current = nullptr;

std::string Triple(const uint32_t* index) {
  return "(" + std::to_string(index[0]) + "," + std::to_string(index[1]) + "," +
         std::to_string(index[2]) + ")";
}

std::string At(const shadow::EmulatorSite& site) {
  return site.instruction == nullptr || *site.instruction == 0
             ? ""
             : " at `" + std::string(site.instruction) + "`";
}

void AddFault(const shadow::EmulatorSyncFault* fault) {
  constexpr const char* kKinds[] = {"?",
                                    "divergent-barrier",
                                    "exited-threads",
                                    "barrier-count",
                                    "uninitialised-mbarrier",
                                    "invalid-mbarrier",
                                    "deadlock",
                                    "warp-mask"};
  std::string line = kKinds[fault->kind] + At(fault->place.site) + " block " +
                     Triple(fault->place.block) + " thread " + Triple(fault->place.thread) + " x" +
                     std::to_string(fault->count);
  if (fault->text != nullptr) line += " \"" + std::string(fault->text) + "\"";
  for (size_t i = 0; i < fault->waiter_count; ++i) {
    const shadow::EmulatorWaiters& waiters = fault->waiters[i];
    line += std::string(i == 0 ? ": " : "; ") + std::to_string(waiters.threads) + " of " +
            std::to_string(waiters.blocks) + " from " + Triple(waiters.first_thread) + " " +
            waiters.what + At(waiters.site);
  }
  current->faults.push_back(line);
}

std::string Side(const shadow::EmulatorAccess& access) {
  constexpr const char* kKinds[] = {"?", "load", "store", "atomic"};
  return std::string(kKinds[access.site.access]) + At(access.site);
}

void AddRace(const shadow::EmulatorRace* race) {
  current->races.push_back(std::to_string(race->kind) + ": " + Side(race->first) + " / " +
                           Side(race->second) + ", missing " + std::to_string(race->missing) +
                           (race->same_value ? ", same value" : ""));
}

std::string Lines(const std::vector<std::string>& lines) {
  if (lines.empty()) return "silent";
  std::string text;
  for (const std::string& line : lines) text += (text.empty() ? "" : "\n") + line;
  return text;
}

}  // namespace

CheckedRun RunChecked(const std::string& body, RunOptions options) {
  CheckedRun run;
  current = &run;
  shadow::EmulatorReportFunctions functions{};
  functions.sync_fault = AddFault;
  functions.race = AddRace;
  Checks checks(shadow::kEmulatorChecksBarriers | shadow::kEmulatorChecksRaces, functions);
  options.checks = &checks;
  run.outcome = RunBody(body, options).outcome;
  current = nullptr;
  return run;
}

std::string Faults(const std::string& body, RunOptions options) {
  return Lines(RunChecked(body, std::move(options)).faults);
}

std::string Races(const std::string& body, RunOptions options) {
  const CheckedRun run = RunChecked(body, std::move(options));
  return run.outcome.ok ? Lines(run.races) : "failed: " + run.outcome.error.message;
}

}  // namespace ops_debug::emulator
