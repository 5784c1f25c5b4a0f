// The order of the rules: what was given, then shapes of inputs, then integers by name, then shapes
// that are expressions over those integers, then shapes of outputs, then block and grid. Problems
// are collected, not returned one by one: the user should need one look to complete a command.
#include "runner/launch_plan.h"

#include <algorithm>
#include <set>

#include "absl/status/status.h"
#include "runner/launch_shape.h"
#include "runner/scalar_bytes.h"
#include "runner/size_rules.h"
#include "runner/text.h"

namespace ops_debug::runner {
namespace {

constexpr std::string_view kAttributePrefix = "attr.";
constexpr uint64_t kMaxBufferBytes = 1ull << 36;

class Planner {
 public:
  Planner(const Entry& entry, const LaunchRequest& request) : request_(request) {
    plan_.entry = entry;
    for (const Parameter& parameter : entry.parameters) {
      ArgumentPlan argument;
      argument.parameter = parameter;
      plan_.arguments.push_back(std::move(argument));
    }
    integers_.resize(plan_.arguments.size());
    roles_.resize(plan_.arguments.size(), SizeRole::kUnknown);
  }

  absl::StatusOr<LaunchPlan> Plan() {
    CheckNames();
    ReadGivenBuffers();
    GiveInputShapes();
    ReadRoles();
    PlanScalars();
    EvaluateShapes();
    GiveOutputShapes();
    SizeBuffers();
    PlanBlock(request_, lookup_, &plan_, &problems_);
    PlanGrid(request_, lookup_, Extent(), &plan_, &problems_);
    PlanSharedBytes();
    if (problems_.empty()) return std::move(plan_);
    std::vector<std::string> names;
    for (const ArgumentPlan& argument : plan_.arguments) names.push_back(argument.parameter.name);
    return absl::InvalidArgumentError(StrCat("cannot complete the launch of ", plan_.entry.name,
                                             "(", StrJoin(names, ", "), "):\n  ",
                                             StrJoin(problems_, "\n  "),
                                             "\n  hint: a comment above the kernel may say it for "
                                             "good: // ops-debug: block=... grid=... NAME=..."));
  }

 private:
  const std::string* Given(const ArgumentPlan& argument) const {
    const auto found = request_.arguments.find(argument.parameter.name);
    if (found != request_.arguments.end()) return &found->second;
    const auto attribute = request_.attributes.find(argument.parameter.name);
    return attribute == request_.attributes.end() ? nullptr : &attribute->second;
  }

  std::string Describe(const ArgumentPlan& argument) const {
    return StrCat("argument ", argument.parameter.name, " (", argument.parameter.type.text, ")");
  }

  void CheckNames() {
    for (const auto& given : request_.arguments) {
      const bool known =
          std::any_of(plan_.arguments.begin(), plan_.arguments.end(),
                      [&](const ArgumentPlan& a) { return a.parameter.name == given.first; });
      if (!known) {
        problems_.push_back(StrCat("--arg ", given.first, ": the kernel has no such parameter"));
      }
    }
  }

  // Pointers, and what was said about them.
  void ReadGivenBuffers() {
    shape_texts_.resize(plan_.arguments.size());
    for (size_t i = 0; i < plan_.arguments.size(); ++i) {
      ArgumentPlan& argument = plan_.arguments[i];
      const ParameterType& type = argument.parameter.type;
      const std::string* given = Given(argument);
      // An opaque 8-byte parameter is a buffer if the user says so: PTX does not tell pointers from
      // integers.
      const bool said_buffer = type.kind == ParameterType::Kind::kOpaque &&
                               argument.parameter.size_bytes == 8 && given != nullptr &&
                               (given->find("shape:") != std::string::npos || *given == "null");
      if (!type.IsPointer() && !said_buffer) continue;
      argument.is_buffer = true;
      argument.is_input = type.pointee_const;
      argument.is_output = !type.pointee_const;
      argument.element = type.element;
      argument.fill = argument.is_input ? Fill::kRandom : Fill::kZeros;
      bool element_known = type.kind == ParameterType::Kind::kPointer;
      if (given != nullptr) {
        absl::StatusOr<BufferValue> value = ParseBufferValue(*given);
        if (!value.ok()) {
          problems_.push_back(
              StrCat("--arg ", argument.parameter.name, ": ", value.status().message()));
          continue;
        }
        if (value->null) {
          argument.is_buffer = false;
          argument.value.assign(8, std::byte{0});
          argument.value_text = "null";
          continue;
        }
        shape_texts_[i] = value->shape;
        if (value->role.has_value()) {
          argument.is_input =
              *value->role == BufferRole::kInput || *value->role == BufferRole::kInOut;
          argument.is_output =
              *value->role == BufferRole::kOutput || *value->role == BufferRole::kInOut;
          argument.fill = argument.is_input ? Fill::kRandom : Fill::kZeros;
        }
        if (value->fill.has_value()) argument.fill = *value->fill;
        if (value->scalar.has_value()) {
          argument.element = {*value->scalar, 1};
          element_known = true;
        }
      }
      if (!element_known) {
        problems_.push_back(StrCat(Describe(argument),
                                   ": its element type is not known\n    pass --arg ",
                                   argument.parameter.name, "=shape:64x64:f32 (or null)"));
      }
    }
  }

  bool HasShape(size_t i) const {
    return !plan_.arguments[i].shape.empty() || !shape_texts_[i].empty();
  }

  void GiveInputShapes() {
    // A shape that is plain numbers is known before any scalar.
    for (size_t i = 0; i < plan_.arguments.size(); ++i) {
      if (shape_texts_[i].empty()) continue;
      absl::StatusOr<Shape> shape = ParseShape(shape_texts_[i]);
      if (shape.ok()) plan_.arguments[i].shape = *shape;
    }
    std::vector<size_t> inputs;
    for (size_t i = 0; i < plan_.arguments.size(); ++i) {
      if (plan_.arguments[i].is_buffer && plan_.arguments[i].is_input) inputs.push_back(i);
    }
    if (inputs.empty()) {  // everything is read and written: the shapes belong to all buffers in
                           // order
      for (size_t i = 0; i < plan_.arguments.size(); ++i) {
        if (plan_.arguments[i].is_buffer) inputs.push_back(i);
      }
      for (size_t i : inputs) plan_.arguments[i].is_input = plan_.arguments[i].is_output;
      in_place_ = true;
    }
    const std::vector<Shape>& shapes = request_.input_shapes;
    for (size_t n = 0; n < inputs.size(); ++n) {
      ArgumentPlan& argument = plan_.arguments[inputs[n]];
      if (HasShape(inputs[n])) continue;
      if (shapes.size() == 1) {
        argument.shape = shapes[0];
      } else if (n < shapes.size()) {
        argument.shape = shapes[n];
      } else {
        problems_.push_back(
            StrCat(Describe(argument), ": no shape\n    pass ",
                   shapes.empty() ? "--input-shape 1024x1024 (for all inputs, or once per input)"
                                  : StrCat("one --input-shape per input (", inputs.size(), ")"),
                   ", or --arg ", argument.parameter.name, "=shape:1024x1024"));
      }
    }
    if (shapes.size() > 1 && shapes.size() > inputs.size()) {
      problems_.push_back(StrCat("--input-shape is given ", shapes.size(),
                                 " times, but the kernel has ", inputs.size(), " inputs"));
    }
    for (size_t i : inputs) {
      const ArgumentPlan& argument = plan_.arguments[i];
      if (!argument.shape.empty()) inputs_.push_back({argument.parameter.name, argument.shape});
    }
  }

  bool IsInteger(const ArgumentPlan& argument) const {
    const ParameterType& type = argument.parameter.type;
    return type.kind == ParameterType::Kind::kScalar && !IsFloating(type.element.scalar) &&
           type.element.scalar != ScalarType::kBool && type.element.lanes == 1;
  }

  void ReadRoles() {
    std::set<SizeRole> roles;
    for (size_t i = 0; i < plan_.arguments.size(); ++i) {
      if (!IsInteger(plan_.arguments[i])) continue;
      roles_[i] = RoleOfName(plan_.arguments[i].parameter.name);
      roles.insert(roles_[i]);
    }
    sizes_ = SizeRules(inputs_, roles, !in_place_);
    if (!sizes_.problem().empty()) problems_.push_back(sizes_.problem());
  }

  void SetInteger(size_t i, int64_t value) {
    ArgumentPlan& argument = plan_.arguments[i];
    absl::StatusOr<std::vector<std::byte>> bytes =
        IntegerBytes(argument.parameter.type.element.scalar, value);
    if (!bytes.ok()) {
      problems_.push_back(StrCat(Describe(argument), ": ", bytes.status().message()));
      return;
    }
    argument.value = *std::move(bytes);
    argument.value_text = StrCat(value);
    integers_[i] = value;
  }

  void PlanScalars() {
    std::vector<size_t> expressions;
    for (size_t i = 0; i < plan_.arguments.size(); ++i) {
      ArgumentPlan& argument = plan_.arguments[i];
      if (argument.is_buffer || !argument.value.empty() || argument.parameter.type.IsPointer())
        continue;
      const std::string* given = Given(argument);
      if (IsInteger(argument)) {
        if (given != nullptr) {
          expressions.push_back(i);
        } else if (const int64_t value = sizes_.ValueOf(roles_[i]); value > 0) {
          SetInteger(i, value);
        } else {
          // The shape that is missing is reported already; then the integer is no problem of its
          // own.
          const bool waits_for_shape =
              inputs_.empty() && roles_[i] != SizeRole::kUnknown && !problems_.empty();
          if (!waits_for_shape) {
            problems_.push_back(StrCat(Describe(argument), ": not sure what it is\n    pass ",
                                       sizes_.Candidates(argument.parameter.name)));
          }
        }
      } else {
        PlanOtherScalar(given, &argument);
      }
    }
    // Given values may name other integers: repeat until nothing changes.
    bool progress = true;
    while (progress && !expressions.empty()) {
      progress = false;
      for (auto it = expressions.begin(); it != expressions.end();) {
        absl::StatusOr<int64_t> value = Evaluate(*Given(plan_.arguments[*it]), lookup_);
        if (value.ok()) {
          SetInteger(*it, *value);
          it = expressions.erase(it);
          progress = true;
        } else {
          ++it;
        }
      }
    }
    for (size_t i : expressions) {
      const absl::StatusOr<int64_t> value = Evaluate(*Given(plan_.arguments[i]), lookup_);
      problems_.push_back(
          StrCat("--arg ", plan_.arguments[i].parameter.name, ": ", value.status().message()));
    }
  }

  void PlanOtherScalar(const std::string* given, ArgumentPlan* argument) {
    const ParameterType& type = argument->parameter.type;
    const std::string& name = argument->parameter.name;
    if (type.kind == ParameterType::Kind::kScalar && type.element.lanes == 1) {
      std::string text;
      if (given != nullptr) {
        text = *given;
      } else if (type.element.scalar == ScalarType::kBool) {
        text = "false";
      } else {
        text = name.find("eps") != std::string::npos ? "1e-5" : "1";
      }
      absl::StatusOr<std::vector<std::byte>> bytes = ScalarBytes(type.element.scalar, text);
      if (!bytes.ok()) {
        problems_.push_back(StrCat("--arg ", name, ": ", bytes.status().message()));
        return;
      }
      argument->value = *std::move(bytes);
      argument->value_text = text;
      return;
    }
    // A struct or a vector by value: bytes are all that can be said about it.
    const uint32_t size = argument->parameter.size_bytes;
    if (given == nullptr) {
      problems_.push_back(
          StrCat(Describe(*argument), ": its ", size, " bytes are not known\n    pass --arg ", name,
                 "=zeros or --arg ", name, "=hex:", std::string(2 * std::min(size, 4u), '0'),
                 size > 4 ? "..." : "",
                 size == 8 ? StrCat(", or, for a pointer, --arg ", name, "=shape:64x64:f32") : ""));
      return;
    }
    absl::StatusOr<std::vector<std::byte>> bytes = OpaqueBytes(*given, size);
    if (!bytes.ok()) {
      problems_.push_back(StrCat("--arg ", name, ": ", bytes.status().message()));
      return;
    }
    argument->value = *std::move(bytes);
    argument->value_text = *given;
  }

  void EvaluateShapes() {
    for (size_t i = 0; i < plan_.arguments.size(); ++i) {
      ArgumentPlan& argument = plan_.arguments[i];
      if (shape_texts_[i].empty() || !argument.shape.empty()) continue;
      absl::StatusOr<std::vector<int64_t>> shape = EvaluateList(shape_texts_[i], lookup_);
      if (!shape.ok()) {
        problems_.push_back(
            StrCat("--arg ", argument.parameter.name, ": ", shape.status().message()));
      } else {
        argument.shape = *std::move(shape);
      }
    }
  }

  void GiveOutputShapes() {
    // In place: shaped already. No input: reported already.
    if (in_place_ || inputs_.empty()) return;
    const std::optional<MatrixProduct>& product = sizes_.matrix_product();
    const bool same = std::all_of(inputs_.begin(), inputs_.end(), [&](const NamedShape& other) {
      return other.shape == inputs_[0].shape;
    });
    bool first = true;
    for (size_t i = 0; i < plan_.arguments.size(); ++i) {
      ArgumentPlan& argument = plan_.arguments[i];
      if (!argument.is_buffer || argument.is_input) continue;
      const bool is_first = first;
      first = false;
      if (HasShape(i)) continue;
      if (product.has_value() && is_first) {
        argument.shape = {product->m, product->n};
      } else if (same && !product.has_value()) {
        argument.shape = inputs_[0].shape;
      } else {
        problems_.push_back(StrCat(
            Describe(argument), ": not sure of its shape, ",
            product.has_value() ? "only the first output of a matrix product is known"
                                : "the inputs' shapes differ",
            "\n    pass --arg ", argument.parameter.name, "=shape:", ToString(inputs_[0].shape)));
      }
    }
  }

  void SizeBuffers() {
    for (ArgumentPlan& argument : plan_.arguments) {
      if (!argument.is_buffer || argument.shape.empty()) continue;
      unsigned __int128 bytes = argument.element.SizeBytes();
      for (int64_t dimension : argument.shape) {
        if (dimension < 1) {
          problems_.push_back(StrCat(Describe(argument), ": shape ", ToString(argument.shape),
                                     " has a dimension below 1"));
          bytes = 0;
          break;
        }
        bytes *= static_cast<uint64_t>(dimension);
        if (bytes > kMaxBufferBytes) {
          problems_.push_back(StrCat(Describe(argument), ": shape ", ToString(argument.shape),
                                     " needs more than ", kMaxBufferBytes >> 30, " GiB"));
          bytes = 0;
          break;
        }
      }
      argument.size_bytes = static_cast<uint64_t>(bytes);
      if (argument.fill == Fill::kNan && !IsFloating(argument.element.scalar)) {
        problems_.push_back(StrCat(Describe(argument), ": nan needs a floating type"));
      }
    }
  }

  LaunchExtent Extent() const {
    LaunchExtent extent;
    for (size_t i = 0; i < plan_.arguments.size(); ++i) {
      if (!integers_[i].has_value()) continue;
      const int64_t value = *integers_[i];
      switch (roles_[i]) {
        case SizeRole::kElements:
          extent.elements = value;
          break;
        case SizeRole::kM:
        case SizeRole::kRows:
        case SizeRole::kHeight:
          extent.rows = value;
          break;
        case SizeRole::kN:
          if (!sizes_.has_m()) extent.elements = value;
          extent.columns = value;
          break;
        case SizeRole::kColumns:
        case SizeRole::kWidth:
          extent.columns = value;
          break;
        default:
          break;
      }
    }
    return extent;
  }

  void PlanSharedBytes() {
    if (request_.shared_bytes.empty()) return;
    absl::StatusOr<int64_t> bytes = Evaluate(request_.shared_bytes, lookup_);
    if (!bytes.ok()) {
      problems_.push_back(StrCat("shared: ", bytes.status().message()));
    } else if (*bytes < 0 || *bytes > (1 << 20)) {
      problems_.push_back(StrCat("shared: ", *bytes, " bytes is outside 0 to 1 MiB"));
    } else {
      plan_.shared_bytes = static_cast<uint32_t>(*bytes);
    }
  }

  // Integers by name, and NAME.size, NAME.dim0, NAME.dim1, ... of buffers.
  std::optional<int64_t> Lookup(std::string_view name) const {
    const size_t dot = name.find('.');
    for (size_t i = 0; i < plan_.arguments.size(); ++i) {
      const ArgumentPlan& argument = plan_.arguments[i];
      if (argument.parameter.name != name.substr(0, dot)) continue;
      if (dot == std::string_view::npos) return integers_[i];
      if (argument.shape.empty()) return std::nullopt;
      const std::string_view field = name.substr(dot + 1);
      if (field == "size") return ElementCount(argument.shape);
      uint32_t axis = 0;
      if (field.starts_with("dim") && ParseNumber(field.substr(3), &axis) &&
          axis < argument.shape.size()) {
        return argument.shape[axis];
      }
    }
    return std::nullopt;
  }

  const LaunchRequest& request_;
  LaunchPlan plan_;
  std::vector<std::string> problems_;
  std::vector<std::string> shape_texts_;          // per argument: a given shape, as text
  std::vector<std::optional<int64_t>> integers_;  // per argument
  std::vector<SizeRole> roles_;                   // per argument
  std::vector<NamedShape> inputs_;                // inputs whose shape is known
  SizeRules sizes_{{}, {}, false};
  bool in_place_ = false;  // no pointer to const: all buffers are inputs and outputs
  NameLookup lookup_ = [this](std::string_view name) { return Lookup(name); };
};

}  // namespace

void ApplyLaunchComment(const LaunchComment& comment, LaunchRequest* request) {
  for (const auto& [key, value] : comment.settings) {
    if (key == "grid") {
      if (request->grid.empty()) request->grid = value;
    } else if (key == "block") {
      if (request->block.empty()) request->block = value;
    } else if (key == "shared") {
      if (request->shared_bytes.empty()) request->shared_bytes = value;
    } else if (key.starts_with(kAttributePrefix)) {
      request->attributes.emplace(key.substr(kAttributePrefix.size()), value);
    } else if (key != "backward" && key != "rtol" && key != "atol") {  // the provider's
      request->arguments.emplace(key, value);
    }
  }
}

void ApplySource(const SourceScan& scan, Entry* entry) {
  const SourceKernel* match = nullptr;
  for (const SourceKernel& kernel : scan.kernels) {
    if (kernel.name != entry->name || kernel.parameters.size() != entry->parameters.size())
      continue;
    if (match != nullptr) {
      for (size_t i = 0; i < kernel.parameters.size(); ++i) {
        if (kernel.parameters[i].name != match->parameters[i].name) return;
      }
    }
    match = &kernel;
  }
  if (match == nullptr) return;
  for (size_t i = 0; i < match->parameters.size(); ++i) {
    Parameter& parameter = entry->parameters[i];
    if (!match->parameters[i].name.empty()) parameter.name = match->parameters[i].name;
    if (entry->types_known) continue;
    ParameterType type = ParseType(match->parameters[i].type);
    const uint32_t size_bytes = type.IsPointer() ? 8 : type.element.SizeBytes();
    // A typedef or a macro may hide another type: the width in PTX has the last word.
    if (type.kind != ParameterType::Kind::kOpaque && size_bytes == parameter.size_bytes) {
      parameter.type = std::move(type);
    }
  }
}

absl::StatusOr<LaunchPlan> PlanLaunch(const Entry& entry, const LaunchRequest& request) {
  return Planner(entry, request).Plan();
}

}  // namespace ops_debug::runner
