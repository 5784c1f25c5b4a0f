// The PTX store's folder: one file per cubin, named after its identity, shared by all processes of
// a user and bounded in size and number.
//
// A file is written under another name and renamed, so a reader finds a whole file or none; each
// carries a checksum, so what a crash or a full disk left is passed over. The time of last use is
// the file's mtime; when the folder has outgrown its bound, the files that were unused for longest
// are removed. No lock: two processes that do so at once remove the same files.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_set>

#include "interposer/cubin_identity.h"
#include "interposer/ptx_store.h"

namespace ops_debug::interposer {

class PtxFolder {
 public:
  static constexpr uint64_t kLimitBytes = 256ull << 20;
  static constexpr uint64_t kLimitFiles = 16384;

  // `path` empty: a folder that holds nothing and takes nothing.
  explicit PtxFolder(std::string path, uint64_t limit_bytes = kLimitBytes,
                     uint64_t limit_files = kLimitFiles);

  // Makes the folder if it is missing, and sees whether it can be written.
  void Prepare();
  // Why nothing can be written: "cannot write …: Permission denied". Empty: it can, or was not
  // tried.
  std::string obstacle();

  // Could the folder hold the PTX of a cubin of this size? Reads the folder again only if it has
  // changed.
  bool MayHold(uint64_t cubin_bytes);
  std::optional<StoredPtx> Find(const CubinIdentity& cubin);
  void Add(const CubinIdentity& cubin, const StoredPtx& ptx);

 private:
  void SetObstacle(const std::string& what, int error);
  void Trim();
  std::string PathOf(const CubinIdentity& cubin) const;

  const std::string path_;
  const uint64_t limit_bytes_, limit_files_;
  std::mutex mutex_;  // guards the rest
  std::string obstacle_;
  std::unordered_set<uint64_t> sizes_;
  int64_t listed_mtime_ns_ = 0;            // of the folder, when it was listed
  bool listed_while_young_ = true;         // it may have changed since within one tick of its clock
  uint64_t untrimmed_bytes_ = UINT64_MAX;  // written since the last trim; at first: unknown
};

// The stored form of an entry; nothing if it is damaged or of another version.
std::string EncodeStoredPtx(const StoredPtx& ptx);
std::optional<StoredPtx> DecodeStoredPtx(const std::string& bytes);

}  // namespace ops_debug::interposer
