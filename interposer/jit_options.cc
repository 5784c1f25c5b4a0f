// Which options mean something for a cubin: CUDA Driver API, "CUjit_option".
#include "interposer/jit_options.h"

#include <algorithm>
#include <cstring>

namespace ops_debug::interposer {
namespace {

constexpr size_t kLogBytes = 8192;
constexpr size_t kLogBytesShown = 600;
constexpr int kMaxOptimization = 4;

// Where the driver writes, and symbols that code is linked with.
bool MattersForCubin(CUjit_option option) {
  switch (option) {
    case CU_JIT_WALL_TIME:
    case CU_JIT_INFO_LOG_BUFFER:
    case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
    case CU_JIT_ERROR_LOG_BUFFER:
    case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
    case CU_JIT_GLOBAL_SYMBOL_NAMES:
    case CU_JIT_GLOBAL_SYMBOL_ADDRESSES:
    case CU_JIT_GLOBAL_SYMBOL_COUNT:
      return true;
    default:
      return false;
  }
}

}  // namespace

JitOptions::JitOptions(unsigned int count, CUjit_option* options, void** values,
                       const AssemblerOptions* assembled, bool want_log)
    : program_values_(values) {
  for (unsigned int i = 0; options && values && i < count; i++) {
    if (assembled && !MattersForCubin(options[i])) {
      unchanged_ = false;
      continue;
    }
    options_.push_back(options[i]);
    values_.push_back(values[i]);
    origin_.push_back(i);
    if (options[i] == CU_JIT_ERROR_LOG_BUFFER) log_ = static_cast<const char*>(values[i]);
    if (options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES)
      log_bytes_ = reinterpret_cast<uintptr_t>(values[i]);
  }
  if (assembled) {
    if (assembled->max_registers > 0) {
      Add(CU_JIT_MAX_REGISTERS,
          reinterpret_cast<void*>(static_cast<uintptr_t>(assembled->max_registers)));
    }
    if (assembled->optimization >= 0) {
      Add(CU_JIT_OPTIMIZATION_LEVEL, reinterpret_cast<void*>(static_cast<uintptr_t>(
                                         std::min(assembled->optimization, kMaxOptimization))));
    }
  }
  if (!want_log) {
    log_ = nullptr;
    return;
  }
  unchanged_ = false;
  if (log_ && log_bytes_ != 0) return;  // the program has a log of its own
  buffer_.resize(kLogBytes);
  log_ = buffer_.data();
  log_bytes_ = buffer_.size();
  Add(CU_JIT_ERROR_LOG_BUFFER, buffer_.data());
  Add(CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, reinterpret_cast<void*>(uintptr_t{kLogBytes}));
}

void JitOptions::Add(CUjit_option option, void* value) {
  options_.push_back(option);
  values_.push_back(value);
  unchanged_ = false;
}

void JitOptions::CompileInParallel() {
  if (std::find(options_.begin(), options_.end(), CU_JIT_SPLIT_COMPILE) == options_.end())
    Add(CU_JIT_SPLIT_COMPILE, nullptr);  // 0: as many threads as there are processors
}

void JitOptions::ReturnValues() {
  if (unchanged_) return;
  for (size_t i = 0; i < origin_.size(); i++) program_values_[origin_[i]] = values_[i];
}

std::string JitOptions::log() const {
  if (!log_) return "";
  std::string text(log_, strnlen(log_, log_bytes_));
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.substr(0, kLogBytesShown);
}

}  // namespace ops_debug::interposer
