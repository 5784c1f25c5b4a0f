// Encodes events with protozero. Tags come from event_fields.h; proto3 leaves out fields that have
// their default value.
#include "interposer/event_sender.h"

#include <unistd.h>

#include <ctime>
#include <mutex>
#include <protozero/pbf_builder.hpp>
#include <string_view>
#include <unordered_set>

#include "interposer/session.h"

namespace ops_debug::interposer {
namespace {

namespace tags = proto_fields;
using protozero::pbf_builder;

template <class Tag>
void Put(pbf_builder<Tag>& out, Tag tag, const std::string& text) {
  if (!text.empty()) out.add_string(tag, text);
}
template <class Tag>
void Put(pbf_builder<Tag>& out, Tag tag, uint64_t value) {
  if (value != 0) out.add_uint64(tag, value);
}
template <class Tag>
void PutSigned(pbf_builder<Tag>& out, Tag tag, int32_t value) {
  if (value != 0) out.add_int32(tag, value);
}
template <class Tag>
void Put(pbf_builder<Tag>& out, Tag tag, bool value) {
  if (value) out.add_bool(tag, value);
}
template <class Tag, class Enum>
void PutEnum(pbf_builder<Tag>& out, Tag tag, Enum value) {
  if (value != Enum{}) out.add_enum(tag, static_cast<int32_t>(value));
}

template <class Tag>
void Put(pbf_builder<Tag>& out, Tag tag, const Dim3& value) {
  pbf_builder<tags::Dim3> part(out, tag);
  Put(part, tags::Dim3::kX, uint64_t{value.x});
  Put(part, tags::Dim3::kY, uint64_t{value.y});
  Put(part, tags::Dim3::kZ, uint64_t{value.z});
}

template <class Tag>
void Put(pbf_builder<Tag>& out, Tag tag, const StackTrace& stack) {
  if (stack.empty()) return;
  pbf_builder<tags::StackTrace> part(out, tag);
  for (const StackFrame& frame : stack) {
    pbf_builder<tags::StackFrame> entry(part, tags::StackTrace::kFrames);
    Put(entry, tags::StackFrame::kModule, frame.module);
    Put(entry, tags::StackFrame::kOffset, frame.offset);
    Put(entry, tags::StackFrame::kSymbol, frame.symbol);
    Put(entry, tags::StackFrame::kSymbolOffset, frame.symbol_offset);
  }
}

template <class Tag>
void Put(pbf_builder<Tag>& out, Tag tag, const PythonStack& stack) {
  for (const PythonFrame& frame : stack) {
    using F = tags::PythonFrame;
    pbf_builder<F> part(out, tag);
    Put(part, F::kFile, frame.file);
    Put(part, F::kLine, uint64_t{frame.line});
    Put(part, F::kFunction, frame.function);
  }
}

template <class Tag>
void Put(pbf_builder<Tag>& out, Tag tag, const TensorDescription& tensor) {
  using F = tags::Tensor;
  pbf_builder<F> part(out, tag);
  Put(part, F::kFramework, tensor.framework);
  part.add_packed_int64(F::kShape, tensor.shape.begin(), tensor.shape.end());
  Put(part, F::kDtype, tensor.dtype);
  Put(part, F::kAllocationStack, tensor.allocation_stack);
  Put(part, F::kFreeStack, tensor.free_stack);
  Put(part, F::kSegmentAddress, tensor.segment_address);
  Put(part, F::kSegmentBytes, tensor.segment_bytes);
}

template <class Tag>
void Put(pbf_builder<Tag>& out, Tag tag, const LaunchDescription& launch) {
  using F = tags::Launch;
  pbf_builder<F> part(out, tag);
  Put(part, F::kLaunchId, launch.launch_id);
  Put(part, F::kKernel, launch.kernel);
  Put(part, F::kGrid, launch.grid);
  Put(part, F::kBlock, launch.block);
  Put(part, F::kDynamicSharedBytes, uint64_t{launch.dynamic_shared_bytes});
  Put(part, F::kStack, launch.stack);
  Put(part, F::kPythonStack, launch.python_stack);
  Put(part, F::kGraphNode, launch.graph_node);
}

template <class Tag>
void Put(pbf_builder<Tag>& out, Tag tag, const SourceLocation& location) {
  using F = tags::SourceFrame;
  pbf_builder<F> part(out, tag);
  Put(part, F::kFunction, location.function);
  Put(part, F::kFile, location.file);
  Put(part, F::kLine, uint64_t{location.line});
  Put(part, F::kColumn, uint64_t{location.column});
}

template <class Tag>
void Put(pbf_builder<Tag>& out, Tag tag, const FaultSite& site) {
  using F = tags::Site;
  pbf_builder<F> part(out, tag);
  Put(part, F::kFunction, site.function);
  PutEnum(part, F::kAccess, site.access);
  PutEnum(part, F::kSpace, site.space);
  Put(part, F::kAccessBytes, uint64_t{site.access_bytes});
  Put(part, F::kPtxLine, uint64_t{site.ptx_line});
  Put(part, F::kInstruction, site.instruction);
  for (const SourceLocation& location : site.frames) Put(part, F::kFrames, location);
  Put(part, F::kVariable, site.variable);
  Put(part, F::kVariableBytes, site.variable_bytes);
  Put(part, F::kSassOffset, site.sass_offset);
}

template <class Tag>
void Put(pbf_builder<Tag>& out, Tag tag, const AllocationDescription& allocation) {
  using F = tags::Allocation;
  pbf_builder<F> part(out, tag);
  Put(part, F::kId, allocation.id);
  Put(part, F::kAddress, allocation.address);
  Put(part, F::kSizeBytes, allocation.size_bytes);
  Put(part, F::kApi, allocation.api);
  Put(part, F::kName, allocation.name);
  Put(part, F::kFreed, allocation.freed);
  Put(part, F::kAllocationStack, allocation.allocation_stack);
  Put(part, F::kFreeStack, allocation.free_stack);
  Put(part, F::kFreeApi, allocation.free_api);
  if (allocation.has_tensor) Put(part, F::kTensor, allocation.tensor);
}

template <class Tag>
void Put(pbf_builder<Tag>& out, Tag tag, const StreamDescription& stream) {
  // Number 0 is a stream, too: the message must be there although its field has the default value.
  std::string bytes;
  pbf_builder<tags::Stream> part(bytes);
  Put(part, tags::Stream::kNumber, stream.number);
  Put(part, tags::Stream::kName, stream.name);
  out.add_message(tag, bytes);
}

template <class Tag>
void Put(pbf_builder<Tag>& out, Tag tag, const AccessDescription& access) {
  using F = tags::Access;
  pbf_builder<F> part(out, tag);
  if (access.has_site) Put(part, F::kSite, access.site);
  if (access.has_launch) Put(part, F::kLaunch, access.launch);
  Put(part, F::kBlock, access.block);
  Put(part, F::kThread, access.thread);
  Put(part, F::kThreadUnknown, access.thread_unknown);
  Put(part, F::kAddress, access.address);
  Put(part, F::kBytes, uint64_t{access.bytes});
  if (!access.value.empty()) part.add_bytes(F::kValue, access.value);
  Put(part, F::kSemantics, access.semantics);
  Put(part, F::kOperation, access.operation);
  Put(part, F::kStack, access.stack);
  Put(part, F::kPythonStack, access.python_stack);
  if (!access.stream.name.empty()) Put(part, F::kStream, access.stream);
}

void Encode(pbf_builder<tags::ProcessStart>& out, const ProcessStartEvent& event) {
  using F = tags::ProcessStart;
  Put(out, F::kParentProcessId, uint64_t{event.parent_process_id});
  Put(out, F::kExecutable, event.executable);
  for (const std::string& argument : event.arguments) out.add_string(F::kArguments, argument);
  Put(out, F::kDeviceName, event.device_name);
  Put(out, F::kDriverVersion, event.driver_version);
  Put(out, F::kEmulated, event.emulated);
  Put(out, F::kToolVersion, event.tool_version);
  Put(out, F::kRank, event.rank);
  Put(out, F::kLocalRank, event.local_rank);
  Put(out, F::kWorldSize, event.world_size);
  Put(out, F::kInjected, event.injected);
  for (const std::string& check : event.checks) out.add_string(F::kChecks, check);
}

void Encode(pbf_builder<tags::ProcessEnd>& out, const ProcessEndEvent& event) {
  Put(out, tags::ProcessEnd::kOrderly, event.orderly);
  Put(out, tags::ProcessEnd::kSignal, uint64_t{event.signal});
}

void Encode(pbf_builder<tags::ModuleLoaded>& out, const ModuleLoadedEvent& event) {
  using F = tags::ModuleLoaded;
  Put(out, F::kModuleId, event.module_id);
  Put(out, F::kApi, event.api);
  Put(out, F::kImage, event.image);
  Put(out, F::kPtxVersion, event.ptx_version);
  Put(out, F::kTarget, event.target);
  for (const LoadedKernel& kernel : event.kernels) {
    using K = tags::ModuleLoadedKernel;
    pbf_builder<K> part(out, F::kKernels);
    Put(part, K::kName, kernel.name);
    Put(part, K::kChecked, kernel.checked);
    Put(part, K::kReason, kernel.reason);
    Put(part, K::kCheckedAccesses, uint64_t{kernel.checked_accesses});
    for (const UncheckedInstruction& unchecked : kernel.unchecked) {
      using U = tags::ModuleLoadedUnchecked;
      pbf_builder<U> entry(part, K::kUnchecked);
      Put(entry, U::kInstruction, unchecked.instruction);
      Put(entry, U::kReason, unchecked.reason);
      Put(entry, U::kCount, uint64_t{unchecked.count});
    }
    Put(part, K::kEngine, kernel.engine);
  }
  Put(out, F::kNotCheckedReason, event.not_checked_reason);
  Put(out, F::kNote, event.note);
  Put(out, F::kRewriteDurationNs, event.rewrite_duration_ns);
  Put(out, F::kLoadDurationNs, event.load_duration_ns);
}

void Encode(pbf_builder<tags::LaunchSummary>& out, const LaunchSummaryEvent& event) {
  using F = tags::LaunchSummary;
  Put(out, F::kModuleId, event.module_id);
  Put(out, F::kKernel, event.kernel);
  Put(out, F::kLaunches, event.launches);
  Put(out, F::kCheckedLaunches, event.checked_launches);
  Put(out, F::kNotCheckedReason, event.not_checked_reason);
  Put(out, F::kEngine, event.engine);
  Put(out, F::kTimedLaunches, event.timed_launches);
  Put(out, F::kTimedDurationNs, event.timed_duration_ns);
}

void Encode(pbf_builder<tags::Fault>& out, const FaultEvent& event) {
  using F = tags::Fault;
  PutEnum(out, F::kFaultClass, event.fault_class);
  Put(out, F::kSite, event.site);
  Put(out, F::kLaunch, event.launch);
  Put(out, F::kBlock, event.block);
  Put(out, F::kThread, event.thread);
  Put(out, F::kAddress, event.address);
  Put(out, F::kCount, event.count);
  if (event.has_allocation) Put(out, F::kAllocation, event.allocation);
  if (event.has_target_allocation) Put(out, F::kTargetAllocation, event.target_allocation);
  PutSigned(out, F::kParameterIndex, event.parameter_index);
  Put(out, F::kParameterOffset, uint64_t{event.parameter_offset});
  Put(out, F::kShadowValue, uint64_t{event.shadow_value});
  Put(out, F::kModuleId, event.module_id);
  Put(out, F::kProvenance, event.provenance);
  Put(out, F::kEngine, event.engine);
}

void Encode(pbf_builder<tags::Diagnostic>& out, const DiagnosticEvent& event) {
  using F = tags::Diagnostic;
  PutEnum(out, F::kSeverity, event.severity);
  Put(out, F::kText, event.text);
  Put(out, F::kHint, event.hint);
}

void Encode(pbf_builder<tags::UnknownAccesses>& out, const UnknownAccessesEvent& event) {
  Put(out, tags::UnknownAccesses::kModuleId, event.module_id);
  Put(out, tags::UnknownAccesses::kCount, event.count);
}

void Encode(pbf_builder<tags::LostEvents>& out, const LostEventsEvent& event) {
  Put(out, tags::LostEvents::kCount, event.count);
}

void Encode(pbf_builder<tags::InvalidLaunch>& out, const InvalidLaunchEvent& event) {
  using F = tags::InvalidLaunch;
  Put(out, F::kLaunch, event.launch);
  Put(out, F::kError, event.error);
  Put(out, F::kApi, event.api);
  Put(out, F::kReason, event.reason);
}

void Encode(pbf_builder<tags::CallFailed>& out, const CallFailedEvent& event) {
  using F = tags::CallFailed;
  Put(out, F::kApi, event.api);
  Put(out, F::kError, event.error);
  Put(out, F::kReason, event.reason);
  Put(out, F::kStack, event.stack);
  Put(out, F::kPythonStack, event.python_stack);
  Put(out, F::kCount, event.count);
}

void Encode(pbf_builder<tags::Leak>& out, const LeakEvent& event) {
  Put(out, tags::Leak::kAllocation, event.allocation);
}

void Encode(pbf_builder<tags::Race>& out, const RaceEvent& event) {
  using F = tags::Race;
  PutEnum(out, F::kKind, event.kind);
  Put(out, F::kFirst, event.first);
  Put(out, F::kSecond, event.second);
  PutEnum(out, F::kSpace, event.space);
  Put(out, F::kAddress, event.address);
  Put(out, F::kBytes, uint64_t{event.bytes});
  if (event.has_allocation) Put(out, F::kAllocation, event.allocation);
  Put(out, F::kCount, event.count);
  Put(out, F::kSameValue, event.same_value);
  Put(out, F::kUnproven, event.unproven);
  Put(out, F::kReason, event.reason);
  PutEnum(out, F::kMissing, event.missing);
  if (event.remedy_after.line != 0) Put(out, F::kRemedyAfter, event.remedy_after);
  if (event.remedy_before.line != 0) Put(out, F::kRemedyBefore, event.remedy_before);
  Put(out, F::kModuleId, event.module_id);
  Put(out, F::kEngine, event.engine);
  Put(out, F::kPattern, event.pattern);
}

void Encode(pbf_builder<tags::UninitialisedRead>& out, const UninitialisedReadEvent& event) {
  using F = tags::UninitialisedRead;
  Put(out, F::kSite, event.site);
  Put(out, F::kLaunch, event.launch);
  Put(out, F::kBlock, event.block);
  Put(out, F::kThread, event.thread);
  Put(out, F::kAddress, event.address);
  Put(out, F::kBytes, uint64_t{event.bytes});
  if (event.has_allocation) Put(out, F::kAllocation, event.allocation);
  Put(out, F::kCount, event.count);
  Put(out, F::kUse, event.use);
  if (event.has_use_site) Put(out, F::kUseSite, event.use_site);
  Put(out, F::kModuleId, event.module_id);
  Put(out, F::kEngine, event.engine);
}

template <class Tag>
void Put(pbf_builder<Tag>& out, Tag tag, const NumericValueDescription& value) {
  using F = tags::NumericValue;
  pbf_builder<F> part(out, tag);
  Put(part, F::kName, value.name);
  Put(part, F::kType, value.type);
  Put(part, F::kBits, value.bits);
}

void Encode(pbf_builder<tags::NumericalFault>& out, const NumericalFaultEvent& event) {
  using F = tags::NumericalFault;
  PutEnum(out, F::kKind, event.kind);
  Put(out, F::kSite, event.site);
  Put(out, F::kLaunch, event.launch);
  Put(out, F::kBlock, event.block);
  Put(out, F::kThread, event.thread);
  Put(out, F::kCount, event.count);
  for (const NumericValueDescription& operand : event.operands) Put(out, F::kOperands, operand);
  if (event.has_result) Put(out, F::kResult, event.result);
  if (event.worst != 0) out.add_double(F::kWorst, event.worst);
  if (event.exact_value != 0) out.add_int64(F::kExactValue, event.exact_value);
  if (event.wrapped_value != 0) out.add_int64(F::kWrappedValue, event.wrapped_value);
  if (event.has_origin) Put(out, F::kOrigin, event.origin);
  Put(out, F::kExecutions, event.executions);
  Put(out, F::kModuleId, event.module_id);
  Put(out, F::kEngine, event.engine);
}

void Encode(pbf_builder<tags::SyncFault>& out, const SyncFaultEvent& event) {
  using F = tags::SyncFault;
  PutEnum(out, F::kKind, event.kind);
  if (event.has_site) Put(out, F::kSite, event.site);
  Put(out, F::kLaunch, event.launch);
  Put(out, F::kBlock, event.block);
  Put(out, F::kThread, event.thread);
  for (const WaitersDescription& waiters : event.waiters) {
    using W = tags::Waiters;
    pbf_builder<W> part(out, F::kWaiters);
    if (waiters.has_site) Put(part, W::kSite, waiters.site);
    Put(part, W::kThreads, waiters.threads);
    Put(part, W::kBlocks, waiters.blocks);
    Put(part, W::kFirstBlock, waiters.first_block);
    Put(part, W::kFirstThread, waiters.first_thread);
    Put(part, W::kWhat, waiters.what);
  }
  Put(out, F::kCount, event.count);
  Put(out, F::kText, event.text);
  Put(out, F::kModuleId, event.module_id);
  Put(out, F::kEngine, event.engine);
  Put(out, F::kAddress, event.address);
}

void Encode(pbf_builder<tags::RedundantSync>& out, const RedundantSyncEvent& event) {
  using F = tags::RedundantSync;
  Put(out, F::kApi, event.api);
  Put(out, F::kStack, event.stack);
  Put(out, F::kPythonStack, event.python_stack);
  Put(out, F::kCount, event.count);
  Put(out, F::kReason, event.reason);
  Put(out, F::kDurationNs, event.duration_ns);
}

template <class Tag>
void Put(pbf_builder<Tag>& out, Tag tag, const CapturedLaunchDescription& captured) {
  using F = tags::CapturedLaunch;
  pbf_builder<F> part(out, tag);
  Put(part, F::kLaunch, captured.launch);
  Put(part, F::kModuleId, captured.module_id);
  for (const std::string& undecided : captured.undecided) part.add_string(F::kUndecided, undecided);
}

void Encode(pbf_builder<tags::LaunchCaptured>& out, const LaunchCapturedEvent& event) {
  using F = tags::LaunchCaptured;
  Put(out, F::kCaptureId, event.capture_id);
  Put(out, F::kFile, event.file);
  for (const CapturedLaunchDescription& launch : event.launches) Put(out, F::kLaunches, launch);
  Put(out, F::kBytes, event.bytes);
  for (const AllocationDescription& allocation : event.allocations)
    Put(out, F::kAllocations, allocation);
}

void Encode(pbf_builder<tags::LaunchNotCaptured>& out, const LaunchNotCapturedEvent& event) {
  using F = tags::LaunchNotCaptured;
  Put(out, F::kLaunch, event.launch);
  Put(out, F::kReason, event.reason);
}

void Encode(pbf_builder<tags::LaunchStuck>& out, const LaunchStuckEvent& event) {
  using F = tags::LaunchStuck;
  Put(out, F::kLaunch, event.launch);
  Put(out, F::kCaptureId, event.capture_id);
  Put(out, F::kRunningNs, event.running_ns);
  Put(out, F::kAlone, event.alone);
}

uint64_t MonotonicTime_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

// Everything that is sent today must not be lost: it decides findings and coverage. Hence kWait.
template <class Body, class Event>
bool SendAs(tags::Event body, const Event& event) noexcept {
  try {
    if (!SessionOpen()) return false;
    std::string
        body_bytes;  // not a nested builder: that leaves out a message whose fields are all default
    pbf_builder<Body> part(body_bytes);
    Encode(part, event);
    std::string bytes;
    pbf_builder<tags::Event> out(bytes);
    out.add_uint64(tags::Event::kTimeNs, MonotonicTime_ns());
    out.add_uint32(tags::Event::kProcessId, static_cast<uint32_t>(getpid()));
    out.add_message(body, body_bytes);
    return WriteEvent(std::as_bytes(std::span(bytes)), proto::WhenFull::kWait);
  } catch (...) {
    return false;
  }
}

// Texts sent by SendOnce. Never destroyed: hooks run until the end of the process.
struct SentTexts {
  std::mutex mutex;
  std::unordered_set<std::string> texts;
};
SentTexts& Sent() {
  static auto& sent = *new SentTexts;
  return sent;
}
constexpr size_t kMaxSentTexts = 256;

}  // namespace

bool Send(const ProcessStartEvent& event) noexcept {
  return SendAs<tags::ProcessStart>(tags::Event::kProcessStart, event);
}
bool Send(const ProcessEndEvent& event) noexcept {
  return SendAs<tags::ProcessEnd>(tags::Event::kProcessEnd, event);
}
bool Send(const ModuleLoadedEvent& event) noexcept {
  return SendAs<tags::ModuleLoaded>(tags::Event::kModuleLoaded, event);
}
bool Send(const LaunchSummaryEvent& event) noexcept {
  return SendAs<tags::LaunchSummary>(tags::Event::kLaunchSummary, event);
}
bool Send(const FaultEvent& event) noexcept {
  return SendAs<tags::Fault>(tags::Event::kFault, event);
}
bool Send(const DiagnosticEvent& event) noexcept {
  return SendAs<tags::Diagnostic>(tags::Event::kDiagnostic, event);
}
bool Send(const UnknownAccessesEvent& event) noexcept {
  return SendAs<tags::UnknownAccesses>(tags::Event::kUnknownAccesses, event);
}
bool Send(const LostEventsEvent& event) noexcept {
  return SendAs<tags::LostEvents>(tags::Event::kLostEvents, event);
}
bool Send(const InvalidLaunchEvent& event) noexcept {
  return SendAs<tags::InvalidLaunch>(tags::Event::kInvalidLaunch, event);
}
bool Send(const CallFailedEvent& event) noexcept {
  return SendAs<tags::CallFailed>(tags::Event::kCallFailed, event);
}
bool Send(const LeakEvent& event) noexcept { return SendAs<tags::Leak>(tags::Event::kLeak, event); }
bool Send(const RaceEvent& event) noexcept { return SendAs<tags::Race>(tags::Event::kRace, event); }
bool Send(const UninitialisedReadEvent& event) noexcept {
  return SendAs<tags::UninitialisedRead>(tags::Event::kUninitialisedRead, event);
}
bool Send(const NumericalFaultEvent& event) noexcept {
  return SendAs<tags::NumericalFault>(tags::Event::kNumericalFault, event);
}
bool Send(const SyncFaultEvent& event) noexcept {
  return SendAs<tags::SyncFault>(tags::Event::kSyncFault, event);
}
bool Send(const RedundantSyncEvent& event) noexcept {
  return SendAs<tags::RedundantSync>(tags::Event::kRedundantSync, event);
}

bool Send(const LaunchCapturedEvent& event) noexcept {
  return SendAs<tags::LaunchCaptured>(tags::Event::kLaunchCaptured, event);
}
bool Send(const LaunchNotCapturedEvent& event) noexcept {
  return SendAs<tags::LaunchNotCaptured>(tags::Event::kLaunchNotCaptured, event);
}
bool Send(const LaunchStuckEvent& event) noexcept {
  return SendAs<tags::LaunchStuck>(tags::Event::kLaunchStuck, event);
}

bool SendOnce(const DiagnosticEvent& event) noexcept {
  try {
    {
      SentTexts& sent = Sent();
      const std::scoped_lock lock(sent.mutex);
      if (sent.texts.size() >= kMaxSentTexts || !sent.texts.insert(event.text).second) return false;
    }
    return Send(event);
  } catch (...) {
    return false;
  }
}

}  // namespace ops_debug::interposer
