// Looks at names and endings only; whether a provider can compute is found out when it is asked.
#include "analysis/validate/provider.h"

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

#include "proto/session.h"

namespace ops_debug::analysis {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostListed = 24;
constexpr uintmax_t kLargestSource_bytes = 8 << 20;

// What a name could be here.
struct FoundKernel {
  std::string file, kernel;
};

bool Exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

std::string InFolder(const ProviderTools& tools, const std::string& name) {
  return tools.folder == "." ? name : (fs::path(tools.folder) / name).string();
}

// A scanner, like the runner's: what it does not recognise it leaves out.
std::vector<std::string> KernelsOf(const std::string& path) {
  std::error_code error;
  if (fs::file_size(path, error) > kLargestSource_bytes || error) return {};
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  const std::string source = text.str();
  std::vector<std::string> kernels;
  constexpr std::string_view kGlobal = "__global__";
  for (size_t at = source.find(kGlobal); at != std::string::npos;
       at = source.find(kGlobal, at + 1)) {
    // The kernel's name is the last word before the parameters; launch bounds come before it.
    const std::string head = source.substr(at, 400);
    static const std::regex kName(R"(\b(\w+)\s*\()");
    for (std::sregex_iterator match(head.begin(), head.end(), kName), end; match != end; ++match) {
      const std::string word = (*match)[1];
      if (word == "__launch_bounds__" || word == "__attribute__" || word == "__cluster_dims__") {
        continue;
      }
      kernels.push_back(word);
      break;
    }
  }
  return kernels;
}

std::vector<std::string> FilesOf(const ProviderTools& tools) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& file : fs::directory_iterator(tools.folder, error)) {
    names.push_back(file.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<FoundKernel> KernelsIn(const ProviderTools& tools) {
  std::vector<FoundKernel> found;
  for (const std::string& file : FilesOf(tools)) {
    if (!absl::EndsWith(file, ".cu")) continue;
    for (const std::string& kernel : KernelsOf(InFolder(tools, file))) {
      found.push_back({InFolder(tools, file), kernel});
    }
  }
  return found;
}

Provider KernelProvider(const std::string& name, const std::string& file, const std::string& kernel,
                        const ProviderTools& tools) {
  Provider provider;
  provider.name = name;
  provider.source = file;
  provider.command = {tools.runner, "--provider", file};
  if (!kernel.empty()) provider.command.push_back("--entry=" + kernel);
  if (tools.emulator) {
    provider.environment = {std::string(proto::kEnvEmulator) + "=1",
                            WithPathInFront("LD_LIBRARY_PATH", tools.emulator_folder)};
  }
  return provider;
}

Provider PythonProvider(const std::string& name, const std::string& spec,
                        const ProviderTools& tools) {
  Provider provider;
  provider.name = name;
  provider.command = {tools.python, "-m", "ops_debug.provider", spec};
  provider.environment = {WithPathInFront("PYTHONPATH", tools.python_folder)};
  const size_t colon = spec.rfind(".py:");
  if (colon != std::string::npos) provider.source = spec.substr(0, colon + 3);
  return provider;
}

Provider SavedProvider(const std::string& name, const std::string& path) {
  Provider provider;
  provider.name = name;
  provider.saved = path;
  provider.source = path;
  return provider;
}

absl::Status NoSuchFile(const std::string& path) {
  std::error_code error;
  return absl::NotFoundError(absl::StrCat("no such file: ", path, "; the current folder is ",
                                          fs::current_path(error).string()));
}

bool IsSaved(const std::string& name) {
  return absl::EndsWith(name, ".npy") || absl::EndsWith(name, ".npz") ||
         absl::EndsWith(name, ".safetensors");
}

// What is written like a file; nothing if `name` is not.
absl::StatusOr<std::vector<Provider>> FromFile(const std::string& name,
                                               const ProviderTools& tools) {
  using Found = std::vector<Provider>;
  const size_t colon = name.rfind(':');
  const std::string file = name.substr(0, colon);
  const std::string member = colon == std::string::npos ? "" : name.substr(colon + 1);
  if (absl::EndsWith(file, ".cu") || absl::EndsWith(file, ".ptx")) {
    if (!Exists(file)) return NoSuchFile(file);
    return Found{KernelProvider(name, file, member, tools)};
  }
  if (absl::EndsWith(file, ".py")) {
    if (!Exists(file)) return NoSuchFile(file);
    if (member.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(name,
                                                     " holds functions: say which one, as in ",
                                                     name, ":", fs::path(name).stem().string()));
    }
    return Found{PythonProvider(name, name, tools)};
  }
  if (absl::EndsWith(name, ".onnx")) {
    if (!Exists(name)) return NoSuchFile(name);
    Provider provider = PythonProvider(name, name, tools);
    provider.source = name;
    return Found{provider};
  }
  std::error_code error;
  if (IsSaved(name) || fs::is_directory(name, error)) {
    if (!Exists(name)) return NoSuchFile(name);
    return Found{SavedProvider(name, name)};
  }
  return Found{};
}

std::vector<Provider> FromShortName(const std::string& name, const ProviderTools& tools) {
  std::vector<Provider> found;
  const std::string stem = InFolder(tools, name);
  for (const char* ending : {".cu", ".ptx"}) {
    if (!Exists(stem + ending)) continue;
    std::string kernel;
    if (std::string_view(ending) == ".cu") {
      const std::vector<std::string> kernels = KernelsOf(stem + ending);
      if (std::find(kernels.begin(), kernels.end(), name) != kernels.end()) kernel = name;
    }
    found.push_back(KernelProvider(name, stem + ending, kernel, tools));
  }
  if (Exists(stem + ".py")) found.push_back(PythonProvider(name, stem + ".py:" + name, tools));
  if (Exists(stem + ".onnx")) found.push_back(PythonProvider(name, stem + ".onnx", tools));
  if (!found.empty()) return found;
  for (const FoundKernel& kernel : KernelsIn(tools)) {
    if (kernel.kernel == name) found.push_back(KernelProvider(name, kernel.file, name, tools));
  }
  return found;
}

std::string Listed(std::vector<std::string> items) {
  std::sort(items.begin(), items.end());
  items.erase(std::unique(items.begin(), items.end()), items.end());
  const size_t more = items.size() > kMostListed ? items.size() - kMostListed : 0;
  items.resize(items.size() - more);
  return absl::StrCat(absl::StrJoin(items, ", "),
                      more > 0 ? absl::StrCat(" and ", more, " more") : "");
}

absl::Status UnknownName(const std::string& name, const OperatorBook& book,
                         const ProviderTools& tools) {
  std::vector<std::string> operators, files, kernels;
  for (const auto& [key, entry] : book.operators) operators.push_back(key);
  for (const std::string& file : FilesOf(tools)) {
    for (const char* ending : {".cu", ".ptx", ".py", ".onnx"}) {
      if (absl::EndsWith(file, ending)) files.push_back(file);
    }
  }
  for (const FoundKernel& kernel : KernelsIn(tools)) kernels.push_back(kernel.kernel);
  std::string there;
  if (!operators.empty()) {
    absl::StrAppend(&there, "\n  operators in ", book.path, ": ", Listed(operators));
  }
  if (!files.empty()) absl::StrAppend(&there, "\n  files here: ", Listed(files));
  if (!kernels.empty()) absl::StrAppend(&there, "\n  kernels here: ", Listed(kernels));
  if (there.empty()) there = "\n  there is no operator in this folder, and no ops-debug.yaml";
  return absl::NotFoundError(
      absl::StrCat("unknown operator \"", name, "\"", there,
                   "\n  or builtin:NAME, a file, torch.nn.NAME, package.module:function"));
}

void ApplyEntry(const OperatorEntry& entry, Provider* provider) {
  provider->settings = entry;
  if (!entry.backward.empty()) {
    const std::string kernels = absl::StrJoin(entry.backward, ",");
    // Of kernels; a Python function finds its own.
    if (absl::EndsWith(provider->source, ".cu") || absl::EndsWith(provider->source, ".ptx")) {
      provider->command.push_back("--backward=" + kernels);
    }
  }
}

absl::StatusOr<Provider> FromBook(const std::string& name, const OperatorEntry& entry,
                                  const OperatorBook& book, const ProviderTools& tools) {
  // Files are relative to the book.
  std::string target = entry.provider;
  const fs::path beside = fs::path(book.path).parent_path() / target;
  if (!absl::StrContains(target, ':') && Exists(beside.string())) target = beside.string();
  if (!entry.entry.empty() && !absl::StrContains(target, ':')) target += ":" + entry.entry;
  OperatorBook none;
  absl::StatusOr<Provider> provider = ResolveProvider(target, none, tools);
  if (!provider.ok()) {
    return absl::Status(
        provider.status().code(),
        absl::StrCat(entry.place, ": operator \"", name, "\": ", provider.status().message()));
  }
  provider->name = name;
  ApplyEntry(entry, &*provider);
  return provider;
}

bool IsDottedName(const std::string& name) {
  static const std::regex kDotted(R"([A-Za-z_]\w*(\.[A-Za-z_]\w*)*[.:][A-Za-z_]\w*)");
  return std::regex_match(name, kDotted);
}

}  // namespace

std::string WithPathInFront(const char* variable, const std::string& folder) {
  const char* inherited = std::getenv(variable);
  const bool has = inherited != nullptr && *inherited != '\0';
  return absl::StrCat(variable, "=", folder, has ? ":" : "", has ? inherited : "");
}

absl::StatusOr<Provider> ResolveProvider(const std::string& name, const OperatorBook& book,
                                         const ProviderTools& tools) {
  constexpr std::string_view kBuiltin = "builtin:";
  if (name.empty()) return absl::InvalidArgumentError("an operator's name is empty");
  if (name.starts_with(kBuiltin)) {
    Provider provider;
    provider.name = name;
    provider.command = {tools.reference_program, name.substr(kBuiltin.size())};
    return provider;
  }
  if (const auto entry = book.operators.find(name); entry != book.operators.end()) {
    return FromBook(name, entry->second, book, tools);
  }
  const absl::StatusOr<std::vector<Provider>> file = FromFile(name, tools);
  if (!file.ok()) return file.status();
  if (!file->empty()) return file->front();
  if (IsDottedName(name)) return PythonProvider(name, name, tools);
  const std::vector<Provider> found = FromShortName(name, tools);
  if (found.empty()) return UnknownName(name, book, tools);
  if (found.size() > 1) {
    std::vector<std::string> sources;
    for (const Provider& provider : found) sources.push_back(provider.source);
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", name, "\" is ambiguous: ", absl::StrJoin(sources, ", "),
        "; give the file itself (with :KERNEL or :FUNCTION behind it where it holds several), or ",
        "an entry in ops-debug.yaml"));
  }
  return found.front();
}

}  // namespace ops_debug::analysis
