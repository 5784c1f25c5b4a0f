// The state of all checks of a process, across launches: what is checked, memory that no check
// looks at, operations and their order, and the findings on their way out.
//
// Locks: mutex() guards everything that checks keep. The machine's hooks hold it
// (launch_checks.h), and so do the functions here that say so. Deliver must be called without it,
// because the functions it calls belong to somebody else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "emulator/checks/launch_checks.h"
#include "emulator/checks/reports.h"
#include "emulator/checks/sites.h"
#include "shadow/abi/emulator_checks.h"

namespace ops_debug::emulator {

struct InitMemory;
class RaceMemory;

// What the interposer said of an operation, copied. Without an order (id.number 0) an operation is
// behind everything that was submitted before it, and before everything later.
struct DeviceOperation {
  shadow::OperationId id;
  uint64_t token = 0;
  std::vector<uint64_t> clock;
  // A launch that may begin before its predecessor in the stream ends.
  bool is_programmatic = false;
  bool is_host = false;  // the host itself reads or writes
  // A node of a graph launch (id.reserved is its number, from 1): the nodes that come before it.
  std::shared_ptr<const std::vector<bool>> ancestors;
  uint64_t serial = 0;  // in the order of performance, from 1; set by Checks::Register
};

class Checks {
 public:
  Checks(uint32_t kinds, const shadow::EmulatorReportFunctions& reports);
  ~Checks();
  Checks(const Checks&) = delete;
  Checks& operator=(const Checks&) = delete;

  bool Has(shadow::EmulatorCheck check) const { return (kinds_ & check) != 0; }
  std::mutex& mutex() { return mutex_; }
  Sites& sites() { return sites_; }                   // locked
  InitMemory* init_memory() { return init_memory_; }  // null if reads are not checked
  RaceMemory* race_memory() { return race_memory_; }  // null if races are not checked

  // ---- operations. The observers see them in the order of the calls.
  // Gives the operation its serial number.
  std::shared_ptr<const DeviceOperation> Register(DeviceOperation operation);
  // The observers of one launch; `launch` must outlive them.
  std::unique_ptr<LaunchChecks> StartLaunch(Launch& launch,
                                            std::shared_ptr<const DeviceOperation> operation);
  void Read(const DeviceOperation& operation, uint64_t address, uint64_t bytes);
  void Write(const DeviceOperation& operation, uint64_t address, uint64_t bytes);
  void Copy(uint64_t to, uint64_t from, uint64_t bytes);
  // The memory begins or ends its life with the operation: whoever uses it must be ordered with
  // that. No contents are written.
  void Touch(const DeviceOperation& operation, uint64_t address, uint64_t bytes);
  // A hash over who wrote the range last; 0: nobody.
  uint64_t Writers(uint64_t address, uint64_t bytes);
  void Renew(uint64_t address, uint64_t bytes);
  void Forget(uint64_t address, uint64_t bytes);
  // To the check of uninitialised reads alone: managed and pinned memory.
  void CountAsWritten(uint64_t address, uint64_t bytes);
  void Hide(uint64_t address, uint64_t bytes);
  bool IsHidden(uint64_t address) const;  // locked

  // ---- findings; locked. One per fault: whoever finds it merges and counts.
  void Add(RaceReport report) { races_.push_back(std::move(report)); }
  void Add(UninitialisedReport report) { reads_.push_back(std::move(report)); }
  void Add(SyncFaultReport report) { faults_.push_back(std::move(report)); }
  void Incomplete(const std::string& text);  // once per text
  // Tells the findings so far. NOT locked; no hook may be running above.
  void Deliver();

 private:
  const uint32_t kinds_;
  const shadow::EmulatorReportFunctions reports_functions_;
  std::mutex mutex_;
  Sites sites_;
  InitMemory* init_memory_ = nullptr;  // among the observers
  RaceMemory* race_memory_ = nullptr;  // among the observers
  std::vector<std::unique_ptr<DeviceObserver>> observers_;
  std::map<uint64_t, uint64_t> hidden_;  // begin to end
  uint64_t next_serial_ = 1;
  std::vector<RaceReport> races_;
  std::vector<UninitialisedReport> reads_;
  std::vector<SyncFaultReport> faults_;
  std::set<std::string> incomplete_;
  std::vector<std::string> new_incomplete_;
};

// Names the shared variable of the running kernel that holds the access's address, if one does.
void NameSharedVariable(const Launch& launch, AccessReport& report);
// Fills in who made an access: kernel, operation, block, thread.
AccessReport ReportOfThread(const Launch& launch, const DeviceOperation& operation,
                            const Warp& warp, uint32_t lane);

}  // namespace ops_debug::emulator
