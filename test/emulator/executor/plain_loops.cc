// The loops of speed.cc as plain C++, one thread of the grid after the other: what a compiler makes
// of the same work on one core. scripts/bench_emulator.py compiles this with -O2 and with
// -O3 -march=native. Prints: kernel, seconds of processor time, thread-instructions that the PTX
// has for the same work.
//
//   plain_loops [SECONDS_PER_LOOP]
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <vector>

namespace {

constexpr uint32_t kBlocks = 16, kThreads = 256;
constexpr size_t kWords = size_t{64} << 18;  // 64 MiB

std::vector<float> x(kWords), y(kWords);

// Each returns the thread-instructions of the PTX per thread.
uint64_t Integer(uint32_t t) {
  uint32_t r3 = t, r4 = 1, r5 = t;
  uint64_t rd2 = t, rd3 = 1;
  for (uint32_t i = 0; i < 2000; ++i) {
    r3 = r3 * 1664525u + 1013904223u;
    r4 ^= r3 >> 7;
    r3 += r4;
    r5 = r5 < r3 ? r5 : r3;
    rd3 += rd2;
    rd2 ^= rd3;
    r4 &= 16777215u;
  }
  x[t] = static_cast<float>(r3 + r4 + r5 + static_cast<uint32_t>(rd3));
  return 2000 * 11;
}

template <class T>
uint64_t MultiplyAdd(uint32_t t) {
  const T a = static_cast<T>(t), b = static_cast<T>(0.99998);
  T sums[4] = {a, a, a, a};
  for (uint32_t i = 0; i < 2000; ++i)
    for (T& sum : sums) sum = sum * b + a;
  x[t] = static_cast<float>(sums[0] + sums[1] + (sums[2] + sums[3]));
  return 2000 * 7;
}

// volatile: the same element is copied again and again.
uint64_t CopyCached(uint32_t t) {
  const volatile float* from = &x[t];
  volatile float* to = &y[t];
  for (uint32_t i = 0; i < 1000; ++i) *to = *from;
  return 1000 * 5;
}

uint64_t Shared(uint32_t t) {
  volatile uint32_t tile[2] = {t, t};
  for (uint32_t i = 0; i < 1000; ++i) tile[0] = tile[1] + 3;
  return 1000 * 6;
}

uint64_t Divergent(uint32_t t) {
  uint32_t r3 = t;
  uint64_t instructions = 0;
  for (uint32_t i = 0; i < 1000; ++i) {
    if ((r3 & 1) == 0) {
      r3 = ((r3 >> 1) + t) ^ 85;
      instructions += 10;
    } else {
      r3 = (r3 * 3 + 1) >> 1;
      instructions += 9;
    }
  }
  x[t] = static_cast<float>(r3);
  return instructions;
}

uint64_t Atomics(uint32_t t) {
  auto* word = reinterpret_cast<uint32_t*>(x.data()) + t % 64;
  for (uint32_t i = 0; i < 200; ++i) {
    __atomic_fetch_add(word, t, __ATOMIC_RELAXED);
    __atomic_fetch_add(word, 1, __ATOMIC_RELAXED);
  }
  return 200 * 5;
}

template <class Thread>
void Measure(const char* name, double seconds, Thread thread) {
  uint64_t instructions = 0;
  const std::clock_t start = std::clock();
  double elapsed;
  do {
    for (uint32_t block = 0; block < kBlocks; ++block)
      for (uint32_t t = 0; t < kThreads; ++t) instructions += thread(t);
    elapsed = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  } while (elapsed < seconds);
  std::printf("%s,%.6f,%llu\n", name, elapsed, static_cast<unsigned long long>(instructions));
}

}  // namespace

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 0.5;
  for (size_t i = 0; i < kWords; ++i) x[i] = y[i] = 1.0f;
  std::printf("kernel,processor_s,thread_instructions\n");
  Measure("integer", seconds, Integer);
  Measure("fma_f32", seconds, MultiplyAdd<float>);
  Measure("fma_f64", seconds, MultiplyAdd<double>);
  Measure("copy_cached", seconds, CopyCached);
  uint32_t block = 0;
  Measure("add_streaming", seconds, [&block](uint32_t t) -> uint64_t {
    // One call per row of a block, in the order of the addresses.
    float* to = &y[size_t{block} * 65536 + size_t{t} * 256];
    const float* from = &x[size_t{block} * 65536 + size_t{t} * 256];
    for (uint32_t i = 0; i < 256; ++i) to[i] += from[i];
    block = t + 1 == kThreads ? (block + 1) % kBlocks : block;
    return 256 * 9;
  });
  Measure("shared", seconds, Shared);
  Measure("divergent", seconds, Divergent);
  Measure("atomics", seconds, Atomics);
  Measure("mma", seconds, [](uint32_t t) -> uint64_t {
    // 32 threads share the 100 products of 16x8x16.
    if (t % 32 != 0) return 0;
    float a[16][16], b[16][8], c[16][8] = {};
    for (int i = 0; i < 16; ++i)
      for (int k = 0; k < 16; ++k) a[i][k] = x[t + i * 16 + k];
    for (int k = 0; k < 16; ++k)
      for (int j = 0; j < 8; ++j) b[k][j] = x[t + k * 8 + j];
    for (int step = 0; step < 100; ++step)
      for (int i = 0; i < 16; ++i)
        for (int k = 0; k < 16; ++k)
          for (int j = 0; j < 8; ++j) c[i][j] += a[i][k] * b[k][j];
    for (int i = 0; i < 16; ++i) y[t + i] = c[i][i % 8];
    return 32 * 100 * 4;
  });
  return 0;
}
