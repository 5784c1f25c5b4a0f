// The words of memory findings: kind, sentence and advice, from the facts that a finding already
// holds.
#pragma once

#include <string>

#include "analysis/report.h"
#include "proto/events.pb.h"

namespace ops_debug::analysis {

// Where [address, address + access_bytes) lies relative to [base, base + size_bytes).
struct Place {
  Placement placement = Placement::kUnknown;
  uint64_t distance_bytes = 0;
};
Place PlaceOf(uint64_t address, uint64_t access_bytes, uint64_t base, uint64_t size_bytes);

// "just past the end of a 4000-byte allocation", "in allocation #2 (4000 bytes)"...
std::string DescribePlacement(const AllocationInfo& allocation);

// Sets kind, message and advice. `finding` holds access, space, access_bytes, allocation(s), array,
// parameter and launch.
void DescribeFault(const proto::Fault& fault, Finding& finding);

// The same for a launch that the driver refused or that ended the context.
void DescribeInvalidLaunch(const proto::InvalidLaunch& invalid, Finding& finding);

inline constexpr char kLineInfoAdvice[] = "compile with -lineinfo to see the source line";

}  // namespace ops_debug::analysis
