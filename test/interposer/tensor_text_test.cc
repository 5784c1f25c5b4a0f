// What a captured tensor's file says of it.
#include "interposer/tensor_text.h"

#include <bit>
#include <catch2/catch.hpp>
#include <cstring>
#include <nlohmann/json.hpp>

namespace ops_debug::interposer {
namespace {

template <class Value>
std::string Bytes(const std::vector<Value>& values) {
  std::string bytes(values.size() * sizeof(Value), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

TEST_CASE("a signature gives the elements of its pointers") {
  const auto types = ParametersOf(
      "void k<8, (Mode)1>(float const*, __half*, int, s<int*, 3>, double* __restrict__)");
  REQUIRE(types.size() == 5);
  CHECK(types[0].element == "F32");
  CHECK(types[0].is_const);
  CHECK(types[1].element == "F16");
  CHECK_FALSE(types[1].is_const);
  CHECK(types[2].element.empty());
  CHECK(types[3].element.empty());
  CHECK(types[4].element == "F64");
}

TEST_CASE("a name without parameters has none") {
  CHECK(ParametersOf("triton_kernel").empty());
  CHECK(ParametersOf("k()").empty());
  CHECK(ParametersOf("").empty());
}

TEST_CASE("file names hold the kernel's name without its return type") {
  CHECK(FileNameOf("void ns::k<8>(float const*, int)") == "ns__k_8_");
  CHECK(FileNameOf("softmax(float*)") == "softmax");
  CHECK(FileNameOf("triton_kernel") == "triton_kernel");
  CHECK(FileNameOf("../x(int)") == "_.._x");
  CHECK(FileNameOf("") == "_");
  CHECK(FileNameOf(std::string(300, 'a')).size() == 100);
}

TEST_CASE("statistics leave out what is not finite and count it") {
  const auto found =
      nlohmann::json::parse(StatisticsOf("F32", Bytes<float>({1, -3, NAN, INFINITY})));
  CHECK(found["count"] == 4);
  CHECK(found["nan"] == 1);
  CHECK(found["inf"] == 1);
  CHECK(found["min"] == -3);
  CHECK(found["max"] == 1);
  CHECK(found["mean"] == -1);
}

TEST_CASE("narrow floats are decoded") {
  // 1, -2, the smallest subnormal, infinity
  const auto half =
      nlohmann::json::parse(StatisticsOf("F16", Bytes<uint16_t>({0x3c00, 0xc000, 0x0001, 0x7c00})));
  CHECK(half["inf"] == 1);
  CHECK(half["min"] == -2);
  CHECK(half["max"] == 1);
  const auto bfloat =
      nlohmann::json::parse(StatisticsOf("BF16", Bytes<uint16_t>({0x3f80, 0x7fc0})));
  CHECK(bfloat["nan"] == 1);
  CHECK(bfloat["max"] == 1);
}

TEST_CASE("a header can be parsed and its data lies behind a multiple of 8 bytes") {
  const std::string header =
      SafetensorsHeader({{"a\"b", "F32", {2, 3}, 24}, {"c", "U8", {}, 1}}, {{"kernel", "k(\n)"}});
  uint64_t length = 0;
  std::memcpy(&length, header.data(), sizeof length);
  REQUIRE(header.size() == 8 + length);
  CHECK(header.size() % 8 == 0);
  const auto json = nlohmann::json::parse(header.substr(8));
  CHECK(json["__metadata__"]["kernel"] == "k(\n)");
  CHECK(json["a\"b"]["shape"] == nlohmann::json({2, 3}));
  CHECK(json["c"]["data_offsets"] == nlohmann::json({24, 25}));
}

}  // namespace
}  // namespace ops_debug::interposer
