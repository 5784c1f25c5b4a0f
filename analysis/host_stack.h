// Names for host return addresses, out of process: the target sends module paths and offsets, the
// files are read here.
#pragma once

#include <memory>
#include <vector>

#include "analysis/report.h"
#include "proto/events.pb.h"

namespace ops_debug::analysis {

class HostSymbolizer {
 public:
  HostSymbolizer();
  ~HostSymbolizer();

  // Frames innermost first, without the frames of the CUDA libraries, of ours and of the start code
  // (unless nothing else is left). `kernel` is the demangled kernel of a launch stack: its host
  // stub is left out, too.
  std::vector<HostFrame> Resolve(const proto::StackTrace& stack, const std::string& kernel = "");

 private:
  class Modules;
  // With the functions that were inlined there, innermost first.
  std::vector<HostFrame> ResolveFrame(const proto::StackFrame& frame);
  std::unique_ptr<Modules> modules_;
};

}  // namespace ops_debug::analysis
