// A stand-in for the program that the events of the race goldens tell of; only its lines matter.
__global__ void shared_race(float* out) {
  __shared__ float s[64];
  s[threadIdx.x] = threadIdx.x;
  out[threadIdx.x] = s[63 - threadIdx.x];
}
__global__ void combine(float* out, int rows) {
  __shared__ float partial[4];
  for (int row = 0; row < rows; row++) {
    partial[threadIdx.x / 32] = out[row];
    __syncthreads();
    out[row] = partial[0] + partial[1];
  }
}
__global__ void copy(const float* p, float* out) {
  out[threadIdx.x] = p[threadIdx.x];
}
__global__ void divergent(float* out) {
  if (threadIdx.x < 16) __syncthreads();
  out[threadIdx.x] = 1;
  __syncthreads();
}
__global__ void add(float* sum) {
  *sum = *sum + 1;
}
