// Throughput of parse + print over PTX files: benchmark_ptx FILE... Not part of the test run.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "ptx/parser.h"
#include "ptx/printer.h"

namespace {

using Clock = std::chrono::steady_clock;

double MillisecondsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

}  // namespace

int main(int argc, char** argv) {
  constexpr int kRounds = 7;
  double total_bytes = 0, total_parse_ms = 0, total_print_ms = 0;
  for (int i = 1; i < argc; ++i) {
    std::ifstream file(argv[i], std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    std::vector<double> parse_ms, print_ms;
    for (int round = 0; round < kRounds; ++round) {
      std::string copy = text;
      Clock::time_point start = Clock::now();
      auto module = ops_debug::ptx::Parse(std::move(copy));
      parse_ms.push_back(MillisecondsSince(start));
      if (!module.ok()) {
        std::printf("%s: %s\n", argv[i], module.error().ToString().c_str());
        return 1;
      }
      start = Clock::now();
      const std::string printed = ops_debug::ptx::Print(*module);
      print_ms.push_back(MillisecondsSince(start));
      if (printed.empty()) return 1;
    }
    const double parse = *std::min_element(parse_ms.begin(), parse_ms.end());
    const double print = *std::min_element(print_ms.begin(), print_ms.end());
    total_bytes += static_cast<double>(text.size());
    total_parse_ms += parse;
    total_print_ms += print;
    if (text.size() > 300000) {
      std::printf("%8zu bytes  parse %7.2f ms  print %7.2f ms  %7.1f MB/s  %s\n", text.size(),
                  parse, print, static_cast<double>(text.size()) / 1e3 / (parse + print), argv[i]);
    }
  }
  std::printf("all: %.1f MB, parse %.1f MB/s, print %.1f MB/s, both %.1f MB/s\n", total_bytes / 1e6,
              total_bytes / 1e3 / total_parse_ms, total_bytes / 1e3 / total_print_ms,
              total_bytes / 1e3 / (total_parse_ms + total_print_ms));
  return 0;
}
