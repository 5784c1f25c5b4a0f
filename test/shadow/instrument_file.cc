// Instruments one PTX file for memory checking and writes the result: what tests and people use to
// look at rewritten code without a program around it.
//   instrument_file [--null] IN.ptx OUT.ptx     prints one line per kernel
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>

#include "shadow/passes/instrument.h"

int main(int argc, char** argv) {
  using ops_debug::shadow::Rewrite;
  const bool null = argc > 1 && std::strcmp(argv[1], "--null") == 0;
  if (argc != (null ? 4 : 3)) {
    std::fprintf(stderr, "usage: instrument_file [--null] IN.ptx OUT.ptx\n");
    return 2;
  }
  const char* in_path = argv[argc - 2];
  const char* out_path = argv[argc - 1];
  std::ifstream in(in_path, std::ios::binary);
  if (!in) {
    std::fprintf(stderr, "cannot read %s\n", in_path);
    return 3;
  }
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  auto result = ops_debug::shadow::Instrument(text, null ? Rewrite::kNull : Rewrite::kMemoryChecks);
  if (!result.ok()) {
    std::fprintf(stderr, "%s:%s\n", in_path, result.error().ToString().c_str());
    return 1;
  }
  std::ofstream out(out_path, std::ios::binary);
  out << result->ptx;
  for (const auto& kernel : result->kernels) {
    unsigned unchecked = 0;
    for (const auto& access : kernel.unchecked) unchecked += access.count;
    std::printf("%s: %u checked, %zu slots, %u unchecked%s%s\n", kernel.name.c_str(),
                kernel.checked_accesses, kernel.slots.size(), unchecked,
                kernel.twin.empty() ? ", no twin: " : "", kernel.reason.c_str());
    for (const auto& access : kernel.unchecked) {
      std::printf("  unchecked: %s (%s) x%u\n", access.instruction.c_str(), access.reason.c_str(),
                  access.count);
    }
  }
  std::printf("%zu sites\n", result->sites.size());
  return out ? 0 : 3;
}
