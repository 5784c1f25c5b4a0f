// From messages of the target to the parts that findings are made of: addresses become names, names
// are demangled.
#pragma once

#include <string>
#include <vector>

#include "analysis/host_stack.h"
#include "analysis/report.h"
#include "proto/events.pb.h"

namespace ops_debug::analysis {

Extent3 ToExtent(const proto::Dim3& dim);

using ProtoPythonStack = google::protobuf::RepeatedPtrField<proto::PythonFrame>;
std::vector<PythonFrame> ToPythonStack(const ProtoPythonStack& stack);

LaunchInfo ToLaunch(const proto::Launch& launch, HostSymbolizer& symbolizer);

// `placement` is that of [address, address + access_bytes); kUnknown if access_bytes is 0.
AllocationInfo ToAllocation(const proto::Allocation& allocation, uint64_t address,
                            uint64_t access_bytes, HostSymbolizer& symbolizer);

// Adds the place that explains most: the innermost own Python line, else the innermost host frame
// that has a line. Nothing if there is neither.
void AddRelated(const std::vector<HostFrame>& stack, const std::vector<PythonFrame>& python_stack,
                const std::string& message, std::vector<RelatedPlace>& related);
void AddRelated(const AllocationInfo& allocation, std::vector<RelatedPlace>& related);

}  // namespace ops_debug::analysis
