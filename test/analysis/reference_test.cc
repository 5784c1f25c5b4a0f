// References against values computed by hand and, for every operator that has gradients, against
// central differences.
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "analysis/reference/serve.h"
#include "analysis/validate/tensor_values.h"

namespace ops_debug::reference {
namespace {

using Json = nlohmann::json;
using proto::DType;
using proto::Tensor;
using Values = std::vector<double>;

Tensor T(const std::string& name, const Shape& shape, const Values& values,
         DType dtype = DType::kFloat64) {
  return analysis::TensorOf(name, dtype, shape, values);
}

proto::TensorSet Request(std::vector<Tensor> tensors, const Json& attributes = Json::object(),
                         const std::string& precision = "as-is") {
  proto::TensorSet set;
  set.tensors = std::move(tensors);
  set.metadata = {{"attributes", attributes.dump()}, {"precision", precision}};
  return set;
}

absl::StatusOr<proto::TensorSet> Ask(const std::string& op, const proto::TensorSet& request) {
  const Operator* found = FindOperator(op);
  REQUIRE(found != nullptr);
  return Answer(*found, request);
}

// The values of the first output.
Values Result(const std::string& op, std::vector<Tensor> tensors,
              const Json& attributes = Json::object()) {
  const auto answer = Ask(op, Request(std::move(tensors), attributes));
  INFO(answer.status());
  REQUIRE(answer.ok());
  return analysis::ElementValues(answer->tensors[0]);
}

std::string Refusal(const std::string& op, std::vector<Tensor> tensors,
                    const Json& attributes = Json::object()) {
  const auto answer = Ask(op, Request(std::move(tensors), attributes));
  REQUIRE_FALSE(answer.ok());
  return std::string(answer.status().message());
}

void RequireClose(const Values& actual, const Values& expected, double tolerance = 1e-12) {
  REQUIRE(actual.size() == expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    INFO("element " << i);
    CHECK(actual[i] == Approx(expected[i]).epsilon(tolerance).margin(tolerance));
  }
}

Values Counting(int64_t count, double first = 0) {
  Values values;
  for (int64_t i = 0; i < count; ++i) values.push_back(first + static_cast<double>(i));
  return values;
}

// Numbers in [-1, 1) without a pattern that a wrong index would repeat.
double Noise(uint64_t i) {
  uint64_t x = (i + 1) * 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return static_cast<double>((x ^ (x >> 31)) >> 11) * 0x1p-52 - 1;
}

Values NoiseValues(int64_t count, const std::string& contents, uint64_t stream) {
  Values values;
  for (int64_t i = 0; i < count; ++i) {
    double value = Noise(stream * 1000003 + static_cast<uint64_t>(i));
    if (contents == "positive") value = 1.5 + value;
    if (contents.rfind("index:", 0) == 0) {
      value = std::floor((value + 1) / 2 * std::stod(contents.substr(6)));
    }
    values.push_back(value);
  }
  return values;
}

TEST_CASE("reference: matmul multiplies by hand") {
  RequireClose(Result("matmul", {T("a", {2, 3}, {1, 2, 3, 4, 5, 6}), T("b", {3, 1}, {1, 0, -1})}),
               {-2, -2});
}

TEST_CASE("reference: matmul transposes, scales and adds as BLAS does") {
  const Values result = Result(
      "matmul", {T("a", {2, 2}, {1, 2, 3, 4}), T("b", {2, 2}, {5, 6, 7, 8}), T("c", {2}, {10, 20})},
      {{"transA", true}, {"transB", true}, {"alpha", 2}, {"beta", 0.5}});
  // a^T b^T = [[1, 3], [2, 4]] [[5, 7], [6, 8]] = [[23, 31], [34, 46]]
  RequireClose(result, {51, 72, 73, 102});
}

TEST_CASE("reference: matmul broadcasts leading dimensions") {
  const Values a = Counting(2 * 1 * 2 * 2), b = Counting(3 * 2 * 2, 1);
  const Values result = Result("matmul", {T("a", {2, 1, 2, 2}, a), T("b", {3, 2, 2}, b)});
  REQUIRE(result.size() == 2 * 3 * 4);
  // Last product: [[4, 5], [6, 7]] [[9, 10], [11, 12]].
  RequireClose({result.end() - 4, result.end()}, {91, 100, 131, 144});
}

TEST_CASE("reference: matmul of a large matrix is right in every thread's part") {
  const int64_t n = 130;
  Values identity(static_cast<size_t>(n * n), 0.0);
  for (int64_t i = 0; i < n; ++i) identity[static_cast<size_t>(i * n + i)] = 1;
  const Values b = NoiseValues(n * n, "random", 1);
  REQUIRE(Result("matmul", {T("a", {n, n}, identity), T("b", {n, n}, b)}) == b);
}

TEST_CASE("reference: matmul names both shapes if the inner dimensions differ") {
  REQUIRE(Refusal("matmul", {T("a", {2, 3}, Counting(6)), T("b", {2, 3}, Counting(6))}) ==
          "matmul: a is 2x3 and b is 2x3: the inner dimensions 3 and 2 differ");
}

TEST_CASE("reference: conv2d slides a kernel over the padded image") {
  // 3x3 ones over 3x3 ones, padding 1: how many pixels lie below the kernel.
  RequireClose(Result("conv2d",
                      {T("input", {1, 1, 3, 3}, Values(9, 1)),
                       T("weight", {1, 1, 3, 3}, Values(9, 1)), T("bias", {1}, {100})},
                      {{"padding", 1}}),
               {104, 106, 104, 106, 109, 106, 104, 106, 104});
}

TEST_CASE("reference: conv2d strides and dilates") {
  // Taps 1 and 10 at distance 2, every other position.
  RequireClose(
      Result("conv2d", {T("input", {1, 1, 1, 7}, Counting(7)), T("weight", {1, 1, 1, 2}, {1, 10})},
             {{"stride", {1, 2}}, {"dilation", {1, 2}}}),
      {20, 42, 64});
}

TEST_CASE("reference: conv2d keeps groups apart and finds their number from the shapes") {
  RequireClose(Result("conv2d", {T("input", {1, 2, 1, 2}, {1, 2, 3, 4}),
                                 T("weight", {2, 1, 1, 1}, {10, 100})}),
               {10, 20, 300, 400});
}

TEST_CASE("reference: conv1d with padding=same keeps the length, the odd part behind") {
  RequireClose(Result("conv1d", {T("input", {1, 1, 3}, {1, 2, 3}), T("weight", {1, 1, 2}, {1, 10})},
                      {{"padding", "same"}}),
               {21, 32, 3});
}

TEST_CASE("reference: conv3d sums a cube") {
  RequireClose(Result("conv3d", {T("input", {1, 1, 2, 2, 2}, Counting(8)),
                                 T("weight", {1, 1, 2, 2, 2}, Counting(8))}),
               {140});
}

TEST_CASE("reference: conv2d says which shape does not fit") {
  const Tensor input = T("input", {1, 3, 4, 4}, Counting(48));
  CHECK(Refusal("conv2d", {input, T("weight", {4, 2, 3, 3}, Counting(72))}) ==
        "conv2d: input 1x3x4x4 has 3 channels, which is no multiple of the 2 of weight 4x2x3x3");
  CHECK(Refusal("conv2d", {input, T("weight", {4, 3, 5, 5}, Counting(300))}) ==
        "conv2d: weight 4x3x5x5 with dilation 1 is larger than the padded input 1x3x4x4 in spatial "
        "dimension 0");
  CHECK(Refusal("conv2d", {input}) ==
        "conv2d: input 'weight' is missing; it takes input, weight, bias (optional)");
}

TEST_CASE("reference: an unknown attribute is answered with those that exist") {
  CHECK(Refusal("softmax", {T("x", {2}, {0, 0})}, {{"axs", 0}}) ==
        "softmax: unknown attribute 'axs'; it has axis");
  CHECK(Refusal("softmax", {T("x", {2}, {0, 0})}, {{"axis", "last"}}) ==
        "softmax: attribute 'axis' must be a whole number, not \"last\"");
}

TEST_CASE("reference: attributes are known under the names of other frameworks") {
  REQUIRE(Result("sum", {T("x", {2, 2}, {1, 2, 3, 4})}, {{"dim", 0}, {"keepdims", 1}}) ==
          Values{4, 6});
}

TEST_CASE("reference: softmax survives numbers whose exponential overflows") {
  const double e = std::exp(1.0);
  RequireClose(Result("softmax", {T("x", {1, 2}, {1000, 1001})}), {1 / (1 + e), e / (1 + e)});
  RequireClose(Result("log_softmax", {T("x", {2, 1}, {0, 0})}, {{"axis", 0}}),
               {-std::log(2.0), -std::log(2.0)});
}

TEST_CASE("reference: layer norm has mean 0 and variance 1 before weight and bias") {
  RequireClose(
      Result("layer_norm", {T("x", {1, 2}, {3, 5}), T("w", {2}, {10, 100}), T("b", {2}, {1, 2})},
             {{"eps", 0}}),
      {-9, 102});
  RequireClose(Result("rms_norm", {T("x", {1, 2}, {3, 4})}, {{"eps", 0}}),
               {3 / std::sqrt(12.5), 4 / std::sqrt(12.5)});
}

TEST_CASE("reference: batch, group and instance norm share statistics over different elements") {
  const Tensor x = T("x", {2, 2, 1}, {1, 10, 3, 30});
  CHECK(Result("batch_norm", {x}, {{"eps", 0}}) == Values{-1, -1, 1, 1});
  CHECK(Result("group_norm", {x}, {{"eps", 0}}) == Values{-1, 1, -1, 1});
  CHECK(Result("instance_norm", {x}, {{"eps", 1}}) == Values{0, 0, 0, 0});
}

TEST_CASE("reference: pooling of windows, with and without the padding in the mean") {
  const Tensor x = T("x", {1, 1, 2, 2}, {1, 2, 3, 4});
  CHECK(Result("max_pool2d", {x}) == Values{4});
  CHECK(Result("avg_pool2d", {x}) == Values{2.5});
  CHECK(Result("avg_pool2d", {x}, {{"padding", 1}}) == Values{0.25, 0.5, 0.75, 1});
  CHECK(Result("avg_pool2d", {x}, {{"padding", 1}, {"count_include_pad", false}}) ==
        Values{1, 2, 3, 4});
}

TEST_CASE("reference: operators are found under their usual other names") {
  for (const char* name : {"gemm", "LayerNorm", "sdpa", "Conv2d", "maxpool2d"}) {
    INFO(name);
    CHECK(FindOperator(name) != nullptr);
  }
  CHECK(FindOperator("conv") == nullptr);
}

TEST_CASE("reference: attention averages values, and only earlier ones if it is causal") {
  const Tensor q = T("q", {2, 1}, {0, 0}), v = T("v", {2, 1}, {2, 4});
  RequireClose(Result("attention", {q, q, v}), {3, 3});
  RequireClose(Result("attention", {q, q, v}, {{"is_causal", true}}), {2, 3});
}

TEST_CASE("reference: reductions of a row") {
  const Tensor x = T("x", {1, 4}, {3, -4, 12, 1});
  CHECK(Result("sum", {x}) == Values{12});
  CHECK(Result("mean", {x}) == Values{3});
  CHECK(Result("max", {x}, {{"axis", -1}}) == Values{12});
  CHECK(Result("min", {x}) == Values{-4});
  CHECK(Result("prod", {x}) == Values{-144});
  CHECK(Result("argmax", {x}, {{"axis", 1}}) == Values{2});
  RequireClose(Result("var", {x}), {(0 + 49 + 81 + 4) / 3.0});
  RequireClose(Result("norm", {x}), {std::sqrt(170.0)});
}

TEST_CASE("reference: argmax answers in int64, whatever the precision") {
  const auto answer =
      Ask("argmax", Request({T("x", {3}, {1, 5, 2}, DType::kFloat16)}, Json::object(), "float64"));
  REQUIRE(answer.ok());
  REQUIRE(answer->tensors[0].dtype == DType::kInt64);
}

TEST_CASE("reference: axes change places") {
  CHECK(Result("transpose", {T("x", {2, 3}, Counting(6))}) == Values{0, 3, 1, 4, 2, 5});
  CHECK(Result("permute", {T("x", {1, 2, 2}, Counting(4))}, {{"dims", {2, 1, 0}}}) ==
        Values{0, 2, 1, 3});
}

TEST_CASE("reference: look-ups by index, and an index outside is named") {
  const Tensor table = T("weight", {3, 2}, Counting(6));
  CHECK(Result("embedding", {table, T("index", {2}, {2, 0}, DType::kInt64)}) == Values{4, 5, 0, 1});
  CHECK(Refusal("embedding", {table, T("index", {2}, {0, 3}, DType::kInt32)}) ==
        "embedding: index 3 at element 1 is not a whole number from 0 to 2");
  CHECK(Result("gather",
               {T("x", {2, 2}, {1, 2, 3, 4}), T("i", {2, 2}, {0, 0, 1, 0}, DType::kInt64)},
               {{"axis", 1}}) == Values{1, 1, 4, 3});
  CHECK(Result("scatter_add", {T("x", {3}, {1, 1, 1}), T("i", {3}, {0, 0, 2}, DType::kInt64),
                               T("s", {3}, {10, 20, 30})}) == Values{31, 1, 31});
}

TEST_CASE("reference: resampling doubles an image") {
  const Tensor x = T("x", {1, 1, 1, 2}, {0, 4});
  CHECK(Result("upsample_nearest", {x}) == Values{0, 0, 4, 4, 0, 0, 4, 4});
  RequireClose(Result("upsample_bilinear", {x}, {{"size", {1, 4}}}), {0, 1, 3, 4});
}

TEST_CASE("reference: elementwise functions at known points") {
  const Tensor x = T("x", {3}, {-1, 0, 2});
  CHECK(Result("relu", {x}) == Values{0, 0, 2});
  RequireClose(Result("sigmoid", {x}), {1 / (1 + std::exp(1.0)), 0.5, 1 / (1 + std::exp(-2.0))});
  RequireClose(Result("gelu", {x}), {-0.15865525393145707, 0, 1.9544997361036416});
  RequireClose(Result("gelu", {x}, {{"approximate", "tanh"}}),
               {-0.15880800939172324, 0, 1.954597694087775});
  CHECK(Result("add", {x, T("y", {2, 1}, {10, 20})}) == Values{9, 10, 12, 19, 20, 22});
}

TEST_CASE("reference: sigmoid and softplus stay finite for large arguments") {
  const Tensor x = T("x", {2}, {-1000, 1000});
  CHECK(Result("sigmoid", {x}) == Values{0, 1});
  CHECK(Result("softplus", {x}) == Values{0, 1000});
}

TEST_CASE("reference: as-is rounds to the inputs' type, float64 does not") {
  const std::vector<Tensor> third = {T("a", {1}, {1}, DType::kFloat16),
                                     T("b", {1}, {3}, DType::kFloat16)};
  const auto rounded = Ask("div", Request(third));
  REQUIRE(rounded.ok());
  CHECK(rounded->tensors[0].dtype == DType::kFloat16);
  const auto wide = Ask("div", Request(third, Json::object(), "float64"));
  REQUIRE(wide.ok());
  CHECK(analysis::ElementValues(wide->tensors[0]) == Values{1.0 / 3});
}

TEST_CASE("reference: inputs belong by name if all names are known, else in order") {
  const Tensor one = T("b", {1}, {1}), two = T("a", {1}, {2});
  CHECK(Result("sub", {one, two}) == Values{1});
  CHECK(Result("sub", {T("x", {1}, {1}), two}) == Values{-1});
}

TEST_CASE("reference: a description completes shapes, attributes and outputs") {
  const auto answer = Describe(*FindOperator("conv2d"),
                               {{"inputs", {{{"shape", {1, 32, 8, 8}}, {"dtype", "float16"}}}},
                                {"attributes", {{"groups", 32}, {"padding", 1}}}});
  REQUIRE(answer.ok());
  CHECK((*answer)["inputs"][1]["name"] == "weight");
  CHECK((*answer)["inputs"][1]["shape"] == Json{32, 1, 3, 3});
  CHECK((*answer)["inputs"][1]["dtype"] == "float16");
  CHECK((*answer)["outputs"][0][1] == Json{1, 32, 8, 8});
  CHECK((*answer)["gradients"] == true);
}

TEST_CASE("reference: a description tells other providers what they must know, not every default") {
  const auto told = [](const char* op, const Shape& shape, const Json& given) {
    return (*Describe(*FindOperator(op),
                      {{"inputs", {{{"shape", shape}}}}, {"attributes", given}}))["attributes"];
  };
  CHECK(told("matmul", {2, 2}, Json::object()) == Json::object());
  CHECK(told("matmul", {2, 2}, {{"transB", true}}) == Json{{"transB", true}});
  CHECK(told("softmax", {2, 2}, Json::object()) == Json{{"axis", -1}});
  CHECK(told("conv2d", {1, 4, 8, 8}, {{"padding", 1}}) == Json{{"padding", 1}, {"groups", 1}});
}

TEST_CASE("reference: questions and attributes beyond reason are refused") {
  CHECK_FALSE(Describe(*FindOperator("relu"), {{"inputs", {{{"shape", {-1}}}}}}).ok());
  CHECK_FALSE(Describe(*FindOperator("conv1d"), {{"inputs", {{{"shape", {1, 1, 8}}}}},
                                                 {"attributes", {{"dilation", 4000000000000}}}})
                  .ok());
}

TEST_CASE("reference: gradients of argmax are refused as impossible") {
  proto::TensorSet request = Request({T("x", {3}, {1, 2, 3})});
  request.metadata["gradients"] = "1";
  const auto answer = Ask("argmax", request);
  REQUIRE(answer.status().code() == absl::StatusCode::kUnimplemented);
}

// One evaluation: inputs as described, noise in them.
struct Case {
  const char* op;
  std::vector<Shape> shapes;
  Json attributes = Json::object();
};

std::vector<Case> GradientCases() {
  std::vector<Case> cases = {
      {"matmul", {{2, 3}, {3, 2}, {2}}, {{"alpha", 0.5}, {"beta", 2}}},
      {"matmul", {{3, 2}, {4, 3}}, {{"transA", true}, {"transB", true}}},
      {"matmul", {{2, 1, 2, 3}, {3, 2, 3}}, {{"transB", true}}},
      {"matmul", {{3, 2}, {3, 4}}, {{"transA", true}}},
      {"linear", {{2, 2, 3}, {4, 3}, {4}}},
      {"conv1d", {{2, 2, 7}, {2, 2, 3}, {2}}, {{"stride", 2}, {"padding", 1}}},
      {"conv2d", {{2, 4, 5, 4}, {6, 2, 3, 2}, {6}}, {{"padding", {1, 0}}, {"dilation", {1, 2}}}},
      {"conv2d", {{1, 3, 4, 5}, {3, 1, 2, 3}}, {{"padding", "same"}}},
      {"conv3d", {{1, 1, 3, 3, 3}, {1, 1, 2, 2, 2}}, {{"stride", {1, 2, 1}}, {"padding", 1}}},
      {"softmax", {{2, 3, 2}}, {{"axis", 1}}},
      {"log_softmax", {{3, 4}}},
      {"layer_norm", {{3, 2, 2}, {2, 2}, {2, 2}}},
      {"rms_norm", {{3, 4}, {4}}},
      {"attention", {{2, 3, 2}, {2, 4, 2}, {2, 4, 3}, {3, 4}}, {{"scale", 0.7}}},
      {"attention", {{3, 2}, {3, 2}, {3, 2}}, {{"causal", true}}},
      {"group_norm", {{2, 4, 3}, {4}, {4}}, {{"num_groups", 2}}},
      {"batch_norm", {{2, 3, 2, 2}, {3}, {3}}},
      {"batch_norm", {{2, 3, 2}, {3}, {3}, {3}, {3}}},
      {"instance_norm", {{2, 3, 5}}},
      {"max_pool2d", {{1, 2, 5, 4}}, {{"kernel_size", 3}, {"stride", 1}, {"padding", 1}}},
      {"avg_pool2d", {{1, 2, 5, 4}}, {{"padding", 1}, {"count_include_pad", false}}},
      {"sum", {{2, 3, 2}}, {{"axis", {0, 2}}}},
      {"var", {{3, 4}}, {{"axis", 0}}},
      {"std", {{3, 4}}, {{"axis", 1}, {"keepdim", true}}},
      {"norm", {{3, 4}}, {{"axis", 1}, {"order", 3}}},
      {"prod", {{2, 4}}, {{"axis", 1}}},
      {"permute", {{2, 3, 4}}, {{"permutation", {2, 0, 1}}}},
      {"embedding", {{4, 3}, {5}}},
      {"gather", {{3, 4}, {2, 4}}, {{"axis", 0}}},
      {"scatter_add", {{3, 4}, {3, 2}, {3, 2}}, {{"axis", 1}}},
      {"cumsum", {{2, 3, 2}}, {{"axis", 1}}},
      {"upsample_bilinear", {{1, 2, 3, 2}}, {{"size", {5, 3}}}},
      {"upsample_bilinear", {{1, 1, 3, 3}}, {{"align_corners", true}}},
      {"upsample_nearest", {{1, 2, 2, 3}}, {{"size", {3, 5}}}},
      {"gelu", {{7}}, {{"approximate", "tanh"}}},
      {"mul", {{2, 3}, {3}}},
      {"div", {{3, 1}, {2}}},
  };
  // And every other operator with gradients, as it describes itself.
  for (const Operator& op : Operators()) {
    const bool listed = std::any_of(cases.begin(), cases.end(),
                                    [&](const Case& known) { return op.name == known.op; });
    if (op.differentiate && !listed) cases.push_back({op.name.c_str(), {{3, 4}}});
  }
  return cases;
}

TEST_CASE("reference: analytical gradients agree with central differences, for every operator") {
  constexpr double kStep = 1e-5;
  for (const Case& one : GradientCases()) {
    const Operator& op = *FindOperator(one.op);
    INFO(op.name << " " << one.attributes.dump());
    Json shapes = Json::array();
    for (const Shape& shape : one.shapes)
      shapes.push_back({{"shape", shape}, {"dtype", "float64"}});
    const auto description = Describe(op, {{"inputs", shapes}, {"attributes", one.attributes}});
    INFO(description.status());
    REQUIRE(description.ok());
    std::vector<std::pair<std::string, Values>> inputs;
    const auto request = [&] {
      std::vector<Tensor> tensors;
      for (size_t i = 0; i < inputs.size(); ++i) {
        tensors.push_back(
            T(inputs[i].first, (*description)["inputs"][i]["shape"], inputs[i].second));
      }
      return Request(std::move(tensors), one.attributes, "float64");
    };
    for (const Json& input : (*description)["inputs"]) {
      inputs.emplace_back(input["name"], NoiseValues(ElementCount(input["shape"]),
                                                     input["contents"], inputs.size()));
    }
    const Shape output = (*description)["outputs"][0][1];
    const Values cotangent = NoiseValues(ElementCount(output), "random", 77);
    proto::TensorSet with_gradients = request();
    with_gradients.metadata["gradients"] = "1";
    with_gradients.tensors.push_back(T("cotangent.output0", output, cotangent));
    const auto analytical = Answer(op, with_gradients);
    INFO(analytical.status());
    REQUIRE(analytical.ok());
    const auto projected = [&] {
      const auto answer = Answer(op, request());
      REQUIRE(answer.ok());
      const Values values = analysis::ElementValues(answer->tensors[0]);
      double sum = 0;
      for (size_t i = 0; i < values.size(); ++i) sum += values[i] * cotangent[i];
      return sum;
    };
    for (size_t n = 0; n < inputs.size(); ++n) {
      if (!(*description)["inputs"][n]["differentiable"].get<bool>()) continue;
      INFO("input " << inputs[n].first);
      const auto found = std::find_if(
          analytical->tensors.begin(), analytical->tensors.end(),
          [&](const Tensor& tensor) { return tensor.name == "grad." + inputs[n].first; });
      REQUIRE(found != analytical->tensors.end());
      const Values gradient = analysis::ElementValues(*found);
      for (size_t i = 0; i < gradient.size(); ++i) {
        const double kept = inputs[n].second[i];
        inputs[n].second[i] = kept + kStep;
        const double above = projected();
        inputs[n].second[i] = kept - kStep;
        const double below = projected();
        inputs[n].second[i] = kept;
        INFO("element " << i);
        CHECK(gradient[i] == Approx((above - below) / (2 * kStep)).epsilon(1e-6).margin(1e-8));
      }
    }
  }
}

}  // namespace
}  // namespace ops_debug::reference
