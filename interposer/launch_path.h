// What happens to one launch, or to a kernel that becomes a node of a graph: the instrumented twin
// runs in its place with one more parameter, or the original runs, checked by the second engine or
// not checked and counted with the reason.
//
//   return Launch(request, [&](CUfunction function, void** parameters, void** extra) {
//     return real(function, ..., parameters, extra);
//   });
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "interposer/context_state.h"
#include "interposer/launch_parameters.h"
#include "interposer/launch_record.h"
#include "interposer/launch_timing.h"
#include "interposer/module_registry.h"
#include "interposer/session.h"
#include "interposer/stream_order.h"
#include "interposer/tensor_capture.h"

namespace ops_debug::interposer {

struct LaunchRequest {
  const char* api = "";
  CUfunction handle = nullptr;  // or a CUkernel
  Dim3 grid, block;
  uint32_t dynamic_shared_bytes = 0;
  CUstream stream = nullptr;  // as the program gave it; unused for a node that is added
  DefaultStream default_stream = DefaultStream::kLegacy;
  bool added_node = false;           // cuGraphAddKernelNode and relatives: nothing runs now
  CUcontext node_context = nullptr;  // of an added node, if the program names one
  // Not empty: the original must run, because of how the program launches.
  const char* obstacle = "";
  const CUlaunchConfig* config = nullptr;  // of cuLaunchKernelEx
  void** parameters = nullptr;
  void** extra = nullptr;
};

class LaunchPath {
 public:
  // Decides. Afterwards twin() is what to give the driver, or null.
  explicit LaunchPath(const LaunchRequest& request);
  ~LaunchPath();
  LaunchPath(const LaunchPath&) = delete;
  LaunchPath& operator=(const LaunchPath&) = delete;

  CUfunction twin() const { return twin_; }
  void** parameters() { return twin_parameters_.parameters(); }
  void** extra() { return twin_parameters_.extra(); }
  // The driver's answer to the twin. False: it cannot be launched, so try the original.
  bool TwinLaunched(CUresult result);
  // The original runs although there is a twin.
  void GiveUpTwin(std::string_view reason);
  void OriginalLaunched(CUresult result);

 private:
  // Why this launch has no twin; empty if it has.
  std::string_view FindTwin();
  void Cover();  // by another engine, if one can
  LaunchRecord MakeRecord();
  void Remember();            // under id_, once
  void SaveToFile();          // --capture-launch
  void BeginTensorCapture();  // --capture
  void CaptureForReplay();    // if its kernel cannot decide everything itself
  void PrepareRaceChecks();   // of the twin
  void PrepareInitChecks();   // of the twin
  void NoteUnseenWrites();    // for reads of memory that was never written
  void NoteHostMemoryWrites();

  const LaunchRequest& request_;
  const CUstream stream_;  // explicit
  FunctionPointer function_;
  KernelRecord* kernel_;
  ContextPointer context_;
  InstancePointer instance_;
  CUfunction twin_ = nullptr;
  bool node_ = false;              // added or captured
  bool left_out_ = false;          // by the user
  std::optional<Engine> covered_;  // of the original: the engine that checks it
  const uint64_t id_;
  bool remembered_ = false;
  uint64_t capture_id_ = 0;  // 0: not captured
  bool told_token_ = false;  // to the CPU device, which has no order of the launch
  std::string failure_;      // holds what reason_ refers to, if it was made for this launch
  std::string_view reason_;
  TwinParameters twin_parameters_;
  std::unique_lock<std::mutex> race_lock_;  // until the driver has the launch (race_state.h)
  std::optional<LaunchOrder> order_;        // of a launch that runs now
  std::optional<LaunchTimer> timer_;
  std::unique_ptr<TensorCapture> tensors_;
};

template <class Go>
CUresult Launch(const LaunchRequest& request, Go go) {
  if (!ChecksAnything() || !request.handle)
    return go(request.handle, request.parameters, request.extra);
  LaunchPath path(request);
  if (path.twin()) {
    const CUresult result = go(path.twin(), path.parameters(), path.extra());
    if (path.TwinLaunched(result)) return result;
  }
  const CUresult result = go(request.handle, request.parameters, request.extra);
  path.OriginalLaunched(result);
  return result;
}

}  // namespace ops_debug::interposer
