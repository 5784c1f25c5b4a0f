// Folder layout: triton/runtime/cache.py (FileCacheManager) of Triton 3.x, and Inductor's
// runtime/cache_dir_utils.py of PyTorch 2.x.
#include "interposer/framework_cache.h"

#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string_view>

#include "interposer/assembler_command.h"
#include "interposer/files.h"

namespace ops_debug::interposer {
namespace {

constexpr int kLevels = 3;  // root, device (Inductor), kernel
// A folder without a cubin that is so old will not get one: it holds a launcher or an unfinished
// kernel of a process that is gone.
constexpr int64_t kAbandoned_ns = 60'000'000'000;
constexpr int64_t kYoung_ns = 2'000'000'000;
constexpr char kCubinSuffix[] = ".cubin";

int64_t Now_ns() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

// Value of `"name": …` in Triton's flat JSON, as written; empty if there is none.
std::string JsonValue(std::string_view json, const std::string& name) {
  size_t at = json.find('"' + name + "\":");
  if (at == std::string_view::npos) return "";
  at += name.size() + 3;
  while (at < json.size() && json[at] == ' ') ++at;
  const bool quoted = at < json.size() && json[at] == '"';
  const size_t begin = at + (quoted ? 1 : 0);
  const size_t end = quoted ? json.find('"', begin) : json.find_first_of(",}\n", begin);
  return std::string(json.substr(begin, std::min(end, json.size()) - begin));
}

}  // namespace

std::vector<std::string> FrameworkCacheRoots() {
  std::vector<std::string> roots;
  const auto add = [&](const std::string& root) {
    if (!root.empty() && root.front() == '/' && std::ranges::find(roots, root) == roots.end())
      roots.push_back(root);
  };
  std::string home = Variable("HOME");
  add(Variable("TRITON_CACHE_DIR"));
  if (const std::string triton_home = Variable("TRITON_HOME"); !triton_home.empty())
    add(triton_home + "/.triton/cache");
  if (!home.empty()) add(home + "/.triton/cache");

  if (const std::string inductor = Variable("TORCHINDUCTOR_CACHE_DIR"); !inductor.empty()) {
    add(inductor + "/triton");
  } else {
    // getpass.getuser(), with the characters that Inductor replaces.
    std::string user;
    for (const char* name : {"LOGNAME", "USER", "LNAME", "USERNAME"}) {
      if (user.empty()) user = Variable(name);
    }
    if (user.empty()) {
      passwd entry{};
      passwd* found = nullptr;
      char buffer[2048];
      if (getpwuid_r(getuid(), &entry, buffer, sizeof buffer, &found) == 0 && found != nullptr)
        user = found->pw_name;
    }
    for (char& c : user) {
      if (std::strchr("\\/:*?\"<>|", c) != nullptr) c = '_';
    }
    std::string temporary;
    for (const char* name : {"TMPDIR", "TEMP", "TMP"}) {
      if (temporary.empty()) temporary = Variable(name);
    }
    if (temporary.empty()) temporary = "/tmp";
    if (!user.empty()) add(temporary + "/torchinductor_" + user + "/triton");
  }
  return roots;
}

void FrameworkCaches::Refresh(const std::string& path, int levels) {
  if (folders_.size() >= limit_folders_ && !folders_.contains(path)) return;
  if (const auto known = folders_.find(path); known != folders_.end() && known->second.settled)
    return;
  struct stat status {};
  if (stat(path.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) return;
  const int64_t mtime_ns = ModifiedAt_ns(status);
  Folder& folder = folders_[path];  // references stay valid while others are added
  if (folder.mtime_ns != mtime_ns || folder.seen_young) {
    const int64_t age_ns = Now_ns() - mtime_ns;
    folder.mtime_ns = mtime_ns;
    folder.seen_young = age_ns < kYoung_ns;
    folder.folders.clear();
    bool complete = false;
    ForEachFile(path, [&](const char* name_text) {
      const std::string_view name = name_text;
      const std::string child = path + "/" + name_text;
      struct stat child_status {};
      if (!name.ends_with(kCubinSuffix)) {
        // Files of a cache have an extension; Triton's temporary folders begin with "tmp.".
        if (levels > 1 && name.find('.') == std::string_view::npos) folder.folders.push_back(child);
        return;
      }
      if (stat(child.c_str(), &child_status) != 0 || !S_ISREG(child_status.st_mode)) return;
      complete = true;
      std::vector<std::string>& files = cubins_[static_cast<uint64_t>(child_status.st_size)];
      if (std::ranges::find(files, child) == files.end()) files.push_back(child);
    });
    folder.settled = folder.folders.empty() && levels < kLevels &&
                     (complete ? !folder.seen_young : age_ns > kAbandoned_ns);
  }
  for (const std::string& child : folder.folders) Refresh(child, levels - 1);
}

std::optional<StoredPtx> FrameworkCaches::Find(std::span<const std::byte> cubin,
                                               const std::vector<std::string>& roots) {
  std::lock_guard lock(mutex_);
  for (const std::string& root : roots) Refresh(root, kLevels);
  const auto found = cubins_.find(cubin.size());
  if (found == cubins_.end()) return std::nullopt;
  for (const std::string& path : found->second) {
    std::string bytes;
    if (!ReadWholeFile(path, &bytes) || bytes.size() != cubin.size() ||
        std::memcmp(bytes.data(), cubin.data(), bytes.size()) != 0)
      continue;
    if (std::optional<StoredPtx> ptx = PtxBesideCubin(path)) return ptx;
  }
  return std::nullopt;
}

std::optional<StoredPtx> PtxBesideCubin(const std::string& cubin_path) {
  if (!std::string_view(cubin_path).ends_with(kCubinSuffix)) return std::nullopt;
  const std::string stem = cubin_path.substr(0, cubin_path.size() - (sizeof(kCubinSuffix) - 1));
  std::string json;
  StoredPtx ptx;
  // A .ptx beside any .cubin may be older or for another device; Triton writes the three together.
  if (!ReadWholeFile(stem + ".json", &json) || json.find("\"num_warps\"") == std::string::npos ||
      !ReadWholeFile(stem + ".ptx", &ptx.text))
    return std::nullopt;
  ptx.text.resize(strnlen(ptx.text.data(), ptx.text.size()));
  // What Triton's backend makes of these on ptxas's command line.
  ptx.options.fuse_multiply_add = JsonValue(json, "enable_fp_fusion") != "false";
  ApplyAssemblerArguments(SplitArguments(JsonValue(json, "ptx_options")), &ptx.options);
  ptx.origin = "Triton's cache";
  return ptx;
}

}  // namespace ops_debug::interposer
