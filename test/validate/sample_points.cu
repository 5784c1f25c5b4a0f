// Case K68: bilinear samples of each channel at points of its own, nothing outside. A point above or left of the plane
// has corners in row or column -1; the wrong backward pass does not check for them, and what row -1 of channel c would
// get goes to the last row of channel c - 1. (Only the sign of the whole index is checked, which hides channel 0.)

struct Corners {
  int row, col;  // of the upper left; the others are one further
  float down, right;
};

__device__ Corners corners_of(const float* point, int height, int width) {
  const float y = (point[0] + 1.0f) / 2.0f * height - 0.5f, x = (point[1] + 1.0f) / 2.0f * width - 0.5f;
  Corners corners;
  corners.row = static_cast<int>(floorf(y));
  corners.col = static_cast<int>(floorf(x));
  corners.down = y - corners.row;
  corners.right = x - corners.col;
  return corners;
}

__device__ float weight_of(const Corners& corners, int corner) {
  const float vertical = corner / 2 == 0 ? 1.0f - corners.down : corners.down;
  const float horizontal = corner % 2 == 0 ? 1.0f - corners.right : corners.right;
  return vertical * horizontal;
}

__device__ void sample(const float* input, const float* points, float* output, int height, int width, int count) {
  const int point = threadIdx.x;
  if (point >= count) return;
  const Corners corners = corners_of(points + (blockIdx.x * count + point) * 2, height, width);
  float sum = 0.0f;
  for (int corner = 0; corner < 4; ++corner) {
    const int row = corners.row + corner / 2, col = corners.col + corner % 2;
    if (row < 0 || row >= height || col < 0 || col >= width) continue;
    sum += weight_of(corners, corner) * input[(blockIdx.x * height + row) * width + col];
  }
  output[blockIdx.x * count + point] = sum;
}

// ops-debug: block=64 grid=input.dim0 points=shape:input.dim0,16,2 output=shape:input.dim0,16
// ops-debug: height=input.dim1 width=input.dim2 count=16 backward=sample_points_backward
__global__ void sample_points(const float* input, const float* points, float* output, int height, int width,
                              int count) {
  sample(input, points, output, height, width, count);
}

// ops-debug: block=64 grid=grad_input.dim0
__global__ void sample_points_backward(const float* grad_output, const float* points, float* grad_input, int height,
                                       int width, int count) {
  const int point = threadIdx.x;
  if (point >= count) return;
  const Corners corners = corners_of(points + (blockIdx.x * count + point) * 2, height, width);
  const float grad = grad_output[blockIdx.x * count + point];
  for (int corner = 0; corner < 4; ++corner) {
    const int row = corners.row + corner / 2, col = corners.col + corner % 2;
    const int index = (static_cast<int>(blockIdx.x) * height + row) * width + col;
    if (row < height && col < width && index >= 0) {  // planted: row or column -1 is not checked
      atomicAdd(&grad_input[index], weight_of(corners, corner) * grad);
    }
  }
}

// ops-debug: block=64 grid=input.dim0 points=shape:input.dim0,16,2 output=shape:input.dim0,16
// ops-debug: height=input.dim1 width=input.dim2 count=16 backward=sample_points_fixed_backward
__global__ void sample_points_fixed(const float* input, const float* points, float* output, int height, int width,
                                    int count) {
  sample(input, points, output, height, width, count);
}

// ops-debug: block=64 grid=grad_input.dim0
__global__ void sample_points_fixed_backward(const float* grad_output, const float* points, float* grad_input,
                                             int height, int width, int count) {
  const int point = threadIdx.x;
  if (point >= count) return;
  const Corners corners = corners_of(points + (blockIdx.x * count + point) * 2, height, width);
  const float grad = grad_output[blockIdx.x * count + point];
  for (int corner = 0; corner < 4; ++corner) {
    const int row = corners.row + corner / 2, col = corners.col + corner % 2;
    if (row < 0 || row >= height || col < 0 || col >= width) continue;
    atomicAdd(&grad_input[(static_cast<int>(blockIdx.x) * height + row) * width + col],
              weight_of(corners, corner) * grad);
  }
}
