// The module of sass_cases.cu's case "modules".
extern "C" __global__ void first(const float* p, float* out) {
  out[threadIdx.x] = p[threadIdx.x];  // fault: first
}
extern "C" __global__ void second(const float* p, float* out) {
  out[threadIdx.x] = p[threadIdx.x] * 3 + out[threadIdx.x];  // fault: second
}
