#include "analysis/demangle.h"

#include <catch2/catch.hpp>

namespace ops_debug::analysis {
namespace {

using Types = std::vector<std::string>;

TEST_CASE("kernels, device functions and arrays get their source names") {
  REQUIRE(Demangle("_Z15overflow_by_onePfi") == "overflow_by_one(float*, int)");
  REQUIRE(Demangle("_ZZ15shared_overflowPfiE1s") == "shared_overflow(float*, int)::s");
  REQUIRE(Demangle("_ZN2ns6kernelIfLi4EEEvPT_") == "void ns::kernel<float, 4>(float*)");
}

TEST_CASE("names that are not mangled, or are broken, stay as they are") {
  REQUIRE(Demangle("matmul_kernel") == "matmul_kernel");
  REQUIRE(Demangle("__local_depot0") == "__local_depot0");
  REQUIRE(Demangle("") == "");
  REQUIRE(Demangle("_Z") == "_Z");
  REQUIRE(Demangle("_Z3foo!!") == "_Z3foo!!");
  const std::string endless = "_Z" + std::string(1 << 20, 'P');
  REQUIRE(Demangle(endless) == endless);
}

TEST_CASE("parameter types are split at the commas of the list itself") {
  REQUIRE(ParameterTypes("copy(float const*, float*)") == Types{"float const*", "float*"});
  REQUIRE(ParameterTypes("void f<int, 2>(Pair<int, 2>, int (*)(int, int), long*)") ==
          Types{"Pair<int, 2>", "int (*)(int, int)", "long*"});
  REQUIRE(ParameterTypes("(anonymous namespace)::k(int*)") == Types{"int*"});
  REQUIRE(ParameterTypes("Op::operator()(int, float) const") == Types{"int", "float"});
  REQUIRE(ParameterTypes("f()") == Types{});
}

TEST_CASE("what is no function has no parameters") {
  REQUIRE(ParameterTypes("matmul_kernel") == Types{});
  REQUIRE(ParameterTypes("shared_overflow(float*, int)::s") == Types{});
  REQUIRE(ParameterTypes(")(") == Types{});
  REQUIRE(ParameterTypes("(((") == Types{});
}

TEST_CASE("bare names lose return type, template arguments and parameters") {
  REQUIRE(BareName("void ns::f<int>(int*)") == "ns::f");
  REQUIRE(BareName("cudaLaunchKernel") == "cudaLaunchKernel");
  REQUIRE(BareName("cudaError cudaMalloc<float>(float**, unsigned long)") == "cudaMalloc");
  REQUIRE(BareName("__device_stub__Z4copyPKfPf(float const*, float*)") ==
          "__device_stub__Z4copyPKfPf");
  REQUIRE(BareName("") == "");
}

}  // namespace
}  // namespace ops_debug::analysis
