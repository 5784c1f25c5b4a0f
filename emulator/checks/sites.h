// Instructions that reports name. A site is kept as text, because the module that it came from may
// be unloaded before a later operation races with what it wrote.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "emulator/code.h"
#include "emulator/program.h"
#include "shadow/abi/emulator_checks.h"

namespace ops_debug::emulator {

using SiteId = uint32_t;
inline constexpr SiteId kNoSite = 0;

struct SourceLine {
  std::string function;  // empty: not named
  std::string file;
  uint32_t line = 0, column = 0;
};

struct Site {
  std::string function;
  std::string instruction;  // as written, blanks collapsed
  uint32_t ptx_line = 0, ptx_column = 0;
  uint32_t access_bytes = 0;
  std::vector<SourceLine> frames;  // innermost first; empty without line information
  std::string variable;            // that the address operand names, or empty
  uint64_t variable_bytes = 0;
};

// The instruction at a place of the function's text; null if none is there.
const ptx::Instruction* InstructionAt(const ptx::Function& function, const SourcePlace& place);

// Not thread-safe: under Checks::mutex.
class Sites {
 public:
  Sites();
  // The site of a statement; always the same number while the module is loaded.
  SiteId Of(const Program::Impl& program, const Function& function, uint32_t statement);
  const Site& operator[](SiteId id) const { return sites_[id]; }

 private:
  std::deque<Site> sites_;  // by id; kNoSite is an empty one
};

// A site as the C interface wants it; what it points to lives as long as `site` and `frames`.
shadow::EmulatorSite ExportSite(const Site& site, uint32_t access, uint32_t space,
                                std::vector<shadow::EmulatorFrame>& frames);

}  // namespace ops_debug::emulator
