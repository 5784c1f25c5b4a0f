// Case K11: a linear layer over packed rows, of which the last three are padding. The backward pass writes dk for the
// rows in use into a buffer that was not zeroed (nan: as an allocator's old bits), and the sum of the weight's gradient
// runs over all rows.

__device__ float dot(const float* a, int a_step, const float* b, int b_step, int count) {
  float sum = 0.0f;
  for (int i = 0; i < count; ++i) sum += a[i * a_step] * b[i * b_step];
  return sum;
}

__device__ void forward(const float* x, const float* weight, float* output, int rows, int cols, int used) {
  const int element = blockIdx.x * blockDim.x + threadIdx.x;
  if (element >= rows * cols) return;
  const int row = element / cols, col = element % cols;
  output[element] = row < used ? dot(x + row * cols, 1, weight + col * cols, 1, cols) : 0.0f;
}

// ops-debug: block=64 grid=ceil(x.dim0*x.dim1/64) rows=x.dim0 cols=x.dim1 attr.used=x.dim0-3
// ops-debug: weight=shape:x.dim1,x.dim1 output=shape:x.dim0,x.dim1
// ops-debug: backward=padded_linear_dk,padded_linear_dw,padded_linear_dx
__global__ void padded_linear(const float* x, const float* weight, float* output, int rows, int cols, int used) {
  forward(x, weight, output, rows, cols, used);
}

// ops-debug: block=64 grid=ceil(x.dim0*x.dim1/64) rows=x.dim0 cols=x.dim1 attr.used=x.dim0-3
// ops-debug: weight=shape:x.dim1,x.dim1 output=shape:x.dim0,x.dim1
// ops-debug: backward=padded_linear_fixed_dk,padded_linear_dw,padded_linear_dx
__global__ void padded_linear_fixed(const float* x, const float* weight, float* output, int rows, int cols, int used) {
  forward(x, weight, output, rows, cols, used);
}

// ops-debug: block=64 grid=ceil(rows*cols/64) dk=shape:grad_output.dim0,grad_output.dim1:nan
__global__ void padded_linear_dk(const float* grad_output, float* dk, int rows, int cols, int used) {
  const int element = blockIdx.x * blockDim.x + threadIdx.x;
  if (element < used * cols) dk[element] = grad_output[element];  // planted: the padding is never written
}

// ops-debug: block=64 grid=ceil(rows*cols/64) dk=shape:grad_output.dim0,grad_output.dim1:nan
__global__ void padded_linear_fixed_dk(const float* grad_output, float* dk, int rows, int cols, int used) {
  const int element = blockIdx.x * blockDim.x + threadIdx.x;
  if (element < rows * cols) dk[element] = element < used * cols ? grad_output[element] : 0.0f;
}

// ops-debug: block=64 grid=ceil(cols*cols/64)
__global__ void padded_linear_dw(const float* dk, const float* x, float* grad_weight, int rows, int cols) {
  const int element = blockIdx.x * blockDim.x + threadIdx.x;
  if (element >= cols * cols) return;
  grad_weight[element] = dot(dk + element / cols, cols, x + element % cols, cols, rows);
}

// ops-debug: block=64 grid=ceil(rows*cols/64)
__global__ void padded_linear_dx(const float* dk, const float* weight, float* grad_x, int rows, int cols) {
  const int element = blockIdx.x * blockDim.x + threadIdx.x;
  if (element >= rows * cols) return;
  grad_x[element] = dot(dk + element / cols * cols, 1, weight + element % cols, cols, cols);
}
