// The generated table against the headers that it was made from, and look-up in it.
#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <type_traits>

#include "interposer/driver_table.h"
#include "interposer/hooks.h"
// Old names of types that only the internal mode of the header uses.
#include <cudaProfiler.h>
#include <cudaProfilerTypedefs.h>
#include <cudaTypedefs.h>

namespace ops_debug::interposer {

// The pairing of ABI suffix and CUDA version is right if the types of both headers agree, for every
// function.
#if CUDA_VERSION == 13000
#define OPS_DEBUG_DRIVER_FUNCTION(symbol, base, since, suffix) \
  static_assert(std::is_same_v<decltype(&::symbol), ::PFN_##base##_v##since##suffix>, #symbol);
#include "interposer/driver_table.inc"
#undef OPS_DEBUG_DRIVER_FUNCTION
#endif

TEST_CASE("names are found exactly") {
  DriverFunction function{};
  REQUIRE(FindDriverFunction("cuMemAlloc_v2", &function));
  CHECK(function == DriverFunction::cuMemAlloc_v2);
  CHECK(Info(function).base == "cuMemAlloc");
  CHECK(Info(function).since_cuda_version == 3020);
  CHECK_FALSE(FindDriverFunction("cudnnCreate", &function));
  CHECK_FALSE(FindDriverFunction("cuMemAlloc_v", &function));
  CHECK_FALSE(FindDriverFunction("cuMemAlloc_v22", &function));
  CHECK_FALSE(FindDriverFunction("", &function));
}

TEST_CASE("every entry finds itself, and stream variants are marked") {
  for (size_t i = 0; i < kDriverFunctionCount; ++i) {
    const DriverFunctionInfo& info = kDriverFunctions[i];
    DriverFunction function{};
    CAPTURE(std::string(info.symbol));
    REQUIRE(FindDriverFunction(info.symbol, &function));
    CHECK(static_cast<size_t>(function) == i);
    const bool suffix = info.symbol.ends_with("_ptds") || info.symbol.ends_with("_ptsz");
    CHECK((info.default_stream == DefaultStream::kPerThread) == suffix);
  }
}

TEST_CASE("without a loaded driver, real calls fail cleanly and load nothing") {
  int version = 0;
  CHECK_FALSE(DriverLoaded());
  CHECK(RealAddress(DriverFunction::cuDriverGetVersion) == nullptr);
  CHECK(OPS_DEBUG_REAL(cuDriverGetVersion)(&version) == CUDA_ERROR_NOT_FOUND);
}

}  // namespace ops_debug::interposer
