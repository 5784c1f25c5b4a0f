// thrust: a merge sort with a comparator and a reduction of transformed elements.
#include <thrust/device_vector.h>
#include <thrust/sort.h>
#include <thrust/transform_reduce.h>

#include <algorithm>

#include "digest.h"

using namespace whole_kernels;

struct Point {
  int x, y;
};
struct ByDistance {
  __host__ __device__ bool operator()(const Point& a, const Point& b) const {
    const int da = a.x * a.x + a.y * a.y, db = b.x * b.x + b.y * b.y;
    return da != db ? da < db : a.x < b.x;
  }
};
struct Square {
  __host__ __device__ long long operator()(const Point& p) const {
    return static_cast<long long>(p.x) * p.x + p.y;
  }
};

int main() {
  constexpr int kCount = 5003;
  Random random(47);
  std::vector<Point> points(kCount);
  for (Point& point : points) point = {random.Whole(2000), random.Whole(2000)};
  std::vector<Point> sorted = points;
  std::stable_sort(sorted.begin(), sorted.end(), ByDistance());

  thrust::device_vector<Point> device = points;
  const long long sum = thrust::transform_reduce(device.begin(), device.end(), Square(), 0ll,
                                                 ::cuda::std::plus<long long>());
  long long expected = 0;
  for (const Point& point : points) expected += Square()(point);
  Exact("transform_reduce", sum, expected);

  thrust::stable_sort(device.begin(), device.end(), ByDistance());
  std::vector<Point> result(kCount);
  thrust::copy(device.begin(), device.end(), result.begin());
  Exact("stable_sort with a comparator", result, sorted);
  return Finish();
}
