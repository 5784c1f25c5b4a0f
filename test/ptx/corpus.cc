// Unpacks into a directory of its own and renames it, so that test programs that start together do
// not meet half a corpus.
#include "test/ptx/corpus.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>

namespace ops_debug::ptx {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> PtxFilesBelow(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.path().extension() == ".ptx") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

Corpus Load() {
  Corpus corpus;
  corpus.own = PtxFilesBelow(OPS_DEBUG_PTX_DATA);
  const fs::path archive = OPS_DEBUG_PTX_CORPUS_ARCHIVE;
  const fs::path folder = OPS_DEBUG_PTX_CORPUS_FOLDER;
  if (!fs::exists(archive)) {
    corpus.skipped = "no " + archive.string();
    return corpus;
  }
  if (!fs::exists(folder)) {
    const fs::path unpacked = folder.string() + "." + std::to_string(getpid());
    fs::create_directories(unpacked);
    const std::string command = "tar -xf '" + archive.string() + "' -C '" + unpacked.string() + "'";
    if (std::system(command.c_str()) != 0) {
      corpus.skipped = "cannot unpack " + archive.string() + " (is xz installed?)";
      return corpus;
    }
    std::error_code ignored;  // another test program may have been faster
    fs::rename(unpacked, folder, ignored);
    if (fs::exists(unpacked)) fs::remove_all(unpacked, ignored);
  }
  corpus.real = PtxFilesBelow(folder);
  return corpus;
}

}  // namespace

std::vector<fs::path> Corpus::All() const {
  std::vector<fs::path> all = own;
  all.insert(all.end(), real.begin(), real.end());
  return all;
}

const Corpus& TestCorpus() {
  static const Corpus corpus = Load();
  return corpus;
}

std::string ReadFile(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace ops_debug::ptx
