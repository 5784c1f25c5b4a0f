// run --capture: what the pointers of chosen kernels lead to, before and after each launch, as one
// .safetensors file per launch, for `ops-debug diff`. Reading waits for the launch's stream, so
// such launches run one after the other.
//
// A file FOLDER/KERNEL#CALL.safetensors holds argN, as it was before the launch, and argN.after,
// unless the parameter is a pointer to const. Its metadata: "kernel" (demangled), "call" (launches
// of that name before, from 0), "sequence" (captured launches of the process before, from 0),
// "process", "grid", "block", "launch" (number), "statistics" (a JSON object: for each tensor
// count, nan, inf, min, max, mean, l2), "left_out" (a JSON object: tensors without values, and
// why).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "interposer/launch_capture.h"
#include "interposer/launch_record.h"

namespace ops_debug::interposer {

// True if launches of any kernel are captured (SessionOptions::capture_tensors).
bool CapturesTensors() noexcept;

// Of one launch.
class TensorCapture {
 public:
  // Reads what there is before the launch. Null: this kernel is not captured, or the launch cannot
  // be, which is told. Never throws.
  static std::unique_ptr<TensorCapture> Begin(const LaunchToCapture& launch,
                                              const std::function<LaunchRecord()>& record) noexcept;
  // The driver has the launch: reads what there is after it, and writes the file. Never throws.
  void Finish() noexcept;
  ~TensorCapture();
  TensorCapture(const TensorCapture&) = delete;
  TensorCapture& operator=(const TensorCapture&) = delete;

 private:
  struct Parts;
  explicit TensorCapture(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace ops_debug::interposer
