// Shared by the tests of the emulator's driver: a context per test, and small kernels in PTX.
#pragma once

#include <cuda.h>

#include <catch2/catch.hpp>
#include <string>

namespace ops_debug::emulator::test {

// A fresh context, current for the test's lifetime; a kernel that faults spoils only this one.
class Context {
 public:
  Context() {
    REQUIRE(cuInit(0) == CUDA_SUCCESS);
    REQUIRE(cuCtxCreate(&handle_, nullptr, 0, 0) == CUDA_SUCCESS);
  }
  ~Context() { cuCtxDestroy(handle_); }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  CUcontext handle() const { return handle_; }

 private:
  CUcontext handle_ = nullptr;
};

// add(int* values, int count, int amount): values[i] += amount for i < count.
// store(int* values, long long index): values[index] = 7.
// store_byte_offset(char* values, long long offset): *(int*)(values + offset) = 7.
// stop(): trap.
// dynamic_shared(int* out): writes and reads the last word of 96 KiB of dynamic shared memory.
// bounded(): launch bounds of 64 threads.
inline constexpr char kKernels[] = R"(
.version 7.0
.target sm_70
.address_size 64

.visible .global .align 4 .u32 counters[4] = {1, 2, 3, 4};
.extern .shared .align 4 .b8 scratch[];

.visible .entry add(.param .u64 add_values, .param .u32 add_count, .param .u32 add_amount)
{
  .reg .pred %p<2>;
  .reg .b32 %r<8>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [add_values];
  ld.param.u32 %r1, [add_count];
  ld.param.u32 %r2, [add_amount];
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r4, %ntid.x;
  mov.u32 %r5, %tid.x;
  mad.lo.s32 %r6, %r3, %r4, %r5;
  setp.ge.s32 %p1, %r6, %r1;
  @%p1 bra DONE;
  cvta.to.global.u64 %rd1, %rd1;
  mul.wide.s32 %rd2, %r6, 4;
  add.s64 %rd3, %rd1, %rd2;
  ld.global.u32 %r7, [%rd3];
  add.s32 %r7, %r7, %r2;
  st.global.u32 [%rd3], %r7;
DONE:
  ret;
}

.visible .entry store(.param .u64 store_values, .param .u64 store_index)
{
  .reg .b32 %r<2>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [store_values];
  ld.param.u64 %rd2, [store_index];
  shl.b64 %rd2, %rd2, 2;
  add.s64 %rd3, %rd1, %rd2;
  mov.u32 %r1, 7;
  st.global.u32 [%rd3], %r1;
  ret;
}

.visible .entry store_byte_offset(.param .u64 byte_values, .param .u64 byte_offset)
{
  .reg .b32 %r<2>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [byte_values];
  ld.param.u64 %rd2, [byte_offset];
  add.s64 %rd3, %rd1, %rd2;
  mov.u32 %r1, 7;
  st.global.u32 [%rd3], %r1;
  ret;
}

.visible .entry stop()
{
  trap;
}

.visible .entry dynamic_shared(.param .u64 dynamic_out)
{
  .reg .b32 %r<4>;
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [dynamic_out];
  mov.u32 %r1, scratch;
  add.u32 %r1, %r1, 98300;
  mov.u32 %r2, 42;
  st.shared.u32 [%r1], %r2;
  ld.shared.u32 %r3, [%r1];
  st.global.u32 [%rd1], %r3;
  ret;
}

.visible .entry bounded()
.maxntid 64, 1, 1
{
  ret;
}
)";

class Module {
 public:
  explicit Module(const void* image = kKernels) {
    REQUIRE(cuModuleLoadData(&handle_, image) == CUDA_SUCCESS);
  }
  ~Module() { cuModuleUnload(handle_); }
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;
  CUmodule handle() const { return handle_; }

  CUfunction Function(const char* name) const {
    CUfunction function = nullptr;
    REQUIRE(cuModuleGetFunction(&function, handle_, name) == CUDA_SUCCESS);
    return function;
  }

 private:
  CUmodule handle_ = nullptr;
};

inline CUdeviceptr Allocate(size_t bytes) {
  CUdeviceptr address = 0;
  REQUIRE(cuMemAlloc(&address, bytes) == CUDA_SUCCESS);
  return address;
}

inline CUresult Launch(CUfunction function, unsigned grid, unsigned block, void** parameters,
                       unsigned shared_bytes = 0) {
  return cuLaunchKernel(function, grid, 1, 1, block, 1, 1, shared_bytes, nullptr, parameters,
                        nullptr);
}

}  // namespace ops_debug::emulator::test
