// One launch at a time: everything is read through the launch's own stream, in front of it and
// behind it.
#include "interposer/tensor_capture.h"

#include <cxxabi.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <regex>
#include <unordered_map>
#include <utility>

#include "interposer/captured_memory.h"
#include "interposer/event_sender.h"
#include "interposer/files.h"
#include "interposer/launch_path.h"
#include "interposer/process.h"
#include "interposer/session.h"
#include "interposer/stream_reader.h"
#include "interposer/tensor_text.h"
#include "proto/kernel_name_pattern.h"

namespace ops_debug::interposer {
namespace {

using Clock = std::chrono::steady_clock;

constexpr Clock::duration kPatience = std::chrono::seconds(30);
// Of one tensor: more is only named.
constexpr uint64_t kMostBytesRead = 4ull << 30;

std::string Demangled(const std::string& mangled) {
  int status = 0;
  char* text = abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status);
  const std::string name = status == 0 && text ? text : mangled;
  std::free(text);  // NOLINT(cppcoreguidelines-no-malloc): that is how __cxa_demangle returns it
  return name;
}

struct CapturedKernel {
  bool wanted = false;
  std::string name;  // demangled
  std::string file_name;
  std::vector<ParameterType> parameters;
};

// Never destroyed: hooks run until the very end of the process.
struct State {
  std::timed_mutex one_at_a_time;                           // guards the rest
  std::unordered_map<std::string, CapturedKernel> kernels;  // by mangled name
  std::map<std::string, uint64_t> calls;                    // by file name
  uint64_t sequence = 0;
  uint64_t value_bytes = 0;  // written so far
  std::string folder;        // of this process
  bool told = false;
  bool budget_told = false;
};
State& TheState() {
  static auto* state = new State;
  return *state;
}

[[maybe_unused]] const bool registered = [] {
  AtForkInChild([]() noexcept { TheState().folder.clear(); });
  return true;
}();

void Tell(State& state, const std::string& text) {
  if (std::exchange(state.told, true)) return;
  Send(DiagnosticEvent{.severity = proto_enums::Severity::kWarning,
                       .text = "a launch's tensors were not captured: " + text,
                       .hint = "further launches are tried, and not told of"});
}

CapturedKernel& KernelOf(State& state, const std::string& mangled) {
  const auto [found, is_new] = state.kernels.try_emplace(mangled);
  CapturedKernel& kernel = found->second;
  if (!is_new) return kernel;
  static const std::optional<std::regex> pattern =
      proto::CompileKernelNamePattern(Options().capture_tensors, nullptr);
  kernel.name = Demangled(mangled);
  kernel.wanted =
      pattern && (std::regex_search(mangled, *pattern) || std::regex_search(kernel.name, *pattern));
  kernel.file_name = FileNameOf(kernel.name);
  kernel.parameters = ParametersOf(kernel.name);
  return kernel;
}

const char* ObstacleTo(const LaunchToCapture& launch) {
  if (launch.node) return "it is a node of a graph";
  if (AnyCapture()) return "a stream was being captured when it was launched";
  if (!launch.context || launch.context->lost) return "its context is not known";
  if (!launch.function->kernel->plan) return "its PTX is not known, so its parameters are not";
  return nullptr;
}

// The first process that writes has the folder, others one in it each.
std::string FolderOf(State& state, std::string* why) {
  if (!state.folder.empty()) return state.folder;
  const std::string& root = Options().capture_folder;
  const std::string process = std::to_string(getpid());
  std::string owner;
  int error = 0;
  const std::string marker = root + "/.process";
  if (!ReadWholeFile(marker, &owner)) {
    if (!WriteWholeFile(marker, process, &error)) {
      *why = "nothing can be written to " + root + ": " + std::strerror(error);
      return {};
    }
    owner = process;
  }
  std::string folder = root;
  if (owner != process) {
    folder += "/process-" + process;
    if (mkdir(folder.c_str(), 0777) != 0 && errno != EEXIST) {
      *why = folder + " cannot be made: " + std::strerror(errno);
      return {};
    }
  }
  return state.folder = folder;
}

// The memory from the pointer to the end of its tensor or allocation.
struct Pointed {
  std::string name;
  std::string element = "U8";
  std::vector<int64_t> shape;
  uint64_t address = 0, bytes = 0;
  bool is_const = false;
};

std::optional<Pointed> Resolve(uint64_t address, const ParameterType& type) {
  std::optional<shadow::Allocation> found = Book().FindInnermost(address);
  if (!found) found = Book().FindContaining(address);
  if (!found || found->freed || address >= found->end()) return std::nullopt;
  Pointed pointed;
  pointed.address = address;
  pointed.bytes = found->end() - address;
  pointed.is_const = type.is_const;
  if (!type.element.empty()) pointed.element = type.element;
  if (found->tensor) {
    const std::string element = ElementOfFramework(found->tensor->dtype);
    if (!element.empty()) pointed.element = element;
    int64_t count = 1;
    std::vector<int64_t> shape;
    for (uint32_t i = 0; i < found->tensor->rank; i++) {
      shape.push_back(found->tensor->shape[i]);
      count *= shape.back();
    }
    if (found->tensor->has_shape && address == found->base && found->tensor->rank > 0 &&
        static_cast<uint64_t>(count) * BytesOfElement(pointed.element) <= pointed.bytes) {
      pointed.shape = shape;
      pointed.bytes = static_cast<uint64_t>(count) * BytesOfElement(pointed.element);
    }
  }
  const uint32_t width = BytesOfElement(pointed.element);
  pointed.bytes -= pointed.bytes % width;
  if (pointed.shape.empty()) pointed.shape = {static_cast<int64_t>(pointed.bytes / width)};
  return pointed;
}

}  // namespace

bool CapturesTensors() noexcept { return !Options().capture_tensors.empty(); }

struct TensorCapture::Parts {
  std::unique_lock<std::timed_mutex> lock;
  ContextPointer context;
  CUstream stream = nullptr;
  const CapturedKernel* kernel = nullptr;
  uint64_t call = 0;
  LaunchDescription description;
  std::vector<Pointed> pointed;
  std::vector<TensorOfFile> tensors;
  std::string values;
  std::string statistics, left_out;  // insides of JSON objects

  void LeaveOut(const std::string& name, const std::string& why) {
    left_out += (left_out.empty() ? "" : ",") + QuotedJson(name) + ':' + QuotedJson(why);
  }
  // Adds a tensor as the stream leaves it now.
  bool Add(State& state, StreamReader& reader, const Pointed& from, const std::string& name);
  void Write(State& state);
};

bool TensorCapture::Parts::Add(State& state, StreamReader& reader, const Pointed& from,
                               const std::string& name) {
  if (from.bytes > kMostBytesRead) {
    LeaveOut(name, "larger than 4 GiB");
    return true;
  }
  const size_t begin = values.size();
  values.resize(begin + from.bytes);
  if (!reader.Read(from.address, from.bytes, values.data() + begin)) return false;
  statistics += (statistics.empty() ? "" : ",") + QuotedJson(name) + ':' +
                StatisticsOf(from.element, std::span(values.data() + begin, from.bytes));
  if (state.value_bytes + values.size() > Options().capture_bytes) {
    values.resize(begin);
    LeaveOut(name, "statistics only: the size budget is used up");
    if (!std::exchange(state.budget_told, true)) {
      Send(DiagnosticEvent{.severity = proto_enums::Severity::kNote,
                           .text = "--capture: from launch " +
                                   std::to_string(description.launch_id) +
                                   " on only statistics of tensors are kept: " +
                                   SizeInWords(Options().capture_bytes) + " of values are written",
                           .hint = "--capture-memory SIZE allows more; 0 keeps statistics alone"});
    }
    return true;
  }
  tensors.push_back({name, from.element, from.shape, from.bytes});
  return true;
}

void TensorCapture::Parts::Write(State& state) {
  std::string why;
  const std::string folder = FolderOf(state, &why);
  const auto dimensions = [](const Dim3& dim) {
    return std::to_string(dim.x) + ',' + std::to_string(dim.y) + ',' + std::to_string(dim.z);
  };
  const std::vector<std::pair<std::string, std::string>> metadata = {
      {"kernel", kernel->name},
      {"call", std::to_string(call)},
      {"sequence", std::to_string(state.sequence++)},
      {"process", std::to_string(getpid())},
      {"grid", dimensions(description.grid)},
      {"block", dimensions(description.block)},
      {"launch", std::to_string(description.launch_id)},
      {"statistics", '{' + statistics + '}'},
      {"left_out", '{' + left_out + '}'}};
  if (why.empty()) {
    const std::string path =
        folder + '/' + kernel->file_name + '#' + std::to_string(call) + ".safetensors";
    const std::string unfinished = path + ".unfinished";
    int error = 0;
    if (!WriteWholeFile(unfinished, SafetensorsHeader(tensors, metadata) + values, &error)) {
      std::remove(unfinished.c_str());
      why = path + " cannot be written: " + std::strerror(error);
    } else if (std::rename(unfinished.c_str(), path.c_str()) != 0) {
      why = path + " cannot be written: " + std::strerror(errno);
    }
  }
  if (why.empty()) {
    state.value_bytes += values.size();
  } else {
    Tell(state, why);
  }
}

TensorCapture::TensorCapture(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
TensorCapture::~TensorCapture() = default;

std::unique_ptr<TensorCapture> TensorCapture::Begin(
    const LaunchToCapture& launch, const std::function<LaunchRecord()>& record) noexcept {
  try {
    State& state = TheState();
    std::unique_lock lock(state.one_at_a_time, kPatience);
    if (!lock) return nullptr;
    CapturedKernel& kernel = KernelOf(state, launch.function->kernel->name);
    if (!kernel.wanted) return nullptr;
    const uint64_t call = state.calls[kernel.file_name]++;
    if (const char* obstacle = ObstacleTo(launch)) {
      Tell(state, obstacle);
      return nullptr;
    }
    auto parts = std::make_unique<Parts>();
    parts->context = launch.context;
    parts->stream = launch.stream;
    parts->kernel = &kernel;
    parts->call = call;
    parts->description = Describe(record());
    const shadow::KernelPlan& plan = *launch.function->kernel->plan;
    std::string parameters;
    if (!PackParameters(plan, launch.request, &parameters)) {
      Tell(state, "its launch parameters are incomplete");
      return nullptr;
    }
    InternalCalls calls(*launch.context);
    if (!calls.ok()) {
      Tell(state, "its context cannot be made current");
      return nullptr;
    }
    StreamReader reader(launch.context, launch.stream, Clock::now() + kPatience);
    for (size_t i = 0; i < plan.parameters.size(); i++) {
      const ptx::ParameterLayout& layout = plan.parameters[i];
      uint64_t address = 0;
      if (layout.size_bytes != sizeof address) continue;
      std::memcpy(&address, parameters.data() + layout.offset_bytes, sizeof address);
      const bool typed = i < kernel.parameters.size();
      std::optional<Pointed> pointed =
          Resolve(address, typed ? kernel.parameters[i] : ParameterType{});
      if (!pointed) continue;
      pointed->name = "arg" + std::to_string(i);
      if (!parts->Add(state, reader, *pointed, pointed->name)) {
        Tell(state, reader.failure());
        return nullptr;
      }
      parts->pointed.push_back(std::move(*pointed));
    }
    parts->lock = std::move(lock);
    return std::unique_ptr<TensorCapture>(new TensorCapture(std::move(parts)));
  } catch (...) {
    return nullptr;
  }
}

void TensorCapture::Finish() noexcept {
  try {
    State& state = TheState();
    {
      InternalCalls calls(*parts_->context);
      if (!calls.ok()) return Tell(state, "its context cannot be made current");
      StreamReader reader(parts_->context, parts_->stream, Clock::now() + kPatience);
      for (const Pointed& pointed : parts_->pointed) {
        if (pointed.is_const) continue;
        if (!parts_->Add(state, reader, pointed, pointed.name + ".after")) {
          Tell(state, reader.failure());
          break;  // what there was before is worth keeping
        }
      }
    }
    parts_->Write(state);
    parts_->lock.unlock();
  } catch (...) {
  }
}

}  // namespace ops_debug::interposer
