// A capture file, read and checked: another process wrote it, and may have been killed meanwhile.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/capture.pb.h"
#include "replayer/outcome.h"

namespace ops_debug::replayer {

struct AddressRange {
  uint64_t begin = 0;
  uint64_t end = 0;
};

// Reads `path`. Afterwards every reference within the capture leads somewhere, memory and variables
// do not overlap, and sizes are what they should be.
Outcome ReadCapture(const std::string& path, proto::Capture* capture);
Outcome CheckCapture(const proto::Capture& capture);

// All addresses at which something of the capture lies, as whole pages: sorted, disjoint.
std::vector<AddressRange> PagesOf(const proto::Capture& capture);

}  // namespace ops_debug::replayer
