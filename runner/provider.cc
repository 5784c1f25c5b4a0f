// Three names for one buffer: the kernel's parameter, what the request calls it, what it is to the
// operator. Requests name inputs as the description did; others belong to the parameters in order.
#include "runner/provider.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <utility>

#include "proto/provider.h"
#include "proto/tensor_file.h"
#include "runner/kernel_file.h"
#include "runner/provider_buffers.h"
#include "runner/tensor_data.h"
#include "runner/text.h"

namespace ops_debug::runner {
namespace {

using Json = nlohmann::json;
using proto::Tensor;

// A buffer between launches.
struct Stored {
  ArgumentPlan buffer;
  std::vector<std::byte> bytes;
  bool written = false;
};
using Store = std::map<std::string, Stored>;  // by parameter name

struct GivenInput {
  std::string name;  // may be empty
  Shape shape;       // in scalars
};

// Copies what was said about an input of this element type into the launch request.
absl::Status GiveShape(const Parameter& parameter, const Shape& shape, LaunchRequest* request) {
  absl::StatusOr<Shape> elements = ElementShape(shape, parameter.type.element);
  if (!elements.ok()) {
    return absl::InvalidArgumentError(StrCat(parameter.name, ": ", elements.status().message()));
  }
  return AddShape(parameter.name, *elements, request);
}

// Pointers that an operator reads: to const, or said to be read; all, if none is.
std::vector<Parameter> InputParameters(const Entry& entry, const LaunchRequest& request) {
  std::vector<Parameter> inputs, all;
  for (const Parameter& parameter : entry.parameters) {
    if (!parameter.type.IsPointer()) continue;
    bool is_input = parameter.type.pointee_const;
    if (const auto given = request.arguments.find(parameter.name);
        given != request.arguments.end()) {
      absl::StatusOr<BufferValue> value = ParseBufferValue(given->second);
      if (value.ok() && value->null) continue;
      if (value.ok() && value->role) {
        is_input = *value->role == BufferRole::kInput || *value->role == BufferRole::kInOut;
        if (*value->role == BufferRole::kScratch) continue;
      }
    }
    all.push_back(parameter);
    if (is_input) inputs.push_back(parameter);
  }
  return inputs.empty() ? all : inputs;
}

// Places among `parameters`, by name if every name is one of theirs, else in order.
absl::StatusOr<std::vector<size_t>> Bind(const std::string& kernel,
                                         const std::vector<Parameter>& parameters,
                                         const std::vector<std::string>& names) {
  std::vector<std::string> known;
  for (const Parameter& parameter : parameters) known.push_back(parameter.name);
  if (names.size() > known.size()) {
    return absl::InvalidArgumentError(StrCat(kernel, ": ", names.size(),
                                             " inputs are given, but the kernel reads ",
                                             known.size(), " (", StrJoin(known, ", "), ")"));
  }
  std::vector<size_t> by_name, by_order;
  for (const std::string& name : names) {
    by_order.push_back(by_order.size());
    const auto found = std::find(known.begin(), known.end(), name);
    if (found != known.end()) by_name.push_back(static_cast<size_t>(found - known.begin()));
  }
  return by_name.size() == names.size() ? by_name : by_order;
}

Json ParseObject(const std::string& text) {
  Json value = Json::parse(text, nullptr, false);
  return value.is_object() ? value : Json::object();
}

const std::string& Metadata(const proto::TensorSet& set, const char* name) {
  static const std::string kNothing;
  const auto found = set.metadata.find(name);
  return found == set.metadata.end() ? kNothing : found->second;
}

// An operator: a kernel, and the kernels of its gradients.
class KernelOperator {
 public:
  static absl::StatusOr<KernelOperator> Open(const Options& options);

  absl::StatusOr<Json> Describe(const Json& question);
  absl::StatusOr<proto::TensorSet> Answer(const proto::TensorSet& request);

 private:
  KernelOperator(const Options& options, KernelFile file, Entry entry,
                 std::unique_ptr<Device> device)
      : options_(options),
        file_(std::move(file)),
        entry_(std::move(entry)),
        device_(std::move(device)) {}

  LaunchRequest BaseRequest(const Entry& entry) const;
  absl::StatusOr<LaunchRequest> ForwardRequest(const std::vector<GivenInput>& inputs,
                                               const Json& attributes) const;
  absl::Status AddOutputs(const std::string& outputs, LaunchRequest* request) const;
  absl::Status CheckAttributes(const Json& given, const LaunchPlan& plan) const;
  Json EffectiveAttributes(const Json& given, const LaunchPlan& plan) const;
  absl::StatusOr<std::vector<size_t>> BindInputs(const std::vector<const Tensor*>& inputs) const;
  absl::Status LaunchInto(const LaunchPlan& plan, Store* store);
  absl::Status Backward(const LaunchPlan& forward, const std::vector<const Tensor*>& cotangents,
                        Store* store);
  absl::StatusOr<LaunchRequest> BackwardRequest(const Entry& entry, const LaunchPlan& forward,
                                                const Store& store) const;

  const Options& options_;
  KernelFile file_;
  Entry entry_;
  std::unique_ptr<Device> device_;
  std::vector<Entry> backward_;
};

absl::StatusOr<KernelOperator> KernelOperator::Open(const Options& options) {
  absl::StatusOr<SourceScan> scan = ScanFile(options.kernel);
  if (!scan.ok()) return scan.status();
  if (scan->has_main) {
    return absl::InvalidArgumentError(
        StrCat(options.kernel,
               " has a main(): it is a program, not an operator\n  hint: give a "
               "file with the kernel alone"));
  }
  absl::StatusOr<std::unique_ptr<Device>> device = Device::Open();
  if (!device.ok()) return device.status();
  const CompileOptions compile = CompileOptionsFor(**device, options);
  absl::StatusOr<KernelFile> file = LoadKernelFile(options.kernel, *std::move(scan), compile);
  if (!file.ok()) return file.status();
  absl::StatusOr<Entry> entry = EntryOf(*file, options.entry);
  if (!entry.ok()) return entry.status();
  KernelOperator op(options, *std::move(file), *std::move(entry), *std::move(device));
  std::vector<std::string> backward = options.backward;
  const std::string comment = CommentValue(op.file_, op.entry_, "backward");
  if (backward.empty() && !comment.empty()) {
    for (std::string_view name : StrSplit(comment, ",")) backward.emplace_back(name);
  }
  for (const std::string& name : backward) {
    absl::StatusOr<Entry> kernel = EntryOf(op.file_, name);
    if (!kernel.ok()) {
      return absl::InvalidArgumentError(StrCat("backward: ", kernel.status().message()));
    }
    op.backward_.push_back(*std::move(kernel));
  }
  return op;
}

LaunchRequest KernelOperator::BaseRequest(const Entry& entry) const {
  LaunchRequest request;
  if (entry.name == entry_.name) request = options_.launch;  // the command line is about this one
  ApplyComments(file_, entry, &request);
  return request;
}

absl::StatusOr<LaunchRequest> KernelOperator::ForwardRequest(const std::vector<GivenInput>& inputs,
                                                             const Json& attributes) const {
  LaunchRequest request = BaseRequest(entry_);
  for (const auto& [name, value] : attributes.items()) {
    const std::optional<std::string> text = ScalarText(value);
    if (text) request.attributes[name] = *text;
  }
  if (inputs.size() == 1 && inputs[0].name.empty()) {  // stands for all, as --input-shape does
    const std::vector<Parameter> parameters = InputParameters(entry_, request);
    const Element element = parameters.empty() ? Element() : parameters[0].type.element;
    absl::StatusOr<Shape> shape = ElementShape(inputs[0].shape, element);
    if (!shape.ok()) return shape.status();
    request.input_shapes = {*shape};
    return request;
  }
  const std::vector<Parameter> parameters = InputParameters(entry_, request);
  std::vector<std::string> names;
  for (const GivenInput& input : inputs) names.push_back(input.name);
  absl::StatusOr<std::vector<size_t>> places = Bind(entry_.name, parameters, names);
  if (!places.ok()) return places.status();
  for (size_t i = 0; i < inputs.size(); ++i) {
    absl::Status status = GiveShape(parameters[(*places)[i]], inputs[i].shape, &request);
    if (!status.ok()) return status;
  }
  return request;
}

// Shapes that the caller knows, for outputs that no rule and no comment has one for.
absl::Status KernelOperator::AddOutputs(const std::string& outputs, LaunchRequest* request) const {
  const Json known = Json::parse(outputs, nullptr, false);
  if (!known.is_array()) return absl::OkStatus();
  const std::vector<Parameter> inputs = InputParameters(entry_, *request);
  size_t next = 0;
  for (const Parameter& parameter : entry_.parameters) {
    const bool is_output = parameter.type.IsPointer() &&
                           std::none_of(inputs.begin(), inputs.end(), [&](const Parameter& input) {
                             return input.name == parameter.name;
                           });
    if (!is_output || next >= known.size()) continue;
    const Json& output = known[next++];
    if (!output.is_array() || output.size() < 2 || !output[1].is_array()) continue;
    absl::Status status = GiveShape(parameter, output[1].get<Shape>(), request);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

// An attribute that the comment states and no scalar carries is part of the kernel's code.
absl::Status KernelOperator::CheckAttributes(const Json& given, const LaunchPlan& plan) const {
  const LaunchRequest request = BaseRequest(entry_);
  for (const auto& [name, text] : request.attributes) {
    const bool is_parameter = std::any_of(plan.arguments.begin(), plan.arguments.end(),
                                          [&, &name = name](const ArgumentPlan& argument) {
                                            return argument.parameter.name == name;
                                          });
    if (is_parameter || !given.contains(name)) continue;
    const Json stated = AttributeValue(text, plan);
    const Json& asked = given[name];
    if (stated == asked || ScalarText(stated) == ScalarText(asked)) continue;
    return absl::UnimplementedError(StrCat(entry_.name, " is written for ", name, "=",
                                           stated.dump(), " (launch comment); it cannot take ",
                                           asked.dump()));
  }
  return absl::OkStatus();
}

Json KernelOperator::EffectiveAttributes(const Json& given, const LaunchPlan& plan) const {
  Json attributes = given;
  for (const auto& [name, text] : BaseRequest(entry_).attributes) {
    if (!attributes.contains(name)) attributes[name] = AttributeValue(text, plan);
  }
  return attributes;
}

absl::StatusOr<Json> KernelOperator::Describe(const Json& question) {
  std::vector<GivenInput> inputs;
  for (const Json& input : question.value("inputs", Json::array())) {
    inputs.push_back({input.value("name", std::string()), input.at("shape").get<Shape>()});
  }
  const Json given = question.value("attributes", Json::object());
  absl::StatusOr<LaunchRequest> request = ForwardRequest(inputs, given);
  if (!request.ok()) return request.status();
  absl::StatusOr<LaunchPlan> plan = PlanLaunch(entry_, *request);
  if (!plan.ok()) return plan.status();
  if (absl::Status status = CheckAttributes(given, *plan); !status.ok()) return status;
  Json described_inputs = Json::array(), outputs = Json::array();
  for (const ArgumentPlan& argument : plan->arguments) {
    if (!argument.is_buffer) continue;
    const Shape shape = ScalarShape(argument.shape, argument.element);
    const char* dtype = proto::Name(DTypeOf(argument.element.scalar));
    const bool floating = IsFloating(argument.element.scalar);
    if (argument.is_input) {
      static constexpr const char* kContents[] = {"random", "zeros", "ones", "iota", "nan"};
      const bool index = !floating && argument.fill == Fill::kRandom;
      described_inputs.push_back(
          {{"name", argument.parameter.name},
           {"shape", shape},
           {"dtype", dtype},
           {"contents", index ? StrCat("index:", IndexLimit(*plan))
                              : kContents[static_cast<size_t>(argument.fill)]},
           {"differentiable", floating}});
    }
    if (argument.is_output) {
      outputs.push_back(Json::array({argument.parameter.name, shape, dtype}));
    }
  }
  Json answer = {{"description", StrCat(entry_.name, " on ", device_->name())},
                 {"source", file_.path},
                 {"inputs", described_inputs},
                 {"outputs", outputs},
                 {"attributes", EffectiveAttributes(given, *plan)},
                 {"gradients", !backward_.empty()}};
  for (const char* key : {"rtol", "atol"}) {
    const Json tolerance = Json::parse(CommentValue(file_, entry_, key), nullptr, false);
    if (tolerance.is_number()) answer[key] = tolerance;
  }
  return answer;
}

absl::StatusOr<std::vector<size_t>> KernelOperator::BindInputs(
    const std::vector<const Tensor*>& inputs) const {
  std::vector<std::string> names;
  for (const Tensor* tensor : inputs) names.push_back(tensor->name);
  return Bind(entry_.name, InputParameters(entry_, BaseRequest(entry_)), names);
}

// Buffers that the store has come from there, and what the kernel writes goes there.
absl::Status KernelOperator::LaunchInto(const LaunchPlan& plan, Store* store) {
  std::vector<std::vector<std::byte>> contents(plan.arguments.size());
  for (size_t i = 0; i < contents.size(); ++i) {
    const auto found = store->find(plan.arguments[i].parameter.name);
    if (found != store->end()) contents[i] = found->second.bytes;
  }
  absl::StatusOr<LaunchResult> result =
      device_->Launch(file_.ptx, plan, options_.seed, true, contents);
  if (!result.ok()) return result.status();
  for (size_t i = 0; i < contents.size(); ++i) {
    const ArgumentPlan& argument = plan.arguments[i];
    if (!argument.is_buffer || !argument.is_output) continue;
    (*store)[argument.parameter.name] = {argument, std::move(result->contents[i]), true};
  }
  return absl::OkStatus();
}

absl::StatusOr<LaunchRequest> KernelOperator::BackwardRequest(const Entry& entry,
                                                              const LaunchPlan& forward,
                                                              const Store& store) const {
  LaunchRequest request = BaseRequest(entry);
  for (const auto& [name, text] : BaseRequest(entry_).attributes) {
    request.attributes.emplace(name, text);
  }
  for (const Parameter& parameter : entry.parameters) {
    if (!parameter.type.IsPointer()) {
      for (const ArgumentPlan& argument : forward.arguments) {
        if (argument.parameter.name != parameter.name || argument.is_buffer) continue;
        request.arguments.emplace(parameter.name, argument.value_text);
      }
      continue;
    }
    const ArgumentPlan* like = nullptr;
    if (const auto found = store.find(parameter.name); found != store.end()) {
      like = &found->second.buffer;
    }
    for (const ArgumentPlan& argument : forward.arguments) {
      const bool related = argument.is_buffer && like == nullptr &&
                           IsGradientName(parameter.name, argument.parameter.name);
      if (related) like = &argument;
    }
    if (like == nullptr) continue;
    absl::Status status = GiveShape(parameter, ScalarShape(like->shape, like->element), &request);
    if (!status.ok()) return status;
  }
  return request;
}

absl::Status KernelOperator::Backward(const LaunchPlan& forward,
                                      const std::vector<const Tensor*>& cotangents, Store* store) {
  // Cotangents under the names that the kernels read them by.
  size_t next = 0;
  for (const ArgumentPlan& output : forward.arguments) {
    if (!output.is_buffer || !output.is_output) continue;
    if (next == cotangents.size()) {
      return absl::InvalidArgumentError(
          StrCat("no cotangent for output ", output.parameter.name, " of ", entry_.name));
    }
    const Tensor& cotangent = *cotangents[next++];
    if (absl::Status status = CheckFits(cotangent, output, entry_.name); !status.ok()) {
      return status;
    }
    for (const Entry& entry : backward_) {
      for (const Parameter& parameter : entry.parameters) {
        const bool general = parameter.name == "grad_output" || parameter.name == "dout" ||
                             parameter.name == "dy" || parameter.name == "grad_out";
        if (!IsGradientName(parameter.name, output.parameter.name) &&
            !(general && cotangents.size() == 1)) {
          continue;
        }
        (*store)[parameter.name] = {output, DenseBytes(cotangent), false};
      }
    }
  }
  for (const Entry& entry : backward_) {
    absl::StatusOr<LaunchRequest> request = BackwardRequest(entry, forward, *store);
    if (!request.ok()) return request.status();
    absl::StatusOr<LaunchPlan> plan = PlanLaunch(entry, *request);
    if (!plan.ok()) return plan.status();
    if (absl::Status status = LaunchInto(*plan, store); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<proto::TensorSet> KernelOperator::Answer(const proto::TensorSet& request) {
  std::vector<const Tensor*> inputs, cotangents;
  for (const Tensor& tensor : request.tensors) {
    const bool cotangent = tensor.name.starts_with(proto::kCotangentPrefix);
    (cotangent ? cotangents : inputs).push_back(&tensor);
  }
  const bool gradients = Metadata(request, proto::kMetadataGradients) == "1";
  if (gradients && backward_.empty()) {
    return absl::UnimplementedError(
        StrCat(entry_.name,
               " has no gradients: name the kernels that compute them in its launch "
               "comment (// ops-debug: backward=KERNEL) or in ops-debug.yaml"));
  }
  const Json attributes = ParseObject(Metadata(request, proto::kMetadataAttributes));
  absl::StatusOr<std::vector<size_t>> places = BindInputs(inputs);
  if (!places.ok()) return places.status();
  const std::vector<Parameter> parameters = InputParameters(entry_, BaseRequest(entry_));
  std::vector<GivenInput> shapes;
  for (size_t i = 0; i < inputs.size(); ++i) {
    shapes.push_back({parameters[(*places)[i]].name, inputs[i]->shape});
  }
  absl::StatusOr<LaunchRequest> launch = ForwardRequest(shapes, attributes);
  if (!launch.ok()) return launch.status();
  absl::Status status = AddOutputs(Metadata(request, proto::kMetadataOutputs), &*launch);
  if (!status.ok()) return status;
  absl::StatusOr<LaunchPlan> plan = PlanLaunch(entry_, *launch);
  if (!plan.ok()) return plan.status();
  if (status = CheckAttributes(attributes, *plan); !status.ok()) return status;

  Store store;
  for (size_t i = 0; i < inputs.size(); ++i) {
    for (const ArgumentPlan& argument : plan->arguments) {
      if (argument.parameter.name != shapes[i].name) continue;
      if (status = CheckFits(*inputs[i], argument, entry_.name); !status.ok()) return status;
      store[argument.parameter.name] = {argument, DenseBytes(*inputs[i]), false};
    }
  }
  for (const ArgumentPlan& argument : plan->arguments) {
    if (argument.is_buffer && argument.is_input && !store.contains(argument.parameter.name)) {
      return absl::InvalidArgumentError(
          StrCat(entry_.name, ": input ", argument.parameter.name, " is missing"));
    }
  }
  if (status = LaunchInto(*plan, &store); !status.ok()) return status;

  proto::TensorSet answer;
  for (const ArgumentPlan& argument : plan->arguments) {
    if (!argument.is_buffer || !argument.is_output) continue;
    const std::string& name = argument.parameter.name;
    answer.tensors.push_back(TensorFrom(name, argument, store[name].bytes));
  }
  answer.metadata[proto::kMetadataDescription] = StrCat(entry_.name, " on ", device_->name());
  answer.metadata[proto::kMetadataSource] = file_.path;
  if (!gradients) return answer;
  if (status = Backward(*plan, cotangents, &store); !status.ok()) return status;
  for (size_t i = 0; i < inputs.size(); ++i) {
    for (const auto& [name, stored] : store) {
      if (!stored.written || !IsGradientName(name, shapes[i].name)) continue;
      answer.tensors.push_back(
          TensorFrom(StrCat(proto::kGradientPrefix, inputs[i]->name), stored.buffer, stored.bytes));
      break;
    }
  }
  return answer;
}

}  // namespace

absl::Status ServeProvider(const Options& options) {
  Json question;
  if (!options.describe.empty()) {
    question = Json::parse(options.describe, nullptr, false);
    if (!question.is_object()) {
      return absl::InvalidArgumentError(
          StrCat("--describe ", options.describe, ": expected a JSON object\n  hint: ",
                 R"({"inputs": [{"shape": [8, 8]}], "attributes": {}})"));
    }
  }
  absl::StatusOr<KernelOperator> op = KernelOperator::Open(options);
  if (!op.ok()) return op.status();
  try {
    if (!options.describe.empty()) {
      absl::StatusOr<Json> answer = op->Describe(question);
      if (!answer.ok()) return answer.status();
      std::printf("%s\n", answer->dump().c_str());
      return absl::OkStatus();
    }
    for (size_t i = 0; i + 1 < options.program_arguments.size(); i += 2) {
      absl::StatusOr<proto::TensorSet> request = proto::ReadTensors(options.program_arguments[i]);
      if (!request.ok()) return request.status();
      absl::StatusOr<proto::TensorSet> answer = op->Answer(*request);
      if (!answer.ok()) return answer.status();
      absl::Status status = proto::WriteSafetensors(options.program_arguments[i + 1],
                                                    answer->tensors, answer->metadata);
      if (!status.ok()) return status;
    }
  } catch (const Json::exception& error) {  // a question of another form
    return absl::InvalidArgumentError(StrCat("the question has an unexpected form: ", error.what(),
                                             "\n  hint: ops-debug validate asks it right"));
  }
  return absl::OkStatus();
}

}  // namespace ops_debug::runner
