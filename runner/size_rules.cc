// A table of names, and the rules behind each. A rule answers only if all inputs that can answer
// agree.
#include "runner/size_rules.h"

#include <cctype>

#include "runner/text.h"

namespace ops_debug::runner {
namespace {

struct NamedRole {
  std::string_view name;
  SizeRole role;
};
constexpr NamedRole kRoles[] = {
    {"m", SizeRole::kM},
    {"n", SizeRole::kN},
    {"k", SizeRole::kK},
    {"size", SizeRole::kElements},
    {"count", SizeRole::kElements},
    {"numel", SizeRole::kElements},
    {"numelements", SizeRole::kElements},
    {"elements", SizeRole::kElements},
    {"nelements", SizeRole::kElements},
    {"total", SizeRole::kElements},
    {"totalelements", SizeRole::kElements},
    {"length", SizeRole::kElements},
    {"len", SizeRole::kElements},
    {"rows", SizeRole::kRows},
    {"row", SizeRole::kRows},
    {"nrows", SizeRole::kRows},
    {"numrows", SizeRole::kRows},
    {"cols", SizeRole::kColumns},
    {"col", SizeRole::kColumns},
    {"columns", SizeRole::kColumns},
    {"ncols", SizeRole::kColumns},
    {"numcols", SizeRole::kColumns},
    {"ncolumns", SizeRole::kColumns},
    {"numcolumns", SizeRole::kColumns},
    {"dim", SizeRole::kColumns},
    {"hidden", SizeRole::kColumns},
    {"hiddensize", SizeRole::kColumns},
    {"hiddendim", SizeRole::kColumns},
    {"stride", SizeRole::kColumns},
    {"rowstride", SizeRole::kColumns},
    {"pitch", SizeRole::kColumns},
    {"ld", SizeRole::kColumns},
    {"lda", SizeRole::kColumns},
    {"ldb", SizeRole::kColumns},
    {"ldc", SizeRole::kColumns},
    {"height", SizeRole::kHeight},
    {"h", SizeRole::kHeight},
    {"width", SizeRole::kWidth},
    {"w", SizeRole::kWidth},
    {"channels", SizeRole::kChannels},
    {"c", SizeRole::kChannels},
    {"batch", SizeRole::kBatch},
    {"batchsize", SizeRole::kBatch},
};

// The product of all dimensions but the last.
int64_t Rows(const Shape& shape) { return ElementCount(shape) / shape.back(); }

}  // namespace

SizeRole RoleOfName(std::string_view name) {
  std::string plain;
  for (char c : name) {
    if (c != '_') plain += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  for (const NamedRole& known : kRoles) {
    if (known.name == plain) return known.role;
  }
  return SizeRole::kUnknown;
}

SizeRules::SizeRules(std::vector<NamedShape> inputs, const std::set<SizeRole>& roles,
                     bool allow_matrix_product)
    : inputs_(std::move(inputs)), has_m_(roles.contains(SizeRole::kM)) {
  const bool names = has_m_ && roles.contains(SizeRole::kN) && roles.contains(SizeRole::kK);
  if (!allow_matrix_product || !names || inputs_.size() < 2) return;
  const Shape& a = inputs_[0].shape;
  const Shape& b = inputs_[1].shape;
  if (a.size() != 2 || b.size() != 2) return;
  if (a[1] != b[0]) {
    problem_ = StrCat("M, N, K: ", inputs_[0].name, " is ", ToString(a), " and ", inputs_[1].name,
                      " is ", ToString(b),
                      "; in a matrix product the inner dimensions agree\n    pass --input-shape "
                      "MxK --input-shape KxN, "
                      "or --arg M=... N=... K=...");
    return;
  }
  matrix_product_ = MatrixProduct{a[0], b[1], a[1]};
}

// One value of `measure` for all inputs that have at least `rank` dimensions; 0 if there is none or
// they differ.
template <class Measure>
int64_t SizeRules::Agreed(size_t rank, Measure measure) const {
  int64_t agreed = 0;
  for (const NamedShape& input : inputs_) {
    if (input.shape.size() < rank) continue;
    const int64_t value = measure(input.shape);
    if (agreed != 0 && value != agreed) return 0;
    agreed = value;
  }
  return agreed;
}

int64_t SizeRules::FromEnd(size_t place) const {
  return Agreed(place, [&](const Shape& shape) { return shape[shape.size() - place]; });
}

int64_t SizeRules::ValueOf(SizeRole role) const {
  switch (role) {
    case SizeRole::kUnknown:
      return 0;
    case SizeRole::kM:
      return matrix_product_.has_value() ? matrix_product_->m : Agreed(2, Rows);
    case SizeRole::kN:
      if (matrix_product_.has_value()) return matrix_product_->n;
      if (has_m_) return FromEnd(1);
      for (const NamedShape& input : inputs_) {
        if (input.shape.size() > 1) return 0;  // elements or one of the dimensions?
      }
      return Agreed(1, ElementCount);
    case SizeRole::kK:
      return matrix_product_.has_value() ? matrix_product_->k : 0;
    case SizeRole::kElements:
      return Agreed(1, ElementCount);
    case SizeRole::kRows:
      return Agreed(2, Rows);
    case SizeRole::kColumns:
      return Agreed(2, [](const Shape& shape) { return shape.back(); });
    case SizeRole::kHeight:
      return FromEnd(2);
    case SizeRole::kWidth:
      return FromEnd(1);
    case SizeRole::kChannels:
      return FromEnd(3);
    case SizeRole::kBatch:
      return Agreed(3, [](const Shape& shape) { return shape.front(); });
  }
  return 0;
}

std::string SizeRules::Candidates(std::string_view name) const {
  if (inputs_.empty()) return StrCat("--arg ", name, "=VALUE");
  const Shape& shape = inputs_[0].shape;
  const std::string& of = inputs_[0].name;
  std::vector<std::string> choices = {
      StrCat("--arg ", name, "=", ElementCount(shape), " (elements of ", of, ")")};
  for (size_t axis = 0; shape.size() > 1 && axis < shape.size(); ++axis) {
    choices.push_back(
        StrCat("--arg ", name, "=", shape[axis], " (dimension ", axis, " of ", of, ")"));
  }
  return StrJoin(choices, " or ");
}

}  // namespace ops_debug::runner
