// A capture as plain data, and the file that it becomes (proto/capture.proto): launches with all
// that they can read, to be run once more on the CPU device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "interposer/event_sender.h"
#include "interposer/tensor_maps.h"

namespace ops_debug::interposer {

struct CapturedVariable {
  std::string name;
  uint64_t address = 0;
  std::string content;
};

struct CapturedModule {
  uint64_t id = 0;
  std::string ptx;
  std::vector<CapturedVariable> variables;
};

struct CapturedRange {
  uint64_t offset = 0;  // bytes
  uint64_t size = 0;
};

struct CapturedMemory {
  uint64_t address = 0;
  std::string content;
  std::vector<CapturedRange> unwritten;  // sorted, disjoint
  bool host = false;  // others than kernels and copies may write it: mapped, managed, imported
};

struct CapturedLaunch {
  CapturedLaunchDescription description;
  Dim3 cluster;  // all zero: as the kernel says
  std::string parameters;
  bool cooperative = false;
  bool programmatic = false;
};

// Launches in the order of submission to one stream.
struct Capture {
  std::string model;
  std::vector<CapturedModule> modules;
  std::vector<CapturedMemory> memory;
  std::vector<CapturedLaunch> launches;
  std::vector<TensorMapRecord> tensor_maps;
};

// False: `*error` is an errno. No half of a file is ever found under this name.
bool WriteCapture(const Capture& capture, const std::string& path, uint64_t* bytes, int* error);

}  // namespace ops_debug::interposer
