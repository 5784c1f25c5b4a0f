// Compares what a block of a twin and of its original may have, and writes the directive.
#include "interposer/twin_registers.h"

#include <cctype>
#include <string_view>

namespace ops_debug::interposer {
namespace {

// Of a multiprocessor and of a block, since compute capability 5.3 (CUDA C++ Programming Guide,
// "Technical Specifications per Compute Capability"); given out to warps in units of 256.
constexpr int kRegistersPerBlock = 65536;
constexpr int kGranularity = 8;  // per thread

bool IsNameCharacter(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$';
}

// Where the body of this entry opens; npos if there is none. `*has_bounds`: its declaration limits
// threads or registers.
size_t FindBody(const std::string& ptx, const std::string& name, bool* has_bounds) {
  for (size_t at = ptx.find(name); at != std::string::npos; at = ptx.find(name, at + 1)) {
    const size_t end = at + name.size();
    if (end < ptx.size() && IsNameCharacter(ptx[end])) continue;
    size_t before = at;
    while (before > 0 && std::isspace(static_cast<unsigned char>(ptx[before - 1])) != 0) --before;
    if (before < 6 || ptx.compare(before - 6, 6, ".entry") != 0) continue;
    const size_t stop = ptx.find_first_of("{;", end);
    if (stop == std::string::npos || ptx[stop] == ';') continue;  // declared only
    const std::string_view declaration = std::string_view(ptx).substr(at, stop - at);
    *has_bounds = false;
    for (const char* directive : {".maxntid", ".reqntid", ".maxnreg"})
      *has_bounds = *has_bounds || declaration.find(directive) != std::string_view::npos;
    return stop;
  }
  return std::string::npos;
}

}  // namespace

std::vector<RegisterCap> TwinsThatFitLess(const std::string& ptx,
                                          const std::vector<shadow::KernelPlan>& kernels,
                                          const std::function<int(const char* name)>& max_threads) {
  std::vector<RegisterCap> caps;
  for (const shadow::KernelPlan& plan : kernels) {
    for (const std::string& name : {plan.twin, plan.lean_twin}) {
      bool has_bounds = false;
      if (name.empty() || FindBody(ptx, name, &has_bounds) == std::string::npos || has_bounds)
        continue;
      const int original = max_threads(plan.name.c_str());
      const int twin = max_threads(name.c_str());
      if (original <= 0 || twin <= 0 || twin >= original) continue;
      caps.push_back({name, kRegistersPerBlock / original / kGranularity * kGranularity});
    }
  }
  return caps;
}

std::string CapRegisters(const std::string& ptx, const std::vector<RegisterCap>& caps) {
  std::string out = ptx;
  for (const RegisterCap& cap : caps) {
    bool has_bounds = false;
    const size_t body = FindBody(out, cap.twin, &has_bounds);
    if (body == std::string::npos || has_bounds) continue;
    out.insert(body, ".maxnreg " + std::to_string(cap.registers) + "\n");
  }
  return out;
}

}  // namespace ops_debug::interposer
