#include "analysis/compare/found_pattern.h"

#include <cmath>
#include <cstdio>

#include "analysis/text_sheet.h"

namespace ops_debug::analysis {

std::string PercentText(double share) {
  const double percent = share * 100;
  if (percent <= 0 || percent >= 0.1) return Percent(percent);
  char text[32];
  std::snprintf(text, sizeof(text), "%.2g %%", percent);
  return text;
}

std::string NumberText(double value) {
  if (std::isnan(value)) return "nan";
  char text[32];
  std::snprintf(text, sizeof(text), "%.6g", value);
  return text;
}

std::string NumberText(std::complex<double> value) {
  if (value.imag() == 0) return NumberText(value.real());
  const std::string imaginary = NumberText(value.imag());
  return NumberText(value.real()) + (imaginary[0] == '-' ? "" : "+") + imaginary + "i";
}

std::string IndexText(const std::vector<int64_t>& index) {
  std::string text = "(";
  for (size_t i = 0; i < index.size(); ++i) {
    text += (i > 0 ? ", " : "") + std::to_string(index[i]);
  }
  return text + ")";
}

std::string AxisText(int axis) {
  return axis == kMemoryOrder ? "memory order" : "dim " + std::to_string(axis);
}

}  // namespace ops_debug::analysis
