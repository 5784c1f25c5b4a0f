#include "analysis/reference/serve.h"

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "analysis/validate/tensor_values.h"
#include "proto/provider.h"

namespace ops_debug::reference {
namespace {

using Json = nlohmann::json;
using proto::DType;
using proto::Tensor;

// `names`, in the caller's order, as places among the operator's inputs.
absl::StatusOr<std::vector<size_t>> Bind(const Operator& op,
                                         const std::vector<std::string>& names) {
  std::vector<std::string> known;
  for (const InputSpec& input : op.inputs) {
    known.push_back(input.optional ? input.name + " (optional)" : input.name);
  }
  if (names.size() > op.inputs.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        op.name, ": ", names.size(), " inputs are given; it takes ", absl::StrJoin(known, ", ")));
  }
  std::vector<size_t> by_name, by_order;
  for (const std::string& name : names) {
    by_order.push_back(by_order.size());
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      if (op.inputs[i].name == name) by_name.push_back(i);
    }
  }
  return by_name.size() == names.size() ? by_name : by_order;
}

std::string MissingInput(const Operator& op, size_t place) {
  std::vector<std::string> known;
  for (const InputSpec& input : op.inputs) {
    known.push_back(input.optional ? input.name + " (optional)" : input.name);
  }
  return absl::StrCat(op.name, ": input '", op.inputs[place].name, "' is missing; it takes ",
                      absl::StrJoin(known, ", "));
}

Plan EmptyPlan(const Operator& op, Attributes attributes) {
  Plan plan;
  plan.inputs.resize(op.inputs.size());
  for (const InputSpec& input : op.inputs) plan.contents.push_back(input.contents);
  plan.attributes = std::move(attributes);
  return plan;
}

bool IsComplex(DType dtype) { return dtype == DType::kComplex64 || dtype == DType::kComplex128; }

DType ResultTypeOf(const Operator& op, const std::vector<DType>& inputs) {
  if (op.result == ResultType::kInteger) return DType::kInt64;
  for (DType dtype : inputs) {
    if (proto::IsFloating(dtype)) return dtype;
  }
  return op.result == ResultType::kAsInputs && !inputs.empty() ? inputs[0] : DType::kFloat64;
}

const std::string* Find(const std::map<std::string, std::string>& metadata, const char* name) {
  const auto found = metadata.find(name);
  return found == metadata.end() ? nullptr : &found->second;
}

absl::StatusOr<Attributes> ReadAttributes(const Operator& op,
                                          const std::map<std::string, std::string>& metadata) {
  const std::string* text = Find(metadata, proto::kMetadataAttributes);
  const Json given = text == nullptr ? Json::object() : Json::parse(*text, nullptr, false);
  if (given.is_discarded()) {
    return absl::InvalidArgumentError(
        absl::StrCat(op.name, ": the attributes are no JSON: ", *text));
  }
  return Attributes::Read(op.name, op.attributes, given);
}

// What the caller calls the outputs; those that it does not name are "output0", ...
std::vector<std::string> OutputNames(const std::map<std::string, std::string>& metadata,
                                     size_t count) {
  std::vector<std::string> names;
  const std::string* text = Find(metadata, proto::kMetadataOutputs);
  const Json given = text == nullptr ? Json::array() : Json::parse(*text, nullptr, false);
  for (size_t i = 0; i < count; ++i) {
    const bool named = given.is_array() && i < given.size() && given[i].is_array() &&
                       !given[i].empty() && given[i][0].is_string();
    names.push_back(named ? given[i][0].get<std::string>() : absl::StrCat("output", i));
  }
  return names;
}

struct Request {
  std::vector<const Tensor*> inputs, cotangents;
  std::vector<size_t> places;  // of inputs among the operator's
  bool gradients = false;
  bool float64 = false;
};

absl::StatusOr<Request> ReadRequest(const Operator& op, const proto::TensorSet& set) {
  Request request;
  std::vector<std::string> names;
  for (const Tensor& tensor : set.tensors) {
    const bool cotangent = absl::StartsWith(tensor.name, proto::kCotangentPrefix);
    (cotangent ? request.cotangents : request.inputs).push_back(&tensor);
    if (!cotangent) names.push_back(tensor.name);
    if (IsComplex(tensor.dtype)) {
      return absl::UnimplementedError(absl::StrCat(
          op.name, ": ", tensor.name, " is complex; the references compute with real numbers"));
    }
  }
  absl::StatusOr<std::vector<size_t>> places = Bind(op, names);
  if (!places.ok()) return places.status();
  request.places = *std::move(places);
  const std::string* gradients = Find(set.metadata, proto::kMetadataGradients);
  request.gradients = gradients != nullptr && *gradients == "1";
  const std::string* precision = Find(set.metadata, proto::kMetadataPrecision);
  request.float64 = precision != nullptr && *precision == "float64";
  if (request.gradients && !op.differentiate) {
    return absl::UnimplementedError(absl::StrCat("builtin:", op.name, " has no gradients"));
  }
  return request;
}

absl::Status AddCotangents(const Operator& op, const Request& request, const Plan& plan,
                           Evaluation* evaluation) {
  for (size_t i = 0; i < plan.outputs.size(); ++i) {
    if (i >= request.cotangents.size()) {
      return absl::InvalidArgumentError(absl::StrCat(op.name, ": gradients are asked for, but ",
                                                     proto::kCotangentPrefix, "output", i,
                                                     " is missing"));
    }
    const Tensor& tensor = *request.cotangents[i];
    if (tensor.ElementCount() != ElementCount(plan.outputs[i])) {
      return BadShape(op.name, absl::StrCat(tensor.name, " is ", ShapeText(tensor.shape),
                                            ", but the output is ", ShapeText(plan.outputs[i])));
    }
    evaluation->cotangents.push_back({plan.outputs[i], analysis::ElementValues(tensor)});
  }
  return absl::OkStatus();
}

absl::Status Evaluate(const Operator& op, const Request& request, const Plan& plan,
                      Evaluation* evaluation) {
  evaluation->inputs.resize(op.inputs.size());
  evaluation->gradients.resize(op.inputs.size());
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    const Tensor& tensor = *request.inputs[i];
    const size_t place = request.places[i];
    evaluation->inputs[place] = Array{tensor.shape, analysis::ElementValues(tensor)};
    if (request.gradients && op.inputs[place].differentiable && proto::IsFloating(tensor.dtype)) {
      evaluation->gradients[place] = Array::Zeros(tensor.shape);
    }
  }
  for (const Shape& shape : plan.outputs) evaluation->outputs.push_back(Array::Zeros(shape));
  if (absl::Status status = op.compute(plan, *evaluation); !status.ok()) return status;
  if (!request.gradients) return absl::OkStatus();
  if (absl::Status status = AddCotangents(op, request, plan, evaluation); !status.ok()) {
    return status;
  }
  return op.differentiate(plan, *evaluation);
}

// Shapes of the question's inputs, in its order.
absl::Status ReadQuestion(const Operator& op, const Json& question, Plan* plan,
                          std::vector<DType>* types) {
  types->assign(op.inputs.size(), DType::kFloat32);
  const Json inputs = question.value("inputs", Json::array());
  std::vector<std::string> names;
  for (const Json& input : inputs) {
    const bool fits = input.is_object() && input.contains("shape") && input["shape"].is_array();
    if (!fits) return BadShape(op.name, absl::StrCat("no shape in ", input.dump()));
    names.push_back(input.value("name", std::string()));
  }
  const absl::StatusOr<std::vector<size_t>> places = Bind(op, names);
  if (!places.ok()) return places.status();
  if (places->empty() || !std::count(places->begin(), places->end(), 0u)) {
    return absl::InvalidArgumentError(MissingInput(op, 0));
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const size_t place = (*places)[i];
    const Shape shape = inputs[i]["shape"].get<Shape>();
    if (std::any_of(shape.begin(), shape.end(), [](int64_t size) { return size < 0; })) {
      return BadShape(op.name, absl::StrCat("shape ", ShapeText(shape), " has a negative size"));
    }
    plan->inputs[place] = shape;
    DType dtype = (*types)[0];
    const std::string text = inputs[i].value("dtype", std::string());
    if (!text.empty() && !proto::ParseDType(text, &dtype)) {
      return absl::InvalidArgumentError(absl::StrCat(op.name, ": unknown type ", text));
    }
    if (place == 0) std::fill(types->begin(), types->end(), dtype);
    (*types)[place] = dtype;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<proto::TensorSet> Answer(const Operator& op, const proto::TensorSet& set) {
  const absl::StatusOr<Request> request = ReadRequest(op, set);
  if (!request.ok()) return request.status();
  absl::StatusOr<Attributes> attributes = ReadAttributes(op, set.metadata);
  if (!attributes.ok()) return attributes.status();
  Plan plan = EmptyPlan(op, *std::move(attributes));
  std::vector<DType> types;
  for (size_t i = 0; i < request->inputs.size(); ++i) {
    plan.inputs[request->places[i]] = request->inputs[i]->shape;
    types.push_back(request->inputs[i]->dtype);
  }
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    if (!plan.inputs[i] && !op.inputs[i].optional) {
      return absl::InvalidArgumentError(MissingInput(op, i));
    }
  }
  if (absl::Status status = op.plan(plan); !status.ok()) return status;
  Evaluation evaluation;
  if (absl::Status status = Evaluate(op, *request, plan, &evaluation); !status.ok()) return status;

  proto::TensorSet answer;
  const DType result = ResultTypeOf(op, types);
  const DType type = request->float64 && result != DType::kInt64 ? DType::kFloat64 : result;
  const std::vector<std::string> names = OutputNames(set.metadata, plan.outputs.size());
  for (size_t i = 0; i < names.size(); ++i) {
    const Array& output = evaluation.outputs[i];
    answer.tensors.push_back(analysis::TensorOf(names[i], type, output.shape, output.values));
  }
  for (size_t i = 0; i < request->inputs.size(); ++i) {
    const auto& gradient = evaluation.gradients[request->places[i]];
    if (!gradient) continue;
    const Tensor& input = *request->inputs[i];
    answer.tensors.push_back(analysis::TensorOf(proto::kGradientPrefix + input.name,
                                                request->float64 ? DType::kFloat64 : input.dtype,
                                                gradient->shape, gradient->values));
  }
  answer.metadata[proto::kMetadataDescription] =
      absl::StrCat("builtin:", op.name, " in float64 on the CPU");
  return answer;
}

absl::StatusOr<Json> Describe(const Operator& op, const Json& question) {
  absl::StatusOr<Attributes> attributes =
      Attributes::Read(op.name, op.attributes, question.value("attributes", Json::object()));
  if (!attributes.ok()) return attributes.status();
  Plan plan = EmptyPlan(op, *std::move(attributes));
  std::vector<DType> types;
  if (absl::Status status = ReadQuestion(op, question, &plan, &types); !status.ok()) return status;
  if (absl::Status status = op.plan(plan); !status.ok()) return status;
  Json inputs = Json::array(), outputs = Json::array();
  std::vector<DType> given;
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    if (!plan.inputs[i]) {
      if (!op.inputs[i].optional) return absl::InvalidArgumentError(MissingInput(op, i));
      continue;
    }
    const bool is_index = absl::StartsWith(plan.contents[i], "index:");
    const DType type = is_index && proto::IsFloating(types[i]) ? DType::kInt64 : types[i];
    given.push_back(type);
    inputs.push_back({{"name", op.inputs[i].name},
                      {"shape", *plan.inputs[i]},
                      {"dtype", proto::Name(type)},
                      {"contents", plan.contents[i]},
                      {"differentiable", op.inputs[i].differentiable && !is_index}});
  }
  for (size_t i = 0; i < plan.outputs.size(); ++i) {
    outputs.push_back(Json::array(
        {absl::StrCat("output", i), plan.outputs[i], proto::Name(ResultTypeOf(op, given))}));
  }
  return Json{{"description", absl::StrCat("builtin:", op.name, ": ", op.summary)},
              {"inputs", inputs},
              {"outputs", outputs},
              {"attributes", plan.attributes.Told(op.attributes)},
              {"gradients", static_cast<bool>(op.differentiate)}};
}

}  // namespace ops_debug::reference
