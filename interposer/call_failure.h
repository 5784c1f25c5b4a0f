// Calls of the program that failed. Programs ignore return values, and the run-time API keeps only
// the last error; so a copy that never took place shows up much later as wrong results. Each
// failure is told once per place, unless the table in call_failure.cc says that it is an answer and
// not a mistake.
#pragma once

#include "interposer/hooks.h"

namespace ops_debug::interposer {

enum class FailureSort : uint8_t {
  kExpected,  // how programs ask; nothing is told
  kNote,      // worth knowing, and mostly handled by the program
  kFinding,
};

// Depends on nothing but its arguments.
FailureSort SortOf(DriverFunction function, CUresult result);

}  // namespace ops_debug::interposer
