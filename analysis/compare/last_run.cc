#include "analysis/compare/last_run.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/str_cat.h"
#include "proto/state_folder.h"

namespace ops_debug::analysis {
namespace {

using Json = nlohmann::json;

// The last two captured runs, if a capture was the last thing that was kept.
std::optional<absl::StatusOr<LastRun>> FindLastCaptures(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code no_captures, no_pair;
  const auto captured = fs::last_write_time(folder + proto::kLastCapturesFile, no_captures);
  const auto validated = fs::last_write_time(folder + proto::kLastPairFile, no_pair);
  if (no_captures || (!no_pair && validated >= captured)) return std::nullopt;
  std::ifstream file(folder + proto::kLastCapturesFile, std::ios::binary);
  LastRun run;
  run.kind = "capture";
  std::getline(file, run.candidate);
  std::getline(file, run.reference);
  if (run.reference.empty()) {
    return absl::NotFoundError(absl::StrCat("only one run was captured, into \"", run.candidate,
                                            "\", and none before it"));
  }
  run.title = absl::StrCat(run.candidate, " against the run before, ", run.reference);
  return run;
}

}  // namespace

absl::Status KeepLastRun(const LastRun& run, const proto::TensorSet& candidate,
                         const proto::TensorSet& reference) {
  const std::string folder = proto::StateFolder();
  if (folder.empty()) return absl::NotFoundError("there is no $HOME to keep the tensors in");
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  // The note names the pair only once both are whole.
  const std::string note = folder + proto::kLastPairFile;
  std::filesystem::remove(note, error);
  LastRun kept = run;
  kept.candidate = folder + "/last-candidate.safetensors";
  kept.reference = folder + "/last-reference.safetensors";
  absl::Status status = proto::WriteSafetensors(kept.candidate, candidate.tensors);
  if (status.ok()) status = proto::WriteSafetensors(kept.reference, reference.tensors);
  if (!status.ok()) return status;
  const Json json = {{"kind", kept.kind},
                     {"candidate", kept.candidate},
                     {"reference", kept.reference},
                     {"title", kept.title}};
  std::ofstream file(note, std::ios::binary);
  file << json.dump(2, ' ', false, Json::error_handler_t::replace) << '\n';
  file.close();
  return file ? absl::OkStatus()
              : absl::UnavailableError(absl::StrCat("\"", note, "\": cannot be written"));
}

absl::StatusOr<LastRun> FindLastRun() {
  const std::string folder = proto::StateFolder();
  if (const auto captures = FindLastCaptures(folder)) return *captures;
  std::ifstream file(folder + proto::kLastPairFile, std::ios::binary);
  if (folder.empty() || !file) {
    return absl::NotFoundError("there is no last run to compare");
  }
  const Json json = Json::parse(file, nullptr, /*allow_exceptions=*/false);
  LastRun run;
  for (const auto& [key, value] : {std::pair{"kind", &run.kind},
                                   {"candidate", &run.candidate},
                                   {"reference", &run.reference},
                                   {"title", &run.title}}) {
    const bool is_text = json.is_object() && json.contains(key) && json[key].is_string();
    if (!is_text) {
      return absl::DataLossError(absl::StrCat("\"", folder, proto::kLastPairFile,
                                              "\" does not say which pair the last run left"));
    }
    *value = json[key].get<std::string>();
  }
  return run;
}

}  // namespace ops_debug::analysis
