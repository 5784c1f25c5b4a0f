// What references compute with: dense row-major float64. Large enough for the ranges of all types
// that operators are written in, except integers beyond 2^53.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace ops_debug::reference {

using Shape = std::vector<int64_t>;

int64_t ElementCount(const Shape& shape);   // 1 for rank 0
std::string ShapeText(const Shape& shape);  // "1x32x224x224", "scalar"
Shape StridesOf(const Shape& shape);        // in elements

struct Array {
  Shape shape;
  std::vector<double> values;

  static Array Zeros(Shape shape);
  double* data() { return values.data(); }
  const double* data() const { return values.data(); }
};

// A shape seen from one axis: element (o, i, n) is at (o * size + i) * inner + n.
struct AxisView {
  int64_t outer = 1, size = 1, inner = 1;
  AxisView(const Shape& shape, int64_t axis);
};

// NumPy's broadcasting: aligned at the last axis, sizes equal or 1. False: they do not fit.
bool Broadcast(const Shape& a, const Shape& b, Shape* result);

// Calls visit(element of `shape`, element of an array of shape `small` that is broadcast to it).
void ForEachBroadcast(const Shape& shape, const Shape& small,
                      const std::function<void(int64_t, int64_t)>& visit);
// `array` repeated to `shape`; and the sum over what was repeated, its transpose.
Array Expand(const Array& array, const Shape& shape);
Array SumTo(const Array& array, const Shape& shape);

// Splits [0, count) among the machine's cores; `work` owns what it writes for its part, so that the
// result does not depend on the number of cores. `cost` is per item, in multiplications: little
// work stays in this thread.
void ParallelFor(int64_t count, int64_t cost, const std::function<void(int64_t, int64_t)>& work);

}  // namespace ops_debug::reference
