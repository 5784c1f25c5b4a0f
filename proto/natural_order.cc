#include "proto/natural_order.h"

namespace ops_debug::proto {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// The run of digits at the front, without leading zeros; removes it from `text`.
std::string_view TakeNumber(std::string_view* text) {
  size_t end = 0;
  while (end < text->size() && IsDigit((*text)[end])) ++end;
  std::string_view number = text->substr(0, end);
  text->remove_prefix(end);
  while (number.size() > 1 && number[0] == '0') number.remove_prefix(1);
  return number;
}

}  // namespace

bool NaturallyBefore(std::string_view a, std::string_view b) {
  const std::string_view whole_a = a, whole_b = b;
  while (!a.empty() && !b.empty()) {
    if (IsDigit(a[0]) && IsDigit(b[0])) {
      const std::string_view x = TakeNumber(&a), y = TakeNumber(&b);
      if (x.size() != y.size()) return x.size() < y.size();
      if (x != y) return x < y;
      continue;
    }
    if (a[0] != b[0]) return static_cast<unsigned char>(a[0]) < static_cast<unsigned char>(b[0]);
    a.remove_prefix(1);
    b.remove_prefix(1);
  }
  if (a.empty() != b.empty()) return a.empty();
  return whole_a < whole_b;
}

}  // namespace ops_debug::proto
