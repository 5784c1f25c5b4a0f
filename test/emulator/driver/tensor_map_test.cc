// Tensor maps: which arguments the encoders accept (as an H200 does), and a copy through one.
#include <cstring>
#include <vector>

#include "test/emulator/driver/driver_fixture.h"

using namespace ops_debug::emulator::test;  // NOLINT(google-build-using-namespace): test helpers

namespace {

// A 32 x 8 tensor of f32 and a box of 16 x 4; tests change what they are about.
struct Tiled {
  CUtensorMapDataType type = CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
  cuuint32_t rank = 2;
  uint64_t address = 0x10000;
  std::vector<cuuint64_t> sizes{32, 8}, strides{128};
  std::vector<cuuint32_t> box{16, 4}, steps{1, 1};
  CUtensorMapInterleave interleave = CU_TENSOR_MAP_INTERLEAVE_NONE;
  CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_NONE;
  CUtensorMapFloatOOBfill fill = CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE;

  CUresult Encode(CUtensorMap* map) const {
    return cuTensorMapEncodeTiled(map, type, rank, reinterpret_cast<void*>(address), sizes.data(),
                                  strides.data(), box.data(), steps.data(), interleave, swizzle,
                                  CU_TENSOR_MAP_L2_PROMOTION_NONE, fill);
  }
  CUresult Encode() const {
    CUtensorMap map;
    return Encode(&map);
  }
};

constexpr char kCopy[] = R"(
.version 8.0
.target sm_90
.address_size 64
.visible .entry copy(.param .u64 out, .param .align 64 .b8 map[128])
{
  .reg .pred %p<2>; .reg .b32 %r<8>; .reg .b64 %rd<4>;
  .shared .align 128 .b8 box[256];
  .shared .align 8 .b64 barrier;
  mov.b64 %rd1, map; cvta.param.u64 %rd1, %rd1; ld.param.u64 %rd2, [out];
  mov.u32 %r1, box; mov.u32 %r2, barrier; mov.u32 %r3, 4; mov.u32 %r4, 2;
  mbarrier.init.shared.b64 [%r2], 1;
  mbarrier.arrive.expect_tx.shared.b64 _, [%r2], 256;
  cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r3, %r4}], [%r2];
WAIT: mbarrier.try_wait.parity.shared.b64 %p1, [%r2], 0;
  @!%p1 bra WAIT;
  ld.shared.u32 %r5, [box]; ld.shared.u32 %r6, [box+252];
  st.global.v2.u32 [%rd2], {%r5, %r6};
  ret;
}
)";

}  // namespace

TEST_CASE("a tensor map leads a copy to its box") {
  Context context;
  Module module(kCopy);
  std::vector<uint32_t> values(32 * 8);
  for (uint32_t i = 0; i < values.size(); ++i) values[i] = 1000 + i;
  Tiled tiled;
  tiled.address = Allocate(values.size() * 4);
  REQUIRE(cuMemcpyHtoD(tiled.address, values.data(), values.size() * 4) == CUDA_SUCCESS);
  CUtensorMap map;
  REQUIRE(tiled.Encode(&map) == CUDA_SUCCESS);
  CUdeviceptr out = Allocate(8);
  void* parameters[] = {&out, &map};
  REQUIRE(Launch(module.Function("copy"), 1, 1, parameters) == CUDA_SUCCESS);
  uint32_t corners[2] = {};
  REQUIRE(cuMemcpyDtoH(corners, out, sizeof(corners)) == CUDA_SUCCESS);
  CHECK(corners[0] == 1000 + 2 * 32 + 4);
  CHECK(corners[1] == 1000 + 5 * 32 + 19);
  // The same map over another tensor.
  CUdeviceptr other = Allocate(values.size() * 4);
  REQUIRE(cuMemsetD32(other, 7, values.size()) == CUDA_SUCCESS);
  REQUIRE(cuTensorMapReplaceAddress(&map, reinterpret_cast<void*>(other)) == CUDA_SUCCESS);
  REQUIRE(Launch(module.Function("copy"), 1, 1, parameters) == CUDA_SUCCESS);
  REQUIRE(cuMemcpyDtoH(corners, out, sizeof(corners)) == CUDA_SUCCESS);
  CHECK(corners[1] == 7);
}

TEST_CASE("128 bytes that are no tensor map are named") {
  Context context;
  Module module(kCopy);
  CUtensorMap map;
  std::memset(&map, 0, sizeof(map));
  CUdeviceptr out = Allocate(8);
  void* parameters[] = {&out, &map};
  CHECK(Launch(module.Function("copy"), 1, 1, parameters) == CUDA_SUCCESS);
  CHECK(cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_INSTRUCTION);
}

TEST_CASE("what tiled tensor maps may hold") {
  Context context;
  struct Row {
    const char* what;
    void (*change)(Tiled&);
    bool is_valid;
  };
  const Row rows[] = {
      {"as it is", [](Tiled&) {}, true},
      {"address of 8", [](Tiled& t) { t.address += 8; }, false},
      {"no address", [](Tiled& t) { t.address = 0; }, true},
      {"rank 0", [](Tiled& t) { t.rank = 0; }, false},
      {"size 0", [](Tiled& t) { t.sizes[1] = 0; }, false},
      {"size 2^32", [](Tiled& t) { t.sizes[1] = 1ull << 32; }, true},
      {"size above 2^32", [](Tiled& t) { t.sizes[1] = (1ull << 32) + 1; }, false},
      {"stride of 8", [](Tiled& t) { t.strides[0] = 136; }, false},
      {"stride 2^40", [](Tiled& t) { t.strides[0] = 1ull << 40; }, false},
      {"rows that overlap", [](Tiled& t) { t.strides[0] = 64; }, true},
      {"empty box", [](Tiled& t) { t.box[1] = 0; }, false},
      {"box of 256", [](Tiled& t) { t.box[1] = 256; }, true},
      {"box of 257", [](Tiled& t) { t.box[1] = 257; }, false},
      {"12 bytes inside", [](Tiled& t) { t.box[0] = 3; }, false},
      {"box of 256 KiB",
       [](Tiled& t) {
         t.box = {256, 256};
       },
       false},
      {"step 8", [](Tiled& t) { t.steps[1] = 8; }, true},
      {"step 9", [](Tiled& t) { t.steps[1] = 9; }, false},
      {"swizzle of 32 bytes",
       [](Tiled& t) {
         t.box[0] = 8;
         t.swizzle = CU_TENSOR_MAP_SWIZZLE_32B;
       },
       true},
      {"row wider than the swizzle", [](Tiled& t) { t.swizzle = CU_TENSOR_MAP_SWIZZLE_32B; },
       false},
      {"swizzle of a later device",
       [](Tiled& t) { t.swizzle = CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B; }, false},
      {"type of a later device", [](Tiled& t) { t.type = CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B; },
       false},
      {"NaN for floats",
       [](Tiled& t) { t.fill = CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA; }, true},
      {"NaN for integers",
       [](Tiled& t) {
         t.type = CU_TENSOR_MAP_DATA_TYPE_UINT32;
         t.fill = CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA;
       },
       false},
      {"two interleaved dimensions", [](Tiled& t) { t.interleave = CU_TENSOR_MAP_INTERLEAVE_16B; },
       false},
  };
  for (const Row& row : rows) {
    INFO(row.what);
    Tiled tiled;
    row.change(tiled);
    CHECK(tiled.Encode() == (row.is_valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE));
  }
}

TEST_CASE("what im2col tensor maps may hold") {
  Context context;
  struct Row {
    const char* what;
    int lower[2], upper[2];
    cuuint32_t channels, pixels;
    bool is_valid;
  };
  const Row rows[] = {
      {"corners", {-1, -1}, {-1, -1}, 16, 16, true},
      {"lower corner of -129", {-129, -1}, {-1, -1}, 16, 16, false},
      {"upper corner of 128", {-1, -1}, {128, 0}, 16, 16, false},
      {"box without pixels", {5, 0}, {-5, 0}, 16, 16, false},
      {"6 bytes of channels", {0, 0}, {0, 0}, 3, 16, false},
      {"1024 pixels", {0, 0}, {0, 0}, 16, 1024, true},
      {"1025 pixels", {0, 0}, {0, 0}, 16, 1025, false},
  };
  const cuuint64_t sizes[] = {16, 7, 6, 3}, strides[] = {32, 224, 1344};
  const cuuint32_t steps[] = {1, 1, 1, 1};
  for (const Row& row : rows) {
    INFO(row.what);
    CUtensorMap map;
    CHECK(cuTensorMapEncodeIm2col(
              &map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 4, reinterpret_cast<void*>(0x10000), sizes,
              strides, row.lower, row.upper, row.channels, row.pixels, steps,
              CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
              CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) ==
          (row.is_valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE));
  }
}
