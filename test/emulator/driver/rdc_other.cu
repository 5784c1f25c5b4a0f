// The other half of rdc_main.cu.
__device__ int other_value = 7;

static __device__ __noinline__ int helper(int x) { return x * 2; }

__device__ int twice(int x) { return helper(x); }
