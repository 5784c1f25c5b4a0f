// The caches in which Triton keeps a kernel's cubin with the PTX that it was made from beside it
// ("name.cubin", "name.ptx", "name.json" in a folder per kernel); Inductor keeps folders of the
// same kind under its own.
//
// An index from the cubins' sizes to their files, made at the first question and refreshed by
// looking at the times of the folders above the kernels' ones: a kernel's folder does not change
// once it is complete. So a question costs a few stat calls when nothing is new.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "interposer/ptx_store.h"

namespace ops_debug::interposer {

class FrameworkCaches {
 public:
  // `roots`: folders of kernels' folders, or of such folders (at most two levels).
  explicit FrameworkCaches(size_t limit_folders = 32768) : limit_folders_(limit_folders) {}

  // The PTX beside a file with exactly these bytes, under one of the roots.
  std::optional<StoredPtx> Find(std::span<const std::byte> cubin,
                                const std::vector<std::string>& roots);

 private:
  struct Folder {
    int64_t mtime_ns = 0;     // when it was listed; 0: never
    bool settled = false;     // a kernel's, complete: not looked at again
    bool seen_young = false;  // listed so soon after a change that the next one may not show
    std::vector<std::string> folders;
  };
  void Refresh(const std::string& path, int levels);

  const size_t limit_folders_;
  std::mutex mutex_;  // guards the rest
  std::unordered_map<std::string, Folder> folders_;
  std::unordered_map<uint64_t, std::vector<std::string>> cubins_;  // by size
};

// Where this process's frameworks keep their caches, by the rules of Triton and Inductor.
std::vector<std::string> FrameworkCacheRoots();

// The PTX beside this cubin's file, if the files around it show that Triton made both at once.
std::optional<StoredPtx> PtxBesideCubin(const std::string& cubin_path);

}  // namespace ops_debug::interposer
