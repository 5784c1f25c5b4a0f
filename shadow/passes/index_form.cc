// Polynomials with whole coefficients, kept sorted so that equal ones look equal.
#include "shadow/passes/index_form.h"

#include <algorithm>
#include <utility>

namespace ops_debug::shadow {
namespace {

// Sorts, adds up terms of the same product, drops zeros.
void Normalise(UniformSum* sum) {
  std::sort(sum->begin(), sum->end(),
            [](const UniformTerm& a, const UniformTerm& b) { return a.of < b.of; });
  size_t kept = 0;
  for (size_t i = 0; i < sum->size(); i++) {
    if (kept > 0 && (*sum)[kept - 1].of == (*sum)[i].of) {
      (*sum)[kept - 1].factor += (*sum)[i].factor;
    } else {
      if (kept != i) (*sum)[kept] = std::move((*sum)[i]);
      kept++;
    }
  }
  sum->resize(kept);
  std::erase_if(*sum, [](const UniformTerm& term) { return term.factor == 0; });
}

}  // namespace

UniformSum ConstantSum(int64_t number) {
  return number == 0 ? UniformSum{} : UniformSum{{number, {}}};
}

UniformSum AtomSum(uint32_t atom) { return {{1, {atom}}}; }

UniformSum AddSums(const UniformSum& a, const UniformSum& b) {
  if (a.empty()) return b;
  if (b.empty()) return a;
  UniformSum sum = a;
  sum.insert(sum.end(), b.begin(), b.end());
  Normalise(&sum);
  return sum;
}

UniformSum ScaleSum(const UniformSum& sum, int64_t by) {
  if (by == 0) return {};
  UniformSum scaled = sum;
  for (UniformTerm& term : scaled) term.factor *= by;
  return scaled;
}

UniformSum MultiplySums(const UniformSum& a, const UniformSum& b) {
  UniformSum product;
  for (const UniformTerm& left : a) {
    for (const UniformTerm& right : b) {
      UniformTerm term{left.factor * right.factor, left.of};
      term.of.insert(term.of.end(), right.of.begin(), right.of.end());
      std::sort(term.of.begin(), term.of.end());
      product.push_back(std::move(term));
    }
  }
  Normalise(&product);
  return product;
}

bool IsConstantSum(const UniformSum& sum, int64_t* number) {
  if (sum.size() > 1 || (sum.size() == 1 && !sum[0].of.empty())) return false;
  *number = sum.empty() ? 0 : sum[0].factor;
  return true;
}

}  // namespace ops_debug::shadow
