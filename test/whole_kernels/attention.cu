// Causal attention, the online-softmax way (Dao 2023): a warp owns 16 queries; scores and output
// are made with mma.sync.m16n8k16 on fragments from ldmatrix, V comes through ldmatrix.trans, and
// keys and values stream through shared memory with cp.async.
#include <cuda_fp16.h>

#include <algorithm>

#include "digest.h"

using namespace whole_kernels;

constexpr int kHead = 64;  // elements of a head
constexpr int kKeys = 64;  // keys per step
constexpr int kWarps = 4;
constexpr int kQueries = 16 * kWarps;  // per block
constexpr int kRow = kHead + 8;        // halves per row in shared memory: no bank conflicts

__device__ unsigned SharedAddress(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

__device__ void LoadMatrices(unsigned (&r)[4], const __half* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(SharedAddress(row))
               : "memory");
}
__device__ void LoadMatricesTransposed(unsigned (&r)[4], const __half* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(SharedAddress(row))
               : "memory");
}
__device__ void Multiply(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ unsigned PackHalves(float low, float high) {
  const __half2 pair = __floats2half2_rn(low, high);
  return *reinterpret_cast<const unsigned*>(&pair);
}

// 64 rows of 64 halves; rows past the end become zeros.
__device__ void FetchRows(__half (*tile)[kRow], const __half* matrix, int first, int length) {
  for (int piece = threadIdx.x; piece < 64 * kHead / 8; piece += 32 * kWarps) {
    const int row = piece / 8, column = piece % 8 * 8;
    const bool inside = first + row < length;
    asm volatile(
        "cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(SharedAddress(&tile[row][column])),
        "l"(matrix + (inside ? (first + row) * kHead + column : 0)), "r"(inside ? 16 : 0)
        : "memory");
  }
}

__global__ void __launch_bounds__(32 * kWarps)
    attention(const __half* q, const __half* k, const __half* v, float* output, int length) {
  __shared__ __align__(16) __half tile_q[kQueries][kRow], tile_k[kKeys][kRow], tile_v[kKeys][kRow];
  const int head_offset = blockIdx.y * length * kHead;
  q += head_offset;
  k += head_offset;
  v += head_offset;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int first_query = blockIdx.x * kQueries;
  FetchRows(tile_q, q, first_query, length);
  asm volatile("cp.async.commit_group;\ncp.async.wait_all;" ::: "memory");
  __syncthreads();
  unsigned fragment_q[kHead / 16][4];
  for (int s = 0; s < kHead / 16; ++s)
    LoadMatrices(fragment_q[s], &tile_q[16 * warp + lane % 16][16 * s + lane / 16 * 8]);

  // A thread holds two rows of the warp's sixteen: lane / 4 and lane / 4 + 8.
  float out[kHead / 8][4] = {};
  float maximum[2] = {-INFINITY, -INFINITY}, sum[2] = {0.0f, 0.0f};
  const int query[2] = {first_query + 16 * warp + lane / 4, first_query + 16 * warp + lane / 4 + 8};
  constexpr float kScale = 0.125f * 1.4426950408889634f;  // 1 / sqrt(64), for powers of two

  const int last_key = min(first_query + kQueries, length);
  for (int first_key = 0; first_key < last_key; first_key += kKeys) {
    __syncthreads();
    FetchRows(tile_k, k, first_key, length);
    FetchRows(tile_v, v, first_key, length);
    asm volatile("cp.async.commit_group;\ncp.async.wait_group 0;" ::: "memory");
    __syncthreads();

    float score[kKeys / 8][4] = {};
    for (int n = 0; n < kKeys / 8; ++n) {
      for (int s = 0; s < kHead / 32; ++s) {
        unsigned b[4];  // two steps of k
        LoadMatrices(b, &tile_k[8 * n + lane % 8][32 * s + lane / 8 * 8]);
        Multiply(score[n], fragment_q[2 * s], b[0], b[1]);
        Multiply(score[n], fragment_q[2 * s + 1], b[2], b[3]);
      }
    }
    float next[2] = {maximum[0], maximum[1]};
    for (int n = 0; n < kKeys / 8; ++n) {
      for (int i = 0; i < 4; ++i) {
        const int key = first_key + 8 * n + lane % 4 * 2 + i % 2;
        score[n][i] = key <= query[i / 2] ? score[n][i] * kScale : -INFINITY;
        next[i / 2] = fmaxf(next[i / 2], score[n][i]);
      }
    }
    float shrink[2];
    for (int r = 0; r < 2; ++r) {
      next[r] = fmaxf(next[r], __shfl_xor_sync(0xffffffffu, next[r], 1));
      next[r] = fmaxf(next[r], __shfl_xor_sync(0xffffffffu, next[r], 2));
      shrink[r] = exp2f(maximum[r] - next[r]);
      maximum[r] = next[r];
      sum[r] *= shrink[r];
    }
    for (int n = 0; n < kKeys / 8; ++n) {
      for (int i = 0; i < 4; ++i) {
        score[n][i] = exp2f(score[n][i] - maximum[i / 2]);
        sum[i / 2] += score[n][i];
      }
    }
    for (int d = 0; d < kHead / 8; ++d)
      for (int i = 0; i < 4; ++i) out[d][i] *= shrink[i / 2];
    for (int s = 0; s < kKeys / 16; ++s) {
      // The accumulators of two neighbouring tiles are the fragment of the next product.
      const unsigned p[4] = {PackHalves(score[2 * s][0], score[2 * s][1]),
                             PackHalves(score[2 * s][2], score[2 * s][3]),
                             PackHalves(score[2 * s + 1][0], score[2 * s + 1][1]),
                             PackHalves(score[2 * s + 1][2], score[2 * s + 1][3])};
      for (int d = 0; d < kHead / 16; ++d) {
        unsigned b[4];  // two tiles of columns
        LoadMatricesTransposed(b, &tile_v[16 * s + lane % 16][16 * d + lane / 16 * 8]);
        Multiply(out[2 * d], p, b[0], b[1]);
        Multiply(out[2 * d + 1], p, b[2], b[3]);
      }
    }
  }
  for (int r = 0; r < 2; ++r) {
    sum[r] += __shfl_xor_sync(0xffffffffu, sum[r], 1);
    sum[r] += __shfl_xor_sync(0xffffffffu, sum[r], 2);
    if (query[r] >= length) continue;
    for (int d = 0; d < kHead / 8; ++d) {
      float2 pair = {out[d][2 * r] / sum[r], out[d][2 * r + 1] / sum[r]};
      *reinterpret_cast<float2*>(&output[head_offset + query[r] * kHead + 8 * d + lane % 4 * 2]) =
          pair;
    }
  }
}

int main() {
  constexpr int kLength = 150, kHeads = 2;
  Random random(17);
  std::vector<__half> q(kHeads * kLength * kHead), k(q.size()), v(q.size());
  for (auto* matrix : {&q, &k, &v})
    for (__half& value : *matrix) value = __float2half(2.0f * random.Unit());
  std::vector<double> expected(q.size());
  for (int h = 0; h < kHeads; ++h) {
    const auto at = [h](const std::vector<__half>& matrix, int row, int column) {
      return static_cast<double>(__half2float(matrix[(h * kLength + row) * kHead + column]));
    };
    for (int i = 0; i < kLength; ++i) {
      std::vector<double> weight(i + 1);
      double maximum = -INFINITY, sum = 0;
      for (int j = 0; j <= i; ++j) {
        for (int d = 0; d < kHead; ++d) weight[j] += at(q, i, d) * at(k, j, d) * 0.125;
        maximum = std::max(maximum, weight[j]);
      }
      for (double& w : weight) sum += w = std::exp(w - maximum);
      for (int j = 0; j <= i; ++j)
        for (int d = 0; d < kHead; ++d)
          expected[(h * kLength + i) * kHead + d] += weight[j] / sum * at(v, j, d);
    }
  }
  DeviceArray<__half> device_q(q), device_k(k), device_v(v);
  DeviceArray<float> output(q.size());
  attention<<<dim3((kLength + kQueries - 1) / kQueries, kHeads), 32 * kWarps>>>(
      device_q.data(), device_k.data(), device_v.data(), output.data(), kLength);
  // The weights are rounded to half precision for the second product: 2^-11 of values up to 2,
  // against a root mean square of about 0.4.
  Approximate("causal attention", output.Download(), expected, 1.5e-3);
  return Finish();
}
