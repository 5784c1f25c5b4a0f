// See replay.h. Every block is allocated at the address it had, through the call that a program
// would use for its kind, and written by a copy, but for the bytes that nobody had written: those
// get their contents behind the driver's back. Variables likewise. So the checks of the CPU device
// and the interposer see an ordinary program that has just set up its data.
#include "replayer/replay.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "replayer/tensor_maps.h"

namespace ops_debug::replayer {
namespace {

constexpr uint64_t kTensorMapAlignment = 64;
// In the parameter buffer structures lie at multiples of their own alignment.
constexpr uint64_t kParameterAlignment = 8;
constexpr uint32_t kPortableClusterBlocks = 8;
constexpr size_t kMostAttributes = 3;

class Session {
 public:
  Session(const Driver& driver, proto::Capture& capture)
      : driver_(driver), capture_(capture), tensor_maps_(driver, capture) {}

  Outcome Run() {
    if (Outcome outcome = OpenDevice(); !outcome.ok()) return outcome;
    for (proto::CaptureMemory& memory : *capture_.mutable_memory()) {
      if (Outcome outcome = PlaceMemory(memory); !outcome.ok()) return outcome;
    }
    for (proto::CaptureModule& module : *capture_.mutable_modules()) {
      if (Outcome outcome = LoadModule(module); !outcome.ok()) return outcome;
    }
    // The launches' streams are not ordered behind the copies, which may still be on their way when
    // the calls return (CUDA Driver API, "API synchronization behavior").
    if (CUresult r = driver_.cuCtxSynchronize(); r != CUDA_SUCCESS)
      return driver_.Failed("cuCtxSynchronize after the copies", r);
    events_.assign(static_cast<size_t>(capture_.launches_size()), nullptr);
    for (int i = 0; i < capture_.launches_size(); ++i) {
      if (Outcome outcome = Launch(i); !outcome.ok()) return Explain(std::move(outcome));
    }
    const CUresult result = driver_.cuCtxSynchronize();
    return result == CUDA_SUCCESS ? Outcome{} : Explain(driver_.Failed("cuCtxSynchronize", result));
  }

 private:
  Outcome OpenDevice() {
    driver_.placement->begin_replay();
    CUdevice device = 0;
    CUcontext context = nullptr;
    if (CUresult r = driver_.cuInit(0); r != CUDA_SUCCESS) return driver_.Failed("cuInit", r);
    if (CUresult r = driver_.cuDeviceGet(&device, 0); r != CUDA_SUCCESS)
      return driver_.Failed("cuDeviceGet", r);
    if (CUresult r = driver_.cuDevicePrimaryCtxRetain(&context, device); r != CUDA_SUCCESS)
      return driver_.Failed("cuDevicePrimaryCtxRetain", r);
    if (CUresult r = driver_.cuCtxSetCurrent(context); r != CUDA_SUCCESS)
      return driver_.Failed("cuCtxSetCurrent", r);
    // Whoever watches sets up its own memory at the first allocation, before ours is placed.
    CUdeviceptr first = 0;
    if (CUresult r = driver_.cuMemAlloc(&first, 1); r != CUDA_SUCCESS)
      return driver_.Failed("cuMemAlloc", r);
    return {};
  }

  // ---- memory
  Outcome PlaceMemory(proto::CaptureMemory& memory) {
    std::string& content = *memory.mutable_content();
    if (Outcome outcome = tensor_maps_.Replace(memory.address(), kTensorMapAlignment, &content);
        !outcome.ok())
      return outcome;
    driver_.placement->place_next_allocation(memory.address());
    CUdeviceptr address = 0;
    CUresult result = CUDA_SUCCESS;
    if (memory.host()) {
      void* pointer = nullptr;
      result = driver_.cuMemHostAlloc(&pointer, content.size(), CU_MEMHOSTALLOC_DEVICEMAP);
      address = reinterpret_cast<CUdeviceptr>(pointer);
    } else {
      result = driver_.cuMemAlloc(&address, content.size());
    }
    if (result != CUDA_SUCCESS)
      return driver_.Failed("allocation of " + std::to_string(content.size()) + " bytes", result);
    if (address != memory.address())
      return {OutcomeKind::kUnplaceable, "the CPU device did not place memory where it was"};
    if (memory.host()) {
      std::memcpy(reinterpret_cast<void*>(address), content.data(), content.size());
      return {};
    }
    return WriteBlock(memory);
  }

  Outcome WriteBlock(const proto::CaptureMemory& memory) const {
    const char* const content = memory.content().data();
    uint64_t at = 0;
    for (const proto::CaptureRange& hole : memory.unwritten()) {
      if (Outcome outcome = Write(memory.address() + at, content + at, hole.offset() - at);
          !outcome.ok())
        return outcome;
      std::memcpy(reinterpret_cast<void*>(memory.address() + hole.offset()),
                  content + hole.offset(), hole.size());
      at = hole.offset() + hole.size();
    }
    return Write(memory.address() + at, content + at, memory.content().size() - at);
  }

  Outcome Write(uint64_t address, const char* bytes, uint64_t count) const {
    if (count == 0) return {};
    const CUresult result = driver_.cuMemcpyHtoD(address, bytes, count);
    return result == CUDA_SUCCESS ? Outcome{} : driver_.Failed("cuMemcpyHtoD", result);
  }

  // ---- modules
  Outcome LoadModule(proto::CaptureModule& module) {
    for (const proto::CaptureVariable& variable : module.variables())
      driver_.placement->place_variable(variable.name().c_str(), variable.address());
    std::array<char, 4096> log{};
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void* values[] = {log.data(), reinterpret_cast<void*>(log.size() - 1)};
    CUmodule& handle = modules_[module.module_id()];
    const CUresult result =
        driver_.cuModuleLoadDataEx(&handle, module.ptx().c_str(), 2, options, values);
    if (result != CUDA_SUCCESS) {
      Outcome outcome = driver_.Failed("cuModuleLoadDataEx", result);
      outcome.kind = OutcomeKind::kUnsupported;
      if (log[0] != '\0') outcome.reason = std::string("its module: ") + log.data();
      return outcome;
    }
    for (proto::CaptureVariable& variable : *module.mutable_variables()) {
      if (Outcome outcome = WriteVariable(handle, variable); !outcome.ok()) return outcome;
    }
    return {};
  }

  Outcome WriteVariable(CUmodule module, proto::CaptureVariable& variable) {
    CUdeviceptr address = 0;
    size_t bytes = 0;
    if (CUresult r = driver_.cuModuleGetGlobal(&address, &bytes, module, variable.name().c_str());
        r != CUDA_SUCCESS)
      return driver_.Failed("cuModuleGetGlobal of " + variable.name(), r);
    std::string& content = *variable.mutable_content();
    if (address != variable.address() || bytes != content.size()) {
      return {OutcomeKind::kUnplaceable,
              "variable " + variable.name() + " is not where it was, or of another size"};
    }
    KeepFunctions(address, &content);
    if (Outcome outcome = tensor_maps_.Replace(address, kTensorMapAlignment, &content);
        !outcome.ok())
      return outcome;
    return Write(address, content.data(), content.size());
  }

  // Tables of functions (virtual calls) hold this device's addresses, not the original's.
  void KeepFunctions(uint64_t address, std::string* content) const {
    for (uint64_t at = (0 - address) % sizeof(uint64_t); at + sizeof(uint64_t) <= content->size();
         at += sizeof(uint64_t)) {
      uint64_t word = 0;
      std::memcpy(&word, reinterpret_cast<const void*>(address + at), sizeof(word));
      if (driver_.placement->is_function(word)) std::memcpy(&(*content)[at], &word, sizeof(word));
    }
  }

  // ---- launches
  // A programmatic launch follows its predecessor in one stream. Others have streams of their own
  // and wait for the events of those that they come after.
  Outcome PrepareStream(int index, CUstream* stream) {
    const proto::CaptureLaunch& launch = capture_.launches(index);
    const bool follows = launch.programmatic() && index > 0;
    const int predecessor =
        launch.after().empty()
            ? index - 1
            : static_cast<int>(*std::max_element(launch.after().begin(), launch.after().end()));
    if (follows) {
      *stream = streams_[static_cast<size_t>(predecessor)];
    } else if (CUresult r = driver_.cuStreamCreate(stream, CU_STREAM_NON_BLOCKING);
               r != CUDA_SUCCESS) {
      return driver_.Failed("cuStreamCreate", r);
    }
    streams_.push_back(*stream);
    std::vector<int> before(launch.after().begin(), launch.after().end());
    if (launch.after_all()) {
      before.clear();
      for (int i = 0; i < index; ++i) before.push_back(i);
    }
    for (const int earlier : before) {
      if (streams_[static_cast<size_t>(earlier)] == *stream) continue;
      CUevent event = nullptr;
      if (Outcome outcome = EventBehind(earlier, &event); !outcome.ok()) return outcome;
      if (CUresult r = driver_.cuStreamWaitEvent(*stream, event, 0); r != CUDA_SUCCESS)
        return driver_.Failed("cuStreamWaitEvent", r);
    }
    return {};
  }

  // Recorded as late as it is needed, so that it does not come between a launch and a programmatic
  // one behind it.
  Outcome EventBehind(int launch, CUevent* event) {
    CUevent& known = events_[static_cast<size_t>(launch)];
    if (known == nullptr) {
      if (CUresult r = driver_.cuEventCreate(&known, CU_EVENT_DISABLE_TIMING); r != CUDA_SUCCESS)
        return driver_.Failed("cuEventCreate", r);
      if (CUresult r = driver_.cuEventRecord(known, streams_[static_cast<size_t>(launch)]);
          r != CUDA_SUCCESS)
        return driver_.Failed("cuEventRecord", r);
    }
    *event = known;
    return {};
  }

  Outcome PrepareFunction(const proto::CaptureLaunch& launch, CUfunction* function) {
    if (CUresult r = driver_.cuModuleGetFunction(function, modules_.at(launch.module_id()),
                                                 launch.kernel().c_str());
        r != CUDA_SUCCESS)
      return driver_.Failed("cuModuleGetFunction of " + launch.kernel(), r);
    if (launch.dynamic_shared_bytes() != 0) {
      if (CUresult r =
              driver_.cuFuncSetAttribute(*function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                         static_cast<int>(launch.dynamic_shared_bytes()));
          r != CUDA_SUCCESS)
        return driver_.Failed("cuFuncSetAttribute(MAX_DYNAMIC_SHARED_SIZE_BYTES)", r);
    }
    const proto::CaptureDim& cluster = launch.cluster();
    if (launch.has_cluster() &&
        uint64_t{cluster.x()} * cluster.y() * cluster.z() > kPortableClusterBlocks) {
      if (CUresult r = driver_.cuFuncSetAttribute(
              *function, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1);
          r != CUDA_SUCCESS)
        return driver_.Failed("cuFuncSetAttribute(NON_PORTABLE_CLUSTER_SIZE_ALLOWED)", r);
    }
    return {};
  }

  Outcome Launch(int index) {
    proto::CaptureLaunch& launch = *capture_.mutable_launches(index);
    CUfunction function = nullptr;
    if (Outcome outcome = PrepareFunction(launch, &function); !outcome.ok()) return outcome;
    CUstream stream = nullptr;
    if (Outcome outcome = PrepareStream(index, &stream); !outcome.ok()) return outcome;
    std::string& parameters = *launch.mutable_parameters();
    if (Outcome outcome = tensor_maps_.Replace(0, kParameterAlignment, &parameters); !outcome.ok())
      return outcome;

    std::array<CUlaunchAttribute, kMostAttributes> attributes{};
    CUlaunchConfig config{};
    config.attrs = attributes.data();
    const auto add = [&](CUlaunchAttributeID id) -> CUlaunchAttributeValue& {
      CUlaunchAttribute& attribute = attributes[config.numAttrs++];
      attribute.id = id;
      return attribute.value;
    };
    if (launch.has_cluster()) {
      auto& value = add(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION).clusterDim;
      value = {launch.cluster().x(), launch.cluster().y(), launch.cluster().z()};
    }
    if (launch.cooperative()) add(CU_LAUNCH_ATTRIBUTE_COOPERATIVE).cooperative = 1;
    if (launch.programmatic())
      add(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
          .programmaticStreamSerializationAllowed = 1;
    config.gridDimX = launch.grid().x();
    config.gridDimY = launch.grid().y();
    config.gridDimZ = launch.grid().z();
    config.blockDimX = launch.block().x();
    config.blockDimY = launch.block().y();
    config.blockDimZ = launch.block().z();
    config.sharedMemBytes = launch.dynamic_shared_bytes();
    config.hStream = stream;
    size_t parameter_bytes = parameters.size();
    void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, parameters.data(), CU_LAUNCH_PARAM_BUFFER_SIZE,
                     &parameter_bytes, CU_LAUNCH_PARAM_END};
    const CUresult result = driver_.cuLaunchKernelEx(&config, function, nullptr, extra);
    return result == CUDA_SUCCESS
               ? Outcome{}
               : driver_.Failed("cuLaunchKernelEx of " + launch.kernel(), result);
  }

  // What the device says of a launch that failed, in place of the call's error.
  Outcome Explain(Outcome outcome) const {
    std::string text(4096, '\0');
    const uint32_t failure = driver_.placement->failure(text.data(), text.size());
    if (failure == shadow::kEmulatorNoFailure) return outcome;
    text.resize(std::strlen(text.c_str()));
    outcome.reason = text;
    switch (failure) {
      case shadow::kEmulatorUnsupported:
        outcome.kind = OutcomeKind::kUnsupported;
        break;
      case shadow::kEmulatorDeadlock:
        outcome.kind = OutcomeKind::kDeadlock;
        break;
      case shadow::kEmulatorGlobalSpin:
        outcome.kind = OutcomeKind::kSpins;
        break;
      case shadow::kEmulatorHostWait:
        outcome.kind = OutcomeKind::kWaits;
        break;
      default:
        outcome.kind = OutcomeKind::kFailed;
        break;
    }
    return outcome;
  }

  const Driver& driver_;
  proto::Capture& capture_;
  TensorMaps tensor_maps_;
  std::map<uint64_t, CUmodule> modules_;
  std::vector<CUstream> streams_;  // of each launch
  std::vector<CUevent> events_;    // behind each launch; null: not needed so far
};

}  // namespace

Outcome Replay(const Driver& driver, proto::Capture* capture) {
  return Session(driver, *capture).Run();
}

}  // namespace ops_debug::replayer
