// Calls: recursion that diverges, tables of function pointers, virtual functions, arrays of
// run-time size on the stack, and large structs by value from constant memory.
#include <algorithm>

#include "digest.h"

using namespace whole_kernels;

__device__ __noinline__ int Ackermann(int m, int n) {
  if (m == 0) return n + 1;
  return n == 0 ? Ackermann(m - 1, 1) : Ackermann(m - 1, Ackermann(m, n - 1));
}
int HostAckermann(int m, int n) {
  if (m == 0) return n + 1;
  return n == 0 ? HostAckermann(m - 1, 1) : HostAckermann(m - 1, HostAckermann(m, n - 1));
}

__device__ __noinline__ void Quicksort(int* values, int low, int high) {
  if (low >= high) return;
  const int pivot = values[(low + high) / 2];
  int i = low, j = high;
  while (i <= j) {
    while (values[i] < pivot) ++i;
    while (values[j] > pivot) --j;
    if (i <= j) {
      const int value = values[i];
      values[i++] = values[j];
      values[j--] = value;
    }
  }
  Quicksort(values, low, j);
  Quicksort(values, i, high);
}

__global__ void recursion(int* results) {
  results[threadIdx.x] = Ackermann(threadIdx.x % 3, threadIdx.x / 3 % 5);
}

__global__ void sort_rows(int* rows, int length) {
  Quicksort(rows + (blockIdx.x * blockDim.x + threadIdx.x) * length, 0, length - 1);
}

using Operation = unsigned (*)(unsigned, unsigned);
__host__ __device__ __noinline__ unsigned Add(unsigned a, unsigned b) { return a + b; }
__host__ __device__ __noinline__ unsigned Subtract(unsigned a, unsigned b) { return a - b; }
__host__ __device__ __noinline__ unsigned Multiply(unsigned a, unsigned b) { return a * b; }
__host__ __device__ __noinline__ unsigned Mix(unsigned a, unsigned b) {
  return (a ^ b >> 3) * 2654435761u;
}
__device__ Operation device_table[4] = {Add, Subtract, Multiply, Mix};
const Operation host_table[4] = {Add, Subtract, Multiply, Mix};

__global__ void through_table(const unsigned* program, int length, unsigned* results) {
  unsigned value = threadIdx.x;
  for (int i = 0; i < length; ++i)
    value = device_table[(program[i] + threadIdx.x) % 4](value, program[i]);
  results[threadIdx.x] = value;
}

struct Shape {
  __device__ virtual float Area() const = 0;
  __device__ virtual int Corners() const { return 0; }
};
struct Circle : Shape {
  float radius;
  __device__ explicit Circle(float r) : radius(r) {}
  __device__ float Area() const override { return __fmul_rn(__fmul_rn(radius, radius), 3.0f); }
};
struct Box : Shape {
  float width, height;
  __device__ Box(float w, float h) : width(w), height(h) {}
  __device__ float Area() const override { return __fmul_rn(width, height); }
  __device__ int Corners() const override { return 4; }
};

__global__ void virtual_calls(float* areas, int* corners) {
  alignas(Box) char storage[sizeof(Box)];
  Shape* shape;
  if (threadIdx.x % 3 == 0)
    shape = new (storage) Circle(threadIdx.x);
  else
    shape = new (storage) Box(threadIdx.x, 2.5f);
  areas[threadIdx.x] = shape->Area();
  corners[threadIdx.x] = shape->Corners();
}

struct Matrix {
  int at[4][4];
};
__host__ __device__ __noinline__ Matrix Product(Matrix a, Matrix b) {
  Matrix c = {};
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j)
      for (int k = 0; k < 4; ++k) c.at[i][j] = (c.at[i][j] + a.at[i][k] * b.at[k][j]) % 10007;
  return c;
}
__constant__ Matrix constant_matrix;

__global__ void powers(Matrix* results) {
  Matrix power = constant_matrix;
  for (unsigned i = 0; i < threadIdx.x; ++i) power = Product(power, constant_matrix);
  results[threadIdx.x] = power;
}

__global__ void sieve(int* counts) {
  const int limit = 20 + 3 * threadIdx.x;
  bool* const composite = static_cast<bool*>(__builtin_alloca(limit));
  for (int i = 0; i < limit; ++i) composite[i] = i < 2;
  for (int i = 2; i < limit; ++i)
    for (int j = 2 * i; j < limit; j += i) composite[j] = true;
  int count = 0;
  for (int i = 0; i < limit; ++i) count += !composite[i];
  counts[threadIdx.x] = count;
}

int main() {
  constexpr int kThreads = 64;
  Random random(79);
  REQUIRE_CUDA(cudaDeviceSetLimit(cudaLimitStackSize, 16 * 1024));
  {
    std::vector<int> expected(kThreads);
    for (int t = 0; t < kThreads; ++t) expected[t] = HostAckermann(t % 3, t / 3 % 5);
    DeviceArray<int> results(kThreads);
    recursion<<<1, kThreads>>>(results.data());
    Exact("recursion", results.Download(), expected);
  }
  {
    constexpr int kLength = 40;
    std::vector<int> rows(kThreads * kLength);
    for (int& value : rows) value = random.Whole(50);
    DeviceArray<int> device(rows);
    sort_rows<<<2, kThreads / 2>>>(device.data(), kLength);
    for (int t = 0; t < kThreads; ++t) std::sort(&rows[t * kLength], &rows[t * kLength] + kLength);
    Exact("quicksort", device.Download(), rows);
  }
  {
    std::vector<unsigned> program(30), expected(kThreads);
    for (unsigned& word : program) word = random.Next();
    for (unsigned t = 0; t < kThreads; ++t) {
      expected[t] = t;
      for (unsigned word : program) expected[t] = host_table[(word + t) % 4](expected[t], word);
    }
    DeviceArray<unsigned> device_program(program), results(kThreads);
    through_table<<<1, kThreads>>>(device_program.data(), static_cast<int>(program.size()),
                                   results.data());
    Exact("function table", results.Download(), expected);
  }
  {
    std::vector<float> areas(kThreads);
    std::vector<int> corners(kThreads);
    for (int t = 0; t < kThreads; ++t) {
      const float size = static_cast<float>(t);
      areas[t] = t % 3 == 0 ? size * size * 3.0f : size * 2.5f;
      corners[t] = t % 3 == 0 ? 0 : 4;
    }
    DeviceArray<float> device_areas(kThreads);
    DeviceArray<int> device_corners(kThreads);
    virtual_calls<<<1, kThreads>>>(device_areas.data(), device_corners.data());
    Exact("virtual areas", device_areas.Download(), areas);
    Exact("virtual corners", device_corners.Download(), corners);
  }
  {
    Matrix matrix;
    for (auto& row : matrix.at)
      for (int& value : row) value = static_cast<int>(random.Below(10007));
    REQUIRE_CUDA(cudaMemcpyToSymbol(constant_matrix, &matrix, sizeof(matrix)));
    std::vector<Matrix> expected = {matrix};
    while (expected.size() < 32) expected.push_back(Product(expected.back(), matrix));
    DeviceArray<Matrix> results(32);
    powers<<<1, 32>>>(results.data());
    Exact("structs by value", results.Download(), expected);
  }
  {
    std::vector<int> expected(kThreads);
    for (int t = 0; t < kThreads; ++t) {
      for (int i = 2; i < 20 + 3 * t; ++i) {
        bool prime = true;
        for (int j = 2; j * j <= i; ++j) prime = prime && i % j != 0;
        expected[t] += prime;
      }
    }
    DeviceArray<int> counts(kThreads);
    sieve<<<1, kThreads>>>(counts.data());
    Exact("alloca", counts.Download(), expected);
  }
  return Finish();
}
