// A libcuda.so.1 for the handlers' tests: device memory is host memory, a stream is a queue that
// runs when it is waited for, a module is a list of names found in its text, and a launch is a
// callback. So a test sees exactly which driver calls the handlers made, and decides what a kernel
// did.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "interposer/driver_api.h"

namespace ops_debug::interposer::fake {

struct Launch {
  std::string kernel;  // "scale$ops_debug" for a twin
  void** parameters = nullptr;
  void** extra = nullptr;
  CUstream stream = nullptr;
  CUfunction function = nullptr;
};

struct Driver {
  // What the test decides.
  uint64_t free_bytes = 1ull << 30;  // device memory left; a request beyond it fails
  std::string rejected;              // module text that holds this is refused, with a JIT error log
  CUresult rejected_with = CUDA_ERROR_INVALID_PTX;
  std::string linked_cubin;             // what cuLinkComplete gives
  CUresult twin_result = CUDA_SUCCESS;  // of launching a kernel whose name ends in $ops_debug
  CUresult original_result = CUDA_SUCCESS;
  int resident_blocks = 8, resident_twin_blocks = 8;  // on the whole device, of any kernel
  std::function<void(const Launch&)> on_launch;
  CUresult attribute_result = CUDA_SUCCESS;  // of setting an attribute of a kernel
  bool nodes_have_other_handles = false;     // a node names its kernel by another CUfunction
  bool instant_launches = false;             // a launch does nothing and is not remembered
  // What happened.
  std::map<CUdeviceptr, uint64_t> allocations;  // base -> bytes
  std::vector<std::string> module_texts;        // every text that was loaded
  std::vector<std::vector<std::pair<CUjit_option, void*>>> module_options;  // of each such load
  std::vector<Launch> launches;
  std::vector<std::string> attributes;  // "scale$ops_debug 8 65536"
  int context_synchronizations = 0;
};

// Runs what is queued on a stream.
void Run(CUstream stream);
// Address of a module-scope variable of the module that was loaded last.
CUdeviceptr Variable(const std::string& name);

Driver& TheDriver();

}  // namespace ops_debug::interposer::fake
