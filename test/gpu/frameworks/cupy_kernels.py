"""A RawKernel, an ElementwiseKernel, a reduction and array expressions of CuPy; with "wrong" the RawKernel writes one
element past an array of CuPy's pool.

    python cupy_kernels.py right|wrong
"""
import sys

import cupy
from digest import print_digest

ROW_SUMS = cupy.RawKernel(r"""extern "C" __global__ void row_sums(const float* x, float* sums, int rows, int width) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  float sum = 0;
  for (int i = 0; i < width; ++i) sum += row * width + i < 130 * 47 ? x[row * width + i] : 0;
  sums[row] = sum;  // planted
}""", "row_sums", options=("-lineinfo",))


def main() -> None:
    x = cupy.arange(130 * 47, dtype=cupy.float32).reshape(130, 47) / 1000
    arrays = [cupy.zeros(130, dtype=cupy.float32) for _ in range(9)]
    rows = 130 + (sys.argv[1] == "wrong")
    ROW_SUMS(((rows + 63) // 64,), (64,), (x, arrays[4], rows, 47))
    print_digest("rows", *arrays)
    squares = cupy.ElementwiseKernel("T x, T y", "T z", "z = (x - y) * (x - y)", "squared_difference")(x, x.mean())
    print_digest("elementwise", squares, cupy.sqrt(x) + 2 * x, squares.sum(axis=0))
    cupy.cuda.Stream.null.synchronize()


main()
