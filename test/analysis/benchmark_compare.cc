// benchmark_compare FOLDER [MIB]: what comparing two float32 tensors of MIB (1024) each costs, all
// layers, beside a loop that only reads them. Leaves them in FOLDER as candidate.f32 and
// reference.f32 for whoever compares (scripts/bench_compare.py). Prints JSON.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "analysis/compare/compare.h"
#include "analysis/compare/error_structure.h"

namespace ops_debug::analysis {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kRounds = 11;

unsigned Threads() { return std::max(std::thread::hardware_concurrency(), 1u); }

template <class Work>
void InParallel(int64_t count, Work work) {
  std::vector<std::jthread> threads;
  const auto parts = static_cast<int64_t>(Threads());
  for (int64_t i = 0; i < parts; ++i)
    threads.emplace_back([=] { work(count * i / parts, count * (i + 1) / parts); });
}

template <class Work>
double Seconds(Work work) {
  const auto start = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + kRounds / 2, values.end());
  return values[kRounds / 2];
}

// Values in [-1, 1) that depend on the index alone; relative errors up to `error`.
void Fill(float* candidate, float* reference, int64_t count, float error) {
  InParallel(count, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      uint64_t bits = static_cast<uint64_t>(i) * 0x9e3779b97f4a7c15u;
      bits = (bits ^ bits >> 29) * 0xbf58476d1ce4e5b9u;
      bits ^= bits >> 32;
      reference[i] = static_cast<float>(bits & 0xffffff) / 0x800000 - 1;
      candidate[i] = reference[i] * (1 + error * (static_cast<float>(bits >> 40) / 0x800000 - 1));
    }
  });
}

typedef uint64_t Words __attribute__((vector_size(64)));

uint64_t ReadAll(const char* a, const char* b, int64_t bytes) {
  std::vector<uint64_t> sums(Threads());
  InParallel(bytes / 256, [&, bytes](int64_t begin, int64_t end) {
    Words sum[4] = {};
    for (const char* from : {a, b}) {
      for (int64_t i = begin; i < end; ++i) {
        for (int k = 0; k < 4; ++k) {
          Words words;
          std::memcpy(&words, from + 256 * i + 64 * k, sizeof words);
          sum[k] += words;
        }
      }
    }
    const Words all = sum[0] + sum[1] + sum[2] + sum[3];
    uint64_t total = 0;
    for (int k = 0; k < 8; ++k) total += all[k];
    sums[static_cast<size_t>(begin * Threads() / std::max<int64_t>(bytes / 256, 1))] = total;
  });
  uint64_t total = 0;
  for (const uint64_t sum : sums) total += sum;
  return total;
}

char* Map(const std::string& path, int64_t bytes, bool make) {
  const int file = open(path.c_str(), make ? O_RDWR | O_CREAT | O_TRUNC : O_RDONLY, 0600);
  if (file < 0 || (make && ftruncate(file, bytes) != 0)) return nullptr;
  void* const at = mmap(nullptr, static_cast<size_t>(bytes),
                        make ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, file, 0);
  close(file);
  return at == MAP_FAILED ? nullptr : static_cast<char*>(at);
}

int64_t PeakKib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

proto::Tensor TensorAt(const char* data, int64_t side) {
  proto::Tensor tensor;
  tensor.shape = {side, side};
  tensor.data = reinterpret_cast<const std::byte*>(data);
  return tensor;
}

int Main(int count, char** arguments) {
  if (count < 2) return 2;
  const std::string folder = arguments[1];
  const int64_t mib = count > 2 ? std::atoll(arguments[2]) : 1024;
  int64_t side = 1;
  while (side * side * 4 < mib << 20) side *= 2;
  const int64_t bytes = side * side * 4;
  char* const candidate = Map(folder + "/candidate.f32", bytes, true);
  char* const reference = Map(folder + "/reference.f32", bytes, true);
  if (candidate == nullptr || reference == nullptr) {
    std::perror("benchmark_compare: cannot make the files");
    return 3;
  }
  std::printf("{\"bytes\": %lld, \"threads\": %u, \"side\": %lld", static_cast<long long>(bytes),
              Threads(), static_cast<long long>(side));
  const proto::Tensor tensors[] = {TensorAt(candidate, side), TensorAt(reference, side)};
  struct Way {
    const char* name;
    float error;
  };
  volatile uint64_t kept = 0;
  // The last is what stays in the files.
  for (const Way& way : {Way{"wrong", 1e-2f}, Way{"right", 4e-7f}}) {
    Fill(reinterpret_cast<float*>(candidate), reinterpret_cast<float*>(reference), side * side,
         way.error);
    Comparison found;
    // In turns, since the machine may be slower for seconds: the share within a round counts.
    double read = 1e30, pass = 1e30, all = 1e30;
    std::vector<double> pass_share, all_share;
    const int64_t before = PeakKib();
    for (int round = 0; round < kRounds; ++round) {
      const double read_s = Seconds([&] { kept = kept + ReadAll(candidate, reference, bytes); });
      const double pass_s = Seconds([&] { found = Compare(tensors[0], tensors[1], {}); });
      const double all_s = Seconds([&] {
        found = Compare(tensors[0], tensors[1], {});
        FindStructure(tensors[0], tensors[1], &found);
      });
      read = std::min(read, read_s);
      pass = std::min(pass, pass_s);
      all = std::min(all, all_s);
      pass_share.push_back(read_s / pass_s);
      all_share.push_back(read_s / all_s);
    }
    std::printf(
        ", \"%s\": {\"read_s\": %.4f, \"pass_s\": %.4f, \"all_s\": %.4f, \"pass_share\": %.4f, "
        "\"all_share\": %.4f, \"beyond_mib\": %.1f, \"failed\": %lld, \"l2\": %.12g, "
        "\"max_abs\": %.9g, \"max_rel\": %.9g}",
        way.name, read, pass, all, Median(pass_share), Median(all_share),
        static_cast<double>(PeakKib() - before) / 1024, static_cast<long long>(found.whole.failed),
        found.whole.l2, found.whole.max_abs, found.whole.max_rel);
  }
  std::printf("}\n");
  return 0;
}

}  // namespace
}  // namespace ops_debug::analysis

int main(int count, char** arguments) { return ops_debug::analysis::Main(count, arguments); }
