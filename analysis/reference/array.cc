#include "analysis/reference/array.h"

#include <absl/strings/str_join.h>

#include <algorithm>
#include <system_error>
#include <thread>

namespace ops_debug::reference {

int64_t ElementCount(const Shape& shape) {
  int64_t count = 1;
  for (int64_t size : shape) count *= size;
  return count;
}

std::string ShapeText(const Shape& shape) {
  return shape.empty() ? "scalar" : absl::StrJoin(shape, "x");
}

Shape StridesOf(const Shape& shape) {
  Shape strides(shape.size());
  int64_t stride = 1;
  for (size_t axis = shape.size(); axis-- > 0;) {
    strides[axis] = stride;
    stride *= shape[axis];
  }
  return strides;
}

Array Array::Zeros(Shape shape) {
  const size_t count = static_cast<size_t>(ElementCount(shape));
  return {std::move(shape), std::vector<double>(count, 0.0)};
}

AxisView::AxisView(const Shape& shape, int64_t axis) {
  for (int64_t i = 0; i < static_cast<int64_t>(shape.size()); ++i) {
    (i < axis ? outer : i == axis ? size : inner) *= shape[static_cast<size_t>(i)];
  }
}

bool Broadcast(const Shape& a, const Shape& b, Shape* result) {
  const Shape& longer = a.size() >= b.size() ? a : b;
  const Shape& shorter = a.size() >= b.size() ? b : a;
  *result = longer;
  const size_t offset = longer.size() - shorter.size();
  for (size_t axis = 0; axis < shorter.size(); ++axis) {
    int64_t& size = (*result)[offset + axis];
    if (shorter[axis] == size || shorter[axis] == 1) continue;
    if (size != 1) return false;
    size = shorter[axis];
  }
  return true;
}

void ForEachBroadcast(const Shape& shape, const Shape& small,
                      const std::function<void(int64_t, int64_t)>& visit) {
  const int64_t count = ElementCount(shape);
  if (shape == small) {
    for (int64_t i = 0; i < count; ++i) visit(i, i);
    return;
  }
  Shape strides(shape.size(), 0), index(shape.size(), 0);
  const Shape own = StridesOf(small);
  const size_t offset = shape.size() - small.size();
  for (size_t axis = 0; axis < small.size(); ++axis) {
    if (small[axis] != 1) strides[offset + axis] = own[axis];
  }
  int64_t place = 0;
  for (int64_t i = 0; i < count; ++i) {
    visit(i, place);
    for (size_t axis = shape.size(); axis-- > 0;) {
      place += strides[axis];
      if (++index[axis] < shape[axis]) break;
      place -= strides[axis] * shape[axis];
      index[axis] = 0;
    }
  }
}

Array Expand(const Array& array, const Shape& shape) {
  if (array.shape == shape) return array;
  Array result = Array::Zeros(shape);
  ForEachBroadcast(shape, array.shape, [&](int64_t element, int64_t place) {
    result.values[static_cast<size_t>(element)] = array.values[static_cast<size_t>(place)];
  });
  return result;
}

Array SumTo(const Array& array, const Shape& shape) {
  if (array.shape == shape) return array;
  Array result = Array::Zeros(shape);
  ForEachBroadcast(array.shape, shape, [&](int64_t element, int64_t place) {
    result.values[static_cast<size_t>(place)] += array.values[static_cast<size_t>(element)];
  });
  return result;
}

void ParallelFor(int64_t count, int64_t cost, const std::function<void(int64_t, int64_t)>& work) {
  constexpr double kWorthAThread = 1 << 18;
  const double total = static_cast<double>(count) * static_cast<double>(cost);
  const int64_t cores = std::max(1u, std::thread::hardware_concurrency());
  const int64_t threads =
      std::clamp<int64_t>(static_cast<int64_t>(total / kWorthAThread), 1, std::min(cores, count));
  if (threads <= 1) {
    work(0, count);
    return;
  }
  std::vector<std::thread> others;
  for (int64_t i = 1; i < threads; ++i) {
    const auto part = [&, i] { work(count * i / threads, count * (i + 1) / threads); };
    try {
      others.emplace_back(part);
    } catch (const std::system_error&) {  // no more threads for this user
      part();
    }
  }
  work(0, count / threads);
  for (std::thread& other : others) other.join();
}

}  // namespace ops_debug::reference
