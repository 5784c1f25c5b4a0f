// The loops that lane operations are made of. Everything here lives in the namespace of one
// instruction set, so that the linker can never merge an AVX-512 instantiation into the baseline.
// For the same reason the files that include this use no templates or inline functions of the
// standard library.
#pragma once

#ifndef OPS_DEBUG_ISA
#error "compile with -DOPS_DEBUG_ISA=baseline, avx2 or avx512"
#endif

#include <cstdint>

#include "emulator/isa/lane_ops.h"

namespace ops_debug::emulator::OPS_DEBUG_ISA {

template <class T>
inline __attribute__((always_inline)) T* Lanes(void* p) {
  return static_cast<T*>(__builtin_assume_aligned(p, kLaneArrayAlignment));
}
template <class T>
inline __attribute__((always_inline)) const T* Lanes(const void* p) {
  return static_cast<const T*>(__builtin_assume_aligned(p, kLaneArrayAlignment));
}

template <class To, class From>
inline __attribute__((always_inline)) To BitCast(From value) {
  return __builtin_bit_cast(To, value);
}

// N is 64 for packed pairs (f16x2): [lane][low, high] is an array of 64 halves.
template <class F, class D, class A, int N>
void UnaryLoop(void* d, const void* a, const void*, const void*, uint64_t) {
  D* out = Lanes<D>(d);
  const A* x = Lanes<A>(a);
#pragma GCC ivdep
  for (int i = 0; i < N; ++i) out[i] = static_cast<D>(F{}(x[i]));
}

template <class F, class D, class A, class B, int N>
void BinaryLoop(void* d, const void* a, const void* b, const void*, uint64_t) {
  D* out = Lanes<D>(d);
  const A* x = Lanes<A>(a);
  const B* y = Lanes<B>(b);
#pragma GCC ivdep
  for (int i = 0; i < N; ++i) out[i] = static_cast<D>(F{}(x[i], y[i]));
}

template <class F, class D, class A, class B, class C, int N>
void TernaryLoop(void* d, const void* a, const void* b, const void* c, uint64_t) {
  D* out = Lanes<D>(d);
  const A* x = Lanes<A>(a);
  const B* y = Lanes<B>(b);
  const C* z = Lanes<C>(c);
#pragma GCC ivdep
  for (int i = 0; i < N; ++i) out[i] = static_cast<D>(F{}(x[i], y[i], z[i]));
}

template <class F, class D, class A, class B, class C>
void ImmediateLoop(void* d, const void* a, const void* b, const void* c, uint64_t immediate) {
  D* out = Lanes<D>(d);
  const A* x = Lanes<A>(a);
  const B* y = Lanes<B>(b);
  const C* z = Lanes<C>(c);
#pragma GCC ivdep
  for (int i = 0; i < 32; ++i) out[i] = static_cast<D>(F{}(x[i], y[i], z[i], immediate));
}

// The lambda's type carries the operation; the value is not needed.
template <class D, class A = D, int N = 32, class F>
constexpr AluFn Unary(F) {
  return &UnaryLoop<F, D, A, N>;
}
template <class D, class A = D, class B = A, int N = 32, class F>
constexpr AluFn Binary(F) {
  return &BinaryLoop<F, D, A, B, N>;
}
template <class D, class A = D, class B = A, class C = B, int N = 32, class F>
constexpr AluFn Ternary(F) {
  return &TernaryLoop<F, D, A, B, C, N>;
}
template <class D, class A = D, class B = A, class C = B, class F>
constexpr AluFn WithImmediate(F) {
  return &ImmediateLoop<F, D, A, B, C>;
}

}  // namespace ops_debug::emulator::OPS_DEBUG_ISA
