// See checks.h.
#include "emulator/checks/checks.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "emulator/checks/async_order.h"
#include "emulator/checks/init_check.h"
#include "emulator/checks/race_check.h"
#include "emulator/checks/race_memory.h"
#include "emulator/checks/sync_check.h"
#include "emulator/machine.h"

namespace ops_debug::emulator {
namespace {

// What an EmulatorAccess points to.
struct ExportedAccess {
  std::vector<shadow::EmulatorFrame> frames;
  shadow::EmulatorAccess access{};

  ExportedAccess(const Sites& sites, const AccessReport& report) {
    access.from_operation = report.from_operation;
    access.site = ExportSite(sites[report.site], report.access, report.space, frames);
    if (access.site.access_bytes == 0) access.site.access_bytes = report.bytes;
    if (!report.variable.empty()) {
      access.site.variable = report.variable.c_str();
      access.site.variable_bytes = report.variable_bytes;
    }
    access.kernel = report.kernel.c_str();
    access.operation = report.operation;
    access.token = report.token;
    std::copy(std::begin(report.block), std::end(report.block), access.block);
    std::copy(std::begin(report.thread), std::end(report.thread), access.thread);
    access.address = report.address;
    access.bytes = report.bytes;
    access.value = report.value.empty() ? nullptr : report.value.data();
    access.value_bytes = static_cast<uint32_t>(report.value.size());
    access.semantics = report.semantics.c_str();
  }
};

const shadow::EmulatorFrame* ExportLine(const SourceLine& line, shadow::EmulatorFrame& frame) {
  if (line.line == 0) return nullptr;
  frame = {nullptr, line.file.c_str(), line.line, line.column};
  return &frame;
}

}  // namespace

Checks::Checks(uint32_t kinds, const shadow::EmulatorReportFunctions& reports)
    : kinds_(kinds), reports_functions_(reports) {
  if (Has(shadow::kEmulatorChecksRaces)) {
    auto memory = std::make_unique<RaceMemory>(*this);
    race_memory_ = memory.get();
    observers_.push_back(std::move(memory));
  }
  if (Has(shadow::kEmulatorChecksInit)) {
    auto memory = std::make_unique<InitMemory>();
    init_memory_ = memory.get();
    observers_.push_back(std::move(memory));
  }
}
Checks::~Checks() = default;

std::shared_ptr<const DeviceOperation> Checks::Register(DeviceOperation operation) {
  const std::lock_guard lock(mutex_);
  auto registered = std::make_shared<DeviceOperation>(std::move(operation));
  registered->serial = next_serial_++;
  return registered;
}

std::unique_ptr<LaunchChecks> Checks::StartLaunch(
    Launch& launch, std::shared_ptr<const DeviceOperation> operation) {
  if (operation == nullptr) operation = Register({});
  const std::lock_guard lock(mutex_);
  auto checks = std::make_unique<LaunchChecks>(*this);
  if (Has(shadow::kEmulatorChecksRaces)) {
    auto races = std::make_unique<RaceCheck>(*this, launch, operation);
    auto async = std::make_unique<AsyncOrder>(*checks, *races, launch, operation);
    checks->set_races(races.get());
    checks->set_async(async.get());
    checks->Add(std::move(races));
    checks->Add(std::move(async));
  }
  if (Has(shadow::kEmulatorChecksBarriers)) {
    auto sync = std::make_unique<SyncCheck>(*this, launch, operation);
    checks->set_sync(sync.get());
    checks->Add(std::move(sync));
  }
  if (init_memory_ != nullptr)
    checks->Add(std::make_unique<InitCheck>(*this, *init_memory_, launch, operation));
  return checks;
}

void Checks::Read(const DeviceOperation& operation, uint64_t address, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (IsHidden(address)) return;
  for (const auto& observer : observers_) observer->Read(operation, address, bytes);
}

void Checks::Write(const DeviceOperation& operation, uint64_t address, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (IsHidden(address)) return;
  for (const auto& observer : observers_) observer->Write(operation, address, bytes);
}

void Checks::Copy(uint64_t to, uint64_t from, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  for (const auto& observer : observers_) observer->Copy(to, from, bytes);
}

void Checks::Touch(const DeviceOperation& operation, uint64_t address, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (race_memory_ != nullptr && !IsHidden(address)) race_memory_->Write(operation, address, bytes);
}

uint64_t Checks::Writers(uint64_t address, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  return race_memory_ == nullptr ? 0 : race_memory_->Writers(address, bytes);
}

void Checks::Renew(uint64_t address, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  for (const auto& observer : observers_) observer->Renew(address, bytes);
}

void Checks::Forget(uint64_t address, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  hidden_.erase(address);
  for (const auto& observer : observers_) observer->Forget(address, bytes);
}

void Checks::CountAsWritten(uint64_t address, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (init_memory_ != nullptr) init_memory_->Forget(address, bytes);
}

void Checks::Hide(uint64_t address, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  hidden_[address] = address + bytes;
  if (init_memory_ != nullptr) init_memory_->Forget(address, bytes);
}

bool Checks::IsHidden(uint64_t address) const {
  if (hidden_.empty()) return false;
  auto behind = hidden_.upper_bound(address);
  return behind != hidden_.begin() && address < std::prev(behind)->second;
}

void Checks::Incomplete(const std::string& text) {
  if (incomplete_.insert(text).second) new_incomplete_.push_back(text);
}

void Checks::Deliver() {
  std::unique_lock lock(mutex_);
  const auto races = std::exchange(races_, {});
  const auto reads = std::exchange(reads_, {});
  const auto faults = std::exchange(faults_, {});
  const auto incomplete = std::exchange(new_incomplete_, {});
  // Sites stay where they are and as they are, so only finding them needs the lock.
  for (const RaceReport& report : races) {
    if (reports_functions_.race == nullptr) break;
    if (!lock.owns_lock()) lock.lock();
    const ExportedAccess first(sites_, report.first), second(sites_, report.second);
    shadow::EmulatorFrame after{}, before{};
    shadow::EmulatorRace race{};
    race.kind = report.kind;
    race.first = first.access;
    race.second = second.access;
    race.address = report.address;
    race.bytes = report.bytes;
    race.count = report.count;
    race.same_value = report.same_value;
    race.missing = report.missing;
    race.pattern = report.pattern.empty() ? nullptr : report.pattern.c_str();
    race.remedy_after = ExportLine(report.remedy_after, after);
    race.remedy_before = ExportLine(report.remedy_before, before);
    lock.unlock();
    reports_functions_.race(&race);
  }
  for (const UninitialisedReport& report : reads) {
    if (reports_functions_.uninitialised_read == nullptr) break;
    if (!lock.owns_lock()) lock.lock();
    const ExportedAccess access(sites_, report.read);
    std::vector<shadow::EmulatorFrame> frames;
    const shadow::EmulatorSite use = ExportSite(sites_[report.use_site], 0, 0, frames);
    shadow::EmulatorUninitialisedRead read{};
    read.read = access.access;
    read.address = report.address;
    read.bytes = report.bytes;
    read.count = report.count;
    read.use = report.use.c_str();
    read.use_site = report.use_site == kNoSite ? nullptr : &use;
    lock.unlock();
    reports_functions_.uninitialised_read(&read);
  }
  for (const SyncFaultReport& report : faults) {
    if (reports_functions_.sync_fault == nullptr) break;
    if (!lock.owns_lock()) lock.lock();
    const ExportedAccess place(sites_, report.place);
    std::vector<std::vector<shadow::EmulatorFrame>> frames(report.waiters.size());
    std::vector<shadow::EmulatorWaiters> waiters;
    for (size_t i = 0; i < report.waiters.size(); ++i) {
      const WaitersReport& from = report.waiters[i];
      shadow::EmulatorWaiters& to = waiters.emplace_back();
      to.site = ExportSite(sites_[from.site], 0, 0, frames[i]);
      to.threads = from.threads;
      to.blocks = from.blocks;
      std::copy(std::begin(from.first_block), std::end(from.first_block), to.first_block);
      std::copy(std::begin(from.first_thread), std::end(from.first_thread), to.first_thread);
      to.what = from.what.c_str();
    }
    shadow::EmulatorSyncFault fault{};
    fault.kind = report.kind;
    fault.place = place.access;
    fault.waiters = waiters.data();
    fault.waiter_count = waiters.size();
    fault.count = report.count;
    fault.text = report.text.empty() ? nullptr : report.text.c_str();
    lock.unlock();
    reports_functions_.sync_fault(&fault);
  }
  if (lock.owns_lock()) lock.unlock();
  for (const std::string& text : incomplete) {
    if (reports_functions_.incomplete != nullptr) reports_functions_.incomplete(text.c_str());
  }
}

void NameSharedVariable(const Launch& launch, AccessReport& report) {
  const std::vector<uint32_t>& offsets = launch.kernel->shared_offsets;
  for (size_t i = 0; i < offsets.size(); ++i) {
    const SharedVariable& variable = launch.program->shared_variables[i];
    if (offsets[i] == ~0u || variable.size_bytes == 0) continue;
    if (report.address - offsets[i] >= variable.size_bytes) continue;
    report.variable = variable.name;
    report.variable_bytes = variable.size_bytes;
    return;
  }
}

AccessReport ReportOfThread(const Launch& launch, const DeviceOperation& operation,
                            const Warp& warp, uint32_t lane) {
  AccessReport report;
  report.kernel = launch.program->functions[launch.kernel->function]->name;
  report.operation = operation.id;
  report.token = operation.token;
  std::copy(std::begin(warp.block->index), std::end(warp.block->index), report.block);
  for (uint32_t axis = 0; axis < 3; ++axis) report.thread[axis] = warp.thread_index[axis][lane];
  return report;
}

}  // namespace ops_debug::emulator
