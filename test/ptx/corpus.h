// The PTX files that tests run over: test/ptx/data, and the 88 real files of
// shared/ptx-corpus.tar.xz where a checkout has that archive beside it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace ops_debug::ptx {

struct Corpus {
  std::vector<std::filesystem::path> own;  // test/ptx/data, never empty
  std::vector<std::filesystem::path>
      real;             // the archive's files, sorted; empty without the archive
  std::string skipped;  // why `real` is empty
  std::vector<std::filesystem::path> All() const;
};

// Unpacks the archive into the build tree at the first call.
const Corpus& TestCorpus();

std::string ReadFile(const std::filesystem::path& path);

}  // namespace ops_debug::ptx
