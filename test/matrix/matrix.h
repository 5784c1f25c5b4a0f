// What the generated micro-kernels are written in: PTX's memory operations by name, and the loop
// that launches them. `PROGRAM right` runs all right kernels one after another, `PROGRAM wrong` all
// wrong ones, `PROGRAM NAME...` those.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstring>

// The compiler keeps every access before it and reads everything again after it; no instruction.
#define KEEP asm volatile("" ::: "memory")
// Somebody else might know this array.
#define ESCAPE(array) asm volatile("" ::"l"(array) : "memory")
// A pointer of which the compiler knows nothing: accesses become generic ones.
#define GENERIC(pointer)                           \
  ({                                               \
    unsigned* hidden_ = (pointer);                 \
    asm volatile("" : "+l"(hidden_) : : "memory"); \
    hidden_;                                       \
  })

#define LD(how, pointer)                                                               \
  ({                                                                                   \
    unsigned value_;                                                                   \
    asm volatile("ld." how ".u32 %0, [%1];" : "=r"(value_) : "l"(pointer) : "memory"); \
    value_;                                                                            \
  })
#define ST(how, pointer, value) \
  asm volatile("st." how ".u32 [%0], %1;" ::"l"(pointer), "r"(unsigned(value)) : "memory")
#define ATOM(how, pointer, value)                     \
  ({                                                  \
    unsigned value_;                                  \
    asm volatile("atom." how " %0, [%1], %2;"         \
                 : "=r"(value_)                       \
                 : "l"(pointer), "r"(unsigned(value)) \
                 : "memory");                         \
    value_;                                           \
  })
#define CAS(how, pointer, compare, value)                                     \
  ({                                                                          \
    unsigned value_;                                                          \
    asm volatile("atom." how ".cas.b32 %0, [%1], %2, %3;"                     \
                 : "=r"(value_)                                               \
                 : "l"(pointer), "r"(unsigned(compare)), "r"(unsigned(value)) \
                 : "memory");                                                 \
    value_;                                                                   \
  })
#define RED(how, pointer, value) \
  asm volatile("red." how " [%0], %1;" ::"l"(pointer), "r"(unsigned(value)) : "memory")
#define FENCE(how) asm volatile("fence." how ";" ::: "memory")
#define PTX(text) asm volatile(text ::: "memory")
// Barriers by their PTX names: BARRIER("sync", 1, 64).
#define BARRIER(how, id, count) \
  asm volatile("barrier." how " %0, %1;" ::"r"(id), "r"(count) : "memory")

#define SHARED_ADDRESS(pointer) unsigned(__cvta_generic_to_shared(pointer))

// ---- cp.async of 4, 8 or 16 bytes
#define COPY_ASYNC(destination, source, bytes)                 \
  asm volatile("cp.async.ca.shared.global [%0], [%1], " #bytes \
               ";" ::"r"(SHARED_ADDRESS(destination)),         \
               "l"(source)                                     \
               : "memory")
#define COPY_COMMIT PTX("cp.async.commit_group;")
#define COPY_WAIT(groups) PTX("cp.async.wait_group " #groups ";")
#define COPY_WAIT_ALL PTX("cp.async.wait_all;")

// ---- mbarriers
#define MBARRIER_INIT(barrier, count)                                                    \
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(SHARED_ADDRESS(barrier)), \
               "r"(count)                                                                \
               : "memory")
#define MBARRIER_ARRIVE(barrier)                                                          \
  asm volatile("{ .reg .b64 state; mbarrier.arrive.shared::cta.b64 state, [%0]; }" ::"r"( \
                   SHARED_ADDRESS(barrier))                                               \
               : "memory")
#define MBARRIER_ARRIVE_EXPECT(barrier, bytes)                                                 \
  asm volatile(                                                                                \
      "{ .reg .b64 state; mbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], %1; }" ::"r"( \
          SHARED_ADDRESS(barrier)),                                                            \
      "r"(bytes)                                                                               \
      : "memory")
#define MBARRIER_TRY(barrier, parity)                                                           \
  ({                                                                                            \
    unsigned done_;                                                                             \
    asm volatile(                                                                               \
        "{ .reg .pred done; mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2; selp.u32 " \
        "%0, 1, 0, done; }"                                                                     \
        : "=r"(done_)                                                                           \
        : "r"(SHARED_ADDRESS(barrier)), "r"(parity)                                             \
        : "memory");                                                                            \
    done_;                                                                                      \
  })
#define MBARRIER_WAIT(barrier, parity) \
  while (!MBARRIER_TRY(barrier, parity)) KEEP
#define COPY_MBARRIER_ARRIVE(barrier)                                                       \
  asm volatile(                                                                             \
      "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(SHARED_ADDRESS(barrier)) \
      : "memory")

// ---- bulk copies
#define BULK_LOAD(destination, source, bytes, barrier)                                             \
  asm volatile(                                                                                    \
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" :: \
          "r"(SHARED_ADDRESS(destination)),                                                        \
      "l"(source), "r"(bytes), "r"(SHARED_ADDRESS(barrier))                                        \
      : "memory")
#define BULK_STORE(destination, source, bytes)                                                   \
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(destination), \
               "r"(SHARED_ADDRESS(source)), "r"(bytes)                                           \
               : "memory")
#define BULK_COMMIT PTX("cp.async.bulk.commit_group;")
#define BULK_WAIT(groups) PTX("cp.async.bulk.wait_group " #groups ";")
#define BULK_WAIT_READ(groups) PTX("cp.async.bulk.wait_group.read " #groups ";")
#define PROXY_FENCE PTX("fence.proxy.async;")

// ---- clusters
#define CLUSTER_RANK                                              \
  ({                                                              \
    unsigned rank_;                                               \
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank_)); \
    rank_;                                                        \
  })
// The same variable in another block of the cluster: a generic address.
#define REMOTE(pointer, rank)                        \
  ({                                                 \
    uint64_t remote_;                                \
    asm volatile("mapa.u64 %0, %1, %2;"              \
                 : "=l"(remote_)                     \
                 : "l"(pointer), "r"(unsigned(rank)) \
                 : "memory");                        \
    reinterpret_cast<unsigned*>(remote_);            \
  })
#define CLUSTER_SYNC PTX("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;")

struct Micro {
  const char* name;
  const void* kernel;
  bool wrong, alone;
  unsigned grid, block, cluster, shared_bytes;
  bool cooperative, unwritten;
};

// `data`: 4096 words, zeros; `flags`: 64 words, zeros; `out`: 4096 words.
inline int RunMicros(const Micro* micros, int count, int argc, char** argv) {
  constexpr size_t kWords = 4096, kFlags = 64;
  unsigned *data = nullptr, *flags = nullptr, *out = nullptr;
  int launched = 0, failed = 0;
  cudaMalloc(&flags, kFlags * 4);
  cudaMalloc(&out, kWords * 4);
  for (int i = 0; i < count; i++) {
    const Micro& micro = micros[i];
    bool chosen = false;
    for (int j = 1; j < argc; j++) {
      chosen |= std::strcmp(argv[j], micro.name) == 0 ||
                (!micro.alone && std::strcmp(argv[j], micro.wrong ? "wrong" : "right") == 0);
    }
    if (!chosen) continue;
    cudaMalloc(&data, kWords * 4);
    if (!micro.unwritten) cudaMemset(data, 0, kWords * 4);
    cudaMemset(flags, 0, kFlags * 4);
    cudaLaunchAttribute attributes[2] = {};
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(micro.grid);
    config.blockDim = dim3(micro.block);
    config.dynamicSmemBytes = micro.shared_bytes;
    config.attrs = attributes;
    if (micro.cluster > 1) {
      attributes[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
      attributes[config.numAttrs].val.clusterDim.x = micro.cluster;
      attributes[config.numAttrs].val.clusterDim.y = 1;
      attributes[config.numAttrs++].val.clusterDim.z = 1;
    }
    if (micro.cooperative) {
      attributes[config.numAttrs].id = cudaLaunchAttributeCooperative;
      attributes[config.numAttrs++].val.cooperative = 1;
    }
    void* arguments[] = {&data, &flags, &out};
    cudaError_t status = cudaLaunchKernelExC(&config, micro.kernel, arguments);
    const cudaError_t after = cudaDeviceSynchronize();
    if (status == cudaSuccess) status = after;
    if (status != cudaSuccess && !micro.alone) {
      std::printf("%s: %s\n", micro.name, cudaGetErrorString(status));
      ++failed;
    }
    cudaFree(data);
    ++launched;
  }
  std::printf("%d kernels\n", launched);
  return failed == 0 && launched > 0 ? 0 : 1;
}
