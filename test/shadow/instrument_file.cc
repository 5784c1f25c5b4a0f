// Instruments one PTX file and writes the result: what tests and people use to look at rewritten
// code without a program around it.
//   instrument_file [--null | --checks=memory,race,sync,init,precision,trace,index] IN.ptx OUT.ptx
// Checks memory unless told otherwise; prints one line per kernel.
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>

#include "shadow/passes/instrument.h"

int main(int argc, char** argv) {
  using ops_debug::shadow::Rewrite;
  const bool null = argc > 1 && std::strcmp(argv[1], "--null") == 0;
  const bool chosen = argc > 1 && std::strncmp(argv[1], "--checks=", 9) == 0;
  if (argc != (null || chosen ? 4 : 3)) {
    std::fprintf(stderr, "usage: instrument_file [--null | --checks=LIST] IN.ptx OUT.ptx\n");
    return 2;
  }
  ops_debug::shadow::Checks checks;
  if (chosen) {
    const std::string list = argv[1];
    const auto has = [&](const char* check) { return list.find(check) != std::string::npos; };
    checks = {.memory = has("memory"),
              .races = has("race"),
              .sync = has("sync"),
              .init = has("init"),
              .precision = has("precision"),
              .precision_trace = has("trace"),
              .indexes = has("index")};
  }
  const char* in_path = argv[argc - 2];
  const char* out_path = argv[argc - 1];
  std::ifstream in(in_path, std::ios::binary);
  if (!in) {
    std::fprintf(stderr, "cannot read %s\n", in_path);
    return 3;
  }
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  auto result =
      ops_debug::shadow::Instrument(text, null ? Rewrite::kNull : Rewrite::kMemoryChecks, checks);
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
    if (kernel.init.checked) {
      std::printf("  unwritten memory: %u loads tested, %u not followed, %u stores marked%s\n",
                  kernel.init.checked_loads, kernel.init.not_followed, kernel.init.marked_stores,
                  kernel.init.writes_unseen ? ", writes unseen" : "");
    }
    if (kernel.precision.checked) {
      std::printf("  precision: %u instructions, %zu constants\n",
                  kernel.precision.checked_instructions, kernel.precision.constants.size());
    }
    for (const auto& access : kernel.unchecked) {
      std::printf("  unchecked: %s (%s) x%u\n", access.instruction.c_str(), access.reason.c_str(),
                  access.count);
    }
  }
  std::printf("%zu sites\n", result->sites.size());
  return out ? 0 : 3;
}
