// Names and texts of CUresult.
#include <cuda.h>

namespace {

struct ErrorText {
  const char* name;
  const char* text;
};

ErrorText Lookup(CUresult error) {
  switch (error) {
#define OPS_DEBUG_ERROR(code, text) \
  case code:                        \
    return {#code, text};
#include "emulator/driver/error_texts.inc"
#undef OPS_DEBUG_ERROR
    default:
      return {nullptr, nullptr};
  }
}

CUresult Give(const char* found, const char** result) {
  if (result == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *result = found;
  return found != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

extern "C" CUresult cuGetErrorName(CUresult error, const char** name) {
  return Give(Lookup(error).name, name);
}

extern "C" CUresult cuGetErrorString(CUresult error, const char** text) {
  return Give(Lookup(error).text, text);
}
