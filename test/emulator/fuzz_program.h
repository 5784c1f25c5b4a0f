// Turns the bytes of a fuzzer into a PTX program: random instructions that are right in form, over
// a few registers of each type, memory inside of a few buffers (and sometimes outside), branches,
// barriers, warp operations and calls. The forms are the table in fuzz_forms.inc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ops_debug::emulator {

// Reads bytes; zeros behind the end.
class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  bool empty() const { return at_ >= size_; }
  uint32_t Byte() { return at_ < size_ ? data_[at_++] : 0; }
  uint32_t Word() { return Byte() | Byte() << 8; }
  uint32_t Below(uint32_t bound) { return (bound > 256 ? Word() : Byte()) % bound; }
  bool Chance(uint32_t of_256) { return Byte() < of_256; }

 private:
  const uint8_t* data_;
  size_t size_;
  size_t at_ = 0;
};

// A module with the kernel `kernel(.u64 buffer, .u64 buffer, .u32 count)`; buffers of
// kFuzzBufferBytes.
constexpr size_t kFuzzBufferBytes = 8192;
std::string FuzzProgram(Bytes& bytes);

}  // namespace ops_debug::emulator
