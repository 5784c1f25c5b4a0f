// From a `.loc` of a PTX function to source frames, innermost first. A `.loc` names the place that
// it was inlined at; that place has a `.loc` of its own (with its own inlining), which continues
// the chain. Source: PTX ISA 9.0, 11.5.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "ptx/ir.h"
#include "shadow/passes/instrument.h"

namespace ops_debug::shadow {

class SourceFrames {
 public:
  // Reads the module's `.file` table and the inlined functions' names in its `.debug_str` section.
  explicit SourceFrames(const ptx::Module& module);

  // Frames of `function.locs[loc]`; empty for loc 0.
  std::vector<SourceFrame> Of(const ptx::Function& function, uint32_t loc) const;

 private:
  std::string FilePath(uint32_t index) const;

  std::map<uint32_t, std::string> files_;
  std::map<std::string, std::string, std::less<>> names_;  // label -> text
};

}  // namespace ops_debug::shadow
