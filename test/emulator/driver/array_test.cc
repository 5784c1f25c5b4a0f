// Arrays, copies to and from them, texture and surface objects in kernels.
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "test/emulator/driver/driver_fixture.h"

using namespace ops_debug::emulator::test;  // NOLINT(google-build-using-namespace): test helpers

namespace {

// sample(out, texture, x, y): out[0..3] = tex2D; fetch(out, texture, x): tex1D with an integer
// coordinate; sample_1d; level(out, texture, x, lod); layer(out, texture, layer, x, y);
// gather(out, texture, x, y): the first channel. load/store(out, surface, x, y): one word, x in
// bytes. size(out, texture).
constexpr char kImageKernels[] = R"(
.version 8.0
.target sm_80
.address_size 64
.visible .entry sample(.param .u64 p0, .param .u64 p1, .param .f32 p2, .param .f32 p3)
{
  .reg .f32 %f<8>; .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [p0]; ld.param.u64 %rd2, [p1];
  ld.param.f32 %f1, [p2]; ld.param.f32 %f2, [p3];
  tex.2d.v4.f32.f32 {%f3, %f4, %f5, %f6}, [%rd2, {%f1, %f2}];
  st.global.v4.f32 [%rd1], {%f3, %f4, %f5, %f6};
  ret;
}
.visible .entry sample_1d(.param .u64 p0, .param .u64 p1, .param .f32 p2)
{
  .reg .f32 %f<8>; .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [p0]; ld.param.u64 %rd2, [p1]; ld.param.f32 %f1, [p2];
  tex.1d.v4.f32.f32 {%f3, %f4, %f5, %f6}, [%rd2, {%f1}];
  st.global.v4.f32 [%rd1], {%f3, %f4, %f5, %f6};
  ret;
}
.visible .entry fetch(.param .u64 p0, .param .u64 p1, .param .u32 p2)
{
  .reg .b32 %r<8>; .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [p0]; ld.param.u64 %rd2, [p1]; ld.param.u32 %r1, [p2];
  tex.1d.v4.s32.s32 {%r2, %r3, %r4, %r5}, [%rd2, {%r1}];
  st.global.v4.u32 [%rd1], {%r2, %r3, %r4, %r5};
  ret;
}
.visible .entry level(.param .u64 p0, .param .u64 p1, .param .f32 p2, .param .f32 p3)
{
  .reg .f32 %f<8>; .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [p0]; ld.param.u64 %rd2, [p1];
  ld.param.f32 %f1, [p2]; ld.param.f32 %f2, [p3];
  tex.level.2d.v4.f32.f32 {%f3, %f4, %f5, %f6}, [%rd2, {%f1, %f1}], %f2;
  st.global.v4.f32 [%rd1], {%f3, %f4, %f5, %f6};
  ret;
}
.visible .entry layer(.param .u64 p0, .param .u64 p1, .param .u32 p2, .param .f32 p3)
{
  .reg .b32 %r<3>; .reg .f32 %f<8>; .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [p0]; ld.param.u64 %rd2, [p1];
  ld.param.u32 %r1, [p2]; ld.param.f32 %f1, [p3];
  tex.a2d.v4.f32.f32 {%f3, %f4, %f5, %f6}, [%rd2, {%r1, %f1, %f1, %f1}];
  st.global.v4.f32 [%rd1], {%f3, %f4, %f5, %f6};
  ret;
}
.visible .entry gather(.param .u64 p0, .param .u64 p1, .param .f32 p2, .param .f32 p3)
{
  .reg .f32 %f<8>; .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [p0]; ld.param.u64 %rd2, [p1];
  ld.param.f32 %f1, [p2]; ld.param.f32 %f2, [p3];
  tld4.r.2d.v4.f32.f32 {%f3, %f4, %f5, %f6}, [%rd2, {%f1, %f2}];
  st.global.v4.f32 [%rd1], {%f3, %f4, %f5, %f6};
  ret;
}
.visible .entry load(.param .u64 p0, .param .u64 p1, .param .u32 p2, .param .u32 p3)
{
  .reg .b32 %r<5>; .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [p0]; ld.param.u64 %rd2, [p1];
  ld.param.u32 %r1, [p2]; ld.param.u32 %r2, [p3];
  suld.b.2d.b32.zero {%r3}, [%rd2, {%r1, %r2}];
  suld.b.2d.b32.clamp {%r4}, [%rd2, {%r1, %r2}];
  st.global.v2.u32 [%rd1], {%r3, %r4};
  ret;
}
.visible .entry store(.param .u64 p0, .param .u64 p1, .param .u32 p2, .param .u32 p3)
{
  .reg .b32 %r<4>; .reg .b64 %rd<3>;
  ld.param.u64 %rd2, [p1];
  ld.param.u32 %r1, [p2]; ld.param.u32 %r2, [p3];
  mov.u32 %r3, 0x01020304;
  sust.b.2d.b32.trap [%rd2, {%r1, %r2}], {%r3};
  ret;
}
.visible .entry add(.param .u64 p0, .param .u64 p1, .param .u32 p2, .param .u32 p3)
{
  .reg .b32 %r<4>; .reg .b64 %rd<3>;
  ld.param.u64 %rd2, [p1];
  ld.param.u32 %r1, [p2]; ld.param.u32 %r2, [p3];
  mov.u32 %r3, 5;
  sured.b.add.2d.u32.trap [%rd2, {%r1, %r2}], %r3;
  ret;
}
.visible .entry size(.param .u64 p0, .param .u64 p1)
{
  .reg .b32 %r<3>; .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [p0]; ld.param.u64 %rd2, [p1];
  txq.width.b32 %r1, [%rd2];
  txq.height.b32 %r2, [%rd2];
  st.global.v2.u32 [%rd1], {%r1, %r2};
  ret;
}
)";

CUarray MakeArray(size_t width, size_t height, CUarray_format format, unsigned channels,
                  unsigned flags = 0, size_t depth = 0) {
  CUDA_ARRAY3D_DESCRIPTOR descriptor{};
  descriptor.Width = width;
  descriptor.Height = height;
  descriptor.Depth = depth;
  descriptor.Format = format;
  descriptor.NumChannels = channels;
  descriptor.Flags = flags;
  CUarray array = nullptr;
  REQUIRE(cuArray3DCreate(&array, &descriptor) == CUDA_SUCCESS);
  return array;
}

template <class T>
void Fill(CUarray array, const std::vector<T>& values, size_t width, size_t height,
          size_t depth = 1) {
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = values.data();
  copy.srcPitch = width * sizeof(T);
  copy.srcHeight = height;
  copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.dstArray = array;
  copy.WidthInBytes = width * sizeof(T);
  copy.Height = height;
  copy.Depth = depth;
  REQUIRE(cuMemcpy3D(&copy) == CUDA_SUCCESS);
}

CUDA_RESOURCE_DESC Resource(CUarray array) {
  CUDA_RESOURCE_DESC resource{};
  resource.resType = CU_RESOURCE_TYPE_ARRAY;
  resource.res.array.hArray = array;
  return resource;
}

struct Options {
  CUaddress_mode mode = CU_TR_ADDRESS_MODE_CLAMP;
  CUfilter_mode filter = CU_TR_FILTER_MODE_POINT;
  unsigned flags = 0;
};

CUtexObject Texture(const CUDA_RESOURCE_DESC& resource, const Options& options = {}) {
  CUDA_TEXTURE_DESC description{};
  for (auto& mode : description.addressMode) mode = options.mode;
  description.filterMode = options.filter;
  description.flags = options.flags;
  description.maxMipmapLevelClamp = 10;
  description.borderColor[0] = -1;
  CUtexObject texture = 0;
  REQUIRE(cuTexObjectCreate(&texture, &resource, &description, nullptr) == CUDA_SUCCESS);
  return texture;
}

class Kernels {
 public:
  Kernels() : module_(kImageKernels), out_(Allocate(16)) {}

  template <class T = float, class... Arguments>
  std::vector<T> Call(const char* name, unsigned long long object,  // NOLINT(google-runtime-int)
                      Arguments... arguments) {
    void* parameters[] = {&out_, &object, &arguments...};
    REQUIRE(Launch(module_.Function(name), 1, 1, parameters) == CUDA_SUCCESS);
    std::vector<T> out(4);
    status = cuMemcpyDtoH(out.data(), out_, 16);
    return out;
  }
  CUresult status = CUDA_SUCCESS;

 private:
  Module module_;
  CUdeviceptr out_;
};

std::vector<float> Ramp(size_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), 0.0f);
  return values;
}

}  // namespace

TEST_CASE("what is copied into an array comes back, also in part") {
  Context context;
  const CUarray array = MakeArray(8, 4, CU_AD_FORMAT_FLOAT, 1);
  Fill(array, Ramp(32), 8, 4);
  std::vector<float> part(6);
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.srcArray = array;
  copy.srcXInBytes = 8;
  copy.srcY = 1;
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = part.data();
  copy.dstPitch = copy.WidthInBytes = 12;
  copy.Height = 2;
  CHECK(cuMemcpy2D(&copy) == CUDA_SUCCESS);
  CHECK(part == std::vector<float>{10, 11, 12, 18, 19, 20});
  copy.srcXInBytes = 24;
  CHECK(cuMemcpy2D(&copy) == CUDA_ERROR_INVALID_VALUE);  // leaves the array
  float line[3] = {};
  CHECK(cuMemcpyAtoH(line, array, 4, 12) == CUDA_SUCCESS);
  CHECK(line[2] == 3);
  CUDA_ARRAY_DESCRIPTOR descriptor{};
  CHECK(cuArrayGetDescriptor(&descriptor, array) == CUDA_SUCCESS);
  CHECK(descriptor.Width == 8);
  CHECK(cuArrayDestroy(array) == CUDA_SUCCESS);
  CHECK(cuArrayDestroy(array) == CUDA_ERROR_INVALID_HANDLE);
}

TEST_CASE("point sampling takes the texel that holds the coordinate, clamped at the edges") {
  Context context;
  Kernels kernels;
  const CUarray array = MakeArray(4, 4, CU_AD_FORMAT_FLOAT, 1);
  Fill(array, Ramp(16), 4, 4);
  const CUtexObject texture = Texture(Resource(array));
  CHECK(kernels.Call("sample", texture, 1.99f, 2.5f)[0] == 9);
  CHECK(kernels.Call("sample", texture, -3.0f, 100.0f)[0] == 12);
  CHECK(cuTexObjectDestroy(texture) == CUDA_SUCCESS);
}

TEST_CASE("linear filtering weighs neighbours with 8 fractional bits") {
  Context context;
  Kernels kernels;
  const CUarray array = MakeArray(4, 2, CU_AD_FORMAT_FLOAT, 1);
  Fill<float>(array, {0, 256, 0, 0, 0, 256, 0, 0}, 4, 2);
  const CUtexObject texture = Texture(Resource(array), {.filter = CU_TR_FILTER_MODE_LINEAR});
  CHECK(kernels.Call("sample", texture, 1.0f, 1.0f)[0] == 128);
  CHECK(kernels.Call("sample", texture, 1.5f, 1.0f)[0] == 256);
  // 0.5 + 1/1024 rounds to 0; 0.5 + 3/1024 to 1/256.
  CHECK(kernels.Call("sample", texture, 0.5f + 1.0f / 1024, 0.5f)[0] == 0);
  CHECK(kernels.Call("sample", texture, 0.5f + 3.0f / 1024, 0.5f)[0] == 1);
}

TEST_CASE("normalised coordinates wrap, mirror and see the border") {
  Context context;
  Kernels kernels;
  const CUarray array = MakeArray(4, 1, CU_AD_FORMAT_FLOAT, 1);
  Fill(array, Ramp(4), 4, 1);
  const auto at = [&](CUaddress_mode mode, float x) {
    const CUtexObject texture =
        Texture(Resource(array), {.mode = mode, .flags = CU_TRSF_NORMALIZED_COORDINATES});
    return kernels.Call("sample", texture, x, 0.5f)[0];
  };
  CHECK(at(CU_TR_ADDRESS_MODE_WRAP, 1.3f) == 1);
  CHECK(at(CU_TR_ADDRESS_MODE_WRAP, -0.1f) == 3);
  CHECK(at(CU_TR_ADDRESS_MODE_MIRROR, 1.1f) == 3);
  CHECK(at(CU_TR_ADDRESS_MODE_MIRROR, -0.3f) == 1);
  CHECK(at(CU_TR_ADDRESS_MODE_CLAMP, 7.0f) == 3);
  CHECK(at(CU_TR_ADDRESS_MODE_BORDER, 1.01f) == -1);
  CHECK(at(CU_TR_ADDRESS_MODE_BORDER, 0.99f) == 3);
}

TEST_CASE("integer texels read as fractions or as themselves") {
  Context context;
  Kernels kernels;
  const CUarray array = MakeArray(2, 1, CU_AD_FORMAT_SIGNED_INT8, 4);
  Fill<int32_t>(array, {0x7f80'0001, 0}, 2, 1);  // bytes 1, 0, -128, 127
  const CUtexObject fraction = Texture(Resource(array));
  CHECK(kernels.Call("sample", fraction, 0.5f, 0.5f) == std::vector<float>{1 / 127.0f, 0, -1, 1});
  const CUdeviceptr memory = Allocate(4);
  REQUIRE(cuMemsetD32(memory, 0x7f80'0001, 1) == CUDA_SUCCESS);
  CUDA_RESOURCE_DESC line{};
  line.resType = CU_RESOURCE_TYPE_LINEAR;
  line.res.linear = {memory, CU_AD_FORMAT_SIGNED_INT8, 4, 4};
  const CUtexObject element = Texture(line, {.flags = CU_TRSF_READ_AS_INTEGER});
  CHECK(kernels.Call<int>("fetch", element, 0) == std::vector<int>{1, 0, -128, 127});
  // tex.1d with an integer coordinate is for plain memory: of an array it reads 0 on a GPU.
  const CUtexObject of_array = Texture(Resource(array), {.flags = CU_TRSF_READ_AS_INTEGER});
  CHECK(kernels.Call<int>("fetch", of_array, 0) == std::vector<int>(4));
}

TEST_CASE("a texture of linear memory is read by element and is zero outside") {
  Context context;
  Kernels kernels;
  const CUdeviceptr memory = Allocate(64);
  REQUIRE(cuMemsetD32(memory, 77, 16) == CUDA_SUCCESS);
  CUDA_RESOURCE_DESC resource{};
  resource.resType = CU_RESOURCE_TYPE_LINEAR;
  resource.res.linear = {memory, CU_AD_FORMAT_SIGNED_INT32, 1, 64};
  const CUtexObject texture = Texture(resource, {.flags = CU_TRSF_READ_AS_INTEGER});
  CHECK(kernels.Call<int>("fetch", texture, 15)[0] == 77);
  CHECK(kernels.Call<int>("fetch", texture, 16)[0] == 0);
  CHECK(kernels.Call<int>("fetch", texture, -1)[0] == 0);
}

TEST_CASE("layers, mipmap levels, gathers and sizes") {
  Context context;
  Kernels kernels;
  const CUarray layered = MakeArray(2, 2, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_LAYERED, 3);
  Fill(layered, Ramp(12), 2, 2, 3);
  CHECK(kernels.Call("layer", Texture(Resource(layered)), 2u, 0.5f)[0] == 8);
  CHECK(kernels.Call("layer", Texture(Resource(layered)), 9u, 1.5f)[0] == 11);  // the last layer

  CUDA_ARRAY3D_DESCRIPTOR descriptor{};
  descriptor.Width = descriptor.Height = 4;
  descriptor.Format = CU_AD_FORMAT_FLOAT;
  descriptor.NumChannels = 1;
  CUmipmappedArray mipmaps = nullptr;
  REQUIRE(cuMipmappedArrayCreate(&mipmaps, &descriptor, 3) == CUDA_SUCCESS);
  for (unsigned i = 0; i < 3; ++i) {
    CUarray level = nullptr;
    REQUIRE(cuMipmappedArrayGetLevel(&level, mipmaps, i) == CUDA_SUCCESS);
    const size_t size = 4u >> i;
    Fill(level, std::vector<float>(size * size, float(i * 10)), size, size);
  }
  CUDA_RESOURCE_DESC resource{};
  resource.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
  resource.res.mipmap.hMipmappedArray = mipmaps;
  const CUtexObject texture = Texture(resource, {.flags = CU_TRSF_NORMALIZED_COORDINATES});
  CHECK(kernels.Call("level", texture, 0.5f, 1.0f)[0] == 10);
  CHECK(kernels.Call("level", texture, 0.5f, 7.0f)[0] == 20);

  const CUarray plain = MakeArray(4, 4, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_TEXTURE_GATHER);
  Fill(plain, Ramp(16), 4, 4);
  CHECK(kernels.Call("gather", Texture(Resource(plain)), 2.0f, 2.0f) ==
        std::vector<float>{9, 10, 6, 5});
  CHECK(kernels.Call<int>("size", Texture(Resource(layered)))[1] == 2);
  CHECK(kernels.Call<int>("size", texture)[0] == 4);
}

TEST_CASE("surfaces are stored to, loaded from and added to") {
  Context context;
  Kernels kernels;
  const CUarray array = MakeArray(4, 2, CU_AD_FORMAT_UNSIGNED_INT8, 4, CUDA_ARRAY3D_SURFACE_LDST);
  Fill<uint32_t>(array, {10, 11, 12, 13, 20, 21, 22, 23}, 4, 2);
  const CUDA_RESOURCE_DESC resource = Resource(array);
  CUsurfObject surface = 0;
  REQUIRE(cuSurfObjectCreate(&surface, &resource) == CUDA_SUCCESS);
  kernels.Call("store", surface, 8u, 1u);
  CHECK(kernels.Call<uint32_t>("load", surface, 8u, 1u)[0] == 0x01020304);
  kernels.Call("add", surface, 4u, 0u);
  CHECK(kernels.Call<uint32_t>("load", surface, 4u, 0u)[0] == 16);
  // Outside: 0 with .zero, the last element with .clamp.
  const std::vector<uint32_t> outside = kernels.Call<uint32_t>("load", surface, 400u, 0u);
  CHECK(outside[0] == 0);
  CHECK(outside[1] == 13);
  CHECK(cuSurfObjectDestroy(surface) == CUDA_SUCCESS);
  const CUDA_RESOURCE_DESC not_for_surfaces = Resource(MakeArray(4, 4, CU_AD_FORMAT_FLOAT, 1));
  CHECK(cuSurfObjectCreate(&surface, &not_for_surfaces) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("a trapping surface access outside of the surface faults") {
  Context context;
  Kernels kernels;
  const CUarray array = MakeArray(4, 4, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_SURFACE_LDST);
  const CUDA_RESOURCE_DESC resource = Resource(array);
  CUsurfObject surface = 0;
  REQUIRE(cuSurfObjectCreate(&surface, &resource) == CUDA_SUCCESS);
  kernels.Call("store", surface, 16u, 0u);
  CHECK(kernels.status == CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_CASE("a destroyed texture faults by name") {
  Context context;
  Kernels kernels;
  const CUtexObject texture = Texture(Resource(MakeArray(4, 4, CU_AD_FORMAT_FLOAT, 1)));
  CHECK(cuTexObjectDestroy(texture) == CUDA_SUCCESS);
  CHECK(cuTexObjectDestroy(texture) == CUDA_ERROR_INVALID_VALUE);
  kernels.Call("sample", texture, 0.0f, 0.0f);
  CHECK(kernels.status == CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_CASE("a batch copies every line and says which one is wrong") {
  Context context;
  CUstream stream = nullptr;
  REQUIRE(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  const CUdeviceptr a = Allocate(64), b = Allocate(64);
  REQUIRE(cuMemsetD32(a, 1, 16) == CUDA_SUCCESS);
  CUdeviceptr to[] = {b, b + 32}, from[] = {a, a + 8};
  size_t bytes[] = {16, 8};
  CUmemcpyAttributes attributes{};
  attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  size_t first = 0;
  CHECK(cuMemcpyBatchAsync(to, from, bytes, 2, &attributes, &first, 1, stream) == CUDA_SUCCESS);
  REQUIRE(cuStreamSynchronize(stream) == CUDA_SUCCESS);
  int out[10] = {};
  CHECK(cuMemcpyDtoH(out, b, 40) == CUDA_SUCCESS);
  CHECK(out[3] == 1);
  CHECK(out[9] == 1);
  bytes[1] = 4096;
  CHECK(cuMemcpyBatchAsync(to, from, bytes, 2, &attributes, &first, 1, stream) ==
        CUDA_ERROR_INVALID_VALUE);
}
