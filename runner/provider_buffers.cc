#include "runner/provider_buffers.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "runner/expression.h"
#include "runner/text.h"

namespace ops_debug::runner {
namespace {

using Json = nlohmann::json;
using proto::DType;
using proto::Tensor;

// Integers by name, and sizes of buffers, of a plan that is complete.
std::optional<int64_t> PlannedNumber(const LaunchPlan& plan, std::string_view name) {
  const size_t dot = name.find('.');
  for (const ArgumentPlan& argument : plan.arguments) {
    if (argument.parameter.name != name.substr(0, dot)) continue;
    int64_t number = 0;
    if (dot == std::string_view::npos) {
      const bool whole = !argument.is_buffer && ParseNumber(argument.value_text, &number);
      return whole ? std::optional(number) : std::nullopt;
    }
    const std::string_view field = name.substr(dot + 1);
    if (field == "size") return ElementCount(argument.shape);
    size_t axis = 0;
    if (field.starts_with("dim") && ParseNumber(field.substr(3), &axis) &&
        axis < argument.shape.size()) {
      return argument.shape[axis];
    }
  }
  return std::nullopt;
}

}  // namespace

DType DTypeOf(ScalarType scalar) {
  switch (scalar) {
    case ScalarType::kBool:
      return DType::kBool;
    case ScalarType::kS8:
      return DType::kInt8;
    case ScalarType::kU8:
      return DType::kUint8;
    case ScalarType::kS16:
      return DType::kInt16;
    case ScalarType::kU16:
      return DType::kUint16;
    case ScalarType::kS32:
      return DType::kInt32;
    case ScalarType::kU32:
      return DType::kUint32;
    case ScalarType::kS64:
      return DType::kInt64;
    case ScalarType::kU64:
      return DType::kUint64;
    case ScalarType::kF16:
      return DType::kFloat16;
    case ScalarType::kBf16:
      return DType::kBfloat16;
    case ScalarType::kF32:
      return DType::kFloat32;
    case ScalarType::kF64:
      return DType::kFloat64;
  }
  return DType::kUint8;
}

Shape ScalarShape(const Shape& shape, const Element& element) {
  Shape scalars = shape;
  if (element.lanes > 1 && !scalars.empty()) scalars.back() *= element.lanes;
  return scalars;
}

absl::StatusOr<Shape> ElementShape(const Shape& shape, const Element& element) {
  Shape elements = shape.empty() ? Shape{1} : shape;  // a scalar is a buffer of one element
  const int64_t lanes = element.lanes;
  if (lanes == 1) return elements;
  if (elements.back() % lanes != 0) {
    return absl::InvalidArgumentError(StrCat("the last dimension of ", ToString(elements),
                                             " is no multiple of the ", lanes, " lanes of ",
                                             element.ToString()));
  }
  elements.back() /= lanes;
  return elements;
}

std::vector<std::byte> DenseBytes(const Tensor& tensor) {
  const size_t width = proto::ElementBytes(tensor.dtype);
  const size_t count = static_cast<size_t>(tensor.ElementCount());
  std::vector<std::byte> bytes(count * width);
  if (tensor.IsDense()) {
    if (!bytes.empty()) std::memcpy(bytes.data(), tensor.data, bytes.size());
    return bytes;
  }
  std::vector<int64_t> index(tensor.shape.size(), 0);
  int64_t offset = 0;  // in elements
  for (size_t i = 0; i < count; ++i) {
    std::memcpy(bytes.data() + i * width, tensor.data + offset * static_cast<int64_t>(width),
                width);
    for (size_t axis = index.size(); axis-- > 0;) {
      offset += tensor.strides[axis];
      if (++index[axis] < tensor.shape[axis]) break;
      offset -= tensor.strides[axis] * tensor.shape[axis];
      index[axis] = 0;
    }
  }
  return bytes;
}

Tensor TensorFrom(const std::string& name, const ArgumentPlan& buffer,
                  std::vector<std::byte> bytes) {
  auto owner = std::make_shared<std::vector<std::byte>>(std::move(bytes));
  Tensor tensor;
  tensor.name = name;
  tensor.dtype = DTypeOf(buffer.element.scalar);
  tensor.shape = ScalarShape(buffer.shape, buffer.element);
  tensor.data = owner->data();
  tensor.owner = owner;
  return tensor;
}

absl::Status CheckFits(const Tensor& tensor, const ArgumentPlan& buffer,
                       const std::string& kernel) {
  const Parameter& parameter = buffer.parameter;
  const DType wanted = DTypeOf(buffer.element.scalar);
  // What is behind an untyped pointer is known by its width only: float8 arrives as u8.
  const bool raw = parameter.type.kind != ParameterType::Kind::kPointer &&
                   !IsFloating(buffer.element.scalar) &&
                   proto::ElementBytes(wanted) == proto::ElementBytes(tensor.dtype);
  const bool same =
      tensor.dtype == wanted || (tensor.dtype == DType::kTf32 && wanted == DType::kFloat32);
  if (!same && !raw) {
    return absl::UnimplementedError(
        StrCat(kernel, ": ", tensor.name, " is ", proto::Name(tensor.dtype), ", but parameter ",
               parameter.name, " is ", parameter.type.text, " (", proto::Name(wanted),
               "): pass --dtype ", proto::Name(wanted), " or a kernel of that type"));
  }
  absl::StatusOr<Shape> shape = ElementShape(tensor.shape, buffer.element);
  if (!shape.ok()) {
    return absl::InvalidArgumentError(
        StrCat(kernel, ": ", tensor.name, ": ", shape.status().message()));
  }
  if (*shape != buffer.shape) {
    return absl::InvalidArgumentError(StrCat(
        kernel, ": ", tensor.name, " is ", ToString(*shape), ", but parameter ", parameter.name,
        " is planned as ", ToString(buffer.shape), " (by the launch comment or its neighbours)"));
  }
  return absl::OkStatus();
}

absl::Status AddShape(const std::string& parameter, const Shape& shape, LaunchRequest* request) {
  std::string& text = request->arguments[parameter];
  if (!text.empty()) {
    absl::StatusOr<BufferValue> value = ParseBufferValue(text);
    if (!value.ok()) return value.status();
    if (!value->shape.empty() || value->null) return absl::OkStatus();
    text += ":";
  }
  text += StrCat("shape:", ToString(shape));
  return absl::OkStatus();
}

std::optional<std::string> ScalarText(const Json& value) {
  if (value.is_boolean()) return value.get<bool>() ? "1" : "0";
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number()) return value.dump();
  const bool uniform =
      value.is_array() && !value.empty() &&
      std::all_of(value.begin(), value.end(), [&](const Json& item) { return item == value[0]; });
  return uniform ? ScalarText(value[0]) : std::nullopt;
}

Json AttributeValue(const std::string& text, const LaunchPlan& plan) {
  Json value = Json::parse(text, nullptr, false);
  if (!value.is_discarded()) return value;
  const NameLookup lookup = [&](std::string_view name) { return PlannedNumber(plan, name); };
  absl::StatusOr<std::vector<int64_t>> numbers = EvaluateList(text, lookup);
  if (!numbers.ok()) return text;
  return numbers->size() == 1 ? Json((*numbers)[0]) : Json(*numbers);
}

bool IsGradientName(std::string_view name, std::string_view of) {
  return name == StrCat("grad_", of) || name == StrCat("d_", of) || name == StrCat("d", of) ||
         name == StrCat(of, "_grad");
}

}  // namespace ops_debug::runner
