// What device code asks of the run-time: printf, malloc and free, the heap between launches,
// assert. The assertion comes last: it ends the context.
#undef NDEBUG
#include <cassert>

#include "digest.h"

using namespace whole_kernels;

struct Node {
  Node* next;
  int value;
};

__global__ void say(int number, double real, const char* word) {
  printf("printf: %d|%5d|%-5d|%05d|%x|%#o|%c|%%\n", number, number, number, number, number, number,
         'a' + number % 26);
  printf("printf: %.3f %10.2e %g %a %s %.2s\n", real, real, real, real, word, word);
  printf("printf: %lld %llu %hd %p\n", -1234567890123ll, 18446744073709551615ull,
         static_cast<short>(number), static_cast<void*>(nullptr));
  const int none = printf("printf: no arguments\n");
  const int two = printf("printf: two %d %d\n", number, 7);
  printf("printf: returned %d %d\n", none, two);
}

__global__ void build_lists(Node** heads, int length) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  Node* head = nullptr;
  for (int k = 0; k < length; ++k) {
    Node* node = static_cast<Node*>(malloc(sizeof(Node)));
    if (node == nullptr) break;
    *node = {head, i * length + k};
    head = node;
  }
  heads[i] = head;
}

__global__ void consume_lists(Node** heads, int* sums) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  for (Node* node = heads[i]; node != nullptr;) {
    sums[i] = sums[i] * 3 + node->value;
    Node* const next = node->next;
    free(node);
    node = next;
  }
}

__global__ void new_and_delete(int* output) {
  int* const numbers = new int[threadIdx.x + 1];
  for (unsigned i = 0; i <= threadIdx.x; ++i) numbers[i] = i * i;
  int sum = 0;
  for (unsigned i = 0; i <= threadIdx.x; ++i) sum += numbers[i];
  delete[] numbers;
  // More than the heap holds.
  void* const huge = malloc(1ull << 40);
  output[threadIdx.x] = sum + (huge == nullptr ? 0 : 1000000);
}

__global__ void claim(const int* values) { assert(values[threadIdx.x] < 50); }

int main() {
  const char word[] = "device";
  DeviceArray<char> device_word(std::vector<char>(word, word + sizeof(word)));
  say<<<1, 1>>>(42, -1234.5678, device_word.data());
  REQUIRE_CUDA(cudaDeviceSynchronize());

  constexpr int kThreads = 256, kLength = 7;
  DeviceArray<Node*> heads(kThreads);
  DeviceArray<int> sums(kThreads), squares(100);
  build_lists<<<4, kThreads / 4>>>(heads.data(), kLength);
  consume_lists<<<2, kThreads / 2>>>(heads.data(), sums.data());
  std::vector<int> expected(kThreads), expected_squares(100);
  for (int i = 0; i < kThreads; ++i)
    for (int k = kLength; k-- > 0;) expected[i] = expected[i] * 3 + i * kLength + k;
  Exact("lists on the device's heap", sums.Download(), expected);
  for (int t = 0; t < 100; ++t)
    for (int i = 0; i <= t; ++i) expected_squares[t] += i * i;
  new_and_delete<<<1, 100>>>(squares.data());
  Exact("new and delete", squares.Download(), expected_squares);

  std::vector<int> values(64);
  for (int i = 0; i < 64; ++i) values[i] = i;
  const DeviceArray<int> claimed(values);
  claim<<<1, 40>>>(claimed.data());
  std::printf("assert that holds: %s\n", cudaGetErrorName(cudaDeviceSynchronize()));
  claim<<<1, 64>>>(claimed.data());
  std::printf("assert that fails: %s\n", cudaGetErrorName(cudaDeviceSynchronize()));
  std::printf("afterwards: %s\n", cudaGetErrorName(cudaDeviceSynchronize()));
  std::fflush(stdout);
  return Finish();
}
