#include "runner/source_scan.h"

#include <catch2/catch.hpp>

namespace ops_debug::runner {
namespace {

SourceScan Scan(std::string_view text) {
  absl::StatusOr<SourceScan> scan = ScanSource(text, "test.cu");
  REQUIRE(scan.ok());
  return *scan;
}

std::vector<std::string> Names(const SourceKernel& kernel) {
  std::vector<std::string> names;
  for (const SourceParameter& parameter : kernel.parameters) names.push_back(parameter.name);
  return names;
}

TEST_CASE("parameter names and types are read from the head of a kernel") {
  const SourceScan scan = Scan(R"(
template <typename T, int kTile = (1 << 4)>
static __global__ void __launch_bounds__(256, 2)
    matmul(const float* __restrict__ A, T const *B /* the second, input */, float *C,
           const int M, unsigned int N = 3, ns::Params<int, 4> params) { int x = f(M); })");
  REQUIRE(scan.kernels.size() == 1);
  const SourceKernel& kernel = scan.kernels[0];
  CHECK(kernel.name == "matmul");
  CHECK(kernel.line == 3);
  CHECK(Names(kernel) == std::vector<std::string>{"A", "B", "C", "M", "N", "params"});
  CHECK(kernel.parameters[0].type == "const float* __restrict__");
  CHECK(kernel.parameters[4].type == "unsigned int");
  CHECK(kernel.parameters[5].type == "ns::Params<int, 4>");
}

TEST_CASE("a parameter without a name stays without one") {
  const SourceScan scan = Scan("__global__ void k(const float*, unsigned int, float x[4], int) {}");
  CHECK(Names(scan.kernels[0]) == std::vector<std::string>{"", "", "x", ""});
  CHECK(scan.kernels[0].parameters[2].type == "float*");
}

TEST_CASE("attributes behind the return type are no parameter lists") {
  const SourceScan scan =
      Scan("void __global__ __cluster_dims__(2, 1, 1) __launch_bounds__(N + (1)) k(int n) {}");
  CHECK(scan.kernels[0].name == "k");
  CHECK(Names(scan.kernels[0]) == std::vector<std::string>{"n"});
}

TEST_CASE("kernels in comments and literals do not count") {
  const SourceScan scan = Scan(R"x(
// __global__ void a(int x);
/* __global__ void b(int x); */
const char* s = "__global__ void c(int x)\" ";
const char* r = R"(__global__ void d(int x) ")";
int big = 1'000'000;
__global__ void e(int y) {}
)x");
  REQUIRE(scan.kernels.size() == 1);
  CHECK(scan.kernels[0].name == "e");
}

TEST_CASE("a launch comment belongs to the next kernel, and its lines add up") {
  const SourceScan scan = Scan(R"(
__global__ void first(int n) {}
// ops-debug: block=16x16
// ops-debug: grid=ceil(N/16),ceil(M/16) bins=shape:64
__global__ void second(int N, int M) {}
__global__ void third(int n) {}
)");
  REQUIRE(scan.kernels.size() == 3);
  CHECK(scan.kernels[0].launch.line == 0);
  CHECK(scan.kernels[1].launch.line == 3);
  using Settings = std::vector<std::pair<std::string, std::string>>;
  CHECK(scan.kernels[1].launch.settings ==
        Settings{{"block", "16x16"}, {"grid", "ceil(N/16),ceil(M/16)"}, {"bins", "shape:64"}});
  CHECK(scan.kernels[2].launch.line == 0);
}

TEST_CASE("a mark inside prose is no launch comment") {
  const SourceScan scan =
      Scan("// run it with ops-debug: it prints nothing\n__global__ void k(int n) {}");
  CHECK(scan.kernels[0].launch.line == 0);
}

TEST_CASE("a block comment may hold the launch comment") {
  const SourceScan scan =
      Scan("/* A kernel.\n * ops-debug: block=128 */\n__global__ void k(int n) {}");
  REQUIRE(scan.kernels[0].launch.settings.size() == 1);
  CHECK(scan.kernels[0].launch.settings[0].second == "128");
}

TEST_CASE("a malformed launch comment is an error with its place") {
  const absl::StatusOr<SourceScan> scan =
      ScanSource("\n// ops-debug: block 256\n__global__ void k(int n) {}", "dir/test.cu");
  REQUIRE_FALSE(scan.ok());
  const std::string message(scan.status().message());
  CHECK(message.starts_with("dir/test.cu:2: 'block' in the launch comment is not key=value"));
}

TEST_CASE("main is found where it is a function") {
  CHECK(Scan("int main(int argc, char** argv) {}").has_main);
  CHECK(Scan("int\nmain()\n{}").has_main);
  CHECK(Scan("auto main() -> int {}").has_main);
  CHECK_FALSE(Scan("// int main()\nint domain(int);\nint mainly(int);").has_main);
  CHECK_FALSE(Scan("void f() { int main_loop = 0; }").has_main);
}

TEST_CASE("text that ends anywhere is no crash") {
  const std::string text =
      "/* c */ R\"x(\")x\" 'a' __global__ void __launch_bounds__(1) k(const float* a, int n) { // "
      "ops-debug: a=b\n}";
  for (size_t size = 0; size <= text.size(); ++size) {
    (void)ScanSource(std::string_view(text).substr(0, size), "t.cu");
  }
  SUCCEED();
}

}  // namespace
}  // namespace ops_debug::runner
