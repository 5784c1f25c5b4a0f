// Right and wrong uses of tensors that a caching allocator hands out. Each case prints what it
// computed; run without arguments it lists the cases.
#include <cstdio>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>

#include "torch_like.h"

namespace {

__global__ void Fill(float* out, int n, float value) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = value;  // line of the store
}

__global__ void Add(float* out, const float* a, const float* b, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = a[i] + b[i];
}

// The pointer comes out of memory: only shadow memory can judge the accesses.
__global__ void FillThroughTable(float** table, int entry, int n, float value) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) table[entry][i] = value;  // line of the indirect store
}

__global__ void StoreOne(float* const* table, int entry, int index) { table[entry][index] = 1; }

void Check(cudaError_t result) {
  if (result != cudaSuccess) throw std::runtime_error(cudaGetErrorString(result));
}

c10::Allocator* allocator = nullptr;

at::TensorBase Empty(const std::vector<int64_t>& sizes,
                     c10::ScalarType type = c10::ScalarType::Float) {
  return at::detail::empty_generic(sizes, allocator, {0x1234}, type, c10::MemoryFormat::Contiguous);
}
at::TensorBase EmptyStrided(const std::vector<int64_t>& sizes,
                            const std::vector<int64_t>& strides) {
  return at::detail::empty_strided_generic(sizes, strides, allocator, {0x1234},
                                           c10::ScalarType::Float);
}

cudaStream_t Stream() { return c10::cuda::getCurrentCUDAStream(0).stream(); }
void FillWith(float* out, int n, float value) {
  Fill<<<(n + 127) / 128, 128, 0, Stream()>>>(out, n, value);
  Check(cudaGetLastError());
}
float First(const float* data) {
  float value = 0;
  Check(cudaMemcpyAsync(&value, data, sizeof value, cudaMemcpyDeviceToHost, Stream()));
  Check(cudaStreamSynchronize(Stream()));
  return value;
}

// A table of pointers in memory of its own.
float** Table(std::initializer_list<float*> pointers) {
  float** table = nullptr;
  Check(cudaMalloc(&table, pointers.size() * sizeof(float*)));
  Check(cudaMemcpy(table, pointers.begin(), pointers.size() * sizeof(float*),
                   cudaMemcpyHostToDevice));
  return table;
}

void Overflow() {
  auto before = Empty({100}), tensor = Empty({10, 100}), after = Empty({4096});
  FillWith(before.data(), 100, 1);
  FillWith(after.data(), 4096, 2);
  FillWith(tensor.data(), 1001, 3);
  std::printf("%g\n", First(tensor.data()));
}

void OverflowThroughTable() {
  auto before = Empty({100}), tensor = Empty({10, 100}), after = Empty({4096});
  float** table = Table({tensor.data()});
  FillThroughTable<<<8, 128, 0, Stream()>>>(table, 0, 1001, 3);
  std::printf("%g\n", First(tensor.data()));
}

// The same memory held something longer before.
void OverflowAfterReuse() {
  for (const int n : {1024, 1000, 1024, 1000}) {
    auto tensor = Empty({n});
    float** table = Table({tensor.data()});
    FillThroughTable<<<8, 128, 0, Stream()>>>(table, 0, n, 3);
    std::printf("%g\n", First(tensor.data()));
    Check(cudaFree(table));
  }
  auto tensor = Empty({8, 125});
  float** table = Table({tensor.data()});
  StoreOne<<<1, 1, 0, Stream()>>>(table, 0, 1000);
  Check(cudaDeviceSynchronize());
}

void Strided() {
  auto tensor = EmptyStrided({3, 5}, {8, 1});  // 21 elements
  FillWith(tensor.data(), 21, 1);
  FillWith(tensor.data(), 22, 1);
  std::printf("%g\n", First(tensor.data()));
}

void BadIndex() {
  auto tensor = Empty({10, 100});
  float** table = Table({tensor.data()});
  StoreOne<<<1, 1, 0, Stream()>>>(table, 0, 100000);
  Check(cudaDeviceSynchronize());
}

void Freed() {
  auto keep = Empty({64});
  auto tensor = Empty({30, 30});
  float* const stale = tensor.data();
  FillWith(stale, 900, 1);
  tensor.Reset();
  FillWith(stale, 900, 2);
  Check(cudaDeviceSynchronize());
}

// Freed when the store is known to have been enqueued, not to have run.
void OverflowThenFreed() {
  {
    auto before = Empty({100}), tensor = Empty({10, 100}), after = Empty({4096});
    float** table = Table({tensor.data()});
    FillThroughTable<<<8, 128, 0, Stream()>>>(table, 0, 1001, 3);
  }
  Check(cudaDeviceSynchronize());
}

void FreedThroughGraph() {
  auto keep = Empty({64});
  FillWith(keep.data(), 64, 1);  // in another stream than the graph
  auto tensor = std::make_unique<at::TensorBase>(Empty({30, 30}));
  cudaStream_t stream;
  Check(cudaStreamCreate(&stream));
  c10::cuda::SetCurrentStream(stream);
  FillWith(tensor->data(), 900, 1);
  Check(cudaStreamSynchronize(stream));
  cudaGraph_t graph;
  Check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  FillWith(tensor->data(), 900, 2);
  Check(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t exec;
  Check(cudaGraphInstantiate(&exec, graph, 0));
  Check(cudaGraphLaunch(exec, stream));
  Check(cudaStreamSynchronize(stream));
  std::printf("%g\n", First(tensor->data()));
  tensor.reset();
  Check(cudaGraphLaunch(exec, stream));
  Check(cudaStreamSynchronize(stream));
}

// A loop as of training: temporaries of many sizes, views, results that outlive their inputs.
void Loop() {
  auto weights = Empty({300});
  FillWith(weights.data(), 300, 1);
  for (int step = 0; step < 40; step++) {
    std::vector<at::TensorBase> kept;
    for (int layer = 1; layer <= 6; layer++) {
      const int n = 37 * layer * (1 + step % 3);
      auto a = Empty({n}), b = Empty({n + step});
      FillWith(a.data(), n, 1);
      FillWith(b.data(), n + step, 2);
      auto sum = Empty({n});
      Add<<<(n + 127) / 128, 128, 0, Stream()>>>(sum.data(), a.data(), b.data(), n);
      // A view: rows 1.. of the sum.
      FillWith(sum.data() + n / 2, n - n / 2, 3);
      kept.push_back(std::move(sum));
    }
    if (step % 10 == 9) {
      std::printf("%g ", First(kept[5].data()));
      kept.clear();
      c10::cuda::EmptyCache();
    }
  }
  std::printf("%d\n", static_cast<int>(c10::ReportedBytes()));
}

// Tensors of one stream are used in another and freed while that still runs.
void Streams() {
  cudaStream_t streams[2];
  for (cudaStream_t& stream : streams) {
    Check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  }
  cudaEvent_t made, used;
  Check(cudaEventCreate(&made));
  Check(cudaEventCreate(&used));
  float sum = 0;
  for (int step = 0; step < 150; step++) {
    c10::cuda::SetCurrentStream(streams[0]);
    auto a = Empty({1000 + step});
    FillWith(a.data(), 1000 + step, 1);
    Check(cudaEventRecord(made, streams[0]));
    Check(cudaStreamWaitEvent(streams[1], made, 0));
    c10::cuda::SetCurrentStream(streams[1]);
    auto b = Empty({1000 + step});
    Add<<<10, 128, 0, streams[1]>>>(b.data(), a.data(), a.data(), 1000 + step);
    c10::cuda::RecordStream(a.data(), streams[1]);
    a.Reset();  // streams[1] may not have come so far
    if (step % 50 == 49) {
      sum += First(b.data());
      // Streams come and go.
      Check(cudaStreamDestroy(streams[1]));
      Check(cudaStreamCreateWithFlags(&streams[1], cudaStreamNonBlocking));
    }
    // What the first stream takes next may be the very same block.
    c10::cuda::SetCurrentStream(streams[0]);
    auto c = Empty({500});
    FillWith(c.data(), 500, 1);
  }
  Check(cudaDeviceSynchronize());
  std::printf("%g\n", sum);
}

// Temporaries of a graph live in memory that the allocator takes for free after the capture.
void GraphPool() {
  cudaStream_t stream;
  Check(cudaStreamCreate(&stream));
  c10::cuda::SetCurrentStream(stream);
  auto result = Empty({256});
  FillWith(result.data(), 256, 0);
  cudaGraph_t graph;
  Check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  {
    auto a = Empty({256});
    FillWith(a.data(), 256, 1);
    auto b = Empty({200});
    FillWith(b.data(), 200, 2);
    a.Reset();
    auto c = Empty({250});  // where `a` was
    FillWith(c.data(), 250, 3);
    Add<<<2, 128, 0, stream>>>(result.data(), result.data(), c.data(), 250);
  }
  Check(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t exec;
  Check(cudaGraphInstantiate(&exec, graph, 0));
  for (int replay = 0; replay < 4; replay++) {
    auto other = Empty({777});
    FillWith(other.data(), 777, 1);
    Check(cudaGraphLaunch(exec, stream));
  }
  std::printf("%g\n", First(result.data()));
}

// Two graphs take turns in one pool, as in PyTorch's trees of graphs: inputs that are allocated
// there before the capture and taken back during it, results that live on in memory which the
// allocator has handed out to somebody else since.
void GraphTurns() {
  cudaStream_t stream;
  Check(cudaStreamCreate(&stream));
  c10::cuda::SetCurrentStream(stream);
  auto sum = Empty({400});
  FillWith(sum.data(), 400, 0);
  c10::cuda::UseGraphPool(true);
  auto place = Empty({400}), input = Empty({1000});
  auto large_input = Empty({700000});  // has a segment of its own
  place.Reset();
  c10::cuda::UseGraphPool(false);
  float* const inputs[] = {input.data(), large_input.data()};
  float* result_data = nullptr;
  cudaGraphExec_t exec;
  {
    cudaGraph_t graph;
    Check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    auto result = Empty({400});
    result_data = result.data();
    Add<<<4, 128, 0, stream>>>(result.data(), input.data(), large_input.data(), 400);
    input.Reset();
    large_input.Reset();
    Check(cudaStreamEndCapture(stream, &graph));
    Check(cudaGraphInstantiate(&exec, graph, 0));
  }
  c10::cuda::UseGraphPool(true);
  auto other = Empty({10});  // where the result is
  c10::cuda::UseGraphPool(false);
  FillWith(other.data(), 10, 1);
  for (int replay = 1; replay <= 3; replay++) {
    const std::vector<float> values(400, static_cast<float>(replay));
    for (float* const data : inputs) {
      Check(cudaMemcpyAsync(data, values.data(), 1600, cudaMemcpyHostToDevice, stream));
    }
    Check(cudaGraphLaunch(exec, stream));
    Add<<<4, 128, 0, stream>>>(sum.data(), sum.data(), result_data, 400);
  }
  std::printf("%g %d\n", First(sum.data()), other.data() == result_data);
}

// More than one segment, mapped one behind the other and unmapped again.
void Grow() {
  for (int round = 0; round < 3; round++) {
    std::vector<at::TensorBase> tensors;
    for (int i = 1; i < 6; i++) {
      const int n = 180000 * i;
      tensors.push_back(Empty({n}));
      FillWith(tensors.back().data(), n, static_cast<float>(i));
    }
    std::printf("%g ", First(tensors[3].data()));
    tensors.clear();
    c10::cuda::EmptyCache();
  }
  std::printf("\n");
}

struct Case {
  const char* name;
  void (*run)();
};
constexpr Case kCases[] = {
    {"overflow", Overflow},
    {"overflow-table", OverflowThroughTable},
    {"overflow-reuse", OverflowAfterReuse},
    {"overflow-then-freed", OverflowThenFreed},
    {"strided", Strided},
    {"bad-index", BadIndex},
    {"freed", Freed},
    {"freed-graph", FreedThroughGraph},
    {"loop", Loop},
    {"streams", Streams},
    {"graph-pool", GraphPool},
    {"graph-turns", GraphTurns},
    {"grow", Grow},
};

}  // namespace

extern "C" EXPORTED int RunPoolProgram(int argc, char** argv) {
  const bool expandable = argc > 2 && std::strcmp(argv[2], "expandable") == 0;
  allocator = c10::cuda::CachingAllocator(expandable ? c10::cuda::Segments::kExpandable
                                                     : c10::cuda::Segments::kMalloc);
  for (const Case& entry : kCases) {
    if (argc > 1 && std::strcmp(argv[1], entry.name) == 0) {
      try {
        Check(cudaFree(nullptr));
        entry.run();
      } catch (const std::exception& error) {
        std::printf("%s\n", error.what());
        return 1;
      }
      return 0;
    }
    if (argc < 2) std::printf("%s\n", entry.name);
  }
  return argc < 2 ? 0 : 2;
}
