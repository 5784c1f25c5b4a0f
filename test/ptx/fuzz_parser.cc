// libFuzzer target: parse, print, parse again, and every analysis over what came out.
//   clang: cmake -DOPS_DEBUG_FUZZ=ON, then fuzz_parser -max_len=4096 CORPUS_FOLDER
#include <cstdint>
#include <cstdlib>
#include <string>

#include "ptx/cfg.h"
#include "ptx/def_use.h"
#include "ptx/parser.h"
#include "ptx/printer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ops_debug::ptx;
  auto module = Parse(std::string(reinterpret_cast<const char*>(data), size));
  if (!module.ok()) return 0;
  const std::string printed = Print(*module);
  auto again = Parse(printed);
  if (!again.ok() || Print(*again) != printed) std::abort();
  for (const Item& item : module->items) {
    const auto* function = std::get_if<Function>(&item);
    if (function == nullptr) continue;
    LayoutParameters(*function);
    auto flow = ControlFlow::Build(*function);
    if (flow.ok()) DefUse(*function, *flow);
  }
  return 0;
}
