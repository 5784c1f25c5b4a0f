// Matrix products with mma.sync in every element type, on fragments loaded straight from memory by
// the layouts of the PTX ISA. The elements are small whole numbers, so every order of summation
// gives the same bits.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "digest.h"

using namespace whole_kernels;

// Each shape: elements, k per instruction, and the instruction on registers of 32 bits.
struct Bfloat16 {
  using Element = __nv_bfloat16;
  using Sum = float;
  static constexpr int kDepth = 16, kBound = 8;
  static Element Make(int value) { return __float2bfloat16(static_cast<float>(value)); }
  __device__ static void Multiply(Sum (&d)[4], const unsigned* a, const unsigned* b) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
};
struct Float8 {
  using Element = __nv_fp8_e4m3;
  using Sum = float;
  static constexpr int kDepth = 32, kBound = 4;
  static Element Make(int value) { return Element(static_cast<float>(value)); }
  __device__ static void Multiply(Sum (&d)[4], const unsigned* a, const unsigned* b) {
    asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
};
struct Integer8 {
  using Element = signed char;
  using Sum = int;
  static constexpr int kDepth = 32, kBound = 127;
  static Element Make(int value) { return static_cast<Element>(value); }
  __device__ static void Multiply(Sum (&d)[4], const unsigned* a, const unsigned* b) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
};
struct TensorFloat32 {
  using Element = float;
  using Sum = float;
  static constexpr int kDepth = 8, kBound = 100;
  static Element Make(int value) { return static_cast<float>(value); }
  __device__ static void Multiply(Sum (&d)[4], const unsigned* a, const unsigned* b) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
};
struct HalfSums {
  using Element = __half;
  using Sum = __half;  // two per register
  static constexpr int kDepth = 16, kBound = 4;
  static Element Make(int value) { return __float2half(static_cast<float>(value)); }
  __device__ static void Multiply(Sum (&d)[4], const unsigned* a, const unsigned* b) {
    unsigned* pairs = reinterpret_cast<unsigned*>(d);
    asm("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0,%1}, {%2,%3,%4,%5}, {%6,%7}, "
        "{%0,%1};"
        : "+r"(pairs[0]), "+r"(pairs[1])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
};

// One warp per 16x8 tile of C; B is stored as columns. A register holds `kPack` neighbours of k.
template <class Shape>
__global__ void gemm(const typename Shape::Element* a, const typename Shape::Element* b,
                     typename Shape::Sum* c, int n, int k) {
  constexpr int kPack = 4 / sizeof(typename Shape::Element);
  const int group = threadIdx.x / 4, in_group = threadIdx.x % 4;
  const int row = blockIdx.y * 16 + group, column = blockIdx.x * 8 + group;
  const auto word = [](const typename Shape::Element* p) {
    return *reinterpret_cast<const unsigned*>(p);
  };
  alignas(8) typename Shape::Sum d[4] = {};
  for (int step = 0; step < k; step += Shape::kDepth) {
    const int low = step + in_group * kPack, high = low + Shape::kDepth / 2;
    const unsigned fragment_a[4] = {word(a + row * k + low), word(a + (row + 8) * k + low),
                                    word(a + row * k + high), word(a + (row + 8) * k + high)};
    const unsigned fragment_b[2] = {word(b + column * k + low), word(b + column * k + high)};
    Shape::Multiply(d, fragment_a, fragment_b);
  }
  for (int i = 0; i < 4; ++i)
    c[(row + i / 2 * 8) * n + blockIdx.x * 8 + in_group * 2 + i % 2] = d[i];
}

// m8n8k4: one element of A and of B per lane.
__global__ void gemm_double(const double* a, const double* b, double* c, int n, int k) {
  const int group = threadIdx.x / 4, in_group = threadIdx.x % 4;
  double d[2] = {};
  for (int step = 0; step < k; step += 4) {
    asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%0,%1};"
        : "+d"(d[0]), "+d"(d[1])
        : "d"(a[(blockIdx.y * 8 + group) * k + step + in_group]),
          "d"(b[(blockIdx.x * 8 + group) * k + step + in_group]));
  }
  for (int i = 0; i < 2; ++i)
    c[(blockIdx.y * 8 + group) * n + blockIdx.x * 8 + in_group * 2 + i] = d[i];
}

constexpr int kM = 64, kN = 48, kK = 128;

struct Numbers {
  std::vector<int> a, b, c;
  explicit Numbers(int bound) : a(kM * kK), b(kN * kK), c(kM * kN) {
    Random random(bound);
    for (int& value : a) value = random.Whole(bound);
    for (int& value : b) value = random.Whole(bound);
    for (int i = 0; i < kM; ++i)
      for (int j = 0; j < kN; ++j)
        for (int l = 0; l < kK; ++l) c[i * kN + j] += a[i * kK + l] * b[j * kK + l];
  }
};

template <class Shape>
void Test(const char* name) {
  const Numbers numbers(Shape::kBound);
  std::vector<typename Shape::Element> a, b;
  std::vector<typename Shape::Sum> expected;
  for (int value : numbers.a) a.push_back(Shape::Make(value));
  for (int value : numbers.b) b.push_back(Shape::Make(value));
  for (int value : numbers.c)
    expected.push_back(static_cast<typename Shape::Sum>(static_cast<float>(value)));
  DeviceArray<typename Shape::Element> device_a(a), device_b(b);
  DeviceArray<typename Shape::Sum> c(kM * kN);
  gemm<Shape><<<dim3(kN / 8, kM / 16), 32>>>(device_a.data(), device_b.data(), c.data(), kN, kK);
  Exact(name, c.Download(), expected);
}

int main() {
  Test<Bfloat16>("bf16");
  Test<Float8>("e4m3");
  Test<Integer8>("s8");
  Test<TensorFloat32>("tf32");
  Test<HalfSums>("f16 sums");
  const Numbers numbers(1000);
  DeviceArray<double> a(std::vector<double>(numbers.a.begin(), numbers.a.end()));
  DeviceArray<double> b(std::vector<double>(numbers.b.begin(), numbers.b.end()));
  DeviceArray<double> c(kM * kN);
  gemm_double<<<dim3(kN / 8, kM / 8), 32>>>(a.data(), b.data(), c.data(), kN, kK);
  Exact("f64", c.Download(), std::vector<double>(numbers.c.begin(), numbers.c.end()));
  return Finish();
}
