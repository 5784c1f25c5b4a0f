#include "analysis/validate/operator_plan.h"

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include <algorithm>
#include <filesystem>

#include "analysis/validate/provider_process.h"
#include "analysis/validate/tensor_values.h"
#include "proto/tensor_file.h"

namespace ops_debug::analysis {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMostElements = int64_t{1} << 36;

// An input as far as it is known before the operator is asked.
struct KnownInput {
  std::string name;  // empty: the first that has no other name
  std::optional<std::vector<int64_t>> shape;
  std::string dtype, contents;
  proto::Tensor given;
};

// "groups=32" is a number, "mode=same" a text, "padding=[1,1]" a list.
Json AttributeValue(const std::string& text) {
  Json value = Json::parse(text, nullptr, false);
  return value.is_discarded() ? Json(text) : value;
}

absl::StatusOr<proto::Tensor> ReadInputFile(const std::string& name, const std::string& path,
                                            const std::string& key) {
  const absl::StatusOr<proto::TensorSet> set = proto::ReadTensors(path);
  if (!set.ok()) return absl::InvalidArgumentError(set.status().message());
  std::vector<std::string> names;
  for (const proto::Tensor& tensor : set->tensors) {
    if (set->tensors.size() == 1 || tensor.name == (key.empty() ? name : key)) return tensor;
    names.push_back(tensor.name);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--input ", name, "=", path, ": it holds no tensor \"", key.empty() ? name : key, "\" but ",
      absl::StrJoin(names, ", "), "; say which: --input ", name, "=", path, ":KEY"));
}

// NAME=FILE[:KEY], NAME=SHAPE[:CONTENTS] or NAME=CONTENTS.
absl::StatusOr<KnownInput> ReadInputFlag(const std::string& name, const std::string& value) {
  KnownInput input;
  input.name = name;
  std::error_code error;
  const size_t colon = value.rfind(':');
  const std::string head = value.substr(0, colon);
  const std::string tail = colon == std::string::npos ? "" : value.substr(colon + 1);
  if (std::filesystem::exists(value, error) || std::filesystem::exists(head, error)) {
    const bool whole = std::filesystem::exists(value, error);
    absl::StatusOr<proto::Tensor> tensor =
        ReadInputFile(name, whole ? value : head, whole ? "" : tail);
    if (!tensor.ok()) return tensor.status();
    input.given = *tensor;
    input.given.name = name;
    input.shape = tensor->shape;
    input.dtype = proto::Name(tensor->dtype);
    return input;
  }
  if (IsContents(value)) {
    input.contents = value;
    return input;
  }
  std::vector<int64_t> shape;
  if (ParseShape(head, &shape) && (tail.empty() || IsContents(tail))) {
    input.shape = shape;
    input.contents = tail;
    return input;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--input ", name, "=", value, ": neither a file, nor a shape such as 32x1x3x3, nor contents ",
      "(random, positive, zeros, ones, iota, nan, large, tiny, denormal, mixed, index:N, a "
      "number)"));
}

class Planner {
 public:
  Planner(const Provider& op, const Provider& asked, const ValidateOptions& options)
      : op_(op), asked_(asked), options_(options) {}

  absl::StatusOr<OperatorPlan> Plan(const std::vector<std::vector<int64_t>>& shapes) {
    if (absl::Status status = Gather(shapes); !status.ok()) return status;
    const absl::StatusOr<Json> answer = DescribeOperator(asked_, Question());
    if (!answer.ok()) {
      // Who has said everything needs no description.
      if (known_.empty() || answer.status().code() != absl::StatusCode::kUnimplemented) {
        return answer.status();
      }
      plan_.attributes = attributes_;
      for (const KnownInput& input : known_) {
        if (!input.shape) return answer.status();
        AddInput(input.name, *input.shape, proto::DType::kFloat32);
      }
    } else if (absl::Status status = Take(*answer); !status.ok()) {
      return status;
    }
    if (absl::Status status = Overlay(); !status.ok()) return status;
    return plan_;
  }

 private:
  KnownInput& Known(const std::string& name) {
    for (KnownInput& input : known_) {
      if (input.name == name) return input;
    }
    known_.push_back({.name = name});
    return known_.back();
  }

  // What is known: shapes in order, the book's inputs, --input over both.
  absl::Status Gather(const std::vector<std::vector<int64_t>>& shapes) {
    const OperatorEntry& book = op_.settings;
    for (const OperatorInput& input : book.inputs) {
      known_.push_back({.name = input.name, .dtype = input.dtype, .contents = input.contents});
      if (!input.contents.empty() && !IsContents(input.contents)) {
        return absl::InvalidArgumentError(absl::StrCat(book.place, ": input \"", input.name,
                                                       "\": unknown contents ", input.contents));
      }
    }
    for (size_t i = 0; i < shapes.size(); ++i) {
      if (i >= known_.size()) known_.push_back({});
      known_[i].shape = shapes[i];
    }
    for (const auto& [name, value] : options_.inputs) {
      const absl::StatusOr<KnownInput> flag = ReadInputFlag(name, value);
      if (!flag.ok()) return flag.status();
      KnownInput& input = Known(name);
      if (flag->shape) input.shape = flag->shape;
      if (!flag->dtype.empty()) input.dtype = flag->dtype;
      if (!flag->contents.empty()) input.contents = flag->contents;
      if (flag->given.data != nullptr) input.given = flag->given;
    }
    return Evaluate(book);
  }

  // The book's expressions.
  absl::Status Evaluate(const OperatorEntry& book) {
    ExpressionNames names;
    for (const KnownInput& input : known_) {
      if (input.shape && !input.name.empty()) names.shapes[input.name] = *input.shape;
    }
    if (!known_.empty() && known_[0].shape) names.shapes.emplace("input", *known_[0].shape);
    for (const auto& [name, text] : book.attributes) {
      const absl::StatusOr<int64_t> number = EvaluateExpression(text, names);
      attributes_[name] = number.ok() ? Json(*number) : AttributeValue(text);
    }
    for (const auto& [name, text] : options_.attributes) attributes_[name] = AttributeValue(text);
    for (const auto& [name, value] : attributes_.items()) {
      if (value.is_number_integer()) names.numbers[name] = value.get<int64_t>();
    }
    for (size_t i = 0; i < book.inputs.size(); ++i) {
      if (known_[i].shape || book.inputs[i].shape.empty()) continue;
      std::vector<int64_t> shape;
      for (const std::string& text : book.inputs[i].shape) {
        const absl::StatusOr<int64_t> size = EvaluateExpression(text, names);
        if (!size.ok()) {
          return absl::InvalidArgumentError(absl::StrCat(
              book.place, ": input \"", book.inputs[i].name, "\": ", size.status().message()));
        }
        shape.push_back(*size);
      }
      known_[i].shape = shape;
      names.shapes[known_[i].name] = shape;
    }
    return absl::OkStatus();
  }

  Json Question() const {
    Json inputs = Json::array();
    for (const KnownInput& input : known_) {
      Json item = Json::object();
      if (!input.name.empty()) item["name"] = input.name;
      if (input.shape) item["shape"] = *input.shape;
      if (!input.dtype.empty()) {
        item["dtype"] = input.dtype;
      } else if (options_.dtype) {
        item["dtype"] = proto::Name(*options_.dtype);
      }
      if (input.shape) inputs.push_back(item);
    }
    return {{"inputs", inputs}, {"attributes", attributes_}};
  }

  absl::Status Bad(const std::string& what) const {
    return absl::UnavailableError(
        absl::StrCat(asked_.name, ": its description is not understood: ", what));
  }

  absl::Status Take(const Json& answer) {
    plan_.description = answer.value("description", std::string());
    plan_.attributes = attributes_;
    if (const auto effective = answer.find("attributes");
        effective != answer.end() && effective->is_object()) {
      for (const auto& [name, value] : effective->items()) plan_.attributes[name] = value;
    }
    for (const auto& [name, tolerance] :
         {std::pair{"rtol", &plan_.rtol}, std::pair{"atol", &plan_.atol}}) {
      if (const auto value = answer.find(name); value != answer.end() && value->is_number()) {
        *tolerance = value->get<double>();
      }
    }
    const auto inputs = answer.find("inputs");
    if (inputs == answer.end() || !inputs->is_array()) return Bad("\"inputs\" is no list");
    for (const Json& item : *inputs) {
      if (absl::Status status = TakeInput(item); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::Status TakeInput(const Json& item) {
    if (!item.is_object() || !item.contains("name") || !item["name"].is_string() ||
        !item.contains("shape") || !item["shape"].is_array()) {
      return Bad("an input has no name or no shape: " + item.dump());
    }
    std::vector<int64_t> shape;
    int64_t elements = 1;
    for (const Json& size : item["shape"]) {
      const int64_t number = size.is_number_integer() ? size.get<int64_t>() : -1;
      if (number < 0 || __builtin_mul_overflow(elements, number, &elements) ||
          elements > kMostElements) {
        return Bad("the shape " + item["shape"].dump());
      }
      shape.push_back(number);
    }
    proto::DType dtype = proto::DType::kFloat32;
    const std::string type = item.value("dtype", std::string("float32"));
    if (!proto::ParseDType(type, &dtype)) return Bad("the type " + type);
    InputPlan& input = AddInput(item["name"].get<std::string>(), shape, dtype);
    input.contents = item.value("contents", std::string("random"));
    if (!IsContents(input.contents)) return Bad("the contents " + input.contents);
    input.fixed = item.contains("contents") && input.contents != "random";
    input.differentiable = item.value("differentiable", true) && proto::IsFloating(dtype);
    return absl::OkStatus();
  }

  InputPlan& AddInput(const std::string& name, const std::vector<int64_t>& shape,
                      proto::DType dtype) {
    InputPlan input;
    input.name = name.empty() ? absl::StrCat("input", plan_.inputs.size()) : name;
    input.shape = shape;
    input.dtype = dtype;
    plan_.inputs.push_back(input);
    return plan_.inputs.back();
  }

  // The user's word is the last.
  absl::Status Overlay() {
    for (size_t i = 0; i < known_.size(); ++i) {
      const KnownInput& known = known_[i];
      const auto input =
          known.name.empty()
              ? (i < plan_.inputs.size() ? plan_.inputs.begin() + static_cast<long>(i)
                                         : plan_.inputs.end())
              : std::find_if(plan_.inputs.begin(), plan_.inputs.end(),
                             [&](const InputPlan& plan) { return plan.name == known.name; });
      if (input == plan_.inputs.end()) return Unknown(known, i);
      if (known.given.data != nullptr) {
        input->given = known.given;
        input->shape = known.given.shape;
        input->dtype = known.given.dtype;
        continue;
      }
      if (known.shape) input->shape = *known.shape;
      proto::DType dtype;
      if (!known.dtype.empty() && proto::ParseDType(known.dtype, &dtype)) input->dtype = dtype;
      if (!known.contents.empty()) {
        input->contents = known.contents;
        input->fixed = true;
      }
    }
    for (InputPlan& input : plan_.inputs) {
      const bool typed = input.given.data != nullptr || !proto::IsFloating(input.dtype);
      if (options_.dtype && !typed) input.dtype = *options_.dtype;
    }
    return absl::OkStatus();
  }

  absl::Status Unknown(const KnownInput& known, size_t position) const {
    std::vector<std::string> names;
    for (const InputPlan& input : plan_.inputs) names.push_back(input.name);
    const std::string there = absl::StrCat(asked_.name, " takes ", plan_.inputs.size(),
                                           " inputs: ", absl::StrJoin(names, ", "));
    return absl::InvalidArgumentError(
        known.name.empty()
            ? absl::StrCat("--input-shape number ", position + 1, " belongs to no input; ", there)
            : absl::StrCat("--input ", known.name, ": no such input; ", there));
  }

  const Provider& op_;
  const Provider& asked_;
  const ValidateOptions& options_;
  std::vector<KnownInput> known_;
  Json attributes_ = Json::object();
  OperatorPlan plan_;
};

}  // namespace

absl::StatusOr<OperatorPlan> PlanOperator(const Provider& op, const Provider& reference,
                                          const ValidateOptions& options,
                                          const std::vector<std::vector<int64_t>>& shapes) {
  if (op.command.empty() && reference.command.empty()) return OperatorPlan{};
  const Provider& asked = op.command.empty() ? reference : op;
  if (shapes.empty() && options.inputs.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the shape of the input of ", asked.name,
                     " is not known: give --input-shape 1x32x224x224, or --input NAME=FILE"));
  }
  return Planner(op, asked, options).Plan(shapes);
}

std::vector<proto::Tensor> MakeInputs(const OperatorPlan& plan, uint64_t seed) {
  std::vector<proto::Tensor> tensors;
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    const InputPlan& input = plan.inputs[i];
    if (input.given.data != nullptr) {
      tensors.push_back(input.given);
      tensors.back().name = input.name;
      continue;
    }
    tensors.push_back(TensorOf(input.name, input.dtype, input.shape, MakeContents(input, i, seed)));
  }
  return tensors;
}

}  // namespace ops_debug::analysis
