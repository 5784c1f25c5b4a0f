// Between tensors, whose elements are scalars, and the buffers of a launch, whose elements may be
// vectors such as float4.
#pragma once

#include <cstddef>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/tensor.h"
#include "runner/launch_plan.h"

namespace ops_debug::runner {

proto::DType DTypeOf(ScalarType scalar);

// The shape in scalars: the last dimension holds the lanes.
Shape ScalarShape(const Shape& shape, const Element& element);
// The other way. Error: the last dimension is no multiple of the lanes, or there is none.
absl::StatusOr<Shape> ElementShape(const Shape& shape, const Element& element);

// What the tensor holds, dense.
std::vector<std::byte> DenseBytes(const proto::Tensor& tensor);
proto::Tensor TensorFrom(const std::string& name, const ArgumentPlan& buffer,
                         std::vector<std::byte> bytes);

// One line if the kernel cannot take the tensor (kUnimplemented for its type, kInvalidArgument for
// its shape).
absl::Status CheckFits(const proto::Tensor& tensor, const ArgumentPlan& buffer,
                       const std::string& kernel);

// Gives `parameter` this shape unless the launch comment has one.
absl::Status AddShape(const std::string& parameter, const Shape& shape, LaunchRequest* request);

// A JSON attribute as the text of a scalar: a list of equal numbers is that number, true is 1.
// Nothing for other lists and objects.
std::optional<std::string> ScalarText(const nlohmann::json& value);

// An attribute of the launch comment: JSON, else an expression over the plan, else a word.
nlohmann::json AttributeValue(const std::string& text, const LaunchPlan& plan);

// Whether a buffer of this name holds the gradient of `of`: grad_x, d_x, dx, x_grad.
bool IsGradientName(std::string_view name, std::string_view of);

}  // namespace ops_debug::runner
