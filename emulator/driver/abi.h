// Further exported names of one function, made beside its definition. The header declares the
// names, so one whose signature differs from what the header says does not compile.
#pragma once

#include <cstddef>
#include <tuple>

namespace ops_debug::emulator {

// The function type that a pointer leads to, without the default arguments that GCC keeps in
// decltype.
template <class Pointer>
struct Signature;
template <class R, class... Arguments>
struct Signature<R (*)(Arguments...)> {
  using Type = R(Arguments...);
  using Result = R;
  template <size_t kIndex>
  using Parameter = std::tuple_element_t<kIndex, std::tuple<Arguments...>>;
};

// True while a per-thread-default-stream variant runs on this thread: stream 0 is the thread's own.
bool& ZeroIsThreadStream();

class ThreadStreamScope {
 public:
  ThreadStreamScope() : before_(ZeroIsThreadStream()) { ZeroIsThreadStream() = true; }
  ~ThreadStreamScope() { ZeroIsThreadStream() = before_; }
  ThreadStreamScope(const ThreadStreamScope&) = delete;
  ThreadStreamScope& operator=(const ThreadStreamScope&) = delete;

 private:
  bool before_;
};

}  // namespace ops_debug::emulator

#define OPS_DEBUG_SIGNATURE_OF(name) ::ops_debug::emulator::Signature<decltype(&::name)>
#define OPS_DEBUG_SIGNATURE(name) OPS_DEBUG_SIGNATURE_OF(name)::Type

// The first ABI of a function whose signature never changed.
#define OPS_DEBUG_FIRST_ABI(name, newer) \
  extern "C" OPS_DEBUG_SIGNATURE(name) name __attribute__((alias(#newer)));

// The per-thread-default-stream variant (suffix ptds or ptsz) of a function of `arity` parameters.
#define OPS_DEBUG_PER_THREAD(name, suffix, arity)                                       \
  extern "C" OPS_DEBUG_SIGNATURE_OF(name)::Result name##_##suffix(                      \
      OPS_DEBUG_PARAMETERS_##arity(OPS_DEBUG_SIGNATURE_OF(name)::template Parameter)) { \
    const ::ops_debug::emulator::ThreadStreamScope scope;                               \
    return ::name(OPS_DEBUG_ARGUMENTS_##arity);                                         \
  }

#define OPS_DEBUG_PARAMETERS_1(type) type<0> p0
#define OPS_DEBUG_PARAMETERS_2(type) OPS_DEBUG_PARAMETERS_1(type), type<1> p1
#define OPS_DEBUG_PARAMETERS_3(type) OPS_DEBUG_PARAMETERS_2(type), type<2> p2
#define OPS_DEBUG_PARAMETERS_4(type) OPS_DEBUG_PARAMETERS_3(type), type<3> p3
#define OPS_DEBUG_PARAMETERS_5(type) OPS_DEBUG_PARAMETERS_4(type), type<4> p4
#define OPS_DEBUG_PARAMETERS_6(type) OPS_DEBUG_PARAMETERS_5(type), type<5> p5
#define OPS_DEBUG_PARAMETERS_7(type) OPS_DEBUG_PARAMETERS_6(type), type<6> p6
#define OPS_DEBUG_PARAMETERS_8(type) OPS_DEBUG_PARAMETERS_7(type), type<7> p7
#define OPS_DEBUG_PARAMETERS_9(type) OPS_DEBUG_PARAMETERS_8(type), type<8> p8
#define OPS_DEBUG_PARAMETERS_10(type) OPS_DEBUG_PARAMETERS_9(type), type<9> p9
#define OPS_DEBUG_PARAMETERS_11(type) OPS_DEBUG_PARAMETERS_10(type), type<10> p10
#define OPS_DEBUG_ARGUMENTS_1 p0
#define OPS_DEBUG_ARGUMENTS_2 OPS_DEBUG_ARGUMENTS_1, p1
#define OPS_DEBUG_ARGUMENTS_3 OPS_DEBUG_ARGUMENTS_2, p2
#define OPS_DEBUG_ARGUMENTS_4 OPS_DEBUG_ARGUMENTS_3, p3
#define OPS_DEBUG_ARGUMENTS_5 OPS_DEBUG_ARGUMENTS_4, p4
#define OPS_DEBUG_ARGUMENTS_6 OPS_DEBUG_ARGUMENTS_5, p5
#define OPS_DEBUG_ARGUMENTS_7 OPS_DEBUG_ARGUMENTS_6, p6
#define OPS_DEBUG_ARGUMENTS_8 OPS_DEBUG_ARGUMENTS_7, p7
#define OPS_DEBUG_ARGUMENTS_9 OPS_DEBUG_ARGUMENTS_8, p8
#define OPS_DEBUG_ARGUMENTS_10 OPS_DEBUG_ARGUMENTS_9, p9
#define OPS_DEBUG_ARGUMENTS_11 OPS_DEBUG_ARGUMENTS_10, p10
