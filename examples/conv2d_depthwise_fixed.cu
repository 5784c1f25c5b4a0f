// The right twin of conv2d_depthwise.cu: the weights of every 16 channels are staged before they are used.
//
//   cd examples
//   ../scripts/ops-debug validate conv2d_depthwise_fixed --reference builtin:conv2d --input-shape 1x32x224x224 --rtol 1e-5
//
// passes.

constexpr int kTileWidth = 32;
constexpr int kTileHeight = 8;
constexpr int kStagedChannels = 16;
constexpr int kTaps = 9;

__device__ float convolve(const float* plane, const float* taps, int row, int col, int height, int width) {
  float sum = 0.0f;
  for (int y = 0; y < 3; ++y) {
    const int in_row = row + y - 1;
    if (in_row < 0 || in_row >= height) continue;
    for (int x = 0; x < 3; ++x) {
      const int in_col = col + x - 1;
      if (in_col >= 0 && in_col < width) sum += plane[in_row * width + in_col] * taps[y * 3 + x];
    }
  }
  return sum;
}

// ops-debug: block=32,8 grid=ceil(width/32),ceil(height/8),batch
// ops-debug: batch=input.dim0 channels=input.dim1 height=input.dim2 width=input.dim3
// ops-debug: weight=shape:input.dim1,1,3,3 output=shape:input.dim0,input.dim1,input.dim2,input.dim3
// ops-debug: attr.padding=1 attr.groups=input.dim1
__global__ void __launch_bounds__(kTileWidth * kTileHeight)
    conv2d_depthwise_fixed(const float* input, const float* weight, float* output, int batch, int channels, int height,
                           int width) {
  __shared__ float staged[kStagedChannels][kTaps];
  const int thread = threadIdx.y * kTileWidth + threadIdx.x;
  const int row = blockIdx.y * kTileHeight + threadIdx.y;
  const int col = blockIdx.x * kTileWidth + threadIdx.x;
  const bool inside = row < height && col < width;
  for (int first = 0; first < channels; first += kStagedChannels) {
    const int count = min(channels - first, kStagedChannels);
    __syncthreads();  // the last channels' weights are no longer read
    for (int i = thread; i < count * kTaps; i += kTileWidth * kTileHeight) {
      staged[i / kTaps][i % kTaps] = weight[first * kTaps + i];
    }
    __syncthreads();
    for (int channel = first; inside && channel < first + count; ++channel) {
      const size_t plane = (static_cast<size_t>(blockIdx.z) * channels + channel) * height * width;
      const float* taps = staged[channel - first];
      output[plane + row * width + col] = convolve(input + plane, taps, row, col, height, width);
    }
  }
}
