// libFuzzer target: functions and source lines of machine code whose bytes the program under test
// made up.
//   clang: cmake -DOPS_DEBUG_FUZZ=ON, then fuzz_cubin -max_len=16384 CORPUS_FOLDER
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "ptx/cubin.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ops_debug::ptx;
  const auto code = CubinCode::Read({reinterpret_cast<const char*>(data), size});
  if (!code) return 0;
  // Line programs run anew for each question: a few places of the first functions.
  constexpr size_t kFunctions = 4;
  for (size_t i = 0; i < code->functions().size() && i < kFunctions; ++i) {
    const CubinCode::Function& function = code->functions()[i];
    for (const uint64_t offset :
         {uint64_t{0}, function.size_bytes / 2, function.size_bytes, ~uint64_t{0}}) {
      code->InnerAt(function.name, offset);
      code->FramesAt(function.name, offset);
    }
  }
  return 0;
}
