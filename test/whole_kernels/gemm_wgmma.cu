// Matrix product with wgmma on Hopper (sm_90a), three ways to fill the operands' shared memory:
// plain stores in the 128-byte swizzle, plain stores in core matrices without swizzle, and TMA with
// a ring of mbarriers between a producer and a consumer warpgroup. C = A * B^T in half with single
// sums of small whole numbers, so the result is exact; the TMA product also runs on random numbers.
#include <cuda.h>
#include <cuda_fp16.h>

#include "digest.h"

using namespace whole_kernels;

constexpr int kTileM = 64, kTileN = 64, kTileK = 64;  // 64 halves: one row of the 128-byte swizzle
constexpr int kTileBytes = kTileM * kTileK * 2;

__device__ unsigned SharedAddress(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

// PTX ISA, asynchronous warpgroup level matrix instructions, matrix descriptor.
__device__ unsigned long long Descriptor(unsigned address, unsigned leading_bytes,
                                         unsigned stride_bytes, unsigned long long swizzle) {
  return static_cast<unsigned long long>((address & 0x3ffff) >> 4) |
         static_cast<unsigned long long>(leading_bytes >> 4) << 16 |
         static_cast<unsigned long long>(stride_bytes >> 4) << 32 | swizzle << 62;
}

__device__ void Multiply(float (&d)[32], unsigned long long a, unsigned long long b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
      "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, %32, %33, 1, 1, 1, 0, 0;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
        "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
        "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
        "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
        "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
      : "l"(a), "l"(b));
}

// The four products of one tile of K; a step of 16 halves moves the start by 32 bytes or by two
// core matrices.
__device__ void MultiplyTile(float (&d)[32], unsigned tile_a, unsigned tile_b, bool swizzled) {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  for (int step = 0; step < kTileK / 16; ++step) {
    if (swizzled) {
      Multiply(d, Descriptor(tile_a + 32 * step, 16, 1024, 1),
               Descriptor(tile_b + 32 * step, 16, 1024, 1));
    } else {
      // Core matrices of 8 rows by 16 bytes: those of a row group lie side by side along K.
      Multiply(d, Descriptor(tile_a + 256 * step, 128, 1024, 0),
               Descriptor(tile_b + 256 * step, 128, 1024, 0));
    }
  }
  asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" ::: "memory");
}

__device__ void StoreTile(const float (&d)[32], float* c, int n) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  for (int i = 0; i < 32; ++i) {
    const int row = blockIdx.y * kTileM + 16 * warp + lane / 4 + i / 2 % 2 * 8;
    const int column = blockIdx.x * kTileN + i / 4 * 8 + lane % 4 * 2 + i % 2;
    c[row * n + column] = d[i];
  }
}

// Where 16 bytes of a tile lie: row `row`, piece `piece` of 8 halves.
template <bool kSwizzled>
__device__ int PlaceOf(int row, int piece) {
  return kSwizzled ? row * 128 + (piece ^ row % 8) * 16
                   : row / 8 * 1024 + piece * 128 + row % 8 * 16;
}

template <bool kSwizzled>
__global__ void __launch_bounds__(128)
    gemm_plain(const __half* a, const __half* b, float* c, int n, int k) {
  __shared__ __align__(1024) char tile_a[kTileBytes], tile_b[kTileBytes];
  float d[32] = {};
  for (int first = 0; first < k; first += kTileK) {
    for (int i = threadIdx.x; i < kTileM * kTileK / 8; i += 128) {
      const int row = i / 8, piece = i % 8, place = PlaceOf<kSwizzled>(row, piece);
      *reinterpret_cast<uint4*>(tile_a + place) =
          *reinterpret_cast<const uint4*>(a + (blockIdx.y * kTileM + row) * k + first + piece * 8);
      *reinterpret_cast<uint4*>(tile_b + place) =
          *reinterpret_cast<const uint4*>(b + (blockIdx.x * kTileN + row) * k + first + piece * 8);
    }
    // The tensor core reads through the asynchronous proxy.
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    MultiplyTile(d, SharedAddress(tile_a), SharedAddress(tile_b), kSwizzled);
    __syncthreads();
  }
  StoreTile(d, c, n);
}

__device__ void Wait(unsigned barrier, unsigned parity) {
  asm volatile(
      "{\n.reg .pred p;\nAGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
      "@p bra DONE;\nbra AGAIN;\nDONE:\n}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

constexpr int kStages = 3;

__global__ void __launch_bounds__(256)
    gemm_tma(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
             float* c, int n, int k) {
  extern __shared__ char dynamic_shared[];
  __shared__ __align__(8) unsigned long long full[kStages], empty[kStages];
  const unsigned tiles = (SharedAddress(dynamic_shared) + 1023) & ~1023u;
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(SharedAddress(&full[s])));
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 128;" ::"r"(SharedAddress(&empty[s])));
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncthreads();
  const int steps = k / kTileK;
  if (threadIdx.x >= 128) {  // producer
    if (threadIdx.x != 128) return;
    for (int step = 0; step < steps; ++step) {
      const int s = step % kStages;
      // The first round finds the stages empty.
      Wait(SharedAddress(&empty[s]), step / kStages % 2 ^ 1);
      const unsigned barrier = SharedAddress(&full[s]);
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
                   "r"(2 * kTileBytes)
                   : "memory");
      const auto fetch = [&](const CUtensorMap* map, unsigned tile, int row) {
        asm volatile(
            "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
            "[%0], [%1, {%2, %3}], [%4];" ::"r"(tile),
            "l"(map), "r"(step * kTileK), "r"(row), "r"(barrier)
            : "memory");
      };
      fetch(&map_a, tiles + 2 * s * kTileBytes, blockIdx.y * kTileM);
      fetch(&map_b, tiles + (2 * s + 1) * kTileBytes, blockIdx.x * kTileN);
    }
    return;
  }
  float d[32] = {};
  for (int step = 0; step < steps; ++step) {
    const int s = step % kStages;
    Wait(SharedAddress(&full[s]), step / kStages % 2);
    MultiplyTile(d, tiles + 2 * s * kTileBytes, tiles + (2 * s + 1) * kTileBytes, true);
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(SharedAddress(&empty[s]))
                 : "memory");
  }
  StoreTile(d, c, n);
}

CUtensorMap MapOf(const __half* matrix, int rows, int columns) {
  static const auto encode = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult result;
    REQUIRE_CUDA(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                                  cudaEnableDefault, &result));
    if (function == nullptr) {
      std::printf("the driver has no cuTensorMapEncodeTiled\n");
      std::exit(2);
    }
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);
  }();
  CUtensorMap map;
  const cuuint64_t sizes[2] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[1] = {static_cast<cuuint64_t>(columns) * 2};
  const cuuint32_t box[2] = {kTileK, kTileM}, steps[2] = {1, 1};
  const CUresult result =
      encode(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, const_cast<__half*>(matrix), sizes, strides,
             box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    std::printf("cuTensorMapEncodeTiled: %d\n", result);
    std::exit(2);
  }
  return map;
}

int main() {
  constexpr int kM = 128, kN = 128, kK = 320;
  Random random(31);
  const auto product = [](const std::vector<__half>& a, const std::vector<__half>& b) {
    std::vector<double> c(kM * kN);
    for (int i = 0; i < kM; ++i)
      for (int j = 0; j < kN; ++j)
        for (int l = 0; l < kK; ++l)
          c[i * kN + j] +=
              static_cast<double>(__half2float(a[i * kK + l])) * __half2float(b[j * kK + l]);
    return c;
  };
  std::vector<__half> a(kM * kK), b(kN * kK);
  for (auto* matrix : {&a, &b})
    for (__half& value : *matrix) value = __float2half(static_cast<float>(random.Whole(8)));
  const std::vector<double> whole = product(a, b);
  const std::vector<float> expected(whole.begin(), whole.end());
  DeviceArray<__half> device_a(a), device_b(b);
  DeviceArray<float> swizzled(kM * kN), core(kM * kN), tma(kM * kN), random_c(kM * kN);
  const dim3 grid(kN / kTileN, kM / kTileM);
  gemm_plain<true><<<grid, 128>>>(device_a.data(), device_b.data(), swizzled.data(), kN, kK);
  Exact("128-byte swizzle", swizzled.Download(), expected);
  gemm_plain<false><<<grid, 128>>>(device_a.data(), device_b.data(), core.data(), kN, kK);
  Exact("core matrices", core.Download(), expected);

  constexpr int kSharedBytes = 2 * kStages * kTileBytes + 1024;
  REQUIRE_CUDA(
      cudaFuncSetAttribute(gemm_tma, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes));
  gemm_tma<<<grid, 256, kSharedBytes>>>(MapOf(device_a.data(), kM, kK),
                                        MapOf(device_b.data(), kN, kK), tma.data(), kN, kK);
  Exact("tensor copies", tma.Download(), expected);

  for (auto* matrix : {&a, &b})
    for (__half& value : *matrix) value = __float2half(random.Unit());
  DeviceArray<__half> random_a(a), random_b(b);
  gemm_tma<<<grid, 256, kSharedBytes>>>(MapOf(random_a.data(), kM, kK),
                                        MapOf(random_b.data(), kN, kK), random_c.data(), kN, kK);
  // 320 exact products, summed in an order that the ISA leaves open, to single precision at least
  // by truncation: 320 / 16 sums of size up to a few root mean squares, each off by 2^-22.
  Approximate("random halves", random_c.Download(), product(a, b), 2e-5);
  return Finish();
}
