// ops-debug-reference: the built-in references as a provider process.
//
//   ops-debug-reference NAME REQUEST RESPONSE [REQUEST RESPONSE ...]
//   ops-debug-reference NAME --describe JSON
//   ops-debug-reference --list
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "analysis/reference/serve.h"
#include "proto/provider.h"
#include "proto/tensor_file.h"

namespace ops_debug::reference {
namespace {

constexpr int kExitUsage = 2;
constexpr int kExitFailure = 3;

constexpr char kUsage[] =
    "ops-debug-reference NAME REQUEST RESPONSE [REQUEST RESPONSE ...]\n"
    "ops-debug-reference NAME --describe '{\"inputs\": [{\"shape\": [8, 8]}], \"attributes\": "
    "{}}'\n"
    "ops-debug-reference --list\n\n"
    "Computes a built-in reference in float64. Requests and responses are .safetensors files\n"
    "(proto/provider.h). Exit codes: 0; 2 wrong names, shapes or attributes; 3 a file cannot be\n"
    "read or written; 4 no gradients.\n";

int Report(const absl::Status& status) {
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  if (status.code() == absl::StatusCode::kUnimplemented) return proto::kProviderCannot;
  return status.code() == absl::StatusCode::kInvalidArgument ? kExitUsage : kExitFailure;
}

int List() {
  for (const Operator& op : Operators()) {
    std::printf("%-20s %s\n", op.name.c_str(), op.summary.c_str());
  }
  return 0;
}

absl::Status Serve(const Operator& op, const std::string& request, const std::string& response) {
  const absl::StatusOr<proto::TensorSet> set = proto::ReadTensors(request);
  if (!set.ok()) return absl::UnavailableError(set.status().message());
  const absl::StatusOr<proto::TensorSet> answer = Answer(op, *set);
  if (!answer.ok()) return answer.status();
  return proto::WriteSafetensors(response, answer->tensors, answer->metadata);
}

int DescribeTo(const Operator& op, const std::string& text) {
  const nlohmann::json question = nlohmann::json::parse(text, nullptr, false);
  if (!question.is_object()) {
    return Report(absl::InvalidArgumentError(absl::StrCat("--describe: no JSON object: ", text)));
  }
  const absl::StatusOr<nlohmann::json> answer = Describe(op, question);
  if (!answer.ok()) return Report(answer.status());
  std::printf("%s\n", answer->dump().c_str());
  return 0;
}

int Main(const std::vector<std::string>& words) {
  if (words.size() == 1 && words[0] == "--list") return List();
  if (words.size() == 1 && (words[0] == "--help" || words[0] == "-h")) {
    std::fputs(kUsage, stdout);
    return 0;
  }
  if (words.size() < 3 || words.size() % 2 == 0) {
    std::fputs(kUsage, stderr);
    return kExitUsage;
  }
  const Operator* op = FindOperator(words[0]);
  if (op == nullptr) {
    std::vector<std::string> names;
    for (const Operator& known : Operators()) names.push_back(known.name);
    return Report(absl::InvalidArgumentError(absl::StrCat(
        "there is no builtin:", words[0], "; there are ", absl::StrJoin(names, ", "))));
  }
  if (words[1] == "--describe") return DescribeTo(*op, words[2]);
  for (size_t i = 1; i + 1 < words.size(); i += 2) {
    if (absl::Status status = Serve(*op, words[i], words[i + 1]); !status.ok()) {
      return Report(status);
    }
  }
  return 0;
}

}  // namespace
}  // namespace ops_debug::reference

int main(int argc, char** argv) {
  try {
    return ops_debug::reference::Main({argv + 1, argv + argc});
  } catch (const std::exception& error) {  // JSON of an unexpected form, out of memory
    std::fprintf(stderr, "ops-debug-reference: %s\n", error.what());
    return ops_debug::reference::kExitUsage;
  }
}
