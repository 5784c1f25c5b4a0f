// The driver API as a table: one entry per function that libcuda.so.1 exports, generated from
// cuda.h by scripts/generate_driver_table.py. Names, look-up and real pointers all come from it;
// hooks.h adds handlers to it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "interposer/driver_api.h"

namespace ops_debug::interposer {

// Which default stream a function means by stream 0 (suffixes _ptds and _ptsz of the exported
// name).
enum class DefaultStream : uint8_t { kLegacy, kPerThread };

// DriverFunction::cuMemAlloc_v2 and so on, sorted by name.
enum class DriverFunction : uint16_t {
#define OPS_DEBUG_DRIVER_FUNCTION(symbol, base, since, suffix) symbol,
#include "interposer/driver_table.inc"
#undef OPS_DEBUG_DRIVER_FUNCTION
};

struct DriverFunctionInfo {
  std::string_view symbol;  // as exported: "cuMemcpyHtoD_v2_ptds"
  std::string_view base;    // as cuGetProcAddress knows it: "cuMemcpyHtoD"
  int since_cuda_version;   // first version for which cuGetProcAddress returns this ABI: 7000; 0 =
                            // not known
  DefaultStream default_stream;
};

inline constexpr DriverFunctionInfo kDriverFunctions[] = {
#define OPS_DEBUG_DRIVER_FUNCTION(symbol, base, since, suffix) \
  {#symbol, #base, since, sizeof(#suffix) > 1 ? DefaultStream::kPerThread : DefaultStream::kLegacy},
#include "interposer/driver_table.inc"
#undef OPS_DEBUG_DRIVER_FUNCTION
};
inline constexpr size_t kDriverFunctionCount =
    sizeof(kDriverFunctions) / sizeof(kDriverFunctions[0]);

// CUDA_VERSION of the headers that the table was made from.
inline constexpr int kTableCudaVersion =
#define OPS_DEBUG_DRIVER_TABLE_VERSION(version) version
#include "interposer/driver_table.inc"
#undef OPS_DEBUG_DRIVER_TABLE_VERSION
    ;

constexpr const DriverFunctionInfo& Info(DriverFunction function) {
  return kDriverFunctions[static_cast<size_t>(function)];
}

// The entry whose exported name is exactly `symbol`; false if there is none.
bool FindDriverFunction(std::string_view symbol, DriverFunction* function);

// Address of the function in the real libcuda.so.1, never one of our hooks. Null if the program has
// not loaded the driver or the driver lacks the function. Never loads the driver. Thread-safe.
void* RealAddress(DriverFunction function);

// True if the program has loaded libcuda.so.1.
bool DriverLoaded();

// A real driver function, callable: RealCall<decltype(&::cuMemFree_v2)>.
template <class Signature>
class RealCall;

template <class... Args>
class RealCall<CUresult (*)(Args...)> {
 public:
  using Signature = CUresult (*)(Args...);

  explicit RealCall(DriverFunction function)
      : function_(function), address_(reinterpret_cast<Signature>(RealAddress(function))) {}

  // CUDA_ERROR_NOT_FOUND if the driver lacks the function.
  CUresult operator()(Args... args) {
    called_ = true;
    if (address_ == nullptr) return result_ = CUDA_ERROR_NOT_FOUND;
    inside_ = true;
    result_ = address_(args...);
    inside_ = false;
    return result_;
  }
  explicit operator bool() const { return address_ != nullptr; }
  // The variant that the program called, where one handler serves several.
  DriverFunction function() const { return function_; }
  DefaultStream default_stream() const { return Info(function_).default_stream; }
  const char* symbol() const { return Info(function_).symbol.data(); }

  // For the hook boundary: whether and how the program's call was carried out when a handler
  // failed.
  bool called() const { return called_; }
  bool inside() const { return inside_; }
  CUresult result() const { return result_; }

 private:
  DriverFunction function_;
  Signature address_;
  bool called_ = false;
  bool inside_ = false;
  CUresult result_ = CUDA_ERROR_UNKNOWN;
};

// How many streams of the process are being captured; context_state.cc counts.
inline constinit std::atomic<size_t> g_captured_streams{0};

// As long as it lives, this thread's calls do not count as "potentially unsafe": they neither fail
// nor invalidate a capture that forbids such calls, in this thread or in all of them (CUDA Driver
// API, cuThreadExchangeStreamCaptureMode).
class RelaxedCapture {
 public:
  RelaxedCapture() noexcept;
  ~RelaxedCapture();
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;  // then the mode to go back to
  // A driver before CUDA 10.1 lacks the call; it also lacks the modes that make it necessary.
  bool exchanged_ = false;
};

// A call that the program did not make: no capture of the program may notice it.
template <class Signature>
class OwnCall;

template <class... Args>
class OwnCall<CUresult (*)(Args...)> {
 public:
  explicit OwnCall(DriverFunction function) : real_(function) {}

  CUresult operator()(Args... args) {
    if (g_captured_streams.load(std::memory_order_relaxed) == 0) [[likely]]
      return real_(args...);
    const RelaxedCapture relaxed;
    return real_(args...);
  }
  explicit operator bool() const { return static_cast<bool>(real_); }

 private:
  RealCall<CUresult (*)(Args...)> real_;
};

}  // namespace ops_debug::interposer

// OPS_DEBUG_REAL(cuMemcpyDtoH_v2)(host, device, size_bytes): calls the driver past all hooks, for
// ourselves.
#define OPS_DEBUG_REAL(symbol)                            \
  (::ops_debug::interposer::OwnCall<decltype(&::symbol)>( \
      ::ops_debug::interposer::DriverFunction::symbol))
// The same in the place of a call that the program made: what a capture forbids stays forbidden.
#define OPS_DEBUG_REAL_FOR_PROGRAM(symbol)                 \
  (::ops_debug::interposer::RealCall<decltype(&::symbol)>( \
      ::ops_debug::interposer::DriverFunction::symbol))
