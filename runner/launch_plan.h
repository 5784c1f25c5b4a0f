// From a signature and what the user said to a complete launch: every buffer with its exact size,
// every scalar, grid and block. The rules are in runner/README.md; where they are not sure, the
// result is an error that lists everything that is missing, each with what to pass.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "runner/argument_value.h"
#include "runner/shape.h"
#include "runner/signature.h"
#include "runner/source_scan.h"

namespace ops_debug::runner {

// What was given, before any rule. A value given on the command line stands in for the launch
// comment's.
struct LaunchRequest {
  std::vector<Shape> input_shapes;
  std::map<std::string, std::string> arguments;  // name -> value
  // What a scalar of this name is, unless `arguments` says so; others are known to the operator's
  // reference only.
  std::map<std::string, std::string> attributes;
  std::string grid, block;   // lists for EvaluateList, empty: not given
  std::string shared_bytes;  // an expression, empty: 0
};

struct ArgumentPlan {
  Parameter parameter;
  // A pointer that is not null: a buffer of `shape` elements, allocated with exactly its size.
  bool is_buffer = false;
  bool is_input = false;  // pointer to const, or said to be read
  bool is_output = false;
  Shape shape;
  Element element;
  Fill fill = Fill::kZeros;
  uint64_t size_bytes = 0;
  // Anything else: the bytes of the parameter.
  std::vector<std::byte> value;
  std::string value_text;  // for people
};

struct LaunchPlan {
  Entry entry;
  std::vector<ArgumentPlan> arguments;
  Dimensions grid = {1, 1, 1};
  Dimensions block = {1, 1, 1};
  uint32_t shared_bytes = 0;
};

// Adds the settings of a launch comment that the command line leaves open.
void ApplyLaunchComment(const LaunchComment& comment, LaunchRequest* request);

// Names and, where the entry's name is not mangled, types from the source. Unchanged if no
// definition, or more than one that differ, fits the entry.
void ApplySource(const SourceScan& scan, Entry* entry);

absl::StatusOr<LaunchPlan> PlanLaunch(const Entry& entry, const LaunchRequest& request);

}  // namespace ops_debug::runner
