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

// "load", "store", "atomic"; "global", "shared"...; empty if it is not known.
const char* AccessName(proto::AccessKind kind);
const char* SpaceName(proto::AddressSpace space);

// Where an instruction stands, in the parts of a Finding that have the same names.
struct CodePlace {
  std::string kernel;
  std::string function;
  std::vector<SourceLocation> frames;
  std::vector<SourceLocation> toolkit_frames;
};
// `mangled_kernel` may be empty: the function is the kernel then.
CodePlace ToCodePlace(const proto::Site& site, const std::string& mangled_kernel);

// The instruction and its place, as the place of the finding.
void SetPlace(CodePlace place, const proto::Site& site, Finding& finding);

// What tells source places apart: frames without their columns, else the PTX instruction.
std::string PlaceKey(const CodePlace& place, const proto::Site& site);
void AddToKey(const std::vector<SourceLocation>& frames, std::string& key);
// Return addresses differ where a compiler unrolled a loop; the lines are the same.
void AddToKey(const std::vector<HostFrame>& stack, const std::vector<PythonFrame>& python_stack,
              std::string& key);

// False if a reporter knew no more than the kernel.
bool IsKnown(const proto::Launch& launch);

// "k.cu:41", without the folder; "PTX line 33" without line info; empty if nothing is known.
std::string ShortPlace(const std::vector<SourceLocation>& frames, uint32_t ptx_line);
// "byte 12 of shared memory", "byte 16 of allocation #1 (4000 bytes)": where an access begins.
std::string MemoryPlace(uint64_t address, const std::string& space,
                        const std::optional<AllocationInfo>& allocation);
// "k::smem" of "k(float*)::smem" is "smem" to its author.
std::string ShortVariable(const std::string& demangled);
// "1 byte", "12 bytes".
std::string ByteCount(uint64_t count);

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
// The launch of the finding, if it has one.
void AddLaunchToRelated(Finding& finding);

}  // namespace ops_debug::analysis
