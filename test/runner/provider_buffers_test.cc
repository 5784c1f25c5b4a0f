#include "runner/provider_buffers.h"

#include <catch2/catch.hpp>
#include <cstring>

namespace ops_debug::runner {
namespace {

using Catch::Matchers::Contains;
using proto::DType;

ArgumentPlan Buffer(const char* type, const Shape& shape) {
  ArgumentPlan buffer;
  buffer.parameter.name = "x";
  buffer.parameter.type = ParseType(type);
  buffer.is_buffer = true;
  buffer.element = buffer.parameter.type.element;
  buffer.shape = shape;
  return buffer;
}

proto::Tensor TensorOf(DType dtype, const Shape& shape) {
  proto::Tensor tensor;
  tensor.name = "input";
  tensor.dtype = dtype;
  tensor.shape = shape;
  return tensor;
}

TEST_CASE("provider: a buffer of float4 is a tensor of four times as many floats") {
  const Element float4 = {ScalarType::kF32, 4};
  CHECK(ScalarShape({2, 8}, float4) == Shape{2, 32});
  CHECK(*ElementShape({2, 32}, float4) == Shape{2, 8});
  CHECK_THAT(std::string(ElementShape({2, 30}, float4).status().message()),
             Contains("no multiple of the 4 lanes"));
}

TEST_CASE("provider: a scalar tensor is a buffer of one element") {
  CHECK(*ElementShape({}, {ScalarType::kF32, 1}) == Shape{1});
}

TEST_CASE("provider: elements of another type are refused with what to pass") {
  const absl::Status status =
      CheckFits(TensorOf(DType::kFloat16, {8}), Buffer("float const*", {8}), "k");
  CHECK(status.code() == absl::StatusCode::kUnimplemented);
  CHECK(status.message() ==
        "k: input is float16, but parameter x is float const* (float32): pass --dtype float32 or a "
        "kernel of that type");
}

TEST_CASE("provider: another shape than planned is refused") {
  const absl::Status status =
      CheckFits(TensorOf(DType::kFloat32, {9}), Buffer("float const*", {8}), "k");
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(status.message()),
             Contains("input is 9, but parameter x is planned as 8"));
}

TEST_CASE("provider: an untyped pointer takes what has its width") {
  ArgumentPlan buffer = Buffer("void const*", {8});
  buffer.element = {ScalarType::kU8, 1};
  CHECK(CheckFits(TensorOf(DType::kFloat8E4M3, {8}), buffer, "k").ok());
  CHECK_FALSE(CheckFits(TensorOf(DType::kFloat16, {8}), buffer, "k").ok());
}

TEST_CASE("provider: strided tensors are packed") {
  const float values[] = {1, 2, 3, 4};
  proto::Tensor tensor = TensorOf(DType::kFloat32, {2, 2});
  tensor.strides = {1, 2};
  tensor.data = reinterpret_cast<const std::byte*>(values);
  const std::vector<std::byte> bytes = DenseBytes(tensor);
  float packed[4];
  REQUIRE(bytes.size() == sizeof packed);
  std::memcpy(packed, bytes.data(), sizeof packed);
  CHECK((packed[0] == 1 && packed[1] == 3 && packed[2] == 2 && packed[3] == 4));
}

TEST_CASE("provider: a shape completes what the launch comment says and never replaces it") {
  LaunchRequest request;
  request.arguments = {{"a", "nan"}, {"b", "shape:n,1"}};
  REQUIRE(AddShape("a", {4, 2}, &request).ok());
  REQUIRE(AddShape("b", {4, 2}, &request).ok());
  REQUIRE(AddShape("c", {4, 2}, &request).ok());
  CHECK(request.arguments["a"] == "nan:shape:4x2");
  CHECK(request.arguments["b"] == "shape:n,1");
  CHECK(request.arguments["c"] == "shape:4x2");
}

TEST_CASE("provider: attributes of a comment are numbers, expressions or words") {
  LaunchPlan plan;
  plan.arguments = {Buffer("float const*", {2, 32})};
  CHECK(AttributeValue("0.5", plan) == 0.5);
  CHECK(AttributeValue("true", plan) == true);
  CHECK(AttributeValue("x.dim1/2", plan) == 16);
  CHECK(AttributeValue("x.dim0,1", plan) == nlohmann::json{2, 1});
  CHECK(AttributeValue("same", plan) == "same");
}

TEST_CASE("provider: a list of equal numbers is a scalar's value, another list is not") {
  CHECK(ScalarText({1, 1}) == "1");
  CHECK(ScalarText(true) == "1");
  CHECK_FALSE(ScalarText({1, 2}).has_value());
}

TEST_CASE("provider: the usual names of gradients") {
  for (const char* name : {"grad_q", "d_q", "dq", "q_grad"}) CHECK(IsGradientName(name, "q"));
  CHECK_FALSE(IsGradientName("grad_k", "q"));
}

}  // namespace
}  // namespace ops_debug::runner
