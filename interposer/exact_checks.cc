// Reports come from the device's own threads, while the operation that they belong to is being
// finished; everything that they point to is gone afterwards. The same place can be reported at
// every launch, so after the first few times only the count goes on.
#include "interposer/exact_checks.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "interposer/context_state.h"
#include "interposer/driver_table.h"
#include "interposer/dynamic_linker.h"
#include "interposer/event_sender.h"
#include "interposer/fault_event.h"
#include "interposer/launch_record.h"
#include "interposer/process.h"
#include "interposer/session.h"
#include "interposer/stream_order.h"

namespace ops_debug::interposer {
namespace {

using shadow::EmulatorAccess;
using shadow::EmulatorChecks;
using shadow::EmulatorFrame;
using shadow::EmulatorRace;
using shadow::EmulatorSite;
using shadow::EmulatorSyncFault;
using shadow::EmulatorUninitialisedRead;
using shadow::EmulatorWaiters;

constexpr char kEngine[] = "emulator";

std::string Text(const char* text) { return text ? text : ""; }

// The program knows its kernels by their own names, not by those of the twins.
std::string OriginalName(const char* name) {
  std::string text = Text(name);
  if (IsTwinName(name)) text.resize(text.size() - shadow::TwinName("").size());
  return text;
}

Dim3 ToDim3(const uint32_t (&value)[3]) { return {value[0], value[1], value[2]}; }

SourceLocation ToLocation(const EmulatorFrame& frame) {
  return {Text(frame.function), Text(frame.file), frame.line, frame.column};
}

// The launch that a token names, and the module whose text its lines belong to.
struct LaunchOfToken {
  bool known = false;
  bool left_out = false;  // the user asked for other launches only
  uint64_t module_id = 0;
  LaunchDescription description;
  ModulePointer module;
};

LaunchOfToken FindLaunchOf(const EmulatorAccess& access) {
  LaunchOfToken out;
  LaunchRecord record;
  if (FindLaunch(access.token, &record)) {
    out.known = true;
    out.left_out = record.left_out;
    out.description = Describe(record);
    if (record.function) {
      out.module = record.function->module;
      out.module_id = out.module->id;
    }
  } else {
    out.description.launch_id = access.token;  // of a graph, or long ago
  }
  // A graph is one operation with many kernels.
  if (access.kernel && *access.kernel) {
    std::string kernel = OriginalName(access.kernel);
    if (kernel != out.description.kernel) {
      out.description.kernel = std::move(kernel);
      out.module = nullptr;
    }
  }
  return out;
}

FaultSite ToSite(const EmulatorSite& site, const LaunchOfToken& launch) {
  FaultSite out;
  out.function = OriginalName(site.function);
  out.access = static_cast<proto_enums::AccessKind>(site.access);
  out.space = static_cast<proto_enums::AddressSpace>(site.space);
  out.access_bytes = site.access_bytes;
  out.ptx_line = launch.module ? OriginalLine(*launch.module, site.ptx_line) : site.ptx_line;
  out.instruction = Text(site.instruction);
  for (size_t i = 0; i < site.frame_count; i++) out.frames.push_back(ToLocation(site.frames[i]));
  out.variable = Text(site.variable);
  out.variable_bytes = site.variable_bytes;
  // An instruction of ours stands for the place only.
  if (launch.module && launch.module->instrumented && out.ptx_line == 0) {
    out.instruction.clear();
    out.variable.clear();
    out.variable_bytes = 0;
  }
  return out;
}

AccessDescription ToAccess(const EmulatorAccess& access, const LaunchOfToken& launch) {
  AccessDescription out;
  if (!access.from_operation) {
    out.has_site = out.has_launch = true;
    out.site = ToSite(access.site, launch);
    out.launch = launch.description;
    out.block = ToDim3(access.block);
    out.thread = ToDim3(access.thread);
  } else if (access.site.access != 0) {
    out.has_site = true;
    out.site.access = static_cast<proto_enums::AccessKind>(access.site.access);
    out.site.space = proto_enums::AddressSpace::kGlobal;
  }
  out.address = access.address;
  out.bytes = access.bytes;
  DescribeOperation(access.token, &out);
  if (access.value)
    out.value.assign(reinterpret_cast<const char*>(access.value), access.value_bytes);
  out.semantics = Text(access.semantics);
  return out;
}

// The allocation that holds the address, as it was at the launch.
template <class Event>
void NameAllocation(uint64_t address, uint64_t token, Event* event) {
  auto found = Book().FindInnermost(address, token == 0 ? UINT64_MAX : token);
  if (!found) return;
  event->has_allocation = true;
  event->allocation = Describe(*found);
}

bool IsGlobal(const EmulatorAccess& access) {
  return access.from_operation ||
         access.site.space == static_cast<uint32_t>(proto_enums::AddressSpace::kGlobal);
}

// ---- Findings that come again and again
constexpr uint64_t kSentSeparately = 16;  // of one place
constexpr size_t kMostPlaces = 4096;

template <class Event>
struct Repeated {
  uint64_t seen = 0;
  uint64_t counted = 0;  // not sent yet
  Event last;
};

// Never destroyed: the device's threads run until the very end of the process.
template <class Event>
class Sender {
 public:
  void Report(const std::string& place, Event event) {
    event.count = std::max<uint64_t>(event.count, 1);
    {
      std::lock_guard lock(mutex_);
      const auto found = places_.find(place);
      if (found != places_.end()) {
        Repeated<Event>& repeated = found->second;
        if (++repeated.seen > kSentSeparately) {
          repeated.counted += event.count;
          repeated.last = std::move(event);
          return;
        }
      } else if (places_.size() < kMostPlaces) {
        places_[place].seen = 1;
      }
    }
    Send(event);
  }

  void Flush() {
    std::vector<Event> events;
    {
      std::lock_guard lock(mutex_);
      for (auto& [place, repeated] : places_) {
        if (repeated.counted == 0) continue;
        repeated.last.count = std::exchange(repeated.counted, 0);
        events.push_back(repeated.last);
      }
    }
    for (const Event& event : events) Send(event);
  }

  void ForgetInChild() {
    for (auto& [place, repeated] : places_) repeated.counted = 0;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, Repeated<Event>> places_;
};

struct Senders {
  Sender<RaceEvent> races;
  Sender<UninitialisedReadEvent> reads;
  Sender<SyncFaultEvent> faults;
};
Senders& TheSenders() {
  static auto* senders = new Senders;
  return *senders;
}

std::string PlaceOf(const FaultSite& site) {
  return site.function + ":" + std::to_string(site.ptx_line) + ":" +
         std::to_string(static_cast<int>(site.access));
}
std::string PlaceOf(const AccessDescription& access) {
  if (access.operation.empty()) return access.launch.kernel + "/" + PlaceOf(access.site);
  // Operations of one place in the program, whichever it is.
  std::string place = access.operation;
  for (const StackFrame& frame : access.stack) place += "@" + std::to_string(frame.offset);
  return place;
}

// ---- Callbacks
void ReportRace(const EmulatorRace& race) {
  const LaunchOfToken first = FindLaunchOf(race.first), second = FindLaunchOf(race.second);
  if ((first.left_out && !race.first.from_operation) ||
      (second.left_out && !race.second.from_operation)) {
    return;
  }
  RaceEvent event;
  event.kind = static_cast<proto_enums::RaceKind>(race.kind);
  event.first = ToAccess(race.first, first);
  event.second = ToAccess(race.second, second);
  const EmulatorAccess& kernel_side = race.first.from_operation ? race.second : race.first;
  event.space = kernel_side.from_operation
                    ? proto_enums::AddressSpace::kGlobal
                    : static_cast<proto_enums::AddressSpace>(kernel_side.site.space);
  event.address = race.address;
  event.bytes = race.bytes;
  if (IsGlobal(race.first) && IsGlobal(race.second)) {
    NameAllocation(race.address, std::min(race.first.token, race.second.token), &event);
  }
  event.count = race.count;
  event.same_value = race.same_value;
  event.missing = static_cast<proto_enums::MissingOrder>(race.missing);
  if (race.remedy_after) event.remedy_after = ToLocation(*race.remedy_after);
  if (race.remedy_before) event.remedy_before = ToLocation(*race.remedy_before);
  event.module_id = race.second.from_operation ? first.module_id : second.module_id;
  event.engine = kEngine;
  event.pattern = Text(race.pattern);
  std::string place = std::to_string(race.kind) + "|" + PlaceOf(event.first) + "|" +
                      PlaceOf(event.second) + "|" + std::to_string(race.missing) +
                      (race.same_value ? "=" : "") + event.pattern;
  TheSenders().races.Report(place, std::move(event));
}

void ReportRead(const EmulatorUninitialisedRead& read) {
  const LaunchOfToken launch = FindLaunchOf(read.read);
  if (launch.left_out) return;
  UninitialisedReadEvent event;
  event.site = ToSite(read.read.site, launch);
  event.launch = launch.description;
  event.block = ToDim3(read.read.block);
  event.thread = ToDim3(read.read.thread);
  event.address = read.address;
  event.bytes = read.bytes;
  if (IsGlobal(read.read)) NameAllocation(read.address, read.read.token, &event);
  event.count = read.count;
  event.use = Text(read.use);
  if (read.use_site) {
    event.has_use_site = true;
    event.use_site = ToSite(*read.use_site, launch);
  }
  event.module_id = launch.module_id;
  event.engine = kEngine;
  const std::string place = event.launch.kernel + "/" + PlaceOf(event.site) + event.use;
  TheSenders().reads.Report(place, std::move(event));
}

void ReportFault(const EmulatorSyncFault& fault) {
  const LaunchOfToken launch = FindLaunchOf(fault.place);
  if (launch.left_out) return;
  SyncFaultEvent event;
  event.kind = static_cast<proto_enums::SyncFaultKind>(fault.kind);
  event.has_site = fault.place.site.function || fault.place.site.instruction;
  event.site = ToSite(fault.place.site, launch);
  event.launch = launch.description;
  event.block = ToDim3(fault.place.block);
  event.thread = ToDim3(fault.place.thread);
  for (size_t i = 0; i < fault.waiter_count; i++) {
    const EmulatorWaiters& waiters = fault.waiters[i];
    WaitersDescription& out = event.waiters.emplace_back();
    out.has_site = waiters.site.function || waiters.site.instruction;
    out.site = ToSite(waiters.site, launch);
    out.threads = waiters.threads;
    out.blocks = waiters.blocks;
    out.first_block = ToDim3(waiters.first_block);
    out.first_thread = ToDim3(waiters.first_thread);
    out.what = Text(waiters.what);
  }
  event.count = fault.count;
  event.text = Text(fault.text);
  event.module_id = launch.module_id;
  event.engine = kEngine;
  event.address = fault.place.address;
  const std::string place =
      std::to_string(fault.kind) + "|" + event.launch.kernel + "/" + PlaceOf(event.site);
  TheSenders().faults.Report(place, std::move(event));
}

// Nothing may leave us into the device.
template <class Report, class Finding>
void Guarded(Report report, const Finding* finding) noexcept {
  try {
    if (finding) report(*finding);
  } catch (...) {
    SendOnce(DiagnosticEvent{.severity = proto_enums::Severity::kError,
                             .text = "no memory to report what the CPU device found",
                             .hint = "some findings are missing"});
  }
}

constexpr shadow::EmulatorReportFunctions kReportFunctions = {
    .race = [](const EmulatorRace* race) { Guarded(ReportRace, race); },
    .uninitialised_read = [](const EmulatorUninitialisedRead* read) { Guarded(ReportRead, read); },
    .sync_fault = [](const EmulatorSyncFault* fault) { Guarded(ReportFault, fault); },
    .incomplete =
        [](const char* text) {
          Guarded(
              [](const char& first) {
                SendOnce(DiagnosticEvent{.severity = proto_enums::Severity::kWarning,
                                         .text = &first,
                                         .hint = "findings of this kind may be missing"});
              },
              text);
        },
};

// ---- The device
// What stands here when there is nothing to talk to.
constexpr EmulatorChecks kNone{};
constinit std::atomic<const EmulatorChecks*> g_checks{nullptr};

const EmulatorChecks* Find() {
  if (!Options().exact_checks || Options().null_rewrite) return &kNone;
  if (!DriverLoaded()) return nullptr;
  void* const library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  const auto ask = library ? reinterpret_cast<shadow::EmulatorChecksFunction>(
                                 RealDlsym()(library, shadow::kEmulatorChecksSymbol))
                           : nullptr;
  const EmulatorChecks* checks = ask ? ask(shadow::kEmulatorChecksVersion) : nullptr;
  if (library) dlclose(library);  // the driver table keeps it
  if (!checks) {
    SendOnce(DiagnosticEvent{
        .severity = proto_enums::Severity::kError,
        .text = "the CPU device of this process is of another version than ops-debug: races, "
                "barriers and uninitialised reads are not checked",
        .hint = "install both from one build, or use --engine ptx"});
    return &kNone;
  }
  const SessionOptions& options = Options();
  uint32_t wanted = 0;
  if (options.check_races) wanted |= shadow::kEmulatorChecksRaces;
  if (options.check_sync) wanted |= shadow::kEmulatorChecksBarriers;
  if (options.check_init) wanted |= shadow::kEmulatorChecksInit;
  checks->configure(wanted, &kReportFunctions);
  return checks;
}

[[maybe_unused]] const bool registered = [] {
  AtForkInChild([]() noexcept {
    TheSenders().races.ForgetInChild();
    TheSenders().reads.ForgetInChild();
    TheSenders().faults.ForgetInChild();
  });
  return true;
}();

}  // namespace

const EmulatorChecks* ExactChecks() noexcept {
  const EmulatorChecks* checks = g_checks.load(std::memory_order_acquire);
  if (checks) return checks == &kNone ? nullptr : checks;
  static constinit std::mutex mutex;
  try {
    std::lock_guard lock(mutex);
    checks = g_checks.load(std::memory_order_acquire);
    if (!checks) {
      checks = Find();
      g_checks.store(checks, std::memory_order_release);
    }
  } catch (...) {
    return nullptr;
  }
  return checks == &kNone ? nullptr : checks;
}

bool InstrumentsKernels() noexcept {
  const SessionOptions& options = Options();
  if (!ChecksAnything()) return false;
  return options.check_memory || options.check_precision || !options.exact_checks;
}

void HideFromChecks(uint64_t address, uint64_t bytes) noexcept {
  const EmulatorChecks* checks = ExactChecks();
  if (checks && address != 0 && bytes != 0) checks->hide(address, bytes);
}

void RenewForChecks(uint64_t address, uint64_t bytes) noexcept {
  const EmulatorChecks* checks = ExactChecks();
  if (checks && bytes != 0) checks->renew(address, bytes);
}

void ForgetForChecks(uint64_t address, uint64_t bytes) noexcept {
  const EmulatorChecks* checks = ExactChecks();
  if (checks && bytes != 0) checks->forget(address, bytes);
}

void SendCountedFindings() noexcept {
  if (!ExactChecks()) return;
  try {
    TheSenders().races.Flush();
    TheSenders().reads.Flush();
    TheSenders().faults.Flush();
  } catch (...) {
    SendOnce(DiagnosticEvent{.severity = proto_enums::Severity::kError,
                             .text = "no memory to report how often findings came"});
  }
}

}  // namespace ops_debug::interposer
