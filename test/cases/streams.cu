// Work in several streams that nothing orders, and synchronisation that orders nothing, as operator libraries had them.
#include "cases.h"

using namespace cases;

constexpr int kCount = 1024;
constexpr size_t kBytes = kCount * sizeof(float);

__global__ void slow_fill(float* out, float value, int rounds) {
  float x = value;
  for (int i = 0; i < rounds; i++) x = x * 1.0001f + 0.5f;
  out[blockIdx.x * blockDim.x + threadIdx.x] = x;  //! K38 K64
}
__global__ void scale(const float* in, float* out) {
  out[blockIdx.x * blockDim.x + threadIdx.x] = in[blockIdx.x * blockDim.x + threadIdx.x] * 2;  //! K38 K64
}
__global__ void overwrite(float* out) { out[blockIdx.x * blockDim.x + threadIdx.x] = 3; }  //? K07
__global__ void reduce_blocks(const float* in, float* partial) {
  float sum = in[blockIdx.x * 256 + threadIdx.x];
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
  if (threadIdx.x % 32 == 0) atomicAdd(&partial[blockIdx.x], sum);
}
__global__ void reduce_final(const float* partial, float* total) {
  if (threadIdx.x == 0) total[0] = partial[0] + partial[1] + partial[2] + partial[3];
}

static cudaStream_t NonBlocking() {
  cudaStream_t stream;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  return stream;
}
static void Order(cudaStream_t before, cudaStream_t after) {
  cudaEvent_t event;
  cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  cudaEventRecord(event, before);
  cudaStreamWaitEvent(after, event, 0);
  cudaEventDestroy(event);
}

// CASE K06 stream-race|use-after-free: pinned staging memory dies while the copy from it is still to run
static void K06(bool wrong) {
  cudaStream_t stream = NonBlocking();
  float *scratch = Zeros<float>(kCount), *table = Zeros<float>(kCount), *out = Unwritten<float>(kCount), *staging;
  cudaDeviceSynchronize();
  cudaMallocHost(&staging, kBytes);
  for (int i = 0; i < kCount; i++) staging[i] = i;
  slow_fill<<<4, 256, 0, stream>>>(scratch, 1, 200);
  cudaMemcpyAsync(table, staging, kBytes, cudaMemcpyHostToDevice, stream);  //! K06
  if (!wrong) cudaStreamSynchronize(stream);
  cudaFreeHost(staging);  //! K06
  scale<<<4, 256, 0, stream>>>(table, out);
  cudaStreamSynchronize(stream);
}

// CASE K06_refill_by_copy stream-race: the staging memory goes to the next caller, who fills it by a copy of his own
static void K06_refill_by_copy(bool wrong) {
  cudaStream_t stream = NonBlocking(), other = NonBlocking();
  float *table = Zeros<float>(kCount), *source = Zeros<float>(kCount), *out = Unwritten<float>(kCount), *staging;
  cudaMallocHost(&staging, kBytes);
  for (int i = 0; i < kCount; i++) staging[i] = i;
  cudaDeviceSynchronize();
  cudaMemcpyAsync(table, staging, kBytes, cudaMemcpyHostToDevice, stream);  //! K06_refill_by_copy
  if (!wrong) cudaStreamSynchronize(stream);
  cudaMemcpyAsync(staging, source, kBytes, cudaMemcpyDeviceToHost, other);  //! K06_refill_by_copy
  scale<<<4, 256, 0, stream>>>(table, out);
  cudaDeviceSynchronize();
}

// CASE K06_refill_by_host stream-race: the next caller fills it from the host
static void K06_refill_by_host(bool wrong) {
  cudaStream_t stream = NonBlocking();
  float *scratch = Zeros<float>(kCount), *table = Zeros<float>(kCount), *out = Unwritten<float>(kCount), *staging;
  cudaMallocHost(&staging, kBytes);
  for (int i = 0; i < kCount; i++) staging[i] = i;
  cudaDeviceSynchronize();
  slow_fill<<<4, 256, 0, stream>>>(scratch, 1, 200);
  cudaMemcpyAsync(table, staging, kBytes, cudaMemcpyHostToDevice, stream);  //! K06_refill_by_host
  if (!wrong) cudaStreamSynchronize(stream);
  for (int i = 0; i < kCount; i++) staging[i] = -1;  //! K06_refill_by_host
  scale<<<4, 256, 0, stream>>>(table, out);
  cudaStreamSynchronize(stream);  //? K06_refill_by_host
}

// CASE K07 stream-race|use-after-free: memory is released on one stream while another still copies from it, and handed out again
static void K07(bool wrong) {
  cudaStream_t main_stream = NonBlocking(), side = NonBlocking();
  float *a, *b, *host;
  cudaMallocHost(&host, kBytes);
  cudaMallocAsync(&a, kBytes, main_stream);
  cudaMemsetAsync(a, 0, kBytes, main_stream);
  Order(main_stream, side);
  cudaMemcpyAsync(host, a, kBytes, cudaMemcpyDeviceToHost, side);  //! K07
  if (!wrong) Order(side, main_stream);
  cudaFreeAsync(a, main_stream);  //! K07
  cudaMallocAsync(&b, kBytes, main_stream);
  overwrite<<<4, 256, 0, main_stream>>>(b);  //? K07
  cudaFreeAsync(b, main_stream);
  cudaDeviceSynchronize();
}

// CASE K38 stream-race: the reader waits for the writer, but the next write does not wait for the reader
static void K38(bool wrong) {
  cudaStream_t schedule = NonBlocking(), forward = NonBlocking();
  float *lengths = Zeros<float>(kCount), *out = Unwritten<float>(kCount);
  cudaDeviceSynchronize();
  for (int step = 0; step < 3; step++) {
    slow_fill<<<4, 256, 0, schedule>>>(lengths, step, 1);  //! K38
    Order(schedule, forward);
    scale<<<4, 256, 0, forward>>>(lengths, out);  //! K38
    if (!wrong) Order(forward, schedule);
  }
  cudaDeviceSynchronize();
}

// CASE K40 redundant-sync: a synchronisation between two pieces of work of one stream, with another one behind
static void K40(bool wrong) {
  cudaStream_t stream;
  cudaStreamCreate(&stream);
  float *in = Uploaded(Ramp(kCount)), *partial = Zeros<float>(4), *total = Unwritten<float>(1), *host;
  cudaMallocHost(&host, sizeof(float));
  for (int step = 0; step < 3; step++) {
    reduce_blocks<<<4, 256, 0, stream>>>(in, partial);
    reduce_final<<<1, 32, 0, stream>>>(partial, total);
    if (wrong) cudaStreamSynchronize(stream);  //! K40
    cudaMemcpyAsync(host, total, sizeof(float), cudaMemcpyDeviceToHost, stream);
    cudaStreamSynchronize(stream);
  }
  std::printf("total %g\n", *host);
}

// CASE K64 stream-race: the kernel goes to the legacy default stream, its data comes from one that does not wait for it
static void K64(bool wrong) {
  cudaStream_t stream = NonBlocking();
  float *input = Zeros<float>(kCount), *out = Unwritten<float>(kCount);
  cudaDeviceSynchronize();
  slow_fill<<<4, 256, 0, stream>>>(input, 1, 1);  //! K64
  if (wrong) {
    scale<<<4, 256>>>(input, out);  //! K64
  } else {
    scale<<<4, 256, 0, stream>>>(input, out);
  }
  cudaDeviceSynchronize();
}

// CASE K65 redundant-sync: a synchronisation behind a copy that was synchronous
static void K65(bool wrong) {
  std::vector<float> values = Ramp(kCount);
  float *in = Unwritten<float>(kCount), *out = Unwritten<float>(kCount);
  for (int step = 0; step < 3; step++) {
    cudaMemcpy(in, values.data(), kBytes, cudaMemcpyHostToDevice);
    if (wrong) cudaDeviceSynchronize();  //! K65
    scale<<<4, 256>>>(in, out);
  }
  cudaMemcpy(values.data(), out, kBytes, cudaMemcpyDeviceToHost);
  std::printf("first %g\n", values[0]);
}

// CASE K66 redundant-sync: two synchronisations behind each launch
static void K66(bool wrong) {
  cudaStream_t stream;
  cudaStreamCreate(&stream);
  float *in = Uploaded(Ramp(kCount)), *out = Unwritten<float>(kCount);
  for (int step = 0; step < 3; step++) {
    scale<<<4, 256, 0, stream>>>(in, out);
    if (wrong) cudaStreamSynchronize(stream);  //? K66
    if (wrong) cudaDeviceSynchronize();  //! K66
  }
  cudaStreamSynchronize(stream);
}

int main(int argc, char** argv) {
  const Case all[] = {{"K06", K06}, {"K06_refill_by_copy", K06_refill_by_copy}, {"K06_refill_by_host", K06_refill_by_host}, {"K07", K07}, {"K38", K38},
                      {"K40", K40}, {"K64", K64}, {"K65", K65}, {"K66", K66}};
  return Main(all, argc, argv);
}
