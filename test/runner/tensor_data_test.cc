#include "runner/tensor_data.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>

namespace ops_debug::runner {
namespace {

ArgumentPlan Buffer(ScalarType type, Fill fill, int64_t count) {
  ArgumentPlan buffer;
  buffer.is_buffer = true;
  buffer.element = {type, 1};
  buffer.shape = {count};
  buffer.fill = fill;
  buffer.size_bytes = count * buffer.element.SizeBytes();
  return buffer;
}

template <class T>
std::vector<T> Make(ScalarType type, Fill fill, int64_t count, uint64_t limit = 256,
                    uint64_t seed = 0) {
  const std::vector<std::byte> bytes = MakeContents(Buffer(type, fill, count), 0, seed, limit);
  REQUIRE(bytes.size() == count * sizeof(T));
  std::vector<T> values(count);
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

TEST_CASE("random floats fill [-1, 1)") {
  const std::vector<float> values = Make<float>(ScalarType::kF32, Fill::kRandom, 10000);
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  CHECK(*low >= -1.0f);
  CHECK(*low < -0.99f);
  CHECK(*high < 1.0f);
  CHECK(*high > 0.99f);
}

TEST_CASE("random integers are indices below the limit") {
  const std::vector<int32_t> values = Make<int32_t>(ScalarType::kS32, Fill::kRandom, 10000, 100);
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  CHECK(*low == 0);
  CHECK(*high == 99);
}

TEST_CASE("random signed bytes are not negative") {
  const std::vector<int8_t> values = Make<int8_t>(ScalarType::kS8, Fill::kRandom, 1000);
  CHECK(*std::min_element(values.begin(), values.end()) >= 0);
}

TEST_CASE("random bytes are data: they take every value, whatever the limit") {
  const std::vector<uint8_t> values = Make<uint8_t>(ScalarType::kU8, Fill::kRandom, 10000, 10);
  CHECK(*std::max_element(values.begin(), values.end()) == 255);
}

TEST_CASE("the seed and nothing else decides random contents") {
  CHECK(Make<float>(ScalarType::kF32, Fill::kRandom, 64) ==
        Make<float>(ScalarType::kF32, Fill::kRandom, 64));
  CHECK(Make<float>(ScalarType::kF32, Fill::kRandom, 64) !=
        Make<float>(ScalarType::kF32, Fill::kRandom, 64, 256, 1));
}

TEST_CASE("iota counts and ones are ones in 16-bit floats too") {
  CHECK(Make<int64_t>(ScalarType::kS64, Fill::kIota, 4) == std::vector<int64_t>{0, 1, 2, 3});
  CHECK(Make<uint16_t>(ScalarType::kF16, Fill::kOnes, 2) == std::vector<uint16_t>{0x3c00, 0x3c00});
}

TEST_CASE("the index limit is the smallest buffer, at most 256") {
  LaunchPlan plan;
  plan.arguments = {Buffer(ScalarType::kF32, Fill::kZeros, 1000)};
  CHECK(IndexLimit(plan) == 256);
  plan.arguments.push_back(Buffer(ScalarType::kF32, Fill::kZeros, 10));
  CHECK(IndexLimit(plan) == 10);
}

}  // namespace
}  // namespace ops_debug::runner
