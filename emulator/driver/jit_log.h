// Where a caller of the just-in-time compiler or linker wants its messages: buffers in the caller's
// options, whose size option is overwritten with the number of bytes filled.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <cstring>
#include <string_view>

namespace ops_debug::emulator {

class JitLog {
 public:
  JitLog() = default;
  JitLog(unsigned count, const CUjit_option* options, void** values) {
    if (options == nullptr || values == nullptr) return;
    for (unsigned i = 0; i < count; ++i) {
      switch (options[i]) {
        case CU_JIT_INFO_LOG_BUFFER:
          info_.text = static_cast<char*>(values[i]);
          break;
        case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
          info_.SetSize(&values[i]);
          break;
        case CU_JIT_ERROR_LOG_BUFFER:
          error_.text = static_cast<char*>(values[i]);
          break;
        case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
          error_.SetSize(&values[i]);
          break;
        default:
          break;
      }
    }
    info_.Append("");
    error_.Append("");
  }

  void Info(std::string_view line) { info_.Append(line); }
  void Error(std::string_view line) { error_.Append(line); }

 private:
  struct Buffer {
    char* text = nullptr;
    size_t capacity = 0, length = 0;
    void** written = nullptr;

    void SetSize(void** value) {
      capacity = reinterpret_cast<size_t>(*value) & 0xffffffffu;
      written = value;
    }
    void Append(std::string_view line) {
      if (text == nullptr || capacity == 0) return;
      const size_t count = std::min(line.size(), capacity - 1 - length);
      std::memcpy(text + length, line.data(), count);
      length += count;
      text[length] = '\0';
      if (written != nullptr) *written = reinterpret_cast<void*>(length);
    }
  };
  Buffer info_, error_;
};

}  // namespace ops_debug::emulator
