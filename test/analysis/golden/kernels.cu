// A stand-in for the program that the events of the goldens tell of; only its lines matter.
__global__ void overflow_by_one(float* p, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i <= n) p[i] = 1.f;
}
__device__ float load_tile(const float* p, int i) {
	return p[i];
}
__global__ void shared_overflow(float* out, int k) {
  __shared__ float s[32];
  s[threadIdx.x + k] = 1;
}
