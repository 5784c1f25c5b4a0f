// ops-debug.yaml: what a project says about its operators, so that a short name is enough.
//
//   operators:
//     conv2d_depthwise:
//       provider: kernels/conv.cu        # as on the command line; files relative to this file
//       entry: conv2d_depthwise_kernel   # kernel of a .cu or .ptx file
//       backward: conv2d_backward        # kernel or kernels (a list) of the gradients
//       reference: torch.nn.Conv2d
//       attributes: {padding: 1, groups: input.dim1}
//       inputs:
//         input: {}                      # in order; shape from --input-shape
//         weight: {shape: "input.dim1,1,3,3", dtype: float16, contents: random}
//       rtol: 1e-4
//       atol: 1e-5
//
// Shapes are lists or texts of expressions: + - * / ( ), numbers, NAME.dimN and NAME.size of inputs
// further up, attributes by name.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace ops_debug::analysis {

struct OperatorInput {
  std::string name;
  std::vector<std::string> shape;  // one expression per dimension; empty: not said
  std::string dtype, contents;     // empty: not said
};

struct OperatorEntry {
  std::string name;
  std::string place;  // "ops-debug.yaml:12"
  std::string provider, entry, reference;
  std::vector<std::string> backward;
  std::vector<OperatorInput> inputs;
  std::vector<std::pair<std::string, std::string>> attributes;
  std::optional<double> rtol, atol;
};

struct OperatorBook {
  std::string path;  // empty: there is none
  std::map<std::string, OperatorEntry> operators;
};

// The file in `folder`, if there is one. Errors name file and line.
absl::StatusOr<OperatorBook> ReadOperatorBook(const std::string& folder);

// Dimensions known to expressions: of each input by name, and attributes.
struct ExpressionNames {
  std::map<std::string, std::vector<int64_t>> shapes;
  std::map<std::string, int64_t> numbers;
};
absl::StatusOr<int64_t> EvaluateExpression(const std::string& text, const ExpressionNames& names);

}  // namespace ops_debug::analysis
