// Files cut at every byte and with flipped bits: an error or tensors that can be read, never a
// crash.
#include <catch2/catch.hpp>
#include <random>

#include "proto/tensor_file.h"
#include "test/proto/tensor_file_fixture.h"

namespace ops_debug::proto {
namespace {

struct Sample {
  const char* name;
  std::string bytes;
};

std::vector<Sample> Samples() {
  const std::string six = BytesOf<float>({1, 2, 3, 4, 5, 6});
  const std::string npy = Npy("<f4", "2, 3", six);
  const std::string swapped = Npy(">c8", "3,", six);
  return {
      {"plain.npy", npy},
      {"fortran.npy", Npy("<f4", "2, 3", six, true)},
      {"swapped.npy", swapped},
      {"stored.npz", Zip({{"a.npy", npy}, {"b.npy", swapped}}, false)},
      {"deflated.npz", Zip({{"a.npy", npy}, {"b.npy", swapped}}, true)},
      {"zip64.npz", Zip({{"a.npy", npy}, {"b.npy", swapped}}, true, true)},
      {"two.safetensors",
       Safetensors(R"({"__metadata__":{"k":"v"},)"
                   R"("a":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]},)"
                   R"("b":{"dtype":"F8_E4M3","shape":[12],"data_offsets":[12,24]}})",
                   six)},
  };
}

// Reads every byte of every tensor, so that a wrong range shows as a fault.
uint64_t Touch(const TensorSet& set) {
  uint64_t sum = 0;
  for (const Tensor& tensor : set.tensors) {
    const auto bytes = static_cast<uint64_t>(tensor.ElementCount()) * ElementBytes(tensor.dtype);
    for (uint64_t i = 0; i < bytes; ++i) sum += static_cast<uint64_t>(tensor.data[i]);
  }
  return sum;
}

TEST_CASE("a file that is cut anywhere is refused") {
  const TemporaryFolder folder;
  for (const Sample& sample : Samples()) {
    REQUIRE(ReadTensors(folder.Write(sample.name, sample.bytes)).ok());
    for (size_t size = 0; size < sample.bytes.size(); ++size) {
      const auto set =
          ReadTensors(folder.Write(sample.name, std::string_view(sample.bytes).substr(0, size)));
      INFO(sample.name << " cut to " << size << " of " << sample.bytes.size());
      REQUIRE_FALSE(set.ok());
      REQUIRE_FALSE(set.status().message().empty());
    }
  }
}

TEST_CASE("a file with flipped bits is refused or read, and does not crash") {
  const TemporaryFolder folder;
  std::mt19937 random(20);
  uint64_t refused = 0, sum = 0;
  for (const Sample& sample : Samples()) {
    for (int round = 0; round < 500; ++round) {
      std::string bytes = sample.bytes;
      const auto flips = 1 + random() % 3;
      for (uint32_t i = 0; i < flips; ++i) {
        bytes[random() % bytes.size()] ^= static_cast<char>(1u << (random() % 8));
      }
      const auto set = ReadTensors(folder.Write(sample.name, bytes));
      if (set.ok()) {
        sum += Touch(*set);
      } else {
        ++refused;
      }
    }
  }
  CHECK(refused > 500);
  CHECK(sum > 0);
}

}  // namespace
}  // namespace ops_debug::proto
