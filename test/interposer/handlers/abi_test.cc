// A program may ask for any ABI of a function; a handler that serves only some of them would
// silently miss calls.
#include <catch2/catch.hpp>
#include <set>
#include <string>

#include "interposer/hooks.h"

namespace ops_debug::interposer {
namespace {

// ABIs from before CUDA 3.2 have 32-bit device pointers: no 64-bit program can use them.
constexpr int kFirst64BitAbi = 3020;

TEST_CASE("every 64-bit ABI of a hooked function is hooked") {
  std::set<std::string_view> hooked_bases;
  for (const DriverFunctionInfo& info : kDriverFunctions) {
    if (FindHook(static_cast<DriverFunction>(&info - kDriverFunctions)) != nullptr)
      hooked_bases.insert(info.base);
  }
  CHECK(hooked_bases.size() > 60);
  for (const DriverFunctionInfo& info : kDriverFunctions) {
    if (!hooked_bases.contains(info.base) || info.since_cuda_version < kFirst64BitAbi) continue;
    INFO(info.base << " as of CUDA " << info.since_cuda_version);
    CHECK(FindHook(static_cast<DriverFunction>(&info - kDriverFunctions)) != nullptr);
  }
}

}  // namespace
}  // namespace ops_debug::interposer
