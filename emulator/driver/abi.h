// Further exported names of one function: aliases, made beside its definition. The header declares
// the names, so an alias whose signature differs from what the header says does not compile.
#pragma once

namespace ops_debug::emulator {

// The function type that a pointer leads to, without the default arguments that GCC keeps in
// decltype.
template <class Pointer>
struct Signature;
template <class Result, class... Arguments>
struct Signature<Result (*)(Arguments...)> {
  using Type = Result(Arguments...);
};

}  // namespace ops_debug::emulator

#define OPS_DEBUG_SIGNATURE(name) ::ops_debug::emulator::Signature<decltype(&::name)>::Type

// The per-thread-default-stream variant (suffix ptds or ptsz). Work runs inside the call that
// submits it, so it makes no difference which default stream is meant.
#define OPS_DEBUG_PER_THREAD(name, suffix) \
  extern "C" OPS_DEBUG_SIGNATURE(name##_##suffix) name##_##suffix __attribute__((alias(#name)));

// The first ABI of a function whose signature never changed.
#define OPS_DEBUG_FIRST_ABI(name, newer) \
  extern "C" OPS_DEBUG_SIGNATURE(name) name __attribute__((alias(#newer)));
