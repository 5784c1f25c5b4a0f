// Finds out by its first bytes what a file is, whatever its name says, and gives every error the
// file's name.
#include "proto/tensor_file.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "proto/byte_range.h"
#include "proto/natural_order.h"
#include "proto/npy_file.h"
#include "proto/safetensors_file.h"
#include "proto/zip_directory.h"

namespace ops_debug::proto {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kExtensions[] = {".npy", ".npz", ".safetensors"};

absl::Status About(const std::string& what, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(what, ": ", status.message()));
}

std::string Quoted(const std::string& path) { return absl::StrCat("\"", path, "\""); }

absl::StatusOr<TensorSet> ReadNpz(const ByteRange& file) {
  const absl::StatusOr<std::vector<ZipMember>> members = ReadZipDirectory(file);
  if (!members.ok()) return members.status();
  TensorSet set;
  for (const ZipMember& member : *members) {
    const std::string where = absl::StrCat("member \"", member.name, "\"");
    if (!member.name.ends_with(".npy")) {
      return absl::InvalidArgumentError(
          absl::StrCat(where,
                       " is no array, so this is no .npz; a .pt file of PyTorch: "
                       "safetensors.torch.save_file(torch.load(file), \"file.safetensors\")"));
    }
    const absl::StatusOr<ByteRange> content = ReadMember(member);
    if (!content.ok()) return About(where, content.status());
    absl::StatusOr<Tensor> tensor = ReadNpy(*content);
    if (!tensor.ok()) return About(where, tensor.status());
    tensor->name = member.name.substr(0, member.name.size() - 4);
    set.tensors.push_back(*std::move(tensor));
  }
  return set;
}

absl::StatusOr<TensorSet> ReadOneFile(const fs::path& path) {
  const absl::StatusOr<ByteRange> file = MapFile(path.string());
  if (!file.ok()) return file.status();
  if (file->size == 0) return absl::DataLossError("is empty");
  if (LooksLikeNpy(*file)) {
    absl::StatusOr<Tensor> tensor = ReadNpy(*file);
    if (!tensor.ok()) return tensor.status();
    tensor->name = path.stem().string();
    TensorSet set;
    set.tensors.push_back(*std::move(tensor));
    return set;
  }
  if (LooksLikeZip(*file)) return ReadNpz(*file);
  // Its format has no magic: eight bytes, then JSON, which begins with a brace.
  if (path.extension() == ".safetensors" || (file->Holds(8, 1) && file->Number<char>(8) == '{')) {
    return ReadSafetensors(*file);
  }
  if (path.extension() == ".npy") return ReadNpy(*file).status();
  if (path.extension() == ".npz") {
    return absl::InvalidArgumentError("is no .npz: it does not begin as a zip archive does");
  }
  return absl::InvalidArgumentError(
      "is of no known format; .npy, .npz, .safetensors and folders of them are read");
}

absl::Status CheckNames(const TensorSet& set) {
  std::set<std::string_view> names;
  for (const Tensor& tensor : set.tensors) {
    if (!names.insert(tensor.name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("two tensors have the name \"", tensor.name, "\""));
    }
  }
  return absl::OkStatus();
}

struct FolderContent {
  std::vector<fs::path> files, processes;  // by name
};

bool IsProcessFolder(const fs::directory_entry& entry) {
  std::error_code error;
  return entry.path().filename().string().starts_with("process-") && entry.is_directory(error);
}

// What is hidden or still being written (*.unfinished) is left out.
absl::StatusOr<FolderContent> ListFolder(const fs::path& folder) {
  FolderContent content;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string extension = entry->path().extension().string();
    const bool is_known = std::find(std::begin(kExtensions), std::end(kExtensions), extension) !=
                          std::end(kExtensions);
    if (entry->path().filename().string().starts_with('.')) continue;
    if (IsProcessFolder(*entry)) {
      content.processes.push_back(entry->path());
    } else if (is_known) {
      content.files.push_back(entry->path());
    }
  }
  if (error) {
    return About(Quoted(folder.string()), absl::ErrnoToStatus(error.value(), "cannot be read"));
  }
  for (std::vector<fs::path>* paths : {&content.files, &content.processes}) {
    std::sort(paths->begin(), paths->end(), [](const fs::path& a, const fs::path& b) {
      return NaturallyBefore(a.filename().string(), b.filename().string());
    });
  }
  return content;
}

// Of a file of a captured launch: how many were captured before it.
std::optional<uint64_t> SequenceOf(const TensorSet& set) {
  const auto text = set.metadata.find("sequence");
  uint64_t number = 0;
  if (text == set.metadata.end() || !absl::SimpleAtoi(text->second, &number)) return std::nullopt;
  return number;
}

void Append(const std::string& prefix, TensorSet from, TensorSet* to) {
  for (Tensor& tensor : from.tensors) {
    tensor.name.insert(0, prefix);
    to->tensors.push_back(std::move(tensor));
  }
  for (const auto& [key, value] : from.metadata) to->metadata[prefix + key] = value;
}

// In the order of the captured launches if every file has one, else by name.
absl::StatusOr<TensorSet> ReadFiles(const std::vector<fs::path>& paths) {
  struct File {
    std::string prefix;
    TensorSet set;
    std::optional<uint64_t> sequence;
  };
  std::vector<File> files;
  bool is_sequence = true;
  for (const fs::path& path : paths) {
    absl::StatusOr<TensorSet> set = ReadOneFile(path);
    if (!set.ok()) return About(Quoted(path.string()), set.status());
    const std::optional<uint64_t> sequence = SequenceOf(*set);
    is_sequence = is_sequence && sequence;
    files.push_back(
        {path.extension() == ".npy" ? "" : path.stem().string() + "/", *std::move(set), sequence});
  }
  if (is_sequence) {
    std::stable_sort(files.begin(), files.end(),
                     [](const File& a, const File& b) { return a.sequence < b.sequence; });
  }
  TensorSet all;
  for (File& file : files) Append(file.prefix, std::move(file.set), &all);
  return all;
}

absl::StatusOr<TensorSet> ReadFolder(const fs::path& folder) {
  const absl::StatusOr<FolderContent> content = ListFolder(folder);
  if (!content.ok()) return content.status();
  absl::StatusOr<TensorSet> all = ReadFiles(content->files);
  if (!all.ok()) return all;
  // Process ids change from run to run, and names must not.
  for (size_t i = 0; i < content->processes.size(); ++i) {
    const absl::StatusOr<FolderContent> of_process = ListFolder(content->processes[i]);
    if (!of_process.ok()) return of_process.status();
    absl::StatusOr<TensorSet> set = ReadFiles(of_process->files);
    if (!set.ok()) return set;
    const bool is_only = content->processes.size() == 1 && content->files.empty();
    Append(is_only ? "" : absl::StrCat("process", i, "/"), *std::move(set), &*all);
  }
  if (all->tensors.empty()) {
    return absl::NotFoundError(
        absl::StrCat(Quoted(folder.string()),
                     ": the folder holds no .npy, .npz or .safetensors file with tensors"));
  }
  return all;
}

}  // namespace

absl::StatusOr<TensorSet> ReadTensors(const std::string& path) {
  std::error_code error;
  const bool is_folder = fs::is_directory(path, error);
  absl::StatusOr<TensorSet> set = is_folder ? ReadFolder(path) : ReadOneFile(path);
  if (!set.ok()) return is_folder ? set : About(Quoted(path), set.status());
  if (absl::Status status = CheckNames(*set); !status.ok()) return About(Quoted(path), status);
  set->path = path;
  return set;
}

}  // namespace ops_debug::proto
