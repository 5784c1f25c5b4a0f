// The JIT options with which module text is loaded: the program's own, or, where text stands in for
// a cubin, those with which the cubin was assembled. A cubin is not compiled, so the program's
// compile options had no effect on it and must have none on the text.
#pragma once

#include <string>
#include <vector>

#include "interposer/driver_api.h"
#include "interposer/ptx_store.h"

namespace ops_debug::interposer {

class JitOptions {
 public:
  // `assembled`: the text stands in for a cubin. `want_log`: have the driver's error log.
  JitOptions(unsigned int count, CUjit_option* options, void** values,
             const AssemblerOptions* assembled, bool want_log);
  // Compiles the module's functions in parallel on all processors (drivers that know
  // CU_JIT_SPLIT_COMPILE; others refuse the call).
  void CompileInParallel();
  // Values that the driver wrote (log sizes, times) go back to the program's list.
  void ReturnValues();

  // True: exactly the program's list, so the program's own call serves.
  bool unchanged() const { return unchanged_; }
  unsigned int count() const { return static_cast<unsigned int>(options_.size()); }
  CUjit_option* options() { return options_.data(); }
  void** values() { return values_.data(); }
  // The error log, shortened; empty without `want_log`.
  std::string log() const;

 private:
  void Add(CUjit_option option, void* value);

  bool unchanged_ = true;
  void** program_values_;
  std::vector<CUjit_option> options_;
  std::vector<void*> values_;
  std::vector<unsigned int> origin_;  // place in the program's list, of the first entries
  std::vector<char> buffer_;
  const char* log_ = nullptr;
  size_t log_bytes_ = 0;
};

}  // namespace ops_debug::interposer
