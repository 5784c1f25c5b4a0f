// A program of cases: `PROGRAM NAME wrong|right` runs one, `PROGRAM all right` all right ones.
//
// In a source, `// CASE NAME KINDS: title` opens a case. KINDS up to the first comma: one of these,
// separated by |, has to be found in its faulty program; those behind it may be found, too. `//!
// NAME...` ends a line that a finding has to name (both sides of a race), `//? NAME...` one that it
// may name. A trap (`// TRAP NAME`) is right code that simple checkers flag; there is no faulty
// twin unless it says `counter pair`.
#pragma once
#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>
#include <vector>

#pragma nv_diag_suppress declared_but_not_referenced

namespace cases {

struct Case {
  const char* name;
  void (*run)(bool wrong);
};

template <class T>
T* Zeros(size_t count) {
  T* memory = nullptr;
  cudaMalloc(&memory, count * sizeof(T));
  cudaMemset(memory, 0, count * sizeof(T));
  return memory;
}

template <class T>
T* Unwritten(size_t count) {
  T* memory = nullptr;
  cudaMalloc(&memory, count * sizeof(T));
  return memory;
}

template <class T>
T* Uploaded(const std::vector<T>& values) {
  T* memory = nullptr;
  cudaMalloc(&memory, values.size() * sizeof(T));
  cudaMemcpy(memory, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice);
  return memory;
}

inline std::vector<float> Ramp(int count) {
  std::vector<float> values(count);
  for (int i = 0; i < count; i++) values[i] = static_cast<float>(i % 17) + 0.5f;
  return values;
}

template <size_t kCount>
int Main(const Case (&all)[kCount], int argc, char** argv) {
  if (argc != 3) return 2;
  int run = 0;
  for (const Case& one : all) {
    const bool every = std::strcmp(argv[1], "all") == 0;
    if (!every && std::strcmp(argv[1], one.name) != 0) continue;
    one.run(std::strcmp(argv[2], "wrong") == 0);
    cudaError_t status = cudaDeviceSynchronize();
    if (status == cudaSuccess) status = cudaGetLastError();
    std::printf("%s %s: %s\n", one.name, argv[2], cudaGetErrorName(status));
    ++run;
  }
  return run == 0 ? 2 : 0;
}

}  // namespace cases

// The compiler may not move accesses across this line; no instruction.
#define KEEP asm volatile("" ::: "memory")
