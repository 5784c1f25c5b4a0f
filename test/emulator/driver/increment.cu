// Image of module_test.cc: adds the architecture it was compiled for, so the test sees which PTX
// was taken.
extern "C" __global__ void increment(int* value) { *value += __CUDA_ARCH__ / 10; }
