#include "runner/launch_plan.h"

#include <catch2/catch.hpp>
#include <cstring>

#include "ptx/parser.h"

namespace ops_debug::runner {
namespace {

struct Declared {
  const char* type;
  const char* name;
};

// A kernel that reads blockIdx.x, blockDim.x and threadIdx.x: the usual one-dimensional index.
Entry Kernel(std::vector<Declared> parameters) {
  Entry entry;
  entry.name = "k";
  entry.types_known = true;
  for (const Declared& declared : parameters) {
    Parameter parameter;
    parameter.name = declared.name;
    parameter.type = ParseType(declared.type);
    parameter.size_bytes = parameter.type.IsPointer() ? 8 : parameter.type.element.SizeBytes();
    entry.parameters.push_back(parameter);
  }
  entry.index_use.block[0] = entry.index_use.thread[0] = entry.index_use.threads_per_block[0] =
      true;
  return entry;
}

LaunchRequest Shapes(std::vector<Shape> shapes) {
  LaunchRequest request;
  request.input_shapes = std::move(shapes);
  return request;
}

LaunchPlan Planned(const Entry& entry, const LaunchRequest& request) {
  absl::StatusOr<LaunchPlan> plan = PlanLaunch(entry, request);
  if (!plan.ok()) FAIL(std::string(plan.status().message()));
  return *plan;
}

std::string Problem(const Entry& entry, const LaunchRequest& request) {
  absl::StatusOr<LaunchPlan> plan = PlanLaunch(entry, request);
  REQUIRE_FALSE(plan.ok());
  return std::string(plan.status().message());
}

using Catch::Matchers::Contains;

const Entry kMatmul = Kernel({{"float const*", "A"},
                              {"float const*", "B"},
                              {"float*", "C"},
                              {"int", "M"},
                              {"int", "N"},
                              {"int", "K"}});

TEST_CASE("one shape is the shape of all inputs, and an element-wise output has it too") {
  const LaunchPlan plan = Planned(
      Kernel({{"float const*", "x"}, {"float const*", "y"}, {"float*", "out"}, {"int", "n"}}),
      Shapes({{1000}}));
  CHECK(plan.arguments[0].size_bytes == 4000);
  CHECK(plan.arguments[1].size_bytes == 4000);
  CHECK(plan.arguments[2].size_bytes == 4000);
  CHECK(plan.arguments[2].fill == Fill::kZeros);
  CHECK(plan.arguments[3].value_text == "1000");
  CHECK(plan.block == Dimensions{256, 1, 1});
  CHECK(plan.grid == Dimensions{4, 1, 1});
}

TEST_CASE("M, N and K make a matrix product") {
  LaunchRequest request = Shapes({{10, 20}, {20, 30}});
  request.grid = "1";
  const LaunchPlan plan = Planned(kMatmul, request);
  CHECK(plan.arguments[2].shape == Shape{10, 30});
  CHECK(plan.arguments[3].value_text == "10");
  CHECK(plan.arguments[4].value_text == "30");
  CHECK(plan.arguments[5].value_text == "20");
}

TEST_CASE("inner dimensions that differ are an error") {
  CHECK_THAT(Problem(kMatmul, Shapes({{10, 20}, {30, 20}})),
             Contains("the inner dimensions agree"));
}

TEST_CASE("rows and columns come from a two-dimensional shape") {
  LaunchRequest request = Shapes({{64, 100}});
  request.grid = "rows";
  const LaunchPlan plan = Planned(
      Kernel({{"float const*", "in"}, {"float*", "out"}, {"int", "rows"}, {"int", "num_cols"}}),
      request);
  CHECK(plan.arguments[2].value_text == "64");
  CHECK(plan.arguments[3].value_text == "100");
  CHECK(plan.grid == Dimensions{64, 1, 1});
}

TEST_CASE("a lone n beside a matrix is not sure, and the choices are shown") {
  const std::string problem = Problem(
      Kernel({{"float const*", "in"}, {"float*", "out"}, {"int", "n"}}), Shapes({{32, 64}}));
  CHECK_THAT(problem, Contains("argument n (int): not sure what it is"));
  CHECK_THAT(problem, Contains("--arg n=2048 (elements of in) or --arg n=32 (dimension 0 of in) or "
                               "--arg n=64 (dimension 1 of in)"));
}

TEST_CASE("a given integer needs no rule and may be an expression") {
  LaunchRequest request = Shapes({{32, 64}});
  request.arguments = {{"n", "half*2"}, {"half", "in.dim1/2"}};
  request.grid = "1";
  const LaunchPlan plan = Planned(
      Kernel({{"float const*", "in"}, {"float*", "out"}, {"int", "n"}, {"int", "half"}}), request);
  CHECK(plan.arguments[2].value_text == "64");
  CHECK(plan.arguments[3].value_text == "32");
}

TEST_CASE("integers that need each other are an error, not a loop") {
  LaunchRequest request = Shapes({{32}});
  request.arguments = {{"a", "b"}, {"b", "a"}};
  CHECK_THAT(Problem(Kernel({{"float const*", "in"}, {"int", "a"}, {"int", "b"}}), request),
             Contains("--arg a: 'b': no value is known for 'b'"));
}

TEST_CASE("two shapes for three inputs stop the launch") {
  CHECK_THAT(Problem(Kernel({{"float const*", "a"},
                             {"float const*", "b"},
                             {"float const*", "c"},
                             {"float*", "out"}}),
                     Shapes({{8}, {8}})),
             Contains("argument c (float const*): no shape"));
}

TEST_CASE("an output is not guessed when input shapes differ") {
  CHECK_THAT(Problem(Kernel({{"float const*", "a"}, {"float const*", "b"}, {"float*", "out"}}),
                     Shapes({{8}, {4}})),
             Contains("argument out (float*): not sure of its shape, the inputs' shapes differ"));
}

TEST_CASE("an output's shape may be an expression over integers") {
  LaunchRequest request = Shapes({{100}});
  request.arguments = {{"bins", "16"}, {"histogram", "shape:bins,2:ones"}};
  const LaunchPlan plan = Planned(Kernel({{"unsigned char const*", "v"},
                                          {"unsigned int*", "histogram"},
                                          {"int", "n"},
                                          {"int", "bins"}}),
                                  request);
  CHECK(plan.arguments[1].shape == Shape{16, 2});
  CHECK(plan.arguments[1].fill == Fill::kOnes);
}

TEST_CASE("without inputs the shapes are those of the buffers in order") {
  const LaunchPlan plan = Planned(
      Kernel({{"float*", "x"}, {"double*", "y"}, {"float", "a"}, {"int", "n"}}), Shapes({{50}}));
  CHECK(plan.arguments[0].size_bytes == 200);
  CHECK(plan.arguments[1].size_bytes == 400);
  CHECK(plan.arguments[2].value_text == "1");
  CHECK(plan.arguments[3].value_text == "50");
}

TEST_CASE("void pointers need an element type") {
  const Entry entry = Kernel({{"void const*", "in"}, {"float*", "out"}});
  CHECK_THAT(Problem(entry, Shapes({{8}})),
             Contains("argument in (void const*): its element type is not known"));
  LaunchRequest request = Shapes({{8}});
  request.arguments = {{"in", "f16"}};
  request.grid = "1";
  CHECK(Planned(entry, request).arguments[0].size_bytes == 16);
}

TEST_CASE("null is a pointer without a buffer") {
  LaunchRequest request = Shapes({{8}});
  request.arguments = {{"mask", "null"}};
  const LaunchPlan plan = Planned(
      Kernel({{"float const*", "in"}, {"float const*", "mask"}, {"float*", "out"}, {"int", "n"}}),
      request);
  CHECK_FALSE(plan.arguments[1].is_buffer);
  CHECK(plan.arguments[1].value == std::vector<std::byte>(8, std::byte{0}));
}

TEST_CASE("a struct by value must be given") {
  Entry entry = Kernel({{"float const*", "in"}, {"Params", "params"}});
  entry.parameters[1].size_bytes = 12;
  LaunchRequest request = Shapes({{8}});
  request.grid = "1";
  CHECK_THAT(Problem(entry, request),
             Contains("argument params (Params): its 12 bytes are not known"));
  request.arguments = {{"params", "zeros"}};
  CHECK(Planned(entry, request).arguments[1].value.size() == 12);
}

TEST_CASE("an argument that the kernel does not have is an error") {
  LaunchRequest request = Shapes({{8}});
  request.arguments = {{"m", "3"}};
  CHECK_THAT(Problem(Kernel({{"float const*", "in"}, {"int", "n"}}), request),
             Contains("--arg m: the kernel has no such parameter"));
}

TEST_CASE("all problems are told at once") {
  Entry entry = Kernel({{"float const*", "in"}, {"int", "flag"}});
  entry.index_use.thread[1] = true;
  const std::string problem = Problem(entry, Shapes({}));
  CHECK_THAT(problem, Contains("argument in") && Contains("argument flag") && Contains("block:") &&
                          Contains("grid:"));
}

TEST_CASE("__launch_bounds__ is the block of a one-dimensional kernel") {
  Entry entry = Kernel({{"float const*", "in"}, {"int", "n"}});
  entry.maximum_block = Dimensions{128, 1, 1};
  CHECK(Planned(entry, Shapes({{1000}})).block == Dimensions{128, 1, 1});
  LaunchRequest request = Shapes({{1000}});
  request.block = "256";
  CHECK_THAT(Problem(entry, request),
             Contains("more threads than the 128 of the kernel's __launch_bounds__"));
}

TEST_CASE("a block that nothing tells is asked for") {
  Entry entry = Kernel({{"float const*", "in"}, {"int", "n"}});
  entry.index_use.threads_per_block[0] = false;
  CHECK_THAT(Problem(entry, Shapes({{1000}})), Contains("pass --block, for example --block 256"));
}

TEST_CASE("a two-dimensional grid covers rows and columns of a given block") {
  Entry entry =
      Kernel({{"float const*", "in"}, {"float*", "out"}, {"int", "width"}, {"int", "height"}});
  entry.index_use.block[1] = entry.index_use.thread[1] = entry.index_use.threads_per_block[1] =
      true;
  LaunchRequest request = Shapes({{100, 70}});
  request.block = "32x8";
  const LaunchPlan plan = Planned(entry, request);
  CHECK(plan.grid == Dimensions{3, 13, 1});
}

TEST_CASE("a kernel that does not read blockIdx runs in one block") {
  Entry entry = Kernel({{"float const*", "in"}, {"int", "n"}});
  entry.index_use.block[0] = false;
  CHECK(Planned(entry, Shapes({{100000}})).grid == Dimensions{1, 1, 1});
}

TEST_CASE("grid and block outside the hardware's limits are errors") {
  LaunchRequest request = Shapes({{8}});
  const Entry entry = Kernel({{"float const*", "in"}, {"int", "n"}});
  request.block = "64x32";
  CHECK_THAT(Problem(entry, request), Contains("has 2048 threads; a block has at most 1024"));
  request.block = "32";
  request.grid = "0";
  CHECK_THAT(Problem(entry, request), Contains("outside 1 to"));
  request.grid = "1x70000";
  CHECK_THAT(Problem(entry, request), Contains("outside 1 to 65535"));
}

TEST_CASE("a launch comment fills what the command line leaves open") {
  LaunchRequest request;
  request.block = "64";
  request.arguments = {{"n", "5"}};
  ApplyLaunchComment(
      {1, {{"block", "128"}, {"grid", "7"}, {"n", "6"}, {"m", "8"}, {"shared", "1024"}}}, &request);
  CHECK(request.block == "64");
  CHECK(request.grid == "7");
  CHECK(request.shared_bytes == "1024");
  CHECK(request.arguments == std::map<std::string, std::string>{{"n", "5"}, {"m", "8"}});
}

TEST_CASE("names come from the definition with as many parameters") {
  Entry entry = Kernel({{"float*", "arg0"}, {"int", "arg1"}});
  SourceScan scan;
  scan.kernels = {{"k", 1, {{"float*", "x"}}, {}}, {"k", 2, {{"float*", "y"}, {"int", "n"}}, {}}};
  ApplySource(scan, &entry);
  CHECK(entry.parameters[0].name == "y");
  CHECK(entry.parameters[1].name == "n");
}

TEST_CASE("definitions that disagree on names give none") {
  Entry entry = Kernel({{"float*", "arg0"}});
  SourceScan scan;
  scan.kernels = {{"k", 1, {{"float*", "x"}}, {}}, {"k", 2, {{"double*", "y"}}, {}}};
  ApplySource(scan, &entry);
  CHECK(entry.parameters[0].name == "arg0");
}

TEST_CASE("the source gives types to an unmangled entry where the width fits") {
  Entry entry = Kernel({{"?", "arg0"}, {"?", "arg1"}});
  entry.types_known = false;
  entry.parameters[0].size_bytes = 8;
  entry.parameters[1].size_bytes = 8;
  SourceScan scan;
  scan.kernels = {{"k", 1, {{"const float*", "x"}, {"int", "typedef_hides_a_long"}}, {}}};
  ApplySource(scan, &entry);
  CHECK(entry.parameters[0].type.kind == ParameterType::Kind::kPointer);
  CHECK(entry.parameters[1].type.kind == ParameterType::Kind::kOpaque);
}

TEST_CASE("shapes are positive numbers joined by x") {
  CHECK(*ParseShape("2x3x4") == Shape{2, 3, 4});
  const char* text = GENERATE("", "x", "0x3", "-1", "3x", "3y4", "99999999999999999999");
  CHECK_FALSE(ParseShape(text).ok());
}

TEST_CASE("a buffer beyond any device is an error") {
  CHECK_THAT(Problem(Kernel({{"float const*", "in"}, {"long", "n"}}),
                     Shapes({{4000000000, 4000000000, 4}})),
             Contains("needs more than 64 GiB"));
}

TEST_CASE("a role stands in for const: an output that is not const, an input that is not const") {
  const Entry entry = Kernel({{"float*", "x"}, {"float*", "y"}, {"float*", "room"}, {"int", "n"}});
  LaunchRequest request = Shapes({{64}});
  request.arguments = {{"x", "input"}, {"room", "shape:n:scratch"}};
  const LaunchPlan plan = Planned(entry, request);
  CHECK((plan.arguments[0].is_input && !plan.arguments[0].is_output));
  CHECK((!plan.arguments[1].is_input && plan.arguments[1].is_output));
  CHECK((!plan.arguments[2].is_input && !plan.arguments[2].is_output));
  CHECK(plan.arguments[1].shape == Shape{64});
  CHECK(plan.arguments[0].fill == Fill::kRandom);
}

TEST_CASE("without const every buffer is read and written") {
  const LaunchPlan plan = Planned(Kernel({{"float*", "x"}, {"int", "n"}}), Shapes({{64}}));
  CHECK((plan.arguments[0].is_input && plan.arguments[0].is_output));
}

TEST_CASE("an attribute is the value of the scalar of its name, unless --arg says another") {
  const Entry entry =
      Kernel({{"float const*", "x"}, {"float*", "y"}, {"int", "n"}, {"int", "padding"}});
  LaunchRequest request = Shapes({{64}});
  request.attributes = {{"padding", "x.dim0/32"}, {"groups", "7"}};
  CHECK(Planned(entry, request).arguments[3].value_text == "2");
  request.arguments = {{"padding", "3"}};
  CHECK(Planned(entry, request).arguments[3].value_text == "3");
}

TEST_CASE("a launch comment's attributes and backward kernels are no parameters") {
  LaunchComment comment;
  comment.settings = {{"attr.padding", "1"}, {"backward", "a,b"}, {"rtol", "1e-4"}, {"n", "64"}};
  LaunchRequest request;
  ApplyLaunchComment(comment, &request);
  CHECK(request.attributes == std::map<std::string, std::string>{{"padding", "1"}});
  CHECK(request.arguments == std::map<std::string, std::string>{{"n", "64"}});
}

}  // namespace
}  // namespace ops_debug::runner
