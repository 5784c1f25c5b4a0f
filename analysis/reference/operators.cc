// Where the families of operators come together.
#include <absl/strings/str_cat.h>

#include <cctype>
#include <string_view>
#include <utility>

#include "analysis/reference/operator.h"

namespace ops_debug::reference {
namespace {

// "LayerNorm", "layer_norm" and "layernorm" are one name.
std::string Plain(std::string_view name) {
  std::string plain;
  for (char c : name) {
    if (c != '_') plain += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return plain;
}

}  // namespace

const std::vector<Operator>& Operators() {
  static const std::vector<Operator>* const kOperators = [] {
    auto* operators = new std::vector<Operator>;
    AddMatrixProducts(operators);
    AddConvolutions(operators);
    AddNormalizations(operators);
    AddChannelNormalizations(operators);
    AddAttention(operators);
    AddReductions(operators);
    AddRearrangements(operators);
    AddIndexing(operators);
    AddResampling(operators);
    AddPooling(operators);
    AddElementwise(operators);
    return operators;
  }();
  return *kOperators;
}

const Operator* FindOperator(const std::string& name) {
  static constexpr std::pair<std::string_view, std::string_view> kOtherNames[] = {
      {"gemm", "matmul"},
      {"mm", "matmul"},
      {"bmm", "matmul"},
      {"sdpa", "attention"},
      {"scaleddotproductattention", "attention"},
      {"swish", "silu"},
      {"amax", "max"},
      {"amin", "min"},
      {"avgpool", "avgpool2d"},
      {"maxpool", "maxpool2d"},
      {"subtract", "sub"},
      {"multiply", "mul"},
      {"divide", "div"}};
  std::string wanted = Plain(name);
  for (const auto& [other, ours] : kOtherNames) {
    if (wanted == other) wanted = ours;
  }
  for (const Operator& op : Operators()) {
    if (Plain(op.name) == wanted) return &op;
  }
  return nullptr;
}

absl::Status BadShape(const std::string& op, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(op, ": ", what));
}

absl::StatusOr<int64_t> PlainAxis(const std::string& op, int64_t axis, size_t rank) {
  const int64_t dimensions = static_cast<int64_t>(rank);
  if (axis < -dimensions || axis >= dimensions) {
    return BadShape(op, absl::StrCat("axis ", axis, " does not exist in ", rank, " dimensions"));
  }
  return axis < 0 ? axis + dimensions : axis;
}

}  // namespace ops_debug::reference
