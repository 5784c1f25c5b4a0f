// Two sequences of named tensors held against each other, as plain data: what `ops-debug diff`
// prints as text, JSON and HTML, and `ops-debug validate` for its outputs and gradients.
#pragma once

#include <string>
#include <vector>

#include "analysis/compare/comparison.h"

namespace ops_debug::analysis {

struct ComparedPair {
  std::string tag;  // of the program's context, layer or call: "layer3.conv", "matmul_kernel #2"
  std::string candidate, reference;  // names on either side; one is empty: missing there
  Comparison comparison;
};

struct DiffReport {
  std::string title;                 // "run-a against run-b"
  std::string candidate, reference;  // what was compared: files, descriptions
  std::vector<ComparedPair> pairs;   // in the order of execution
  int64_t first_divergence = -1;     // index in `pairs`, -1: none
  std::vector<std::string> remarks;  // what could not be compared and why
  bool passes = true;                // every pair passes and nothing is missing
};

}  // namespace ops_debug::analysis
