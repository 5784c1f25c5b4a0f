// Launches with clusters: where the shape comes from, which shapes an H200 refuses, and the
// questions about them.
#include <vector>

#include "test/emulator/driver/driver_fixture.h"

using namespace ops_debug::emulator::test;  // NOLINT(google-build-using-namespace): test helpers

namespace {

// Each kernel stores %is_explicit_cluster and the number of blocks in its cluster.
std::string Kernels() {
  std::string text = ".version 8.0\n.target sm_90\n.address_size 64\n";
  const char* const heads[][2] = {{"plain", ""},
                                  {"required", ".reqnctapercluster 2, 1, 1"},
                                  {"must", ".explicitcluster"},
                                  {"limited", ".maxclusterrank 4"}};
  for (const auto& [name, directive] : heads) {
    text += std::string(".visible .entry ") + name + "(.param .u64 out) " + directive + R"(
{ .reg .b32 %r<3>; .reg .b64 %rd<2>; .reg .pred %p<2>;
  ld.param.u64 %rd1, [out]; mov.pred %p1, %is_explicit_cluster; selp.u32 %r1, 1, 0, %p1;
  mov.u32 %r2, %cluster_nctarank; st.global.v2.u32 [%rd1], {%r1, %r2}; ret; }
)";
  }
  return text;
}

CUlaunchAttribute Cluster(unsigned x, unsigned y, unsigned z) {
  CUlaunchAttribute attribute = {};
  attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  attribute.value.clusterDim.x = x;
  attribute.value.clusterDim.y = y;
  attribute.value.clusterDim.z = z;
  return attribute;
}

CUlaunchConfig Config(unsigned grid, unsigned block, std::vector<CUlaunchAttribute>& attributes) {
  CUlaunchConfig config = {};
  config.gridDimX = grid;
  config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = block;
  config.blockDimY = config.blockDimZ = 1;
  config.attrs = attributes.data();
  config.numAttrs = unsigned(attributes.size());
  return config;
}

struct Row {
  const char* kernel;
  unsigned grid;
  std::vector<CUlaunchAttribute> attributes;
  CUresult status;
  unsigned is_explicit, blocks;
};

}  // namespace

TEST_CASE("cluster shapes of launches") {
  Context context;
  const std::string ptx = Kernels();
  Module module(ptx.c_str());
  CUdeviceptr out = Allocate(8);
  constexpr CUresult kRefused = CUDA_ERROR_INVALID_CLUSTER_SIZE;
  const Row rows[] = {
      {"plain", 4, {}, CUDA_SUCCESS, 0, 1},
      {"plain", 4, {Cluster(1, 1, 1)}, CUDA_SUCCESS, 1, 1},
      {"plain", 4, {Cluster(0, 0, 0)}, CUDA_SUCCESS, 0, 1},
      {"plain", 4, {Cluster(2, 0, 1)}, kRefused, 0, 0},
      {"plain", 4, {Cluster(3, 1, 1)}, kRefused, 0, 0},
      {"plain", 4, {Cluster(1, 2, 1)}, kRefused, 0, 0},
      {"plain", 8, {Cluster(8, 1, 1)}, CUDA_SUCCESS, 1, 8},
      {"plain", 16, {Cluster(16, 1, 1)}, kRefused, 0, 0},
      {"required", 4, {}, CUDA_SUCCESS, 1, 2},
      {"required", 3, {}, kRefused, 0, 0},
      {"required", 4, {Cluster(2, 1, 1)}, CUDA_SUCCESS, 1, 2},
      {"required", 4, {Cluster(4, 1, 1)}, kRefused, 0, 0},
      {"must", 4, {}, kRefused, 0, 0},
      {"must", 4, {Cluster(2, 1, 1)}, CUDA_SUCCESS, 1, 2},
      {"limited", 8, {Cluster(8, 1, 1)}, kRefused, 0, 0},
      {"limited", 8, {Cluster(4, 1, 1)}, CUDA_SUCCESS, 1, 4},
  };
  for (Row row : rows) {
    INFO(row.kernel << ", grid " << row.grid);
    const CUlaunchConfig config = Config(row.grid, 32, row.attributes);
    void* parameters[] = {&out};
    REQUIRE(cuLaunchKernelEx(&config, module.Function(row.kernel), parameters, nullptr) ==
            row.status);
    if (row.status != CUDA_SUCCESS) continue;
    unsigned seen[2] = {};
    REQUIRE(cuMemcpyDtoH(seen, out, sizeof(seen)) == CUDA_SUCCESS);
    CHECK(seen[0] == row.is_explicit);
    CHECK(seen[1] == row.blocks);
  }
}

TEST_CASE("clusters of more than eight blocks need a permission") {
  Context context;
  const std::string ptx = Kernels();
  Module module(ptx.c_str());
  CUdeviceptr out = Allocate(8);
  void* parameters[] = {&out};
  const CUfunction plain = module.Function("plain");
  REQUIRE(cuFuncSetAttribute(plain, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1) ==
          CUDA_SUCCESS);
  std::vector<CUlaunchAttribute> sixteen{Cluster(16, 1, 1)}, seventeen{Cluster(17, 1, 1)};
  CUlaunchConfig config = Config(16, 32, sixteen);
  CHECK(cuLaunchKernelEx(&config, plain, parameters, nullptr) == CUDA_SUCCESS);
  config = Config(17, 32, seventeen);
  CHECK(cuLaunchKernelEx(&config, plain, parameters, nullptr) == CUDA_ERROR_INVALID_CLUSTER_SIZE);
}

TEST_CASE("cluster attributes of functions") {
  Context context;
  const std::string ptx = Kernels();
  Module module(ptx.c_str());
  const auto get = [&](const char* name, CUfunction_attribute attribute) {
    int value = -1;
    REQUIRE(cuFuncGetAttribute(&value, attribute, module.Function(name)) == CUDA_SUCCESS);
    return value;
  };
  CHECK(get("required", CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH) == 2);
  CHECK(get("required", CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH) == 1);
  CHECK(get("required", CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET) == 0);
  CHECK(get("must", CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET) == 1);
  CHECK(get("plain", CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH) == 0);
  const CUfunction required = module.Function("required");
  CHECK(cuFuncSetAttribute(required, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, 2) == CUDA_SUCCESS);
  CHECK(cuFuncSetAttribute(required, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT, 2) ==
        CUDA_ERROR_INVALID_VALUE);
  CHECK(cuFuncSetAttribute(required, CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE, 9) ==
        CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("resident clusters") {
  Context context;
  const std::string ptx = Kernels();
  Module module(ptx.c_str());
  const CUfunction plain = module.Function("plain");
  struct Case {
    unsigned cluster, block;
    int most, active;  // an H200's answers
  };
  for (const Case& test : {Case{2, 128, 8, 528}, Case{4, 1024, 8, 62}, Case{8, 1024, 8, 30},
                           Case{8, 32, 8, 124}, Case{2, 2048, 0, 0}}) {
    INFO(test.cluster << " blocks of " << test.block);
    std::vector<CUlaunchAttribute> attributes{Cluster(test.cluster, 1, 1)};
    const CUlaunchConfig config = Config(128, test.block, attributes);
    int most = -1, active = -1;
    CHECK(cuOccupancyMaxPotentialClusterSize(&most, plain, &config) == CUDA_SUCCESS);
    CHECK(cuOccupancyMaxActiveClusters(&active, plain, &config) == CUDA_SUCCESS);
    CHECK(most == test.most);
    CHECK(active == test.active);
  }
}
