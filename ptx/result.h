// A value or a located diagnostic. The libraries that live inside the target process cannot use
// absl::StatusOr (Debian's static abseil is not position independent), so ptx/ and shadow/ speak
// this small type.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>

namespace ops_debug::ptx {

struct Diagnostic {
  enum class Code : uint8_t { kSyntax, kUnsupported, kInvalid };
  Code code = Code::kInvalid;
  uint32_t line = 0;    // 1-based, 0 = no place
  uint32_t column = 0;  // 1-based
  std::string message;  // what happened
  std::string hint;     // what to do, or empty

  // "12:7: expected ';', found '}'" (+ " (hint)").
  std::string ToString() const;
};

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}  // NOLINT(google-explicit-constructor)
  Result(Diagnostic diagnostic)
      : state_(std::move(diagnostic)) {}  // NOLINT(google-explicit-constructor)
  bool ok() const { return state_.index() == 0; }
  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  T* operator->() { return &value(); }
  const Diagnostic& error() const { return std::get<1>(state_); }

 private:
  std::variant<T, Diagnostic> state_;
};

}  // namespace ops_debug::ptx
