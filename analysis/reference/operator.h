// A reference operator: its inputs and attributes, the shapes that belong together, its values and
// its derivatives. Passive data; the families of operators fill it in (convolution.cc,
// matrix_product.cc, ...), serve.cc evaluates it.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "analysis/reference/array.h"
#include "analysis/reference/attributes.h"

namespace ops_debug::reference {

struct InputSpec {
  std::string name;
  bool optional = false;
  bool differentiable = true;
  std::string contents = "random";  // what a test should fill it with; "index:N" by Plan::contents
};

// Shapes of one evaluation.
struct Plan {
  std::vector<std::optional<Shape>> inputs;  // in the order of the specs
  std::vector<std::string> contents;         // of inputs, as InputSpec::contents
  Attributes attributes;
  std::vector<Shape> outputs;
};

struct Evaluation {
  std::vector<std::optional<Array>> inputs;
  std::vector<Array> outputs;                   // zeros of the plan's shapes, to be filled
  std::vector<Array> cotangents;                // one per output
  std::vector<std::optional<Array>> gradients;  // one per input: zeros of its shape, if wanted
};

// The type of the outputs, if nobody asks for float64.
enum class ResultType : uint8_t {
  kAsInputs,  // the first floating input's, else the first input's
  kFloating,  // the first floating input's, else float64
  kInteger,   // int64: indices
};

struct Operator {
  std::string name;
  std::string summary;  // one line: formula and where it is from
  std::vector<InputSpec> inputs;
  std::vector<AttributeSpec> attributes;
  // Checks that shapes and attributes fit and sets the outputs' shapes. Derives the shapes of
  // inputs that are not given but needed, and attributes that follow from shapes. Error
  // (kInvalidArgument): which shape or attribute does not fit what.
  std::function<absl::Status(Plan&)> plan;
  // Error: only for values that have no result (an index outside its range).
  std::function<absl::Status(const Plan&, Evaluation&)> compute;
  // Adds to the gradients of sum(outputs * cotangents); outputs are computed. Empty: it has none.
  std::function<absl::Status(const Plan&, Evaluation&)> differentiate;
  ResultType result = ResultType::kFloating;
};

// Every reference, by name; each family adds its own.
const std::vector<Operator>& Operators();
// Also by other usual names ("gemm", "layernorm", "sdpa"). Null: there is none.
const Operator* FindOperator(const std::string& name);

void AddAttention(std::vector<Operator>* operators);
void AddChannelNormalizations(std::vector<Operator>* operators);
void AddConvolutions(std::vector<Operator>* operators);
void AddElementwise(std::vector<Operator>* operators);
void AddIndexing(std::vector<Operator>* operators);
void AddMatrixProducts(std::vector<Operator>* operators);
void AddNormalizations(std::vector<Operator>* operators);
void AddPooling(std::vector<Operator>* operators);
void AddRearrangements(std::vector<Operator>* operators);
void AddReductions(std::vector<Operator>* operators);
void AddResampling(std::vector<Operator>* operators);

// Messages that several operators need.
absl::Status BadShape(const std::string& op, const std::string& what);
// `axis` of a shape of rank `rank`, counted from the end if negative.
absl::StatusOr<int64_t> PlainAxis(const std::string& op, int64_t axis, size_t rank);

}  // namespace ops_debug::reference
