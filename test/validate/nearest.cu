// Case K67: nearest down-sampling by 4. Its backward pass runs one thread per input pixel and needs the inverse of the
// forward map; with the forward map the gradient lands on the last pixel of each window instead of the first.

constexpr int kFactor = 4;

__device__ void sample(const float* input, float* output, int height, int width) {
  const int out_height = height / kFactor, out_width = width / kFactor;
  const int pixel = blockIdx.x * blockDim.x + threadIdx.x;
  if (pixel >= out_height * out_width) return;
  const int row = pixel / out_width * kFactor, col = pixel % out_width * kFactor;
  output[blockIdx.y * out_height * out_width + pixel] = input[(blockIdx.y * height + row) * width + col];
}

// The gradient of one input pixel: that of the outputs [first, last) of its row and column.
__device__ void gather(const float* grad_output, float* grad_input, int height, int width, int pixel, int first_row,
                       int last_row, int first_col, int last_col) {
  const int out_height = height / kFactor, out_width = width / kFactor;
  float sum = 0.0f;
  for (int row = first_row; row < min(last_row, out_height); ++row) {
    for (int col = first_col; col < min(last_col, out_width); ++col) {
      sum += grad_output[(blockIdx.y * out_height + row) * out_width + col];
    }
  }
  grad_input[blockIdx.y * height * width + pixel] = sum;
}

// ops-debug: block=64 grid=ceil(input.dim1*input.dim2/64),input.dim0 height=input.dim1 width=input.dim2
// ops-debug: output=shape:input.dim0,input.dim1/4,input.dim2/4 backward=nearest_backward
__global__ void nearest(const float* input, float* output, int height, int width) {
  sample(input, output, height, width);
}

// ops-debug: block=64 grid=ceil(grad_input.dim1*grad_input.dim2/64),grad_input.dim0
__global__ void nearest_backward(const float* grad_output, float* grad_input, int height, int width) {
  const int pixel = blockIdx.x * blockDim.x + threadIdx.x;
  if (pixel >= height * width) return;
  const int row = pixel / width, col = pixel % width;
  gather(grad_output, grad_input, height, width, pixel, row / kFactor, (row + 1) / kFactor, col / kFactor,
         (col + 1) / kFactor);  // planted: the forward map, rounded down
}

// ops-debug: block=64 grid=ceil(input.dim1*input.dim2/64),input.dim0 height=input.dim1 width=input.dim2
// ops-debug: output=shape:input.dim0,input.dim1/4,input.dim2/4 backward=nearest_fixed_backward
__global__ void nearest_fixed(const float* input, float* output, int height, int width) {
  sample(input, output, height, width);
}

__device__ int ceil_divide(int value) { return (value + kFactor - 1) / kFactor; }

// ops-debug: block=64 grid=ceil(grad_input.dim1*grad_input.dim2/64),grad_input.dim0
__global__ void nearest_fixed_backward(const float* grad_output, float* grad_input, int height, int width) {
  const int pixel = blockIdx.x * blockDim.x + threadIdx.x;
  if (pixel >= height * width) return;
  const int row = pixel / width, col = pixel % width;
  gather(grad_output, grad_input, height, width, pixel, ceil_divide(row), ceil_divide(row + 1), ceil_divide(col),
         ceil_divide(col + 1));
}
