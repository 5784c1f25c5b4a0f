// For functions of the run-time that are the driver's under another name: handles are the same
// types, enumerations agree in value, and structures in layout (asserted where they are used).
#pragma once

#include <type_traits>

#include "emulator/cudart/runtime.h"

namespace ops_debug::emulator::cudart {

template <class To, class From>
To As(From value) {
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (std::is_pointer_v<From> || std::is_pointer_v<To>) {
    return reinterpret_cast<To>(value);
  } else {
    return static_cast<To>(value);
  }
}

template <class... Parameters, class... Arguments>
CUresult Call(CUresult (*function)(Parameters...), Arguments... arguments) {
  return function(As<Parameters>(arguments)...);
}

// Calls the driver's function with these arguments.
template <auto kFunction, class... Arguments>
cudaError_t Forward(Arguments... arguments) {
  return WithContext(
      [&](const DriverCalls& driver) { return Call(driver.*kFunction, arguments...); });
}

}  // namespace ops_debug::emulator::cudart
